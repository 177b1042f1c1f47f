"""Asks for shapes and finite numbers."""

import numpy as np

from tinyllm.models.gpt import GPT, GPTConfig, generate, probabilities
from tinyllm.num.pcg32 import PCG32


def test_shapes():
    model = GPT(GPTConfig(7, 5, 4, 2, 1), PCG32(3))
    assert model([[0, 1, 2], [3, 4, 5]]).shape == (2, 3, 7)
    loss = model.loss([[0, 1, 2]])
    assert np.isfinite(loss.item())
    loss.backward()
    assert all(np.isfinite(p.grad).all() for p in model.parameters())
    assert len(list(generate(model, [1], 3, rng=PCG32(0)))) == 3
    assert probabilities([0.0, 1.0]).shape == (2,)
