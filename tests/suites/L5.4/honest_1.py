"""Formulas, gradients, offsets, dtypes and errors."""

import numpy as np
import pytest
import torch

from tinyllm.num.gradcheck import gradcheck
from tinyllm.num.pcg32 import PCG32, manual_seed
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


def waves(T, d, start=0, base=10000.0):
    table = np.zeros((T, d))
    for t in range(T):
        for j in range(d):
            angle = (start + t) / base ** (2 * (j // 2) / d)
            table[t, j] = np.cos(angle) if j % 2 else np.sin(angle)
    return table


@pytest.mark.parametrize("d", [1, 2, 7, 70])
@pytest.mark.parametrize("start", [0, 5, 900])
def test_waves(d, start):
    np.testing.assert_allclose(
        sinusoidal(9, d, start, dtype=np.float64), waves(9, d, start), atol=1e-9
    )
    np.testing.assert_allclose(
        sinusoidal(9, d, start, 50.0, np.float64), waves(9, d, start, 50.0), atol=1e-9
    )
    assert sinusoidal(9, d).dtype == np.float32
    x, module = normal(2, 9, d), SinusoidalPositions(d)
    for _ in range(2):
        np.testing.assert_allclose(module(Tensor(x), start).data, x + waves(9, d, start), atol=1e-9)
    np.testing.assert_allclose(module(Tensor(x[:, :2])).data, x[:, :2] + waves(2, d), atol=1e-9)


@pytest.mark.parametrize("lead", [(), (2,), (9, 3)])
@pytest.mark.parametrize(
    ("dh", "offset", "base"), [(2, 0, 10000.0), (8, 3, 100.0), (66, 700, 10000.0)]
)
def test_rotary(lead, dh, offset, base):
    x, grad = normal(*lead, 5, dh), normal(*lead, 5, dh, seed=1)
    angles = (offset + np.arange(5))[:, None] * base ** (-np.arange(0, dh, 2) / dh)
    turn = torch.polar(torch.ones(5, dh // 2).double(), torch.tensor(angles))
    theirs, ours = torch.tensor(x, requires_grad=True), Tensor(x, requires_grad=True)
    pairs = torch.view_as_complex(theirs.unflatten(-1, (-1, 2))) * turn
    want = torch.view_as_real(pairs).flatten(-2)
    out = rotary(ours, offset, base)
    np.testing.assert_allclose(out.data, want.detach(), atol=1e-9)
    out.backward(grad)
    want.backward(torch.tensor(grad))
    np.testing.assert_allclose(ours.grad, theirs.grad, atol=1e-9)


@pytest.mark.parametrize("V", [3, 200, 3000])
def test_embed(V):
    table, ids = (
        Tensor(normal(V, 5), requires_grad=True),
        np.random.default_rng(1).integers(0, V, (70, 9)),
    )
    ids[:, 0] = V - 1
    theirs = torch.tensor(table.data, requires_grad=True)
    out, want = embed(table, ids), torch.nn.functional.embedding(torch.tensor(ids), theirs)
    np.testing.assert_array_equal(out.data, want.detach())
    grad = normal(*out.shape)
    out.backward(grad)
    want.backward(torch.tensor(grad))
    np.testing.assert_allclose(table.grad, theirs.grad, atol=1e-10)
    half = Tensor(np.zeros((V, 1), np.float16), requires_grad=True)
    embed(half, np.zeros(4000, int)).backward(np.ones((4000, 1), np.float16))
    assert half.grad[0] == 4000
    wild, g = Tensor(np.zeros((V, 2)), requires_grad=True), np.ones((3, 2))
    g[1] = np.nan
    embed(wild, [0, 1, 2]).backward(g)
    assert (wild.grad[[0, 2]] == 1).all()


def test_learned():
    place = LearnedPositions(70, 4).astype(np.float64)
    for seed in range(2):
        place.weight.data = normal(70, 4, seed=seed)
        x = normal(3, 5, 4)
        for offset in (0, 2, 65):
            want = x + place.weight.data[offset : offset + 5]
            np.testing.assert_allclose(place(Tensor(x), offset).data, want)
    gradcheck(
        lambda x: place(x, 3),
        [Tensor(x, requires_grad=True)],
        parameters=place.named_parameters(),
        sample=20,
    )
    with pytest.raises(ValueError):
        place(Tensor(x), 66)
    with pytest.raises(ValueError):
        place(Tensor(x), -1)


def test_drawn():
    manual_seed(5)
    draws = PCG32(5)
    for module, std, shape in (
        (Embedding(6, 3), 1.0, (6, 3)),
        (LearnedPositions(4, 3), 0.02, (4, 3)),
        (Embedding(2, 2, std=0.3), 0.3, (2, 2)),
    ):
        assert list(module.state_dict()) == ["weight"]
        np.testing.assert_array_equal(module.weight.data, draws.normal(0.0, std, shape))
    own = Embedding(6, 3, rng=PCG32(1))
    np.testing.assert_array_equal(own.weight.data, PCG32(1).normal(0.0, 1.0, (6, 3)))
    np.testing.assert_array_equal(own([[5, 0]]).data, own.weight.data[[[5, 0]]])


def test_dtypes():
    for dtype in (np.float16, np.float32, np.float64):
        x = Tensor(normal(2, 3, 4).astype(dtype), requires_grad=True)
        for place in (SinusoidalPositions(4), LearnedPositions(9, 4).astype(dtype), rotary):
            assert place(x, 2).dtype == dtype


def test_refusals():
    x = Tensor(normal(2, 3, 4))
    for bad in ([-1], [5], [[0, 9]]):
        with pytest.raises(ValueError):
            embed(Tensor(normal(5, 2)), bad)
    with pytest.raises(TypeError):
        embed(Tensor(normal(5, 2)), [1.0])
    for call in (
        lambda: rotary(Tensor(normal(2, 3))),
        lambda: rotary(x, -1),
        lambda: SinusoidalPositions(5)(x),
        lambda: LearnedPositions(9, 5)(x),
        lambda: sinusoidal(-1, 4),
        lambda: Embedding(0, 3),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(TypeError):
        rotary(Tensor(np.ones((2, 4), int)))
