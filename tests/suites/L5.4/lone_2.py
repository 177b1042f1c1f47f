"""Waves against their formula, once."""

import numpy as np

from tinyllm.xfmr.positions import sinusoidal


def test_waves():
    t = np.arange(5)[:, None] / 10000 ** (np.arange(0, 8, 2) / 8)
    wanted = np.stack([np.sin(t), np.cos(t)], axis=-1).reshape(5, 8)
    np.testing.assert_allclose(sinusoidal(5, 8), wanted, atol=1e-6)
