# Tangled from book/2-transformer/MS-L5-addition.md
"""A run of the transformer that adds: to the same bits each time, saved and resumed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinyllm.autograd import no_grad
from tinyllm.checkpoint import CheckpointError, read_safetensors, write_safetensors
from tinyllm.models.addition.data import DIGITS, N_TOKENS, PAD, pairs, source_tokens, target_tokens
from tinyllm.models.addition.model import Adder, Settings, evaluating
from tinyllm.models.addition.workers import ShardWorkers
from tinyllm.num.pcg32 import PCG32
from tinyllm.train import AdamW, clip_grad_norm, warmup_cosine

__all__ = ["Progress", "Training", "Workers", "load_model"]

Array: TypeAlias = NDArray[Any]

# what overflows is found by looking at the result, and one message is enough
_quiet = np.errstate(over="ignore", invalid="ignore", divide="ignore")


class Workers:
    """Processes that train one model together; this class is for a process on its own."""

    rank = 0  # which of them this is
    count = 1

    def all_reduce(self, array: Array) -> Array:
        """The sum over all workers of arrays of one shape [...]: the same array in each."""
        return array


class Progress(NamedTuple):
    """One step that was made."""

    step: int  # counted from 1
    loss: float  # of its batch, before it
    norm: float  # length of the gradient, before clipping
    rate: float


class Training:
    """A run: its settings, its model, and all that it depends on, step by step.

    processes: how many shards are computed at the same time, by worker processes. workers: others, here
    or elsewhere, that train the same model. Neither changes a bit. ValueError if the number of workers
    does not divide the number of shards, or if processes is not a positive int.
    """

    def __init__(
        self, settings: Settings, processes: int = 1, workers: Workers | None = None
    ) -> None:
        self.settings = settings
        self.workers = Workers() if workers is None else workers
        if settings.shards % self.workers.count:
            raise ValueError(
                f"{self.workers.count} workers cannot share {settings.shards} shards evenly: set "
                f"shards to a multiple of the number of workers"
            )
        self.root = PCG32(settings.seed)
        self.model = Adder(settings, self.root.substream("parameters"))
        self.step = 0
        self.optimizer = AdamW(
            self.model.named_parameters(),
            betas=(0.9, settings.beta2),
            weight_decay=settings.weight_decay,
            decays=lambda name, p: p.ndim > 1,
        )
        self._draws = self.root.substream("batches")
        self._parameters = list(self.model.named_parameters())
        mine = settings.shards // self.workers.count
        self._shards = ShardWorkers(self.model, settings, processes, self.workers.rank * mine, mine)

    @_quiet
    def advance(self) -> Progress:
        """Make one step. If it fails, the run is as it was after the step before.

        FloatingPointError if loss or gradient are not finite, RuntimeError if a worker process has died.
        """
        s = self.settings
        training, _ = pairs()
        draws = self._draws.state()
        a, b = training[self._draws.integers(0, len(training), s.batch)].T  # [B], [B]
        source, target = source_tokens(a, b), target_tokens(a, b)
        n = int((target[:, 1:] != PAD).sum())
        try:
            done = self._shards.gradients(self.step, source, target, n)
            flat = self.workers.all_reduce(_sum([gradient for gradient, _ in done]))  # eq. shards
            loss = self.workers.all_reduce(_sum([loss for _, loss in done]))
            self._set_gradients(flat)
            rate = warmup_cosine(self.step, peak=s.lr, warmup=s.warmup, total=s.steps)
            for name, number in (("loss", float(loss[0])), ("learning rate", rate)):
                if not math.isfinite(number):
                    raise FloatingPointError(f"the {name} is {number}")
            norm = clip_grad_norm(self._parameters, s.clip)
        except BaseException as error:
            self._draws.set_state(draws)  # as if this step had not been begun
            if isinstance(error, FloatingPointError):
                raise FloatingPointError(f"step {self.step + 1}, {error}") from None
            raise
        self.optimizer.lr = rate
        self.optimizer.step()
        self.step += 1
        return Progress(self.step, float(loss[0]), norm, rate)

    def _set_gradients(self, flat: Array) -> None:
        """Cut the gradient of all parameters, end to end, into theirs."""
        at = 0
        for _, p in self._parameters:
            p.grad = flat[at : at + p.size].reshape(p.shape)
            at += p.size

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all that the run depends on to a safetensors file, all or nothing.

        FloatingPointError, and nothing is written, if the run has diverged.
        """
        arrays = self._arrays()
        if fault := _divergence(arrays, self.model):
            raise FloatingPointError(f"after step {self.step}, {fault}")
        texts = {
            "format": FORMAT,
            "settings": json.dumps(asdict(self.settings)),
            "step": str(self.step),
            "generators": json.dumps({"batches": self._draws.state()}),
        }
        write_safetensors(path, arrays, texts)

    @classmethod
    @_quiet
    def load(
        cls, path: str | os.PathLike[str], processes: int = 1, workers: Workers | None = None
    ) -> Training:
        """Go on with the run in a file.

        CheckpointError for one that is damaged, does not fit or has diverged, OSError for one that cannot
        be read.
        """
        arrays, texts, settings = _read(path)
        run = cls(settings, processes, workers)
        try:
            run.model.load_state_dict(_part(arrays, "model/"))
            run.optimizer.load_state_dict(_part(arrays, "optimizer/"))
            step = texts["step"]
            if not step.isdecimal() or int(step) > settings.steps:
                raise ValueError(f"its step is {step!r}, wanted is a number up to {settings.steps}")
            run.step = int(step)
            run._draws.set_state(json.loads(texts["generators"])["batches"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"{os.fspath(path)}: {_fault(error)}") from None
        if fault := _divergence(run._arrays(), run.model):
            raise CheckpointError(f"{os.fspath(path)}: {fault}: the run that it is of had diverged")
        return run

    def _arrays(self) -> dict[str, Array]:
        """Copies of the parameters and of what the optimiser remembers."""
        arrays = {f"model/{name}": array for name, array in self.model.state_dict().items()}
        return arrays | {
            f"optimizer/{n}": array for n, array in self.optimizer.state_dict().items()
        }


def _sum(parts: Sequence[Array]) -> Array:
    """The sum of arrays, neighbours first: ((0 + 1) + (2 + 3)) + ..."""
    parts = list(parts)
    while len(parts) > 1:
        pairs_of = [parts[i] + parts[i + 1] for i in range(0, len(parts) - 1, 2)]
        parts = pairs_of + parts[len(parts) - len(parts) % 2 :]
    return parts[0]


FORMAT = "tinyllm addition 1"


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, str], Settings]:
    """What is in a checkpoint of this model."""
    arrays, texts = read_safetensors(path)
    if texts.get("format") != FORMAT:
        raise CheckpointError(
            f"{os.fspath(path)}: no checkpoint of the transformer that adds: its format is "
            f"{texts.get('format')!r}, wanted is {FORMAT!r}"
        )
    try:
        settings = Settings(**json.loads(texts["settings"]))
        _must_be_held(settings, _part(arrays, "model/"))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{os.fspath(path)}: its settings: {_fault(error)}") from None
    return arrays, texts, settings


def _fault(error: Exception) -> str:
    """What an error says; a KeyError says no more than a name."""
    return f"there is no entry {error}" if isinstance(error, KeyError) else str(error)


def _must_be_held(settings: Settings, arrays: dict[str, Array]) -> None:
    """ValueError unless the model of these settings is about as large as these arrays."""
    d, hidden = settings.d_model, settings.d_ff
    attention, norm = 4 * (d * d + d), 2 * d
    feed_forward = 2 * d * hidden + hidden + d
    layers = settings.n_layers * (3 * attention + 2 * feed_forward + 5 * norm)
    asked = layers + 2 * norm + 2 * N_TOKENS * d + N_TOKENS * (d + 1)
    held = sum(array.size for array in arrays.values())
    if asked > 2 * held or settings.n_layers > len(arrays):
        raise ValueError(
            f"they ask for n_layers={settings.n_layers} and {asked:,} parameters, the file holds "
            f"{len(arrays):,} arrays with {held:,}"
        )


def _part(arrays: dict[str, Array], prefix: str) -> dict[str, Array]:
    return {n.removeprefix(prefix): array for n, array in arrays.items() if n.startswith(prefix)}


@_quiet
def load_model(path: str | os.PathLike[str]) -> Adder:
    """The model in a checkpoint, in evaluation mode.

    CheckpointError for a file that is damaged, does not fit or is of a run that has diverged, OSError
    for one that cannot be read.
    """
    arrays, _, settings = _read(path)
    model = Adder(settings, PCG32())
    try:
        model.load_state_dict(_part(arrays, "model/"))
    except ValueError as error:
        raise CheckpointError(f"{os.fspath(path)}: {error}") from None
    if fault := _divergence(model.state_dict(), model):
        raise CheckpointError(f"{os.fspath(path)}: {fault}: the run that it is of had diverged")
    return model.eval()


@_quiet
def _divergence(arrays: dict[str, Array], model: Adder) -> str:
    """What is not finite, in these arrays or in what the model says; empty if all is well."""
    bad = [name for name, array in arrays.items() if not np.isfinite(array).all()]
    if bad:
        others = f" and {len(bad) - 3} others" if len(bad) > 3 else ""
        return f"not all numbers are finite in {', '.join(bad[:3])}{others}"
    a = np.arange(0, 10**DIGITS, 9)
    with evaluating(model), no_grad():
        logits = model.forward(source_tokens(a, a[::-1]), target_tokens(a, a[::-1])[:, :-1])
    return (
        ""
        if np.isfinite(logits.data).all()
        else "the parameters are finite, but too large to compute with"
    )
