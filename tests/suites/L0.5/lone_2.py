"""Ten steps of AdamW against torch."""

import numpy as np
import torch

from tinyllm.tensor import Tensor
from tinyllm.train import AdamW


def test_adamw():
    x, t = np.ones(3), np.random.default_rng(0).normal(size=(10, 3))
    ours, theirs = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    one, two = AdamW([ours], lr=0.1), torch.optim.AdamW([theirs], lr=0.1)
    for g in t:
        ours.grad, theirs.grad = g.copy(), torch.tensor(g)
        one.step()
        two.step()
    np.testing.assert_allclose(ours.data, theirs.detach().numpy(), rtol=1e-10)
