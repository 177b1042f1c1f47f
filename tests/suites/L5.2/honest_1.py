"""Every function entry by entry, at small and large sizes."""

import numpy as np
import pytest

from tinyllm.xfmr.masks import (
    causal_mask,
    combine_masks,
    from_torch_attn_mask,
    from_torch_key_padding_mask,
    from_torch_sdpa_mask,
    padding_mask,
    token_mask,
)


def random(*shape, seed=0):
    return np.random.default_rng(seed).random(shape) > 0.4


@pytest.mark.parametrize("Tq", [0, 1, 3, 70])
@pytest.mark.parametrize("Tk", [0, 1, 2, 90])
def test_causal(Tq, Tk):
    mask = causal_mask(Tq, Tk)
    assert mask.shape == (Tq, Tk)
    for i in range(Tq):
        assert mask[i].tolist() == [j <= i + Tk - Tq for j in range(Tk)]
    assert causal_mask(Tq).shape == (Tq, Tq)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_padding(dtype):
    lengths = np.array([0, 1, 3, 5] * 5, dtype)
    mask = padding_mask(lengths, 300)
    assert mask.shape == (20, 1, 1, 300)
    for row, n in zip(mask[:, 0, 0], lengths.tolist(), strict=True):
        assert row.tolist() == [True] * n + [False] * (300 - n)


def test_tokens():
    tokens = np.random.default_rng(1).integers(0, 4, (9, 50))
    for pad in (0, 2, -1):
        mask = token_mask(tokens, pad)
        assert mask.shape == (9, 1, 1, 50)
        assert (mask[:, 0, 0] == (tokens != pad)).all()


def test_combine():
    B, H, Tq, Tk = 12, 3, 4, 5
    parts = {
        "keys": random(Tk), "pairs": random(Tq, Tk, seed=1), "samples": random(B, Tq, Tk, seed=2),
        "heads": random(B, H, Tq, Tk, seed=3), "padding": random(B, 1, 1, Tk, seed=4),
    }  # fmt: skip
    wide = {n: m[:, None] if m.ndim == 3 else m for n, m in parts.items()}
    for one in parts:
        for other in parts:
            for third in (None, parts["keys"]):
                found = combine_masks(parts[one], None, parts[other], third)
                want = wide[one] & wide[other] & (True if third is None else third)
                assert found.ndim == 4
                whole = np.broadcast_shapes(found.shape, want.shape)
                assert (np.broadcast_to(found, whole) == want).all()
    assert combine_masks() is combine_masks(None) is None


def test_from_torch():
    H = 3
    blocked = random(4 * H, 5, 6)
    for form in (lambda m: m, lambda m: np.where(m, -np.inf, 0.0)):
        found = from_torch_attn_mask(form(blocked), H)
        for b in range(4):
            for h in range(H):
                assert (found[b, h] == ~blocked[b * H + h]).all()
        assert (from_torch_attn_mask(form(blocked[0]), H) == ~blocked[0]).all()
        assert (from_torch_key_padding_mask(form(blocked[0]))[:, 0, 0] == ~blocked[0]).all()
    for shape in ((5, 6), (3, 5, 6), (2, 3, 5, 6)):
        allowed = random(*shape)
        for form in (allowed, np.where(allowed, 0, -np.inf)):
            found = from_torch_sdpa_mask(form)
            assert found.ndim == 4
            assert (found == allowed).all()


def test_refusals():
    for call in (
        lambda: causal_mask(-1),
        lambda: padding_mask([4], 3),
        lambda: padding_mask([-1], 3),
        lambda: padding_mask([[1]], 3),
        lambda: token_mask([1, 0], 0),
        lambda: combine_masks(causal_mask(3), causal_mask(4)),
        lambda: from_torch_attn_mask(np.zeros((4, 2, 2), bool), 3),
        lambda: from_torch_sdpa_mask(np.array([[0.5, 0]])),
        lambda: from_torch_key_padding_mask(np.zeros(3, bool)),
    ):
        with pytest.raises(ValueError):
            call()
    for call in (
        lambda: padding_mask([1.5], 3),
        lambda: combine_masks(np.ones((3, 3))),
        lambda: from_torch_attn_mask(np.ones((3, 3), int), 1),
    ):
        with pytest.raises(TypeError):
            call()
