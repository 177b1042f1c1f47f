# Tangled from book/1-foundations/L0.4-tests.md
"""Tests of tinyllm.nn: Module by its behaviour, Linear against torch."""

import copy
import json
import math
import pickle
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tinyllm.autograd import no_grad
from tinyllm.nn import (
    Dropout,
    Linear,
    Module,
    ModuleList,
    Sequential,
    Unmatched,
    linear,
    randn,
)
from tinyllm.num.pcg32 import PCG32, default_generator, manual_seed
from tinyllm.tensor import Tensor

torch.set_num_threads(1)
SEEDED = hypothesis.settings(derandomize=True, database=None, deadline=None, max_examples=60)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """What is built without a generator is the same in every test."""
    manual_seed(0)


class Net(Module):
    """Parameters and modules that alternate, a list, a generator, and a constant."""

    def __init__(self, seed: int = 0, width: int = 3) -> None:
        rng = PCG32(seed)
        self.first = Linear(2, width, rng=rng)
        self.scale = Tensor(rng.uniform(0.5, 1.5, width), requires_grad=True)
        self.layers = ModuleList([Linear(width, width, rng=rng), Dropout(0.5)])
        self.table = np.arange(3.0)
        self.last = Linear(width, 1, bias=False, rng=rng)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x) * self.scale
        for layer in self.layers:
            h = layer(h)
        out: Tensor = self.last(h.tanh())
        return out


PATHS = [
    "first.weight",
    "first.bias",
    "scale",
    "layers.0.weight",
    "layers.0.bias",
    "last.weight",
]


def tensor(*shape: int, dtype: Any = np.float64, seed: int = 7, grad: bool = True) -> Tensor:
    return Tensor(PCG32(seed).normal(0.0, 1.0, shape).astype(dtype), requires_grad=grad)


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return list(a) == list(b) and all(
        a[k].dtype == b[k].dtype and np.array_equal(a[k], b[k], equal_nan=True) for k in a
    )


def test_registration_in_definition_order() -> None:
    net = Net()
    assert [path for path, _ in net.named_parameters()] == PATHS
    assert [id(p) for p in net.parameters()] == [id(p) for _, p in net.named_parameters()]
    assert dict(net.named_parameters())["layers.0.bias"] is net.layers[0].bias
    assert [path for path, _ in net.named_modules()] == [
        "", "first", "layers", "layers.0", "layers.1", "last",
    ]  # fmt: skip
    assert next(net.modules()) is net
    assert list(net.rng_state()) == ["layers.1.rng"]


def test_reassigning_and_deleting() -> None:
    net = Net()
    new = tensor(3)
    net.scale = new
    net.first = Linear(2, 3, bias=False)
    assert [path for path, _ in net.named_parameters()] == [p for p in PATHS if p != "first.bias"]
    assert dict(net.named_parameters())["scale"] is new
    del net.scale
    assert "scale" not in dict(net.named_parameters())
    assert not hasattr(net, "scale")
    net.last = None
    assert net.last is None
    assert [path for path, _ in net.named_parameters()] == ["first.weight", *PATHS[3:5]]
    net.scale = new  # comes back at the end
    assert [path for path, _ in net.named_parameters()][-1] == "scale"
    net.layers[1].rng = PCG32(5)
    assert net.rng_state() == {"layers.1.rng": PCG32(5).state()}
    with pytest.raises(AttributeError):
        del net.nothing


def test_registered_names_refuse_other_values() -> None:
    net = Net()
    before = net.scale
    for value in (before * 0.5, before.data, 1.5, Tensor(before.data), [1.0]):
        with pytest.raises(TypeError):
            net.scale = value
        assert net.scale is before
    with pytest.raises(TypeError):
        net.first = lambda x: x
    with no_grad(), pytest.raises(TypeError):
        net.scale = net.scale - 0.1
    assert [path for path, _ in net.named_parameters()] == PATHS


def test_constants_are_no_members() -> None:
    net = Net()
    net.mask = np.ones(3)
    net.constant = Tensor(np.ones(3))
    net.seen = net.first(tensor(4, 2))  # a result is kept as it is, and is no parameter
    net.count = 3
    assert net.seen.requires_grad
    assert [path for path, _ in net.named_parameters()] == PATHS
    net.seen = tensor(3)  # a leaf that requires grad is one
    assert [path for path, _ in net.named_parameters()] == [*PATHS, "seen"]


def test_list_of_modules_is_refused() -> None:
    values: list[Any] = [
        [Linear(2, 2)],
        (Linear(2, 2),),
        {"a": Linear(2, 2)},
        {Linear(2, 2)},
        [[1, [Linear(2, 2)]]],
        {"a": {"b": [tensor(2)]}},
        [PCG32(0)],
    ]
    for value in values:
        net = Net()
        net.hidden = value
        with pytest.raises(TypeError):
            list(net.parameters())
    net = Net()
    net.hidden = []
    net.hidden.append(Linear(2, 2))  # nothing tells the module of this
    for use in (net.state_dict, net.train, net.rng_state, lambda: list(net.modules())):
        with pytest.raises(TypeError):
            use()
    outer = ModuleList([net])
    with pytest.raises(TypeError):
        list(outer.parameters())
    net.hidden = [1, "two", np.ones(2), Tensor(np.ones(2)), {"three": (4,)}]
    assert len(list(net.parameters())) == len(PATHS)


def test_module_list() -> None:
    a, b, c = Linear(2, 3), Linear(3, 4), Linear(4, 5)
    layers = ModuleList([a, b])
    layers.append(c)
    assert len(layers) == 3
    assert list(layers) == [a, b, c]
    assert layers[0] is a
    assert layers[-1] is c
    for outside in (3, -4):
        with pytest.raises(IndexError):
            layers[outside]
    assert [path for path, _ in layers.named_parameters()] == [
        f"{i}.{name}" for i in range(3) for name in ("weight", "bias")
    ]
    assert len(ModuleList()) == 0
    with pytest.raises(TypeError):
        layers.append(lambda x: x)  # type: ignore[arg-type]


def test_slices_of_lists() -> None:
    a, b, c = Linear(2, 3), Linear(3, 4), Linear(4, 5)
    layers = ModuleList([a, b, c])
    assert list(layers[1:]) == [b, c]
    assert list(layers[::-2]) == [c, a]
    assert list(layers[5:]) == []
    assert list(layers[1:].state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    model = Sequential(a, Tensor.tanh, b)
    assert type(model[:2]) is Sequential
    x = tensor(5, 2)
    assert (model[:2](x).data == a(x).tanh().data).all()
    assert model[:1][0] is a


def test_sequential() -> None:
    first, second = Linear(2, 3), Linear(3, 4)
    model = Sequential(first, Tensor.tanh, second)
    x = tensor(5, 2)
    assert np.array_equal(model(x).data, second(first(x).tanh()).data)
    assert list(model.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert len(model) == 3
    assert list(model) == [first, Tensor.tanh, second]
    assert list(model.children()) == [first, second]
    model.append(lambda y: y * 2.0)
    assert np.array_equal(model(x).data, 2 * second(first(x).tanh()).data)
    assert Sequential()(x) is x
    assert repr(Sequential(Linear(2, 3), Tensor.tanh, Linear(3, 4), Tensor.exp)) == (
        "Sequential(1: tanh, 3: exp)\n  0: Linear(2 -> 3)\n  2: Linear(3 -> 4)"
    )
    nested = Sequential(Sequential(first), ModuleList([second]))
    assert list(nested.state_dict())[::2] == ["0.0.weight", "1.0.weight"]
    wrong: tuple[Any, ...] = ([first, second], Linear, second.forward, 3, None)
    for layer in wrong:
        with pytest.raises(TypeError):
            Sequential(first, layer)
    twin = copy.deepcopy(Sequential(first, Tensor.tanh))
    assert same(twin.state_dict(), Sequential(first).state_dict())


class Running(Module):
    """A layer that remembers a mean and counts."""

    def __init__(self) -> None:
        self.scale = Tensor(np.ones(2, np.float32), requires_grad=True)
        self.register_buffer("mean", np.zeros(2, np.float32))
        self.register_buffer("count", 0)
        self.last = Linear(2, 1)


def test_a_buffer_that_is_none_or_refused() -> None:
    net = Module()
    net.register_buffer("cache", None)
    for wrong in (1j, "text", [None], object()):
        with pytest.raises(TypeError):
            net.register_buffer("table", wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        net.register_buffer("table", [[1.0], [1.0, 2.0]])  # type: ignore[list-item]
    assert net.cache is None
    assert not hasattr(net, "table")
    assert net.state_dict() == {}
    assert list(net.named_buffers()) == []
    assert repr(net) == "Module()"
    net.register_buffer("cache", [1.0])  # now there is something to save
    assert list(net.state_dict()) == ["cache"]


def test_properties_are_no_members() -> None:
    class Half(Module):
        @property
        def fixed(self) -> None:
            """Nothing."""

        @property
        def inner(self) -> Module:
            return self.own

        @inner.setter
        def inner(self, value: Module) -> None:
            self.own = value

    net = Half()
    with pytest.raises(AttributeError):
        net.fixed = Linear(2, 2)  # type: ignore[misc, assignment]
    net.inner = Linear(2, 2)
    assert list(net.state_dict()) == ["own.weight", "own.bias"]


def test_buffers() -> None:
    net = Running()
    paths = ["scale", "mean", "count", "last.weight", "last.bias"]
    assert list(net.state_dict()) == paths
    assert [path for path, _ in net.named_parameters()] == ["scale", *paths[3:]]
    assert [path for path, _ in ModuleList([net]).named_buffers()] == ["0.mean", "0.count"]
    assert isinstance(net.mean, Tensor)
    assert not net.mean.requires_grad
    net.mean.data = 0.9 * net.mean.data + np.float32(0.5)
    net.count.data = net.count.data + 1
    state = net.state_dict()
    assert (state["mean"].tolist(), state["count"].tolist()) == ([0.5, 0.5], 1)
    other = Running()
    assert other.load_state_dict(state) == Unmatched([], [])
    assert same(other.state_dict(), state)
    assert other.mean.data is not state["mean"]
    for missing in ("mean", "count"):
        with pytest.raises(ValueError, match=missing):
            other.load_state_dict({path: a for path, a in state.items() if path != missing})
    with pytest.raises(ValueError, match="count"):
        other.load_state_dict(state | {"count": np.array(1.5)})
    other.astype(np.float64)
    assert (other.mean.dtype, other.count.dtype) == (np.float64, np.int64)
    twin = copy.deepcopy(net)
    twin.mean.data[...] = 7
    assert net.mean.data.tolist() == [0.5, 0.5]
    given = np.zeros(3)
    net.register_buffer("table", given)
    given[0] = 1
    assert net.table.data.tolist() == [0, 0, 0]  # a copy
    with pytest.raises(TypeError):
        net.mean = np.ones(2)
    for name in ("mean", "scale", "train", "a.b", ""):
        with pytest.raises(ValueError):
            net.register_buffer(name, np.ones(2))
    with pytest.raises(TypeError):
        net.register_buffer("weight", tensor(2))
    net.table = None
    del net.count
    assert [path for path, _ in net.named_buffers()] == ["mean"]


def test_children_and_apply() -> None:
    net = Net()
    assert [name for name, _ in net.named_children()] == ["first", "layers", "last"]
    assert list(net.children()) == [net.first, net.layers, net.last]
    net.again = net.first
    assert list(net.children()) == [net.first, net.layers, net.last]
    seen: list[Module] = []
    assert net.apply(seen.append) is net
    assert seen == list(net.modules())

    def clear(module: Module) -> None:
        if isinstance(module, Linear):
            module.weight.data = np.zeros_like(module.weight.data)

    net.apply(clear)
    assert not any(a.any() for path, a in net.state_dict().items() if path.endswith("weight"))


class Tied(Module):
    """Reads and writes with one matrix, and calls one module by two names."""

    def __init__(self) -> None:
        self.read = Linear(3, 4)
        self.write = Linear(3, 4)
        self.write.weight = self.read.weight
        self.again = self.read


def test_shared_parameters_come_once() -> None:
    tied = Tied()
    assert [path for path, _ in tied.named_parameters()] == [
        "read.weight",
        "read.bias",
        "write.bias",
    ]
    assert len(list(tied.parameters())) == 3
    assert [path for path, _ in tied.named_modules()] == ["", "read", "write"]
    equal = ModuleList([Linear(3, 4), Linear(3, 4)])  # equal numbers, but two of each
    assert len(list(equal.parameters())) == 4
    assert len(list(equal.modules())) == 3
    x = tensor(2, 3, grad=False)
    y = tied.read(x) + tied.write(x)
    y.backward(np.ones((2, 4)))
    assert np.allclose(tied.read.weight.grad, 2 * np.ones((2, 4)).T @ x.data, rtol=1e-6)


def test_module_inside_itself() -> None:
    net = Net()
    net.layers.append(net)
    with pytest.raises(ValueError):
        net.state_dict()
    with pytest.raises(ValueError):
        list(net.parameters())


def test_frozen_parameters_stay() -> None:
    net = Net()
    net.first.weight.requires_grad = False
    assert [path for path, _ in net.named_parameters()] == PATHS
    assert list(net.state_dict()) == PATHS
    net.eval()(tensor(4, 2)).backward(np.ones((4, 1)))
    assert net.first.weight.grad is None
    assert all(p.grad is not None for p in net.parameters() if p.requires_grad)
    net.load_state_dict(Net(seed=1).state_dict())
    assert same(net.state_dict(), Net(seed=1).state_dict())
    assert not net.first.weight.requires_grad


def test_modes_are_recursive() -> None:
    tied = Tied()
    tied.deep = ModuleList([ModuleList([Net()])])
    assert all(module.training for module in tied.modules())
    assert tied.eval() is tied
    assert not any(module.training for module in tied.modules())
    assert len(list(tied.modules())) == 11
    assert tied.train() is tied
    assert all(module.training for module in tied.modules())
    tied.deep[0].train(False)
    assert tied.training
    assert not tied.deep[0][0].layers[1].training
    assert Net().training  # one module's mode is not another's


def test_zero_grad_and_astype() -> None:
    net = Net()
    net.eval()
    assert net(tensor(4, 2, grad=False)).dtype == np.float64  # promoted
    net(tensor(4, 2)).backward(np.ones((4, 1)))
    assert all(p.grad is not None and p.grad.dtype == np.float32 for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    values = net.state_dict()
    net(tensor(4, 2)).backward(np.ones((4, 1)))
    tensors = list(net.parameters())
    assert net.astype(np.float64) is net
    assert all(a is b for a, b in zip(tensors, net.parameters(), strict=True))
    assert all(p.dtype == np.float64 and p.grad is None for p in net.parameters())
    assert all(np.array_equal(values[path], p.data) for path, p in net.named_parameters())
    assert net(tensor(4, 2, dtype=np.float32)).dtype == np.float64
    assert net.astype("float32")(tensor(4, 2, dtype=np.float32)).dtype == np.float32
    for wrong in (np.int64, bool, complex):
        with pytest.raises(TypeError):
            net.astype(wrong)


def test_forward_is_called() -> None:
    class Call(Module):
        def forward(self, x: int, y: int = 2, *more: int, key: str) -> Any:
            return x, y, more, key

    assert Call()(1, key="k") == (1, 2, (), "k")
    assert Call()(1, 3, 4, key="k") == (1, 3, (4,), "k")

    class Nothing(Module):
        pass

    with pytest.raises(NotImplementedError):
        Nothing()(1)
    with pytest.raises(TypeError):
        Nothing(1)  # type: ignore[call-arg]


def test_repr() -> None:
    assert repr(Net()) == (
        "Net()\n"
        "  first: Linear(2 -> 3)\n"
        "  layers: ModuleList()\n"
        "    0: Linear(3 -> 3)\n"
        "    1: Dropout(p=0.5)\n"
        "  last: Linear(3 -> 1, bias=False)"
    )


def test_copies_are_independent() -> None:
    net = Net()
    net.layers[1].rng.uint32s(5)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert same(twin.state_dict(), net.state_dict())
        assert twin.rng_state() == net.rng_state()
        before = net.state_dict()
        for p in twin.parameters():
            p.data += 1.0
        twin.eval()
        twin.layers[1].rng.uint32s(1)
        assert same(net.state_dict(), before)
        assert net.training
        assert twin.rng_state() != net.rng_state()
    tied = copy.deepcopy(Tied())
    assert tied.read.weight is tied.write.weight
    assert tied.again is tied.read


def test_state_dict_is_a_copy() -> None:
    net = Net()
    state = net.state_dict()
    assert list(state) == PATHS
    assert all(type(array) is np.ndarray for array in state.values())
    kept = {path: array.copy() for path, array in state.items()}
    for p in net.parameters():
        p.data += 1.0  # as an optimiser does it, in place
    assert same(state, kept)
    for array in state.values():
        array[...] = np.nan
    assert all(np.isfinite(p.data).all() for p in net.parameters())
    assert list(Tied().state_dict()) == [
        "read.weight", "read.bias", "write.weight", "write.bias", "again.weight", "again.bias",
    ]  # fmt: skip
    assert ModuleList().state_dict() == {}


def test_load_round_trip() -> None:
    net, other = Net(seed=1), Net(seed=2)
    assert not same(net.state_dict(), other.state_dict())
    left = other.load_state_dict(net.state_dict())
    assert left == Unmatched([], [])
    assert same(net.state_dict(), other.state_dict())
    backwards = dict(reversed(net.state_dict().items()))  # order does not matter
    fresh = Net(seed=3)
    fresh.load_state_dict(backwards)
    assert same(net.state_dict(), fresh.state_dict())


def test_load_keeps_dtype_and_copies() -> None:
    state = Net(seed=1).astype(np.float64).state_dict()
    state = {path: array + 1e-12 for path, array in state.items()}
    net = Net()
    net.load_state_dict(state)
    assert all(p.dtype == np.float32 for p in net.parameters())
    assert all(np.array_equal(p.data, state[n].astype("f4")) for n, p in net.named_parameters())
    wide = Net().astype(np.float64)
    wide.load_state_dict(state)
    twin = Net().astype(np.float64)
    twin.load_state_dict(state)
    for path, p in wide.named_parameters():
        assert np.array_equal(p.data, state[path])  # not by way of float32
        assert not np.shares_memory(p.data, state[path])
        p.data += 1.0
    assert not any(np.array_equal(p.data, twin.state_dict()[n]) for n, p in wide.named_parameters())
    assert all(np.array_equal(p.data, state[n]) for n, p in twin.named_parameters())
    layer = Linear(3, 2)
    for given in (
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(12.0).reshape(2, 6)[:, ::2] / 2,
        np.arange(6).reshape(2, 3),
        [[0, 1, 2], [3, 4, 5]],
        Tensor(np.arange(6.0).reshape(2, 3), requires_grad=True),
        torch.arange(6.0).reshape(2, 3),
    ):
        layer.load_state_dict({"weight": given, "bias": np.zeros(2)})
        assert layer.weight.data.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert layer.weight.data.flags.c_contiguous
        assert layer.weight.dtype == np.float32
        layer.weight.data[...] = np.nan


def faulty() -> dict[str, Any]:
    state: dict[str, Any] = Net(seed=1).state_dict()
    state["first.weight"] = np.zeros((3, 4))
    state["first.bias"] = np.zeros((1, 3))
    state["scale"] = np.zeros(3, complex)
    del state["layers.0.bias"], state["last.weight"]
    state["last.wieght"] = state["other"] = np.zeros(1)
    return state


def test_load_names_every_fault() -> None:
    with pytest.raises(ValueError, match="scale") as caught:
        Net().load_state_dict(faulty())
    text = str(caught.value)
    for path in ("first.weight", "first.bias", "layers.0.bias", "last.weight", "last.wieght"):
        assert path in text
    for fault in ("other", "(3, 4)", "(3, 2)", "(1, 3)", "(3,)", "complex128", "float32"):
        assert fault in text
    assert "layers.0.weight" not in text  # fits
    for words in (np.array(["a", "b", "c"]), np.array([None] * 3)):
        with pytest.raises(ValueError, match="scale"):
            Net().load_state_dict(Net().state_dict() | {"scale": words})


def test_load_is_all_or_nothing() -> None:
    for strict in (True, False):
        net = Net()
        before = net.state_dict()
        with pytest.raises(ValueError, match=r"first\.weight"):
            net.load_state_dict(faulty(), strict=strict)
        assert same(net.state_dict(), before)
    net = Net()
    for state in ({}, {path: array for path, array in before.items() if path != "scale"}):
        with pytest.raises(ValueError, match="scale"):
            net.load_state_dict({path: array + 1 for path, array in state.items()})
        assert same(net.state_dict(), before)


def test_load_not_strict() -> None:
    net, other = Net(), Net(seed=1).state_dict()
    given = {"scale": other["scale"], "layers.0.weight": other["layers.0.weight"], "x": np.ones(1)}
    left = net.load_state_dict(given, strict=False)
    rest = [path for path in PATHS if path not in given]
    assert left == Unmatched(missing=rest, unexpected=["x"])
    assert left.missing == rest
    assert left.unexpected == ["x"]
    start = Net().state_dict()
    for path, array in net.state_dict().items():
        assert np.array_equal(array, given.get(path, start[path]))
    with pytest.raises(ValueError, match="scale"):
        net.load_state_dict({"scale": np.ones(2)}, strict=False)


def test_load_shared() -> None:
    full = Tied().state_dict()
    new = np.arange(12.0).reshape(4, 3)
    for paths in (["read.weight"], ["write.weight"], ["again.weight", "write.weight"]):
        state = {p: a for p, a in full.items() if not p.endswith("weight")}
        tied = Tied()
        assert tied.load_state_dict(state | dict.fromkeys(paths, new)) == Unmatched([], [])
        assert np.array_equal(tied.read.weight.data, new)
        assert tied.read.weight is tied.write.weight
    tied = Tied()
    full = tied.state_dict()
    for strict in (True, False):
        with pytest.raises(ValueError, match=r"write\.weight"):
            tied.load_state_dict(full | {"write.weight": new}, strict=strict)
        assert same(tied.state_dict(), full)
    missing = {p: a for p, a in full.items() if not p.endswith("weight")}
    left = tied.load_state_dict(missing, strict=False)
    assert left.missing == ["read.weight", "write.weight", "again.weight"]
    nan = {p: np.full_like(a, np.nan) for p, a in full.items()}
    tied.load_state_dict(nan)  # two arrays of NaN agree
    assert np.isnan(tied.read.weight.data).all()


def test_rng_state_resumes_a_run() -> None:
    x = tensor(64, 2, dtype=np.float32)
    unbroken = Net()
    for _ in range(3):
        unbroken(x)
    parameters, generators = unbroken.state_dict(), unbroken.rng_state()
    assert not any("rng" in path for path in parameters)
    generators = json.loads(json.dumps(generators))
    expected = unbroken(x).data
    resumed = Net(seed=9)
    resumed.load_state_dict(parameters)
    assert not np.array_equal(resumed(x).data, expected)  # the parameters alone do not do it
    resumed.load_rng_state(generators)
    assert np.array_equal(resumed(x).data, expected)
    assert resumed.rng_state() == unbroken.rng_state()


def test_rng_state_faults() -> None:
    net = ModuleList([Dropout(0.1), Dropout(0.1, PCG32(1))])
    state = net.rng_state()
    assert list(state) == ["0.rng", "1.rng"]
    first = PCG32(8).state()
    for wrong in (
        {"0.rng": first},
        {"0.rng": first, "2.rng": state["1.rng"]},
        {"0.rng": first, "1.rng": {"generator": "other"}},
    ):
        with pytest.raises(ValueError):
            net.load_rng_state(wrong)
        assert net.rng_state() == state


def test_seed_generators() -> None:
    net = ModuleList([Dropout(0.5), ModuleList([Dropout(0.5)]), Linear(2, 2)])
    root = PCG32(3)
    before = root.state()
    assert net.seed_generators(root) is net
    assert net.rng_state() == {
        "0.rng": root.substream("0.rng").state(),
        "1.0.rng": root.substream("1.0.rng").state(),
    }
    assert root.state() == before
    x = tensor(50, 20)
    assert not np.array_equal(net[0](x).data, net[1][0](x).data)
    shared = PCG32(4)
    both = ModuleList([Dropout(0.5, shared), Dropout(0.5, shared)])
    both.seed_generators(PCG32(3))
    assert shared.state() == PCG32(3).substream("0.rng").state()
    other = ModuleList([Dropout(0.5)]).seed_generators(root)  # a second model of this root
    assert other.rng_state() == {"0.rng": root.substream("0.rng #2").state()}


def test_linear_hand_example() -> None:
    layer = Linear(2, 3).astype(np.float64)
    layer.load_state_dict({"weight": [[1, 0], [0, 1], [1, -1]], "bias": [0.5, 0.0, -1.0]})
    rows, grads = np.array([[1.0, 2.0], [3.0, -1.0]]), np.array([[1.0, 2.0, 3.0], [0.0, -1.0, 1.0]])
    for batch in ((2,), (1, 2), (2, 1)):
        layer.zero_grad()
        x = Tensor(rows.reshape(*batch, 2), requires_grad=True)
        y = layer(x)
        assert np.array_equal(y.data.reshape(2, 3), [[1.5, 2, -2], [3.5, -1, 3]])
        y.backward(grads.reshape(*batch, 3))
        assert np.array_equal(x.grad.reshape(2, 2), [[4, -1], [1, -2]])
        assert np.array_equal(layer.weight.grad, [[1, 2], [-1, 5], [6, 5]])
        assert np.array_equal(layer.bias.grad, [1, 1, 4])
    layer.zero_grad()
    for i in range(2):  # row by row: gradients accumulate
        layer(Tensor(rows[i])).backward(grads[i])
    assert np.array_equal(layer.weight.grad, [[1, 2], [-1, 5], [6, 5]])
    assert np.array_equal(layer.bias.grad, [1, 1, 4])


def test_linear_any_layout() -> None:
    rng = PCG32(2)
    big = rng.normal(0.0, 1.0, (8, 6, 4), np.float64)
    w, b = rng.normal(0.0, 1.0, (5, 4), np.float64), rng.normal(0.0, 1.0, 5, np.float64)
    g = rng.normal(0.0, 1.0, (5, 6, 8), np.float64)

    def run(x: Any, w: Any, b: Any, g: Any) -> list[Any]:
        tensors = [Tensor(a, requires_grad=True) for a in (x, w, b)]
        copies = [a.copy() for a in (x, w, b, g)]
        y = linear(*tensors)
        y.backward(g)
        assert all(np.array_equal(a, c) for a, c in zip((x, w, b, g), copies, strict=True))
        assert all(t.grad.flags.c_contiguous for t in tensors)
        return [y.data, *(t.grad for t in tensors)]

    x = big[::2].swapaxes(0, 1)  # [6, 4, 4], strided and transposed
    cotangent = g[:, :, ::2].transpose(1, 2, 0)  # [6, 4, 5]
    plain = run(np.ascontiguousarray(x), w, b, np.ascontiguousarray(cotangent))
    odd = run(x, np.asfortranarray(w), np.repeat(b, 2)[::2], cotangent)
    for one, other in zip(plain, odd, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-13)
    fixed = x.copy()
    fixed.setflags(write=False)
    run(fixed, w, b, cotangent)


def test_linear_promotes() -> None:
    for x_type, w_type, b_type in (
        ("f8", "f4", "f4"),
        ("f4", "f8", "f4"),
        ("f4", "f4", "f8"),
        ("f4", "f4", "f4"),
        ("i8", "f4", "f4"),
    ):
        x = tensor(3, 4, seed=1, dtype=x_type, grad=x_type != "i8")
        w, b = tensor(2, 4, seed=2, dtype=w_type), tensor(2, seed=3, dtype=b_type)
        y = linear(x, w, b)
        assert y.dtype == np.result_type(x.dtype, w.dtype, b.dtype)
        exact = x.data.astype("f8") @ w.data.astype("f8").T + b.data
        np.testing.assert_allclose(y.data, exact, rtol=1e-5, atol=1e-6)
        y.backward(np.ones((3, 2)))
        for parent in (x, w, b):
            if parent.requires_grad:
                assert parent.grad.dtype == parent.dtype
        assert b.data.tolist() == tensor(2, seed=3, dtype=b_type).data.tolist()


def test_linear_leaves_work_out() -> None:
    full = [tensor(3, 4, seed=1), tensor(2, 4, seed=2), tensor(2, seed=3)]
    linear(*full).backward(np.ones((3, 2)))
    for kept in range(8):
        some = [Tensor(t.data, requires_grad=bool(kept >> i & 1)) for i, t in enumerate(full)]
        y = linear(*some)
        assert y.requires_grad == (kept > 0)
        if kept:
            y.backward(np.ones((3, 2)))
        for i, t in enumerate(some):
            if kept >> i & 1:
                assert np.array_equal(t.grad, full[i].grad)
            else:
                assert t.grad is None
    with no_grad():
        assert not linear(*full).requires_grad


def test_linear_keeps_the_forward_weight() -> None:
    x, w = tensor(3, 4, seed=1), tensor(2, 4, seed=2)
    before = w.data.copy()
    y = linear(x, w)
    w.data = np.zeros((2, 4))
    y.backward(np.ones((3, 2)))
    np.testing.assert_allclose(x.grad, np.ones((3, 2)) @ before, rtol=1e-14)


class Counted(Tensor):
    """Counts the tensors that are made; the result of an operation takes this class over."""

    __slots__ = ()
    made = 0

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        Counted.made += 1
        return super().__new__(cls)


def test_linear_is_one_operation() -> None:
    layer = Linear(4, 3)
    for shape in ((4,), (2, 4), (2, 3, 4), (2, 1, 3, 4)):
        x = Counted(np.ones(shape, np.float32))
        before = Counted.made
        y = layer(x)
        assert type(y) is Counted
        assert Counted.made == before + 1


def test_linear_sums_bias_gradients_well() -> None:
    g = PCG32(0).normal(0.0, 1.0, (32768, 64))
    layer = Linear(2, 64)
    layer(Tensor(np.ones((32768, 2), np.float32))).backward(g)
    exact = g.astype(np.float64).sum(axis=0)
    assert np.abs(layer.bias.grad - exact).max() < np.abs(g.sum(axis=0) - exact).max() / 2


def test_linear_validation() -> None:
    for sizes in ((0, 2), (2, 0), (-1, 2), (2.0, 2), (True, 2), ("2", 2), (2, None)):
        with pytest.raises(ValueError):
            Linear(*sizes)  # type: ignore[arg-type]
    assert Linear(np.int64(2), np.int32(3)).weight.shape == (3, 2)  # type: ignore[arg-type]
    layer = Linear(3, 2)
    for shape in ((2,), (3, 2), (3, 1), (4, 3, 2), ()):
        with pytest.raises(ValueError) as caught:
            layer(Tensor(np.ones(shape)))
        assert str(list(shape)) in str(caught.value)
    x = Tensor(np.ones((2, 3)))
    for w_shape, b_shape in (((3,), (3,)), ((2, 3, 1), (2,)), ((2, 3), (3,)), ((2, 3), (1, 2))):
        with pytest.raises(ValueError):
            linear(x, Tensor(np.ones(w_shape)), Tensor(np.ones(b_shape)))
    for array in (x.data, x.data.tolist()):
        with pytest.raises(TypeError):
            layer(array)
    with pytest.raises(TypeError):
        linear(x, layer.weight.data)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "batch", [(), (1,), (5,), (3, 4), (2, 1, 3), (2, 3, 2, 2), (0,), (3, 0), (0, 5, 2)]
)
@pytest.mark.parametrize(("d_in", "d_out"), [(4, 4), (6, 3), (1, 5), (7, 1)])
def test_linear_matches_torch(batch: tuple[int, ...], bias: bool, d_in: int, d_out: int) -> None:
    rng = PCG32(d_in * 10 + d_out)
    layer = Linear(d_in, d_out, bias=bias, rng=rng).astype(np.float64)
    x = rng.normal(0.0, 1.0, (*batch, d_in), np.float64)
    g = rng.normal(0.0, 1.0, (*batch, d_out), np.float64)
    mine = Tensor(x, requires_grad=True)
    y = layer(mine)
    y.backward(g)
    theirs = torch.tensor(x, requires_grad=True)
    params = [torch.tensor(p.data, requires_grad=True) for p in layer.parameters()]
    out = torch.nn.functional.linear(theirs, *params)
    out.backward(torch.tensor(g))
    assert y.shape == (*batch, d_out)
    pairs = [(y.data, out.detach()), (mine.grad, theirs.grad)]
    pairs += [(p.grad, q.grad) for p, q in zip(layer.parameters(), params, strict=True)]
    for found, expected in pairs:
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, expected.numpy(), rtol=0, atol=1e-12)


def test_linear_init() -> None:
    draws = PCG32(0)
    weight = draws.uniform(-0.5, 0.5, (3, 4))
    bias = draws.uniform(-0.5, 0.5, 3)
    manual_seed(0)
    for layer in (Linear(4, 3), Linear(4, 3, rng=PCG32(0))):
        assert np.array_equal(layer.weight.data, weight)
        assert np.array_equal(layer.bias.data, bias)
        assert layer.weight.dtype == layer.bias.dtype == np.float32
        assert layer.weight.requires_grad
        assert layer.bias.requires_grad
    assert layer.weight.data[0].tolist() == [float(u) - 0.5 for u in PCG32(0).uniform(0.0, 1.0, 4)]
    following = Linear(4, 3)  # goes on where the first one ended: twins would stay twins
    assert np.array_equal(following.weight.data, draws.uniform(-0.5, 0.5, (3, 4)))
    assert np.array_equal(following.bias.data, draws.uniform(-0.5, 0.5, 3))
    rng, before = PCG32(5), default_generator().state()
    first, second = Linear(9, 2, rng=rng), Linear(9, 2, bias=False, rng=rng)
    assert default_generator().state() == before  # who brings a generator leaves it alone
    draws = PCG32(5)
    third = 1 / math.sqrt(9)
    assert np.array_equal(first.weight.data, draws.uniform(-third, third, (2, 9)))
    assert np.array_equal(first.bias.data, draws.uniform(-third, third, 2))
    assert np.array_equal(second.weight.data, draws.uniform(-third, third, (2, 9)))
    assert second.bias is None
    assert list(second.state_dict()) == ["weight"]
    assert rng.state() == draws.state()
    assert first.rng_state() == {}
    tall = Linear(1, 5000)  # the bound is that of d_in, also for the bias
    for p in tall.parameters():
        assert 0.99 < np.abs(p.data).max() <= 1.0
        assert p.data.min() < -0.99


def test_linear_dtype() -> None:
    single = Linear(3, 2, rng=PCG32(4))
    for dtype in (np.float16, np.float32, np.float64, "float64"):
        layer = Linear(3, 2, rng=PCG32(4), dtype=dtype)
        for p, q in zip(layer.parameters(), single.parameters(), strict=True):
            assert p.dtype == dtype
            assert np.array_equal(p.data, q.data.astype(dtype))
    before = default_generator().state()
    with pytest.raises(TypeError):
        Linear(3, 2, dtype=np.int64)
    assert default_generator().state() == before


def test_randn() -> None:
    draws = PCG32(0)
    for x in (randn(2, 3), randn((2, 3)), randn([2, 3])):  # the default generator moves on
        assert np.array_equal(x.data, draws.normal(0.0, 1.0, (2, 3)))
        assert x.dtype == np.float32
        assert not x.requires_grad
    wide = randn(4, rng=PCG32(3), dtype=np.float64, requires_grad=True)
    assert np.array_equal(wide.data, PCG32(3).normal(0.0, 1.0, 4, np.float64))
    assert wide.requires_grad
    assert randn().shape == randn(()).shape == ()
    assert randn(0, 2).shape == (0, 2)
    assert randn(np.int64(3)).shape == (3,)
    with pytest.raises(TypeError):
        randn(2, dtype=np.float16)
    with pytest.raises(ValueError):
        randn(2, -1)


def test_init_keeps_the_scale() -> None:
    for d in (4, 16, 64, 256, 1024):
        rng = PCG32(d)
        layer = Linear(d, 64, bias=False, rng=rng)
        out = layer(Tensor(rng.normal(0.0, 1.0, (2000, d)))).data
        assert abs(float(out.std()) - 1 / math.sqrt(3)) < 0.08
        assert abs(float(out.mean())) < 0.05


def test_dropout_in_training_only() -> None:
    manual_seed(0)
    layer, other = Dropout(0.25), Dropout(0.25)
    x = tensor(1000)
    before = layer.rng.state()
    assert before == PCG32(0).substream("dropout").state()
    assert np.mean((layer(x).data == 0) == (other(x).data == 0)) < 0.75  # 1 where they drop alike
    layer.rng.set_state(before)
    assert layer.eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert layer.rng.state() == before  # nothing drawn
    y = layer.train()(x)
    assert 0.2 < float(np.mean(y.data == 0)) < 0.3
    z = layer(x)
    assert not np.array_equal(y.data, z.data)  # each call draws anew
    mine = PCG32(3)
    assert Dropout(0.5, mine).rng is mine


def test_dropout_values_and_gradients() -> None:
    for dtype in (np.float32, np.float64):
        for p, shape in ((0.25, (6, 50)), (0.9, (2, 3, 4)), (0.5, ())):
            x, g = tensor(*shape, dtype=dtype), tensor(*shape, dtype=dtype, seed=8).data
            y = Dropout(p, PCG32(1))(x)
            kept = PCG32(1).uniform(0.0, 1.0, shape) >= p
            y.backward(g)
            assert y.dtype == x.grad.dtype == dtype
            tight = {"rtol": 1e-6 if dtype == np.float32 else 1e-14}
            np.testing.assert_allclose(y.data, np.where(kept, x.data / (1 - p), 0), **tight)
            np.testing.assert_allclose(x.grad, np.where(kept, g / (1 - p), 0), **tight)
    ones = Dropout(0.3)(Tensor(np.ones(100_000))).data
    assert abs(ones.mean() - 1.0) < 4 * math.sqrt(0.3 / 0.7 / 100_000)  # the mean is kept


def test_what_is_dropped_is_0_whatever_it_was() -> None:
    x, kept = Tensor(np.full(8, np.nan), requires_grad=True), PCG32(1).uniform(0.0, 1.0, 8) >= 0.5
    y = Dropout(0.5, PCG32(1))(x)
    y.backward(np.full(8, np.inf))
    np.testing.assert_array_equal(y.data, np.where(kept, np.nan, 0))
    np.testing.assert_array_equal(x.grad, np.where(kept, np.inf, 0))


def test_dropout_at_a_rate_whose_scale_is_too_large_for_the_dtype() -> None:
    layer = Dropout(0.99999, PCG32(0))
    assert (layer(Tensor(np.ones(100, np.float16))).data == 0).all()
    assert (layer(Tensor(np.zeros(10**6, np.float16))).data == 0).all()  # about ten are kept


@pytest.mark.parametrize(
    "make",
    [
        lambda rng: Linear(2, 2, rng=rng),
        lambda rng: Dropout(0.5, rng=rng),
        lambda rng: randn(2, rng=rng),
    ],
)
def test_a_seed_is_no_generator(make: Any) -> None:
    with pytest.raises(TypeError):
        make(0)


def test_dropout_validation() -> None:
    for p in (-0.1, 1.0, 1.5, math.nan):
        with pytest.raises(ValueError):
            Dropout(p)
        for layer in (Dropout(0.1), Dropout(0.1).eval()):
            layer.p = p
            with pytest.raises(ValueError):
                layer(tensor(3))
    for layer in (Dropout(0.1), Dropout(0.0), Dropout(0.1).eval()):
        for whole in (Tensor(np.arange(3)), Tensor(np.ones(3, bool))):
            with pytest.raises(TypeError):
                layer(whole)
        for array in (np.ones(3), [1.0]):
            with pytest.raises(TypeError):
                layer(array)


class Classifier(Module):
    def __init__(self, rng: PCG32) -> None:
        self.hidden = Linear(2, 8, rng=rng)
        self.out = Linear(8, 1, rng=rng)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out(self.hidden(x).tanh())
        return y


def train(model: Classifier, steps: int) -> float:
    x = Tensor(np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32))
    target = np.array([[0], [1], [1], [0]], np.float32)
    loss = math.nan
    for _ in range(steps):
        error = model(x) - target
        mean: Tensor = (error * error).mean()
        model.zero_grad()
        mean.backward()
        for p in model.parameters():
            p.data = p.data - np.float32(0.2) * p.grad
        loss = mean.item()
    return loss


def test_small_model_learns() -> None:
    whole = Classifier(PCG32(1))
    first = train(whole, 1)
    halfway = train(whole, 199)
    kept = whole.state_dict()
    end = train(whole, 200)
    assert 0.2 < first < 2.0
    assert end < halfway < first
    assert end < 0.01
    other = Classifier(PCG32(2))
    other.load_state_dict(kept)
    assert train(other, 200) == end  # to the last bit
    assert same(other.state_dict(), whole.state_dict())


def check_linear(batch: tuple[int, ...], d_in: int, d_out: int, wants: str, dtype: Any) -> None:
    """Values and gradients against plain sums of products in float64; wants: which of x, w, b require grad."""
    arrays = [
        PCG32(i).normal(0.0, 1.0, shape).astype(dtype)
        for i, shape in enumerate([(*batch, d_in), (d_out, d_in), (d_out,)])
    ]
    x, w, b = (Tensor(a, requires_grad=n in wants) for a, n in zip(arrays, "xwb", strict=True))
    y = linear(x, w, b)
    g = PCG32(9).normal(0.0, 1.0, (*batch, d_out)).astype(dtype)
    assert y.dtype == dtype
    y.backward(g)
    X, W, B, G = (a.astype(np.float64) for a in (*arrays, g))
    X, G = X.reshape(-1, d_in), G.reshape(-1, d_out)
    pairs = [(y.data.reshape(-1, d_out), np.einsum("ni,oi->no", X, W) + B)]
    expected = [np.einsum("no,oi->ni", G, W), np.einsum("no,ni->oi", G, X), G.sum(axis=0)]
    for name, t, one in zip("xwb", (x, w, b), expected, strict=True):
        assert (t.grad is not None) == (name in wants)
        if name in wants:
            assert (t.grad.shape, t.grad.dtype) == (t.shape, dtype)
            pairs.append((t.grad.reshape(one.shape), one))
    tight = {2: 0.02, 4: 1e-5, 8: 1e-13}[np.dtype(dtype).itemsize]
    for found, one in pairs:
        np.testing.assert_allclose(
            found, one, rtol=0, atol=tight * (1 + np.abs(one).max(initial=0))
        )


@pytest.mark.parametrize(
    ("batch", "d_in", "d_out"),
    [
        ((), 1, 1),
        ((1, 1, 1), 2, 1),
        ((9,), 130, 3),
        ((2, 9), 3, 130),
        ((1300,), 70, 2),
        ((9, 1, 2), 2, 600),
        ((70, 2), 9, 9),
        ((2, 1, 3, 2, 2), 4, 5),
    ],
)
def test_linear_at_every_size(batch: tuple[int, ...], d_in: int, d_out: int) -> None:
    for wants in ("xwb", "x", "w", "b", "xw", "xb", "wb"):
        check_linear(batch, d_in, d_out, wants, np.float64)
    for dtype in (np.float16, np.float32):
        check_linear(batch, d_in, d_out, "xwb", dtype)
    for bias in (True, False):
        layer = Linear(d_in, d_out, bias, dtype=np.float32)
        assert layer(tensor(*batch, d_in, dtype=np.float32)).dtype == np.float32


@SEEDED
@hypothesis.given(
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9),
    st.integers(1, 70),
    st.integers(1, 70),
    st.sampled_from(["xwb", "x", "w", "b", "xw", "xb", "wb"]),
    st.sampled_from(["f4", "f8"]),
)
def test_linear_of_drawn_shapes(
    batch: tuple[int, ...], d_in: int, d_out: int, wants: str, dtype: str
) -> None:
    check_linear(batch, d_in, d_out, wants, dtype)


def test_init_at_every_size() -> None:
    for d_in, d_out in ((1, 1), (3, 100), (100, 3), (10_000, 2)):
        layer, draws = Linear(d_in, d_out, rng=PCG32(5)), PCG32(5)
        bound = 1 / math.sqrt(d_in)
        assert np.array_equal(layer.weight.data, draws.uniform(-bound, bound, (d_out, d_in)))
        assert np.array_equal(layer.bias.data, draws.uniform(-bound, bound, d_out))
    for dtype in (np.float32, np.float64):
        x = randn(300, 200, rng=PCG32(1), dtype=dtype)
        assert np.array_equal(x.data, PCG32(1).normal(0.0, 1.0, (300, 200), dtype))


@pytest.mark.parametrize("shape", [(1,), (64, 2, 3), (9, 1, 3, 2), (1, 1, 1, 1, 7), (600, 500)])
def test_dropout_at_every_size(shape: tuple[int, ...]) -> None:
    layer, draws = Dropout(0.5, PCG32(1)), PCG32(1)
    x, g = tensor(*shape), tensor(*shape, seed=8).data

    def check(x: Tensor) -> Tensor:
        kept = draws.uniform(0.0, 1.0, shape) >= 0.5
        y: Tensor = layer(x)
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y.data, np.where(kept, 2 * x.data, 0))
        return y

    first = check(x)
    before = first.data.copy()
    assert layer.eval()(x) is x
    layer.train()
    with no_grad():
        check(x)  # the sequence goes on, and recording has no say in it
    check(Tensor(x.data))  # nor has whether anybody wants the gradient
    check(Tensor(x.data.astype(np.float16)))
    y = check(x)
    y.backward(g)
    kept = y.data != 0
    np.testing.assert_array_equal(x.grad, np.where(kept, 2 * g, 0))
    np.testing.assert_array_equal(first.data, before)
    layer.p = 0.75
    kept = draws.uniform(0.0, 1.0, shape) >= 0.75
    np.testing.assert_array_equal(layer(x).data, np.where(kept, 4 * x.data, 0))


class Nested(Module):
    """A module in a module in a module ..., each with a parameter, a buffer and a generator."""

    def __init__(self, depth: int) -> None:
        self.weight = Tensor(np.full(2, depth, np.float32), requires_grad=True)
        self.register_buffer("count", np.full(1, depth))
        self.drop = Dropout(0.5)
        if depth:
            self.inner = Nested(depth - 1)


def wide() -> Module:
    """A hundred and fifty layers in one list, and as many attributes."""
    net = Module()
    net.layers = ModuleList(Linear(1, 1) for _ in range(150))
    for i in range(150):
        setattr(net, f"p{i}", tensor(1, seed=i))
        setattr(net, f"m{i}", Dropout(0.1))
    return net


@pytest.mark.parametrize("make", [lambda: Nested(12), wide])
def test_nothing_is_lost_in_a_large_tree(make: Any) -> None:
    net, other = make(), make()
    nested = isinstance(net, Nested)
    parameters = 13 if nested else 450
    assert len({id(p) for p in net.parameters()}) == parameters
    assert len(list(net.named_parameters())) == parameters
    assert len({id(m) for m in net.modules()}) == (26 if nested else 302)
    assert len(list(net.named_buffers())) == (13 if nested else 0)
    assert len(net.rng_state()) == (13 if nested else 150)
    assert len({rng["stream"] for rng in net.rng_state().values()}) == len(net.rng_state())
    assert repr(net).count("Dropout(") == (13 if nested else 150)
    seen: list[Module] = []
    net.apply(seen.append)
    assert seen == list(net.modules())

    for mode in (False, True, False):
        net.train(mode)
        assert {m.training for m in net.modules()} == {mode}
    assert {m.training for m in other.modules()} == {True}
    for p in net.parameters():
        p.grad = np.ones_like(p.data)
    next(net.parameters()).requires_grad = False
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())

    state = {path: array + 1 for path, array in net.state_dict().items()}
    assert other.load_state_dict(state) == Unmatched([], [])
    assert same(other.state_dict(), state)
    last = list(state)[-1]
    with pytest.raises(ValueError, match=last.replace(".", r"\.")):
        other.load_state_dict({path: array for path, array in state.items() if path != last})
    generators = net.rng_state()
    other.seed_generators(PCG32(7))
    assert other.rng_state() == {path: PCG32(7).substream(path).state() for path in generators}
    root = PCG32(8)
    for count in ("", " #2", " #3"):  # three models of one root
        other.seed_generators(root)
        assert other.rng_state() == {p: root.substream(p + count).state() for p in generators}
    other.load_rng_state(generators)
    assert other.rng_state() == generators
    net.astype(np.float16)
    assert {p.dtype for p in net.parameters()} == {np.dtype(np.float16)}


def test_long_lists() -> None:
    layers = [Linear(1, 1) for _ in range(150)]
    listed = ModuleList(layers)
    assert len(listed) == 150
    assert list(listed) == layers
    assert list(listed[::-1]) == layers[::-1]
    assert listed[149] is listed[-1] is layers[149]
    setattr(listed, "7", layers[0])  # another module in an old place keeps the place's order
    assert [path for path, _ in listed.named_children()][:8] == [*map(str, range(7)), "8"]
    assert list(listed.state_dict())[14] == "7.weight"
    model = Sequential(*[lambda x: x + 1.0] * 150)
    assert model(Tensor(0.0)).item() == 150
    assert Sequential(*layers[:60])(Tensor(np.ones(1, np.float32))).shape == (1,)


@pytest.mark.parametrize("shape", [(1,), (60, 50)])
def test_states_share_no_memory(shape: tuple[int, ...]) -> None:
    net, given = Module(), np.zeros(shape)
    net.a = tensor(*shape)
    net.register_buffer("b", given)
    net.register_buffer("c", Tensor(given))
    state = net.state_dict()
    for _ in "before", "after":
        arrays = [given, *state.values(), net.a.data, net.b.data, net.c.data]
        for i, one in enumerate(arrays):
            assert not any(np.shares_memory(one, other) for other in arrays[:i])
        net.load_state_dict(state)
    net.d = net.a
    conflict = net.state_dict()
    conflict["d"].reshape(-1)[-1] += 1
    with pytest.raises(ValueError):
        net.load_state_dict(conflict)
    for forget in (net.zero_grad, lambda: net.astype(np.float64), lambda: net.astype(np.float32)):
        net.a.grad = np.ones(shape)
        forget()
        assert net.a.grad is None


@pytest.mark.parametrize("evaluating", [True, False])
@pytest.mark.parametrize("recording", [True, False])
def test_every_change_is_seen_by_the_next_call(evaluating: bool, recording: bool) -> None:
    layer = Linear(3, 2, dtype=np.float64).train(not evaluating)
    x = tensor(2, 4, 3)
    results: list[tuple[Tensor, Any]] = []

    def check() -> None:
        if recording:
            y = layer(x)
        else:
            with no_grad():
                y = layer(x)
        assert y.requires_grad == recording
        want = np.einsum("bti,oi->bto", x.data, layer.weight.data) + layer.bias.data
        np.testing.assert_allclose(y.data, want, rtol=1e-5 if y.dtype == np.float32 else 1e-12)
        results.append((y, y.data.copy()))

    check()
    layer.load_state_dict({path: a + 1 for path, a in layer.state_dict().items()})
    check()
    layer.weight.data = 2 * layer.weight.data
    check()
    layer.bias.data[0] = 7.0
    check()
    layer.weight.data *= 3.0
    check()
    layer.weight = tensor(2, 3, seed=4)
    check()
    layer.eval().train().train(not evaluating)
    x.data = tensor(2, 4, 3, seed=5).data
    check()
    layer.weight.requires_grad = False
    check()
    layer.astype(np.float32)
    x.data = x.data.astype(np.float32)
    check()
    for y, kept in results:  # and no call writes into an earlier one's result
        assert np.array_equal(y.data, kept)
