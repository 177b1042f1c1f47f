"""The model written again in torch from GPT-2's arrays; drawing tokens by hand; then faults."""

import numpy as np
import pytest
import torch

from tinyllm.models.gpt import (
    GPT,
    GPTConfig,
    generate,
    gpt2_arrays,
    load_gpt2_arrays,
    probabilities,
)
from tinyllm.num.pcg32 import PCG32

F = torch.nn.functional


def build(seed=1, **changes):
    model = GPT(
        GPTConfig(
            **{"n_tokens": 11, "context": 8, "d_model": 12, "n_heads": 3, "n_layers": 2, **changes}
        ),
        PCG32(seed),
    )
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data = rng.normal(size=p.shape, scale=0.4)
    return model


def again(arrays, ids, heads, mask=None, eps=1e-5):
    a = {n: x if isinstance(x, torch.Tensor) else torch.tensor(x) for n, x in arrays.items()}
    ids = torch.tensor(ids)
    T, d = ids.shape[1], a["wte.weight"].shape[1]
    x = a["wte.weight"][ids] + a["wpe.weight"][:T]
    allowed = torch.ones(T, T).tril().bool()[None, None]
    if mask is not None:
        allowed = allowed & torch.tensor(mask)[:, None, None, :]

    def norm(x, name):
        return F.layer_norm(x, (d,), a[f"{name}.weight"], a[f"{name}.bias"], eps)

    for i in range(sum(n.endswith("ln_1.weight") for n in a)):
        h = f"h.{i}"
        y = norm(x, f"{h}.ln_1") @ a[f"{h}.attn.c_attn.weight"] + a[f"{h}.attn.c_attn.bias"]
        q, k, v = (s.reshape(*ids.shape, heads, -1).transpose(1, 2) for s in y.split(d, -1))
        score = (q @ k.transpose(-1, -2)) / (d / heads) ** 0.5
        w = score.masked_fill(~allowed, -1e30).softmax(-1) * allowed
        y = (w @ v).transpose(1, 2).reshape(x.shape)
        x = x + y @ a[f"{h}.attn.c_proj.weight"] + a[f"{h}.attn.c_proj.bias"]
        y = norm(x, f"{h}.ln_2") @ a[f"{h}.mlp.c_fc.weight"] + a[f"{h}.mlp.c_fc.bias"]
        y = F.gelu(y, approximate="tanh")
        x = x + y @ a[f"{h}.mlp.c_proj.weight"] + a[f"{h}.mlp.c_proj.bias"]
    return norm(x, "ln_f") @ a["wte.weight"].T


@pytest.mark.parametrize(
    "changes", [{}, {"n_heads": 1, "n_layers": 1}, {"n_layers": 4, "eps": 0.1}]
)
def test_logits(changes):
    model = build(**changes)
    heads, eps = model.config.n_heads, model.config.eps
    ids = np.random.default_rng(0).integers(0, 11, (3, 8))
    for T in (1, 5, 8):
        want = again(gpt2_arrays(model), ids[:, :T], heads, eps=eps).numpy()
        np.testing.assert_allclose(model(ids[:, :T]).data, want, rtol=1e-8, atol=1e-9)
    mask = np.ones((3, 8), bool)
    mask[0, :3], mask[1, 5:] = False, False
    got = model(ids, mask).data
    want = again(gpt2_arrays(model), ids, heads, mask, eps).numpy()
    np.testing.assert_allclose(got[mask], want[mask], rtol=1e-8, atol=1e-9)
    ids[~mask] = 4
    np.testing.assert_allclose(model(ids, mask).data[mask], got[mask], rtol=1e-9)
    later = ids.copy()
    later[:, 5:] = 0
    np.testing.assert_allclose(model(later).data[:, :5], model(ids).data[:, :5], rtol=1e-9)


def test_loss_and_gradients():
    model = build()
    ids = np.random.default_rng(1).integers(0, 9, (2, 7))
    arrays = {n: torch.tensor(x, requires_grad=True) for n, x in gpt2_arrays(model).items()}
    want = F.cross_entropy(
        again(arrays, ids[:, :-1], 3).reshape(-1, 11), torch.tensor(ids[:, 1:]).reshape(-1)
    )
    loss = model.loss(ids)
    np.testing.assert_allclose(loss.item(), want.item(), rtol=1e-10)
    loss.backward()
    want.backward()
    for p, name in ((model.tokens, "wte"), (model.positions, "wpe"), (model.blocks.norm, "ln_f")):
        np.testing.assert_allclose(
            p.weight.grad, arrays[f"{name}.weight"].grad.numpy(), rtol=1e-7, atol=1e-10
        )
    for wrong in ([[1]], [1, 2], [[1, 11]], [[[1, 2]]]):
        with pytest.raises(ValueError):
            model.loss(wrong)


def test_refused():
    model = build()
    for ids in ([1, 2], [[0] * 9], [[11]], [[-1]], [[[1]]]):
        with pytest.raises(ValueError):
            model(ids)
    for mask in ([[True]], [True, True], [[1, 0]], [[[True, True]]]):
        with pytest.raises(ValueError):
            model([[1, 2]], mask)


def test_beginning():
    model = GPT(GPTConfig(500, 100, 64, 4, 8), PCG32(5))
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            assert (p.data == 0).all()
        elif "norm" in name:
            assert (p.data == 1).all()
        else:
            std = 0.02 / 4 if "out_proj" in name or "down" in name else 0.02
            assert abs(p.data.std() / std - 1) < 0.1
            assert abs(p.data.mean()) < std / 10
    assert (model.tokens.weight.shape, model.positions.weight.shape) == ((500, 64), (100, 64))
    same = GPT(GPTConfig(500, 100, 64, 4, 8), PCG32(5))
    assert (same.tokens.weight.data == model.tokens.weight.data).all()


def test_dropout():
    model = build(dropout=0.5)
    ids = [[1, 2, 3, 4]]
    assert (model(ids).data != model(ids).data).any()
    drops = {n: m for n, m in model.named_modules() if type(m).__name__ == "Dropout"}
    assert {m.p for n, m in drops.items() if "feed_forward" in n} <= {0.0}
    assert all(m.p == 0.5 for n, m in drops.items() if "feed_forward" not in n)
    assert model.dropout.p == 0.5
    for layer in model.blocks.layers:
        assert layer.dropout1.p == layer.dropout2.p == 0.5
    states = [s["stream"] + s["seed"] for s in model.rng_state().values()]
    assert len(set(states)) == len(states)
    model.eval()
    np.testing.assert_array_equal(model(ids).data, model(ids).data)


def by_hand(z, temperature=1.0, k=None, p=None):
    order = sorted(range(len(z)), key=lambda i: (-z[i], i))
    if temperature == 0:
        order = order[:1]
    e = {i: np.exp((z[i] - max(z)) / (temperature or 1)) for i in order[:k]}
    total, seen, kept = sum(e.values()), 0.0, {}
    for i in order[:k]:
        if p is None or seen < p - 1e-12:
            kept[i] = e[i]
        seen += e[i] / total
    return [kept.get(i, 0) / sum(kept.values()) for i in range(len(z))]


def test_probabilities():
    z = [0.3, 2.0, -1.0, 2.0, 0.3, 5.0, -400.0]
    for temperature in (0, 0.1, 0.7, 1, 3.0):
        for k in (None, 1, 2, 3, 6, 99):
            for p in (None, 0.05, 0.5, 0.93, 0.99, 1.0):
                got = probabilities(z, temperature, k, p)
                assert got.dtype == np.float64
                np.testing.assert_allclose(
                    got, by_hand(z, temperature, k, p), rtol=1e-9, atol=1e-12
                )
    np.testing.assert_allclose(probabilities(np.log([0.6, 0.4]), top_p=0.5), [1, 0])
    for wrong in (
        {"temperature": -1},
        {"temperature": np.inf},
        {"temperature": np.nan},
        {"top_k": 0},
        {"top_p": 0.0},
        {"top_p": 1.1},
    ):
        with pytest.raises(ValueError):
            probabilities(z, **wrong)
    for bad in ([[1.0]], [np.nan, 1.0], 1.0):
        with pytest.raises(ValueError):
            probabilities(bad)


def test_generate():
    model = build()
    for settings in ({}, {"temperature": 0}, {"temperature": 0.5, "top_k": 4}, {"top_p": 0.7}):
        rng, known = PCG32(7), [1, 2, 3]
        for _ in range(20):
            row = again(gpt2_arrays(model), [known[-8:]], 3)[0, -1].numpy()
            cut = {"temperature": 1.0, **settings}
            q = by_hand(row, cut["temperature"], cut.get("top_k"), cut.get("top_p"))
            u = rng.uniform(0.0, 1.0)
            known.append(int(min(np.searchsorted(np.cumsum(q), u, side="right"), 10)))
            if settings.get("temperature") == 0:
                known[-1] = int(np.argmax(row))
        mine = PCG32(7)
        got = list(generate(model, [1, 2, 3], 20, rng=mine, **settings))
        assert len(got) == 20
        assert all(type(i) is int for i in got)
        if settings.get("temperature") == 0:
            assert got == known[3:]
        again_rng = PCG32(7)
        assert got == list(generate(model, [1, 2, 3], 20, rng=again_rng, **settings))
    long = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    one = list(generate(model, long, 1, temperature=0))
    assert one == [int(model([long[-8:]]).data[0, -1].argmax())]
    assert list(generate(model, [1], 0)) == []
    for ids, n, settings in (([], 1, {}), ([1], -1, {}), ([1], 1.5, {}), ([1], 1, {"top_k": 0})):
        with pytest.raises(ValueError):
            list(generate(model, ids, n, **settings))


def test_arrays():
    one, two = build(1), build(2)
    arrays = gpt2_arrays(one)
    assert arrays["h.0.attn.c_attn.weight"].shape == (12, 36)
    assert arrays["h.1.mlp.c_fc.weight"].shape == (12, 48)
    assert all(a.flags.c_contiguous for a in arrays.values())
    layer = one.blocks.layers[1]
    for i, name in enumerate("qkv"):
        p = getattr(layer.self_attention, f"{name}_proj").weight.data
        np.testing.assert_array_equal(
            arrays["h.1.attn.c_attn.weight"][:, 12 * i : 12 * i + 12], p.T
        )
    before = two.state_dict()
    for changes in (
        {"odd": np.ones(1)},
        {"ln_f.bias": None},
        {"wpe.weight": np.ones((9, 12))},
        {"ln_f.bias": np.ones(12, int)},
        {"lm_head.weight": np.ones((11, 12))},
    ):
        bad = {n: a for n, a in {**arrays, **changes}.items() if a is not None}
        with pytest.raises(ValueError):
            load_gpt2_arrays(two, bad)
        for n, a in two.state_dict().items():
            np.testing.assert_array_equal(a, before[n])
    more = {
        **arrays,
        "h.0.attn.bias": np.ones((1, 1, 8, 8)),
        "h.1.attn.masked_bias": np.array(-1e4),
        "lm_head.weight": arrays["wte.weight"],
    }
    load_gpt2_arrays(
        two, {f"transformer.{n}" if n != "lm_head.weight" else n: a for n, a in more.items()}
    )
    for n, a in gpt2_arrays(two).items():
        np.testing.assert_array_equal(a, arrays[n])
    np.testing.assert_allclose(two([[1, 2, 3]]).data, one([[1, 2, 3]]).data, rtol=1e-12)
    arrays["wte.weight"] += 1
    assert (gpt2_arrays(two)["wte.weight"] != arrays["wte.weight"]).all()
