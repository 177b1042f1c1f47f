"""Everything against torch, on shapes from one number to seven axes."""

import numpy as np
import pytest
import torch

from tinyllm.shapes import Tensor, concatenate, stack


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def check(function, like, *arrays):
    ours = [Tensor(x, requires_grad=True) for x in arrays]
    theirs = [torch.tensor(x, requires_grad=True) for x in arrays]
    z, want = function(*ours), like(*theirs)
    assert z.shape == tuple(want.shape)
    np.testing.assert_array_equal(z.data, want.detach().numpy())
    g = normal(*z.shape, seed=9)
    kept = g.copy()
    z.backward(g)
    want.backward(torch.tensor(g))
    for x, t, array in zip(ours, theirs, arrays, strict=True):
        np.testing.assert_allclose(x.grad, t.grad.numpy(), rtol=1e-12, atol=1e-12)
        assert not np.shares_memory(x.grad, g)
        assert not np.shares_memory(x.grad, array)
    np.testing.assert_array_equal(g, kept)


SHAPES = [
    (1,),
    (4,),
    (2, 3),
    (300, 2),
    (2, 3, 4),
    (5, 1, 3, 2),
    (2, 3, 1, 4, 2),
    (1, 2, 1, 3, 1, 2),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_moves(shape):
    x, n = normal(*shape), len(shape)
    order = [*range(1, n), 0]
    check(lambda t: t.transpose(order), lambda t: t.permute(order), x)
    check(lambda t: t.transpose([k - n for k in order]), lambda t: t.permute(order), x)
    check(lambda t: t.transpose(), lambda t: t.permute(*range(n - 1, -1, -1)), x)
    check(lambda t: t.swapaxes(-1, 0), lambda t: t.swapaxes(-1, 0), x)
    check(lambda t: t.swapaxes(0, n // 2), lambda t: t.swapaxes(0, n // 2), x)
    check(lambda t: t.reshape(shape[::-1]), lambda t: t.reshape(shape[::-1]), x)
    check(lambda t: t.transpose(order).reshape(-1), lambda t: t.permute(order).reshape(-1), x)
    check(lambda t: t.flatten(), lambda t: t.flatten(), x)
    check(lambda t: t.flatten(n // 2), lambda t: t.flatten(n // 2), x)
    check(lambda t: t.squeeze(), lambda t: t.squeeze(), x)
    for axis in range(-n - 1, n + 1):
        check(lambda t, a=axis: t.unsqueeze(a), lambda t, a=axis: t.unsqueeze(a), x)
    check(lambda t: t.broadcast_to(3, *shape), lambda t: t.broadcast_to((3, *shape)), x)
    check(lambda t: t[:1].broadcast_to(5, *shape[1:]), lambda t: t[:1].expand(5, *shape[1:]), x)
    for axis in range(-n, n):
        check(
            lambda a, b, k=axis: concatenate([a, b, a], k),
            lambda a, b, k=axis: torch.cat([a, b, a], k),
            x,
            2 * x,
        )
        check(
            lambda a, b, k=axis: stack([a, b], k),
            lambda a, b, k=axis: torch.stack([a, b], k),
            x,
            2 * x,
        )
        length = shape[axis]
        for lengths in (1, 2, [length - 1, 1]):
            check(
                lambda t, k=axis, m=lengths: concatenate(
                    [p * i for i, p in enumerate(t.split(m, k))], k
                ),
                lambda t, k=axis, m=lengths: torch.cat(
                    [p * i for i, p in enumerate(t.split(m, k))], k
                ),
                x,
            )
    rows = list(Tensor(x))
    assert len(rows) == len(Tensor(x)) == shape[0]
    assert all((row.data == x[i]).all() for i, row in enumerate(rows))


INDICES = [
    0,
    -1,
    slice(None, None, 2),
    slice(1, 4),
    ...,
    None,
    (..., None, 1),
    (slice(None), 2),
    [3, 1, 3, 3],
    (slice(None), [0, 2, 2]),
]


@pytest.mark.parametrize("index", INDICES)
def test_indices(index):
    check(lambda t: t[index], lambda t: t[index], normal(5, 3, 4))


def test_many_indices_and_tensors():
    ids = np.random.default_rng(1).integers(-7, 7, (90, 80))
    for given in (ids, ids.astype("i2"), Tensor(ids)):
        check(lambda t, i=given: t[i], lambda t: t[torch.tensor(ids)], normal(7, 2))
    small = np.array([1, 1, 5], "u1")
    check(lambda t: t[small], lambda t: t[torch.tensor([1, 1, 5])], normal(7, 2))
    mask = normal(7, 2) > 0
    check(lambda t: t[mask], lambda t: t[torch.tensor(mask)], normal(7, 2))
    half = Tensor(np.zeros((2, 1), "f2"), requires_grad=True)
    half[np.zeros(6000, int)].backward(np.ones((6000, 1)))
    assert half.grad.tolist() == [[6000], [0]]
    moved = np.array([0, 1, 1])
    x = Tensor(np.zeros(3), requires_grad=True)
    z = x[moved]
    moved[:] = 2
    z.backward([1, 10, 100])
    assert x.grad.tolist() == [1, 110, 0]


def test_many_parts():
    parts = [Tensor(np.full(2, float(i)), requires_grad=i % 2 == 1) for i in range(80)]
    for join in (concatenate, stack):
        z = join(parts)
        z.backward(np.arange(160.0).reshape(z.shape))
    for i, part in enumerate(parts):
        assert (part.grad is None) if i % 2 == 0 else part.grad.tolist() == [4 * i, 4 * i + 2]


def test_dtypes_and_refusals():
    a, b = Tensor(np.ones(2, "f4"), requires_grad=True), Tensor(np.ones(3), requires_grad=True)
    z = concatenate([a, b])
    z.backward(np.ones(5))
    assert (z.dtype, a.grad.dtype, b.grad.dtype) == (np.float64, np.float32, np.float64)
    for dtype in ("f2", "f4", "i8"):
        x = Tensor(np.ones((2, 3), dtype))
        assert x.T.dtype == x.reshape(-1).dtype == x[[0, 0]].dtype == stack([x, x]).dtype == dtype
    x = Tensor(np.ones((2, 3)))
    for fault in (
        lambda: x.reshape(4, 2),
        lambda: x.transpose(0, 0),
        lambda: x.transpose(0),
        lambda: x[0].T,
        lambda: x.squeeze(0),
        lambda: x.unsqueeze(3),
        lambda: x.broadcast_to(3, 3),
        lambda: x.split([1, 2]),
        lambda: x.split([3, -1]),
        lambda: x.flatten(1, 0),
        lambda: concatenate([]),
        lambda: concatenate([x, x.T]),
        lambda: stack([x, x.T]),
    ):
        with pytest.raises(ValueError):
            fault()
    for fault in (
        lambda: concatenate([x, x.data]),
        lambda: 1.0 in x,
        lambda: concatenate([x, x], None),
        lambda: len(x[0, 0]),
    ):
        with pytest.raises(TypeError):
            fault()
    with pytest.raises(IndexError):
        x[2]
    y = x.broadcast_to(2, 2, 3)
    assert not y.data.flags.writeable
    for view in (x.reshape(3, 2), x.T, x[1:], x.unsqueeze(0), x.split(1)[0], y):
        assert np.shares_memory(view.data, x.data)
