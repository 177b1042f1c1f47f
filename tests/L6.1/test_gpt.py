# Tangled from book/3-language-models/L6.1-tests.md
"""Tests of L6.1, GPT. The oracle is GPT-2 in torch, from arrays in Hugging Face's layout."""

import math

import numpy as np
import pytest
import torch

from tinyllm.autograd import no_grad
from tinyllm.models.gpt import (
    GPT,
    GPTConfig,
    generate,
    gpt2_arrays,
    load_gpt2_arrays,
    probabilities,
)
from tinyllm.num.pcg32 import PCG32, default_generator, manual_seed
from tinyllm.tensor import Tensor


def formula(arrays, n_heads, ids, mask=None):
    """GPT-2's logits [B, T, V]: arrays are float64 tensors by Hugging Face's names."""
    w, T = arrays, ids.shape[1]
    d = w["wte.weight"].shape[1]
    allowed = torch.ones(T, T).tril().bool()[None, None]
    if mask is not None:
        allowed = allowed & torch.as_tensor(mask)[:, None, None, :]
    x = w["wte.weight"][torch.as_tensor(ids)] + w["wpe.weight"][:T]

    def norm(a, name):
        return torch.nn.functional.layer_norm(a, (d,), w[f"{name}.weight"], w[f"{name}.bias"])

    def dense(a, name):
        return a @ w[f"{name}.weight"] + w[f"{name}.bias"]

    def heads(a):
        return a.reshape(*a.shape[:2], n_heads, -1).transpose(1, 2)

    for i in range(sum(name.endswith("ln_1.bias") for name in w)):
        q, k, v = dense(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").split(d, dim=-1)
        scores = heads(q) @ heads(k).transpose(2, 3) / math.sqrt(d // n_heads)
        weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1).nan_to_num(0.0)
        context = (weights @ heads(v)).transpose(1, 2).reshape(x.shape)
        x = x + dense(context, f"h.{i}.attn.c_proj")
        hidden = dense(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
        bent = torch.nn.functional.gelu(hidden, approximate="tanh")
        x = x + dense(bent, f"h.{i}.mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def made(n_tokens=17, context=9, d_model=8, n_heads=2, n_layers=2, seed=0, **more):
    """A model in evaluation mode and float64 whose numbers are all drawn, biases and norms too."""
    model = GPT(GPTConfig(n_tokens, context, d_model, n_heads, n_layers, **more), PCG32(seed))
    rng = PCG32(seed + 100)
    for path, parameter in model.named_parameters():
        centre = 1.0 if "norm" in path and path.endswith("weight") else 0.0
        parameter.data[...] = rng.normal(centre, 0.4, parameter.shape)
    return model.astype(np.float64).eval()


def tokens(model, B, T, seed=1):
    return PCG32(seed).integers(0, model.config.n_tokens, B * T).reshape(B, T)


SIZES = [
    {},
    {"d_model": 12, "n_heads": 12, "n_layers": 1},
    {"d_model": 6, "n_heads": 1, "n_layers": 5},
    {"d_model": 40, "n_heads": 5, "context": 70, "n_tokens": 300},
]


def padding(kind, B, T):
    if kind == "none":
        return None
    lengths = [(3 * b) % T + 1 for b in range(B)]
    right = np.arange(T) < np.array(lengths)[:, None]
    return right if kind == "right" else right[:, ::-1].copy()


@pytest.mark.parametrize("pad", ["none", "right", "left"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_logits_equal_the_formula_s(sizes, pad):
    model = made(**sizes)
    for B, T in ((1, 1), (3, 5), (5, model.config.context)):
        ids, mask = tokens(model, B, T), padding(pad, B, T)
        theirs = {n: torch.tensor(a, requires_grad=True) for n, a in gpt2_arrays(model).items()}
        wanted = formula(theirs, model.config.n_heads, ids, mask)
        grad = PCG32(7).normal(0.0, 1.0, wanted.shape).astype(np.float64)
        if mask is not None:
            grad *= mask[..., None]  # what padding predicts is nobody's business
        model.zero_grad()
        found = model(ids, mask)
        found.backward(grad)
        wanted.backward(torch.tensor(grad))
        there = slice(None) if mask is None else mask
        np.testing.assert_allclose(found.data[there], wanted.detach().numpy()[there], atol=1e-10)
        ours = GPT(model.config, PCG32(1)).astype(
            np.float64
        )  # a model of gradients, to rename them
        for to, source in zip(ours.parameters(), model.parameters(), strict=True):
            to.data[...] = source.grad
        for name, gradient in gpt2_arrays(ours).items():
            np.testing.assert_allclose(gradient, theirs[name].grad.numpy(), atol=1e-9, err_msg=name)


def test_hand_example():
    model = GPT(GPTConfig(4, 2, 2, 1, 1), PCG32(0))
    for parameter in model.parameters():
        parameter.data[...] = 0.0
    model.tokens.weight.data[...] = [[1, 0], [0, 1], [-1, 0], [2, 2]]
    model.positions.weight.data[...] = [[0, 0], [1, 0]]
    model.blocks.norm.weight.data[...] = 1.0
    np.testing.assert_allclose(model([[1, 0]]).data[0], [[-1, 1, 1, 0], [1, -1, -1, 0]], atol=1e-4)
    wanted = math.log(math.exp(-1) + 2 * math.e + 1) + 1
    np.testing.assert_allclose(model.loss([[1, 0]]).data, wanted, atol=1e-4)


def test_nothing_comes_from_the_future():
    model = made(context=40, n_tokens=50)
    ids = tokens(model, 2, 40)
    before = model(ids).data
    for t in (0, 1, 20, 38):
        other = ids.copy()
        other[:, t + 1 :] = (other[:, t + 1 :] + 1) % 50
        after = model(other).data
        np.testing.assert_allclose(after[:, : t + 1], before[:, : t + 1], atol=1e-12)
        assert (abs(after[:, t + 1 :] - before[:, t + 1 :]).max(axis=-1) > 1e-6).all()
        np.testing.assert_allclose(model(ids[:, : t + 1]).data, before[:, : t + 1], atol=1e-12)


def test_padding_is_not_read():
    model = made(context=12)
    ids = tokens(model, 4, 12)
    for kind in ("left", "right"):
        mask = padding(kind, 4, 12)
        other = np.where(mask, ids, (ids + 1) % 17)
        assert (other != ids).any()
        first, second = model(ids, mask).data, model(other, mask).data
        np.testing.assert_array_equal(first[mask], second[mask])
    with no_grad():
        assert not model(ids).requires_grad


def test_loss_is_of_the_next_token():
    model = made()
    for B, T in ((1, 2), (3, 9), (6, 4)):
        ids = tokens(model, B, T)
        z = model(ids[:, :-1]).data
        picked = np.take_along_axis(z, ids[:, 1:, None], axis=-1)[..., 0]
        wanted = (np.log(np.exp(z).sum(axis=-1)) - picked).mean()
        np.testing.assert_allclose(model.loss(ids).data, wanted, rtol=1e-12)
    for wrong in ([1, 2, 3], [[1]]):
        with pytest.raises(ValueError):
            model.loss(wrong)


def test_wrong_arguments():
    model = made()
    for ids in ([1, 2], [[[1]]], [[17]], [[-1]], np.zeros((1, 10), int)):
        with pytest.raises(ValueError):
            model(ids)
    with pytest.raises((TypeError, ValueError)):
        model([[0.5]])
    ids = tokens(model, 2, 3)
    for mask in (
        np.ones((2, 3)),
        np.ones((2, 4), bool),
        np.ones(3, bool),
        np.ones((2, 1, 3), bool),
    ):
        with pytest.raises(ValueError):
            model(ids, mask)


@pytest.mark.parametrize("n_layers", [1, 9])
def test_initialisation(n_layers):
    model = GPT(GPTConfig(400, 60, 96, 4, n_layers), PCG32(3))
    seen = []
    for path, parameter in model.named_parameters():
        if path.endswith("bias"):
            assert (parameter.data == 0).all(), path
        elif "norm" in path:
            assert (parameter.data == 1).all(), path
        else:
            adds = path.endswith(("out_proj.weight", "down.weight"))
            std = 0.02 / math.sqrt(2 * n_layers) if adds else 0.02
            np.testing.assert_allclose(parameter.data.std(), std, rtol=0.05, err_msg=path)
            assert abs(parameter.data.mean()) < std / 10
            seen.append(parameter.data.reshape(-1)[:50].tobytes())
    assert len(set(seen)) == len(seen) == 2 + 6 * n_layers
    ids = tokens(model, 4, 60)
    np.testing.assert_allclose(model.loss(ids).data, math.log(400), atol=0.1)
    again = GPT(model.config, PCG32(3)).state_dict()
    assert all((again[path] == array).all() for path, array in model.state_dict().items())
    manual_seed(3)
    by_default = GPT(model.config).state_dict()["tokens.weight"]
    manual_seed(3)
    assert (by_default == GPT(model.config, default_generator()).tokens.weight.data).all()


def test_dropout():
    model = made(d_model=32, n_heads=4, n_tokens=40, dropout=0.5)
    ids = tokens(model, 3, 9)
    exact = model(ids).data
    np.testing.assert_array_equal(model(ids).data, exact)
    model.train()
    assert (model(ids).data != model(ids).data).any()
    block = model.blocks.layers[0]
    x = Tensor(PCG32(1).normal(0.0, 1.0, (2, 3, 32)).astype(np.float64))
    np.testing.assert_array_equal(block.feed_forward(x).data, block.feed_forward(x).data)
    for place in (model.dropout, block.dropout1, block.dropout2):
        assert (place(x).data == 0).any()
    assert (block.self_attention(x, x).data != block.self_attention(x, x).data).any()
    states = [str(state) for state in model.rng_state().values()]
    assert len(set(states)) == len(states)
    np.testing.assert_array_equal(model.eval()(ids).data, exact)
    with pytest.raises(ValueError):
        made(dropout=1.0)


def test_state_between_calls():
    model, other = made(), made(seed=5)
    ids = tokens(model, 2, 7)
    wanted = other(ids).data
    model(ids)
    model.load_state_dict(other.state_dict())
    np.testing.assert_array_equal(model(ids).data, wanted)
    np.testing.assert_allclose(model.astype(np.float32)(ids).data, wanted, atol=1e-4)
    assert model(ids).dtype == np.float32
    for T in (9, 1, 7):
        np.testing.assert_allclose(
            model(tokens(model, 2, T)).data, other(tokens(other, 2, T)).data, atol=1e-4
        )


def test_gpt2_layout():
    model = made(d_model=6, n_heads=2, n_layers=2)
    arrays = gpt2_arrays(model)
    state = model.state_dict()
    assert arrays["h.1.attn.c_attn.weight"].shape == (6, 18)
    assert arrays["h.0.mlp.c_fc.weight"].shape == (6, 24)
    for place, name in enumerate("qkv"):
        weight = state[f"blocks.layers.1.self_attention.{name}_proj.weight"]
        bias = state[f"blocks.layers.1.self_attention.{name}_proj.bias"]
        assert arrays["h.1.attn.c_attn.weight"][4, 6 * place + 1] == weight[1, 4]
        assert arrays["h.1.attn.c_attn.bias"][6 * place + 1] == bias[1]
    up = state["blocks.layers.0.feed_forward.up.weight"]
    assert arrays["h.0.mlp.c_fc.weight"][2, 20] == up[20, 2]
    out = state["blocks.layers.0.self_attention.out_proj.weight"]
    assert arrays["h.0.attn.c_proj.weight"][5, 1] == out[1, 5]
    assert arrays["wpe.weight"].shape == (9, 6)
    assert len(arrays) == 2 + 2 * 12 + 2
    assert all(array.flags.c_contiguous for array in arrays.values())
    arrays["wte.weight"][...] = 0  # a copy
    assert (model.tokens.weight.data != 0).any()


@pytest.mark.parametrize("prefix", ["", "transformer."])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_gpt2_arrays_come_back(prefix, dtype):
    model = made()
    arrays = {prefix + name: array.astype(dtype) for name, array in gpt2_arrays(model).items()}
    extra = {f"{prefix}h.0.attn.bias": np.ones((1, 1, 9, 9), bool)}
    extra[f"{prefix}h.1.attn.masked_bias"] = np.float32(-1e4)
    extra["lm_head.weight"] = arrays[f"{prefix}wte.weight"]
    loaded = made(seed=8).astype(np.float32)
    load_gpt2_arrays(loaded, arrays | extra)
    ids = tokens(model, 2, 9)
    tolerance = 0.05 if dtype == np.float16 else 1e-4
    np.testing.assert_allclose(loaded(ids).data, model(ids).data, atol=tolerance)
    assert loaded(ids).dtype == np.float32
    for name, array in gpt2_arrays(loaded).items():
        np.testing.assert_array_equal(array, arrays[prefix + name].astype(np.float32))
    assert (arrays[f"{prefix}wte.weight"] == gpt2_arrays(model)["wte.weight"].astype(dtype)).all()


def test_what_does_not_fit_is_refused():
    arrays = gpt2_arrays(made())
    for change in (
        {"wte.weight": arrays["wte.weight"][:, :4]},
        {"h.0.ln_1.bias": np.zeros(8, int)},
        {"h.2.ln_1.bias": np.zeros(8)},
        {"lm_head.weight": arrays["wte.weight"] + 1},
        {"h.0.attn.c_attn.weight": arrays["h.0.attn.c_attn.weight"].T},
    ):
        model = made(seed=4)
        before = model.state_dict()
        with pytest.raises(ValueError):
            load_gpt2_arrays(model, arrays | change)
        for name in ("ln_f.bias", "h.1.mlp.c_fc.weight"):
            with pytest.raises(ValueError):
                load_gpt2_arrays(model, {n: a for n, a in arrays.items() if n != name})
        assert all((before[path] == a).all() for path, a in model.state_dict().items())


def test_probabilities():
    p = np.array([0.1, 0.4, 0.2, 0.3])
    z = np.log(p) + 3.0
    np.testing.assert_allclose(probabilities(z), p, atol=1e-12)
    np.testing.assert_allclose(probabilities(z, temperature=0.5), p**2 / (p**2).sum(), atol=1e-12)
    np.testing.assert_allclose(probabilities(z, temperature=1e300), [0.25] * 4, atol=1e-12)
    np.testing.assert_array_equal(probabilities(z, temperature=0.0), [0, 1, 0, 0])
    np.testing.assert_allclose(probabilities(z, top_k=2), [0, 4 / 7, 0, 3 / 7], atol=1e-12)
    np.testing.assert_allclose(probabilities(z, top_k=9), p, atol=1e-12)
    for top_p, kept in (
        (1e-9, [1]),
        (0.39, [1]),
        (0.41, [1, 3]),
        (0.69, [1, 3]),
        (0.71, [1, 2, 3]),
    ):
        wanted = np.zeros(4)
        wanted[kept] = p[kept] / p[kept].sum()
        np.testing.assert_allclose(probabilities(z, top_p=top_p), wanted, atol=1e-12)
    np.testing.assert_allclose(probabilities(z, top_p=1.0), p, atol=1e-12)
    both = probabilities(z, temperature=0.5, top_k=3, top_p=0.6)  # 16, 9, 4 of 29
    np.testing.assert_allclose(both, [0, 16 / 25, 0, 9 / 25], atol=1e-12)
    np.testing.assert_array_equal(probabilities([1.0, 1.0, 1.0], top_k=1), [1, 0, 0])
    np.testing.assert_array_equal(probabilities([0.0, -np.inf], top_k=2), [1, 0])
    far = probabilities(np.array([1000.0, 0.0, -1000.0], np.float32))
    np.testing.assert_array_equal(far, [1, 0, 0])
    assert far.dtype == np.float64
    for wrong in (
        {"temperature": -1.0},
        {"temperature": math.inf},
        {"temperature": math.nan},
        {"top_k": 0},
        {"top_k": 1.5},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_p": math.nan},
    ):
        with pytest.raises(ValueError):
            probabilities(z, **wrong)
    for logits in ([], [[1.0]], [math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf]):
        with pytest.raises(ValueError):
            probabilities(logits)


def test_generate():
    model = made(context=6)
    begun = [3, 1, 4]
    known = list(begun)
    for token in generate(model, begun, 12, temperature=0.0):
        wanted = int(model([known[-6:]]).data[0, -1].argmax())
        assert token == wanted
        known.append(token)
    assert len(known) == 15
    assert begun == [3, 1, 4]
    first = list(generate(model, begun, 30, rng=PCG32(4)))
    assert first == list(generate(model, np.array(begun), 30, rng=PCG32(4)))
    assert first != list(generate(model, begun, 30, rng=PCG32(5)))
    rng = PCG32(4)
    for token, before in zip(first, range(30), strict=True):
        chances = probabilities(model([(begun + first[:before])[-6:]]).data[0, -1])
        assert token == int(
            np.searchsorted(np.cumsum(chances), rng.uniform(0.0, 1.0, (1,))[0], "right")
        )
    often = [next(generate(model, begun, 1, top_k=2, rng=PCG32(i))) for i in range(60)]
    two = np.flatnonzero(probabilities(model([begun]).data[0, -1], top_k=2))
    assert set(often) == set(two.tolist())
    assert list(generate(model, begun, 0)) == []
    stream = generate(model, begun, 10**9, rng=PCG32(0))
    assert next(stream) in range(17)
    for ids, n in (([], 1), (begun, -1), (begun, 1.5)):
        with pytest.raises(ValueError):
            list(generate(model, ids, n))
    for ids in ([1.7], "12", [None], [[1, 2]]):
        with pytest.raises((TypeError, ValueError)):
            list(generate(model, ids, 1))
    manual_seed(1)
    by_default = list(generate(model, begun, 20))
    manual_seed(1)
    assert by_default == list(generate(model, begun, 20, rng=default_generator()))
