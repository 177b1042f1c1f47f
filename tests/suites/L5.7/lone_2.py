"""One comparison with torch under a causal mask, with the queries' gradient."""

import numpy as np
import torch

from tinyllm.tensor import Tensor
from tinyllm.xfmr.fused import fused_attention


def test_causal():
    x = np.random.default_rng(1).normal(size=(2, 6, 4))
    theirs, ours = torch.tensor(x, requires_grad=True), Tensor(x, requires_grad=True)
    wanted = torch.nn.functional.scaled_dot_product_attention(
        theirs, theirs, theirs, is_causal=True
    )
    out = fused_attention(ours, ours, ours, np.tri(6, dtype=bool))
    np.testing.assert_allclose(out.data, wanted.detach().numpy(), atol=1e-12)
    wanted.sum().backward()
    out.sum().backward()
    np.testing.assert_allclose(ours.grad, theirs.grad.numpy(), atol=1e-12)
