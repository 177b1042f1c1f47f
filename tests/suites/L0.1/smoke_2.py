"""Asks for shapes and finite numbers."""

import numpy as np

from tinyllm.autograd import Tensor, unbroadcast


def test_shapes():
    x, y = (Tensor(np.arange(1.0, 7).reshape(2, 3), requires_grad=True) for _ in "xy")
    z = x * y - x / y + x**2
    assert z.shape == (2, 3)
    assert (x + Tensor(np.ones(3))).shape == (2, 3)
    z.backward(np.ones((2, 3)))
    for t in (x, y):
        assert t.grad.shape == (2, 3)
        assert np.isfinite(t.grad).all()
    assert x.exp().log().sqrt().tanh().sigmoid().shape == (2, 3)
    assert unbroadcast(np.ones((4, 2, 3)), (2, 1)).shape == (2, 1)
