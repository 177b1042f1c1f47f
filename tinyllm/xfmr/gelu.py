# Tangled from book/2-transformer/L5.5-layers.md
"""GELU, a smooth relative of ReLU, in its two versions (D. Hendrycks and K. Gimpel, 2016)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinyllm.autograd import is_recording, record, tensor_argument
from tinyllm.num.normal import normal_cdf_pdf
from tinyllm.num.threads import in_blocks
from tinyllm.tensor import Tensor

__all__ = ["gelu", "gelu_tanh"]

Array: TypeAlias = NDArray[Any]


def gelu(x: Tensor) -> Tensor:
    """x Phi(x), with the exact normal distribution function: any shape.

    To 1e-14 in float64. TypeError unless x is a floating-point tensor.
    """

    def block(part: Array, y: Array, slope: Array | None) -> None:
        below, density = normal_cdf_pdf(part)
        np.multiply(part, below, out=y)
        if slope is not None:
            np.multiply(part, density, out=slope)
            slope += below  # eq. gelu

    return _by_blocks("gelu", x, block)


def gelu_tanh(x: Tensor) -> Tensor:
    """x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, as GPT-2 has it: any shape.

    TypeError unless x is a floating-point tensor.
    """
    root = math.sqrt(2.0 / math.pi)

    def block(part: Array, y: Array, slope: Array | None) -> None:
        square = np.minimum(part * part, 1e4)  # beyond x = 100 the result is x or 0
        t = np.tanh(part * (square * (0.044715 * root) + root))
        np.multiply(part, 0.5 + 0.5 * t, out=y)  # eq. gelu-tanh
        if slope is not None:
            inner = square * (3 * 0.044715 * root) + root  # slope of what tanh was taken of
            np.multiply(0.5 * part * (1.0 - t * t), inner, out=slope)
            slope += 0.5 + 0.5 * t

    return _by_blocks("gelu_tanh", x, block)


def _by_blocks(
    who: str, x: Tensor, function: Callable[[Array, Array, Array | None], None]
) -> Tensor:
    """A function of each number and its slope, block by block, in float32 at least."""
    tensor_argument(who, "x", x, floating=True)
    dtype = np.result_type(x.dtype, np.float32)
    flat = x.data.reshape(-1).astype(dtype, copy=False)
    y = np.empty_like(flat)
    slope = np.empty_like(flat) if x.requires_grad and is_recording() else None

    def block(b: slice) -> None:
        with np.errstate(over="ignore"):  # squares
            function(flat[b], y[b], None if slope is None else slope[b])

    in_blocks(block, len(flat))

    def backward(grad: Array) -> tuple[Array]:
        assert slope is not None
        return (grad * slope.reshape(x.shape),)

    return record(y.reshape(x.shape).astype(x.dtype, copy=False), (x,), backward)
