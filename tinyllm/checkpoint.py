# Tangled from book/1-foundations/L0.6-checkpoints.md
"""Arrays in a file: the safetensors format, written all or nothing and read with suspicion.

Format: https://github.com/huggingface/safetensors, section "Format".
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import secrets
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from operator import ne
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "CheckpointError",
    "read_safetensors",
    "try_lock",
    "write_atomically",
    "write_safetensors",
]

Array: TypeAlias = NDArray[Any]
Bytes: TypeAlias = bytes | bytearray | memoryview


class CheckpointError(ValueError):
    """The file isn't a checkpoint, or is damaged; the message names the file and the fault."""


def write_atomically(path: str | os.PathLike[str], parts: Iterable[Bytes]) -> None:
    """Write a file so that at any moment, even after a crash, it is the old one or the new one.

    Missing folders are made, a link is followed, and the old file's permissions are kept. The parts go
    to a file beside it, which takes its place when it is on the disk; if anything fails, that file is
    removed and the old one is as it was. An OSError names `path`, or a folder that cannot be made.
    """
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        _replace(target, parts)
    except OSError as error:  # the scratch file's name would help nobody
        raise OSError(error.errno, error.strerror or str(error), os.fspath(path)) from error


def _replace(target: Path, parts: Iterable[Bytes]) -> None:
    mode = stat.S_IMODE(os.stat(target).st_mode) if target.exists() else None
    if mode is not None and not target.is_file():
        raise OSError(errno.EINVAL, "a folder or a device, which no file can replace")
    _sweep(target)
    scratch, file = _create(target, 0o666 if mode is None else mode)
    try:
        with file:
            if mode is not None:
                os.chmod(scratch, mode)  # the umask may have taken some away
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
            os.replace(scratch, target)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _create(target: Path, mode: int) -> tuple[Path, IO[bytes]]:
    """A new file beside the target, locked, under a name that no other writer has."""
    while True:
        scratch = target.with_name(f".{target.name[:30]}.{secrets.token_hex(8)}.tmp")
        file = open(scratch, "xb", opener=lambda name, flags: os.open(name, flags, mode))  # noqa: SIM115
        try:
            if try_lock(file) and scratch.exists():
                return scratch, file
        except OSError:  # no locks here, and then nobody sweeps
            return scratch, file
        file.close()  # swept away before it was locked


def _sweep(target: Path) -> None:
    """Remove the scratch files of writers that were killed: those whose lock is free."""
    ours = re.compile(re.escape(f".{target.name[:30]}.") + r"[0-9a-f]{16}\.tmp")
    with suppress(OSError):
        for path in target.parent.iterdir():
            if ours.fullmatch(path.name):
                with suppress(OSError), open(path, "rb") as file:
                    if try_lock(file):
                        path.unlink()


def try_lock(file: IO[Any]) -> bool:
    """Take the lock of an open file; False if somebody else has it.

    The lock ends when the file is closed or the process ends, killed or not. OSError where the system or
    the file system has no locks.
    """
    try:
        import fcntl
    except ImportError:
        raise OSError(errno.ENOTSUP, "no file locks on this system") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_safetensors(
    path: str | os.PathLike[str],
    arrays: Mapping[str, ArrayLike],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write arrays and texts to a file that the safetensors library reads, all or nothing.

    The metadata get one more entry, "sha256": a checksum of the file. TypeError for a dtype that the
    format does not have, ValueError for a name that it reserves.
    """
    texts = dict(metadata or {})
    if "sha256" in texts or "__metadata__" in arrays:
        raise ValueError("write_safetensors: the names sha256 and __metadata__ are taken")
    if not all(isinstance(text, str) for pair in texts.items() for text in pair):
        raise TypeError("write_safetensors: metadata are texts by name, nothing else")
    raw, entries = _bytes_of(arrays)
    header = {"__metadata__": {"sha256": "0" * 64, **texts}, **entries}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the arrays begin at a multiple of 8
    head = bytearray(len(text).to_bytes(8, "little") + text)
    digest = _digest(head, raw)
    at = 8 + len(_OPENING)
    head[at : at + 64] = digest
    write_atomically(path, [head, *raw])


def _digest(head: Bytes, rest: Iterable[Bytes]) -> bytes:
    total = hashlib.sha256(head)
    for part in rest:
        total.update(part)
    return total.hexdigest().encode()


def _bytes_of(arrays: Mapping[str, ArrayLike]) -> tuple[list[Bytes], dict[str, Any]]:
    """The bytes of the arrays in file order, and each one's entry in the header, as given."""
    given = {name: np.asarray(array) for name, array in arrays.items()}
    for name, array in given.items():
        if array.dtype.newbyteorder("<") not in _NAMES:
            raise TypeError(
                f"write_safetensors: {name} has dtype {array.dtype}, the format has "
                f"{', '.join(str(dtype) for dtype in _NAMES)}"
            )
    raw: list[Bytes] = []
    places: dict[str, list[int]] = {}
    end = 0
    for name in sorted(given, key=lambda name: -given[name].itemsize):  # stable
        array = given[name].astype(given[name].dtype.newbyteorder("<"), order="C", copy=False)
        raw.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        places[name] = [end, end + array.nbytes]
        end += array.nbytes
    entries = {
        name: {
            "dtype": _NAMES[array.dtype.newbyteorder("<")],
            "shape": list(array.shape),
            "data_offsets": places[name],
        }
        for name, array in given.items()
    }
    return raw, entries


def read_safetensors(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays and the metadata of a safetensors file; arrays are copies, BF16 comes as float32.

    If `write_safetensors` wrote the file, its checksum is verified. CheckpointError if it isn't a
    safetensors file or is damaged; OSError if it can't be read.
    """
    data = Path(path).read_bytes()
    try:
        header, start = _read_header(data)
        texts = header.pop("__metadata__", {})
        if not isinstance(texts, dict) or not all(isinstance(t, str) for t in texts.values()):
            raise CheckpointError("__metadata__ is not a table of texts")
        _verify(data)
        texts.pop("sha256", None)
        places = {name: _place(name, entry) for name, entry in header.items()}
        _must_tile(places, len(data) - start)
        return {name: _array(data, start, *place) for name, place in places.items()}, texts
    except CheckpointError as fault:
        raise CheckpointError(f"{os.fspath(path)}: {fault}") from None


def _read_header(data: bytes) -> tuple[dict[str, Any], int]:
    """The header, and where the arrays begin."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(_LONGEST_HEADER, len(data) - 8):
        raise CheckpointError(
            f"no safetensors file, or cut off: it has {len(data)} bytes, and a header of "
            f"{length} should follow the first 8"
        )
    try:
        header = json.loads(data[8 : 8 + length].decode(), object_pairs_hook=_unique)
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"the header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise CheckpointError("the header is no table")
    return header, 8 + length


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise CheckpointError("the header has a name twice")
    return table


def _verify(data: bytes) -> None:
    """Compare the checksum of a file that `write_safetensors` wrote."""
    at = 8 + len(_OPENING)
    opening, wanted = data[8:at], data[at : at + 64]
    damaged = sum(map(ne, opening, _OPENING))  # bytes
    if damaged and not (damaged < 4 and re.fullmatch(b"[0-9a-f]{64}", wanted)):
        return  # somebody else's file
    if damaged or _digest(data[:at] + b"0" * 64, [memoryview(data)[at + 64 :]]) != wanted:
        raise CheckpointError("the checksum does not match: the file is damaged")


_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",  # no numpy type: read as float32
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}
_NAMES = {np.dtype(code): name for name, code in _DTYPES.items() if name != "BF16"}
_LONGEST_HEADER = 100_000_000
_OPENING = b'{"__metadata__":{"sha256":"'


def _place(name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    """The type, shape, begin and end that the header gives an array, checked one by one."""
    if not isinstance(entry, dict) or sorted(entry) != ["data_offsets", "dtype", "shape"]:
        raise CheckpointError(f"{name}: an array has dtype, shape and data_offsets, got {entry!r}")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise CheckpointError(f"{name}: unknown dtype {dtype!r}")
    for what, numbers in (("shape", shape), ("data_offsets", offsets)):
        if not isinstance(numbers, list) or not all(
            type(number) is int and 0 <= number < 1 << 62 for number in numbers
        ):
            raise CheckpointError(f"{name}: {what} holds whole numbers, got {numbers!r}")
    size = math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize
    if len(offsets) != 2 or offsets[1] - offsets[0] != size:
        raise CheckpointError(
            f"{name}: {dtype} {shape} takes {size} bytes, its offsets are {offsets}"
        )
    return dtype, tuple(shape), offsets[0], offsets[1]


def _must_tile(places: Mapping[str, tuple[str, tuple[int, ...], int, int]], size: int) -> None:
    """The arrays must fill the rest of the file, without gap or overlap."""
    end = 0
    for name, (_, _, first, last) in sorted(places.items(), key=lambda item: item[1][2:]):
        if first != end:
            raise CheckpointError(f"{name}: begins at byte {first}, where {end} is free")
        end = last
    if end != size:
        raise CheckpointError(
            f"the arrays end at byte {end}, the file at {size}: cut off or damaged"
        )


def _array(
    data: bytes, start: int, dtype: str, shape: tuple[int, ...], first: int, last: int
) -> Array:
    """A copy of one array, in the machine's own byte order."""
    flat = np.frombuffer(
        data, _DTYPES[dtype], math.prod(shape), start + first if last > first else 0
    )
    if dtype == "BOOL" and (flat.view(np.uint8) > 1).any():
        raise CheckpointError("an array of bools has bytes other than 0 and 1")
    if dtype == "BF16":
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    try:
        return flat.astype(flat.dtype.newbyteorder("=")).reshape(shape)
    except ValueError as error:
        raise CheckpointError(f"shape {list(shape)}: {error}") from None
