# Tangled from book/1-foundations/L0.3-tests.md
"""L0.3: products and reductions against torch, and by laws that need no oracle."""

import itertools
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tinyllm import autograd, shapes, tensor
from tinyllm.tensor import Tensor

SEEDED = settings(derandomize=True, database=None, deadline=None)


def leaf(data, dtype=float):
    return Tensor(np.asarray(data, dtype=dtype), requires_grad=True)


def whole(shape, seed=0):
    """Whole numbers, as floats: sums and products are exact."""
    return np.asarray(np.random.default_rng(seed).integers(-9, 10, shape), dtype=float)


def normal(shape, seed=0):
    return np.asarray(np.random.default_rng(seed).normal(size=shape))


def same_as_torch(function, *arrays, like=None):
    """Values and gradients to 1e-12; `like` is the expression in torch's words."""
    ours = [leaf(x) for x in arrays]
    theirs = [torch.tensor(x, requires_grad=True) for x in arrays]
    z, t = function(*ours), (like or function)(*theirs)
    assert z.shape == tuple(t.shape)
    np.testing.assert_allclose(z.data, t.detach().numpy(), rtol=1e-12, atol=1e-12)
    g = normal(z.shape, seed=9)
    z.backward(g)
    t.backward(torch.tensor(g))
    for mine, its in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.grad, its.grad.numpy(), rtol=1e-12, atol=1e-12)


def softmax(s):
    """Weights along the last axis, by the operations of this chapter."""
    e = (s - s.max(axis=-1, keepdims=True)).exp()
    return e / e.sum(axis=-1, keepdims=True)


def attention(q, k, v):
    """Scaled dot-product attention: q [.., Tq, dh], k and v [.., Tk, dh]."""
    weights = softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5)  # [.., Tq, Tk]
    return weights @ v  # [.., Tq, dh]


def test_hand_example():
    x, y = leaf([[1, 2, 3], [4, 5, 6]]), leaf([[1, 0], [0, 1], [1, 1]])
    z = x @ y
    z.backward([[1, 0], [0, 10]])
    assert z.data.tolist() == [[4, 5], [10, 11]]
    assert x.grad.tolist() == [[1, 0, 1], [0, 10, 10]]
    assert y.grad.tolist() == [[1, 40], [2, 50], [3, 60]]

    rows = [[1, 3, 3], [2, 0, 1]]
    x = leaf(rows)
    z = x.sum(axis=1)
    z.backward([10, 100])
    assert z.data.tolist() == [7, 3]
    assert x.grad.tolist() == [[10, 10, 10], [100, 100, 100]]
    x = leaf(rows)
    z = x.max(axis=1)
    z.backward([10, 100])
    assert z.data.tolist() == [3, 2]
    assert x.grad.tolist() == [[0, 5, 5], [100, 0, 0]]
    x = leaf(rows)
    z = x.mean(axis=0)
    z.backward([2, 4, 6])
    assert z.data.tolist() == [1.5, 1.5, 2]
    assert x.grad.tolist() == [[1, 2, 3], [1, 2, 3]]

    s = leaf([1, 2, 3])
    w = softmax(s)
    w.backward([1, 0, 0])
    np.testing.assert_allclose(w.data, [0.0900, 0.2447, 0.6652], atol=5e-5)
    np.testing.assert_allclose(s.grad, [0.0819, -0.0220, -0.0599], atol=5e-5)


PRODUCTS = [
    ((3,), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3,)),
    ((2, 3), (3, 4)),
    ((3, 3), (3, 3)),
    ((1, 1), (1, 1)),
    ((1, 3), (3, 1)),
    ((3, 1), (1, 3)),
    ((5, 2, 3), (3, 4)),
    ((6, 5, 2, 3), (3, 4)),
    ((5, 2, 3), (3,)),
    ((6, 5, 2, 3), (3,)),
    ((2, 3), (5, 3, 4)),
    ((3,), (5, 3, 4)),
    ((3,), (6, 5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((3, 3, 3), (3, 3, 3)),
    ((1, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (1, 3, 4)),
    ((6, 1, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (6, 1, 3, 4)),
    ((6, 1, 2, 3), (1, 5, 3, 4)),
    ((0, 3), (3, 2)),
    ((2, 0), (0, 3)),
    ((0, 2, 3), (3, 4)),
    ((5, 2, 0), (0, 4)),
    ((5, 0, 3), (5, 3, 0)),
]


@pytest.mark.parametrize(("left", "right"), PRODUCTS)
def test_products_against_torch(left, right):
    same_as_torch(lambda x, y: x @ y, normal(left), normal(right, seed=1))


@SEEDED
@given(st.data())
def test_product_law(data):
    signature = "(m?,k),(k,n?)->(m?,n?)"
    found = data.draw(hnp.mutually_broadcastable_shapes(signature=signature, max_side=9))
    left, right = found.input_shapes
    if len(left) == 1 or len(right) == 1:  # gufunc signatures keep batch axes only beside matrices
        left, right = left[-2:], right[-2:]
    wants = data.draw(st.sampled_from([(True, True), (True, False), (False, True)]))
    arrays = whole(left), whole(right, seed=1)
    x, y = (Tensor(a, requires_grad=want) for a, want in zip(arrays, wants, strict=True))
    z = x @ y
    assert (z.data == np.matmul(x.data, y.data)).all()
    g = whole(z.shape, seed=2)
    z.backward(g)
    for t in (x, y):
        assert (t.grad is None) != t.requires_grad
        assert t.grad is None or (t.data * t.grad).sum() == (z.data * g).sum()


def test_arrays_on_either_side():
    x, array = leaf(whole((2, 3))), whole((3, 4), seed=1)
    for constant in (array, Tensor(array), autograd.Tensor(array)):
        x.grad = None
        z = x @ constant
        assert type(z) is Tensor
        assert (z.data == x.data @ array).all()
        z.backward(np.ones((2, 4)))
        assert (x.grad == np.ones((2, 4)) @ array.T).all()
    for constant in (array.T, Tensor(array.T), autograd.Tensor(array.T)):
        z = constant @ x.T
        assert type(z) is Tensor
        x.grad = None
        z.backward(np.ones((4, 2)))
        assert (x.grad == (array @ np.ones((4, 2))).T).all()
    for other in (2, 2.0, np.float64(2), [[1.0]], None):
        with pytest.raises(TypeError):
            x @ other
        with pytest.raises(TypeError):
            other @ x


def test_a_shared_matrix_needs_no_batch_of_gradients():
    x, w = Tensor(normal((64, 8, 32))), leaf(normal((32, 256)))  # w: 64 KiB; 64 of it: 4 MiB
    z = x @ w  # 1 MiB
    g = np.ones(z.shape)
    tracemalloc.start()
    z.backward(g)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert w.grad.shape == (32, 256)
    assert peak < 2**19


def test_only_wanted_gradients_are_computed():
    # 0 * inf warns, and warnings are errors: the other operand's gradient must not be tried
    x, y = Tensor([[1.0, 2.0]]), leaf([[np.inf], [1.0]])
    z = x @ y
    z.backward([[0.0]])
    assert x.grad is None
    assert y.grad.tolist() == [[0], [0]]
    x, y = leaf([[np.inf, 1.0]]), Tensor([[1.0], [2.0]])
    z = x @ y
    z.backward([[0.0]])
    assert y.grad is None
    assert x.grad.tolist() == [[0, 0]]


REDUCTIONS = {
    "sum": lambda t, axis, keep: t.sum(dim=axis, keepdim=keep),
    "mean": lambda t, axis, keep: t.mean(dim=axis, keepdim=keep),
    "max": lambda t, axis, keep: t.amax(dim=axis, keepdim=keep),
    "min": lambda t, axis, keep: t.amin(dim=axis, keepdim=keep),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_against_torch(name):
    for shape in ((2, 3, 4), (3, 3, 3)):
        for size in range(1, 4):
            for axes in itertools.combinations(range(3), size):
                for axis in (axes, axes[::-1], tuple(a - 3 for a in axes), *axes[: 2 - size]):
                    for keep in (False, True):
                        same_as_torch(
                            lambda x, a=axis, k=keep: getattr(x, name)(axis=a, keepdims=k),
                            normal(shape),
                            like=lambda t, a=axis, k=keep: REDUCTIONS[name](t, a, k),
                        )
        for keep in (False, True):
            same_as_torch(
                lambda x, k=keep: getattr(x, name)(keepdims=k),
                normal(shape),
                like=lambda t, k=keep: REDUCTIONS[name](t, (0, 1, 2), k),
            )
        x = leaf(normal(shape))
        z = getattr(x, name)(axis=())  # no axis: nothing is reduced
        g = normal(shape, seed=1)
        z.backward(g)
        assert (z.data == x.data).all()
        assert (x.grad == g).all()
    same_as_torch(
        lambda x: getattr(x, name)(), normal(()), like=lambda t: REDUCTIONS[name](t, (), False)
    )


def test_ties_share_evenly():
    for rows in ([[1, 3, 3], [2, 0, 1], [5, 5, 5]], np.zeros((4, 4)), np.full((2, 3), -np.inf)):
        for axis, name in itertools.product((0, 1, (0, 1)), ("max", "min")):
            same_as_torch(
                lambda x, a=axis, n=name: getattr(x, n)(axis=a),
                np.asarray(rows, dtype=float),
                like=lambda t, a=axis, n=name: REDUCTIONS[n](t, a, False),
            )
    x = leaf([3, 3, 1, 3], "f4")
    x.max().backward()
    assert x.grad.tolist() == [np.float32(1 / 3), np.float32(1 / 3), 0, np.float32(1 / 3)]


def test_nan_keeps_its_gradient():
    for name, rows in (("max", [[0, 10, 0], [0, 100, 0]]), ("min", [[0, 10, 0], [100, 0, 0]])):
        x = leaf([[1, np.nan, 2], [1, 4, 2], [np.nan, np.nan, np.inf]])
        z = getattr(x, name)(axis=1)
        z.backward([10, 100, 1000])
        assert np.isnan(z.data).tolist() == [True, False, True]
        assert x.grad.tolist() == [*rows, [500, 500, 0]]


def test_sums_and_means_of_many_halves():
    x, t = (
        leaf(np.ones(100_000), "f2"),
        torch.ones(100_000, dtype=torch.float16, requires_grad=True),
    )
    x.mean().backward()
    t.mean().backward()
    assert (x.grad == t.grad.numpy()).all()  # 1e-5, as well as float16 has it
    assert x.grad[0] > 0
    x = leaf(np.ones((2, 70_000)), "f2")
    (x.mean(axis=1) * 1000).backward([1, 1])
    np.testing.assert_allclose(x.grad, 1 / 70, rtol=1e-3)
    x = leaf(np.ones((4096, 2)), "f2")
    assert x.sum(axis=0).tolist() == [4096, 4096]
    assert x.sum(axis=0).dtype == x.mean(axis=0).dtype == np.float16


def test_nothing_to_reduce():
    for shape, axis in (((0,), None), ((0, 3), 0), ((3, 0), 1), ((2, 0, 3), (0, 1))):
        x = Tensor(np.zeros(shape))
        for name in (
            "mean",
            "max",
            "min",
        ):
            with pytest.raises(ValueError):
                getattr(x, name)(axis=axis)
    same_as_torch(lambda x: x.sum(axis=0), np.zeros((0, 3)), like=lambda t: t.sum(dim=0))
    for name in REDUCTIONS:
        same_as_torch(
            lambda x, n=name: getattr(x, n)(axis=1),
            np.zeros((0, 3)),
            like=lambda t, n=name: REDUCTIONS[n](t, 1, False),
        )
    assert Tensor(np.zeros((0, 3))).sum().item() == 0


def test_argmax_against_torch():
    for shape in ((5,), (3, 3), (2, 3, 1), (40, 50)):
        x = whole(shape)  # with ties
        for axis in (None, *range(-len(shape), len(shape))):
            for keep in (False, True):
                found = leaf(x).argmax(axis, keep)
                want = torch.tensor(x).argmax(dim=axis, keepdim=keep).numpy()
                assert (found == want).all()
                assert found.shape == want.shape
                assert found.dtype == np.intp
                assert isinstance(found, np.ndarray | np.intp)
    assert leaf([1, np.nan, 3, np.nan]).argmax() == 1
    assert (Tensor([[0.1, 0.9], [0.8, 0.2]]).argmax(axis=-1) == np.array([1, 1])).mean() == 0.5
    for shape, axis in (((0,), None), ((3, 0), 1), ((2, 3), 2)):
        with pytest.raises(ValueError):
            Tensor(np.zeros(shape)).argmax(axis)


def test_where_against_torch():
    for shapes_of in (
        ((2, 3),) * 3,
        ((3,), (2, 1), (2, 3)),
        ((2, 3), (), (3,)),
        ((1,), (0, 1), (0, 3)),
    ):
        condition = normal(shapes_of[0], seed=5) > 0
        for given_as in (condition, Tensor(condition), condition.tolist()):
            same_as_torch(
                lambda a, b, c=given_as: tensor.where(c, a, b),
                normal(shapes_of[1]),
                normal(shapes_of[2], seed=1),
                like=lambda a, b, c=condition: torch.where(torch.tensor(c), a, b),
            )
    condition = np.array([True, False])
    for other in (0.5, -np.inf, np.float64(2), np.array([3.0, 4.0]), [3.0, 4.0]):
        x, t = leaf([1, 2]), torch.tensor([1.0, 2.0], dtype=float, requires_grad=True)
        z, y = tensor.where(condition, x, other), tensor.where(condition, other, x)
        u = torch.where(torch.tensor(condition), t, torch.tensor(other, dtype=float))
        v = torch.where(torch.tensor(condition), torch.tensor(other, dtype=float), t)
        assert z.tolist() == u.tolist()
        assert y.tolist() == v.tolist()
        z.backward([10, 100])
        u.backward(torch.tensor([10, 100]))
        y.backward([1000, 10_000])
        v.backward(torch.tensor([1000, 10_000]))
        assert x.grad.tolist() == t.grad.tolist() == [10, 10_000]


def test_where_does_not_see_what_it_leaves_out():
    for n in (1300, 1):
        x = leaf(np.repeat([np.nan, np.inf, 4], n))
        z = tensor.where(x > 0, x, 0.0)
        assert z.tolist() == np.repeat([0, np.inf, 4], n).tolist()
        z.backward(np.repeat([np.nan, 1, 2], n))
        assert x.grad.tolist() == np.repeat([0, 1, 2], n).tolist()
    half = leaf([-1, 4], "f4")
    z = tensor.where(half > 0, half, 0.0)
    assert z.dtype == np.float32
    assert tensor.where(True, half, leaf([1, 2])).dtype == np.float64
    both = tensor.where([True, False], 1, 2)
    assert (type(both), both.tolist(), both.requires_grad) == (Tensor, [1, 2], False)
    assert type(tensor.where(True, autograd.Tensor(1.0), 0)) is autograd.Tensor
    for condition in ([1, 0], 1.0, x, "a"):
        with pytest.raises(TypeError):
            tensor.where(condition, x, x)
    with pytest.raises(TypeError):
        tensor.where(True, x, "a")
    with pytest.raises(ValueError):
        tensor.where([True, False], x, 0)


def softmaxes(axis):
    for name in ("softmax", "log_softmax"):
        yield (
            lambda x, n=name: getattr(x, n)(axis),
            lambda t, n=name: getattr(torch, n)(t, dim=axis),
        )


def test_softmax_against_torch():
    for shape in ((1,), (5,), (3, 3), (2, 1, 4), (3, 0), (0, 3), (1, 2000), (2000, 1)):
        for axis in range(-len(shape), len(shape)):
            for function, like in softmaxes(axis):
                same_as_torch(function, normal(shape), like=like)
                same_as_torch(function, 100 * normal(shape, seed=1), like=like)
    rows = [[1000.0, -1000.0, 999.0], [5, 5, 5], [-np.inf, 2, 1], [-1e308, 1e300, 0]]
    for function, like in softmaxes(-1):
        same_as_torch(function, np.array(rows), like=like)
    x = leaf([0, -1000])
    assert x.log_softmax().tolist() == [0, -1000]
    x.log_softmax().backward([0, 1])
    assert x.grad.tolist() == [-1, 1]
    np.testing.assert_allclose(leaf([1, 2]).softmax().data, softmax(leaf([1, 2])).data, rtol=1e-15)
    for axis in (2, -3):
        for name in ("softmax", "log_softmax"):
            with pytest.raises(ValueError):
                getattr(leaf([[1, 2]]), name)(axis)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_softmax_of_nothing_but_minus_infinity_is_nan():
    for function, like in softmaxes(-1):
        for row in ([-np.inf, -np.inf], [np.nan, 1], [np.inf, 1]):
            same_as_torch(function, np.array([row, [1.0, 2.0]]), like=like)


def test_softmax_of_other_dtypes():
    scores = [60_000, 60_000, 59_990, -60_000]
    for name in ("softmax", "log_softmax"):
        x = leaf(scores[:3], "f2")
        z = getattr(x, name)()
        z.backward([1, 0, 0])
        wide = leaf(np.array(scores[:3], "f2"))
        want = getattr(wide, name)()
        want.backward([1, 0, 0])
        assert z.dtype == x.grad.dtype == np.float16
        np.testing.assert_allclose(z.data, want.data, rtol=1e-3)
        np.testing.assert_allclose(x.grad, wide.grad, rtol=1e-3, atol=1e-7)
        many = Tensor(np.zeros((2, 4096), "f2"))
        want = {"softmax": 2.0**-12, "log_softmax": np.float16(-12 * np.log(2))}[name]
        assert (getattr(many, name)() == want).all()
        ids = Tensor(scores)
        assert getattr(ids, name)().dtype == np.float64
        assert (getattr(ids, name)() == getattr(leaf(scores), name)().data).all()
        assert getattr(leaf(scores, "f4"), name)().dtype == np.float32


def test_new_tensors():
    for make, number in ((tensor.zeros, 0), (tensor.ones, 1)):
        for shape in ((2, 3), (), (0,), (4,)):
            for x in (make(*shape), make(shape), make(list(shape))):
                assert type(x) is Tensor
                assert (x.shape, x.dtype, x.requires_grad) == (shape, np.float32, False)
                assert (x == number).all()
        assert make(2, requires_grad=True).requires_grad
        assert make(2, dtype=int).dtype == np.int64
        with pytest.raises(TypeError):
            make(2, dtype=int, requires_grad=True)
        with pytest.raises(TypeError):
            make(2.5)
        with pytest.raises(ValueError):
            make(-1)
    far = [(0, 2**53 + 2, 2**53 + 1), (2**53, 2**53 + 3), (0, -(2**53) - 2, -(2**53) - 1)]
    for arguments in ((5,), (2, 5), (5, 2, -1), (2, 2), (0, 1, 0.25), (3.0,), (1, 2.5), *far):
        x, want = tensor.arange(*arguments), torch.arange(*arguments).numpy()
        assert (x == want).all()
        assert (x.shape, x.dtype) == (want.shape, want.dtype)
    assert tensor.arange(5, 2).shape == (0,)
    assert tensor.arange(3, dtype="f8").dtype == np.float64
    assert tensor.arange(3.0, requires_grad=True).requires_grad
    with pytest.raises(TypeError):
        tensor.arange(3, requires_grad=True)
    with pytest.raises(ValueError):
        tensor.arange(0, 3, 0)


def test_softmax_of_these_pieces():
    for shape in ((5,), (2, 3, 4)):
        same_as_torch(softmax, normal(shape), like=lambda t: torch.softmax(t, dim=-1))
    s = leaf([[1000.0, 1000.0], [-1000.0, 0.0]])
    w = softmax(s)
    assert w.data.tolist() == [[0.5, 0.5], [0, 1]]
    w.backward([[1, 1], [1, 1]])
    assert s.grad.tolist() == [[0, 0], [0, 0]]  # why a cotangent of ones proves nothing


def test_attention_of_these_pieces():
    q, k, v = normal((2, 3, 5, 4)), normal((2, 3, 6, 4), seed=1), normal((2, 3, 6, 4), seed=2)
    same_as_torch(attention, q, k, v, like=torch.nn.functional.scaled_dot_product_attention)


OPERATIONS = [
    lambda x, y: x @ y.swapaxes(-1, -2),
    lambda x, y: y[0] @ x.swapaxes(-1, -2),
    lambda x, y: x[0] @ y[0].T,
    lambda x, y: x @ y[0, 0],
    lambda x, y: x[0, 0] @ y.swapaxes(-1, -2),
    lambda x, y: x.sum() * y.sum(axis=(0, 2)),
    lambda x, y: x.mean(axis=1, keepdims=True) + y.mean(axis=-1, keepdims=True),
    lambda x, y: x.max(axis=0) + y.max() - (x + y).max(axis=2, keepdims=True),
    lambda x, y: x.min(axis=0) - y.min(),
    lambda x, y: x.softmax(0) * y.log_softmax(),
    lambda x, y: tensor.where(x.data > y.data, x, y * y),
    lambda x, y: attention(x, y, x * y),
]


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
def test_any_memory_layout(number):
    plain_x, plain_y = normal((2, 3, 4)), normal((2, 3, 4), seed=1)
    x, y = leaf(plain_x), leaf(plain_y)
    z = OPERATIONS[number](x, y)
    g = normal(z.shape, seed=2)
    z.backward(g)

    def layouts(array):
        wide = np.zeros((4, 3, 8))
        wide[::2, :, ::2] = array
        yield np.asfortranarray(array)
        yield wide[::2, :, ::2]
        yield array[:, ::-1].copy()[:, ::-1]
        yield array.swapaxes(1, 2).copy().swapaxes(1, 2)
        yield array.astype(">f8")

    for one, other in zip(layouts(plain_x), layouts(plain_y), strict=True):
        s, t = Tensor(one, requires_grad=True), Tensor(other, requires_grad=True)
        again = OPERATIONS[number](s, t)
        np.testing.assert_allclose(again.data, z.data, rtol=1e-12, atol=1e-12)
        again.backward(np.asfortranarray(g))
        np.testing.assert_allclose(s.grad, x.grad, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(t.grad, y.grad, rtol=1e-12, atol=1e-12)

    row = np.broadcast_to(plain_x[0], (2, 3, 4))
    stretched, copied = Tensor(row, requires_grad=True), leaf(row.copy())
    for t in (stretched, copied):
        OPERATIONS[number](t, t).backward(g)
    np.testing.assert_allclose(stretched.grad, copied.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
def test_inputs_are_never_written(number):
    arrays = [normal((2, 3, 4)), normal((2, 3, 4), seed=1)]
    kept = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    z = OPERATIONS[number](*(Tensor(array, requires_grad=True) for array in arrays))
    g = normal(z.shape, seed=2)
    g.flags.writeable = False
    z.backward(g)
    for array, copied in zip(arrays, kept, strict=True):
        assert (array == copied).all()
    assert (g == normal(z.shape, seed=2)).all()


def test_gradients_share_no_memory():
    leaves = [leaf(normal((2, 3), seed=i)) for i in range(8)]
    a, b, c, d, e, f, x, y = leaves
    g = np.ones((1, 3))
    a.sum(axis=0, keepdims=True).backward(g)
    b.mean(axis=0, keepdims=True).backward(g)
    c.max(axis=0, keepdims=True).backward(g)
    d.sum(axis=()).backward(np.ones((2, 3)))
    (e.sum(axis=0, keepdims=True) + f.sum(axis=0, keepdims=True)).backward(g)
    (x @ y.T).backward(np.ones((2, 2)))
    arrays = [g] + [t.data for t in leaves] + [t.grad for t in leaves]
    for one, other in itertools.combinations(arrays, 2):
        assert not np.shares_memory(one, other)
    for t in leaves:
        assert t.grad.flags.c_contiguous
        assert t.grad.flags.writeable
        t.grad[0, 0] = 5.0
        assert (t.grad == 5.0).sum() == 1  # each entry has a place of its own


def test_results_keep_class_and_dtype():
    class Child(Tensor):
        __slots__ = ()

    x, child = leaf(whole((2, 3))), Child(whole((3, 2)))
    assert type(x @ child) is type(child @ x) is type(np.ones((1, 3)) @ child) is Child
    assert type(shapes.Tensor(x.data) @ child) is Child
    for z in (x.sum(), x.mean(axis=0), x.max(), x @ x.T, x.T[0], -x):
        assert type(z) is Tensor
        assert type(z.data) is np.ndarray
    assert type(child.sum()) is type(child.mean()) is type(child.max()) is Child
    assert type(child.softmax()) is type(child.log_softmax()) is type(child.min()) is Child
    assert type(tensor.where(True, x[0, 0], child)) is Child

    small, wide = leaf(whole((2, 3)), "f4"), leaf(whole((3, 2)), "f8")
    for z in (small.sum(), small.mean(axis=0), small.max(axis=1), small @ wide.astype("f4")):
        assert z.dtype == np.float32
    z = small @ wide
    assert z.dtype == np.float64
    z.backward(np.ones((2, 2)))
    assert (small.grad.dtype, wide.grad.dtype) == (np.float32, np.float64)
    seen = []
    probed = autograd.record(small.data, (small,), lambda g: (seen.append(g.dtype) or g,))
    (probed.max(axis=0) + probed.mean() + probed.sum()).backward(np.ones(3))
    assert seen == [np.float32]

    assert not hasattr(x, "__dict__")
    ids = Tensor([[1, 2], [3, 4]])
    assert (ids.sum().dtype, ids.mean().dtype, ids.max().dtype) == (np.int64, np.float64, np.int64)
    assert (ids @ ids).data.tolist() == [[7, 10], [15, 22]]
    assert not (ids @ ids).requires_grad
    assert Tensor([True, True]).sum().item() == 2
    with tensor.no_grad():
        assert not (x @ child).requires_grad
        assert not x.sum().requires_grad


def test_misfits_are_named():
    x = Tensor(whole((2, 3)))
    faults = [
        lambda: x @ Tensor(whole((2, 3))),
        lambda: x @ whole(2),
        lambda: whole((4, 4)) @ x,
        lambda: x @ Tensor(1.0),
        lambda: Tensor(1.0) @ x,
        lambda: Tensor(whole((4, 2, 3))) @ whole((5, 3, 2)),
        lambda: Tensor(whole((4, 2, 5))) @ x.T,
    ]
    for name in REDUCTIONS:
        faults += [
            lambda n=name: getattr(x, n)(axis=2),
            lambda n=name: getattr(x, n)(axis=-3),
            lambda n=name: getattr(x, n)(axis=(0, 0)),
            lambda n=name: getattr(x, n)(axis=(0, -2)),
        ]
    for fault in faults:
        with pytest.raises(ValueError):
            fault()
    with pytest.raises(TypeError):
        x @ np.ones((3, 2), complex)


def test_the_module_hands_on_what_others_import():
    for name in ("no_grad", "is_recording", "record", "sum_over", "tensor_argument", "unbroadcast"):
        assert getattr(tensor, name) is getattr(autograd, name)
    for name in ("concatenate", "stack"):
        assert getattr(tensor, name) is getattr(shapes, name)
    assert issubclass(Tensor, shapes.Tensor)


SIZES = [
    (1,),
    (130,),
    (9, 1, 2),
    (2, 1300),
    (1300, 2),
    (70, 33),
    (2, 3, 2, 2, 3),
    (2, 1, 3, 1, 2, 2),
]


def some_axes(ndim):
    return [0, -1, ndim // 2, (0, -1) if ndim > 1 else (0,), tuple(range(ndim))[::-1]]


@pytest.mark.parametrize("shape", SIZES)
def test_reductions_at_every_size(shape):
    for axis, name in itertools.product(some_axes(len(shape)), REDUCTIONS):
        near_ties = 1 + 1e-12 * normal(shape)
        for x, keep in ((normal(shape), True), (np.zeros(shape), False), (near_ties, False)):
            same_as_torch(
                lambda x, n=name, a=axis, k=keep: getattr(x, n)(axis=a, keepdims=k),
                x,
                like=lambda t, n=name, a=axis, k=keep: REDUCTIONS[n](t, a, k),
            )
    for axis in range(-len(shape), len(shape)):
        for function, like in softmaxes(axis):
            same_as_torch(function, normal(shape), like=like)
        close = 1 + 1e-12 * normal(shape)
        many = 2**60 + whole(shape).astype(int)
        for x in (close, many):
            assert (Tensor(x).argmax(axis) == np.argmax(x, axis)).all()
    condition = normal(shape, seed=5) > 0
    same_as_torch(
        lambda a, b: tensor.where(condition, a, b) * tensor.where(condition, a, a),
        normal(shape),
        normal(shape[-1:], seed=1),
        like=lambda a, b: torch.where(torch.tensor(condition), a, b) * a,
    )


LARGE_PRODUCTS = [
    ((1300,), (1300,)),
    ((130, 600), (600, 3)),
    ((1200, 2), (2, 3)),
    ((3, 2), (2, 1200)),
    ((9, 130, 40), (40, 5)),
    ((9, 2, 3, 130), (130,)),
    ((5, 2, 130), (130, 4)),
    ((2, 3, 2, 9, 4), (4, 3)),
    ((2, 1, 3, 2, 4), (3, 4, 7)),
    ((17, 2, 3), (17, 3, 2)),
    ((3, 4), (2, 5, 2, 4, 3)),
]


@pytest.mark.parametrize(("left", "right"), LARGE_PRODUCTS)
def test_products_at_every_size(left, right):
    for wants in ((True, True), (True, False), (False, True)):
        arrays = normal(left), normal(right, seed=1)
        ours = [Tensor(a, requires_grad=w) for a, w in zip(arrays, wants, strict=True)]
        theirs = [torch.tensor(a, requires_grad=w) for a, w in zip(arrays, wants, strict=True)]
        z, t = ours[0] @ ours[1], theirs[0] @ theirs[1]
        np.testing.assert_allclose(z.data, t.detach().numpy(), rtol=1e-11, atol=1e-11)
        g = normal(z.shape, seed=9)
        z.backward(g)
        t.backward(torch.tensor(g))
        for mine, its in zip(ours, theirs, strict=True):
            assert (mine.grad is None) == (its.grad is None)
            if mine.grad is not None:
                np.testing.assert_allclose(mine.grad, its.grad.numpy(), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 40, 40)])
def test_dtypes_stay_at_every_size(shape, dtype):
    for function in [*OPERATIONS, *(lambda x, y, n=n: getattr(x + y, n)() for n in REDUCTIONS)]:
        x, y = leaf(normal(shape), dtype), leaf(normal(shape, seed=1), dtype)
        z = function(x, y)
        z.backward(np.ones(z.shape))
        assert z.dtype == x.grad.dtype == y.grad.dtype == dtype


def test_weights_of_distant_scores():
    scores = np.array([[0.0, -9, -29, -31, -51, -99, -300, -700], [1e4, 1e4, 0, 1, 2, 3, 4, 5]])
    for axis, function in itertools.product((0, 1), ("softmax", "log_softmax")):
        x, t = leaf(scores), torch.tensor(scores, requires_grad=True)
        z, want = getattr(x, function)(axis), getattr(torch, function)(t, dim=axis)
        np.testing.assert_allclose(z.data, want.detach().numpy(), rtol=1e-12)
        g = normal(scores.shape)
        z.backward(g)
        want.backward(torch.tensor(g))
        np.testing.assert_allclose(x.grad, t.grad.numpy(), rtol=1e-12, atol=1e-15)


def test_long_softmaxes_in_float16():
    x = leaf(np.zeros((4096, 2)), "f2")
    x.log_softmax(axis=0).backward(np.ones((4096, 2)))
    assert (x.grad == 0).all()  # 1 - 4096/4096; counted in float16, 2048 + 1 is 2048


def test_new_tensors_are_new_and_exact():
    for make in (tensor.zeros, tensor.ones):
        one, other = make(3, 2), make(3, 2)
        one.data[...] = 7
        assert (other == make(3, 2)).all()
        assert not (other == one).any()
    assert tensor.arange(0, 2**50, 2**48).tolist() == [0, 2**48, 2**49, 3 * 2**48]
    assert tensor.arange(2**24, 2**24 + 300).tolist() == list(range(2**24, 2**24 + 300))
    assert tensor.arange(0, 300, 0.1, dtype="f8").tolist() == np.arange(0, 300, 0.1).tolist()


def each_once(x, y):
    """Each operation of two tensors, reductions too."""
    yield from (function(x, y) for function in OPERATIONS)
    yield from (getattr(x * y, name)(axis=axis) for name in REDUCTIONS for axis in (None, 0, -1))
    for t, axis in itertools.product((x, y), (0, -1)):
        yield from (t.softmax(axis), t.log_softmax(axis))
    yield tensor.where(y.data > 0, x, y)
    yield tensor.where(x.data > 0, x, x) * y


def test_no_call_remembers_another():
    x, y = leaf(normal((2, 3, 4))), leaf(normal((2, 3, 4), seed=1))
    earlier = list(each_once(x, y))
    kept = [z.data.copy() for z in earlier]
    for z in earlier:
        z.backward(np.ones(z.shape))
    x.data, y.data = normal((2, 3, 4), seed=2), normal((2, 3, 4), seed=3)
    for a_wants, b_wants in ((True, True), (True, False), (False, True)):
        x.requires_grad, y.requires_grad = a_wants, b_wants
        a, b = leaf(x.data), leaf(y.data)
        for z, fresh in zip(each_once(x, y), each_once(a, b), strict=True):
            for t in (x, y, a, b):
                t.grad = None
            assert (z.data == fresh.data).all()
            g = normal(z.shape, seed=4)
            if z.requires_grad:
                z.backward(g)
            fresh.backward(g)
            for t, other in ((x, a), (y, b)):
                want = other.grad if t.requires_grad else None
                assert np.array_equal(t.grad, want)
    for z, array in zip(earlier, kept, strict=True):
        assert (z.data == array).all()
