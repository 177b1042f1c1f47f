# Tangled from book/workshop/weave-serve.md
"""Results on the disk, each under a key: a hash of the files and words on which it depends."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def read(path: Path, key: str) -> Any:
    """What is kept there under this key; None where nothing is."""
    try:
        kept = json.loads(path.read_bytes())
        return kept["value"] if kept["key"] == key else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write(path: Path, key: str, value: Any) -> None:
    """Keeps a value that JSON can hold, in the place of what was kept there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(json.dumps({"key": key, "value": value}), encoding="utf-8")
    os.replace(new, path)


def fingerprint(root: Path, files: Iterable[Path], *words: str) -> str:
    """A hash of the package beside the book at `root` or else on Python's path, of these files, of the words, of Python and numpy."""
    package = root / "tinyllm"
    if not package.is_dir():
        found = find_spec("tinyllm")
        package = Path(found.origin).parent if found and found.origin else package
    total = hashlib.sha256(repr((sys.version, version("numpy"), *words)).encode())
    for home, some in ((package.parent, below(package)), (root, files)):
        for path in sorted(some):
            status = os.stat(path)
            total.update(f"{os.path.relpath(path, home)}\0".encode())
            total.update(_digest(str(path), status.st_mtime_ns, status.st_size))
    return total.hexdigest()[:32]


def below(folder: Path) -> list[Path]:
    """All files of a folder and of those in it, but what Python compiles."""
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]


@lru_cache(maxsize=4096)
def _digest(path: str, date: int, size: int) -> bytes:
    return hashlib.sha256(Path(path).read_bytes()).digest()
