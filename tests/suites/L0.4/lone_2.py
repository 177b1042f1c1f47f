"""The names of a small model's parameters, and a state that comes back."""

import numpy as np

from tinyllm.nn import Linear, Sequential


def test_state():
    one, two = (Sequential(Linear(2, 3), Linear(3, 1)) for _ in "ab")
    assert [name for name, _ in one.named_parameters()] == [
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
    ]
    two.load_state_dict(one.state_dict())
    for p, q in zip(one.parameters(), two.parameters(), strict=True):
        np.testing.assert_array_equal(p.data, q.data)
