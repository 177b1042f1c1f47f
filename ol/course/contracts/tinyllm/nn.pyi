# Tangled from book/1-foundations/L0.4-modules.md
"""Modules: objects that hold parameters, other modules and random generators; and Linear."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from numpy.typing import ArrayLike, DTypeLike, NDArray

from tinyllm.num.pcg32 import PCG32
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
    gradient as a parameter, a `Module` as a submodule, a `PCG32` as a generator. A thing's path is
    the names that lead to it, joined by dots: ``layers.0.weight``. Order is the order of first
    assignment (for a buffer, of `register_buffer`). None, or `del`, ends a registration; anything
    else under a registered name is a TypeError. A list, tuple, set or dict that holds such things is
    a TypeError as soon as members are listed (by any method below but `forward` and `extra_repr`),
    and a module inside itself a ValueError. A property of the class is left to itself. No
    `super().__init__()` is needed. `copy.deepcopy` and pickle make independent copies, which share
    among themselves what was shared. `repr` is "Net()", with `extra_repr` in the brackets, and a line
    for each submodule, two spaces further in: "  first: Linear(2 -> 3)".
    """

    training: bool

    def __setattr__(self, name: str, value: Any) -> None: ...
    def __delattr__(self, name: str) -> None: ...
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; every subclass defines it. NotImplementedError here."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The same as `forward`."""

    def register_buffer(self, name: str, array: ArrayLike | Tensor | None) -> None:
        """Make a copy of an array of any shape the attribute `name`: a `Tensor`, saved, not trained.

        It is in the state dict, `astype` converts it if it is floating, and it is no parameter.
        None makes the attribute None, and nothing is saved. ValueError for a name that is taken or no
        identifier, and for lists that make no array; TypeError for a tensor that requires grad and for what a Tensor cannot hold.
        Whatever is raised, nothing is registered.
        """

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Path and buffer in definition order, each buffer once, by its first path."""

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Path and parameter in definition order, each parameter once, by its first path."""

    def parameters(self) -> Iterator[Tensor]:
        """Every parameter once, in definition order."""

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        """Path and module in definition order, each once; first this module, whose path is ""."""

    def modules(self) -> Iterator[Module]:
        """This module and every module below it, each once."""

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Name and module of this module's own attributes, in definition order, each module once."""

    def children(self) -> Iterator[Module]:
        """The modules among this module's own attributes, each once."""

    def apply(self, function: Callable[[Module], object]) -> Self:
        """Call the function with each of `modules()`, in their order; returns the module."""

    def zero_grad(self) -> None:
        """Forget all gradients; call it before each backward pass."""

    def astype(self, dtype: DTypeLike) -> Self:
        """Convert parameters and floating buffers to another floating dtype; returns the module.

        They stay the same tensors; gradients are forgotten. TypeError for a dtype that is not floating.
        """

    def train(self, mode: bool = True) -> Self:
        """Put this module and all below it into training mode; returns the module."""

    def eval(self) -> Self:
        """Put this module and all below it into evaluation mode; returns the module."""

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Copies of all parameters and buffers by path, in definition order; shared ones by every path."""

    def load_state_dict(
        self, state: Mapping[str, ArrayLike | Tensor], strict: bool = True
    ) -> Unmatched:
        """Copy arrays, in C order, into the parameters and buffers of the same paths; each keeps its dtype.
        Arrays of any layout will do, and whatever numpy makes an array of.

        A shared parameter may be given by any or all of its paths. ValueError, and nothing is
        loaded, for a shape or a dtype that does not fit, for different arrays for one shared
        parameter, and if `strict` also for missing and unexpected paths; the message names every
        fault: the path and both shapes or dtypes, "missing from the state: PATH", "not in the
        model: PATH". Returns the paths that were left out, which is only possible with
        ``strict=False``.
        """

    def rng_state(self) -> dict[str, dict[str, str]]:
        """The state of each generator by path, in a form that JSON keeps."""

    def load_rng_state(self, state: Mapping[str, Mapping[str, str]]) -> None:
        """Let every generator go on from its state.

        ValueError, changing nothing, if a path is missing or not in the model (the message names
        all of them), or if a value isn't a generator's state.
        """

    def seed_generators(self, root: PCG32) -> Self:
        """Start each generator as ``root.spawn(path)``, so that no two draw alike.

        The first model of a root gets ``root.substream(path)``, the next model different children.
        """

    def extra_repr(self) -> str:
        """What repr() puts between the brackets; for subclasses to override. Here "2 -> 3" for Linear,
        with ", bias=False" without one, "p=0.5" for Dropout, the functions of a Sequential as "1: tanh"."""

class ModuleList(Module):
    """Modules in order, registered as "0", "1", ...: the parameters are ``layers.0.weight`` etc."""

    def __init__(self, modules: Iterable[Module] = ()) -> None: ...
    def append(self, module: Module) -> None:
        """Add a module at the end; TypeError for anything else."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int | slice) -> Any:
        """The module at an index, or for a slice a list of the same class that shares its modules.

        Negative indices count from the end. IndexError outside.
        """

    def __iter__(self) -> Iterator[Any]: ...

class Sequential(ModuleList):
    """Modules and functions in order, each called with what the one before returned.

    Registered as for `ModuleList`; a function takes up a place, but has no parameters. Without any
    layer it returns what it's given.
    """

    def __init__(self, *layers: Module | Callable[[Any], Any]) -> None: ...
    def append(self, module: Module | Callable[[Any], Any]) -> None:
        """Add a module or function at the end.

        TypeError for anything else, a class and the method of a module included.
        """

    def forward(self, x: Any) -> Any:
        """What the last one returns."""

def randn(
    *shape: int | Sequence[int],
    rng: PCG32 | None = None,
    dtype: DTypeLike = ...,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of standard normal numbers, of the shape given: ``randn(2, 3)`` or ``randn((2, 3))``.

    Drawn by ``rng.normal``, by default the process's ``default_generator()``. TypeError unless dtype
    is float32 or float64 and `rng` a PCG32, ValueError for a negative size.
    """

def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b for x [..., d_in], weight [d_out, d_in], bias [d_out] -> [..., d_out].

    One recorded operation, and one matrix product whatever the batch axes, of any layout. Nothing is
    kept for the next call. The result's dtype is numpy's promotion of the arguments': float64 where x is
    float64, whatever the weight. In float32 the bias's gradient is less than half as far off as numpy's
    sum of the rows. ValueError that names x's shape, as [4, 3, 2], for shapes that do not fit, TypeError
    for what is no tensor.
    """

class Linear(Module):
    """y = x W^T + b with weight [d_out, d_in] and bias [d_out], or None.

    Both are drawn uniformly from -1/sqrt(d_in) to 1/sqrt(d_in), the weight first, from `rng`, by
    default the process's ``default_generator()``: as float32 numbers, then converted to `dtype`, by
    default float32. ValueError unless d_in and d_out are positive ints, TypeError for a dtype that
    is not floating and an `rng` that is no PCG32; then nothing is drawn.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(
        self,
        d_in: int,
        d_out: int,
        bias: bool = True,
        rng: PCG32 | None = None,
        dtype: DTypeLike = ...,
    ) -> None: ...
    def forward(self, x: Tensor) -> Tensor:
        """[..., d_in] -> [..., d_out]."""

class Dropout(Module):
    """While training, entries are set to 0 with probability p and the others divided by 1 - p.

    In evaluation mode, and with p = 0, the result is x itself and nothing is drawn. Otherwise an entry
    is kept where ``rng.uniform(0.0, 1.0, x.shape) >= p``; the others become 0, NaN included. `p`
    may be assigned between calls. The generator is this module's own, by default
    ``default_generator().spawn("dropout")``, so no two drop alike. ValueError unless 0 <= p < 1, from a
    call too if `p` was assigned; TypeError, in evaluation mode too, for an x that is no floating tensor, and for
    an `rng` that is no PCG32.
    """

    p: float
    rng: PCG32

    def __init__(self, p: float, rng: PCG32 | None = None) -> None: ...
    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape and dtype."""
