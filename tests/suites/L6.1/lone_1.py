"""Probabilities are a softmax."""

import numpy as np
import torch

from tinyllm.models.gpt import probabilities


def test_softmax():
    x = np.random.default_rng(0).normal(size=20)
    np.testing.assert_allclose(probabilities(x), torch.tensor(x).softmax(0).numpy(), rtol=1e-12)
