# Tangled from book/workshop/ol-variants.md
"""Scaled dot-product attention by contractions over named axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.autograd import record
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor

__all__ = ["bool_mask", "check_attention", "masked_softmax", "scaled_dot_product_attention"]

Array = NDArray[Any]
Mask = NDArray[np.bool_]
quiet = np.errstate(invalid="ignore", over="ignore")  # garbage is no reason to warn


def product(a: Array, b: Array) -> Array:
    contracted: Array = np.einsum("...mn,...np->...mp", a, b)
    return contracted


def softmax(s: Array) -> Array:
    """Over the last axis; 0 for all where all are -inf."""
    top = s.max(axis=-1, keepdims=True, initial=-np.inf)
    e = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = e.sum(axis=-1, keepdims=True)
    weights: Array = e / np.where(total == 0, 1, total)
    return weights


@quiet
def scores_of(q: Tensor, k: Tensor, scale: float, reads: Mask) -> Tensor:
    """Every query's scaled product with every key; NaN where either is not finite."""
    fine_q, fine_k = (np.isfinite(x.data).all(axis=-1, keepdims=True) for x in (q, k))
    a, b = np.where(fine_q, q.data, 0), np.where(fine_k, k.data, 0)
    s = np.where(fine_q & turned(fine_k), product(a * scale, turned(b)), np.nan)

    @quiet
    def backward(grad: Array) -> tuple[Array, Array]:
        return product(grad * scale, b), product(turned(grad), a * scale)

    return record(s, (q, k), backward)


@quiet
def masked_softmax(scores: Tensor, mask: ArrayLike | None = None) -> Tensor:
    reads = seen(scores, mask)
    w = np.where(reads, softmax(np.where(reads, scores.data, -np.inf)), 0)

    @quiet
    def backward(grad: Array) -> tuple[Array]:
        asked = reads & (grad != 0).any(axis=-1, keepdims=True)
        shares = np.where(asked, w * grad, 0)
        return (np.where(asked, shares - w * shares.sum(axis=-1, keepdims=True), 0),)

    return record(w, (scores,), backward)


@quiet
def context_of(weights: Tensor, v: Tensor, reads: Mask) -> Tensor:
    """What each query reads; NaN for one that reads a value that is not finite."""
    fine = np.isfinite(v.data).all(axis=-1, keepdims=True)
    b = np.where(fine, v.data, 0)
    spoiled = (reads & ~turned(fine)).any(axis=-1, keepdims=True)
    out = np.where(spoiled, np.nan, product(weights.data, b))

    @quiet
    def backward(grad: Array) -> tuple[Array, Array]:
        sound = np.isfinite(grad).all(axis=-1, keepdims=True)
        asked, g = reads & (grad != 0).any(axis=-1, keepdims=True), np.where(sound, grad, 0)
        dw = np.where(sound & turned(fine), product(g, turned(b)), np.nan)
        dv = product(turned(np.where(asked, weights.data, 0)), g)
        reached = (asked & ~sound).any(axis=-2)[..., None]  # keys whose reader has a bad gradient
        return np.where(asked, dw, 0), np.where(reached, np.nan, dv)

    return record(out, (weights, v), backward)


def turned(x: Any) -> Any:
    return x.swapaxes(-1, -2)


def scaled_dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: PCG32 | None = None,
) -> tuple[Tensor, Tensor]:
    if not all(isinstance(x, Tensor) for x in (q, k, v)):
        raise TypeError("q, k and v are tensors")
    shape, allowed, scale = check_attention(q, k, v, mask, scale, dropout, rng)
    reads = np.broadcast_to(np.True_ if allowed is None else allowed, shape)
    dtype = np.result_type(q.dtype, k.dtype, v.dtype)
    wide = np.result_type(dtype, np.float32)
    q, k, v = (x.astype(wide).broadcast_to(*shape[:-2], *x.shape[-2:]) for x in (q, k, v))
    weights = masked_softmax(scores_of(q, k, scale, reads), reads)
    used = weights
    if dropout > 0 and rng is not None:
        kept = rng.uniform(0.0, 1.0, shape) >= dropout
        used = weights * (kept * weights.dtype.type(1 / (1 - dropout)))
    out = context_of(used, v, reads)
    return out.astype(dtype), weights.astype(dtype)


def seen(scores: Tensor, mask: ArrayLike | None) -> Mask:
    """What the mask allows, in the scores' shape."""
    if not isinstance(scores, Tensor) or scores.dtype.kind != "f":
        raise TypeError("scores are a floating-point tensor")
    return fitted(np.True_ if mask is None else mask, scores.shape)


def fitted(mask: ArrayLike, shape: tuple[int, ...]) -> Mask:
    given = bool_mask(mask)
    try:
        return np.broadcast_to(given, shape)
    except ValueError:
        raise ValueError(f"a mask {list(given.shape)} does not fit {list(shape)}") from None


def bool_mask(mask: ArrayLike) -> Mask:
    array = np.asarray(mask)
    if array.dtype != np.bool_:
        raise TypeError(f"a mask is bool, not {array.dtype}")
    return array


def check_attention(
    q: Tensor | Array,
    k: Tensor | Array,
    v: Tensor | Array,
    mask: ArrayLike | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: PCG32 | None = None,
) -> tuple[tuple[int, ...], Mask | None, float]:
    shapes = [x.shape for x in (q, k, v)]
    if (
        min(map(len, shapes)) < 2
        or shapes[0][-1] != shapes[1][-1]
        or shapes[1][-2] != shapes[2][-2]
    ):
        raise ValueError(f"q, k and v do not fit: {shapes}")
    if any(x.dtype.kind != "f" for x in (q, k, v)):
        raise TypeError("q, k and v are floating-point")
    lead = np.broadcast_shapes(*(shape[:-2] for shape in shapes))
    if not 0 <= dropout < 1 or (dropout > 0 and not isinstance(rng, PCG32)):
        raise ValueError(f"dropout is a rate below 1, with a generator, not {dropout}")
    shape = (*lead, shapes[0][-2], shapes[1][-2])
    usual = 1 / math.sqrt(max(shapes[0][-1], 1))
    return (
        shape,
        None if mask is None else fitted(mask, shape),
        usual if scale is None else float(scale),
    )
