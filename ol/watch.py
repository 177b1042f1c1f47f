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


def watch(paths: Sequence[Path], run: Callable[[Callable[[], bool]], None], out: TextIO) -> None:
    """Call `run` now, and again whenever one of the files changes; until `q`. `out` is told.

    `run` is given a function that says whether it is wanted no more.
    """
    seen, key = state(paths), ""
    with _keys() as keys:

        def over() -> bool:
            nonlocal key
            with contextlib.suppress(queue.Empty):
                key = keys.get_nowait()
            return key in ("r", "q") or state(paths) != seen

        while key != "q":
            seen, key = state(paths), ""
            run(over)
            print(
                f"watching {', '.join(map(str, paths))}; r runs again, q ends", file=out, flush=True
            )
            while not over():
                time.sleep(0.2)
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
