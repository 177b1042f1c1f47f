"""Gradients by differences and by hand; then graphs, modes, dtypes, errors."""

import copy
import itertools
import math
import operator

import numpy as np
import pytest

from tinyllm.autograd import Tensor, is_recording, no_grad, record, sum_over, unbroadcast
from tinyllm.num.gradcheck import gradcheck


def normal(*shape, seed=0):
    return np.asarray(np.random.default_rng(seed).normal(size=shape))


def leaf(x, dtype=float):
    return Tensor(np.asarray(x, dtype), requires_grad=True)


def sent_back(function, *values, g=None):
    leaves = [leaf(x) for x in values]
    z = function(*leaves)
    z.backward(np.ones(z.shape) if g is None else g)
    return [x.grad for x in leaves]


@pytest.mark.parametrize(
    "shapes", [*itertools.product([(), (3,), (2, 1), (2, 3), (4, 2, 3), (1, 1, 1)], repeat=2)]
)
def test_binary_operations(shapes):
    a, b = 1.5 + np.abs(normal(*shapes[0])), 1.5 + np.abs(normal(*shapes[1], seed=1))
    for f in (
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: x * y,
        lambda x, y: x / y,
        lambda x, y: x**y,
    ):
        x, y = leaf(a), leaf(b)
        want = f(a, b)
        for z in (f(x, y), f(x, b), f(a, y)):
            assert isinstance(z, Tensor)
            assert z.shape == want.shape
            np.testing.assert_allclose(z.data, want, rtol=1e-12)
        gradcheck(f, [x, y])
        gradcheck(lambda x, f=f: f(x, b), [x])
        gradcheck(lambda y, f=f: f(a, y), [y])
        gradcheck(lambda x, f=f: f(x, x * x), [x])


UNARY = {
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "tanh": math.tanh,
    "abs": abs,
    "sigmoid": lambda v: 1 / (1 + math.exp(-v)),
    "__neg__": lambda v: -v,
    "__abs__": abs,
}


@pytest.mark.parametrize("name", UNARY)
def test_unary_operations(name):
    for shape in ((), (1,), (6,), (2, 3), (2, 1, 2), (13, 17)):
        x = normal(*shape)
        if name in ("log", "sqrt"):
            x = np.abs(x) + 0.1
        z = getattr(leaf(x), name)()
        np.testing.assert_allclose(z.data, np.vectorize(UNARY[name])(x), rtol=1e-12)
        gradcheck(lambda t: getattr(t, name)(), [leaf(x)])
        for dtype in ("f2", "f4"):
            small = leaf(x, dtype)
            z = getattr(small, name)()
            assert z.dtype == dtype
            z.backward(np.ones(shape))
            assert small.grad.dtype == dtype


def test_numbers_of_pythons_own():
    x = leaf([1, 2, 4])
    for f, want, slope in (
        (lambda x: 8 / x, [8, 4, 2], [-8, -2, -0.5]),
        (lambda x: 1 - x, [0, -1, -3], [-1, -1, -1]),
        (lambda x: x - 1, [0, 1, 3], [1, 1, 1]),
        (lambda x: 3 + x, [4, 5, 7], [1, 1, 1]),
        (lambda x: 3 * x, [3, 6, 12], [3, 3, 3]),
        (lambda x: 2**x, [2, 4, 16], [math.log(2) * v for v in (2, 4, 16)]),
        (lambda x: x**3, [1, 8, 64], [3, 12, 48]),
        (lambda x: x**12, [1, 2.0**12, 4.0**12], [12, 12 * 2.0**11, 12 * 4.0**11]),
        (lambda x: x**0.5, [1, math.sqrt(2), 2], [0.5, 0.5 / math.sqrt(2), 0.25]),
    ):
        np.testing.assert_allclose(f(x).data, want)
        np.testing.assert_allclose(sent_back(f, [1, 2, 4])[0], slope)
        assert f(leaf([1, 2, 4], "f4")).dtype == np.float32
        assert f(leaf([1, 2, 4], "f8")).dtype == np.float64


def test_kinks():
    assert sent_back(abs, [0, -3, 3])[0].tolist() == [0, -1, 1]
    assert abs(leaf([np.nan])).data[0] != 0
    assert sent_back(abs, [np.nan])[0].tolist() == [0]
    x = [-3, -1, 0, 2, 5, np.nan]
    np.testing.assert_array_equal(leaf(x).clip(-1, 2).data, [-1, -1, 0, 2, 2, np.nan])
    assert sent_back(lambda t: t.clip(-1, 2), x)[0].tolist() == [0, 1, 1, 1, 0, 0]
    assert sent_back(lambda t: t.clip(low=-1), x)[0].tolist() == [0, 1, 1, 1, 1, 0]
    assert sent_back(lambda t: t.clip(high=2), x)[0].tolist() == [1, 1, 1, 1, 0, 0]
    for bad in ("1", [1.0]):
        with pytest.raises(TypeError):
            leaf(x).clip(bad)
    assert sent_back(lambda t: t**0, [0, 1, 5])[0].tolist() == [0, 0, 0]
    assert sent_back(lambda t: t ** np.zeros(3), [0, 1, 5])[0].tolist() == [0, 0, 0]
    assert sent_back(lambda t: t ** Tensor([2.0, 0.0, 1.0]), [0, 0, 0])[0].tolist() == [0, 0, 1]
    tiny = leaf([1e-200, 1e-15, 1e200])
    z = tiny.log()
    np.testing.assert_allclose(
        z.data, [-200 * math.log(10), -15 * math.log(10), 200 * math.log(10)]
    )
    z.backward(np.ones(3))
    np.testing.assert_allclose(tiny.grad, [1e200, 1e15, 1e-200])
    far = leaf([-5000, -800, 0, 800, 5000])
    z = far.sigmoid()
    assert z.tolist() == [0, 0, 0.5, 1, 1]
    z.backward(np.ones(5))
    assert far.grad.tolist() == [0, 0, 0.25, 0, 0]


def test_sharing_and_depth():
    def diamond(x):
        a = x * 2
        b = a * 3
        return (a + b) * a

    np.testing.assert_allclose(sent_back(diamond, [1, 2])[0], [32, 64])
    x = leaf([1.0])
    y = x
    for _ in range(50):
        y = y + y
    y.backward()
    assert x.grad[0] == 2.0**50
    y = x
    for _ in range(30_000):
        y = -y
    x.grad = None
    y.backward()
    assert x.grad.tolist() == [1]
    x.grad = None
    for _ in range(3):
        (x * 5).backward()
    assert x.grad.tolist() == [15]


def test_walking_twice():
    x, w = leaf([1, 2]), leaf([3, 4])
    inner = x * w
    z = inner * 2
    z.backward([1, 1], retain_graph=True)
    first = x.grad.copy()
    z.backward([1, 1])
    np.testing.assert_array_equal(x.grad, 2 * first)
    kept = x.grad.copy(), w.grad.copy()
    v = leaf([1, 1])
    for dead in (z, inner, v * 3 + inner, inner * v):
        with pytest.raises(RuntimeError):
            dead.backward([1, 1])
    assert v.grad is None
    np.testing.assert_array_equal(x.grad, kept[0])
    np.testing.assert_array_equal(w.grad, kept[1])
    with pytest.raises(RuntimeError):
        Tensor([1.0]).backward()
    with pytest.raises(RuntimeError):
        (Tensor([1.0]) * 2).backward()


def test_stored_gradients_are_their_own():
    same = [
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: x * 1 + y,
        lambda x, y: (x + y).astype(float),
    ]
    for f, like, shape in itertools.product(
        same, (np.ascontiguousarray, np.asfortranarray), ((2, 3), (1,), (60, 70))
    ):
        x, y, g = leaf(np.ones(shape)), leaf(np.ones(shape)), like(np.ones(shape))
        f(x, y).backward(g)
        assert x.grad.flags.c_contiguous
        assert x.grad.flags.writeable
        for other in (y.grad, g, x.data, y.data):
            assert not np.shares_memory(x.grad, other)
        x.grad[:] = 7
        assert np.abs(y.grad).tolist() == g.tolist() == np.ones(shape).tolist()
    x, g = leaf([1, 2]), np.ones(2)
    x.backward(g)
    x.backward(g)
    assert x.grad.tolist() == [2, 2]
    assert g.tolist() == [1, 1]
    row = leaf(np.ones(3))
    (row + np.zeros((2, 3))).backward(np.ones((2, 3)))
    assert row.grad.tolist() == [2, 2, 2]


def test_cotangents():
    x = leaf(np.ones((2, 2)))
    z = x * 3
    for wrong in (None, 1.0, np.ones(2), np.ones((2, 1)), np.ones((1, 2, 2))):
        with pytest.raises(ValueError):
            z.backward(wrong)
    with pytest.raises(TypeError):
        z.backward(np.ones((2, 2), complex))
    assert x.grad is None
    z.backward([[1, 2], [3, 4]])
    assert x.grad.tolist() == [[3, 6], [9, 12]]
    small = leaf(np.ones(2), "f4")
    (small * 2).backward(np.ones(2))
    assert small.grad.dtype == np.float32
    for shape in ((), (1,), (1, 1, 1)):
        assert sent_back(lambda t: t * 4, np.ones(shape))[0].item() == 4
        one = leaf(np.ones(shape))
        (one * 4).backward()
        assert one.grad.shape == shape
    with pytest.raises(ValueError):
        (leaf(np.ones(0)) * 2).backward()


def test_modes():
    x = leaf([1.0])
    with no_grad():
        z = x * 2
        inside = leaf([1.0])
        with no_grad():
            assert not is_recording()
        assert not is_recording()
        assert not (x + 1).requires_grad
    assert is_recording()
    assert not z.requires_grad
    assert inside.requires_grad
    assert (x * z).requires_grad
    try:
        with no_grad():
            raise OSError
    except OSError:
        pass
    assert is_recording()

    @no_grad()
    def depth(n):
        assert not is_recording()
        if n:
            depth(n - 1)
        return x * n

    assert not depth(3).requires_grad
    assert is_recording()
    for wrong in (lambda: (yield),):
        with pytest.raises(TypeError):
            no_grad()(wrong)

    def paused():
        with no_grad():
            yield is_recording()

    one = paused()
    assert next(one) is False
    one.close()
    assert is_recording()


def test_flags():
    x, c = leaf([1, 2]), Tensor([1.0, 2.0])
    z = x * c
    for value in (True, False):
        with pytest.raises(RuntimeError):
            z.requires_grad = value
    x.requires_grad = False
    assert not (x * 2).requires_grad
    c.requires_grad = True
    (c * x).backward([1, 1])
    assert c.grad.tolist() == [1, 2]
    assert x.grad is None
    for wrong in (lambda: Tensor([True]), lambda: Tensor([3])):
        with pytest.raises(TypeError):
            wrong().requires_grad = True
    for wrong in ("text", [1 + 2j], [{}], np.array(["2020"], "datetime64[Y]")):
        with pytest.raises(TypeError):
            Tensor(wrong)
    with pytest.raises(TypeError):
        Tensor([1.0], dtype=complex)
    with pytest.raises(TypeError):
        Tensor([1], requires_grad=True)
    assert Tensor([1], requires_grad=True, dtype="f4").dtype == np.float32


def test_data():
    array = np.arange(3.0)
    x = Tensor(array, requires_grad=True)
    assert np.shares_memory(x.data, array)
    assert np.shares_memory(x.detach().data, array)
    assert not x.detach().requires_grad
    (x * x).backward(np.ones(3))
    x.data = x.data - 1
    assert x.grad.tolist() == [0, 2, 4]
    x.data = np.zeros(2)
    assert x.grad is None
    (x * 1).backward([1, 1])
    x.data = np.zeros(2, "f4")
    assert x.grad is None
    with pytest.raises(TypeError):
        x.data = [1, 2]
    a, b = leaf([3.0]), leaf([5.0])
    for f, want in (
        (lambda: a * b, 5),
        (lambda: a / b, 0.2),
        (lambda: a**2, 6),
        (lambda: a.tanh(), 1 - math.tanh(3) ** 2),
        (lambda: a.log(), 1 / 3),
    ):
        a.data, b.data, a.grad = np.array([3.0]), np.array([5.0]), None
        z = f()
        a.data, b.data = np.array([7.0]), np.array([11.0])
        z.backward()
        np.testing.assert_allclose(a.grad, [want])


def test_dtypes():
    for one, two in itertools.product(("f2", "f4", "f8"), repeat=2):
        x, y = leaf([1, 2], one), leaf([3, 4], two)
        z = x * y + x / y
        assert z.dtype == np.result_type(one, two)
        z.backward(np.ones(2))
        assert (x.grad.dtype, y.grad.dtype) == (np.dtype(one), np.dtype(two))
    x = leaf([1.1, 2.2])
    z = x.astype("f4")
    z.backward(np.ones(2, "f4"))
    assert (z.dtype, x.grad.dtype) == (np.float32, np.float64)
    assert x.astype(np.int64).tolist() == [1, 2]
    assert not x.astype(np.int64).requires_grad
    assert (Tensor([True, False]) * 2).dtype == np.int64
    assert (Tensor([1, 2]) * x).requires_grad
    total = leaf(np.zeros(1), "f2")
    (total + np.zeros((4099, 1), "f2")).backward(np.ones((4099, 1), "f2"))
    assert abs(total.grad[0] - 4099) < 3


def test_classes():
    class Child(Tensor):
        __slots__ = ()

    class Grandchild(Child):
        __slots__ = ()

    a, b, c = Tensor([1.0]), Child([2.0]), Grandchild([3.0])
    for z in (a + c, c - a, a * b * c, np.ones(1) * c, 2 / c, c.exp(), c.astype("f4"), c.detach()):
        assert type(z) is Grandchild
    assert type(a + b) is Child
    assert type(record(np.ones(1), [a, b, a], lambda g: [g, g, g])) is Child


def test_own_operations():
    x, y, c = leaf([1, 2]), leaf([3, 4]), Tensor([1.0, 1.0])
    z = record(x.data + y.data, [x, y, c], lambda g: [g, 5 * g, None])
    z.backward([1, 2])
    assert (x.grad.tolist(), y.grad.tolist(), c.grad) == ([1, 2], [5, 10], None)
    used = x * 2
    x.grad = None
    (used * 3 + record(x.data, [used], lambda g: [None]) + used).backward([1, 1])
    assert x.grad.tolist() == [8, 8]
    parts = [Tensor([0.0], requires_grad=i % 7 == 6) for i in range(90)]
    record(np.ones(1), parts, lambda g: [g + i for i in range(90)]).backward()
    for i, part in enumerate(parts):
        assert (part.grad.tolist() == [i + 1]) if i % 7 == 6 else (part.grad is None)
    for wrong in (lambda g: [g], lambda g: [g, g, g, g], lambda g: [g[:1], g, g]):  # fmt: skip
        with pytest.raises(ValueError):
            record(x.data, [x, y, c], wrong).backward([1, 1])
    with pytest.raises(TypeError):
        record(x.data, [x, 1.0], lambda g: [g, g])
    assert not record(x.data, [c], lambda g: [g]).requires_grad
    assert not record(np.array([1, 2]), [x], lambda g: [g]).requires_grad
    with no_grad():
        assert not record(x.data, [x], lambda g: [g]).requires_grad
    one = leaf([1, 1], "f4")
    record(np.ones(2), [one], lambda g: [g]).backward([1, 1])
    assert one.grad.dtype == np.float32


def test_helpers():
    x = np.arange(24.0).reshape(2, 3, 4)
    for shape in ((2, 3, 4), (3, 4), (4,), (), (1, 4), (2, 1, 4), (1, 1, 1), (3, 1)):
        want = np.zeros(shape)
        marks = np.broadcast_to(np.arange(want.size).reshape(shape), x.shape)
        sums = np.bincount(marks.reshape(-1), x.reshape(-1), want.size).reshape(shape)
        np.testing.assert_array_equal(unbroadcast(x, shape), sums)
    for shape in ((5,), (2,), (2, 2, 3, 4), (3, 3, 4)):
        with pytest.raises(ValueError):
            unbroadcast(x, shape)
    np.testing.assert_array_equal(sum_over(x, (1,)), x.sum(1))
    np.testing.assert_array_equal(
        sum_over(x, (0, -1), keepdims=True), x.sum((0, -1), keepdims=True)
    )
    assert sum_over(np.full(3000, 1, "f2"), (0,)) == 3000


def test_comparing():
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    for other in (2, 2.0, np.float32(2), np.array([2]), [2], Tensor(2)):
        assert (x == other).tolist() == [False, True, False]
        assert (x != other).tolist() == [True, False, True]
        assert (x < other).tolist() == (other > x).tolist() == [True, False, False]
        assert (x <= other).tolist() == [True, True, False]
        assert (x > other).tolist() == [False, False, True]
        assert (x >= other).tolist() == [False, True, True]
    assert not np.any(Tensor([1.0]) == "x")
    for fault in (lambda: x < "x", lambda: x >= None):
        with pytest.raises(TypeError):
            fault()
    with pytest.raises(ValueError):
        assert (x < np.ones(2)).any()
    assert len({x, x, Tensor([1.0])}) == 2


def test_what_is_refused():
    x = leaf([1, 2])
    for fault in (lambda: x + np.ones(3), lambda: x * leaf(np.ones((2, 3)))):
        with pytest.raises(ValueError):
            fault()
    for wrong in ("1", None, [1, 2], (1,), {}):
        for f in (lambda w: x + w, lambda w: w * x, lambda w: x**w, lambda w: w - x):
            with pytest.raises(TypeError):
                f(wrong)
    for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow"):
        with pytest.raises(TypeError):
            getattr(operator, name)(x, 1)
    twin = copy.deepcopy(x)
    assert twin.requires_grad
    assert not np.shares_memory(twin.data, x.data)
    with pytest.raises(RuntimeError):
        copy.deepcopy(x * 1)
    assert x.tolist() == [1, 2]
