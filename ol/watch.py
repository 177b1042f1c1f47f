# Tangled from book/workshop/ol.md
"""Run again at each save."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO


def watch(paths: Sequence[Path], run: Callable[[Callable[[], bool]], None], out: TextIO) -> None:
    """Call `run` now, and again whenever one of the files changes; until Ctrl-C. `out` is told.

    `run` is given a function that says whether it is wanted no more.
    """
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            seen = state(paths)

            def over(seen: list[int] = seen) -> bool:
                return state(paths) != seen

            run(over)
            print(f"watching {', '.join(map(str, paths))}; Ctrl-C ends", file=out, flush=True)
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
