"""Calls it."""

import numpy as np

from tinyllm.num.gradcheck import gradcheck
from tinyllm.tensor import Tensor


def test_runs():
    x = Tensor(np.arange(1.0, 4.0), requires_grad=True)
    str(gradcheck(lambda x: x.exp(), [x]))
    gradcheck(lambda a, b: (a * b, a), {"a": x, "b": np.ones(3)}, sample=2, seed=3)
