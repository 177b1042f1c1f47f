"""A right softmax passes."""

import numpy as np

from tinyllm.num.gradcheck import gradcheck
from tinyllm.tensor import Tensor


def test_softmax():
    x = Tensor(np.random.default_rng(0).normal(size=(3, 4)), requires_grad=True)
    report = gradcheck(lambda x: x.softmax(), [x])
    assert report.inputs[0].worst < 1
