# Tangled from book/0-foundations/L0.3-products.md
"""Matrix products and reductions: the Tensor that all later modules use."""

import math
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tinyllm import autograd, shapes
from tinyllm.autograd import Array, is_recording, no_grad, record, tensor_argument, unbroadcast
from tinyllm.shapes import concatenate, stack

__all__ = [
    "Tensor",
    "concatenate",
    "is_recording",
    "no_grad",
    "record",
    "stack",
    "tensor_argument",
    "unbroadcast",
]

Axis: TypeAlias = int | tuple[int, ...] | None


class Tensor(shapes.Tensor):
    """A tensor with products and reductions: the one to import.

    Reductions raise ValueError for an axis that is not there or named twice.
    """

    __slots__ = ()

    def __matmul__(self, other: Self | Array) -> Self:
        """Matrix product over the last two axes; the axes before them broadcast.

        ValueError for shapes that do not fit.
        """
        product: Self = _matmul(self, other)
        return product

    def __rmatmul__(self, other: Array) -> Self:
        product: Self = _matmul(other, self)
        return product

    def sum(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The sum along an axis, several, or all (None)."""
        shape = self.data.shape
        axes, kept = _reduced(axis, shape)
        z = self.data.sum(axis=axes, keepdims=keepdims)
        # eq. sum
        return record(z, (self,), lambda g: (np.broadcast_to(g.reshape(kept), shape),))

    def mean(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The mean along an axis, several, or all (None). ValueError for the mean of no numbers."""
        shape = self.data.shape
        axes, kept = _reduced(axis, shape)
        n = math.prod(shape[k] for k in axes)
        if n == 0:
            raise ValueError(f"mean over axis {axis} of shape {shape}: there is nothing to average")
        z = self.data.mean(axis=axes, keepdims=keepdims)
        # eq. mean
        return record(z, (self,), lambda g: (np.broadcast_to(g.reshape(kept) / n, shape),))

    def max(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The largest number along an axis, several, or all (None); equal ones share the gradient.

        ValueError for the maximum of no numbers.
        """
        x = self.data
        axes, kept = _reduced(axis, x.shape)
        if math.prod(x.shape[k] for k in axes) == 0:
            raise ValueError(f"max over axis {axis} of shape {x.shape}: there is nothing to find")
        top = x.max(axis=axes, keepdims=True)

        def backward(g: Array) -> tuple[Array]:
            found = x == top
            if np.isnan(top).any():
                found |= np.isnan(x)  # to numpy, the maximum of a group with a NaN is NaN
            ties = found.sum(axis=axes, keepdims=True)
            return (found * (g.reshape(kept) / ties).astype(g.dtype),)  # eq. max

        return record(top if keepdims else top.squeeze(axes), (self,), backward)


def _matmul(left: Any, right: Any) -> Any:
    """left @ right, one of them at least a tensor, the other a tensor or an array."""
    if isinstance(left, np.ndarray):
        left = autograd.Tensor(left)
    elif isinstance(right, np.ndarray):
        right = autograd.Tensor(right)
    elif not isinstance(right, autograd.Tensor) or not isinstance(left, autograd.Tensor):
        return NotImplemented
    a, b = left.data, right.data

    def backward(g: Array) -> tuple[Array | None, Array | None]:
        return (
            _left_gradient(g, a, b) if left.requires_grad else None,
            _right_gradient(g, a, b) if right.requires_grad else None,
        )

    return record(_product(a, b), (left, right), backward)


def _product(a: Array, b: Array) -> Array:
    """numpy's a @ b, with shapes checked, and one large product where b is a single matrix."""
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"@ needs an axis to sum over on either side, got {a.shape} @ {b.shape}")
    K = b.shape[-2] if b.ndim > 1 else b.shape[0]
    if a.shape[-1] != K:
        raise ValueError(
            f"{a.shape} @ {b.shape}: the left's last axis, of length {a.shape[-1]}, must be as long "
            f"as the right's {'second last' if b.ndim > 1 else 'only'} one, {K}"
        )
    if b.ndim == 2 and a.ndim > 2:
        rows = a.reshape(math.prod(a.shape[:-1]), K)
        product: Array = np.matmul(rows, b)  # [B M, N]
        return product.reshape(*a.shape[:-1], b.shape[1])  # [B, M, N]
    try:
        product = np.matmul(a, b)  # eq. matmul
    except ValueError:
        raise ValueError(
            f"{a.shape} @ {b.shape}: the axes before the last two must broadcast, got "
            f"{a.shape[:-2]} and {b.shape[:-2]}"
        ) from None
    return product


def _matrices(g: Array, a: Array, b: Array) -> tuple[Array, Array, Array]:
    """g, a and b with a vector on the left as a row and one on the right as a column."""
    if b.ndim == 1:
        g, b = g[..., None], b[:, None]
    if a.ndim == 1:
        g, a = g[..., None, :], a[None, :]
    return g, a, b


def _left_gradient(g: Array, a: Array, b: Array) -> Array:
    g, rows, b = _matrices(g, a, b)
    share = _product(g, b.swapaxes(-1, -2))  # eq. matmul-left
    return unbroadcast(share, rows.shape).reshape(a.shape)


def _right_gradient(g: Array, a: Array, b: Array) -> Array:
    g, a, columns = _matrices(g, a, b)
    if columns.ndim == 2:  # one matrix for the whole batch: the sum over it is part of the product
        count = math.prod(a.shape[:-1])
        a, g = a.reshape(count, a.shape[-1]), g.reshape(count, g.shape[-1])
    share = _product(a.swapaxes(-1, -2), g)  # eq. matmul-right
    return unbroadcast(share, columns.shape).reshape(b.shape)


def _reduced(axis: Axis, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes to reduce, as a tuple from 0 up, and the shape with their lengths set to 1."""
    if axis is None:
        return tuple(range(len(shape))), (1,) * len(shape)
    axes = normalize_axis_tuple(axis, len(shape))
    return axes, tuple(1 if k in axes else n for k, n in enumerate(shape))
