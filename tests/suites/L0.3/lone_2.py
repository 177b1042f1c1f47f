"""A softmax against its formula."""

import numpy as np

from tinyllm.tensor import Tensor


def test_softmax():
    x = np.random.default_rng(0).normal(size=(3, 4))
    e = np.exp(x)
    np.testing.assert_allclose(
        Tensor(x).softmax().data, e / e.sum(axis=1, keepdims=True), rtol=1e-12
    )
