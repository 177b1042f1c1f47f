# Tangled from book/0-foundations/L0.3-products.md
"""Matrix products and reductions: the Tensor that every later module uses."""

from __future__ import annotations

import math
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinyllm import autograd, shapes
from tinyllm.autograd import no_grad, is_recording, record, unbroadcast
from tinyllm.shapes import concatenate, stack

__all__ = ["Tensor", "concatenate", "is_recording", "no_grad", "record", "stack", "unbroadcast"]

Array: TypeAlias = NDArray[Any]
Axis: TypeAlias = int | tuple[int, ...] | None


class Tensor(shapes.Tensor):
    """The tensor of this book."""

    __slots__ = ()

    def __matmul__(self, other: Self | Array) -> Self:
        """Matrix product over the last two axes; earlier axes broadcast; vectors as in numpy."""
        a = self.data
        if isinstance(other, autograd.Tensor):
            b = other.data

            def backward(g: Array) -> tuple[Array | None, Array | None]:
                return (
                    _left_gradient(g, a, b) if self.requires_grad else None,
                    _right_gradient(g, a, b) if other.requires_grad else None,
                )

            return record(_product(a, b), (self, other), backward)
        if isinstance(other, np.ndarray):
            return record(_product(a, other), (self,), lambda g: (_left_gradient(g, a, other),))
        return NotImplemented

    def __rmatmul__(self, other: Array) -> Self:
        b = self.data
        if not isinstance(other, np.ndarray):
            return NotImplemented
        return record(_product(other, b), (self,), lambda g: (_right_gradient(g, other, b),))

    def sum(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """Add up along `axis` (None: all of them)."""
        x = self.data
        axes = _axes(axis, x.ndim)
        out = x.sum(axis=axes, keepdims=keepdims)

        def backward(g: Array) -> tuple[Array]:
            return (np.broadcast_to(g if keepdims else np.expand_dims(g, axes), x.shape),)

        return record(out, (self,), backward)

    def mean(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The sum divided by how many numbers went into it."""
        x = self.data
        axes = _axes(axis, x.ndim)
        count = math.prod(x.shape[i] for i in axes)
        if count == 0:
            raise ValueError(f"mean over axis {axis} of shape {x.shape}: no numbers")
        out = x.mean(axis=axes, keepdims=keepdims)

        def backward(g: Array) -> tuple[Array]:
            return (np.broadcast_to((g if keepdims else np.expand_dims(g, axes)) / count, x.shape),)

        return record(out, (self,), backward)

    def max(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The largest number along `axis`; equal largest ones share the gradient evenly."""
        x = self.data
        axes = _axes(axis, x.ndim)
        if math.prod(x.shape[i] for i in axes) == 0:
            raise ValueError(f"max over axis {axis} of shape {x.shape}: no numbers")
        top = x.max(axis=axes, keepdims=True)

        def backward(g: Array) -> tuple[Array]:
            g = g if keepdims else np.expand_dims(g, axes)
            hit = (x == top) | (x != x)  # NaN is the maximum where there is one
            return (hit * (g / hit.sum(axis=axes, keepdims=True)),)

        return record(top if keepdims else top.squeeze(axes), (self,), backward)


def _product(a: Array, b: Array) -> Array:
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"@ wants at least one axis on either side, got {a.shape} @ {b.shape}")
    inner = b.shape[-2] if b.ndim > 1 else b.shape[0]
    if a.shape[-1] != inner:
        raise ValueError(
            f"{a.shape} @ {b.shape}: the left's last axis has length {a.shape[-1]}, "
            f"the right's {'second last' if b.ndim > 1 else 'only'} axis {inner}"
        )
    if b.ndim == 2 and a.ndim > 2:
        rows = math.prod(a.shape[:-1])
        return (a.reshape(rows, inner) @ b).reshape(*a.shape[:-1], b.shape[1])
    try:
        product: Array = np.matmul(a, b)
    except ValueError:
        raise ValueError(
            f"{a.shape} @ {b.shape}: the axes before the last two do not broadcast"
        ) from None
    return product


def _matrices(g: Array, a: Array, b: Array) -> tuple[Array, Array, Array]:
    """View vectors as matrices: a as a row, b as a column, g with the axes they would give."""
    if b.ndim == 1:
        b = b[:, None]
        g = g[..., None]
    if a.ndim == 1:
        a = a[None, :]
        g = g[..., None, :]
    return g, a, b


def _left_gradient(g: Array, a: Array, b: Array) -> Array:
    g, rows, b = _matrices(g, a, b)
    return unbroadcast(_product(g, b.swapaxes(-1, -2)), rows.shape).reshape(a.shape)


def _right_gradient(g: Array, a: Array, b: Array) -> Array:
    g, a, columns = _matrices(g, a, b)
    if columns.ndim == 2 and a.ndim > 2:
        rows = math.prod(a.shape[:-1])
        a, g = a.reshape(rows, a.shape[-1]), g.reshape(rows, g.shape[-1])
    return unbroadcast(_product(a.swapaxes(-1, -2), g), columns.shape).reshape(b.shape)


def _axes(axis: Axis, ndim: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(ndim))
    return np.lib.array_utils.normalize_axis_tuple(axis, ndim)
