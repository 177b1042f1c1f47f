# Tangled from book/2-transformer/L5.7-fused-attention.md
"""Fused attention: the output of attention, without ever holding all of its weights.

Arrays go through in blocks that fit the cache, shared among the threads. Two numbers are kept for
each query, and the backward pass computes the weights from them again. `fused_attention` and
`fused_attention_packed` record this for tensors. Rabe and Staats (2021); Dao et al. (2022).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.autograd import record, tensor_argument, unbroadcast
from tinyllm.num.pcg32 import PCG32
from tinyllm.num.threads import in_threads
from tinyllm.tensor import Tensor
from tinyllm.xfmr.attention import check_attention

__all__ = ["fused_attention", "fused_attention_packed"]

Array: TypeAlias = NDArray[Any]
Mask: TypeAlias = NDArray[np.bool_]
Part: TypeAlias = tuple[slice, ...]  # one slice for each axis in front of the last two

BLOCK = 1 << 18  # scores worked on at a time: 1 MiB in float32
FEW = 1024  # a head of fewer numbers is read as quickly from where it is as it is copied
FEW_KEYS = 64  # with fewer keys, looking at all scores is quicker than computing a bound
LEAST_ROWS = 32  # of a block: products of fewer rows are slow, however long the rows are
TILE = (256, 512)  # query rows and keys of a block in the backward pass, which holds two
SAFE = 16.0  # scores up to this size need no shift: e^16 is 9e6, e^-16 is 1e-7
WORTH_SHARING = 1 << 18  # fewer scores are computed before a second thread wakes up


def fused_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: PCG32 | None = None,
    rows: int | None = None,
) -> Tensor:
    """The output [..., Tq, dv] of `scaled_dot_product_attention`, without its weights.

    Arguments, output and errors as there. `rows` is the number of query rows worked on at a time, by
    default chosen by the sizes; ValueError if it is not positive. Memory grows with Tq + Tk, not with
    Tq * Tk. Dao et al. (2022), appendix B.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        tensor_argument("fused_attention", name, x)
    out, run = _forward((q.data, k.data, v.data), mask, scale, dropout, rng, rows)

    def backward(grad: Array) -> tuple[Array, ...]:
        into = [np.empty_like(x) for x in (run.q, run.k, run.v)]
        _backward(run, grad, into)
        return tuple(unbroadcast(g, x.shape) for g, x in zip(into, (q, k, v), strict=True))

    return record(out, (q, k, v), backward)


def fused_attention_packed(
    qkv: Tensor,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: PCG32 | None = None,
    rows: int | None = None,
) -> Tensor:
    """`fused_attention` of queries, keys and values that are in one array, one after the other.

    qkv [..., 3H, T, d]: H heads of queries, H of keys, H of values. Returns [..., H, T, d]. The
    gradient is one array too. ValueError for another shape; other arguments and errors as for
    `fused_attention`.
    """
    tensor_argument("fused_attention_packed", "qkv", qkv)
    if qkv.ndim < 3 or qkv.shape[-3] % 3:
        raise ValueError(f"fused_attention_packed: wants [..., 3H, T, d], got {list(qkv.shape)}")
    n = qkv.shape[-3] // 3
    thirds = [np.s_[..., i * n : (i + 1) * n, :, :] for i in range(3)]
    q, k, v = (qkv.data[third] for third in thirds)
    out, run = _forward((q, k, v), mask, scale, dropout, rng, rows)

    def backward(grad: Array) -> tuple[Array]:
        whole = np.empty_like(qkv.data, dtype=run.q.dtype)
        _backward(run, grad, [whole[third] for third in thirds])
        return (whole,)

    return record(out, (qkv,), backward)


@dataclass
class _Run:
    """A forward pass: its inputs, its output, and what its backward pass needs besides."""

    q: Array  # [..., Tq, d], with all the axes in front, like the others
    k: Array  # [..., Tk, d]
    v: Array  # [..., Tk, dv]
    allowed: Mask | None  # [..., Tq, Tk]
    scale: float
    drop: _Dropout | None
    rows: int | None  # of a block, where the caller has chosen
    parts: list[Part]
    spoiled: tuple[Mask, Mask] | None  # [..., Tq, 1]: whose scores, whose output garbage reaches
    out: Array  # [..., Tq, dv]
    weights: Array | None  # [..., Tq, Tk], where they take no more memory than the inputs
    total: Array  # [..., Tq, 1], the sums of eq. blockwise, where the weights are not kept
    shift: Array  # [..., Tq, 1], its shifts

    @property
    def shape(self) -> tuple[int, ...]:
        """The scores' shape."""
        return (*self.q.shape[:-1], self.k.shape[-2])


def _forward(
    inputs: tuple[Array, Array, Array],
    mask: ArrayLike | None,
    scale: float | None,
    dropout: float,
    rng: PCG32 | None,
    rows: int | None,
) -> tuple[Array, _Run]:
    """The output of attention, and what the backward pass needs."""
    shape, allowed, scale = check_attention(*inputs, mask, scale, dropout, rng)
    if rows is not None and rows < 1:
        raise ValueError(f"fused_attention: wants at least 1 query row at a time, got rows={rows}")
    dtype = np.result_type(*inputs, np.float32)
    q, k, v = (_lead(x.astype(dtype, copy=False), shape[:-2]) for x in inputs)
    q, k, v, spoiled = _clean(q, k, v, allowed)
    short = math.prod(shape[-2:]) <= sum(shape[-2:]) * (q.shape[-1] + v.shape[-1])
    run = _Run(
        q,
        k,
        v,
        allowed,
        scale,
        drop=None if rng is None or dropout == 0 else _Dropout(dropout, rng, shape),
        rows=rows,
        parts=_parts(shape, rows),
        spoiled=spoiled,
        out=np.empty_like(q, shape=(*shape[:-1], v.shape[-1])),
        weights=np.empty(shape, dtype) if short and rows is None else None,
        total=np.empty((*shape[:-1], 1), dtype),
        shift=np.zeros((*shape[:-1], 1), dtype),
    )
    if not run.parts:
        run.out[...] = 0  # no key, or nothing at all
    work = _forward_blocks if run.weights is None else _forward_kept
    in_threads(partial(work, run), run.parts, math.prod(shape) >= WORTH_SHARING)
    out = run.out if spoiled is None else np.where(spoiled[1], np.nan, run.out)
    return out.astype(np.result_type(*inputs), copy=False), run


def _backward(run: _Run, grad: Array, into: Sequence[Array]) -> None:
    """Fill the gradients of q, k and v into three arrays; `grad` [..., Tq, dv] is the output's."""
    if not run.parts:
        for array in into:
            array[...] = 0
        return
    grad, lost = _clean_gradient(run, grad.astype(run.q.dtype, copy=False))
    work = _backward_blocks if run.weights is None else _backward_kept

    def one(part: Part) -> None:
        work(run, part, grad[part], [array[part] for array in into])

    in_threads(one, run.parts, math.prod(run.shape) >= WORTH_SHARING)
    if lost is not None:
        for array, rows in zip(into, lost, strict=True):
            np.copyto(array, np.nan, where=rows)


def _clean(
    q: Array, k: Array, v: Array, allowed: Mask | None
) -> tuple[Array, Array, Array, tuple[Mask, Mask] | None]:
    """q, k and v with 0 in rows that are not finite, and whom these reach."""
    if allowed is None or all(map(_finite, (q, k, v))):
        return q, k, v, None
    bad = [~np.isfinite(x).all(axis=-1, keepdims=True) for x in (q, k, v)]
    scores = bad[0] & allowed.any(axis=-1, keepdims=True) | allowed @ bad[1]  # [..., Tq, 1]
    q, k, v = (np.where(rows, 0, x) for rows, x in zip(bad, (q, k, v), strict=True))
    return q, k, v, (scores, scores | allowed @ bad[2])


def _clean_gradient(run: _Run, grad: Array) -> tuple[Array, tuple[Mask, Mask, Mask] | None]:
    """The gradient with 0 in rows that are spoiled, and the rows of dq, dk and dv these reach."""
    if run.allowed is None or run.spoiled is None and _finite(grad):
        return grad, None
    bad = ~np.isfinite(grad).all(axis=-1, keepdims=True)  # [..., Tq, 1]
    asked = (grad != 0).any(axis=-1, keepdims=True)
    scores, output = (bad, bad) if run.spoiled is None else run.spoiled
    slopes = (bad | output & asked) & run.allowed.any(axis=-1, keepdims=True)
    weights = bad | scores & asked
    readers = run.allowed.swapaxes(-1, -2)  # [..., Tk, Tq]
    return np.where(bad | scores, 0, grad), (slopes, readers @ slopes, readers @ weights)


def _finite(x: Array) -> bool:
    """Whether there is neither NaN nor inf in x; their sum cannot hide one."""
    with np.errstate(invalid="ignore", over="ignore"):
        return math.isfinite(x.sum())


def _quiet(run: _Run) -> AbstractContextManager[None]:
    """Where a mask may hide huge numbers, their overflow is no reason to warn."""
    return nullcontext() if run.allowed is None else np.errstate(invalid="ignore", over="ignore")


def _parts(shape: tuple[int, ...], rows: int | None) -> list[Part]:
    """Groups of heads of about BLOCK scores; a head that is larger is a group by itself."""
    *lead, Tq, Tk = shape
    if 0 in shape:
        return []
    if math.prod(shape) <= BLOCK and rows is None:
        return [tuple(slice(0, n) for n in lead)]
    budget = BLOCK if rows is None else 0
    size, steps = Tq * Tk, list[int]()
    for n in reversed(lead):
        steps.append(max(1, min(n, budget // size)))
        size *= n
    cuts = [_slices(n, step) for n, step in zip(lead, reversed(steps), strict=True)]
    return list(itertools.product(*cuts))


def _forward_kept(run: _Run, part: Part) -> None:
    """Fill in the output and the weights of one part."""
    assert run.weights is not None
    allowed = None if run.allowed is None else run.allowed[part]
    with _quiet(run):
        q, keys_T = run.q[part], _turned(_near(run.k[part]), run.scale)  # [..., d, Tk]
        w = np.matmul(q, keys_T, out=run.weights[part])  # eq. blockwise
        look = w.shape[-1] < FEW_KEYS or not _small(q, keys_T)
        if look and (shift := _shift(w, allowed)) is not None:
            w -= shift
        np.exp(w, out=w)
        if allowed is not None:
            np.copyto(w, 0, where=~allowed)
        w /= _alive(_row_sums(w))  # eq. blockwise
        used = w if run.drop is None else w * run.drop.factors(part, w.dtype)
        np.matmul(used, run.v[part], out=run.out[part])


def _backward_kept(run: _Run, part: Part, grad: Array, into: Sequence[Array]) -> None:
    """Fill in the gradients of one part, whose weights were kept."""
    assert run.weights is not None
    q, k, v, w, dq, dk, dv = run.q[part], run.k[part], run.v[part], run.weights[part], *into
    with _quiet(run):
        delta = np.einsum("...c,...c->...", grad, run.out[part])[..., None]  # eq. delta
        delta *= run.scale
        ds = np.matmul(grad, _turned(_near(v), run.scale))
        used = w
        if run.drop is not None:
            factors = run.drop.factors(part, w.dtype)
            used = w * factors
            ds *= factors
        ds -= delta
        ds *= w  # eq. softmax-grad
        if run.allowed is not None:
            np.copyto(ds, 0, where=~run.allowed[part])
        np.matmul(ds, k, out=dq)
        np.matmul(ds.swapaxes(-1, -2), q, out=dk)
        np.matmul(used.swapaxes(-1, -2), grad, out=dv)


def _forward_blocks(run: _Run, part: Part) -> None:
    """Fill in the output, the sums and the shifts of one part."""
    v = _with_ones(run.v[part])  # [..., Tk, dv + 1]
    keys_T = _turned(_near(run.k[part]), run.scale)  # [..., d, Tk]
    look = not _small(run.q[part], keys_T)
    buffer, drop, Tk = _Buffer(v.dtype), run.drop, run.shape[-1]
    for rows in _cut(run, part, max(LEAST_ROWS, BLOCK // Tk), Tk)[0]:
        out, total = run.out[part][..., rows, :], run.total[part][..., rows, :]
        allowed, keys = _visible(run, part, rows)
        if keys.start == keys.stop:  # nobody reads anything
            out[...], total[...] = 0, 1
            continue
        with _quiet(run):
            e = _exponentials(run, part, rows, keys, keys_T, allowed, buffer, look)
            used = e if drop is None else e * drop.factors((*part, rows), e.dtype)[..., keys]
            read = np.matmul(used, v[..., keys, :])
            sums = read[..., -1:] if drop is None else _row_sums(e)
            total[...] = _alive(sums)
            np.divide(read[..., :-1], total, out=out)  # eq. blockwise


def _visible(run: _Run, part: Part, rows: slice) -> tuple[Mask | None, slice]:
    """The mask of a block of rows, and the keys from the first to the last that one may read."""
    if run.allowed is None:
        return None, slice(0, run.shape[-1])
    allowed = run.allowed[part][..., rows, :]
    read = np.flatnonzero(allowed.any(axis=tuple(range(allowed.ndim - 1))))
    keys = slice(int(read[0]), int(read[-1]) + 1) if len(read) else slice(0, 0)
    return allowed[..., keys], keys


def _cut(run: _Run, part: Part, rows: int, keys: int) -> tuple[list[slice], list[slice]]:
    """The rows and the keys of a part's blocks. Only a part of one head is cut."""
    Tq, Tk = run.shape[-2:]
    if any(s.stop - s.start > 1 for s in part):
        rows, keys = Tq, Tk
    elif run.rows is not None:
        rows = run.rows
    return _slices(Tq, rows), _slices(Tk, keys)


def _exponentials(
    run: _Run,
    part: Part,
    rows: slice,
    keys: slice,
    keys_T: Array,
    allowed: Mask | None,
    buffer: _Buffer,
    look: bool = False,
) -> Array:
    """exp(scores - shift) of a block; exactly 0 where a query may not read."""
    q, shift = run.q[part][..., rows, :], run.shift[part][..., rows, :]
    e = buffer((*q.shape[:-1], keys.stop - keys.start))
    np.matmul(q, keys_T[..., keys], out=e)  # eq. blockwise
    if look and (needed := _shift(e, allowed)) is not None:
        shift[...] = needed
    if shift.any():
        e -= shift
    np.exp(e, out=e)
    if allowed is not None:
        np.copyto(e, 0, where=~allowed)
    return e


def _backward_blocks(run: _Run, part: Part, grad: Array, into: Sequence[Array]) -> None:
    """Fill in the gradients of one part, block by block."""
    q, k, v = _near(run.q[part]), _near(run.k[part]), _near(run.v[part])
    row_blocks, key_blocks = _cut(run, part, *TILE)
    alone = len(row_blocks) == len(key_blocks) == 1
    dq, dk, dv = into if alone else [np.zeros(x.shape, x.dtype) for x in into]
    put = _product_into if alone else _add_product
    buffers = _Buffer(q.dtype), _Buffer(q.dtype)
    with _quiet(run):
        g = _near(grad / run.total[part])  # [..., Tq, dv]
        delta = np.einsum("...c,...c->...", g, run.out[part])[..., None]  # eq. delta
        delta *= run.scale
        keys_T = _turned(k, run.scale)  # [..., d, Tk]
        values_T = _turned(v, run.scale)  # [..., dv, Tk]
        asks = g  # [..., Tq, dv]
        if run.drop is None:  # the product subtracts delta: [g, -delta] [sV, 1]^T
            asks = np.concatenate([g, -delta], axis=-1)
            ones = np.ones_like(values_T[..., :1, :])
            values_T = np.concatenate([values_T, ones], axis=-2)
        for rows, keys in itertools.product(row_blocks, key_blocks):
            allowed = None if run.allowed is None else run.allowed[part][..., rows, keys]
            if allowed is not None and not alone and not allowed.any():
                continue  # nobody may read anything
            if allowed is not None and allowed.all():
                allowed = None  # everybody may read everything
            e = _exponentials(run, part, rows, keys, keys_T, allowed, buffers[0])
            ds = buffers[1](e.shape)
            np.matmul(asks[..., rows, :], values_T[..., keys], out=ds)
            used = e
            if run.drop is not None:
                factors = run.drop.factors((*part, rows), e.dtype)[..., keys]
                used = e * factors
                ds *= factors
                ds -= delta[..., rows, :]
            ds *= e  # eq. block-grads
            if allowed is not None:
                np.copyto(ds, 0, where=~allowed)
            put(dq[..., rows, :], ds, k[..., keys, :])
            put(dk[..., keys, :], ds.swapaxes(-1, -2), q[..., rows, :])
            put(dv[..., keys, :], used.swapaxes(-1, -2), g[..., rows, :])
    if not alone:
        for array, total in zip(into, (dq, dk, dv), strict=True):
            array[...] = total


def _product_into(out: Array, a: Array, b: Array) -> None:
    np.matmul(a, b, out=out)


def _add_product(out: Array, a: Array, b: Array) -> None:
    out += a @ b


def _shift(scores: Array, allowed: Mask | None) -> Array | None:
    """By what each row has to be lowered [..., Tq, 1], or None where all scores are small."""
    if scores.min() > -SAFE and scores.max() < SAFE:
        return None
    where = True if allowed is None else allowed
    top = np.max(scores, axis=-1, keepdims=True, where=where, initial=-np.inf)
    low = np.min(scores, axis=-1, keepdims=True, where=where, initial=np.inf)
    shift: Array = np.where((low > -SAFE) & (top < SAFE), scores.dtype.type(0), top)
    return shift


def _small(q: Array, keys_T: Array) -> bool:
    """Whether no score can be large: |q . k| is at most |q| |k|, by Cauchy and Schwarz."""
    longest = [np.einsum("...c,...c->...", x, x).max() for x in (q, keys_T.swapaxes(-1, -2))]
    return bool(longest[0] * longest[1] < SAFE**2)


def _row_sums(e: Array) -> Array:
    """The sum of each row of exponentials [..., Tq, 1]."""
    sums: Array = e.reshape(-1, e.shape[-1]) @ np.ones(e.shape[-1], e.dtype)
    return sums.reshape(*e.shape[:-1], 1)


def _alive(sums: Array) -> Array:
    """The sums [..., Tq, 1] with 1 for a row that may read nothing."""
    sums[sums == 0] = 1
    return sums


class _Dropout:
    """By what each weight is multiplied: drawn for any block, at any time, always the same."""

    def __init__(self, rate: float, rng: PCG32, shape: tuple[int, ...]) -> None:
        self.rate, self.shape = rate, shape
        self.state = rng.state()
        rng.advance(math.prod(shape))  # these draws are taken

    def factors(self, part: Part, dtype: np.dtype[Any]) -> Array:
        """0 or 1 / (1 - rate) for the weights of a part, cut along axes in front of the keys."""
        whole = [slice(0, n) for n in self.shape]
        places = [(s.start, s.stop) for s in (*part, *whole[len(part) :])]
        rng = PCG32()
        rng.set_state(self.state)
        rng.advance(int(np.ravel_multi_index([start for start, _ in places], self.shape)))
        kept = rng.uniform(0.0, 1.0, tuple(stop - start for start, stop in places)) >= self.rate
        factors: Array = kept * dtype.type(1.0 / (1.0 - self.rate))
        return factors


class _Buffer:
    """Memory that is used again for one block after another."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.memory = np.empty(0, dtype)

    def __call__(self, shape: tuple[int, ...]) -> Array:
        """An array of that shape; it holds anything."""
        size = math.prod(shape)
        if self.memory.size < size:
            self.memory = np.empty(size, self.memory.dtype)
        return self.memory[:size].reshape(shape)


def _slices(length: int, step: int) -> list[slice]:
    return [slice(i, min(i + step, length)) for i in range(0, length, step)]


def _near(x: Array) -> Array:
    """x [..., T, d] with the numbers of a head next to each other, unless there are few of them."""
    return x if x.shape[-2] * x.shape[-1] < FEW else np.ascontiguousarray(x)


def _with_ones(x: Array) -> Array:
    """x [..., T, d] with a column of ones behind: [..., T, d + 1], contiguous."""
    wide = np.ones((*x.shape[:-1], x.shape[-1] + 1), x.dtype)
    wide[..., :-1] = x
    return wide


def _turned(x: Array, scale: float) -> Array:
    """x [..., T, d], transposed and scaled: [..., d, T], contiguous."""
    turned: Array = np.multiply(x.swapaxes(-1, -2), scale, order="C")
    return turned


def _lead(x: Array, lead: tuple[int, ...]) -> Array:
    """x seen with these axes in front."""
    return x if x.shape[:-2] == lead else np.broadcast_to(x, lead + x.shape[-2:])
