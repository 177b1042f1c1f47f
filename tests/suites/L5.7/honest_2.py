"""The operation with weights is the oracle: everything must be the same without them."""

import itertools

import numpy as np
import pytest

from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor
from tinyllm.xfmr.attention import scaled_dot_product_attention
from tinyllm.xfmr.fused import fused_attention, fused_attention_packed


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def run(call, arrays, grad, *args, **options):
    leaves = [Tensor(x, requires_grad=True) for x in arrays]
    out = call(*leaves, *args, **options)
    out.backward(grad)
    return [out.data, *(x.grad for x in leaves)]


def plain(*args, **options):
    options.pop("rows", None)
    return scaled_dot_product_attention(*args, **options)[0]


def alike(arrays, grad, mask=None, tolerance=1e-10, dropout=0.0, **options):
    results = []
    for call in (fused_attention, plain):
        rng = PCG32(4) if dropout else None
        results.append(run(call, arrays, grad, mask, dropout=dropout, rng=rng, **options))
    for found, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


SIZES = [(1, 1, 1, 1), (5, 7, 4, 6), (40, 3, 2, 2), (300, 500, 3, 2), (3, 90, 70, 1)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("factor", [1, 60])
def test_same_numbers(sizes, factor):
    Tq, Tk, d, dv = sizes
    arrays = [normal(2, 3, *s, seed=i) for i, s in enumerate(((Tq, d), (Tk, d), (Tk, dv)))]
    arrays[0] *= factor
    grad = normal(2, 3, Tq, dv, seed=9)
    masks = [None, np.tri(Tq, Tk, Tk - Tq - 1, dtype=bool), normal(2, 3, Tq, Tk, seed=5) > 0.3]
    for mask, rows in itertools.product(masks, (None, 1, 7)):
        if rows != 1 or Tq < 100:
            alike(arrays, grad, mask, rows=rows, tolerance=1e-8)
            alike(arrays, grad, mask, rows=rows, scale=0.2, dropout=0.4, tolerance=1e-8)


def test_axes_in_front():
    for leads in itertools.product(((), (2, 1), (3,), (2, 3)), repeat=3):
        whole = np.broadcast_shapes(*leads)
        sizes = zip(leads, ((4, 3), (5, 3), (5, 2)), strict=True)
        arrays = [normal(*lead, *size, seed=len(lead)) for lead, size in sizes]
        alike(arrays, normal(*whole, 4, 2, seed=7))
        alike(arrays, normal(*whole, 4, 2, seed=7), normal(4, 5, seed=8) > -0.5)


@pytest.mark.parametrize("garbage", [np.nan, np.inf, 1e308])
def test_padding_with_garbage(garbage):
    arrays, grad = [normal(2, 6, 3, seed=i) for i in range(3)], normal(2, 6, 3, seed=4)
    mask = np.ones((2, 6, 6), bool)
    mask[0, :, 4:] = mask[0, 4:] = False
    wanted = run(fused_attention, arrays, grad, mask)
    for which in ((1,), (2,), (1, 2), (0, 1, 2)):
        dirty = [x.copy() for x in arrays]
        for i in which:
            dirty[i][0, 4:] = garbage
        quiet = grad.copy()
        if 0 in which:
            quiet[0, 4:] = 0
            wanted = run(fused_attention, arrays, quiet, mask)
        found = run(fused_attention, dirty, quiet, mask)
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x[0, :4], y[0, :4], atol=1e-12)
            np.testing.assert_allclose(x[1], y[1], atol=1e-12)


def test_garbage_that_is_read():
    mask = np.tri(6, dtype=bool)
    for which in range(3):
        arrays, grad = [normal(6, 3, seed=i) for i in range(3)], normal(6, 3, seed=4)
        grad[4:] = 0
        clean = run(fused_attention, arrays, grad, mask)
        arrays[which][4, 1] = np.nan
        for options in ({}, {"rows": 2}):
            found = run(fused_attention, arrays, grad, mask, **options)
            assert np.isnan(found[0][4]).any()
            assert np.isnan(found[0][5]).any() == (which > 0)
            for x, y in zip(found, clean, strict=True):
                np.testing.assert_allclose(x[:4], y[:4], atol=1e-12)
        if which == 2:  # gradients of what was read are garbage too, but for the values'
            loud = run(fused_attention, arrays, np.ones((6, 3)), mask)
            assert np.isnan(loud[1][5]).all()
            assert np.isfinite(loud[3]).all()


@pytest.mark.parametrize("masked", [True, False])
def test_packed(masked):
    heads, grad = normal(2, 9, 5, 4), normal(2, 3, 5, 4, seed=1)
    mask = np.tri(5, dtype=bool) if masked else None
    thirds = np.split(heads, 3, axis=1)
    wanted = run(plain, thirds, grad, mask, scale=0.6)
    qkv = Tensor(heads, requires_grad=True)
    out = fused_attention_packed(qkv, mask, scale=0.6)
    out.backward(grad)
    np.testing.assert_allclose(out.data, wanted[0], atol=1e-12)
    np.testing.assert_allclose(qkv.grad, np.concatenate(wanted[1:], axis=1), atol=1e-12)


def test_nothing_is_written():
    arrays, grad = [normal(2, 6, 3, seed=i) for i in range(3)], normal(2, 6, 3, seed=4)
    for x in (*arrays, grad):
        x.flags.writeable = False
    first = run(fused_attention, arrays, grad)
    copies = [x.copy() for x in first]
    run(fused_attention, [2 * x for x in arrays], grad)
    for x, y in zip(first, copies, strict=True):
        np.testing.assert_array_equal(x, y)


def test_dtypes_and_refusals():
    x = Tensor(normal(2, 4, 3).astype(np.float32))
    assert fused_attention(x, x, x, np.tri(4, dtype=bool)).dtype == np.float32
    half = Tensor((4 * normal(2, 4, 3)).astype(np.float16))
    assert fused_attention(half, half, half).dtype == np.float16
    for mask in (np.ones((4, 4)), np.ones((4, 4), np.int8)):
        with pytest.raises(TypeError):
            fused_attention(x, x, x, mask)
    for wrong in ({"mask": np.ones((3, 4), bool)}, {"rows": 0}, {"dropout": 1.0, "rng": PCG32(0)}):
        with pytest.raises(ValueError):
            fused_attention(x, x, x, **wrong)
    with pytest.raises(ValueError):
        fused_attention_packed(Tensor(normal(2, 4, 5, 3)))
