"""torch is the oracle for layers and stacks; formulas and facts for the rest."""

import math
import warnings

import numpy as np
import pytest
import torch

from tinyllm.num.gradcheck import gradcheck
from tinyllm.num.pcg32 import PCG32, manual_seed
from tinyllm.tensor import Tensor
from tinyllm.xfmr.layers import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    LayerConfig,
    LayerNorm,
    Transformer,
    gelu,
    gelu_tanh,
    layer_norm,
    relu,
    watch_attention,
)
from tinyllm.xfmr.masks import causal_mask, combine_masks, padding_mask


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def close(a, b, tolerance=1e-9):
    b = b.detach().numpy() if isinstance(b, torch.Tensor) else b
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


RENAMED = {
    "self_attention": "self_attn", "cross_attention": "multihead_attn",
    "feed_forward.up": "linear1", "feed_forward.down": "linear2",
}  # fmt: skip


def its_name(name):
    for ours, theirs in RENAMED.items():
        name = name.replace(ours, theirs)
    return name


def value_of(name, table):
    for i, part in enumerate(("q_proj", "k_proj", "v_proj")):
        if part in name:
            return np.split(table[its_name(name).replace(f"{part}.", "in_proj_")], 3)[i]
    return table[its_name(name)]


def twins(ours, theirs, arrays, masks, their_masks):
    """Same parameters, same numbers, same gradients."""
    rng = np.random.default_rng(3)
    for name, p in theirs.named_parameters():
        p.data = torch.tensor(rng.normal(size=tuple(p.shape)) * 0.3 + ("norm" in name))
    table = {n: p.detach().numpy() for n, p in theirs.named_parameters()}
    ours.astype(np.float64).load_state_dict({n: value_of(n, table) for n in ours.state_dict()})
    mine = [Tensor(x, requires_grad=True) for x in arrays]
    its = [torch.tensor(x, requires_grad=True) for x in arrays]
    out, want = ours(*mine, **masks), theirs(*its, **their_masks)
    close(out.data, want)
    grad = normal(*out.shape, seed=8)
    out.backward(grad)
    want.backward(torch.tensor(grad))
    for a, b in zip(mine, its, strict=True):
        close(a.grad, b.grad)
    grads = {n: p.grad.numpy() for n, p in theirs.named_parameters()}
    for name, p in ours.named_parameters():
        close(p.grad, value_of(name, grads))


SIZES = [(8, 2, 12, 3, 7, 5), (8, 2, 5, 4, 5, 5), (6, 6, 9, 9, 40, 33), (36, 12, 70, 2, 1, 2)]


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("bend", ["relu", "gelu"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_against_torch(norm_first, bend, sizes):
    d, H, ff, B, ts, tt = sizes
    config = LayerConfig(d, H, ff, activation=bend, norm_first=norm_first, eps=1e-3)
    kind = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first, "activation": bend}
    kind |= {"layer_norm_eps": 1e-3, "dtype": torch.float64}
    source = padding_mask(1 + np.arange(B) % ts, ts)
    target = padding_mask(1 + np.arange(B) % tt, tt)
    hidden, hidden_target = (torch.tensor(~m[:, 0, 0]) for m in (source, target))
    causal = torch.triu(torch.ones(tt, tt, dtype=torch.bool), 1)
    x, y = normal(B, ts, d), normal(B, tt, d, seed=1)
    own = combine_masks(causal_mask(tt), target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        encoder = torch.nn.TransformerEncoderLayer(d, H, ff, **kind)
        decoder = torch.nn.TransformerDecoderLayer(d, H, ff, **kind)
        whole = torch.nn.Transformer(d, H, 2, 3, ff, **kind)
    twins(EncoderLayer(config), encoder, [x], {"mask": source}, {"src_key_padding_mask": hidden})
    theirs = {
        "tgt_mask": causal,
        "tgt_key_padding_mask": hidden_target,
        "memory_key_padding_mask": hidden,
    }
    twins(DecoderLayer(config), decoder, [y, x], {"mask": own, "memory_mask": source}, theirs)
    masks = {"source_mask": source, "target_mask": own, "memory_mask": source}
    theirs |= {"src_key_padding_mask": hidden}
    twins(Transformer(2, 3, config, final_norm=True), whole, [x, y], masks, theirs)


@pytest.mark.parametrize("shape", [(3,), (2, 1), (70, 5), (2, 3, 300)])
@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_layer_norm(shape, eps):
    arrays = [normal(*shape) * 2 + 1, normal(shape[-1], seed=1), normal(shape[-1], seed=2)]
    ours = [Tensor(a, requires_grad=True) for a in arrays]
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    out = layer_norm(*ours, eps=eps)
    want = torch.nn.functional.layer_norm(theirs[0], shape[-1:], *theirs[1:], eps)
    close(out.data, want)
    out.backward(normal(*shape, seed=3))
    want.backward(torch.tensor(normal(*shape, seed=3)))
    for a, b in zip(ours, theirs, strict=True):
        close(a.grad, b.grad, 1e-7)


def test_layer_norm_far_away():
    for dtype, far in ((np.float32, 1e4), (np.float64, 1e8)):
        x = normal(4, 64) * far * 1e-3 + far
        exact = x.astype(dtype).astype(np.longdouble)
        want = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
        close(LayerNorm(64).astype(dtype)(Tensor(x.astype(dtype))).data, want.astype(float), 1e-3)
    half = (normal(2, 64) * 300).astype(np.float16)
    out = layer_norm(Tensor(half), Tensor(np.ones(64, "f2")), Tensor(np.zeros(64, "f2")))
    assert out.dtype == np.float16
    assert np.isfinite(out.data).all()
    equal = LayerNorm(5)(Tensor(np.full((2, 5), 1e6, np.float32))).data
    close(equal, np.zeros((2, 5)), 1e-3)
    huge = layer_norm(Tensor(normal(2, 8) * 1e200), Tensor(np.ones(8)), Tensor(np.zeros(8)))
    close((huge.data**2).mean(1), [1, 1], 1e-6)


@pytest.mark.parametrize(("ours", "theirs"), [
    (relu, torch.relu),
    (gelu, torch.nn.functional.gelu),
    (gelu_tanh, lambda t: torch.nn.functional.gelu(t, approximate="tanh")),
])  # fmt: skip
def test_bends(ours, theirs):
    for x in (normal(3, 5) * 3, np.linspace(-30, 30, 40001), np.array([0.0, -0.0, 1e3, -1e3])):
        mine, its = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        out, want = ours(mine), theirs(its)
        close(out.data, want, 1e-12)
        out.sum().backward()
        want.sum().backward()
        close(mine.grad, its.grad, 1e-12)
    for v in (-8.0, -5.0, -2.7):
        near = 0.5 * v * math.erfc(-v / math.sqrt(2))
        assert gelu(Tensor(np.array(v))).item() == pytest.approx(near, rel=1e-9)
    single = ours(Tensor(np.float32([1.0])))
    assert single.dtype == np.float32
    nan = ours(Tensor(np.array([np.nan, 1.0]))).data
    assert np.isnan(nan[0])
    assert np.isfinite(nan[1])


def test_feed_forward_gradients():
    for bend in ("relu", "gelu", "gelu_tanh"):
        net = FeedForward(3, 5, bend).astype(np.float64)
        gradcheck(
            net, [Tensor(normal(2, 3), requires_grad=True)], parameters=net.named_parameters()
        )


@pytest.mark.parametrize("norm_first", [True, False])
def test_piece_by_piece(norm_first):
    decoder = Decoder(3, LayerConfig(8, 2, 12, norm_first=norm_first)).astype(np.float64)
    memory, mask, y = (
        Tensor(normal(9, 5, 8)),
        padding_mask(1 + np.arange(9) % 5, 5),
        normal(9, 70, 8, seed=1),
    )
    want = decoder(Tensor(y), memory, causal_mask(70), mask).data
    cache, at = decoder.begin(memory, mask), 0
    for n in (1, 2, 1, 64, 1, 1):
        out, cache = decoder.extend(Tensor(y[:, at : at + n]), cache)
        close(out.data, want[:, at : at + n])
        at += n
        assert cache.length == at
    _, start = decoder.extend(Tensor(y[:, :3]), decoder.begin(memory, mask))
    for order in ([8, 0, 0, 3], [4], list(range(9))[::-1]):
        chosen = start.select(order)
        for t in (3, 4):
            out, chosen = decoder.extend(Tensor(y[order, t : t + 1]), chosen)
            close(out.data, want[order, t : t + 1])


def test_dropout():
    x, y = Tensor(normal(70, 3, 8)), Tensor(normal(70, 4, 8, seed=1))
    for make, inputs in ((EncoderLayer, (x,)), (DecoderLayer, (y, x))):
        plain = make(LayerConfig(8, 2, 12), PCG32(1)).astype(np.float64)
        model = make(LayerConfig(8, 2, 12, 0.4), PCG32(1)).astype(np.float64)
        want = plain(*inputs).data
        close(model.eval()(*inputs).data, want)
        assert len(model.rng_state()) == (4 if make is EncoderLayer else 6)
        for place in model.rng_state():
            for path, module in model.named_modules():
                module.train(place in (path + ".rng", path + ".dropout_rng"))
            assert (model(*inputs).data != want).any(axis=(1, 2)).mean() > 0.9
        model.train()
        state = model.rng_state()
        first, second = model(*inputs).data, model(*inputs).data
        assert (first != second).any()
        model.load_rng_state(state)
        close(model(*inputs).data, first)
    manual_seed(0)
    stacks = [Encoder(3, LayerConfig(8, 2, 4, 0.1)), Decoder(2, LayerConfig(8, 2, 4, 0.1))]
    states = [str(s) for stack in stacks for s in stack.rng_state().values()]
    assert len(set(states)) == len(states) == 24
    streams = Transformer(2, 2, LayerConfig(8, 2, 4, 0.1), rng=PCG32(2)).rng_state()
    for path, state in streams.items():
        assert state == PCG32(2).substream(path).state()
    # what is added is dropped, the stream is not
    quiet = EncoderLayer(LayerConfig(8, 2, 12, 0.5)).astype(np.float64)
    for p in (*quiet.self_attention.out_proj.parameters(), *quiet.feed_forward.down.parameters()):
        p.data *= 0
    np.testing.assert_array_equal(quiet(x).data, x.data)


def test_watching():
    model = Transformer(2, 2, LayerConfig(8, 2, 12))
    x, y = (Tensor(normal(2, n, 8).astype("f4")) for n in (5, 3))
    with watch_attention(model) as seen:
        out = model(x, y, None, causal_mask(3))
    close(out.data, model(x, y, None, causal_mask(3)).data, 1e-5)
    assert [s.path for s in seen] == [
        *(f"encoder.layers.{i}.self_attention" for i in range(2)),
        *(f"decoder.layers.{i}.{k}_attention" for i in range(2) for k in ("self", "cross")),
    ]
    assert len(seen) == 6
    for s in seen:
        close(s.weights.data.sum(-1), np.ones(s.weights.shape[:-1]), 1e-5)
    assert (np.triu(seen[2].weights.data, 1) == 0).all()


def test_structure():
    for first in (True, False):
        config = LayerConfig(8, 2, 12, norm_first=first)
        assert (Encoder(1, config).norm is not None) == first
        assert Encoder(1, config, final_norm=not first).norm is None or not first
    names = list(DecoderLayer(LayerConfig(8, 2, 12)).state_dict())
    assert names[0] == "self_attention.q_proj.weight"
    assert names[8] == "cross_attention.q_proj.weight"
    assert names[16:20] == [
        f"feed_forward.{p}.{k}" for p in ("up", "down") for k in ("weight", "bias")
    ]
    assert names[-1] == "norm3.bias"
    layer, draws = EncoderLayer(LayerConfig(8, 2, 12), PCG32(4)), PCG32(4)
    for name, p in layer.named_parameters():
        if "norm" not in name:
            bound = (12 if "down" in name else 8) ** -0.5
            np.testing.assert_array_equal(p.data, draws.uniform(-bound, bound, p.shape))
    model = Transformer(1, 1, LayerConfig(8, 2, 12, 0.1, "gelu"))
    for training in (True, False):
        out = model.train(training)(
            *(Tensor(normal(2, 3, 8).astype("f4")),) * 2, None, causal_mask(3)
        )
        assert out.dtype == np.float32


def test_depth():
    def first(depth, norm_first):
        stack = Encoder(depth, LayerConfig(32, 4, 64, norm_first=norm_first), rng=PCG32(0))
        out = stack(Tensor(PCG32(1).normal(0.0, 1.0, (4, 8, 32))))
        out.backward(PCG32(2).normal(0.0, 1.0, out.shape))
        return np.linalg.norm(stack.layers[0].feed_forward.up.weight.grad)

    assert first(24, True) > 0.6 * first(1, True)
    assert first(24, False) < first(24, True)


def test_refusals():
    config = LayerConfig(8, 2, 12)
    for call in (
        lambda: LayerNorm(0),
        lambda: LayerNorm(3, eps=0),
        lambda: FeedForward(3, 4, "swish"),
        lambda: Encoder(0, config),
        lambda: EncoderLayer(LayerConfig(8, 3, 12)),
        lambda: EncoderLayer(config)(Tensor(normal(2, 3, 4))),
        lambda: LayerNorm(4)(Tensor(normal(2, 3))),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(TypeError):
        EncoderLayer(config)(Tensor(normal(2, 3, 8)), np.ones((3, 3)))
    with pytest.raises(TypeError):
        gelu(Tensor(np.ones(3, int)))
    with pytest.raises(TypeError):
        layer_norm(normal(3), Tensor(normal(3)), Tensor(normal(3)))
