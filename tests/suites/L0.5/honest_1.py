"""The loss, both optimisers, clipping and the schedule against torch and formulas; then faults."""

import math

import numpy as np
import pytest
import torch

from tinyllm.tensor import Tensor
from tinyllm.train import SGD, AdamW, clip_grad_norm, cross_entropy, warmup_cosine


def normal(*shape, seed=0):
    return np.asarray(np.random.default_rng(seed).normal(size=shape))


def leaf(x, dtype="f8"):
    return Tensor(np.array(x, dtype), requires_grad=True)


LOSSES = [((5, 3), 1), ((1, 1), 1), ((7,), 1), ((2, 4, 6), 1), ((300, 900), 1), ((2, 3, 2, 5), 1), ((4, 8), 200), ((3, 3), 1e-3)]  # fmt: skip


@pytest.mark.parametrize(("shape", "scale"), LOSSES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignore", [-100, 0, None])
def test_loss(shape, scale, reduction, ignore):
    x = scale * normal(*shape)
    t = np.random.default_rng(1).integers(0, shape[-1], shape[:-1])
    if ignore == -100 and t.ndim:
        t.reshape(-1)[::3] = -100
        t.reshape(-1)[-1] = shape[-1] - 1
    if ignore == 0 and reduction == "mean" and not (t != 0).any():
        ignore = None
    ours, theirs = leaf(x), torch.tensor(x, requires_grad=True)
    z = cross_entropy(ours, t, ignore, reduction)
    want = torch.nn.functional.cross_entropy(
        theirs.reshape(-1, shape[-1]), torch.tensor(t).reshape(-1),
        ignore_index=-1 if ignore is None else ignore, reduction=reduction,
    )  # fmt: skip
    assert z.shape == (t.shape if reduction == "none" else ())
    want = want.reshape(z.shape)
    np.testing.assert_allclose(z.data, want.detach().numpy(), rtol=1e-10, atol=1e-12)
    g = normal(*z.shape, seed=4)
    z.backward(g)
    want.backward(torch.tensor(g))
    np.testing.assert_allclose(ours.grad, theirs.grad.numpy(), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(ours.data, x)


def test_corners_of_the_loss():
    x = leaf([[0, 1e4, -1e4], [-1e5, 0, 0]])
    np.testing.assert_allclose(
        cross_entropy(x, [0, 0], reduction="none").data, [1e4, 1e5 + math.log(2)]
    )
    for dtype in ("f2", "f4"):
        y = leaf(np.zeros((3, 3000)), dtype)
        z = cross_entropy(y, [0, 1, 2])
        assert z.dtype == dtype
        np.testing.assert_allclose(z.item(), math.log(3000), rtol=1e-3)
        z.backward()
        assert y.grad.dtype == dtype
    half = leaf(np.zeros((70_000, 2)), "f2")
    np.testing.assert_allclose(
        cross_entropy(half, np.zeros(70_000, int)).item(), math.log(2), rtol=1e-3
    )
    bad = leaf([[np.nan, np.inf], [0, 0]])
    z = cross_entropy(bad, [-100, 1])
    z.backward()
    np.testing.assert_allclose(z.item(), math.log(2))
    assert bad.grad.tolist() == [[0, 0], [0.5, -0.5]]
    t = np.array([0, 1])
    x = leaf(normal(2, 2))
    z = cross_entropy(x, t)
    t[:] = 1 - t
    z.backward()
    assert (x.grad[[0, 1], [0, 1]] < 0).all()
    x = leaf(normal(2, 2))
    z = cross_entropy(x, [0, 1])
    old, x.data = x.data, normal(2, 2, seed=8)
    z.backward()
    still = leaf(old)
    cross_entropy(still, [0, 1]).backward()
    np.testing.assert_array_equal(x.grad, still.grad)
    assert cross_entropy(x, np.array([0, 1], "u1")).shape == ()
    assert cross_entropy(x, [-100, -100], reduction="sum").item() == 0
    assert cross_entropy(x, [-100, -100], reduction="none").tolist() == [0, 0]


@pytest.mark.parametrize(
    ("targets", "options", "error"),
    [
        ([0, 1, 2], {}, ValueError), ([[0, 1]], {}, ValueError), (0, {}, ValueError), ([0, 3], {}, ValueError), ([0, -1], {}, ValueError),
        ([0, -100], {"ignore": None}, ValueError), ([0, -100], {"ignore": 0}, ValueError), ([-100, -100], {}, ValueError),
        ([1, 1], {"ignore": 1}, ValueError), ([0, 1], {"reduction": "max"}, ValueError), ([0.0, 1.0], {}, TypeError), ([True, False], {}, TypeError),
    ],
)  # fmt: skip
def test_losses_refused(targets, options, error):
    with pytest.raises(error):
        cross_entropy(leaf(np.zeros((2, 3))), targets, **options)
    for wrong in (np.zeros((2, 3)), Tensor([[1, 2, 3], [4, 5, 6]])):
        with pytest.raises(TypeError):
            cross_entropy(wrong, [0, 1])
    with pytest.raises(ValueError):
        cross_entropy(leaf(0.0), 0)


SETTINGS = [
    (AdamW, torch.optim.AdamW, {}),
    (AdamW, torch.optim.AdamW, {"lr": 0.1, "betas": (0.5, 0.7), "eps": 1e-3, "weight_decay": 0.3}),
    (
        AdamW,
        torch.optim.AdamW,
        {"lr": 0.02, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.0},
    ),
    (SGD, torch.optim.SGD, {}),
    (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.2}),
    (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.5}),
    (SGD, torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.5}),
]


@pytest.mark.parametrize(("ours", "theirs", "settings"), SETTINGS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("scale", [1, 1e-6, 1e4])
def test_steps(ours, theirs, settings, dtype, scale):
    shapes = [(3, 4), (5,), (), (1500, 2)]
    start = [normal(*s, seed=i).astype(dtype) for i, s in enumerate(shapes)]
    p, q = [leaf(x, dtype) for x in start], [torch.tensor(x, requires_grad=True) for x in start]
    one, two = ours(p, **settings), theirs(q, **settings)
    for step in range(60):
        one.zero_grad()
        two.zero_grad()
        for i, (x, t) in enumerate(zip(p, q, strict=True)):
            if i == 1 and step % 3 == 0:
                assert x.grad is None
                continue
            g = (scale * normal(*x.shape, seed=100 + 7 * step + i)).astype(dtype)
            x.grad, t.grad = g.copy(), torch.tensor(g)
        old = [(x.data, x.data.copy()) for x in p]
        one.step()
        two.step()
        for array, kept in old:
            np.testing.assert_array_equal(array, kept)
        if step == 30:
            one.lr = two.param_groups[0]["lr"] = 0.03
    for x, t in zip(p, q, strict=True):
        assert x.dtype == dtype
        np.testing.assert_allclose(
            x.data,
            t.detach().numpy(),
            rtol=1e-9 if dtype == "f8" else 2e-3,
            atol=1e-9 if dtype == "f8" else 1e-3 * max(1, scale / 10),
        )


def test_which_decay():
    w, b = leaf([1.0, 2]), leaf([3.0])
    asked = []

    def decays(name, p):
        asked.append((name, p))
        return name == "w"

    one = AdamW([("w", w), ("b", b)], lr=0.1, weight_decay=0.5, decays=decays)
    w.grad, b.grad = np.zeros(2), np.zeros(1)
    one.step()
    np.testing.assert_allclose(w.data, [0.95, 1.9])
    assert b.tolist() == [3]
    assert {n for n, _ in asked} == {"w", "b"}
    assert all(p is w or p is b for _, p in asked)


def make(name, pairs):
    return AdamW(pairs, lr=0.1) if name == "AdamW" else SGD(pairs, lr=0.1, momentum=0.9)


@pytest.mark.parametrize("name", ["AdamW", "SGD"])
def test_going_on(name):
    def run(p, optimiser, steps):
        for step in steps:
            for x in p:
                x.grad = normal(*x.shape, seed=step)
            optimiser.step()

    p = [leaf(normal(3)), leaf(normal(2, 2), "f4")]
    one = make(name, [("a", p[0]), ("b", p[1])])
    fresh = one.state_dict()
    run(p, one, range(4))
    state = one.state_dict()
    kept = {n: a.copy() for n, a in state.items()}
    q = [leaf(x.data, x.dtype) for x in p]
    run(p, one, range(4, 8))
    for n, a in state.items():
        np.testing.assert_array_equal(a, kept[n])
    two = make(name, [("a", q[0]), ("b", q[1])])
    two.load_state_dict(state)
    for a in state.values():
        a += 1
    run(q, two, range(4, 8))
    for x, y in zip(p, q, strict=True):
        np.testing.assert_array_equal(x.data, y.data)
    fields = {"exp_avg", "exp_avg_sq", "step"} if name == "AdamW" else {"momentum_buffer"}
    assert set(kept) == set(fresh) == {f"{n}.{f}" for n in "ab" for f in fields}
    if name == "AdamW":
        assert kept["a.step"].dtype == np.int64
        assert kept["a.step"].shape == ()
        assert kept["a.step"] == 4
        assert kept["b.exp_avg"].dtype == np.float32
    some = next(iter(f for f in fields if f != "step"))
    before = two.state_dict()
    for changes, words in (
        ({f"a.{some}": np.ones(4)}, [f"a.{some}"]),
        ({"c.x": np.ones(1)}, ["c.x"]),
        ({f"a.{some}": None, f"b.{some}": np.ones(1)}, [f"a.{some}", f"b.{some}"]),
    ):
        given = {n: a for n, a in {**kept, **changes}.items() if a is not None}
        with pytest.raises(ValueError) as caught:
            two.load_state_dict(given)
        assert all(word in str(caught.value) for word in words)
        for n, a in two.state_dict().items():
            np.testing.assert_array_equal(a, before[n])
    assert set(make(name, p).state_dict()) == {f"{n}.{f}" for n in "01" for f in fields}


@pytest.mark.parametrize("name", ["AdamW", "SGD"])
def test_optimisers_refuse(name):
    kind, x = {"AdamW": AdamW, "SGD": SGD}[name], leaf([1.0])
    for wrong, error in (
        ([], ValueError), ([x, x], ValueError), ([("a", x), ("b", x)], ValueError), ([x * 2], ValueError), (x, TypeError),
        ([np.ones(1)], TypeError), ([Tensor([1])], TypeError), (3, TypeError),
    ):  # fmt: skip
        with pytest.raises(error):
            kind(wrong)
    from_generator = kind(p for p in [x])
    x.grad = np.ones(1)
    from_generator.step()
    assert x.data[0] < 1
    bad = [
        {"lr": -1},
        {"lr": math.inf},
        {"lr": math.nan},
        {"weight_decay": -0.1},
        {"weight_decay": math.nan},
    ]
    bad += [{"eps": -1}, {"eps": math.inf}, {"betas": (1.0, 0.9)}, {"betas": (0.9, 1.0)}, {"betas": (-0.1, 0.9)}] if name == "AdamW" else [{"momentum": -1}, {"momentum": math.inf}]  # fmt: skip
    y, z = leaf([1.0, 2]), leaf([3.0])
    for settings in bad:
        with pytest.raises(ValueError):
            kind([x], **settings)
        one = kind([y, z])
        y.grad, z.grad = np.ones(2), np.ones(1)
        for key, value in settings.items():
            setattr(one, key, value)
        with pytest.raises(ValueError):
            one.step()
    one = kind([y, z])
    kept = y.data
    y.grad = np.ones(2)
    z.data = np.ones(2)
    z.grad = np.ones(2)
    with pytest.raises(ValueError):
        one.step()
    z.data = np.ones(1, "f4")
    z.grad = np.ones(1, "f4")
    with pytest.raises(ValueError):
        one.step()
    assert y.data is kept
    assert y.tolist() == [1, 2]


def test_zero_and_extremes():
    for kind in (AdamW, SGD):
        x = leaf([1.0])
        one = kind([x], weight_decay=0.5)
        one.step()
        assert x.tolist() == [1]
        x.grad = np.zeros(1)
        one.zero_grad()
        assert x.grad is None
    x = leaf([1.0])
    one = AdamW([x], lr=0.1, weight_decay=0)
    x.grad = np.array([1e-5])
    one.step()
    np.testing.assert_allclose(x.data, 1 - 0.1 * 1e-5 / (1e-5 + 1e-8), rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-3, 1, 1e3, 1e100, 1e-100])
def test_clipping(scale):
    shapes = [(3,), (2, 5), (2000,), ()]
    for most in (0.5, 1e6, math.inf):
        p = [leaf(np.zeros(s)) for s in shapes] + [leaf([1.0])]
        for i, x in enumerate(p[:-1]):
            x.grad = np.asarray(scale * normal(*x.shape, seed=i))
        grads = [x.grad for x in p[:-1]]
        old = [g.copy() for g in grads]
        length = scale * math.sqrt(sum(((g / scale) ** 2).sum() for g in old))
        got = clip_grad_norm((x for x in p), most)
        np.testing.assert_allclose(got, length, rtol=1e-9)
        assert type(got) is float
        for x, g, kept in zip(p, grads, old, strict=False):
            assert x.grad is g
            np.testing.assert_allclose(g, kept * min(1, most / (length + 1e-6)), rtol=1e-9)
            assert x.tolist() == np.zeros(x.shape).tolist()
        assert p[-1].grad is None
    small = leaf(np.zeros(400), "f4")
    small.grad = np.full(400, 1e30, "f4")
    np.testing.assert_allclose(clip_grad_norm([("a", small)], 1.0), 2e31, rtol=1e-5)
    np.testing.assert_allclose(small.grad, 0.05, rtol=1e-4)
    assert small.grad.dtype == np.float32


def test_clipping_refuses():
    a, b, c = leaf([1.0, 1]), leaf([1.0]), leaf([2.0])
    for bad in (math.nan, math.inf, -math.inf):
        a.grad, b.grad, c.grad = np.array([3.0, 4]), np.array([bad]), np.array([5.0])
        for most in (1.0, math.inf):
            with pytest.raises(FloatingPointError, match="beta"):
                clip_grad_norm([("alpha", a), ("beta", b), ("gamma", c)], most)
        assert a.grad.tolist() == [3, 4]
        assert c.grad.tolist() == [5]
    for most in (0, -1, math.nan):
        with pytest.raises(ValueError):
            clip_grad_norm([a], most)
    assert clip_grad_norm([leaf([1.0])], 1.0) == 0


@pytest.mark.parametrize(
    ("peak", "warmup", "total", "floor"),
    [(1, 0, 10, 0), (0.3, 4, 20, 0.1), (2, 1, 2, 0.5), (1e-3, 1000, 50_000, 1e-5)],
)
def test_schedule(peak, warmup, total, floor):
    for step in {
        *range(min(total + 3, 40)),
        warmup,
        warmup - 1,
        warmup + 1,
        (warmup + total) // 2,
        total - 1,
        total,
        total + 1,
        9 * total,
    } - {-1}:
        got = warmup_cosine(step, peak=peak, warmup=warmup, total=total, floor=floor)
        if step < warmup:
            want = peak * (step + 1) / warmup
        elif step < total:
            want = (
                floor
                + (peak - floor) * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2
            )
        else:
            want = floor
        assert got == pytest.approx(want, rel=1e-12, abs=1e-15)
    assert warmup_cosine(total, peak=1, warmup=warmup, total=total) == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(
    ("step", "warmup", "total"), [(-1, 1, 2), (0, 2, 2), (0, 3, 2), (0, -1, 2), (0, 0, 0)]
)
def test_schedules_refused(step, warmup, total):
    with pytest.raises(ValueError):
        warmup_cosine(step, peak=1.0, warmup=warmup, total=total)


def test_long_runs_and_many_parameters():
    x, m, v = leaf(normal(3)), 0.0, 0.0
    want, betas = x.data.copy(), (0.9, 0.999)
    one = AdamW([x], lr=0.01, weight_decay=0)
    for s in range(1, 401):
        if s == 200:
            one.betas = betas = (0.5, 0.9)
        g = normal(3, seed=s)
        m, v = m + (1 - betas[0]) * (g - m), betas[1] * v + (1 - betas[1]) * g * g
        want -= 0.01 * (m / (1 - betas[0] ** s)) / (np.sqrt(v / (1 - betas[1] ** s)) + 1e-8)
        x.grad = g
        one.step()
    np.testing.assert_allclose(x.data, want, rtol=1e-9)
    many = [leaf([1.0]) for _ in range(150)]
    for q in many:
        q.grad = np.ones(1)
    assert clip_grad_norm(many, 1.0) == pytest.approx(math.sqrt(150))
    rate = warmup_cosine(75_000, peak=1.0, warmup=0, total=100_000)
    assert rate == pytest.approx((1 + math.cos(0.75 * math.pi)) / 2)
    half = leaf(np.zeros((70_000, 2)), "f2")
    half.data[:, 0] = 1
    z = cross_entropy(half, np.zeros(70_000, int))
    assert z.dtype == np.float16
    (z * 1000).backward()
    np.testing.assert_allclose(half.grad[:, 1], 1000 / 70_000 / (1 + math.e), rtol=1e-2)
