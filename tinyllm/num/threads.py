# Tangled from book/workshop/threads.md
"""Work shared out to threads, with numpy's BLAS held to one thread in each.

Needs `threadpoolctl` to say so to BLAS; without it everything runs in the caller's thread.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["column_sums", "in_blocks", "in_threads", "one_blas_thread", "product"]

Array = NDArray[Any]
Part = TypeVar("Part")

WORTH_SHARING = 1 << 25  # multiplications: fewer are done before a second thread has woken up
BLOCK = 1 << 15  # numbers of a block
MANY = 1 << 17  # numbers that a few operations each take longer for than a second thread to wake up
LARGE_MATRIX = 1 << 17  # numbers: BLAS would call its other threads to sum up more


def in_threads(
    work: Callable[[Part], object],
    parts: Sequence[Part],
    worth_it: bool,
    threads: int | None = None,
) -> None:
    """Do `work` for each part: in threads if that is worth it, else one part after the other.

    There are `threads` of them, or as many as BLAS has at the moment, and in each BLAS has one. The
    parts must write to different places, and read what none of them writes. What the caller's
    `np.errstate` says holds in the threads too. What the work raises is raised.
    """
    if threads is None or _blas() is None:
        threads = _blas_threads()
    if threads == 1 or len(parts) < 2 or not worth_it:
        for part in parts:
            work(part)
        return
    with one_blas_thread():
        started = []
        for part in parts:
            try:
                started.append(_pool(threads).submit(copy_context().run, work, part))
            except RuntimeError:  # no more threads: the interpreter is about to end
                work(part)
        wait(started)
        for done in started:
            done.result()  # raises what a thread raised


def in_blocks(work: Callable[[slice], object], length: int, width: int = 1) -> None:
    """Do `work` for all of `length` rows of `width` numbers, a block at a time that stays in the cache.

    The blocks depend on the sizes alone; those of many numbers are shared out to threads.
    """
    step = max(1, BLOCK // max(1, width))
    parts = [slice(i, i + step) for i in range(0, max(1, length), step)]
    in_threads(work, parts, length * width >= MANY)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS with one thread for a while; other callers wait. Without threadpoolctl it stays as it is."""
    blas = _blas()
    with _blas_lock, nullcontext() if blas is None else blas.limit(limits=1):
        yield


def product(a: Array, b: Array) -> Array:
    """a [m, k] @ b [k, n] -> [m, n]; of a large one, each thread makes some rows."""
    if len(a) * b.size < WORTH_SHARING or _blas_threads() == 1:
        whole: Array = np.matmul(a, b)
        return whole
    out = np.empty((len(a), b.shape[1]), np.result_type(a, b))
    in_threads(lambda rows: np.matmul(a[rows], b, out=out[rows]), _shares(len(a)), True)
    return out


def column_sums(x: Array) -> Array:
    """x [n, m] -> [m]."""
    step = max(1, LARGE_MATRIX // max(1, x.shape[1]))
    pieces = [x[i : i + step] for i in range(0, max(1, len(x)), step)]
    sums = [np.ones(len(rows), x.dtype) @ rows for rows in pieces]
    return sums[0] if len(sums) == 1 else np.add.reduce(sums)


def _shares(length: int) -> list[slice]:
    """As many pieces as there are threads."""
    step = -(-length // _blas_threads())
    return [slice(i, min(i + step, length)) for i in range(0, length, step)]


@cache
def _blas() -> Any:
    """What sets numpy's number of BLAS threads, or None where that cannot be done."""
    try:
        threadpoolctl = importlib.import_module("threadpoolctl")
    except ImportError:
        return None
    controller = threadpoolctl.ThreadpoolController().select(user_api="blas")
    return controller if controller.lib_controllers else None


def _blas_threads() -> int:
    """How many threads BLAS has; 1 where their number cannot be set."""
    blas = _blas()
    return 1 if blas is None else max(lib.num_threads for lib in blas.lib_controllers)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="tinyllm")


_blas_lock = threading.RLock()  # two callers that both set the number would leave it at 1


def _after_fork() -> None:
    global _blas_lock
    _blas_lock = threading.RLock()
    _pool.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
