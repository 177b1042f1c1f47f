"""An encoder layer against torch, once."""

import numpy as np
import torch

from tinyllm.tensor import Tensor
from tinyllm.xfmr.layers import EncoderLayer, LayerConfig


def test_encoder_layer():
    theirs = torch.nn.TransformerEncoderLayer(
        8, 2, 12, 0.0, batch_first=True, norm_first=True
    ).double()
    ours = EncoderLayer(LayerConfig(8, 2, 12)).astype(np.float64)
    state = {n: p.detach().numpy() for n, p in theirs.named_parameters()}
    attention = ours.self_attention
    attention.load_packed_in_proj(
        state["self_attn.in_proj_weight"], state["self_attn.in_proj_bias"]
    )
    for mine, its in (
        (attention.out_proj, "self_attn.out_proj"),
        (ours.feed_forward.up, "linear1"),
        (ours.feed_forward.down, "linear2"),
        (ours.norm1, "norm1"),
        (ours.norm2, "norm2"),
    ):
        mine.load_state_dict({k: state[f"{its}.{k}"] for k in ("weight", "bias")})
    x = np.random.default_rng(0).normal(size=(2, 5, 8))
    np.testing.assert_allclose(ours(Tensor(x)).data, theirs(torch.tensor(x)).detach(), atol=1e-10)
