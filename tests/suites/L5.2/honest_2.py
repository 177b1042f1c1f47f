"""By what attention does with the masks; torch for torch's."""

import numpy as np
import pytest
import torch

from tinyllm.tensor import Tensor
from tinyllm.xfmr.attention import scaled_dot_product_attention
from tinyllm.xfmr.masks import (
    causal_mask,
    combine_masks,
    from_torch_attn_mask,
    from_torch_key_padding_mask,
    from_torch_sdpa_mask,
    padding_mask,
    token_mask,
)

B, H, T, D = 5, 2, 7, 4


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def weights(mask, Tq=T):
    q, k = Tensor(normal(B, H, Tq, D)), Tensor(normal(B, H, T, D, seed=1))
    return scaled_dot_product_attention(q, k, k, mask)[1].data


@pytest.mark.parametrize("Tq", [1, 3, 7])
def test_causal(Tq):
    found = weights(causal_mask(Tq, T), Tq)
    for i in range(Tq):
        last = T - Tq + i
        assert (found[:, :, i, : last + 1] > 0).all()
        assert (found[:, :, i, last + 1 :] == 0).all()


def test_padding():
    lengths = [7, 1, 0, 3, 5]
    for mask in (
        padding_mask(lengths, T),
        token_mask(np.arange(T) < np.array(lengths)[:, None], 0),
    ):
        found = weights(mask)
        for b, n in enumerate(lengths):
            assert (found[b, :, :, :n] > 0).all()
            assert (found[b, :, :, n:] == 0).all()


def test_padding_in_the_middle():
    assert token_mask([[3, 9, 3]], 9)[0, 0, 0].tolist() == [True, False, True]


def test_together():
    each = normal(B, T, T, seed=3) > 0
    heads = normal(1, H, T, T, seed=4) > -1
    padding = padding_mask([7, 1, 2, 3, 5], T)
    for order in ((each, heads, padding), (padding, each, heads), (heads, None, padding, each)):
        found = weights(combine_masks(*order)) > 0
        for b in range(B):
            for h in range(H):
                assert (found[b, h] == (each[b] & heads[0, h] & padding[b, 0])).all()


@pytest.mark.parametrize("floats", [True, False])
def test_torch(floats):
    theirs = torch.nn.MultiheadAttention(H * D, H, bias=False, batch_first=True).double()
    theirs.in_proj_weight.data = torch.eye(H * D).double().repeat(3, 1)
    x = torch.tensor(normal(B, T, H * D))
    heads = Tensor(x.numpy().reshape(B, T, H, D).transpose(0, 2, 1, 3))

    def check(ours, **given):
        wanted = theirs(x, x, x, average_attn_weights=False, **given)[1].detach().numpy()
        found = scaled_dot_product_attention(heads, heads, heads, ours)[1].data
        np.testing.assert_allclose(found, wanted, atol=1e-12)

    def form(mask):
        mask = torch.tensor(mask)
        zeros = torch.zeros(mask.shape, dtype=torch.float64)
        return zeros.masked_fill(mask, -torch.inf) if floats else mask

    eye = np.eye(T, dtype=bool)
    pairs, each = (normal(T, T) > 0) & ~eye, (normal(B * H, T, T) > 0) & ~eye
    padding = np.arange(T) > np.arange(B)[:, None]
    check(from_torch_attn_mask(form(pairs), H), attn_mask=form(pairs))
    check(from_torch_attn_mask(form(each), H), attn_mask=form(each))
    check(from_torch_key_padding_mask(form(padding)), key_padding_mask=form(padding))
    for shape in ((T, T), (H, T, T), (B, H, T, T)):
        blocked = (normal(*shape, seed=5) > 0) & ~eye
        given = form(blocked) if floats else ~form(blocked)
        t = torch.tensor(heads.data)
        wanted = torch.nn.functional.scaled_dot_product_attention(t, t, t, given)
        ours = scaled_dot_product_attention(heads, heads, heads, from_torch_sdpa_mask(given))[0]
        np.testing.assert_allclose(ours.data, wanted.numpy(), atol=1e-12)


def test_refused():
    with pytest.raises(ValueError):
        padding_mask([T + 1], T)
    with pytest.raises(TypeError):
        combine_masks(np.ones((T, T)))
    with pytest.raises(ValueError):
        from_torch_attn_mask(np.full((2, 2), -1e9), 1)
