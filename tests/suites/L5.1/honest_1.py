"""What the contract says, against torch's derivatives of the definition."""

import numpy as np
import pytest
import torch

from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor
from tinyllm.xfmr.attention import masked_softmax, scaled_dot_product_attention


def arrays(lead, Tq, Tk, d, dv, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(*lead, *s)) for s in ((Tq, d), (Tk, d), (Tk, dv), (Tq, dv), (Tq, Tk))]


def definition(q, k, v, mask, scale, kept=1.0):
    scores = q @ k.mT * scale
    if mask is None:
        weights = torch.softmax(scores, -1)
    else:
        mask = torch.tensor(np.broadcast_to(mask, scores.shape).copy())
        live = mask.any(-1, keepdim=True)
        weights = torch.softmax(torch.where(mask | ~live, scores, -torch.inf), -1) * live
    return (weights * kept) @ v, weights


def compare(parts, mask=None, scale=None, asks=(1, 1, 1)):
    *qkv, grad, weights_grad = parts
    theirs = [torch.tensor(x, requires_grad=True) for x in qkv]
    want, weights = definition(*theirs, mask, qkv[0].shape[-1] ** -0.5 if scale is None else scale)
    ours = [Tensor(x, requires_grad=bool(a)) for x, a in zip(qkv, asks, strict=True)]
    out, found = scaled_dot_product_attention(*ours, mask, scale=scale)
    np.testing.assert_allclose(out.data, want.detach(), atol=1e-10)
    np.testing.assert_allclose(found.data, weights.detach(), atol=1e-10)
    (out * Tensor(grad)).sum().backward(retain_graph=True)
    if asks[0]:
        (found * Tensor(weights_grad)).sum().backward()
        (weights * torch.tensor(weights_grad)).sum().backward(retain_graph=True)
    (want * torch.tensor(grad)).sum().backward()
    for mine, its, a in zip(ours, theirs, asks, strict=True):
        if a and (asks[0] or mine is ours[2]):
            np.testing.assert_allclose(mine.grad, its.grad, atol=1e-9)


SIZES = [
    ((), 1, 1, 1, 1),
    ((2, 3), 5, 7, 4, 6),
    ((9,), 1, 5, 3, 2),
    ((2,), 40, 300, 2, 3),
    ((70, 1), 2, 1, 66, 2),
]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("scale", [None, 0.3])
def test_definition(sizes, scale):
    parts = arrays(*sizes)
    mask = np.random.default_rng(1).random((*sizes[0], *sizes[1:3])) > 0.4
    for given in (None, mask, mask[..., :1, :], mask[..., :1]):
        compare(parts, given, scale)


@pytest.mark.parametrize("asks", [(1, 0, 0), (0, 0, 1), (1, 0, 1), (1, 1, 0)])
def test_who_asks(asks):
    compare(arrays((2,), 4, 5, 3, 2), np.tri(4, 5, 1, dtype=bool), asks=asks)


def test_shared_axes():
    rng = np.random.default_rng(3)
    q, k, v = (
        rng.normal(size=(2, 3, 4, 5)),
        rng.normal(size=(3, 6, 5)),
        rng.normal(size=(2, 1, 6, 2)),
    )
    theirs = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    ours = [Tensor(x, requires_grad=True) for x in (q, k, v)]
    want, weights = definition(*theirs, None, 5**-0.5)
    out, found = scaled_dot_product_attention(*ours)
    np.testing.assert_allclose(out.data, want.detach(), atol=1e-10)
    np.testing.assert_allclose(found.data, weights.detach(), atol=1e-10)
    out.sum().backward()
    want.sum().backward()
    for mine, its in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.grad, its.grad, atol=1e-9)
    lone = scaled_dot_product_attention(Tensor(q[0, 0]), Tensor(k[0]), Tensor(v))
    assert lone[1].shape == (2, 1, 4, 6)


@pytest.mark.parametrize("garbage", [np.nan, np.inf, 1e308])
@pytest.mark.parametrize("where", ["k", "v", "both", "q"])
def test_what_is_masked_does_not_matter(garbage, where):
    q, k, v, grad, _ = arrays((2,), 5, 5, 3, 3)
    mask = np.ones((5, 5), bool)
    mask[:, 3] = mask[2] = False
    grad[:, 2] = 0

    def run():
        leaves = [Tensor(x.copy(), requires_grad=True) for x in (q, k, v)]
        out, weights = scaled_dot_product_attention(*leaves, mask)
        out.backward(grad)
        return [out.data, weights.data, *(x.grad for x in leaves)]

    before = run()
    for name, x in (("k", k), ("v", v)):
        if where in (name, "both"):
            x[:, 3] = garbage
    if where == "q":
        q[:, 2] = garbage
    for x, y in zip(run(), before, strict=True):
        rows = [0, 1, 3, 4] if where == "q" and x.shape == y.shape == (2, 5, 3) else slice(None)
        np.testing.assert_allclose(x[:, rows], y[:, rows], atol=1e-12)


def test_garbage_is_seen_by_its_readers_only():
    q, k, v, grad, _ = arrays((2,), 4, 4, 3, 3)
    mask = np.tri(4, dtype=bool)
    for x in (k, v):
        clean = scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), mask)[0].data
        kept, x[0, 2] = x[0, 2].copy(), np.nan
        leaves = [Tensor(y, requires_grad=True) for y in (q, k, v)]
        out, weights = scaled_dot_product_attention(*leaves, mask)
        assert np.isnan(out.data[0, 2:]).all()
        np.testing.assert_allclose(out.data[0, :2], clean[0, :2])
        np.testing.assert_allclose(out.data[1], clean[1])
        assert (weights.data[..., ~mask] == 0).all()
        out.backward(np.where(np.arange(4)[:, None] < 2, grad, 0))
        for leaf in leaves:
            assert np.isfinite(leaf.grad).all()
        x[0, 2] = kept


def test_large_scores():
    parts = arrays((2,), 4, 5, 3, 2)
    parts[0] *= 400
    compare(parts)
    compare(parts, np.random.default_rng(0).random((4, 5)) > 0.3)


@pytest.mark.parametrize("rate", [0.3, 0.8])
@pytest.mark.parametrize("masked", [True, False])
def test_dropout(rate, masked):
    q, k, v, grad, _ = arrays((70,), 3, 4, 2, 2)
    mask = np.tri(3, 4, dtype=bool) if masked else None
    rng, own = PCG32(5), PCG32(5)
    for _ in range(2):
        kept = torch.tensor((rng.uniform(0.0, 1.0, (70, 3, 4)) >= rate) / (1 - rate))
        theirs = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
        want, weights = definition(*theirs, mask, 2**-0.5, kept)
        ours = [Tensor(x, requires_grad=True) for x in (q, k, v)]
        out, found = scaled_dot_product_attention(*ours, mask, dropout=rate, rng=own)
        np.testing.assert_allclose(out.data, want.detach(), atol=1e-10)
        np.testing.assert_allclose(found.data, weights.detach(), atol=1e-10)
        out.backward(grad)
        want.backward(torch.tensor(grad))
        for mine, its in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(mine.grad, its.grad, atol=1e-9)


def test_half_precision():
    q, k, v, _, _ = arrays((2,), 5, 5, 16, 3)
    half = [(3 * x).astype(np.float16) for x in (q, k, v)]
    out, weights = scaled_dot_product_attention(*map(Tensor, half))
    assert out.dtype == weights.dtype == np.float16
    exact, _ = scaled_dot_product_attention(*(Tensor(x.astype(np.float64)) for x in half))
    np.testing.assert_allclose(out.data, exact.data, atol=2e-2)
    big = np.full((4, 4), 200, np.float16)
    assert (scaled_dot_product_attention(*[Tensor(big)] * 3)[0].data == 200).all()
    single = [Tensor(x.astype(np.float32)) for x in (q, k, v)]
    for mask in (None, np.tri(5, dtype=bool)):
        assert {x.dtype for x in scaled_dot_product_attention(*single, mask)} == {np.dtype("f4")}


def test_calls_are_apart():
    q, k, v, _, _ = arrays((2,), 4, 4, 3, 3)
    mask, kept = np.tri(4, dtype=bool), []
    for i in range(4):
        mask[:, i] = True
        found = scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), mask)
        want = definition(*map(torch.tensor, (q, k, v)), mask, 3**-0.5)
        kept.append([(x.data, y.numpy()) for x, y in zip(found, want, strict=True)])
    for x, y in (pair for pairs in kept for pair in pairs):
        np.testing.assert_allclose(x, y, atol=1e-12)


def test_refusals():
    q, k, v, _, _ = map(Tensor, arrays((2,), 4, 5, 3, 2))
    for mask in (np.ones((4, 5)), np.ones((4, 5), np.int8), np.where(np.tri(4, 5), 0, -np.inf)):
        with pytest.raises(TypeError):
            scaled_dot_product_attention(q, k, v, mask)
        with pytest.raises(TypeError):
            masked_softmax(Tensor(np.ones((4, 5))), mask)
    for shape in ((5, 4), (3, 4, 5), (4,)):
        with pytest.raises(ValueError):
            scaled_dot_product_attention(q, k, v, np.ones(shape, bool))
    for rate in (-0.1, 1.0):
        with pytest.raises(ValueError):
            scaled_dot_product_attention(q, k, v, dropout=rate, rng=PCG32(0))
    with pytest.raises(ValueError):
        scaled_dot_product_attention(q, k, v, dropout=0.5)
    with pytest.raises(ValueError):
        scaled_dot_product_attention(q, v, k)
    with pytest.raises(TypeError):
        scaled_dot_product_attention(q.data, k, v)
