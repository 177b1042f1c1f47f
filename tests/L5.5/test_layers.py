# Tangled from book/2-transformer/L5.5-tests.md
"""L5.5: normalisation, bends, layers and stacks; the oracle is torch."""

import math
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch

from tinyllm.autograd import no_grad
from tinyllm.nn import Module
from tinyllm.num.gradcheck import gradcheck
from tinyllm.num.pcg32 import PCG32, default_generator, manual_seed
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
from tinyllm.xfmr.mha import MultiHeadAttention


@pytest.fixture(autouse=True)
def seeded():
    """What is built without a generator is the same in every test."""
    manual_seed(0)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def leaf(data):
    return Tensor(data, requires_grad=True)


def close(ours, theirs, tolerance=1e-12):
    theirs = theirs.detach().numpy() if isinstance(theirs, torch.Tensor) else theirs
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def same_as_torch(function, oracle, *arrays, tolerance=1e-12, grad=None):
    """Values and gradients of a function of tensors and of torch's."""
    ours = [leaf(x) for x in arrays]
    theirs = [torch.tensor(x, requires_grad=True) for x in arrays]
    out, want = function(*ours), oracle(*theirs)
    close(out.data, want, tolerance)
    cotangent = np.asarray(normal(*out.shape, seed=9)) if grad is None else grad
    out.backward(cotangent)
    want.backward(torch.tensor(cotangent))
    for mine, its in zip(ours, theirs, strict=True):
        close(mine.grad, its.grad, tolerance)


NAMES = {  # ours: torch's
    "self_attention": "self_attn",
    "cross_attention": "multihead_attn",
    "feed_forward.up": "linear1",
    "feed_forward.down": "linear2",
}


def torch_name(name):
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    return name


def randomise(module, seed=0):
    """Every parameter of torch's drawn anew: its biases are zeros and its norms ones."""
    rng = np.random.default_rng(seed)
    for name, p in module.named_parameters():
        x = rng.normal(size=tuple(p.shape)) * 0.3
        p.data = torch.tensor(x + (p.ndim == 1 and "norm" in name and name.endswith("weight")))


def load(ours, theirs):
    """Copy torch's parameters into ours, in float64."""
    ours.astype(np.float64)
    state = {name: p.detach().numpy() for name, p in theirs.named_parameters()}
    plain = {}
    for name in ours.state_dict():
        if not any(part in name for part in ("q_proj", "k_proj", "v_proj")):
            plain[name] = state.pop(torch_name(name))
    ours.load_state_dict(plain, strict=False)
    for path, module in ours.named_modules():
        if hasattr(module, "load_packed_in_proj"):
            prefix = torch_name(path) + "." if path else ""
            packed = [state.pop(f"{prefix}in_proj_{kind}") for kind in ("weight", "bias")]
            module.load_packed_in_proj(*packed)
    assert not state, f"not loaded: {list(state)}"


def same_gradients(ours, theirs):
    wanted = {name: p.grad for name, p in theirs.named_parameters()}
    for name, p in ours.named_parameters():
        for i, part in enumerate(("q_proj", "k_proj", "v_proj")):
            if part in name:
                packed = torch_name(name).replace(f"{part}.", "in_proj_")
                want = wanted[packed].chunk(3)[i]
                break
        else:
            want = wanted[torch_name(name)]
        close(p.grad, want)


def agree(ours, theirs, arrays, masks, torch_masks):
    """Outputs, gradients of all inputs and of all parameters are torch's."""
    randomise(theirs)
    load(ours, theirs)
    inputs = [leaf(x) for x in arrays]
    torch_inputs = [torch.tensor(x, requires_grad=True) for x in arrays]
    out = ours(*inputs, **masks)
    want = theirs(*torch_inputs, **torch_masks)
    close(out.data, want)
    cotangent = normal(*out.shape, seed=5)
    out.backward(cotangent)
    want.backward(torch.tensor(cotangent))
    for mine, its in zip(inputs, torch_inputs, strict=True):
        close(mine.grad, its.grad)
    same_gradients(ours, theirs)


def hand_layer() -> tuple[Tensor, Tensor]:
    """The output and the weights of section 3.2."""
    layer = EncoderLayer(LayerConfig(2, 1, 2, eps=1e-12))
    for name, p in layer.named_parameters():
        if "norm" not in name:
            p.data = np.eye(2) if p.ndim == 2 else np.zeros(2)
    with watch_attention(layer) as seen:
        out = layer(Tensor(np.array([[[3.0, 1.0], [0.0, 2.0]]])))
    return out, seen[0].weights


def gradient_lengths(depth: int, norm_first: bool) -> tuple[float, float]:
    """Lengths of the gradients of `up.weight` in the first and the last layer of a new stack."""
    stack = Encoder(depth, LayerConfig(64, 4, 256, norm_first=norm_first), rng=PCG32(0))
    x = Tensor(PCG32(1).normal(0.0, 1.0, (4, 16, 64)))
    out = stack(x)
    out.backward(PCG32(2).normal(0.0, 1.0, out.shape))
    first, last = (stack.layers[i].feed_forward.up.weight.grad for i in (0, -1))
    return float(np.linalg.norm(first)), float(np.linalg.norm(last))


def test_hand_layer_norm():
    x, one, zero = leaf([1.0, 2, 3, 4]), leaf(np.ones(4)), leaf(np.zeros(4))
    y = layer_norm(x, one, zero, 1e-12)
    close(y.data, [-1.341641, -0.447214, 0.447214, 1.341641], 1e-6)
    y.backward([1, 0, 0, 0])
    close(x.grad, [0.268328, -0.357771, -0.089443, 0.178885], 1e-5)
    y = LayerNorm(4)(Tensor(np.array([[1.0, 2, 3, 4]])))
    close(y.data, [[-1.3416, -0.4472, 0.4472, 1.3416]], 5e-5)


def test_hand_encoder_layer():
    out, weights = hand_layer()
    close(out.data, [[[4.888386, 0.111614], [-0.888386, 3.888386]]], 1e-6)
    close(weights.data, [[[[0.944193, 0.055807], [0.055807, 0.944193]]]], 1e-6)


@pytest.mark.parametrize("shape", [(5,), (3, 7), (2, 3, 4), (0, 4), (2, 1)])
@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_layer_norm_against_torch(shape, eps):
    d = shape[-1]
    same_as_torch(
        lambda x, w, b: layer_norm(x, w, b, eps),
        lambda x, w, b: torch.nn.functional.layer_norm(x, (d,), w, b, eps),
        normal(*shape),
        normal(d, seed=1),
        normal(d, seed=2),
    )


def test_layer_norm_gradient_is_orthogonal():
    x, w, b = leaf(normal(4, 6)), Tensor(np.ones(6)), Tensor(np.zeros(6))
    y = layer_norm(x, w, b, 1e-12)
    y.backward(normal(4, 6, seed=1), retain_graph=True)
    close(x.grad.sum(axis=1), np.zeros(4))
    close((x.grad * y.data).sum(axis=1), np.zeros(4), 1e-10)
    assert abs(x.grad).max() > 0.1
    x.grad = None
    y.backward(np.ones((4, 6)))
    close(x.grad, np.zeros((4, 6)))
    gradcheck(
        lambda x, w, b: layer_norm(x, w, b),
        [leaf(normal(3, 5, seed=s)) for s in (0,)] + [leaf(normal(5, seed=s)) for s in (1, 2)],
    )


def test_layer_norm_far_from_zero():
    x = normal(8, 64).astype("f4")
    far = (x + np.float32(1e4)).astype("f4")  # what was added is exact to 1e-3
    want = LayerNorm(64)(Tensor(far.astype("f8"))).data
    got = LayerNorm(64)(Tensor(far)).data
    assert got.dtype == np.float32
    close(got, want, 2e-3)
    for d in (1, 3, 64):
        norm = LayerNorm(d)
        norm.bias.data = normal(d).astype("f4")
        same = norm(Tensor(np.full((2, d), 1e4, "f4"))).data
        close(same, np.broadcast_to(norm.bias.data, (2, d)), 1e-6)
    half = leaf(np.full((1, 64), 300.0, "f2") * np.sign(normal(64)).astype("f2"))
    y = layer_norm(half, Tensor(np.ones(64, "f2")), Tensor(np.zeros(64, "f2")))
    assert y.dtype == np.float16
    close(abs(y.data), np.ones((1, 64)), 0.3)  # 300 squared is no float16


@pytest.mark.parametrize("eps", [1e-5, 1e-12])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_layer_norm_of_any_size(dtype, eps):
    """Against the formula in more digits than the numbers have; rows of all sizes in one batch."""
    largest = np.finfo(dtype).max
    sizes = {
        "f2": [1e-3, 1.0, 300.0, largest],
        "f4": [1e-38, 1e-30, 1e-10, 1.0, 1e10, 1e18, 1e19, 1e25, 1e38, largest],
        "f8": [1e-300, 1e-160, 1.0, 1e150, 1e155, 1e300, largest],
    }[dtype]
    unit = np.clip(normal(len(sizes), 6) / 3, -1, 1)
    unit[:, 0], unit[:, 1] = 1, -1
    x = leaf((unit * np.array(sizes)[:, None]).astype(dtype))
    w, b = (leaf(normal(6, seed=s).astype(dtype)) for s in (1, 2))
    grad = normal(len(sizes), 6, seed=3).astype(dtype)
    y = layer_norm(x, w, b, eps)
    y.backward(grad)
    assert y.dtype == x.grad.dtype == dtype

    exact = [v.astype(np.longdouble) for v in (x.data, w.data, b.data, grad)]
    rows, scale, shift, g = exact
    centred = rows - rows.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + np.longdouble(eps))
    hat, h = centred / deviation, g * scale
    h_mean, h_hat = h.mean(axis=1, keepdims=True), (h * hat).mean(axis=1, keepdims=True)
    tolerance = {"f2": 1e-2, "f4": 1e-5, "f8": 1e-13}[dtype]
    close(y.data, hat * scale + shift, tolerance)
    close(w.grad, (g * hat).sum(axis=0), 5 * tolerance)
    want = (h - h_mean - hat * h_hat) / deviation
    top = abs(want).max(axis=1, keepdims=True) + np.finfo(dtype).tiny
    close((x.grad / top).astype("f8"), (want / top).astype("f8"), 10 * tolerance)
    alone = [layer_norm(Tensor(row), w, b, eps).data for row in x.data]
    np.testing.assert_allclose(y.data, alone, rtol=tolerance, atol=tolerance)
    for bad in (np.nan, np.inf):
        x.data[0, 2] = bad
        spoilt = layer_norm(x, w, b, eps).data
        assert np.isnan(spoilt[0]).all()
        assert (spoilt[1:] == y.data[1:]).all()


@pytest.mark.parametrize("d", [1, 5, 64, 768])
def test_layer_norm_of_equal_numbers(d):
    for dtype, numbers in (
        ("f4", [0, 123456.79, -1e6 / 3, 1e8 / 3, 1e12 / 7, 1e30 / 3, np.finfo("f4").max]),
        ("f8", [0, 1e6 / 3, 1e12 / 7, 1e300 / 3, np.finfo("f8").max]),
    ):
        rows = np.full((len(numbers), d), np.array(numbers)[:, None], dtype)
        x, w, b = leaf(rows), Tensor(np.ones(d, dtype)), Tensor(np.full(d, 0.5, dtype))
        y, grad = layer_norm(x, w, b), normal(*rows.shape).astype(dtype)
        assert (y.data == 0.5).all()
        y.backward(grad)
        want = (grad - grad.mean(axis=1, keepdims=True)) / np.sqrt(1e-5)
        close(x.grad, want, 1e-2 if dtype == "f4" else 1e-10)
        # neighbours: one number more in the last place
        rows[:, -1] = np.nextafter(rows[:, -1], 0)
        exact = (rows - rows[:, :1]).astype(np.longdouble)
        exact -= exact.mean(axis=1, keepdims=True)
        exact /= np.sqrt((exact**2).mean(axis=1, keepdims=True) + np.longdouble(1e-5))
        close(layer_norm(Tensor(rows), w, b).data - 0.5, exact, 1e-5 if dtype == "f4" else 1e-12)


def test_gelu_against_torch():
    for x in (normal(3, 5) * 3, np.linspace(-40, 40, 4001), np.array(0.0), np.zeros((0, 2))):
        same_as_torch(gelu, torch.nn.functional.gelu, x)
        same_as_torch(gelu_tanh, lambda t: torch.nn.functional.gelu(t, approximate="tanh"), x)


def test_gelu_versions_differ():
    x = Tensor(np.linspace(-6, 6, 100_001))
    difference = abs(gelu(x).data - gelu_tanh(x).data)
    close(difference.max(), 4.73e-4, 1e-6)
    close(abs(x.data[difference.argmax()]), 2.7, 0.1)
    close([gelu(Tensor(1.0)).item(), gelu_tanh(Tensor(1.0)).item()], [0.841345, 0.841192], 5e-7)


def test_normal_tails():
    x = np.concatenate([np.linspace(-37, -0.001, 500), np.linspace(0, 10, 200)])
    want = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])
    got = gelu(Tensor(x)).data[x != 0] / x[x != 0]
    np.testing.assert_allclose(got, want[x != 0], rtol=2e-12, atol=0)
    near = x[x > -10].astype("f4")
    got = gelu(Tensor(near)).data.astype("f8")
    want = np.array([v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in near.astype("f8")])
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=0)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)


def test_activations_in_every_dtype():
    x = np.random.default_rng(0).normal(size=(300, 300))  # more than two blocks
    for function in (relu, gelu, gelu_tanh):
        want, slopes = function(Tensor(x)).data, leaf(x)
        function(slopes).backward(np.ones_like(x))
        for dtype, tolerance in (("f2", 4e-3), ("f4", 2e-6), ("f8", 0)):
            t = leaf(x.astype(dtype))
            t.data.setflags(write=False)
            y = function(t)
            y.backward(np.ones(x.shape, dtype))
            assert y.dtype == t.grad.dtype == dtype
            close(y.data, want, tolerance)
            if function is not relu or dtype != "f2":
                close(t.grad, slopes.grad, tolerance)
        with no_grad():
            assert (function(slopes).data == want).all()
        strided = leaf(x.T[::2])
        function(strided).backward(np.ones(strided.shape))
        close(function(strided).data, want.T[::2], 1e-15)
        close(strided.grad, slopes.grad.T[::2], 1e-15)


def test_relu():
    x = leaf([-2.0, -0.0, 0.0, 3.0, np.inf, np.nan])
    y = relu(x)
    assert y.data[:5].tolist() == [0, 0, 0, 3, np.inf]
    assert np.isnan(y.data[5])
    y.backward(np.arange(1.0, 7.0))
    assert x.grad.tolist() == [0, 0, 0, 4, 5, 6]
    numbers = np.repeat([-np.inf, -1.0, 0.0, 1.0, np.inf, np.nan], 3)
    same_as_torch(relu, torch.relu, numbers, grad=np.tile([1.0, 0.0, -1.0], 6))


def test_activations_of_extreme_numbers():
    for dtype, sizes in (("f4", [40, 1e3, 1e18, 1e20, 3e38]), ("f8", [40, 1e3, 1e160, 1e308])):
        numbers = np.array([sign * size for size in sizes for sign in (1, -1)], dtype)
        for function in (relu, gelu, gelu_tanh):
            x = leaf(numbers)
            y = function(x)
            y.backward(np.ones_like(numbers))
            assert (y.data == np.maximum(numbers, 0)).all()
            assert (x.grad == (numbers > 0)).all()


def test_feed_forward_against_torch():
    for activation in ("relu", "gelu"):
        ours = FeedForward(6, 10, activation).astype(np.float64)
        bend = torch.nn.ReLU() if activation == "relu" else torch.nn.GELU()
        theirs = torch.nn.Sequential(torch.nn.Linear(6, 10), bend, torch.nn.Linear(10, 6)).double()
        names = {
            "up.weight": "0.weight",
            "up.bias": "0.bias",
            "down.weight": "2.weight",
            "down.bias": "2.bias",
        }
        state = theirs.state_dict()
        ours.load_state_dict({name: state[its].numpy() for name, its in names.items()})
        same_as_torch(ours, theirs, normal(2, 3, 6))
        grads = {name: p.grad for name, p in theirs.named_parameters()}
        for name, p in ours.named_parameters():
            close(p.grad, grads[names[name]])
    assert FeedForward(4, 8).activation == "relu"


KINDS = [(norm_first, bend) for norm_first in (True, False) for bend in ("relu", "gelu")]
B, TS, TT, D, H, FF = 3, 7, 5, 8, 2, 12
CONFIG = LayerConfig(D, H, FF)
OPTIONS = {"dropout": 0.0, "batch_first": True, "dtype": torch.float64, "layer_norm_eps": 1e-4}


def blocked(mask):
    """torch's layers want True where nothing may be read."""
    return torch.tensor(~mask)


@pytest.mark.parametrize(("norm_first", "bend"), KINDS)
@pytest.mark.parametrize("masked", ["none", "causal", "padding", "both"])
def test_encoder_layer_against_torch(norm_first, bend, masked):
    ours = EncoderLayer(replace(CONFIG, activation=bend, norm_first=norm_first, eps=1e-4))
    theirs = torch.nn.TransformerEncoderLayer(
        D, H, FF, activation=bend, norm_first=norm_first, **OPTIONS
    )
    causal = causal_mask(TS) if masked in ("causal", "both") else None
    padding = padding_mask([7, 3, 1], TS) if masked in ("padding", "both") else None
    torch_masks = {}
    if causal is not None:
        torch_masks["src_mask"] = blocked(causal)
    if padding is not None:
        torch_masks["src_key_padding_mask"] = blocked(padding[:, 0, 0])
    agree(ours, theirs, [normal(B, TS, D)], {"mask": combine_masks(causal, padding)}, torch_masks)


@pytest.mark.parametrize(("norm_first", "bend"), KINDS)
@pytest.mark.parametrize("padded", [False, True])
def test_decoder_layer_against_torch(norm_first, bend, padded):
    ours = DecoderLayer(replace(CONFIG, activation=bend, norm_first=norm_first, eps=1e-4))
    theirs = torch.nn.TransformerDecoderLayer(
        D, H, FF, activation=bend, norm_first=norm_first, **OPTIONS
    )
    causal = causal_mask(TT)
    masks, torch_masks = {"mask": causal}, {"tgt_mask": blocked(causal)}
    if padded:
        target, source = padding_mask([5, 2, 1], TT), padding_mask([7, 1, 4], TS)
        masks = {"mask": combine_masks(causal, target), "memory_mask": source}
        torch_masks["tgt_key_padding_mask"] = blocked(target[:, 0, 0])
        torch_masks["memory_key_padding_mask"] = blocked(source[:, 0, 0])
    agree(ours, theirs, [normal(B, TT, D), normal(B, TS, D, seed=1)], masks, torch_masks)


@pytest.mark.parametrize(("norm_first", "bend"), KINDS)
def test_transformer_against_torch(norm_first, bend):
    ours = Transformer(
        2, 3, replace(CONFIG, activation=bend, norm_first=norm_first, eps=1e-4), final_norm=True
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a fast path that is not taken
        theirs = torch.nn.Transformer(
            D, H, 2, 3, FF, activation=bend, norm_first=norm_first, **OPTIONS
        )
    causal = causal_mask(TT)
    source, target = padding_mask([7, 3, 1], TS), padding_mask([2, 5, 3], TT)
    masks = {
        "source_mask": source,
        "target_mask": combine_masks(causal, target),
        "memory_mask": source,
    }
    torch_masks = {
        "tgt_mask": blocked(causal),
        "src_key_padding_mask": blocked(source[:, 0, 0]),
        "tgt_key_padding_mask": blocked(target[:, 0, 0]),
        "memory_key_padding_mask": blocked(source[:, 0, 0]),
    }
    agree(ours, theirs, [normal(B, TS, D), normal(B, TT, D, seed=1)], masks, torch_masks)


@pytest.mark.parametrize("norm_first", [True, False])
def test_gradcheck_layers(norm_first):
    encoder = double(EncoderLayer(LayerConfig(4, 2, 6, activation="gelu", norm_first=norm_first)))
    decoder = double(
        DecoderLayer(LayerConfig(4, 2, 6, activation="gelu_tanh", norm_first=norm_first))
    )
    x, memory = leaf(normal(2, 3, 4)), leaf(normal(2, 5, 4, seed=1))
    padding = padding_mask([5, 2], 5)
    gradcheck(
        lambda x: encoder(x, causal_mask(3)),
        [x],
        parameters=encoder.named_parameters(),
        sample=6,
    )
    gradcheck(
        lambda x, memory: decoder(x, memory, causal_mask(3), padding),
        [x, memory],
        parameters=decoder.named_parameters(),
        sample=6,
    )
    for bend in (gelu, gelu_tanh):
        gradcheck(bend, [leaf(normal(3, 4) * 2)])


def double(module):
    return module.astype(np.float64)


def test_attention_is_watched():
    encoder, decoder = double(Encoder(2, CONFIG)), double(Decoder(3, CONFIG))
    x, y = Tensor(normal(B, TS, D)), Tensor(normal(B, TT, D, seed=1))
    source, causal = padding_mask([7, 3, 1], TS), causal_mask(TT)
    with watch_attention(encoder) as calls:
        memory = encoder(x, source)
    close(memory.data, encoder(x, source).data)
    assert [path for path, _ in calls] == [f"layers.{i}.self_attention" for i in range(2)]
    seen = [w for _, w in calls]
    assert [w.shape for w in seen] == [(B, H, TS, TS)] * 2
    with watch_attention(decoder) as calls:
        out = decoder(y, memory, causal, source)
    close(out.data, decoder(y, memory, causal, source).data)
    assert [path for path, _ in calls] == [
        f"layers.{i}.{kind}_attention" for i in range(3) for kind in ("self", "cross")
    ]
    own, cross = [w for _, w in calls[0::2]], [w for _, w in calls[1::2]]
    assert [w.shape for w in own] == [(B, H, TT, TT)] * 3
    assert [w.shape for w in cross] == [(B, H, TT, TS)] * 3
    for w in [*seen, *own, *cross]:
        close(w.data.sum(axis=-1), np.ones(w.shape[:-1]))
    for w in own:
        assert (w.data[..., ~causal] == 0).all()
    for w in [*seen, *cross]:
        assert (w.data[2, :, :, 1:] == 0).all()


def test_who_watches_sees_its_own_model():
    one, other = Encoder(2, CONFIG), EncoderLayer(CONFIG)
    x = Tensor(normal(1, 3, D).astype("f4"))
    with watch_attention(one) as outer, watch_attention(one.layers[1]) as inner:
        other(x)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(one, x).result()
        assert outer == inner == []
        one(x)
    assert [path for path, _ in outer] == ["layers.0.self_attention", "layers.1.self_attention"]
    assert [path for path, _ in inner] == ["self_attention"]
    assert inner[0].weights is outer[1].weights
    one(x)
    with pytest.raises(TypeError), watch_attention(one) as broken:
        one(None)
    one(x)
    assert (len(outer), len(inner), len(broken)) == (2, 1, 0)


@pytest.mark.parametrize("norm_first", [True, False])
def test_later_targets_change_nothing(norm_first):
    model = Transformer(2, 2, replace(CONFIG, norm_first=norm_first))
    x, y = normal(B, TS, D).astype("f4"), normal(B, TT, D, seed=1).astype("f4")

    def run(y):
        return model(Tensor(x), Tensor(y), target_mask=causal_mask(TT)).data

    before = run(y)
    for t in range(TT):
        changed = y.copy()
        changed[:, t] = normal(B, D, seed=3 + t)  # adding 1 would do nothing: see the norm
        after = run(changed)
        assert (after[:, :t] == before[:, :t]).all()
        assert (after[:, t:] != before[:, t:]).any(axis=-1).all()


@pytest.mark.parametrize("norm_first", [True, False])
def test_token_by_token(norm_first):
    decoder = double(Decoder(2, replace(CONFIG, norm_first=norm_first)))
    memory, source = Tensor(normal(B, TS, D)), padding_mask([7, 3, 1], TS)
    y, other = normal(B, TT, D, seed=1), normal(B, TT, D, seed=2)
    per_head = np.ones((B, H, 1, TS), bool)
    per_head[1, 0, :, 2:] = False
    for mask in (None, source, source[:1], source[:, 0], source[0, 0, 0], per_head):
        want = decoder(Tensor(y), memory, causal_mask(TT), mask).data
        for pieces in ([1] * TT, [TT], [2, 1, TT - 3], [TT - 1, 1]):
            cache, at = decoder.begin(memory, mask), 0
            for n in pieces:
                assert cache.length == at
                out, cache = decoder.extend(Tensor(y[:, at : at + n]), cache)
                close(out.data, want[:, at : at + n])
                assert not out.requires_grad
                at += n
    # the search goes on with the sequences of some inputs, some of them twice
    _, start = decoder.extend(Tensor(y[:, :2]), decoder.begin(memory, source))
    for chosen in ([0, 1, 2], [1, 1, 0], [2, 0], [1], [2, 2, 2, 1, 0, 0]):
        told = np.concatenate([y[chosen, :2], other[np.arange(len(chosen)) % B, 2:]], axis=1)
        want = decoder(Tensor(told), memory[chosen], causal_mask(TT), source[chosen]).data
        cache = start.select(chosen)
        for t in range(2, TT):
            out, cache = decoder.extend(Tensor(told[:, t : t + 1]), cache)
            close(out.data, want[:, t : t + 1])
            order = np.arange(len(chosen))[::-1]  # and their places change
            cache, told, want = cache.select(order), told[order], want[order]
    assert start.length == 2  # untouched
    with pytest.raises(ValueError):
        decoder.begin(memory, causal_mask(TS))
    with pytest.raises(TypeError):
        decoder.begin(memory, np.ones((B, 1, 1, TS)))
    with pytest.raises(TypeError):
        start.select([0.7, 1.2])


class Halved(Module):
    """A module around another."""

    def __init__(self, inner):
        self.inner = inner

    def forward(self, *args):
        return self.inner(*args) * 0.5


@pytest.mark.parametrize("norm_first", [True, False])
def test_modules_in_place_of_projections_are_called_token_by_token(norm_first):
    decoder = double(Decoder(2, replace(CONFIG, norm_first=norm_first)))
    for layer in decoder.layers:
        for attention in (layer.self_attention, layer.cross_attention):
            for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                setattr(attention, name, Halved(getattr(attention, name)))
        layer.feed_forward = Halved(layer.feed_forward)
        layer.norm1 = Halved(layer.norm1)
    memory, y = Tensor(normal(B, TS, D)), normal(B, TT, D, seed=1)
    want, cache = decoder(Tensor(y), memory, causal_mask(TT)).data, decoder.begin(memory)
    for t in range(TT):
        out, cache = decoder.extend(Tensor(y[:, t : t + 1]), cache)
        close(out.data, want[:, t : t + 1])


def test_a_layer_of_one_s_own_is_called():
    x, memory = Tensor(normal(B, TT, D)), Tensor(normal(B, TS, D, seed=1))
    for stack, inputs in ((Encoder(2, CONFIG), (x,)), (Decoder(2, CONFIG), (x, memory))):
        stack.norm = None
        setattr(stack.layers, "1", Halved(stack.layers[1]))
        halves = stack(*inputs).data
        setattr(stack.layers, "1", stack.layers[1].inner)
        close(halves, stack(*inputs).data / 2)

    class Rotated(MultiHeadAttention):
        def forward(self, x_q, x_kv, mask=None):
            return super().forward(x_q, x_kv, mask)

    for name in ("self_attention", "cross_attention"):
        decoder = Decoder(2, CONFIG)
        setattr(decoder.layers[1], name, Rotated(D, H))
        decoder(x, memory)
        with pytest.raises(TypeError):
            decoder.begin(memory)
    decoder.layers[0].forward = lambda *args: x
    with pytest.raises(TypeError):
        decoder.begin(memory)


def test_cross_attention_reads_the_memory():
    layer = double(DecoderLayer(CONFIG))
    x, memory = normal(2, TT, D), normal(2, TT, D, seed=1)  # equally long
    causal, padding = causal_mask(TT), padding_mask([TT, 2], TT)
    with watch_attention(layer) as seen:
        layer(Tensor(x), Tensor(memory), causal, padding)
    cross = seen[1].weights
    assert (cross.data[0] > 0).all()  # the first position reads all of the source
    assert (cross.data[1, ..., 2:] == 0).all()
    before = layer(Tensor(x), Tensor(memory), causal, padding).data
    changed = memory.copy()
    changed[0, -1] = normal(D, seed=2)
    after = layer(Tensor(x), Tensor(changed), causal, padding).data
    assert (after[0, 0] != before[0, 0]).any()
    assert (after[1] == before[1]).all()


@pytest.mark.parametrize("norm_first", [True, False])
def test_padded_sources_change_nothing(norm_first):
    model = Transformer(2, 2, replace(CONFIG, norm_first=norm_first))
    x, y = normal(B, TS, D).astype("f4"), normal(B, TT, D, seed=1).astype("f4")
    padding = padding_mask([7, 4, 2], TS)

    def run(x):
        return model(Tensor(x), Tensor(y), padding, causal_mask(TT), padding).data

    before, hidden = run(x), ~padding[:, 0, 0]
    changed = x.copy()
    changed[hidden] += normal(int(hidden.sum()), D, seed=2)
    assert (run(changed) == before).all()
    changed[0, 6] = normal(D, seed=3)
    assert (run(changed)[0] != before[0]).any()
    assert (run(changed)[1:] == before[1:]).all()  # nor does another sequence


def test_positions_mix_in_attention_only():
    layer = double(EncoderLayer(CONFIG))
    x = normal(1, 6, D)
    order = np.random.default_rng(1).permutation(6)
    close(layer(Tensor(x[:, order])).data, layer(Tensor(x)).data[:, order])
    alone = layer(Tensor(x), np.eye(6, dtype=bool)).data  # each reads itself
    for t in range(6):
        close(alone[:, t], layer(Tensor(x[:, t : t + 1])).data[:, 0])
    together = layer(Tensor(x)).data
    assert abs(alone - together).max() > 0.01


def test_gradients_by_depth():
    alone = gradient_lengths(1, True)[0]
    pre_first, pre_last = gradient_lengths(24, True)
    post_first, post_last = gradient_lengths(24, False)
    assert 0.7 * alone < pre_first
    assert pre_last < 0.6 * alone
    assert post_first < 0.7 * alone
    assert 0.9 * alone < post_last


def test_dropout_in_every_place():
    x, memory = Tensor(normal(4, 6, D)), Tensor(normal(4, 7, D, seed=1))
    for make, arguments in ((EncoderLayer, (x,)), (DecoderLayer, (x, memory))):
        plain = double(make(CONFIG, PCG32(0)))
        dropping = double(make(replace(CONFIG, dropout=0.4), PCG32(0)))
        close(dropping.eval()(*arguments).data, plain(*arguments).data)
        dropping.train()
        assert (dropping(*arguments).data != dropping(*arguments).data).any()
        places = dropping.rng_state()
        assert len(places) == (4 if make is EncoderLayer else 6)
        for place in places:  # each alone makes a difference
            one = double(make(replace(CONFIG, dropout=0.4), PCG32(0)))
            for path, module in one.named_modules():
                module.train(place in (path + ".rng", path + ".dropout_rng"))
            assert (one(*arguments).data != plain(*arguments).data).any(), place
    # what comes in is never dropped: with sublayers that add nothing, nothing changes
    layer = double(EncoderLayer(replace(CONFIG, dropout=0.4)))
    for name in ("self_attention.out_proj", "feed_forward.down"):
        for kind in ("weight", "bias"):
            dict(layer.named_parameters())[f"{name}.{kind}"].data *= 0
    assert (layer(x).data == x.data).all()


def test_dropout_streams_differ():
    model = Transformer(3, 2, replace(CONFIG, dropout=0.1))
    states = model.rng_state()
    assert len(states) == 3 * 4 + 2 * 6
    assert len({(s["seed"], s["stream"]) for s in states.values()}) == len(states)
    for path, state in states.items():
        assert state == PCG32(0).substream(path).state()
    x, y = Tensor(normal(2, 3, D)), Tensor(normal(2, 4, D))
    model(x, y)
    saved = model.rng_state()
    first = model(x, y).data
    again = Transformer(3, 2, replace(CONFIG, dropout=0.1))
    again.load_state_dict(model.state_dict())
    again.load_rng_state(saved)
    assert (again(x, y).data == first).all()
    rng, before = PCG32(7), default_generator().state()
    stacks = [Encoder(2, replace(CONFIG, dropout=0.1), rng=rng).rng_state() for _ in range(2)]
    drawn = [str(s) for stack in (states, *stacks) for s in stack.values()]
    assert len(set(drawn)) == len(drawn)
    assert default_generator().state() == before  # who brings a generator leaves it alone


def test_stack_alone_has_its_own_streams():
    for stack, count in ((Encoder, 8), (Decoder, 12)):
        states = stack(2, replace(CONFIG, dropout=0.1)).rng_state()
        assert len({(s["seed"], s["stream"]) for s in states.values()}) == len(states) == count


def test_parameter_names_and_counts():
    attention = [f"{p}_proj.{k}" for p in ("q", "k", "v", "out") for k in ("weight", "bias")]
    network = [f"{p}.{k}" for p in ("up", "down") for k in ("weight", "bias")]

    def norms(n):
        return [f"norm{i}.{k}" for i in range(1, n + 1) for k in ("weight", "bias")]

    encoder = [f"self_attention.{n}" for n in attention]
    encoder += [f"feed_forward.{n}" for n in network]
    assert list(EncoderLayer(CONFIG).state_dict()) == encoder + norms(2)
    decoder = [f"{a}_attention.{n}" for a in ("self", "cross") for n in attention]
    decoder += [f"feed_forward.{n}" for n in network]
    assert list(DecoderLayer(CONFIG).state_dict()) == decoder + norms(3)
    for layer, count in (
        (EncoderLayer, 12 * 64**2 + 13 * 64),
        (DecoderLayer, 16 * 64**2 + 19 * 64),
    ):
        assert sum(p.size for p in layer(LayerConfig(64, 4, 256)).parameters()) == count
    names = list(Transformer(2, 1, CONFIG).state_dict())
    assert names[0] == "encoder.layers.0.self_attention.q_proj.weight"
    assert names[-1] == "decoder.norm.bias"
    assert sum(name.startswith("encoder.layers.1.") for name in names) == 16


def test_init_from_one_generator():
    layer, rng = EncoderLayer(CONFIG, rng=PCG32(3)), PCG32(3)
    bound = 1 / math.sqrt(D)
    assert (layer.self_attention.q_proj.weight.data == rng.uniform(-bound, bound, (D, D))).all()
    for p in (layer.norm1, layer.norm2):
        assert (p.weight.data == 1).all()
        assert (p.bias.data == 0).all()
        assert p.weight.dtype == np.float32
    one, two = (Encoder(2, CONFIG, rng=PCG32(0)).state_dict() for _ in range(2))
    assert all((one[name] == two[name]).all() for name in one)
    first, second = (Encoder(2, CONFIG).state_dict() for _ in range(2))
    assert all((one[name] == first[name]).all() for name in one)
    assert (first["norm.weight"] == second["norm.weight"]).all()
    assert (
        first["layers.0.self_attention.q_proj.bias"]
        != second["layers.0.self_attention.q_proj.bias"]
    ).all()
    weight = "layers.{}.feed_forward.up.weight"
    assert (one[weight.format(0)] != one[weight.format(1)]).all()


def test_final_norm():
    x = Tensor(normal(2, 3, D).astype("f4"))
    for norm_first in (True, False):
        assert (Encoder(1, replace(CONFIG, norm_first=norm_first)).norm is not None) == norm_first
        assert (Decoder(1, replace(CONFIG, norm_first=norm_first)).norm is not None) == norm_first
        for final in (True, False):
            stack = Encoder(1, replace(CONFIG, norm_first=norm_first), final_norm=final)
            assert (stack.norm is not None) == final
    bare = Encoder(2, CONFIG, final_norm=False, rng=PCG32(0))
    full = Encoder(2, CONFIG, rng=PCG32(0))
    close(full(x).data, LayerNorm(D)(bare(x)).data, 1e-6)


def test_dtype_stays():
    x, memory = leaf(normal(2, 3, D).astype("f4")), leaf(normal(2, 4, D).astype("f4"))
    for activation in ("relu", "gelu", "gelu_tanh"):
        model = Transformer(1, 1, LayerConfig(D, H, FF, 0.1, activation))
        out = model(memory, x, None, causal_mask(3), padding_mask([4, 2], 4))
        out.backward(np.ones(out.shape, "f4"))
        assert out.dtype == x.grad.dtype == memory.grad.dtype == np.float32
        assert all(p.grad.dtype == np.float32 for p in model.parameters())


def test_validation():
    for call in [
        lambda: LayerNorm(0),
        lambda: LayerNorm(2.0),
        lambda: LayerNorm(4, eps=0),
        lambda: FeedForward(4, 0),
        lambda: FeedForward(4, 8, "swish"),
        lambda: EncoderLayer(LayerConfig(8, 3, 4)),
        lambda: EncoderLayer(LayerConfig(0, 3, 4)),
        lambda: Encoder(0, CONFIG),
        lambda: Decoder(True, CONFIG),
        lambda: EncoderLayer(LayerConfig(D, H, FF, dropout=1.0)),
        lambda: LayerNorm(4)(Tensor(np.ones((2, 3)))),
        lambda: LayerNorm(1)(Tensor(1.0)),
        lambda: EncoderLayer(CONFIG)(Tensor(np.ones((2, 3, 4)))),
        lambda: DecoderLayer(CONFIG)(Tensor(np.ones((2, 3, D))), Tensor(np.ones((1, 3, D)))),
    ]:
        with pytest.raises(ValueError):
            call()
    with pytest.raises(TypeError):
        EncoderLayer(CONFIG)(Tensor(np.ones((2, 3, D), "f4")), np.ones((3, 3)))
    floats, whole, array = Tensor(np.ones(4)), Tensor(np.ones(4, int)), np.ones((1, 2, D))
    for call in [
        lambda: layer_norm(whole, floats, floats),
        lambda: layer_norm(floats, whole, floats),
        lambda: layer_norm(floats, floats, Tensor(np.ones(4, bool))),
        lambda: gelu(whole),
        lambda: gelu_tanh(whole),
        lambda: layer_norm(array, floats, floats),
        lambda: layer_norm(floats, None, None),
        lambda: relu(array),
        lambda: gelu(2.0),
        lambda: gelu_tanh([1.0]),
        lambda: LayerNorm(D)(array),
        lambda: EncoderLayer(CONFIG)(array),
        lambda: EncoderLayer(replace(CONFIG, norm_first=False))(array),
        lambda: DecoderLayer(CONFIG)(Tensor(array), array),
        lambda: Decoder(1, CONFIG).begin(array),
    ]:
        with pytest.raises(TypeError):
            call()
    for make in (
        lambda rng: MultiHeadAttention(8, 2, rng=rng),
        lambda rng: FeedForward(8, 8, rng=rng),
        lambda rng: EncoderLayer(CONFIG, rng),
        lambda rng: DecoderLayer(CONFIG, rng),
        lambda rng: Encoder(1, CONFIG, rng=rng),
        lambda rng: Transformer(1, 1, CONFIG, rng=rng),
    ):
        with pytest.raises(TypeError):
            make(0)
    assert "norm1: LayerNorm(8, eps=1e-05)" in repr(EncoderLayer(CONFIG))
    assert "FeedForward(relu)" in repr(EncoderLayer(CONFIG))
    with pytest.raises(FrozenInstanceError):
        CONFIG.d_ff = 4
