"""Calls everything."""

from tinyllm.models.gpt import (
    GPT,
    GPTConfig,
    generate,
    gpt2_arrays,
    load_gpt2_arrays,
    probabilities,
)
from tinyllm.num.pcg32 import PCG32


def test_runs():
    model = GPT(GPTConfig(9, 6, 8, 2, 2, dropout=0.1), PCG32(1))
    model.loss([[1, 2, 3, 4]]).backward()
    model.eval()
    model([[1, 2, 3]], [[False, True, True]])
    list(generate(model, [1, 2], 4, rng=PCG32(2)))
    load_gpt2_arrays(model, gpt2_arrays(model))
    probabilities([1.0, 2.0, 3.0], 0.5, 2, 0.9)
    repr(model)
