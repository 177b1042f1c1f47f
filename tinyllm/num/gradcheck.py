# Tangled from book/1-foundations/M04.1-gradcheck.md
"""Compare the gradients that a backward pass gives with differences of function values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.arguments import positive_int
from tinyllm.num.pcg32 import PCG32

__all__ = ["CheckedInput", "GradientError", "Report", "gradcheck"]

Array: TypeAlias = NDArray[np.float64]
Evaluate: TypeAlias = Callable[[], list[Any]]


@dataclass(frozen=True)
class CheckedInput:
    """What the check found out about one input or parameter."""

    name: str
    shape: tuple[int, ...]
    checked: int  # how many entries were compared
    worst: float  # largest difference, in units of what is allowed: at most 1
    largest: float  # largest derivative by differences, in size
    vanishes: bool  # all derivatives are zero, within atol


@dataclass(frozen=True)
class Report:
    """What a gradcheck has compared, if it passed."""

    inputs: tuple[CheckedInput, ...]
    step: float
    rtol: float
    atol: float
    seed: int

    @property
    def vanishing(self) -> tuple[str, ...]:
        """Names of the inputs whose gradient is zero, so that zeros would have passed."""
        return tuple(line.name for line in self.inputs if line.vanishes)

    def __str__(self) -> str:
        rows = [
            f"gradcheck passed: step {self.step:g}, rtol {self.rtol:g}, atol {self.atol:g}, "
            f"seed {self.seed}"
        ]
        width = max(len(line.name) for line in self.inputs)
        for line in self.inputs:
            size = f"up to {line.largest:.3g}" if not line.vanishes else "ZERO throughout"
            rows.append(
                f"{line.name:{width}}  {line.checked} of {math.prod(line.shape)} entries, "
                f"gradient {size}, worst at {line.worst:.1%} of the tolerance"
            )
        return "\n  ".join(rows)


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
    """Compare the gradients of f with central differences; raise if they disagree.

    f: called as f(*inputs), or f(**inputs) for a mapping; returns a tensor or several.
    inputs: tensors, and whatever else f wants. Those that require grad are checked.
    parameters: what else to check, as pairs or a mapping of name and tensor; by
        default ``f.named_parameters()`` if f has that method, as a Module does.
    cotangents: one array for each output; by default drawn, 0.5 <= |c| < 1.5.
    sample: check at most this many entries of each tensor; None for all.
    seed: for the cotangents and the sample.
    step: for the differences, times |x| where that's larger than 1.

    GradientError (an AssertionError) names each faulty tensor, its worst entry, both
    values and the tolerance. TypeError for a floating tensor that isn't float64, inputs
    that aren't in a list or mapping, and a parameter that isn't a tensor. ValueError if
    there's nothing to check, for cotangents that don't fit, and if two calls of f differ.
    All arrays and gradients are left as they were.
    """
    if sample is not None:
        sample = positive_int("gradcheck", "sample", sample)
    tensors = _collect(f, inputs, parameters)
    evaluate = _evaluation(f, inputs)
    before = {name: (x.data, x.grad) for name, x in tensors.items()}
    lines, faults = [], []
    try:
        for x in tensors.values():
            x.data = np.array(x.data, order="C")
        outputs = evaluate()
        for i, (y, again) in enumerate(zip(outputs, evaluate(), strict=True)):
            if not np.array_equal(y.data, again.data, equal_nan=True):
                raise ValueError(
                    f"gradcheck: output {i} of f differs from one call to the next, so differences say "
                    "nothing. Is something random in it? A module with dropout wants .eval()"
                )
        weights = _cotangents(outputs, cotangents, seed)
        gradients = _gradients(evaluate, weights, tensors)
        for name, x in tensors.items():
            indices = _chosen(name, x.shape, sample, seed)
            numeric = {at: _difference(evaluate, weights, x.data, at, step) for at in indices}
            line, fault = _compare(name, x, gradients[name], numeric, rtol, atol)
            lines.append(line)
            faults += [fault] if fault else []
    finally:
        for name, x in tensors.items():
            x.data, x.grad = before[name]
    if faults:
        raise GradientError("\n".join(["gradients and differences disagree:", *faults]))
    return Report(tuple(lines), step, rtol, atol, seed)


def _chosen(
    name: str, shape: tuple[int, ...], sample: int | None, seed: int
) -> list[tuple[int, ...]]:
    """The indices to check: all, or `sample` of them, drawn without repetition, in order."""
    size = math.prod(shape)
    flat = np.arange(size)
    if sample is not None and sample < size:
        order = PCG32(seed).substream("sample").substream(name).permutation(size)
        flat = np.sort(order[:sample])
    return [tuple(int(i) for i in np.unravel_index(at, shape)) for at in flat]


def _collect(
    f: Callable[..., Any],
    inputs: Sequence[Any] | Mapping[str, Any],
    parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] | None,
) -> dict[str, Any]:
    """Name and tensor of everything to check, each tensor once; TypeError for anything else."""
    if not isinstance(inputs, Sequence | Mapping):
        raise TypeError(
            f"gradcheck wants the inputs in a list or a mapping, got a {type(inputs).__name__}: "
            "[x] is a list of one"
        )
    if parameters is None:
        parameters = f.named_parameters() if hasattr(f, "named_parameters") else ()
    if isinstance(inputs, Mapping):
        named = list(inputs.items())
    else:
        named = [(f"inputs[{i}]", x) for i, x in enumerate(inputs)]
    extra = list(parameters.items() if isinstance(parameters, Mapping) else parameters)
    for name, x in extra:
        if not hasattr(x, "requires_grad"):
            raise TypeError(f"gradcheck: parameter {name} is no tensor: {type(x).__name__}")
    tensors = {name: x for name, x in named + extra if hasattr(x, "requires_grad")}
    for name, x in tensors.items():
        _must_be_float64(name, x)
    found: dict[int, tuple[str, Any]] = {}
    for name, x in tensors.items():
        if x.requires_grad:
            found.setdefault(id(x), (name, x))
    if not found:
        raise ValueError(
            "gradcheck: no input and no parameter requires grad: nothing to check. Arrays are "
            "passed on as they are; Tensor(array, requires_grad=True) is checked"
        )
    return dict(found.values())


def _must_be_float64(name: str, x: Any) -> None:
    if np.issubdtype(x.dtype, np.floating) and x.dtype != np.float64:
        raise TypeError(
            f"gradcheck works in float64 only, and {name} is {x.dtype}: its differences would be "
            "all rounding error. Make tensors of .astype(np.float64) arrays, and convert a module "
            "by module.astype(np.float64)"
        )


def _evaluation(f: Callable[..., Any], inputs: Sequence[Any] | Mapping[str, Any]) -> Evaluate:
    """A function without arguments that calls f and gives its outputs as a list, checked."""

    def evaluate() -> list[Any]:
        result = f(**inputs) if isinstance(inputs, Mapping) else f(*inputs)
        outputs = list(result) if isinstance(result, tuple | list) else [result]
        for i, y in enumerate(outputs):
            if not hasattr(y, "requires_grad"):
                raise TypeError(f"gradcheck: output {i} of f is no tensor: {type(y).__name__}")
            _must_be_float64(f"output {i} of f", y)
        return outputs

    return evaluate


def _cotangents(outputs: list[Any], given: Sequence[ArrayLike] | None, seed: int) -> list[Array]:
    """One array for each output, given or drawn: 0.5 <= |c| < 1.5, of either sign."""
    if given is None:
        rng = PCG32(seed).substream("cotangent")
        drawn = [rng.uniform(-1.0, 1.0, y.shape, np.float64) for y in outputs]
        return [np.where(d < 0, d - 0.5, d + 0.5) for d in drawn]
    arrays = [np.asarray(c, np.float64) for c in given]
    if [c.shape for c in arrays] != [y.shape for y in outputs]:
        raise ValueError(
            f"gradcheck: the cotangents have shapes {[c.shape for c in arrays]}, "
            f"the outputs {[y.shape for y in outputs]}"
        )
    return arrays


def _gradients(
    evaluate: Evaluate, cotangents: list[Array], tensors: dict[str, Any]
) -> dict[str, Array | None]:
    """What backward() puts into .grad of each tensor, None where nothing arrives."""
    for x in tensors.values():
        x.grad = None
    for i, c in enumerate(cotangents):
        y = evaluate()[i]
        if y.requires_grad:
            y.backward(c)  # eq. loss
    for name, x in tensors.items():
        if x.grad is not None and (x.grad.shape, x.grad.dtype) != (x.shape, x.dtype):
            raise GradientError(
                f"{name} has shape {x.shape} and dtype {x.dtype}, "
                f"but its gradient {x.grad.shape} and {x.grad.dtype}"
            )
    return {name: x.grad for name, x in tensors.items()}


def _difference(
    evaluate: Evaluate, cotangents: list[Array], data: Array, index: tuple[int, ...], step: float
) -> float:
    """The central difference of the loss by one entry of `data`."""
    x = float(data[index])
    h = step * max(1.0, abs(x))
    points, outputs = [], []
    for point in (x + h, x - h):
        data[index] = point
        points.append(float(data[index]))
        outputs.append([np.array(y.data) for y in evaluate()])
    data[index] = x
    rise = sum(
        float(np.sum(c * (above - below)))
        for c, above, below in zip(cotangents, *outputs, strict=True)
    )
    return rise / (points[0] - points[1])  # eq. central


def _compare(
    name: str,
    x: Any,
    gradient: Array | None,
    numeric: dict[tuple[int, ...], float],
    rtol: float,
    atol: float,
) -> tuple[CheckedInput, str]:
    """One input's line of the report, and what is wrong with it in words, or ""."""
    wrong, worst, at = 0, 0.0, None
    for index, expected in numeric.items():
        found = 0.0 if gradient is None else float(gradient[index])
        error, allowed = abs(found - expected), atol + rtol * abs(expected)
        agree = bool(np.isfinite(expected)) and error <= allowed  # False for NaN
        wrong += not agree
        excess = error / allowed if np.isfinite(error) else np.inf
        if at is None or excess > worst:
            worst, at = excess, (index, found, expected, error, allowed)
    largest = max((abs(v) for v in numeric.values()), default=0.0)
    line = CheckedInput(name, x.shape, len(numeric), worst, largest, largest <= atol)
    if not wrong or at is None:
        return line, ""
    index, found, expected, error, allowed = at
    place = name + (f"[{', '.join(map(str, index))}]" if index else "")
    source = "no gradient arrives (None)" if gradient is None else f"backward gives {found:.10g}"
    return line, (
        f"{place}: {source}, differences give {expected:.10g}; they differ by {error:.3g}, "
        f"allowed are {allowed:.3g}; {wrong} of {len(numeric)} entries checked are wrong"
    )
