"""Asks for shapes and finite numbers."""

import numpy as np

from tinyllm.shapes import Tensor, concatenate, stack


def test_shapes():
    x = Tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    assert x.reshape(3, 2).shape == x.T.shape == (3, 2)
    assert concatenate([x, x]).shape == (4, 3)
    assert stack([x, x]).shape == (2, 2, 3)
    assert x[[0, 1, 1]].shape == (3, 3)
    x[[0, 1]].backward(np.ones((2, 3)))
    assert np.isfinite(x.grad).all()
