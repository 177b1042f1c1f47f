# Tangled from book/1-foundations/L0.1-tensor.md
"""Reverse-mode differentiation: a numpy array that remembers how it was computed.

Operations on tensors record themselves with `record`; `Tensor.backward` walks the record back and
leaves the gradients in `.grad` of the leaves. Only numpy is needed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tinyllm.arrays import (
    ArrayHolder,
    bound,
    compare,
    first_gradient,
    must_be_floating,
    must_broadcast,
    real_array,
)
from tinyllm.recording import is_recording, no_grad

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

np.empty(31 << 20, np.uint8)  # freed at once; glibc then keeps what a step frees for the next one


class Tensor(ArrayHolder):
    """A numpy array that remembers how it was computed.

    TypeError for other dtypes than bool, int, float, and for `requires_grad` with one that is not
    floating-point. Operations raise ValueError if shapes do not fit.
    """

    __slots__ = ("__weakref__", "_backward", "_parents", "grad")  # and those of ArrayHolder
    __array_ufunc__ = None  # numpy leaves `array + tensor` to Tensor.__radd__

    grad: Array | None
    _parents: "tuple[Tensor, ...]"
    _backward: Backward | None

    def __init__(
        self, data: ArrayLike, requires_grad: bool = False, dtype: DTypeLike | None = None
    ) -> None:
        array = real_array(data)
        self._data = array if dtype is None else real_array(array.astype(dtype, copy=False))
        self.grad = None
        self._requires_grad = False
        self._parents = ()
        self._backward = None
        if requires_grad:
            self.requires_grad = True

    @property
    def data(self) -> Array:
        """The numbers: a numpy array, not a copy. May be assigned.

        TypeError for integers if the tensor requires grad.
        """
        return self._data

    @data.setter
    def data(self, value: ArrayLike) -> None:
        array = real_array(value)
        if self._requires_grad:
            must_be_floating(array.dtype)
        grad = self.grad
        if grad is not None and (grad.shape != array.shape or grad.dtype != array.dtype):
            self.grad = None  # it belongs to another array
        self._data = array

    @property
    def requires_grad(self) -> bool:
        """Whether `backward` works out a gradient for this tensor; may be set on leaves.

        RuntimeError on results; TypeError for True with a dtype that is not floating-point.
        """
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if self._backward is not None:
            raise RuntimeError(
                "requires_grad can be set on leaves only, and this tensor is the result of an "
                "operation: .detach() gives a leaf with the same numbers"
            )
        if value:
            must_be_floating(self._data.dtype)
        self._requires_grad = bool(value)

    def detach(self) -> Self:
        """A leaf that does not require grad and looks at the same array."""
        with no_grad():
            return record(self._data, (self,), lambda g: (g,))

    def __getstate__(self) -> object:
        if self._backward is not None:
            raise RuntimeError(
                "only leaves can be copied or pickled, and this tensor is the result of an operation: "
                ".detach() gives a leaf with the same numbers"
            )
        return super().__getstate__()

    def __neg__(self) -> Self:
        return record(-self._data, (self,), lambda g: (-g,))

    def __add__(self, other: Self | Constant) -> Self:
        return _binary(_ADD, self, other)

    def __radd__(self, other: Constant) -> Self:
        return _binary(_ADD, other, self)

    def __sub__(self, other: Self | Constant) -> Self:
        return _binary(_SUBTRACT, self, other)

    def __rsub__(self, other: Constant) -> Self:
        return _binary(_SUBTRACT, other, self)

    def __mul__(self, other: Self | Constant) -> Self:
        return _binary(_MULTIPLY, self, other)

    def __rmul__(self, other: Constant) -> Self:
        return _binary(_MULTIPLY, other, self)

    def __truediv__(self, other: Self | Constant) -> Self:
        return _binary(_DIVIDE, self, other)

    def __rtruediv__(self, other: Constant) -> Self:
        return _binary(_DIVIDE, other, self)

    def __pow__(self, other: Self | Constant) -> Self:
        return _binary(_POWER, self, other)

    def __rpow__(self, other: Constant) -> Self:
        return _binary(_POWER, other, self)

    def _in_place(self, other: object) -> NoReturn:
        """TypeError: a tensor is not written to."""
        raise TypeError(
            "a tensor is not changed in place, because the graph may remember its numbers: "
            "x = x + y makes a new one, and p.data -= lr * p.grad changes a parameter"
        )

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ifloordiv__ = __imod__ = _in_place
    __ipow__ = __imatmul__ = _in_place

    def __eq__(self, other: object) -> Mask:  # type: ignore[override]
        return compare(np.equal, self, other)

    def __ne__(self, other: object) -> Mask:  # type: ignore[override]
        return compare(np.not_equal, self, other)

    def __lt__(self, other: object) -> Mask:
        return compare(np.less, self, other)

    def __le__(self, other: object) -> Mask:
        return compare(np.less_equal, self, other)

    def __gt__(self, other: object) -> Mask:
        return compare(np.greater, self, other)

    def __ge__(self, other: object) -> Mask:
        return compare(np.greater_equal, self, other)

    __hash__ = object.__hash__

    def exp(self) -> Self:
        """e to the power of each number."""
        z = np.exp(self._data)
        return record(z, (self,), lambda g: (g * z,))

    def log(self) -> Self:
        """The natural logarithm of each number."""
        x = self._data
        return record(np.log(x), (self,), lambda g: (g / x,))

    def sqrt(self) -> Self:
        """The square root of each number."""
        z = np.sqrt(self._data)
        return record(z, (self,), lambda g: (g / (2 * z),))

    def tanh(self) -> Self:
        """The hyperbolic tangent of each number."""
        z = np.tanh(self._data)
        return record(z, (self,), lambda g: (g * (1 - z * z),))

    def sigmoid(self) -> Self:
        """1 / (1 + e**-x) of each number x; no size of x overflows."""
        x = self._data
        e = np.exp(np.minimum(x, 0.0 - x))
        z = np.where(x < 0, e, 1) / (1 + e)
        return record(z, (self,), lambda g: (g * z * (1 - z),))

    def astype(self, dtype: DTypeLike) -> Self:
        """The same numbers in another dtype; the gradient comes back in this one's."""
        z = real_array(self._data.astype(dtype, copy=False))
        return record(z, (self,), lambda g: (g,))

    def abs(self) -> Self:
        """The size of each number, without its sign; the slope at 0 is 0."""
        x = self._data
        return record(np.abs(x), (self,), lambda g: (np.where(x > 0, g, np.where(x < 0, -g, 0)),))

    def __abs__(self) -> Self:
        return self.abs()

    def clip(self, low: float | None = None, high: float | None = None) -> Self:
        """Each number, but `low` where it is smaller and `high` where it is larger; None: no bound.

        TypeError for a bound that is no number.
        """
        x = self._data
        z = np.clip(x, bound("low", low), bound("high", high))
        return record(z, (self,), lambda g: (np.where(x == z, g, 0),))

    def backward(self, cotangent: ArrayLike | None = None, retain_graph: bool = False) -> None:
        """Add the derivatives of sum(cotangent * self) to `.grad` of the leaves that require grad.

        `cotangent` has this tensor's shape; None stands for 1 and wants a single number. The graph is
        released on the way unless `retain_graph`. ValueError for a cotangent of another shape, or for
        none with more than one number; TypeError for a dtype that does not cast to this one's within
        its kind. RuntimeError if the graph is released, or if this tensor does not require grad.
        """
        grads = {self: self._seed(cotangent)}
        waiting = _count_uses(self)
        ready: list[Tensor] = [self]
        leaves: list[tuple[Tensor, Array]] = []
        while ready:
            node = ready.pop()
            g = grads.pop(node, None)
            parents, step = node._parents, node._backward
            if step is None:
                if g is not None:
                    total = g if node.grad is None else node.grad + g
                    total = np.array(total, dtype=node._data.dtype, order="C")  # always a copy
                    leaves.append((node, total))
                continue
            shares: Sequence[Array | None] = (None,) * len(parents)
            if g is not None:
                shares = step(g if type(g) is np.ndarray else np.asarray(g))
                if len(shares) != len(parents):
                    raise ValueError(
                        f"a backward function returned {len(shares)} gradients for {len(parents)} parents"
                    )
            if not retain_graph:
                node._parents, node._backward = (), _released
            for parent, share in zip(parents, shares, strict=True):
                if parent._requires_grad:
                    if share is not None:
                        if not isinstance(share, np.ndarray | np.generic):
                            raise TypeError(
                                f"a backward function returned {share!r}, which is no array"
                            )
                        if share.shape != parent._data.shape:
                            raise ValueError(
                                f"a backward function returned a gradient of shape {share.shape} for a parent "
                                f"of shape {parent._data.shape}"
                            )
                        if share.dtype != parent._data.dtype:
                            share = share.astype(parent._data.dtype)
                        held = grads.get(parent)
                        grads[parent] = share if held is None else held + share  # eq. chain
                    waiting[parent] -= 1
                    if waiting[parent] == 0:
                        del waiting[parent]
                        ready.append(parent)
        for leaf, total in leaves:
            leaf.grad = total

    def _seed(self, cotangent: ArrayLike | None) -> Array:
        """The gradient to start with, of this tensor's shape and dtype."""
        if not self._requires_grad:
            raise RuntimeError(
                "backward() on a tensor that does not require grad: no tensor that it was computed "
                "from does, or it was computed inside no_grad()"
            )
        return first_gradient(self._data, cotangent)  # eq. cotangent


def record(data: Array, parents: Sequence[AnyTensor], backward: Backward) -> AnyTensor:
    """Make `data`, which was computed from `parents`, a tensor that can be differentiated.

    `backward(g)` gets the gradient of the result, an array of `data`'s shape that it must not write
    to, and returns one array of the parent's shape, or None, for each parent in order;
    `Tensor.backward` raises ValueError otherwise, TypeError for what is no array. TypeError for a parent
    that is no tensor.
    """
    cls: type[AnyTensor] = type(parents[0])
    needed = False
    try:
        for parent in parents:
            needed = parent._requires_grad or needed
            if type(parent) is not cls and issubclass(type(parent), cls):
                cls = type(parent)
    except AttributeError:
        for place, parent in enumerate(parents):
            tensor_argument("record", f"parents[{place}]", parent)
        raise
    result = cls.__new__(cls)
    result._data = data if type(data) is np.ndarray else np.asarray(data)
    result.grad = None
    if needed and is_recording() and result._data.dtype.kind == "f":
        result._requires_grad = True
        result._parents = tuple(parents)
        result._backward = backward
    else:
        result._requires_grad = False
        result._parents = ()
        result._backward = None
    return result


def unbroadcast(share: Array, shape: tuple[int, ...]) -> Array:
    """Sum `share` over the axes along which broadcasting repeated an array of `shape`.

    Returns an array of `shape`; raises ValueError if `shape` does not broadcast to the share's.
    """
    if share.shape == shape:
        return share
    added = share.ndim - len(shape)
    if added < 0 or any(n not in (1, m) for n, m in zip(shape, share.shape[added:], strict=True)):
        raise ValueError(
            f"unbroadcast: shape {shape} does not broadcast to {share.shape}, the share's shape"
        )
    stretched = (added + i for i, n in enumerate(shape) if n == 1)
    total = sum_over(share, (*range(added), *stretched))  # eq. unbroadcast
    return total.reshape(shape)


_add_up: Any = np.add.reduce  # what array.sum calls


def sum_over(x: Array, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """The sum of x over some of its axes, as numpy's; float16 is added up in float32."""
    wide = np.float32 if x.dtype.char == "e" else None
    total: Array = _add_up(x, axis=axes, dtype=wide, keepdims=keepdims)
    return total if wide is None else total.astype(x.dtype)


class _Rule(NamedTuple):
    """An operation z = function(x, y); from g, x, y, z to the shares of x and y, of z's shape."""

    function: np.ufunc
    to_left: Callable[[Array, Any, Any, Any], Any]
    to_right: Callable[[Array, Any, Any, Any], Any]


_ADD = _Rule(np.add, lambda g, x, y, z: g, lambda g, x, y, z: g)
_SUBTRACT = _Rule(np.subtract, lambda g, x, y, z: g, lambda g, x, y, z: -g)
_MULTIPLY = _Rule(np.multiply, lambda g, x, y, z: g * y, lambda g, x, y, z: g * x)
_DIVIDE = _Rule(np.divide, lambda g, x, y, z: g / y, lambda g, x, y, z: -g * z / y)
_POWER = _Rule(
    np.power,
    lambda g, x, y, z: g * _base_slope(x, y),
    lambda g, x, y, z: g * _exponent_slope(x, y, z),
)


def _base_slope(x: Any, y: Any) -> Any:
    if isinstance(y, (int, float)):
        return y * x ** (y - 1 if y else y)
    return y * x ** np.where(y == 0, y, y - 1)  # 0 * x**0, not 0 * x**-1


def _exponent_slope(x: Any, y: Any, z: Any) -> Any:
    base = np.asarray(x, dtype=z.dtype)
    return z * np.log(np.where((base == 0) & (y >= 0), 1, base))  # log(1) = 0 for a base of 0


def _binary(rule: _Rule, left: AnyTensor | Constant, right: AnyTensor | Constant) -> AnyTensor:
    """rule.function of two operands, at least one of them a tensor."""
    x = left._data if isinstance(left, Tensor) else _constant(left)
    y = right._data if isinstance(right, Tensor) else _constant(right)
    if x is None or y is None:
        return NotImplemented  # type: ignore[no-any-return]  # Python raises TypeError
    try:
        z = rule.function(x, y)
    except ValueError:
        must_broadcast(rule.function, np.shape(x), np.shape(y))
        raise
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        if rule is _ADD and x.shape == y.shape:
            return record(z, (left, right), _same_for_both)
        return record(z, (left, right), partial(_both_shares, rule, left, right, x, y, z))
    if isinstance(left, Tensor):
        if rule is _ADD and z.shape == x.shape:
            return record(z, (left,), _same)
        return record(z, (left,), partial(_left_share, rule, x, y, z))
    assert isinstance(right, Tensor)  # the operators call with one at least
    return record(z, (right,), partial(_right_share, rule, x, y, z))


def _constant(value: object) -> Any:
    """A number or an array that is no tensor; None for anything else."""
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        return real_array(value)
    if hasattr(value, "__array__"):  # also called Tensor, for one
        kind = f"{type(value).__module__}.{type(value).__name__}"
        raise TypeError(f"a Tensor and a {kind} do not mix: Tensor(numpy.asarray(y)) converts y")
    return None


def _both_shares(
    rule: _Rule, left: Tensor, right: Tensor, x: Array, y: Array, z: Array, g: Array
) -> tuple[Array | None, Array | None]:
    return (
        unbroadcast(rule.to_left(g, x, y, z), x.shape) if left._requires_grad else None,
        unbroadcast(rule.to_right(g, x, y, z), y.shape) if right._requires_grad else None,
    )


def _left_share(rule: _Rule, x: Array, y: Any, z: Array, g: Array) -> tuple[Array]:
    return (unbroadcast(rule.to_left(g, x, y, z), x.shape),)


def _right_share(rule: _Rule, x: Any, y: Array, z: Array, g: Array) -> tuple[Array]:
    return (unbroadcast(rule.to_right(g, x, y, z), y.shape),)


def _same(g: Array) -> tuple[Array]:
    return (g,)


def _same_for_both(g: Array) -> tuple[Array, Array]:
    return g, g


def _count_uses(result: Tensor) -> dict[Tensor, int]:
    """How often each tensor below `result` that requires grad is used on the way to it."""
    uses = {result: 0}
    stack = [result]
    while stack:
        node = stack.pop()
        if node._backward is _released:
            raise RuntimeError(
                "backward() came to a graph that an earlier backward() has released: call the "
                "earlier one with retain_graph=True, or compute the result again"
            )
        for parent in node._parents:
            if parent._requires_grad:
                if parent not in uses:
                    uses[parent] = 0
                    stack.append(parent)
                uses[parent] += 1
    return uses


def _released(g: Array) -> Sequence[Array | None]:
    """Stands in a node whose record is gone."""
    raise RuntimeError("this node's record was released by an earlier backward()")


def tensor_argument(who: str, name: str, value: object, floating: bool = False) -> None:
    """TypeError unless `value`, the argument `name` of the function `who`, is a tensor.

    With `floating` it must be one of floating-point numbers.
    """
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{who}: wants a Tensor for {name}, got a {type(value).__name__}: "
            f"Tensor({name}) makes one"
        )
    if floating and value.dtype.kind != "f":
        raise TypeError(
            f"{who}: wants floating-point numbers for {name}, got {value.dtype}: "
            f"convert with {name}.astype(np.float32)"
        )
