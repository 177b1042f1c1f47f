# Tangled from book/0-foundations/L0.3-products.md
"""L0.3 Products and reductions: the Tensor that all later modules use."""

from typing import Self, TypeAlias

from tinyllm import shapes
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

    Reductions take an axis, a tuple of axes, or None for all; axes may be negative, and `keepdims`
    leaves each reduced axis with length 1. ValueError for an axis that is not there or named twice.
    Dtypes are numpy's: sums of integers are int64, means of integers float64.
    """

    __slots__ = ()

    def __matmul__(self, other: Self | Array) -> Self:
        """Matrix product over the last two axes: [.., M, K] @ [.., K, N] is [.., M, N].

        The axes before them broadcast; a vector is a row on the left and a column on the right, and
        its added axis is removed from the result. Shapes are checked first: ValueError.
        """
    def __rmatmul__(self, other: Array) -> Self:
        """array @ tensor."""
    def sum(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The sum along an axis, several, or all (None)."""
    def mean(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The mean along an axis, several, or all (None). ValueError for the mean of no numbers."""
    def max(self, axis: Axis = None, keepdims: bool = False) -> Self:
        """The largest number along an axis, several, or all (None).

        Equal largest ones share the gradient evenly. A group with NaN has the maximum NaN, and the
        gradient goes to the NaN. ValueError for the maximum of no numbers.
        """
