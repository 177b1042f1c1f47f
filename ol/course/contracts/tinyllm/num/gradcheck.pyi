# Tangled from book/1-foundations/M04.1-gradcheck.md
"""Compare the gradients that a backward pass gives with differences of function values."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

__all__ = ["CheckedInput", "GradientError", "Report", "gradcheck"]

@dataclass(frozen=True)
class CheckedInput:
    """What the check found out about one input or parameter; of an empty one, worst and largest are 0."""

    name: str
    shape: tuple[int, ...]
    checked: int  # how many entries were compared
    worst: float  # largest difference, in units of what is allowed: at most 1
    largest: float  # largest derivative by differences, in size
    vanishes: bool  # all derivatives are zero, within atol

@dataclass(frozen=True)
class Report:
    """What a gradcheck has compared, if it passed. As text it has a line for each input, with its name,
    "7 of 50 entries" and, if it vanishes, ZERO."""

    inputs: tuple[CheckedInput, ...]
    step: float
    rtol: float
    atol: float
    seed: int

    @property
    def vanishing(self) -> tuple[str, ...]:
        """Names of the inputs whose gradient is zero, so that zeros would have passed."""

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
    inputs: tensors, and whatever else f wants. Those that require grad are checked, under the name
        "inputs[0]" or that of the mapping; a tensor that comes twice is checked once, under its
        first name.
    parameters: what else to check, as pairs or a mapping of name and tensor; by default
        ``f.named_parameters()`` if f has that method, as a Module does.
    cotangents: one array for each output; by default drawn, 0.5 <= |c| < 1.5, of either sign,
        each number anew.
    sample: check at most this many entries of each tensor, an int >= 1, chosen at random; None for all.
    seed: for the cotangents and the sample.
    step: for the differences, times |x| where that's larger than 1. Each entry is moved alone, once up
        and once down, and outputs are subtracted before they are weighed and summed.

    Anything with data, grad, requires_grad, shape, dtype and backward(cotangent) is a tensor.
    Gradient g and difference quotient d agree if both are finite and |g - d| <= atol + rtol |d|;
    no gradient (None) counts as 0, and one of another shape is wrong.

    GradientError (an AssertionError) names each faulty tensor, its worst entry as x[0, 2] (one that is
    not finite is the worst), both values to four digits at least, and the tolerance. TypeError for a floating tensor among inputs, parameters and outputs that isn't
    float64, for inputs that aren't in a list or mapping, and for a parameter or an output that
    isn't a tensor. ValueError if there's nothing to check, for cotangents that don't fit, for
    another sample, and if two calls of f differ. All arrays and gradients are left as they were, also if f
    raises. Arrays may have any layout, be read-only, or share memory.
    """
