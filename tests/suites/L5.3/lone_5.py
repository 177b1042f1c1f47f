"""One comparison with torch's functional form, over a few sizes."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention


@pytest.mark.parametrize(("B", "T", "d", "H"), [(1, 3, 4, 1), (2, 5, 8, 2), (5, 9, 32, 8)])
def test_is_torchs_attention(B, T, d, H):
    mha = MultiHeadAttention(d, H).astype(np.float64)
    x = np.random.default_rng(d).normal(size=(B, T, d))

    def heads(layer):
        y = x @ layer.weight.data.T + layer.bias.data
        return torch.tensor(y.reshape(B, T, H, d // H).transpose(0, 2, 1, 3))

    mask = np.random.default_rng(T).random((B, T, T)) > 0.4
    mask |= np.eye(T, dtype=bool)
    q, k, v = heads(mha.q_proj), heads(mha.k_proj), heads(mha.v_proj)
    context = functional.scaled_dot_product_attention(q, k, v, torch.tensor(mask[:, None]))
    merged = context.numpy().transpose(0, 2, 1, 3).reshape(B, T, d)
    wanted = merged @ mha.out_proj.weight.data.T + mha.out_proj.bias.data
    x_q = Tensor(x)
    np.testing.assert_allclose(mha(x_q, x_q, mask).data, wanted, atol=1e-10)
    np.testing.assert_allclose(mha.attend(x_q, x_q, mask)[0].data, wanted, atol=1e-10)
