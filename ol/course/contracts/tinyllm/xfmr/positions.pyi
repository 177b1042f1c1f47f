# Tangled from book/2-transformer/L5.4-positions.md
"""Vectors for tokens, and three ways to say where they are: what a transformer begins with."""

from typing import Any, TypeAlias

from numpy.typing import ArrayLike, DTypeLike, NDArray

from tinyllm.nn import Module
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor

__all__ = [
    "Embedding",
    "LearnedPositions",
    "SinusoidalPositions",
    "embed",
    "rotary",
    "sinusoidal",
]

Array: TypeAlias = NDArray[Any]

def embed(table: Tensor, ids: ArrayLike) -> Tensor:
    """Copies of rows of a table: table [V, d], ids whole numbers [...], also as a tensor -> [..., d] in the
    table's dtype.

    The gradient of a row is the sum over all places of its id, added up in float32 at least; NaN in one
    place spoils no other row. TypeError for a table that is not a tensor and for ids that are not ints,
    ValueError for a table of another shape and ids outside 0 to V - 1: negative ones are not counted from
    the end.
    """

class Embedding(Module):
    """A learned vector for each token: `weight` float32 [n_tokens, d_model], drawn by
    ``rng.normal(0.0, std, ...)``; `rng` is by default default_generator(). The weight may change between
    calls. ValueError unless both sizes are positive ints, TypeError for an `rng` that is no PCG32."""

    weight: Tensor

    def __init__(
        self, n_tokens: int, d_model: int, std: float = 1.0, rng: PCG32 | None = None
    ) -> None: ...
    def forward(self, ids: ArrayLike) -> Tensor:
        """Token ids [...] -> vectors [..., d_model]; errors as for `embed`."""
    def extra_repr(self) -> str:
        """The sizes that `repr` shows of this module: "50 x 40" for 50 tokens and 40 features."""

def sinusoidal(
    length: int,
    d_model: int,
    start: int = 0,
    base: float = 10000.0,
    dtype: DTypeLike = ...,
) -> Array:
    """Positions start, start + 1, ... as waves: [length, d_model] of `dtype`, float32 by default.

    Feature 2i is sin(t base^(-2i/d_model)), feature 2i + 1 the cosine of the same angle, in radians;
    if d_model is odd, the last sine has no cosine. Computed in float64, then rounded; a new array each
    time. ValueError unless length >= 0 and d_model > 0 are ints and base > 0.
    Source: Vaswani et al. (2017), section 3.5.
    """

class SinusoidalPositions(Module):
    """Adds `sinusoidal` positions; no parameters, any length; what was asked before changes nothing. Sizes as for
    `sinusoidal`."""

    d_model: int
    base: float

    def __init__(self, d_model: int, base: float = 10000.0) -> None: ...
    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """x [..., T, d_model] plus positions offset to offset + T - 1: the same shape and dtype.
        TypeError unless x is a floating-point tensor, ValueError for other shapes or a negative
        offset."""
    def extra_repr(self) -> str:
        """The sizes that `repr` shows of this module."""

class LearnedPositions(Module):
    """Adds a learned vector for each position: `weight` float32 [n_positions, d_model], drawn, changed
    and refused as `Embedding`'s."""

    weight: Tensor

    def __init__(
        self, n_positions: int, d_model: int, std: float = 0.02, rng: PCG32 | None = None
    ) -> None: ...
    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """x [..., T, d_model] plus rows offset to offset + T - 1. TypeError unless x
        is a floating-point tensor, ValueError for other shapes, a negative offset, and positions beyond
        the table."""
    def extra_repr(self) -> str:
        """The sizes that `repr` shows of this module."""

def rotary(x: Tensor, offset: int = 0, base: float = 10000.0) -> Tensor:
    """Rotate features 2i and 2i + 1 of position t by (offset + t) base^(-2i/dh) radians.

    x [..., T, dh] of any layout, with dh even (else ValueError) -> the same shape and dtype. Can be
    differentiated, as what the modules return. TypeError unless x is a floating-point tensor. Source: Su et al. (2021), eq. 34.
    """
