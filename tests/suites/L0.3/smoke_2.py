"""Asks for shapes and finite numbers."""

import numpy as np

from tinyllm.tensor import Tensor, arange, ones, zeros


def test_shapes():
    x, w = (
        Tensor(np.ones((2, 5, 3)), requires_grad=True),
        Tensor(np.ones((3, 4)), requires_grad=True),
    )
    y = x @ w
    assert y.shape == (2, 5, 4)
    assert y.sum(axis=1).shape == y.max(axis=1).shape == y.mean(axis=1).shape == (2, 4)
    y.softmax().sum().backward()
    assert np.isfinite(x.grad).all()
    assert w.grad.shape == (3, 4)
    assert zeros(2, 3).shape == ones(2, 3).shape == (2, 3)
    assert arange(4).shape == (4,)
