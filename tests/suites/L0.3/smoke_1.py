"""Calls everything."""

import numpy as np

from tinyllm import tensor
from tinyllm.tensor import Tensor


def test_runs():
    x = Tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    y = (
        (x @ x.T).softmax()
        + x.mean()
        + x.max(axis=0, keepdims=True)[:, :2]
        - x.log_softmax()[:, :2]
    )
    (y.sum() + tensor.where(x > 2, x, 0.0).min()).backward()
    tensor.zeros(2)
    tensor.ones(2)
    tensor.arange(3)
    x.argmax()
