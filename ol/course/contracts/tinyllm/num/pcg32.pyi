# Tangled from book/1-foundations/M06.3-pcg32.md
"""PCG32: a small, seeded, portable random number generator with fast bulk draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["PCG32", "default_generator", "manual_seed"]

class PCG32:
    """A sequence of random numbers, chosen by a seed and a stream number.

    PCG-XSH-RR 64/32 of O'Neill (2014). Bulk draws equal one-at-a-time draws bit for bit, leave the
    generator where they leave it, and give new arrays; they run no Python for each number. A float32, and an integer from a range of at most
    2**32, take one 32-bit draw, and one more after each refusal; a float64 and an integer from a
    larger range take two. Arrays are filled in C order; shape () gives an array without axes.

    TypeError for a count, seed or size that isn't an integer (numpy's are), ValueError for one out of
    range. A refused call changes nothing. `repr` shows the seed.
    """

    seed: int
    stream: int

    def __init__(self, seed: int = 0, stream: int = 721347520444481703) -> None:
        """Seed as the reference program does; 0 <= seed < 2**64, 0 <= stream < 2**63, else ValueError."""

    def next_uint32(self) -> int:
        """One draw: a Python int from 0 to 2**32 - 1."""

    def uint32s(self, n: int) -> NDArray[np.uint32]:
        """The next n draws, uint32 [n]."""

    def advance(self, steps: int) -> None:
        """Move on by `steps` draws without making them; a negative number goes back."""

    def substream(self, name: str) -> PCG32:
        """The generator of that name under this one, whatever was drawn before.

        Its seed and stream are the first and the second 8 bytes (little-endian; the stream without
        its lowest bit) of the SHA-256 of this generator's seed and stream (8 bytes each,
        little-endian) followed by the name in UTF-8. TypeError for a name that isn't a str.
        """

    def spawn(self, name: str) -> PCG32:
        """A child that nobody has had yet: each request for a name gives a different generator.

        The first gives ``substream(name)``, the second ``substream(f"{name} #2")``, the third
        ``substream(f"{name} #3")``. Each object keeps its own counts: `state` doesn't hold them, and
        `set_state` restarts them.
        """

    def state(self) -> dict[str, str]:
        """The generator's whole state, as text that JSON keeps.

        Keys: generator ("PCG32"), and seed, stream and state as hexadecimal numbers ("0x...").
        """

    def set_state(self, state: Mapping[str, str]) -> None:
        """Continue from what `state()` gave, here or elsewhere; ValueError for anything else."""

    def uniform(
        self,
        low: float = 0.0,
        high: float = 1.0,
        shape: int | Sequence[int] = (),
        dtype: DTypeLike = ...,
    ) -> NDArray[Any]:
        """Uniform numbers with low <= x < high, also after rounding; an array of `shape`.

        dtype float32 (the default): one draw w, u = (w >> 8) / 2**24. float64: two draws,
        u = ((w0 >> 5) * 2**26 + (w1 >> 6)) / 2**53. The number is low + (high - low) * u in that
        dtype, or the largest number below high if that rounds up to high. ValueError unless low
        and high are finite, with a finite difference, and low < high in that dtype; TypeError for
        another dtype.
        """

    def normal(
        self,
        mean: float = 0.0,
        std: float = 1.0,
        shape: int | Sequence[int] = (),
        dtype: DTypeLike = ...,
    ) -> NDArray[Any]:
        """Normally distributed numbers, an array of `shape`, the same bits on every platform.

        mean + std * z, where a standard normal number is below z with probability
        (k + 1/2) / 2**b: k is one draw and b = 32 for float32 (the default), k is the 53 bits of
        `uniform` and b = 53 for float64. Computed in float64 (Wichura's AS 241), the upper half as
        the lower with the other sign. ValueError unless mean and std are finite and std >= 0; TypeError
        for another dtype.
        """

    def integers(self, low: int, high: int, shape: int | Sequence[int] = ()) -> NDArray[np.int64]:
        """Integers with low <= k < high, all equally likely; int64 of `shape`.

        With r = high - low: draws below 2**32 mod r are refused, and the number is low + draw mod r.
        For r > 2**32 a draw has 64 bits, made of two 32-bit draws with the higher half first, and
        those below 2**64 mod r are refused. ValueError unless -2**63 <= low < high <= 2**63.
        """

    def permutation(self, n: int) -> NDArray[np.int64]:
        """The numbers 0 to n - 1 in random order, each order equally likely; int64 [n].

        Fisher and Yates: for i from n - 1 down to 1, entry i swaps places with entry
        ``integers(0, i + 1)``. ValueError unless 0 <= n < 2**32.
        """

def default_generator() -> PCG32:
    """The process's own generator, which every module built without `rng` draws from.

    It starts as ``PCG32(0)``, is always the same object, and moves on with each draw.
    """

def manual_seed(seed: int) -> PCG32:
    """Reset the process's generator, counts and all, to ``PCG32(seed)``, and return it.

    ValueError unless 0 <= seed < 2**64, TypeError unless it's an integer.
    """
