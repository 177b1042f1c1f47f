"""Everything against torch; then graphs, dtypes, errors."""

import copy
import threading
import weakref

import numpy as np
import pytest
import torch

from tinyllm.autograd import (
    Tensor,
    is_recording,
    no_grad,
    record,
    sum_over,
    tensor_argument,
    unbroadcast,
)


def normal(*shape, seed=0):
    return np.asarray(np.random.default_rng(seed).normal(size=shape))


def check(function, like, *arrays):
    kept = [x.copy() for x in arrays]
    ours = [Tensor(x, requires_grad=True) for x in arrays]
    theirs = [torch.tensor(x, requires_grad=True) for x in arrays]
    z, want = function(*ours), like(*theirs)
    assert z.shape == tuple(want.shape)
    np.testing.assert_allclose(z.data, want.detach().numpy(), rtol=1e-10, atol=1e-300)
    g = normal(*z.shape, seed=9)
    sent = g.copy()
    z.backward(g)
    want.backward(torch.tensor(g))
    for x, t, array in zip(ours, theirs, kept, strict=True):
        np.testing.assert_allclose(x.grad, t.grad.numpy(), rtol=1e-10, atol=1e-12)
        assert x.grad.flags.c_contiguous
        assert not np.shares_memory(x.grad, g)
        assert not np.shares_memory(x.grad, x.data)
        np.testing.assert_array_equal(x.data, array)
    np.testing.assert_array_equal(g, sent)


SHAPES = [((3, 4), (3, 4)), ((3, 4), (4,)), ((4,), (3, 4)), ((3, 1), (1, 4)), ((2, 3, 4), (3, 1)), ((), (3,)), ((3,), ()), ((1,), (2, 1)), ((), ()), ((1, 1, 3), (2, 4, 1)), ((60, 40), (60, 40)), ((3000,), (1,))]  # fmt: skip
TWO = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x / y,
    lambda x, y: (x * x + 1) ** y,
    lambda x, y: x * y + x * x - y,
]
ONE = [
    lambda x: -x,
    lambda x: abs(x),
    lambda x: x + 2,
    lambda x: 2 + x,
    lambda x: x - 2,
    lambda x: 2 - x,
    lambda x: x * 3,
    lambda x: 3 * x,
    lambda x: x / 3,
    lambda x: 3 / x,
    lambda x: x**2,
    lambda x: x**3.0,
    lambda x: x**-1,
    lambda x: x**0,
    lambda x: x**15,
    lambda x: 2**x,
    lambda x: x.abs(),
    lambda x: x.sigmoid(),
    lambda x: x.exp(),
    lambda x: (x * x).log(),
    lambda x: (x * x).sqrt(),
    lambda x: x.tanh(),
    lambda x: (x * 40).sigmoid(),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_two_operands(left, right):
    for f in TWO:
        check(f, f, normal(*left), normal(*right, seed=1))
        check(lambda x, f=f: f(x, x), lambda x, f=f: f(x, x), normal(*left))
        y = normal(*right, seed=1)
        check(
            lambda x, f=f, y=y: f(x, y),
            lambda x, f=f, y=y: f(x, torch.tensor(y)),
            normal(*left),
        )
    y = normal(*right, seed=1)
    for f in TWO[:4]:
        check(lambda x, f=f: f(y, x), lambda x, f=f: f(torch.tensor(y), x), normal(*left))


@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4), (2, 1, 3), (40, 50)])
def test_one_operand(shape):
    for f in ONE:
        check(f, f, normal(*shape))
    for low, high in ((-0.5, 0.5), (None, 0.2), (0.1, None)):
        check(
            lambda x, a=low, b=high: x.clip(a, b),
            lambda x, a=low, b=high: x.clip(a, b),
            normal(*shape),
        )


def slope(function, x):
    x = Tensor(x, requires_grad=True)
    function(x).backward(np.ones(x.shape))
    return x.grad.tolist()


def test_corners():
    assert slope(abs, [0.0, -1.0, 2.0, np.nan]) == [0, -1, 1, 0]
    assert slope(lambda x: x.clip(-1, 1), [-2.0, -1, 0, 1, 2, np.nan]) == [0, 1, 1, 1, 0, 0]
    assert slope(lambda x: x**0, [0.0, 2.0]) == [0, 0]
    assert slope(lambda x: x**1, [0.0, 2.0]) == [1, 1]
    assert slope(lambda x: x**2, [0.0, -2.0]) == [0, -4]
    small = [1e-300, 1e-20, 1.0, 1e300]
    np.testing.assert_allclose(Tensor(small).log().data, np.log(small))
    np.testing.assert_allclose(slope(lambda x: x.log(), small), [1e300, 1e20, 1, 1e-300])
    far = Tensor([-1000.0, 0.0, 1000.0], requires_grad=True)
    z = far.sigmoid()
    assert z.tolist() == [0, 0.5, 1]
    z.backward(np.ones(3))
    assert far.grad.tolist() == [0, 0.25, 0]
    np.testing.assert_allclose(Tensor([-700.0]).sigmoid().data, np.exp(-700.0), rtol=1e-12)
    with pytest.raises(TypeError):
        far.clip("a", 1)
    power = Tensor([0.0, 1.0, 2.0], requires_grad=True)
    base = Tensor([0.0, 0.0, 3.0], requires_grad=True)
    (base**power).backward(np.ones(3))
    assert np.isfinite(power.grad[2])
    np.testing.assert_allclose(power.grad[2], 9 * np.log(3))
    assert base.grad.tolist() == [0, 1, 6]


def test_graphs():
    x = Tensor([2.0], requires_grad=True)
    y = x
    for _ in range(6):
        y = y + y
    y.backward()
    assert x.grad.tolist() == [64]
    y = x * 3
    y.backward()
    assert x.grad.tolist() == [67]
    x.grad = None
    a = x * x
    b = a * 3
    c = a + b * a
    c.backward()
    assert x.grad.tolist() == [2 * 2 + 3 * 4 * 8]
    x.grad = None
    y = x
    for _ in range(20_000):
        y = y + 1
    y.backward()
    assert x.grad.tolist() == [1]


def test_the_graph_is_released():
    x = Tensor([1.0, 2.0], requires_grad=True)
    mid = x * x
    z = mid + mid
    z.backward([1, 1], retain_graph=True)
    z.backward([1, 1])
    assert x.grad.tolist() == [8, 16]
    for again in (z, mid, mid * x):
        with pytest.raises(RuntimeError):
            again.backward([1, 1])
    assert x.grad.tolist() == [8, 16]
    kept = weakref.ref(mid)
    del mid, again
    assert kept() is None
    other = Tensor([1.0, 2.0], requires_grad=True)
    both = other * 2 + z
    with pytest.raises(RuntimeError):
        both.backward([1, 1])
    assert other.grad is None


def test_leaves_and_flags():
    x, c = Tensor([1.0, 2.0], requires_grad=True), Tensor([3.0, 4.0])
    z = x * c
    assert (z.requires_grad, (c * c).requires_grad) == (True, False)
    z.backward([1, 1])
    assert (c.grad, z.grad) == (None, None)
    assert x.grad.tolist() == [3, 4]
    with pytest.raises(RuntimeError):
        c.backward([1, 1])
    with pytest.raises(RuntimeError):
        z.requires_grad = False
    with pytest.raises(TypeError):
        Tensor([1, 2]).requires_grad = True
    with pytest.raises(TypeError):
        Tensor([1, 2], requires_grad=True)
    for wrong in (["a"], [1j], [None]):
        with pytest.raises(TypeError):
            Tensor(wrong)
    c.requires_grad = True
    (x * c).backward([1, 1])
    assert c.grad.tolist() == [1, 2]
    d = x.detach()
    assert np.shares_memory(d.data, x.data)
    assert not d.requires_grad
    assert d.grad is None
    y = x * 2
    assert not y.detach().requires_grad
    y = y.detach()
    y.requires_grad = True
    array = np.ones(3)
    assert Tensor(array).data is array or np.shares_memory(Tensor(array).data, array)
    assert Tensor(array, dtype="f4").dtype == np.float32


def test_data_may_be_assigned():
    x = Tensor([1.0, 2.0], requires_grad=True)
    x.grad = np.array([1.0, 1.0])
    x.data = [3.0, 4.0]
    assert x.grad.tolist() == [1, 1]
    x.data = np.ones(3)
    assert x.grad is None
    x.grad = np.ones(3)
    x.data = np.ones(3, "f4")
    assert x.grad is None
    with pytest.raises(TypeError):
        x.data = np.ones(3, int)
    for f in [*ONE, lambda x: x * x, lambda x: x / (x * x), lambda x: x**x]:
        p, still = (Tensor([2.0], requires_grad=True) for _ in "ps")
        z = f(p)
        p.data = np.array([-5.0])
        z.backward()
        f(still).backward()
        assert p.grad.tolist() == still.grad.tolist()


def test_cotangents():
    x = Tensor(np.ones((2, 3)), requires_grad=True)
    for wrong in (None, np.ones(3), np.ones((3, 2)), 1.0, np.ones((1, 2, 3))):
        with pytest.raises(ValueError):
            (x * 2).backward(wrong)
    with pytest.raises(TypeError):
        (x * 2).backward(np.ones((2, 3)) * 1j)
    assert x.grad is None
    for shape in ((), (1,), (1, 1)):
        one = Tensor(np.ones(shape), requires_grad=True)
        (one * 3).backward()
        assert one.grad.tolist() == np.full(shape, 3.0).tolist()
    x.backward(np.ones((2, 3)))
    assert x.grad.tolist() == np.ones((2, 3)).tolist()
    g = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    x.grad = None
    (x + 0).backward(g)
    assert x.grad.flags.c_contiguous
    kept = x.grad
    before = kept.copy()
    (x + 0).backward(g)
    np.testing.assert_array_equal(x.grad, 2 * g)
    assert x.grad is kept or (kept == before).all()
    a, b = (Tensor(np.ones(2), requires_grad=True) for _ in "ab")
    g = np.ones(2)
    (a + b).backward(g)
    assert not np.shares_memory(a.grad, b.grad)
    a.grad[0] = 9
    assert b.grad.tolist() == g.tolist() == [1, 1]


def test_no_grad():
    x = Tensor([1.0], requires_grad=True)
    assert is_recording()
    with no_grad():
        assert not is_recording()
        with no_grad():
            pass
        assert not is_recording()
        assert not (x * x).requires_grad
        seen = []
        thread = threading.Thread(target=lambda: seen.append(is_recording()))
        thread.start()
        thread.join()
        assert seen == [True]
        assert Tensor([1.0], requires_grad=True).requires_grad
    assert is_recording()
    with pytest.raises(KeyError), no_grad():
        raise KeyError
    assert is_recording()

    @no_grad()
    def double(t):
        """Twice."""
        return t * 2

    assert not double(x).requires_grad
    assert not double(x).requires_grad
    assert is_recording()

    def generator():
        yield 1

    async def coroutine():
        pass

    for wrong in (generator, coroutine):
        with pytest.raises(TypeError):
            no_grad()(wrong)
    block = no_grad()
    with block:
        pass
    assert is_recording()


def test_dtypes():
    for dtype in ("f2", "f4", "f8"):
        x = Tensor(np.full((2, 3), 0.5, dtype), requires_grad=True)
        for f in [*ONE, lambda x: x.clip(0, 1)]:
            z = f(x)
            assert z.dtype == dtype
            z.backward(np.ones((2, 3), dtype))
            assert x.grad.dtype == dtype
    a = Tensor(np.ones(2, "f4"), requires_grad=True)
    b = Tensor(np.ones(2), requires_grad=True)
    z = a * b
    assert z.dtype == np.float64
    z.backward(np.ones(2))
    assert (a.grad.dtype, b.grad.dtype) == (np.float32, np.float64)
    z = b.astype("f4")
    assert z.dtype == np.float32
    z.backward(np.ones(2, "f4"))
    assert b.grad.dtype == np.float64
    assert b.grad.tolist() == [2, 2]
    assert not b.astype(int).requires_grad
    assert (Tensor([1, 2]) + 1).dtype == np.int64
    assert (Tensor([1, 2]) / 2).dtype == np.float64
    assert (a * np.float64(2)).dtype == (a.data * np.float64(2)).dtype
    assert (np.ones(2) * a).dtype == np.float64
    assert type(np.ones(2) * a) is type(np.float32(2) * a) is Tensor
    half = Tensor(np.zeros(1, "f2"), requires_grad=True)
    (half + np.zeros((5000, 1), "f2")).backward(np.ones((5000, 1), "f2"))
    assert half.grad.tolist() == [5000]


def test_comparisons():
    x, y = normal(3, 4).round(), normal(4, seed=1).round()
    for name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
        want = getattr(x, name)(y)
        for other in (y, Tensor(y), y.tolist()):
            got = getattr(Tensor(x), name)(other)
            assert type(got) is np.ndarray
            np.testing.assert_array_equal(got, want)
    assert (y == Tensor(y)).all()
    assert (np.float64(2) > Tensor([1, 3])).tolist() == [True, False]
    assert not np.any(Tensor([1, 2]) == "a")
    assert np.all(Tensor([1, 2]) != "a")
    with pytest.raises(TypeError):
        assert Tensor([1, 2]) < "a"
    with pytest.raises(ValueError):
        assert (Tensor(x) == np.ones(3)).any()
    t = Tensor([1.0])
    assert {t: 1}[t] == 1
    assert hash(t) != hash(Tensor([1.0]))


def test_in_place_and_copies():
    x = Tensor(np.ones(2), requires_grad=True)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
        with pytest.raises(TypeError):
            getattr(x, f"__i{name}__")(1)
    with pytest.raises(TypeError):
        x += 1
    again = copy.deepcopy(x)
    assert again.requires_grad
    assert again.tolist() == [1, 1]
    assert not np.shares_memory(again.data, x.data)
    for fault in (copy.copy, copy.deepcopy):
        with pytest.raises(RuntimeError):
            fault(x * 2)
    for fault in (lambda: x + np.ones(3), lambda: x * Tensor(np.ones((3, 1, 4)))):
        with pytest.raises(ValueError):
            fault()
    for wrong in ("a", None, [1.0, 2.0], object()):
        with pytest.raises(TypeError):
            x + wrong


class Child(Tensor):
    __slots__ = ()


class Other(Tensor):
    __slots__ = ()


def test_record():
    x, y = Tensor([1.0, 2.0], requires_grad=True), Child([3.0, 4.0])
    asked = []

    def backward(g):
        asked.append(g)
        return [g * 2, None]

    z = record(np.array([5.0, 6.0]), [x, y], backward)
    assert type(z) is type(x * y) is type(y + 1) is type(2 * y) is type(-y) is Child
    z.backward([1, 10])
    assert x.grad.tolist() == [2, 20]
    assert y.grad is None
    assert asked[0].dtype == np.float64
    assert type(Child([1.0]) + Other([1.0])) is Child
    assert type(Other([1.0]) + Child([1.0])) is Other
    f4 = Tensor(np.ones(2, "f4"), requires_grad=True)
    record(np.ones(2), [f4], lambda g: [g]).backward(np.ones(2))
    assert f4.grad.dtype == np.float32
    for wrong in (
        lambda g: [g[:1]],
        lambda g: [g, g],
        lambda g: [],
        lambda g: [g[None]],
    ):
        x.grad = None
        with pytest.raises(ValueError):
            record(np.ones(2), [x], wrong).backward([1, 1])
    with pytest.raises(TypeError):
        record(np.ones(2), [np.ones(2)], backward)
    assert not record(np.ones(2), [y], backward).requires_grad
    assert not record(np.ones(2, int), [x], backward).requires_grad
    with no_grad():
        assert not record(np.ones(2), [x], backward).requires_grad
    x.grad = None
    u = x * 3
    (record(np.ones(2), [u], lambda g: [None]) + u * 5).backward([1, 1])
    assert x.grad.tolist() == [15, 15]
    many = [Tensor([1.0], requires_grad=i > 70) for i in range(100)]
    record(np.ones(1), many, lambda g: [g * i for i in range(100)]).backward()
    assert [t.grad and t.grad.tolist() for t in many] == [
        [i] if i > 70 else None for i in range(100)
    ]


def test_sums():
    x = normal(2, 3, 4)
    np.testing.assert_allclose(unbroadcast(x, (3, 1)), x.sum(axis=(0, 2))[:, None])
    np.testing.assert_allclose(unbroadcast(x, ()), x.sum())
    np.testing.assert_allclose(unbroadcast(x, (1, 3, 4)), x.sum(axis=0, keepdims=True))
    np.testing.assert_array_equal(unbroadcast(x, (2, 3, 4)), x)
    assert unbroadcast(x, (3, 1)).shape == (3, 1)
    for wrong in ((2,), (2, 3), (2, 2, 3, 4), (2, 3, 5)):
        with pytest.raises(ValueError):
            unbroadcast(x, wrong)
    np.testing.assert_allclose(sum_over(x, (0, 2)), x.sum(axis=(0, 2)))
    np.testing.assert_allclose(sum_over(x, (1,), keepdims=True), x.sum(axis=1, keepdims=True))
    many = sum_over(np.ones((5000, 2), "f2"), (0,))
    assert many.tolist() == [5000, 5000]
    assert sum_over(np.ones((2, 2), "f4"), (0,)).dtype == np.float32


def test_arguments():
    tensor_argument("f", "x", Tensor([1]))
    for wrong, floating in ((np.ones(2), False), (1.0, True), (Tensor([1]), True)):
        with pytest.raises(TypeError):
            tensor_argument("f", "x", wrong, floating=floating)
