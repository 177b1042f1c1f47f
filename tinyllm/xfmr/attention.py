# Tangled from book/2-transformer/L5.1-attention.md
"""Scaled dot-product attention: each query reads a mean of values, weighted by their keys.

`attend` goes step by step and returns the weights. `attention` is one operation with a backward
pass of its own, which works through a long sequence block by block and keeps no weights. Both give the
same numbers. Vaswani et al., "Attention Is All You Need" (2017), section 3.2.1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.autograd import record, tensor_argument, unbroadcast
from tinyllm.num.pcg32 import PCG32
from tinyllm.num.threads import in_threads
from tinyllm.tensor import Tensor

__all__ = ["attend", "attention", "attention_packed", "bool_mask", "masked_softmax"]

Array: TypeAlias = NDArray[Any]
Mask: TypeAlias = NDArray[np.bool_]
Part: TypeAlias = tuple[slice, ...]  # one slice for each axis in front of the last two

BLOCK = 1 << 18  # scores worked on at a time: 1 MiB in float32
FEW = 1024  # numbers of a head that are as quickly read from where they lie as copied
FEW_KEYS = 64  # of fewer, all scores are looked at sooner than the lengths of queries and keys
LEAST_ROWS = 32  # of a block: products of fewer rows are slow, however long these are
TILE = (256, 512)  # query rows and keys of a block in the backward pass, which holds two
SAFE = 16.0  # scores up to this size need no shift: e^16 is 9e6, e^-16 is 1e-7
WORTH_SHARING = 1 << 18  # fewer scores are done before a second thread has woken up


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: PCG32 | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention step by step: what each query reads, and its weights; both can be differentiated.

    q [..., Tq, d], k [..., Tk, d], v [..., Tk, dv], floating point; the axes in front broadcast.
    `mask` is bool, True = may attend, and broadcasts to [..., Tq, Tk]. `scale` is 1/sqrt(d) unless
    given. With `dropout` > 0 weights are dropped at that rate, by draws from `rng`. Returns the
    output [..., Tq, dv] and the weights [..., Tq, Tk] before dropout, in the inputs' dtype;
    computed in float32 at least. A query that may read nothing has weights 0 and output 0.
    TypeError for a mask that is not bool and inputs that are not floating-point tensors, ValueError for
    shapes that do not fit and a rate outside [0, 1). Vaswani et al. (2017), eq. 1.
    """
    _must_be_tensors(q, k, v)
    shape, allowed, scale = _checked(q, k, v, mask, scale)
    drop = _dropout(dropout, rng, shape)
    dtype = np.result_type(q.dtype, k.dtype, v.dtype)
    q, k, v = (_cast(x, np.result_type(dtype, np.float32)) for x in (q, k, v))
    if q.shape[:-2] != shape[:-2]:  # then v's alone may have these axes
        q = q.broadcast_to(*shape[:-1], q.shape[-1])
    weights = masked_softmax(_scores(q, k, scale, allowed), allowed)  # [..., Tq, Tk]
    used = weights if drop is None else drop(weights)
    context = _context(used, v, allowed)  # [..., Tq, dv]
    return _cast(context, dtype), _cast(weights, dtype)


def _scores(q: Tensor, k: Tensor, scale: float, allowed: Mask | None) -> Tensor:
    """Every query's scaled inner product with every key [..., Tq, Tk]."""
    queries, keys = q.data, k.data
    with _quiet(allowed):
        scores = queries @ keys.swapaxes(-1, -2) * scale  # eq. attention

    def backward(grad: Array) -> tuple[Array, Array]:
        reads = _asked(allowed, grad)
        with _quiet(allowed):
            ds = grad * scale
            dq = _product(ds, keys, reads)  # eq. product-grads
            dk = _transposed_product(ds, queries, reads)
        return unbroadcast(dq, q.shape), unbroadcast(dk, k.shape)

    return record(scores, (q, k), backward)


def masked_softmax(scores: Tensor, mask: ArrayLike | None = None) -> Tensor:
    """Softmax over the last axis of what `mask` allows; exactly 0 elsewhere.

    scores [..., Tq, Tk] floating point; mask bool, True = may attend, broadcasts to the scores. A
    row in which nothing is allowed is 0. What stands in the places that are not allowed does not
    matter, be it NaN.
    """
    tensor_argument("masked_softmax", "scores", scores)
    if scores.dtype.kind != "f":
        raise TypeError(f"masked_softmax: wants floating-point scores, got {scores.dtype}")
    allowed = None if mask is None else _spread(bool_mask(mask), scores.shape)
    with _quiet(allowed):
        s = _select(allowed, scores.data, -np.inf)
        top = s.max(axis=-1, keepdims=True, initial=-np.inf)  # [..., Tq, 1]
        if allowed is not None:
            top[~allowed.any(axis=-1, keepdims=True)] = 0  # dead rows: -inf less -inf is NaN
        e = np.exp(s - top)
        total = e.sum(axis=-1, keepdims=True)
        weights = _select(allowed, e / np.where(total == 0, 1, total))  # eq. softmax

    def backward(grad: Array) -> tuple[Array]:
        reads = _asked(allowed, grad)
        with _quiet(allowed):
            mean = (_select(reads, weights) * _select(reads, grad)).sum(axis=-1, keepdims=True)
            return (_select(reads, weights * (grad - mean)),)  # eq. softmax-grad

    return record(weights, (scores,), backward)


def _context(weights: Tensor, v: Tensor, allowed: Mask | None) -> Tensor:
    """The weighted mean of the values [..., Tq, dv]."""
    w, values = weights.data, v.data
    with _quiet(allowed):
        context = _product(w, values, allowed)  # eq. attention

    def backward(grad: Array) -> tuple[Array, Array]:
        reads = _asked(allowed, grad)
        with _quiet(allowed):
            dw = _select(reads, grad @ values.swapaxes(-1, -2))  # eq. product-grads
            dv = _transposed_product(_select(reads, w), grad, reads)
        return unbroadcast(dw, weights.shape), unbroadcast(dv, v.shape)

    return record(context, (weights, v), backward)


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


def _spread(mask: Mask, shape: tuple[int, ...]) -> Mask:
    """The mask, seen in the scores' shape; nothing is copied."""
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        raise ValueError(
            f"attention: wants a mask that broadcasts to the scores' shape {list(shape)}, "
            f"got {list(mask.shape)}"
        ) from None


def _cast(x: Tensor, dtype: np.dtype[Any]) -> Tensor:
    return x if x.dtype == dtype else x.astype(dtype)


def _must_be_tensors(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        tensor_argument("attention", name, x)


def _shapes(q: Tensor | Array, k: Tensor | Array, v: Tensor | Array) -> str:
    return f"q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}"


def _checked(
    q: Tensor | Array,
    k: Tensor | Array,
    v: Tensor | Array,
    mask: ArrayLike | None,
    scale: float | None,
) -> tuple[tuple[int, ...], Mask | None, float]:
    """The scores' shape, the mask seen in that shape, and the scale."""
    if min(q.ndim, k.ndim, v.ndim) < 2 or k.shape[-1] != q.shape[-1] or v.shape[-2] != k.shape[-2]:
        raise ValueError(
            "attention: wants q [..., Tq, d], k [..., Tk, d] and v [..., Tk, dv], "
            f"got {_shapes(q, k, v)}"
        )
    if not q.dtype.kind == k.dtype.kind == v.dtype.kind == "f":
        raise TypeError(
            f"attention: wants floating-point q, k and v, got {q.dtype}, {k.dtype} and {v.dtype}: "
            "convert with .astype(np.float32)"
        )
    lead = q.shape[:-2]
    if not lead == k.shape[:-2] == v.shape[:-2]:
        try:
            lead = np.broadcast_shapes(lead, k.shape[:-2], v.shape[:-2])
        except ValueError:
            raise ValueError(
                f"attention: the axes in front do not broadcast: {_shapes(q, k, v)}"
            ) from None
    shape = (*lead, q.shape[-2], k.shape[-2])
    allowed = None if mask is None else _spread(bool_mask(mask), shape)
    return shape, allowed, 1.0 / math.sqrt(max(q.shape[-1], 1)) if scale is None else float(scale)


def _select(allowed: Mask | None, x: Array, other: float = 0.0) -> Array:
    """`x` where allowed and `other` elsewhere, whatever stands there."""
    return x if allowed is None else np.where(allowed, x, x.dtype.type(other))


def _asked(allowed: Mask | None, grad: Array) -> Mask | None:
    """What is allowed, in the rows of those queries about which the loss asks at all."""
    return None if allowed is None else allowed & (grad != 0).any(axis=-1, keepdims=True)


def _quiet(allowed: Mask | None) -> AbstractContextManager[None]:
    """Where a mask may hide infinite numbers, their arithmetic is no reason to warn."""
    return nullcontext() if allowed is None else np.errstate(invalid="ignore", over="ignore")


def _product(a: Array, b: Array, allowed: Mask | None = None, out: Array | None = None) -> Array:
    """a [..., m, n] @ b [..., n, d]; entry (i, j) of a meets row j of b only where allowed."""
    if allowed is None or _finite(b):
        return np.matmul(a, b, out=out)
    bad: Mask = np.logical_not(np.isfinite(b).all(axis=-1))  # [..., n]
    product: Array = np.matmul(a, np.where(bad[..., None], 0, b), out=out)
    for j in np.flatnonzero(bad.any(axis=tuple(range(bad.ndim - 1)))):
        reads = allowed[..., j] & bad[..., None, j]  # [..., m]
        share = a[..., j, None] * b[..., None, j, :]  # [..., m, d]
        np.add(product, share, out=product, where=reads[..., None])
    return product


def _transposed_product(
    a: Array, b: Array, allowed: Mask | None = None, out: Array | None = None
) -> Array:
    """a^T b with the mask of a: a [..., m, n], b [..., m, d] -> [..., n, d]."""
    turned = None if allowed is None else allowed.swapaxes(-1, -2)
    return _product(a.swapaxes(-1, -2), b, turned, out)


def _finite(x: Array) -> bool:
    """Whether there is neither NaN nor inf in x; their sum cannot hide one."""
    return math.isfinite(x.sum())


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

    def __call__(self, weights: Tensor) -> Tensor:
        """All weights [..., Tq, Tk] after dropout."""
        if 0 in self.shape:
            return weights
        factors = self.factors((), weights.dtype)
        return record(weights.data * factors, (weights,), lambda grad: (grad * factors,))


def _dropout(rate: float, rng: PCG32 | None, shape: tuple[int, ...]) -> _Dropout | None:
    """The dropout of a run, or None for a rate of 0."""
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"attention: wants 0 <= dropout < 1, got {rate}")
    if rate == 0.0:
        return None
    if rng is None:
        raise ValueError(
            "attention: dropout draws from a generator that lives on from call to call: pass rng, "
            'for instance PCG32(0).substream("dropout") made once'
        )
    return _Dropout(rate, rng, shape)


def attention(
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
    """What `attend` returns first, as one operation that keeps no weights of long sequences.

    Arguments, output and errors as for `attend`. `rows` is the number of query rows worked on at a
    time, by default chosen by the sizes; memory grows with Tq + Tk, not with Tq * Tk. Dao et al.
    (2022), appendix B.
    """
    _must_be_tensors(q, k, v)
    shape, allowed, scale = _checked(q, k, v, mask, scale)
    drop = _dropout(dropout, rng, shape)
    run = _compute((q.data, k.data, v.data), shape, allowed, scale, drop, rows)

    def backward(grad: Array) -> tuple[Array, ...]:
        into = [np.empty_like(x) for x in (run.q, run.k, run.v)]
        run.gradients(grad, into)
        return tuple(unbroadcast(g, x.shape) for g, x in zip(into, (q, k, v), strict=True))

    dtype = np.result_type(q.dtype, k.dtype, v.dtype)
    return record(run.out.astype(dtype, copy=False), (q, k, v), backward)


def attention_packed(
    qkv: Tensor,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: PCG32 | None = None,
    rows: int | None = None,
) -> Tensor:
    """`attention` of queries, keys and values that lie in one array, one after the other.

    qkv [..., 3H, T, d]: H heads of queries, H of keys, H of values. Returns [..., H, T, d]. The
    gradient is one array too. Other arguments and errors as for `attention`.
    """
    tensor_argument("attention_packed", "qkv", qkv)
    if qkv.ndim < 3 or qkv.shape[-3] % 3:
        raise ValueError(f"attention_packed: wants [..., 3H, T, d], got {list(qkv.shape)}")
    n = qkv.shape[-3] // 3
    thirds = [np.s_[..., i * n : (i + 1) * n, :, :] for i in range(3)]
    q, k, v = (qkv.data[third] for third in thirds)
    shape, allowed, scale = _checked(q, k, v, mask, scale)
    run = _compute((q, k, v), shape, allowed, scale, _dropout(dropout, rng, shape), rows)

    def backward(grad: Array) -> tuple[Array]:
        whole = np.empty_like(qkv.data, dtype=run.dtype)
        run.gradients(grad, [whole[third] for third in thirds])
        return (whole,)

    return record(run.out.astype(qkv.dtype, copy=False), (qkv,), backward)


def _compute(
    inputs: tuple[Array, Array, Array],
    shape: tuple[int, ...],
    allowed: Mask | None,
    scale: float,
    drop: _Dropout | None,
    rows: int | None,
) -> _Attention:
    """The run for these inputs, whose scores have this shape, with its output worked out."""
    if rows is not None and rows < 1:
        raise ValueError(f"attention: wants at least 1 query row at a time, got rows={rows}")
    Tq, Tk = shape[-2:]
    short = Tq * Tk <= (Tq + Tk) * (inputs[0].shape[-1] + inputs[2].shape[-1])
    kind = _Kept if short and rows is None else _Blockwise
    return kind(inputs, shape, allowed, scale, drop, rows)


class _Attention:
    """One run of attention: inputs, output, and the parts it is cut into."""

    def __init__(
        self,
        inputs: tuple[Array, Array, Array],
        shape: tuple[int, ...],
        allowed: Mask | None,
        scale: float,
        drop: _Dropout | None,
        rows: int | None,
    ) -> None:
        self.dtype = np.result_type(*inputs, np.float32)
        self.shape, self.allowed, self.scale, self.drop, self.rows = (
            shape,
            allowed,
            scale,
            drop,
            rows,
        )
        self.q, self.k, self.v = (
            _lead(x.astype(self.dtype, copy=False), shape[:-2]) for x in inputs
        )
        self.guard = False
        if allowed is not None:
            with _quiet(allowed):
                self.guard = not all(map(_finite, (self.q, self.k, self.v)))
        self.out = np.empty_like(self.q, shape=(*shape[:-1], self.v.shape[-1]))  # [..., Tq, dv]
        self.parts = self._parts()
        self._begin()
        if not self.parts:
            self.out[...] = 0  # no key, or nothing at all
        in_threads(self._forward, self.parts, self._worth_sharing())

    def _parts(self) -> list[Part]:
        """Groups of heads of about BLOCK scores; a head that is larger is a group by itself."""
        *lead, Tq, Tk = self.shape
        if 0 in self.shape:
            return []
        if math.prod(self.shape) <= BLOCK and self.rows is None:
            return [tuple(slice(0, n) for n in lead)]
        budget = BLOCK if self.rows is None else 0
        size, steps = Tq * Tk, list[int]()
        for n in reversed(lead):
            steps.append(max(1, min(n, budget // size)))
            size *= n
        parts: list[Part] = [()]
        for n, step in zip(lead, reversed(steps), strict=True):
            parts = [(*p, slice(i, min(i + step, n))) for p in parts for i in range(0, n, step)]
        return parts

    def gradients(self, grad: Array, into: Sequence[Array]) -> None:
        """Fill the gradients of q, k and v into three arrays; `grad` [..., Tq, dv] is the output's."""
        if not self.parts:
            for array in into:
                array[...] = 0
        grad = grad.astype(self.dtype, copy=False)
        if self.allowed is not None and not self.guard:
            with _quiet(self.allowed):
                self.guard = not _finite(grad)
        in_threads(
            lambda part: self._backward(part, grad[part], [array[part] for array in into]),
            self.parts,
            self._worth_sharing(),
        )

    def _worth_sharing(self) -> bool:
        return math.prod(self.shape) >= WORTH_SHARING

    def _begin(self) -> None:
        """Make what the parts write to."""

    def _forward(self, part: Part) -> None:
        """Fill in the output of one part."""
        raise NotImplementedError

    def _backward(self, part: Part, grad: Array, into: Sequence[Array]) -> None:
        """Fill in the gradients of one part."""
        raise NotImplementedError


class _Kept(_Attention):
    """A run that keeps its weights."""

    def _begin(self) -> None:
        self.kept: dict[tuple[int, ...], Array] = {}  # weights by the part's first indices

    def _forward(self, part: Part) -> None:
        """Fill in the output and the weights of one part."""
        allowed = None if self.allowed is None else self.allowed[part]
        with _quiet(allowed):
            q, keys_T = self.q[part], _turned(_near(self.k[part]), self.scale)  # [..., d, Tk]
            w = np.matmul(q, keys_T)  # eq. attention
            look = w.shape[-1] < FEW_KEYS or not _small(q, keys_T)
            if look and (shift := _shift(w, allowed)) is not None:
                w -= shift
            np.exp(w, out=w)
            if allowed is not None:
                np.copyto(w, 0, where=~allowed)
            w /= _alive(_row_sums(w), allowed)  # eq. softmax
            self.kept[tuple(s.start for s in part)] = w
            used = w if self.drop is None else w * self.drop.factors(part, self.dtype)
            _product(used, self.v[part], allowed if self.guard else None, out=self.out[part])

    def _backward(self, part: Part, grad: Array, into: Sequence[Array]) -> None:
        q, k, v, dq, dk, dv = self.q[part], self.k[part], self.v[part], *into
        w, reads = self.kept[tuple(s.start for s in part)], None
        if self.guard and self.allowed is not None:
            reads = _asked(self.allowed[part], grad)
            w = _select(reads, w)
        with _quiet(self.allowed):
            delta = np.einsum("...c,...c->...", grad, self.out[part])[..., None]  # eq. delta
            delta *= self.scale
            ds = np.matmul(grad, _turned(_near(v), self.scale))
            used = w
            if self.drop is not None:
                factors = self.drop.factors(part, self.dtype)
                used = w * factors
                ds *= factors
            ds -= delta
            ds *= w  # eq. softmax-grad
            if reads is not None:
                np.copyto(ds, 0, where=~reads)
            _product(ds, k, reads, out=dq)
            _transposed_product(ds, q, reads, out=dk)
            _transposed_product(used, grad, reads, out=dv)


class _Blockwise(_Attention):
    """A run that works the weights out again in its backward pass."""

    def _begin(self) -> None:
        self.total = np.empty_like(self.q, shape=(*self.shape[:-1], 1))  # the sums of eq. softmax
        self.shift = np.zeros_like(self.total)  # its shifts

    def _cut(self, part: Part, rows: int, keys: int) -> tuple[list[slice], list[slice]]:
        """The rows and the keys of a part's blocks. Only a part of one head is cut."""
        Tq, Tk = self.shape[-2:]
        if any(s.stop - s.start > 1 for s in part):
            rows, keys = Tq, Tk
        elif self.rows is not None:
            rows = self.rows
        return _slices(Tq, rows), _slices(Tk, keys)

    def _forward(self, part: Part) -> None:
        """Fill in the output and the sums of one part."""
        v = _with_ones(self.v[part])  # [..., Tk, dv + 1]
        keys_T = _turned(_near(self.k[part]), self.scale)  # [..., d, Tk]
        look = not _small(self.q[part], keys_T)
        buffer = _Buffer(self.dtype)
        for rows in self._cut(part, max(LEAST_ROWS, BLOCK // self.shape[-1]), self.shape[-1])[0]:
            out, total = self.out[part][..., rows, :], self.total[part][..., rows, :]
            allowed, keys = self._visible(part, rows)
            if keys.start == keys.stop:  # nobody reads anything
                out[...], total[...] = 0, 1
                continue
            with _quiet(allowed):
                e = self._exponentials(part, rows, keys, keys_T, allowed, buffer, look)
                used = e if self.drop is None else e * self._factors(part, rows)[..., keys]
                read = _product(used, v[..., keys, :], allowed if self.guard else None)
                sums = read[..., -1:] if self.drop is None else _row_sums(e)
                total[...] = _alive(sums, allowed)
                np.divide(read[..., :-1], total, out=out)  # eq. blockwise

    def _visible(self, part: Part, rows: slice) -> tuple[Mask | None, slice]:
        """The mask of a block of rows, and the keys from the first to the last that one may read."""
        if self.allowed is None:
            return None, slice(0, self.shape[-1])
        allowed = self.allowed[part][..., rows, :]
        read = np.flatnonzero(allowed.any(axis=tuple(range(allowed.ndim - 1))))
        keys = slice(int(read[0]), int(read[-1]) + 1) if len(read) else slice(0, 0)
        return allowed[..., keys], keys

    def _factors(self, part: Part, rows: slice) -> Array:
        """Dropout's factors for these rows and all keys."""
        assert self.drop is not None
        return self.drop.factors((*part, rows), self.dtype)

    def _exponentials(
        self,
        part: Part,
        rows: slice,
        keys: slice,
        keys_T: Array,
        allowed: Mask | None,
        buffer: _Buffer,
        look: bool = False,
    ) -> Array:
        """exp(scores - shift) of a block; exactly 0 where a query may not read."""
        q, shift = self.q[part][..., rows, :], self.shift[part][..., rows, :]
        e = buffer((*q.shape[:-1], keys.stop - keys.start))
        np.matmul(q, keys_T[..., keys], out=e)  # eq. attention
        if look and (needed := _shift(e, allowed)) is not None:
            shift[...] = needed
        if shift.any():
            e -= shift
        np.exp(e, out=e)
        if allowed is not None:
            np.copyto(e, 0, where=~allowed)
        return e

    def _backward(self, part: Part, grad: Array, into: Sequence[Array]) -> None:
        """Fill in the gradients of one part."""
        q, k, v = _near(self.q[part]), _near(self.k[part]), _near(self.v[part])
        row_blocks, key_blocks = self._cut(part, *TILE)
        alone = len(row_blocks) == len(key_blocks) == 1
        dq, dk, dv = into if alone else [np.zeros(x.shape, self.dtype) for x in into]
        add = _product_into if alone else _add_product
        buffers = _Buffer(self.dtype), _Buffer(self.dtype)
        with _quiet(self.allowed):
            g = _near(grad / self.total[part])  # [..., Tq, dv]
            delta = np.einsum("...c,...c->...", g, self.out[part])[..., None]  # eq. delta
            delta *= self.scale
            keys_T = _turned(k, self.scale)  # [..., d, Tk]
            values_T = _turned(v, self.scale)  # [..., dv, Tk]
            asks = g  # [..., Tq, dv]
            if self.drop is None:  # the product subtracts delta: [g, -delta] [sV, 1]^T
                asks = np.concatenate([g, -delta], axis=-1)
                ones = np.ones_like(values_T[..., :1, :])
                values_T = np.concatenate([values_T, ones], axis=-2)
            for rows, keys in itertools.product(row_blocks, key_blocks):
                allowed = None
                if self.allowed is not None:
                    allowed = self.allowed[part][..., rows, keys]
                    if not alone and not allowed.any():
                        continue
                    if self.guard:
                        allowed = _asked(allowed, grad[..., rows, :])
                    elif allowed.all():
                        allowed = None
                reads = allowed if self.guard else None
                e = self._exponentials(part, rows, keys, keys_T, allowed, buffers[0])
                ds = buffers[1](e.shape)
                np.matmul(asks[..., rows, :], values_T[..., keys], out=ds)
                used = e
                if self.drop is not None:
                    factors = self._factors(part, rows)[..., keys]
                    used = e * factors
                    ds *= factors
                    ds -= delta[..., rows, :]
                ds *= e  # eq. block-grads
                if allowed is not None:
                    np.copyto(ds, 0, where=~allowed)
                add(dq[..., rows, :], ds, k[..., keys, :], reads)
                add(dk[..., keys, :], ds, q[..., rows, :], reads, transposed=True)
                add(dv[..., keys, :], used, g[..., rows, :], reads, transposed=True)
        if not alone:
            for array, total in zip(into, (dq, dk, dv), strict=True):
                array[...] = total


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


def _alive(sums: Array, allowed: Mask | None) -> Array:
    """The sums [..., Tq, 1] with 1 for a row that may read nothing."""
    if allowed is not None:
        sums[sums == 0] = 1
    return sums


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


def _product_into(
    out: Array, a: Array, b: Array, allowed: Mask | None, transposed: bool = False
) -> None:
    (_transposed_product if transposed else _product)(a, b, allowed, out)


def _add_product(
    out: Array, a: Array, b: Array, allowed: Mask | None, transposed: bool = False
) -> None:
    out += (_transposed_product if transposed else _product)(a, b, allowed)
