"""Asks for shapes and finite numbers."""

import numpy as np

from tinyllm.nn import Dropout, Linear, Sequential, randn


def test_shapes():
    net = Sequential(Linear(3, 4), Dropout(0.1), Linear(4, 2, bias=False))
    x = randn(2, 5, 3)
    assert x.shape == (2, 5, 3)
    z = net(x)
    assert z.shape == (2, 5, 2)
    z.backward(np.ones(z.shape))
    for p in net.parameters():
        assert np.isfinite(p.grad).all()
    assert len(net.state_dict()) == 3
    assert len(net) == 3
