"""Calls everything."""

import numpy as np

from tinyllm.shapes import Tensor, concatenate, stack


def test_runs():
    x = Tensor(np.ones((2, 3, 4)), requires_grad=True)
    y = concatenate([x.reshape(6, 4), x.transpose(0, 2, 1).reshape(6, 4)])
    z = stack([y, y]).squeeze().unsqueeze(0).flatten()
    (z[:10] + x[0, 0, 0]).split([4, 6])[1].backward(np.ones(6))
    x.broadcast_to(2, 2, 3, 4).swapaxes(0, 1)
    assert list(x[0].T)
