"""A reshape and a transpose against torch."""

import numpy as np
import torch

from tinyllm.shapes import Tensor


def test_against_torch():
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    ours, theirs = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    z, want = ours.transpose(1, 2, 0).reshape(6, 4), theirs.permute(1, 2, 0).reshape(6, 4)
    np.testing.assert_array_equal(z.data, want.detach().numpy())
    z.backward(x.reshape(6, 4))
    want.backward(torch.tensor(x.reshape(6, 4)))
    np.testing.assert_array_equal(ours.grad, theirs.grad.numpy())
