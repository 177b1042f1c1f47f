"""torch is the oracle, over a grid, with every gradient."""

import numpy as np
import pytest
import torch

from tinyllm.num.pcg32 import PCG32, manual_seed
from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention

LAYERS = ["q_proj", "k_proj", "v_proj"]


def pair(d, H, bias=True, dtype=np.float64, **options):
    torch.manual_seed(d * H)
    theirs = torch.nn.MultiheadAttention(d, H, bias=bias, batch_first=True).double()
    for p in theirs.parameters():
        torch.nn.init.normal_(p, std=0.5)
    ours = MultiHeadAttention(d, H, bias=bias, **options).astype(dtype)
    ours.load_packed_in_proj(
        theirs.in_proj_weight.detach(), theirs.in_proj_bias.detach() if bias else None
    )
    ours.out_proj.load_state_dict({k: v.numpy() for k, v in theirs.out_proj.state_dict().items()})
    return ours, theirs


def gradients(ours, theirs):
    for part in ["weight", "bias"] if theirs.in_proj_bias is not None else ["weight"]:
        packed = getattr(theirs, f"in_proj_{part}").grad.chunk(3)
        for layer, rows in zip(LAYERS, packed, strict=True):
            yield getattr(getattr(ours, layer), part).grad, rows.numpy()
        yield getattr(ours.out_proj, part).grad, getattr(theirs.out_proj, part).grad.numpy()


def both(d, H, B, Tq, Tk, bias=True, mask=None, same=False):
    draw = np.random.default_rng(B + Tq + Tk)
    x = draw.normal(size=(B, Tq, d))
    y = x if same else draw.normal(size=(B, Tk, d))
    grad = draw.normal(size=(B, Tq, d))
    hidden = None
    if mask is not None:
        full = mask[:, None] if mask.ndim == 3 else mask
        full = np.broadcast_to(full, (B, H, Tq, y.shape[1]))
        hidden = torch.tensor(~full.reshape(B * H, Tq, -1))
    for call in ("forward", "attend"):
        ours, theirs = pair(d, H, bias)
        t = torch.tensor(x, requires_grad=True)
        u = t if same else torch.tensor(y, requires_grad=True)
        wanted, weights = theirs(t, u, u, attn_mask=hidden, average_attn_weights=False)
        wanted.backward(torch.tensor(grad))
        a = Tensor(x, requires_grad=True)
        b = a if same else Tensor(y, requires_grad=True)
        if call == "attend":
            out, found = ours.attend(a, b, mask)
            np.testing.assert_allclose(found.data, weights.detach().numpy(), atol=1e-9)
        else:
            out = ours(a, b, mask)
        out.backward(grad)
        np.testing.assert_allclose(out.data, wanted.detach().numpy(), atol=1e-9)
        np.testing.assert_allclose(a.grad, t.grad.numpy(), atol=1e-9)
        np.testing.assert_allclose(b.grad, u.grad.numpy(), atol=1e-9)
        for found, wanted in gradients(ours, theirs):
            np.testing.assert_allclose(found, wanted, atol=1e-8)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("d", "H", "B", "Tq", "Tk"),
    [(8, 2, 2, 4, 4), (6, 3, 3, 5, 2), (4, 4, 1, 1, 3), (4, 1, 2, 3, 1), (48, 12, 6, 35, 70)],
)
def test_grid(d, H, B, Tq, Tk, bias, same):
    both(d, H, B, Tq, Tk, bias, same=same)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(
    "shape", [(3, 4, 4), (4, 4), (3, 3, 4, 4), (1, 3, 4, 4), (3, 1, 1, 4), (1, 4, 1)]
)
def test_masks(shape, same):
    mask = np.random.default_rng(len(shape)).random(shape) > 0.4
    mask[..., 0] = True
    both(6, 3, 3, 4, 4, mask=mask, same=same)


def test_one_query_and_one_key():
    mask = np.array([[[[True, False, True]], [[False, True, True]]]] * 2)
    both(4, 2, 2, 1, 3, mask=mask)
    ours, _ = pair(4, 2)
    x = Tensor(np.ones((2, 3, 4)))
    y = Tensor(np.ones((2, 1, 4)))
    nobody = ours(x, y, np.zeros((3, 1), bool)).data
    np.testing.assert_array_equal(nobody, np.broadcast_to(ours.out_proj.bias.data, (2, 3, 4)))


def test_layout():
    mha = MultiHeadAttention(4, 2)
    x = torch.arange(24.0).reshape(2, 3, 4)
    wanted = x.unflatten(2, (2, 2)).transpose(1, 2)
    split = mha.split_heads(Tensor(x.numpy()))
    np.testing.assert_array_equal(split.data, wanted.numpy())
    np.testing.assert_array_equal(mha.merge_heads(Tensor(wanted.numpy().copy())).data, x.numpy())
    wide = torch.arange(24.0).reshape(1, 2, 12)
    split = mha.split_heads(Tensor(wide.numpy())).data
    np.testing.assert_array_equal(split, wide.unflatten(2, (6, 2)).transpose(1, 2).numpy())


def test_worked_example():
    mha = MultiHeadAttention(4, 2, bias=False).astype(np.float64)
    for p in mha.parameters():
        p.data = np.eye(4)
    q, kv = Tensor(np.array([[[1.0, 0, 0, 2]]])), Tensor(np.array([[[1.0, 0, 0, 0], [0, 1, 0, 2]]]))
    _, weights = mha.attend(q, kv)
    np.testing.assert_allclose(weights.data[0, :, 0, 1], [0.330238, 0.944193], atol=1e-6)
    assert mha.scale == pytest.approx(0.5**0.5)


def test_dropout_is_for_training():
    mha, _ = pair(8, 2, dropout=0.3)
    plain, _ = pair(8, 2)
    x = Tensor(np.random.default_rng(0).normal(size=(2, 6, 8)))
    for call in (lambda m: m(x, x).data, lambda m: m.attend(x, x)[0].data):
        mha.train()
        state = mha.rng_state()
        first, second = call(mha), call(mha)
        assert not np.allclose(first, second)
        mha.load_rng_state(state)
        np.testing.assert_array_equal(call(mha), first)
        mha.eval()
        state = mha.rng_state()
        np.testing.assert_allclose(call(mha), call(plain))
        assert mha.rng_state() == state
    mha.train()
    np.testing.assert_allclose(mha.attend(x, x)[1].data.sum(axis=-1), 1)


def test_two_modules_of_one_generator():
    rng = PCG32(3)
    a, b = (MultiHeadAttention(4, 2, dropout=0.5, rng=rng) for _ in range(2))
    assert not np.array_equal(a.q_proj.weight.data, b.q_proj.weight.data)
    assert a.dropout_rng.state() != b.dropout_rng.state()


def test_initial_numbers():
    manual_seed(4)
    first = MultiHeadAttention(9, 3).state_dict()
    again = MultiHeadAttention(9, 3, rng=PCG32(4)).state_dict()
    draws = PCG32(4)
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name])
        np.testing.assert_array_equal(array, draws.uniform(-1 / 3, 1 / 3, array.shape))
    assert list(MultiHeadAttention(9, 3, bias=False).state_dict()) == [
        f"{name}_proj.weight" for name in ("q", "k", "v", "out")
    ]


def test_packed_is_copied_and_checked():
    mha = MultiHeadAttention(4, 2)
    weight = np.ones((12, 4), np.float32)
    mha.load_packed_in_proj(weight)
    weight[...] = 7
    assert (mha.q_proj.weight.data == 1).all()
    with pytest.raises(ValueError):
        mha.load_packed_in_proj(np.ones((4, 12)))
    with pytest.raises(ValueError):
        mha.load_packed_in_proj(weight, np.ones(8))
    assert (mha.k_proj.weight.data == 1).all()


def test_one_side_alone():
    x, y = np.random.default_rng(3).normal(size=(2, 2, 3, 6))
    for i in range(2):
        ours, _ = pair(6, 2)
        inputs = [Tensor(a, requires_grad=i == j) for j, a in enumerate((x, y))]
        ours(*inputs).sum().backward()
        assert (inputs[i].grad != 0).any()


def test_later_changes_are_seen():
    mha, _ = pair(6, 2)
    mha.eval()
    x = Tensor(np.random.default_rng(0).normal(size=(2, 3, 6)))
    before = mha(x, x).data.copy()
    mha.v_proj.weight.data *= 2
    mha.v_proj.bias.data *= 2
    mha.out_proj.bias.data[...] = 0
    base = pair(6, 2)[1].out_proj.bias.detach().numpy()
    np.testing.assert_allclose(mha(x, x).data, 2 * (before - base))


def test_errors():
    for arguments in ((6, 4), (0, 1), (-4, 2), (4, 0), (4, 1.0), (True, 1)):
        with pytest.raises(ValueError):
            MultiHeadAttention(*arguments)
    for rate in (-0.1, 1.0):
        with pytest.raises(ValueError):
            MultiHeadAttention(4, 2, dropout=rate)
    mha = MultiHeadAttention(4, 2)
    x = Tensor(np.zeros((2, 3, 4), np.float32))
    for call in (mha, mha.attend):
        for other in ((3, 3, 4), (2, 3, 8), (3, 4)):
            with pytest.raises(ValueError):
                call(x, Tensor(np.zeros(other, np.float32)))
            with pytest.raises(ValueError):
                call(Tensor(np.zeros(other, np.float32)), x)
        for shape in ((2, 3), (3, 3, 3), (4, 3, 3), (2, 3, 3, 3), (1, 2, 2, 3, 3)):
            with pytest.raises(ValueError):
                call(x, x, np.ones(shape, bool))
        for mask in (np.zeros((3, 3), np.float32), np.ones((3, 3), int)):
            with pytest.raises(TypeError):
                call(x, x, mask)
        with pytest.raises(TypeError):
            call(x, np.zeros((2, 3, 4)))
    for method, shape in ((mha.split_heads, (2, 3, 6)), (mha.merge_heads, (2, 3, 3, 2))):
        with pytest.raises(ValueError):
            method(Tensor(np.zeros(shape)))
