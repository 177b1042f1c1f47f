"""One comparison with torch: self-attention's output."""

import numpy as np
import torch

from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention


def test_against_torch():
    ours = MultiHeadAttention(16, 4).astype(np.float64)
    theirs = torch.nn.MultiheadAttention(16, 4, batch_first=True, dtype=torch.float64)
    ours.load_packed_in_proj(theirs.in_proj_weight.detach(), np.linspace(-1, 1, 48))
    theirs.in_proj_bias.data = torch.linspace(-1, 1, 48, dtype=torch.float64)
    ours.out_proj.load_state_dict({k: v.numpy() for k, v in theirs.out_proj.state_dict().items()})
    x = np.random.default_rng(0).normal(size=(3, 7, 16))
    t = torch.tensor(x)
    wanted = theirs(t, t, t)[0].detach().numpy()
    x = Tensor(x)
    np.testing.assert_allclose(ours(x, x).data, wanted, atol=1e-10)
