"""Asks what the report looks like."""

import numpy as np

from tinyllm.num.gradcheck import gradcheck
from tinyllm.tensor import Tensor


def test_report():
    x = Tensor(np.ones((2, 3)), requires_grad=True)
    report = gradcheck(lambda x: x * x, [x])
    assert len(report.inputs) == 1
    assert report.inputs[0].checked == 6
    assert report.vanishing == ()
