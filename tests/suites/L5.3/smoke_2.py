"""Asks for shapes, and for nothing else."""

import numpy as np
import pytest

from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention


@pytest.mark.parametrize(("d", "H"), [(4, 1), (4, 2), (8, 4), (32, 8)])
@pytest.mark.parametrize(("Tq", "Tk"), [(3, 3), (4, 6), (1, 1)])
def test_shapes(d, H, Tq, Tk):
    mha = MultiHeadAttention(d, H)
    x = Tensor(np.ones((2, Tq, d), np.float32))
    y = Tensor(np.ones((2, Tk, d), np.float32))
    assert mha(x, y).shape == (2, Tq, d)
    out, weights = mha.attend(x, y)
    assert out.shape == (2, Tq, d)
    assert weights.shape == (2, H, Tq, Tk)


def test_shapes_of_heads():
    mha = MultiHeadAttention(8, 2)
    x = Tensor(np.ones((2, 3, 8)))
    assert mha.split_heads(x).shape == (2, 2, 3, 4)
    assert mha.merge_heads(mha.split_heads(x)).shape == (2, 3, 8)
    assert mha.head_mask(np.ones((2, 3, 3), bool), 2, 3, 3).shape == (2, 1, 3, 3)
