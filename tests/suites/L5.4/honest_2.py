"""Facts: distances, rotations, continuation, sums of gradients."""

import math

import numpy as np
import pytest

from tinyllm.num.gradcheck import gradcheck
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor
from tinyllm.xfmr.positions import (
    Embedding,
    LearnedPositions,
    SinusoidalPositions,
    embed,
    rotary,
    sinusoidal,
)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def close(a, b, tolerance=1e-10):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_known_numbers():
    table = sinusoidal(4, 4, base=100.0)
    close(table[1], [0.841471, 0.540302, 0.099833, 0.995004], 1e-6)
    close(table[3], [0.141120, -0.989992, 0.295520, 0.955336], 1e-6)
    odd = sinusoidal(3, 3, dtype=np.float64)
    close(odd[2], [math.sin(2), math.cos(2), math.sin(2 * 1e4 ** (-2 / 3))])
    far = sinusoidal(1, 2, start=123456, dtype=np.float64)
    close(far[0], [math.sin(123456), math.cos(123456)], 1e-8)


def test_products_of_waves_depend_on_distance():
    table = sinusoidal(60, 12, start=7, dtype=np.float64)
    products = table @ table.T
    for n in range(60):
        assert np.ptp(np.diagonal(products, n)) < 1e-10
    close(np.diagonal(products), 6)


def test_rotary_products_depend_on_distance():
    q, k = normal(1, 8), normal(1, 8, seed=1)

    def score(t, u, base):
        return float((rotary(Tensor(q), t, base).data * rotary(Tensor(k), u, base).data).sum())

    for base in (100.0, 10000.0):
        for t, u in ((3, 1), (70, 2), (2, 500)):
            close(score(t, u, base), score(t + 41, u + 41, base), 1e-9)
        assert abs(score(3, 0, base) - score(0, 3, base)) > 1e-3
    one = rotary(Tensor(np.array([[1.0, 0, 1, 0]])), 2, 100.0).data[0]
    close(one, [math.cos(2), math.sin(2), math.cos(0.2), math.sin(0.2)])


def test_rotary_turns_and_back():
    x = Tensor(normal(70, 3, 9, 6), requires_grad=True)
    out = rotary(x, 4)
    close((out.data**2).sum(-1), (x.data**2).sum(-1))
    out.backward(out.data)
    close(x.grad, x.data)  # its transpose undoes it


def test_continuation():
    x = Tensor(normal(2, 80, 6))
    learned = LearnedPositions(80, 6).astype(np.float64)
    for place in (SinusoidalPositions(6), learned, rotary):
        whole = place(x).data
        parts = [place(x[:, a:b], a).data for a, b in ((0, 1), (1, 65), (65, 80))]
        close(np.concatenate(parts, axis=1), whole)
        each = [place(x[:1, t : t + 1], t).data for t in (79, 3, 0)]
        close(np.concatenate(each, axis=1), whole[:1, [79, 3, 0]])
    close(learned(x, 0).data - x.data, np.broadcast_to(learned.weight.data, (2, 80, 6)))
    close(
        SinusoidalPositions(6)(x).data - x.data,
        np.broadcast_to(sinusoidal(80, 6, dtype="f8"), (2, 80, 6)),
    )


@pytest.mark.parametrize("V", [4, 129, 700])
def test_rows_and_their_gradients(V):
    table = Tensor(normal(V, 3), requires_grad=True)
    ids = [[0, V - 1, 2], [2, 2, 0]]
    for _ in range(2):
        out = embed(table, ids)
        close(out.data[1, 0], table.data[2])
        out.backward(np.ones((2, 3, 3)))
    close(table.grad[2], 6)
    close(table.grad[0], 4)
    close(table.grad[V - 1], 2)
    assert (table.grad[1] == 0).all()
    for dtype, n in ((np.float16, 3000), (np.float32, 10)):
        small = Tensor(np.zeros((V, 1), dtype), requires_grad=True)
        embed(small, [1] * n).backward(np.ones((n, 1), dtype))
        assert small.grad[1] == n
    spoiled, grad = Tensor(np.ones((V, 1)), requires_grad=True), np.ones((2, 1))
    grad[0] = np.inf
    embed(spoiled, [3, 1]).backward(grad)
    assert spoiled.grad[1] == 1
    assert (spoiled.grad[[0, 2]] == 0).all()


def test_gradients():
    learned = LearnedPositions(6, 4).astype(np.float64)
    leaf = Tensor(normal(2, 3, 4), requires_grad=True)
    gradcheck(lambda x: learned(x, 2), [leaf], parameters=learned.named_parameters())
    gradcheck(lambda x: SinusoidalPositions(4)(x, 1), [leaf])
    gradcheck(lambda x: rotary(x, 5, 30.0), [leaf])


def test_modules():
    module = Embedding(30, 20, std=0.1, rng=PCG32(8))
    np.testing.assert_array_equal(module.weight.data, PCG32(8).normal(0.0, 0.1, (30, 20)))
    learned = LearnedPositions(30, 20, rng=PCG32(8))
    np.testing.assert_array_equal(learned.weight.data, PCG32(8).normal(0.0, 0.02, (30, 20)))
    first = module([3, 4]).data.copy()
    module.weight.data *= 2
    close(module([3, 4]).data, 2 * first, 1e-6)
    x = Tensor(np.zeros((1, 2, 20), np.float32))
    assert learned(x).dtype == np.float32
    assert SinusoidalPositions(20)(x).dtype == np.float32
    assert rotary(x).dtype == np.float32


def test_errors():
    for call in (
        lambda: embed(Tensor(normal(3, 2)), [3]),
        lambda: embed(Tensor(normal(3, 2)), [-1]),
        lambda: LearnedPositions(4, 2)(Tensor(normal(3, 2)), 2),
        lambda: SinusoidalPositions(2)(Tensor(normal(3, 2)), -1),
        lambda: SinusoidalPositions(4)(Tensor(normal(3, 2))),
        lambda: rotary(Tensor(normal(2, 5))),
        lambda: sinusoidal(2, 0),
    ):
        with pytest.raises(ValueError):
            call()
    for call in (
        lambda: embed(Tensor(normal(3, 2)), [0.5]),
        lambda: rotary(normal(2, 4)),
        lambda: SinusoidalPositions(2)(Tensor(np.ones((2, 2), int))),
    ):
        with pytest.raises(TypeError):
            call()
