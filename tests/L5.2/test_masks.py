# Tangled from book/2-transformer/L5.2-tests.md
"""Tests of L5.2, masks."""

import numpy as np
import pytest
import torch

from tinyllm.num.pcg32 import PCG32
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


def draw(*shape, seed=1):
    return PCG32(seed).normal(0.0, 1.0, shape, np.float64)


def test_causal_is_the_lower_triangle():
    for Tq in range(6):
        for Tk in range(6):
            mask = causal_mask(Tq, Tk)
            assert mask.shape == (Tq, Tk)
            assert mask.dtype == np.bool_
            for i, j in np.ndindex(Tq, Tk):
                assert mask[i, j] == (j <= i + Tk - Tq)
    np.testing.assert_array_equal(causal_mask(4), np.tri(4) == 1)
    for wrong in (-1, 2.0, True):
        with pytest.raises(ValueError):
            causal_mask(wrong, 3)
        with pytest.raises(ValueError):
            causal_mask(3, wrong)


@pytest.mark.parametrize("chunk", [1, 2, 3, 7])
def test_causal_with_a_cache(chunk):
    T = 7
    q, k, v = (Tensor(draw(2, T, 4, seed=i)) for i in range(3))
    whole = scaled_dot_product_attention(q, k, v, causal_mask(T))[0].data
    for start in range(0, T, chunk):
        stop = min(start + chunk, T)
        mask = causal_mask(stop - start, stop)
        part = scaled_dot_product_attention(q[:, start:stop], k[:, :stop], v[:, :stop], mask)[
            0
        ].data
        np.testing.assert_allclose(part, whole[:, start:stop], rtol=1e-12)


def test_causal_never_reads_the_future():
    q, k, v = (draw(5, 4, seed=i) for i in range(3))
    before = scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), causal_mask(5))[0].data
    k[3:], v[3:] = 7.0, np.nan
    after = scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), causal_mask(5))[0].data
    np.testing.assert_array_equal(after[:3], before[:3])
    assert np.isnan(after[3:]).all()


def test_padding_hides_columns_not_rows():
    lengths = [5, 2, 3]
    x = Tensor(draw(3, 1, 5, 4))
    mask = padding_mask(lengths, 5)
    assert mask.shape == (3, 1, 1, 5)
    weights = scaled_dot_product_attention(x, x, x, mask)[1].data
    for b, n in enumerate(lengths):
        assert (weights[b, 0, :, n:] == 0).all()  # columns
        assert (weights[b, 0, :, :n] > 0).all()
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-12)  # every row is live


def test_padding_by_lengths_and_by_token():
    tokens = [[5, 1, 8, 2], [4, 4, 0, 0], [0, 0, 0, 0], [9, 0, 0, 0]]
    np.testing.assert_array_equal(token_mask(tokens, 0), padding_mask([4, 2, 0, 1], 4))
    in_front = token_mask([[0, 0, 7], [3, 3, 3]], 0)
    np.testing.assert_array_equal(in_front[:, 0, 0], [[False, False, True], [True] * 3])
    np.testing.assert_array_equal(token_mask([[1, 0]], 1)[0, 0, 0], [False, True])


def test_combine_is_logical_and():
    causal, padding = causal_mask(4), padding_mask([4, 2, 3], 4)
    per_head = draw(3, 2, 4, 4) > 0
    combined = combine_masks(causal, None, padding, per_head)
    assert combined.shape == (3, 2, 4, 4)
    assert combined.dtype == np.bool_
    for b, h, i, j in np.ndindex(3, 2, 4, 4):
        assert combined[b, h, i, j] == (
            causal[i, j] and padding[b, 0, 0, j] and per_head[b, h, i, j]
        )


def test_combine_gives_three_axes_a_head_axis():
    per_sequence = draw(3, 4, 4) > 0
    padding = padding_mask([4, 2, 3], 4)
    for combined in (combine_masks(per_sequence, padding), combine_masks(padding, per_sequence)):
        assert combined.shape == (3, 1, 4, 4)
        for b in range(3):
            np.testing.assert_array_equal(combined[b, 0], per_sequence[b] & padding[b, 0])


def test_combine_takes_what_attention_takes():
    keys, causal = np.array([True, False, True, True]), causal_mask(4)
    for mask in (keys, keys[None], keys[None, None], keys[None, None, None]):
        combined = combine_masks(mask, causal)
        assert combined.shape == (1, 1, 4, 4)
        np.testing.assert_array_equal(combined[0, 0], causal & keys)
    padding = padding_mask([4, 2, 3], 4)
    np.testing.assert_array_equal(combine_masks(padding[:, 0], causal), padding & causal)
    np.testing.assert_array_equal(combine_masks(True, causal), causal[None, None])


def test_combine_of_nothing():
    assert combine_masks() is None
    assert combine_masks(None, None) is None
    mask = causal_mask(3)
    np.testing.assert_array_equal(combine_masks(mask, None)[0, 0], mask)


def test_mask_errors():
    with pytest.raises(TypeError):
        combine_masks(np.ones((3, 3)))
    with pytest.raises(ValueError):
        combine_masks(np.ones((1, 1, 1, 3, 3), bool))
    with pytest.raises(ValueError):
        combine_masks(causal_mask(3), causal_mask(4))
    with pytest.raises(ValueError):
        padding_mask([4], 3)
    with pytest.raises(ValueError):
        padding_mask([-1], 3)
    with pytest.raises(ValueError):
        padding_mask([[2]], 3)
    with pytest.raises(TypeError):
        padding_mask([1.5], 3)
    with pytest.raises(ValueError):
        token_mask([1, 0], 0)
    assert padding_mask([], 3).shape == (0, 1, 1, 3)


B, H, T, d = 3, 2, 4, 8


def torch_weights(**masks):
    """What nn.MultiheadAttention gives for x, with all projections the identity."""
    theirs = torch.nn.MultiheadAttention(d, H, bias=False, batch_first=True, dtype=torch.float64)
    theirs.in_proj_weight.data = torch.eye(d, dtype=torch.float64).repeat(3, 1)
    x = torch.tensor(draw(B, T, d))
    return theirs(x, x, x, average_attn_weights=False, **masks)[1].detach().numpy()


def our_weights(mask):
    heads = Tensor(draw(B, T, H, d // H).reshape(B, T, H, d // H).transpose(0, 2, 1, 3))
    return scaled_dot_product_attention(heads, heads, heads, mask)[1].data


def as_floats(blocked):
    return torch.zeros(blocked.shape, dtype=torch.float64).masked_fill(blocked, -torch.inf)


@pytest.mark.parametrize("floats", [False, True])
def test_torch_conventions(floats):
    def form(blocked):
        return as_floats(blocked) if floats else blocked

    def near(found, wanted):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14)

    causal = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
    near(our_weights(from_torch_attn_mask(form(causal), H)), torch_weights(attn_mask=form(causal)))
    np.testing.assert_array_equal(from_torch_attn_mask(form(causal), H), causal_mask(T))

    each = torch.tensor(draw(B * H, T, T) > 0.5) & ~torch.eye(T, dtype=torch.bool)
    near(our_weights(from_torch_attn_mask(form(each), H)), torch_weights(attn_mask=form(each)))

    padding = torch.arange(T) >= torch.tensor([4, 2, 3])[:, None]
    near(
        our_weights(from_torch_key_padding_mask(form(padding))),
        torch_weights(key_padding_mask=form(padding)),
    )

    heads = torch.tensor(draw(B, T, H, d // H)).transpose(1, 2)
    for shape in [(T, T), (H, T, T), (B, 1, 1, T), (B, H, T, T)]:
        allowed = torch.tensor(draw(*shape, seed=4) > -0.5)
        allowed[..., 0] = True
        given = as_floats(~allowed) if floats else allowed
        wanted = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, given)
        mask = from_torch_sdpa_mask(given)
        assert mask.ndim == 4
        ours = Tensor(heads.numpy())
        near(scaled_dot_product_attention(ours, ours, ours, mask)[0].data, wanted.numpy())


def test_a_bias_is_no_mask():
    for convert in (from_torch_key_padding_mask, from_torch_sdpa_mask):
        with pytest.raises(ValueError):
            convert(torch.tensor([[0.0, -1e9]]))
        with pytest.raises(TypeError):
            convert(torch.tensor([[0, 1]]))
    with pytest.raises(ValueError):
        from_torch_attn_mask(np.array([[0.0, np.nan]]), 1)
    with pytest.raises(ValueError):
        from_torch_attn_mask(np.zeros((3, 4, 4), bool), 2)
    with pytest.raises(ValueError):
        from_torch_key_padding_mask(np.zeros(3, bool))
    with pytest.raises(ValueError):
        from_torch_sdpa_mask(np.zeros(3, bool))
