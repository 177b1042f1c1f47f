"""Cross-entropy against torch."""

import numpy as np
import torch

from tinyllm.tensor import Tensor
from tinyllm.train import cross_entropy


def test_cross_entropy():
    x, t = np.random.default_rng(0).normal(size=(6, 5)), np.array([0, 4, 2, 2, 1, 3])
    ours, theirs = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    loss = cross_entropy(ours, t)
    want = torch.nn.functional.cross_entropy(theirs, torch.tensor(t))
    np.testing.assert_allclose(loss.item(), want.item(), rtol=1e-12)
    loss.backward()
    want.backward()
    np.testing.assert_allclose(ours.grad, theirs.grad.numpy(), rtol=1e-10)
