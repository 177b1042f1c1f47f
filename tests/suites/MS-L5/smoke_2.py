"""Asks for shapes and kinds."""

import numpy as np

from tinyllm.models.addition.data import source_tokens, target_tokens
from tinyllm.models.addition.model import Adder, Settings, exact_match, translate


def test_shapes():
    model = Adder(Settings(d_model=12, n_heads=3, n_layers=2, d_ff=8))
    asked = np.array([[1, 2], [30, 40], [999, 999]])
    source, target = source_tokens(*asked.T), target_tokens(*asked.T)
    assert model(source, target[:, :-1]).shape == (3, 5, 14)
    seen = model.attend(source, target[:, :-1])
    assert [w.shape for w in seen] == [(2, 3, 3, 7, 7), (2, 3, 3, 5, 5), (2, 3, 3, 5, 7)]
    assert [len(beams) for beams in translate(model, source, width=2)] == [2, 2, 2]
    assert 0 <= exact_match(model, asked) <= 1
