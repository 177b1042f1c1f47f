"""Scaled dot-product attention: what each query reads from the keys it may see."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyllm.autograd import record
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor

Array = NDArray[Any]


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Array | None = None,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: PCG32 | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention step by step, with its weights: both can be differentiated."""
    factor = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = q @ k.swapaxes(-1, -2) * factor
    weights = masked_softmax(scores, mask)
    return _dropped(weights, dropout, rng) @ v, weights


def masked_softmax(scores: Tensor, mask: Array | None) -> Tensor:
    """Softmax over the last axis of the scores that `mask` allows; 0 elsewhere."""
    weights = _softmax(scores.data, mask)

    def backward(grad: Array) -> tuple[Array]:
        return (weights * (grad - (weights * grad).sum(axis=-1, keepdims=True)),)

    return record(weights, (scores,), backward)


def _softmax(s: Array, mask: Array | None) -> Array:
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    top = s.max(axis=-1, keepdims=True, initial=-np.inf)
    e = np.exp(s - np.where(np.isneginf(top), 0, top))
    total = e.sum(axis=-1, keepdims=True)
    weights: Array = e / np.where(total == 0, 1, total)
    return weights


def _dropped(weights: Tensor, rate: float, rng: PCG32 | None) -> Tensor:
    if rate == 0.0:
        return weights
    assert rng is not None
    factor = _dropout_factor(weights.data, rate, rng)
    return record(weights.data * factor, (weights,), lambda grad: (grad * factor,))


def _dropout_factor(weights: Array, rate: float, rng: PCG32) -> Array:
    kept = rng.uniform(0.0, 1.0, weights.shape) >= rate
    return kept * weights.dtype.type(1.0 / (1.0 - rate))


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Array | None = None,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: PCG32 | None = None,
) -> Tensor:
    """Attention as one operation with a backward pass of its own."""
    factor = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    qs, ks, vs = q.data, k.data, v.data
    weights = _softmax(qs @ ks.swapaxes(-1, -2) * qs.dtype.type(factor), mask)
    kept = _dropout_factor(weights, dropout, rng) if dropout and rng is not None else None
    out = (weights if kept is None else weights * kept) @ vs

    def backward(grad: Array) -> tuple[Array, Array, Array]:
        dweights = grad @ vs.swapaxes(-1, -2)
        dropped = weights
        if kept is not None:
            dweights *= kept
            dropped = weights * kept
        dscores = weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))
        dscores *= dscores.dtype.type(factor)
        return dscores @ ks, dscores.swapaxes(-1, -2) @ qs, dropped.swapaxes(-1, -2) @ grad

    return record(out, (q, k, v), backward)
