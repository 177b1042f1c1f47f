"""Points 1 to 7 of the chapter's list, with an oracle in loops."""

import numpy as np
import pytest

from tinyllm.num.gradcheck import gradcheck
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention


def build(d, H, bias=True, **options):
    mha = MultiHeadAttention(d, H, bias=bias, **options).astype(np.float64)
    draw = np.random.default_rng(d + H)
    for p in mha.parameters():
        p.data = draw.normal(size=p.shape) / np.sqrt(d)
    return mha


def oracle(mha, x_q, x_kv, mask=None):
    """One sample, one head and one query at a time; mask [B, H, Tq, Tk]."""
    s, H = mha.state_dict(), mha.n_heads
    (B, Tq, d), Tk = x_q.shape, x_kv.shape[1]
    dh = d // H

    def linear(name, x):
        y = x @ s[f"{name}.weight"].T
        return y + s[f"{name}.bias"] if f"{name}.bias" in s else y

    weights, context = np.zeros((B, H, Tq, Tk)), np.zeros((B, Tq, d))
    for b in range(B):
        q, k, v = linear("q_proj", x_q[b]), linear("k_proj", x_kv[b]), linear("v_proj", x_kv[b])
        for h in range(H):
            own = slice(h * dh, (h + 1) * dh)
            for i in range(Tq):
                reads = np.ones(Tk, bool) if mask is None else mask[b, h, i]
                if not reads.any():
                    continue
                scores = k[reads, own] @ q[i, own] / dh**0.5
                e = np.exp(scores - scores.max())
                weights[b, h, i, reads] = e / e.sum()
                context[b, i, own] = weights[b, h, i] @ v[:, own]
    return linear("out_proj", context), weights


def compare(mha, x_q, x_kv=None, mask=None, full=None):
    wanted, weights = oracle(mha, x_q, x_q if x_kv is None else x_kv, full)
    q = Tensor(x_q)
    kv = q if x_kv is None else Tensor(x_kv)
    out, found = mha.attend(q, kv, mask)
    np.testing.assert_allclose(found.data, weights, atol=1e-10)
    np.testing.assert_allclose(out.data, wanted, atol=1e-10)
    np.testing.assert_allclose(mha(q, kv, mask).data, wanted, atol=1e-10)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


SIZES = [(1, 1, 1, 4, 2), (2, 3, 5, 8, 2), (3, 4, 4, 6, 6), (2, 1, 7, 6, 1), (7, 40, 70, 36, 12)]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("B", "Tq", "Tk", "d", "H"), SIZES)
def test_oracle(B, Tq, Tk, d, H, bias):
    mha = build(d, H, bias)
    compare(mha, numbers(B, Tq, d))
    compare(mha, numbers(B, Tq, d), numbers(B, Tk, d, seed=1))
    compare(mha, numbers(B, Tq, d), numbers(B, Tq, d, seed=1))


@pytest.mark.parametrize("own", [True, False])
def test_masks(own):
    mha, x = build(9, 3), numbers(3, 5, 9)
    y = None if own else numbers(3, 6, 9, seed=1)
    Tk = 5 if own else 6
    each = numbers(3, 5, Tk, seed=2) > 0
    compare(mha, x, y, each, np.repeat(each[:, None], 3, axis=1))
    compare(mha, x, y, each[0], np.broadcast_to(each[0], (3, 3, 5, Tk)))
    four = numbers(3, 3, 5, Tk, seed=3) > 0
    compare(mha, x, y, four, four)
    compare(mha, x, y, four[:1], np.broadcast_to(four[:1], four.shape))
    keys = each[:, :1]
    compare(mha, x, y, keys, np.broadcast_to(keys[:, None], four.shape))


def test_mask_changed_between_calls():
    mha, x = build(8, 2), numbers(2, 4, 8)
    mask = np.tri(4, dtype=bool)
    compare(mha, x, None, mask, np.broadcast_to(mask, (2, 2, 4, 4)))
    mask[:, 2] = False
    compare(mha, x, None, mask, np.broadcast_to(mask, (2, 2, 4, 4)))


def test_worked_example():
    query, keys = np.array([[[1.0, 0, 0, 2]]]), np.array([[[1.0, 0, 0, 0], [0, 1, 0, 2]]])
    for H, wanted in (
        (2, [0.669762, 0.330238, 0, 1.888386]),
        (1, [0.182426, 0.817574, 0, 1.635149]),
    ):
        mha = MultiHeadAttention(4, H, bias=False).astype(np.float64)
        for p in mha.parameters():
            p.data = np.eye(4)
        np.testing.assert_allclose(mha(Tensor(query), Tensor(keys)).data[0, 0], wanted, atol=1e-6)


def test_split_and_merge():
    mha = MultiHeadAttention(6, 3)
    x = np.arange(24.0).reshape(2, 2, 6)
    split = mha.split_heads(Tensor(x)).data
    for b in range(2):
        for h in range(3):
            for t in range(2):
                assert split[b, h, t].tolist() == x[b, t, 2 * h : 2 * h + 2].tolist()
    y = np.arange(24.0).reshape(2, 3, 2, 2)
    merged = mha.merge_heads(Tensor(y)).data
    assert merged[1, 0].tolist() == [*y[1, 0, 0], *y[1, 1, 0], *y[1, 2, 0]]


def test_dropout():
    x = Tensor(numbers(2, 5, 8))
    plain, mha = build(8, 2), build(8, 2, dropout=0.5, rng=PCG32(1))
    assert not np.allclose(mha(x, x).data, plain(x, x).data)
    assert not np.allclose(mha(x, x).data, mha(x, x).data)
    assert not np.allclose(mha.attend(x, x)[0].data, mha.attend(x, x)[0].data)
    mha.eval()
    for _ in range(2):
        np.testing.assert_array_equal(mha(x, x).data, plain(x, x).data)
        np.testing.assert_array_equal(mha.attend(x, x)[0].data, plain.attend(x, x)[0].data)


def test_packed_rows():
    mha = build(4, 2)
    before = mha.state_dict()
    weight, bias = numbers(12, 4, seed=5), numbers(12, seed=6)
    mha.load_packed_in_proj(weight, bias)
    for i, name in enumerate(("q_proj", "k_proj", "v_proj")):
        assert (mha.state_dict()[f"{name}.weight"] == weight[4 * i : 4 * i + 4]).all()
        assert (mha.state_dict()[f"{name}.bias"] == bias[4 * i : 4 * i + 4]).all()
    assert (mha.state_dict()["out_proj.weight"] == before["out_proj.weight"]).all()
    mha.load_packed_in_proj(weight * 2)
    assert (mha.state_dict()["v_proj.bias"] == bias[8:]).all()
    for wrong in ((weight.T,), (weight[:8],), (weight, bias[:4])):
        with pytest.raises(ValueError):
            mha.load_packed_in_proj(*wrong)


@pytest.mark.parametrize("path", ["forward", "attend"])
def test_gradients(path):
    mha = build(6, 2)
    mask = numbers(2, 3, 4, seed=2) > -0.5

    class Run:
        named_parameters = mha.named_parameters

        def __call__(self, q, kv):
            if path == "attend":
                return mha.attend(q, kv, mask)
            return mha(q, kv, mask), mha(q, q)

    inputs = [Tensor(numbers(2, n, 6, seed=n), requires_grad=True) for n in (3, 4)]
    gradcheck(Run(), inputs)


def test_gradient_of_one_input_alone():
    mha, x, y = build(6, 2), numbers(2, 3, 6), numbers(2, 4, 6, seed=1)
    for run in (mha, lambda *a: mha.attend(*a)[0]):
        both = [Tensor(x, requires_grad=True), Tensor(y, requires_grad=True)]
        run(*both).sum().backward()
        for i in range(2):
            pair = [Tensor(x, requires_grad=i == 0), Tensor(y, requires_grad=i == 1)]
            run(*pair).sum().backward()
            np.testing.assert_allclose(pair[i].grad, both[i].grad, atol=1e-12)


def test_names_and_refusals():
    names = list(MultiHeadAttention(4, 2).state_dict())
    assert names == [f"{n}_proj.{p}" for n in ("q", "k", "v", "out") for p in ("weight", "bias")]
    for sizes in ((6, 4), (0, 1), (4, 0), (4, -2), (4.0, 2)):
        with pytest.raises(ValueError):
            MultiHeadAttention(*sizes)
    for rate in (1.0, -0.1):
        with pytest.raises(ValueError):
            MultiHeadAttention(4, 2, dropout=rate)
    mha, x = MultiHeadAttention(4, 2), Tensor(np.ones((2, 3, 4), np.float32))
    for shape in ((3, 3, 3), (2, 3), (4, 3), (2, 3, 3, 3), (1, 1, 1, 3, 3)):
        with pytest.raises(ValueError):
            mha(x, x, np.ones(shape, bool))
    for mask in (np.ones((3, 3)), np.ones((3, 3), np.int8)):
        with pytest.raises(TypeError):
            mha.attend(x, x, mask)
    for other in (np.ones((1, 3, 4)), np.ones((2, 3, 5)), np.ones((3, 4))):
        with pytest.raises(ValueError):
            mha(x, Tensor(other.astype(np.float32)))
        with pytest.raises(ValueError):
            mha(Tensor(other.astype(np.float32)), x)
    for shape in ((3, 4), (2, 3, 6)):
        with pytest.raises(ValueError):
            mha.split_heads(Tensor(np.ones(shape)))
    for shape in ((2, 4, 3, 2), (2, 2, 3, 4), (2, 2, 3)):
        with pytest.raises(ValueError):
            mha.merge_heads(Tensor(np.ones(shape)))
