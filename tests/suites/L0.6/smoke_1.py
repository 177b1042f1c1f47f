"""Calls everything."""

import numpy as np

from tinyllm.checkpoint import read_safetensors, try_lock, write_atomically, write_safetensors


def test_runs(tmp_path):
    path = tmp_path / "x.safetensors"
    write_atomically(path, [b"ab", b"c"])
    with open(path, "rb") as file:
        try_lock(file)
    write_safetensors(path, {"w": np.ones((2, 3), "f4"), "n": np.arange(4)}, {"step": "3"})
    arrays, texts = read_safetensors(path)
    assert len(arrays) == 2
    assert texts
