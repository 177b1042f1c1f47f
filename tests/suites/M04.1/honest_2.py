"""A stand-in tensor without a graph, whose backward says whatever it is told."""

import numpy as np
import pytest

from tinyllm.num.gradcheck import GradientError, gradcheck


class Toy:
    """What the check asks of a tensor; results hand `rule(cotangent)` to each parent."""

    requires_grad = True

    def __init__(self, data, rules=()):
        self.data, self.rules, self.grad = np.asarray(data), rules, None

    shape = property(lambda self: self.data.shape)
    dtype = property(lambda self: self.data.dtype)
    size = property(lambda self: self.data.size)
    ndim = property(lambda self: self.data.ndim)

    def backward(self, cotangent):
        for parent, rule in self.rules:
            share = rule(np.asarray(cotangent))
            if share is not None:
                parent.grad = share if parent.grad is None else parent.grad + share


def numbers(*shape, seed=0):
    return np.asarray(np.random.default_rng(seed).uniform(0.5, 2.0, shape))


def square(x, factor=1.0):
    data = x.data
    return Toy(data**2, [(x, lambda g: factor * 2 * data * g)])


@pytest.mark.parametrize("shape", [(), (1,), (5,), (300, 4), (2, 3, 1, 2), (1, 1, 1, 1, 9)])
@pytest.mark.parametrize("seed", [0, 7])
def test_one_wrong_entry(shape, seed):
    x = Toy(numbers(*shape))
    start, copy = x.data, x.data.copy()
    line = gradcheck(square, [x], seed=seed).inputs[0]
    assert (line.name, line.shape, line.checked, line.vanishes) == (
        "inputs[0]",
        shape,
        x.size,
        False,
    )
    assert line.worst <= 1
    for place in {0, x.size // 3, x.size - 1}:
        for value in (0.0, -1e-4, 1e3, np.nan, np.inf, -np.inf):
            factor = np.ones(x.size)
            factor[place] += value if value else -1
            factor = factor.reshape(shape)
            with pytest.raises(GradientError):
                gradcheck(lambda x, f=factor: square(x, f), [x], seed=seed)
    with pytest.raises(GradientError):
        gradcheck(lambda x: Toy(x.data**2, [(x, lambda g: None)]), [x], seed=seed)
    assert x.data is start
    assert (start == copy).all()
    assert x.grad is None


def test_tolerances():
    x = Toy(numbers(50))
    for off, passes in ((1e-5, False), (5e-8, True)):
        f = lambda x, o=off: square(x, 1 + o)  # noqa: E731
        if passes:
            gradcheck(f, [x])
        else:
            with pytest.raises(GradientError):
                gradcheck(f, [x])
            assert gradcheck(f, [x], rtol=1e-3)
    with pytest.raises(GradientError):
        gradcheck(lambda x: Toy(x.data * 1, [(x, lambda g: g + 1e-5)]), [x])
    assert gradcheck(lambda x: Toy(x.data * 1, [(x, lambda g: g + 1e-5)]), [x], atol=1e-4)
    for size in (1e8, 1e3, 1e-3):
        gradcheck(square, [Toy(numbers(4) * size)])
        with pytest.raises(GradientError):
            gradcheck(lambda x: square(x, 1.0002), [Toy(numbers(4) * size)])
    gradcheck(
        lambda x, y: Toy(x.data + y.data, [(x, lambda g: g), (y, lambda g: np.array([g.sum()]))]),
        [Toy(numbers(3000) * 1e4), Toy(numbers(1))],
        sample=7,
    )


def test_many_inputs_and_outputs():
    toys = {f"w{i}": Toy(numbers(3, seed=i)) for i in range(25)}
    report = gradcheck(lambda: tuple(square(x) for x in toys.values()), parameters=toys)
    assert [line.name for line in report.inputs] == list(toys)
    assert all(line.checked == 3 for line in report.inputs)
    for bad in (0, 3, 12, 24):
        factors = [1.0 + (i == bad) for i in range(25)]
        with pytest.raises(GradientError) as caught:
            gradcheck(
                lambda f=factors: [square(x, k) for x, k in zip(toys.values(), f, strict=True)],
                parameters=toys.items(),
            )
        assert f"w{bad}[" in str(caught.value)
        assert f"w{(bad + 1) % 25}[" not in str(caught.value)
    with pytest.raises(GradientError) as caught:
        gradcheck(lambda: [square(x, 3.0) for x in toys.values()], parameters=toys)
    assert all(f"{name}[" in str(caught.value) for name in toys)
    assert all(x.grad is None for x in toys.values())


def test_what_backward_is_given():
    for shape in ((4,), (40, 50), (2, 3, 2, 2)):
        given = []

        def keep(g, given=given):
            given.append(g.copy())
            return g

        def f(x, keep=keep):
            return [Toy(x.data * 1, [(x, keep)]), Toy(x.data * 1, [(x, keep)])]

        for seed in (3, 4, 3):
            gradcheck(f, [Toy(numbers(*shape))], seed=seed, sample=2)
        assert all(
            g.shape == shape and (np.abs(g) >= 0.5).all() and (np.abs(g) < 1.5).all() for g in given
        )
        assert (given[0] == given[4]).all()
        assert not (given[0] == given[1]).any()
        assert not (given[0] == given[2]).any()
        assert len(np.unique(np.abs(np.stack(given[:2])))) == 2 * given[0].size
        signs = np.sign(np.concatenate([g.reshape(-1) for g in given[:2]]))
        assert -1 in signs
        assert 1 in signs
    own = np.arange(4.0)
    gradcheck(f, [Toy(numbers(4))], cotangents=[own, own])
    zero = gradcheck(lambda x: Toy(x.data - x.data, [(x, lambda g: 0 * g)]), [Toy(numbers(4))])
    assert zero.vanishing == ("inputs[0]",)


def test_which_points_are_visited():
    for shape, sample in (((3,), None), (250, None), ((2, 2, 3, 2), None), (400, 30)):
        x, seen = Toy(numbers(*np.atleast_1d(shape)) * 3), []
        f = lambda x, seen=seen: (seen.append(x.data.copy()), square(x))[1]  # noqa: E731
        start = x.data.copy()
        report = gradcheck(f, [x], sample=sample, step=1e-5)
        moves = [s - start for s in seen if (s != start).any()]
        assert all(np.count_nonzero(m) == 1 for m in moves)
        entries = [int(np.flatnonzero(m)[0]) for m in moves]
        assert len(set(entries)) == report.inputs[0].checked == (sample or x.size)
        assert sorted(entries) == sorted(2 * sorted(set(entries)))
        assert sum(m.sum() > 0 for m in moves) == len(moves) / 2
        for m, e in zip(moves, entries, strict=True):
            np.testing.assert_allclose(
                abs(m.sum()), 1e-5 * max(1.0, abs(start.reshape(-1)[e])), rtol=1e-6
            )


def test_memory():
    base = numbers(6, 6)
    for array in (
        base.T,
        base[::2, ::-1],
        np.asfortranarray(base),
        np.broadcast_to(base[0], (3, 6)),
    ):
        assert gradcheck(square, [Toy(array)]).inputs[0].checked == array.size
    one, other = Toy(base), Toy(base)

    def product(a, b):
        left, right = a.data.copy(), b.data.copy()
        return Toy(left * right, [(a, lambda g: g * right), (b, lambda g: g * left)])

    gradcheck(product, [one, other])
    x = Toy(base)
    assert [line.name for line in gradcheck(lambda a, b: square(a), {"a": x, "b": x}).inputs] == [
        "a"
    ]
    x.grad = np.full((6, 6), 5.0)
    held = x.grad
    for wrong in (1.0, 2.0):
        try:
            gradcheck(lambda x, w=wrong: square(x, w), [x])
        except GradientError:
            assert wrong == 2.0
        assert x.grad is held
        assert (held == 5).all()
        assert x.data is base


def test_refused():
    x, noise = Toy(numbers(3)), iter(range(100))
    constant = Toy(numbers(3))
    constant.requires_grad = False
    for f, inputs, options in (
        (square, [constant], {}),
        (square, [np.ones(3)], {}),
        (square, [x], {"sample": 0}),
        (square, [x], {"cotangents": [np.ones(4)]}),
        (square, [x], {"cotangents": [np.ones(3)] * 2}),
        (lambda x: square(Toy(x.data * (1 + 1e-9 * next(noise)))), [x], {}),
        (lambda x: (square(x), Toy(x.data + next(noise))), [x], {}),
    ):
        with pytest.raises(ValueError):
            gradcheck(f, inputs, **options)
    half = Toy(numbers(3).astype("f2"))
    for f, inputs, options in (
        (square, [half], {}),
        (lambda a, b: square(a), [x, half], {}),
        (square, [x], {"parameters": {"p": half}}),
        (square, [x], {"parameters": {"p": 1.0}}),
        (lambda x: half, [x], {}),
        (lambda x: 1.0, [x], {}),
        (square, x, {}),
    ):
        with pytest.raises(TypeError):
            gradcheck(f, inputs, **options)
    for f in (
        lambda x: Toy(x.data * np.nan, [(x, lambda g: g * np.nan)]),
        lambda x: Toy(x.data**2, [(x, lambda g: g[:1])]),
    ):
        with pytest.raises(GradientError):
            gradcheck(f, [x])
    whole = Toy(np.array([0, 2, 1]))
    whole.requires_grad = False
    assert gradcheck(lambda x, i: Toy(x.data * i.data, [(x, lambda g: g * i.data)]), [x, whole])
