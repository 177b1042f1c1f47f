"""One comparison with torch, forward."""

import numpy as np
import torch

from tinyllm.tensor import Tensor
from tinyllm.xfmr.attention import scaled_dot_product_attention


def test_against_torch():
    q, k, v = np.random.default_rng(0).normal(size=(3, 2, 5, 8))
    wanted = torch.nn.functional.scaled_dot_product_attention(*map(torch.tensor, (q, k, v)))
    found, _ = scaled_dot_product_attention(*map(Tensor, (q, k, v)))
    np.testing.assert_allclose(found.data, wanted.numpy(), atol=1e-12)
