"""A model of every kind of member; Linear by einsum and differences; dropout by its own generator."""

import copy
import json

import numpy as np
import pytest

from tinyllm.nn import Dropout, Linear, Module, ModuleList, Sequential, linear, randn
from tinyllm.num.gradcheck import gradcheck
from tinyllm.num.pcg32 import PCG32, default_generator, manual_seed
from tinyllm.tensor import Tensor


def normal(*shape, seed=0):
    return np.asarray(np.random.default_rng(seed).normal(size=shape))


class Block(Module):
    def __init__(self, seed):
        self.gain = randn(3, rng=PCG32(seed), requires_grad=True)
        self.inner = Linear(3, 3, rng=PCG32(seed + 1))
        self.noise = PCG32(seed + 2)
        self.register_buffer("seen", np.zeros(3, "f4"))

    def forward(self, x):
        return self.inner(x * self.gain) + self.seen


class Model(Module):
    def __init__(self, n=3):
        self.blocks = ModuleList(Block(10 * i) for i in range(n))
        self.head = Linear(3, 4, bias=False, rng=PCG32(99))
        self.last = self.blocks[-1]
        self.table = self.head.weight
        self.register_buffer("count", np.array(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


ONES = [f"blocks.{i}.{n}" for i in range(3) for n in ("gain", "inner.weight", "inner.bias")]
LAST = [f"last.{n}" for n in ("gain", "inner.weight", "inner.bias")]
BUFFERS = [*(f"blocks.{i}.seen" for i in range(3)), "count"]


def names(pairs):
    return [name for name, _ in pairs]


@pytest.mark.parametrize(
    "shape", [(3,), (1, 3), (8, 3), (2, 4, 3), (2, 1, 2, 3), (1500, 3), (0, 3)]
)
def test_linear(shape):
    x = Tensor(normal(*shape), requires_grad=True)
    w = Tensor(normal(5, 3, seed=1), requires_grad=True)
    b = Tensor(normal(5, seed=2), requires_grad=True)
    z, g = linear(x, w, b), normal(*shape[:-1], 5, seed=3)
    np.testing.assert_allclose(
        z.data, np.einsum("...i,oi->...o", x.data, w.data) + b.data, atol=1e-12
    )
    z.backward(g)
    flat, back = x.data.reshape(-1, 3), g.reshape(-1, 5)
    np.testing.assert_allclose(x.grad, np.einsum("...o,oi->...i", g, w.data), atol=1e-12)
    np.testing.assert_allclose(w.grad, back.T @ flat, atol=1e-10)
    np.testing.assert_allclose(b.grad, back.sum(axis=0), atol=1e-10)
    bare = linear(x, w)
    np.testing.assert_allclose(bare.data, z.data - b.data, atol=1e-12)
    if 0 < x.size < 100:
        gradcheck(linear, [x, w, b])
        gradcheck(linear, [x, w])
        gradcheck(lambda w: linear(x.detach(), w, b.detach()), [w])
        gradcheck(lambda b: linear(x.detach(), w.detach(), b), [b])


def test_linear_dtypes_and_faults():
    for one in ("f4", "f8"):
        for two in ("f4", "f8"):
            x, layer = Tensor(normal(2, 3).astype(one)), Linear(3, 2, dtype=two)
            z = layer(x)
            assert z.dtype == np.result_type(one, two)
            z.backward(np.ones((2, 2)))
            assert layer.weight.grad.dtype == layer.bias.grad.dtype == two
    x, w = Tensor(np.ones((2, 3))), Tensor(np.ones((4, 3)))
    for given in (
        (x, w.T),
        (x, w[0]),
        (x, w, Tensor(np.ones(3))),
        (x, w, Tensor(np.ones((1, 4)))),
        (Tensor(2.0), w),
    ):
        with pytest.raises(ValueError):
            linear(*given)
    for given in ((x.data, w), (x, w.data), (x, w, np.ones(4))):
        with pytest.raises(TypeError):
            linear(*given)
    for sizes in ((0, 1), (1, -1), (1.5, 2), (True, 2.0)):
        with pytest.raises(ValueError):
            Linear(*sizes)
    with pytest.raises(TypeError):
        Linear(1, 1, dtype=int)


def test_how_linear_begins():
    for d_in, d_out in ((16, 9), (3, 200), (1, 1)):
        layer, rng = Linear(d_in, d_out, rng=PCG32(4)), PCG32(4)
        b = d_in**-0.5
        np.testing.assert_array_equal(layer.weight.data, rng.uniform(-b, b, (d_out, d_in)))
        np.testing.assert_array_equal(layer.bias.data, rng.uniform(-b, b, d_out))
        double = Linear(d_in, d_out, rng=PCG32(4), dtype="f8")
        assert double.bias.dtype == np.float64
        np.testing.assert_array_equal(double.weight.data, layer.weight.data)
        np.testing.assert_array_equal(double.bias.data, layer.bias.data)
    manual_seed(1)
    one = Linear(2, 2)
    assert (Linear(2, 2).weight.data != one.weight.data).any()
    np.testing.assert_array_equal(one.weight.data, Linear(2, 2, rng=PCG32(1)).weight.data)
    none = Linear(2, 3, bias=False)
    assert none.bias is None
    assert names(none.named_parameters()) == list(none.state_dict()) == ["weight"]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout(p):
    x = Tensor(1 + np.abs(normal(30, 40)), requires_grad=True)
    drop, rng = Dropout(p, PCG32(8)), PCG32(8)
    for _ in range(2):
        kept = rng.uniform(0.0, 1.0, x.shape) >= p
        z, x.grad = drop(x), None
        np.testing.assert_allclose(z.data, kept * x.data / (1 - p), rtol=1e-12)
        g = normal(30, 40, seed=5)
        z.backward(g)
        np.testing.assert_allclose(x.grad, kept * g / (1 - p), rtol=1e-12)
    state = drop.rng.state()
    assert state == rng.state()
    assert drop.eval()(x) is x
    drop.train().p = 0.0
    assert drop(x) is x
    assert drop.rng.state() == state
    for dtype in ("f2", "f4"):
        assert Dropout(p)(x.astype(dtype)).dtype == dtype
    for wrong in (x.data, Tensor([1]), 1):
        for mode in (True, False):
            with pytest.raises(TypeError):
                Dropout(p).train(mode)(wrong)
            with pytest.raises(TypeError):
                Dropout(0.0).train(mode)(wrong)
    for rate in (-p, 1 + p, 1.0, np.nan):
        with pytest.raises(ValueError):
            Dropout(rate)


def test_any_size():
    layer = Linear(9000, 3, rng=PCG32(7))
    b = 9000**-0.5
    np.testing.assert_array_equal(layer.weight.data, PCG32(7).uniform(-b, b, (3, 9000)))
    parts = [Linear(1, 2) for _ in range(200)]
    assert list(ModuleList(parts)) == parts
    assert len(list(ModuleList(parts).modules())) == 201
    m = bottom = Module()
    for _ in range(25):
        m.next = Module()
        m = m.next
    m.w = Tensor([1.0], requires_grad=True)
    assert names(bottom.named_parameters()) == list(bottom.state_dict()) == ["next." * 25 + "w"]
    bottom.astype("f4").eval()
    assert (m.w.dtype, m.training) == (np.float32, False)
    for shape in ((5000,), (700, 3), (2, 3, 4, 5), ()):
        keep = PCG32(1).uniform(0.0, 1.0, shape) >= 0.25
        z = Dropout(0.25, PCG32(1))(Tensor(np.full(shape, 3.0)))
        np.testing.assert_allclose(z.data, 4.0 * keep)


def test_frozen_members():
    net = Linear(3, 2)
    x = Tensor(normal(5, 3).astype("f4"), requires_grad=True)
    net(x).backward(np.ones((5, 2), "f4"))
    before = x.grad.copy()
    net.weight.requires_grad, x.grad = False, None
    net.zero_grad()
    assert net.weight.grad is None
    net(x).backward(np.ones((5, 2), "f4"))
    np.testing.assert_array_equal(x.grad, before)
    assert net.weight.grad is None
    assert net.bias.grad.tolist() == [5, 5]


def test_dropouts_of_one_process():
    manual_seed(11)
    many = [Dropout(0.5) for _ in range(3)]
    assert many[0].rng.state() == PCG32(11).substream("dropout").state()
    assert many[1].rng.state() == PCG32(11).substream("dropout #2").state()
    assert len({json.dumps(d.rng.state()) for d in many}) == 3
    assert default_generator().state() == PCG32(11).state()


def test_lists_of_members():
    net = Model()
    assert names(net.named_parameters()) == [*ONES, "head.weight"]
    assert [id(p) for p in net.parameters()] == [id(p) for _, p in net.named_parameters()]
    assert names(net.named_buffers()) == BUFFERS
    modules = ["", "blocks"]
    for i in range(3):
        modules += [f"blocks.{i}", f"blocks.{i}.inner"]
    assert names(net.named_modules()) == [*modules, "head"]
    assert list(net.modules()) == [m for _, m in net.named_modules()]
    assert names(net.named_children()) == ["blocks", "head", "last"]
    assert list(net.children()) == [net.blocks, net.head, net.last]
    met = []
    assert net.apply(met.append) is net
    assert met == list(net.modules())
    shared = Module()
    shared.one = shared.two = Linear(1, 1)
    assert names(shared.named_children()) == ["one"]
    assert len(list(shared.children())) == 1
    assert sorted(shared.state_dict()) == ["one.bias", "one.weight", "two.bias", "two.weight"]


def test_assignments():
    m = Module()
    m.w = Tensor([1.0], requires_grad=True)
    m.sub = Linear(1, 1)
    m.rng = PCG32(1)
    m.v = Tensor([2.0], requires_grad=True)
    m.w = Tensor([3.0], requires_grad=True)
    assert names(m.named_parameters()) == ["w", "sub.weight", "sub.bias", "v"]
    assert next(m.parameters()).tolist() == [3]
    for name in ("w", "sub", "rng"):
        for wrong in (1.0, "a", np.ones(1), Tensor([1.0]), m.w * 2, [m.w]):
            with pytest.raises(TypeError):
                setattr(m, name, wrong)
    m.rng = None
    assert m.rng_state() == {}
    m.sub = None
    assert names(m.named_parameters()) == ["w", "v"]
    assert list(m.named_children()) == []
    del m.w
    assert names(m.named_parameters()) == ["v"]
    assert not hasattr(m, "w")
    m.w = Tensor([1.0], requires_grad=True)
    assert sorted(names(m.named_parameters())) == ["v", "w"]
    free = Module()
    free.constant, free.result = Tensor([1.0]), m.w * 2
    free.text, free.numbers = "a", [1, 2]
    assert free.state_dict() == {}
    for hidden in ([m.w], (m,), {m}, {"k": PCG32(0)}):
        lost = Module()
        lost.hidden = hidden
        outer = Sequential(Linear(1, 1), lost)
        for method in (
            "parameters",
            "modules",
            "state_dict",
            "train",
            "zero_grad",
            "rng_state",
            "children",
            "named_buffers",
        ):
            with pytest.raises(TypeError):
                found = getattr(lost, method)()
                list(found or ())
        with pytest.raises(TypeError):
            list(outer.parameters())
    a, b = Module(), Module()
    a.b, b.a = b, a
    with pytest.raises(ValueError):
        list(a.modules())


def test_forward():
    with pytest.raises(NotImplementedError):
        Module()(1)

    class Sum(Module):
        def forward(self, *args, **kwargs):
            return sum(args) + kwargs.get("more", 0)

    assert Sum()(1, 2, more=3) == Sum().forward(1, 2, more=3) == 6
    assert Sum().training
    net, x = Model(), Tensor(normal(5, 3).astype("f4"))
    y = x.data
    for block in net.blocks:
        y = (y * block.gain.data) @ block.inner.weight.data.T + block.inner.bias.data
    np.testing.assert_allclose(net(x).data, y @ net.head.weight.data.T, rtol=1e-4, atol=1e-5)
    assert "Linear" in repr(net)


def test_buffers():
    m, source = Module(), np.ones((2, 2))
    m.register_buffer("square", source)
    source += 1
    assert m.square.tolist() == [[1, 1], [1, 1]]
    m.register_buffer("whole", [1, 2])
    m.register_buffer("nothing", None)
    assert m.nothing is None
    assert names(m.named_buffers()) == list(m.state_dict()) == ["square", "whole"]
    assert list(m.parameters()) == []
    given = Tensor(np.ones(2))
    m.register_buffer("copied", given)
    assert m.copied is not given
    assert not np.shares_memory(m.copied.data, given.data)
    for name in ("square", "forward", "1a", "a b", "a.b"):
        with pytest.raises(ValueError):
            m.register_buffer(name, 1.0)
    for wrong in (Tensor([1.0], requires_grad=True), "text", [1j]):
        with pytest.raises(TypeError):
            m.register_buffer("more", wrong)
        assert not hasattr(m, "more")
    m.register_buffer("more", 1.0)
    m.astype("f4")
    assert (m.square.dtype, m.more.dtype, m.whole.dtype) == (np.float32, np.float32, np.int64)
    m.eval()
    assert len(m.state_dict()) == 4


def test_modes_gradients_dtypes():
    net = Model()
    assert net.eval() is net
    assert [m.training for m in net.modules()] == [False] * 9
    net.blocks[1].train()
    assert [m.training for m in net.modules()].count(True) == 2
    assert net.train() is net
    assert all(m.training for m in net.modules())
    net(Tensor(np.ones((1, 3), "f4"))).backward(np.ones((1, 4), "f4"))
    assert all(p.grad is not None for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    net(Tensor(np.ones((1, 3), "f4"))).backward(np.ones((1, 4), "f4"))
    for wrong in (int, bool, "c16"):
        with pytest.raises(TypeError):
            net.astype(wrong)
    assert net.astype("f8") is net
    assert {p.dtype for p in net.parameters()} == {np.dtype("f8")}
    assert all(p.grad is None for p in net.parameters())
    assert net.last.seen.dtype == np.float64
    assert net.count.dtype == np.int64
    assert net.table is net.head.weight


def test_states_come_and_go():
    net, other = Model(), Model()
    state = net.state_dict()
    assert sorted(state) == sorted([*ONES, *LAST, *BUFFERS, "last.seen", "head.weight", "table"])
    assert next(iter(state)) == "blocks.0.gain"
    for a in state.values():
        a *= 2
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        np.testing.assert_array_equal(p.data, q.data)
    kept = [*net.parameters(), *dict(net.named_buffers()).values()]
    left = net.load_state_dict({n: Tensor(a) for n, a in state.items()})
    assert (left.missing, left.unexpected) == ([], [])
    assert all(
        a is b
        for a, b in zip(kept, [*net.parameters(), *dict(net.named_buffers()).values()], strict=True)
    )
    for n, a in net.state_dict().items():
        np.testing.assert_array_equal(a, state[n])
        assert not np.shares_memory(a, state[n])
    for a in state.values():
        a *= 0
    assert net.head.weight.data.any()
    assert net.count.item() == 6
    net.astype("f8").load_state_dict(other.state_dict())
    assert net.head.weight.dtype == np.float64


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"blocks.0.gain": np.ones(4)}, ["blocks.0.gain", "(4,)", "(3,)"]),
        ({"blocks.1.inner.weight": np.ones((3, 1))}, ["(3, 1)", "(3, 3)"]),
        ({"blocks.0.gain": np.ones(()), "extra": 1.0}, ["blocks.0.gain", "not in the model: extra"]),
        ({"blocks.0.seen": np.ones(2)}, ["blocks.0.seen"]),
        ({"blocks.0.gain": None, "count": None}, ["missing from the state: blocks.0.gain", "missing from the state: count"]),
        ({"head.weight": np.ones((4, 3), complex), "table": None}, ["head.weight", "complex128"]),
        ({"count": np.array(2.5)}, ["count", "float64"]),
        ({"head.weight": np.ones((4, 3)), "table": np.zeros((4, 3))}, ["table"]),
        ({"last.gain": np.full(3, 4.0)}, ["last.gain"]),
        ({"head.weight": None, "table": None}, ["missing from the state: "]),
    ],
)  # fmt: skip
def test_states_that_do_not_fit(changes, words):
    net = Model()
    before = net.state_dict()
    given = {n: a + 1 for n, a in before.items()} | changes
    with pytest.raises(ValueError) as caught:
        net.load_state_dict({n: a for n, a in given.items() if a is not None})
    assert all(word in str(caught.value) for word in words)
    for n, a in net.state_dict().items():
        np.testing.assert_array_equal(a, before[n])


def test_parts_of_a_state():
    net = Model()
    given = {n: a + 1 for n, a in net.state_dict().items()}
    del given["table"], given["last.gain"], given["blocks.2.inner.bias"]
    net.load_state_dict(given)
    np.testing.assert_array_equal(net.table.data, given["head.weight"])
    np.testing.assert_array_equal(net.blocks[2].inner.bias.data, given["last.inner.bias"])
    left = net.load_state_dict({"table": np.ones((4, 3)), "odd": 1.0}, strict=False)
    assert left.unexpected == ["odd"]
    assert "blocks.0.gain" in left.missing
    assert "count" in left.missing
    assert "table" not in left.missing
    assert (net.head.weight.data == 1).all()
    with pytest.raises(ValueError):
        net.load_state_dict({"table": np.ones(3)}, strict=False)


def test_generators():
    net = Model()
    state = json.loads(json.dumps(net.rng_state()))
    assert set(state) >= {f"blocks.{i}.noise" for i in range(3)}
    drawn = [b.noise.next_uint32() for b in net.blocks]
    objects = [b.noise for b in net.blocks]
    net.load_rng_state(state)
    assert [b.noise.next_uint32() for b in net.blocks] == drawn
    assert [b.noise for b in net.blocks] == objects
    now = net.rng_state()
    short = {n: s for n, s in state.items() if n != "blocks.1.noise"}
    for wrong, words in (
        (short, ["blocks.1.noise"]),
        ({**state, "more": PCG32(0).state()}, ["more"]),
        ({**short, "x": PCG32(0).state()}, ["blocks.1.noise", "x"]),
        ({**state, "blocks.2.noise": {"state": "1"}}, []),
    ):
        with pytest.raises(ValueError) as caught:
            net.load_rng_state(wrong)
        assert all(word in str(caught.value) for word in words)
        assert net.rng_state() == now
    root = PCG32(6)
    assert net.seed_generators(root) is net
    for i in range(3):
        assert net.blocks[i].noise.state() == PCG32(6).substream(f"blocks.{i}.noise").state()
    again = Model().seed_generators(root)
    assert again.blocks[0].noise.state() == PCG32(6).substream("blocks.0.noise #2").state()


def test_sequences():
    layers = [Linear(2, 2, rng=PCG32(i)) for i in range(11)]
    both = ModuleList(layers), Sequential(*layers)
    for some in both:
        assert names(some.named_children()) == [str(i) for i in range(11)]
        assert (len(some), list(some), some[-2], some[0]) == (11, layers, layers[9], layers[0])
        assert type(some[1:4]) is type(some)
        assert list(some[::-5]) == layers[::-5]
        for i in (11, -12):
            with pytest.raises(IndexError):
                some[i]
        for wrong in (None, 1, "a", Linear, layers[0].forward):
            with pytest.raises(TypeError):
                some.append(wrong)
        assert len(some) == 11
        some.append(layers[0])
        assert some[11] is layers[0]
    with pytest.raises(TypeError):
        both[0].append(abs)
    x = Tensor(normal(3, 2))
    net = Sequential(layers[0], lambda t: t.tanh(), layers[1], abs)
    np.testing.assert_allclose(net(x).data, np.abs(layers[1](layers[0](x).tanh()).data))
    assert names(net.named_parameters()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert Sequential()(x) is x
    np.testing.assert_allclose(net[:1](x).data, layers[0](x).data)


def test_random_tensors():
    for shape in ((4,), (2, 3), ()):
        want = PCG32(2).normal(0.0, 1.0, shape, dtype="f8")
        for x in (randn(*shape, rng=PCG32(2), dtype="f8"), randn(shape, rng=PCG32(2), dtype="f8")):
            np.testing.assert_array_equal(x.data, want)
    assert randn(2).dtype == np.float32
    assert (randn(2).requires_grad, randn(2, requires_grad=True).requires_grad) == (False, True)
    manual_seed(4)
    np.testing.assert_array_equal(randn(5).data, PCG32(4).normal(0.0, 1.0, 5))
    for dtype in ("f2", "i8"):
        with pytest.raises(TypeError):
            randn(2, dtype=dtype)
    with pytest.raises(ValueError):
        randn(2, -3)


def test_copies():
    net = Model()
    twin = copy.deepcopy(net)
    assert twin.table is twin.head.weight
    twin.table.data = np.zeros((4, 3), "f4")
    assert net.table.data.any()
    assert names(twin.named_parameters()) == names(net.named_parameters())
    assert twin.rng_state() == net.rng_state()
