"""Linear against torch, dropout by its formula, modules by a model that has everything."""

import copy
import json

import numpy as np
import pytest
import torch

from tinyllm.nn import Dropout, Linear, Module, ModuleList, Sequential, Unmatched, linear, randn
from tinyllm.num.pcg32 import PCG32, default_generator, manual_seed
from tinyllm.tensor import Tensor


def normal(*shape, seed=0):
    return np.asarray(np.random.default_rng(seed).normal(size=shape))


def leaf(x, dtype="f8"):
    return Tensor(np.asarray(x, dtype), requires_grad=True)


class Leaf(Module):
    def __init__(self, n=2):
        self.w = leaf(np.ones(n))


class Net(Module):
    """Two uses of one layer and of one parameter, a list in a list, a buffer, a generator."""

    def __init__(self):
        self.first = Linear(3, 3, rng=PCG32(1))
        self.scale = leaf(np.ones(3), "f4")
        self.blocks = ModuleList([ModuleList([self.first]), Linear(3, 2, rng=PCG32(2))])
        self.tied = self.scale
        self.drop = Dropout(0.5, PCG32(3))
        self.register_buffer("mean", np.arange(3.0))
        self.register_buffer("steps", np.array(7))

    def forward(self, x):
        return self.blocks[1](self.drop(self.first(x) * self.scale))


PATHS = ["first.weight", "first.bias", "scale", "blocks.1.weight", "blocks.1.bias"]


@pytest.mark.parametrize("batch", [(), (1,), (7,), (2, 5), (2, 1, 3), (300, 4)])
@pytest.mark.parametrize(("d_in", "d_out"), [(3, 4), (1, 1), (5, 5), (70, 2)])
def test_linear(batch, d_in, d_out):
    for wants in (
        (True, True, True),
        (True, False, False),
        (False, True, True),
        (False, True, False),
    ):
        arrays = normal(*batch, d_in), normal(d_out, d_in, seed=1), normal(d_out, seed=2)
        ours = [Tensor(a, requires_grad=w) for a, w in zip(arrays, wants, strict=True)]
        theirs = [torch.tensor(a, requires_grad=w) for a, w in zip(arrays, wants, strict=True)]
        for n in (3, 2):
            z, want = linear(*ours[:n]), torch.nn.functional.linear(*theirs[:n])
            assert z.shape == (*batch, d_out)
            np.testing.assert_allclose(z.data, want.detach().numpy(), rtol=1e-10, atol=1e-12)
            if not any(wants[:n]):
                continue
            g = normal(*z.shape, seed=3)
            z.backward(g)
            want.backward(torch.tensor(g))
            for x, t in zip(ours[:n], theirs, strict=False):
                assert (x.grad is None) == (t.grad is None)
                if t.grad is not None:
                    np.testing.assert_allclose(x.grad, t.grad.numpy(), rtol=1e-9, atol=1e-10)


def test_linear_dtypes_and_refusals():
    x, w, b = Tensor(normal(2, 3)), leaf(normal(4, 3), "f4"), leaf(np.zeros(4), "f4")
    z = linear(x, w, b)
    assert z.dtype == np.float64
    z.backward(np.ones((2, 4)))
    assert w.grad.dtype == b.grad.dtype == np.float32
    np.testing.assert_allclose(z.data, x.data @ w.data.T.astype("f8"), rtol=1e-12)
    assert linear(x.astype("f4"), w, b).dtype == np.float32
    assert linear(x.astype("f4"), leaf(normal(4, 3))).dtype == np.float64
    half = linear(Tensor(np.ones((5000, 1), "f2")), leaf(np.ones((1, 1)), "f2"), leaf([0], "f2"))
    assert half.dtype == np.float16
    for wrong in (
        (x, w[:, :2]),
        (x, w, b[:3]),
        (x, w[0]),
        (x, w, Tensor(np.zeros((4, 1)))),
        (Tensor(1.0), w),
    ):
        with pytest.raises(ValueError):
            linear(*wrong)
    for wrong in ((x.data, w), (x, w.data), (x, w, b.data)):
        with pytest.raises(TypeError):
            linear(*wrong)


def test_large_models():
    wide = Linear(6000, 2, rng=PCG32(5))
    bound = 6000**-0.5
    np.testing.assert_array_equal(wide.weight.data, PCG32(5).uniform(-bound, bound, (2, 6000)))
    many = Sequential(*(Linear(1, 1) for _ in range(130)))
    assert len(list(many)) == 130
    assert len(list(many.parameters())) == 260
    y = x = Tensor(np.ones((2, 1), "f4"))
    for i in range(130):
        y = many[i](y)
    np.testing.assert_array_equal(many(x).data, y.data)
    deep = Leaf()
    for _ in range(30):
        deep = Sequential(deep)
    assert [n for n, _ in deep.named_parameters()] == ["0." * 30 + "w"]
    assert not list(deep.eval().modules())[-1].training
    drop, x = Dropout(0.5, PCG32(1)), Tensor(np.ones((300, 2)))
    kept = PCG32(1).uniform(0.0, 1.0, (300, 2)) >= 0.5
    np.testing.assert_array_equal(drop(x).data, 2 * kept)


def test_frozen():
    net = Net()
    net(Tensor(np.ones((2, 3), "f4"))).backward(np.ones((2, 2), "f4"))
    net.scale.requires_grad = False
    net.zero_grad()
    assert net.scale.grad is None
    assert "scale" in net.state_dict()
    layer, x = Linear(3, 2), leaf(normal(4, 3), "f4")
    layer.weight.requires_grad = False
    layer(x).backward(np.ones((4, 2), "f4"))
    np.testing.assert_allclose(x.grad, np.ones((4, 2)) @ layer.weight.data, rtol=1e-5)
    assert layer.weight.grad is None


def test_linear_is_drawn():
    rng = PCG32(5)
    one = Linear(7, 3, rng=rng)
    again, bound = PCG32(5), 1 / np.sqrt(7)
    for p, shape in ((one.weight, (3, 7)), (one.bias, (3,))):
        assert p.dtype == np.float32
        assert p.requires_grad
        np.testing.assert_array_equal(p.data, again.uniform(-bound, bound, shape, dtype=np.float32))
    assert rng.state() == again.state()
    bare = Linear(7, 3, bias=False, rng=PCG32(5))
    assert bare.bias is None
    np.testing.assert_array_equal(bare.weight.data, one.weight.data)
    assert [n for n, _ in bare.named_parameters()] == ["weight"]
    np.testing.assert_allclose(bare(Tensor(np.eye(7))).data, one.weight.data.T)
    wide = Linear(7, 3, rng=PCG32(5), dtype="f8")
    assert wide.weight.dtype == wide.bias.dtype == np.float64
    np.testing.assert_array_equal(wide.weight.data, one.weight.data)
    manual_seed(5)
    np.testing.assert_array_equal(
        Linear(4, 4).weight.data, Linear(4, 4, rng=manual_seed(5)).weight.data
    )
    for sizes in ((0, 3), (3, 0), (-1, 2), (2.0, 3), (3, "4")):
        with pytest.raises(ValueError):
            Linear(*sizes)
    for dtype in (int, bool, complex):
        with pytest.raises(TypeError):
            Linear(2, 2, dtype=dtype)


def test_dropout():
    x = leaf(normal(40, 50))
    drop = Dropout(0.3, PCG32(9))
    rng = PCG32(9)
    for p in (0.3, 0.3, 0.8):
        drop.p = p
        keep = rng.uniform(0.0, 1.0, (40, 50)) >= p
        z = drop(x)
        np.testing.assert_allclose(z.data, np.where(keep, x.data / (1 - p), 0))
        x.grad = None
        z.backward(np.ones((40, 50)))
        np.testing.assert_allclose(x.grad, keep / (1 - p))
    assert drop.rng.state() == rng.state()
    drop.eval()
    assert drop(x) is x
    drop.train()
    drop.p = 0
    assert drop(x) is x
    assert drop.rng.state() == rng.state()
    for p in (-0.1, 1, 1.5, float("nan")):
        with pytest.raises(ValueError):
            Dropout(p)
    for dtype in ("f2", "f4"):
        assert Dropout(0.5, PCG32(1))(leaf(np.ones(3), dtype)).dtype == dtype
    for mode in (True, False):
        for wrong in (np.ones(3), Tensor([1, 2]), 1.0):
            with pytest.raises(TypeError):
                Dropout(0.5).train(mode)(wrong)
    manual_seed(3)
    one, two = Dropout(0.5), Dropout(0.5)
    assert one.rng.state() == default_generator().substream("dropout").state()
    assert one.rng.state() != two.rng.state()


def test_what_is_listed():
    net = Net()
    names = [n for n, _ in net.named_parameters()]
    assert names == PATHS
    assert [id(p) for p in net.parameters()] == [id(p) for _, p in net.named_parameters()]
    assert [n for n, _ in net.named_modules()] == [
        "",
        "first",
        "blocks",
        "blocks.0",
        "blocks.1",
        "drop",
    ]
    assert next(net.modules()) is net
    assert [n for n, _ in net.named_children()] == ["first", "blocks", "drop"]
    assert list(net.children()) == [net.first, net.blocks, net.drop]
    assert [n for n, _ in net.named_buffers()] == ["mean", "steps"]
    seen = []
    assert net.apply(seen.append) is net
    assert seen == list(net.modules())


def test_registering():
    class Two(Module):
        def __init__(self):
            self.twin = Linear(2, 2)
            self.again = self.twin

    two = Two()
    assert [n for n, _ in two.named_children()] == ["twin"]
    m = Module()
    m.a, m.b = leaf([1]), leaf([2])
    m.a = leaf([3])
    assert [(n, p.tolist()) for n, p in m.named_parameters()] == [("a", [3]), ("b", [2])]
    for wrong in (1, np.ones(1), Tensor([1.0]), "x", leaf([1.0]) * 2):
        with pytest.raises(TypeError):
            m.a = wrong
    assert m.a.tolist() == [3]
    m.a = None
    assert m.a is None
    assert [n for n, _ in m.named_parameters()] == ["b"]
    del m.b
    assert list(m.parameters()) == []
    assert not hasattr(m, "b")
    m.plain = Tensor([1.0])
    m.result = leaf([1]) * 2
    m.number = 3
    assert list(m.state_dict()) == []
    with pytest.raises(NotImplementedError):
        m(1)
    m.forward = lambda x, k=1: x + k
    for wrong in ([leaf([1])], (Linear(1, 1),), {"a": PCG32(1)}, {leaf([1])}):
        bad = Module()
        bad.things = wrong
        for method in (
            bad.state_dict,
            lambda b=bad: list(b.parameters()),
            bad.eval,
            bad.rng_state,
            bad.zero_grad,
        ):
            with pytest.raises(TypeError):
                method()
    ok = Module()
    ok.things = [1, "a", np.ones(2)]
    ok.state_dict()
    loop = Module()
    loop.inner = Module()
    loop.inner.outer = loop
    with pytest.raises(ValueError):
        list(loop.parameters())


def test_calls():
    class Twice(Module):
        def forward(self, x, *, times=2):
            return x * times

    assert Twice()(3) == 6
    assert Twice()(3, times=5) == 15
    assert Twice().training
    assert repr(Net()).count("Linear") >= 2


def test_buffers():
    m, array = Module(), np.arange(3.0)
    m.register_buffer("b", array)
    array[:] = 9
    assert m.b.tolist() == [0, 1, 2]
    assert isinstance(m.b, Tensor)
    assert not m.b.requires_grad
    m.register_buffer("none", None)
    assert m.none is None
    assert list(m.state_dict()) == ["b"]
    m.register_buffer("count", 4)
    for name in ("b", "forward", "training", "not a name", "a.b", ""):
        with pytest.raises(ValueError):
            m.register_buffer(name, [1.0])
    for wrong in (leaf([1]), ["a"], [1j]):
        with pytest.raises(TypeError):
            m.register_buffer("fresh", wrong)
    assert not hasattr(m, "fresh")
    m.register_buffer("fresh", Tensor([1.0]))
    assert [n for n, _ in m.named_buffers()] == ["b", "count", "fresh"]
    m.astype("f4")
    assert (m.b.dtype, m.count.dtype) == (np.float32, np.int64)
    m.load_state_dict({"b": np.ones(3), "count": np.array(8), "fresh": [2.0]})
    assert (m.b.dtype, m.b.tolist(), m.count.item()) == (np.float32, [1, 1, 1], 8)
    with pytest.raises(TypeError):
        m.b = 3


def test_modes_and_gradients():
    net = Net()
    assert net.eval() is net
    assert not any(m.training for m in net.modules())
    assert net.train() is net
    assert all(m.training for m in net.modules())
    assert not any(m.training for m in net.train(False).modules())
    net(Tensor(np.ones((2, 3), "f4"))).backward(np.ones((2, 2), "f4"))
    assert all(p.grad is not None for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    net(Tensor(np.ones((2, 3), "f4"))).backward(np.ones((2, 2), "f4"))
    before = list(net.parameters())
    assert net.astype("f8") is net
    for p, q in zip(net.parameters(), before, strict=True):
        assert p is q
        assert p.dtype == np.float64
        assert p.grad is None
        assert p.requires_grad
    assert net.mean.dtype == np.float64
    for dtype in (int, bool, complex):
        with pytest.raises(TypeError):
            net.astype(dtype)


def test_state_dict():
    net = Net()
    state = net.state_dict()
    assert sorted(state) == sorted(
        [*PATHS, "blocks.0.0.weight", "blocks.0.0.bias", "tied", "mean", "steps"]
    )
    assert all(type(a) is np.ndarray for a in state.values())
    kept = {n: a.copy() for n, a in state.items()}
    for a in state.values():
        a += 1
    for n, a in net.state_dict().items():
        np.testing.assert_array_equal(a, kept[n])
    ids = [id(p) for p in net.parameters()]
    assert net.load_state_dict(state) == Unmatched([], [])
    assert [id(p) for p in net.parameters()] == ids
    for n, a in net.state_dict().items():
        np.testing.assert_array_equal(a, state[n])
    for a in state.values():
        a += 1
    assert (net.scale.data == kept["scale"] + 1).all()
    net.load_state_dict({n: a.astype("f8") if a.dtype == "f4" else a for n, a in kept.items()})
    assert net.scale.dtype == np.float32


def test_loads_that_fail():
    net = Net()
    state = net.state_dict()
    before = copy.deepcopy(state)

    def refused(changes, *words, drop=()):
        given = {n: a for n, a in {**before, **changes}.items() if n not in drop}
        given = {n: (a + 1 if n not in changes else a) for n, a in given.items()}
        with pytest.raises(ValueError) as caught:
            net.load_state_dict(given)
        for word in words:
            assert word in str(caught.value)
        for n, a in net.state_dict().items():
            np.testing.assert_array_equal(a, before[n])

    refused({"scale": np.ones(4), "tied": np.ones(4)}, "scale", "(4,)", "(3,)")
    refused({"mean": np.ones((3, 1))}, "mean", "(3, 1)")
    refused({"blocks.1.bias": np.array([1, 2]) * 1j}, "blocks.1.bias")
    refused({"new": np.ones(1), "x.y": 1.0}, "not in the model: new", "not in the model: x.y")
    refused(
        {},
        "missing from the state: blocks.1.bias",
        "missing from the state: mean",
        drop=("blocks.1.bias", "mean"),
    )
    refused({"tied": before["tied"] + 5})
    refused({"blocks.0.0.bias": before["first.bias"] + 5})
    refused({"steps": np.array(1.5)}, "steps")
    some = {n: a for n, a in before.items() if n not in ("tied", "blocks.0.0.weight", "first.bias")}
    some["scale"] = np.full(3, 5.0)
    net.load_state_dict(some)
    assert net.tied.tolist() == [5, 5, 5]
    found = net.load_state_dict({"mean": np.full(3, 2.0), "odd": [1.0]}, strict=False)
    assert found.unexpected == ["odd"]
    assert {"scale", "steps", "first.weight"} <= set(found.missing)
    assert "mean" not in found.missing
    assert net.mean.tolist() == [2, 2, 2]
    with pytest.raises(ValueError):
        net.load_state_dict({"mean": np.ones(4)}, strict=False)


def test_generators():
    net = Net()
    text = json.loads(json.dumps(net.rng_state()))
    assert list(text) == ["drop.rng"]
    x = Tensor(np.ones((3, 3), "f4"))
    first = net(x).tolist()
    assert net(x).tolist() != first
    kept = net.drop.rng
    net.load_rng_state(text)
    assert net.drop.rng is kept
    assert net(x).tolist() == first
    state = net.drop.rng.state()
    for wrong, word in (
        ({}, "drop.rng"),
        ({**text, "odd": text["drop.rng"]}, "odd"),
        ({"drop.rng": {}}, None),
    ):
        with pytest.raises(ValueError, match=word):
            net.load_rng_state(wrong)
        assert net.drop.rng.state() == state
    two = Sequential(Dropout(0.5), Dropout(0.5), Dropout(0.1))
    with pytest.raises(ValueError):
        two.load_rng_state(
            {"0.rng": PCG32(1).state(), "1.rng": PCG32(1).state(), "2.rng": {"a": "b"}}
        )
    before = two.rng_state()
    bad = {"0.rng": PCG32(77).state(), "1.rng": {"seed": "x"}, "2.rng": PCG32(77).state()}
    with pytest.raises(ValueError):
        two.load_rng_state(bad)
    assert two.rng_state() == before
    root = PCG32(4)
    assert two.seed_generators(root) is two
    for i in range(3):
        assert two[i].rng.state() == root.substream(f"{i}.rng").state()
    states = [s["state"] for s in two.rng_state().values()]
    assert len(set(states)) == 3
    other = Sequential(Dropout(0.5)).seed_generators(root)
    assert other[0].rng.state() == root.substream("0.rng #2").state()


def test_lists():
    layers = [Linear(2, 2) for _ in range(12)]
    some = ModuleList(layers)
    assert [n for n, _ in some.named_children()] == [str(i) for i in range(12)]
    assert len(some) == 12
    assert list(some) == layers
    assert some[-1] is layers[-1]
    assert some[3] is layers[3]
    part = some[2:9:3]
    assert type(part) is ModuleList
    assert list(part) == layers[2:9:3]
    assert [n for n, _ in part.named_children()] == ["0", "1", "2"]
    for outside in (12, -13):
        with pytest.raises(IndexError):
            some[outside]
    for wrong in (1, lambda x: x, leaf([1])):
        with pytest.raises(TypeError):
            some.append(wrong)
    assert len(some) == 12
    one = Linear(1, 1)
    some.append(one)
    assert some[12] is one
    assert len(ModuleList()) == 0


def test_sequential():
    a, b = Linear(2, 3), Linear(3, 1)
    net = Sequential(a, lambda x: x * 2, b)
    x = Tensor(normal(4, 2))
    np.testing.assert_allclose(net(x).data, b(a(x) * 2).data)
    assert [n for n, _ in net.named_parameters()] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert len(net) == 3
    assert type(net[1:]) is Sequential
    np.testing.assert_allclose(net[:2](x).data, (a(x) * 2).data)
    assert Sequential()(x) is x
    net.append(np.negative)
    assert len(net) == 4
    for wrong in (3, Linear, a.forward, None, "x"):
        with pytest.raises(TypeError):
            net.append(wrong)
        with pytest.raises(TypeError):
            Sequential(a, wrong)
    deep = Sequential(Sequential(a), Sequential(b))
    assert next(deep.named_parameters())[0] == "0.0.weight"


def test_randn():
    for shape in ((2, 3), (5,), (), (1, 2, 3, 4)):
        want = PCG32(6).normal(shape=shape, dtype=np.float32)
        for x in (randn(*shape, rng=PCG32(6)), randn(shape, rng=PCG32(6))):
            assert x.dtype == np.float32
            assert not x.requires_grad
            np.testing.assert_array_equal(x.data, want)
    x = randn(3, rng=PCG32(6), dtype="f8", requires_grad=True)
    assert x.requires_grad
    np.testing.assert_array_equal(x.data, PCG32(6).normal(shape=3, dtype=np.float64))
    manual_seed(2)
    one = randn(4).tolist()
    manual_seed(2)
    assert randn(4).tolist() == one
    assert randn(4).tolist() != one
    for dtype in ("f2", int, complex):
        with pytest.raises(TypeError):
            randn(2, dtype=dtype)
    with pytest.raises(ValueError):
        randn(-1)


def test_a_copy_is_its_own():
    net = Net()
    twin = copy.deepcopy(net)
    twin.scale.data = np.zeros(3, "f4")
    assert net.scale.data.all()
    assert twin.tied is twin.scale
    assert [n for n, _ in twin.named_parameters()] == [n for n, _ in net.named_parameters()]
