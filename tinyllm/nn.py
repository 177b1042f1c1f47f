# Tangled from book/1-foundations/L0.4-modules.md
"""Modules: objects that hold parameters, other modules and random generators; and Linear."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tinyllm.arguments import positive_int
from tinyllm.autograd import record, tensor_argument
from tinyllm.generators import generator
from tinyllm.num.pcg32 import PCG32
from tinyllm.num.threads import column_sums, product
from tinyllm.tensor import Tensor

__all__ = [
    "Dropout",
    "Linear",
    "Module",
    "ModuleList",
    "Sequential",
    "Unmatched",
    "linear",
    "randn",
]


class Unmatched(NamedTuple):
    """Paths that a load left out: parameters without an array, and arrays without a parameter."""

    missing: list[str]
    unexpected: list[str]


class Module:
    """Something with a `forward`, and with parameters, modules and generators as attributes.

    An attribute is registered by the kind of its value: a leaf `Tensor` that requires a
    gradient as a parameter, a `Module` as a submodule, a `PCG32` as a generator; buffers are
    registered by `register_buffer`. A thing's path is the names that lead to it, joined by dots:
    ``layers.0.weight``. TypeError for anything else under a registered name, and for a list, tuple,
    set or dict that holds such things; ValueError for a module inside itself.
    """

    training: bool = True

    def __setattr__(self, name: str, value: Any) -> None:
        registered = self.__dict__.setdefault("_registered", {})
        kind = _kind(value)
        if kind is None and value is not None and name in registered:
            raise TypeError(
                f"{type(self).__name__}.{name} is registered, and a {type(value).__name__} cannot take its "
                "place unless it is a module, a generator or a leaf tensor that requires grad. "
                "To change the numbers of a parameter or buffer assign to its .data, to freeze it set its "
                "requires_grad to False, to be rid of it `del` it or assign None"
            )
        object.__setattr__(self, name, value)
        if value is None:
            registered.pop(name, None)
        elif kind is not None and name in self.__dict__:  # a property keeps it elsewhere
            registered[name] = kind

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self.__dict__.get("_registered", {}).pop(name, None)

    def register_buffer(self, name: str, array: ArrayLike | Tensor | None) -> None:
        """Make a copy of an array of any shape the attribute `name`: a tensor that is saved, not trained.

        None makes the attribute None, and nothing is saved. ValueError for a name that is taken or isn't
        an identifier; TypeError for a tensor that requires grad and for what a Tensor can't hold.
        Whatever is raised, nothing is registered.
        """
        if not name.isidentifier() or getattr(self, name, None) is not None:
            raise ValueError(f"{type(self).__name__}: a buffer cannot be called {name!r}")
        if isinstance(array, Tensor) and array.requires_grad:
            raise TypeError(f"{name} requires grad, so it is no buffer: assign it, as a parameter")
        buffer = None if array is None else Tensor(np.array(getattr(array, "_data", array)))
        object.__setattr__(self, name, buffer)
        if buffer is not None:
            self.__dict__.setdefault("_registered", {})[name] = "buffer"

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Path and buffer in definition order, each buffer once, by its first path."""
        return _once(self._walk("buffer"))

    def _members(self) -> Iterator[tuple[str, str, Any]]:
        """Name, kind and value of each member of this module itself."""
        for name, value in vars(self).items():
            if isinstance(value, _CONTAINERS) and _hides_members(value):
                raise TypeError(
                    f"{type(self).__name__}.{name} is a {type(value).__name__} that holds modules, "
                    "parameters or generators, and they would neither be trained nor saved: use a "
                    "ModuleList, or give each an attribute of its own"
                )
        for name, kind in self.__dict__.get("_registered", {}).items():
            yield name, kind, self.__dict__[name]

    def _walk(
        self, *kinds: str, prefix: str = "", above: tuple[Module, ...] = ()
    ) -> Iterator[tuple[str, Any]]:
        """Everything of these kinds below this module with its path, once for each path."""
        if any(self is module for module in above):
            raise ValueError(f"{type(above[0]).__name__} contains itself, at {prefix.rstrip('.')}")
        for name, kind, value in self._members():
            if kind in kinds:
                yield prefix + name, value
            if kind == "module":
                yield from value._walk(*kinds, prefix=f"{prefix}{name}.", above=(*above, self))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; every subclass defines it. NotImplementedError here."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Path and parameter in definition order, each parameter once, by its first path."""
        return _once(self._walk("parameter"))

    def parameters(self) -> Iterator[Tensor]:
        """Every parameter once, in definition order."""
        return (parameter for _, parameter in self.named_parameters())

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        """Path and module in definition order, each once; first this module, whose path is ""."""
        yield "", self
        yield from _once(self._walk("module"))

    def modules(self) -> Iterator[Module]:
        """This module and every module below it, each once."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Name and module of this module's own attributes, in definition order, each module once."""
        return _once((name, value) for name, kind, value in self._members() if kind == "module")

    def children(self) -> Iterator[Module]:
        """The modules among this module's own attributes, each once."""
        return (module for _, module in self.named_children())

    def apply(self, function: Callable[[Module], object]) -> Self:
        """Call the function with each of `modules()`, in their order; returns the module."""
        for module in self.modules():
            function(module)
        return self

    def zero_grad(self) -> None:
        """Forget all gradients; call it before each backward pass."""
        for parameter in self.parameters():
            parameter.grad = None

    def astype(self, dtype: DTypeLike) -> Self:
        """Convert parameters and floating buffers to another floating dtype; returns the module.

        Gradients are forgotten. TypeError for a dtype that is not floating.
        """
        kind = _floating("astype", dtype)
        for _, tensor in _once(self._walk("parameter", "buffer")):
            if tensor.dtype.kind == "f":
                tensor.data = tensor.data.astype(kind)
                tensor.grad = None
        return self

    def train(self, mode: bool = True) -> Self:
        """Put this module and all below it into training mode; returns the module."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Put this module and all below it into evaluation mode; returns the module."""
        return self.train(False)

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Copies of all parameters and buffers by path, in definition order; shared ones by every path."""
        return {path: tensor.data.copy() for path, tensor in self._walk("parameter", "buffer")}

    def load_state_dict(
        self, state: Mapping[str, ArrayLike | Tensor], strict: bool = True
    ) -> Unmatched:
        """Copy arrays into the parameters and buffers of the same paths, keeping each one's dtype.

        A shared parameter may be given by any or all of its paths. ValueError, and nothing is
        loaded, for a shape or a dtype that does not fit, for different arrays for one shared
        parameter, and if `strict` also for missing and unexpected paths; the message names
        every fault. Returns the paths that were left out, which is only possible with ``strict=False``.
        """
        own = dict(self._walk("parameter", "buffer"))
        given = {
            path: value.data if isinstance(value, Tensor) else np.asarray(value)
            for path, value in state.items()
        }
        faults, first = [], dict[int, str]()  # the latter: where a parameter was given first
        for path, p in own.items():
            if path in given:
                array, earlier = given[path], first.setdefault(id(p), path)
                if array.shape != p.shape:
                    faults.append(f"{path}: the state has shape {array.shape}, the model {p.shape}")
                elif not np.can_cast(array.dtype, p.dtype, "same_kind"):
                    faults.append(f"{path}: the state has dtype {array.dtype}, the model {p.dtype}")
                elif not np.array_equal(array, given[earlier], equal_nan=True):
                    faults.append(f"{path} and {earlier} are one parameter, the state has two")
        unmatched = Unmatched(
            missing=[path for path, p in own.items() if id(p) not in first],
            unexpected=[path for path in given if path not in own],
        )
        if strict:
            faults += [f"missing from the state: {path}" for path in unmatched.missing]
            faults += [f"not in the model: {path}" for path in unmatched.unexpected]
        if faults:
            what = f"the state does not fit {type(self).__name__}, nothing was loaded:"
            raise ValueError("\n  ".join([what, *faults]))
        for path in given.keys() & own.keys():
            own[path].data = np.array(given[path], own[path].dtype, order="C")  # always a copy
        return unmatched

    def rng_state(self) -> dict[str, dict[str, str]]:
        """The state of each generator by path, in a form that JSON keeps."""
        return {path: rng.state() for path, rng in self._walk("generator")}

    def load_rng_state(self, state: Mapping[str, Mapping[str, str]]) -> None:
        """Let every generator go on from its state; ValueError, and no change, if one is missing."""
        own = dict(self._walk("generator"))
        faults = [f"missing from the state: {path}" for path in own if path not in state]
        faults += [f"not in the model: {path}" for path in state if path not in own]
        if faults:
            what = f"the generators' state does not fit {type(self).__name__}, nothing was loaded:"
            raise ValueError("\n  ".join([what, *faults]))
        for one in state.values():
            PCG32().set_state(one)  # a faulty one is refused before any is set
        for path, rng in own.items():
            rng.set_state(state[path])

    def seed_generators(self, root: PCG32) -> Self:
        """Start each generator as ``root.spawn(path)``, so that no two draw alike."""
        for path, rng in _once(self._walk("generator")):
            rng.set_state(root.spawn(path).state())
        return self

    def extra_repr(self) -> str:
        """What repr() puts between the brackets; for subclasses to override."""
        return ""

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__}({self.extra_repr()})"]
        for name, kind, value in self._members():
            if kind == "module":
                lines += f"{name}: {value!r}".splitlines()
        return "\n  ".join(lines)


class ModuleList(Module):
    """Modules in order, registered as "0", "1", ...: the parameters are ``layers.0.weight`` etc."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self._length = 0
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> None:
        """Add a module at the end; TypeError for anything else."""
        if not isinstance(module, Module):
            raise TypeError(f"ModuleList: wants modules, got a {type(module).__name__}")
        setattr(self, str(self._length), module)
        self._length += 1

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int | slice) -> Any:
        """The module at an index, or for a slice a list of the same class that shares its modules.

        Negative indices count from the end. IndexError outside.
        """
        place = range(self._length)[index]
        if isinstance(place, int):
            return self.__dict__[str(place)]
        part = type(self)()
        for each in place:
            part.append(self[each])
        return part

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(self._length))


class Sequential(ModuleList):
    """Modules and functions, each called with what the one before returned.

    ``Sequential(Linear(2, 8), Tensor.tanh, Linear(8, 1))`` has the parameters ``0.weight``,
    ``0.bias``, ``2.weight``, ``2.bias``. Without any layer it returns what it's given.
    """

    def __init__(self, *layers: Module | Callable[[Any], Any]) -> None:
        super().__init__(layers)  # type: ignore[arg-type]

    def append(self, module: Module | Callable[[Any], Any]) -> None:
        """Add a module or function at the end; TypeError for anything else.

        A class is refused, and a module's method, whose module would not be registered.
        """
        owner = getattr(module, "__self__", None)
        if not callable(module) or isinstance(module, type) or isinstance(owner, Module):
            raise TypeError(
                f"Sequential: wants modules or functions one by one, got {module!r}: "
                "Sequential(*layers) for a list, an instance for a class, the module for its method"
            )
        setattr(self, str(self._length), module)
        self._length += 1

    def forward(self, x: Any) -> Any:
        """What the last one returns."""
        for layer in self:
            x = layer(x)
        return x

    def extra_repr(self) -> str:
        functions = ((i, f) for i, f in enumerate(self) if not isinstance(f, Module))
        return ", ".join(f"{i}: {getattr(f, '__name__', f)}" for i, f in functions)


def randn(
    *shape: int | Sequence[int],
    rng: PCG32 | None = None,
    dtype: DTypeLike = np.float32,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of standard normal numbers: ``randn(2, 3)`` or ``randn((2, 3))``.

    Drawn by ``rng.normal``, by default the process's ``default_generator()``. TypeError unless dtype
    is float32 or float64, ValueError for a negative size.
    """
    sides = shape[0] if len(shape) == 1 and not isinstance(shape[0], int | np.integer) else shape
    rng = generator("randn", rng)
    return Tensor(rng.normal(0.0, 1.0, sides, dtype), requires_grad)  # type: ignore[arg-type]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b for x [..., d_in], weight [d_out, d_in], bias [d_out] -> [..., d_out].

    One recorded operation, and one matrix product whatever the batch axes. The result's dtype is
    numpy's promotion of the arguments': float64 where x is float64, whatever the weight. ValueError
    for shapes that don't fit, TypeError for anything that isn't a tensor.
    """
    tensor_argument("linear", "x", x)
    tensor_argument("linear", "weight", weight)
    if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        raise ValueError(
            f"linear: wants weight [d_out, d_in] and bias [d_out], got {list(weight.shape)} "
            f"and {None if bias is None else list(bias.shape)}"
        )
    d_out, d_in = weight.shape
    if x.shape[-1:] != (d_in,):
        raise ValueError(f"linear: wants x of shape [..., {d_in}], got {list(x.shape)}")

    w = weight.data
    rows = x.data.reshape(-1, d_in)  # [N, d_in]
    y = product(rows, w.T)  # eq. linear, [N, d_out]
    if bias is not None:
        in_place = np.can_cast(bias.dtype, y.dtype)  # else a wider bias widens the result
        y = np.add(y, bias.data, out=y if in_place else None)
    y = y.reshape(*x.shape[:-1], d_out)  # [..., d_out]

    def backward(grad: NDArray[Any]) -> tuple[NDArray[Any] | None, ...]:
        g = grad.reshape(-1, d_out)  # eq. linear-grad, [N, d_out]
        dx = product(g, w).reshape(x.shape) if x.requires_grad else None  # [..., d_in]
        dw = product(g.T, rows) if weight.requires_grad else None  # [d_out, d_in]
        if bias is None:
            return dx, dw
        db = column_sums(g) if bias.requires_grad else None  # [d_out]
        return dx, dw, db

    return record(y, (x, weight) if bias is None else (x, weight, bias), backward)


class Linear(Module):
    """y = x W^T + b with weight [d_out, d_in] and bias [d_out], or None.

    Both are drawn uniformly from -1/sqrt(d_in) to 1/sqrt(d_in), the weight first, from `rng`, by
    default the process's ``default_generator()``: as float32 numbers, then converted to `dtype`.
    ValueError unless d_in and d_out are positive ints, TypeError for a dtype that is not floating.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        bias: bool = True,
        rng: PCG32 | None = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        d_in, d_out = positive_int("Linear", "d_in", d_in), positive_int("Linear", "d_out", d_out)
        kind = _floating("Linear", dtype)
        rng = generator("Linear", rng)
        bound = 1.0 / math.sqrt(d_in)  # eq. init

        def drawn(*shape: int) -> Tensor:
            return Tensor(rng.uniform(-bound, bound, shape).astype(kind), requires_grad=True)

        self.weight = drawn(d_out, d_in)
        self.bias = drawn(d_out) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """[..., d_in] -> [..., d_out]."""
        return linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        d_out, d_in = self.weight.shape
        return f"{d_in} -> {d_out}" + (", bias=False" if self.bias is None else "")


class Dropout(Module):
    """While training, entries are set to 0 with probability p and the others divided by 1 - p.

    In evaluation mode, and with p = 0, the result is x itself and nothing is drawn. The generator
    is this module's own, by default ``default_generator().spawn("dropout")``, so no two drop alike.
    ValueError unless 0 <= p < 1, from a call too if `p` was assigned; TypeError unless x is a floating tensor.
    """

    def __init__(self, p: float, rng: PCG32 | None = None) -> None:
        self.p = p
        self._check()
        self.rng = (
            generator("Dropout", None).spawn("dropout")
            if rng is None
            else generator("Dropout", rng)
        )

    def _check(self) -> None:
        if not 0.0 <= self.p < 1.0:
            raise ValueError(f"Dropout: wants 0 <= p < 1, got {self.p}")

    def extra_repr(self) -> str:
        return f"p={self.p}"

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape and dtype."""
        tensor_argument("Dropout", "x", x, floating=True)
        self._check()
        if not self.training or self.p == 0.0:
            return x
        kept = self.rng.uniform(0.0, 1.0, x.shape) >= self.p  # eq. dropout
        most = float(np.finfo(x.dtype).max)  # infinity * 0 is NaN
        scale = x.dtype.type(min(1.0 / (1.0 - self.p), most))

        def drop(values: NDArray[Any]) -> Any:
            return np.where(kept, values, 0) * scale  # NaN * 0 would be NaN

        return record(drop(x.data), (x,), lambda grad: (drop(grad),))


def _kind(value: Any) -> str | None:
    """What an attribute of this value is registered as, if it is at all."""
    if isinstance(value, Tensor):
        return "parameter" if value.requires_grad and value._backward is None else None  # a leaf
    if isinstance(value, Module):
        return "module"
    return "generator" if isinstance(value, PCG32) else None


def _floating(who: str, dtype: DTypeLike) -> np.dtype[Any]:
    """The dtype, if it is a floating one."""
    kind = np.dtype(dtype)
    if kind.kind != "f":
        raise TypeError(f"{who}: wants a floating dtype, got {kind}")
    return kind


def _hides_members(value: Any) -> bool:
    """Whether a list, tuple, set or dict holds, at any depth, what should be registered."""
    if not isinstance(value, _CONTAINERS):
        return False
    items = value.values() if isinstance(value, dict) else value
    return any(_kind(item) or _hides_members(item) for item in items)


_CONTAINERS = (list, tuple, set, dict)


def _once(items: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The items whose second part, the same object, did not come before."""
    seen: set[int] = set()
    for path, item in items:
        if id(item) not in seen:
            seen.add(id(item))
            yield path, item
