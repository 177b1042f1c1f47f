# Tangled from book/0-foundations/L0.6-checkpoints.md
"""L0.6 Checkpoints: arrays in a safetensors file, written all or nothing."""

import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from numpy.typing import ArrayLike, NDArray

__all__ = ["CheckpointError", "read_safetensors", "write_atomically", "write_safetensors"]

Array: TypeAlias = NDArray[Any]
Bytes: TypeAlias = bytes | bytearray | memoryview

class CheckpointError(ValueError):
    """A file that is no checkpoint, or a damaged one; the message names the file and the fault."""

def write_atomically(path: str | os.PathLike[str], parts: Iterable[Bytes]) -> None:
    """Write the parts, one after the other, as the file `path`: at any moment, also if the process is
    killed or the machine stops, the file there is the old one or the new one. Missing folders are
    made; a link is followed. If anything fails the old file is as it was."""

def write_safetensors(
    path: str | os.PathLike[str],
    arrays: Mapping[str, ArrayLike],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write arrays of any shape [...] by name, and texts by name, in the safetensors format, by
    `write_atomically`.

    Float16, 32 and 64, ints and unsigned ints of 8 to 64 bits, bools; else TypeError. The metadata
    get an entry "sha256", the checksum of the whole file with zeros in its place. ValueError for
    metadata of that name and an array named "__metadata__".
    """

def read_safetensors(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays, of the shapes [...] that the file says, and the metadata without the checksum.

    Arrays are copies in the machine's byte order; BF16 comes as float32. The checksum is verified if
    there is one of `write_safetensors`. CheckpointError, whatever the bytes are, if it is no
    safetensors file, is cut off or damaged; OSError if it cannot be read.
    """
