"""Reverse-mode differentiation: a numpy array that remembers how it was made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = ["Tensor", "is_recording", "no_grad", "record", "unbroadcast"]

Array: TypeAlias = NDArray[Any]
Constant: TypeAlias = bool | int | float | np.generic | Array
Backward: TypeAlias = Callable[[Array], Sequence[Array | None]]
AnyTensor = TypeVar("AnyTensor", bound="Tensor")


_recording: ContextVar[bool] = ContextVar("recording", default=True)


@contextmanager
def no_grad() -> Iterator[None]:
    """Inside the block (or the decorated function) no operation is recorded."""
    before = _recording.set(False)
    try:
        yield
    finally:
        _recording.reset(before)


def is_recording() -> bool:
    """Whether operations are recorded here: True, but inside `no_grad()`."""
    return _recording.get()


class Tensor:
    """A numpy array that can tell how a number computed from it changes with each of its entries."""

    __slots__ = ("_data", "grad", "_requires_grad", "_parents", "_backward", "__weakref__")
    __array_ufunc__ = None  # so that `array + tensor` comes to Tensor.__radd__

    _data: Array
    grad: Array | None
    _requires_grad: bool
    _parents: tuple[Tensor, ...]
    _backward: Backward | None

    def __init__(self, data: ArrayLike, requires_grad: bool = False) -> None:
        self._data = _checked(data)
        self.grad = None
        self._requires_grad = False
        self._parents = ()
        self._backward = None
        if requires_grad:
            self.requires_grad = True

    @property
    def data(self) -> Array:
        """The numbers, as a numpy array that is not copied. May be assigned."""
        return self._data

    @data.setter
    def data(self, value: ArrayLike) -> None:
        array = _checked(value)
        if self._requires_grad:
            _must_be_floating(array.dtype)
        if self.grad is not None and (self.grad.shape, self.grad.dtype) != (array.shape, array.dtype):
            self.grad = None  # it was the gradient of another array
        self._data = array

    @property
    def requires_grad(self) -> bool:
        """Whether `backward` works out a gradient for this tensor."""
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if self._backward is not None:
            raise RuntimeError(
                "requires_grad can be set on leaves only; this tensor is the result of an "
                "operation: use .detach() for one that is cut off from the graph"
            )
        if value:
            _must_be_floating(self._data.dtype)
        self._requires_grad = bool(value)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._data.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._data.dtype

    @property
    def ndim(self) -> int:
        return self._data.ndim

    @property
    def size(self) -> int:
        return self._data.size

    def __repr__(self) -> str:
        flag = ", requires_grad=True" if self._requires_grad else ""
        text = np.array2string(self._data, separator=", ", prefix="Tensor(")
        return f"Tensor({text}, dtype={self._data.dtype}{flag})"

    def detach(self) -> Self:
        """A leaf that shares this tensor's array and does not require grad."""
        return _make(type(self), self._data)

    def numpy(self) -> Array:
        """The array itself, not a copy: the same object as `data`."""
        return self._data

    def item(self) -> float:
        """The one number of a tensor of size 1, as a Python number."""
        if self._data.size != 1:
            raise ValueError(f"item() wants a tensor of one number, got shape {self._data.shape}")
        number: float = self._data.item()
        return number

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        if self._requires_grad:
            raise TypeError(
                "numpy was given a tensor that requires grad, and its result would be cut off from "
                "the graph: say .numpy() or .detach() where that is wanted"
            )
        return np.array(self._data, dtype=dtype, copy=copy)

    def __bool__(self) -> bool:
        return bool(self._data)

    def backward(self, cotangent: ArrayLike | None = None, retain_graph: bool = False) -> None:
        """Add d(cotangent . self)/d(leaf) to `.grad` of every leaf below that requires grad."""
        grads: dict[Tensor, Array] = {self: self._seed(cotangent)}
        uses = _count_uses(self)
        owned: set[Tensor] = set()
        leaves: list[tuple[Tensor, Array]] = []
        ready: list[Tensor] = [self]
        while ready:
            node = ready.pop()
            grad = grads.pop(node, None)
            parents, step = node._parents, node._backward
            if step is None:
                if grad is not None:
                    leaves.append((node, grad))
                continue
            shares = (None,) * len(parents) if grad is None else step(np.asarray(grad))
            if not retain_graph:
                node._parents, node._backward = (), _spent
            for parent, share in zip(parents, shares, strict=True):
                if not parent._requires_grad:
                    continue
                if share is not None:
                    if share.shape != parent._data.shape:
                        raise ValueError(_wrong_share(step, parent, share))
                    if share.dtype != parent._data.dtype:
                        share = share.astype(parent._data.dtype)
                    held = grads.get(parent)
                    if held is None:
                        grads[parent] = share
                    elif parent in owned:
                        held += share
                        grads[parent] = held
                    else:
                        grads[parent] = held + share
                        owned.add(parent)
                uses[parent] -= 1
                if not uses[parent]:
                    del uses[parent]
                    ready.append(parent)
        for leaf, grad in leaves:
            leaf.grad = np.array(grad, order="C") if leaf.grad is None else np.asarray(leaf.grad + grad)

    def _seed(self, cotangent: ArrayLike | None) -> Array:
        data = self._data
        if not self._requires_grad:
            raise RuntimeError(
                "backward() of a tensor that does not require grad: it was made of tensors that "
                "do not, or inside no_grad()"
            )
        if cotangent is None:
            if data.size != 1:
                raise ValueError(
                    f"backward() without a cotangent wants a single number, got shape {data.shape}: "
                    f"give it an array of that shape"
                )
            return np.ones(data.shape, data.dtype)
        seed = np.asarray(cotangent)
        if seed.shape != data.shape:
            raise ValueError(f"the cotangent has shape {seed.shape}, the tensor {data.shape}")
        if not np.can_cast(seed.dtype, data.dtype, "same_kind"):
            raise TypeError(f"a cotangent of dtype {seed.dtype} for a tensor of dtype {data.dtype}")
        return seed.astype(data.dtype, copy=False)

    def __add__(self, other: Self | Constant) -> Self:
        y = _value(other)
        if y is None:
            return NotImplemented
        return _pair(_apply(np.add, self._data, y), self, other, lambda g: g, lambda g: g)

    __radd__ = __add__

    def __mul__(self, other: Self | Constant) -> Self:
        x, y = self._data, _value(other)
        if y is None:
            return NotImplemented
        return _pair(_apply(np.multiply, x, y), self, other, lambda g: g * y, lambda g: g * x)

    __rmul__ = __mul__

    def __neg__(self) -> Self:
        return record(-self._data, (self,), lambda g: (-g,))

    def __sub__(self, other: Self | Constant) -> Self:
        y = _value(other)
        if y is None:
            return NotImplemented
        return _pair(_apply(np.subtract, self._data, y), self, other, lambda g: g, lambda g: -g)

    def __rsub__(self, other: Constant) -> Self:
        x = _value(other)
        if x is None:
            return NotImplemented
        return _pair(_apply(np.subtract, x, self._data), self, None, lambda g: -g, None)

    def __truediv__(self, other: Self | Constant) -> Self:
        x, y = self._data, _value(other)
        if y is None:
            return NotImplemented
        out = _apply(np.divide, x, y)
        return _pair(out, self, other, lambda g: g / y, lambda g: -g * out / y)

    def __rtruediv__(self, other: Constant) -> Self:
        x, y = _value(other), self._data
        if x is None:
            return NotImplemented
        out = _apply(np.divide, x, y)
        return _pair(out, self, None, lambda g: -g * out / y, None)

    def __pow__(self, other: Self | Constant) -> Self:
        x, y = self._data, _value(other)
        if y is None:
            return NotImplemented
        out = _apply(np.power, x, y)
        return _pair(
            out, self, other, lambda g: g * _power_slope(x, y), lambda g: g * _exponent_slope(x, out)
        )

    def __rpow__(self, other: Constant) -> Self:
        x = _value(other)
        if x is None:
            return NotImplemented
        out = _apply(np.power, x, self._data)
        return _pair(out, self, None, lambda g: g * _exponent_slope(x, out), None)

    def exp(self) -> Self:
        out = np.exp(self._data)
        return record(out, (self,), lambda g: (g * out,))

    def log(self) -> Self:
        x = self._data
        return record(np.log(x), (self,), lambda g: (g / x,))

    def sqrt(self) -> Self:
        out = np.sqrt(self._data)
        return record(out, (self,), lambda g: (g / (2 * out),))

    def tanh(self) -> Self:
        out = np.tanh(self._data)
        return record(out, (self,), lambda g: (g * (1 - out * out),))

    def astype(self, dtype: DTypeLike) -> Self:
        """The same numbers in another dtype; the gradient is cast back."""
        return record(self._data.astype(dtype), (self,), lambda g: (g,))


def record(data: Array, parents: Sequence[AnyTensor], backward: Backward) -> AnyTensor:
    """Make `data` a tensor, computed from `parents`; the one way an operation enters the graph."""
    cls: type[AnyTensor] = type(parents[0])
    for parent in parents:
        if type(parent) is not cls and issubclass(type(parent), cls):
            cls = type(parent)
    out = _make(cls, data)
    if _recording.get() and out._data.dtype.kind == "f":
        for parent in parents:
            if parent._requires_grad:
                out._requires_grad = True
                out._parents = tuple(parents)
                out._backward = backward
                break
    return out


def _make(cls: type[AnyTensor], data: Array) -> AnyTensor:
    out: AnyTensor = cls.__new__(cls)
    out._data = data if type(data) is np.ndarray else np.asarray(data)
    out.grad = None
    out._requires_grad = False
    out._parents = ()
    out._backward = None
    return out


def unbroadcast(grad: Array, shape: tuple[int, ...]) -> Array:
    """Sum `grad` over the axes that broadcasting from `shape` added or stretched."""
    if grad.shape == shape:
        return grad
    added = grad.ndim - len(shape)
    if added < 0 or any(n not in (1, m) for n, m in zip(shape, grad.shape[added:])):
        raise ValueError(f"shape {shape} does not broadcast to the gradient's {grad.shape}")
    stretched = [added + i for i, n in enumerate(shape) if n == 1]
    total: Array = grad.sum(axis=(*range(added), *stretched))
    return total.reshape(shape)


def _checked(data: ArrayLike) -> Array:
    array = np.asarray(data)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"a tensor holds real numbers, got dtype {array.dtype}")
    return array


def _must_be_floating(dtype: np.dtype[Any]) -> None:
    if dtype.kind != "f":
        raise TypeError(f"only floating-point tensors can require grad, got dtype {dtype}")


def _value(other: object) -> Any:
    if isinstance(other, Tensor):
        return other._data
    if isinstance(other, (int, float, np.ndarray, np.generic)):
        return other
    return None


def _apply(function: np.ufunc, x: Any, y: Any) -> Any:
    try:
        return function(x, y)
    except ValueError as error:
        shapes = np.shape(x), np.shape(y)
        try:
            np.broadcast_shapes(*shapes)
        except ValueError:
            raise ValueError(
                f"{function.__name__}: shapes {shapes[0]} and {shapes[1]} do not broadcast"
            ) from None
        raise error


def _pair(
    out: Array,
    left: AnyTensor,
    right: object,
    to_left: Callable[[Array], Array],
    to_right: Callable[[Array], Array] | None,
) -> AnyTensor:
    if isinstance(right, Tensor) and to_right is not None:
        other: Any = right

        def backward(g: Array) -> tuple[Array | None, Array | None]:
            return (
                unbroadcast(to_left(g), left._data.shape) if left._requires_grad else None,
                unbroadcast(to_right(g), other._data.shape) if other._requires_grad else None,
            )

        both: tuple[AnyTensor, AnyTensor] = (left, other)
        return record(out, both, backward)
    return record(out, (left,), lambda g: (unbroadcast(to_left(g), left._data.shape),))


def _power_slope(x: Any, y: Any) -> Any:
    return y * x ** np.where(np.equal(y, 0), 0, np.subtract(y, 1))


def _exponent_slope(x: Any, out: Array) -> Any:
    base = np.asarray(x, dtype=out.dtype)
    return np.where(base == 0, 0, out * np.log(np.where(base == 0, 1, base)))


def _count_uses(root: Tensor) -> dict[Tensor, int]:
    uses = {root: 0}
    stack = [root]
    while stack:
        node = stack.pop()
        if node._backward is _spent:
            raise RuntimeError(
                "backward() a second time through a graph that the first call released: "
                "call the first one with retain_graph=True, or compute the result again"
            )
        for parent in node._parents:
            if parent._requires_grad:
                if parent in uses:
                    uses[parent] += 1
                else:
                    uses[parent] = 1
                    stack.append(parent)
    return uses


def _spent(grad: Array) -> Sequence[Array | None]:
    raise RuntimeError("this part of the graph was released")


def _wrong_share(step: Backward, parent: Tensor, share: Array) -> str:
    return (
        f"{step.__qualname__} returned a gradient of shape {share.shape} for a parent of shape "
        f"{parent._data.shape}"
    )
