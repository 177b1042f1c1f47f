"""Modules: objects that hold parameters, other modules and random generators; and Linear."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tinyllm.autograd import record
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor


class Module:
    """Something with parameters and a `forward`.

    What is assigned to an attribute is registered by its type: a `Tensor` that requires a gradient
    and is not the result of an operation is a parameter, a `Module` a submodule, a `PCG32` a generator.
    Names that come from more than one level are joined by dots: ``layers.0.weight``.
    """

    training: bool
    _registered: dict[str, None]  # names of parameters, submodules, generators: an ordered set

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        module = super().__new__(cls)
        module.__dict__.update(_registered={}, training=True)
        return module

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Module | PCG32) or _is_parameter(value):
            self._registered[name] = None
        elif isinstance(value, list | tuple | dict) and _holds_members(value):
            raise TypeError(
                f"{type(self).__name__}.{name}: the parameters in a {type(value).__name__} "
                "would not be found; use a ModuleList, or give each member an attribute of its own"
            )
        elif name in self._registered and not isinstance(value, Tensor):
            del self._registered[name]
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self._registered.pop(name, None)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; every subclass says it."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def _walk(
        self, kind: type[Any], prefix: str = "", above: tuple[Module, ...] = ()
    ) -> Iterator[tuple[str, Any]]:
        """Every registered thing of that kind below, with its path, once for each path."""
        if any(self is module for module in above):
            raise ValueError(f"{type(self).__name__} contains itself, at {prefix.rstrip('.')!r}")
        for name in self._registered:
            value = self.__dict__[name]
            if isinstance(value, kind):
                yield prefix + name, value
            if isinstance(value, Module):
                yield from value._walk(kind, f"{prefix}{name}.", (*above, self))

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Path and parameter, in definition order; one that has several paths comes once, by the first."""
        return _once(self._walk(Tensor))

    def parameters(self) -> Iterator[Tensor]:
        """Every parameter once, in definition order."""
        return (parameter for _, parameter in self.named_parameters())

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        """Path and module, this one ("") first, in definition order, each once."""
        yield "", self
        yield from _once(self._walk(Module))

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def zero_grad(self) -> None:
        """Forget every parameter's gradient."""
        for parameter in self.parameters():
            parameter.grad = None

    def astype(self, dtype: DTypeLike) -> Self:
        """Change every parameter's dtype in place (gradients are dropped); returns the module."""
        for parameter in self.parameters():
            parameter.grad = None
            parameter.data = parameter.data.astype(dtype)
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
        """A copy of every parameter's array by path, in definition order; a shared one by every path."""
        return {path: parameter.data.copy() for path, parameter in self._walk(Tensor)}

    def load_state_dict(self, state: Mapping[str, ArrayLike], strict: bool = True) -> None:
        """Copy arrays into the parameters by path, keeping each parameter's dtype."""
        own = dict(self._walk(Tensor))
        arrays = {path: np.asarray(array) for path, array in state.items()}
        faults = [
            f"{path}: the parameter has shape {own[path].shape}, the state {array.shape}"
            for path, array in arrays.items()
            if path in own and own[path].shape != array.shape
        ]
        if strict:
            faults += [f"missing: {path}" for path in own if path not in arrays]
            faults += [f"unexpected: {path}" for path in arrays if path not in own]
        if faults:
            raise ValueError(
                f"the state does not fit {type(self).__name__}; nothing was loaded:\n  "
                + "\n  ".join(faults)
            )
        for path, array in arrays.items():
            if path in own:
                own[path].data = array.astype(own[path].dtype)  # astype copies

    def rng_state(self) -> dict[str, dict[str, str]]:
        """The state of every generator by path."""
        return {path: rng.state() for path, rng in self._walk(PCG32)}

    def load_rng_state(self, states: Mapping[str, Mapping[str, str]]) -> None:
        """Let every generator go on from its state in `states`, which must name them all."""
        own = dict(self._walk(PCG32))
        if own.keys() != states.keys():
            raise ValueError(
                f"generators of {type(self).__name__}: {list(own)}, in the state: {list(states)}"
            )
        for path, rng in own.items():
            rng.set_state(states[path])

    def seed_generators(self, root: PCG32) -> Self:
        """Set every generator to the substream of `root` named by its path; returns the module."""
        for path, rng in self._walk(PCG32):
            rng.set_state(root.substream(path).state())
        return self

    def extra_repr(self) -> str:
        """What stands in the brackets of repr()."""
        return ""

    def __repr__(self) -> str:
        below = [
            f"  {name}: {self.__dict__[name]!r}".replace("\n", "\n  ")
            for name in self._registered
            if isinstance(self.__dict__[name], Module)
        ]
        head = f"{type(self).__name__}({self.extra_repr()})"
        return "\n".join([head, *below])


class ModuleList(Module):
    """Modules in order, registered under their index: ``layers.0``, ``layers.1``, ..."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self._length = 0
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> None:
        """Add a module at the end."""
        if not isinstance(module, Module):
            raise TypeError(f"ModuleList: wants modules, got {type(module).__name__}")
        setattr(self, str(self._length), module)
        self._length += 1

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Module:
        module: Module = self.__dict__[str(range(self._length)[index])]
        return module

    def __iter__(self) -> Iterator[Module]:
        return (self[i] for i in range(self._length))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b for x [..., d_in], weight [d_out, d_in], bias [d_out]; one recorded operation."""
    d_out, d_in = weight.shape
    if x.ndim == 0 or x.shape[-1] != d_in:
        raise ValueError(f"linear: wants x of shape [..., {d_in}], got {list(x.shape)}")
    w = weight.data
    rows = x.data.reshape(-1, d_in)  # [N, d_in]
    y = rows @ w.T  # [N, d_out]
    if bias is not None:
        y = np.add(y, bias.data, out=y if y.dtype == np.result_type(y, bias.data) else None)
    y = y.reshape(*x.shape[:-1], d_out)  # [..., d_out]

    def backward(grad: NDArray[Any]) -> tuple[NDArray[Any] | None, ...]:
        g = grad.reshape(-1, d_out)  # [N, d_out]
        dx = (g @ w).reshape(x.shape) if x.requires_grad else None  # [..., d_in]
        dw = g.T @ rows if weight.requires_grad else None  # [d_out, d_in]
        if bias is None:
            return dx, dw
        return dx, dw, (g.sum(axis=0) if bias.requires_grad else None)  # [d_out]

    parents = (x, weight) if bias is None else (x, weight, bias)
    return record(y, parents, backward)


class Linear(Module):
    """y = x W^T + b, with weight [d_out, d_in] and bias [d_out] (or None).

    Both are float32, drawn evenly from -1/sqrt(d_in) to 1/sqrt(d_in), the weight first,
    from `rng`, by default a fresh ``PCG32(0)``.
    """

    def __init__(self, d_in: int, d_out: int, bias: bool = True, rng: PCG32 | None = None) -> None:
        for name, size in (("d_in", d_in), ("d_out", d_out)):
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ValueError(f"Linear: {name} must be a positive int, got {size!r}")
        rng = PCG32(0) if rng is None else rng
        bound = 1.0 / math.sqrt(d_in)
        self.d_in, self.d_out = d_in, d_out
        self.weight = Tensor(rng.uniform(-bound, bound, (d_out, d_in)), requires_grad=True)
        self.bias = Tensor(rng.uniform(-bound, bound, d_out), requires_grad=True) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """[..., d_in] -> [..., d_out]."""
        return linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.d_in} -> {self.d_out}" + ("" if self.bias is not None else ", bias=False")


class Dropout(Module):
    """While training, each entry is put to 0 with probability p and the others divided by 1 - p."""

    def __init__(self, p: float, rng: PCG32 | None = None) -> None:
        if not 0.0 <= p < 1.0:
            raise ValueError(f"Dropout: p must be at least 0 and below 1, got {p}")
        self.p = p
        self.rng = PCG32(0).substream("dropout") if rng is None else rng

    def forward(self, x: Tensor) -> Tensor:
        """Same shape and dtype as x; in evaluation mode, or with p = 0, x itself."""
        if not self.training or self.p == 0.0:
            return x
        kept = self.rng.uniform(0.0, 1.0, x.shape) >= self.p
        factor = kept * x.dtype.type(1.0 / (1.0 - self.p))
        return record(x.data * factor, (x,), lambda grad: (grad * factor,))

    def extra_repr(self) -> str:
        return f"p={self.p}"


def _is_parameter(value: Any) -> bool:
    """Whether an attribute of this value is a parameter."""
    return isinstance(value, Tensor) and value.requires_grad and value._backward is None


def _holds_members(values: Any) -> bool:
    """Whether a list, tuple or dict holds something that should have been registered."""
    values = values.values() if isinstance(values, dict) else values
    return any(isinstance(value, Module | PCG32) or _is_parameter(value) for value in values)


def _once(items: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The items without those whose second part (the same object) came before."""
    seen: set[int] = set()
    for path, item in items:
        if id(item) not in seen:
            seen.add(id(item))
            yield path, item
