"""A formula and its gradients against torch."""

import numpy as np
import torch

from tinyllm.autograd import Tensor


def test_formula():
    a, b = np.random.default_rng(0).normal(size=(2, 3, 4))
    x, y = (Tensor(t, requires_grad=True) for t in (a, b))
    s, t = (torch.tensor(t, requires_grad=True) for t in (a, b))
    z, want = (x * y - x / (y * y + 1)).tanh(), (s * t - s / (t * t + 1)).tanh()
    np.testing.assert_allclose(z.data, want.detach().numpy(), rtol=1e-12)
    z.backward(np.ones((3, 4)))
    want.backward(torch.ones(3, 4))
    np.testing.assert_allclose(x.grad, s.grad.numpy(), rtol=1e-12)
    np.testing.assert_allclose(y.grad, t.grad.numpy(), rtol=1e-12)
