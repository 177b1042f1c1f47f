"""Files made by hand, and disks that fail at the wrong moment."""

import json
import os
import threading

import numpy as np
import pytest

from tinyllm.checkpoint import (
    CheckpointError,
    read_safetensors,
    try_lock,
    write_atomically,
    write_safetensors,
)

ORDER = np.random.default_rng(0).normal(size=(4, 6))
CODES = {
    "F64": "f8",
    "F32": "f4",
    "F16": "f2",
    "I64": "i8",
    "I32": "i4",
    "I16": "i2",
    "I8": "i1",
    "U64": "u8",
    "U32": "u4",
    "U16": "u2",
    "U8": "u1",
    "BOOL": "?",
}


def packed(header, body=b""):
    """A file of the format: a length, a header, bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def entry(begin, end, dtype="F32", shape=None):
    size = {"F32": 4, "BOOL": 1, "BF16": 2}[dtype]
    shape = [(end - begin) // size] if shape is None else shape
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "x.safetensors"


@pytest.mark.parametrize("code", CODES)
def test_every_type(path, code):
    x = (ORDER * 9).astype(CODES[code])
    write_safetensors(path, {"x": x, "turned": x.T, "none": x[:0], "one": x[2, 2]})
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    assert header["x"]["dtype"] == code
    first, last = header["turned"]["data_offsets"]
    assert data[begin + first : begin + last] == np.ascontiguousarray(x.T).tobytes()
    found, texts = read_safetensors(path)
    assert list(found) == ["x", "turned", "none", "one"]
    assert texts == {}
    np.testing.assert_array_equal(found["turned"], x.T)
    assert found["none"].shape == (0, 6)
    assert found["one"].shape == ()
    assert found["x"].dtype == x.dtype
    found["x"][:] = 0  # it is a copy


def test_other_byte_order_and_views(path):
    x = ORDER.astype(">f4")
    write_safetensors(path, {"big": x, "steps": ORDER[::2, ::-3], "rows": [[1, 2], [3, 4]]})
    found, _ = read_safetensors(path)
    np.testing.assert_array_equal(found["big"], x)
    assert found["big"].dtype == np.dtype("=f4")
    np.testing.assert_array_equal(found["steps"], ORDER[::2, ::-3])
    assert found["rows"].tolist() == [[1, 2], [3, 4]]


def test_brain_floats(path):
    path.parent.mkdir()
    path.write_bytes(packed({"w": entry(0, 4, "BF16")}, bytes.fromhex("803f20c1")))
    (w,) = read_safetensors(path)[0].values()
    assert w.dtype == np.float32
    assert w.tolist() == [1.0, -10.0]


def test_large(path):
    x = np.arange(800_000.0)
    write_safetensors(path, {"x": x, "more": x[:3]}, {"long": "a" * 100_000})
    found, texts = read_safetensors(path)
    np.testing.assert_array_equal(found["x"], x)
    assert len(texts["long"]) == 100_000
    data = bytearray(path.read_bytes())
    for at in (len(data) - 1, 3_000_000):
        data[at] ^= 1
        path.write_bytes(data)
        with pytest.raises(CheckpointError):
            read_safetensors(path)
        data[at] ^= 1


def test_four_thousand_names(path):
    given = {f"layers.{i}.weight": np.full(2, i, "f4") for i in range(4000)}
    write_safetensors(path, given)
    found, _ = read_safetensors(path)
    assert list(found) == list(given)
    assert all(found[name].tolist() == given[name].tolist() for name in given)


def test_each_flipped_bit_and_each_cut(path):
    write_safetensors(path, {"w": np.array([1, 2], "i2")}, {"a": "b"})
    data = path.read_bytes()
    for at in range(len(data)):
        for bit in (0, 3, 7):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
            with pytest.raises(CheckpointError):
                read_safetensors(path)
        path.write_bytes(data[:at])
        with pytest.raises(CheckpointError):
            read_safetensors(path)


TWO = b'"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
ROW = {f"a{i}": entry(4 * i, 4 * i + 4) for i in range(500)}


@pytest.mark.parametrize(
    "data",
    [
        packed({"a": entry(0, 8), "b": entry(4, 12)}, b"\0" * 12),
        packed({"a": entry(0, 4), "b": entry(8, 12)}, b"\0" * 12),
        packed({"a": entry(8, 16)}, b"\0" * 8),
        packed({"a": entry(0, 8, shape=[3])}, b"\0" * 8),
        packed({"a": entry(0, 8)}, b"\0" * 9),
        packed({"a": entry(0, 4) | {"dtype": "F8"}}, b"\0" * 4),
        packed({"a": entry(0, 4) | {"more": 1}}, b"\0" * 4),
        packed({"a": entry(0, 4, shape=[-1])}, b"\0" * 4),
        packed({"a": entry(0, 4, shape=[True])}, b"\0" * 4),
        packed({"a": 3}),
        packed({"__metadata__": {"a": 3}}),
        packed(b"{" + TWO + b"," + TWO + b"}", b"\0" * 4),
        packed(b"[]"),
        packed(b"{"),
        packed({"a": entry(0, 3, "BOOL")}, b"\0\1\2"),
        packed({"a": entry(0, 9000, "BOOL")}, b"\1" * 8999 + b"\2"),
        packed({**ROW, "last": entry(4 * 499, 4 * 500)}, b"\0" * 2000),
        b"\xff" * 8 + b"{}",
    ],
)
def test_faulty_files(path, data):
    path.parent.mkdir()
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"x\.safetensors"):
        read_safetensors(path)


def parts(error):
    yield b"new"
    raise error


@pytest.mark.parametrize("error", [OSError(28, "full"), KeyboardInterrupt(), ValueError()])
def test_a_write_that_fails(path, error):
    write_atomically(path, [b"o", b"ld"])
    with pytest.raises(type(error)):
        write_atomically(path, parts(error))
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == [path.name]


def test_the_order_of_calls(path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda *file: (calls.append("fsync"), fsync(*file)))
    monkeypatch.setattr(os, "replace", lambda *two: (calls.append("replace"), replace(*two)))
    write_atomically(path, [b"a"])
    assert calls.index("fsync") < calls.index("replace") < len(calls) - 1


def test_old_file_while_writing(path):
    write_atomically(path, [b"old"])

    def watched():
        yield b"n"
        assert path.read_bytes() == b"old"
        yield b"ew"

    write_atomically(path, watched())
    assert path.read_bytes() == b"new"


def test_many_writers(path):
    errors = []

    def write(letter):
        try:
            for _ in range(20):
                write_atomically(path, [letter * 50_000] * 4)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    data = path.read_bytes()
    assert data == data[:1] * 200_000
    assert os.listdir(path.parent) == [path.name]


def test_links_modes_and_folders(path):
    write_atomically(path, [b"a"])
    old = os.umask(0o027)
    try:
        path.chmod(0o666)
        link = path.with_name("link")
        link.symlink_to(path)
        write_atomically(link, [b"b"])
    finally:
        os.umask(old)
    assert link.is_symlink()
    assert path.read_bytes() == b"b"
    assert path.stat().st_mode & 0o777 == 0o666
    with pytest.raises(OSError):
        write_atomically(path.parent, [b"a"])


def test_locks(tmp_path):
    (tmp_path / "x").write_bytes(b"")
    with open(tmp_path / "x", "rb") as one, open(tmp_path / "x", "rb") as two:
        assert try_lock(one)
        assert not try_lock(two)
        one.close()
        assert try_lock(two)


def test_refused(path):
    with pytest.raises(ValueError):
        write_safetensors(path, {"__metadata__": np.ones(2)})
    with pytest.raises(ValueError):
        write_safetensors(path, {}, {"sha256": "a"})
    with pytest.raises(TypeError):
        write_safetensors(path, {"x": np.ones(2, complex)})
    with pytest.raises(FileNotFoundError):
        read_safetensors(path)
