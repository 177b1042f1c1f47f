"""The bytes of one small file."""

import json

import numpy as np

from tinyllm.checkpoint import write_safetensors


def test_bytes(tmp_path):
    write_safetensors(tmp_path / "x", {"w": np.array([1, -2], np.int16)})
    data = (tmp_path / "x").read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    entry = json.loads(data[8:end])["w"]
    assert entry == {"dtype": "I16", "shape": [2], "data_offsets": [0, 4]}
    assert data[end:] == b"\x01\x00\xfe\xff"
