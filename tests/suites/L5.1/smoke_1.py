"""Calls attention with and without masks, and asserts nothing."""

import numpy as np

from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor
from tinyllm.xfmr.attention import masked_softmax, scaled_dot_product_attention


def test_runs():
    x = Tensor(PCG32(1).normal(0.0, 1.0, (2, 5, 4)), requires_grad=True)
    for mask in (None, np.tri(5, dtype=bool), np.zeros((5, 5), bool)):
        out, weights = scaled_dot_product_attention(x, x, x, mask)
        (out.sum() + weights.sum()).backward()
        scaled_dot_product_attention(x, x, x, mask, scale=0.3, dropout=0.5, rng=PCG32(0))
        masked_softmax(x @ x.transpose(0, 2, 1), mask)
