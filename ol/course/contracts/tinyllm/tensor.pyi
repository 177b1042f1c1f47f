# Tangled from book/1-foundations/L0.3-products.md
"""L0.3 Products and reductions: the Tensor that all later modules use."""

from collections.abc import Sequence
from typing import Self, TypeAlias

import numpy as np
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

    What holds for the operations of L0.1 and L0.2 holds for these. Reductions take an axis, a tuple of
    axes, none in (), or None for all; axes may be negative, and `keepdims` leaves each reduced axis with
    length 1. ValueError for an axis that doesn't exist or is named twice. Dtypes are numpy's: sums of
    integers are int64, means of integers float64.
    """

    __slots__ = ()

    def __matmul__(self, other: Self | Array) -> Self:
        """Matrix product over the last two axes: [.., M, K] @ [.., K, N] is [.., M, N].

        The axes before them broadcast; a vector is a row on the left and a column on the right, and
        its added axis is removed from the result. No gradient of a shared matrix is made for each batch.
        ValueError for shapes that do not fit.
        """
    def __rmatmul__(self, other: Array) -> Self:
        """array @ tensor."""
    def sum(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The sum along an axis, several, or all (None); float16 is added up in float32."""
    def mean(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The mean along an axis, several, or all (None), in float16 of any count too. ValueError for the
        mean of no numbers."""
    def max(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The largest number along an axis, several, or all (None).

        Tied entries share the gradient evenly. The maximum of a group with NaN is NaN, and the
        gradient goes to the NaN. ValueError for the maximum of no numbers.
        """
    def min(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The smallest number along an axis, otherwise like `max`; ValueError for no numbers."""
    def argmax(self, axis: int | None = None, keepdims: bool = False) -> NDArray[np.intp]:
        """The index of the largest number along an axis, or of all numbers in row-major order (None).

        An array of integers, or one integer for None; the first of equal ones, or of NaNs. ValueError
        for the largest of no numbers.
        """
    def softmax(self, axis: int = -1) -> Self:
        """Positive weights that sum to 1 along an axis, in the proportions of e to the power of each.

        Finite for all finite numbers. -inf gets the weight 0, and a row of nothing but -inf gives NaN,
        with numpy's warning. float16 is computed in float32.
        """
    def log_softmax(self, axis: int = -1) -> Self:
        """The natural logarithm of each weight of `softmax`, finite for all finite numbers."""

def where(
    condition: ArrayLike | autograd.Tensor, a: Tensor | Constant, b: Tensor | Constant
) -> Tensor:
    """a where the condition is true, else b, entry by entry; the three shapes broadcast.

    a and b may be lists of numbers; of two constants a `Tensor` is made. What was not chosen changes
    nothing, even if it is NaN, and gets the gradient 0. TypeError unless the condition is of bools and a
    and b are of numbers, ValueError for shapes that do not fit.
    """

def zeros(
    *shape: int | Sequence[int], dtype: DTypeLike = np.float32, requires_grad: bool = False
) -> Tensor:
    """A new leaf of zeros; the shape as zeros(2, 3) or zeros((2, 3)). TypeError for lengths that are no
    ints and integers that require grad, ValueError for negative lengths."""

def ones(
    *shape: int | Sequence[int], dtype: DTypeLike = np.float32, requires_grad: bool = False
) -> Tensor:
    """A new leaf of ones; shape and errors as for `zeros`."""

def arange(
    start: float,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DTypeLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A leaf with one axis: the numbers from start up to, but not including, stop, in steps of `step`.

    A single number is the stop, and start is then 0. int64, counted in integers, if all three are
    integers, else float32, unless `dtype` says. TypeError for integers that require grad, ValueError for
    a step of 0.
    """
