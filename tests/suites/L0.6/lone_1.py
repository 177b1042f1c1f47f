"""What was written is read."""

import numpy as np

from tinyllm.checkpoint import read_safetensors, write_safetensors


def test_round_trip(tmp_path):
    x = np.random.default_rng(0).normal(size=(5, 7))
    write_safetensors(tmp_path / "x", {"x": x}, {"who": "me"})
    arrays, texts = read_safetensors(tmp_path / "x")
    np.testing.assert_array_equal(arrays["x"], x)
    assert texts == {"who": "me"}
