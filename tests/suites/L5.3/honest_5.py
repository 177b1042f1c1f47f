"""The chapter's list, point by point, and little else."""

import numpy as np
import pytest

from tinyllm.num.gradcheck import gradcheck
from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention


class Oracle:
    """Project, reshape, transpose, softmax with the mask, merge, project: in float64."""

    def __init__(self, mha):
        self.state, self.H = mha.state_dict(), mha.n_heads

    def project(self, name, x):
        return x @ self.state[name + ".weight"].T + self.state.get(name + ".bias", 0.0)

    def split(self, x):
        B, T, d = x.shape
        return x.reshape(B, T, self.H, d // self.H).transpose(0, 2, 1, 3)

    def __call__(self, x_q, x_kv, mask=None):
        q = self.split(self.project("q_proj", x_q))
        k = self.split(self.project("k_proj", x_kv))
        v = self.split(self.project("v_proj", x_kv))
        scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
        if mask is not None:
            scores = np.where(mask[:, None], scores, -np.inf)
        e = np.exp(scores - scores.max(axis=3, keepdims=True))
        weights = e / e.sum(axis=3, keepdims=True)
        merged = (weights @ v).transpose(0, 2, 1, 3).reshape(x_q.shape)
        return self.project("out_proj", merged), weights


def random(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape)


def module(d, H, **options):
    mha = MultiHeadAttention(d, H, **options)
    for i, p in enumerate(mha.parameters()):
        p.data = random(*p.shape, seed=50 + i)
    return mha


class TestMultiHead:
    def check(self, mha, x_q, x_kv, mask=None):
        out, weights = Oracle(mha)(x_q, x_kv, mask)
        q = Tensor(x_q)
        kv = q if x_kv is x_q else Tensor(x_kv)
        found, w = mha.attend(q, kv, mask)
        np.testing.assert_allclose(w.data, weights, atol=1e-9)
        np.testing.assert_allclose(found.data, out, atol=1e-9)
        np.testing.assert_allclose(mha(q, kv, mask).data, out, atol=1e-9)

    def test_1_oracle(self):
        for bias in (True, False):
            mha = module(12, 3, bias=bias)
            x = random(3, 5, 12)
            mask = random(3, 5, 5, seed=3) > 0
            mask[:, :, 0] = True
            self.check(mha, x, x)
            self.check(mha, x, x, mask)
            self.check(mha, x, random(3, 5, 12, seed=1))
            self.check(mha, x, random(3, 5, 12, seed=1), mask)
            self.check(mha, x, random(3, 7, 12, seed=1))

    def test_2_worked_example(self):
        q, kv = np.zeros((1, 1, 4)), np.zeros((1, 2, 4))
        q[0, 0], kv[0, 0], kv[0, 1] = (1, 0, 0, 2), (1, 0, 0, 0), (0, 1, 0, 2)
        for H, first in ((2, 0.669762), (1, 0.182426)):
            mha = module(4, H, bias=False)
            for p in mha.parameters():
                p.data = np.eye(4)
            out, weights = mha.attend(Tensor(q), Tensor(kv))
            assert weights.data[0, 0, 0, 0] == pytest.approx(first, abs=1e-6)
            assert out.data[0, 0, 0] == pytest.approx(first, abs=1e-6)

    def test_3_split_and_merge(self):
        mha, x = module(6, 2), random(2, 4, 6)
        split = mha.split_heads(Tensor(x)).data
        np.testing.assert_array_equal(split, Oracle(mha).split(x))
        y = random(2, 2, 4, 3)
        merged = mha.merge_heads(Tensor(y)).data
        np.testing.assert_array_equal(merged[:, :, :3], y[:, 0])
        np.testing.assert_array_equal(merged[:, :, 3:], y[:, 1])

    def test_4_evaluation(self):
        dropping, plain, x = module(8, 2, dropout=0.5), module(8, 2), Tensor(random(2, 4, 8))
        assert not np.allclose(dropping(x, x).data, plain(x, x).data)
        assert not np.allclose(dropping.attend(x, x)[0].data, plain(x, x).data)
        assert not np.allclose(dropping(x, x).data, dropping(x, x).data)
        dropping.eval()
        np.testing.assert_array_equal(dropping(x, x).data, plain(x, x).data)
        np.testing.assert_array_equal(dropping.attend(x, x)[0].data, plain.attend(x, x)[0].data)

    def test_5_packed(self):
        mha, weight, bias = module(4, 2), random(12, 4), random(12)
        mha.load_packed_in_proj(weight, bias)
        for i, layer in enumerate((mha.q_proj, mha.k_proj, mha.v_proj)):
            np.testing.assert_array_equal(layer.weight.data, weight[4 * i : 4 * i + 4])
            np.testing.assert_array_equal(layer.bias.data, bias[4 * i : 4 * i + 4])
        with pytest.raises(ValueError):
            mha.load_packed_in_proj(weight.T)

    def test_6_gradients(self):
        for bias in (True, False):
            mha = module(4, 2, bias=bias)

            class Run:
                named_parameters = mha.named_parameters

                def __call__(self, x, y, mha=mha):
                    return mha(x, y), mha(x, x), mha.attend(x, y)[1]

            gradcheck(Run(), [Tensor(random(2, n, 4, seed=n), requires_grad=True) for n in (2, 3)])

    def test_7_sizes_and_state(self):
        for d, H, B, Tq, Tk in (
            (3, 3, 2, 2, 2),
            (33, 11, 6, 2, 3),
            (4, 2, 2, 1, 66),
            (4, 2, 66, 3, 1),
        ):
            mha = module(d, H)
            x, y = random(B, Tq, d), random(B, Tk, d, seed=1)
            self.check(mha, x, y)
            mask = random(B, Tq, Tk, seed=2) > 0
            mask[:, :, 0] = True
            self.check(mha, x, y, mask)
            mask[:, :, 0] = ~mask[:, :, 1:].any()  # in place
            mask[~mask.any(axis=2)] = True
            self.check(mha, x, y, mask)
        mha.eval()
        self.check(mha, x, x)
        mha.load_state_dict(module(d, H).state_dict() | {"q_proj.bias": random(d, seed=9)})
        self.check(mha, x, x)

    def test_8_refusals(self):
        for d, H in ((4, 3), (4, 0), (0, 1)):
            with pytest.raises(ValueError):
                MultiHeadAttention(d, H)
        for rate in (-0.5, 1.0):
            with pytest.raises(ValueError):
                MultiHeadAttention(4, 2, dropout=rate)
        mha, x = module(4, 2), Tensor(random(3, 5, 4))
        with pytest.raises(ValueError):
            mha(x, Tensor(random(2, 5, 4)))
        with pytest.raises(ValueError):
            mha(x, x, np.ones((2, 5, 5), bool))
        with pytest.raises(TypeError):
            mha(x, x, np.ones((5, 5)))
