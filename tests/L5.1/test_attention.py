# Tangled from book/2-transformer/L5.1-tests.md
"""Tests of L5.1, scaled dot-product attention."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor
from tinyllm.xfmr.attention import check_attention, masked_softmax, scaled_dot_product_attention


def definition(*args, **options):
    return scaled_dot_product_attention(*args, **options)[0]


WAYS = {"definition": definition}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def draw(*shape, seed=1):
    return PCG32(seed).normal(0.0, 1.0, shape, np.float64)


def inputs(lead=(2, 3), Tq=5, Tk=7, d=4, dv=6, seed=1):
    """q, k, v and a gradient for the output."""
    shapes = (*lead, Tq, d), (*lead, Tk, d), (*lead, Tk, dv), (*lead, Tq, dv)
    return [draw(*shape, seed=seed + i) for i, shape in enumerate(shapes)]


def run(way, q, k, v, grad, mask=None, **options):
    """The output and the gradients of q, k and v."""
    leaves = [Tensor(x, requires_grad=True) for x in (q, k, v)]
    out = way(*leaves, mask, **options)
    out.backward(grad)
    return [out.data, *(leaf.grad for leaf in leaves)]


def assert_close(found, wanted, tolerance=1e-12):
    for name, x, y in zip(("out", "dq", "dk", "dv"), found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance, err_msg=name)


def masks(Tq, Tk, lead):
    return {
        "open": None,
        "causal": np.tri(Tq, Tk, Tk - Tq, dtype=bool),
        "padding": np.arange(Tk) < Tk - 1 - np.arange(lead[0])[:, None, None, None] % (Tk - 1),
        "random": (draw(*lead, Tq, Tk, seed=9) > -0.5) | np.eye(Tq, Tk, dtype=bool),
    }


@every_way
def test_hand_example(way):
    q, k, v = [[2, 0]], [[1, 0], [0, 1], [3, 0]], [[1, 0], [0, 1], [9, 9]]
    arrays = [np.array(x, np.float64) for x in (q, k, v)]
    out, dq, dk, dv = run(way, *arrays, [[1.0, 0.0]], np.array([[True, True, False]]))
    near = partial(np.testing.assert_allclose, rtol=0, atol=5e-7)
    near(out, [[0.804430, 0.195570]])
    near(dq, [[0.111244, -0.111244]])
    near(dk, [[0.222488, 0], [-0.222488, 0], [0, 0]])
    near(dv, [[0.804430, 0], [0.195570, 0], [0, 0]])
    near(definition(*map(Tensor, arrays)).data, [[8.439044, 8.397370]])


@every_way
@pytest.mark.parametrize("kind", ["open", "causal", "padding", "random"])
@pytest.mark.parametrize("sizes", [(5, 7), (4, 4), (1, 3), (3, 2)])
def test_matches_torch(way, kind, sizes):
    lead = (2, 3)
    q, k, v, grad = inputs(lead, *sizes)
    mask = masks(*sizes, lead)[kind]
    if mask is not None and not mask.any(axis=-1).all():
        mask = mask | (np.arange(sizes[1]) == 0)  # torch and we differ on dead rows
    theirs = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    blocked = None if mask is None else torch.tensor(mask)
    wanted = torch.nn.functional.scaled_dot_product_attention(*theirs, attn_mask=blocked)
    wanted.backward(torch.tensor(grad))
    found = run(way, q, k, v, grad, mask)
    assert_close(found, [wanted.detach().numpy(), *(x.grad.numpy() for x in theirs)])


def row_by_row(q, k, v, grad, allowed, scale):
    """Each query's softmax over the keys that it may read, and nothing else."""
    q, k, v = (torch.tensor(x, requires_grad=True) for x in (q, k, v))
    out = torch.zeros(grad.shape, dtype=torch.float64)
    for place in np.ndindex(allowed.shape[:-1]):
        keys = torch.tensor(np.flatnonzero(allowed[place]))
        if len(keys):
            scores = scale * (k[place[:-1]][keys] @ q[place])
            out[place] = torch.softmax(scores, 0) @ v[place[:-1]][keys]
    nothing = 0 * (q.sum() + k.sum() + v.sum())  # so that all have a gradient
    ((out * torch.tensor(grad)).sum() + nothing).backward()
    return [x.detach().numpy() for x in (out, q.grad, k.grad, v.grad)]


@every_way
def test_row_by_row(way):
    q, k, v, grad = inputs()
    allowed = draw(2, 3, 5, 7, seed=8) > 0
    allowed[0, 1, 2] = allowed[1, 2] = False
    assert_close(
        run(way, q, k, v, grad, allowed, scale=0.7), row_by_row(q, k, v, grad, allowed, 0.7)
    )


@every_way
def test_scale(way):
    q, k, v, grad = inputs(d=16)
    assert_close(run(way, q, k, v, grad), run(way, q, k, v, grad, scale=0.25), 0)
    half = run(way, q / 2, k, v, grad, scale=0.25)
    np.testing.assert_allclose(half[0], run(way, q, k, v, grad, scale=0.125)[0], atol=1e-14)
    for d in (4, 64, 1024):
        q, k = draw(300, d, seed=2), draw(16, d, seed=3)
        largest = (
            scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(k))[1]
            .data.max(axis=-1)
            .mean()
        )
        assert 0.15 < largest < 0.35


@every_way
@settings(derandomize=True, database=None, deadline=None, max_examples=80)
@given(
    lead=st.lists(st.integers(1, 3), max_size=3).map(tuple),
    sizes=st.tuples(*[st.integers(1, 6)] * 4),
    density=st.floats(0, 1),
    size=st.sampled_from([1.0, 100.0]),
)
def test_random_shapes(way, lead, sizes, density, size):
    q, k, v, grad = inputs(lead, *sizes)
    allowed = PCG32(3).uniform(0.0, 1.0, (*lead, *sizes[:2])) < density
    wanted = row_by_row(q * size, k, v, grad, allowed, sizes[2] ** -0.5)
    assert_close(run(way, q * size, k, v, grad, allowed), wanted, 1e-11)


def test_weights_can_be_differentiated():
    q, k, v, _ = inputs()
    loss = draw(2, 3, 5, 7, seed=4)
    mask = masks(5, 7, (2, 3))["random"]
    ours = [Tensor(x, requires_grad=True) for x in (q, k)]
    (scaled_dot_product_attention(*ours, Tensor(v), mask)[1] * Tensor(loss)).sum().backward()
    theirs = [torch.tensor(x, requires_grad=True) for x in (q, k)]
    scores = theirs[0] @ theirs[1].mT / 2
    weights = torch.softmax(scores.masked_fill(~torch.tensor(mask), -torch.inf), -1)
    (weights * torch.tensor(loss)).sum().backward()
    for x, y in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(x.grad, y.grad.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["open", "causal", "padding", "random"])
def test_masked_weights_are_zero(kind):
    q, k, v, _ = inputs(Tq=7, d=4)
    mask = masks(7, 7, (2, 3))[kind]
    weights = scaled_dot_product_attention(Tensor(30 * q), Tensor(k), Tensor(v), mask)[1].data
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-12)
    if mask is not None:
        assert (weights[~np.broadcast_to(mask, weights.shape)] == 0).all()
    scores = Tensor(draw(4, 5))
    np.testing.assert_allclose(
        masked_softmax(scores).data, torch.softmax(torch.tensor(scores.data), -1), rtol=1e-12
    )


def test_weights_are_those_before_dropout():
    q, k, v, _ = (Tensor(x) for x in inputs())
    rng = PCG32(0)
    outs = []
    for _ in range(2):
        out, weights = scaled_dot_product_attention(q, k, v, dropout=0.5, rng=rng)
        np.testing.assert_allclose(
            weights.data, scaled_dot_product_attention(q, k, v)[1].data, rtol=1e-14
        )
        outs.append(out.data)
    assert not np.allclose(*outs)  # the generator moves on


def test_masked_softmax_errors():
    with pytest.raises(TypeError):
        masked_softmax(np.ones((3, 4)))
    with pytest.raises(TypeError):
        masked_softmax(Tensor(np.ones((3, 4), np.int64)), np.eye(3, 4, dtype=bool))
    with pytest.raises(ValueError):
        masked_softmax(Tensor(np.ones((3, 4))), np.ones((2, 4), bool))


def test_checks_take_arrays():
    q, k, v, _ = inputs()
    shape, allowed, scale = check_attention(q, k, v, np.ones(7, bool))
    assert (shape, allowed.shape, scale) == ((2, 3, 5, 7), (2, 3, 5, 7), 0.5)
    assert check_attention(q, k, v, scale=2)[1:] == (None, 2.0)


@every_way
@pytest.mark.parametrize("size", [1, 100])
def test_dead_rows(way, size):
    q, k, v, grad = inputs(Tq=7, dv=4)
    mask = np.ones((7, 7), bool)
    mask[[0, 3]] = False
    found = run(way, q * size, k, v, grad, mask)
    assert (found[0][..., [0, 3], :] == 0).all()
    assert (found[1][..., [0, 3], :] == 0).all()
    live = [1, 2, 4, 5, 6]
    alone = run(way, q[..., live, :] * size, k, v, grad[..., live, :])
    assert_close([x[..., live, :] for x in found[:2]] + found[2:], alone)
    for nothing in run(way, q, k, v, grad, np.zeros((7, 7), bool)):
        assert (nothing == 0).all()
    weights = scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), mask)[1].data
    assert (weights[..., [0, 3], :] == 0).all()


@every_way
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("lead", "Tq", "Tk"), [((2,), 3, 0), ((2,), 0, 3), ((0,), 3, 3), ((2, 0), 1, 0)]
)
def test_empty_dimensions(way, lead, Tq, Tk, masked):
    q, k, v, grad = inputs(lead, Tq, Tk)
    mask = np.ones((Tq, Tk), bool) if masked else None
    for found, like in zip(run(way, q, k, v, grad, mask), (grad, q, k, v), strict=True):
        assert found.shape == like.shape
        assert (found == 0).all()
    weights = scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), mask)[1]
    assert weights.shape == (*lead, Tq, Tk)


@every_way
@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf, 1e308])
def test_unread_garbage_changes_nothing(way, garbage):
    q, k, v, grad = inputs()
    mask = np.ones((5, 7), bool)
    mask[:, [2, 6]] = mask[1] = False
    wanted = run(way, q, k, v, grad, mask)
    k[..., [2, 6], :] = v[..., [2, 6], :] = garbage
    k[0, 0, 2] = -k[0, 0, 2]
    found = run(way, q, k, v, grad, mask)
    assert_close(found, wanted, 1e-14)
    assert (found[2][..., [2, 6], :] == 0).all()
    assert (found[3][..., [2, 6], :] == 0).all()
    weights = scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), mask)[1].data
    assert (weights[..., [2, 6]] == 0).all()


@every_way
@pytest.mark.parametrize("garbage", [np.nan, np.inf])
@pytest.mark.parametrize("place", ["q", "k", "v", "grad"])
@pytest.mark.parametrize("scale", [1.0, 60.0])
def test_garbage_leaks_only_to_its_readers(way, garbage, place, scale):
    # two groups that do not read each other: 0, 1, 2 and 3, 4
    group = np.array([0, 0, 0, 1, 1])
    mask = group[:, None] == group
    arrays = dict(zip(("q", "k", "v", "grad"), inputs((2, 2), 5, 5), strict=True))
    wanted = run(way, **arrays, mask=mask, scale=scale)
    arrays[place][1, :, 3, 1] = garbage
    found = run(way, **arrays, mask=mask, scale=scale)
    assert_close([x[..., :3, :] for x in found], [x[..., :3, :] for x in wanted], 1e-12)
    assert_close([x[0] for x in found], [x[0] for x in wanted], 1e-12)
    if place in ("q", "k"):
        weights = scaled_dot_product_attention(*(Tensor(arrays[x]) for x in "qkv"), mask)[1].data
        assert np.isnan(weights[1, :, 3, 3:]).any()
        assert (weights[..., ~mask] == 0).all()
    if place != "grad":
        assert not np.isfinite(found[0][1, :, 3:]).all()
        # under a causal mask, with a loss about the first rows only
        mask = np.tri(5, dtype=bool)
        arrays["grad"][..., 3:, :] = 0
        found = run(way, **arrays, mask=mask, scale=scale)
        arrays[place][1, :, 3, 1] = 0.5
        wanted = run(way, **arrays, mask=mask, scale=scale)
        assert_close([x[..., :3, :] for x in found], [x[..., :3, :] for x in wanted], 1e-12)


@every_way
def test_garbage_query_spoils_its_own_row(way):
    q, k, v, grad = inputs(Tq=7)
    mask = np.ones((7, 7), bool)
    mask[:, 6] = False
    grad[..., 6, :] = 0
    wanted = run(way, q, k, v, grad, mask)
    q[..., 6, :] = k[..., 6, :] = v[..., 6, :] = np.nan
    found = run(way, q, k, v, grad, mask)
    assert np.isnan(found[0][..., 6, :]).all()
    assert_close([found[0][..., :6, :], *found[1:]], [wanted[0][..., :6, :], *wanted[1:]], 1e-14)


@every_way
def test_garbage_in_a_value_spares_other_values(way):
    q, k, v, grad = inputs((), 5, 5)
    mask = np.tri(5, dtype=bool)
    wanted = run(way, q, k, v, grad, mask)
    v[4] = np.nan
    out, dq, dk, dv = run(way, q, k, v, grad, mask)
    np.testing.assert_allclose(dv, wanted[3], rtol=1e-14)  # they do not depend on the values
    assert np.isnan(out[4]).all()
    assert np.isnan(dq[4]).all()
    assert np.isnan(dk).all()  # the last query reads every key
    for found, before in ((out, wanted[0]), (dq, wanted[1])):
        np.testing.assert_allclose(found[:4], before[:4], rtol=1e-12)


@every_way
@pytest.mark.parametrize("place", ["k", "v"])
def test_huge_numbers_in_padding(way, place):
    arrays = dict(zip(("q", "k", "v", "grad"), inputs((), 5, 5), strict=True))
    arrays["grad"] *= 100
    arrays["q"] *= 100
    mask = np.arange(5) < 4
    wanted = run(way, **arrays, mask=mask)
    arrays[place][4, 0] = 1.7e308
    found = run(way, **arrays, mask=mask)
    assert_close(found, wanted)


@every_way
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_scores(way, dtype):
    q, k, v, grad = inputs((), 3, 4, 2, 2)
    q, k = np.array([[1000, 0], [-1000, 0], [0, 1]]), np.array([[1, 0], [1, 2], [1, 5], [1, -9]])
    arrays = [x.astype(dtype) for x in (q, k, v, grad)]
    wanted = row_by_row(q * 1.0, k * 1.0, v, grad, np.ones((3, 4), bool), 1.0)
    tolerance = 1e-3 if dtype == np.float32 else 1e-12
    assert_close(run(way, *arrays, scale=1.0), wanted, tolerance)
    mask = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 1]], bool)
    wanted = row_by_row(q * 1.0, k * 1.0, v, grad, mask, 1.0)
    assert_close(run(way, *arrays, mask, scale=1.0), wanted, tolerance)


@every_way
@pytest.mark.parametrize("score", [15, 17, 60, 90, 200])
def test_scores_of_any_size(way, score):
    # e^89 is more than float32 holds
    q, k = np.array([[score], [-score], [0.5]], np.float64), np.array([[1.0], [0.99], [-1]])
    v, grad = draw(3, 2, seed=3), draw(3, 2, seed=4)
    wanted = row_by_row(q, k, v, grad, np.ones((3, 3), bool), 1.0)
    arrays = [x.astype(np.float32) for x in (q, k, v, grad)]
    assert_close(run(way, *arrays, scale=1.0), wanted, 2e-3)


@every_way
@pytest.mark.parametrize("large", [50.0, 1e6, np.nan])
def test_rows_do_not_meet(way, large):
    q, k, v, _ = (Tensor(x) for x in inputs((3,), Tq=7))
    mask = np.tri(7, dtype=bool)
    before = way(q, k, v, mask).data
    q.data[:, 4], k.data[:, 5:], v.data[:, 5:], k.data[2] = large, large, large, -large
    after = way(q, k, v, mask).data
    np.testing.assert_array_equal(after[:2, :4], before[:2, :4])


@every_way
def test_dropout_draws(way):
    q, k, v, grad = inputs()
    rng = PCG32(7).substream("dropout")
    kept = rng.uniform(0.0, 1.0, (2, 3, 5, 7)) >= 0.4
    weights = scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v))[1].data
    own = PCG32(7).substream("dropout")
    found = run(way, q, k, v, grad, dropout=0.4, rng=own)
    np.testing.assert_allclose(found[0], (weights * kept / 0.6) @ v, rtol=1e-12)
    assert own.state() == rng.state()  # one draw a weight, in C order, and no more


@every_way
def test_dropout_whose_scale_is_too_large_for_float16(way):
    arrays = [x.astype(np.float16) for x in inputs()]
    for x in run(way, *arrays, dropout=0.99999, rng=PCG32(0)):
        assert (x == 0).all()  # all are dropped, and none is 0 times infinity


@every_way
@pytest.mark.parametrize("kind", ["open", "causal"])
def test_dropout_gradient(way, kind):
    q, k, v, grad = inputs(Tq=7)
    mask = masks(7, 7, (2, 3))[kind]
    kept = PCG32(3).uniform(0.0, 1.0, (2, 3, 7, 7)) >= 0.3
    theirs = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    scores = theirs[0] @ theirs[1].mT / 2
    if mask is not None:
        scores = scores.masked_fill(~torch.tensor(mask), -torch.inf)
    out = (torch.softmax(scores, -1) * torch.tensor(kept / 0.7)) @ theirs[2]
    out.backward(torch.tensor(grad))
    found = run(way, q, k, v, grad, mask, dropout=0.3, rng=PCG32(3))
    assert_close(found, [out.detach().numpy(), *(x.grad.numpy() for x in theirs)])


@every_way
def test_dropout_arguments(way):
    q, k, v, _ = (Tensor(x) for x in inputs())
    for rate in (1.0, -0.1, np.nan):
        with pytest.raises(ValueError):
            way(q, k, v, dropout=rate, rng=PCG32(0))
    for no_generator in (None, 0):
        with pytest.raises(ValueError):
            way(q, k, v, dropout=0.1, rng=no_generator)
    rng = PCG32(0)
    way(q, k, v, rng=rng)
    assert rng.state() == PCG32(0).state()  # a rate of 0 draws nothing


@every_way
@pytest.mark.parametrize("masked", [False, True])
def test_half_precision(way, masked):
    q, k, v, grad = (x.astype(np.float16) for x in inputs((2,), 5, 5, 8, 8))
    mask = np.tri(5, dtype=bool) if masked else None
    q, k = q * 4, k * 4  # scores up to 100, where float16 counts in sixteenths
    found = run(way, q, k, v, grad, mask)
    assert {x.dtype for x in found} == {np.dtype(np.float16)}
    exact = run(definition, *(x.astype(np.float64) for x in (q, k, v, grad)), mask)
    for x, y in zip(found, exact, strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-3, atol=4e-3)
    large = np.full((1, 4, 4), 200, np.float16)  # scores of 80000: more than float16 holds
    out = way(Tensor(large), Tensor(large), Tensor(large))
    np.testing.assert_array_equal(out.data, large)
    assert scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v))[1].dtype == np.float16


@every_way
def test_dtypes(way):
    q, k, v, _ = inputs()
    for dtypes in [(np.float32,) * 3, (np.float64,) * 3, (np.float32, np.float32, np.float64)]:
        mixed = [
            Tensor(x.astype(t), requires_grad=True) for x, t in zip((q, k, v), dtypes, strict=True)
        ]
        out = way(*mixed)
        assert out.dtype == np.result_type(*dtypes)
        out.backward(np.ones(out.shape, out.dtype))
        assert [x.grad.dtype for x in mixed] == [np.dtype(t) for t in dtypes]
        np.testing.assert_allclose(out.data, way(*map(Tensor, (q, k, v))).data, atol=2e-6)


def strewn(x):
    """The same numbers, every other one of a larger array, and the last axis backwards."""
    wide = np.full((*x.shape[:-1], 2 * x.shape[-1]), np.nan)
    wide[..., ::-2] = x
    return wide[..., ::-2]


@every_way
@pytest.mark.parametrize("kind", ["open", "random"])
def test_layouts(way, kind):
    arrays = inputs(Tq=7)
    mask = masks(7, 7, (2, 3))[kind]
    wanted = run(way, *arrays, mask)
    heads_inside = [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in arrays]
    for layout in (map(np.asfortranarray, arrays), heads_inside, map(strewn, arrays)):
        flipped = None if mask is None else np.asfortranarray(mask)
        assert_close(run(way, *layout, flipped), wanted, 1e-14)


@every_way
def test_inputs_are_not_written_to(way):
    arrays = inputs(Tq=7)
    mask = masks(7, 7, (2, 3))["random"]
    copies = [x.copy() for x in (*arrays, mask)]
    for x in (*arrays, mask):
        x.flags.writeable = False
    run(way, *arrays, mask, dropout=0.2, rng=PCG32(0))
    run(way, *(40 * x for x in arrays), mask)
    for x, copy in zip((*arrays, mask), copies, strict=True):
        np.testing.assert_array_equal(x, copy)


@every_way
def test_leading_axes_broadcast(way):
    q, k, v, grad = inputs((2, 3))
    k, v = k[:1, :1], v[0, :1]
    whole = run(way, q, np.broadcast_to(k, (2, 3, 7, 4)), np.broadcast_to(v, (2, 3, 7, 6)), grad)
    found = run(way, q, k, v, grad)
    wanted = [*whole[:2], whole[2].sum(axis=(0, 1), keepdims=True), whole[3].sum(axis=(0, 1))[None]]
    assert_close(found, wanted)


LEADS = {"none": (), "b": (2, 1), "h": (3,), "bh": (2, 3)}


@every_way
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("leads", [*itertools.product(LEADS, repeat=3)], ids="-".join)
def test_leading_axes_against_torch(way, masked, leads):
    """Whichever of q, k and v have them."""
    sizes = ((5, 4), (7, 4), (7, 6))
    arrays = [
        draw(*LEADS[lead], *size, seed=size[0] + size[1])
        for lead, size in zip(leads, sizes, strict=True)
    ]
    whole = np.broadcast_shapes(*(LEADS[lead] for lead in leads))
    mask = (draw(*whole, 5, 7, seed=8) > -0.5) | np.eye(5, 7, dtype=bool)
    grad = draw(*whole, 5, 6, seed=9)
    q, k, v = (torch.tensor(x, requires_grad=True) for x in arrays)
    scores = q @ k.mT / 2
    if masked:
        scores = scores.masked_fill(~torch.tensor(mask), -torch.inf)
    weights = scores.softmax(-1)
    out = weights @ v
    out.backward(torch.tensor(grad))
    wanted = [x.detach().numpy() for x in (out, q.grad, k.grad, v.grad)]
    assert_close(run(way, *arrays, grad, mask if masked else None), wanted)
    seen = scaled_dot_product_attention(*map(Tensor, arrays), mask if masked else None)[1].data
    wanted = np.broadcast_to(weights.detach().numpy(), (*whole, 5, 7))
    assert seen.shape == wanted.shape
    np.testing.assert_allclose(seen, wanted, rtol=1e-12, atol=1e-15)


@every_way
def test_backward_twice(way):
    *arrays, grad = inputs()
    leaves = [Tensor(x, requires_grad=True) for x in arrays]
    out = way(*leaves, masks(5, 7, (2, 3))["random"], dropout=0.2, rng=PCG32(1))
    out.backward(grad, retain_graph=True)
    once = [leaf.grad.copy() for leaf in leaves]
    out.backward(grad)
    for leaf, gradient in zip(leaves, once, strict=True):
        np.testing.assert_allclose(leaf.grad, 2 * gradient, rtol=1e-12)


@every_way
@pytest.mark.parametrize(
    "shapes",
    [
        ((4,), (3, 4), (3, 4)),
        ((2, 4), (3, 5), (3, 5)),
        ((2, 4), (3, 4), (2, 4)),
        ((2, 3, 4), (3, 3, 4), (3, 3, 4)),
    ],
)
def test_errors(way, shapes):
    arrays = [Tensor(np.ones(shape)) for shape in shapes]
    with pytest.raises(ValueError):
        way(*arrays)


@every_way
def test_mask_error_names_both_conventions(way):
    q, k, v, _ = (Tensor(x) for x in inputs())
    for mask in (np.ones((5, 7)), np.ones((5, 7), int), np.zeros((5, 7), np.float32)):
        with pytest.raises(TypeError):
            way(q, k, v, mask)
    with pytest.raises(ValueError):
        way(q, k, v, np.ones((3, 7), bool))
    with pytest.raises(TypeError):
        way(Tensor(np.ones((2, 4), np.int64)), k, v)
    for arrays in ((q.data, k, v), (q, None, v), (q, k, [[1.0]])):
        with pytest.raises(TypeError):
            way(*arrays)
