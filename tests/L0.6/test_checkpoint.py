# Tangled from book/1-foundations/L0.6-tests.md
"""L0.6: the safetensors format against its own library, and writing that survives."""

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from tinyllm import checkpoint
from tinyllm.checkpoint import (
    CheckpointError,
    read_safetensors,
    try_lock,
    write_atomically,
    write_safetensors,
)


def hand_bytes(path: Path) -> bytes:
    """The file of section 3."""
    write_safetensors(path, {"w": np.array([1, -2], np.float32)})
    return path.read_bytes()


DTYPES = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"]
SHAPES = [(), (1,), (2, 3), (0,), (3, 0, 2)]


def samples():
    rng = np.random.default_rng(0)
    return {
        f"{dtype} {shape}": np.asarray(rng.normal(size=shape) * 50).astype(dtype)
        for dtype in ["?", "u1", *DTYPES]
        for shape in SHAPES
    }


def test_bytes_by_hand(tmp_path):
    data = hand_bytes(tmp_path / "w.safetensors")
    assert data[:8] == bytes([152, 0, 0, 0, 0, 0, 0, 0])
    assert data[8:35] == b'{"__metadata__":{"sha256":"'
    assert data[99:155] == b'"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    assert data[155:160] == b"     "
    assert data[160:] == bytes.fromhex("0000803f000000c0")


def test_library_reads_ours(tmp_path):
    path = tmp_path / "a b" / "ours.safetensors"  # the folder is made
    write_safetensors(path, samples(), {"who": "wir", "é\n": '"}'})
    theirs = safetensors.numpy.load_file(path)
    assert theirs.keys() == samples().keys()
    for name, array in samples().items():
        assert theirs[name].dtype == array.dtype
        assert theirs[name].shape == array.shape
        assert (theirs[name] == array).all()
    with safetensors.safe_open(path, "numpy") as file:
        texts = file.metadata()
    assert len(texts.pop("sha256")) == 64
    assert texts == {"who": "wir", "é\n": '"}'}


def test_we_read_the_library(tmp_path):
    path = tmp_path / "theirs.safetensors"
    safetensors.numpy.save_file(samples(), path, {"a": "b"})
    ours, texts = read_safetensors(path)
    assert texts == {"a": "b"}
    assert ours.keys() == samples().keys()
    for name, array in samples().items():
        assert ours[name].dtype == array.dtype
        assert ours[name].shape == array.shape
        assert (ours[name] == array).all()
        assert ours[name].flags.writeable
        assert ours[name].flags.aligned
    safetensors.numpy.save_file(samples(), path)
    assert read_safetensors(path)[1] == {}
    wide = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    safetensors.torch.save_file({"half": wide.bfloat16()}, path)
    half = read_safetensors(path)[0]["half"]
    assert half.dtype == np.float32
    assert (half == wide.bfloat16().float().numpy()).all()


def test_round_trip(tmp_path):
    path = tmp_path / "x.safetensors"
    x = np.arange(24.0).reshape(4, 6)
    arrays = {
        "b": x.T,
        "a": x[::2, ::-3],
        "fortran": np.asfortranarray(x),
        "big endian": x.astype(">f4"),
        "list": [[1, 2], [3, 4]],
        "number": 2.5,
        "nan": np.array([np.nan, np.inf, -0.0]),
    }
    write_safetensors(path, arrays, {"step": "7"})
    got, texts = read_safetensors(path)
    assert list(got) == list(arrays)  # in the order given
    assert texts == {"step": "7"}
    for name, array in arrays.items():
        np.testing.assert_array_equal(got[name], array)
    assert got["big endian"].dtype == np.dtype("=f4")
    assert np.signbit(got["nan"][2])
    write_safetensors(path, {})
    assert read_safetensors(path) == ({}, {})


def test_arrays_are_aligned(tmp_path):
    path = tmp_path / "x.safetensors"
    write_safetensors(
        path, {"a": np.ones(3, bool), "b": np.ones(3, "f4"), "c": np.ones(3), "d": np.ones(1, "i2")}
    )
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    assert start % 8 == 0
    for entry in list(json.loads(data[8:start]).values())[1:]:
        size = {"BOOL": 1, "F32": 4, "F64": 8, "I16": 2}[entry["dtype"]]
        assert entry["data_offsets"][0] % size == 0


def test_every_cut_is_noticed(tmp_path):
    path = tmp_path / "x.safetensors"
    data = hand_bytes(path)
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(CheckpointError, match=r"x\.safetensors"):
            read_safetensors(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(CheckpointError):
        read_safetensors(path)
    with pytest.raises(FileNotFoundError):
        read_safetensors(tmp_path / "missing")
    with pytest.raises(OSError):
        read_safetensors(tmp_path)


def test_every_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"w": np.array([1, -2], "f4"), "b": np.array([True])}, {"step": "7"})
    data = path.read_bytes()
    for at in range(len(data)):
        for flip in (*(1 << bit for bit in range(8)), 0xFF):
            path.write_bytes(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])
            with pytest.raises(CheckpointError, match=r"x\.safetensors"):
                read_safetensors(path)


def test_files_of_others_with_a_hash(tmp_path):
    path = tmp_path / "x.safetensors"
    for name, digits in (("sha224", 56), ("sha256 ", 64), ("digest", 64), ("md5sum", 32)):
        path.write_bytes(
            file_of(b'{"__metadata__":{"%s":"%s"}}' % (name.encode(), b"0" * digits), b"")
        )
        assert read_safetensors(path) == ({}, {name: "0" * digits})
    text = json.dumps({"__metadata__": {"sha256": "0" * 64}}, indent=1).encode()
    path.write_bytes(file_of(text, b""))
    assert read_safetensors(path) == ({}, {})


def file_of(header, data=b"\0" * 8):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def one(**changes):
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes
    return file_of({"w": entry})


W = b'"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
FAULTY = {
    "no JSON": file_of(b"{"),
    "no UTF-8": file_of(b'{"\xff": 1}'),
    "deep": file_of(b"[" * 100_000),
    "a list": file_of([1]),
    "a number": file_of(1),
    "NaN": one(shape=[float("nan")]),
    "a long number": file_of(b'{"w": ' + b"9" * 10_000 + b"}"),
    "twice": file_of(b"{" + W + b"," + W + b"}"),
    "metadata": file_of({"__metadata__": {"a": 1}}, b""),
    "metadata list": file_of({"__metadata__": ["a"]}, b""),
    "entry": file_of({"w": 5}),
    "more": one(colour="red"),
    "less": file_of({"w": {"dtype": "F32", "shape": [2]}}),
    "dtype": one(dtype="F31"),
    "dtype list": one(dtype=["F32"]),
    "shape": one(shape=2),
    "negative": one(shape=[-2]),
    "fraction": one(shape=[2.0]),
    "bool": one(shape=[True, 2]),
    "text": one(shape=["2"]),
    "wrong size": one(shape=[3]),
    "huge": one(shape=[1 << 40]),
    "overflow": one(shape=[1 << 32, 1 << 32], data_offsets=[0, 0]),
    "huge and empty": one(shape=[0, 1 << 61], data_offsets=[0, 0]),
    "one offset": one(data_offsets=[8]),
    "backwards": one(data_offsets=[8, 0]),
    "beyond": one(data_offsets=[8, 16]),
    "negative offset": one(data_offsets=[-8, 0]),
    "gap": file_of({"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}),
    "rest": file_of({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}),
    "overlap": file_of(
        {
            "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
        }
    ),
    "bools": file_of({"w": {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}}, b"\x02"),
    "huge header": (1 << 60).to_bytes(8, "little") + b"{}",
    "pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}",
    "text file": b"hello, this is no model",
    "empty": b"",
}


@pytest.mark.parametrize("name", FAULTY)
def test_faulty_headers(name, tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(FAULTY[name])
    with pytest.raises(CheckpointError, match=r"x\.safetensors"):
        read_safetensors(path)


CHILD = textwrap.dedent(
    """
    import builtins, os, signal, sys
    import numpy as np
    from copy_of_checkpoint import write_safetensors

    path, moment = sys.argv[1], int(sys.argv[2])
    calls = 0

    def tick():
        global calls
        calls += 1
        if calls == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def fatal(function):
        def call(*arguments, **options):
            tick()
            result = function(*arguments, **options)
            tick()
            return result
        return call

    class Dying:
        def __init__(self, file):
            self.file = file
        def __enter__(self):
            return self
        def __exit__(self, *error):
            self.file.close()
        def write(self, part):
            tick()
            self.file.write(bytes(part)[: len(part) // 2])
            self.file.flush()
            tick()
            self.file.write(bytes(part)[len(part) // 2 :])
        def flush(self):
            self.file.flush()
        def fileno(self):
            return self.file.fileno()

    real_open = builtins.open
    builtins.open = lambda *a, **o: Dying(real_open(*a, **o))
    os.replace, os.fsync = fatal(os.replace), fatal(os.fsync)
    write_safetensors(path, {"w": np.full(1000, 2.0)})
    """
)


def start(folder, code, *arguments):
    """A child that can import `copy_of_checkpoint`, what the tests have imported."""
    source = checkpoint.__loader__.get_source(checkpoint.__name__)
    folder.mkdir(exist_ok=True)
    (folder / "copy_of_checkpoint.py").write_text(source, encoding="utf-8")
    places = os.pathsep.join([str(folder), *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": places},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def test_killed_at_any_moment(tmp_path):
    path = tmp_path / "x" / "x.safetensors"
    seen, left = set(), 0
    for moment in range(1, 100):
        write_safetensors(path, {"w": np.full(1000, 1.0)})
        assert list(path.parent.iterdir()) == [path]  # what the last one left is gone
        with start(tmp_path / "code", CHILD, path, moment) as done:
            pass
        w = read_safetensors(path)[0]["w"]
        assert (w == w[0]).all()
        seen.add(w[0])
        left += len(list(path.parent.glob(".x.safetensors.*.tmp")))
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL
    assert moment > 8
    assert seen == {1.0, 2.0}
    assert w[0] == 2.0
    assert left > 4


WRITER = """
import sys
import numpy as np
from copy_of_checkpoint import write_safetensors

while True:
    write_safetensors(sys.argv[1], {"w": np.full(5004, 4)})
    print(end=".", flush=True)
"""


def test_many_writers_of_one_file(tmp_path):
    path = tmp_path / "x" / "x.safetensors"
    write_safetensors(path, {"w": np.full(5000, 0)})
    other = start(tmp_path / "code", WRITER, path)
    assert other.stdout.read(1) == b"."  # it is writing now
    faults = []

    def work(me, calls):
        try:
            for _ in range(calls):
                if me < 4:
                    write_safetensors(path, {"w": np.full(5000 + me, me)})
                else:
                    w = read_safetensors(path)[0]["w"]
                    assert (w == w[0]).all()
                    assert len(w) == 5000 + w[0]
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(me, 60)) for me in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with other:
        other.kill()
    assert not faults
    write_safetensors(path, {})
    assert list(path.parent.iterdir()) == [path]


def test_scratch_files(tmp_path):
    path = tmp_path / "x.safetensors"
    stale = tmp_path / f".{path.name}.{'0' * 16}.tmp"
    living = tmp_path / f".{path.name}.{'1' * 16}.tmp"
    others = [tmp_path / name for name in (".y.0000000000000000.tmp", ".x.safetensors.17.tmp")]
    for file in (stale, living, *others):
        file.write_bytes(b"half")
    with open(living, "rb") as file:
        assert try_lock(file)
        write_atomically(path, [b"new"])
        assert set(tmp_path.iterdir()) == {path, living, *others}
    write_atomically(path, [b"new"])
    assert set(tmp_path.iterdir()) == {path, *others}


def test_a_scratch_file_that_was_swept_away(tmp_path, monkeypatch):
    real, calls = checkpoint.try_lock, []

    def swept(file):
        calls.append(file.name)
        if len(calls) < 3:  # a sweeper was faster
            Path(file.name).unlink()
        return real(file)

    monkeypatch.setattr(checkpoint, "try_lock", swept)
    write_atomically(tmp_path / "x", [b"new"])
    assert len(set(calls)) == 3
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == b"new"

    def none(file):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(checkpoint, "try_lock", none)
    write_atomically(tmp_path / "x", [b"newer"])
    assert (tmp_path / "x").read_bytes() == b"newer"


def test_permissions_and_long_names(tmp_path):
    path = tmp_path / "x"
    before = os.umask(0o027)
    try:
        write_atomically(path, [b"old"])
        assert path.stat().st_mode & 0o777 == 0o640
        for mode in (0o600, 0o666, 0o444, 0o755):
            path.chmod(mode)
            write_atomically(path, [b"new"])
            assert path.stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)
    for name in ("n" * 255, "é" * 127, "." + "n" * 254):
        write_atomically(tmp_path / name, [b"long"])
        assert (tmp_path / name).read_bytes() == b"long"
    for no_file in (tmp_path, "/dev/null"):
        with pytest.raises(OSError, match=str(no_file)):
            write_atomically(no_file, [b"x"])
    assert not Path("/dev/null").is_file()


def test_errors_name_the_file(tmp_path, monkeypatch):
    path = tmp_path / "x"
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="/file"):
        write_atomically(tmp_path / "file" / "x", [b"x"])
    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, full)
            with pytest.raises(OSError, match="/x") as caught:
                write_atomically(path, [b"x"])
            assert caught.value.filename == str(path)
            assert [p.name for p in tmp_path.iterdir()] == ["file"]


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device", "some", None, "other")


HOLDER = """
import sys
from copy_of_checkpoint import try_lock

file = open(sys.argv[1])
print(try_lock(file), flush=True)
sys.stdin.read()
"""


def test_try_lock(tmp_path):
    path = tmp_path / "lock"
    with open(path, "w") as one, open(path) as two:
        assert try_lock(one)
        assert try_lock(one)  # it has it
        assert not try_lock(two)
        one.close()
        assert try_lock(two)
    child = start(tmp_path / "code", HOLDER, path)
    with child, open(path) as file:
        assert child.stdout.readline() == b"True\n"
        assert not try_lock(file)
        child.kill()
        child.wait()
        assert try_lock(file)


def test_a_failed_write_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    old = hand_bytes(path)

    def parts(error):
        yield b"new"
        raise error

    for error in (OSError(errno.ENOSPC, "no space"), KeyboardInterrupt(), ValueError()):
        with pytest.raises(type(error)):
            write_atomically(path, parts(error))
        assert path.read_bytes() == old
        assert [p.name for p in tmp_path.iterdir()] == ["x.safetensors"]
    link = tmp_path / "link"
    link.symlink_to(path)
    write_atomically(link, [b"through the ", memoryview(b"link")])
    assert link.is_symlink()
    assert path.read_bytes() == b"through the link"
    order = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *a, real=real, name=name: (order.append(name), real(*a))
        )
    write_atomically(path, [b"x"])
    assert order == ["fsync", "replace", "fsync"]  # the bytes, the name, the folder


def test_what_cannot_be_written(tmp_path):
    path = tmp_path / "x"
    for bad in (
        np.ones(2, complex),
        np.array(["a"]),
        np.array([None]),
        np.array(["2020-01-01"], "M8[D]"),
    ):
        with pytest.raises(TypeError):
            write_safetensors(path, {"w": bad})
    with pytest.raises(ValueError):
        write_safetensors(path, {"__metadata__": np.ones(1)})
    with pytest.raises(ValueError):
        write_safetensors(path, {}, {"sha256": "x"})
    with pytest.raises(TypeError):
        write_safetensors(path, {}, {"step": 7})
    assert not path.exists()
