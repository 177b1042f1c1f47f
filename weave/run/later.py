# Tangled from book/workshop/weave-serve.md
"""Work that takes long: a build waits for what comes of it, a served page has what came last until the new is there."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

LATER = "being run: the page follows when it is done"  # what a page says meanwhile
patient = True  # whether a page waits; not while the site is served
free = threading.Event()  # unset while a served book is built; work begins afterwards
free.set()
early = threading.Event()  # set when a result has come that nobody could be told of yet


def arrived() -> None:
    """Called, in the thread of the work, when there is a result for which a page did not wait."""
    early.set()


def _give_way() -> None:
    """This thread and its processes run when nobody else wants to, where the system can tell threads apart."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


class Run(threading.Thread, Generic[T]):
    """Work under one key."""

    def __init__(self, key: str, work: Callable[[], T], turn: threading.Lock) -> None:
        super().__init__(daemon=True)  # the end of the server is its end
        self.key, self.work, self.turn = key, work, turn
        self.value: T | None = None
        self.error: Exception | None = None
        self.wanted = True
        self._done, self._missed, self._look = False, False, threading.Lock()

    def run(self) -> None:
        """Fills `value` or `error`."""
        with self.turn:
            if not patient:
                _give_way()
                free.wait()
            if not self.wanted:
                return
            try:
                self.value = self.work()
            except Exception as error:
                self.error = error
        with self._look:
            self._done = True
        if self._missed:
            arrived()

    def done(self) -> bool:
        """Whether there is a result; if not, `arrived` is called when there is."""
        if patient:
            self.join()
        with self._look:
            self._missed = not self._done
        return self._done


class Work(Generic[T]):
    """All work of one kind."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._runs: dict[str, Run[T]] = {}  # by name, the one that was begun last
        self._last: dict[str, T] = {}

    def begin(self, name: str, key: str, work: Callable[[], T], known: T | None = None) -> None:
        """Starts the work in a thread, where its result is not known, and it is not under way under the same key."""
        run = self._runs.get(name)
        if run is not None:
            if not patient and run.key == key and known is None:
                return
            run.wanted = False
            del self._runs[name]
        if known is not None:
            self._last[name] = known
            return
        run = self._runs[name] = Run(key, work, self._turn)
        run.start()

    def result(self, name: str) -> tuple[T | None, bool]:
        """The last result under this name, None before the first, and whether it is that of the work begun last.

        Raises what that work raised.
        """
        run = self._runs.get(name)
        if run is None:
            return self._last.get(name), True
        if not run.done():
            return self._last.get(name), False
        if run.error is not None:
            raise run.error
        if run.value is not None:
            self._last[name] = run.value
        return run.value, True
