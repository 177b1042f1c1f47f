# Tangled from book/workshop/ol-class.md
"""Grade one submission in a process with limits."""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ol.registry import ROOT

STOP = threading.Event()  # set to end all sandboxes of this process


@dataclass(frozen=True)
class Limits:
    """What one submission may use."""

    seconds: float = 600.0  # by the clock
    memory: int = 4096  # MiB, of all its processes together
    disk: int = 256  # MiB
    processes: int = 64


def _limit(limits: Limits) -> None:
    """Limits that the system keeps for each process; children have them too."""
    try:
        import resource
    except ImportError:  # not a Unix: only what is watched from outside
        return
    wanted = {
        "RLIMIT_CORE": 0,
        "RLIMIT_FSIZE": limits.disk << 20,
        "RLIMIT_DATA": limits.memory << 20,
        "RLIMIT_NOFILE": 1024,
    }
    for name, value in wanted.items():
        with contextlib.suppress(AttributeError, ValueError, OSError):
            kind = getattr(resource, name)
            hard = resource.getrlimit(kind)[1]
            top = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (top, top))


def _inside() -> None:
    """The life of the sandbox: an order on standard input, an answer on standard output."""
    answers = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    order = json.loads(sys.stdin.buffer.read())
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    limits = Limits(**order["limits"])
    _limit(limits)
    last = threading.Timer(limits.seconds + 5, os._exit, [1])  # if nobody watches it any more
    last.daemon = True
    last.start()
    from ol.runner import Runner
    from ol.submission import graded

    folder = Path(tempfile.gettempdir(), "tests")
    for name, text in (order["files"] or {}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(text))
    folder.mkdir(exist_ok=True)
    with Runner(workers=1) as runner:
        answer = graded(order, folder, runner)
    os.write(answers, json.dumps(answer).encode())
    os._exit(0)


_SETUP = """\
mount -t proc proc /proc
mount -t tmpfs -o size="$1"m none "$2"
mount -t tmpfs -o size="$1"m none /dev/shm
while read -r _ place _; do
  case "$place" in /proc*|/dev*|/sys*|"$2") ;; *) mount -o remount,bind,ro "$place" 2>/dev/null ;; esac
done < /proc/self/mounts
shift 2
exec "$@"
"""
_UNSHARE = (
    "unshare", "--user", "--map-root-user", "--mount", "--pid", "--net", "--ipc", "--fork",
    "--kill-child",
)  # fmt: skip


@functools.cache
def has_namespaces() -> bool:
    """Whether this system lets us make them."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        probe = [*_UNSHARE, "sh", "-c", _SETUP, "sh", "1", folder, "true"]
        done = subprocess.run(probe, capture_output=True, check=False)
    return done.returncode == 0 and not done.stderr


def _command(limits: Limits, scratch: str) -> list[str]:
    sandbox = [sys.executable, "-P", "-m", "ol.sandbox"]
    if not has_namespaces():
        return sandbox
    return [*_UNSHARE, "sh", "-c", _SETUP, "sh", str(limits.disk), scratch, *sandbox]


def grade_files(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out an order: chapter, files, limits. The grade as data, or {"stopped": why}.

    It can be called on another machine: all that it needs is in the order, and the package.
    """
    limits = Limits(**order["limits"])
    if STOP.is_set():
        return {"stopped": "stopped by hand"}
    with tempfile.TemporaryDirectory(prefix="ol-sandbox-", ignore_cleanup_errors=True) as scratch:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        environment |= {"TMPDIR": scratch, "PYTHONPATH": str(ROOT), "HOME": scratch}
        environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        given: bytes | None = json.dumps(order).encode()
        answer, why, end = b"", "", time.monotonic() + limits.seconds
        with subprocess.Popen(
            _command(limits, scratch),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=scratch,
            start_new_session=True,
        ) as sandbox:
            while not why:
                try:
                    answer, _ = sandbox.communicate(given, timeout=0.1)
                    break
                except subprocess.TimeoutExpired:
                    given, why = None, _broken(sandbox.pid, limits, end, Path(scratch))
            _end(sandbox.pid)
    if why:
        return {"stopped": why}
    try:
        grade: dict[str, Any] = json.loads(answer)
    except ValueError:
        return {"stopped": f"the sandbox ended without an answer ({sandbox.returncode})"}
    return grade


def _broken(pid: int, limits: Limits, end: float, scratch: Path) -> str:
    """Which limit a sandbox has broken, or why else it is to end; "" if it may go on."""
    count, memory = _usage(pid)
    if STOP.is_set():
        return "stopped by hand"
    if time.monotonic() > end:
        return f"more than {limits.seconds:g} s"
    if count > limits.processes:
        return f"more than {limits.processes} processes"
    if memory > limits.memory << 20:
        return f"more than {limits.memory} MiB of memory"
    if not has_namespaces() and _size(scratch) > limits.disk << 20:
        return f"more than {limits.disk} MiB on the disk"
    return ""


def _usage(pid: int) -> tuple[int, int]:
    """How many processes a sandbox has, and their memory in bytes; 0 where it cannot be known."""
    count = memory = 0
    for process in _processes(pid):
        with contextlib.suppress(Exception):  # it has ended
            memory += process.memory_info().rss
        count += 1
    return count, memory


def _processes(pid: int) -> Iterator[Any]:
    """The processes of a sandbox, if psutil is there to ask."""
    try:
        psutil: Any = importlib.import_module("psutil")
    except ImportError:
        return
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(pid)
        yield from [*parent.children(recursive=True), parent]


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.lstat().st_size
    return total


def _end(pid: int) -> None:
    """End a sandbox with all its processes. With namespaces the first one's end is that of all."""
    for process in list(_processes(pid)):
        with contextlib.suppress(Exception):
            process.kill()
    with contextlib.suppress(OSError, AttributeError):
        os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    _inside()
