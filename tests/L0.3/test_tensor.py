# Tangled from book/0-foundations/L0.3-products.md
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
    found = data.draw(hnp.mutually_broadcastable_shapes(signature="(m?,k),(k,n?)->(m?,n?)"))
    left, right = found.input_shapes
    if len(left) == 1 or len(right) == 1:  # gufunc signatures keep batch axes only beside matrices
        left, right = left[-2:], right[-2:]
    x, y = leaf(whole(left)), leaf(whole(right, seed=1))
    z = x @ y
    assert (z.data == np.matmul(x.data, y.data)).all()
    g = whole(z.shape, seed=2)
    z.backward(g)
    total = (z.data * g).sum()
    assert (x.data * x.grad).sum() == total
    assert (y.data * y.grad).sum() == total


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
        for axis in (0, 1, (0, 1)):
            same_as_torch(
                lambda x, a=axis: x.max(axis=a),
                np.asarray(rows, dtype=float),
                like=lambda t, a=axis: t.amax(dim=a),
            )
    x = leaf([3, 3, 1, 3], "f4")
    x.max().backward()
    assert x.grad.tolist() == [np.float32(1 / 3), np.float32(1 / 3), 0, np.float32(1 / 3)]


def test_nan_keeps_its_gradient():
    x = leaf([[1, np.nan, 2], [1, 4, 2], [np.nan, np.nan, np.inf]])
    z = x.max(axis=1)
    z.backward([10, 100, 1000])
    assert np.isnan(z.data).tolist() == [True, False, True]
    assert x.grad.tolist() == [[0, 10, 0], [0, 100, 0], [500, 500, 0]]


def test_nothing_to_reduce():
    for shape, axis in (((0,), None), ((0, 3), 0), ((3, 0), 1), ((2, 0, 3), (0, 1))):
        x = Tensor(np.zeros(shape))
        for name, message in (("mean", "nothing to average"), ("max", "nothing to find")):
            with pytest.raises(ValueError, match=message):
                getattr(x, name)(axis=axis)
    same_as_torch(lambda x: x.sum(axis=0), np.zeros((0, 3)), like=lambda t: t.sum(dim=0))
    for name in REDUCTIONS:
        same_as_torch(
            lambda x, n=name: getattr(x, n)(axis=1),
            np.zeros((0, 3)),
            like=lambda t, n=name: REDUCTIONS[n](t, 1, False),
        )
    assert Tensor(np.zeros((0, 3))).sum().item() == 0


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
        (lambda: x @ Tensor(whole((2, 3))), r"\(2, 3\) @ \(2, 3\).* length 3.* second last one, 2"),
        (lambda: x @ whole(2), r"\(2, 3\) @ \(2,\).* length 3.* only one, 2"),
        (lambda: whole((4, 4)) @ x, r"\(4, 4\) @ \(2, 3\).* length 4.* second last one, 2"),
        (lambda: x @ Tensor(1.0), r"an axis to sum over on either side, got \(2, 3\) @ \(\)"),
        (lambda: Tensor(1.0) @ x, r"either side, got \(\) @ \(2, 3\)"),
        (
            lambda: Tensor(whole((4, 2, 3))) @ whole((5, 3, 2)),
            r"\(4, 2, 3\) @ \(5, 3, 2\).* must broadcast, got \(4,\) and \(5,\)",
        ),
        (lambda: Tensor(whole((4, 2, 5))) @ x.T, r"\(4, 2, 5\) @ \(3, 2\).* length 5, .* one, 3"),
    ]
    for name in REDUCTIONS:
        faults += [
            (lambda n=name: getattr(x, n)(axis=2), "axis 2 is out of bounds"),
            (lambda n=name: getattr(x, n)(axis=-3), "axis -3 is out of bounds"),
            (lambda n=name: getattr(x, n)(axis=(0, 0)), "(repeated|duplicate).* axis"),
            (lambda n=name: getattr(x, n)(axis=(0, -2)), "(repeated|duplicate).* axis"),
        ]
    for fault, message in faults:
        with pytest.raises(ValueError, match=message):
            fault()
    with pytest.raises(TypeError, match="bools, integers or floats"):
        x @ np.ones((3, 2), complex)


def test_the_module_hands_on_what_others_import():
    for name in ("no_grad", "is_recording", "record", "tensor_argument", "unbroadcast"):
        assert getattr(tensor, name) is getattr(autograd, name)
    for name in ("concatenate", "stack"):
        assert getattr(tensor, name) is getattr(shapes, name)
    assert issubclass(Tensor, shapes.Tensor)
