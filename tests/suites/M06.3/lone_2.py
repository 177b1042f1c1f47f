"""Uniform numbers by their formula."""

import numpy as np

from tinyllm.num.pcg32 import PCG32


def test_uniform():
    words = PCG32(5).uint32s(100).astype(np.float64)
    np.testing.assert_array_equal(PCG32(5).uniform(0.0, 1.0, 100), np.floor(words / 256) / 2**24)
