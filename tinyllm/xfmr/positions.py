# Tangled from book/2-transformer/L5.4-positions.md
"""Vectors for tokens, and three ways to say where they are: what a transformer begins with."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tinyllm.arguments import non_negative_int, positive_int
from tinyllm.autograd import record, tensor_argument
from tinyllm.generators import generator
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
    """Rows of a table: table [V, d], ids [...] -> [..., d]; one recorded operation.

    TypeError for a table that is no tensor and ids that are not whole numbers, ValueError for a table of
    another shape and ids outside 0 to V - 1.
    """
    tensor_argument("embed", "table", table)
    if table.ndim != 2:
        raise ValueError(f"embed: wants a table [V, d], got {list(table.shape)}")
    V, d = table.shape
    rows = _checked_ids(ids, V)

    def backward(grad: Array) -> tuple[Array]:
        return (_sum_by_row(rows.reshape(-1), grad.reshape(-1, d), V),)

    return record(table.data[rows], (table,), backward)


def _sum_by_row(rows: Array, g: Array, V: int) -> Array:
    """total[c] = the sum of g[j] over all j with rows[j] == c; [V, d]."""
    if V <= 128 and np.isfinite(g).all():
        places = np.equal(rows, np.arange(V)[:, None])  # [V, N]
        product: Array = places.astype(g.dtype) @ g  # eq. embed-grad
        return product
    total = np.zeros((V, g.shape[1]), np.result_type(g.dtype, np.float32))
    np.add.at(total, rows, g)  # eq. embed-grad
    return total


class Embedding(Module):
    """A learned vector for each of n_tokens tokens; `weight` is float32 [n_tokens, d_model].

    Drawn from the normal distribution with standard deviation `std`, from `rng`, by default the
    process's ``default_generator()``. ValueError unless both sizes are positive, TypeError for an `rng`
    that is no PCG32.
    """

    def __init__(
        self, n_tokens: int, d_model: int, std: float = 1.0, rng: PCG32 | None = None
    ) -> None:
        n_tokens = positive_int("Embedding", "n_tokens", n_tokens)
        d_model = positive_int("Embedding", "d_model", d_model)
        rng = generator(type(self).__name__, rng)
        self.weight = Tensor(rng.normal(0.0, std, (n_tokens, d_model)), requires_grad=True)

    def forward(self, ids: ArrayLike) -> Tensor:
        """Token ids [...] -> vectors [..., d_model]."""
        return embed(self.weight, ids)

    def extra_repr(self) -> str:
        return " x ".join(map(str, self.weight.shape))


def sinusoidal(
    length: int,
    d_model: int,
    start: int = 0,
    base: float = 10000.0,
    dtype: DTypeLike = np.float32,
) -> Array:
    """The positions start, start + 1, ... as waves: [length, d_model], between -1 and 1.

    Feature 2i is sin(t base^(-2i/d)) and feature 2i + 1 the cosine of the same angle; if d_model is
    odd, the last sine has no cosine. Computed in float64. ValueError unless length >= 0 and
    d_model > 0 are ints and base > 0. Vaswani et al. (2017), section 3.5.
    """
    T = non_negative_int("sinusoidal", "length", length)
    d = positive_int("sinusoidal", "d_model", d_model)
    t = np.arange(start, start + T, dtype=np.float64)  # [T]
    angles = t[:, None] * _speeds(d, base)  # [T, ceil(d/2)]
    table = np.empty((T, d), dtype)
    table[:, 0::2] = np.sin(angles)  # eq. sinusoidal
    table[:, 1::2] = np.cos(angles[:, : d // 2])
    return table


def _speeds(d: int, base: float) -> NDArray[np.float64]:
    """By how many radians each pair of features turns in one position."""
    if not base > 0:
        raise ValueError(f"positions: wants a base above 0, got {base}")
    speeds: NDArray[np.float64] = base ** (-np.arange(0, d, 2) / d)  # [ceil(d/2)]
    return speeds


class SinusoidalPositions(Module):
    """Adds `sinusoidal` positions to vectors of d_model features; there is nothing to learn."""

    def __init__(self, d_model: int, base: float = 10000.0) -> None:
        self.d_model = positive_int("SinusoidalPositions", "d_model", d_model)
        self.base = base
        self._table = sinusoidal(0, d_model, 0, base, np.float64)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """x [..., T, d_model] + positions offset, offset + 1, ...; the same shape and dtype.

        TypeError unless x is a floating-point tensor, ValueError for another width or a negative
        offset.
        """
        T, start = _checked_sequence(x, self.d_model, offset)
        if start + T > len(self._table):
            self._table = sinusoidal(2 * (start + T), self.d_model, 0, self.base, np.float64)
        return x + self._table[start : start + T].astype(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.d_model}, base={self.base:g}"


class LearnedPositions(Module):
    """Adds a learned vector for each position up to n_positions; `weight` [n_positions, d_model].

    Drawn like `Embedding`'s. TypeError unless x is a floating-point tensor, ValueError for another
    width, a negative offset, and a sequence that goes beyond the table.
    """

    def __init__(
        self, n_positions: int, d_model: int, std: float = 0.02, rng: PCG32 | None = None
    ) -> None:
        n_positions = positive_int("LearnedPositions", "n_positions", n_positions)
        d_model = positive_int("LearnedPositions", "d_model", d_model)
        rng = generator(type(self).__name__, rng)
        self.weight = Tensor(rng.normal(0.0, std, (n_positions, d_model)), requires_grad=True)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """x [..., T, d_model] + rows offset, offset + 1, ... of the table."""
        n, d = self.weight.shape
        T, start = _checked_sequence(x, d, offset)
        if start + T > n:
            raise ValueError(
                f"LearnedPositions: positions {start} to {start + T - 1} were asked for, the table "
                f"ends at {n - 1}"
            )
        return x + self.weight[start : start + T]

    def extra_repr(self) -> str:
        return " x ".join(map(str, self.weight.shape))


def rotary(x: Tensor, offset: int = 0, base: float = 10000.0) -> Tensor:
    """Rotate each pair of features by its position: x [..., T, dh], dh even -> the same shape.

    Features 2i and 2i + 1 of position t are turned by (offset + t) base^(-2i/dh) radians; one recorded
    operation. For queries and keys, after the heads are split and before their product; values are
    not rotated. TypeError unless x is a floating-point tensor, ValueError for an odd dh. Su et al.
    (2021), eq. 34.
    """
    tensor_argument("rotary", "x", x)
    if x.ndim < 2 or x.shape[-1] % 2:
        raise ValueError(f"rotary: wants x of shape [..., T, dh] with dh even, got {list(x.shape)}")
    T, start = _checked_sequence(x, x.shape[-1], offset)
    t = np.arange(start, start + T, dtype=np.float64)
    angles = t[:, None] * _speeds(x.shape[-1], base)  # [T, dh/2]
    turn = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
    return record(_rotate(x.data, *turn), (x,), lambda grad: (_rotate(grad, turn[0], -turn[1]),))


def _rotate(x: Array, cos: Array, sin: Array) -> Array:
    y = np.empty_like(x)
    even, odd = x[..., 0::2], x[..., 1::2]
    y[..., 0::2] = even * cos - odd * sin  # eq. rotate
    y[..., 1::2] = even * sin + odd * cos
    return y


def _checked_ids(ids: ArrayLike, V: int) -> Array:
    rows = ids.data if isinstance(ids, Tensor) else np.asarray(ids)
    if rows.dtype.kind not in "iu" and rows.size:
        raise TypeError(f"embed: wants whole numbers as ids, got dtype {rows.dtype}")
    rows = rows.astype(np.intp)
    if rows.size and (rows.min() < 0 or rows.max() >= V):
        wrong = np.argwhere((rows < 0) | (rows >= V))[0].tolist()
        raise ValueError(
            f"embed: the id at {wrong} is {rows[tuple(wrong)]}, the table has rows 0 to {V - 1}"
        )
    return rows


def _checked_sequence(x: Tensor, d: int, offset: int) -> tuple[int, int]:
    """The length of x [..., T, d] and the first position, both checked."""
    tensor_argument("positions", "x", x)
    if x.dtype.kind != "f":
        raise TypeError(
            f"positions: wants floating-point vectors [..., T, {d}], got {x.dtype}: embed token ids "
            "first, convert numbers with .astype(np.float32)"
        )
    if x.ndim < 2 or x.shape[-1] != d:
        raise ValueError(f"positions: wants x of shape [..., T, {d}], got {list(x.shape)}")
    return x.shape[-2], non_negative_int("positions", "offset", offset)
