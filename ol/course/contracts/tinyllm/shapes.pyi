# Tangled from book/1-foundations/L0.2-shapes.md
"""L0.2 Shapes: operations that move numbers without changing them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

from tinyllm import autograd
from tinyllm.autograd import AnyTensor

__all__ = ["Tensor", "concatenate", "stack"]

class Tensor(autograd.Tensor):
    """A tensor that can be rearranged, indexed and joined.

    All operations can be differentiated, work on any memory layout and dtype, and read places in
    row-major order. What holds for L0.1's operations holds for these: the class of results, gradients
    that are not shared, inputs not written to, nothing kept. Lengths and orders are given as f(2, 3) or
    as f((2, 3)), in ints (else TypeError).
    """

    __slots__ = ()

    def reshape(self, *shape: int | Sequence[int]) -> Self:
        """The numbers in row-major order, in another shape; one length may be -1, to be worked out.

        A view where there is one. ValueError if the numbers do not fit.
        """
    def squeeze(self, axis: int | tuple[int, ...] | None = None) -> Self:
        """Without these axes, which must have length 1 (else ValueError), or without all such axes.

        A view.
        """
    def unsqueeze(self, axis: int) -> Self:
        """With a new axis of length 1, which is this one of the result's; a view.

        Negative axes count from the end of the result. ValueError out of range.
        """
    def flatten(self, start: int = 0, stop: int = -1) -> Self:
        """The axes from `start` to `stop`, both included, as one; no axes become one of length 1.

        A view where there is one. ValueError for an axis that is not there, and if `start` comes
        after `stop`.
        """
    def transpose(self, *order: int | Sequence[int]) -> Self:
        """Axis k of the result is axis order[k] of this tensor; no order: all axes reversed.

        A view. Axes may be negative. ValueError unless each axis is named once.
        """
    def swapaxes(self, first: int, second: int) -> Self:
        """Two axes exchanged, a view. ValueError for an axis that is not there."""
    @property
    def T(self) -> Self:
        """A matrix transposed, a view. ValueError unless there are two axes."""
    def broadcast_to(self, *shape: int | Sequence[int]) -> Self:
        """Repeated along new axes in front and along axes of length 1; a read-only view.

        ValueError if this tensor's shape does not broadcast to `shape`.
        """
    def __getitem__(self, index: Any) -> Self:
        """numpy's indexing, by integers, slices, None, ..., masks, and arrays or tensors of integers.

        A place that is picked n times gets n shares of gradient, added up in float32 at least. The
        index is copied. IndexError as numpy raises it. No place can be assigned to.
        """
    def split(self, lengths: int | Sequence[int], axis: int = 0) -> list[Self]:
        """Parts of these lengths along an axis, as views; `concatenate` joins them again.

        One number, at least 1: parts of that length, the last with what is left; no part of an empty axis.
        ValueError unless the lengths are 0 or more and the axis in all, and for an axis that is not
        there.
        """
    def __len__(self) -> int:
        """The length of the first axis. TypeError if there is none."""
    def __iter__(self) -> Iterator[Self]:
        """The entries along the first axis. TypeError if there is none."""
    def __contains__(self, item: object) -> bool:
        """Raises TypeError: what is meant, an entry or a row, is better said with `==`."""

def concatenate(tensors: Iterable[AnyTensor], axis: int = 0) -> AnyTensor:
    """Tensors end to end along an axis that they have; all other lengths must agree.

    The dtype is numpy's of all parts; each part's gradient has the part's. ValueError for shapes
    that do not fit, another axis and no tensors, TypeError for anything that is no tensor and an axis that is no
    int.
    """

def stack(tensors: Iterable[AnyTensor], axis: int = 0) -> AnyTensor:
    """Tensors of one shape side by side along a new axis; errors as `concatenate`."""
