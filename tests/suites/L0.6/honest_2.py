"""Round trips of drawn arrays, damage at drawn places, and writers that stop."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tinyllm.checkpoint import (
    CheckpointError,
    read_safetensors,
    write_atomically,
    write_safetensors,
)

CHANCE = np.random.default_rng(1)
TYPES = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", ">f8", ">i4"]


def drawn():
    shape = tuple(CHANCE.integers(0, 5, CHANCE.integers(0, 4)))
    x = (CHANCE.normal(size=shape) * 40).astype(TYPES[CHANCE.integers(len(TYPES))])
    return x.T if CHANCE.random() < 0.5 else x


@pytest.mark.parametrize("count", [0, 1, 3, 20, 3500])
def test_round_trips(tmp_path, count):
    given = {f"name {i} é": drawn() for i in range(count)}
    texts = {"note": '"}{' * count}
    write_safetensors(tmp_path / "x", given, texts)
    found, said = read_safetensors(tmp_path / "x")
    assert said == texts
    assert list(found) == list(given)
    for name, x in given.items():
        assert found[name].shape == x.shape
        assert found[name].dtype == x.dtype.newbyteorder("=")
        np.testing.assert_array_equal(found[name], x)


def test_megabytes(tmp_path):
    x = CHANCE.integers(0, 255, 7_000_000, dtype=np.uint8)
    write_safetensors(tmp_path / "x", {"x": x})
    np.testing.assert_array_equal(read_safetensors(tmp_path / "x")[0]["x"], x)
    with open(tmp_path / "x", "r+b") as file:
        file.seek(-5, os.SEEK_END)
        file.write(bytes([x[-5] ^ 128]))
    with pytest.raises(CheckpointError):
        read_safetensors(tmp_path / "x")


def test_damage(tmp_path):
    write_safetensors(tmp_path / "x", {"a": np.arange(9.0), "b": np.arange(3) > 1}, {"n": "1"})
    data = (tmp_path / "x").read_bytes()
    for at in range(len(data)):
        wrong = bytearray(data)
        wrong[at] ^= 1 << int(CHANCE.integers(8))
        (tmp_path / "x").write_bytes(wrong)
        with pytest.raises(CheckpointError):
            read_safetensors(tmp_path / "x")
    for size in (0, 7, 8, 40, len(data) - 1):
        (tmp_path / "x").write_bytes(data[:size])
        with pytest.raises(CheckpointError):
            read_safetensors(tmp_path / "x")


def file_of(entries, size):
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + b"\1" * size


def test_headers_that_lie(tmp_path):
    row = [{"dtype": "U8", "shape": [2], "data_offsets": [2 * i, 2 * i + 2]} for i in range(400)]
    right = {str(i): one for i, one in enumerate(row)}
    (tmp_path / "x").write_bytes(file_of(right, 800))
    assert len(read_safetensors(tmp_path / "x")[0]) == 400
    wrong = [
        file_of({**right, k: right[o]}, 800) for k, o in [("399", "398"), ("0", "1"), ("7", "9")]
    ]
    wrong += [
        file_of(right, 799),
        file_of(right, 801),
        file_of({**right, "3": right["3"] | {"shape": [3]}}, 800),
        file_of({**right, "3": right["3"] | {"dtype": "U7"}}, 800),
        file_of({"b": {"dtype": "BOOL", "shape": [5000], "data_offsets": [0, 5000]}}, 4999) + b"\2",
        file_of([], 0),
    ]
    for data in wrong:
        (tmp_path / "x").write_bytes(data)
        with pytest.raises(CheckpointError):
            read_safetensors(tmp_path / "x")
    entry = b'"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
    twice = b"{" + entry + b"," + entry + b"}"
    (tmp_path / "x").write_bytes(len(twice).to_bytes(8, "little") + twice + b"\1")
    with pytest.raises(CheckpointError):
        read_safetensors(tmp_path / "x")


class Stop(BaseException):
    """What nobody expects."""


def stopping():
    yield b"new"
    raise Stop


def test_writers_that_stop(tmp_path):
    path = tmp_path / "x"
    write_atomically(path, [b"old"])
    with pytest.raises(Stop):
        write_atomically(path, stopping())
    assert [path.read_bytes(), os.listdir(tmp_path)] == [b"old", ["x"]]


def test_two_writers_at_once(tmp_path):
    path = tmp_path / "x"

    def many(letter):
        for _ in range(50):
            write_atomically(path, [letter * 40_000, letter])

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(many, b"a"), pool.submit(many, b"b")]:
            done.result()
    assert path.read_bytes() in (b"a" * 40_001, b"b" * 40_001)
    assert os.listdir(tmp_path) == ["x"]


def test_on_the_disk_before_it_has_the_name(tmp_path, monkeypatch):
    order, fsync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda f: (order.append("fsync"), fsync(f))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append("replace"), replace(a, b))[1])
    write_safetensors(tmp_path / "x", {"x": np.ones(3)})
    assert order[:2] == ["fsync", "replace"]


def test_modes(tmp_path):
    path = tmp_path / "a" / "x"
    write_atomically(path, [b"1"])
    for mode in (0o600, 0o640, 0o666):
        path.chmod(mode)
        write_atomically(path, [b"2"])
        assert path.stat().st_mode & 0o777 == mode
