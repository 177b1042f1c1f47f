# Tangled from book/2-transformer/L5.1-attention.md
"""Scaled dot-product attention: each query reads a mean of values, weighted by their keys.

    out = softmax(q k^T / sqrt(d)) v

Vaswani et al., "Attention Is All You Need" (2017), section 3.2.1.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.autograd import record, tensor_argument, unbroadcast
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor

__all__ = ["bool_mask", "check_attention", "masked_softmax", "scaled_dot_product_attention"]

Array: TypeAlias = NDArray[Any]
Mask: TypeAlias = NDArray[np.bool_]


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
    """What each query reads, and the weights it reads with; both can be differentiated.

    q [..., Tq, d], k [..., Tk, d], v [..., Tk, dv], floating point; the axes in front broadcast.
    `mask` is bool, True = may attend, and broadcasts to [..., Tq, Tk]. `scale` is 1/sqrt(d) unless
    given. With `dropout` > 0 weights are dropped at that rate, by draws from `rng`. Returns the
    output [..., Tq, dv] and the weights [..., Tq, Tk] before dropout, in the inputs' dtype;
    computed in float32 at least. A query that may read nothing has weights 0 and output 0.
    TypeError for a mask that is not bool and inputs that are not floating-point tensors, ValueError for
    shapes that do not fit and a rate outside [0, 1). Vaswani et al. (2017), eq. 1.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        tensor_argument("attention", name, x)
    shape, allowed, scale = check_attention(q, k, v, mask, scale, dropout, rng)
    dtype = np.result_type(q.dtype, k.dtype, v.dtype)
    q, k, v = (x.astype(np.result_type(dtype, np.float32)) for x in (q, k, v))
    q = q.broadcast_to(*shape[:-1], q.shape[-1])  # v alone may have some of these axes
    scores = _scores(q, k, scale, allowed)  # [..., Tq, Tk]
    weights = masked_softmax(scores, allowed)
    used = weights if rng is None or dropout == 0 else _drop(weights, dropout, rng)
    context = _context(used, v, allowed)  # [..., Tq, dv]
    return context.astype(dtype), weights.astype(dtype)


def _scores(q: Tensor, k: Tensor, scale: float, allowed: Mask | None) -> Tensor:
    """Every query's scaled inner product with every key [..., Tq, Tk]."""
    queries, keys = q.data, k.data
    with _quiet(allowed):
        scores = queries @ keys.swapaxes(-1, -2) * scale  # eq. attention

    def backward(grad: Array) -> tuple[Array, Array]:
        reads, ds = _reads(allowed, grad), grad * scale
        with _quiet(allowed):
            dq = _masked_product(ds, keys, reads)  # eq. product-grads
            dk = _masked_product(_turned(ds), queries, _turned(reads))
        return unbroadcast(dq, q.shape), unbroadcast(dk, k.shape)

    return record(scores, (q, k), backward)


def masked_softmax(scores: Tensor, mask: ArrayLike | None = None) -> Tensor:
    """Softmax over the last axis of what `mask` allows; exactly 0 elsewhere.

    scores [..., Tq, Tk] floating point; mask bool, True = may attend, broadcasts to the scores. A
    row in which nothing is allowed is 0. What is in the places that are not allowed does not matter,
    be it NaN. TypeError for scores that are no floating-point tensor and a mask that is not bool,
    ValueError for a mask that does not broadcast to them.
    """
    tensor_argument("masked_softmax", "scores", scores)
    if scores.dtype.kind != "f":
        raise TypeError(f"masked_softmax: wants floating-point scores, got {scores.dtype}")
    allowed = None if mask is None else _spread(mask, scores.shape)
    with _quiet(allowed):
        s = _select(allowed, scores.data, -np.inf)
        e = np.exp(s - s.max(axis=-1, keepdims=True, initial=-np.inf))
        weights = _select(allowed, e / e.sum(axis=-1, keepdims=True))  # eq. softmax

    def backward(grad: Array) -> tuple[Array]:
        reads = _reads(allowed, grad)
        with _quiet(allowed):
            mean = _select(reads, weights * grad).sum(axis=-1, keepdims=True)
            return (_select(reads, weights * (grad - mean)),)  # eq. softmax-grad

    return record(weights, (scores,), backward)


def _context(weights: Tensor, v: Tensor, allowed: Mask | None) -> Tensor:
    """The weighted mean of the values [..., Tq, dv]."""
    w, values = weights.data, v.data
    with _quiet(allowed):
        context = _masked_product(w, values, allowed)  # eq. attention

    def backward(grad: Array) -> tuple[Array, Array]:
        reads = _reads(allowed, grad)
        with _quiet(allowed):
            dw = _select(reads, grad @ values.swapaxes(-1, -2))  # eq. product-grads
            dv = _masked_product(_turned(_select(reads, w)), grad, _turned(reads))
        return unbroadcast(dw, weights.shape), unbroadcast(dv, v.shape)

    return record(context, (weights, v), backward)


def _drop(weights: Tensor, rate: float, rng: PCG32) -> Tensor:
    """Each weight dropped with probability `rate`, else divided by 1 - rate."""
    kept = rng.uniform(0.0, 1.0, weights.shape) >= rate
    dropped: Tensor = weights * (kept * weights.dtype.type(1.0 / (1.0 - rate)))
    return dropped


def _select(allowed: Mask | None, x: Array, other: float = 0.0) -> Array:
    """`x` where allowed and `other` elsewhere, whatever `x` is there."""
    return x if allowed is None else np.where(allowed, x, x.dtype.type(other))


def _reads(allowed: Mask | None, grad: Array) -> Mask | None:
    """What is allowed, in the rows of those queries about which the loss asks at all."""
    return None if allowed is None else allowed & (grad != 0).any(axis=-1, keepdims=True)


def _quiet(allowed: Mask | None) -> AbstractContextManager[None]:
    """Where a mask may hide infinite numbers, their arithmetic is no reason to warn."""
    return nullcontext() if allowed is None else np.errstate(invalid="ignore", over="ignore")


def _masked_product(a: Array, b: Array, reads: Mask | None) -> Array:
    """a [..., m, n] @ b [..., n, d]; entry (i, j) of a meets row j of b only where `reads`.

    What reads a row of b that is not finite becomes NaN, and nothing else does.
    """
    if reads is None or np.isfinite(b).all():
        product: Array = a @ b
        return product
    bad = ~np.isfinite(b).all(axis=-1, keepdims=True)  # [..., n, 1]
    spoiled = reads @ bad  # [..., m, 1]: for bools @ asks whether any reads any that is bad
    return np.where(spoiled, np.nan, a @ np.where(bad, 0, b))


def _turned(x: Any) -> Any:
    """The last two axes exchanged; None stays None."""
    return x if x is None else x.swapaxes(-1, -2)


def bool_mask(mask: ArrayLike) -> Mask:
    """A mask [...] as a bool array of its shape, True = may attend; TypeError for other dtypes."""
    array = np.asarray(mask)
    if array.dtype != np.bool_:
        raise TypeError(
            f"a mask is bool here, True = may attend; got {array.dtype}. torch has two conventions: "
            "for nn.MultiheadAttention True means blocked (give ~mask), for "
            "F.scaled_dot_product_attention True means allowed (give mask); with both, floats are "
            "added to the scores (for 0 and -inf give mask == 0)"
        )
    return array


def _spread(mask: ArrayLike, shape: tuple[int, ...]) -> Mask:
    """The mask, seen in the scores' shape; nothing is copied."""
    allowed = bool_mask(mask)
    try:
        return np.broadcast_to(allowed, shape)
    except ValueError:
        raise ValueError(
            f"attention: wants a mask that broadcasts to the scores' shape {list(shape)}, "
            f"got {list(allowed.shape)}"
        ) from None


def check_attention(
    q: Tensor | Array,
    k: Tensor | Array,
    v: Tensor | Array,
    mask: ArrayLike | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: PCG32 | None = None,
) -> tuple[tuple[int, ...], Mask | None, float]:
    """The scores' shape [..., Tq, Tk], the mask seen in that shape, and the scale.

    Arguments and errors as for `scaled_dot_product_attention`; q, k and v may be arrays.
    """
    given = f"q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}"
    if min(q.ndim, k.ndim, v.ndim) < 2 or k.shape[-1] != q.shape[-1] or v.shape[-2] != k.shape[-2]:
        raise ValueError(
            f"attention: wants q [..., Tq, d], k [..., Tk, d] and v [..., Tk, dv], got {given}"
        )
    if not q.dtype.kind == k.dtype.kind == v.dtype.kind == "f":
        raise TypeError(
            f"attention: wants floating-point q, k and v, got {q.dtype}, {k.dtype} and {v.dtype}: "
            "convert with .astype(np.float32)"
        )
    try:
        lead = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    except ValueError:
        raise ValueError(f"attention: the axes in front do not broadcast: {given}") from None
    shape = (*lead, q.shape[-2], k.shape[-2])
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"attention: wants 0 <= dropout < 1, got {dropout}")
    if dropout > 0 and not isinstance(rng, PCG32):
        raise ValueError(
            "attention: dropout draws from a generator that lives on from call to call: pass rng, "
            'for instance PCG32(0).substream("dropout") made once'
        )
    allowed = None if mask is None else _spread(mask, shape)
    return shape, allowed, 1.0 / math.sqrt(max(q.shape[-1], 1)) if scale is None else float(scale)
