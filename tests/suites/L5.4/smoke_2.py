"""Asks for shapes."""

import numpy as np
import pytest

from tinyllm.tensor import Tensor
from tinyllm.xfmr.positions import (
    Embedding,
    LearnedPositions,
    SinusoidalPositions,
    rotary,
    sinusoidal,
)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (2, 5, 3, 4)])
def test_shapes(shape):
    x = Tensor(np.ones(shape, np.float32))
    for place in (LearnedPositions(9, 4), SinusoidalPositions(4), rotary):
        assert place(x).shape == shape
    assert sinusoidal(7, 5).shape == (7, 5)
    assert Embedding(5, 4)(np.zeros(shape, int)).shape == (*shape, 4)
