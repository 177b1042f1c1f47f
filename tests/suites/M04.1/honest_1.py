"""Right functions pass, wrong ones are named, nothing is left changed."""

import numpy as np
import pytest

from tinyllm.autograd import record
from tinyllm.nn import Dropout, Linear, Module
from tinyllm.num.gradcheck import GradientError, gradcheck
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor


def leaf(*shape, seed=0):
    return Tensor(np.asarray(np.random.default_rng(seed).normal(size=shape)), requires_grad=True)


def cube(x, spoil=lambda d: d):
    return record(x.data**3, (x,), lambda g: (spoil(3 * g * x.data**2),))


def at(place, by):
    def spoil(d):
        d = np.array(d)
        d.reshape(-1)[place] += by
        return d

    return spoil


@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3), (1500,), (2, 1, 3, 2)])
def test_every_entry(shape):
    x = leaf(*shape)
    kept, array = x.data.copy(), x.data
    report = gradcheck(cube, [x])
    assert report.inputs[0].checked == x.size
    assert (report.seed, report.step, report.rtol, report.atol) == (0, 6e-6, 1e-6, 1e-8)
    assert report.inputs[0].worst < 1
    assert report.inputs[0].largest > 0
    for place in {0, x.size // 2, x.size - 1}:
        for by in (1e-3, -1.0, np.nan, np.inf):
            with pytest.raises(GradientError) as caught:
                gradcheck(lambda x, p=place, b=by: cube(x, at(p, b)), [x])
            index = ", ".join(str(int(i)) for i in np.unravel_index(place, shape))
            assert f"inputs[0]{[index]}".replace("'", "") in str(caught.value) or not shape
    for spoil in (
        lambda d: 2 * d,
        lambda d: -d,
        lambda d: d * (1 + 1e-5),
        lambda d: d + 1e-6,
        lambda d: 0 * d,
    ):
        with pytest.raises(GradientError):
            gradcheck(lambda x, s=spoil: cube(x, s), [x])
    assert x.data is array
    assert (array == kept).all()
    assert x.grad is None


def test_many():
    tensors = {f"p{i}": leaf(2, seed=i) for i in range(30)}
    assert len(gradcheck(lambda **t: [cube(x) for x in t.values()], tensors).inputs) == 30
    for bad in (0, 15, 29):
        with pytest.raises(GradientError) as caught:
            gradcheck(
                lambda bad=bad, **t: [
                    cube(x, (lambda d: 2 * d) if i == bad else (lambda d: d))
                    for i, x in enumerate(t.values())
                ],
                tensors,
            )
        assert f"p{bad}[" in str(caught.value)
        assert str(caught.value).count("allowed") == 1
    assert all(x.grad is None for x in tensors.values())


def test_softmax_needs_more_than_ones():
    x = leaf(3, 500)
    y = np.exp(x.data) / np.exp(x.data).sum(axis=1, keepdims=True)
    for wrong in (0.0, 2.0):
        with pytest.raises(GradientError):
            gradcheck(
                lambda x, w=wrong: record(
                    y_of(x), (x,), lambda g: (w * y * (g - (g * y).sum(axis=1, keepdims=True)),)
                ),
                [x],
                sample=20,
            )
    report = gradcheck(
        lambda x: record(y_of(x), (x,), lambda g: (0 * y,)),
        [x],
        cotangents=[np.ones((3, 500))],
        sample=20,
    )
    assert report.vanishing == ("inputs[0]",)


def y_of(x):
    e = np.exp(x.data)
    return e / e.sum(axis=1, keepdims=True)


def test_cotangents():
    seen = []

    def spy(x):
        return record(x.data * 1, (x,), lambda g: (seen.append(g.copy()) or g,))

    for size in (3, 5000):
        seen.clear()
        for seed in (1, 2, 1):
            gradcheck(lambda x: (spy(x), spy(x)), [leaf(size)], seed=seed, sample=1)
        a, b, c, _, again, _ = seen
        assert (a == again).all()
        assert not (a == b).any()
        assert not (a == c).any()
        for g in seen:
            assert ((np.abs(g) >= 0.5) & (np.abs(g) < 1.5)).all()
            assert size < 10 or ((g < 0).any() and (g > 0).any())


def test_each_entry_moves_and_comes_back():
    for shape in ((4,), (200,), (2, 2, 2, 2, 2)):
        x, moved = leaf(*shape), []

        def f(x, moved=moved):
            moved.append(x.data.copy())
            return x * x

        start = x.data.copy()
        gradcheck(f, [x], step=1e-4)
        changes = [np.flatnonzero(m != start) for m in moved]
        assert max(map(len, changes)) == 1
        assert sorted(int(c[0]) for c in changes if len(c)) == sorted(2 * list(range(x.size)))
        ups = [float((m - start).sum()) > 0 for m, c in zip(moved, changes, strict=True) if len(c)]
        assert sum(ups) == x.size


def test_sizes_of_numbers():
    for size in (1e9, 1e4, 1.0, 1e-6):
        x = Tensor(np.array([1.5, -0.5]) * size, requires_grad=True)
        gradcheck(lambda x: x * x + x, [x])
        gradcheck(lambda x: x * 2.0, [x])
        with pytest.raises(GradientError):
            gradcheck(lambda x: record(2 * x.data, (x,), lambda g: (g * 2.0001,)), [x])
    many = Tensor(np.full(2000, 1e3), requires_grad=True)
    report = gradcheck(lambda x, y: x * y, [many, Tensor([1.0], requires_grad=True)], sample=5)
    assert report.inputs[0].worst < 0.1
    assert report.inputs[0].checked == 5


class Net(Module):
    def __init__(self):
        self.scale, self.map = leaf(3), Linear(3, 2, rng=PCG32(1)).astype(np.float64)

    def forward(self, x):
        return self.map(x * self.scale)


def test_modules():
    net, x = Net(), leaf(4, 3)
    assert [line.name for line in gradcheck(net, [x]).inputs] == [
        "inputs[0]",
        "scale",
        "map.weight",
        "map.bias",
    ]
    scale = net.scale
    with pytest.raises(GradientError) as caught:
        gradcheck(lambda x: net.map(x * Tensor(scale.data)), [x], parameters=net.named_parameters())
    assert "scale" in str(caught.value)
    report = gradcheck(lambda a, b: a * b.tanh(), {"a": x, "b": x}, parameters={"c": x})
    assert [line.name for line in report.inputs] == ["a"]
    assert gradcheck(lambda a, b: a * 1.0, [x, leaf(2)]).vanishing == ("inputs[1]",)


def test_refusals():
    x = leaf(3)
    drop = Dropout(0.5)
    with pytest.raises(ValueError):
        gradcheck(drop, [leaf(50)])
    count = iter(range(99))
    with pytest.raises(ValueError):
        gradcheck(lambda x: x * (1 + 1e-8 * next(count)), [x])
    for inputs, options in (
        ([np.ones(2)], {}),
        ([x], {"sample": 0}),
        ([x], {"cotangents": [np.ones(2)]}),
        ([x], {"cotangents": []}),
    ):
        with pytest.raises(ValueError):
            gradcheck(lambda x: x, inputs, **options)
    narrow = Tensor(np.ones(3, "f4"), requires_grad=True)
    for f, inputs in (
        (lambda x: x, [narrow]),
        (lambda x, y: x * y, [x, Tensor(np.ones(3, "f4"))]),
        (lambda x: x.astype("f4"), [x]),
        (lambda x: x.data, [x]),
        (lambda x: x, x),
    ):
        with pytest.raises(TypeError):
            gradcheck(f, inputs)
    nan = lambda x: record(x.data * np.nan, (x,), lambda g: (g * np.nan,))  # noqa: E731
    with pytest.raises(GradientError):
        gradcheck(nan, [x])
    with pytest.raises(GradientError):
        gradcheck(lambda x: Tensor(x.data * 2), [x])
    x.grad = np.ones(3)
    held = x.grad
    with pytest.raises(GradientError):
        gradcheck(lambda x: cube(x, lambda d: 2 * d), [x])
    assert x.grad is held
    assert (held == 1).all()
