# Tangled from book/1-foundations/M04.1-tests.md
"""Tests of tinyllm.num.gradcheck: right gradients pass, wrong ones do not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinyllm.autograd import record
from tinyllm.nn import Dropout, Linear, Module
from tinyllm.num.gradcheck import CheckedInput, GradientError, Report, gradcheck
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor


def tensor(*shape: int, seed: int = 1, grad: bool = True) -> Tensor:
    return Tensor(PCG32(seed).normal(0.0, 1.0, shape, np.float64), requires_grad=grad)


def product(x: Tensor, w: Tensor, spoil: Callable[[Any, Any], Any]) -> Tensor:
    """x w^T, whose backward pass returns what `spoil` makes of the right gradients."""

    def backward(g: Any) -> Any:
        return spoil(g @ w.data, g.T @ x.data)

    return record(x.data @ w.data.T, (x, w), backward)


def softmax(x: Tensor, spoil: float = 1.0) -> Tensor:
    e = np.exp(x.data - x.data.max(axis=-1, keepdims=True))
    y = e / e.sum(axis=-1, keepdims=True)
    return record(y, (x,), lambda g: (spoil * y * (g - (g * y).sum(axis=-1, keepdims=True)),))


def test_hand_example() -> None:
    x = Tensor(2.0, requires_grad=True)
    with pytest.raises(GradientError, match=r"12\.01"):
        gradcheck(lambda x: x**3, [x], cotangents=[1.0], step=0.05)  # times |x|: h = 0.1
    assert gradcheck(lambda x: x**3, [x], cotangents=[1.0], step=0.05, atol=0.011)
    y = Tensor([0.0, 0.0], requires_grad=True)
    softmax(y).backward([1.0, -0.5])
    assert np.allclose(y.grad, [0.375, -0.375], rtol=1e-15)
    report = gradcheck(softmax, [y], cotangents=[[1.0, -0.5]])
    assert report.inputs[0].largest == pytest.approx(0.375, abs=1e-9)


RIGHT: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "identity": (lambda x: x, [(3, 2)]),
    "sum": (lambda x, y: x + y, [(3, 2), (2,)]),
    "product": (lambda x, y: x * y, [(3, 1), (2, 1, 4)]),
    "quotient": (lambda x, y: x / (y * y + 1.0), [(3,), (3,)]),
    "power": (lambda x: x**3, [(4,)]),
    "exp": (lambda x: (x * 0.5).exp(), [(2, 3)]),
    "log": (lambda x: (x * x + 1.0).log(), [(5,)]),
    "sqrt": (lambda x: (x * x + 1.0).sqrt(), [(5,)]),
    "tanh": (lambda x: x.tanh(), [(5,)]),
    "matmul": (lambda x, y: x @ y, [(2, 3, 4), (4, 2)]),
    "reshape": (lambda x: x.reshape(3, 4).swapaxes(0, 1)[1:], [(2, 6)]),
    "mean": (lambda x: x.mean(axis=0), [(3, 4)]),
    "max": (lambda x: x.max(axis=1), [(3, 4)]),
    "softmax": (softmax, [(3, 4)]),
    "used twice": (lambda x: x * x.tanh() + x, [(3,)]),
    "scalar": (lambda x: (x * x).sum(), [(3, 2)]),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_gradients_pass(name: str) -> None:
    f, shapes = RIGHT[name]
    inputs = [tensor(*shape, seed=i) for i, shape in enumerate(shapes)]
    report = gradcheck(f, inputs)
    assert [line.name for line in report.inputs] == [f"inputs[{i}]" for i in range(len(shapes))]
    for line, x in zip(report.inputs, inputs, strict=True):
        assert line == CheckedInput(
            line.name, x.shape, x.size, line.worst, line.largest, vanishes=False
        )
        assert line.worst < 0.5
        assert line.largest > 1e-3
    assert report == Report(report.inputs, 6e-6, 1e-6, 1e-8, 0)
    assert report.vanishing == ()
    with pytest.raises(AttributeError):
        report.seed = 1  # type: ignore[misc]
    with pytest.raises(AttributeError):
        report.inputs[0].worst = 0.0  # type: ignore[misc]
    assert f"{inputs[0].size} of {inputs[0].size} entries" in str(report)


def one_entry(dw: Any) -> Any:
    dw = dw.copy()
    dw[1, 2] += 1e-3
    return dw


FAULTS: dict[str, Callable[[Any, Any], Any]] = {
    "factor": lambda dx, dw: (2 * dx, dw),
    "sign": lambda dx, dw: (dx, -dw),
    "zeros": lambda dx, dw: (0 * dx, dw),
    "nothing": lambda dx, dw: (dx, None),
    "one entry": lambda dx, dw: (dx, one_entry(dw)),
    "one in 100,000": lambda dx, dw: (dx, dw * (1 + 1e-5)),
    "constant": lambda dx, dw: (dx + 1e-6, dw),
    "transposed": lambda dx, dw: (dx, dw.T),
    "shifted": lambda dx, dw: (np.roll(dx, 1, axis=0), dw),
    "exchanged": lambda dx, dw: (dw, dx),
    "summed": lambda dx, dw: (dx, np.broadcast_to(dw.sum(axis=0), dw.shape)),
    "NaN": lambda dx, dw: (dx, dw * np.nan),
    "infinite": lambda dx, dw: (dx + np.inf, dw),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seed", range(3))
def test_wrong_gradients_are_caught(fault: str, seed: int) -> None:
    inputs = [tensor(3, 3, seed=1), tensor(3, 3, seed=2)]
    gradcheck(lambda x, w: product(x, w, lambda dx, dw: (dx, dw)), inputs, seed=seed)
    with pytest.raises(GradientError):
        gradcheck(lambda x, w: product(x, w, FAULTS[fault]), inputs, seed=seed)


def test_error_names_everything() -> None:
    x, w, b = tensor(2, 3, seed=1), tensor(4, 3, seed=2), tensor(4, seed=3)

    def f(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return product(x, w, lambda dx, dw: (dx * [1, 1, 3], one_entry(dw))) + b

    with pytest.raises(GradientError) as caught:
        gradcheck(f, {"x": x, "w": w, "b": b}, cotangents=[np.ones((2, 4))])
    assert isinstance(caught.value, AssertionError)
    true = w.data.sum(axis=0)[2]
    for named in ("x[0, 2]", "w[1, 2]", f"{3 * true:.5g}"[:5], f"{true:.5g}"[:5]):
        assert named in str(caught.value)

    def worse(dx: Any, dw: Any) -> Any:
        dw = 2 * dw
        dw[2, 1] = np.nan  # what is no number is the worst
        return dx, dw

    with pytest.raises(GradientError, match=r"w\[2, 1\]"):
        gradcheck(lambda x, w: product(x, w, worse), {"x": x, "w": w})


def test_ones_pass_a_softmax_of_zeros() -> None:
    x = tensor(3, 4)

    def zeros(x: Tensor) -> Tensor:
        return softmax(x, spoil=0.0)

    report = gradcheck(zeros, [x], cotangents=[np.ones((3, 4))])  # a plain sum sees nothing
    assert report.vanishing == ("inputs[0]",)
    assert "ZERO" in str(report)
    for seed in range(5):
        with pytest.raises(GradientError):
            gradcheck(zeros, [x], seed=seed)
    assert gradcheck(softmax, [x]).vanishing == ()


def test_cotangents_have_size_and_sign() -> None:
    seen = []

    def spy(x: Tensor) -> Tensor:
        def backward(g: Any) -> Any:
            seen.append(g.copy())
            return (g,)

        return record(x.data.copy(), (x,), backward)

    x = tensor(400)
    for seed in (0, 0, 1):
        gradcheck(spy, [x], sample=1, seed=seed)
    first, again, other = seen
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.abs(first).min() >= 0.5
    assert np.abs(first).max() < 1.5
    assert 150 < (first > 0).sum() < 250
    assert len(np.unique(np.abs(first))) == 400


def test_float32_is_refused() -> None:
    def narrow(x: Tensor) -> Tensor:
        return Tensor(x.data.astype(np.float32), requires_grad=True)

    x, y = tensor(3, seed=1), tensor(3, seed=2)
    for inputs in ([narrow(x), y], [x, narrow(y)], {"a": x, "b": narrow(y)}):
        with pytest.raises(TypeError):
            gradcheck(lambda a, b: a * b, inputs)
    constant = Tensor(y.data.astype(np.float32))
    with pytest.raises(TypeError):
        gradcheck(lambda a, b: a * b, [x, constant])
    with pytest.raises(TypeError):
        gradcheck(Linear(3, 2), [x])
    with pytest.raises(TypeError):
        gradcheck(lambda x: x, [x], parameters=[("w", Tensor(np.ones(2, np.float16)))])
    with pytest.raises(TypeError):
        gradcheck(lambda x: (x, x.astype(np.float32)), [x])
    assert gradcheck(lambda x, i: x[i], [x, Tensor(np.array([0, 2, 2]))])  # whole numbers may be


class Scaled(Module):
    """A scale and a Linear; `cut` uses a parameter behind the graph's back."""

    def __init__(self, cut: str = "") -> None:
        self.scale = tensor(4, seed=5)
        self.map = Linear(4, 3, rng=PCG32(6)).astype(np.float64)
        self.cut = cut

    def forward(self, x: Tensor) -> Tensor:
        scale = Tensor(self.scale.data) if self.cut == "scale" else self.scale
        y: Tensor = self.map(x * scale).tanh()
        return y if self.cut != "output" else Tensor(y.data)


def test_cut_off_parameter_is_caught() -> None:
    x = tensor(2, 4)
    with pytest.raises(GradientError) as caught:
        gradcheck(Scaled("scale"), [x])
    assert "scale[" in str(caught.value)
    assert "map" not in str(caught.value)
    with pytest.raises(GradientError) as caught:
        gradcheck(Scaled("output"), [x])  # cut off altogether
    for name in ("inputs[0][", "scale[", "map.weight[", "map.bias["):
        assert name in str(caught.value)


def test_vanishing_gradients_are_reported() -> None:
    x, unused, bias = tensor(2, 3, seed=1), tensor(2, seed=2), tensor(2, 1, seed=3)
    report = gradcheck(
        lambda x, unused, bias: softmax(x + bias), {"x": x, "unused": unused, "bias": bias}
    )
    assert report.vanishing == ("unused", "bias")
    assert [line.vanishes for line in report.inputs] == [False, True, True]
    assert str(report).count("ZERO") == 2


def test_modules_are_checked_by_path() -> None:
    module = Scaled()
    report = gradcheck(module, [tensor(2, 4)])
    assert [(line.name, line.shape, line.checked) for line in report.inputs] == [
        ("inputs[0]", (2, 4), 8),
        ("scale", (4,), 4),
        ("map.weight", (3, 4), 12),
        ("map.bias", (3,), 3),
    ]
    module.map.weight.requires_grad = False
    report = gradcheck(module, {"x": tensor(2, 4, grad=False)})
    assert [line.name for line in report.inputs] == ["scale", "map.bias"]
    report = gradcheck(module, [tensor(2, 4)], parameters=())  # none of them, if so wanted
    assert [line.name for line in report.inputs] == ["inputs[0]"]


def test_parameters_beside_a_function() -> None:
    module, x = Scaled(), tensor(2, 4)

    def f(x: Tensor, mask: Any, factor: float, nothing: None) -> Tensor:
        assert nothing is None
        y: Tensor = module(x)
        return y * mask * factor

    inputs = {"x": x, "mask": np.eye(2, 3), "factor": 0.5, "nothing": None}
    for parameters in (module.named_parameters(), dict(module.named_parameters())):
        report = gradcheck(f, inputs, parameters=parameters)
        assert [line.name for line in report.inputs] == ["x", "scale", "map.weight", "map.bias"]
    assert len(gradcheck(f, list(inputs.values())).inputs) == 1


def test_same_tensor_twice() -> None:
    x = tensor(3)
    report = gradcheck(lambda a, b: a * b.tanh(), {"a": x, "b": x}, parameters=[("c", x)])
    assert [line.name for line in report.inputs] == ["a"]


def test_several_outputs() -> None:
    x, y = tensor(3, seed=1), tensor(2, 3, seed=2)
    for kind in (tuple, list):
        report = gradcheck(lambda x, y, kind=kind: kind((x * y, y.tanh(), x)), [x, y])
        assert report.vanishing == ()

    def second_wrong(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * y, record(np.tanh(y.data), (y,), lambda g: (g,))

    with pytest.raises(GradientError, match=r"inputs\[1\]"):
        gradcheck(second_wrong, [x, y])
    only_first = [np.ones((2, 3)), np.zeros((2, 3))]
    assert gradcheck(second_wrong, [x, y], cotangents=only_first)
    with pytest.raises(GradientError):  # the second output is cut off
        gradcheck(lambda y: (Tensor(y.data * 2.0), Tensor(np.ones(2))), [y])
    assert gradcheck(lambda x: (x, Tensor(np.ones(2))), [x])


def test_sample_is_seeded_and_reported() -> None:
    def moved(seed: int, sample: int | None) -> tuple[set[int], Report]:
        x, at = tensor(50), set()

        def f(x: Tensor, y: Tensor) -> Tensor:
            at.update(np.flatnonzero(x.data != start).tolist())
            return x * x + y.sum()

        start = x.data.copy()
        return at, gradcheck(f, [x, tensor(3)], seed=seed, sample=sample)

    entries, report = moved(0, 7)
    assert len(entries) == report.inputs[0].checked == 7
    assert report.inputs[1].checked == 3  # has no more
    assert "7 of 50 entries" in str(report)
    assert moved(0, 7)[0] == entries
    assert moved(1, 7)[0] != entries
    everything, report = moved(0, None)
    assert len(everything) == report.inputs[0].checked == 50
    assert moved(0, 50)[0] == everything
    x = tensor(50)
    with pytest.raises(GradientError):
        gradcheck(lambda x: record(x.data * 2.0, (x,), lambda g: (g,)), [x], sample=7)


def test_every_entry_is_moved_both_ways() -> None:
    x, moves = tensor(2, 3), []

    def f(x: Tensor) -> Tensor:
        moves.append(x.data - start)
        return x.tanh()

    start = x.data.copy()
    gradcheck(f, [x], step=1e-4)
    moves = [m for m in moves if np.any(m)]
    assert all(np.count_nonzero(m) == 1 for m in moves)
    found = sorted((int(np.flatnonzero(m)[0]), float(m.sum() > 0)) for m in moves)
    assert found == [(i, up) for i in range(6) for up in (0.0, 1.0)]
    sizes = [np.abs(m).max() for m in moves]
    assert max(sizes) == pytest.approx(1e-4 * max(1.0, np.abs(start).max()), rel=1e-9)
    assert min(sizes) == pytest.approx(1e-4, rel=1e-9)


def test_everything_is_left_as_it_was() -> None:
    def wrong(x: Tensor, w: Tensor) -> Tensor:
        return product(x, w, FAULTS["sign"])

    def fails(x: Tensor, w: Tensor) -> Tensor:
        if not np.array_equal(x.data, kept[0]):
            raise RuntimeError("in the middle")
        return x @ w

    def noisy(x: Tensor, w: Tensor) -> Tensor:
        return Dropout(0.5, rng)(x @ w)

    rng = PCG32(1)
    right: Callable[..., Any] = lambda x, w: x @ w  # noqa: E731
    for f, error in (
        (right, None),
        (wrong, GradientError),
        (fails, RuntimeError),
        (noisy, ValueError),
    ):
        x, w = tensor(3, 3, seed=1), tensor(3, 3, seed=2)
        x.grad = np.full((3, 3), 7.0)
        arrays, kept = (x.data, w.data), (x.data.copy(), w.data.copy())
        grad = x.grad
        if error is None:
            gradcheck(f, [x, w])
        else:
            with pytest.raises(error):
                gradcheck(f, [x, w])
        assert x.data is arrays[0]
        assert w.data is arrays[1]
        assert np.array_equal(x.data, kept[0])
        assert np.array_equal(w.data, kept[1])
        assert x.grad is grad
        assert np.all(grad == 7.0)
        assert w.grad is None


def test_memory_layout_does_not_matter() -> None:
    base = PCG32(3).normal(0.0, 1.0, (6, 8), np.float64)
    frozen = base[:3, :4].copy()
    frozen.setflags(write=False)
    for array in (base[::2, ::2], np.asfortranarray(base[:3, :4]), base.T[:3, :4], frozen):
        report = gradcheck(lambda x: x.tanh() * 2.0, [Tensor(array, requires_grad=True)])
        assert report.inputs[0].checked == 12
    halves = Tensor(base[0], requires_grad=True), Tensor(base[0], requires_grad=True)
    assert gradcheck(lambda x, y: x * y.tanh(), list(halves))  # one memory, two variables


def test_noise_is_refused() -> None:
    dropout = Dropout(0.5)
    with pytest.raises(ValueError):
        gradcheck(dropout, [tensor(20)])
    assert gradcheck(dropout.eval(), [tensor(20)])
    count = iter(range(100))
    with pytest.raises(ValueError):
        gradcheck(lambda x: (x, x * float(next(count))), [tensor(2)])


def test_large_and_small_entries() -> None:
    for size in (1e6, 1e3, 1.0, 1e-3, 1e-6, 0.0):
        x = Tensor(np.array([1.25, -0.75]) * size, requires_grad=True)
        assert gradcheck(lambda x: x * 2.0, [x]).inputs[0].worst < 0.5
        assert gradcheck(lambda x: x * x + x, [x]).inputs[0].worst < 0.5
        with pytest.raises(GradientError):
            gradcheck(lambda x: record(x.data * 2.0, (x,), lambda g: (g * 2.00001,)), [x])
    many = Tensor(np.full(1000, 1e3), requires_grad=True)  # a large sum does not blur an entry
    report = gradcheck(lambda x, y: x * y, [many, Tensor([1.0], requires_grad=True)], sample=5)
    assert report.inputs[0].worst < 0.1


def test_empty_and_scalar_inputs() -> None:
    report = gradcheck(
        lambda a, b, c: a * c + b.sum(), [tensor(), tensor(0, seed=2), tensor(1, 1, seed=3)]
    )
    assert [line.checked for line in report.inputs] == [1, 0, 1]
    assert (report.inputs[1].worst, report.inputs[1].largest) == (0.0, 0.0)
    assert report.vanishing == ("inputs[1]",)
    with pytest.raises(GradientError, match=r"inputs\[0\]"):
        gradcheck(lambda x: record(x.data * 3.0, (x,), lambda g: (g,)), [tensor()])


class Bare:
    """The least that the check asks of a tensor; its backward doubles, or answers by one row."""

    requires_grad, dtype, ndim = True, np.dtype(np.float64), 1

    def __init__(self, data: Any, rows: slice = slice(None), parent: Any = None) -> None:
        self.data, self.grad, self.rows, self.parent = np.asarray(data), None, rows, parent

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    def backward(self, cotangent: Any) -> None:
        self.parent.grad = 2.0 * cotangent[self.rows]


def test_any_tensor_will_do() -> None:
    x = Bare([1.0, 2.0, 3.0])
    assert gradcheck(lambda x: Bare(x.data * 2.0, parent=x), [x]).inputs[0].checked == 3
    with pytest.raises(GradientError):
        gradcheck(lambda x: Bare(x.data * 2.0, slice(0, 1), x), [x])
    assert x.data.tolist() == [1.0, 2.0, 3.0]
    assert x.grad is None


def test_validation() -> None:
    x = tensor(3)
    for inputs in ([], [tensor(3, grad=False)], [np.ones(3)]):
        with pytest.raises(ValueError):
            gradcheck(lambda *a: x, inputs)
    for cotangents in ([], [np.ones(2)], [np.ones(3), np.ones(3)], [1.0]):
        with pytest.raises(ValueError):
            gradcheck(lambda x: x, [x], cotangents=cotangents)
    for sample in (0, -1, True, 2.5):
        with pytest.raises(ValueError):
            gradcheck(lambda x: x, [x], sample=sample)
    for alone in (x, x.data, iter([x])):
        with pytest.raises(TypeError):
            gradcheck(lambda *rows: rows[0], alone)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        gradcheck(lambda x: x, [x], parameters={"w": np.ones(3)})
    with pytest.raises(TypeError):
        gradcheck(lambda x: x.data, [x])
    with pytest.raises(TypeError):
        gradcheck(lambda x: (x, 1.0), [x])
