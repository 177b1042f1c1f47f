"""The equations, written with the layers' own parts; differences for gradients."""

import math

import numpy as np
import pytest

from tinyllm.num.gradcheck import gradcheck
from tinyllm.num.pcg32 import PCG32, manual_seed
from tinyllm.tensor import Tensor, no_grad
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
from tinyllm.xfmr.masks import causal_mask, padding_mask


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def close(a, b, tolerance=1e-10):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def made(kind, *args, seed=1, **options):
    """A module in float64 whose numbers are all drawn anew."""
    module = kind(*args, **options).astype(np.float64)
    for i, p in enumerate(module.parameters()):
        p.data = normal(*p.shape, seed=seed + i) / 2
    return module


def norm(layer, x):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(var + layer.eps) * layer.weight.data + layer.bias.data


BENDS = {
    "relu": lambda x: np.where(x > 0, x, 0),
    "gelu": lambda x: x * np.vectorize(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)))(x),
    "gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
}


def network(layer, x):
    hidden = BENDS[layer.activation](x @ layer.up.weight.data.T + layer.up.bias.data)
    return hidden @ layer.down.weight.data.T + layer.down.bias.data


def attention(layer, x, y, mask):
    return layer.attend(Tensor(x), Tensor(y), mask)[0].data


def encoder_layer(layer, x, mask, first):
    for part, n in (
        (lambda a: attention(layer.self_attention, a, a, mask), layer.norm1),
        (lambda a: network(layer.feed_forward, a), layer.norm2),
    ):
        x = x + part(norm(n, x)) if first else norm(n, x + part(x))
    return x


def decoder_layer(layer, x, memory, mask, memory_mask, first):
    for part, n in (
        (lambda a: attention(layer.self_attention, a, a, mask), layer.norm1),
        (lambda a: attention(layer.cross_attention, a, memory, memory_mask), layer.norm2),
        (lambda a: network(layer.feed_forward, a), layer.norm3),
    ):
        x = x + part(norm(n, x)) if first else norm(n, x + part(x))
    return x


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("bend", BENDS)
@pytest.mark.parametrize(
    ("d", "H", "ff", "B", "ts", "tt", "n"),
    [
        (8, 2, 12, 3, 6, 4, 2),
        (8, 2, 5, 3, 4, 4, 1),
        (12, 12, 70, 9, 3, 2, 5),
        (4, 1, 3, 2, 70, 66, 1),
    ],
)
def test_equations(first, bend, d, H, ff, B, ts, tt, n):
    config = LayerConfig(d, H, ff, activation=bend, norm_first=first, eps=1e-2)
    model = made(Transformer, n, n, config)
    x, y = normal(B, ts, d), normal(B, tt, d, seed=1)
    source, causal = padding_mask(1 + np.arange(B) % ts, ts), causal_mask(tt)
    for seed in (1, 2):  # also after the weights have changed
        for i, p in enumerate(model.parameters()):
            p.data[...] = normal(*p.shape, seed=seed + i) / 3
        memory = x
        for layer in model.encoder.layers:
            memory = encoder_layer(layer, memory, source, first)
        memory = norm(model.encoder.norm, memory) if first else memory
        close(model.encoder(Tensor(x), source).data, memory, 1e-8)
        out = y
        for layer in model.decoder.layers:
            out = decoder_layer(layer, out, memory, causal, source, first)
        out = norm(model.decoder.norm, out) if first else out
        close(model(Tensor(x), Tensor(y), source, causal, source).data, out, 1e-7)
        cache, at = model.decoder.begin(Tensor(memory), source), 0
        while at < tt:
            k = min(tt - at, 1 + at % 40)
            piece, cache = model.decoder.extend(Tensor(y[:, at : at + k]), cache)
            close(piece.data, out[:, at : at + k], 1e-7)
            at += k


@pytest.mark.parametrize("first", [True, False])
def test_gradients(first):
    config = LayerConfig(4, 2, 5, activation="gelu", norm_first=first)
    encoder, decoder = made(EncoderLayer, config), made(DecoderLayer, config)
    x, y = (Tensor(normal(2, n, 4, seed=n), requires_grad=True) for n in (3, 2))
    mask = padding_mask([3, 1], 3)
    gradcheck(lambda x: encoder(x, mask), [x], parameters=encoder.named_parameters(), sample=8)
    gradcheck(
        lambda y, x: decoder(y, x, causal_mask(2), mask),
        [y, x],
        parameters=decoder.named_parameters(),
        sample=8,
    )
    for bend in (gelu, gelu_tanh):
        gradcheck(bend, [Tensor(normal(4, 3) * 2, requires_grad=True)])
    gradcheck(lambda a: relu(a), [Tensor(np.array([-2.0, -0.3, 0.4, 3.0]), requires_grad=True)])
    gradcheck(
        layer_norm,
        [Tensor(normal(*s), requires_grad=True) for s in ((70, 3), (3,), (3,))],
    )


def test_norms():
    for x in (normal(5, 300), normal(70, 2) * 9 + 4, normal(2, 3, 7) * 1e-3):
        layer = made(LayerNorm, x.shape[-1], eps=1e-3)
        close(layer(Tensor(x)).data, norm(layer, x))
    one, zero = Tensor(np.ones(64, "f4")), Tensor(np.zeros(64, "f4"))
    far = (normal(3, 64) + 1e4).astype("f4")
    exact = far.astype(float)
    want = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    close(layer_norm(Tensor(far), one, zero).data, want, 2e-3)
    close(
        layer_norm(Tensor(np.full((2, 64), 1e8 / 3, "f4")), one, zero).data, np.zeros((2, 64)), 1e-3
    )
    huge = layer_norm(
        Tensor(np.array([[1e25, -1e25, 0, 1e24]], "f4")), *(Tensor(a.data[:4]) for a in (one, zero))
    )
    assert np.isfinite(huge.data).all()
    assert abs(huge.data).max() > 1
    half = layer_norm(
        Tensor(np.array([[300.0, -300, 299, 1]], "f2")),
        *(Tensor(a.data[:4].astype("f2")) for a in (one, zero)),
    )
    assert half.dtype == np.float16
    assert np.isfinite(half.data).all()


def test_bends():
    x = np.concatenate([np.linspace(-36, 36, 3001), [0.0, -0.0]])
    for name, function in (("relu", relu), ("gelu", gelu), ("gelu_tanh", gelu_tanh)):
        np.testing.assert_allclose(function(Tensor(x)).data, BENDS[name](x), rtol=1e-9, atol=1e-15)
        far = Tensor(np.array([1e30, -1e30], "f4"), requires_grad=True)
        out = function(far)
        out.sum().backward()
        assert out.data.tolist() == far.data.clip(0).tolist()
        assert far.grad.tolist() == [1, 0]
    tails = gelu(Tensor(np.array([-8.0, -20.0]))).data
    np.testing.assert_allclose(
        tails, [v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in (-8.0, -20.0)], rtol=1e-9
    )
    wild = relu(Tensor(np.array([np.nan, -1.0, 2.0]), requires_grad=True))
    assert np.isnan(wild.data[0])
    assert wild.data[1:].tolist() == [0, 2]


def test_dropout():
    config, plain_config = LayerConfig(8, 2, 12, 0.5), LayerConfig(8, 2, 12)
    x = Tensor(normal(70, 3, 8))
    model = made(EncoderLayer, config, PCG32(3))
    plain = made(EncoderLayer, plain_config, PCG32(3))
    want, states = plain(x).data, model.rng_state()
    outs = [model(x).data for _ in range(3)]
    for a in (*outs[1:], want):
        assert (a != outs[0]).any(axis=(1, 2)).all()
    close(model.eval()(x).data, want)
    model.train().load_rng_state(states)
    with no_grad():
        for a in outs:
            close(model(x).data, a)
    for path, part in model.named_modules():
        for other, module in model.named_modules():
            module.train(other == path)
        if f"{path}.rng" in states or f"{path}.dropout_rng" in states:
            assert (model(x).data != want).any()
        part.eval()
    quiet = made(EncoderLayer, config, PCG32(3))
    for p in (*quiet.self_attention.out_proj.parameters(), *quiet.feed_forward.down.parameters()):
        p.data *= 0
    np.testing.assert_array_equal(quiet(x).data, x.data)  # what comes in is not dropped
    manual_seed(1)
    two = [Decoder(2, config).rng_state() for _ in range(2)]
    assert len({str(s) for one in two for s in one.values()}) == 24
    whole = Transformer(1, 1, config, rng=PCG32(4)).rng_state()
    assert all(state == PCG32(4).substream(path).state() for path, state in whole.items())


def test_order_and_future():
    model = made(Transformer, 2, 2, LayerConfig(8, 2, 12))
    x, y = normal(3, 6, 8), normal(3, 5, 8, seed=1)
    run = lambda x, y: model(Tensor(x), Tensor(y), None, causal_mask(5)).data  # noqa: E731
    before, later = run(x, y), y.copy()
    later[:, 3:] = normal(3, 2, 8, seed=5)
    np.testing.assert_array_equal(run(x, later)[:, :3], before[:, :3])
    assert (run(x, later)[:, 3:] != before[:, 3:]).any()
    shuffled = x[:, [3, 1, 0, 5, 4, 2]]
    close(run(shuffled, y), before, 1e-9)  # without positions a source is a set
    with watch_attention(model) as seen:
        run(x, y)
    assert [s.weights.shape[-2:] for s in seen] == [(6, 6)] * 2 + [(5, 5), (5, 6)] * 2


def test_caches_branch():
    decoder = made(Decoder, 2, LayerConfig(8, 2, 12))
    memory, y, z = Tensor(normal(4, 3, 8)), normal(4, 6, 8, seed=1), normal(4, 6, 8, seed=2)
    _, start = decoder.extend(Tensor(y[:, :2]), decoder.begin(memory))
    branches = [decoder.extend(Tensor(t[:, 2:4]), start)[1] for t in (y, z)]
    for t, cache in zip((y, z), branches, strict=True):
        told = np.concatenate([y[:, :2], t[:, 2:]], axis=1)
        order = [3, 3, 0]
        want = decoder(Tensor(told[order]), memory[order], causal_mask(6)).data
        out, _ = decoder.extend(Tensor(told[order, 4:]), cache.select(order))
        close(out.data, want[:, 4:])
    assert start.length == 2


def test_structure_and_refusals():
    config = LayerConfig(8, 2, 12)
    layer, draws = DecoderLayer(config, PCG32(2)), PCG32(2)
    for name, p in layer.named_parameters():
        if "norm" not in name:
            bound = (12 if "down" in name else 8) ** -0.5
            np.testing.assert_array_equal(p.data, draws.uniform(-bound, bound, p.shape))
        assert p.dtype == np.float32
    assert Encoder(1, LayerConfig(8, 2, 12, norm_first=False)).norm is None
    assert Decoder(1, config).norm is not None
    assert list(Encoder(2, config).state_dict())[-2:] == ["norm.weight", "norm.bias"]
    floats = Tensor(normal(2, 3, 8).astype("f4"))
    model = Transformer(1, 1, config)
    for masks in ((), (None, causal_mask(3), np.ones((2, 1, 1, 3), bool))):
        assert model(floats, floats, *masks).dtype == np.float32
    for call in (
        lambda: LayerNorm(-1),
        lambda: FeedForward(8, 8, "tanh"),
        lambda: Decoder(0, config),
        lambda: EncoderLayer(LayerConfig(9, 2, 12)),
        lambda: LayerNorm(4)(floats),
    ):
        with pytest.raises(ValueError):
            call()
    for call in (
        lambda: relu(normal(3)),
        lambda: gelu(Tensor(np.arange(3))),
        lambda: EncoderLayer(config)(floats, np.ones((3, 3), int)),
    ):
        with pytest.raises(TypeError):
            call()
