"""Calls everything once and asserts nothing."""

import numpy as np

from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor
from tinyllm.xfmr.masks import causal_mask, padding_mask
from tinyllm.xfmr.mha import MultiHeadAttention


def test_everything_runs():
    rng = PCG32(1)
    mha = MultiHeadAttention(12, 3, dropout=0.1, rng=rng)
    x = Tensor(rng.normal(0.0, 1.0, (2, 5, 12)), requires_grad=True)
    kv = Tensor(rng.normal(0.0, 1.0, (2, 7, 12)), requires_grad=True)
    for mask in (None, causal_mask(5), padding_mask([5, 2], 5)):
        out = mha(x, x, mask)
        out.backward(np.ones(out.shape, np.float32))
        out, _ = mha.attend(x, x, mask)
        out.backward(np.ones(out.shape, np.float32))
    out = mha(x, kv, padding_mask([7, 3], 7))
    out.backward(np.ones(out.shape, np.float32))
    mha.attend(x, kv)
    mha.eval()
    mha(x, kv)
    mha.merge_heads(mha.split_heads(x))
    mha.head_mask(np.ones((2, 5, 5), bool), 2, 5, 5)
    mha.load_packed_in_proj(np.ones((36, 12)), np.ones(36))
    mha.load_state_dict(mha.state_dict())
    mha.load_rng_state(mha.rng_state())
    repr(mha)
