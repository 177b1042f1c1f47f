"""Greedy writing against the logits, once."""

import numpy as np

from tinyllm.models.addition.data import END, PAD, PLUS, START, source_tokens
from tinyllm.models.addition.model import Adder, Settings, translate


def test_greedy():
    model = Adder(Settings(d_model=8, n_heads=2, n_layers=1, d_ff=8))
    source = source_tokens(np.arange(9) * 11, np.arange(9) * 29)
    for line, (h,) in zip(source, translate(model, source), strict=True):
        told = [START]
        while len(told) < 6 and told[-1] != END:
            z = model(line[None], np.array([told])).data[0, -1]
            z[[PLUS, PAD, START, *([END] if len(told) == 1 else [])]] = -np.inf
            told.append(int(z.argmax()))
        assert h.tokens == tuple(told[1:])
