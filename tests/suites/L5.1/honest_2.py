"""One query at a time, in loops, and finite differences for the gradients."""

import numpy as np
import pytest

from tinyllm.num.gradcheck import gradcheck
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor
from tinyllm.xfmr.attention import masked_softmax, scaled_dot_product_attention


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def loops(q, k, v, mask, scale):
    out, weights = np.zeros((len(q), v.shape[1])), np.zeros((len(q), len(k)))
    for i in range(len(q)):
        reads = np.flatnonzero(mask[i])
        if len(reads):
            s = np.array([scale * (q[i] @ k[j]) for j in reads])
            weights[i, reads] = np.exp(s - s.max()) / np.exp(s - s.max()).sum()
            out[i] = sum(weights[i, j] * v[j] for j in reads)
    return out, weights


@pytest.mark.parametrize(
    ("Tq", "Tk", "d", "dv"), [(4, 6, 3, 5), (1, 1, 1, 1), (3, 300, 70, 2), (66, 2, 2, 2)]
)
def test_one_at_a_time(Tq, Tk, d, dv):
    q, k, v = normal(6, Tq, d), normal(6, Tk, d, seed=1), normal(6, Tk, dv, seed=2)
    mask = normal(6, Tq, Tk, seed=3) > -0.5
    mask[4, 0] = False
    for given in (mask, None):
        for scale in (None, 0.2):
            out, weights = scaled_dot_product_attention(*map(Tensor, (q, k, v)), given, scale=scale)
            for b in range(6):
                own = np.ones((Tq, Tk), bool) if given is None else mask[b]
                want, w = loops(q[b], k[b], v[b], own, d**-0.5 if scale is None else scale)
                np.testing.assert_allclose(out.data[b], want, atol=1e-10)
                np.testing.assert_allclose(weights.data[b], w, atol=1e-10)


@pytest.mark.parametrize("scale", [None, 0.7])
def test_gradients(scale):
    mask = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]], bool)
    leaves = [Tensor(normal(2, n, 3, seed=i), requires_grad=True) for i, n in enumerate((3, 4, 4))]
    gradcheck(lambda q, k, v: scaled_dot_product_attention(q, k, v, mask, scale=scale), leaves)
    gradcheck(lambda q, k, v: scaled_dot_product_attention(q, k, v), leaves)
    shared = [leaves[0], Tensor(normal(4, 3), requires_grad=True), leaves[2]]
    gradcheck(lambda q, k, v: scaled_dot_product_attention(q, k, v), shared)
    gradcheck(
        lambda q, k, v: scaled_dot_product_attention(q, k, v, mask, dropout=0.4, rng=PCG32(1))[0],
        leaves,
    )
    gradcheck(lambda s: masked_softmax(s, mask), [Tensor(normal(2, 3, 4), requires_grad=True)])


def test_values_alone_have_samples():
    q, k, v = normal(3, 2), normal(4, 2, seed=1), normal(5, 4, 2, seed=2)
    out, weights = scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v))
    assert weights.shape == (5, 3, 4)
    want, w = loops(q, k, v[3], np.ones((3, 4), bool), 2**-0.5)
    np.testing.assert_allclose(out.data[3], want)
    np.testing.assert_allclose(weights.data[3], w)


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf])
def test_padding_may_hold_anything(garbage):
    q, k, v, grad = (normal(2, 4, 3, seed=i) for i in range(4))
    mask = np.tri(4, dtype=bool)
    mask[:, 2] = False
    results = []
    for dirty in (False, True):
        if dirty:
            k[:, 2], v[:, 2] = garbage, -garbage
        leaves = [Tensor(x.copy(), requires_grad=True) for x in (q, k, v)]
        out, weights = scaled_dot_product_attention(*leaves, mask)
        out.backward(grad)
        results.append([out.data, weights.data, *(x.grad for x in leaves)])
    for x, y in zip(*results, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-13)


def test_garbage_goes_to_readers():
    q, k, v, grad = (normal(4, 3, seed=i) for i in range(4))
    mask, clean = np.tri(4, dtype=bool), None
    grad[3] = 0
    for dirty in (False, True):
        for which in (0, 1, 2):
            arrays = [q.copy(), k.copy(), v.copy()]
            if dirty:
                arrays[which][3] = np.nan
            leaves = [Tensor(x, requires_grad=True) for x in arrays]
            out, weights = scaled_dot_product_attention(*leaves, mask)
            out.backward(grad)
            found = [out.data[:3], weights.data[:3], *(x.grad for x in leaves)]
            clean = clean or found
            for x, y in zip(found, clean, strict=True):
                np.testing.assert_allclose(x, y, atol=1e-12)
            assert np.isnan(out.data[3]).any() == dirty
            assert (weights.data[~mask] == 0).all()


def test_scores_of_a_thousand():
    out, weights = scaled_dot_product_attention(
        *(Tensor(np.array(x, float)) for x in ([[1000.0], [-1000]], [[1.0], [2]], [[3.0], [4]])),
        scale=1.0,
    )
    assert weights.data.tolist() == [[0, 1], [1, 0]]
    assert out.data.tolist() == [[4], [3]]


def test_dropout():
    x, own, rng = Tensor(normal(2, 5, 3)), PCG32(2), PCG32(2)
    plain, before = scaled_dot_product_attention(x, x, x)
    for _ in range(3):
        out, weights = scaled_dot_product_attention(x, x, x, dropout=0.25, rng=own)
        kept = rng.uniform(0.0, 1.0, (2, 5, 5)) >= 0.25
        np.testing.assert_allclose(weights.data, before.data)
        np.testing.assert_allclose(out.data, (before.data * kept / 0.75) @ x.data)
    assert not np.allclose(out.data, plain.data)
    with pytest.raises(ValueError):
        scaled_dot_product_attention(x, x, x, dropout=1.0, rng=own)
    with pytest.raises(ValueError):
        scaled_dot_product_attention(x, x, x, dropout=0.1)


def test_masks_may_change():
    x, mask = normal(1, 4, 3), np.tri(4, dtype=bool)
    for i in range(4):
        mask[:, i] = ~mask[:, i]
        out, _ = scaled_dot_product_attention(Tensor(x), Tensor(x), Tensor(x), mask)
        np.testing.assert_allclose(
            out.data[0], loops(x[0], x[0], x[0], mask, 3**-0.5)[0], atol=1e-12
        )


def test_float16():
    x = Tensor((normal(1, 6, 8) * 4).astype(np.float16))
    out, weights = scaled_dot_product_attention(x, x, x)
    assert out.dtype == weights.dtype == np.float16
    wide = x.astype(np.float64)
    want = scaled_dot_product_attention(wide, wide, wide)[0].data
    np.testing.assert_allclose(out.data, want, rtol=2e-3, atol=4e-3)
    top = Tensor(np.full((3, 3), 300, np.float16))
    assert np.isfinite(scaled_dot_product_attention(top, top, top)[0].data).all()


def test_refused():
    x = Tensor(normal(2, 5, 3))
    for mask in (np.ones((5, 5)), np.ones((5, 5), int)):
        with pytest.raises(TypeError):
            scaled_dot_product_attention(x, x, x, mask)
    with pytest.raises(ValueError):
        scaled_dot_product_attention(x, x, x, np.ones((4, 5), bool))
    with pytest.raises(ValueError):
        scaled_dot_product_attention(x, Tensor(normal(2, 5, 4)), x)
