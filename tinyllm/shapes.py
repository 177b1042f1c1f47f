# Tangled from book/0-foundations/L0.2-shapes.md
"""Operations that move numbers without changing them: reshape, transpose, indexing, joining."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tinyllm import autograd
from tinyllm.autograd import record, unbroadcast

__all__ = ["Tensor", "concatenate", "stack"]

Array: TypeAlias = NDArray[Any]
AnyTensor = TypeVar("AnyTensor", bound=autograd.Tensor)


class Tensor(autograd.Tensor):
    """`autograd.Tensor` with operations on its shape."""

    __slots__ = ()

    def reshape(self, *shape: int | Sequence[int]) -> Self:
        """The same numbers in row-major order under another shape; one length may be -1."""
        wanted = _flat(shape)
        x = self.data
        try:
            out = x.reshape(wanted)
        except ValueError:
            raise ValueError(
                f"reshape: shape {x.shape} has {x.size} numbers, cannot be {wanted}"
            ) from None
        return record(out, (self,), lambda g: (g.reshape(x.shape),))

    def transpose(self, *axes: int | Sequence[int]) -> Self:
        """Axis i of the result is axis `axes[i]` of self; without axes, the order is reversed."""
        order = _flat(axes) if axes else tuple(reversed(range(self.ndim)))
        try:
            order = np.lib.array_utils.normalize_axis_tuple(order, self.ndim)
            wrong = len(order) != self.ndim
        except ValueError:
            wrong = True
        if wrong:
            raise ValueError(
                f"transpose wants each of the {self.ndim} axes of shape {self.shape} once, got "
                f"{order}; to exchange two axes, use swapaxes"
            )
        back = np.argsort(order)
        return record(self.data.transpose(order), (self,), lambda g: (g.transpose(back),))

    def swapaxes(self, first: int, second: int) -> Self:
        """Exchange two axes."""
        out = self.data.swapaxes(first, second)
        return record(out, (self,), lambda g: (g.swapaxes(first, second),))

    @property
    def T(self) -> Self:
        """The transpose of a matrix."""
        if self.ndim != 2:
            raise ValueError(
                f".T is for matrices, got shape {self.shape}: use swapaxes(-1, -2) or transpose()"
            )
        return self.swapaxes(0, 1)

    def broadcast_to(self, *shape: int | Sequence[int]) -> Self:
        """Repeat along new axes in front and along axes of length 1, without copying."""
        wanted = _flat(shape)
        x = self.data
        try:
            out = np.broadcast_to(x, wanted)
        except ValueError:
            raise ValueError(f"broadcast_to: shape {x.shape} does not broadcast to {wanted}") from None
        return record(out, (self,), lambda g: (unbroadcast(g, x.shape),))

    def __getitem__(self, index: Any) -> Self:
        """numpy's indexing; the gradient of an entry that is picked twice is counted twice."""
        x = self.data
        index, repeats = _own_index(index)

        def backward(g: Array) -> tuple[Array]:
            full = np.zeros(x.shape, g.dtype)
            if repeats:
                np.add.at(full, index, g)
            else:
                full[index] = g
            return (full,)

        return record(x[index], (self,), backward)

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len() of a tensor without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))


def concatenate(tensors: Sequence[AnyTensor], axis: int = 0) -> AnyTensor:
    """Join tensors end to end along an axis they have; the other lengths must agree."""
    parts = [t.data for t in tensors]
    try:
        out = np.concatenate(parts, axis)
    except ValueError:
        raise ValueError(
            f"concatenate along axis {axis}: shapes {[p.shape for p in parts]}"
        ) from None
    ends = np.cumsum([p.shape[axis] for p in parts])[:-1]
    return record(out, tensors, lambda g: np.split(g, ends, axis))


def stack(tensors: Sequence[AnyTensor], axis: int = 0) -> AnyTensor:
    """Put tensors of one shape side by side along a new axis."""
    parts = [t.data for t in tensors]
    try:
        out = np.stack(parts, axis)
    except ValueError:
        raise ValueError(f"stack along axis {axis}: shapes {[p.shape for p in parts]}") from None
    return record(out, tensors, lambda g: tuple(np.moveaxis(g, axis, 0)))


def _flat(numbers: Sequence[int | Sequence[int]]) -> tuple[int, ...]:
    if len(numbers) == 1 and not isinstance(numbers[0], (int, np.integer)):
        numbers = numbers[0]
    return tuple(int(n) for n in numbers)  # type: ignore[arg-type]


def _own_index(index: Any) -> tuple[Any, bool]:
    items = index if isinstance(index, tuple) else (index,)
    own: list[Any] = []
    repeats = False
    for item in items:
        if isinstance(item, autograd.Tensor):
            item = item.data
        if isinstance(item, (list, np.ndarray)):
            item = np.array(item)
            if item.size == 0 and item.dtype.kind == "f":
                item = item.astype(np.intp)
            repeats |= item.dtype.kind != "b"
        own.append(item)
    return tuple(own), repeats
