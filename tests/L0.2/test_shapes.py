# Tangled from book/1-foundations/L0.2-tests.md
"""L0.2: rearranging, indexing, joining; a law that all obey, and torch."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tinyllm import autograd
from tinyllm.autograd import no_grad
from tinyllm.shapes import Tensor, concatenate, stack

SEEDED = settings(derandomize=True, database=None, deadline=None)


def leaf(data, dtype=float):
    return Tensor(np.asarray(data, dtype=dtype), requires_grad=True)


def whole(shape, seed=0):
    """Whole numbers, as floats: sums are exact."""
    return np.asarray(np.random.default_rng(seed).integers(-9, 10, shape), dtype=float)


def law_holds(function, *arrays):
    """eq. transpose-law, with every array given a gradient."""
    ours = [leaf(x) for x in arrays]
    z = function(*ours)
    g = whole(z.shape, seed=1)
    z.backward(g)
    for t, x in zip(ours, arrays, strict=True):
        assert t.grad.shape == x.shape
    assert (z.data * g).sum() == sum((t.data * t.grad).sum() for t in ours)


def same_as_torch(function, *arrays, like=None):
    """The same values and, exactly, the same gradients; `like` is the expression in torch's words."""
    ours = [leaf(x) for x in arrays]
    theirs = [torch.tensor(x, requires_grad=True) for x in arrays]
    z, t = function(*ours), (like or function)(*theirs)
    assert z.shape == tuple(t.shape)
    assert (z.data == t.detach().numpy()).all()
    g = whole(z.shape, seed=1)
    z.backward(g)
    t.backward(torch.tensor(g))
    for mine, its in zip(ours, theirs, strict=True):
        assert (mine.grad == its.grad.numpy()).all()


def test_hand_example():
    numbers, coming = np.arange(6.0).reshape(2, 3), np.arange(10.0, 16.0).reshape(3, 2)
    x = leaf(numbers)
    z = x.reshape(3, 2)
    z.backward(coming)
    assert z.data.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert x.grad.tolist() == [[10, 11, 12], [13, 14, 15]]
    x = leaf(numbers)
    z = x.T
    z.backward(coming)
    assert z.data.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert x.grad.tolist() == [[10, 12, 14], [11, 13, 15]]

    x = leaf(whole((2, 3, 4)))
    z = x.transpose(1, 2, 0)
    assert z.shape == (3, 4, 2)
    g = whole((3, 4, 2), seed=1)
    z.backward(g)
    assert (x.grad == g.transpose(2, 0, 1)).all()

    x = leaf([5, 6, 7])
    z = x[[0, 0, 2]]
    z.backward([1, 10, 100])
    assert z.data.tolist() == [5, 5, 7]
    assert x.grad.tolist() == [11, 0, 100]


def test_reshape_is_not_transpose():
    x = leaf(np.arange(8).reshape(1, 2, 4))  # [B, T, d]
    split = x.reshape(1, 2, 2, 2).transpose(0, 2, 1, 3)  # [B, H, T, dh]
    glued = x.reshape(1, 2, 2, 2)
    assert split.shape == glued.shape
    assert split[0, 0].data.tolist() == [[0, 1], [4, 5]]
    assert glued[0, 0].data.tolist() == [[0, 1], [2, 3]]


EXPRESSIONS = [
    lambda x: x.reshape(4, 6),
    lambda x: x.reshape((3, -1)),
    lambda x: x.reshape(-1),
    lambda x: x.reshape([2, 1, 3, 1, 4]),
    lambda x: x.unsqueeze(1).squeeze(1),
    lambda x: x.unsqueeze(-1),
    lambda x: x[:, :1].squeeze(),
    lambda x: x.transpose(2, 0, 1).flatten(0, 1),
    lambda x: concatenate(x.split([1, 0, 2], axis=1)[::-1], axis=1),
    lambda x: stack(x.split(2, axis=-1)),
    lambda x: x.transpose(),
    lambda x: x.transpose(1, 2, 0),
    lambda x: x.transpose((2, 0, 1)),
    lambda x: x.transpose(-1, 0, -2),
    lambda x: x.swapaxes(0, -1),
    lambda x: x.swapaxes(1, 1),
    lambda x: x[1].T,
    lambda x: x.transpose(2, 0, 1).reshape(2, 12),
    lambda x: x.reshape(2, 1, 12).broadcast_to(5, 2, 3, 12),
    lambda x: x.broadcast_to((2, 2, 3, 4)),
    lambda x: x[0, 1:, ::2],
    lambda x: x[..., None, -1, :2],
    lambda x: x[:, [2, 0, 2, 2]],
    lambda x: x[x.data > 0],
    lambda x: concatenate([x, x[:, :1], x], axis=1),
    lambda x: stack([x, x.swapaxes(0, 0)], axis=2),
    lambda x: stack(list(x)[::-1], axis=-1),
]


@pytest.mark.parametrize("number", range(len(EXPRESSIONS)))
def test_backward_is_the_transpose(number):
    law_holds(EXPRESSIONS[number], whole((2, 3, 4)))


@SEEDED
@given(st.data())
def test_reshape_round_trips(data):
    shape = data.draw(hnp.array_shapes(max_dims=4, max_side=4))
    lengths = list(shape)
    for _ in range(3):  # multiply neighbours together, in one way or another
        if len(lengths) > 1:
            i = data.draw(st.integers(0, len(lengths) - 2))
            lengths[i : i + 2] = [lengths[i] * lengths[i + 1]]
    x = whole(shape)
    law_holds(lambda t: t.reshape(lengths), x)
    there = Tensor(x).reshape(*lengths)
    assert (there.reshape(shape).data == x).all()
    i = data.draw(st.integers(0, len(lengths) - 1))
    assert there.reshape(*lengths[:i], -1, *lengths[i + 1 :]).shape == tuple(lengths)


def test_transpose_by_every_order():
    x = whole((2, 3, 4, 5))
    for order in itertools.permutations(range(4)):
        t = leaf(x)
        z = t.transpose(order)
        assert (z.data == x.transpose(order)).all()
        z.backward(z.data)  # what is sent back to each place is the number that came from it
        assert (t.grad == x).all()
        negative = [axis - 4 for axis in order]
        assert (t.transpose(*negative).data == z.data).all()
        law_holds(lambda t, o=negative: t.transpose(o), x)


TORCH = [
    (lambda x: x.reshape(4, -1), None),
    (lambda x: x.transpose(1, 2, 0), lambda x: x.permute(1, 2, 0)),
    (lambda x: x.transpose(-1, 0, -2), lambda x: x.permute(-1, 0, -2)),
    (lambda x: x.transpose(), lambda x: x.permute(2, 1, 0)),
    (lambda x: x.swapaxes(-1, 0), None),
    (lambda x: x[0].T, None),
    (lambda x: x.reshape(6, 4).T, None),
    (lambda x: x.transpose(2, 0, 1).reshape(2, 12), lambda x: x.permute(2, 0, 1).reshape(2, 12)),
    (lambda x: x.transpose().reshape(2, 12), lambda x: x.permute(2, 1, 0).reshape(2, 12)),
    (lambda x: x.broadcast_to(5, 2, 3, 4), lambda x: x.broadcast_to((5, 2, 3, 4))),
    (lambda x: x[:, :1].broadcast_to(2, 3, 4), lambda x: x[:, :1].expand(2, 3, 4)),
    (lambda x: x.reshape(6, 4)[::2] * 3 + x[0, 0], None),
    (lambda x: x[x > 0], None),
    (lambda x: x[(x == x[0, 0, 0]) | (x < -3)], None),
    (lambda x: x.unsqueeze(0), None),
    (lambda x: x.unsqueeze(3), None),
    (lambda x: x.unsqueeze(-2), None),
    (lambda x: x[:1, :, :1].squeeze(), None),
    (lambda x: x[:1, :, :1].squeeze(-1), None),
    (lambda x: x[:1, :, :1].squeeze((0, 2)), None),
    (lambda x: x.squeeze(), None),
    (lambda x: x.flatten(), None),
    (lambda x: x.flatten(1), None),
    (lambda x: x.flatten(0, 1), None),
    (lambda x: x.flatten(-2, -1), None),
    (lambda x: x.flatten(1, 1), None),
    (lambda x: x.swapaxes(0, 2).flatten(0, 1), None),
]


@pytest.mark.parametrize("number", range(len(TORCH)))
def test_operations_against_torch(number):
    function, like = TORCH[number]
    same_as_torch(function, whole((2, 3, 4)), like=like)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("size", [1, 5, 40])
def test_split_against_torch(axis, size):
    x = whole((size,) * 2 + (5,))
    n = x.shape[axis]
    for lengths in (1, 2, n, n + 3, [n], [0, n], [1, n - 1], (n - 1, 0, 1)):
        if lengths == 1 and n > 5:
            continue
        ours, theirs = leaf(x), torch.tensor(x, requires_grad=True)
        parts, want = ours.split(lengths, axis), torch.split(theirs, lengths, dim=axis)
        for part, its in zip(parts, want, strict=True):
            assert type(part) is Tensor
            assert (part.data == its.detach().numpy()).all()
            assert np.shares_memory(part.data, ours.data) or part.size == 0
        (concatenate([p * k for k, p in enumerate(parts)], axis) * x).backward(x)
        (torch.cat([p * k for k, p in enumerate(want)], axis) * torch.tensor(x)).backward(
            torch.tensor(x)
        )
        assert (ours.grad == theirs.grad.numpy()).all()
        assert (concatenate(parts, axis).data == x).all()


INDICES = [
    0,
    -1,
    (1, 2),
    (1, 2, 3),
    np.int64(1),
    slice(1, None),
    slice(None, None, 2),
    slice(5, 9),
    ...,
    None,
    (..., 0),
    (slice(None), None, 1),
    (0, ..., None, slice(1, 3)),
    [0, 1, 1],
    (slice(None), [2, 0, 2]),
    ([1, 0, 1], [2, 2, 0]),
    ([1, 0], slice(None), [3, 3]),
    (np.array([[0, 1], [1, 1]]), slice(1, 2)),
    (0, [[1], [1]], [0, 0, 2]),
    np.array([True, False]),
    (slice(None), np.array([False, True, True])),
    (np.array([True, True]), [2, 1]),
    [],
]


@pytest.mark.parametrize("number", range(len(INDICES)))
def test_indexing_against_torch(number):
    def theirs(item):
        return torch.tensor(item) if isinstance(item, np.ndarray) else item

    index = INDICES[number]
    other = tuple(map(theirs, index)) if isinstance(index, tuple) else theirs(index)
    same_as_torch(lambda x: x[index], whole((2, 3, 4)), like=lambda x: x[other])


def test_indexing_adds_up_repeats():
    for index in ([1, 1, 1, 0], ((1, 1, 1, 0),), np.array([1, 1, 1, 0]), Tensor([1, 1, 1, 0])):
        x = leaf([5, 6, 7])
        z = x[index]
        z.backward([1, 10, 100, 1000])
        assert z.data.tolist() == [6, 6, 6, 5]
        assert x.grad.tolist() == [1000, 111, 0]
    x = leaf([5, 6, 7])
    (x[Tensor(1)] + x[np.array(1)] + x[Tensor(1), ...]).backward()
    assert x.grad.tolist() == [0, 3, 0]
    words = leaf(whole((4, 2)))
    ids = Tensor([[3, 0, 3], [3, 3, 1]])
    words[ids].backward(np.ones((2, 3, 2)))
    assert words.grad.tolist() == [[1, 1], [1, 1], [0, 0], [4, 4]]
    x = leaf(whole((3, 2)))
    x[Tensor([True, False, True])].backward([[1, 2], [3, 4]])
    assert x.grad.tolist() == [[1, 2], [0, 0], [3, 4]]


def test_many_shares_of_one_place_in_float16():
    words = leaf(np.zeros((3, 2)), "f2")
    words[np.zeros(4096, int)].backward(np.ones((4096, 2)))
    assert words.grad.dtype == np.float16
    assert words.grad.tolist() == [[4096, 4096], [0, 0], [0, 0]]


def test_the_index_is_copied():
    x = leaf([5, 6, 7])
    places, mask = np.array([0, 0, 1]), np.array([True, False, True])
    index = [2, 2, 2]
    z = x[places] + x[Tensor(places)] + x[index]
    y = x[mask]
    places[:], mask[:], index[:] = 2, False, [0, 0, 0]
    z.backward([1, 10, 100])
    y.backward([1000, 1000])
    assert x.grad.tolist() == [1022, 200, 1111]


def test_join_what_a_generator_gives_along_an_int():
    x = Tensor([[1.0, 2.0]], requires_grad=True)
    for join in (concatenate, stack):
        z = join(x * n for n in (1, 2))
        assert z.data.reshape(-1).tolist() == [1, 2, 2, 4]
        for axis in (None, "0", 0.0):
            with pytest.raises(TypeError):
                join([x, x], axis)
    z.backward(np.ones(z.shape))
    assert x.grad.tolist() == [[3, 3]]


def test_concatenate_and_stack_against_torch():
    for axis in range(-3, 3):
        shapes = []
        for length in (1, 3, 0, 2):
            shape = [2, 3, 4]
            shape[axis] = length
            shapes.append(whole(tuple(shape), seed=length))
        same_as_torch(
            lambda *t, a=axis: concatenate(t, axis=a),
            *shapes,
            like=lambda *t, a=axis: torch.cat(t, dim=a),
        )
    for axis in range(-4, 4):
        same_as_torch(
            lambda *t, a=axis: stack(t, axis=a),
            *(whole((2, 3, 4), seed=i) for i in range(3)),
            like=lambda *t, a=axis: torch.stack(t, dim=a),
        )
    same_as_torch(lambda *t: stack(t), *map(np.float64, (1, 2, 3)), like=lambda *t: torch.stack(t))

    x, fixed = leaf(whole((2, 2))), Tensor(whole((1, 2)))
    concatenate((fixed, x, x)).backward([[9, 9], [1, 2], [3, 4], [10, 20], [30, 40]])
    assert x.grad.tolist() == [[11, 22], [33, 44]]
    assert fixed.grad is None


def test_views_copy_nothing():
    x = leaf(whole((2, 3, 4)))
    for z in (
        x.reshape(6, 4),
        x.flatten(1),
        x.transpose().unsqueeze(1),
        x.transpose().unsqueeze(0).squeeze(0),
        x.transpose(1, 2, 0),
        x.swapaxes(0, 1),
        x[0].T,
        x.broadcast_to(5, 2, 3, 4),
        x[1, ::-1, None],
        x[...],
    ):
        assert np.shares_memory(z.data, x.data)
    assert not np.shares_memory(x[[0, 1]].data, x.data)
    assert not np.shares_memory(x.transpose(2, 1, 0).reshape(24).data, x.data)


def test_gradients_share_no_memory():
    x, y = leaf(whole((2, 3))), leaf(whole((2, 3)))
    a, b = leaf(whole((2, 3))), leaf(whole((1, 3)))
    g = whole((2, 3))
    x.reshape(6).reshape(2, 3).backward(g)
    y.T.T.backward(g)
    concatenate([a, b]).backward(whole((3, 3)))
    u, v = leaf(whole((2, 3))), leaf(whole((2, 3)))
    stack([u, v]).backward(whole((2, 2, 3)))
    p, q = leaf(whole((2, 3))), leaf(whole((2, 3)))
    p[:].backward(g)
    q.broadcast_to(1, 2, 3).backward(g[None])
    leaves = [x, y, a, b, u, v, p, q]
    arrays = [g] + [t.data for t in leaves] + [t.grad for t in leaves]
    for one, other in itertools.combinations(arrays, 2):
        assert not np.shares_memory(one, other)
    for t in leaves:
        assert t.grad.flags.c_contiguous
        assert t.grad.flags.writeable


@pytest.mark.parametrize("number", range(len(EXPRESSIONS)))
def test_inputs_are_never_written(number):
    x = leaf(whole((2, 3, 4)))
    x.data.flags.writeable = False
    z = EXPRESSIONS[number](x)
    g = whole(z.shape, seed=1)
    g.flags.writeable = False
    z.backward(g)
    assert (x.data == whole((2, 3, 4))).all()
    assert (g == whole(z.shape, seed=1)).all()


@pytest.mark.parametrize("number", range(len(EXPRESSIONS)))
def test_any_memory_layout(number):
    plain = whole((2, 3, 4))
    wide = np.zeros((4, 3, 8))
    wide[::2, :, ::2] = plain
    layouts = [np.asfortranarray(plain), wide[::2, :, ::2], plain[:, ::-1].copy()[:, ::-1]]
    x = leaf(plain)
    z = EXPRESSIONS[number](x)
    g = whole(z.shape, seed=1)
    z.backward(g)
    for array in layouts:
        t = Tensor(array, requires_grad=True)
        again = EXPRESSIONS[number](t)
        assert (again.data == z.data).all()
        again.backward(np.asfortranarray(g))
        assert (t.grad == x.grad).all()
    t = Tensor(np.broadcast_to(plain[0], (2, 3, 4)), requires_grad=True)
    law_holds(EXPRESSIONS[number], t.data)


def test_results_keep_class_and_dtype():
    class Child(Tensor):
        __slots__ = ()

    plain, child = Tensor(whole((2, 3)), requires_grad=True), Child(whole((2, 3)))
    for t in (plain, child):
        for z in (t.reshape(6), t.transpose(), t.T, t.swapaxes(0, 1), t[0], t[[0]], t * 1, -t):
            assert type(z) is type(t)
        assert type(t.broadcast_to(1, 2, 3)) is type(next(iter(t))) is type(t.detach()) is type(t)
    assert type(concatenate([plain, child, plain])) is type(stack([plain, child])) is Child
    assert type(plain + autograd.Tensor(1.0)) is type(autograd.Tensor(1.0) + plain) is Tensor

    x, y, k = leaf([1, 2], "f4"), leaf([3, 4], "f8"), Tensor([5, 6])
    for z in (concatenate([x, y, k]).reshape(3, 2), stack([x, y, k])):
        assert z.dtype == np.float64
        z.backward(np.ones((3, 2)))
    assert (x.grad.dtype, y.grad.dtype, k.grad) == (np.float32, np.float64, None)
    assert x.grad.tolist() == [2, 2]
    assert not hasattr(x, "__dict__")
    ids = Tensor([[1, 2], [3, 4]])
    assert ids.T.dtype == ids[[0, 0]].dtype == stack([ids, ids]).dtype == np.int64
    assert not ids.T.requires_grad
    with no_grad():
        assert not concatenate([x, y]).requires_grad


def test_empty_and_axisless():
    nothing = whole((0, 3))
    for function in (
        lambda x: x.reshape(3, 0),
        lambda x: x.T,
        lambda x: x[:0],
        lambda x: x[[]],
        lambda x: concatenate([x, x]),
        lambda x: stack([x, x], axis=1),
        lambda x: x.broadcast_to(2, 0, 3),
    ):
        law_holds(function, nothing)
    for function in (
        lambda x: x.reshape(()),
        lambda x: x.reshape(1, 1),
        lambda x: x.transpose(),
        lambda x: x[...],
        lambda x: x[None],
        lambda x: x[()],
        lambda x: x.broadcast_to(3),
        lambda x: stack([x, x]),
        lambda x: x.squeeze(),
        lambda x: x.unsqueeze(-1),
        lambda x: x.flatten(),
    ):
        law_holds(function, whole(()))
    assert Tensor(5.0).flatten().shape == (1,)
    assert Tensor(nothing).flatten().shape == (0,)
    assert Tensor(nothing).split(2) == []
    assert [part.shape for part in Tensor(nothing).split([0, 0])] == [(0, 3), (0, 3)]
    assert Tensor([5.0]).reshape(()).shape == ()


def test_iteration():
    x = leaf(np.arange(6).reshape(3, 2))
    assert len(x) == 3
    first, second, third = x
    (first * 1 + third * 10).backward([1, 2])
    assert x.grad.tolist() == [[1, 2], [0, 0], [10, 20]]
    assert second.data.tolist() == [2, 3]
    with pytest.raises(TypeError):
        len(Tensor(1.0))
    with pytest.raises(TypeError):
        iter(Tensor(1.0))
    with pytest.raises(TypeError):
        assert 3.0 in x
    with pytest.raises(TypeError):
        x[0] = 1.0
    with pytest.raises(IndexError):
        x[3]
    for index in (1.0, [1.0], np.array([1.0]), np.array([[True, False]]), (0, 0, 0)):
        with pytest.raises(IndexError):
            x[index]


def test_misfits_are_named():
    x = Tensor(whole((2, 3, 4)))
    faults = [
        lambda: x.reshape(5, 5),
        lambda: x.reshape(5, -1),
        lambda: x.reshape(-1, -1),
        lambda: x.transpose(1, 2),
        lambda: x.transpose(0, 1, 1),
        lambda: x.transpose(0, 1, 3),
        lambda: x.transpose(0, 1, 2, 3),
        lambda: x.swapaxes(0, 3),
        lambda: x.T,
        lambda: Tensor([1.0]).T,
        lambda: x.broadcast_to(2, 3, 5),
        lambda: x.broadcast_to(3, 4),
        lambda: concatenate([x, x[:, :2]]),
        lambda: concatenate([x, x], axis=3),
        lambda: stack([x, x[:1]], axis=1),
        lambda: x.squeeze(0),
        lambda: x.squeeze(3),
        lambda: x.unsqueeze(4),
        lambda: x.unsqueeze(-5),
        lambda: x.flatten(2, 1),
        lambda: x.flatten(0, 3),
        lambda: x.split([2, 2], axis=1),
        lambda: x.split([4, -1], axis=1),
        lambda: x.split(0),
        lambda: x.split(-1, axis=-1),
        lambda: x.split(1, axis=3),
        lambda: concatenate([]),
        lambda: stack([]),
    ]
    for fault in faults:
        with pytest.raises(ValueError):
            fault()
    for join in (concatenate, stack):
        with pytest.raises(TypeError):
            join([x, x.data])
    for lengths in ((2.0, 12), (2.5, 12), ("6", 4)):
        with pytest.raises(TypeError):
            x.reshape(*lengths)
