# Tangled from book/workshop/ol-sandbox.md
"""Grade one submission in a process of its own, and end it when it breaks a limit, or this one is gone."""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from ol.bubblewrap import Limits
from ol.registry import ROOT
from ol.runner import Runner, Stopped
from ol.submission import graded

STOP = threading.Event()  # set to end all sandboxes of this process
_RUNNING: set[subprocess.Popen[bytes]] = set()  # keepers


def grade(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out an order in a sandbox that cannot outlive this process; as `grade_files`.

    It can be called on another machine: all that it needs is in the order, and the package.
    """
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "ol.sandbox"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,  # Ctrl-C is for the command
    ) as keeper:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        _RUNNING.add(keeper)
        with contextlib.suppress(OSError, ValueError):  # it was killed, or the pipe is closed
            if not STOP.is_set():
                keeper.stdin.write(json.dumps(order).encode() + b"\n")
                keeper.stdin.flush()
        answer = keeper.stdout.read() if not STOP.is_set() else b""
    _RUNNING.discard(keeper)
    return dict(json.loads(answer or '{"lost": "its keeper was stopped"}'))


def stop() -> None:
    """End all sandboxes of this process, those that run and those to come."""
    STOP.set()
    for keeper in list(_RUNNING):
        with contextlib.suppress(OSError, ValueError):
            keeper.stdin.close()  # type: ignore[union-attr]


def _keep() -> None:
    """Be a keeper: carry out the order that comes, and end it when nothing more can come."""

    def wait() -> None:
        os.read(0, 1)
        STOP.set()

    if line := sys.stdin.buffer.readline():
        threading.Thread(target=wait, daemon=True).start()
        print(json.dumps(grade_files(json.loads(line))), flush=True)


def grade_files(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out an order: chapter, files, module, limits. What came of it, or {"stopped": why}."""
    limits = Limits(**order["limits"])
    with tempfile.TemporaryDirectory(prefix="ol-sandbox-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch, "tests")
        folder.mkdir()
        for name, text in (order["files"] or {}).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(text))
        try:
            watch = partial(_broken, limits, time.monotonic() + limits.seconds)
            with Runner(workers=1, limits=limits, watch=watch) as runner:
                return graded(order, folder, runner)
        except Stopped as why:
            return {"stopped": str(why)}


def _broken(limits: Limits, end: float, pid: int) -> str:
    """Why a sandbox is to end, "" if it may go on."""
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


if __name__ == "__main__":
    _keep()
