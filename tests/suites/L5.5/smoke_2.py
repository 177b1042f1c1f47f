"""Shapes, and finite numbers."""

import numpy as np
import pytest

from tinyllm.tensor import Tensor
from tinyllm.xfmr.layers import DecoderLayer, EncoderLayer, LayerConfig, LayerNorm


@pytest.mark.parametrize("norm_first", [True, False])
def test_shapes(norm_first):
    config = LayerConfig(12, 3, 20, norm_first=norm_first)
    x, y = (Tensor(np.random.default_rng(n).normal(size=(2, n, 12))) for n in (4, 6))
    for out in (EncoderLayer(config)(x), DecoderLayer(config)(x, y), LayerNorm(12)(x)):
        assert out.shape == (2, 4, 12)
        assert np.isfinite(out.data).all()
