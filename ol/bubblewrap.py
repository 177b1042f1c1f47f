# Tangled from book/workshop/ol-sandbox.md
"""A command in bubblewrap: a root that holds Python and nothing else."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ol.registry import ROOT

_TOOL = ("__init__", "apart", "jobs", "registry", "server", "worker")  # what is needed inside


@dataclass(frozen=True)
class Limits:
    """What one submission may use."""

    seconds: float = 600.0  # by the clock
    memory: int = 4096  # MiB, of all its processes together
    disk: int = 256  # MiB
    processes: int = 64


@functools.cache
def has_namespaces() -> bool:
    """Whether there is a bubblewrap that may do all that is asked of it."""
    if sys.platform != "linux" or shutil.which("bwrap") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        copy_tool(Path(folder))
        probe = command([sys.executable, "-P", "-m", "ol.apart", str(user())], Path(folder))
        done = subprocess.run(probe, env={"PYTHONPATH": folder}, capture_output=True, check=False)
    return done.returncode == 0


def user() -> int:
    """The number of a user that owns nothing, for root; else one's own."""
    return 1 << 30 | os.getpid() if (mine := getattr(os, "getuid", int)()) == 0 else mine


def copy_tool(folder: Path) -> None:
    """Put into a folder what of this tool is needed in a sandbox; it knows no mutants."""
    (folder / "ol").mkdir()
    for name in _TOOL:
        shutil.copyfile(Path(__file__).with_name(f"{name}.py"), folder / "ol" / f"{name}.py")


def command(inner: list[str], folder: Path) -> list[str]:
    """A command that runs in a sandbox, in which it can read this folder."""
    rights = "--cap-drop ALL --cap-add CAP_SYS_ADMIN"
    if user() == os.getuid():
        rights += " --unshare-user --uid 65534 --gid 65534"
    else:  # root, who becomes another user, and has to end what that one began
        rights += " --cap-add CAP_SETUID --cap-add CAP_SETGID --cap-add CAP_KILL"
    walls = "--die-with-parent --unshare-ipc --unshare-net --unshare-pid --unshare-uts"
    words = f"bwrap {walls} {rights}".split()
    words += [*_root(), "--tmpfs", "/scratch", "--symlink", "/scratch", "/dev/shm"]
    words += [*_shown(str(folder)), "--chdir", str(folder), "--remount-ro", "/"]
    return [*words, "--", *inner]


def _shown(path: str, how: str = "--ro-bind") -> Iterator[str]:
    """Options that show a file or folder, and let everybody pass to it."""
    for parent in reversed(Path(path).parents[:-1]):
        yield from ("--perms", "0755", "--dir", str(parent))
    yield from (how, path, path)


def _root() -> Iterator[str]:
    """Options that show Python, without what of this project is installed in it."""
    for name in ("/usr", "/bin", "/lib", "/lib64"):
        if os.path.islink(name):
            yield from ("--symlink", os.readlink(name), name)
        else:
            yield from ("--ro-bind-try", name, name)
    for path in ("/etc/ld.so.cache", "/proc/cpuinfo"):
        yield from _shown(path, "--ro-bind-try")
    for name in ("null", "zero", "random", "urandom"):
        yield from _shown(f"/dev/{name}", "--dev-bind")
    packages = [path for path in sys.path if path.endswith("-packages") and os.path.isdir(path)]
    for path in dict.fromkeys([sys.base_prefix, sys.prefix, *packages]):
        if path != "/usr":
            yield from _shown(path)
    for place in dict.fromkeys([*packages, str(ROOT)]):
        for hidden in (Path(place, "ol"), Path(place, "tinyllm")):
            seen = any(hidden.is_relative_to(p) for p in (*packages, "/usr", sys.prefix))
            if seen and hidden.is_dir():
                yield from ("--tmpfs", str(hidden))
