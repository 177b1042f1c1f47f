# Tangled from book/workshop/ol-class.md
"""A process between a command and a sandbox: when the one is gone, however it went, it ends the other."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from typing import Any

from ol.registry import ROOT
from ol.sandbox import STOP, grade_files

_RUNNING: set[subprocess.Popen[bytes]] = set()


def grade(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out an order in a sandbox that cannot outlive this process; as `grade_files`.

    It can be called on another machine: all that it needs is in the order, and the package.
    """
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "ol.keeper"],
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


def _watch() -> None:
    os.read(0, 1)  # nothing more comes but the end
    STOP.set()


if __name__ == "__main__" and (line := sys.stdin.buffer.readline()):
    threading.Thread(target=_watch, daemon=True).start()
    print(json.dumps(grade_files(json.loads(line))), flush=True)
