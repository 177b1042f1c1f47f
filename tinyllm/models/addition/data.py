# Tangled from book/2-transformer/MS-L5-addition.md
"""Sums as tokens, and the pairs of numbers to train and to test on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.num.pcg32 import PCG32

Ints: TypeAlias = NDArray[np.int64]


TOKENS = "0123456789+"
PLUS, PAD, START, END = 10, 11, 12, 13
N_TOKENS = 14
DIGITS = 3  # of a number; its sum has one more


def _digits(numbers: ArrayLike, n: int) -> Ints:
    """The last n decimal digits of each number, highest first: [...] -> [..., n]."""
    powers = 10 ** np.arange(n - 1, -1, -1)
    return np.asarray(numbers, np.int64)[..., None] // powers % 10


def source_tokens(a: ArrayLike, b: ArrayLike) -> Ints:
    """The tokens of a+b: numbers from 0 to 999, [N] and [N] -> [N, 7]."""
    left, right = _digits(a, DIGITS), _digits(b, DIGITS)
    plus = np.full((*left.shape[:-1], 1), PLUS)
    return np.concatenate([left, plus, right], axis=-1)


def target_tokens(a: ArrayLike, b: ArrayLike) -> Ints:
    """Start, the four digits of the sum, end: [N] and [N] -> [N, 6]."""
    total = _digits(np.asarray(a, np.int64) + np.asarray(b, np.int64), DIGITS + 1)
    edge = (*total.shape[:-1], 1)
    return np.concatenate([np.full(edge, START), total, np.full(edge, END)], axis=-1)


def parse(line: str) -> tuple[int, int]:
    """The two numbers of a text like 7+15; ValueError unless each has one to three digits."""
    found = re.fullmatch(r"([0-9]{1,3})\+([0-9]{1,3})", line.strip())
    if found is None:
        raise ValueError(
            f"wants two numbers of one to three digits with a plus between them, such as 123+456, "
            f"got {line.strip()!r}"
        )
    return int(found[1]), int(found[2])


def text(tokens: Sequence[int]) -> str:
    """The characters of tokens, joined; those that are no characters are left out."""
    return "".join(TOKENS[token] for token in tokens if token < len(TOKENS))


def held_out(a: ArrayLike, b: ArrayLike) -> NDArray[np.bool_]:
    """Whether a pair is kept out of training: about one in a hundred, with its mirror; [N] -> [N].

    By the mixing function of splitmix64 (Steele, Lea and Flood, 2014).
    """
    low, high = np.minimum(a, b), np.maximum(a, b)
    x = np.asarray(low * 10**DIGITS + high).astype(np.uint64)
    with np.errstate(over="ignore"):  # modulo 2**64, as wanted
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    out: NDArray[np.bool_] = x % np.uint64(100) == 0
    return out


@cache
def pairs() -> tuple[Ints, Ints]:
    """All pairs to train on, [n, 2] in order, and all held out, [m, 2] in a fixed random order."""
    numbers = 10**DIGITS
    every = np.stack(np.divmod(np.arange(numbers**2), numbers), axis=1)
    out = held_out(every[:, 0], every[:, 1])
    training, rest = every[~out], every[out]
    rest = rest[PCG32(0).substream("held out").permutation(len(rest))]
    for array in (training, rest):
        array.setflags(write=False)
    return training, rest
