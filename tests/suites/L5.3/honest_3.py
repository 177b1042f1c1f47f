"""Drawn shapes, masks and states against one formula."""

import numpy as np
import pytest

from tinyllm.num.gradcheck import gradcheck
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention

NAMES = ("q_proj", "k_proj", "v_proj", "out_proj")


def formula(state, H, x_q, x_kv, mask=True):
    def layer(name, x):
        return np.einsum("btd,ed->bte", x, state[f"{name}.weight"]) + state.get(f"{name}.bias", 0.0)

    def heads(name, x):
        return np.stack(np.split(layer(name, x), H, axis=-1), axis=1)

    q, k, v = heads("q_proj", x_q), heads("k_proj", x_kv), heads("v_proj", x_kv)
    scores = np.einsum("bhid,bhjd->bhij", q, k) * (q.shape[-1] ** -0.5)
    scores = np.where(mask, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    e = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = e.sum(axis=-1, keepdims=True)
    weights = e / np.where(total == 0, 1, total)
    context = np.concatenate(list(np.einsum("bhij,bhjd->hbid", weights, v)), axis=-1)
    return layer("out_proj", context), weights


@pytest.mark.parametrize("seed", range(40))
def test_drawn(seed):
    draw = np.random.default_rng(seed)
    H, dh = int(draw.integers(1, 12)), int(draw.integers(1, 7))
    B, Tq, Tk = (int(draw.integers(1, n)) for n in (8, 12, 80))
    d = H * dh
    mha = MultiHeadAttention(d, H, bias=bool(seed % 3)).astype(np.float64)
    for p in mha.parameters():
        p.data = draw.normal(size=p.shape) * (2 if p.ndim == 1 else d**-0.5)
    x_q = draw.normal(size=(B, Tq, d))
    x_kv = x_q if seed % 2 else draw.normal(size=(B, Tk, d))
    Tk = x_kv.shape[1]
    whole = (B, H, Tq, Tk)
    shape = [whole, (B, Tq, Tk), (Tq, Tk), (B, 1, 1, Tk), (1, H, Tq, 1), (Tk,)][seed % 6]
    mask = draw.random(shape) > 0.3
    full = mask[:, None] if mask.ndim == 3 else mask
    q = Tensor(x_q)
    kv = q if seed % 2 else Tensor(x_kv)
    for given, used in ((None, True), (mask, np.broadcast_to(full, whole))):
        wanted, weights = formula(mha.state_dict(), H, x_q, x_kv, used)
        out, found = mha.attend(q, kv, given)
        np.testing.assert_allclose(found.data, weights, atol=1e-9)
        np.testing.assert_allclose(out.data, wanted, atol=1e-9)
        np.testing.assert_allclose(mha(q, kv, given).data, wanted, atol=1e-9)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("same", [True, False])
def test_gradients(masked, same):
    draw = np.random.default_rng(1)
    mha = MultiHeadAttention(6, 3).astype(np.float64)
    x = Tensor(draw.normal(size=(2, 3, 6)), requires_grad=True)
    y = Tensor(draw.normal(size=(2, 4, 6)), requires_grad=True)
    mask = np.array([[True, False, True, True][: 3 if same else 4]]) if masked else None

    class Run:
        named_parameters = mha.named_parameters

        def __init__(self, call):
            self.call = call

        def __call__(self, *inputs):
            return self.call(inputs[0], inputs[-1], mask)

    inputs = [x] if same else [x, y]
    gradcheck(Run(mha), inputs)
    gradcheck(Run(mha.attend), inputs)


def test_example_of_the_chapter():
    for H, wanted in {
        2: [0.669762, 0.330238, 0, 1.888386],
        1: [0.182426, 0.817574, 0, 1.635149],
    }.items():
        mha = MultiHeadAttention(4, H).astype(np.float64)
        eye = {f"{n}.weight": np.eye(4) for n in NAMES} | {f"{n}.bias": np.zeros(4) for n in NAMES}
        mha.load_state_dict(eye)
        q = Tensor(np.array([[[1.0, 0, 0, 2]]]))
        kv = Tensor(np.array([[[1.0, 0, 0, 0], [0, 1, 0, 2]]]))
        np.testing.assert_allclose(mha(q, kv).data.ravel(), wanted, atol=1e-6)


def test_heads_are_slices():
    mha = MultiHeadAttention(15, 5)
    x = np.random.default_rng(0).normal(size=(3, 4, 15))
    split = mha.split_heads(Tensor(x)).data
    for h in range(5):
        np.testing.assert_array_equal(split[:, h], x[..., 3 * h : 3 * h + 3])
    parts = np.random.default_rng(1).normal(size=(3, 5, 4, 3))
    merged = mha.merge_heads(Tensor(parts)).data
    np.testing.assert_array_equal(merged, np.concatenate(list(parts.swapaxes(0, 1)), axis=-1))


def test_training_and_evaluation():
    rng = PCG32(9)
    mha = MultiHeadAttention(8, 4, dropout=0.4, rng=rng).astype(np.float64)
    x = np.random.default_rng(2).normal(size=(2, 5, 8))
    wanted, weights = formula(mha.state_dict(), 4, x, x)
    q = Tensor(x)
    results = [mha(q, q).data, mha(q, q).data, mha.attend(q, q)[0].data, wanted]
    for i in range(4):
        for j in range(i):
            assert not np.allclose(results[i], results[j])
    np.testing.assert_allclose(mha.attend(q, q)[1].data, weights)
    mean = np.mean([mha(q, q).data for _ in range(400)], axis=0)
    np.testing.assert_allclose(mean, wanted, atol=0.2)
    mha.eval()
    np.testing.assert_allclose(mha(q, q).data, wanted)
    np.testing.assert_allclose(mha.attend(q, q)[0].data, wanted)


def test_loading():
    mha = MultiHeadAttention(6, 2).astype(np.float64)
    mha.eval()
    x = np.random.default_rng(2).normal(size=(2, 5, 6))
    for seed in range(2):  # also after a call
        draw = np.random.default_rng(seed)
        weight, bias = draw.normal(size=(18, 6)), draw.normal(size=18)
        out = {"out_proj.weight": mha.out_proj.weight.data, "out_proj.bias": mha.out_proj.bias.data}
        mha.load_packed_in_proj(weight, bias)
        state = {f"{n}.weight": w for n, w in zip(NAMES[:3], np.split(weight, 3), strict=True)}
        state |= {f"{n}.bias": b for n, b in zip(NAMES[:3], np.split(bias, 3), strict=True)} | out
        wanted = formula(state, 2, x, x)[0]
        np.testing.assert_allclose(mha(Tensor(x), Tensor(x)).data, wanted)
        np.testing.assert_allclose(mha.attend(Tensor(x), Tensor(x))[0].data, wanted)
        q = Tensor(x)
        np.testing.assert_allclose(mha(q, q).data, wanted)
    mha.load_packed_in_proj(np.zeros((18, 6)))
    np.testing.assert_array_equal(mha.state_dict()["k_proj.bias"], bias[6:12])
    with pytest.raises(ValueError):
        mha.load_packed_in_proj(np.zeros((6, 18)))
    with pytest.raises(ValueError):
        mha.load_packed_in_proj(np.zeros((18, 6)), np.zeros(6))


def test_parameters():
    rng = PCG32(7)
    mha, draws = MultiHeadAttention(4, 2, rng=rng), PCG32(7)
    for layer in NAMES:
        for part, shape in (("weight", (4, 4)), ("bias", (4,))):
            found = mha.state_dict()[f"{layer}.{part}"]
            np.testing.assert_array_equal(found, draws.uniform(-0.5, 0.5, shape))
    assert mha.dropout_rng.state() == PCG32(7).substream("dropout").state()
    assert len(MultiHeadAttention(4, 2, bias=False).state_dict()) == 4
    again = MultiHeadAttention(4, 2, rng=rng)
    assert again.dropout_rng.state() != mha.dropout_rng.state()


def test_refusals():
    for sizes in ((4, 3), (0, 1), (2, 0), (-2, 1), (4, -2), (4.0, 2), (4, "2")):
        with pytest.raises(ValueError):
            MultiHeadAttention(*sizes)
    for rate in (-1e-3, 1.0):
        with pytest.raises(ValueError):
            MultiHeadAttention(4, 2, dropout=rate)
    mha = MultiHeadAttention(4, 2)

    def zeros(*shape):
        return Tensor(np.zeros(shape, np.float32))

    good = zeros(2, 3, 4)
    for call in (mha.forward, mha.attend):
        for pair in (
            (good, zeros(1, 3, 4)),
            (good, zeros(2, 3, 2)),
            (zeros(2, 3, 6), good),
            (zeros(3, 4), zeros(3, 4)),
        ):
            with pytest.raises(ValueError):
                call(*pair)
        for shape in ((5, 3, 3), (3, 3, 3), (4, 3), (2, 3, 3, 3), (2, 2, 3, 3, 1)):
            with pytest.raises(ValueError):
                call(good, good, np.ones(shape, bool))
        for dtype in (np.int64, np.uint8, np.float32):
            with pytest.raises(TypeError):
                call(good, good, np.ones((3, 3), dtype))
    for wrong in (zeros(2, 3, 6), zeros(3, 4)):
        with pytest.raises(ValueError):
            mha.split_heads(wrong)
    for wrong in (zeros(2, 3, 3, 2), zeros(2, 2, 3, 3), zeros(2, 3, 4)):
        with pytest.raises(ValueError):
            mha.merge_heads(wrong)
