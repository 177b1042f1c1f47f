# Tangled from book/workshop/ol.md
"""Run again at each save, and when `r` is pressed."""

from __future__ import annotations

import contextlib
import importlib
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO


def watch(paths: Sequence[Path], run: Callable[[], None], out: TextIO) -> None:
    """Call `run` now, and again whenever one of the files changes; until `q`. `out` is told."""
    news: queue.Queue[str] = queue.Queue()
    with _noticing(paths, news) as how, _keys(news):
        while True:
            run()
            names = ", ".join(map(str, paths))
            print(f"watching {names} ({how}); r runs again, q ends", file=out, flush=True)
            while (word := news.get()) not in ("saved", "r", "q"):
                pass
            if word == "q":
                return
            time.sleep(0.1)
            with contextlib.suppress(queue.Empty):
                while news.get_nowait() == "saved":
                    pass


def state(paths: Sequence[Path]) -> list[int]:
    """What differs after any save."""
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            found += [path.stat().st_mtime_ns, path.stat().st_size]
    return found


@contextlib.contextmanager
def _noticing(paths: Sequence[Path], news: queue.Queue[str]) -> Iterator[str]:
    """Puts "saved" into the queue at each change; says how it is noticed."""
    last = [state(paths)]

    def look(*_: Any) -> None:
        now = state(paths)
        if now != last[0]:
            last[0] = now
            news.put("saved")

    try:
        events: Any = importlib.import_module("watchdog.events")
        observers: Any = importlib.import_module("watchdog.observers")
    except ImportError:
        stop = threading.Event()

        def poll() -> None:
            while not stop.wait(0.2):
                look()

        threading.Thread(target=poll, daemon=True).start()
        yield "looking five times a second"
        stop.set()
        return

    handler, observer = events.FileSystemEventHandler(), observers.Observer()
    handler.on_any_event = look
    for folder in {path.parent for path in paths}:
        observer.schedule(handler, str(folder))
    observer.start()
    yield "told by the system"
    observer.stop()
    observer.join()


@contextlib.contextmanager
def _keys(news: queue.Queue[str]) -> Iterator[None]:
    """Puts the keys that are pressed into the queue, without waiting for Enter where that works."""

    def read() -> None:
        while key := sys.stdin.read(1):
            news.put(key.lower())
        news.put("end")  # of input: go on watching

    thread = threading.Thread(target=read, daemon=True)
    if not sys.stdin.isatty() or sys.platform == "win32":
        thread.start()
        yield
        return
    import termios
    import tty

    kept = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        thread.start()
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, kept)
