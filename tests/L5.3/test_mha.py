# Tangled from book/5-transformer/L5.3-multi-head-attention.md
"""Tests of L5.3, multi-head attention."""

import numpy as np
import pytest
import torch

from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention


def identity_heads(n_heads):
    module = MultiHeadAttention(4, n_heads)
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        linear = getattr(module, name)
        linear.weight.data = np.eye(4)
        linear.bias.data = np.zeros(4)
    return module


QUERY = [[[1.0, 0.0, 0.0, 2.0]]]
KEYS = [[[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 2.0]]]


def test_hand_example_two_heads():
    out, weights = identity_heads(2).attend(Tensor(np.array(QUERY)), Tensor(np.array(KEYS)))
    np.testing.assert_allclose(
        weights.data[0, :, 0], [[0.669762, 0.330238], [0.055807, 0.944193]], atol=5e-7
    )
    np.testing.assert_allclose(out.data[0, 0], [0.669762, 0.330238, 0, 1.888386], atol=5e-7)


def test_hand_example_one_head_mixes_everything():
    out, weights = identity_heads(1).attend(Tensor(np.array(QUERY)), Tensor(np.array(KEYS)))
    np.testing.assert_allclose(weights.data[0, 0, 0], [0.182426, 0.817574], atol=5e-7)
    np.testing.assert_allclose(out.data[0, 0], [0.182426, 0.817574, 0, 1.635149], atol=5e-7)


@pytest.mark.parametrize("cross", [False, True])
def test_golden_torch(cross):
    B, Tq, Tk, d, H = 3, 5, 7 if cross else 5, 8, 2
    draw = PCG32(1)
    theirs = torch.nn.MultiheadAttention(d, H, batch_first=True, dtype=torch.float64)
    for p in theirs.parameters():
        p.data = torch.tensor(draw.normal(shape=tuple(p.shape), dtype=np.float64))
    ours = MultiHeadAttention(d, H).astype(np.float64)
    ours.load_packed_in_proj(
        theirs.in_proj_weight.detach().numpy(), theirs.in_proj_bias.detach().numpy()
    )
    ours.load_state_dict(
        {n: p.detach().numpy() for n, p in theirs.named_parameters() if n.startswith("out")},
        strict=False,
    )
    a, b = (
        draw.normal(shape=(B, Tq, d), dtype=np.float64),
        draw.normal(shape=(B, Tk, d), dtype=np.float64),
    )
    mask = np.ones((B, Tq, Tk), bool)
    mask[1, :, 3:] = False
    if not cross:
        mask &= np.tri(Tq, Tk, dtype=bool)
    cot = draw.normal(shape=(B, Tq, d), dtype=np.float64)
    for path in ("attend", "forward"):
        ours.zero_grad()
        x_q = Tensor(a, requires_grad=True)
        x_kv = Tensor(b, requires_grad=True) if cross else x_q
        t_q = torch.tensor(a, requires_grad=True)
        t_kv = torch.tensor(b, requires_grad=True) if cross else t_q
        theirs.zero_grad()
        want, want_weights = theirs(
            t_q,
            t_kv,
            t_kv,
            attn_mask=torch.tensor(~mask).repeat_interleave(H, 0),
            average_attn_weights=False,
        )
        want.backward(torch.tensor(cot))
        if path == "attend":
            got, weights = ours.attend(x_q, x_kv, mask)
            np.testing.assert_allclose(
                weights.data, want_weights.detach().numpy(), atol=1e-12, rtol=0
            )
        else:
            got = ours(x_q, x_kv, mask)
        got.backward(cot)
        close = lambda x, y: np.testing.assert_allclose(
            x, y.detach().numpy(), atol=1e-12, rtol=1e-12
        )
        close(got.data, want)
        close(x_q.grad, t_q.grad)
        close(x_kv.grad, t_kv.grad)
        close(
            np.concatenate(
                [ours.q_proj.weight.grad, ours.k_proj.weight.grad, ours.v_proj.weight.grad]
            ),
            theirs.in_proj_weight.grad,
        )
        close(
            np.concatenate([ours.q_proj.bias.grad, ours.k_proj.bias.grad, ours.v_proj.bias.grad]),
            theirs.in_proj_bias.grad,
        )
        close(ours.out_proj.weight.grad, theirs.out_proj.weight.grad)
        close(ours.out_proj.bias.grad, theirs.out_proj.bias.grad)
