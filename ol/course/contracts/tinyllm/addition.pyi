# Tangled from book/2-transformer/MS-L5-addition.md
"""MS-L5 A transformer that adds: tokens, pairs, model, training, writing, checkpoints."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from numpy import bool_, int64
from numpy.typing import ArrayLike, NDArray

from tinyllm.nn import Linear, Module
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor
from tinyllm.train import AdamW
from tinyllm.xfmr.layers import Transformer
from tinyllm.xfmr.positions import Embedding, SinusoidalPositions
from tinyllm.xfmr.search import Hypothesis

__all__ = [
    "Adder",
    "Attention",
    "Progress",
    "Settings",
    "Training",
    "Workers",
    "exact_match",
    "held_out",
    "load_model",
    "pairs",
    "parse",
    "source_tokens",
    "target_tokens",
    "text",
    "translate",
]

Array: TypeAlias = NDArray[Any]
Ints: TypeAlias = NDArray[int64]
Mask: TypeAlias = NDArray[bool_]

TOKENS: str = "0123456789+"
"""The characters of tokens 0 to 10: the digits, then the plus sign."""
PLUS: int = 10
PAD: int = 11
START: int = 12
END: int = 13
N_TOKENS: int = 14
DIGITS: int = 3
"""Of a number; its sum has one more."""

def source_tokens(a: ArrayLike, b: ArrayLike) -> Ints:
    """Tokens of a+b, three digits each, highest first: a [N], b [N] from 0 to 999 -> [N, 7]."""

def target_tokens(a: ArrayLike, b: ArrayLike) -> Ints:
    """START, the four digits of a + b, highest first, END: a [N], b [N] -> [N, 6]."""

def parse(line: str) -> tuple[int, int]:
    """The numbers of "123+456" or "7+5", white space around it allowed. ValueError that quotes it
    unless it is two numbers of one to three ASCII digits with a plus between them."""

def text(tokens: Sequence[int]) -> str:
    """The characters of tokens, joined; PAD, START and END are left out."""

def held_out(a: ArrayLike, b: ArrayLike) -> Mask:
    """Whether a pair is kept out of training, by a hash: a [N], b [N] -> bool [N]. About one in a
    hundred; (a, b) and (b, a) have the same answer, on every machine."""

def pairs() -> tuple[Ints, Ints]:
    """All pairs of 0 to 999 that are trained on, [n, 2] in ascending order, and all that are held out,
    [m, 2] in a fixed random order; read-only."""

@dataclass(frozen=True, kw_only=True)
class Settings:
    """A run. ValueError for a value of another type or out of range. Two runs of the same settings on
    one machine are equal to the last bit."""

    d_model: int = 64
    n_heads: int = 4
    n_layers: int = 2
    d_ff: int = 256
    dropout: float = 0.0
    steps: int = 1500
    batch: int = 128
    lr: float = 3e-3
    warmup: int = 100
    weight_decay: float = 0.01
    beta2: float = 0.99
    clip: float = 1.0
    seed: int = 0
    shards: int = 2

    def __post_init__(self) -> None:
        """Checks every value."""

class Attention(NamedTuple):
    """Weights: encoder [layers, B, H, Ts, Ts], decoder [layers, B, H, Tt, Tt], cross
    [layers, B, H, Tt, Ts]."""

    encoder: Array
    decoder: Array
    cross: Array

class Adder(Module):
    """Two embeddings, waves, L5.5's Transformer with pre-norm, a map to 14 logits; drawn from `rng`, by
    default default_generator()."""

    source: Embedding
    target: Embedding
    positions: SinusoidalPositions
    transformer: Transformer
    output: Linear

    def __init__(self, settings: Settings, rng: PCG32 | None = None) -> None: ...
    def encode(self, source: ArrayLike) -> tuple[Tensor, Mask | None]:
        """source [B, Ts] -> memory [B, Ts, d] and the mask [B, 1, 1, Ts] that hides PAD, or None if
        there is none."""
    def decode(self, target: ArrayLike, memory: Tensor, mask: Mask | None) -> Tensor:
        """target so far [B, Tt], memory [B, Ts, d] -> states [B, Tt, d]; none depends on a later
        token."""
    def forward(self, source: ArrayLike, target: ArrayLike) -> Tensor:
        """source [B, Ts], target so far [B, Tt], START first -> logits [B, Tt, 14] for the token after
        each."""
    def attend(self, source: ArrayLike, target: ArrayLike) -> Attention:
        """All weights for source [B, Ts] and target so far [B, Tt], in evaluation mode."""
    def writer(self, source: ArrayLike) -> Callable[[Ints, Ints], Array]:
        """L5.6's step function for these sources [B, Ts]; PLUS, PAD and START are never written, nor
        END before the first digit."""

def translate(
    model: Adder, source: ArrayLike, width: int = 1, alpha: float = 1.0, threads: int = 1
) -> list[list[Hypothesis]]:
    """For each source [N, Ts] up to `width` sequences of at most five tokens, best first: greedy search
    for width 1, else beam search, ranked by log-probability / length**alpha. The number of threads
    changes no bit; the other sources change no more than the last bits of a score. ValueError unless
    alpha is from 0 to 400."""

def exact_match(model: Adder, asked: Ints) -> float:
    """The share of pairs [N, 2] whose sum greedy search writes without a fault; evaluation mode."""

class Workers:
    """Processes that train one model together; this one stands for a process alone. Another one has
    the same attributes, and a `total` that waits for all."""

    rank: int = 0
    count: int = 1

    def total(self, array: Array) -> Array:
        """The sum over all workers of arrays of one shape [...]: the same array in each."""

class Progress(NamedTuple):
    """A step, counted from 1; the loss of its batch and the length of its gradient, both before it;
    its learning rate."""

    step: int
    loss: float
    norm: float
    rate: float

class Training:
    """A run, step by step. Neither `processes`, children of this one that compute shards of a batch at
    the same time, nor `workers`, among which the shards are divided, changes a bit. ValueError if the
    number of workers does not divide the number of shards."""

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
        """Make one step. If it fails, because its loss, learning rate or gradient is not finite
        (FloatingPointError that begins "step N, "), a child has died (RuntimeError) or a worker is gone,
        the run is as it was after the step before."""
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write parameters, optimiser, generator, step and settings, all or nothing. FloatingPointError
        that begins "after step N, ", and the file is as it was, if one of them, or what the model says,
        is not finite."""
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
