# Tangled from book/workshop/weave-live.md
"""Arrays as text, for figures that compute in the reader's browser."""

from __future__ import annotations

from base64 import b85encode
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def packed(arrays: Iterable[tuple[str, NDArray[Any]]]) -> dict[str, Any]:
    """Named arrays for JSON: [name, shape] of each, and their numbers as float16 in base 85.

    The numbers follow one another, little-endian; a zero fills up the last group of four bytes.
    ValueError for a number that float16 cannot hold.
    """
    known = list(arrays)
    numbers = np.concatenate([np.ravel(array) for _, array in known])
    with np.errstate(over="ignore"):
        halves = numbers.astype("<f2")
    if not np.isfinite(halves).all():
        raise ValueError("packed: wants numbers between -65504 and 65504")
    data = halves.tobytes() + bytes(2 * (len(halves) % 2))
    return {
        "arrays": [[name, list(array.shape)] for name, array in known],
        "numbers": b85encode(data).decode(),
    }
