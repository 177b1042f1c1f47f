"""Asks for shapes and finite numbers."""

import numpy as np

from tinyllm.tensor import Tensor
from tinyllm.train import AdamW, cross_entropy


def test_shapes():
    w = Tensor(np.arange(12.0).reshape(4, 3), requires_grad=True)
    loss = cross_entropy(w, np.array([0, 1, 2, 0]))
    assert loss.shape == ()
    assert cross_entropy(w, [0, 1, 2, 0], reduction="none").shape == (4,)
    loss.backward()
    optimiser = AdamW([("w", w)], lr=0.1)
    optimiser.step()
    assert w.shape == w.grad.shape == (4, 3)
    assert np.isfinite(w.data).all()
    assert set(optimiser.state_dict()) == {"w.exp_avg", "w.exp_avg_sq", "w.step"}
