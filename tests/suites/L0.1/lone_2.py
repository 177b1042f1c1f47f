"""A row added to a table, against torch."""

import numpy as np
import torch

from tinyllm.autograd import Tensor


def test_broadcasting():
    a, b = np.random.default_rng(1).normal(size=(3, 4)), np.arange(1.0, 5)
    x, y = (Tensor(t, requires_grad=True) for t in (a, b))
    s, t = (torch.tensor(t, requires_grad=True) for t in (a, b))
    ((x + y) * y).backward(a)
    ((s + t) * t).backward(torch.tensor(a))
    np.testing.assert_allclose(x.grad, s.grad.numpy(), rtol=1e-12)
    np.testing.assert_allclose(y.grad, t.grad.numpy(), rtol=1e-12)
