"""Picking rows against torch."""

import numpy as np
import torch

from tinyllm.shapes import Tensor


def test_rows():
    table, ids = np.random.default_rng(0).normal(size=(9, 4)), np.array([[1, 2], [8, 2]])
    ours, theirs = Tensor(table, requires_grad=True), torch.tensor(table, requires_grad=True)
    ours[ids].backward(np.ones((2, 2, 4)))
    theirs[torch.tensor(ids)].backward(torch.ones(2, 2, 4))
    np.testing.assert_array_equal(ours.grad, theirs.grad.numpy())
