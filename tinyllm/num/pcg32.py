"""PCG32: a small, seeded, portable random number generator with fast bulk draws.

The generator is PCG-XSH-RR 64/32 of M. E. O'Neill, "PCG: A Family of Simple Fast
Space-Efficient Statistically Good Algorithms for Random Number Generation" (2014),
https://www.pcg-random.org: 64 bits of state, 2**63 streams, 32 bits a draw.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

MULTIPLIER = 6364136223846793005  # of the 64-bit LCG; Knuth's, and O'Neill's choice
DEFAULT_STREAM = 721347520444481703  # what pcg-cpp's pcg32 and Rust's rand_pcg use unasked
MASK64 = (1 << 64) - 1
LANES = 4096  # states computed at once: 32 KiB, which stays in the L1 or L2 cache


def jump(steps: int) -> tuple[int, int]:
    """Multiplier m and sum g such that `steps` steps turn state s into m*s + g*increment mod 2**64.

    Takes one squaring a bit of `steps` (F. Brown, "Random Number Generation with Arbitrary
    Strides", 1994). A negative `steps` goes back, since the period is 2**64.
    """
    steps &= MASK64
    m, g = 1, 0  # the jump so far: none
    square_m, square_g = MULTIPLIER, 1  # the jump of 1, 2, 4, ... steps
    while steps:
        if steps & 1:
            m, g = m * square_m & MASK64, (g * square_m + square_g) & MASK64
        square_m, square_g = square_m * square_m & MASK64, (square_m + 1) * square_g & MASK64
        steps >>= 1
    return m, g


def _jump_table(lanes: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The jumps by 0, 1, ..., lanes - 1 steps, as two uint64 arrays."""
    multipliers = np.full(lanes, MULTIPLIER, np.uint64)
    multipliers[0] = 1
    multipliers = np.multiply.accumulate(multipliers)  # wraps modulo 2**64, as wanted
    sums = np.zeros(lanes, np.uint64)
    np.cumsum(multipliers[:-1], out=sums[1:])
    return multipliers, sums


_JUMP_M, _JUMP_G = _jump_table(LANES)
_BLOCK_M, _BLOCK_G = jump(LANES)


def _scramble(states: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """XSH-RR of each state, in the low 32 bits of a uint64; `states` is used up as scratch."""
    x = states >> np.uint64(18)
    x ^= states
    x >>= np.uint64(27)
    x &= np.uint64(0xFFFFFFFF)
    x *= np.uint64(0x1_0000_0001)  # the word twice, so that a shift of the pair rotates it
    states >>= np.uint64(59)
    x >>= states
    return x


# Wichura's coefficients (PPND16), numerator and denominator, from the highest power down.
_CENTRE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
     4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
     1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
     2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
     4.2313330701600911252e1, 1.0),
)  # fmt: skip
_TAIL = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
     1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0,
     4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
     1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0,
     2.05319162663775882187e0, 1.0),
)  # fmt: skip
_FAR_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
     2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0,
     5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
     7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
     5.99832206555887937690e-1, 1.0),
)  # fmt: skip


def _ratio(
    table: tuple[tuple[float, ...], tuple[float, ...]], r: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The rational function P(r) / Q(r), both by Horner's rule."""
    top, bottom = (np.full_like(r, row[0]) for row in table)
    for a, b in zip(table[0][1:], table[1][1:], strict=True):
        top *= r
        top += a
        bottom *= r
        bottom += b
    top /= bottom
    return top


def _log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Natural logarithm from correctly rounded operations only, so the same on every platform."""
    m, e = np.frexp(x)  # x = m * 2**e, 0.5 <= m < 1, exact
    low = m < math.sqrt(0.5)
    m = np.where(low, 2.0 * m, m)  # now sqrt(1/2) <= m < sqrt(2)
    e = e - low
    s = (m - 1.0) / (m + 1.0)
    s2 = s * s
    series = np.full_like(s, 1.0 / 23.0)
    for k in range(21, 0, -2):
        series *= s2
        series += 1.0 / k
    return e * 0.6931471805599453 + 2.0 * (s * series)  # log m = 2 artanh s


def _normal_quantile(q: NDArray[np.float64]) -> NDArray[np.float64]:
    """The z below which a standard normal number lies with probability 1/2 + q, -1/2 < q < 1/2.

    Algorithm AS 241 (M. J. Wichura, Applied Statistics 37, 1988), relative error about 1e-16.
    """
    z = q * _ratio(_CENTRE, 0.180625 - q * q)
    outer = np.flatnonzero(np.abs(q) > 0.425)
    side = q[outer]
    r = np.sqrt(-_log(0.5 - np.abs(side)))  # the difference is exact
    far = r > 5.0
    tail = _ratio(_TAIL, r - 1.6)
    tail[far] = _ratio(_FAR_TAIL, r[far] - 5.0)
    z[outer] = np.copysign(tail, side)
    return z


class PCG32:
    """A stream of random numbers, chosen by a seed and a stream number.

    Bulk draws equal one-at-a-time draws bit for bit: ``uint32s(3)`` gives what three calls of
    ``next_uint32()`` give, and leaves the generator where they leave it. A float32 and an integer
    below 2**32 take one 32-bit draw, a float64 takes two; arrays are filled in C order.
    """

    def __init__(self, seed: int = 0, stream: int = DEFAULT_STREAM) -> None:
        """Seed as the reference does; 0 <= seed < 2**64, 0 <= stream < 2**63, else ValueError."""
        self.seed = _whole("seed", seed, 0, 1 << 64)
        self.stream = _whole("stream", stream, 0, 1 << 63)
        self._increment = 2 * self.stream + 1
        self._state = 0
        self.advance(1)
        self._state = (self._state + self.seed) & MASK64
        self.advance(1)

    def __repr__(self) -> str:
        return f"PCG32(seed={self.seed}, stream={self.stream}, state={self._state:#018x})"

    def next_uint32(self) -> int:
        """One draw, an int with 0 <= draw < 2**32."""
        old = self._state
        self._state = (old * MULTIPLIER + self._increment) & MASK64
        x = ((old >> 18 ^ old) >> 27) & 0xFFFFFFFF
        return (x * 0x1_0000_0001 >> (old >> 59)) & 0xFFFFFFFF

    def uint32s(self, n: int) -> NDArray[np.uint32]:
        """The next n draws as a uint32 array [n]."""
        n = _whole("n", n, 0, 1 << 62)
        out = np.empty(n, np.uint32)
        offsets = _JUMP_G[:n] * np.uint64(self._increment)
        for start in range(0, n, LANES):
            block = out[start : start + LANES]
            states = _JUMP_M[: len(block)] * np.uint64(self._state)
            states += offsets[: len(block)]
            block[:] = _scramble(states)
            self.advance(len(block))
        return out

    def advance(self, steps: int) -> None:
        """Move on by `steps` draws without making them; a negative number goes back."""
        m, g = (_BLOCK_M, _BLOCK_G) if steps == LANES else jump(operator.index(steps))
        self._state = (m * self._state + g * self._increment) & MASK64

    def substream(self, name: str) -> PCG32:
        """An independent generator of that name.

        Its seed and stream are the first and the second 8 bytes (little-endian; the stream without its
        lowest bit) of the SHA-256 of this generator's seed and stream (8 bytes each, little-endian)
        followed by the name in UTF-8. The draws made so far do not matter.
        """
        if not isinstance(name, str):
            raise TypeError(f"substream: the name must be a str, got {type(name).__name__}")
        own = self.seed.to_bytes(8, "little") + self.stream.to_bytes(8, "little")
        digest = hashlib.sha256(own + name.encode("utf-8")).digest()
        seed = int.from_bytes(digest[:8], "little")
        stream = int.from_bytes(digest[8:16], "little") >> 1
        return PCG32(seed, stream)

    def uniform(
        self,
        low: float = 0.0,
        high: float = 1.0,
        shape: int | tuple[int, ...] = (),
        dtype: DTypeLike = np.float32,
    ) -> NDArray[Any]:
        """Numbers drawn evenly from [low, high), as an array of `shape`."""
        shape, n, kind = _sizes(shape, dtype)
        a, b = kind.type(low), kind.type(high)
        width = b - a
        if not (np.isfinite(width) and a < b):
            raise ValueError(
                f"uniform: wants finite low < high (and their difference finite) in {kind}, "
                f"got low={low}, high={high}"
            )
        x: NDArray[Any]
        if kind == np.float32:
            words = self.uint32s(n)
            words >>= np.uint32(8)
            x = words.astype(np.float32)  # 24 bits: exact
            x *= np.float32(2.0**-24)
        else:
            x = self._bits53(n)
            x *= 2.0**-53
        if a != 0 or b != 1:
            x *= width
            x += a
            np.minimum(x, np.nextafter(b, a), out=x)  # rounding may have reached `high`
        return x.reshape(shape)

    def _bits53(self, n: int) -> NDArray[np.float64]:
        """n whole numbers 0 <= k < 2**53 as float64, from two draws each, high bits first."""
        words = self.uint32s(2 * n).reshape(n, 2)
        x = (words[:, 0] >> np.uint32(5)).astype(np.float64)
        x *= 2.0**26
        x += words[:, 1] >> np.uint32(6)
        return x

    def normal(
        self,
        mean: float = 0.0,
        std: float = 1.0,
        shape: int | tuple[int, ...] = (),
        dtype: DTypeLike = np.float32,
    ) -> NDArray[Any]:
        """Normally distributed numbers, as an array of `shape`, by inversion of the distribution."""
        shape, n, kind = _sizes(shape, dtype)
        if not (math.isfinite(mean) and math.isfinite(std) and std >= 0):
            raise ValueError(f"normal: wants finite mean and std >= 0, got mean={mean}, std={std}")
        if kind == np.float32:
            q = self.uint32s(n).astype(np.float64)
            q -= 2.0**31 - 0.5
            q *= 2.0**-32
        else:
            q = self._bits53(n)
            q -= 2.0**52
            q += 0.5
            q *= 2.0**-53
        z = _normal_quantile(q)
        z *= std
        z += mean
        return z.astype(kind, copy=False).reshape(shape)

    def integers(self, low: int, high: int, shape: int | tuple[int, ...] = ()) -> NDArray[np.int64]:
        """Whole numbers drawn evenly from low <= k < high, as an int64 array of `shape`."""
        shape, n, _ = _sizes(shape, np.float32)
        low = _whole("low", low, -(1 << 63), 1 << 63)
        high = _whole("high", high, low + 1, (1 << 63) + 1)
        count = high - low
        wide = count > 1 << 32  # then a candidate takes two draws
        bits = 64 if wide else 32
        threshold = np.uint64((1 << bits) % count)  # as many of the lowest are one too many
        out = np.empty(n, np.uint64)
        filled = 0
        while filled < n:
            want = min(n - filled, LANES)
            words = self.uint32s(want * bits // 32).astype(np.uint64)
            if wide:
                words = words[0::2] << np.uint64(32) | words[1::2]
            kept = words[words >= threshold]
            out[filled : filled + len(kept)] = kept
            filled += len(kept)
        if count < 1 << 64:
            out %= np.uint64(count)
        out += np.uint64(low & MASK64)  # wraps into two's complement
        return out.view(np.int64).reshape(shape)

    def permutation(self, n: int) -> NDArray[np.int64]:
        """The numbers 0 to n - 1 in random order, each order equally likely; int64 [n]."""
        n = _whole("n", n, 0, 1 << 32)
        order = list(range(n))
        for i in range(n - 1, 0, -1):
            threshold = (1 << 32) % (i + 1)
            while (word := self.next_uint32()) < threshold:
                pass
            j = word % (i + 1)
            order[i], order[j] = order[j], order[i]
        return np.array(order, np.int64)

    def state(self) -> dict[str, str]:
        """All there is to know of the generator, in a form that JSON keeps (64-bit words as hex)."""
        return {
            "generator": "PCG32",
            "seed": hex(self.seed),
            "stream": hex(self.stream),
            "state": hex(self._state),
        }

    def set_state(self, state: Mapping[str, str]) -> None:
        """Continue from what `state()` returned, here or elsewhere."""
        wanted = ["generator", "seed", "state", "stream"]
        if sorted(state) != wanted or state["generator"] != "PCG32":
            raise ValueError(f"set_state: wants PCG32's {wanted}, got {dict(state)!r}")
        seed = _whole("seed", int(state["seed"], 16), 0, 1 << 64)
        stream = _whole("stream", int(state["stream"], 16), 0, 1 << 63)
        self._state = _whole("state", int(state["state"], 16), 0, 1 << 64)
        self.seed, self.stream, self._increment = seed, stream, 2 * stream + 1


def _whole(name: str, value: int, low: int, high: int) -> int:
    """`value` as an int with low <= value < high, else TypeError or ValueError."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(
            f"{name}: wants a whole number, got {value!r} of type {type(value).__name__}"
        ) from None
    if not low <= number < high:
        raise ValueError(f"{name}: wants a whole number from {low} to {high - 1}, got {number}")
    return number


def _sizes(
    shape: int | tuple[int, ...], dtype: DTypeLike
) -> tuple[tuple[int, ...], int, np.dtype[Any]]:
    """The shape as a tuple, its number of elements, and the dtype, checked."""
    kind = np.dtype(dtype)
    if kind != np.float32 and kind != np.float64:
        raise TypeError(f"dtype: wants float32 or float64, got {kind}")
    sides = (shape,) if isinstance(shape, int) else tuple(shape)
    sides = tuple(_whole("shape", side, 0, 1 << 62) for side in sides)
    return sides, math.prod(sides), kind
