# Tangled from book/2-transformer/MS-L5-addition.md
"""MS-L5 A transformer that adds: settings, model, the gradient of a shard, writing."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from numpy import bool_, int64
from numpy.typing import ArrayLike, NDArray

from tinyllm.nn import Linear, Module
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor
from tinyllm.xfmr.layers import LayerConfig, Transformer
from tinyllm.xfmr.positions import Embedding, SinusoidalPositions
from tinyllm.xfmr.search import Hypothesis

__all__ = [
    "Adder",
    "Attention",
    "Settings",
    "evaluating",
    "exact_match",
    "shard_gradient",
    "translate",
]

Array: TypeAlias = NDArray[Any]
Ints: TypeAlias = NDArray[int64]
Mask: TypeAlias = NDArray[bool_]

@dataclass(frozen=True, kw_only=True)
class Settings:
    """A run's settings. ValueError for a value of another type or out of range. Two runs with the same
    settings on one machine are equal to the last bit."""

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
    default default_generator(). Parameters in order: source.weight, target.weight, transformer.*,
    output.*. PAD in a source is never read. A call keeps nothing for the next."""

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

def shard_gradient(
    model: Adder, settings: Settings, step: int, shard: int, source: Ints, target: Ints, n: int
) -> tuple[Array, Array]:
    """What one shard contributes to a step, from the tokens of the whole batch, source [B, 7] and target
    [B, 6]. The shard's losses are summed and divided by n, the number of tokens that the whole batch is
    asked for. Returns the gradient of that number, all parameters end to end in the order of
    parameters(), and the number itself, [1].
    Shard i is part i of the batch by numpy's array_split. Dropout draws, in training mode, from the
    substream "dropout STEP SHARD" of the settings' seed, whoever computes the shard, and however often."""

def evaluating(model: Module) -> AbstractContextManager[None]:
    """In a `with` block: evaluation mode; afterwards, whatever was raised, the mode that it was in."""

def translate(
    model: Adder, source: ArrayLike, width: int = 1, alpha: float = 1.0, threads: int = 1
) -> list[list[Hypothesis]]:
    """For each source [N, Ts] up to `width` sequences of at most five tokens, best first: greedy search
    for width 1, else beam search, ranked by log-probability / length**alpha. The number of threads
    does not change a bit; the other sources, of which there may be none, change no more than the last bits
    of a score. In evaluation mode, not recorded; the mode that it was in comes back, as after `attend` and
    `exact_match`. ValueError unless alpha is from 0 to 400."""

def exact_match(model: Adder, asked: Ints) -> float:
    """The share of pairs [N, 2] whose sum greedy search writes without a fault; evaluation mode."""
