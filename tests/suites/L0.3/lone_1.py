"""A product against torch."""

import numpy as np
import torch

from tinyllm.tensor import Tensor


def test_product():
    a, b = (
        np.random.default_rng(0).normal(size=(2, 5, 3)),
        np.random.default_rng(1).normal(size=(3, 4)),
    )
    x, w = (Tensor(t, requires_grad=True) for t in (a, b))
    s, u = (torch.tensor(t, requires_grad=True) for t in (a, b))
    z, want = x @ w, s @ u
    np.testing.assert_allclose(z.data, want.detach().numpy(), rtol=1e-12)
    z.backward(np.ones((2, 5, 4)))
    want.backward(torch.ones(2, 5, 4))
    np.testing.assert_allclose(x.grad, s.grad.numpy(), rtol=1e-12)
    np.testing.assert_allclose(w.grad, u.grad.numpy(), rtol=1e-12)
