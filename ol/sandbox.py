# Tangled from book/workshop/ol-sandbox.md
"""Grade one submission, and end it when it breaks a limit."""

from __future__ import annotations

import base64
import contextlib
import importlib
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ol.bubblewrap import Limits
from ol.runner import Runner, Stopped
from ol.submission import graded

__all__ = ["STOP", "Limits", "grade_files"]
STOP = threading.Event()  # set to end all sandboxes of this process


def grade_files(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out an order: chapter, files, module, limits. What came of it, or {"stopped": why}.

    It can be called on another machine: all that it needs is in the order, and the package.
    """
    limits = Limits(**order["limits"])
    with tempfile.TemporaryDirectory(prefix="ol-sandbox-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch, "tests")
        folder.mkdir()
        for name, text in (order["files"] or {}).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(text))
        try:
            with Runner(workers=1, limits=limits, watch=_watch(limits)) as runner:
                return graded(order, folder, runner)
        except Stopped as why:
            return {"stopped": str(why)}


def _watch(limits: Limits) -> Callable[[int], str]:
    """Says of a sandbox why it is to end, "" if it may go on."""
    end = time.monotonic() + limits.seconds

    def broken(pid: int) -> str:
        count, memory = _usage(pid)
        if STOP.is_set():
            return "stopped by hand"
        if time.monotonic() > end:
            return f"more than {limits.seconds:g} s"
        if count > limits.processes:
            return f"more than {limits.processes} processes"
        if memory > limits.memory << 20:
            return f"more than {limits.memory} MiB of memory"
        return ""

    return broken


def _usage(pid: int) -> tuple[int, int]:
    """How many processes a sandbox has, and their memory in bytes; 0 without psutil to ask."""
    try:
        psutil: Any = importlib.import_module("psutil")
    except ImportError:
        return 0, 0
    count = memory = 0
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(pid).children(recursive=True):
            count += 1
            with contextlib.suppress(psutil.Error):  # it has ended
                memory += process.memory_info().rss
    return count, memory
