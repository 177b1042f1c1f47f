# Tangled from book/1-foundations/M06.3-tests.md
"""Tests of tinyllm.num.pcg32 against published numbers and a second, plain generator."""

import hashlib
import json
import math
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyllm.num.pcg32 import PCG32, default_generator, manual_seed


def reference(seed: int, stream: int = 0x0A02BDBF7BB3C0A7) -> Iterator[int]:
    """PCG32's draws by plain arithmetic."""
    c = stream * 2 + 1
    state = ((seed + c) * 0x5851F42D4C957F2D + c) % 2**64
    while True:
        word = ((state ^ state // 2**18) // 2**27) % 2**32
        turn = state // 2**59
        yield (word // 2**turn + word * 2 ** (32 - turn)) % 2**32
        state = (state * 0x5851F42D4C957F2D + c) % 2**64


def bounded(draws: Iterator[int], r: int) -> int:
    """A number below r as the reference program draws it."""
    while True:
        draw = next(draws) if r <= 2**32 else next(draws) * 2**32 + next(draws)
        if draw >= (2**32 if r <= 2**32 else 2**64) % r:
            return draw % r


DEMO = [
    (
        "a15c02b7 7b47f409 ba1d3330 83d2f293 bfa4784b cbed606e",
        "HHTTTHTHHHTHTTTHHHHHTTTHHHTHTHTHTTHTTTHHHHHHTTTTHHTTTTTHTTTTTTTHT",
        "3 4 1 1 2 2 3 2 4 3 2 4 3 3 5 2 3 1 3 1 5 1 4 1 5 6 4 6 6 2 6 3 3",
        "Qd Ks 6d 3s 3d 4c 3h Td Kc 5c Jh Kd Jd As 4s 4h Ad Th Ac Jc 7s Qs 2s 7h Kh 2d "
        "6c Ah 4d Qh 9h 6s 5s 2c 9c Ts 8d 9s 3c 8c Js 5d 2h 6h 7d 8s 9d 5h 8h Qc 7c Tc",
    ),
    (
        "74ab93ad 1c1da000 494ff896 34462f2f d308a3e5 0fa83bab",
        "HHHHHHHHHHTHHHTHTHTHTHTTTTHHTTTHHTHHTHTTHHTTTHHHHHHTHTTHTHTTTTTTT",
        "5 1 1 3 3 2 4 5 3 2 2 6 4 3 2 4 2 4 3 2 3 6 3 2 3 4 2 4 1 1 5 4 4",
        "7d 2s 7h Td 8s 3c 3d Js 2d Tc 4h Qs 5c 9c Th 2c Jc Qd 9d Qc 7s 3s 5s 6h 4d Jh "
        "4c Ac 4s 5h 5d Kc 8h 8d Jd 9s Ad 6s 6c Kd 2h 3h Kh Ts Qh 9h 6d As 7c Ks Ah 8c",
    ),
    (
        "39af5f9f 04196b18 c3c3eb28 c076c60c c693e135 f8f63932",
        "HTTHHTTTTTHTTHHHTHTTHHTTHTHHTHTHTTTTHHTTTHHTHHTTHTTHHHTHHHTHTTTHT",
        "5 1 5 3 2 2 4 5 3 3 1 3 4 6 3 2 3 4 2 2 3 1 5 2 4 6 6 4 2 4 3 3 6",
        "Kd Jh Kc Qh 4d Qc 4h 9d 3c Kh Qs 8h 5c Jd 7d 8d 3h 7c 8s 3s 2h Ks 9c 9h 2c 8c "
        "Ad 7s 4s 2s 5h 6s 4c Ah 7h 5s Ac 3d 5d Qd As Tc 6h 9s 2d 6c 6d Td Jc Ts Th Js",
    ),
    (
        "55ce6851 97a7726d 17e10815 58007d43 962fb148 b9bb55bd",
        "HHTHHTTTTHTHHHHHTTHHHTTTHHTHTHTHTHHTTHTHHHHHHTHHTHHTHHTTTTHHTHHTT",
        "6 6 3 2 3 4 2 6 4 2 6 3 2 3 5 5 3 4 4 6 6 2 6 5 4 4 6 1 6 1 3 6 5",
        "Qd 8h 5d 8s 8d Ts 7h Th Qs Js 7s Kc 6h 5s 4d Ac Jd 7d 7c Td 2c 6s 5h 6d 3s Kd "
        "9s Jh Kh As Ah 9h 3c Qh 9c 2d Tc 9d 2s 3d Ks 4h Qc Ad Jc 8c 2h 3h 4s 4c 5c 6c",
    ),
    (
        "fcef7cd6 1b488b5a d0daf7ea 1d9a70f7 241a37cf 9a3857b7",
        "HHHHTHHTTHTTHHHTTTHHTHTHTTTTHTTHTHTTTHHHTHTHTTHTTHTHHTHTHHHTHTHTT",
        "5 4 1 2 6 1 3 1 5 6 3 6 2 1 4 4 5 2 1 5 6 5 6 4 4 4 5 2 6 4 3 5 6",
        "4d 9s Qc 9h As Qs 7s 4c Kd 6h 6s 2c 8c 5d 7h 5h Jc 3s 7c Jh Js Ks Tc Jd Kc Th "
        "3h Ts Qh Ad Td 3c Ah 2d 3d 5c Ac 8s 5s 9c 2h 6c 6d Kh Qd 8d 7d 2s 8h 4h 9d 4s",
    ),
]


def test_published_vectors() -> None:
    rng = PCG32(42, 54)
    for words, coins, rolls, _ in DEMO:
        assert " ".join(f"{rng.next_uint32():08x}" for _ in range(6)) == words
        rng.advance(len(coins) + len(rolls.split()) + 51)  # one draw each: none was refused


def test_published_demo() -> None:
    rng = PCG32(42, 54)
    for words, coins, rolls, cards in DEMO:
        assert " ".join(f"{word:08x}" for word in rng.uint32s(6)) == words
        rng.advance(-6)
        assert " ".join(f"{word:08x}" for word in rng.uint32s(6)) == words
        assert "".join("TH"[k] for k in rng.integers(0, 2, 65)) == coins
        assert " ".join(str(k) for k in rng.integers(1, 7, 33)) == rolls
        deck = rng.permutation(52).tolist()
        assert " ".join("A23456789TJQK"[k // 4] + "hcds"[k % 4] for k in deck) == cards


def test_default_stream() -> None:
    assert 2 * PCG32(7).stream + 1 == 1442695040888963407  # pcg-cpp's default increment
    assert PCG32().seed == 0
    assert PCG32(7).next_uint32() == next(reference(7))


def test_hand_example() -> None:
    rng = PCG32(42, 54)
    assert rng.state()["state"] == "0x185706b82c2e03f8"
    assert rng.next_uint32() == 0xA15C02B7 == 2707161783
    assert int(PCG32(42, 54).integers(0, 2)) == 1
    assert int(PCG32(42, 54).integers(0, 6)) == 3
    assert float(PCG32(42, 54).uniform()) == 10574850 / 2**24
    assert float(PCG32(42, 54).normal()) == pytest.approx(0.332675, abs=5e-7)


def test_bulk_equals_reference() -> None:
    for seed, stream in ((0, 0), (1, 2**63 - 1), (2**64 - 1, 54), (12345, 678)):
        rng, draws = PCG32(seed, stream), reference(seed, stream)
        for n in (0, 1, 2, 31, 40_000, 5, 16_384, 16_383, 3):
            block = rng.uint32s(n)
            assert block.dtype == np.uint32
            assert block.tolist() == [next(draws) for _ in range(n)]
            assert rng.next_uint32() == next(draws)


METHODS: dict[str, Callable[[PCG32, Any], Any]] = {
    "uint32s": lambda rng, shape: rng.uint32s(1 if shape == () else shape),
    "uniform float32": lambda rng, shape: rng.uniform(-1.0, 3.0, shape),
    "uniform float64": lambda rng, shape: rng.uniform(-1.0, 3.0, shape, np.float64),
    "normal float32": lambda rng, shape: rng.normal(1.0, 2.0, shape),
    "normal float64": lambda rng, shape: rng.normal(1.0, 2.0, shape, np.float64),
    "die": lambda rng, shape: rng.integers(1, 7, shape),
    "often refused": lambda rng, shape: rng.integers(-5, 2**31 - 4, shape),
    "wide": lambda rng, shape: rng.integers(-(2**40), 2**62 + 2**61, shape),
    "one": lambda rng, shape: rng.integers(9, 10, shape),
}


@settings(derandomize=True, database=None, deadline=None, max_examples=60)
@given(
    st.integers(0, 2**64 - 1),
    st.lists(st.tuples(st.sampled_from(sorted(METHODS)), st.integers(0, 40)), max_size=12),
)
def test_any_interleaving_equals_single_draws(seed: int, calls: list[tuple[str, int]]) -> None:
    bulk, single = PCG32(seed), PCG32(seed)
    for name, n in calls:
        together = METHODS[name](bulk, n)
        alone = [METHODS[name](single, ()) for _ in range(n)]
        assert together.tolist() == [x.item() for x in alone], name
        assert bulk.state() == single.state(), name


@pytest.mark.parametrize("name", sorted(METHODS))
def test_blocks_do_not_show(name: str) -> None:
    whole, pieces = PCG32(5), PCG32(5)
    sizes = [16_383, 2, 1, 16_384, 30_000, 0, 4097]
    together = METHODS[name](whole, sum(sizes))
    parts = np.concatenate([METHODS[name](pieces, n) for n in sizes])
    assert together.dtype == parts.dtype
    assert np.array_equal(together, parts)
    assert whole.state() == pieces.state()
    grid = METHODS[name](PCG32(5), 6)  # C order
    if name != "uint32s":
        assert np.array_equal(METHODS[name](PCG32(5), (2, 3)), grid.reshape(2, 3))


def python_calls(work: Callable[[], Any]) -> int:
    """How many Python functions `work` calls (numpy's own, written in C, do not count)."""
    count = 0

    def watch(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def test_bulk_costs_numpy_time() -> None:
    rng, million = PCG32(0), 1_000_000
    for work in (
        lambda: rng.uint32s(million),
        lambda: rng.uniform(-1.0, 1.0, (1000, 1000)),
        lambda: rng.uniform(-1.0, 1.0, million, np.float64),
        lambda: rng.normal(0.0, 1.0, million),
        lambda: rng.integers(0, 1000, million),
        lambda: rng.integers(0, 2**31 + 1, million),
        lambda: rng.permutation(100_000),
        lambda: rng.advance(10**18),
    ):
        assert python_calls(work) < 3000


@settings(derandomize=True, database=None, deadline=None, max_examples=50)
@given(st.integers(0, 2**64 - 1), st.integers(0, 300), st.integers(0, 2**70))
def test_advance_goes_both_ways(seed: int, steps: int, far: int) -> None:
    rng, draws = PCG32(seed, 3), reference(seed, 3)
    first = rng.state()
    rng.advance(steps)
    for _ in range(steps):
        next(draws)
    assert rng.next_uint32() == next(draws)
    rng.advance(-steps - 1)
    assert rng.state() == first
    rng.advance(2**64)  # once round
    assert rng.state() == first
    rng.advance(far)
    rng.advance(-far)
    assert rng.state() == first


def test_substream_vectors() -> None:
    child = PCG32(0).substream("dropout")
    assert (child.seed, child.stream) == (0x4D931939A151E1EA, 0x5479EF6F799C9178)
    for parent, name in ((PCG32(0), "dropout"), (PCG32(2**63 + 5, 7), "größer"), (child, "")):
        key = struct.pack("<QQ", parent.seed, parent.stream) + name.encode("utf-8")
        seed, stream = struct.unpack("<QQ", hashlib.sha256(key).digest()[:16])
        made = parent.substream(name)
        assert (made.seed, made.stream) == (seed, stream >> 1)
        assert made.next_uint32() == next(reference(seed, stream >> 1))


def test_substream_ignores_draws_made() -> None:
    rng = PCG32(3, 4)
    fresh = rng.substream("a").state()
    rng.uint32s(100)
    before = rng.state()
    assert rng.substream("a").state() == fresh
    assert rng.state() == before  # making one draws nothing
    other = PCG32()
    other.set_state(before)
    assert other.substream("a").state() == fresh


def test_spawn_never_repeats() -> None:
    rng = PCG32(3, 4)
    before = rng.state()
    made = [rng.spawn(name) for name in ("a", "b", "a", "a")]
    wanted = [rng.substream(name) for name in ("a", "b", "a #2", "a #3")]
    assert [child.state() for child in made] == [child.state() for child in wanted]
    assert len({child.next_uint32() for child in made}) == 4
    assert rng.state() == before  # nothing is drawn
    rng.set_state(before)
    assert rng.spawn("a").state() == rng.substream("a").state()
    assert PCG32(3, 4).spawn("a").state() == rng.substream("a").state()  # each object counts
    with pytest.raises(TypeError):
        rng.spawn(3)


def test_default_generator() -> None:
    rng = manual_seed(7)
    assert rng is default_generator() is manual_seed(7)
    fresh = PCG32(7)
    assert np.array_equal(default_generator().uint32s(5), fresh.uint32s(5))
    assert default_generator().next_uint32() == fresh.next_uint32()  # it moves on
    first, second = rng.spawn("dropout"), default_generator().spawn("dropout")
    assert first.state() == PCG32(7).substream("dropout").state() != second.state()
    for wrong, error in ((-1, ValueError), (1.5, TypeError)):
        with pytest.raises(error):
            manual_seed(wrong)
    assert manual_seed(0).state() == PCG32(0).state()
    assert rng.spawn("dropout").state() == PCG32(0).substream("dropout").state()


def test_substreams_nest() -> None:
    rng = PCG32(3)
    made = [
        rng,
        rng.substream("a"),
        rng.substream("b"),
        rng.substream("a.b"),
        rng.substream("ab"),
        rng.substream("a").substream("b"),
        rng.substream("b").substream("a"),
        PCG32(4).substream("a"),
        PCG32(3, 4).substream("a"),
    ]
    assert len({tuple(r.uint32s(4).tolist()) for r in made}) == len(made)


def test_substreams_are_uncorrelated() -> None:
    rows = [PCG32(0).uniform(-1.0, 1.0, 4096)]
    rows += [PCG32(0).substream(f"layers.{i}.dropout").uniform(-1.0, 1.0, 4096) for i in range(64)]
    correlation = np.asarray(np.corrcoef(np.array(rows, np.float64)))
    off = correlation[~np.eye(65, dtype=bool)]
    assert np.abs(off).max() < 5 / math.sqrt(4096)
    assert abs(float(np.mean(off**2)) * 4096 - 1) < 0.1  # as large as chance makes them


def test_uniform_bits() -> None:
    words = [next(draws) for draws in [reference(9)] for _ in range(2000)]
    narrow = PCG32(9).uniform(0.0, 1.0, 2000)
    assert narrow.dtype == np.float32
    assert narrow.tolist() == [(w // 2**8) / 2**24 for w in words]
    wide = PCG32(9).uniform(0.0, 1.0, 1000, np.float64)
    assert wide.dtype == np.float64
    pairs = zip(words[0::2], words[1::2], strict=True)
    assert wide.tolist() == [(a // 2**5 * 2**26 + b // 2**6) / 2**53 for a, b in pairs]
    scaled = PCG32(9).uniform(-3.0, 5.0, 2000)
    assert np.array_equal(scaled, narrow * np.float32(8) + np.float32(-3))
    assert PCG32(9).uniform().shape == ()
    assert PCG32(9).uniform(shape=(2, 0, 3)).shape == (2, 0, 3)


def largest() -> PCG32:
    """A generator whose next two draws are 2**32 - 1, so that u is as near to 1 as it gets."""
    state = 0
    for i in range(58, 26, -1):  # bit i of s xor (s >> 18) shall be 1
        state |= (1 - (state >> (i + 18) & 1)) << i
    c = (state + 1 - state * 0x5851F42D4C957F2D) % 2**64  # the next state differs in bit 0 only
    rng = PCG32(0, c // 2)
    rng.set_state(rng.state() | {"state": hex(state)})
    return rng


def smallest() -> PCG32:
    """A generator whose next two draws are 0: they are made from the states 0 and 1."""
    rng = PCG32(0, 0)
    rng.set_state(rng.state() | {"state": "0x0"})
    return rng


def test_uniform_is_half_open() -> None:
    assert largest().uint32s(2).tolist() == [2**32 - 1] * 2
    assert float(largest().uniform()) == 1 - 2.0**-24
    assert float(largest().uniform(dtype=np.float64)) == 1 - 2.0**-53
    narrow = [(2.0**24 - 1, 2.0**24), (1.0, 1.0 + 2.0**-23), (-1.0, -1e-12), (0.1, 0.7), (-9, -8)]
    wide = [(2.0**53 - 1, 2.0**53), (1.0, 1.0 + 2.0**-52), (-8e307, 9e307), (0.1, 0.7), (-9, -8)]
    for dtype, bounds in ((np.float32, narrow), (np.float64, wide)):
        for low, high in bounds:
            x = PCG32(1).uniform(low, high, 4000, dtype)
            assert x.min() >= dtype(low)
            assert x.max() < dtype(high)
            assert largest().uniform(low, high, (), dtype) < dtype(high)
            assert smallest().uniform(low, high, (), dtype) == dtype(low)  # low is reached
    assert largest().uniform(0.1, 0.7) == np.nextafter(np.float32(0.7), np.float32(0))


def test_uniform_moments() -> None:
    n = 100_000
    x = PCG32(11).uniform(0.0, 1.0, n, np.float64)
    draws = reference(11)
    exact = sum(next(draws) // 2**5 * 2**26 + next(draws) // 2**6 for _ in range(n))
    assert math.fsum(x) == float(Fraction(exact, 2**53))
    for sample in (x, PCG32(12).uniform(0.0, 1.0, n).astype(np.float64)):
        y = sample - 0.5
        assert abs(y.mean()) < 4 * math.sqrt(1 / 12 / n)
        assert abs((y**2).mean() - 1 / 12) < 4 * math.sqrt(1 / 180 / n)
        assert abs((y[1:] * y[:-1]).mean()) < 4 / 12 / math.sqrt(n)
    for shift in (0, 24):  # the lowest and the highest byte
        counts = np.bincount(PCG32(13).uint32s(256_000) >> np.uint32(shift) & np.uint32(255))
        chi2 = float(((counts - 1000) ** 2 / 1000).sum())
        assert abs(chi2 - 255) < 4 * math.sqrt(2 * 255)


def lower(k: int, bits: int) -> float:
    """The probability (k + 1/2) / 2**bits of the lower half, exactly."""
    return math.ldexp(2 * k + 1, -bits - 1)


@pytest.mark.parametrize(("dtype", "bits"), [(np.float32, 32), (np.float64, 53)])
def test_normal_inverts_the_distribution(dtype: type, bits: int) -> None:
    n = 20_000
    draws = reference(21)
    words = [next(draws) for _ in range(2 * n)]
    if bits == 32:
        ks = words[:n]
    else:
        ks = [a // 2**5 * 2**26 + b // 2**6 for a, b in zip(words[0::2], words[1::2], strict=True)]
    z = PCG32(21).normal(0.0, 1.0, n, dtype)
    assert z.dtype == dtype
    inverse = NormalDist().inv_cdf
    for k, found in zip(ks, z.tolist(), strict=True):
        sign = -1.0 if k < 2 ** (bits - 1) else 1.0
        p = lower(min(k, 2**bits - 1 - k), bits)  # at most 1/2
        tight = 2e-15 if bits == 53 else 6e-8
        assert abs(found * sign + inverse(p)) <= tight * max(1.0, abs(found))
        assert math.erfc(found * sign / math.sqrt(2)) / 2 == pytest.approx(p, rel=40 * tight)
    scaled = PCG32(21).normal(-3.0, 0.5, n, np.float64)
    plain = PCG32(21).normal(0.0, 1.0, n, np.float64)
    assert np.array_equal(scaled, plain * 0.5 - 3.0)


def test_normal_in_the_tails() -> None:
    for dtype, bits, tight in ((np.float32, 32, 1e-7), (np.float64, 53, 1e-15)):
        z = float(smallest().normal(0.0, 1.0, (), dtype))
        assert z == pytest.approx(NormalDist().inv_cdf(lower(0, bits)), rel=tight)
        assert float(largest().normal(0.0, 1.0, (), dtype)) == -z
        assert 6.3 < -z < (6.4 if bits == 32 else 8.3)


def test_normal_golden_bits() -> None:
    wide = [
        "0x1.54a8c6ab76144p-2", "0x1.3523d73fba89bp-1", "0x1.571781a720d4fp-1",
        "0x1.57ee0afbe42f9p-1", "0x1.467f98ed834adp+0", "-0x1.b15c90a78ed02p-1",
        "0x1.7551ef4457405p+0", "-0x1.e7ab9111ccff6p-1",
    ]  # fmt: skip
    narrow = [
        "0x1.54a8c80000000p-2", "-0x1.7aa67a0000000p-5", "0x1.3523d80000000p-1", "0x1.32cdce0000000p-5",
        "0x1.5717820000000p-1", "0x1.a8b4f80000000p-1", "0x1.57ee0a0000000p-1", "0x1.7d03660000000p-7",
    ]  # fmt: skip
    found = PCG32(42, 54).normal(0.0, 1.0, 8, np.float64)
    assert [float(x).hex() for x in found] == wide
    assert [float(x).hex() for x in PCG32(42, 54).normal(0.0, 1.0, 8)] == narrow


def test_normal_moments() -> None:
    n = 200_000
    for dtype in (np.float32, np.float64):
        x = PCG32(31).normal(0.0, 1.0, n, dtype).astype(np.float64)
        for power, expected, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
            assert abs((x**power).mean() - expected) < 4 * math.sqrt(variance / n)
        inside = np.mean(np.abs(x)[:, None] < [1, 2, 3], axis=0)
        assert inside == pytest.approx([0.682689, 0.954500, 0.997300], abs=4 * 0.5 / math.sqrt(n))
    assert np.array_equal(PCG32(1).normal(2.5, 0.0, 3), np.full(3, 2.5, np.float32))


RANGES = [
    (0, 1),
    (0, 2),
    (-3, 4),
    (0, 2**31 + 1),
    (-(2**31), 2**31),
    (0, 2**32 + 1),
    (-(2**63), 2**63),
    (2**62, 2**63),
    (2**63 - 1, 2**63),
    (-(2**62), 2**62 + 1),
]


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_integers_equal_reference(low: int, high: int) -> None:
    rng, draws = PCG32(17), reference(17)
    for n in (1, 500, 7):
        found = rng.integers(low, high, n)
        assert found.dtype == np.int64
        assert found.tolist() == [low + bounded(draws, high - low) for _ in range(n)]
    assert rng.next_uint32() == next(draws)
    assert int(rng.integers(low, high)) == low + bounded(draws, high - low)


def test_integers_without_bias() -> None:
    n, third = 30_000, 2**30
    counts = Counter((PCG32(19).integers(0, 3 * third, n) // third).tolist())
    expected = n / 3  # with bias the first would be n / 2
    assert all(abs(counts[i] - expected) < 4 * math.sqrt(n * 2 / 9) for i in range(3))
    dice = np.bincount(PCG32(20).integers(1, 7, 60_000))
    assert dice[0] == 0
    assert float(((dice[1:] - 10_000) ** 2 / 10_000).sum()) < 20.5  # chi-square, 5: 1 in 1000


def shuffled(draws: Iterator[int], n: int) -> list[int]:
    cards = list(range(n))
    for i in reversed(range(1, n)):
        j = bounded(draws, i + 1)
        cards[i], cards[j] = cards[j], cards[i]
    return cards


def test_permutation_equals_reference() -> None:
    rng, draws = PCG32(23), reference(23)
    for n in (0, 1, 2, 3, 1000, 2):
        found = rng.permutation(n)
        assert found.dtype == np.int64
        assert found.tolist() == shuffled(draws, n)
        assert rng.next_uint32() == next(draws)
    start, n = PCG32(0), 150_000  # large enough that some draws are refused
    ahead = PCG32(0)
    found = ahead.permutation(n)
    assert found.tolist() == shuffled(reference(0), n)
    start.advance(n - 1)
    assert ahead.state() != start.state()  # some were


def test_permutation_is_unbiased() -> None:
    rng, n = PCG32(29), 24_000
    counts = Counter(tuple(rng.permutation(4).tolist()) for _ in range(n))
    assert len(counts) == 24
    chi2 = sum((count - 1000) ** 2 / 1000 for count in counts.values())
    assert chi2 < 49.7  # chi-square with 23 degrees of freedom: 1 in 1000


def test_state_round_trip() -> None:
    rng = PCG32(2**64 - 1, 2**63 - 1)
    rng.uint32s(12_345)
    kept = json.loads(json.dumps(rng.state()))
    assert kept["generator"] == "PCG32"
    assert all(isinstance(text, str) for text in kept.values())
    assert (int(kept["seed"], 16), int(kept["stream"], 16)) == (2**64 - 1, 2**63 - 1)
    ahead = rng.uint32s(50)
    child = rng.substream("x").state()
    other = PCG32(1)
    other.set_state(kept)
    assert np.array_equal(other.uint32s(50), ahead)
    assert other.substream("x").state() == child
    assert (other.seed, other.stream) == (rng.seed, rng.stream)
    rng.set_state(kept)
    assert np.array_equal(rng.uint32s(50), ahead)
    assert hex(rng.seed) in repr(rng) or str(rng.seed) in repr(rng)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda r: PCG32(-1), ValueError),
        (lambda r: PCG32(2**64), ValueError),
        (lambda r: PCG32(1.5), TypeError),
        (lambda r: PCG32(0, 2**63), ValueError),
        (lambda r: PCG32(0, -1), ValueError),
        (lambda r: r.uint32s(-1), ValueError),
        (lambda r: r.uint32s(2.0), TypeError),
        (lambda r: r.advance(0.5), TypeError),
        (lambda r: r.uniform(1.0, 1.0), ValueError),
        (lambda r: r.uniform(2.0, 1.0), ValueError),
        (lambda r: r.uniform(0.0, math.inf), ValueError),
        (lambda r: r.uniform(math.nan, 1.0), ValueError),
        (lambda r: r.uniform(1.0, 1.0 + 1e-12), ValueError),
        (lambda r: r.uniform(-3e38, 3e38), ValueError),
        (lambda r: r.uniform(-1e39, 1.0), ValueError),
        (lambda r: r.uniform(-1e308, 1e308, 2, np.float64), ValueError),
        (lambda r: r.uniform(shape=(2, -1)), ValueError),
        (lambda r: r.uniform(shape=2.5), TypeError),
        (lambda r: r.uniform(dtype=np.float16), TypeError),
        (lambda r: r.normal(dtype=np.int64), TypeError),
        (lambda r: r.normal(0.0, -1.0), ValueError),
        (lambda r: r.normal(math.inf, 1.0), ValueError),
        (lambda r: r.normal(0.0, math.nan), ValueError),
        (lambda r: r.integers(0, 0), ValueError),
        (lambda r: r.integers(5, 2), ValueError),
        (lambda r: r.integers(0, 2**63 + 1), ValueError),
        (lambda r: r.integers(-(2**63) - 1, 0), ValueError),
        (lambda r: r.integers(0.0, 3), TypeError),
        (lambda r: r.permutation(-1), ValueError),
        (lambda r: r.permutation(2**32), ValueError),
        (lambda r: r.substream(3), TypeError),
        (lambda r: r.set_state({}), ValueError),
        (lambda r: r.set_state(r.state() | {"generator": "PCG64"}), ValueError),
        (lambda r: r.set_state(r.state() | {"state": hex(2**64)}), ValueError),
        (lambda r: r.set_state(r.state() | {"stream": "0x" + "f" * 16}), ValueError),
    ],
)
def test_validation(call: Callable[[PCG32], Any], error: type[Exception]) -> None:
    rng = PCG32(1, 2)
    before = rng.state()
    with pytest.raises(error):
        call(rng)
    assert rng.state() == before  # a refused call draws nothing and changes nothing
    assert rng.uniform(shape=np.int64(3)).shape == (3,)  # numpy's whole numbers will do
    assert rng.uniform(shape=[2, 3]).shape == (2, 3)
