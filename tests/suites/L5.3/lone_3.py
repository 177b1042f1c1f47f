"""One comparison with torch, in float32, under a causal mask, with the input's gradient."""

import numpy as np
import torch

from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention


def test_causal_self_attention():
    ours = MultiHeadAttention(8, 2)
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    state = {name: torch.tensor(array) for name, array in ours.state_dict().items()}
    theirs.load_state_dict(
        {
            "in_proj_weight": torch.cat([state[f"{n}_proj.weight"] for n in "qkv"]),
            "in_proj_bias": torch.cat([state[f"{n}_proj.bias"] for n in "qkv"]),
            "out_proj.weight": state["out_proj.weight"],
            "out_proj.bias": state["out_proj.bias"],
        }
    )
    x = np.random.default_rng(1).normal(size=(2, 6, 8)).astype(np.float32)
    a, b = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    out = ours(a, a, np.tri(6, dtype=bool))
    wanted, _ = theirs(b, b, b, attn_mask=torch.triu(torch.ones(6, 6, dtype=torch.bool), 1))
    np.testing.assert_allclose(out.data, wanted.detach().numpy(), atol=1e-5)
    out.sum().backward()
    wanted.sum().backward()
    np.testing.assert_allclose(a.grad, b.grad.numpy(), atol=1e-5)
