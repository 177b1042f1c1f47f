"""Values by numpy, gradients by marking: the gradient of each place is what was sent to where its number went."""

import numpy as np
import pytest

from tinyllm.autograd import no_grad
from tinyllm.shapes import Tensor, concatenate, stack


def numbered(*shape):
    return np.arange(1.0, 1.0 + np.prod(shape, dtype=int)).reshape(shape)


def follow(function, like, x):
    """Each number is its own name, so a table of names to shares is the gradient."""
    t = Tensor(x, requires_grad=True)
    z, want = function(t), like(x)
    np.testing.assert_array_equal(z.data, want)
    g = np.random.default_rng(5).normal(size=want.shape)
    z.backward(g)
    shares = np.zeros(x.size + 1)
    np.add.at(shares, want.astype(int), g)
    np.testing.assert_allclose(t.grad.reshape(-1), shares[1:], atol=1e-12)
    assert t.grad.shape == x.shape
    assert t.grad.flags.c_contiguous
    assert t.grad.flags.writeable


@pytest.mark.parametrize(
    "shape",
    [(1,), (70,), (3, 2), (2, 150), (4, 1, 3), (2, 3, 2, 2), (3, 1, 2, 1, 2), (1, 2, 2, 3, 1, 2)],
)
def test_every_operation(shape):
    x, n = numbered(*shape), len(shape)
    for shift in range(n):
        order = [(k + shift) % n for k in range(n)]
        follow(lambda t, o=order: t.transpose(o), lambda a, o=order: a.transpose(o), x)
        follow(
            lambda t, o=order: t.transpose(*o).reshape(-1),
            lambda a, o=order: a.transpose(o).reshape(-1),
            x,
        )
        follow(lambda t, k=shift: t.swapaxes(k, -1), lambda a, k=shift: a.swapaxes(k, -1), x)
        follow(lambda t, k=shift: t.unsqueeze(k), lambda a, k=shift: np.expand_dims(a, k), x)
        follow(
            lambda t, k=shift: t.flatten(0, k),
            lambda a, k=shift: a.reshape(-1, *a.shape[k + 1 :]),
            x,
        )
        follow(
            lambda t, k=shift: concatenate([t, t, t], k),
            lambda a, k=shift: np.concatenate([a, a, a], k),
            x,
        )
        follow(lambda t, k=shift: stack([t] * 30, k), lambda a, k=shift: np.stack([a] * 30, k), x)
        follow(
            lambda t, k=shift: concatenate(t.split(1, k)[::-1], k),
            lambda a, k=shift: np.flip(a, k),
            x,
        )
        follow(lambda t, k=shift: concatenate(t.split([0, shape[k]], k), k), lambda a: a, x)
    follow(lambda t: t.reshape(shape[::-1]), lambda a: a.reshape(shape[::-1]), x)
    follow(lambda t: t.squeeze(), np.squeeze, x)
    follow(lambda t: t.broadcast_to(4, *shape), lambda a: np.broadcast_to(a, (4, *shape)), x)
    follow(
        lambda t: t.unsqueeze(-1).broadcast_to(*shape, 3),
        lambda a: np.broadcast_to(a[..., None], (*shape, 3)),
        x,
    )
    follow(lambda t: stack(list(t)[::-1]), lambda a: a[::-1], x)
    follow(lambda t: t[::-1], lambda a: a[::-1], x)
    follow(lambda t: t[..., -1], lambda a: a[..., -1], x)
    places = np.random.default_rng(2).integers(0, shape[0], 6000)
    follow(lambda t: t[places], lambda a: a[places], x)
    follow(lambda t: t[x % 2 == 0], lambda a: a[a % 2 == 0], x)
    if n == 2:
        follow(lambda t: t.T, lambda a: a.T, x)
        follow(lambda t: t[[0, 0, 1], [1, 1, 0]], lambda a: a[[0, 0, 1], [1, 1, 0]], x)


def test_any_layout_and_read_only_numbers():
    base = numbered(4, 6)
    for x in (base.T, base[::2, ::-3], np.asfortranarray(base)):
        x.flags.writeable = False
        t, copy = Tensor(x, requires_grad=True), Tensor(x.copy(), requires_grad=True)
        for one in (t, copy):
            (one.reshape(-1) * one.T.reshape(-1)).backward(np.arange(float(x.size)))
        np.testing.assert_array_equal(t.grad, copy.grad)


def test_a_second_call_with_other_numbers():
    t = Tensor(numbered(3, 4), requires_grad=True)
    for k in range(3):
        t.data = numbered(3, 4) * k
        for z, want in (
            (t.T, t.data.T),
            (t[[2, 2]], t.data[[2, 2]]),
            (stack([t, t]), np.stack([t.data] * 2)),
        ):
            np.testing.assert_array_equal(z.data, want)
    places, t = [1, 1, 0], Tensor(np.zeros(2), requires_grad=True)
    z = t[places]
    places[:] = [0, 0, 0]
    z.backward([1, 2, 4])
    assert t.grad.tolist() == [4, 3]


def test_classes_dtypes_and_modes():
    class Child(Tensor):
        __slots__ = ()

    child, x = (
        Child(np.ones((2, 3), "f4"), requires_grad=True),
        Tensor(np.ones((2, 3)), requires_grad=True),
    )
    for z in (
        child.T,
        child.reshape(6),
        child[0],
        concatenate([x, child]),
        stack([child, x]),
        child.flatten(),
    ):
        assert type(z) is Child
    assert child.T.dtype == child[[1, 1]].dtype == np.float32
    z = concatenate([child, x])
    assert z.dtype == np.float64
    z.backward(np.ones((4, 3)))
    assert child.grad.dtype == np.float32
    with no_grad():
        assert not x.T.requires_grad
    other = [Tensor(np.full((1, k), float(k)), requires_grad=True) for k in (1, 3, 2)]
    z = concatenate(other, axis=-1)
    z.backward(np.arange(6.0)[None])
    assert [t.grad.tolist() for t in other] == [[[0]], [[1, 2, 3]], [[4, 5]]]
    words = Tensor(np.zeros(2, "f2"), requires_grad=True)
    words[np.ones(10_000, int)].backward(np.ones(10_000))
    assert words.grad.tolist() == [0, 10_000]
    assert len(x) == 2
    first, second = x
    assert first.shape == second.shape == (3,)


@pytest.mark.parametrize("fault", [
    lambda x: x.reshape(4, -1), lambda x: x.reshape(-1, -1), lambda x: x.transpose(1, 1), lambda x: x.transpose(0, 2),
    lambda x: x.swapaxes(0, 2), lambda x: x.unsqueeze(0).T, lambda x: x.squeeze(1), lambda x: x.unsqueeze(-4),
    lambda x: x.flatten(0, 2), lambda x: x.broadcast_to(2, 2, 4), lambda x: x.split(0), lambda x: x.split([1, 1, 1]),
    lambda x: concatenate([]), lambda x: concatenate([x, x[:, :1]]), lambda x: stack([x, x[:1]]),
])  # fmt: skip
def test_refused(fault):
    with pytest.raises(ValueError):
        fault(Tensor(np.ones((2, 3))))
    for wrong in (
        lambda x: concatenate([x, [1.0]]),
        lambda x: stack([x], None),
        lambda x: x in x,
        lambda x: len(x[0][0]),
    ):
        with pytest.raises(TypeError):
            wrong(Tensor(np.ones((2, 3))))
    with pytest.raises(IndexError):
        Tensor(np.ones(3))[3]
