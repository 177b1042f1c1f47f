"""One comparison with torch: cross-attention with padding, output and weights."""

import numpy as np
import torch

from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention


def test_cross_attention_with_padding():
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(12, 3, batch_first=True, dtype=torch.float64)
    ours = MultiHeadAttention(12, 3).astype(np.float64)
    parts = zip("qkv", theirs.in_proj_weight.detach().chunk(3), strict=True)
    state = {f"{name}_proj.weight": rows.numpy() for name, rows in parts}
    state |= {f"{name}_proj.bias": np.zeros(12) for name in "qkv"}
    state |= {f"out_proj.{k}": v.numpy() for k, v in theirs.out_proj.state_dict().items()}
    ours.load_state_dict(state)
    q, kv = torch.randn(4, 5, 12, dtype=torch.float64), torch.randn(4, 6, 12, dtype=torch.float64)
    hidden = torch.arange(6) >= torch.tensor([6, 4, 1, 3])[:, None]
    wanted, weights = theirs(q, kv, kv, key_padding_mask=hidden, average_attn_weights=False)
    out, found = ours.attend(Tensor(q.numpy()), Tensor(kv.numpy()), ~hidden.numpy()[:, None])
    np.testing.assert_allclose(out.data, wanted.detach().numpy(), atol=1e-10)
    np.testing.assert_allclose(found.data, weights.detach().numpy(), atol=1e-10)
