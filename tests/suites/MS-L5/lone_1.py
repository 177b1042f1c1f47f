"""Later digits change nothing: one fact."""

import numpy as np

from tinyllm.models.addition.data import source_tokens, target_tokens
from tinyllm.models.addition.model import Adder, Settings


def test_the_future_is_hidden():
    model = Adder(Settings(d_model=8, n_heads=2, n_layers=1, d_ff=8))
    a, b = np.arange(5) * 31, np.arange(5) * 77
    source, target = source_tokens(a, b), target_tokens(a, b)[:, :-1]
    before = model(source, target).data
    target[:, 3:] = 9
    np.testing.assert_array_equal(model(source, target).data[:, :3], before[:, :3])
