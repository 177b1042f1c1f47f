"""A learner's tests of multi-head attention: the oracle is the formula again, in float64 numpy."""

import numpy as np
import pytest

from tinyllm.num.gradcheck import gradcheck
from tinyllm.num.pcg32 import PCG32, manual_seed
from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention

LAYERS = ("q_proj", "k_proj", "v_proj", "out_proj")
NAMES = [f"{layer}.{part}" for layer in LAYERS for part in ("weight", "bias")]


def draw(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape)


def module(d=8, H=2, **options):
    mha = MultiHeadAttention(d, H, **options)
    for i, (_, p) in enumerate(mha.named_parameters()):
        p.data = draw(*p.shape, seed=i + 10) / 2
    return mha


def oracle(mha, x_q, x_kv, mask=None, H=2):
    """Output and weights, from the definition."""
    state = mha.state_dict()
    B, Tq, d = x_q.shape
    Tk, dh = x_kv.shape[1], d // H

    def project(layer, x):
        return x @ state[f"{layer}.weight"].T + state.get(f"{layer}.bias", 0)

    def heads(x, T):
        return x.reshape(B, T, H, dh).transpose(0, 2, 1, 3)

    q = heads(project("q_proj", x_q), Tq)
    k = heads(project("k_proj", x_kv), Tk)
    v = heads(project("v_proj", x_kv), Tk)
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(dh)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    merged = (weights @ v).transpose(0, 2, 1, 3).reshape(B, Tq, d)
    return project("out_proj", merged), weights


def agrees(mha, x_q, x_kv, mask=None, full=None, H=2):
    wanted, weights = oracle(mha, x_q, x_kv, full, H)
    q = Tensor(x_q)
    kv = q if x_kv is x_q else Tensor(x_kv)
    out, found = mha.attend(q, kv, mask)
    np.testing.assert_allclose(found.data, weights, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(out.data, wanted, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(mha(q, kv, mask).data, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("H", [1, 2, 4])
def test_self_attention_is_the_formula(H, bias):
    x = draw(3, 5, 8)
    agrees(module(8, H, bias=bias), x, x, H=H)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("H", [1, 2, 4])
@pytest.mark.parametrize("Tk", [4, 6, 1])
def test_cross_attention_is_the_formula(H, Tk, bias):
    agrees(module(8, H, bias=bias), draw(3, 4, 8), draw(3, Tk, 8, seed=2), H=H)


def some_mask(*shape, seed=5):
    mask = draw(*shape, seed=seed) > 0
    mask[..., 0] = True  # no dead rows
    return mask


@pytest.mark.parametrize("kind", ["self", "cross"])
def test_masks_of_two_three_and_four_axes(kind):
    B = H = 3  # as many sequences as heads
    x_q = draw(B, 5, 12)
    x_kv = x_q if kind == "self" else draw(B, 4, 12, seed=2)
    Tk = x_kv.shape[1]
    mha = module(12, H)
    for shape in ((5, Tk), (B, 5, Tk), (1, 5, Tk), (B, H, 5, Tk), (B, 1, 1, Tk), (1, H, 5, 1)):
        mask = some_mask(*shape)
        if shape[-1] == 1:
            mask[...] = True
        full = mask[:, None] if mask.ndim == 3 else mask
        agrees(mha, x_q, x_kv, mask, np.broadcast_to(full, (B, H, 5, Tk)), H)


def test_head_mask():
    mha = MultiHeadAttention(12, 3)
    assert mha.head_mask(None, 3, 5, 4) is None
    for shape in ((5, 4), (3, 5, 4), (1, 5, 4), (3, 3, 5, 4), (3, 1, 1, 4), (1, 3, 5, 1)):
        mask = some_mask(*shape)
        found = mha.head_mask(mask, 3, 5, 4)
        assert found.dtype == bool
        full = mask[:, None] if mask.ndim == 3 else mask
        whole = (3, 3, 5, 4)
        np.testing.assert_array_equal(np.broadcast_to(found, whole), np.broadcast_to(full, whole))


def test_a_query_that_reads_nothing():
    mha, x = module(), draw(2, 3, 8)
    mask = np.ones((2, 3, 3), bool)
    mask[0, 1] = False
    out, weights = mha.attend(Tensor(x), Tensor(x), mask)
    assert (weights.data[0, :, 1] == 0).all()
    np.testing.assert_allclose(out.data[0, 1], mha.state_dict()["out_proj.bias"], rtol=1e-12)
    np.testing.assert_allclose(mha(Tensor(x), Tensor(x), mask).data, out.data, rtol=1e-12)


@pytest.mark.parametrize(
    ("H", "wanted"),
    [(2, [0.669762, 0.330238, 0, 1.888386]), (1, [0.182426, 0.817574, 0, 1.635149])],
)
def test_worked_example(H, wanted):
    mha = MultiHeadAttention(4, H)
    for name, p in mha.named_parameters():
        p.data = np.eye(4) if name.endswith("weight") else np.zeros(4)
    query = np.array([[[1.0, 0, 0, 2]]])
    keys = np.array([[[1.0, 0, 0, 0], [0, 1, 0, 2]]])
    found = mha(Tensor(query), Tensor(keys)).data[0, 0]
    np.testing.assert_allclose(found, wanted, atol=5e-7)
    np.testing.assert_allclose(
        mha.attend(Tensor(query), Tensor(keys))[0].data[0, 0], wanted, atol=5e-7
    )


def test_split_and_merge():
    mha = MultiHeadAttention(4, 2)
    x = np.arange(8.0).reshape(1, 2, 4)
    np.testing.assert_array_equal(
        mha.split_heads(Tensor(x)).data, [[[[0, 1], [4, 5]], [[2, 3], [6, 7]]]]
    )
    np.testing.assert_array_equal(
        mha.merge_heads(Tensor(x.reshape(1, 2, 2, 2))).data, [[[0, 1, 4, 5], [2, 3, 6, 7]]]
    )
    mha, x = MultiHeadAttention(12, 3), draw(2, 5, 12)
    split = mha.split_heads(Tensor(x))
    assert split.shape == (2, 3, 5, 4)
    for h in range(3):
        np.testing.assert_array_equal(split.data[:, h], x[..., 4 * h : 4 * h + 4])
    np.testing.assert_array_equal(mha.merge_heads(split).data, x)
    wide = draw(2, 5, 36)  # projections side by side
    split = mha.split_heads(Tensor(wide))
    assert split.shape == (2, 9, 5, 4)
    np.testing.assert_array_equal(split.data[:, 8], wide[..., 32:])


@pytest.mark.parametrize("kind", ["self", "cross"])
def test_dropout(kind):
    x_q = Tensor(draw(2, 6, 8))
    x_kv = x_q if kind == "self" else Tensor(draw(2, 5, 8, seed=2))
    plain, dropping = module(), module(dropout=0.5)
    wanted = plain(x_q, x_kv).data
    for run in (dropping, lambda q, kv: dropping.attend(q, kv)[0]):
        dropping.train()
        first, second = run(x_q, x_kv).data, run(x_q, x_kv).data
        assert not np.allclose(first, wanted)
        assert not np.allclose(first, second)
        dropping.eval()
        np.testing.assert_allclose(run(x_q, x_kv).data, wanted, rtol=1e-12)
    dropping.train()
    weights = dropping.attend(x_q, x_kv)[1].data
    np.testing.assert_allclose(weights, plain.attend(x_q, x_kv)[1].data, rtol=1e-12)


def test_dropout_stream_is_the_contract_s():
    own = PCG32(7)
    mha = MultiHeadAttention(8, 2, dropout=0.5, rng=own)
    assert mha.dropout_rng.state() == own.substream("dropout").state()
    x = Tensor(draw(2, 6, 8))
    again = MultiHeadAttention(8, 2, dropout=0.5, rng=PCG32(7))
    np.testing.assert_array_equal(mha(x, x).data, again(x, x).data)
    mean = np.mean([module(dropout=0.25)(x, x).data for _ in range(3)], axis=0)
    assert np.isfinite(mean).all()


def test_dropout_keeps_the_mean():
    x = Tensor(draw(1, 4, 8))
    mha = module(dropout=0.25, rng=PCG32(0))
    plain = module()(x, x).data
    mean = np.mean([mha(x, x).data for _ in range(300)], axis=0)
    np.testing.assert_allclose(mean, plain, atol=0.3)


def test_parameters():
    manual_seed(0)
    mha = MultiHeadAttention(6, 2)
    state = mha.state_dict()
    assert list(state) == NAMES
    rng = PCG32(0)
    for name, array in state.items():
        shape = (6, 6) if name.endswith("weight") else (6,)
        assert array.shape == shape
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, rng.uniform(-(6**-0.5), 6**-0.5, shape))
    other = MultiHeadAttention(6, 2, rng=PCG32(3)).state_dict()
    assert not np.array_equal(other["q_proj.weight"], state["q_proj.weight"])
    assert list(MultiHeadAttention(6, 2, bias=False).state_dict()) == NAMES[::2]
    assert (mha.d_model, mha.n_heads, mha.d_head, mha.dropout) == (6, 2, 3, 0.0)
    assert mha.scale == pytest.approx(3**-0.5)


def test_packed_order():
    mha = module(6, 2)
    before = mha.state_dict()
    weight, bias = draw(18, 6), draw(18, seed=2)
    mha.load_packed_in_proj(weight)
    for i, layer in enumerate(LAYERS[:3]):
        state = mha.state_dict()
        np.testing.assert_array_equal(state[f"{layer}.weight"], weight[6 * i : 6 * i + 6])
        np.testing.assert_array_equal(state[f"{layer}.bias"], before[f"{layer}.bias"])
    mha.load_packed_in_proj(weight, bias)
    state = mha.state_dict()
    for i, layer in enumerate(LAYERS[:3]):
        np.testing.assert_array_equal(state[f"{layer}.bias"], bias[6 * i : 6 * i + 6])
    np.testing.assert_array_equal(state["out_proj.weight"], before["out_proj.weight"])
    np.testing.assert_array_equal(state["out_proj.bias"], before["out_proj.bias"])
    first = weight[0, 0]
    weight[...] = 0  # no aliasing
    assert mha.state_dict()["q_proj.weight"][0, 0] == first
    bare = MultiHeadAttention(6, 2, bias=False)
    bare.load_packed_in_proj(draw(18, 6))
    np.testing.assert_allclose(bare.state_dict()["k_proj.weight"], draw(18, 6)[6:12], rtol=1e-6)


def test_packed_arrays_that_do_not_fit():
    mha = module(6, 2)
    before = mha.state_dict()
    for arrays in (
        (draw(6, 18),),
        (draw(18, 6), draw(6)),
        (draw(12, 6),),
        (draw(18, 6), draw(18, 1)),
    ):
        with pytest.raises(ValueError):
            mha.load_packed_in_proj(*arrays)
    with pytest.raises(ValueError):
        MultiHeadAttention(6, 2, bias=False).load_packed_in_proj(draw(18, 6), draw(18))
    for name, array in mha.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("masked", [False, True])
def test_gradients(masked):
    mha = module(6, 3)
    x_q = Tensor(draw(2, 3, 6), requires_grad=True)
    x_kv = Tensor(draw(2, 4, 6, seed=2), requires_grad=True)
    mask = some_mask(2, 3, 4) if masked else None

    class Run:
        named_parameters = mha.named_parameters

        def __init__(self, f):
            self.f = f

        def __call__(self, *inputs):
            return self.f(*inputs)

    cross = gradcheck(Run(lambda a, b: mha(a, b, mask)), [x_q, x_kv])
    assert all("k_proj.bias" in name for name in cross.vanishing)
    gradcheck(Run(lambda a, b: mha.attend(a, b, mask)), [x_q, x_kv])
    square = some_mask(2, 3, 3) if masked else None
    gradcheck(Run(lambda a: mha(a, a, square)), [x_q])


def test_gradients_without_biases():
    mha = module(6, 2, bias=False)
    x = Tensor(draw(2, 3, 6), requires_grad=True)

    class Run:
        named_parameters = mha.named_parameters

        def __call__(self, a):
            return mha(a, a)

    gradcheck(Run(), [x])


def test_what_does_not_fit_is_refused():
    for d, H in ((6, 4), (2, 4), (0, 1), (4, 0), (-4, 2), (4, -2), (4.0, 2), (4, 2.0), ("4", 2)):
        with pytest.raises(ValueError):
            MultiHeadAttention(d, H)
    for rate in (1.0, -0.1, 1.5):
        with pytest.raises(ValueError):
            MultiHeadAttention(4, 2, dropout=rate)
    MultiHeadAttention(4, 4)
    MultiHeadAttention(1, 1)
    mha = MultiHeadAttention(6, 2)
    good = draw(2, 3, 6)
    pairs = (
        (good[..., :5], good),
        (good, good[..., :5]),
        (good[0], good[0]),
        (good, good[:1]),
        (good[None], good[None]),
        (good, good[0]),
        (good[:1], good),
    )
    for x_q, x_kv in pairs:
        for run in (mha, mha.attend):
            with pytest.raises(ValueError):
                run(Tensor(x_q), Tensor(x_kv))
    x = Tensor(good)
    shapes = (
        (2,),
        (2, 3),
        (1, 2),
        (3, 4),
        (2, 3, 4),
        (3, 3, 3),
        (2, 3, 3, 3),
        (3, 1, 3, 3),
        (2, 2, 3, 3, 1),
        (1, 1, 2, 3, 3),
        (2, 2, 3, 2),
        (2, 2, 2, 3),
    )
    for shape in shapes:
        for run in (mha, mha.attend):
            with pytest.raises(ValueError):
                run(x, x, np.ones(shape, bool))
        with pytest.raises(ValueError):
            mha.head_mask(np.ones(shape, bool), 2, 3, 3)
    for mask in (np.ones((3, 3)), np.ones((3, 3), int)):
        for run in (mha, mha.attend):
            with pytest.raises(TypeError):
                run(x, x, mask)
    for shape in ((2, 3, 5), (3, 6), (1, 2, 3, 6)):
        with pytest.raises(ValueError):
            mha.split_heads(Tensor(draw(*shape)))
    for shape in ((2, 3, 4, 3), (2, 2, 4, 2), (2, 4, 3), (2, 2, 4, 3, 1)):
        with pytest.raises(ValueError):
            mha.merge_heads(Tensor(draw(*shape)))


def test_positions_and_samples_do_not_mix():
    mha, x_q, x_kv = module(), draw(2, 4, 8), draw(2, 5, 8, seed=2)
    out = mha(Tensor(x_q), Tensor(x_kv)).data
    alone = mha(Tensor(x_q[:1]), Tensor(x_kv[:1])).data
    np.testing.assert_allclose(out[:1], alone, rtol=1e-12)
    order = [3, 0, 4, 2, 1]
    np.testing.assert_allclose(mha(Tensor(x_q), Tensor(x_kv[:, order])).data, out, rtol=1e-10)


@pytest.mark.parametrize(
    ("B", "Tq", "Tk", "d", "H"),
    [(2, 3, 3, 4, 4), (3, 4, 5, 24, 12), (2, 1, 70, 8, 2), (70, 3, 1, 4, 1)],
)
def test_other_sizes(B, Tq, Tk, d, H):
    mha, x_q, x_kv = module(d, H), draw(B, Tq, d), draw(B, Tk, d, seed=2)
    agrees(mha, x_q, x_kv, H=H)
    mask = some_mask(B, H, Tq, Tk)
    agrees(mha, x_q, x_kv, mask, mask, H)


def test_weights_and_masks_may_change():
    mha, x = module(), draw(2, 4, 8)
    mha.eval()
    mask = some_mask(4, 4)
    for seed in range(3):
        agrees(mha, x, x, mask, mask)
        mha.load_state_dict({name: p + seed for name, p in mha.state_dict().items()})
        mask[:, 1:] = ~mask[:, 1:]


@pytest.mark.parametrize("asks", [(True, False), (False, True)])
def test_one_input_asks_for_a_gradient(asks):
    arrays, mha = (draw(2, 4, 8), draw(2, 5, 8, seed=2)), module()
    for run in (mha, lambda *pair: mha.attend(*pair)[0]):
        both = [Tensor(x, requires_grad=True) for x in arrays]
        run(*both).sum().backward()
        pair = [Tensor(x, requires_grad=a) for x, a in zip(arrays, asks, strict=True)]
        run(*pair).sum().backward()
        for found, wanted, ask in zip(pair, both, asks, strict=True):
            assert (found.grad is not None) == ask
            if ask:
                np.testing.assert_allclose(found.grad, wanted.grad, rtol=1e-10, atol=1e-12)


def test_float32():
    mha, x = MultiHeadAttention(8, 2), Tensor(draw(2, 4, 8).astype(np.float32))
    for mask in (None, some_mask(4, 4)):
        assert mha(x, x, mask).dtype == np.float32
        assert {y.dtype for y in mha.attend(x, x, mask)} == {np.dtype(np.float32)}
