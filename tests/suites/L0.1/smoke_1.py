"""Calls everything."""

import numpy as np

from tinyllm.autograd import Tensor, no_grad, record, sum_over, unbroadcast


def test_runs():
    x = Tensor(np.full((2, 3), 0.5), requires_grad=True)
    y = (-x + 1 - 2 * x) / (x + 3) ** 2 + x.abs().clip(0, 1).sigmoid()
    z = y.exp().sqrt() * x.log().tanh() + 2**x
    z.astype("f4").backward(np.ones((2, 3), "f4"))
    with no_grad():
        x.detach() * x
    record(x.data * 2, [x], lambda g: [2 * g]).backward(np.ones((2, 3)))
    unbroadcast(np.ones((2, 3)), (3,))
    sum_over(np.ones((2, 3)), (0,))
    assert len(x == y)
