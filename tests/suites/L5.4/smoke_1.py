"""Calls everything."""

import numpy as np

from tinyllm.tensor import Tensor
from tinyllm.xfmr.positions import (
    Embedding,
    LearnedPositions,
    SinusoidalPositions,
    embed,
    rotary,
    sinusoidal,
)


def test_runs():
    for place in (LearnedPositions(9, 6), SinusoidalPositions(6), rotary):
        x = Embedding(7, 6)([[1, 2, 3], [0, 6, 6]])
        place(place(x), offset=2).sum().backward()
    embed(Tensor(np.ones((3, 2))), [0, 2])
    sinusoidal(5, 3)
