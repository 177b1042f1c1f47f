# Tangled from book/workshop/ol.md
"""Run again at each save, and when `r` is pressed."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO


def watch(paths: Sequence[Path], run: Callable[[], None], out: TextIO) -> None:
    """Call `run` now, and again whenever one of the files changes; until `q`. `out` is told."""
    with _keys() as keys:
        while True:
            seen, key = state(paths), ""
            run()
            print(
                f"watching {', '.join(map(str, paths))}; r runs again, q ends", file=out, flush=True
            )
            while key not in ("r", "q") and state(paths) == seen:
                with contextlib.suppress(queue.Empty):
                    key = keys.get(timeout=0.2)
            if key == "q":
                return
            time.sleep(0.1)


def state(paths: Sequence[Path]) -> list[int]:
    """What differs after any save."""
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            found += [path.stat().st_mtime_ns, path.stat().st_size]
    return found


@contextlib.contextmanager
def _keys() -> Iterator[queue.Queue[str]]:
    """A queue of the keys that are pressed, without waiting for Enter where that works."""
    keys: queue.Queue[str] = queue.Queue()

    def read() -> None:
        while key := sys.stdin.read(1):
            keys.put(key.lower())

    thread = threading.Thread(target=read, daemon=True)
    if not sys.stdin.isatty() or sys.platform == "win32":
        thread.start()
        yield keys
        return
    import termios
    import tty

    kept = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        thread.start()
        yield keys
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, kept)
