"""Facts: published words, formulas over the words, places in the sequence, moments."""

import hashlib
import json
import math
import struct

import numpy as np
import pytest

from tinyllm.num.pcg32 import PCG32, default_generator, manual_seed

WORDS = [0xA15C02B7, 0x7B47F409, 0xBA1D3330, 0x83D2F293, 0xBFA4784B, 0xCBED606E]
CARDS = "Qd Ks 6d 3s 3d 4c 3h Td Kc 5c Jh Kd Jd As 4s 4h Ad Th Ac Jc 7s Qs 2s 7h Kh 2d 6c Ah 4d Qh 9h 6s 5s 2c 9c Ts 8d 9s 3c 8c Js 5d 2h 6h 7d 8s 9d 5h 8h Qc 7c Tc"


def test_published():
    rng = PCG32(42, 54)
    assert rng.uint32s(6).tolist() == WORDS
    rng.advance(-6)
    assert [rng.next_uint32() for _ in range(6)] == WORDS
    assert "".join("TH"[k] for k in rng.integers(0, 2, 20)) == "HHTTTHTHHHTHTTTHHHHH"
    rng.advance(45)
    assert rng.integers(1, 7, 8).tolist() == [3, 4, 1, 1, 2, 2, 3, 2]
    rng.advance(25)
    assert " ".join("A23456789TJQK"[k // 4] + "hcds"[k % 4] for k in rng.permutation(52)) == CARDS
    assert 2 * PCG32().stream + 1 == 1442695040888963407


KINDS = {
    "f4": lambda r, n: r.uniform(-1, 3, n),
    "f8": lambda r, n: r.uniform(-1, 3, n, "f8"),
    "n4": lambda r, n: r.normal(1, 2, n),
    "n8": lambda r, n: r.normal(1, 2, n, "f8"),
    "die": lambda r, n: r.integers(0, 6, n),
    "refuse": lambda r, n: r.integers(0, 2**31 + 1, n),
    "wide": lambda r, n: r.integers(-(2**60), 2**62, n),
}


@pytest.mark.parametrize("kind", KINDS)
def test_pieces(kind):
    draw, whole, parts, single = KINDS[kind], PCG32(6), PCG32(6), PCG32(6)
    together = draw(whole, 1_300_000)
    assert (
        together == np.concatenate([draw(parts, n) for n in (16_385, 1, 0, 999_999, 283_615)])
    ).all()
    assert whole.state() == parts.state()
    assert [draw(single, ()).item() for _ in range(50)] == together[:50].tolist()
    for shape in ((2, 3), (2, 3, 4), (2, 1, 3, 2)):
        assert (draw(PCG32(6), shape).reshape(-1) == together[: math.prod(shape)]).all()


def test_places():
    rng = PCG32(6)
    x = rng.uint32s(1_200_001)
    assert len(np.unique(x[:50_000])) > 49_990
    for at in (0, 16_384, 1_048_577, 1_200_000):
        other = PCG32(6)
        other.advance(at)
        assert other.next_uint32() == x[at]
    assert [PCG32(6).next_uint32()] == x[:1].tolist()
    one = PCG32(6)
    assert [one.next_uint32() for _ in range(20_000)] == x[:20_000].tolist()
    one.advance(2**64 - 20_000)
    assert one.state() == PCG32(6).state()
    one.advance(-(2**40))
    one.advance(2**40 + 3)
    assert one.next_uint32() == x[3]


def test_formulas():
    words = PCG32(9).uint32s(8000).astype(np.uint64)
    u = (words >> np.uint64(8)).astype(np.float32) / np.float32(2**24)
    for low, high in ((0, 1), (-8, 8), (1e5, 3e5)):
        assert (
            PCG32(9).uniform(low, high, 8000) == u * np.float32(high - low) + np.float32(low)
        ).all()
    v = ((words[::2] >> np.uint64(5)) * np.uint64(2**26) + (words[1::2] >> np.uint64(6))).astype(
        np.float64
    ) / 2**53
    assert (PCG32(9).uniform(-3, 4, 4000, np.float64) == -3 + 7 * v).all()
    z = PCG32(9).normal(0, 1, 4000, np.float64)
    for std, mean in ((1e-9, 0.1), (1e6, -1), (1e200, 1e190)):
        assert (PCG32(9).normal(mean, std, 4000, np.float64) == z * std + mean).all()
    cdf = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in z])
    np.testing.assert_allclose(cdf, v + 2.0**-54, atol=1e-14)
    narrow = PCG32(9).normal(0, 1, 8000)
    cdf = np.array([0.5 * math.erfc(-float(x) / math.sqrt(2)) for x in narrow])
    np.testing.assert_allclose(cdf, (words + 0.5) / 2**32, atol=1e-7)
    assert (PCG32(9).normal(2, 0, 5) == 2).all()
    kept = words[words >= 2**32 % 3_000_000_000]
    n = len(kept)
    assert (
        PCG32(9).integers(-7, 2_999_999_993, n)
        == (kept % np.uint64(3_000_000_000)).astype(np.int64) - 7
    ).all()
    pairs = words[::2] << np.uint64(32) | words[1::2]
    assert (
        PCG32(9).integers(-(2**63), 2**63, 4000) == pairs.view(np.int64) + np.int64(-(2**63))
    ).all()
    zero = PCG32(0, 0)
    zero.set_state(zero.state() | {"state": "0x0"})
    first = zero.uint32s(3)
    zero.advance(-3)
    assert int(zero.integers(0, 3)) == first[first > 0][0] % 3


def test_ends():
    for low, high, dtype in (
        (1.0, 1.0 + 2**-23, "f4"),
        (0.1, 0.7, "f4"),
        (2.0**24 - 1, 2.0**24, "f4"),
        (1.0, 1.0 + 2**-52, "f8"),
        (-1, -1e-12, "f4"),
    ):
        x = PCG32(1).uniform(low, high, 20_000, dtype)
        assert x.min() >= np.dtype(dtype).type(low)
        assert x.max() < np.dtype(dtype).type(high)


def test_permutations():
    rng, copy = PCG32(5), PCG32(5)
    for n in (0, 1, 2, 30, 5000):
        order = list(range(n))
        for i in range(n - 1, 0, -1):
            j = int(copy.integers(0, i + 1))
            order[i], order[j] = order[j], order[i]
        assert rng.permutation(n).tolist() == order
        assert rng.state() == copy.state()
    large = PCG32(0).permutation(200_000)
    assert (np.sort(large) == np.arange(200_000)).all()
    i = np.arange(199_999, 0, -1)
    rejected = PCG32(0)
    rejected.advance(len(i))
    after = PCG32(0)
    after.permutation(200_000)
    assert after.state() != rejected.state()


def test_children():
    rng = PCG32(77)
    rng.uniform(shape=9)
    for name in ("a", "a #2x", "ü", "x" * 100):
        key = struct.pack("<QQ", rng.seed, rng.stream) + name.encode()
        seed, stream = struct.unpack("<QQ", hashlib.sha256(key).digest()[:16])
        assert rng.substream(name).state() == PCG32(seed, stream >> 1).state()
    before = rng.state()
    for k in range(1, 121):
        assert rng.spawn("d").state() == rng.substream("d" if k == 1 else f"d #{k}").state()
    assert rng.spawn("e").state() == rng.substream("e").state()
    assert rng.state() == before
    rng.set_state(before)
    assert rng.spawn("d").state() == PCG32(77).spawn("d").state()
    for seed in (0, 2**50, 2**64 - 1):
        rng = manual_seed(seed)
        assert rng.uint32s(4).tolist() == PCG32(seed).uint32s(4).tolist()
        assert rng is default_generator()
        rng.spawn("d")
        assert manual_seed(seed).spawn("d").state() == PCG32(seed).substream("d").state()
    text = json.dumps(rng.state())
    x = rng.uint32s(5).tolist()
    other = PCG32(1)
    other.set_state(json.loads(text))
    assert other.uint32s(5).tolist() == x
    assert other.substream("q").state() == rng.substream("q").state()


def test_refusals():
    rng = PCG32(1)
    for call in (
        lambda: PCG32(2**64),
        lambda: PCG32(0, -1),
        lambda: rng.uint32s(-1),
        lambda: rng.uniform(2, 1),
        lambda: rng.uniform(0, 1, (2, -1)),
        lambda: rng.uniform(1, 1 + 1e-12),
        lambda: rng.normal(0, -1),
        lambda: rng.normal(math.inf),
        lambda: rng.integers(0, 0),
        lambda: rng.integers(0, 2**63 + 1),
        lambda: rng.permutation(2**32),
        lambda: rng.set_state({}),
        lambda: rng.set_state(rng.state() | {"generator": "x"}),
    ):
        with pytest.raises(ValueError):
            call()
    for call in (
        lambda: PCG32(1.5),
        lambda: rng.advance(0.5),
        lambda: rng.uniform(shape=2.5),
        lambda: rng.normal(dtype=int),
        lambda: rng.spawn(1),
    ):
        with pytest.raises(TypeError):
            call()
    assert rng.state() == PCG32(1).state()
