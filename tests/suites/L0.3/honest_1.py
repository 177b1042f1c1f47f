"""Everything against torch, in small, long, deep and single shapes."""

import itertools

import numpy as np
import pytest
import torch

from tinyllm import autograd, tensor
from tinyllm.tensor import Tensor


def normal(*shape, seed=0):
    return np.asarray(np.random.default_rng(seed).normal(size=shape))


def check(function, like, *arrays, wants=None):
    wants = wants or (True,) * len(arrays)
    kept = [x.copy() for x in arrays]
    ours = [Tensor(x, requires_grad=w) for x, w in zip(arrays, wants, strict=True)]
    theirs = [torch.tensor(x, requires_grad=w) for x, w in zip(arrays, wants, strict=True)]
    z, want = function(*ours), like(*theirs)
    assert z.shape == tuple(want.shape)
    np.testing.assert_allclose(z.data, want.detach().numpy(), rtol=1e-10, atol=1e-300)
    g = normal(*z.shape, seed=9)
    z.backward(g)
    want.backward(torch.tensor(g))
    for x, t, array in zip(ours, theirs, kept, strict=True):
        assert (x.grad is None) == (t.grad is None)
        if x.grad is not None:
            assert x.grad.flags.writeable
            np.testing.assert_allclose(x.grad, t.grad.numpy(), rtol=1e-10, atol=1e-12)
        np.testing.assert_array_equal(x.data, array)


SHAPES = [(1,), (5,), (3, 4), (1500, 2), (2, 200), (2, 3, 4), (1, 2, 3, 2, 2)]
NAMES = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin}


@pytest.mark.parametrize("shape", SHAPES)
def test_reductions(shape):
    n = len(shape)
    axes = [*range(-n, n), tuple(range(n)), (0, n - 1) if n > 1 else (0,)]
    for axis, keep, (name, like) in itertools.product(axes, (False, True), NAMES.items()):
        for x in (normal(*shape), np.round(normal(*shape)), np.zeros(shape)):
            check(
                lambda t, m=name, a=axis, k=keep: getattr(t, m)(axis=a, keepdims=k),
                lambda t, f=like, a=axis, k=keep: f(t, dim=a, keepdim=k),
                x,
            )
    for name, like in NAMES.items():
        check(
            lambda t, m=name: getattr(t, m)(),
            lambda t, f=like: f(t, dim=tuple(range(n))),
            normal(*shape),
        )
    for axis in range(-n, n):
        far = np.linspace(-700, 0, normal(*shape).size).reshape(shape)
        for x in (normal(*shape), 30 * normal(*shape), far):
            check(lambda t, a=axis: t.softmax(a), lambda t, a=axis: t.softmax(a), x)
            check(lambda t, a=axis: t.log_softmax(a), lambda t, a=axis: t.log_softmax(a), x)
        x = np.round(normal(*shape))
        np.testing.assert_array_equal(Tensor(x).argmax(axis), torch.tensor(x).argmax(axis).numpy())


PRODUCTS = [
    ((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((70, 90), (90, 80)), ((1, 1), (1, 1)), ((3, 3), (3, 3)),
    ((5, 2, 3), (3, 4)), ((5, 2, 3), (3,)), ((3,), (5, 3, 4)), ((2, 3), (5, 3, 4)), ((5, 2, 3), (5, 3, 4)),
    ((1, 2, 3), (5, 3, 4)), ((4, 1, 2, 3), (5, 3, 2)), ((2, 3, 2, 2, 3), (3, 2)), ((400, 4, 3), (3, 2)), ((0, 3), (3, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), PRODUCTS)
@pytest.mark.parametrize("wants", [(True, True), (True, False), (False, True)])
def test_products(left, right, wants):
    check(
        lambda x, y: x @ y, lambda x, y: x @ y, normal(*left), normal(*right, seed=1), wants=wants
    )


def test_arrays_beside_tensors():
    x, w = Tensor(normal(2, 3), requires_grad=True), normal(3, 4)
    np.testing.assert_allclose((x @ w).data, x.data @ w)
    np.testing.assert_allclose((w.T @ x.T).data, w.T @ x.data.T)
    assert type(autograd.Tensor(x.data) @ x.T) is Tensor
    for wrong in (2.0, [[1.0]]):
        with pytest.raises(TypeError):
            x @ wrong
    infinite = Tensor([[np.inf], [1.0]], requires_grad=True)
    (Tensor([[1.0, 2.0]]) @ infinite).backward([[0.0]])
    assert infinite.grad.tolist() == [[0], [0]]


def test_where():
    for shape in ((3,), (2, 3), (900, 2)):
        c = normal(*shape, seed=4) > 0
        mask = torch.tensor(c)
        check(
            lambda a, b, c=c: tensor.where(c, a, b),
            lambda a, b, m=mask: torch.where(m, a, b),
            normal(*shape),
            normal(*shape[-1:]),
        )
        check(
            lambda a, c=c: tensor.where(c, a, a),
            lambda a, m=mask: torch.where(m, a, a),
            normal(*shape),
        )
        check(
            lambda a, c=c: tensor.where(c, 2.0, a),
            lambda a, m=mask: torch.where(m, 2.0, a),
            normal(*shape),
        )
    x = Tensor([np.nan, 1.0], requires_grad=True)
    tensor.where(x > 0, x, 0.0).backward([np.nan, 3])
    assert x.grad.tolist() == [0, 3]
    with pytest.raises(TypeError):
        tensor.where([1, 0], x, x)


def test_dtypes():
    for dtype, shape in itertools.product(("f2", "f4", "f8"), ((3, 3), (2, 3, 3), (2, 40, 40))):
        x = Tensor(normal(*shape).astype(dtype), requires_grad=True)
        for z in (
            x @ x,
            x.sum(),
            x.mean(0),
            x.max(1),
            x.min(),
            x.softmax(),
            x.log_softmax(0),
            tensor.where(x > 0, x, 0.0),
        ):
            assert z.dtype == dtype
            z.backward(np.ones(z.shape), retain_graph=True)
            assert x.grad.dtype == dtype
    ones = Tensor(np.ones((5000, 2), "f2"), requires_grad=True)
    assert ones.sum(axis=0).tolist() == [5000, 5000]
    many = Tensor(np.ones((2, 100_000), "f2"), requires_grad=True)
    (many.mean(axis=1) * 1000).backward([1, 1])
    np.testing.assert_allclose(many.grad, 0.01, rtol=1e-2)
    assert Tensor([1, 2]).sum().dtype == np.int64
    assert Tensor([1, 2]).mean().dtype == np.float64
    assert (Tensor(np.zeros((1, 4096), "f2")).softmax() == 2.0**-12).all()


def test_nan_and_nothing():
    x = Tensor([[1, np.nan, 2.0]], requires_grad=True)
    x.max(axis=1).backward([5])
    assert x.grad.tolist() == [[0, 5, 0]]
    for name in ("mean", "max", "min"):
        with pytest.raises(ValueError):
            getattr(Tensor(np.zeros((0, 3))), name)(axis=0)
    x = Tensor(np.ones((2, 3)))
    for fault in (
        lambda: x @ x,
        lambda: x.sum(axis=2),
        lambda: x.mean(axis=(0, 0)),
        lambda: x @ Tensor(1.0),
        lambda: x.softmax(2),
    ):
        with pytest.raises(ValueError):
            fault()


def test_new():
    for make, number in ((tensor.zeros, 0), (tensor.ones, 1)):
        x = make(2, 3, requires_grad=True)
        assert x.requires_grad
        assert (x.dtype, x.shape) == (np.float32, (2, 3))
        assert (x.data == number).all()
        assert make((4,), dtype=int).dtype == np.int64
    assert tensor.arange(2, 9, 3).tolist() == [2, 5, 8]
    assert (tensor.arange(3).dtype, tensor.arange(0, 1, 0.5).dtype) == (np.int64, np.float32)
    with pytest.raises(ValueError):
        tensor.arange(0, 3, 0)


def test_gradients_are_arrays_of_their_own():
    x, g = Tensor(np.ones((3, 2)), requires_grad=True), np.ones((1, 2))
    for z in (x.sum(axis=0, keepdims=True), x.mean(axis=0, keepdims=True)):
        x.grad = None
        z.backward(g)
        x.grad[0, 0] = 9
        assert (x.grad == 9).sum() == 1
        assert (g == 1).all()
