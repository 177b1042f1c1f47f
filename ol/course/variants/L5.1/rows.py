# Tangled from book/workshop/ol-variants.md
"""Scaled dot-product attention, one query after the other."""

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


def places(reads: Mask) -> list[tuple[tuple[int, ...], NDArray[np.intp]]]:
    """Each query that may read anything, and what."""
    every = [(at, np.flatnonzero(reads[at])) for at in np.ndindex(reads.shape[:-1])]
    return [(at, keys) for at, keys in every if len(keys)]


@quiet
def scores_of(q: Tensor, k: Tensor, scale: float, reads: Mask) -> Tensor:
    """Every query's scaled product with the keys that it reads; 0 elsewhere."""
    s = np.zeros(reads.shape, np.result_type(q.data, k.data))
    for at, keys in places(reads):
        s[at][keys] = scale * (k.data[at[:-1]][keys] @ q.data[at])

    @quiet
    def backward(grad: Array) -> tuple[Array, Array]:
        dq, dk = np.zeros_like(q.data), np.zeros_like(k.data)
        for at, keys in places(reads):
            if (ds := scale * grad[at][keys]).any():
                dq[at] = ds @ k.data[at[:-1]][keys]
                dk[at[:-1]][keys] += np.outer(ds, q.data[at])
        return dq, dk

    return record(s, (q, k), backward)


@quiet
def masked_softmax(scores: Tensor, mask: ArrayLike | None = None) -> Tensor:
    reads = seen(scores, mask)
    w = np.zeros_like(scores.data)
    for at, keys in places(reads):
        e = np.exp(scores.data[at][keys] - scores.data[at][keys].max())
        w[at][keys] = e / e.sum()

    @quiet
    def backward(grad: Array) -> tuple[Array]:
        ds = np.zeros_like(w)
        for at, keys in places(reads):
            if grad[at].any():
                p, g = w[at][keys], grad[at][keys]
                ds[at][keys] = p * (g - p @ g)
        return (ds,)

    return record(w, (scores,), backward)


@quiet
def context_of(weights: Tensor, v: Tensor, reads: Mask) -> Tensor:
    """What each query reads."""
    w, dtype = weights.data, np.result_type(weights.data, v.data)
    out = np.zeros((*w.shape[:-1], v.shape[-1]), dtype)
    for at, keys in places(reads):
        out[at] = w[at][keys] @ v.data[at[:-1]][keys]

    @quiet
    def backward(grad: Array) -> tuple[Array, Array]:
        dw, dv = np.zeros_like(w), np.zeros_like(v.data)
        for at, keys in places(reads):
            if grad[at].any():
                dw[at][keys] = v.data[at[:-1]][keys] @ grad[at]
                dv[at[:-1]][keys] += np.outer(w[at][keys], grad[at])
        return dw, dv

    return record(out, (weights, v), backward)


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
