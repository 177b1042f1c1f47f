# Tangled from book/2-transformer/L5.3-tests.md
"""Tests of L5.3, multi-head attention. The oracle is torch.nn.MultiheadAttention."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch

from tinyllm.nn import Linear, Module
from tinyllm.num.gradcheck import gradcheck
from tinyllm.num.pcg32 import PCG32, default_generator, manual_seed
from tinyllm.tensor import Tensor
from tinyllm.xfmr.masks import causal_mask, combine_masks, padding_mask
from tinyllm.xfmr.mha import MultiHeadAttention


@pytest.fixture(autouse=True)
def seeded():
    """What is built without a generator is the same in every test."""
    manual_seed(0)


NAMES = [f"{layer}_proj.{part}" for layer in ("q", "k", "v", "out") for part in ("weight", "bias")]


def draw(*shape, seed=1):
    return PCG32(seed).normal(0.0, 1.0, shape, np.float64)


def module(d=8, H=2, bias=True, seed=3, **options):
    """A module in float64, biases too of a size that shows."""
    mha = MultiHeadAttention(d, H, bias=bias, **options).astype(np.float64)
    for i, p in enumerate(mha.parameters()):
        p.data = draw(*p.shape, seed=seed + i) / (2 if p.ndim == 2 else 1)
    return mha


def formula(mha, x_q, x_kv, mask=None):
    """Output and weights, straight from the definition; mask [B, H, Tq, Tk] or None."""
    state, H = mha.state_dict(), mha.n_heads
    d = x_q.shape[-1]

    def project(name, x):
        return x @ state[f"{name}.weight"].T + state.get(f"{name}.bias", 0)

    heads, weights = [], []
    for h in range(H):
        own = slice(h * d // H, (h + 1) * d // H)
        q, k, v = project("q_proj", x_q), project("k_proj", x_kv), project("v_proj", x_kv)
        scores = np.einsum("bqc,bkc->bqk", q[..., own], k[..., own]) / np.sqrt(d // H)
        if mask is not None:
            scores = np.where(mask[:, h], scores, -np.inf)
        e = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights.append(e / e.sum(axis=-1, keepdims=True))
        heads.append(weights[-1] @ v[..., own])
    return project("out_proj", np.concatenate(heads, axis=-1)), np.stack(weights, axis=1)


PATHS = {"attend": lambda m, *args: m.attend(*args)[0], "forward": lambda m, *args: m(*args)}
both_paths = pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)


def run(path, mha, x_q, x_kv, grad, mask=None):
    """The output, and the gradients of both inputs and of every parameter."""
    mha.zero_grad()
    q = Tensor(x_q, requires_grad=True)
    kv = q if x_kv is x_q else Tensor(x_kv, requires_grad=True)
    out = path(mha, q, kv, mask)
    out.backward(grad)
    found = {"out": out.data, "x_q": q.grad, "x_kv": kv.grad}
    return found | {name: p.grad for name, p in mha.named_parameters()}


def assert_close(found, wanted, tolerance=1e-12):
    assert found.keys() == wanted.keys()
    for name, x in found.items():
        np.testing.assert_allclose(x, wanted[name], rtol=tolerance, atol=tolerance, err_msg=name)


QUERY = np.array([[[1.0, 0.0, 0.0, 2.0]]])  # [B, Tq, d]
KEYS = np.array([[[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 2.0]]])  # [B, Tk, d]


def identity_heads(n_heads):
    """Multi-head attention whose four projections are the identity."""
    module = MultiHeadAttention(4, n_heads)
    eye, zero = np.eye(4), np.zeros(4)
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    module.astype(np.float64).load_state_dict(
        {f"{name}.{part}": x for name in names for part, x in (("weight", eye), ("bias", zero))}
    )
    return module


def weights_of(scores):
    """Two weights from two scores: a sigmoid of their difference."""
    first = 1 / (1 + np.exp(scores[1] - scores[0]))
    return np.array([first, 1 - first])


SCORES = [np.array([1.0, 0.0]) / np.sqrt(2), np.array([0.0, 4.0]) / np.sqrt(2)]  # heads 0 and 1
HEADS = np.array([weights_of(scores) for scores in SCORES])
MERGED = np.array([HEADS[0, 0], HEADS[0, 1], 0.0, 2 * HEADS[1, 1]])
ONE_HEAD = weights_of(np.array([1.0, 4.0]) / np.sqrt(4))
ONE_MERGED = np.array([ONE_HEAD[0], ONE_HEAD[1], 0.0, 2 * ONE_HEAD[1]])


@pytest.mark.parametrize("path", ["attend", "forward"])
def test_hand_example_two_heads(path):
    mha = identity_heads(2)
    out, weights = mha.attend(Tensor(QUERY), Tensor(KEYS))
    if path == "forward":
        out = mha(Tensor(QUERY), Tensor(KEYS))
    np.testing.assert_allclose(weights.data[0, :, 0], HEADS, rtol=1e-14)
    np.testing.assert_allclose(out.data[0, 0], MERGED, rtol=1e-14)
    np.testing.assert_allclose(out.data[0, 0], [0.669762, 0.330238, 0, 1.888386], atol=5e-7)


@pytest.mark.parametrize("path", ["attend", "forward"])
def test_hand_example_one_head_mixes_everything(path):
    mha = identity_heads(1)
    out, weights = mha.attend(Tensor(QUERY), Tensor(KEYS))
    if path == "forward":
        out = mha(Tensor(QUERY), Tensor(KEYS))
    np.testing.assert_allclose(weights.data[0, 0, 0], ONE_HEAD, rtol=1e-14)
    np.testing.assert_allclose(out.data[0, 0], ONE_MERGED, rtol=1e-14)
    np.testing.assert_allclose(out.data[0, 0], [0.182426, 0.817574, 0, 1.635149], atol=5e-7)


def torch_copy(mha):
    """torch.nn.MultiheadAttention with the module's weights, in float64."""
    state = {name: torch.tensor(x) for name, x in mha.state_dict().items()}
    bias = "q_proj.bias" in state
    theirs = torch.nn.MultiheadAttention(
        mha.d_model, mha.n_heads, bias=bias, batch_first=True, dtype=torch.float64
    )
    for part in ("weight", "bias")[: 1 + bias]:
        packed = torch.cat([state[f"{layer}_proj.{part}"] for layer in "qkv"])
        getattr(theirs, f"in_proj_{part}").data = packed
        getattr(theirs.out_proj, part).data = state[f"out_proj.{part}"]
    return theirs


def torch_run(mha, x_q, x_kv, grad, padding=None, causal=False):
    """What torch gives, by our names; `padding` are lengths."""
    theirs = torch_copy(mha)
    q = torch.tensor(x_q, requires_grad=True)
    kv = q if x_kv is x_q else torch.tensor(x_kv, requires_grad=True)
    Tq, Tk = x_q.shape[1], x_kv.shape[1]
    masks = {}
    if padding is not None:
        masks["key_padding_mask"] = torch.arange(Tk) >= torch.tensor(padding)[:, None]
    if causal:
        masks["attn_mask"] = torch.triu(torch.ones(Tq, Tk, dtype=torch.bool), 1)
    out, weights = theirs(q, kv, kv, average_attn_weights=False, **masks)
    out.backward(torch.tensor(grad))
    wanted = {"out": out.detach(), "x_q": q.grad, "x_kv": kv.grad}
    for part in ("weight", "bias"):
        packed = getattr(theirs, f"in_proj_{part}")
        if packed is not None:
            for layer, rows in zip("qkv", packed.grad.chunk(3), strict=True):
                wanted[f"{layer}_proj.{part}"] = rows
            wanted[f"out_proj.{part}"] = getattr(theirs.out_proj, part).grad
    return {name: x.numpy() for name, x in wanted.items()}, weights.detach().numpy()


@both_paths
@pytest.mark.parametrize("kind", ["self", "cross"])
def test_golden_torch(path, kind):
    mha = module(d=12, H=3)
    x_q = draw(4, 6, 12, seed=1)
    x_kv = x_q if kind == "self" else draw(4, 7, 12, seed=2)
    grad, lengths = draw(4, 6, 12, seed=9), [6, 3, 1, 5]
    mask = padding_mask(lengths, x_kv.shape[1])
    if kind == "self":
        mask = combine_masks(mask, causal_mask(6))
    wanted, weights = torch_run(mha, x_q, x_kv, grad, lengths, causal=kind == "self")
    assert_close(run(path, mha, x_q, x_kv, grad, mask), wanted)
    found = mha.attend(Tensor(x_q), Tensor(x_kv), mask)[1].data
    np.testing.assert_allclose(found, weights, rtol=1e-12, atol=1e-12)


@both_paths
@pytest.mark.parametrize("masking", ["none", "causal", "padding", "both"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["self", "cross"])
@pytest.mark.parametrize(
    ("B", "H", "Tq", "Tk"), [(3, 2, 5, 5), (4, 4, 3, 6), (2, 1, 1, 1), (1, 2, 1, 4)]
)
def test_parity_with_torch(path, masking, bias, kind, B, H, Tq, Tk):
    mha = module(d=8, H=H, bias=bias)
    x_q = draw(B, Tq, 8, seed=1)
    x_kv = x_q if kind == "self" else draw(B, Tk, 8, seed=2)
    Tk = x_kv.shape[1]
    grad = draw(B, Tq, 8, seed=9)
    lengths = [1 + (2 * b + 1) % Tk for b in range(B)] if masking in ("padding", "both") else None
    causal = masking in ("causal", "both")
    # torch's causal mask is ours where there are as many queries as keys
    triangle = np.tri(Tq, Tk, dtype=bool) if causal else None
    mask = combine_masks(triangle, None if lengths is None else padding_mask(lengths, Tk))
    wanted, weights = torch_run(mha, x_q, x_kv, grad, lengths, causal)
    assert_close(run(path, mha, x_q, x_kv, grad, mask), wanted)
    found = mha.attend(Tensor(x_q), Tensor(x_kv), mask)[1].data
    np.testing.assert_allclose(found, weights, rtol=1e-12, atol=1e-12)


def wave(start, *shape):
    return np.sin(start + 1.7 * np.arange(np.prod(shape))).reshape(shape)


def wave_module():
    mha = MultiHeadAttention(4, 2).astype(np.float64)
    for i, p in enumerate(mha.parameters()):
        p.data = wave(i, *p.shape)
    return mha


X_Q, X_KV, COTANGENT = wave(20, 1, 2, 4), wave(30, 1, 3, 4), wave(40, 1, 2, 4)

FROZEN = {
    "x_q": [
        -0.018677660, 0.000019065, 0.018672747, -0.004830827, -0.059076308, -0.008734202,
        0.061327016, -0.007069095,
    ],
    "x_kv": [
        0.100869372, 0.236856101, -0.161904582, -0.195135073, -0.018028026, -0.070760001,
        0.036262099, 0.061415657, 0.002138498, -0.096876788, 0.022825583, 0.090994886,
    ],
    "q_proj.weight": [
        -0.015260645, 0.005512224, 0.013840205, -0.009078693, 0.021685303, -0.006064959,
        -0.020122430, 0.011250288, -0.041348243, 0.005133061, 0.040025509, -0.015447194,
        -0.051054090, 0.006445167, 0.049393242, -0.019173262,
    ],
    "q_proj.bias": [
        -0.014981841, 0.021586442, -0.042241326, -0.052138782,
    ],
    "k_proj.weight": [
        -0.005506564, -0.007935314, 0.007551407, 0.005989400, -0.023217048, -0.029465295,
        0.030809931, 0.021525916, 0.010734879, 0.016364319, -0.014951784, -0.012511409,
        0.028847327, 0.043691857, -0.040106238, -0.033356921,
    ],
    "k_proj.bias": [
        0.000000000, 0.000000000, 0.000000000, 0.000000000,
    ],
    "v_proj.weight": [
        -0.503207136, 0.431857550, 0.391922201, -0.532851585, 0.463147538, -0.398932402,
        -0.360347051, 0.491789869, 0.487323769, -0.202360717, -0.435177641, 0.314501203,
        -0.715246023, 0.297575385, 0.638564123, -0.462126328,
    ],
    "v_proj.bias": [
        0.691077178, -0.637725073, -0.526742449, 0.773460802,
    ],
    "out_proj.weight": [
        -0.537973709, 1.884346114, 3.166506764, 1.329934096, 0.864993974, -3.096236964,
        -5.178265206, -2.173218277, 0.315074286, -1.086479942, -1.832124840, -0.769919677,
        -0.946185148, 3.376210882, 5.650383603, 2.371618100,
    ],
    "out_proj.bias": [
        1.063369672, -1.738491173, -0.615379639, 1.897067730,
    ],
}  # fmt: skip


@both_paths
def test_gradcheck_inputs_and_parameters(path):
    found = run(path, wave_module(), X_Q, X_KV, COTANGENT)
    assert list(found) == ["out", *FROZEN]
    for name, numbers in FROZEN.items():
        np.testing.assert_allclose(found[name].ravel(), numbers, rtol=0, atol=2e-9, err_msg=name)


def test_frozen_differences_are_the_formula_s():
    step, mha = 1e-5, wave_module()
    arrays = {"x_q": X_Q.copy(), "x_kv": X_KV.copy()}
    arrays |= {name: p.data for name, p in mha.named_parameters()}
    for name, array in arrays.items():
        differences = []
        for at in np.ndindex(array.shape):
            middle, values = array[at], []
            for array[at] in (middle + step, middle - step):
                out = formula(mha, arrays["x_q"], arrays["x_kv"])[0]
                values.append((out * COTANGENT).sum())
            array[at] = middle
            differences.append((values[0] - values[1]) / (2 * step))
        np.testing.assert_allclose(FROZEN[name], differences, rtol=0, atol=2e-9, err_msg=name)


def test_gradcheck_by_the_book():
    mha = module(d=6, H=3)
    mask = np.array([[[1, 1, 0, 1], [0, 1, 1, 1], [1, 0, 0, 0]]], bool)
    inputs = {
        name: Tensor(draw(2, T, 6, seed=T), requires_grad=True)
        for name, T in (("x_q", 3), ("x_kv", 4))
    }

    class Both:
        """Output and weights, with the module's parameters."""

        named_parameters = mha.named_parameters

        def __call__(self, x_q, x_kv):
            return mha.attend(x_q, x_kv, mask)

    assert gradcheck(Both(), inputs).vanishing == ("k_proj.bias",)

    class Forward(Both):
        def __call__(self, x_q, x_kv):
            return mha(x_q, x_kv, mask), mha(x_q, x_q, mask[..., :3])

    assert gradcheck(Forward(), inputs).vanishing == ("k_proj.bias",)


@both_paths
def test_key_bias_has_no_gradient(path):
    x = draw(2, 5, 8)
    found = run(path, module(), x, x, draw(2, 5, 8, seed=2))
    assert np.abs(found["k_proj.bias"]).max() < 1e-13
    for name in NAMES:
        if name != "k_proj.bias":
            assert (np.abs(found[name]) > 1e-6).all()


def test_weights_can_be_differentiated():
    mha = module()
    x_q, x_kv, loss = draw(2, 3, 8), draw(2, 5, 8, seed=2), draw(2, 2, 3, 5, seed=3)
    q, kv = (Tensor(x, requires_grad=True) for x in (x_q, x_kv))
    mha.attend(q, kv)[1].backward(loss)
    theirs = torch_copy(mha)
    tq, tkv = (torch.tensor(x, requires_grad=True) for x in (x_q, x_kv))
    theirs(tq, tkv, tkv, average_attn_weights=False)[1].backward(torch.tensor(loss))
    packed = np.concatenate([mha.q_proj.weight.grad, mha.k_proj.weight.grad])
    for x, y in ((q.grad, tq.grad), (kv.grad, tkv.grad), (packed, theirs.in_proj_weight.grad[:16])):
        np.testing.assert_allclose(x, y.numpy(), rtol=1e-12, atol=1e-12)
    unused = mha.v_proj.weight.grad
    assert unused is None or not unused.any()


def test_split_and_merge_layout():
    mha = MultiHeadAttention(4, 2)
    split = mha.split_heads(Tensor(np.arange(8.0).reshape(1, 2, 4)))
    np.testing.assert_array_equal(split.data, [[[[0, 1], [4, 5]], [[2, 3], [6, 7]]]])
    merged = mha.merge_heads(Tensor(np.arange(8.0).reshape(1, 2, 2, 2)))
    np.testing.assert_array_equal(merged.data, [[[0, 1, 4, 5], [2, 3, 6, 7]]])
    mha = MultiHeadAttention(12, 3)
    x = draw(2, 5, 12)
    split = mha.split_heads(Tensor(x)).data
    assert split.shape == (2, 3, 5, 4)
    for h in range(3):
        np.testing.assert_array_equal(split[:, h], x[:, :, 4 * h : 4 * h + 4])
    np.testing.assert_array_equal(mha.merge_heads(mha.split_heads(Tensor(x))).data, x)
    assert np.shares_memory(mha.split_heads(Tensor(x)).data, x)  # no copy
    packed = mha.split_heads(Tensor(np.concatenate([x, 2 * x], axis=-1))).data
    np.testing.assert_array_equal(packed, np.concatenate([split, 2 * split], axis=1))


def test_heads_are_independent():
    mha = module(d=8, H=2)
    x, kv = Tensor(draw(2, 4, 8)), Tensor(draw(2, 5, 8, seed=2))
    before = mha.attend(x, kv)[1].data
    mha.q_proj.weight.data[4:] += 1.0
    mha.q_proj.bias.data[4:] -= 1.0
    after = mha.attend(x, kv)[1].data
    np.testing.assert_array_equal(after[:, 0], before[:, 0])
    assert not np.allclose(after[:, 1], before[:, 1])


@both_paths
def test_one_head_is_projected_attention(path):
    mha = module(d=6, H=1)
    x_q, x_kv = draw(2, 3, 6), draw(2, 5, 6, seed=2)
    s = mha.state_dict()
    q = x_q @ s["q_proj.weight"].T + s["q_proj.bias"]
    k = x_kv @ s["k_proj.weight"].T + s["k_proj.bias"]
    v = x_kv @ s["v_proj.weight"].T + s["v_proj.bias"]
    e = np.exp(q @ k.swapaxes(1, 2) / np.sqrt(6))
    context = e / e.sum(axis=-1, keepdims=True) @ v
    wanted = context @ s["out_proj.weight"].T + s["out_proj.bias"]
    np.testing.assert_allclose(path(mha, Tensor(x_q), Tensor(x_kv)).data, wanted, rtol=1e-12)


@both_paths
def test_cross_attention_reads_keys_from_x_kv(path):
    mha = module()
    for Tq, Tk in ((3, 5), (4, 4), (5, 2)):
        x_q, x_kv = draw(2, Tq, 8), draw(2, Tk, 8, seed=2)
        out = path(mha, Tensor(x_q), Tensor(x_kv)).data
        assert out.shape == (2, Tq, 8)
        np.testing.assert_allclose(out, formula(mha, x_q, x_kv)[0], rtol=1e-12)
        order = np.arange(Tk)[::-1]  # keys and values are a set
        again = path(mha, Tensor(x_q), Tensor(x_kv[:, order])).data
        np.testing.assert_allclose(again, out, rtol=1e-12)


@both_paths
def test_positions_are_a_set(path):
    mha = module()
    x_q, x_kv, mask = draw(2, 4, 8), draw(2, 5, 8, seed=2), draw(2, 4, 5, seed=3) > -0.8
    grad = draw(2, 4, 8, seed=4)
    rows, keys = np.array([2, 0, 3, 1]), np.array([4, 1, 0, 3, 2])
    before = run(path, mha, x_q, x_kv, grad, mask)
    after = run(path, mha, x_q[:, rows], x_kv[:, keys], grad[:, rows], mask[:, rows][:, :, keys])
    before["out"], before["x_q"] = before["out"][:, rows], before["x_q"][:, rows]
    before["x_kv"] = before["x_kv"][:, keys]
    assert_close(after, before)


@both_paths
@pytest.mark.parametrize("kind", ["self", "cross"])
def test_samples_do_not_meet(path, kind):
    mha = module(H=4)
    x_q = draw(3, 4, 8)
    x_kv = x_q if kind == "self" else draw(3, 5, 8, seed=2)
    mask, grad = draw(3, 4, x_kv.shape[1], seed=3) > -0.8, draw(3, 4, 8, seed=4)
    whole = run(path, mha, x_q, x_kv, grad, mask)
    for b in range(3):
        own = x_q[b : b + 1]
        kv = own if kind == "self" else x_kv[b : b + 1]
        alone = run(path, mha, own, kv, grad[b : b + 1], mask[b : b + 1])
        for name in ("out", "x_q", "x_kv"):
            np.testing.assert_allclose(alone[name][0], whole[name][b], rtol=1e-12, atol=1e-14)


@both_paths
@pytest.mark.parametrize("kind", ["self", "cross"])
def test_mask_shapes_agree(path, kind):
    B = H = 3
    mha = module(d=6, H=H)
    x_q = draw(B, 4, 6)
    x_kv = x_q if kind == "self" else draw(B, 5, 6, seed=2)
    Tk = x_kv.shape[1]
    q, kv = Tensor(x_q), Tensor(x_kv)
    kv = q if kind == "self" else kv

    per_sequence = (draw(B, 4, Tk, seed=3) > 0) | (np.arange(Tk) == 0)  # [B, Tq, Tk]
    full = np.repeat(per_sequence[:, None], H, axis=1)  # [B, H, Tq, Tk]
    wanted, weights = formula(mha, x_q, x_kv, full)
    for mask in (per_sequence, full, per_sequence[:, None]):
        np.testing.assert_allclose(path(mha, q, kv, mask).data, wanted, rtol=1e-12)
        np.testing.assert_allclose(mha.attend(q, kv, mask)[1].data, weights, rtol=1e-12)

    padding = np.arange(Tk) < np.array([Tk, 2, 1])[:, None, None]  # [B, 1, Tk]
    wanted = formula(mha, x_q, x_kv, np.broadcast_to(padding[:, None], full.shape))[0]
    for mask in (padding, padding[:, None]):
        np.testing.assert_allclose(path(mha, q, kv, mask).data, wanted, rtol=1e-12)

    keys = np.arange(Tk) != 1  # [Tk]
    wanted = formula(mha, x_q, x_kv, np.broadcast_to(keys, full.shape))[0]
    for mask in (keys, keys[None], keys[None, None], keys[None, None, None]):
        np.testing.assert_allclose(path(mha, q, kv, mask).data, wanted, rtol=1e-12)

    queries = np.array([True, False, True, True])[:, None]  # [Tq, 1]: one query reads nothing
    for mask in (queries, queries[None], queries[None, None]):
        out = path(mha, q, kv, mask).data
        np.testing.assert_array_equal(out[:, 1], np.tile(mha.out_proj.bias.data, (B, 1)))
        whole = path(mha, q, kv).data
        np.testing.assert_allclose(out[:, [0, 2, 3]], whole[:, [0, 2, 3]], rtol=1e-12)

    shared = per_sequence[0]  # [Tq, Tk]
    wanted = formula(mha, x_q, x_kv, np.broadcast_to(shared, full.shape))[0]
    for mask in (shared, shared[None], shared[None, None], np.repeat(shared[None], B, 0)):
        np.testing.assert_allclose(path(mha, q, kv, mask).data, wanted, rtol=1e-12)

    per_head = np.repeat(per_sequence[None], B, axis=0)  # head h gets per_sequence[h]
    for mask in (per_head, per_sequence[None]):
        wanted = formula(mha, x_q, x_kv, per_head)[0]
        np.testing.assert_allclose(path(mha, q, kv, mask).data, wanted, rtol=1e-12)


def test_head_mask():
    mha = MultiHeadAttention(6, 3)
    B, H, Tq, Tk = whole = (2, 3, 4, 5)
    assert mha.head_mask(None, B, Tq, Tk) is None
    accepted = [(), (1,), (Tk,), *itertools.product((1, Tq), (1, Tk))]
    accepted += [*itertools.product((1, B), (1, Tq), (1, Tk))]
    accepted += [*itertools.product((1, B), (1, H), (1, Tq), (1, Tk))]
    for shape in accepted:
        mask = np.asarray(draw(*shape) > 0)
        found = mha.head_mask(mask, B, Tq, Tk)
        assert found.dtype == np.bool_
        assert np.shares_memory(found, mask)
        axes = {2: "qk", 3: "bqk", 4: "bhqk"}.get(len(shape), "k"[: len(shape)])
        for place in itertools.product(*map(range, whole)):
            at = dict(zip("bhqk", place, strict=True))
            own = tuple(at[a] if n > 1 else 0 for a, n in zip(axes, shape, strict=True))
            assert np.broadcast_to(found, whole)[place] == mask[own]
    for shape in itertools.chain.from_iterable(
        itertools.product((1, 2, 3, 4, 5, 6), repeat=n) for n in range(4)
    ):
        if shape not in accepted:
            with pytest.raises(ValueError):
                mha.head_mask(np.ones(shape, bool), B, Tq, Tk)


@both_paths
@pytest.mark.parametrize("kind", ["self", "cross"])
def test_masked_keys_are_never_read(path, kind):
    mha = module()
    x_q = draw(2, 5, 8)
    x_kv = x_q if kind == "self" else draw(2, 5, 8, seed=2)
    mask = padding_mask([5, 3], 5)
    weights = mha.attend(Tensor(x_q), Tensor(x_kv), mask)[1].data
    assert (weights[1, :, :, 3:] == 0).all()
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-12)
    before = path(mha, Tensor(x_q), Tensor(x_kv), mask).data
    other = x_kv.copy()
    other[1, 3:] = 1e6
    q = Tensor(other) if kind == "self" else Tensor(x_q)
    after = path(mha, q, q if kind == "self" else Tensor(other), mask).data
    np.testing.assert_array_equal(after[0], before[0])
    np.testing.assert_array_equal(after[1, :3], before[1, :3])


@both_paths
@pytest.mark.parametrize("kind", ["self", "cross"])
def test_dead_rows_read_the_bias(path, kind):
    mha = module()
    x_q = draw(2, 4, 8)
    x_kv = x_q if kind == "self" else draw(2, 5, 8, seed=2)
    mask = np.ones((2, 4, x_kv.shape[1]), bool)
    mask[0, 2] = mask[1] = False
    grad = draw(2, 4, 8, seed=3)
    found = run(path, mha, x_q, x_kv, grad, mask)
    for b, i in ((0, 2), (1, 0), (1, 3)):
        np.testing.assert_array_equal(found["out"][b, i], mha.out_proj.bias.data)
    assert all(np.isfinite(x).all() for x in found.values())
    if kind == "cross":
        assert (found["x_q"][0, 2] == 0).all()
        assert (found["x_q"][1] == 0).all()
    assert (found["x_kv"][1] == 0).all()
    np.testing.assert_allclose(found["out_proj.bias"], grad.sum(axis=(0, 1)), rtol=1e-12)
    weights = mha.attend(Tensor(x_q), Tensor(x_kv), mask)[1].data
    assert (weights[0, :, 2] == 0).all()
    assert (weights[1] == 0).all()


@pytest.mark.parametrize("kind", ["self", "cross"])
@pytest.mark.parametrize("bias", [True, False])
def test_forward_equals_attend(kind, bias):
    mha = module(d=12, H=3, bias=bias, dropout=0.3)
    for B, Tq, Tk in ((2, 4, 4), (3, 150, 170), (1, 1, 1)):
        x_q = draw(B, Tq, 12)
        x_kv = x_q if kind == "self" else draw(B, Tk, 12, seed=2)
        Tk = x_kv.shape[1]
        grad = draw(B, Tq, 12, seed=3)
        dead = draw(B, 3, Tq, Tk, seed=4) > 0.5
        dead[0, 1, 0] = False
        for mask in (None, np.tri(Tq, Tk, dtype=bool), dead, dead[:, :, :1], dead[:1, :, :, :1]):
            for training in (True, False):
                mha.train(training)
                results = []
                for path in PATHS.values():
                    mha.dropout_rng = PCG32(5)
                    results.append(run(path, mha, x_q, x_kv, grad, mask))
                assert_close(*results, tolerance=1e-11)


class Adapted(Module):
    """A projection with an adapter of rank 1 beside it, whose numbers are to be trained."""

    def __init__(self, base):
        self.base = base
        d_out, d_in = base.weight.shape
        self.down, self.up = Linear(d_in, 1, bias=False), Linear(1, d_out, bias=False)
        for p in (*self.down.parameters(), *self.up.parameters()):
            p.data = draw(*p.shape, seed=11)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))

    def product(self):
        return self.up.weight.data @ self.down.weight.data


class Doubled(Linear):
    """A subclass that does more with the same parameters."""

    def forward(self, x):
        return super().forward(x) * 2.0


def doubled(mha, plain, name):
    base = getattr(mha, name)
    other = Doubled(*reversed(base.weight.shape))
    other.weight, other.bias = base.weight, base.bias
    setattr(mha, name, other)
    for p in getattr(plain, name).parameters():
        p.data = 2 * p.data


def adapted(mha, plain, name):
    setattr(mha, name, Adapted(getattr(mha, name)))
    getattr(plain, name).weight.data += getattr(mha, name).product()


def patched(mha, plain, name):
    layer = getattr(mha, name)
    layer.forward = lambda x: Linear.forward(layer, x) * 2.0
    for p in getattr(plain, name).parameters():
        p.data = 2 * p.data


@both_paths
@pytest.mark.parametrize("kind", ["self", "cross"])
@pytest.mark.parametrize("change", [doubled, adapted, patched])
@pytest.mark.parametrize("name", ["q_proj", "k_proj", "v_proj", "out_proj"])
def test_projections_are_called(path, kind, change, name):
    mha, plain = module(), module()
    x_q = draw(2, 4, 8)
    x_kv = x_q if kind == "self" else draw(2, 5, 8, seed=2)
    change(mha, plain, name)
    for mask in (None, np.tri(4, x_kv.shape[1], dtype=bool)):
        grad = draw(2, 4, 8, seed=3)
        found = run(path, mha, x_q, x_kv, grad, mask)
        wanted = run(path, plain, x_q, x_kv, grad, mask)
        for part in ("out", "x_q", "x_kv"):
            np.testing.assert_allclose(found[part], wanted[part], rtol=1e-11, atol=1e-12)
    if change is adapted:  # and the adapter learns
        for side in ("down", "up"):
            assert (found[f"{name}.{side}.weight"] != 0).any()


@both_paths
@pytest.mark.parametrize("method", ["forward", "__call__"])
def test_a_patch_of_the_class_is_called(path, method, monkeypatch):
    calls, real = [], getattr(Linear, method)

    def counted(layer, x):
        calls.append(layer)
        return real(layer, x)

    monkeypatch.setattr(Linear, method, counted)
    mha, x = module(), draw(2, 4, 8)
    run(path, mha, x, x, draw(2, 4, 8, seed=3))
    assert len(calls) == 4
    assert set(calls) == {mha.q_proj, mha.k_proj, mha.v_proj, mha.out_proj}


@both_paths
@pytest.mark.parametrize("kind", ["self", "cross"])
def test_projections_of_different_kinds(path, kind):
    x_q, grad = draw(2, 4, 8), draw(2, 4, 8, seed=3)
    x_kv = x_q if kind == "self" else draw(2, 5, 8, seed=2)
    for names in (["k_proj"], ["q_proj", "v_proj"], ["out_proj"], ["k_proj", "out_proj"]):
        mha, plain = module(), module()
        for name in names:
            getattr(mha, name).bias = None
            getattr(plain, name).bias.data[...] = 0
        found = run(path, mha, x_q, x_kv, grad)
        wanted = run(path, plain, x_q, x_kv, grad)
        assert_close(found, {name: wanted[name] for name in found})
    mha, wanted = module(), run(path, module(), x_q, x_kv, grad)
    mha.v_proj.weight.requires_grad = mha.k_proj.bias.requires_grad = False
    found = run(path, mha, x_q, x_kv, grad)
    for name in ("v_proj.weight", "k_proj.bias"):
        assert found.pop(name) is None
        del wanted[name]
    assert_close(found, wanted)
    mha.k_proj.astype(np.float32)
    assert run(path, mha, x_q, x_kv, grad)["out"].dtype == np.float64
    mha.k_proj.weight = mha.q_proj.weight  # one matrix for both
    mha.k_proj.bias = mha.q_proj.bias
    plain = module()
    plain.v_proj.load_state_dict(mha.v_proj.state_dict())
    plain.k_proj.load_state_dict(mha.q_proj.state_dict())
    found, wanted = (run(path, m, x_q, x_kv, grad) for m in (mha, plain))
    for part in ("weight", "bias"):
        both = wanted[f"q_proj.{part}"] + wanted[f"k_proj.{part}"]
        np.testing.assert_allclose(found[f"q_proj.{part}"], both, rtol=1e-11, atol=1e-13)


@both_paths
@pytest.mark.parametrize("kind", ["self", "cross"])
@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf])
def test_garbage_in_padding_reaches_nothing(path, kind, garbage):
    mha = module()
    lengths = [5, 3, 1]
    mask = padding_mask(lengths, 5)
    x_q = draw(3, 5, 8)
    x_kv = x_q if kind == "self" else draw(3, 5, 8, seed=2)
    grad = draw(3, 5, 8, seed=3)
    padded = np.arange(5) >= np.array(lengths)[:, None]  # [B, T]
    if kind == "self":
        grad[padded] = 0
    wanted = run(path, mha, x_q, x_kv, grad, mask)
    dirty = x_kv.copy()
    dirty[padded] = garbage
    dirty[1, 3, 2] = 0.5
    found = run(path, mha, dirty if kind == "self" else x_q, dirty, grad, mask)
    if kind == "self":
        assert np.isnan(found["out"][padded]).all()
        found["out"], wanted["out"] = found["out"][~padded], wanted["out"][~padded]
    assert_close(found, wanted, 1e-13)
    assert (found["x_kv"][padded] == 0).all()


@both_paths
def test_garbage_reaches_those_who_read_it(path):
    mha = module()
    x_q, x_kv, grad = draw(2, 4, 8), draw(2, 4, 8, seed=2), draw(2, 4, 8, seed=3)
    wanted = run(path, mha, x_q, x_kv, grad, causal_mask(4))
    x_kv[0, 2, 5] = np.nan
    found = run(path, mha, x_q, x_kv, grad, causal_mask(4))
    np.testing.assert_allclose(found["out"][0, :2], wanted["out"][0, :2], rtol=1e-12)
    np.testing.assert_allclose(found["out"][1], wanted["out"][1], rtol=1e-12)
    assert np.isnan(found["out"][0, 2:]).all()
    assert np.isnan(found["k_proj.weight"]).any()  # it is not padding, and must be seen


@both_paths
@pytest.mark.parametrize("kind", ["self", "cross"])
def test_dropout_only_in_training(path, kind):
    x_q = Tensor(draw(2, 5, 8))
    x_kv = x_q if kind == "self" else Tensor(draw(2, 6, 8, seed=2))
    with_dropout, without = module(dropout=0.5), module(dropout=0.0)
    wanted = path(without, x_q, x_kv).data
    state = with_dropout.rng_state()
    with_dropout.eval()
    np.testing.assert_array_equal(path(with_dropout, x_q, x_kv).data, wanted)
    assert with_dropout.rng_state() == state  # nothing was drawn
    with_dropout.train()
    trained = [path(with_dropout, x_q, x_kv).data for _ in range(2)]
    assert not np.allclose(trained[0], wanted)
    assert not np.allclose(*trained)
    with_dropout.eval()
    np.testing.assert_array_equal(path(with_dropout, x_q, x_kv).data, wanted)


@both_paths
def test_dropout_draws(path):
    mha = module(dropout=0.25)
    x = draw(2, 5, 8)
    kept = PCG32(0).substream("dropout").uniform(0.0, 1.0, (2, 2, 5, 5)) >= 0.25
    weights = formula(mha, x, x)[1] * kept / 0.75
    state = mha.state_dict()
    v = (x @ state["v_proj.weight"].T + state["v_proj.bias"]).reshape(2, 5, 2, 4)
    context = np.einsum("bhqk,bkhc->bqhc", weights, v).reshape(2, 5, 8)
    wanted = context @ state["out_proj.weight"].T + state["out_proj.bias"]
    q = Tensor(x)
    np.testing.assert_allclose(path(mha, q, q).data, wanted, rtol=1e-12)


@both_paths
def test_dropout_stream_resumes(path):
    x = Tensor(draw(2, 5, 8))
    unbroken = module(dropout=0.5)
    path(unbroken, x, x)
    state = unbroken.rng_state()
    assert list(state) == ["dropout_rng"]
    assert not any("rng" in name for name in unbroken.state_dict())
    resumed = module(dropout=0.5)
    resumed.load_rng_state(state)
    np.testing.assert_array_equal(path(resumed, x, x).data, path(unbroken, x, x).data)
    own, before = PCG32(4), default_generator().state()
    first, second = (MultiHeadAttention(8, 2, dropout=0.5, rng=own) for _ in range(2))
    assert first.dropout_rng.state() == own.substream("dropout").state()
    second.load_state_dict(first.state_dict())
    assert not np.array_equal(path(first, x, x).data, path(second, x, x).data)
    assert default_generator().state() == before  # who brings a generator leaves it alone


def test_weights_are_those_before_dropout():
    mha, x = module(dropout=0.5), draw(2, 5, 8)
    weights = mha.attend(Tensor(x), Tensor(x))[1].data
    np.testing.assert_allclose(weights, formula(mha, x, x)[1], rtol=1e-12)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-12)


def test_parameter_names_shapes_and_init():
    mha = MultiHeadAttention(6, 2)
    state, rng = mha.state_dict(), PCG32(0)
    assert list(state) == NAMES
    for name in NAMES:
        wanted = rng.uniform(-(6**-0.5), 6**-0.5, (6, 6) if name.endswith("weight") else 6)
        np.testing.assert_array_equal(state[name], wanted)
        assert state[name].dtype == np.float32
    again, following = MultiHeadAttention(6, 2, rng=PCG32(0)).state_dict(), MultiHeadAttention(6, 2)
    rng = default_generator()
    assert mha.dropout_rng.state() == PCG32(0).substream("dropout").state()
    assert following.dropout_rng.state() != mha.dropout_rng.state()
    assert following.q_proj.weight.data[0, 0] != mha.q_proj.weight.data[0, 0]
    other = MultiHeadAttention(6, 2, rng=PCG32(1)).state_dict()
    for name in NAMES:
        np.testing.assert_array_equal(again[name], state[name])
        assert not np.array_equal(other[name], state[name])

    bare = MultiHeadAttention(6, 2, bias=False)
    assert list(bare.state_dict()) == NAMES[::2]
    zero = Tensor(np.zeros((2, 3, 6), np.float32))
    for path in PATHS.values():
        assert (path(bare, zero, zero).data == 0).all()
        assert not (path(mha, zero, zero).data == 0).any()


def test_repr_shows_sizes_and_dropout():
    said = repr(MultiHeadAttention(12, 3, dropout=0.25)).partition("\n")[0]
    assert all(word in said for word in ("12", "3", "0.25"))


def test_load_packed_in_proj():
    mha = module(d=6, H=2)
    before = mha.state_dict()
    weight, bias = draw(18, 6, seed=7), draw(18, seed=8)
    mha.load_packed_in_proj(weight)
    state = mha.state_dict()
    for i, layer in enumerate(("q_proj", "k_proj", "v_proj")):
        np.testing.assert_array_equal(state[f"{layer}.weight"], weight[6 * i : 6 * i + 6])
        np.testing.assert_array_equal(state[f"{layer}.bias"], before[f"{layer}.bias"])
    mha.load_packed_in_proj(weight, bias)
    state = mha.state_dict()
    for i, layer in enumerate(("q_proj", "k_proj", "v_proj")):
        np.testing.assert_array_equal(state[f"{layer}.bias"], bias[6 * i : 6 * i + 6])
    for name in ("out_proj.weight", "out_proj.bias"):
        np.testing.assert_array_equal(state[name], before[name])

    copy = weight.copy()
    weight += 1  # the module has an array of its own
    np.testing.assert_array_equal(mha.q_proj.weight.data, copy[:6])
    mha.v_proj.weight.data[...] = 0
    assert (weight[12:] != 0).all()

    single = MultiHeadAttention(6, 2)
    single.load_packed_in_proj(weight, bias)
    assert {p.dtype for p in single.parameters()} == {np.dtype(np.float32)}
    theirs = torch.nn.MultiheadAttention(6, 2, batch_first=True, dtype=torch.float64)
    theirs.in_proj_bias.data = torch.tensor(bias)
    mha.load_packed_in_proj(theirs.in_proj_weight.detach(), theirs.in_proj_bias.detach())
    mha.out_proj.load_state_dict({k: v.numpy() for k, v in theirs.out_proj.state_dict().items()})
    x = draw(2, 4, 6)
    wanted = theirs(*[torch.tensor(x)] * 3)[0].detach().numpy()
    np.testing.assert_allclose(mha(Tensor(x), Tensor(x)).data, wanted, rtol=1e-12, atol=1e-14)


def test_load_packed_in_proj_refuses_what_does_not_fit():
    mha = module(d=6, H=2)
    before = mha.state_dict()
    for arrays in (
        (np.ones((6, 18)),),
        (np.ones((18, 6)), np.ones(6)),
    ):
        with pytest.raises(ValueError):
            mha.load_packed_in_proj(*arrays)
    for name, x in mha.state_dict().items():
        np.testing.assert_array_equal(x, before[name])

    whisper = module(d=6, H=2)
    whisper.k_proj.bias = None
    adapted = module(d=6, H=2)
    adapted.v_proj = Adapted(adapted.v_proj)
    for odd, bias, absent in (
        (module(d=6, H=2, bias=False), np.ones(18), "q_proj.bias"),
        (whisper, np.ones(18), "k_proj.bias"),
        (adapted, None, "v_proj.weight"),
    ):
        before = odd.state_dict()
        with pytest.raises(ValueError, match=absent):
            odd.load_packed_in_proj(np.ones((18, 6)), bias)
        for name, x in odd.state_dict().items():
            np.testing.assert_array_equal(x, before[name])
    weight = draw(18, 6)
    whisper.load_packed_in_proj(weight)
    np.testing.assert_array_equal(whisper.k_proj.weight.data, weight[6:12])


def test_state_dict_round_trip():
    mha, other = module(), MultiHeadAttention(8, 4).astype(np.float64)
    other.load_state_dict(mha.state_dict())
    assert other.n_heads == 4  # which is no parameter
    same = MultiHeadAttention(8, 2).astype(np.float64)
    same.load_state_dict(mha.state_dict())
    x = Tensor(draw(2, 3, 8))
    np.testing.assert_array_equal(same(x, x).data, mha(x, x).data)
    state = mha.state_dict()
    state["k_proj.weight"] = state["k_proj.weight"][:4]
    del state["v_proj.bias"]
    state["in_proj_weight"] = np.ones((24, 8))
    with pytest.raises(ValueError, match=r"k_proj\.weight") as error:
        same.load_state_dict(state)
    for word in ("(4, 8)", "(8, 8)", "v_proj.bias", "in_proj_weight"):
        assert word in str(error.value)


@both_paths
@pytest.mark.parametrize("kind", ["self", "cross"])
def test_dtypes(path, kind):
    exact = module()
    x_q, x_kv = draw(2, 4, 8), draw(2, 5, 8, seed=2)
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-5), (np.float16, 2e-2)):
        mha = module().astype(dtype)
        q = Tensor(x_q.astype(dtype), requires_grad=True)
        kv = q if kind == "self" else Tensor(x_kv.astype(dtype), requires_grad=True)
        out = path(mha, q, kv)
        out.backward(np.ones(out.shape, dtype))
        assert out.dtype == q.grad.dtype == kv.grad.dtype == mha.q_proj.weight.grad.dtype == dtype
        wanted = formula(exact, x_q, x_q if kind == "self" else x_kv)[0]
        np.testing.assert_allclose(out.data, wanted, rtol=tolerance, atol=tolerance)
    mixed = Tensor(x_q.astype(np.float32))
    assert path(module(), mixed, mixed).dtype == np.float64
    default = MultiHeadAttention(8, 2)
    assert path(default, mixed, mixed).dtype == np.float32


@both_paths
@pytest.mark.parametrize("kind", ["self", "cross"])
def test_any_layout(path, kind):
    mha = module()
    x_q = draw(3, 4, 8)
    x_kv = x_q if kind == "self" else draw(3, 5, 8, seed=2)
    grad, mask = draw(3, 4, 8, seed=3), draw(3, 4, x_kv.shape[1], seed=4) > -1
    wanted = run(path, mha, x_q, x_kv, grad, mask)

    def columns(x):
        return np.asfortranarray(x)

    def turned(x):
        return np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1)

    def strewn(x):
        wide = np.full((2 * x.shape[0], *x.shape[1:-1], 3 * x.shape[-1]), np.nan)
        wide[::2, ..., ::-3] = x
        return wide[::2, ..., ::-3]

    for layout in (columns, turned, strewn):
        q = layout(x_q)
        kv = q if kind == "self" else layout(x_kv)
        copies = q.copy(), kv.copy(), mask.copy()
        for x in (q, kv, mask):
            x.flags.writeable = False
        assert_close(run(path, mha, q, kv, layout(grad), mask), wanted)
        for x, copy in zip((q, kv, mask), copies, strict=True):
            np.testing.assert_array_equal(x, copy)


@both_paths
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("B", "Tq", "Tk"), [(0, 3, 3), (2, 0, 3), (2, 3, 0), (2, 0, 0)])
def test_empty_dimensions(path, masked, B, Tq, Tk):
    mha = module()
    mask = np.ones((B, Tq, Tk), bool) if masked else None
    x_q, x_kv = draw(B, Tq, 8), draw(B, Tk, 8)
    pairs = [(x_q, x_kv)] + ([(x_q, x_q)] if Tq == Tk else [])
    for q, kv in pairs:
        found = run(path, mha, q, kv, np.ones((B, Tq, 8)), mask)
        assert found["out"].shape == (B, Tq, 8)
        np.testing.assert_array_equal(
            found["out"], np.broadcast_to(mha.out_proj.bias.data, (B, Tq, 8))
        )
        assert all(
            (found[name] == 0).all() for name in ("x_q", "x_kv", "q_proj.weight", "v_proj.bias")
        )
    assert mha.attend(Tensor(x_q), Tensor(x_kv), mask)[1].shape == (B, 2, Tq, Tk)


LONG = """
import resource, sys
import numpy as np
from tinyllm import PCG32, MultiHeadAttention, Tensor

x = Tensor(PCG32(0).normal(0.0, 1.0, (1, 16384, 64)), requires_grad=True)
mha = MultiHeadAttention(64, 4)
mha(x, x).backward(np.ones(x.shape, np.float32))
assert np.isfinite(x.grad).all() and (x.grad != 0).any()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1))
"""


@pytest.mark.memory
@pytest.mark.slow
def test_long_sequence_in_little_memory():
    done = subprocess.run([sys.executable, "-c", LONG], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2 * 1024 * 1024  # KiB


def test_validation():
    for d, H in ((6, 4), (2, 4), (5, 2)):
        with pytest.raises(ValueError):
            MultiHeadAttention(d, H)
    for d, H in ((0, 1), (4, 0), (-4, 2), (4, -2), (4.0, 2), (4, 2.0), (True, 1), ("4", 2)):
        with pytest.raises(ValueError):
            MultiHeadAttention(d, H)
    for rate in (1.0, -0.5, np.nan):
        with pytest.raises(ValueError):
            MultiHeadAttention(4, 2, dropout=rate)

    mha = MultiHeadAttention(6, 2)
    good = np.ones((2, 3, 6), np.float32)
    for path in PATHS.values():
        for x_q, x_kv in (
            (good[..., :5], good),
            (good, good[..., :5]),
            (good[0], good[0]),
            (good, good[:1]),
            (good[None], good[None]),
            (good, good[0]),
        ):
            with pytest.raises(ValueError):
                path(mha, Tensor(x_q), Tensor(x_kv))

        for x_q, x_kv in (
            (good, Tensor(good)),
            (Tensor(good), good),
            (good.tolist(), None),
        ):
            with pytest.raises(TypeError):
                path(mha, x_q, x_kv)

        x = Tensor(good)
        for shape in (
            (2,),
            (2, 3),
            (3, 4),
            (2, 3, 4),
            (3, 3, 3),
            (2, 3, 3, 3),
            (3, 1, 3, 3),
            (2, 2, 3, 3, 1),
            (1, 2, 2, 3, 3),
        ):
            with pytest.raises(ValueError):
                path(mha, x, x, np.ones(shape, bool))
        for mask in (np.ones((3, 3)), np.ones((3, 3), int), np.zeros((2, 3, 3), np.float32)):
            with pytest.raises(TypeError):
                path(mha, x, x, mask)

    with pytest.raises(ValueError):
        mha.split_heads(Tensor(good[..., :5]))
    with pytest.raises(ValueError):
        mha.split_heads(x[0])
    for shape in ((2, 3, 4, 3), (2, 2, 4, 2), (2, 4, 3)):
        with pytest.raises(ValueError):
            mha.merge_heads(Tensor(np.ones(shape)))
