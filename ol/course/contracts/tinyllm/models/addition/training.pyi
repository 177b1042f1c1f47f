# Tangled from book/2-transformer/MS-L5-addition.md
"""MS-L5 A transformer that adds: training and checkpoints."""

import os
from typing import Any, NamedTuple, TypeAlias

from numpy.typing import NDArray

from tinyllm.models.addition.model import Adder, Settings
from tinyllm.num.pcg32 import PCG32
from tinyllm.train import AdamW

__all__ = ["Progress", "Training", "Workers", "load_model"]

Array: TypeAlias = NDArray[Any]

class Workers:
    """Processes that train one model together; this class is for a process on its own. One for several
    processes has the same attributes, and an `all_reduce` that waits for all of them."""

    rank: int = 0
    count: int = 1

    def all_reduce(self, array: Array) -> Array:
        """The sum over all workers of arrays of one shape [...]: the same array in each."""

class Progress(NamedTuple):
    """A step, counted from 1; the loss of its batch and the length of its gradient, both before it;
    its learning rate."""

    step: int
    loss: float
    norm: float
    rate: float

class Training:
    """A run, step by step. Neither `processes`, worker processes that compute shards of a batch at
    the same time, nor `workers`, among which the shards are divided, changes a bit. ValueError if the
    number of workers does not divide the number of shards, or if processes is not a positive int."""

    settings: Settings
    model: Adder
    optimizer: AdamW
    step: int
    root: PCG32
    workers: Workers

    def __init__(
        self, settings: Settings, processes: int = 1, workers: Workers | None = None
    ) -> None: ...
    def advance(self) -> Progress:
        """Make one step. It fails if its loss, learning rate or gradient is not finite (FloatingPointError
        that begins "step N, "), if a worker process has died (RuntimeError) or if a worker is gone. Then
        the run is as it was after the step before."""
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write parameters, optimiser, generator, step and settings, all or nothing. If a number among
        them, or what the model says, is not finite: FloatingPointError that begins "after step N, ", and
        the file is as it was."""
    @classmethod
    def load(
        cls, path: str | os.PathLike[str], processes: int = 1, workers: Workers | None = None
    ) -> Training:
        """Go on with the run in a file, to the same bits. CheckpointError for a file that is damaged,
        does not fit or holds what `save` would refuse, OSError for one that cannot be read. Nothing is
        built that is larger than twice what the file holds."""

def load_model(path: str | os.PathLike[str]) -> Adder:
    """The model in a checkpoint, in evaluation mode. CheckpointError for a file that is damaged, does
    not fit, or whose numbers or logits are not finite, OSError for one that cannot be read. Nothing is
    built that is larger than twice what the file holds."""
