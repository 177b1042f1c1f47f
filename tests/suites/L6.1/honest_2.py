"""Properties of the model that need no second model: what is read, what is drawn, what moves."""

import numpy as np
import pytest

from tinyllm.models.gpt import (
    GPT,
    GPTConfig,
    generate,
    gpt2_arrays,
    load_gpt2_arrays,
    probabilities,
)
from tinyllm.nn import Dropout
from tinyllm.num.pcg32 import PCG32


def build(seed=1, dropout=0.0, layers=2):
    model = GPT(GPTConfig(11, 8, 12, 3, layers, dropout), PCG32(seed))
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data = rng.normal(size=p.shape, scale=0.4)
    return model


def test_loss_and_head():
    model, ids = build(), np.array([[1, 2, 3, 4], [5, 4, 3, 2]])
    z = model(ids[:, :-1]).data
    log = z - np.log(np.exp(z).sum(axis=-1, keepdims=True))
    want = -np.take_along_axis(log, ids[:, 1:, None], -1).mean()
    loss = model.loss(ids)
    np.testing.assert_allclose(loss.item(), want)
    loss.backward()
    assert (model.tokens.weight.grad[9] != 0).any()
    for wrong in ([[1]], [1, 2]):
        with pytest.raises(ValueError):
            model.loss(wrong)


def test_what_is_read():
    model, ids = build(), np.array([[1, 2, 3, 4, 5]])
    mask = np.array([[False, False, True, True, True]])
    other = np.array([[7, 8, 3, 4, 5]])
    np.testing.assert_allclose(model(ids, mask).data[:, 2:], model(other, mask).data[:, 2:])
    assert (model(ids).data[:, 2:] != model(other).data[:, 2:]).any()
    later = np.array([[1, 2, 3, 9, 9]])
    np.testing.assert_allclose(model(ids).data[:, :3], model(later).data[:, :3])


def test_start_and_dropout():
    config = GPTConfig(300, 50, 64, 4, 8, 0.5)
    assert config.eps == 1e-5
    model = GPT(config, PCG32(2))
    for name, p in model.named_parameters():
        if p.ndim == 2:
            std = 0.005 if "out_proj" in name or "down" in name else 0.02
            assert abs(p.data.std() / std - 1) < 0.1
    for name, m in model.named_modules():
        if isinstance(m, Dropout):
            assert m.p == (0.0 if "feed_forward" in name else 0.5)


def test_probabilities():
    z = np.log([0.1, 0.6, 0.3])
    np.testing.assert_allclose(probabilities(z, top_p=0.5), [0, 1, 0])
    np.testing.assert_allclose(probabilities(z, top_k=2), [0, 2 / 3, 1 / 3])
    np.testing.assert_allclose(probabilities(z, 0.5), np.array([0.01, 0.36, 0.09]) / 0.46)
    np.testing.assert_allclose(probabilities(z, 0), [0, 1, 0])
    for wrong in ({"temperature": -1}, {"top_k": 0}, {"top_p": 0}):
        with pytest.raises(ValueError):
            probabilities(z, **wrong)


def test_generate():
    model, known = build(), [1, 2, 3]
    for token in generate(model, [1, 2, 3], 15, temperature=0):
        assert token == model([known[-8:]]).data[0, -1].argmax()
        known.append(token)


def test_arrays():
    one, two = build(1), build(2)
    arrays = gpt2_arrays(one)
    attention = one.blocks.layers[0].self_attention
    ours = [getattr(attention, f"{n}_proj").weight.data.T for n in "qkv"]
    np.testing.assert_array_equal(arrays["h.0.attn.c_attn.weight"], np.concatenate(ours, axis=1))
    load_gpt2_arrays(two, arrays)
    for p, q in zip(one.parameters(), two.parameters(), strict=True):
        np.testing.assert_array_equal(p.data, q.data)
