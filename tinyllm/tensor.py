# Tangled from book/1-foundations/L0.3-products.md
"""Matrix products and reductions: the Tensor that all later modules use."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tinyllm import autograd, shapes
from tinyllm.autograd import (
    Array,
    Constant,
    is_recording,
    no_grad,
    record,
    sum_over,
    tensor_argument,
    unbroadcast,
)
from tinyllm.shapes import concatenate, stack

__all__ = [
    "Tensor",
    "arange",
    "concatenate",
    "is_recording",
    "no_grad",
    "ones",
    "record",
    "stack",
    "sum_over",
    "tensor_argument",
    "unbroadcast",
    "where",
    "zeros",
]

Axis: TypeAlias = int | tuple[int, ...] | None


class Tensor(shapes.Tensor):
    """A tensor with products and reductions: the one to import.

    Reductions raise ValueError for an axis that doesn't exist or is named twice.
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
        z = sum_over(self.data, axes, keepdims)
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

        def backward(g: Array) -> tuple[Array]:
            share = (g.reshape(kept) / np.float64(n)).astype(g.dtype)  # eq. mean
            return (np.broadcast_to(share, shape),)

        return record(z, (self,), backward)

    def max(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The largest number along an axis, several, or all (None); equal ones share the gradient.

        ValueError for the maximum of no numbers.
        """
        return self._extreme("max", axis, keepdims)

    def min(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The smallest number, otherwise like `max`; ValueError for no numbers."""
        return self._extreme("min", axis, keepdims)

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> NDArray[np.intp]:
        """The index of the largest number along an axis, or of all numbers in row-major order (None).

        An array of integers, or one integer for None; the first of equal ones. ValueError for the
        largest of no numbers.
        """
        found: NDArray[np.intp] = np.argmax(self.data, axis=axis, keepdims=keepdims)
        return found

    def _extreme(self, name: str, axis: Axis, keepdims: bool) -> Self:
        """The largest or the smallest number: numpy's method of that name."""
        x = self.data
        axes, kept = _reduced(axis, x.shape)
        if math.prod(x.shape[k] for k in axes) == 0:
            raise ValueError(
                f"{name} over axis {axis} of shape {x.shape}: there is nothing to find"
            )
        top = getattr(x, name)(axis=axes, keepdims=True)

        def backward(g: Array) -> tuple[Array]:
            found = x == top
            if np.isnan(top).any():
                found |= np.isnan(x)  # to numpy, the maximum of a group with a NaN is NaN
            ties = found.sum(axis=axes, keepdims=True)
            return (found * (g.reshape(kept) / ties).astype(g.dtype),)  # eq. max

        return record(top if keepdims else top.squeeze(axes), (self,), backward)

    def softmax(self, axis: int = -1) -> Self:
        """Positive weights that sum to 1 along an axis, in the proportions of e to the power of each."""
        e = np.exp(_shifted(self.data, axis))
        w = e / e.sum(axis=axis, keepdims=True)

        def backward(g: Array) -> tuple[Array]:
            return (w * (g - (g * w).sum(axis=axis, keepdims=True)),)  # eq. softmax-back

        return record(w.astype(_rounded(self.data), copy=False), (self,), backward)

    def log_softmax(self, axis: int = -1) -> Self:
        """The natural logarithm of `softmax`, finite for every finite number."""
        s = _shifted(self.data, axis)
        total = np.exp(s).sum(axis=axis, keepdims=True)  # 1 or more, but 0 for no scores
        z = s - np.log(np.maximum(total, 1))

        def backward(g: Array) -> tuple[Array]:
            return (g - np.exp(z) * g.sum(axis=axis, keepdims=True, dtype=z.dtype),)

        return record(z.astype(_rounded(self.data), copy=False), (self,), backward)


def where(
    condition: ArrayLike | autograd.Tensor, a: Tensor | Constant, b: Tensor | Constant
) -> Tensor:
    """a where the condition is true, else b, entry by entry; the three shapes broadcast.

    TypeError unless the condition's dtype is bool, ValueError for shapes that don't fit.
    """
    chosen = np.asarray(condition.data if isinstance(condition, autograd.Tensor) else condition)
    if chosen.dtype != bool:
        raise TypeError(
            f"where: wants a condition of bools, got dtype {chosen.dtype}: "
            f"(x != 0) makes bools of numbers"
        )
    x, y = _operand(a), _operand(b)
    try:
        z = np.where(chosen, x, y)
    except ValueError:
        raise ValueError(
            f"where: shapes {chosen.shape}, {np.shape(x)} and {np.shape(y)} do not fit together: "
            f"counted from the right, lengths must be equal or 1"
        ) from None
    sides = [(t, mask) for t, mask in ((a, chosen), (b, ~chosen)) if isinstance(t, autograd.Tensor)]

    def backward(g: Array) -> list[Array]:
        return [unbroadcast(np.where(mask, g, 0), t.shape) for t, mask in sides]

    result: Tensor = record(z, [t for t, _ in sides], backward) if sides else Tensor(z)
    return result


def _operand(value: object) -> Any:
    """A tensor's array, a number of Python's own, which takes the other's dtype, or an array."""
    if isinstance(value, (int, float)):
        return value
    return value.data if isinstance(value, autograd.Tensor) else Tensor(value).data  # type: ignore[arg-type]


def zeros(
    *shape: int | Sequence[int], dtype: DTypeLike = np.float32, requires_grad: bool = False
) -> Tensor:
    """A leaf of zeros; the shape as zeros(2, 3) or zeros((2, 3)).

    TypeError for lengths that are no ints and integers that require grad, ValueError for negative lengths.
    """
    return _filled(np.zeros, shape, dtype, requires_grad)


def ones(
    *shape: int | Sequence[int], dtype: DTypeLike = np.float32, requires_grad: bool = False
) -> Tensor:
    """A leaf of ones; the shape as ones(2, 3) or ones((2, 3))."""
    return _filled(np.ones, shape, dtype, requires_grad)


def _filled(
    make: Callable[..., Array],
    shape: tuple[int | Sequence[int], ...],
    dtype: DTypeLike,
    requires_grad: bool,
) -> Tensor:
    return Tensor(make(shape[0] if len(shape) == 1 else shape, dtype), requires_grad)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DTypeLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A leaf of the numbers from start up to, but not including, stop, in steps of `step`.

    A single number is the stop, and start is then 0. int64 if all three are integers, else float32, unless `dtype` says.
    TypeError for integers that require grad, ValueError for a step of 0.
    """
    first, end = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise ValueError("arange: step must not be 0")
    if all(isinstance(n, int | np.integer) for n in (first, end, step)):
        count = len(range(int(first), int(end), int(step)))  # numpy counts in float64
        numbers: Array = np.arange(count, dtype=np.int64) * int(step) + int(first)
    else:
        numbers = np.arange(first, end, step)
    if dtype is None and numbers.dtype.kind == "f":
        dtype = np.float32
    return Tensor(numbers, requires_grad, dtype)


def _matmul(left: Any, right: Any) -> Any:
    """left @ right: at least one is a tensor, the other a tensor or an array."""
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


def _shifted(x: Array, axis: int) -> Array:
    """x minus its largest number along an axis, as float32 at least: all 0 or less, some 0."""
    wide = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
    below: Array = wide - wide.max(axis=axis, keepdims=True, initial=-np.inf)
    return below


def _rounded(x: Array) -> np.dtype[Any]:
    """The dtype of a function of x: x's own, or what numpy makes of integers."""
    return np.promote_types(x.dtype, np.float16)
