# Tangled from book/1-foundations/M06.3-pcg32.md
"""PCG32: a small, seeded, portable random number generator with fast bulk draws.

The generator is PCG-XSH-RR 64/32 of M. E. O'Neill, "PCG: A Family of Simple Fast
Space-Efficient Statistically Good Algorithms for Random Number Generation" (2014),
https://www.pcg-random.org: 64 bits of state, 2**63 streams, 32 bits a draw.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tinyllm.num.normal import normal_quantile

__all__ = ["PCG32", "default_generator", "manual_seed"]

MULTIPLIER = 6364136223846793005  # Knuth's, and O'Neill's choice
DEFAULT_STREAM = 721347520444481703  # of pcg-cpp's pcg32 and Rust's rand_pcg
MASK32, MASK64 = (1 << 32) - 1, (1 << 64) - 1
LANES = 16384  # draws made at once: 128 KiB of states, for a second-level cache


def _jump(steps: int) -> tuple[int, int]:
    """m and g such that `steps` steps turn the state s into m*s + g*c mod 2**64.

    One doubling for each bit of `steps` (F. B. Brown, "Random Number Generation with
    Arbitrary Strides", 1994).
    """
    m, g = 1, 0  # the jump over no steps
    square_m, square_g = MULTIPLIER, 1  # the jump over 1, then 2, 4, ... steps
    while steps:
        if steps & 1:
            m, g = square_m * m & MASK64, (square_m * g + square_g) & MASK64
        square_g = (square_m + 1) * square_g & MASK64
        square_m = square_m * square_m & MASK64
        steps >>= 1
    return m, g


def _jump_table(lanes: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """m and g of the jumps over 0, 1, ..., lanes - 1 steps."""
    powers = np.full(lanes, MULTIPLIER, np.uint64)
    powers[0] = 1
    powers = np.multiply.accumulate(powers)  # wraps modulo 2**64, as wanted
    sums = np.zeros(lanes, np.uint64)
    np.cumsum(powers[:-1], out=sums[1:])
    return powers, sums


_POWERS, _SUMS = _jump_table(LANES)


def _scramble(states: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each state's draw, in the low 32 bits of a uint64; `states` is used as scratch."""
    x = states >> np.uint64(18)
    x ^= states
    x >>= 27
    x &= MASK32  # eq. xsh-rr
    x *= 0x1_0000_0001  # the number twice, so that a shift rotates it
    states >>= 59
    x >>= states
    return x


class PCG32:
    """A sequence of random numbers, chosen by a seed and a stream number.

    Bulk draws equal one-at-a-time draws bit for bit: ``uint32s(3)`` gives what three
    calls of ``next_uint32()`` give, and leaves the generator where they leave it. A
    float32, and an integer from a range of at most 2**32, take one 32-bit draw, and one more
    after each refusal; a float64 and an integer from a larger range take two. C order.

    TypeError for a count, seed or size that isn't an integer, ValueError for one out of range.
    """

    def __init__(self, seed: int = 0, stream: int = DEFAULT_STREAM) -> None:
        """Seed as the reference program does; 0 <= seed < 2**64 and 0 <= stream < 2**63."""
        self.seed = _whole("seed", seed, 0, 1 << 64)
        self.stream = _whole("stream", stream, 0, 1 << 63)
        self._increment = 2 * self.stream + 1
        self._state = (self._increment + self.seed) & MASK64  # 0 steps to c; add the seed
        self._spawned: dict[str, int] = {}  # children made so far, by name
        self.advance(1)

    def __repr__(self) -> str:
        return f"PCG32(seed={self.seed}, stream={self.stream}, state={self._state:#018x})"

    def next_uint32(self) -> int:
        """One draw: a Python int from 0 to 2**32 - 1."""
        old = self._state
        self._state = (old * MULTIPLIER + self._increment) & MASK64  # eq. lcg
        x = ((old >> 18 ^ old) >> 27) & MASK32  # eq. xsh-rr, to the last line
        twice = x << 32 | x
        return (twice >> (old >> 59)) & MASK32

    def uint32s(self, n: int) -> NDArray[np.uint32]:
        """The next n draws, uint32 [n]."""
        n = _whole("n", n, 0, 1 << 62)
        out = np.empty(n, np.uint32)
        offsets = _SUMS[:n] * self._increment
        for start in range(0, n, LANES):
            block = out[start : start + LANES]
            states = _POWERS[: len(block)] * self._state
            states += offsets[: len(block)]  # eq. jump, for all k at once
            block[:] = _scramble(states)
            self.advance(len(block))
        return out

    def advance(self, steps: int) -> None:
        """Move on by `steps` draws without making them; a negative number goes back."""
        m, g = _jump(operator.index(steps) & MASK64)
        self._state = (m * self._state + g * self._increment) & MASK64  # eq. jump

    def substream(self, name: str) -> PCG32:
        """The generator of that name under this one, whatever was drawn before.

        Its seed and stream are the first and the second 8 bytes (little-endian; the stream
        without its lowest bit) of the SHA-256 of this generator's seed and stream (8 bytes
        each, little-endian) followed by the name in UTF-8. TypeError for a name that isn't a str.
        """
        if not isinstance(name, str):
            raise TypeError(f"substream: wants a name of type str, got {name!r}")
        own = self.seed.to_bytes(8, "little") + self.stream.to_bytes(8, "little")
        digest = hashlib.sha256(own + name.encode()).digest()
        seed = int.from_bytes(digest[:8], "little")
        stream = int.from_bytes(digest[8:16], "little") >> 1
        return PCG32(seed, stream)

    def spawn(self, name: str) -> PCG32:
        """A child that nobody has had yet: ``substream(name)``, then ``substream(f"{name} #2")`` etc.

        Each object keeps its own counts. `state` doesn't hold them, and `set_state` restarts them.
        """
        count = self._spawned[name] = self._spawned.get(name, 0) + 1
        return self.substream(name if count == 1 else f"{name} #{count}")

    def state(self) -> dict[str, str]:
        """The generator's whole state, as text that JSON keeps."""
        return {
            "generator": "PCG32",
            "seed": hex(self.seed),
            "stream": hex(self.stream),
            "state": hex(self._state),
        }

    def set_state(self, state: Mapping[str, str]) -> None:
        """Continue from what `state()` gave; ValueError for anything else."""
        wanted = sorted(self.state())
        if sorted(state) != wanted or state["generator"] != "PCG32":
            raise ValueError(f"set_state: wants PCG32's {wanted} as of state(), got {dict(state)}")
        seed = _whole("seed", int(state["seed"], 16), 0, 1 << 64)
        stream = _whole("stream", int(state["stream"], 16), 0, 1 << 63)
        self._state = _whole("state", int(state["state"], 16), 0, 1 << 64)
        self.seed, self.stream, self._increment = seed, stream, 2 * stream + 1
        self._spawned = {}

    def uniform(
        self,
        low: float = 0.0,
        high: float = 1.0,
        shape: int | Sequence[int] = (),
        dtype: DTypeLike = np.float32,
    ) -> NDArray[Any]:
        """Uniform numbers with low <= x < high, an array of `shape`.

        One draw and 24 random bits for a float32, two draws and 53 bits for a float64. The
        interval is half open after rounding too. ValueError unless low < high, both and their
        difference finite, in that dtype; TypeError for another dtype.
        """
        sides, n, kind = _sizes(shape, dtype)
        with np.errstate(over="ignore"):
            bottom, top = kind.type(low), kind.type(high)
        width = float(top) - float(bottom)
        if not (bottom < top and width <= float(np.finfo(kind).max)):
            raise ValueError(
                f"uniform: wants finite low < high, different in {kind}, got low={low}, high={high}"
            )
        x: NDArray[Any]
        if kind == np.float32:
            words = self.uint32s(n)
            words >>= 8
            x = words.astype(np.float32)
            x *= np.float32(2.0**-24)  # eq. uniform
        else:
            x = self._bits53(n)
            x *= 2.0**-53
        if bottom != 0 or top != 1:
            x *= kind.type(width)
            x += bottom
            np.minimum(x, np.nextafter(top, bottom), out=x)
        return x.reshape(sides)

    def _bits53(self, n: int) -> NDArray[np.float64]:
        """n integers from 0 to 2**53 - 1 as float64, two draws each, high bits first."""
        words = self.uint32s(2 * n).reshape(n, 2)
        x = (words[:, 0] >> np.uint32(5)).astype(np.float64)
        x *= 2.0**26
        x += words[:, 1] >> np.uint32(6)
        return x

    def normal(
        self,
        mean: float = 0.0,
        std: float = 1.0,
        shape: int | Sequence[int] = (),
        dtype: DTypeLike = np.float32,
    ) -> NDArray[Any]:
        """Normally distributed numbers, an array of `shape`, the same bits on every platform.

        One draw for a float32 (at most 6.4 standard deviations from the
        mean), two for a float64 (at most 8.3). Computed in float64, rounded at the end.
        ValueError unless mean and std are finite and std >= 0; TypeError for another dtype.
        """
        sides, n, kind = _sizes(shape, dtype)
        if not (math.isfinite(mean) and math.isfinite(std) and std >= 0):
            raise ValueError(f"normal: wants finite mean and std >= 0, got mean={mean}, std={std}")
        out = np.empty(n, kind)
        for start in range(0, n, LANES):
            block = out[start : start + LANES]
            if kind == np.float32:
                q = self.uint32s(len(block)).astype(np.float64)
                q -= 2.0**31 - 0.5
                q *= 2.0**-32
            else:
                q = self._bits53(len(block))
                q -= 2.0**52
                q += 0.5  # after the subtraction: k + 1/2 alone may need 54 bits
                q *= 2.0**-53
            block[:] = normal_quantile(q) * std + mean
        return out.reshape(sides)

    def integers(self, low: int, high: int, shape: int | Sequence[int] = ()) -> NDArray[np.int64]:
        """Integers with low <= k < high, all equally likely; int64 of `shape`.

        ValueError unless -2**63 <= low < high <= 2**63.
        """
        sides, n, _ = _sizes(shape, np.float64)
        low = _whole("low", low, -(1 << 63), 1 << 63)
        high = _whole("high", high, low + 1, (1 << 63) + 1)
        count = high - low
        draws = 1 if count <= 1 << 32 else 2  # for one candidate
        threshold = (1 << 32 * draws) % count
        out = np.empty(n, np.uint64)
        done = 0
        while done < n:
            candidates = self.uint32s(draws * min(n - done, LANES)).astype(np.uint64)
            if draws == 2:
                candidates = candidates[0::2] << np.uint64(32) | candidates[1::2]
            kept = candidates[candidates >= threshold]  # eq. reject
            out[done : done + len(kept)] = kept
            done += len(kept)
        if count < 1 << 64:
            out %= count
        out += low & MASK64  # a negative low wraps to where int64 reads it right
        return out.view(np.int64).reshape(sides)

    def permutation(self, n: int) -> NDArray[np.int64]:
        """The numbers 0 to n - 1 in random order, each order equally likely; int64 [n].

        Fisher and Yates. ValueError unless 0 <= n < 2**32.
        """
        n = _whole("n", n, 0, 1 << 32)
        ranges = np.arange(n, 1, -1, dtype=np.uint64)  # card i has i + 1 places to go to
        places = np.empty(len(ranges), np.uint64)
        done = 0
        while done < len(ranges):
            block = ranges[done : done + LANES]
            draws = self.uint32s(len(block)).astype(np.uint64)
            refused = np.flatnonzero(draws < np.uint64(1 << 32) % block)  # eq. reject
            good = int(refused[0]) if len(refused) else len(block)
            places[done : done + good] = draws[:good] % block[:good]
            done += good
            self.advance(min(good + 1, len(block)) - len(block))  # give back what wasn't used
        order = list(range(n))
        for i, j in zip(range(n - 1, 0, -1), places.tolist(), strict=True):
            order[i], order[j] = order[j], order[i]
        return np.array(order, np.int64)


def _whole(name: str, value: int, low: int, high: int) -> int:
    """`value` as an int with low <= value < high, else TypeError or ValueError."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: wants a whole number, got {value!r}") from None
    if not low <= number < high:
        raise ValueError(f"{name}: wants a whole number from {low} to {high - 1}, got {number}")
    return number


def _sizes(
    shape: int | Sequence[int], dtype: DTypeLike
) -> tuple[tuple[int, ...], int, np.dtype[Any]]:
    """The shape as a tuple, how many numbers it holds, and the dtype, all checked."""
    kind = np.dtype(dtype)
    if kind not in (np.float32, np.float64):
        raise TypeError(f"dtype: wants float32 or float64, got {kind}")
    sides = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    sides = tuple(_whole("shape", side, 0, 1 << 62) for side in sides)
    return sides, math.prod(sides), kind


_DEFAULT = PCG32(0)


def default_generator() -> PCG32:
    """The process's own generator, which every module built without `rng` draws from.

    It starts as ``PCG32(0)`` and is always the same object. Like any generator it's for one thread
    at a time: if several threads build or train at once, give their modules an `rng`.
    """
    return _DEFAULT


def manual_seed(seed: int) -> PCG32:
    """Reset the process's generator to ``PCG32(seed)``, and return it.

    ValueError unless 0 <= seed < 2**64, TypeError unless it's an integer.
    """
    _DEFAULT.set_state(PCG32(seed).state())
    return _DEFAULT
