"""Calls fused attention with and without masks, and asserts nothing."""

import numpy as np

from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor
from tinyllm.xfmr.fused import fused_attention, fused_attention_packed


def test_runs():
    x = Tensor(PCG32(1).normal(0.0, 1.0, (2, 5, 4)), requires_grad=True)
    for mask in (None, np.tri(5, dtype=bool), np.zeros((5, 5), bool)):
        out = fused_attention(x, x, x, mask)
        out.sum().backward()
        fused_attention(x, x, x, mask, scale=0.3, dropout=0.5, rng=PCG32(0))
        fused_attention(x, x, x, mask, rows=2)
        fused_attention_packed(Tensor(np.ones((6, 5, 4))), mask)
