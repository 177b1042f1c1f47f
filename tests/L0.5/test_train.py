# Tangled from book/1-foundations/L0.5-tests.md
"""L0.5: loss, AdamW, clipping and schedule; the oracle is torch."""

import math
from functools import partial

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tinyllm.nn import Linear, Module, Sequential
from tinyllm.num.gradcheck import gradcheck
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor
from tinyllm.train import SGD, AdamW, clip_grad_norm, cross_entropy, warmup_cosine

torch.set_num_threads(1)
SEEDED = hypothesis.settings(derandomize=True, database=None, deadline=None, max_examples=40)


def normal(*shape, seed=0, scale=1.0):
    return np.random.default_rng(seed).normal(size=shape) * scale


def leaf(data):
    return Tensor(data, requires_grad=True)


def close(ours, theirs, tolerance=1e-12):
    theirs = theirs.detach().numpy() if isinstance(theirs, torch.Tensor) else theirs
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def hand_loss() -> tuple[Tensor, Tensor]:
    """The logits of section 3.1 and their loss."""
    logits = Tensor(np.array([[2.0, 1, 0], [5, 5, 5], [1, 1, 1]]), requires_grad=True)
    return logits, cross_entropy(logits, [0, -100, 2])


def hand_adamw() -> list[float]:
    """The number of section 3.2 after each of its two steps."""
    theta = Tensor(1.0, requires_grad=True)
    optimizer = AdamW([theta], lr=0.1, weight_decay=0.1)
    seen = []
    for gradient in (4.0, -2.0):
        theta.grad = np.array(gradient)
        optimizer.step()
        seen.append(theta.item())
    return seen


def training_step(model, optimizer, x, targets, rate, max_norm=1.0):
    """One step on one batch; the loss before it and the length of its gradient."""
    model.zero_grad()
    loss = cross_entropy(model(x), targets)
    loss.backward()
    norm = clip_grad_norm(model.named_parameters(), max_norm)
    optimizer.lr = rate
    optimizer.step()
    return loss.item(), norm


def test_hand_example_loss():
    logits, loss = hand_loss()
    loss.backward()
    close(loss.item(), 0.753109, 5e-7)
    close(
        logits.grad,
        [[-0.167380, 0.122364, 0.045015], [0, 0, 0], [1 / 6, 1 / 6, -1 / 3]],
        5e-7,
    )


def test_hand_example_adamw():
    close(hand_adamw(), [0.89, 0.854466], 5e-7)


SHAPES = [(5, 3), (2, 4, 7), (1, 1), (2, 3, 4, 2), (6,)]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ignored", ["none", "some", "all but one"])
def test_cross_entropy_against_torch(shape, reduction, ignored):
    z = normal(*shape, scale=3.0)
    t = np.random.default_rng(1).integers(0, shape[-1], shape[:-1])
    if ignored != "none" and t.size:
        share = 0.4 if ignored == "some" else 1.0
        hidden = np.asarray(np.random.default_rng(2).random(t.shape) < share)
        hidden.reshape(-1)[-1] = False
        t = np.where(hidden, -100, t)
    ours, theirs = leaf(z), torch.tensor(z, requires_grad=True)
    loss = cross_entropy(ours, t, reduction=reduction)
    want = torch.nn.functional.cross_entropy(
        theirs.reshape(-1, shape[-1]), torch.tensor(t).reshape(-1), reduction=reduction
    )
    assert loss.shape == (t.shape if reduction == "none" else ())
    close(loss.data.reshape(-1), want.reshape(-1))
    cotangent = normal(*loss.shape, seed=3)
    loss.backward(cotangent)
    want.backward(torch.tensor(cotangent).reshape(want.shape))
    close(ours.grad, theirs.grad)


def test_gradient_is_belief_minus_truth():
    z, t = leaf(normal(6, 4)), np.array([0, 3, 9, 1, 9, 2])
    loss = cross_entropy(z, t, ignore=9)
    loss.backward()
    truth = np.zeros((6, 4))
    counted = [0, 1, 3, 5]
    truth[counted, t[counted]] = 1
    want = (softmax(z.data) - truth) / 4
    want[[2, 4]] = 0
    close(z.grad, want)
    close(z.grad.sum(axis=1), np.zeros(6))
    loss = cross_entropy(leaf([[30.0, 0, 0]]), [0])
    assert 0 < loss.item() < 1e-12  # certain and right


def test_gradcheck_cross_entropy():
    for reduction in ("mean", "sum", "none"):
        gradcheck(
            lambda z, r=reduction: cross_entropy(z, [[1, 0], [-100, 4]], reduction=r),
            [leaf(normal(2, 2, 5))],
        )


def test_ignored_positions_count_for_nothing():
    z, t = normal(3, 4, 5), np.random.default_rng(1).integers(0, 5, (3, 4))
    short = leaf(z)
    cross_entropy(short, t).backward()
    filled = np.full((3, 9, 5), np.nan)
    filled[:, :4] = z
    filled[:, 5] = np.inf
    filled[:, 6] = -np.inf
    targets = np.full((3, 9), 7)  # 7 is no class: it is what is ignored
    targets[:, :4] = t
    long = leaf(filled)
    loss = cross_entropy(long, targets, ignore=7)
    loss.backward()
    assert loss.item() == cross_entropy(Tensor(z), t).item()
    assert (long.grad[:, :4] == short.grad).all()
    assert (long.grad[:, 4:] == 0).all()
    each = cross_entropy(long, targets, ignore=7, reduction="none")
    assert (each.data[:, 4:] == 0).all()
    assert cross_entropy(long, np.full((3, 9), 7), ignore=7, reduction="sum").item() == 0
    one_class_ignored = cross_entropy(leaf(z), t, ignore=2)  # also a class may be what is ignored
    close(one_class_ignored.item(), cross_entropy(leaf(z[t != 2]), t[t != 2]).item())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_far_logits(dtype):
    for size in (1e3, 1e4):
        z = leaf(np.array([[size, 0, -size], [-size, size, 0]], dtype))
        loss = cross_entropy(z, [2, 1], reduction="none")
        assert loss.data.tolist() == [2 * size, 0]
        loss.backward(np.ones(2, dtype))
        assert z.grad.tolist() == [[1, 0, -1], [0, 0, 0]]
    shifted = leaf(np.array([[1e4 + 2, 1e4 + 1, 1e4]], dtype))
    close(cross_entropy(shifted, [0]).item(), 0.407606, 5e-7)


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_no_classes_and_nothing_that_counts(reduction):
    logits = Tensor(np.zeros((2, 0)), requires_grad=True)
    loss = cross_entropy(logits, [-100, -100], reduction=reduction)
    assert (loss.data == 0).all()  # as in torch
    loss.sum().backward()
    assert logits.grad.shape == (2, 0)


def test_loss_of_knowing_nothing():
    for V in (2, 14, 50257):
        close(cross_entropy(Tensor(np.full((2, V), 3.0)), [0, V - 1]).item(), math.log(V))


def test_loss_dtypes_and_layouts():
    z = normal(4, 6)
    t = np.array([1, 5, 0, 2])
    want = cross_entropy(Tensor(z), t).item()
    for dtype, tolerance in (("float16", 2e-3), ("float32", 1e-6), ("float64", 1e-15)):
        x = leaf(z.astype(dtype))
        x.data.setflags(write=False)
        loss = cross_entropy(x, t)
        loss.backward()
        assert loss.dtype == x.grad.dtype == dtype
        close(loss.item(), want, tolerance)
    big = Tensor(np.full((1, 4), 60000.0, "float16"))  # the sum of the exponentials is float32's
    close(cross_entropy(big, [0]).item(), math.log(4), 1e-3)
    for view in (np.asfortranarray(z), z[::-1], z.T.copy().T, np.repeat(z, 2, 1)[:, ::2]):
        x, y = leaf(view), leaf(view.copy())
        cross_entropy(x, t).backward()
        cross_entropy(y, t).backward()
        assert (x.grad == y.grad).all()
    for ids in (t.astype("uint8"), t.tolist(), Tensor(t), t[::-1][::-1]):
        assert cross_entropy(Tensor(z), ids).item() == want
    x = leaf(z)
    loss = cross_entropy(x, t)
    loss.backward(retain_graph=True)
    first = x.grad
    loss.backward()
    assert (x.grad == 2 * first).all()  # the backward pass leaves what it remembers as it was


def test_loss_over_many_positions_in_float16():
    for reduction, n in (("mean", 70_000), ("sum", 1), ("none", 1)):
        x = leaf(np.zeros((70_000, 2), "float16"))
        loss = cross_entropy(x, np.zeros(70_000, int), reduction=reduction)
        loss.backward(np.ones(loss.shape, "float16"))
        close(x.grad, np.full((70_000, 2), [-0.5 / n, 0.5 / n]), 2.0**-25)  # half a step of float16


def test_loss_validation():
    z = Tensor(normal(2, 3))
    for logits in (Tensor(np.eye(2, dtype=int)), Tensor(np.eye(2) > 0)):
        with pytest.raises(TypeError):
            cross_entropy(logits, [0, 1])
    for logits in (z.data, z.data.tolist()):
        with pytest.raises(TypeError):
            cross_entropy(logits, [0, 1])
    for targets in ([0.0, 1.0], [True, False], ["a", "b"]):
        with pytest.raises(TypeError):
            cross_entropy(z, targets)
    for targets in ([0], [[0, 1]], 0, [0, 1, 2]):
        with pytest.raises(ValueError):
            cross_entropy(z, targets)
    for bad in (-1, 3, -101, -5000, 70_000):
        with pytest.raises(ValueError):
            cross_entropy(z, [0, bad])
    with pytest.raises(ValueError):
        cross_entropy(z, [0, -100], ignore=None)
    with pytest.raises(ValueError):
        cross_entropy(z, [-100, -100])
    with pytest.raises(ValueError):
        cross_entropy(Tensor(np.ones((0, 3))), np.zeros(0, int))
    with pytest.raises(ValueError):
        cross_entropy(z, [0, 1], reduction="average")
    assert cross_entropy(z, [-1, 1], ignore=-1).item() > 0


def test_first_step_is_the_learning_rate():
    g = np.array([1e-3, -1e-2, 1.0, -50, 1e3])
    p = leaf(np.zeros(5))
    optimizer = AdamW([p], lr=0.01, weight_decay=0.5)  # of zeros: nothing decays
    p.grad = g
    optimizer.step()
    close(p.data, -0.01 * np.sign(g), 1e-7)


def test_decay_is_decoupled():
    start = np.array([1.0, -2.0, 3.0])
    for scale in (1e-3, 1.0, 1e3):
        g = scale * np.array([1.0, 1, 1])
        moved = []
        for decay in (0.0, 0.3):
            p = leaf(start)
            optimizer = AdamW([p], lr=0.1, weight_decay=decay)
            p.grad = g
            optimizer.step()
            moved.append(p.data)
        close(moved[1] - moved[0], -0.1 * 0.3 * start, 1e-12)
    p = leaf(start)
    optimizer = AdamW([p], lr=0.1, weight_decay=0.3)
    for _ in range(3):
        p.grad = np.zeros(3)
        optimizer.step()
    close(p.data, start * 0.97**3)


def test_small_gradients_are_not_damped():
    p = leaf(np.zeros(2))
    optimizer = AdamW([p], lr=0.01)
    p.grad = np.array([1e-6, 1e-8])
    optimizer.step()
    close(p.data, [-0.01 / 1.01, -0.01 / 2], 1e-9)


SETTINGS = [
    {},
    {"lr": 0.1, "betas": (0.5, 0.6), "eps": 1e-3, "weight_decay": 0.2},
    {"lr": 3e-3, "betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": 0.0},
    {"betas": (0.0, 0.0), "eps": 1e-6},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_adamw_against_torch(settings):
    shapes = [(3, 4), (5,), (), (2, 1, 3), (0, 4)]
    ours = [leaf(normal(*shape, seed=i)) for i, shape in enumerate(shapes)]
    theirs = [torch.tensor(p.data, requires_grad=True) for p in ours]
    optimizer, oracle = AdamW(ours, **settings), torch.optim.AdamW(theirs, **settings)
    for step in range(50):
        for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
            p.grad = normal(*p.shape, seed=100 * step + i, scale=10.0 ** (step % 5 - 2))
            q.grad = torch.tensor(p.grad)
        optimizer.step()
        oracle.step()
        for p, q in zip(ours, theirs, strict=True):
            close(p.data, q)


def test_nothing_remembered():
    ours = [leaf(np.zeros(2, "f4")), leaf(np.zeros(2))]
    theirs = [torch.tensor(p.data, requires_grad=True) for p in ours]
    settings = {"lr": 0.1, "betas": (0.0, 0.0), "weight_decay": 0.0}
    optimizer, oracle = AdamW(ours, **settings), torch.optim.AdamW(theirs, **settings)
    for size in (1e8, 5.0, -1e-3, 1e8, 0.0, 3.0):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = np.array([size, -size], p.dtype)
            q.grad = torch.tensor(p.grad)
        optimizer.step()
        oracle.step()
        for p, q in zip(ours, theirs, strict=True):
            close(p.data, q, 1e-6 if p.dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("kind", [SGD, partial(AdamW, betas=(0.0, 0.0))])
def test_nothing_infinite_is_remembered_by_a_rate_of_0(kind):
    p = Tensor(np.zeros(2), requires_grad=True)
    fresh = Tensor(np.zeros(2), requires_grad=True)
    optimizer, other = kind([p], lr=0.1), kind([fresh], lr=0.1)
    p.grad = np.array([np.inf, 1.0])
    with np.errstate(invalid="ignore"):
        optimizer.step()
    p.data = np.zeros(2)
    for _ in range(2):
        p.grad, fresh.grad = np.ones(2), np.ones(2)
        optimizer.step()
        other.step()
    np.testing.assert_array_equal(p.data, fresh.data)
    assert np.isfinite(
        np.concatenate(list(map(np.atleast_1d, optimizer.state_dict().values())))
    ).all()


@pytest.mark.parametrize("kind", [SGD, AdamW])
def test_what_cannot_be_trained_is_refused(kind):
    p = Tensor(np.ones(2), requires_grad=True)
    for call in (kind, partial(clip_grad_norm, max_norm=1.0)):
        for wrong in ([("twice", p * 2)], [("w", p), ("w", Tensor(np.ones(2)))]):
            with pytest.raises(ValueError):
                call(wrong)
        with pytest.raises(TypeError):
            call([Tensor([1, 2])])
    frozen = kind([Tensor(np.ones(2)), (p * 2).detach()])  # leaves that are frozen may be given
    frozen.step()
    optimizer = kind([p])
    p.grad = [1.0, 1.0]
    for call in (optimizer.step, partial(clip_grad_norm, [p], 1.0)):
        with pytest.raises(TypeError):
            call()
    p.grad = None
    optimizer.lr = "0.1"
    with pytest.raises(ValueError):
        optimizer.step()


def test_parameters_without_gradient_stay():
    ours = [leaf(normal(3, seed=i)) for i in range(4)]
    theirs = [torch.tensor(p.data, requires_grad=True) for p in ours]
    optimizer, oracle = AdamW(ours, lr=0.1), torch.optim.AdamW(theirs, lr=0.1)
    for step in range(12):
        for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
            has_one = i == 0 or (i < 3 and step % (i + 1) == 0)  # the last never gets one
            p.grad = normal(3, seed=50 * step + i) if has_one else None
            q.grad = torch.tensor(p.grad) if has_one else None
        optimizer.step()
        oracle.step()
        for p, q in zip(ours, theirs, strict=True):
            close(p.data, q)
    assert (ours[3].data == normal(3, seed=3)).all()
    assert [int(optimizer.state_dict()[f"{i}.step"]) for i in range(4)] == [12, 6, 4, 0]


def test_decays_chooses_parameters():
    ours = {"weight": leaf(normal(3, 2)), "bias": leaf(normal(3)), "scale": leaf(normal(2))}
    theirs = {name: torch.tensor(p.data, requires_grad=True) for name, p in ours.items()}
    optimizer = AdamW(ours.items(), lr=0.1, weight_decay=0.5, decays=lambda name, p: p.ndim > 1)
    oracle = torch.optim.AdamW(
        [
            {"params": [theirs["weight"]], "weight_decay": 0.5},
            {"params": [theirs["bias"], theirs["scale"]], "weight_decay": 0.0},
        ],
        lr=0.1,
    )
    for step in range(5):
        for name, p in ours.items():
            p.grad = normal(*p.shape, seed=step)
            theirs[name].grad = torch.tensor(p.grad)
        optimizer.step()
        oracle.step()
    for name, p in ours.items():
        close(p.data, theirs[name])


@pytest.mark.parametrize("momentum", [0.0, 0.9, 1.5])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_sgd_against_torch(momentum, decay):
    shapes = [(3, 4), (5,), (), (0, 4)]
    ours = [leaf(normal(*shape, seed=i)) for i, shape in enumerate(shapes)]
    theirs = [torch.tensor(p.data, requires_grad=True) for p in ours]
    settings = {"lr": 0.05, "momentum": momentum, "weight_decay": decay}
    optimizer, oracle = SGD(ours, **settings), torch.optim.SGD(theirs, **settings)
    for step in range(12):
        optimizer.lr = oracle.param_groups[0]["lr"] = 0.05 / (step + 1)
        for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
            has_one = i != 1 or step % 3 == 1
            p.grad = normal(*p.shape, seed=50 * step + i) if has_one else None
            q.grad = torch.tensor(p.grad) if has_one else None
        optimizer.step()
        oracle.step()
        for p, q in zip(ours, theirs, strict=True):
            close(p.data, q)
    optimizer.zero_grad()
    assert all(p.grad is None for p in ours)


def test_sgd_by_hand():
    start = np.array([1.0, -1.0], "f4")
    p = leaf(start)
    optimizer = SGD([p], lr=np.float64(0.5), momentum=0.5)
    for wanted in ([0.0, -2.0], [-1.5, -3.5]):  # u = (2, 2), then (1, 1) + (2, 2)
        p.grad = np.array([2.0, 2.0], "f4")
        before = p.data
        optimizer.step()
        assert p.data.tolist() == wanted
        assert p.dtype == np.float32
        assert not np.shares_memory(before, p.data)
    assert start.tolist() == [1.0, -1.0]


def test_sgd_resumes():
    def run(start, state, steps):
        p = leaf(start)
        optimizer = SGD([("p", p)], lr=0.1, momentum=0.9)
        if state is not None:
            optimizer.load_state_dict(state)
        for step in steps:
            p.grad = normal(3, seed=step)
            optimizer.step()
        return p.data, optimizer.state_dict()

    unbroken, last = run(normal(3), None, range(6))
    half, state = run(normal(3), None, range(3))
    kept = state["p.momentum_buffer"].copy()
    resumed, again = run(half, state, range(3, 6))
    assert (resumed == unbroken).all()
    assert (again["p.momentum_buffer"] == last["p.momentum_buffer"]).all()
    assert (state["p.momentum_buffer"] == kept).all()
    with pytest.raises(ValueError, match=r"p\.momentum_buffer"):
        SGD([("p", leaf(half))]).load_state_dict({})


@pytest.mark.parametrize("kind", [SGD, AdamW])
def test_settings_between_steps(kind):
    p = leaf(np.ones(3))
    optimizer = kind([p])
    p.grad = np.ones(3)
    optimizer.step()
    moved, state = p.data, optimizer.state_dict()
    for name, good in (("lr", 0.1), ("weight_decay", 0.1)):
        for bad in (math.nan, -1.0, math.inf):
            setattr(optimizer, name, bad)
            with pytest.raises(ValueError):
                optimizer.step()
            assert p.data is moved
            assert all((state[key] == x).all() for key, x in optimizer.state_dict().items())
        setattr(optimizer, name, good)
        optimizer.step()
        moved, state = p.data, optimizer.state_dict()
    if kind is AdamW:
        for bad in ((0.9, math.nan), (0.9,), 0.9, (1.0, 0.9)):
            optimizer.betas = bad
            with pytest.raises(ValueError):
                optimizer.step()
            assert p.data is moved
    else:
        with pytest.raises(ValueError):
            SGD([p], momentum=-0.5)


@pytest.mark.parametrize("call", [SGD, AdamW, lambda parameters: clip_grad_norm(parameters, 1.0)])
def test_parameters_that_are_none(call):
    model = Classifier(PCG32(0))
    once = model.parameters()
    assert len(list(once)) == 4
    for nothing in (once, [], {}.items()):
        with pytest.raises(ValueError):
            call(nothing)
    for single in (leaf(np.ones(2)), model, 3):
        with pytest.raises(TypeError):
            call(single)
    sequence = Sequential(Linear(2, 2))
    for wrong in ([np.ones(2)], ["ab"], model.state_dict(), [("a", leaf(np.ones(2)), 0)], sequence):
        with pytest.raises(TypeError):
            call(wrong)


def test_buckets_change_nothing():
    block, bucket = 1 << 15, 1 << 18  # the book's module; another one has to pass, too
    sizes = [3, block - 1, 1, block, bucket // 2, bucket // 2, 7, bucket + 5, 2]
    dtypes = ["float32", "float64", "float32"] * 3
    start = [
        normal(n, seed=i).astype(d) for i, (n, d) in enumerate(zip(sizes, dtypes, strict=True))
    ]
    together, alone = [leaf(x) for x in start], [leaf(x) for x in start]
    one, many = AdamW(together, lr=0.1), [AdamW([p], lr=0.1) for p in alone]
    for step in range(3):
        for i, (p, q) in enumerate(zip(together, alone, strict=True)):
            p.grad = q.grad = normal(*p.shape, seed=31 * step + i).astype(p.dtype)
        one.step()
        for optimizer in many:
            optimizer.step()
    for p, q, x in zip(together, alone, start, strict=True):
        assert p.dtype == x.dtype
        assert (p.data == q.data).all()
        assert (p.data != x).all()


def test_arrays_are_replaced_not_written():
    start, gradient = normal(3), normal(3, seed=1)
    start.setflags(write=False)
    gradient.setflags(write=False)
    p = leaf(start)
    optimizer = AdamW([p], lr=0.1)
    loss = (p * p).sum()  # recorded before the step, walked back after it
    for _ in range(3):
        p.grad = gradient
        before = p.data
        copy = before.copy()
        optimizer.step()
        assert (before == copy).all()
        assert not np.shares_memory(before, p.data)
    p.grad = None
    loss.backward()
    close(p.grad, 2 * start)
    state = optimizer.state_dict()
    copies = {name: array.copy() for name, array in state.items()}
    optimizer.step()
    assert all((state[name] == copies[name]).all() for name in state)
    assert p.data.shape == start.shape
    q = leaf(np.asfortranarray(normal(3, 4)))
    q.grad = normal(3, 4, seed=2)
    r = leaf(normal(3, 4))
    r.grad = q.grad
    AdamW([q, r]).step()
    assert (q.data == r.data).all()  # the layout of the old array does not matter


def test_resume_to_the_same_bits():
    def run(start, state, steps):
        ours = {name: leaf(x) for name, x in start.items()}
        optimizer = AdamW(ours.items(), lr=0.1)
        if state is not None:
            optimizer.load_state_dict(state)
        for step in steps:
            for name, p in ours.items():
                # "late" has no gradient in the first steps, so the counts differ
                late = name == "late" and step < 2
                p.grad = None if late else normal(*p.shape, seed=step).astype(p.dtype)
            optimizer.step()
        return {name: p.data for name, p in ours.items()}, optimizer.state_dict()

    start = {"a": normal(2, 3).astype("f4"), "late": normal(4).astype("f4"), "b": normal(5)}
    unbroken, last = run(start, None, range(8))
    half, state = run(start, None, range(4))
    assert sorted(state) == [
        f"{n}.{k}" for n in ("a", "b", "late") for k in ("exp_avg", "exp_avg_sq", "step")
    ]
    resumed, again = run(half, state, range(4, 8))
    for name in start:
        assert (resumed[name] == unbroken[name]).all()
    for name, array in last.items():
        assert (again[name] == array).all()
        assert again[name].dtype == array.dtype
    forgot, _ = run(half, None, range(4, 8))
    assert (forgot["a"] != unbroken["a"]).all()


def test_state_faults_are_named():
    def make(*shapes):
        return AdamW([(f"p{i}", leaf(np.ones(shape))) for i, shape in enumerate(shapes)])

    optimizer = make((2, 3), (4,))
    good = optimizer.state_dict()
    bad = dict(good)
    del bad["p0.step"]
    bad["p9.exp_avg"] = np.zeros(1)
    bad["p1.exp_avg"] = np.zeros(3)
    bad["p1.exp_avg_sq"] = np.zeros(4, complex)
    bad["p0.exp_avg"] = np.ones((2, 3))
    with pytest.raises(ValueError, match="p0") as caught:
        optimizer.load_state_dict(bad)
    for part in ("p0.step", "p9.exp_avg", "p1.exp_avg", "p1.exp_avg_sq"):
        assert part in str(caught.value)
    for name, array in optimizer.state_dict().items():
        assert (array == good[name]).all()
    loaded = {name: np.ones_like(array) for name, array in good.items()}
    optimizer.load_state_dict(loaded)
    loaded["p0.exp_avg"] += 1
    assert (optimizer.state_dict()["p0.exp_avg"] == 1).all()


def test_optimiser_validation():
    p = leaf(np.ones(2))
    for settings in [
        {"lr": -1.0},
        {"lr": math.nan},
        {"betas": (0.9, 1.0)},
        {"betas": (-0.1, 0.9)},
        {"eps": -1e-8},
        {"weight_decay": math.inf},
    ]:
        with pytest.raises(ValueError):
            AdamW([p], **settings)
    for call in (AdamW, lambda parameters: clip_grad_norm(parameters, 1.0)):
        with pytest.raises(ValueError):
            call([("one", p), ("two", p)])
        with pytest.raises(TypeError):
            call([("one", np.ones(2))])
    q = leaf(np.ones(2))
    optimizer = AdamW([("p", p), ("q", q)])
    p.grad = q.grad = np.ones(2)
    q.data = np.ones(2, "f4")
    with pytest.raises(ValueError):
        optimizer.step()
    q.data = np.ones(3)
    with pytest.raises(ValueError):
        optimizer.step()
    q.data = np.ones(2)
    q.grad = np.ones((1, 2))
    with pytest.raises(ValueError):
        optimizer.step()
    assert (p.data == 1).all()
    assert int(optimizer.state_dict()["p.step"]) == 0


@pytest.mark.parametrize("max_norm", [0.1, 1.0, 5.0, 1e6, math.inf])
def test_clipping_against_torch(max_norm):
    shapes = [(3, 4), (5,), (), (2, 2)]
    ours = [leaf(normal(*shape, seed=i)) for i, shape in enumerate(shapes)]
    theirs = [torch.tensor(p.data, requires_grad=True) for p in ours]
    for i, (p, q) in enumerate(zip(ours[:-1], theirs, strict=False)):
        p.grad = np.array(normal(*p.shape, seed=9 + i, scale=3.0))
        q.grad = torch.tensor(p.grad)
    norm = clip_grad_norm(ours, max_norm)
    want = torch.nn.utils.clip_grad_norm_(theirs, max_norm)
    assert type(norm) is float
    close(norm, want)
    for p, q in zip(ours[:-1], theirs, strict=False):
        close(p.grad, q.grad)
    assert ours[-1].grad is None


def test_clipping_keeps_the_direction():
    p, q = leaf(np.zeros(2)), leaf(np.zeros(1))
    p.grad, q.grad = np.array([3.0, 0.0]), np.array([4.0])
    assert clip_grad_norm([p, q], 2.5) == 5.0
    close(p.grad, [1.5, 0], 1e-6)  # 1e-6 in the formula, so nearly 2.5 / 5
    close(q.grad, [2.0], 1e-6)
    assert 2.499999 < math.hypot(*p.grad, *q.grad) < 2.5
    before = p.grad.copy()
    clip_grad_norm([p, q], 100.0)  # short ones are not made longer
    assert (p.grad == before).all()


def test_clipping_of_extremes():
    p, q, r = (leaf(np.zeros(2, "f4")) for _ in range(3))
    p.grad, q.grad, r.grad = (np.ones(2, "f4") for _ in range(3))
    q.grad[1], r.grad[0] = np.nan, -np.inf
    with pytest.raises(FloatingPointError):
        clip_grad_norm([("a", p), ("b", q), ("c", r)], 0.5)
    assert (p.grad == 1).all()
    p.grad, q.grad, r.grad = np.full(2, 3e30, "f4"), np.full(2, 4e30, "f4"), None
    norm = clip_grad_norm([p, q, r], 1.0)
    close(norm / 1e30, 5 * math.sqrt(2), 1e-6)
    close(p.grad, np.full(2, 0.6 / math.sqrt(2)), 1e-6)
    assert clip_grad_norm([leaf(np.ones(3))], 1.0) == 0.0
    p.grad = np.zeros(2, "f4")
    assert clip_grad_norm([p], 1.0) == 0.0
    assert (p.grad == 0).all()
    for bad in (0, -1.0, math.nan):
        with pytest.raises(ValueError):
            clip_grad_norm([p], bad)


def torch_rates(make, peak, steps):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=peak)
    schedule = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


@pytest.mark.parametrize(
    ("peak", "warmup", "total", "floor"), [(3e-3, 10, 50, 0.0), (1.0, 2, 9, 0.1)]
)
def test_schedule_against_torch(peak, warmup, total, floor):
    schedules = torch.optim.lr_scheduler
    rising = torch_rates(
        lambda o: schedules.LinearLR(o, start_factor=1 / warmup, total_iters=warmup - 1),
        peak,
        warmup,
    )
    falling = torch_rates(
        lambda o: schedules.CosineAnnealingLR(o, T_max=total - warmup, eta_min=floor),
        peak,
        total - warmup + 1,
    )
    ours = [
        warmup_cosine(step, peak=peak, warmup=warmup, total=total, floor=floor)
        for step in range(total + 1)
    ]
    close(ours, rising + falling)


def test_schedule_by_hand():
    def rate(step, warmup=4, total=12, floor=0.0):
        return warmup_cosine(step, peak=1.0, warmup=warmup, total=total, floor=floor)

    assert [rate(step) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    close([rate(8), rate(6), rate(10)], [0.5, 0.5 + math.sqrt(0.125), 0.5 - math.sqrt(0.125)])
    assert rate(12) == rate(1000) == 0.0
    assert rate(12, floor=0.25) == rate(99, floor=0.25) == 0.25
    assert rate(0, warmup=0) == 1.0
    for step, warmup, total in [(-1, 4, 12), (0, -1, 12), (0, 12, 12), (0, 0, 0)]:
        with pytest.raises(ValueError):
            rate(step, warmup, total)


class Classifier(Module):
    def __init__(self, rng):
        self.hidden = Linear(2, 32, rng=rng)
        self.out = Linear(32, 3, rng=rng)

    def forward(self, x):
        return self.out(self.hidden(x).tanh())


def spirals(points=100):
    """Three arms of points, [300, 2], and the arm of each."""
    along = np.linspace(0.1, 1.0, points)
    arms = [
        np.stack([along * np.cos(4 * along + turn), along * np.sin(4 * along + turn)], axis=1)
        for turn in (0, 2 * math.pi / 3, 4 * math.pi / 3)
    ]
    return 3 * np.concatenate(arms), np.repeat(np.arange(3), points)


def test_a_small_classifier_learns():
    model = Classifier(PCG32(0))
    optimizer = AdamW(model.named_parameters(), decays=lambda name, p: p.ndim > 1)
    points, arms = spirals()
    x, losses = Tensor(points.astype(np.float32)), []
    for step in range(300):
        rate = warmup_cosine(step, peak=0.02, warmup=20, total=300)
        losses.append(training_step(model, optimizer, x, arms, rate)[0])
    assert 0.8 < losses[0] / math.log(3) < 1.5
    assert losses[-1] < 0.05
    assert (model(x).data.argmax(axis=1) == arms).all()
    assert all(p.dtype == np.float32 for p in model.parameters())


def test_fifty_steps_against_torch():
    ours = Classifier(PCG32(3)).astype(np.float64)
    theirs = torch.nn.Sequential(
        torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3)
    ).double()
    with torch.no_grad():
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            q.copy_(torch.tensor(p.data))
    optimizer = AdamW(ours.named_parameters(), weight_decay=0.1)
    oracle = torch.optim.AdamW(theirs.parameters(), weight_decay=0.1)
    points, arms = spirals(20)
    arms[::7] = -100  # some are ignored
    x = torch.tensor(points)
    clipped = 0
    for step in range(50):
        rate = warmup_cosine(step, peak=0.05, warmup=5, total=50)
        loss, norm = training_step(ours, optimizer, Tensor(points), arms, rate, max_norm=0.1)
        oracle.zero_grad()
        want = torch.nn.functional.cross_entropy(theirs(x), torch.tensor(arms))
        want.backward()
        want_norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.1)
        oracle.param_groups[0]["lr"] = rate
        oracle.step()
        clipped += norm > 0.1
        close(loss, want)
        close(norm, want_norm)
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            close(p.data, q)
    assert 10 < clipped < 50  # some steps were clipped, some not


def same_loss(shape, reduction, ignore=-100, share=0.3, dtype="f8"):
    """The loss, twice its gradient, and nothing else changed."""
    rng = np.random.default_rng(1)
    z = normal(*shape, scale=3.0).astype(dtype)
    t = np.asarray(rng.integers(0, shape[-1], shape[:-1]))
    hidden = np.asarray(rng.random(t.shape) < share)
    hidden.reshape(-1)[-1:] = False
    t = np.where(hidden, ignore, t)
    ours, theirs = leaf(z.copy()), torch.tensor(z, requires_grad=True)
    given = t.copy()
    loss = cross_entropy(ours, given, ignore=ignore, reduction=reduction)
    given[...] = 0  # the next batch comes into the same array
    want = torch.nn.functional.cross_entropy(
        theirs.reshape(-1, shape[-1]),
        torch.tensor(t).reshape(-1),
        ignore_index=ignore,
        reduction=reduction,
    )
    tolerance = 1e-11 if dtype == "f8" else 3e-5
    assert loss.dtype == z.dtype
    close(loss.data.reshape(-1), want.reshape(-1), tolerance)
    cotangent = normal(*loss.shape, seed=3).astype(dtype)
    for _ in range(2):
        loss.backward(cotangent, retain_graph=True)
        want.backward(torch.tensor(cotangent).reshape(want.shape), retain_graph=True)
        assert ours.grad.dtype == z.dtype
        close(ours.grad, theirs.grad, tolerance)
    assert (ours.data == z).all()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    "shape", [(1, 2), (130, 3), (3, 1300), (1300, 9), (2, 1, 3, 1, 2, 5), (4, 50_000), (7,)]
)
def test_cross_entropy_at_every_size(shape, reduction):
    same_loss(shape, reduction, share=0.0)
    same_loss(shape, reduction, ignore=-10_000, dtype="f4")
    same_loss(shape, reduction, ignore=100_000)


@SEEDED
@hypothesis.given(
    hnp.array_shapes(max_dims=4, max_side=40).filter(lambda shape: math.prod(shape) < 5000),
    st.sampled_from(["mean", "sum", "none"]),
    st.sampled_from([0.0, 0.3, 0.9]),
    st.sampled_from(["f4", "f8"]),
)
def test_cross_entropy_of_drawn_shapes(shape, reduction, share, dtype):
    same_loss(shape, reduction, share=share, dtype=dtype)


def test_targets_are_read_at_each_call():
    z, t = Tensor(normal(4, 5)), np.zeros(4, int)
    for k in range(5):
        t[:] = k
        close(cross_entropy(z, t).item(), -np.log(softmax(z.data))[:, k].mean())


def test_distant_classes():
    z = np.array([[0.0, -9, -29, -51, -99, -300, -700], [4e3, 4e3, 0, 1, 2, 3, 4]])
    for k in range(7):
        x, t = leaf(z), torch.tensor(z, requires_grad=True)
        loss = cross_entropy(x, [k, k], reduction="sum")
        want = torch.nn.functional.cross_entropy(t, torch.tensor([k, k]), reduction="sum")
        np.testing.assert_allclose(loss.item(), want.item(), rtol=1e-13)
        loss.backward()
        want.backward()
        np.testing.assert_allclose(x.grad, t.grad.numpy(), rtol=1e-12, atol=1e-16)


OPTIMISERS = {
    SGD: (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}),
    AdamW: (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
}


def assign(optimizer, oracle, **settings):
    """Settings assigned between steps, on both sides."""
    for name, value in settings.items():
        setattr(optimizer, name, value)
        oracle.param_groups[0][name] = value


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_many_steps_with_changes_between(kind):
    shapes = [(1,), (), (2, 3, 4, 20)]
    ours = [leaf(normal(*shape, seed=i)) for i, shape in enumerate(shapes)]
    theirs = [torch.tensor(p.data, requires_grad=True) for p in ours]
    make, settings = OPTIMISERS[kind]
    optimizer, oracle = kind(ours, **settings), make(theirs, **settings)
    changes = {
        120: {"lr": 0.02},
        150: {"weight_decay": 0.3},
        180: {"momentum": 0.5} if kind is SGD else {"betas": (0.8, 0.99)},
        210: {} if kind is SGD else {"eps": 1e-3},
    }
    for step in range(300):
        assign(optimizer, oracle, **changes.get(step, {}))
        for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
            if step % 50 == 49:  # somebody else changes the numbers
                p.data = normal(*p.shape, seed=step)
                q.data = torch.tensor(p.data)
            p.grad = normal(*p.shape, seed=9 * step + i, scale=1e6 if step % 40 == 7 else 1.0)
            q.grad = torch.tensor(p.grad)
        if step == 250:  # a new optimiser goes on from the old one's state
            state = optimizer.state_dict()
            kept = {name: array.copy() for name, array in state.items()}
            now = {name: getattr(optimizer, name) for name in settings}
            now |= {} if kind is SGD else {"betas": optimizer.betas, "eps": optimizer.eps}
            optimizer = kind(ours, **now)
            optimizer.load_state_dict(state)
        optimizer.step()
        oracle.step()
        for p, q in zip(ours, theirs, strict=True):
            close(p.data, q, 1e-9)
    assert all((state[name] == kept[name]).all() for name in state)


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_many_parameters(kind):
    shapes = [(1 + i // 4 % 3, 2) if i % 4 > 1 else (1 + i % 5,) for i in range(150)]
    shapes[70:80] = [(400, 400)] * 10
    shapes[90] = (1_100, 1_000)  # a million and more
    ours = [leaf(normal(*shape, seed=i).astype("f4")) for i, shape in enumerate(shapes)]
    theirs = [torch.tensor(p.data, requires_grad=True) for p in ours]
    make, settings = OPTIMISERS[kind]
    optimizer, oracle = kind(ours, **settings), make(theirs, **settings)
    for step in range(2):
        for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
            p.grad = np.full(p.shape, 1 + (i + step) % 7, "f4")
            q.grad = torch.tensor(p.grad)
        optimizer.step()
        oracle.step()
    for p, q in zip(ours, theirs, strict=True):
        assert p.dtype == np.float32
        close(p.data, q, 1e-5)
    state = optimizer.state_dict()
    kept = {name: array.copy() for name, array in state.items()}
    again = kind(ours, **settings)
    again.load_state_dict(state)
    for one in (optimizer, again):
        one.step()  # neither what was saved nor what was loaded is what the optimiser works with
        assert all((state[name] == kept[name]).all() for name in state)
    data = [p.data for p in ours]
    ours[-1].grad = np.ones(7, "f4")
    with pytest.raises(ValueError):
        optimizer.step()
    assert all(p.data is x for p, x in zip(ours, data, strict=True))
    optimizer.zero_grad()
    assert all(p.grad is None for p in ours)
    for call in (kind, lambda parameters: clip_grad_norm(parameters, 1.0)):
        with pytest.raises(ValueError):
            call([*ours, ours[-1]])


@pytest.mark.parametrize("size", [1, 3])
def test_a_parameter_of_any_size(size):
    for kind, (make, settings) in OPTIMISERS.items():
        for shape in ((size,), (size, 200), (200, size), (2, size, 3, 5), (size,) * 5):
            p = leaf(normal(*shape))
            q = torch.tensor(p.data, requires_grad=True)
            optimizer, oracle = kind([p], **settings), make([q], **settings)
            for seed in range(3):
                p.grad = normal(*shape, seed=seed, scale=1e-7)
                q.grad = torch.tensor(p.grad)
                optimizer.step()
                oracle.step()
            close(p.data, q)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_clipping_of_many_gradients(dtype):
    shapes = [(2, 3)] * 100 + [(9, 2, 2, 3), (), (1,), (120, 90)]
    for scale, max_norm in ((1.0, 5.0), (1.0, 1e6), (1e30, 1.0)):
        ours = [leaf(np.zeros(shape, dtype)) for shape in shapes]
        for i, p in enumerate(ours):
            p.grad = np.array(normal(*p.shape, seed=i, scale=scale), dtype)
        whole = np.concatenate([p.grad.reshape(-1).astype("f8") for p in ours])
        length = np.linalg.norm(whole)
        close(clip_grad_norm(ours, max_norm) / scale, length / scale, 1e-5)
        now = np.concatenate([p.grad.reshape(-1).astype("f8") for p in ours])
        close(now, whole * min(1.0, max_norm / length), 1e-5)


@pytest.mark.parametrize(("warmup", "total"), [(1, 2), (2_000, 600_000), (3_000_000, 90_000_000)])
def test_long_schedules(warmup, total):
    def rate(step):
        return warmup_cosine(step, peak=3.0, warmup=warmup, total=total, floor=1.0)

    for step in {0, 1, warmup // 3, warmup // 2, warmup - 1}:
        if step < warmup:
            close(rate(step), 3.0 * (step + 1) / warmup)
    for part in range(9):
        step = warmup + (total - warmup) * part // 8
        share = (step - warmup) / (total - warmup)
        close(rate(step), 2.0 + math.cos(math.pi * share))
    assert rate(total) == rate(100 * total) == 1.0
