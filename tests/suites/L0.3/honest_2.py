"""Values by loops and einsum, gradients by differences."""

import itertools
import math

import numpy as np
import pytest

from tinyllm import tensor
from tinyllm.num.gradcheck import gradcheck
from tinyllm.tensor import Tensor


def normal(*shape, seed=0):
    return np.asarray(np.random.default_rng(seed).normal(size=shape))


def leaf(x):
    return Tensor(np.asarray(x, float), requires_grad=True)


@pytest.mark.parametrize(
    "shape", [(1,), (6,), (1, 1), (3, 5), (2, 3, 2), (2, 1, 2, 3), (1, 2, 1, 2, 3)]
)
def test_gradients(shape):
    for axis, keep in itertools.product(
        [None, *range(-len(shape), len(shape)), tuple(range(len(shape)))], (False, True)
    ):
        for name in ("sum", "mean", "max", "min"):
            gradcheck(
                lambda x, n=name, a=axis, k=keep: getattr(x, n)(axis=a, keepdims=k),
                [leaf(normal(*shape))],
            )
    for axis, name in itertools.product(range(-len(shape), len(shape)), ("softmax", "log_softmax")):
        gradcheck(lambda x, n=name, a=axis: getattr(x, n)(a), [leaf(3 * normal(*shape))])


SHAPES = [((4,), (4,)), ((3, 3), (3, 3)), ((4,), (4, 2)), ((2, 4), (4,)), ((2, 4), (4, 3)), ((3, 2, 4), (4, 2)), ((3, 2, 4), (4,)), ((4,), (3, 4, 2)), ((2, 4), (3, 4, 2)), ((3, 2, 4), (3, 4, 2)), ((2, 1, 2, 3), (4, 3, 2)), ((1, 2, 3), (2, 3, 1))]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_products(left, right):
    x, y = leaf(normal(*left)), leaf(normal(*right, seed=1))
    gradcheck(lambda x, y: x @ y, [x, y])
    for a, b in ((x, Tensor(y.data)), (Tensor(x.data), y), (x, y.data), (x.data, y)):
        gradcheck(lambda a, b: a @ b, [a, b])
        np.testing.assert_allclose((a @ b).data, np.matmul(x.data, y.data), rtol=1e-12)


def test_large_products():
    x, w = leaf(normal(500, 4, 70)), leaf(normal(70, 60, seed=1))
    z, g = x @ w, normal(500, 4, 60, seed=2)
    np.testing.assert_allclose(z.data, np.einsum("bik,kj->bij", x.data, w.data), atol=1e-10)
    z.backward(g)
    np.testing.assert_allclose(w.grad, np.einsum("bik,bij->kj", x.data, g), atol=1e-9)
    np.testing.assert_allclose(x.grad, np.einsum("bij,kj->bik", g, w.data), atol=1e-9)
    bad, y = Tensor([[np.inf, 1.0]], requires_grad=True), Tensor([[0.0], [1.0]])
    assert y.grad is None
    (bad @ Tensor([[1.0], [2.0]])).backward([[0.0]])
    assert bad.grad.tolist() == [[0, 0]]


def test_long_reductions():
    x = leaf(normal(3000))
    x.mean().backward()
    np.testing.assert_allclose(x.grad, 1 / 3000)
    zeros = leaf(np.zeros((2, 300)))
    for name in ("max", "min"):
        zeros.grad = None
        getattr(zeros, name)(axis=1).backward([3, 6])
        np.testing.assert_allclose(zeros.grad, [[0.01] * 300, [0.02] * 300])
    x = leaf([3, 1, 3])
    x.max().backward()
    assert x.grad.tolist() == [0.5, 0, 0.5]
    half = leaf([0.0]).astype("f2").broadcast_to(100_000)
    assert half.sum().dtype == np.float16
    rows = Tensor(np.ones((5000, 3), "f2"), requires_grad=True)
    assert rows.sum(axis=0).tolist() == [5000] * 3
    means = Tensor(np.ones((2, 70_000), "f2"), requires_grad=True)
    means.mean(axis=1).backward(np.full(2, 1000, "f2"))
    np.testing.assert_allclose(means.grad, 1 / 70, rtol=1e-2)


@pytest.mark.parametrize("shape", [(8,), (2, 8), (3, 2, 8)])
def test_softmax(shape):
    rows = np.broadcast_to([0.0, -1, -40, -60, -100, -300, -690, 5], shape)
    for shift in (0.0, 1e4, -1e4):
        w = Tensor(rows + shift).softmax()
        total = math.fsum(math.exp(v) for v in rows.reshape(-1)[-8:])
        want = np.array([math.exp(v) / total for v in rows.reshape(-1)[-8:]])
        np.testing.assert_allclose(w.data, np.broadcast_to(want, shape), rtol=1e-11)
        log = Tensor(rows + shift).log_softmax().data
        np.testing.assert_allclose(log, np.broadcast_to(np.log(want), shape), rtol=1e-11)
    for dtype in ("f2", "f4"):
        x = Tensor(normal(*shape).astype(dtype), requires_grad=True)
        for z in (x.softmax(), x.log_softmax(0), x.softmax(0).log_softmax()):
            assert z.dtype == dtype
            z.backward(np.ones(shape), retain_graph=True)
        assert x.grad.dtype == dtype
    with np.errstate(invalid="ignore"):
        hidden = Tensor([-np.inf, 0.0, 0.0]).softmax()
    assert hidden.tolist() == [0, 0.5, 0.5]
    assert Tensor([0.0, -1000.0]).log_softmax().tolist() == [0, -1000]
    assert Tensor(np.zeros((1, 8192), "f2")).softmax().data.max() == np.float16(1 / 8192)


def test_where():
    c = normal(3, 4) > 0
    a, b = leaf(normal(3, 4, seed=1)), leaf(normal(4, seed=2))
    for condition in (c, Tensor(c), c.tolist()):
        np.testing.assert_array_equal(
            tensor.where(condition, a, b).data, np.where(c, a.data, b.data)
        )
        gradcheck(lambda a, b, k=condition: tensor.where(k, a, b), [a, b])
        gradcheck(lambda a, k=condition: tensor.where(k, a, a) * tensor.where(k, 1.0, a), [a])
    x = leaf([0, 2])
    with np.errstate(divide="ignore"):
        tensor.where(x > 0, x, 0.0).backward([np.inf, 1])
    assert x.grad.tolist() == [0, 1]
    with pytest.raises(TypeError):
        tensor.where(x, x, x)


def test_argmax_and_new():
    x = np.round(normal(5, 6))
    for axis in (None, 0, 1, -1):
        np.testing.assert_array_equal(Tensor(x).argmax(axis), np.argmax(x, axis))
    assert tensor.zeros(2, 2).tolist() == [[0, 0], [0, 0]]
    assert tensor.ones((3,)).dtype == np.float32
    assert tensor.arange(4).tolist() == [0, 1, 2, 3]
    assert tensor.arange(0, 1, 0.25).tolist() == [0, 0.25, 0.5, 0.75]
    x = leaf([[1, np.nan], [2, 3]])
    z = x.max(axis=1)
    z.backward([1, 1])
    assert np.isnan(z.data[0])
    assert x.grad.tolist() == [[0, 1], [0, 1]]
    z = x[1:].min(axis=0)
    assert z.tolist() == [2, 3]


def test_numbers_may_change():
    x = leaf(normal(3, 4))
    for seed in range(3):
        x.data = normal(3, 4, seed=seed)
        first = x.softmax()
        kept = first.data.copy()
        np.testing.assert_allclose((x @ x.T).data, x.data @ x.data.T)
        np.testing.assert_allclose(first.sum(axis=1).data, 1.0)
        (x * 2).softmax()
        np.testing.assert_array_equal(first.data, kept)
    frozen = x.data.copy()
    x.data.flags.writeable = False
    g = np.ones((1, 4))
    for z in (x.sum(axis=0, keepdims=True), x.mean(axis=0, keepdims=True), x.softmax()[:1]):
        x.grad = None
        z.backward(g)
        assert x.grad.flags.writeable
        x.grad[0, 0] = 9
        assert (x.grad == 9).sum() == 1
    np.testing.assert_array_equal(x.data, frozen)


@pytest.mark.parametrize("fault", [
    lambda x: x @ x, lambda x: x @ x.data, lambda x: x @ Tensor(2.0), lambda x: x.sum(axis=5), lambda x: x.mean(axis=-3),
    lambda x: x.max(axis=(0, 0)), lambda x: x[:0].mean(axis=0), lambda x: x[:0].max(axis=0), lambda x: x[:0].min(), lambda x: x[:0].argmax(),
    lambda x: tensor.arange(1, 2, 0), lambda x: tensor.where([True, False], x, x), lambda x: Tensor(np.ones((4, 2, 3))) @ np.ones((5, 3, 2)),
])  # fmt: skip
def test_refused(fault):
    with pytest.raises(ValueError):
        fault(Tensor(np.ones((2, 3))))
    assert Tensor([[1, 2]]).mean().dtype == np.float64
    small = Tensor(np.ones((2, 2), "f4"))
    assert (small @ small).dtype == small.mean().dtype == np.float32
