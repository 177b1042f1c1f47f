"""Small tests, one fact each."""

import numpy as np
import pytest

from tinyllm.num.gradcheck import gradcheck
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention


def rand(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def make(d=8, H=4, **options):
    mha = MultiHeadAttention(d, H, rng=PCG32(5), **options).astype(np.float64)
    for i, p in enumerate(mha.parameters()):
        p.data = rand(*p.shape, seed=100 + i)
    return mha


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def numpy_attention(mha, x_q, x_kv, mask=None):
    (B, Tq, d), Tk, H = x_q.shape, x_kv.shape[1], mha.n_heads
    p = mha.state_dict()
    q, k, v = (
        x @ p[f"{n}_proj.weight"].T + p.get(f"{n}_proj.bias", 0)
        for n, x in (("q", x_q), ("k", x_kv), ("v", x_kv))
    )
    q = q.reshape(B, Tq, H, -1).transpose(0, 2, 1, 3)
    k = k.reshape(B, Tk, H, -1).transpose(0, 2, 3, 1)
    v = v.reshape(B, Tk, H, -1).transpose(0, 2, 1, 3)
    s = q @ k / np.sqrt(d // H)
    w = softmax(s if mask is None else np.where(mask, s, -1e30))
    o = (w @ v).transpose(0, 2, 1, 3).reshape(B, Tq, d)
    return o @ p["out_proj.weight"].T + p.get("out_proj.bias", 0), w


CALLS = {"forward": lambda m, *a: m(*a), "attend": lambda m, *a: m.attend(*a)[0]}
each_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@each_call
@pytest.mark.parametrize("bias", [True, False])
def test_self(call, bias):
    mha, x = make(bias=bias), rand(3, 5, 8)
    t = Tensor(x)
    np.testing.assert_allclose(call(mha, t, t).data, numpy_attention(mha, x, x)[0])


@each_call
@pytest.mark.parametrize("Tk", [1, 3, 5])
def test_cross(call, Tk):
    mha, x, y = make(), rand(3, 5, 8), rand(3, Tk, 8, seed=1)
    np.testing.assert_allclose(call(mha, Tensor(x), Tensor(y)).data, numpy_attention(mha, x, y)[0])


@each_call
def test_many_heads_long_sequences_large_batch(call):
    for d, H, B, Tq, Tk in (
        (40, 10, 2, 3, 3),
        (5, 5, 3, 4, 2),
        (8, 2, 2, 50, 140),
        (4, 1, 70, 2, 3),
    ):
        mha, x, y = make(d, H), rand(B, Tq, d) / 4, rand(B, Tk, d, seed=1) / 4
        out = call(mha, Tensor(x), Tensor(y)).data
        np.testing.assert_allclose(out, numpy_attention(mha, x, y)[0], atol=1e-9)


def test_weights():
    mha, x, y = make(), rand(3, 5, 8), rand(3, 6, 8, seed=1)
    weights = mha.attend(Tensor(x), Tensor(y))[1].data
    np.testing.assert_allclose(weights, numpy_attention(mha, x, y)[1])


@each_call
@pytest.mark.parametrize("same", [True, False])
def test_a_mask_for_each_sequence(call, same):
    mha, x = make(6, 3), rand(3, 4, 6)
    y = x if same else rand(3, 4, 6, seed=1)
    mask = rand(3, 4, 4, seed=2) > 0
    mask[..., 0] = True
    a = Tensor(x)
    b = a if same else Tensor(y)
    wanted = numpy_attention(mha, x, y, mask[:, None])[0]
    np.testing.assert_allclose(call(mha, a, b, mask).data, wanted)


@each_call
def test_a_mask_for_each_head(call):
    mha, x = make(6, 3), rand(2, 4, 6)
    mask = rand(1, 3, 4, 4, seed=2) > 0
    mask[..., 0] = True
    wanted = numpy_attention(mha, x, x, mask)[0]
    np.testing.assert_allclose(call(mha, Tensor(x), Tensor(x), mask).data, wanted)
    one = mask[:, :, :1]  # every query the same
    wanted = numpy_attention(mha, x[:, :1], x, one)[0]
    np.testing.assert_allclose(call(mha, Tensor(x[:, :1]), Tensor(x), one).data, wanted)


@each_call
def test_a_causal_mask(call):
    mha, x = make(), rand(2, 6, 8)
    mask = np.tri(6, dtype=bool)
    t = Tensor(x)
    np.testing.assert_allclose(call(mha, t, t, mask).data, numpy_attention(mha, x, x, mask)[0])


@each_call
def test_a_query_without_keys(call):
    mha, x = make(), Tensor(rand(5, 3, 8))
    mask = np.ones((5, 3, 3), bool)
    mask[4, 1] = False
    np.testing.assert_allclose(call(mha, x, x, mask).data[4, 1], mha.out_proj.bias.data)


def test_masked_keys_weigh_nothing():
    mask = np.array([True, True, False])
    x = Tensor(rand(2, 3, 8))
    assert (make().attend(x, x, mask)[1].data[..., 2] == 0).all()


def test_hand_numbers():
    mha = MultiHeadAttention(4, 2, bias=False).astype(np.float64)
    for p in mha.parameters():
        p.data = np.eye(4)
    q, kv = rand(1, 1, 4), np.array([[[1.0, 0, 0, 0], [0, 1, 0, 2]]])
    q[:] = [1, 0, 0, 2]
    out, w = mha.attend(Tensor(q), Tensor(kv))
    np.testing.assert_allclose(
        w.data[0, :, 0], [[0.669762, 0.330238], [0.055807, 0.944193]], atol=1e-6
    )
    np.testing.assert_allclose(out.data[0, 0], [0.669762, 0.330238, 0, 1.888386], atol=1e-6)


def test_splitting():
    split = MultiHeadAttention(4, 2).split_heads(Tensor(np.arange(12.0).reshape(1, 3, 4)))
    assert split.data.tolist() == [[[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [10, 11]]]]


def test_merging():
    merged = MultiHeadAttention(4, 2).merge_heads(Tensor(np.arange(12.0).reshape(1, 2, 3, 2)))
    assert merged.data.tolist() == [[[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]]


@each_call
def test_dropout(call):
    x = Tensor(rand(2, 5, 8))
    mha, plain = make(dropout=0.5), make()
    one, two = call(mha, x, x).data, call(mha, x, x).data
    assert not np.allclose(one, two)
    mha.eval()
    np.testing.assert_array_equal(call(mha, x, x).data, call(plain, x, x).data)
    mha.train()
    assert not np.allclose(call(mha, x, x).data, call(plain, x, x).data)


@each_call
def test_dropout_can_be_repeated(call):
    x = Tensor(rand(2, 5, 8))
    a, b = make(dropout=0.5), make(dropout=0.5)
    np.testing.assert_array_equal(call(a, x, x).data, call(b, x, x).data)


def test_packed_order():
    mha, w, b = make(), rand(24, 8), rand(24)
    mha.load_packed_in_proj(w, b)
    for i, layer in enumerate((mha.q_proj, mha.k_proj, mha.v_proj)):
        np.testing.assert_array_equal(layer.weight.data, w[8 * i : 8 * i + 8])
        np.testing.assert_array_equal(layer.bias.data, b[8 * i : 8 * i + 8])


def test_packed_weight_alone():
    mha = make()
    before = mha.q_proj.bias.data.copy()
    mha.load_packed_in_proj(rand(24, 8))
    np.testing.assert_array_equal(mha.q_proj.bias.data, before)


@pytest.mark.parametrize("arrays", [(np.ones((8, 24)),), (np.ones((24, 8)), np.ones(8))])
def test_packed_refused(arrays):
    with pytest.raises(ValueError):
        make().load_packed_in_proj(*arrays)


@pytest.mark.parametrize("bias", [True, False])
def test_gradcheck_of_both_paths(bias):
    mha = make(4, 2, bias=bias)

    class Both:
        named_parameters = mha.named_parameters

        def __call__(self, x, y):
            return mha(x, x), mha(x, y), *mha.attend(x, y, np.array([True, True, False]))

    gradcheck(Both(), [Tensor(rand(2, n, 4, seed=n), requires_grad=True) for n in (2, 3)])


@each_call
def test_memory_alone_needs_a_gradient(call):
    x, y = Tensor(rand(2, 3, 8)), Tensor(rand(2, 4, 8), requires_grad=True)
    call(make(), x, y).sum().backward()
    assert (y.grad != 0).any()


@each_call
def test_gradients_add_up(call):
    mha, x = make(), Tensor(rand(2, 3, 8))
    call(mha, x, x).sum().backward()
    once = {n: p.grad.copy() for n, p in mha.named_parameters()}
    call(mha, x, x).sum().backward()
    for n, p in mha.named_parameters():
        np.testing.assert_allclose(p.grad, 2 * once[n], atol=1e-9)


@each_call
def test_changed_weights_count(call):
    mha, x = make(), rand(2, 3, 8)
    mha.eval()
    t = Tensor(x)
    call(mha, t, t)
    mha.k_proj.weight.data += 1
    np.testing.assert_allclose(call(mha, t, t).data, numpy_attention(mha, x, x)[0])


def test_float32():
    mha = MultiHeadAttention(8, 2)
    x = Tensor(rand(2, 3, 8).astype(np.float32))
    for mask in (None, np.tri(3, dtype=bool)):
        assert mha(x, x, mask).dtype == np.float32
        assert mha.attend(x, x, mask)[1].dtype == np.float32


def test_parameter_names():
    assert list(make().state_dict())[:3] == ["q_proj.weight", "q_proj.bias", "k_proj.weight"]
    assert len(make(bias=False).state_dict()) == 4


def test_parameters_are_drawn_in_order():
    a = MultiHeadAttention(6, 2, rng=PCG32(2)).state_dict()
    rng = PCG32(2)
    for array in a.values():
        np.testing.assert_array_equal(array, rng.uniform(-(6**-0.5), 6**-0.5, array.shape))


@pytest.mark.parametrize(("d", "H"), [(6, 4), (0, 1), (4, 0), (-4, 2), (4, -2), (4.0, 2), (4, 2.0)])
def test_sizes_refused(d, H):
    with pytest.raises(ValueError):
        MultiHeadAttention(d, H)


@pytest.mark.parametrize("rate", [-0.1, 1.0, 2])
def test_rates_refused(rate):
    with pytest.raises(ValueError):
        MultiHeadAttention(4, 2, dropout=rate)


@each_call
@pytest.mark.parametrize("shape", [(2, 5, 4), (1, 5, 8), (5, 8), (2, 5, 8, 1)])
def test_inputs_refused(call, shape):
    for pair in ((rand(2, 5, 8), rand(*shape)), (rand(*shape), rand(2, 5, 8))):
        with pytest.raises(ValueError):
            call(make(), *map(Tensor, pair))


@each_call
@pytest.mark.parametrize(
    "shape", [(4,), (2, 5), (5, 4), (4, 5, 5), (3, 5, 5), (2, 3, 5, 5), (1, 1, 1, 1, 1)]
)
def test_masks_refused(call, shape):
    x = Tensor(rand(2, 5, 8))
    with pytest.raises(ValueError):
        call(make(), x, x, np.ones(shape, bool))


@each_call
@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int8])
def test_mask_dtypes_refused(call, dtype):
    x = Tensor(rand(2, 5, 8))
    with pytest.raises(TypeError):
        call(make(), x, x, np.ones((5, 5), dtype))


def test_heads_refused():
    with pytest.raises(ValueError):
        make().split_heads(Tensor(rand(2, 5, 6)))
    with pytest.raises(ValueError):
        make().merge_heads(Tensor(rand(2, 2, 5, 4)))
    with pytest.raises(ValueError):
        make().split_heads(Tensor(rand(5, 8)))
