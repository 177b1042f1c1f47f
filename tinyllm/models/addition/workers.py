# Tangled from book/workshop/processes.md
"""Worker processes that compute shards of a batch beside this one, over memory that they share."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinyllm.arguments import positive_int
from tinyllm.models.addition.data import Ints
from tinyllm.models.addition.model import Adder, Settings, shard_gradient
from tinyllm.num.pcg32 import PCG32
from tinyllm.num.threads import one_blas_thread

__all__ = ["ShardWorkers"]

Array: TypeAlias = NDArray[Any]


class ShardWorkers:
    """This process and its workers: together they compute the shards from `first` on.

    They share memory for the parameters and gradients. ValueError unless processes is a positive int.
    """

    def __init__(
        self, model: Adder, settings: Settings, processes: int, first: int, shards: int
    ) -> None:
        self.model, self.settings, self.first, self.shards = model, settings, first, shards
        self.count = min(positive_int("Training", "processes", processes), shards)
        self._pipes: list[Connection] = []  # one a worker; they are started when needed
        self._ends: list[Finalize] = []

    def gradients(self, step: int, source: Ints, target: Ints, n: int) -> list[tuple[Array, Array]]:
        """The gradient and the loss of each shard, in order. RuntimeError if a worker has died or failed."""

        def own(i: int) -> tuple[Array, Array]:
            return shard_gradient(
                self.model, self.settings, step, self.first + i, source, target, n
            )

        with one_blas_thread():  # else the last bits would depend on how BLAS divides the work
            if self.count == 1:
                return [own(i) for i in range(self.shards)]
            try:
                if not self._pipes:
                    self._start()
                np.concatenate(
                    [p.data.reshape(-1) for p in self.model.parameters()], out=self._parameters
                )
                shares = [range(rank, self.shards, self.count) for rank in range(self.count)]
                with _alive():
                    for pipe, share in zip(self._pipes, shares[1:], strict=True):
                        pipe.send((step, share, source, target, n))
                done = {i: own(i) for i in shares[0]}
                for pipe, share in zip(self._pipes, shares[1:], strict=True):
                    with _alive():
                        losses = pipe.recv()
                    if isinstance(losses, str):
                        raise RuntimeError(f"a worker process has failed: {losses}")
                    done |= {
                        i: (self._gradients[i], loss) for i, loss in zip(share, losses, strict=True)
                    }
            except BaseException:
                self.stop()  # the next step starts new ones
                raise
            return [done[i] for i in range(self.shards)]

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        size = sum(p.size for p in self.model.parameters())
        parameters = context.RawArray(ctypes.c_float, size)
        gradients = context.RawArray(ctypes.c_float, self.shards * size)
        self._parameters = np.ctypeslib.as_array(parameters)
        self._gradients = np.ctypeslib.as_array(gradients).reshape(self.shards, size)
        for _ in range(self.count - 1):
            pipe, theirs = context.Pipe()
            arguments = (theirs, self.settings, self.first, parameters, gradients)
            process = context.Process(target=_work, args=arguments, daemon=True)
            with _starting():
                process.start()
            theirs.close()
            self._pipes.append(pipe)
            self._ends.append(Finalize(self, _end, (process, pipe), exitpriority=10))

    def stop(self) -> None:
        """End the workers."""
        for end in self._ends:
            end()
        self._pipes, self._ends = [], []


def _work(
    pipe: Connection, settings: Settings, first: int, parameters: Any, gradients: Any
) -> None:
    """The life of a worker: compute the shards that the parent asks for, until it closes the pipe."""
    os.setsid()  # no terminal's process, and on a busy Linux machine a share of its own
    model, at = Adder(settings, PCG32()), 0
    flat = np.ctypeslib.as_array(parameters)
    for p in model.parameters():
        p.data = flat[at : at + p.size].reshape(p.shape)
        at += p.size
    into = np.ctypeslib.as_array(gradients).reshape(-1, flat.size)
    with suppress(EOFError, OSError), one_blas_thread():
        while True:
            step, share, source, target, n = pipe.recv()
            losses = []
            try:
                for i in share:
                    into[i], loss = shard_gradient(
                        model, settings, step, first + i, source, target, n
                    )
                    losses.append(loss)
            except Exception as error:
                pipe.send(f"{type(error).__name__}: {error}")
            else:
                pipe.send(losses)


@contextmanager
def _alive() -> Iterator[None]:
    """RuntimeError if the worker at the other end of a pipe is gone."""
    try:
        yield
    except (EOFError, OSError):
        raise RuntimeError("a worker process has died") from None


@contextmanager
def _starting() -> Iterator[None]:
    """While a worker starts: it is to run nothing of the main script, and to hear no Ctrl-C."""
    resource_tracker.ensure_running()
    ours = {signal.SIGINT, signal.SIGTERM}
    before, main = signal.pthread_sigmask(signal.SIG_BLOCK, ours), sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(process: BaseProcess, pipe: Connection) -> None:
    pipe.close()
    process.join(timeout=5)
    if process.is_alive():
        process.kill()
        process.join()
