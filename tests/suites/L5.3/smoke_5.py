"""Every method with every kind of argument, and refusals; no numbers."""

import itertools

import numpy as np
import pytest

from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention


def test_masks_of_all_shapes_are_taken():
    mha = MultiHeadAttention(6, 3)
    x, y = Tensor(np.ones((2, 4, 6), np.float32)), Tensor(np.ones((2, 5, 6), np.float32))
    shapes = [(5,), (4, 5), *itertools.product((1, 2), (1, 4), (1, 5))]
    shapes += [*itertools.product((1, 2), (1, 3), (1, 4), (1, 5))]
    for shape in shapes:
        mask = np.ones(shape, bool)
        mha.head_mask(mask, 2, 4, 5)
        mha(x, y, mask)
        mha.attend(x, y, mask)


def test_nonsense_raises():
    with pytest.raises(ValueError):
        MultiHeadAttention(6, 4)
    mha, x = MultiHeadAttention(6, 3), Tensor(np.ones((2, 4, 6), np.float32))
    with pytest.raises(ValueError):
        mha(x, Tensor(np.ones((1, 4, 6), np.float32)))
    with pytest.raises(TypeError):
        mha(x, x, np.ones((4, 4)))
