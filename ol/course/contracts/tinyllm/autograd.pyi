# Tangled from book/1-foundations/L0.1-tensor.md
"""L0.1 Tensor and autograd: a numpy array that remembers how it was computed."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tinyllm.arrays import ArrayHolder

__all__ = [
    "Tensor",
    "is_recording",
    "no_grad",
    "record",
    "sum_over",
    "tensor_argument",
    "unbroadcast",
]

Array: TypeAlias = NDArray[Any]
Mask: TypeAlias = NDArray[np.bool_]
Constant: TypeAlias = bool | int | float | np.generic | Array
Backward: TypeAlias = Callable[[Array], Sequence[Array | None]]
AnyTensor = TypeVar("AnyTensor", bound="Tensor")

class Tensor(ArrayHolder):
    """A numpy array of bools, integers or floats that remembers how it was computed.

    Operations take tensors, real numbers and arrays of any layout (TypeError for all else, also
    torch's tensors), broadcast as numpy does and give a new tensor of the most derived class among the
    operands, in the dtype that numpy gives; a number of Python's own takes the tensor's dtype. No
    operation writes into its operands, and none keeps anything for the next. ValueError if shapes do
    not fit. Floating-point warnings are numpy's. An array must not be written to between an operation
    and the walk back through it; `.data` may be assigned. Other attributes do not exist.
    """

    __slots__ = ("__weakref__", "_backward", "_parents", "grad")

    __array_ufunc__: None
    """None: numpy leaves `array + tensor` to the tensor."""

    grad: Array | None
    """The gradient, of the data's shape and dtype; None until `backward` has stored one."""

    def __init__(
        self, data: ArrayLike, requires_grad: bool = False, dtype: DTypeLike | None = None
    ) -> None:
        """A leaf that looks at `data` without copying, or converted to `dtype`. TypeError for other
        dtypes than bool, int, float, and for `requires_grad` with a dtype that is not
        floating-point."""

    @property
    def data(self) -> Array:
        """The numbers: a numpy array, not a copy. May be assigned; a `.grad` of another shape or
        dtype is dropped then. TypeError for integers if the tensor requires grad, and for other dtypes as
        above."""
    @data.setter
    def data(self, value: ArrayLike) -> None: ...
    @property
    def requires_grad(self) -> bool:
        """Whether `backward` works out a gradient for this tensor. May be set on leaves
        (RuntimeError on results), to True for floating-point data only (TypeError)."""
    @requires_grad.setter
    def requires_grad(self, value: bool) -> None: ...
    def backward(self, cotangent: ArrayLike | None = None, retain_graph: bool = False) -> None:
        """Add the derivatives of sum(cotangent * self) to `.grad` of the leaves that require grad.

        `cotangent`: this tensor's shape (else ValueError), a dtype that casts to this one's within
        its kind (else TypeError); None means 1 and wants a tensor of size 1 (else ValueError).
        Each operation's backward runs once, when all its uses have reported, None among them. The stored
        gradients are in C order and share no memory with anything. The walked graph is released on the
        way unless `retain_graph`; a released one raises RuntimeError. An error leaves every gradient as it
        was. RuntimeError also if this tensor does not require grad. Any depth: no recursion.
        """
    def detach(self) -> Self:
        """A leaf that does not require grad and looks at the same array."""
    def __getstate__(self) -> object:
        """For `copy` and `pickle`, which keep data, gradient and `requires_grad`: leaves only,
        RuntimeError for results."""
    def __neg__(self) -> Self: ...
    def __add__(self, other: Self | Constant) -> Self: ...
    def __radd__(self, other: Constant) -> Self: ...
    def __sub__(self, other: Self | Constant) -> Self: ...
    def __rsub__(self, other: Constant) -> Self: ...
    def __mul__(self, other: Self | Constant) -> Self: ...
    def __rmul__(self, other: Constant) -> Self: ...
    def __truediv__(self, other: Self | Constant) -> Self: ...
    def __rtruediv__(self, other: Constant) -> Self: ...
    def __pow__(self, other: Self | Constant) -> Self:
        """Elementwise power. The slope of x**0 in x is 0, also at x = 0, and so is that of 0**y in y for
        y >= 0. Of an operand that requires no grad no slope is worked out."""
    def __rpow__(self, other: Constant) -> Self: ...
    def __iadd__(self, other: object) -> NoReturn:
        """TypeError, as all in-place operators: a tensor is not written to."""
    def __isub__(self, other: object) -> NoReturn: ...
    def __imul__(self, other: object) -> NoReturn: ...
    def __itruediv__(self, other: object) -> NoReturn: ...
    def __ifloordiv__(self, other: object) -> NoReturn: ...
    def __imod__(self, other: object) -> NoReturn: ...
    def __ipow__(self, other: object) -> NoReturn: ...
    def __imatmul__(self, other: object) -> NoReturn: ...
    def __eq__(self, other: object) -> Mask:  # type: ignore[override]
        """Entry by entry, as all comparisons: with a tensor, a number of any kind, and whatever numpy
        makes an array of numbers, on either side, a numpy array of bools of the shape that both
        broadcast to (ValueError if they do not). No gradient. Anything else is unequal. TypeError for
        an order that there is none of."""
    def __ne__(self, other: object) -> Mask: ...  # type: ignore[override]
    def __lt__(self, other: object) -> Mask: ...
    def __le__(self, other: object) -> Mask: ...
    def __gt__(self, other: object) -> Mask: ...
    def __ge__(self, other: object) -> Mask: ...
    def __hash__(self) -> int:
        """By identity: a tensor may be the key of a dict."""
    def __abs__(self) -> Self:
        """The same as `abs()`."""
    def abs(self) -> Self:
        """The size of each number, without its sign; the slope at 0, and at NaN, is 0."""
    def clip(self, low: float | None = None, high: float | None = None) -> Self:
        """Each number, but `low` where it is smaller and `high` where it is larger; None: no bound.

        The slope is 1 from bound to bound, also on them, and 0 elsewhere and at NaN. Floats keep their
        dtype. TypeError for a bound that is no number.
        """
    def sigmoid(self) -> Self:
        """1 / (1 + e**-x) of each number x; no size of x overflows. Integers become float64."""
    def exp(self) -> Self:
        """e to the power of each number."""
    def log(self) -> Self:
        """The natural logarithm of each number."""
    def sqrt(self) -> Self:
        """The square root of each number."""
    def tanh(self) -> Self:
        """The hyperbolic tangent of each number."""
    def astype(self, dtype: DTypeLike) -> Self:
        """The same numbers in another dtype; the gradient comes back in this one's."""

def record(data: Array, parents: Sequence[AnyTensor], backward: Backward) -> AnyTensor:
    """Make `data`, which was computed from `parents` (at least one), a tensor.

    `backward(g)` gets the gradient of the result, an array of `data`'s shape and dtype that it must
    not write to, and returns one array of the parent's shape, or None, for each parent in order;
    `Tensor.backward` raises ValueError otherwise, TypeError for what is no array, and casts to the
    parent's dtype. It may look at `parent.requires_grad` to leave work out. TypeError for a parent
    that is no tensor. The result has the most derived class among the parents (of unrelated classes,
    the first). If no parent requires grad, inside `no_grad()`, or if `data` is not floating-point,
    nothing is kept and the result does not require grad.
    """

def unbroadcast(share: Array, shape: tuple[int, ...]) -> Array:
    """Sum `share`, as `sum_over` does, over the axes along which broadcasting repeated an array of `shape`.

    Returns an array of `shape`; raises ValueError if `shape` does not broadcast to the share's.
    """

def sum_over(x: Array, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """The sum of x over some of its axes, as numpy's; float16 is added up in float32."""

def no_grad() -> AbstractContextManager[None]:
    """Inside the block, or the function it decorates, operations are not recorded.

    Blocks nest; each thread has its own state. What it returns opens one block (RuntimeError for a
    second). A paused generator may be closed in another context,
    which ends its block. TypeError for decorating a generator or coroutine function, whose body runs
    after the call.
    """

def is_recording() -> bool:
    """Whether operations are recorded here and now: True, except inside `no_grad()`."""

def tensor_argument(who: str, name: str, value: object, floating: bool = False) -> None:
    """TypeError unless `value`, the argument `name` of the function `who`, is a tensor; with `floating`,
    one of floating-point numbers."""
