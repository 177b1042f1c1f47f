# Tangled from book/1-foundations/L0.1-tensor.md
"""What a tensor does as an array: facts, printing, conversions, and the checks of arrays."""

import operator
from numbers import Number
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = [
    "ArrayHolder",
    "bound",
    "compare",
    "first_gradient",
    "must_be_floating",
    "must_broadcast",
    "real_array",
]

Array: TypeAlias = NDArray[Any]


class ArrayHolder:
    """An object around one numpy array, and whether a gradient is wanted for it."""

    __slots__ = ("_data", "_requires_grad")

    _data: Array
    _requires_grad: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self._data.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of each number."""
        return self._data.dtype

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return self._data.ndim

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return self._data.size

    def __repr__(self) -> str:
        numbers = np.array2string(self._data, separator=", ", prefix="Tensor(")
        flag = ", requires_grad=True" if self._requires_grad else ""
        return f"Tensor({numbers}, dtype={self._data.dtype}{flag})"

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        if self._data.size != 1:
            raise TypeError(
                f"format {spec!r} wants a tensor of one number, got shape {self._data.shape}: "
                f"numpy.array2string(x.data, precision=4) prints many"
            )
        return format(self._data.item(), spec)

    def numpy(self) -> Array:
        """The array itself: the same object as `data`."""
        return self._data

    def item(self) -> float:
        """The number of a tensor of size 1 (else ValueError), as a number of Python's own."""
        if self._data.size != 1:
            raise ValueError(f"item() wants a tensor of one number, got shape {self._data.shape}")
        number: float = self._data.item()
        return number

    def tolist(self) -> Any:
        """The numbers as Python's own, in nested lists; one number without axes alone."""
        return self._data.tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        return operator.index(self._data)

    def __bool__(self) -> bool:
        return bool(self._data)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        if self._requires_grad:
            raise TypeError(
                "numpy was given a tensor that requires grad, and what it returns would be cut off "
                "from the graph: say .numpy() or .detach() if that is wanted"
            )
        return np.array(self._data, dtype=dtype, copy=copy)


def real_array(data: ArrayLike) -> Array:
    """`data` as an array; TypeError unless it holds bools, integers or floats."""
    array = np.asarray(data)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"a Tensor holds bools, integers or floats, got dtype {array.dtype}")
    return array


def must_be_floating(dtype: np.dtype[Any]) -> None:
    """TypeError for a dtype that cannot require grad."""
    if dtype.kind != "f":
        raise TypeError(
            f"only floating-point tensors can require grad, got dtype {dtype}: convert the data "
            f"first, for example with .astype(np.float32)"
        )


def must_broadcast(function: np.ufunc, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """ValueError, which says why, if the shapes of two operands do not fit together."""
    for m, n in zip(reversed(left), reversed(right), strict=False):
        if m != n and 1 not in (m, n):
            raise ValueError(
                f"{function.__name__}: shapes {left} and {right} do not fit together: counted "
                f"from the right, two lengths must be equal or one of them 1, got {m} and {n}"
            ) from None


def bound(name: str, value: object) -> int | float | None:
    """A bound of clip as a number of Python's own, which widens no array; TypeError for anything else."""
    if isinstance(value, np.ndarray | np.generic) and value.ndim == 0:
        value = value.item()
    if value is not None and not isinstance(value, int | float):
        raise TypeError(
            f"clip: wants a number or None for {name}, got a {type(value).__name__}: where(x < y, y, x) "
            "bounds x by an array or a tensor y"
        )
    return value


def compare(function: np.ufunc, left: ArrayHolder, right: object) -> NDArray[np.bool_]:
    """An array of bools: function of a tensor and whatever numpy makes an array of numbers.

    NotImplemented for anything else: == is then False, and < a TypeError.
    """
    y: Any = right._data if isinstance(right, ArrayHolder) else right
    if not isinstance(y, (int, float, np.ndarray)):
        y = np.asarray(y)
    if isinstance(y, np.ndarray):
        lone = y.dtype.kind == "O" and y.ndim == 0  # a Fraction, or an object that is no number
        numeric = isinstance(y.item(), Number) if lone else y.dtype.kind in "biufcO"
        ordered = y.dtype.kind != "c" or function in (np.equal, np.not_equal)
        if not (numeric and ordered):
            return NotImplemented  # type: ignore[no-any-return]
    must_broadcast(function, left.shape, np.shape(y))
    return np.asarray(function(left._data, y))


def first_gradient(data: Array, cotangent: ArrayLike | None) -> Array:
    """The gradient to start with, of `data`'s shape and dtype.

    ValueError for another shape, or for none with more than one number; TypeError for a dtype that
    does not cast to `data`'s within its kind.
    """
    if cotangent is None:
        if data.size != 1:
            raise ValueError(
                f"backward() without a cotangent wants a single number, got shape {data.shape}: "
                f"reduce it to one, or give a cotangent of that shape"
            )
        return np.ones(data.shape, data.dtype)
    seed = np.asarray(cotangent)
    if seed.shape != data.shape:
        raise ValueError(
            f"the cotangent must have the tensor's shape {data.shape}, got {seed.shape}"
        )
    if not np.can_cast(seed.dtype, data.dtype, "same_kind"):
        raise TypeError(f"a cotangent for dtype {data.dtype} cannot have dtype {seed.dtype}")
    return seed.astype(data.dtype, copy=False)
