# Tangled from book/1-foundations/M04.1-gradcheck.md
"""Compare the gradients that a backward pass gives with differences of function values."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

__all__ = ["CheckedInput", "GradientError", "Report", "gradcheck"]

@dataclass(frozen=True)
class CheckedInput:
    """What was found out about one input or parameter."""

    name: str
    shape: tuple[int, ...]
    checked: int  # entries compared
    worst: float  # largest difference, in units of what is allowed: at most 1
    largest: float  # largest derivative by differences, in size
    vanishes: bool  # all derivatives are zero, within atol

@dataclass(frozen=True)
class Report:
    """What a gradcheck that passed has compared."""

    inputs: tuple[CheckedInput, ...]
    step: float
    rtol: float
    atol: float
    seed: int

    @property
    def vanishing(self) -> tuple[str, ...]:
        """Names of the inputs whose gradient is zero: zeros would have passed for it."""

class GradientError(AssertionError):
    """A gradient differs from the difference quotient; the message says where and by how much."""

def gradcheck(
    f: Callable[..., Any],
    inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None,
    cotangents: Sequence[ArrayLike] | None = None,
    sample: int | None = None,
    seed: int = 0,
    step: float = 6e-6,
    rtol: float = 1e-6,
    atol: float = 1e-8,
) -> Report:
    """Compare the gradients of f with central differences, in float64; raise if they disagree.

    f: called as f(*inputs), or f(**inputs) for a mapping; returns a tensor or several.
    inputs: tensors, and whatever else f wants. Those that require grad are checked, by the name
        "inputs[0]" or that of the mapping; a tensor that comes twice, once, by its first name.
    parameters: what is checked besides, as pairs or a mapping of name and tensor; by default
        ``f.named_parameters()`` where f has that method, as a Module does.
    cotangents: one array for each output; by default drawn, 0.5 <= |c| < 1.5, of either sign.
    sample: at most so many entries of each tensor are checked, chosen at random; None for all.
    seed: of the cotangents and the sample.
    step: of the differences, times |x| where that is larger than 1.

    A tensor is what has data, grad, requires_grad, shape, dtype and backward(cotangent). Gradient
    g and difference quotient d agree if both are finite and |g - d| <= atol + rtol |d|; no
    gradient (None) counts as 0.

    GradientError (an AssertionError) names each faulty tensor, its worst entry, both values and
    the tolerance. TypeError for a floating tensor that is not float64, among the inputs, the
    parameters and the outputs, for inputs in no list or mapping, and for a parameter or an output
    that is no tensor. ValueError if there is nothing to check, for cotangents that do not fit, for
    sample < 1, and if f gives two answers. All arrays and gradients are left as they were.
    """
