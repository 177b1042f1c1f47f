# Tangled from book/workshop/ol-tests.md
"""Three tests that say next to nothing."""

import numpy as np

from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention


def test_shape():
    x = Tensor(np.ones((2, 3, 8), np.float32))
    assert MultiHeadAttention(8, 2)(x, x).shape == (2, 3, 8)


def test_round_trip():  # two wrong reshapes would undo each other
    mha, x = MultiHeadAttention(8, 2), Tensor(np.arange(48.0).reshape(2, 3, 8))
    np.testing.assert_array_equal(mha.merge_heads(mha.split_heads(x)).data, x.data)


def test_nothing():
    assert True
