"""Against the generator written out in plain Python."""

import hashlib
import json
import math
from statistics import NormalDist

import numpy as np
import pytest

from tinyllm.num.pcg32 import PCG32, default_generator, manual_seed

M = 2**64


class Plain:
    def __init__(self, seed, stream=721347520444481703):
        self.seed, self.stream, self.c = seed, stream, 2 * stream + 1
        self.s = ((self.c + seed) * 6364136223846793005 + self.c) % M

    def word(self):
        s, self.s = self.s, (self.s * 6364136223846793005 + self.c) % M
        x, turn = ((s >> 18 ^ s) >> 27) % 2**32, s >> 59
        return (x >> turn | x << (32 - turn)) % 2**32

    def below(self, r):
        if r <= 2**32:
            while (w := self.word()) < 2**32 % r:
                pass
        else:
            while (w := self.word() << 32 | self.word()) < M % r:
                pass
        return w % r

    def u53(self):
        return (self.word() >> 5) * 2**26 + (self.word() >> 6)


@pytest.mark.parametrize(("seed", "stream"), [(0, 0), (42, 54), (M - 1, 2**63 - 1), (2**40, 7)])
def test_words(seed, stream):
    rng, plain = PCG32(seed, stream), Plain(seed, stream)
    assert [rng.next_uint32() for _ in range(9)] == [plain.word() for _ in range(9)]
    for n in (0, 1, 17_000, 3, 40_000):
        assert rng.uint32s(n).tolist() == [plain.word() for _ in range(n)]
    assert rng.next_uint32() == plain.word()
    assert PCG32(5).uint32s(3).tolist() == [
        w for p in [Plain(5)] for w in (p.word(), p.word(), p.word())
    ]


def test_a_million_words():
    rng, other = PCG32(8), PCG32(8)
    x = rng.uint32s(1_500_000)
    other.advance(1_400_000)
    assert (x[1_400_000:] == other.uint32s(100_000)).all()
    assert rng.state() == other.state()
    other.advance(-1_500_000)
    assert other.state() == PCG32(8).state()
    other.advance(2**63 + 5)
    other.advance(2**63 - 5)
    assert other.state() == PCG32(8).state()
    big = PCG32(9).normal(0.0, 1.0, 1_100_000)
    piece = PCG32(9)
    assert (
        big == np.concatenate([piece.normal(0.0, 1.0, 600_000), piece.normal(0.0, 1.0, 500_000)])
    ).all()


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0, 1),
        (-3, 3),
        (5, 11),
        (0, 2**31 + 1),
        (0, 2**32),
        (-(2**63), 2**63),
        (0, 2**62 + 2**61),
        (-(2**63), -(2**63) + 7),
        (-5, 2**33),
    ],
)
def test_integers(low, high):
    rng, plain = PCG32(3), Plain(3)
    assert rng.integers(low, high, (30, 20)).tolist() == [
        [low + plain.below(high - low) for _ in range(20)] for _ in range(30)
    ]
    assert int(rng.integers(low, high)) == low + plain.below(high - low)
    assert rng.next_uint32() == plain.word()


def test_a_draw_of_zero_is_refused():
    rng = PCG32(0, 0)
    rng.set_state(rng.state() | {"state": "0x0"})
    plain = Plain(0, 0)
    plain.s = 0
    assert rng.integers(0, 3, 4).tolist() == [plain.below(3) for _ in range(4)]


@pytest.mark.parametrize("shape", [(), (7,), (2, 3), (2, 3, 2), (0, 2), (20_000,)])
def test_uniform_and_normal(shape):
    n = math.prod(shape)
    for low, high in ((0.0, 1.0), (-2.0, 6.0), (1e6, 1e6 + 4096)):
        rng, plain = PCG32(3), Plain(3)
        x = rng.uniform(low, high, shape)
        u = np.array([(plain.word() >> 8) / 2**24 for _ in range(n)], np.float32).reshape(shape)
        assert (x == u * np.float32(high - low) + np.float32(low)).all()
        assert x.dtype == np.float32
        y = rng.uniform(low, high, shape, np.float64)
        u = np.array([plain.u53() / 2**53 for _ in range(n)]).reshape(shape)
        assert (y == low + (high - low) * u).all()
        assert rng.next_uint32() == plain.word()
    for mean, std in ((0.0, 1.0), (5.0, 1e6), (-1.0, 0.0)):
        rng, plain = PCG32(4), Plain(4)
        x, y = rng.normal(mean, std, shape), rng.normal(mean, std, shape, np.float64)
        quantile = NormalDist().inv_cdf
        z = [quantile((plain.word() + 0.5) / 2**32) for _ in range(n)][:500]
        np.testing.assert_allclose(
            x.reshape(-1)[:500], mean + std * np.array(z), rtol=1e-5, atol=1e-6 * (std + 1)
        )
        z = [quantile((plain.u53() + 0.5) / 2**53) for _ in range(n)][:500]
        np.testing.assert_allclose(
            y.reshape(-1)[:500], mean + std * np.array(z), rtol=1e-11, atol=1e-12 * (std + 1)
        )
        assert rng.next_uint32() == plain.word()


def test_the_upper_end_is_never_reached():
    x = PCG32(1).uniform(1.0, 1.0 + 2**-23, 5000)
    assert x.max() < np.float32(1.0 + 2**-23)
    for low, high in ((0.1, 0.7), (2.0**24 - 1, 2.0**24), (-1.0, -1e-12)):
        x = PCG32(1).uniform(low, high, 5000)
        assert x.min() >= np.float32(low)
        assert x.max() < np.float32(high)


def test_permutations():
    rng, plain = PCG32(3), Plain(3)
    for n in (0, 1, 5, 2000, 100_000):
        order = list(range(n))
        for i in range(n - 1, 0, -1):
            j = plain.below(i + 1)
            order[i], order[j] = order[j], order[i]
        assert rng.permutation(n).tolist() == order
    assert rng.next_uint32() == plain.word()


def child(rng, name):
    digest = hashlib.sha256(
        rng.seed.to_bytes(8, "little") + rng.stream.to_bytes(8, "little") + name.encode()
    ).digest()
    return Plain(int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little") >> 1)


def test_children():
    rng = PCG32(3, 4)
    rng.uint32s(50)
    for name in ("a", "größer", "", "layers.11.attention.dropout.and.some.more.names.behind.it"):
        want = child(rng, name)
        assert rng.substream(name).next_uint32() == want.word()
        for k in range(1, 31):
            made = rng.spawn(name)
            want = child(rng, name if k == 1 else f"{name} #{k}")
            assert (made.seed, made.stream) == (want.seed, want.stream)
    rng.set_state(rng.state())
    assert rng.spawn("a").state() == rng.substream("a").state()
    rng = manual_seed(2**63 + 9)
    first = rng.spawn("x").state()
    assert rng is default_generator()
    assert first == PCG32(2**63 + 9).substream("x").state() != rng.spawn("x").state()
    rng.uint32s(3)
    assert manual_seed(2**63 + 9).state() == PCG32(2**63 + 9).state()
    assert rng.spawn("x").state() == first


def test_state():
    rng = PCG32(M - 1, 3)
    rng.uint32s(99)
    kept = json.loads(json.dumps(rng.state()))
    ahead = rng.uint32s(9).tolist()
    other = PCG32()
    other.set_state(kept)
    assert other.uint32s(9).tolist() == ahead
    assert other.substream("a").state() == rng.substream("a").state()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda r: PCG32(-1),
        lambda r: PCG32(M),
        lambda r: PCG32(0, 2**63),
        lambda r: r.uint32s(-1),
        lambda r: r.uniform(1, 1),
        lambda r: r.uniform(0, math.inf),
        lambda r: r.normal(0, -1),
        lambda r: r.normal(math.nan, 1),
        lambda r: r.integers(3, 3),
        lambda r: r.integers(0, 2**63 + 1),
        lambda r: r.permutation(-1),
        lambda r: r.set_state({}),
        lambda r: r.set_state(r.state() | {"state": hex(M)}),
    ],
)
def test_refused(wrong):
    rng = PCG32(1)
    before = rng.state()
    with pytest.raises(ValueError):
        wrong(rng)
    for kind in (
        lambda: rng.uint32s(1.5),
        lambda: rng.substream(3),
        lambda: rng.uniform(dtype="f2"),
        lambda: PCG32("a"),
    ):
        with pytest.raises(TypeError):
            kind()
    assert rng.state() == before
