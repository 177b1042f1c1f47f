"""Wants numbers that are finite."""

import numpy as np

from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention


def values(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_forward_is_finite():
    x = Tensor(values(3, 6, 16))
    assert np.isfinite(MultiHeadAttention(16, 4)(x, x).data).all()


def test_cross_attention_is_finite():
    mha = MultiHeadAttention(16, 4)
    out, weights = mha.attend(Tensor(values(3, 6, 16)), Tensor(values(3, 9, 16)))
    assert np.isfinite(out.data).all()
    assert np.isfinite(weights.data).all()


def test_gradients_are_finite():
    mha = MultiHeadAttention(16, 4, dropout=0.2)
    x = Tensor(values(3, 6, 16), requires_grad=True)
    mha(x, x, np.tri(6, dtype=bool)).sum().backward()
    assert np.isfinite(x.grad).all()
    for p in mha.parameters():
        assert np.isfinite(p.grad).all()
