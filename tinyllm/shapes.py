# Tangled from book/1-foundations/L0.2-shapes.md
"""Operations that move numbers without changing them: reshape, transpose, indexing, joining."""

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from types import EllipsisType, NoneType
from typing import Any, Self, cast

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from tinyllm import autograd
from tinyllm.autograd import AnyTensor, Array, record, tensor_argument, unbroadcast

__all__ = ["Tensor", "concatenate", "stack"]


class Tensor(autograd.Tensor):
    """A tensor that can be rearranged, indexed and joined. TypeError for lengths that are no ints."""

    __slots__ = ()

    def reshape(self, *shape: int | Sequence[int]) -> Self:
        """The numbers in row-major order, in another shape; one length may be -1, to be worked out.

        ValueError if the numbers do not fit.
        """
        old, new = self.data.shape, _integers(shape)
        try:
            z = self.data.reshape(new)  # eq. row-major
        except ValueError:
            raise ValueError(
                f"reshape: the {self.size} numbers of shape {old} do not fit shape {new}"
            ) from None
        return record(z, (self,), lambda g: (g.reshape(old),))

    def squeeze(self, axis: int | tuple[int, ...] | None = None) -> Self:
        """Without these axes, which must have length 1 (else ValueError), or without all such axes."""
        try:
            return self.reshape(self.data.squeeze(axis).shape)
        except ValueError:
            raise ValueError(
                f"squeeze: axis {axis} of shape {self.shape} must be there and have length 1"
            ) from None

    def unsqueeze(self, axis: int) -> Self:
        """With a new axis of length 1, which is this one of the result's. ValueError out of range."""
        return self.reshape(np.expand_dims(self.data, axis).shape)

    def flatten(self, start: int = 0, stop: int = -1) -> Self:
        """The axes from `start` to `stop`, both included, as one. ValueError for no such axes."""
        shape = self.data.shape or (1,)
        first, last = (normalize_axis_index(axis, len(shape)) for axis in (start, stop))
        if first > last:
            raise ValueError(f"flatten: axis {start} of shape {shape} comes after axis {stop}")
        joined = math.prod(shape[first : last + 1])
        return self.reshape(*shape[:first], joined, *shape[last + 1 :])

    def transpose(self, *order: int | Sequence[int]) -> Self:
        """Axis k of the result is axis order[k] of this tensor; no order: all axes reversed.

        ValueError unless each axis is named once.
        """
        axes = _integers(order) if order else tuple(reversed(range(self.ndim)))
        try:
            z = self.data.transpose(axes)
        except ValueError:
            raise ValueError(
                f"transpose: the order must name each axis of shape {self.shape} once, got {axes}; "
                f"swapaxes exchanges two"
            ) from None
        inverse = sorted(range(len(axes)), key=lambda k: axes[k] % len(axes))
        return record(z, (self,), lambda g: (g.transpose(inverse),))

    def swapaxes(self, first: int, second: int) -> Self:
        """Two axes exchanged. ValueError for an axis that is not there."""
        z = self.data.swapaxes(first, second)
        return record(z, (self,), lambda g: (g.swapaxes(first, second),))

    @property
    def T(self) -> Self:
        """A matrix transposed. ValueError unless there are two axes."""
        if self.ndim != 2:
            raise ValueError(
                f".T is for matrices, got shape {self.shape}: swapaxes(-1, -2) transposes the "
                f"matrices in it, transpose() reverses all axes"
            )
        return self.swapaxes(0, 1)

    def broadcast_to(self, *shape: int | Sequence[int]) -> Self:
        """Repeated along new axes in front and along axes of length 1; a read-only view.

        ValueError if this tensor's shape does not broadcast to `shape`.
        """
        old, new = self.data.shape, _integers(shape)
        try:
            z = np.broadcast_to(self.data, new)
        except ValueError:
            raise ValueError(f"broadcast_to: shape {old} does not broadcast to {new}") from None
        return record(z, (self,), lambda g: (unbroadcast(g, old),))

    def __getitem__(self, index: Any) -> Self:
        """numpy's indexing, by integers, slices, None, ..., masks, and arrays or tensors of integers.

        IndexError as numpy raises it.
        """
        shape = self.data.shape
        places, repeats = _places(index)

        def backward(g: Array) -> tuple[Array]:
            full = np.zeros(shape, np.promote_types(g.dtype, np.float32) if repeats else g.dtype)
            if repeats:
                np.add.at(full, places, g)  # eq. send-back, where several may meet
            else:
                full[places] = g
            return (full,)

        return record(self.data[places], (self,), backward)

    def split(self, lengths: int | Sequence[int], axis: int = 0) -> list[Self]:
        """Parts of these lengths along an axis; one number: of that length, the last with the rest.

        ValueError unless the lengths are the axis in all, and for an axis that is not there.
        """
        axis = normalize_axis_index(axis, self.ndim)
        n = self.shape[axis]
        if isinstance(lengths, Sequence):
            cuts = [operator.index(length) for length in lengths]
        else:
            each = operator.index(lengths)
            cuts = [min(each, n - at) for at in range(0, n, each)] if each > 0 else [each]
        if sum(cuts) != n or min(cuts, default=0) < 0:
            raise ValueError(f"split: axis {axis} has length {n}, got parts of lengths {lengths}")
        before = (slice(None),) * axis
        ends = list(accumulate(cuts))
        return [self[*before, end - cut : end] for cut, end in zip(cuts, ends, strict=True)]

    def __len__(self) -> int:
        """The length of the first axis. TypeError if there is none."""
        if self.ndim == 0:
            raise TypeError("a tensor without axes has no len()")
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        """The entries along the first axis. TypeError if there is none."""
        return (self[i] for i in range(len(self)))

    def __contains__(self, item: object) -> bool:
        raise TypeError("`in` is not defined for tensors: use (tensor == item).any()")


def concatenate(tensors: Iterable[AnyTensor], axis: int = 0) -> AnyTensor:
    """Tensors end to end along an axis that they have; all other lengths must agree.

    ValueError for shapes that do not fit and for no tensors, TypeError for anything that is no tensor
    and an axis that is no int.
    """
    tensors = _tensors("concatenate", tensors, axis)
    parts = [tensor.data for tensor in tensors]
    try:
        z = np.concatenate(parts, axis)
    except ValueError:
        raise ValueError(
            f"concatenate: along axis {axis}, the shapes must agree in all other axes, got "
            f"{[part.shape for part in parts]}"
        ) from None
    before = (slice(None),) * (axis % z.ndim)
    ends = list(accumulate(part.shape[axis] for part in parts))

    def backward(g: Array) -> list[Array]:
        starts = [0, *ends]
        return [g[*before, slice(*cut)] for cut in zip(starts, ends, strict=False)]

    return record(z, tensors, backward)


def stack(tensors: Iterable[AnyTensor], axis: int = 0) -> AnyTensor:
    """Tensors of one shape side by side along a new axis; errors as `concatenate`."""
    tensors = _tensors("stack", tensors, axis)
    parts = [tensor.data for tensor in tensors]
    try:
        z = np.stack(parts, axis)
    except ValueError:
        raise ValueError(
            f"stack: along a new axis {axis}, the shapes must be equal, got "
            f"{[part.shape for part in parts]}"
        ) from None
    return record(z, tensors, lambda g: list(np.moveaxis(g, axis, 0)))


def _integers(numbers: Sequence[int | Sequence[int]]) -> tuple[int, ...]:
    """From the arguments of f(2, 3) or of f((2, 3)) to (2, 3)."""
    if len(numbers) == 1 and not hasattr(numbers[0], "__index__"):
        numbers = numbers[0]
    return tuple(operator.index(n) for n in cast(Sequence[int], numbers))


def _places(index: Any) -> tuple[tuple[Any, ...], bool]:
    """The index with arrays of its own, and whether it may name a place twice."""
    places: list[Any] = []
    repeats = False
    for item in index if isinstance(index, tuple) else (index,):
        if not isinstance(item, (int, np.integer, np.bool_, slice, EllipsisType, NoneType)):
            item = np.array(item)  # a copy, also of a tensor
            if item.size == 0 and item.dtype.kind == "f":
                item = item.astype(np.intp)  # [] is an array of floats to numpy
            repeats = repeats or item.dtype.kind != "b"
        places.append(item)
    return tuple(places), repeats


def _tensors(name: str, tensors: Iterable[AnyTensor], axis: object) -> list[AnyTensor]:
    """The tensors that are to be joined, whatever gives them."""
    given = list(tensors)
    for place, tensor in enumerate(given):
        tensor_argument(name, f"tensors[{place}]", tensor)
    if not given:
        raise ValueError(f"{name} wants at least one tensor, got none")
    if not hasattr(axis, "__index__"):
        raise TypeError(
            f"{name} wants an int for axis, got {axis!r}: x.flatten() has one axis only"
        )
    return given
