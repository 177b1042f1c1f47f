"""Linear against torch."""

import numpy as np
import torch

from tinyllm.nn import Linear
from tinyllm.tensor import Tensor


def test_linear():
    ours, theirs = Linear(3, 4), torch.nn.Linear(3, 4)
    with torch.no_grad():
        theirs.weight.copy_(torch.tensor(ours.weight.data))
        theirs.bias.copy_(torch.tensor(ours.bias.data))
    x = np.random.default_rng(0).normal(size=(2, 5, 3)).astype("f4")
    z, want = ours(Tensor(x)), theirs(torch.tensor(x))
    np.testing.assert_allclose(z.data, want.detach().numpy(), rtol=1e-5, atol=1e-6)
    z.backward(np.ones((2, 5, 4), "f4"))
    want.sum().backward()
    np.testing.assert_allclose(ours.weight.grad, theirs.weight.grad.numpy(), rtol=1e-4)
    np.testing.assert_allclose(ours.bias.grad, theirs.bias.grad.numpy())
