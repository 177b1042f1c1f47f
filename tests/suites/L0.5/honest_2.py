"""Everything by its formula in numpy, a number at a time, with differences for the gradients."""

import itertools
import math

import numpy as np
import pytest

from tinyllm.num.gradcheck import gradcheck
from tinyllm.tensor import Tensor
from tinyllm.train import SGD, AdamW, clip_grad_norm, cross_entropy, warmup_cosine


def normal(*shape, seed=0):
    return np.asarray(np.random.default_rng(seed).normal(size=shape))


def leaf(x, dtype="f8"):
    return Tensor(np.array(x, dtype), requires_grad=True)


def loss_of(row, target):
    top = max(row)
    return top + math.log(sum(math.exp(v - top) for v in row)) - row[target]


@pytest.mark.parametrize(
    "shape", [(1, 2), (4, 3), (5,), (2, 3, 4), (2, 1, 2, 3), (400, 3), (3, 700)]
)
@pytest.mark.parametrize("ignore", [-100, 1, 99, None])
def test_loss(shape, ignore):
    x = 3 * normal(*shape)
    t = np.random.default_rng(2).integers(0, shape[-1], shape[:-1])
    if ignore is not None:
        t = np.where(np.arange(t.size).reshape(t.shape) % 3 == 1, ignore, t)
    counts = np.atleast_1d(t != ignore).reshape(-1)
    rows, flat = x.reshape(-1, shape[-1]), t.reshape(-1)
    each = [loss_of(r, k) if c else 0.0 for r, k, c in zip(rows, flat, counts, strict=True)]
    each = np.array(each)
    wants = {
        "none": each.reshape(t.shape),
        "sum": each.sum(),
        "mean": each.sum() / max(1, counts.sum()),
    }
    for reduction, want in wants.items():
        if not counts.any() and reduction == "mean":
            continue
        z = cross_entropy(leaf(x), t, ignore=ignore, reduction=reduction)
        assert z.shape == np.shape(want)
        np.testing.assert_allclose(z.data, want, rtol=1e-11, atol=1e-13)
        y = leaf(x)
        g = normal(*z.shape, seed=1)
        cross_entropy(y, t, ignore=ignore, reduction=reduction).backward(g)
        e = np.exp(rows - rows.max(axis=1, keepdims=True))
        slope = e / e.sum(axis=1, keepdims=True)
        slope[counts, flat[counts]] -= 1
        slope *= counts[:, None] * np.broadcast_to(g, t.shape).reshape(-1)[:, None]
        slope /= counts.sum() if reduction == "mean" else 1
        np.testing.assert_allclose(y.grad, slope.reshape(shape), rtol=1e-9, atol=1e-13)
        if x.size < 30:
            gradcheck(lambda v, r=reduction: cross_entropy(v, t, ignore, r), [leaf(x)])


def test_loss_of_odd_numbers():
    z = cross_entropy(leaf([[1000.0, 0, -1000]] * 3), [0, 1, 2], reduction="none")
    np.testing.assert_allclose(z.data, [0, 1000, 2000])
    hidden = leaf([[np.nan] * 3, [0, 0, 0], [np.inf] * 3])
    z = cross_entropy(hidden, [-100, 2, -100])
    z.backward()
    np.testing.assert_allclose(z.item(), math.log(3))
    assert hidden.grad[[0, 2]].tolist() == [[0] * 3] * 2
    for dtype, n in itertools.product(("f2", "f4"), (2, 5000)):
        x = leaf(np.zeros((n, 4)), dtype)
        for reduction, want in (("mean", math.log(4)), ("none", math.log(4))):
            z = cross_entropy(x, np.zeros(n, "i4"), reduction=reduction)
            assert z.dtype == dtype
            np.testing.assert_allclose(z.data, want, rtol=1e-3)
            x.grad = None
            z.backward(np.ones(z.shape, dtype))
            assert x.grad.dtype == dtype
    wide = leaf(np.zeros((1, 9000)), "f2")
    np.testing.assert_allclose(cross_entropy(wide, [8999]).item(), math.log(9000), rtol=1e-3)
    targets, x = np.array([0, 0]), leaf(np.zeros((2, 2)))
    z = cross_entropy(x, targets)
    targets += 1
    x.data = np.full((2, 2), 5.0) * [1, 9]
    z.backward()
    assert x.grad.tolist() == [[-0.25, 0.25]] * 2
    for reduction in ("sum", "none"):
        y = leaf(np.zeros((2, 2)))
        z = cross_entropy(y, [-100] * 2, reduction=reduction)
        z.backward(np.ones(z.shape))
        assert (z.data == 0).all()
        assert (y.grad == 0).all()


def test_losses_refused():
    x = leaf(np.zeros((2, 3)))
    for t in ([0], [[0, 1]], [0, 3], [-1, 0], [-100, -100], 0):
        with pytest.raises(ValueError):
            cross_entropy(x, t)
    for options in ({"ignore": None}, {"reduction": "average"}, {"ignore": 5}):
        with pytest.raises(ValueError):
            cross_entropy(x, [0, -100], **options)
    for logits, t in ((x, [0.0, 1]), (x, ["a", "b"]), (x.data, [0, 1]), (Tensor([[1, 2]]), [0])):
        with pytest.raises(TypeError):
            cross_entropy(logits, t)
    for reduction in ("none", "sum"):
        with pytest.raises(ValueError):
            cross_entropy(x, [0, 7], reduction=reduction)


def adamw(x, m, v, s, g, lr, b1, b2, eps, decay):
    m = m + (1 - b1) * (g - m)
    v = b2 * v + (1 - b2) * g * g
    move = lr * m / (1 - b1**s) / (np.sqrt(v / (1 - b2**s)) + eps)
    return (1 - lr * decay) * x - move, m, v


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    ("lr", "betas", "eps", "decay"),
    [
        (1e-3, (0.9, 0.999), 1e-8, 0.01),
        (0.3, (0.0, 0.5), 1e-2, 0.4),
        (0.1, (0.8, 0.0), 0.5, 0),
        (0, (0.9, 0.99), 1e-8, 1.0),
    ],
)
def test_adamw(dtype, lr, betas, eps, decay):
    shapes = [(2, 3), (), (3000,), (1, 1, 2)]
    p = [leaf(normal(*s, seed=i), dtype) for i, s in enumerate(shapes)]
    x = [q.data.astype("f8") for q in p]
    m, v, count = [0.0] * 4, [0.0] * 4, [0] * 4
    one = AdamW(
        [(f"p{i}", q) for i, q in enumerate(p)],
        lr,
        betas,
        eps,
        decay,
        lambda n, q: n != "p0" and q.ndim < 3,
    )
    for step in range(50):
        if step == 20:
            one.lr = lr = lr / 2
        one.zero_grad()
        for i, q in enumerate(p):
            if (step + i) % 5 == 0:
                continue
            g = normal(*q.shape, seed=50 * step + i).astype(dtype)
            if step % 7 == 3:
                g = g * 0
            q.grad = np.asarray(g)
            count[i] += 1
            x[i], m[i], v[i] = adamw(
                x[i],
                m[i],
                v[i],
                count[i],
                g.astype("f8"),
                lr,
                *betas,
                eps,
                decay if i not in (0, 3) else 0,
            )
        before = [(q.data, q.data.copy()) for q in p]
        one.step()
        for array, kept in before:
            np.testing.assert_array_equal(array, kept)
    state = one.state_dict()
    tol = {"f4": 2e-4, "f8": 1e-11}[dtype]
    for i, q in enumerate(p):
        np.testing.assert_allclose(q.data, x[i], rtol=tol, atol=tol)
        np.testing.assert_allclose(state[f"p{i}.exp_avg"], m[i], rtol=tol, atol=tol)
        np.testing.assert_allclose(state[f"p{i}.exp_avg_sq"], v[i], rtol=tol, atol=tol)
        assert state[f"p{i}.step"].item() == count[i]
        assert q.dtype == state[f"p{i}.exp_avg"].dtype == dtype
        assert state[f"p{i}.exp_avg"].shape == q.shape


@pytest.mark.parametrize(
    ("lr", "momentum", "decay"), [(1e-3, 0, 0), (0.1, 0.9, 0), (0.2, 0.0, 0.3), (0.05, 0.5, 0.1)]
)
def test_sgd(lr, momentum, decay):
    p = [leaf(normal(3)), leaf(normal(2, 900), "f4"), leaf([1.0])]
    x, u = [q.data.astype("f8") for q in p], [0.0, 0.0, 0.0]
    one = SGD(p, lr, momentum, decay)
    for step in range(30):
        one.zero_grad()
        for i, q in enumerate(p[:2]):
            if step % 4 == i:
                continue
            q.grad = normal(*q.shape, seed=step).astype(q.dtype)
            u[i] = momentum * u[i] + q.grad + decay * x[i]
            x[i] = x[i] - lr * u[i]
        one.step()
    for q, want in zip(p, x, strict=True):
        np.testing.assert_allclose(q.data, want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(p[0].data, x[0], rtol=1e-12)
    assert p[1].dtype == np.float32
    state = one.state_dict()
    assert set(state) == {f"{i}.momentum_buffer" for i in range(3)}
    if momentum:
        np.testing.assert_allclose(state["0.momentum_buffer"], u[0], rtol=1e-11)
    state["0.momentum_buffer"] += 1
    if momentum:
        np.testing.assert_allclose(one.state_dict()["0.momentum_buffer"], u[0], rtol=1e-11)


@pytest.mark.parametrize("kind", [AdamW, SGD])
def test_resuming_and_refusing(kind):
    rest = {"momentum": 0.9} if kind is SGD else {}
    p, q = leaf(normal(4)), leaf(normal(4))
    one, two = kind([("w", p)], lr=0.1, **rest), kind([("w", q)], lr=0.1, **rest)
    for step in range(5):
        p.grad = normal(4, seed=step)
        one.step()
    q.data, state = p.data.copy(), one.state_dict()
    two.load_state_dict(state)
    for a in state.values():
        a += 3
    for step in range(5):
        p.grad, q.grad = normal(4, seed=step), normal(4, seed=step)
        one.step()
        two.step()
    np.testing.assert_array_equal(p.data, q.data)
    field = next(iter(state))
    good = one.state_dict()
    for wrong, words in (
        ({}, list(good)),
        ({**good, "more": 1.0}, ["more"]),
        ({**good, field: np.ones(3), "odd": 1}, [field, "odd"]),
    ):
        with pytest.raises(ValueError) as caught:
            two.load_state_dict(wrong)
        assert all(word in str(caught.value) for word in words)
    for n, a in two.state_dict().items():
        np.testing.assert_array_equal(a, good[n])
    for wrong in ([], [p, p], [p * 1]):
        with pytest.raises(ValueError):
            kind(wrong)
    for wrong in (p, 1, [1], [p.data], [Tensor([1, 2])]):
        with pytest.raises(TypeError):
            kind(wrong)
    keys = ["lr", "weight_decay", *(["momentum"] if kind is SGD else ["eps"])]
    for key, value in itertools.product(keys, (-1e-9, math.nan, math.inf)):
        with pytest.raises(ValueError):
            kind([p], **{key: value})
        fresh, kept = kind([p]), p.data
        setattr(fresh, key, value)
        p.grad = np.ones(4)
        with pytest.raises(ValueError):
            fresh.step()
        assert p.data is kept
    if kind is AdamW:
        for betas in ((1, 0.5), (0.5, 1), (-0.1, 0.5), (0.5, -0.1)):
            with pytest.raises(ValueError):
                AdamW([p], betas=betas)
    first, second = leaf([1.0]), leaf([1.0])
    both = kind([first, second])
    first.grad = np.ones(1)
    for data in (np.ones(2), np.ones(1, "f4")):
        second.data = data
        second.grad = np.ones_like(data)
        with pytest.raises(ValueError):
            both.step()
        assert first.tolist() == [1]
    both.zero_grad()
    assert first.grad is second.grad is None


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_clipping(dtype):
    for sizes, most in itertools.product(
        ([3], [2, 7, 1], [1] * 50, [5000, 3]), (1e-3, 0.7, 1e5, math.inf)
    ):
        p = [leaf(np.zeros(n), dtype) for n in sizes]
        for i, q in enumerate(p):
            q.grad = normal(q.size, seed=i).astype(dtype)
        idle = leaf([1.0])
        old, held = [q.grad.copy() for q in p], [q.grad for q in p]
        want = math.sqrt(math.fsum(float(v) ** 2 for g in old for v in g))
        tol = {"f2": 2e-3, "f4": 1e-5, "f8": 1e-10}[dtype]
        assert clip_grad_norm([*p, idle], most) == pytest.approx(want, rel=tol)
        for q, g, h in zip(p, old, held, strict=True):
            assert q.grad is h
            assert h.dtype == dtype
            np.testing.assert_allclose(
                h, g * min(1, most / (want + 1e-6)), rtol=tol, atol=1e-6 if dtype == "f2" else 0
            )
        assert idle.grad is None


def test_clipping_small_large_and_wrong():
    x = leaf([0.0, 0])
    x.grad = np.array([3e-7, 4e-7])
    assert clip_grad_norm([x], 1e-6) == pytest.approx(5e-7)
    np.testing.assert_allclose(x.grad, np.array([3e-7, 4e-7]) / 1.5, rtol=1e-6)
    for dtype, big in (("f2", 6e4), ("f4", 1e30)):
        y = leaf(np.zeros(100), dtype)
        y.grad = np.full(100, big, dtype)
        assert clip_grad_norm([y], 1.0) == pytest.approx(10 * big, rel=1e-3)
        np.testing.assert_allclose(y.grad, 0.1, rtol=1e-2)
    for bad in (np.nan, np.inf, -np.inf):
        y = leaf([1.0])
        x.grad, y.grad = np.array([3.0, 4]), np.array([bad])
        for most in (1.0, math.inf):
            with pytest.raises(FloatingPointError, match="broken"):
                clip_grad_norm([("fine", x), ("broken", y)], most)
        assert x.grad.tolist() == [3, 4]
    for most in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError):
            clip_grad_norm([x], most)
    for wrong, error in (
        ([], ValueError),
        ([x, x], ValueError),
        (x, TypeError),
        ([x.data], TypeError),
    ):
        with pytest.raises(error):
            clip_grad_norm(wrong, 1.0)


def test_schedule():
    for warmup, total, floor in itertools.product((0, 1, 5), (6, 50, 10_000), (0.0, 0.2)):
        rate = [
            warmup_cosine(s, peak=2.0, warmup=warmup, total=total, floor=floor)
            for s in range(total + 4)
        ]
        np.testing.assert_allclose(rate[:warmup], [2 * (s + 1) / warmup for s in range(warmup)])
        assert rate[warmup] == pytest.approx(2)
        turn = np.linspace(0, math.pi, total - warmup + 1)
        np.testing.assert_allclose(
            rate[warmup : total + 1], floor + (2 - floor) * (np.cos(turn) + 1) / 2, atol=1e-12
        )
        np.testing.assert_allclose(rate[total:], floor, atol=1e-15)
    for step, warmup, total in ((-1, 0, 1), (0, 1, 1), (0, 2, 1), (5, -1, 9)):
        with pytest.raises(ValueError):
            warmup_cosine(step, peak=1, warmup=warmup, total=total)


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
