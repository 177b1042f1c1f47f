# Tangled from book/1-foundations/L0.6-checkpoints.md
"""L0.6 Checkpoints: arrays in a safetensors file, written all or nothing."""

import os
from collections.abc import Iterable, Mapping
from typing import IO, Any, TypeAlias

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
    """Write the parts, one after the other, as the file `path`. At any moment, even if the process is
    killed or the machine stops, the file there is the old one or the new one, complete, however many
    processes and threads write it.

    Missing folders are made; a link is followed; the old file's permissions are kept, and a new one has
    those of any new file. The parts go to `.NAME.HEX.tmp` beside it, with the first 30 characters of its
    name and 16 random hexadecimal digits: made by `open`, locked by this module's `try_lock` where there
    are locks, and made again if it is gone by then. After ``os.fsync`` it takes the place by
    ``os.replace``, and the folder is synced too. Files with such a name that nobody has locked are what
    killed writers have left, and the next writer removes them. If anything fails the old file is as it
    was, and nothing is left beside it. An OSError names `path`, or a folder that cannot be made;
    it is one, with errno EINVAL, if `path` is a folder or a device.
    """

def try_lock(file: IO[Any]) -> bool:
    """Take the lock of an open file without waiting; False if another open file has it, here or in
    another process. It ends when the file is closed or the process ends. OSError where there are no
    locks."""

def write_safetensors(
    path: str | os.PathLike[str],
    arrays: Mapping[str, ArrayLike],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write arrays of any shape [...] and layout by name, and texts by name, in the safetensors format, by
    `write_atomically`; neither is changed.

    Float16, 32 and 64, ints and unsigned ints of 8 to 64 bits, bools, and texts as metadata; else
    TypeError. The header is JSON without spaces: the metadata, then the arrays as given, then spaces, so
    that the data begin at a multiple of 8 and, largest items first, each array at one of its item's
    size. The metadata begin with an entry "sha256", the checksum of the whole file with zeros in its
    place. ValueError for metadata of that name and an array named "__metadata__".
    """

def read_safetensors(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays, in the order and of the shapes [...] that the header says, and the metadata without the
    checksum.

    Arrays are copies in the machine's byte order; BF16 comes as float32. The checksum is verified if
    the file is one of `write_safetensors`: if its header opens with {"__metadata__":{"sha256":", or 64
    hexadecimal digits follow bytes that differ from these in three places or fewer. CheckpointError, whatever the bytes are, if it is no
    safetensors file (with a gap, an overlap, a name twice, a bool other than 0 and 1), is cut off or
    damaged; OSError if it cannot be read.
    """
