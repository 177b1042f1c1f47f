# Tangled from book/1-foundations/L0.1-tests.md
"""L0.1: the graph, the rules of differentiation, and what a tensor promises; the oracle is torch."""

import contextvars
import copy
import itertools
import operator
import pickle
import threading
import weakref
from array import array as plain_array
from collections import deque
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tinyllm.autograd import (
    Tensor,
    is_recording,
    no_grad,
    record,
    sum_over,
    tensor_argument,
    unbroadcast,
)

SEEDED = settings(derandomize=True, database=None, deadline=None)


def leaf(data):
    return Tensor(data, requires_grad=True)


def uniform(*shape, low=0.5, high=2.0, seed=0):
    """Numbers that every operation accepts, logarithm and division too."""
    return np.random.default_rng(seed).uniform(low, high, shape)


def same_as_torch(function, *arrays):
    """function gives the same values and gradients for our tensors and for torch's."""
    ours = [leaf(x) for x in arrays]
    theirs = [torch.tensor(x, requires_grad=True) for x in arrays]
    z, t = function(*ours), function(*theirs)
    assert z.shape == tuple(t.shape)
    cotangent = np.asarray(np.random.default_rng(1).normal(size=z.shape))
    z.backward(cotangent)
    t.backward(torch.tensor(cotangent))
    np.testing.assert_allclose(z.data, t.detach().numpy(), rtol=1e-12, atol=1e-12)
    for mine, its in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.grad, its.grad.numpy(), rtol=1e-12, atol=1e-12)


def probe(t: Tensor, seen: list[float]) -> Tensor:
    """t itself; its gradient is appended to `seen` when it comes by."""

    def backward(g):
        seen.append(float(g))
        return (g,)

    return record(t.data, (t,), backward)


def hand_example() -> tuple[Tensor, Tensor, Tensor]:
    """a = 2, b = 1 and r = a (a + b)^2 in the three steps of section 3.1."""
    a = Tensor(2.0, requires_grad=True)
    b = Tensor(1.0, requires_grad=True)
    u = a + b
    v = u * a
    r = v * u
    return a, b, r


def test_hand_example():
    a, b, r = hand_example()
    r.backward()
    assert (r.item(), a.grad, b.grad) == (18, 21, 12)

    a, b, seen = leaf(2.0), leaf(1.0), []
    u = probe(a + b, seen)
    v = probe(u * a, seen)
    probe(v * u, seen).backward()
    assert seen == [1, 3, 12]  # of r, v, u, in the order of their turns

    X = leaf([[1.0, 2, 3], [4, 5, 6]])
    w = leaf([10.0, 20, 30])
    (X * w).backward([[1, 0, 2], [0, 1, 1]])
    assert X.grad.tolist() == [[10, 0, 60], [0, 20, 30]]
    assert w.grad.tolist() == [1, 5, 12]


def test_a_node_waits_for_all_its_uses():
    a = leaf(1.0)
    b = a + a
    c = b + b
    c.backward()
    assert a.grad == 4

    x = leaf(3.0)
    (x * x).backward()
    assert x.grad == 6

    for short_first in (True, False):  # u reports at once on one way, after two steps on the other
        x = leaf(2.0)
        u = x * 5
        long = (u * 2) * 3
        y = u + long if short_first else long + u
        y.backward()
        assert x.grad == 35


def test_sixty_diamonds():
    x = leaf(1.0)
    y = x
    for _ in range(60):
        y = y + y
    y.backward()
    assert x.grad == 2.0**60


def test_uses_that_report_none_are_counted():
    def stop(t):
        return record(t.data, (t,), lambda g: (None,))

    x = leaf(2.0)
    u = x * 3
    (u * 5 + stop(u)).backward()
    assert x.grad == 15

    x = leaf(2.0)
    (stop(x * 3) + x * 5).backward()  # x also waits for a branch through which nothing comes
    assert x.grad == 5

    x = leaf(2.0)
    stop(x).backward()
    assert x.grad is None


def test_deep_graph():
    def chain(x):
        y = x
        for _ in range(25_000):
            y = (y + x) * 1.0 - x + 0.0
        return y

    x = leaf(0.5)
    y = chain(x)
    y.backward()
    assert x.grad == 1
    y = chain(x)
    del y  # never walked back: taken apart by Python alone
    y = chain(x)
    y.backward(retain_graph=True)
    del y
    assert x.grad == 2


FUNCTIONS = {
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "sqrt": lambda x: x.sqrt(),
    "tanh": lambda x: x.tanh(),
    "sigmoid": lambda x: x.sigmoid(),
    "abs": lambda x: abs(x - 1) * (1 - x).abs(),
    "clip": lambda x: x.clip(0.8, 1.5) * x.clip(1.0) / x.clip(None, 0.75),
    "negative": lambda x: -x,
    "cube": lambda x: x**3,
    "inverse": lambda x: x**-1,
    "root": lambda x: x**0.5,
    "one": lambda x: x**0,
    "same": lambda x: x**1,
}
OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_operations_against_torch(name):
    same_as_torch(FUNCTIONS[name], uniform(2, 3))
    same_as_torch(FUNCTIONS[name], uniform())
    same_as_torch(FUNCTIONS[name], uniform(0, 3))


@pytest.mark.parametrize("op", OPERATORS)
def test_constants_on_either_side(op):
    same_as_torch(op, uniform(2, 3), uniform(2, 3, seed=1))
    same_as_torch(lambda x: op(x, x), uniform(2, 3))
    for constant in (2, 0.5):
        same_as_torch(lambda x, c=constant: op(x, c), uniform(2, 3))
        same_as_torch(lambda x, c=constant: op(c, x), uniform(2, 3))
    array = uniform(3, seed=2)
    for constant in (array, array[0], Tensor(array)):  # an array, a numpy scalar, a tensor
        x, y = leaf(uniform(2, 3)), leaf(uniform(2, 3))
        t, u = (torch.tensor(uniform(2, 3), requires_grad=True) for _ in "tu")
        other = torch.tensor(np.asarray(constant))
        op(x, constant).backward(np.ones((2, 3)))
        op(constant, y).backward(np.ones((2, 3)))
        op(t, other).backward(torch.ones(2, 3))
        op(other, u).backward(torch.ones(2, 3))
        np.testing.assert_allclose(x.grad, t.grad.numpy(), rtol=1e-12)
        np.testing.assert_allclose(y.grad, u.grad.numpy(), rtol=1e-12)
    large = uniform(2, 3, seed=3)  # a constant that stretches the tensor
    x, t = leaf(array), torch.tensor(array, requires_grad=True)
    (op(x, large) * op(large, x)).backward(np.ones((2, 3)))
    (op(t, torch.tensor(large)) * op(torch.tensor(large), t)).backward(torch.ones(2, 3))
    np.testing.assert_allclose(x.grad, t.grad.numpy(), rtol=1e-12)


def test_powers_at_zero():
    x, y = leaf([0.0, 0.0, 0.0, 2.0]), leaf([0.0, 1.0, 2.0, 0.0])
    (x**y).backward(np.ones(4))
    assert x.grad.tolist() == [0, 1, 0, 0]
    assert y.grad.tolist() == [0, 0, 0, np.log(2.0)]

    x = leaf([0.0, -3.0])
    (x**0).backward([1, 1])
    (x**2).backward([1, 1])
    (x ** Tensor(2.0)).backward([1, 1])  # the exponent wants no gradient: no log of -3
    (x ** np.array([2, 2])).backward([1, 1])
    assert x.grad.tolist() == [0, -18]
    y = leaf([2.0, 0.0])
    (0**y).backward([1, 1])
    assert y.grad.tolist() == [0, 0]
    y = leaf(0.5)
    (Tensor(0.0) ** y).backward()  # the base wants no gradient: no 0 to the power of -0.5
    assert y.grad == 0


@pytest.mark.parametrize("exponent", [-2, -1, -0.5, 0, 0.5, 1, 2, 3])
@pytest.mark.parametrize("base", [0.0, 1.0, 2.0, -1.0, -3.0])
def test_powers_against_torch(base, exponent):
    with np.errstate(all="ignore"):  # many are infinite or NaN, here and in torch
        same_as_torch(operator.pow, np.array([base, 2.0]), np.array([exponent, 2.0]))
        same_as_torch(lambda x: x**exponent, np.array([base, 2.0]))
        same_as_torch(lambda y: base**y, np.array([exponent, 2.0]))
        same_as_torch(lambda x: x ** float(exponent), np.array(base))


CORNERS = [-np.inf, -1000.0, -40.0, -1.0, -0.0, 0.0, 0.5, 1.0, 30.0, 1000.0, np.inf, np.nan]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sigmoid(),
        lambda x: x.abs(),
        lambda x: x.clip(-1.0, 1.0),
        lambda x: x.clip(-1.0),
        lambda x: x.clip(None, 1.0),
        lambda x: x.clip(0.5, 0.5),
    ],
)
def test_corners_against_torch(function):
    same_as_torch(function, np.array(CORNERS))  # without a warning
    same_as_torch(function, np.repeat(CORNERS, 10_000))
    for dtype in ("f2", "f4", "f8"):
        x = leaf(np.array([-100.0, 0.0, 100.0], dtype))
        z = function(x)
        z.backward(np.ones(3))
        assert z.dtype == x.grad.dtype == dtype


def test_functions_of_integers():
    for numbers in ([-2, 0, 100], np.array([0, 2, 200], "u1"), [True, False]):
        x = Tensor(numbers)
        assert (x.abs().data == np.abs(numbers)).all()
        assert (x.clip(1, 2).data == np.clip(numbers, 1, 2)).all()
        want = torch.sigmoid(torch.tensor(np.asarray(numbers, float))).numpy()
        np.testing.assert_allclose(x.sigmoid().data, want, rtol=1e-12)
    assert abs(Tensor([-3])).dtype == np.int64


SHAPES = [
    tuple(1 if stretched else n for stretched, n in zip(choice, (2, 3, 4)[3 - ndim :], strict=True))
    for ndim in range(4)
    for choice in itertools.product([False, True], repeat=ndim)
]


def test_broadcasting_against_torch():
    assert len(SHAPES) == 15
    for left, right in itertools.product(SHAPES, SHAPES):
        for op in (operator.sub, operator.mul, operator.truediv):
            same_as_torch(op, uniform(*left), uniform(*right, seed=1))
    for left, right in [((0, 3), (3,)), ((0,), (1,)), ((2, 0), (2, 1)), ((), (0,))]:
        same_as_torch(operator.mul, uniform(*left), uniform(*right))


def test_halves_are_added_up_in_float32():
    for n, width in ((2500, 2), (4096, 2), (20_000, 3)):
        bias, rows = leaf(np.zeros(width, "f2")), Tensor(np.zeros((n, width), "f2"))
        (rows + bias).backward(np.ones((n, width)))
        assert bias.grad.dtype == np.float16
        assert bias.grad.tolist() == [n] * width  # counted in float16, 2048 + 1 is 2048
    for dtype in ("?", "i4", "f2", "f4", "f8"):
        x = np.ones((3, 4), dtype)
        for axes, keep in itertools.product([(), (0,), (0, 1)], (False, True)):
            total, want = sum_over(x, axes, keep), x.sum(axis=axes, keepdims=keep)
            assert (total == want).all()
            assert (total.shape, total.dtype) == (want.shape, want.dtype)


@SEEDED
@given(st.data())
def test_unbroadcast_is_the_adjoint_of_broadcasting(data):
    target = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3))
    added = data.draw(st.integers(0, len(target)))
    shape = tuple(data.draw(st.sampled_from([1, n])) for n in target[added:])
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = rng.integers(-9, 9, shape).astype(float)  # whole numbers: sums are exact in any order
    s = rng.integers(-9, 9, target).astype(float)
    summed = unbroadcast(s, shape)
    assert summed.shape == shape
    assert (np.broadcast_to(x, target) * s).sum() == (x * summed).sum()


def test_misfits_are_named():
    assert tensor_argument("f", "x", Tensor(1.0)) is None
    for value in (np.ones(3), [1.0], 2.0, None):
        with pytest.raises(TypeError):
            tensor_argument("f", "x", value)
        with pytest.raises(TypeError):
            tensor_argument("f", "x", value, floating=True)
    assert tensor_argument("f", "x", Tensor(1.0), floating=True) is None
    for dtype in ("bool", "int64"):
        with pytest.raises(TypeError):
            tensor_argument("f", "x", Tensor(np.ones(2, dtype)), floating=True)
    x, y = Tensor(np.ones((2, 3))), Tensor(np.ones((2, 4)))
    for op in OPERATORS:
        with pytest.raises(ValueError):
            op(x, y)
        with pytest.raises(ValueError):
            op(y.data, x)
    with pytest.raises(ValueError):
        x + np.ones((4, 1, 3, 3))
    for parents in ((x.data,), (x, x.data)):
        with pytest.raises(TypeError):
            record(x.data, parents, lambda g: (g,))
    with pytest.raises(ValueError):
        Tensor([2, 3]) ** -1
    for shape in [(3,), (2, 2), (2, 3, 1), (1, 2, 3)]:
        with pytest.raises(ValueError):
            unbroadcast(np.ones((2, 4)), shape)


DTYPES = ["bool", "int32", "int64", "float16", "float32", "float64"]


def test_dtypes_promote_as_numpy_does():
    for left, right in itertools.product(DTYPES, DTYPES):
        x, y = np.ones(2, left), np.ones(2, right)
        for op in (operator.add, operator.mul, operator.truediv):
            want = op(x, y).dtype
            assert op(Tensor(x), Tensor(y)).dtype == op(x, Tensor(y)).dtype == want
            assert op(Tensor(x), y).dtype == op(Tensor(x), y[0]).dtype == want
    for dtype, number in itertools.product(DTYPES, (True, 2, 2.0)):
        for x in (np.ones(2, dtype), np.ones((), dtype)):
            assert (Tensor(x) * number).dtype == (x * number).dtype
            assert (number / Tensor(x)).dtype == (number / x).dtype
    assert (Tensor(np.float32(1)) * 0.1).dtype == np.float32  # a number of Python's own is weak
    assert (Tensor(np.float32(1)) * np.float64(0.1)).dtype == np.float64


def test_grad_has_shape_and_dtype_of_data():
    seen = []

    def look(t):
        return record(t.data, (t,), lambda g: (seen.append((g.shape, g.dtype)) or g,))

    x, y, k = leaf(np.ones((2, 1), "f4")), leaf(np.ones(3)), Tensor(np.arange(3))
    half = leaf(np.ones((), "f2"))
    u = look(x * 2 + half)
    z = u * y * k + x.astype("f8") ** half
    z.backward(np.ones((2, 3)))
    assert seen == [((2, 1), np.float32)]
    for t in (x, y, half):
        assert type(t.grad) is np.ndarray
        assert (t.grad.shape, t.grad.dtype) == (t.shape, t.dtype)
    assert k.grad is None
    z = x * y
    z.backward(np.ones((2, 3), "f4"))  # adding keeps it so
    assert (x.grad.shape, x.grad.dtype) == ((2, 1), np.float32)
    assert (y.grad.shape, y.grad.dtype) == ((3,), np.float64)


def test_integers_never_require_grad():
    for dtype in ("bool", "int64", "uint8"):
        with pytest.raises(TypeError):
            Tensor(np.ones(2, dtype), requires_grad=True)
    whole = Tensor([0, 0])
    whole.data = np.array([1, 2])
    whole.requires_grad = False
    with pytest.raises(TypeError):
        whole.requires_grad = True
    assert not whole.requires_grad
    x = leaf([1.0, 2.0])
    with pytest.raises(TypeError):
        x.data = np.array([1, 2])
    assert x.dtype == np.float64
    assert not x.astype(int).requires_grad
    assert not record(np.array([1, 2]), (x,), lambda g: (g,)).requires_grad
    (whole * x).backward([1, 1])
    assert whole.grad is None
    assert x.grad.tolist() == [1, 2]
    for data in (np.ones(2, complex), np.array(["a"]), np.array([None]), "a"):
        with pytest.raises(TypeError):
            Tensor(data)
    with pytest.raises(TypeError):
        x * np.ones(2, complex)
    with pytest.raises(TypeError):
        x.astype(complex)


def test_cotangent_is_checked():
    x = leaf(np.ones((2, 3), "f4"))
    for shape in [(), (3,), (1, 3), (3, 2), (2, 3, 1), (1, 2, 3)]:
        with pytest.raises(ValueError):
            (x * 1).backward(np.ones(shape))
    for bad in (np.ones((2, 3), complex), np.full((2, 3), "1")):
        with pytest.raises(TypeError):
            (x * 1).backward(bad)
    with pytest.raises(ValueError):
        (x * 1).backward()
    assert x.grad is None
    (x * 1).backward(np.ones((2, 3), int))
    (x * 1).backward([[1.0] * 3] * 2)
    assert x.grad.tolist() == [[2.0] * 3] * 2
    seen = []
    y = record(x.data, (x,), lambda g: (seen.append((type(g), g.dtype)) or g,))
    y.backward(np.ones((2, 3)))
    assert seen == [(np.ndarray, np.float32)]  # the result's dtype, whatever came
    one = leaf([[5.0]])
    (one * 2).backward()  # a single number may have axes
    assert one.grad.tolist() == [[2.0]]
    for fixed in (Tensor(1.0), Tensor(1.0) * 2, x.detach()):
        with pytest.raises(RuntimeError):
            fixed.backward(np.ones(fixed.shape))


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (40, 50)])
def test_gradients_share_no_memory(shape):
    c = np.ones(shape)
    leaves = [leaf(uniform(*shape, seed=i)) for i in range(6)]
    a, b, d, e, f, h = leaves
    z = (a + b) - d.astype("f8") + e * 1 + (f + f)
    z.backward(c)
    h.backward(np.asfortranarray(c))  # a leaf of its own accord
    arrays = [c, z.data] + [t.data for t in leaves] + [t.grad for t in leaves]
    for one, other in itertools.combinations(arrays, 2):
        assert not np.shares_memory(one, other)
    for t in leaves:
        assert t.grad.flags.writeable
        assert t.grad.flags.c_contiguous

    assert (c == 1).all()
    before = a.grad
    (a * 2).backward(c)
    assert (before == 1).all()  # a gradient read earlier does not change
    assert (a.grad == 3).all()


def everything(x, y):
    """Each operation once, with constants and broadcasting."""
    z = (x + y) * x / y - x**y + (2 - x) / 3 + 1 / y + 2**x + np.ones(3) * y
    return -z + x.exp().log().sqrt().tanh() + x.astype("f4") ** 2


@pytest.mark.parametrize("rows", [2, 700])
def test_inputs_are_never_written(rows):
    arrays = [uniform(rows, 3), uniform(3, seed=1), uniform(rows, 3, seed=2)]
    kept = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    x, y = leaf(arrays[0]), leaf(arrays[1])
    z = everything(x, y)
    assert x.data is arrays[0]
    z.backward(arrays[2])
    x.backward(arrays[2])
    (x + x).backward(arrays[2])
    for array, copied in zip(arrays, kept, strict=True):
        assert (array == copied).all()


def test_any_memory_layout():
    plain_x, plain_y, plain_c = uniform(2, 3), uniform(3, seed=1), uniform(2, 3, seed=2)
    x, y = leaf(plain_x), leaf(plain_y)
    everything(x, y).backward(plain_c)

    def layouts(array):
        wide = np.zeros([2 * n for n in array.shape])
        holes = wide[tuple(slice(None, None, 2) for _ in array.shape)]
        holes[...] = array
        yield np.asfortranarray(array)
        yield holes
        yield array[::-1].copy()[::-1]
        yield array.astype(">f8")

    for one, other, c in zip(*map(layouts, (plain_x, plain_y, plain_c)), strict=True):
        s, t = leaf(one), leaf(other)
        assert np.shares_memory(s.data, one)
        assert np.shares_memory(t.data, other)
        everything(s, t).backward(c)
        assert (s.grad.dtype, t.grad.dtype) == (one.dtype, other.dtype)
        np.testing.assert_allclose(s.grad, x.grad, rtol=1e-12)
        np.testing.assert_allclose(t.grad, y.grad, rtol=1e-12)

    row = np.broadcast_to(uniform(3), (2, 3))  # both rows in the same memory
    s = leaf(row)
    (s * s).backward(plain_c)
    np.testing.assert_allclose(s.grad, 2 * row * plain_c, rtol=1e-12)


def test_memory_is_released_on_the_way():
    x, gone = leaf(2.0), []
    first = record(x.data, (x,), lambda g: (gone.append(node() is None) or g,))
    u = first.exp()
    node = weakref.ref(u)
    z = u.tanh() * 1.0
    del u
    assert node() is not None  # held by the graph
    z.backward()
    assert gone == [True]  # by the time the walk came to the first operation
    assert z.item() == np.tanh(np.exp(2.0))


def test_second_backward_raises():
    x = leaf(3.0)
    u = x * x
    y = u * 2
    y.backward()
    assert x.grad == 12
    for released in (y, u):
        with pytest.raises(RuntimeError):
            released.backward()
    assert x.grad == 12
    x.backward()  # a leaf has no graph to release: each call adds
    x.backward()
    assert x.grad == 14


def test_retain_graph_adds():
    x = leaf(3.0)
    y = x * x * 2
    y.backward(retain_graph=True)
    y.backward(retain_graph=True)
    assert x.grad == 24
    y.backward(10.0)
    assert x.grad == 144
    with pytest.raises(RuntimeError):
        y.backward()


def test_shared_part_of_two_results():
    x, w = leaf(3.0), leaf(1.0)
    u = x * x
    first, second = u * 2, u * w
    first.backward()
    with pytest.raises(RuntimeError):
        second.backward()
    assert (x.grad, w.grad) == (12, None)  # refused before anything changed

    x, w = leaf(3.0), leaf(1.0)
    u = x * x
    (u * 2).backward(retain_graph=True)
    (u * w).backward()
    assert (x.grad, w.grad) == (18, 9)


def test_data_may_be_assigned_before_backward():
    x, y = leaf([2.0, 4.0]), leaf([3.0, 5.0])
    z = x * y + x.log() + x.exp() * 0 + x**y * 0 + y / x * 0
    x.data = np.array([100.0, 100.0])
    y.data = np.array([200.0, 200.0])
    z.backward([1, 1])
    assert x.grad.tolist() == [3.5, 5.25]  # y + 1/x as they were
    assert y.grad.tolist() == [2, 4]

    before = x.grad
    x.data = np.array([7.0, 8.0])
    assert x.grad is before
    x.data = np.array([7.0, 8.0], "f4")
    assert x.grad is None
    x.grad = np.ones(2, "f4")
    x.data = np.array([[7.0, 8.0]], "f4")
    assert x.grad is None
    assert x.shape == (1, 2)
    with pytest.raises(TypeError):
        x.data = np.array(["a"])


def test_no_grad_nests_and_ends():
    x = leaf(2.0)
    assert is_recording()
    with no_grad():
        with no_grad():
            assert not is_recording()
        assert not is_recording()
        y = x * 2
    assert is_recording()
    assert not y.requires_grad
    assert y.item() == 4

    with pytest.raises(KeyError), no_grad():
        raise KeyError
    assert is_recording()

    @no_grad()
    def evaluate(depth):
        return not is_recording() and (depth == 0 or evaluate(depth - 1)) and not is_recording()

    assert evaluate(3)
    assert is_recording()

    elsewhere = []
    with no_grad():
        thread = threading.Thread(target=lambda: elsewhere.append(is_recording()))
        thread.start()
        thread.join()
    assert elsewhere == [True]

    y = x * 2
    with no_grad():
        y.backward()  # the walk itself needs no recording
    assert x.grad == 2


def test_no_grad_in_a_generator_that_is_closed_elsewhere():
    def rows():
        with no_grad():
            yield is_recording()
            yield is_recording()

    paused, elsewhere = rows(), contextvars.copy_context()
    assert elsewhere.run(next, paused) is False
    assert is_recording()
    paused.close()
    assert is_recording()
    with no_grad():
        paused = rows()
        elsewhere.run(next, paused)
        paused.close()
        assert not is_recording()  # another's end is not ours
    assert is_recording()

    paused = rows()
    next(paused)
    assert not is_recording()  # its block is open here
    contextvars.copy_context().run(paused.close)
    assert is_recording()

    paused = rows()
    next(paused)
    with no_grad():
        paused.close()
        assert not is_recording()
    assert is_recording()


def test_no_grad_is_for_one_block_or_function():
    def generator():
        yield is_recording()

    async def coroutine():
        return is_recording()

    async def asynchronous():
        yield is_recording()

    for function in (generator, coroutine, asynchronous):
        with pytest.raises(TypeError):
            no_grad()(function)
    once = no_grad()
    with once, pytest.raises(RuntimeError):
        once.__enter__()
    assert is_recording()


def test_requires_grad_is_for_leaves():
    x = leaf(2.0)
    y = x * 2
    with pytest.raises(RuntimeError):
        y.requires_grad = False
    x.requires_grad = False
    assert not (x * 2).requires_grad
    z = (x * 2).detach()
    z.requires_grad = True
    (z * y).backward()
    assert (z.grad, x.grad) == (4, None)


def test_detach_and_numpy_look_at_the_same_array():
    x = leaf([1.0, 2.0])
    y = x * 2
    cut = y.detach()
    assert cut.data is y.data
    assert y.numpy() is y.data
    assert not cut.requires_grad
    (cut * x).backward([1, 1])
    assert x.grad.tolist() == [2, 4]


def test_results_have_the_most_derived_class():
    class Child(Tensor):
        __slots__ = ()

    class Grandchild(Child):
        __slots__ = ()

    for one, other in itertools.product((Tensor, Child, Grandchild), repeat=2):
        want = one if issubclass(one, other) else other
        for grad in (True, False):
            x, y = one(2.0, requires_grad=grad), other(3.0)
            for op in OPERATORS:
                assert type(op(x, y)) is type(op(y, x)) is want
                assert type(op(x, 2)) is type(op(2.0, x)) is type(op(np.ones(3), x)) is one
            assert type(record(x.data, [y, x, y], lambda g: (g, g, g))) is want
            for z in (x.exp(), x.log(), x.sqrt(), x.tanh(), -x, x.astype("f4"), x.detach()):
                assert type(z) is one


def test_failed_backward_changes_no_gradient():
    def failing(t, backward):
        return record(t.data, (t,), backward)

    def explode(g):
        raise ZeroDivisionError("by its own fault")

    faults = [
        (explode, ZeroDivisionError),
        (lambda g: (), ValueError),
        (lambda g: (g, g), ValueError),
        (lambda g: (g[:1],), ValueError),
        (lambda g: (g[None],), ValueError),
        (lambda g: (2.0,), TypeError),
    ]
    for backward, error in faults:
        x = leaf(np.ones((2, 3)))
        y = x * 2 + failing(x * 3, backward)
        with pytest.raises(error):
            y.backward(np.ones((2, 3)))
        assert x.grad is None


def test_backward_functions_get_arrays():
    types = []
    x = leaf(2.0)
    y = record(x.data * 1, (x,), lambda g: (types.append(type(g)) or g,))
    (y * 2 + y).backward()
    assert types == [np.ndarray]
    assert type(y.data) is np.ndarray
    assert x.grad == 3


def test_numpy_does_not_swallow_tensors():
    x = leaf([1.0, 2.0])
    for left in (np.ones(2), np.float64(1), np.ones((3, 2))):
        assert type(left + x) is type(left - x) is type(left * x) is type(left / x) is Tensor
    with pytest.raises(TypeError):
        np.asarray(x)
    with pytest.raises(TypeError):
        np.concatenate([x, x])
    with pytest.raises(TypeError):
        np.exp(x)
    assert np.asarray(x.detach()) is x.data
    assert np.asarray(x.detach(), dtype="f4").dtype == np.float32
    for other in ([1.0, 2.0], "a", None, 1j):
        for op in OPERATORS:
            with pytest.raises(TypeError):
                op(x, other)
            with pytest.raises(TypeError):
                op(other, x)


def test_a_tensor_is_an_ordinary_object():
    x = Tensor([[1.5, 2.0]], requires_grad=True)
    assert (x.shape, x.dtype, x.ndim, x.size) == ((1, 2), np.float64, 2, 2)
    assert repr(x) == "Tensor([[1.5, 2. ]], dtype=float64, requires_grad=True)"
    assert repr(Tensor(3)) == "Tensor(3, dtype=int64)"
    assert float(Tensor([[2.5]])) == Tensor(2.5).item() == 2.5
    assert type(Tensor(3).item()) is int
    with pytest.raises(ValueError):
        x.item()
    assert bool(Tensor(1.0))
    assert not bool(Tensor([0]))
    with pytest.raises(ValueError):
        bool(x)
    assert {x: 1}[x] == 1
    assert Tensor(x.data) not in {x}  # two objects, whatever is in them
    assert int(Tensor([2.9])) == 2
    assert [5, 6, 7][Tensor(2)] == 7
    for other in (Tensor([2]), Tensor(2.0), Tensor(True)):
        with pytest.raises(TypeError):
            operator.index(other)
    assert x.tolist() == [[1.5, 2.0]]
    assert type(Tensor(3).tolist()) is int
    loss = leaf([[2 / 3]])
    assert f"{loss:.4f} {Tensor(7):03d} {loss.data.size}" == "0.6667 007 1"
    assert f"{x}" == str(x) == repr(x)
    with pytest.raises(TypeError):
        f"{x:.4f}"
    single = Tensor([0.1, 2], requires_grad=True, dtype="f4")
    assert single.dtype == np.float32
    assert Tensor([1.7], dtype=int).tolist() == [1]
    assert Tensor(x.data, dtype=np.float64).data is x.data
    with pytest.raises(TypeError):
        Tensor([1.0], requires_grad=True, dtype=int)
    with pytest.raises(TypeError):
        Tensor([1.0], dtype=complex)
    with pytest.raises(AttributeError):
        x.gard = None
    x.grad = np.ones((1, 2))
    for twin in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert twin.requires_grad
        assert (twin.data == x.data).all()
        assert (twin.grad == x.grad).all()
        assert not np.shares_memory(twin.data, x.data)


def test_results_are_not_copied():
    x = leaf([1.0, 2.0])
    y = x * 2
    for call in (copy.copy, copy.deepcopy, pickle.dumps):
        for held in (y, {"loss": [y]}):
            if call is not copy.copy or held is y:
                with pytest.raises(RuntimeError):
                    call(held)
    assert copy.deepcopy(y.detach()).tolist() == [2, 4]
    with no_grad():
        assert copy.deepcopy(x * 2).tolist() == [2, 4]
    y.backward([1, 1])
    with pytest.raises(RuntimeError):
        copy.deepcopy(y)  # released, and still a result
    assert x.grad.tolist() == [2, 2]


COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("compare", COMPARISONS)
def test_comparisons_are_elementwise(compare):
    numbers = np.array([[0.0, -0.0, 1.0], [2.0, np.nan, np.inf]], "f4")
    x = leaf(numbers)
    others = (
        0,
        1.0,
        True,
        np.float64(1),
        np.int64(1),
        0.1,
        np.array([0, 1, 2]),
        numbers,
        numbers[:, :1],
    )
    for other in others:
        for left, right in ((x, other), (other, x), (x, Tensor(other)), (Tensor(other), x)):
            plain = [t.data if isinstance(t, Tensor) else t for t in (left, right)]
            found, want = compare(left, right), compare(*plain)
            assert type(found) is np.ndarray
            assert found.dtype == bool
            assert (found == want).all()
            assert found.shape == want.shape
    assert compare(x, [0, 1, 2]).tolist() == compare(x, (0, 1, 2)).tolist()
    assert compare(x, [0, 1, 2]).tolist() == compare(numbers, [0, 1, 2]).tolist()
    assert compare([0, 1, 2], x).tolist() == compare(np.array([0, 1, 2]), numbers).tolist()
    one = compare(Tensor(2), 2)
    assert (type(one), one.shape) == (np.ndarray, ())
    assert bool(one) == compare(2, 2)
    assert compare(Tensor(np.zeros((0, 3))), 1).shape == (0, 3)
    for other in (Tensor(np.ones(2)), np.ones((2, 2)), [1, 2]):
        with pytest.raises(ValueError):
            compare(x, other)
    for other in (
        None,
        "a",
        np.str_("a"),
        object(),
        {0, 1, 2},
        ["a"],
        np.array(["a"]),
        np.array(None),
    ):
        if compare in (operator.eq, operator.ne):
            assert compare(x, other) is compare(other, x) is (compare is operator.ne)
        else:
            with pytest.raises(TypeError):
                compare(x, other)


@pytest.mark.parametrize("compare", COMPARISONS)
def test_comparisons_with_whatever_numpy_can_compare(compare):
    x = Tensor([0, 1, 2])
    same = (
        range(3),
        torch.arange(3),
        np.array([0, 1, 2], object),
        plain_array("d", [0, 1, 2]),
        memoryview(plain_array("i", [0, 1, 2])),
        deque([0, 1, 2]),
        [Fraction(0), Decimal(1), 2],
    )
    for other in same:
        assert compare(x, other).tolist() == [compare(n, n) for n in range(3)]
    for one in (Fraction(1), Decimal(1), np.array(1, object), 2**70, [2**70, 1, 0]):
        others = np.broadcast_to(np.array(one, object), 3)
        found = compare(x, one)
        assert found.dtype == bool
        assert found.tolist() == [compare(n, m) for n, m in enumerate(others)]
    for other in (1j, 1 + 0j, [0, 1, 2j], np.array([0, 1, 2], complex), [0, None, 2]):
        if compare in (operator.eq, operator.ne):
            others = np.broadcast_to(np.array(other, object), 3)
            assert compare(x, other).tolist() == [compare(n, m) for n, m in enumerate(others)]
        else:
            with pytest.raises(TypeError):
                compare(x, other)


def test_bounds_of_clip_are_numbers():
    x = leaf(np.array([0.25, 1.0], "f4"))
    for low in (np.float64(0.5), np.array(0.5), 0.5):
        z = x.clip(low)
        assert z.dtype == np.float32
        assert z.data.tolist() == [0.5, 1.0]
    for wrong in (np.zeros((4, 2)), np.zeros(2), Tensor(0.0), [0.0], "0"):
        for bounds in ({"low": wrong}, {"high": wrong}):
            with pytest.raises(TypeError):
                x.clip(**bounds)


def test_the_tensors_of_others_do_not_mix():
    x = leaf(np.ones(2))
    for operation in (operator.add, operator.mul, operator.pow):
        with pytest.raises(TypeError):
            operation(x, torch.ones(2))


def test_masks_of_comparisons():
    x, y = leaf([0.0, 3.0, 0.0]), np.array([0, 3, 1])
    assert x.data[x == 0].tolist() == [0, 0]
    assert np.mean(x == y) == (x == y).mean() == 2 / 3
    assert (x * (x > 1)).requires_grad
    (x * (x > 1)).backward([1, 1, 1])
    assert x.grad.tolist() == [0, 1, 0]


def test_in_place_operators_are_refused():
    operators = ["iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul"]
    for name, other in itertools.product(operators, (2.0, np.ones(2), Tensor([1.0, 2.0]))):
        p = leaf([1.0, 2.0])
        with pytest.raises(TypeError):
            getattr(operator, name)(p, other)
        assert p.tolist() == [1, 2]
    p.grad = np.ones(2)
    p.data -= 0.5 * p.grad
    assert p.tolist() == [0.5, 1.5]


SIZES = [(), (1, 1, 1, 1), (9,), (33, 2), (2, 130), (3, 2, 2, 1, 2), (2, 1, 3, 1, 2, 2), (140, 80)]


@pytest.mark.parametrize("shape", SIZES)
def test_operations_at_every_size(shape):
    for function in FUNCTIONS.values():
        same_as_torch(function, uniform(*shape))
    stretched = uniform(*[1] * (len(shape) % 2), *shape[-1:], seed=1)  # a row, or two axes
    for op in OPERATORS:
        same_as_torch(op, uniform(*shape), uniform(*shape, seed=1))
        same_as_torch(op, uniform(*shape), stretched)
        same_as_torch(op, stretched, uniform(*shape))
    for dtype in ("f2", "f4", "f8"):
        x, other = leaf(uniform(*shape).astype(dtype)), uniform(*shape, seed=1).astype(dtype)
        results = [function(x) for function in FUNCTIONS.values()]
        results += [op(x, y) for op in OPERATORS for y in (x, other, 2)]
        assert {z.dtype for z in results} == {np.dtype(dtype)}
        seen = []
        y = record(x.data, (x,), lambda g, seen=seen: (seen.append(g.dtype) or g,))
        (y.astype("f4") + y.astype("f8")).backward(np.ones(shape))
        assert seen == [x.dtype]


@SEEDED
@given(st.data())
def test_drawn_shapes_against_torch(data):
    side = st.sampled_from([0, 1, 1, 2, 3, 5, 9, 34])
    shape = data.draw(st.lists(side, max_size=4).map(tuple))
    left, right = (
        tuple(data.draw(st.sampled_from([1, n, n])) for n in shape[data.draw(cut) :])
        for cut in (st.just(0), st.integers(0, len(shape)))
    )
    op, swapped = data.draw(st.sampled_from(OPERATORS)), data.draw(st.booleans())
    wants = data.draw(st.sampled_from([(True, True), (True, False), (False, True)]))
    dtypes = [data.draw(st.sampled_from(["f4", "f8"])) for _ in wants]
    arrays = [
        uniform(*s, seed=i).astype(d)
        for i, (s, d) in enumerate(zip((left, right), dtypes, strict=True))
    ]
    ours = [Tensor(x, requires_grad=want) for x, want in zip(arrays, wants, strict=True)]
    theirs = [torch.tensor(x, requires_grad=want) for x, want in zip(arrays, wants, strict=True)]
    results = []
    for x, y in (ours, theirs):
        z = op(y, x) if swapped else op(x, y)
        results.append(z * x + z / y)  # x, y and z are used twice
    mine, its = results
    tolerance = 1e-12 if dtypes == ["f8", "f8"] else 2e-4
    assert mine.dtype == np.result_type(*arrays)
    np.testing.assert_allclose(mine.data, its.detach().numpy(), rtol=tolerance)
    cotangent = uniform(*mine.shape, seed=2).astype(mine.dtype)
    mine.backward(cotangent)
    its.backward(torch.tensor(cotangent))
    for x, t in zip(ours, theirs, strict=True):
        assert (x.grad is None) == (t.grad is None)
        if x.grad is not None:
            assert (x.grad.shape, x.grad.dtype) == (x.shape, x.dtype)
            np.testing.assert_allclose(x.grad, t.grad.numpy(), rtol=tolerance, atol=tolerance)


def test_numbers_of_every_size():
    tiny, large = 10.0 ** -np.arange(1, 300, 13), 10.0 ** np.arange(0, 300, 13)
    spread = np.concatenate([-large[:3], -tiny, tiny, large[:3]])  # up to 10**26
    scores = np.array([-700.0, -100, -51, -20, -9, 9, 20, 51, 100, 700])
    tests = [
        (lambda x: x.exp(), scores),
        (lambda x: x.sigmoid(), scores),
        (lambda x: x.tanh(), np.concatenate([scores, spread])),
        (lambda x: abs(x) - x / 3, np.concatenate([-large, large])),
        (lambda x: x.log(), np.concatenate([tiny, large])),
        (lambda x: x.sqrt(), np.concatenate([tiny, large])),
        (lambda x: x.clip(-1e9, 1e9) * 2 - x, spread),
        (lambda x: 1 / x + x * x / (3 * x), np.concatenate([tiny[:10], large[:10]])),
        (lambda x: x**2, spread),
        (lambda x: x**9 + x**-9 + x**2.5 + 1.5**x, np.array([0.5, 2.0, 11.0, 60.0])),
    ]
    for function, numbers in tests:
        x, t = leaf(numbers), torch.tensor(numbers, requires_grad=True)
        z, want = function(x), function(t)
        np.testing.assert_allclose(z.data, want.detach().numpy(), rtol=1e-12)
        z.backward(np.ones(z.shape))
        want.backward(torch.ones(want.shape))
        np.testing.assert_allclose(x.grad, t.grad.numpy(), rtol=1e-12, atol=1e-15)


def test_many_uses_and_many_parents():
    x = leaf(np.ones(2))
    u = x * 3
    y = u
    for _ in range(999):
        y = y + u
    y.backward([1, 1])
    assert x.grad.tolist() == [3000, 3000]

    parents = [Tensor(float(i)) for i in range(300)]
    for place in (0, 8, 64, 299):
        own = [leaf(0.0) if i == place else t for i, t in enumerate(parents)]
        z = record(np.array(0.0), own, lambda g: [np.asarray(i * g) for i in range(300)])
        z.backward()
        assert own[place].grad == place
    assert all(t.grad is None for t in parents)


def test_no_call_remembers_another():
    functions = [*FUNCTIONS.values(), *(lambda x, op=op: op(x, x) + op(2, x) for op in OPERATORS)]
    for function, shape in itertools.product(functions, [(2, 3), (2, 3, 4)]):
        first, second = uniform(*shape), uniform(*shape, seed=1)
        x = leaf(first.copy())
        z = function(x)
        kept = z.data.copy()
        z.backward(np.ones(shape))
        grad, was = x.grad, x.grad.copy()
        x.grad = None
        x.data[...] = second  # the same array, other numbers
        fresh = leaf(second)
        again, want = function(x), function(fresh)
        assert (z.data == kept).all()  # no later call writes into an earlier one's result
        assert (again.data == want.data).all()
        again.backward(np.ones(shape))
        want.backward(np.ones(shape))
        assert (x.grad == fresh.grad).all()
        assert (grad == was).all()


def test_constants_are_read_at_each_call():
    constant, x = np.array([2.0, 3.0]), leaf([1.0, 1.0])
    for value in (5.0, 7.0, 9.0):
        for op in OPERATORS:
            constant[:] = value
            assert op(x, constant).tolist() == op(np.ones(2), constant).tolist()
            assert op(constant, x).tolist() == op(constant, np.ones(2)).tolist()


def test_gradients_add_up_over_many_calls():
    x = leaf([1.0, 2.0])
    y = x * x
    for _ in range(20):
        y.backward([1, 1], retain_graph=True)
    assert x.grad.tolist() == [40, 80]
    for _ in range(20):
        (x * 1).backward([1, 1])
    assert x.grad.tolist() == [60, 100]
    with no_grad():
        assert not (x * 2).requires_grad
    (x * 1).backward([1, 1])  # recorded again
    assert x.grad.tolist() == [61, 101]
    x.requires_grad = False
    assert not (x * 2).requires_grad
    x.requires_grad = True
    (x * 1).backward([1, 1])
    assert x.grad.tolist() == [62, 102]
