"""Names, shapes and dtypes, and no numbers."""

import numpy as np

from tinyllm.checkpoint import read_safetensors, write_safetensors


def test_names_and_shapes(tmp_path):
    given = {"a": np.zeros((3, 2)), "b": np.zeros((0, 4), "i2"), "c": np.zeros((), bool)}
    write_safetensors(tmp_path / "x", given)
    found, _ = read_safetensors(tmp_path / "x")
    assert {n: (x.shape, x.dtype) for n, x in found.items()} == {
        n: (x.shape, x.dtype) for n, x in given.items()
    }
