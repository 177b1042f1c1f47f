"""Builds, runs and writes; asserts nothing."""

import numpy as np

from tinyllm.models.addition.data import source_tokens, target_tokens
from tinyllm.models.addition.model import (
    Adder,
    Settings,
    evaluating,
    exact_match,
    shard_gradient,
    translate,
)


def test_runs():
    s = Settings(d_model=8, n_heads=2, n_layers=1, d_ff=8, batch=6, dropout=0.1, steps=20, warmup=2)
    model, a, b = Adder(s), np.arange(6), np.arange(6) * 3
    source, target = source_tokens(a, b), target_tokens(a, b)
    model(source, target[:, :-1]).sum().backward()
    for shard in range(2):
        shard_gradient(model, s, 0, shard, source, target, 30)
    with evaluating(model):
        model.attend(source, target[:, :-1])
    translate(model, source)
    translate(model, source, width=3)
    exact_match(model, np.stack([a, b], axis=1))
