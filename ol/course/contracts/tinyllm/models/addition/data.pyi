# Tangled from book/2-transformer/MS-L5-addition.md
"""MS-L5 A transformer that adds: tokens and pairs."""

from collections.abc import Sequence
from typing import TypeAlias

from numpy import bool_, int64
from numpy.typing import ArrayLike, NDArray

Ints: TypeAlias = NDArray[int64]

TOKENS: str = "0123456789+"
"""The characters of tokens 0 to 10: the digits, then the plus sign."""
PLUS: int = 10
PAD: int = 11
START: int = 12
END: int = 13
N_TOKENS: int = 14
DIGITS: int = 3
"""Of a number; its sum has one more."""

def source_tokens(a: ArrayLike, b: ArrayLike) -> Ints:
    """Tokens of a+b, three digits each, highest first: a [N], b [N] from 0 to 999 -> [N, 7]."""

def target_tokens(a: ArrayLike, b: ArrayLike) -> Ints:
    """START, the four digits of a + b, highest first, END: a [N], b [N] -> [N, 6]."""

def parse(line: str) -> tuple[int, int]:
    """The numbers of "123+456" or "7+5", white space around it allowed. ValueError that quotes it
    unless it is two numbers of one to three ASCII digits with a plus between them."""

def text(tokens: Sequence[int]) -> str:
    """The characters of tokens, joined; PAD, START and END are left out."""

def held_out(a: ArrayLike, b: ArrayLike) -> NDArray[bool_]:
    """Whether a pair is kept out of training, by a hash: a [N], b [N] -> bool [N]. About one in a
    hundred; (a, b) and (b, a) have the same answer, on every machine."""

def pairs() -> tuple[Ints, Ints]:
    """All pairs of 0 to 999 that are trained on, [n, 2] in ascending order, and all that are held out,
    [m, 2] in a fixed random order; read-only."""
