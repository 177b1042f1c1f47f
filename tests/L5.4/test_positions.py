# Tangled from book/2-transformer/L5.4-tests.md
"""L5.4: embeddings, waves, learned and rotary positions, and what attention knows without them."""

import math

import numpy as np
import pytest
import torch

from tinyllm.num.gradcheck import gradcheck
from tinyllm.num.pcg32 import PCG32, manual_seed
from tinyllm.tensor import Tensor
from tinyllm.xfmr.masks import causal_mask
from tinyllm.xfmr.mha import MultiHeadAttention
from tinyllm.xfmr.positions import (
    Embedding,
    LearnedPositions,
    SinusoidalPositions,
    embed,
    rotary,
    sinusoidal,
)


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


def hand_rotary(t: int, u: int) -> float:
    """The score of q = (1, 0) at position t and k = (1, 0) at position u."""
    q, k = (rotary(Tensor(np.array([[1.0, 0.0]])), offset=at) for at in (t, u))
    return float((q.data * k.data).sum())


def test_hand_example():
    table = sinusoidal(4, 4, base=100.0)
    close(
        table,
        [
            [0, 1, 0, 1],
            [0.841471, 0.540302, 0.099833, 0.995004],
            [0.909297, -0.416147, 0.198669, 0.980067],
            [0.141120, -0.989992, 0.295520, 0.955336],
        ],
        1e-6,
    )
    for t in range(3):
        close(table[t] @ table[t + 1], 1.535306, 1e-6)
    for t, u in [(5, 3), (7, 5), (2, 0), (0, 2), (1001, 999)]:
        close(hand_rotary(t, u), math.cos(2))


@pytest.mark.parametrize("V", [1, 5, 128, 129, 1000])
@pytest.mark.parametrize("shape", [(7,), (3, 4), (), (0,), (2, 3, 50)])
def test_embed_against_torch(V, shape):
    table, ids = normal(V, 6), np.random.default_rng(1).integers(0, V, shape)
    ours, theirs = leaf(table), torch.tensor(table, requires_grad=True)
    out = embed(ours, ids)
    want = torch.nn.functional.embedding(torch.tensor(ids), theirs)
    assert out.shape == (*shape, 6)
    close(out.data, want)
    cotangent = normal(*out.shape, seed=2)
    out.backward(cotangent)
    want.backward(torch.tensor(cotangent))
    close(ours.grad, theirs.grad)


def test_repeated_tokens_add_up():
    for V in (4, 400):
        table = leaf(np.zeros((V, 2)))
        embed(table, [[2, 0, 2], [2, 3, 3]]).backward(np.arange(12.0).reshape(2, 3, 2))
        assert table.grad[:4].tolist() == [[2, 3], [0, 0], [0 + 4 + 6, 1 + 5 + 7], [18, 20]]
        assert (table.grad[4:] == 0).all()


def test_many_half_gradients_add_up():
    for V in (4, 400):
        table = leaf(np.zeros((V, 1), np.float16))
        embed(table, np.zeros(5000, int)).backward(np.ones((5000, 1), np.float16))
        assert table.grad.dtype == np.float16
        assert table.grad[0] == 5000


def test_garbage_gradients_stay_in_their_row():
    for garbage in (np.nan, np.inf):
        for V in (4, 400):
            table, g = leaf(np.zeros((V, 2))), np.ones((3, 2))
            g[1] = garbage
            embed(table, [0, 1, 2]).backward(g)
            assert (table.grad[[0, 2]] == 1).all()
            assert (table.grad[3:] == 0).all()
            assert not np.isfinite(table.grad[1]).any()


def test_gradcheck_positions():
    gradcheck(lambda table: embed(table, [[0, 2, 2], [1, 2, 0]]), [leaf(normal(4, 3))])
    learned = LearnedPositions(7, 4, rng=PCG32(1)).astype(np.float64)
    report = gradcheck(
        lambda x: learned(x, 2), [leaf(normal(2, 3, 4))], parameters=learned.named_parameters()
    )
    assert "weight" in str(report)
    gradcheck(lambda x: SinusoidalPositions(5)(x, 3), [leaf(normal(2, 3, 5))])
    gradcheck(lambda x: rotary(x, 3), [leaf(normal(2, 3, 6))])


def test_embedding_init():
    module = Embedding(50, 40, std=0.5, rng=PCG32(3))
    assert [(name, p.shape, p.dtype) for name, p in module.named_parameters()] == [
        ("weight", (50, 40), np.float32)
    ]
    assert (module.weight.data == PCG32(3).normal(0.0, 0.5, (50, 40))).all()
    assert abs(module.weight.data.std() - 0.5) < 0.02
    draws = PCG32(0)
    manual_seed(0)
    for _ in range(2):  # the second one goes on where the first one ended
        assert (Embedding(5, 4).weight.data == draws.normal(0.0, 1.0, (5, 4))).all()
    learned = LearnedPositions(50, 40)
    assert (learned.weight.data == draws.normal(0.0, 0.02, (50, 40))).all()
    assert [name for name, _ in learned.named_parameters()] == ["weight"]
    assert list(SinusoidalPositions(8).parameters()) == []
    assert repr(module) == "Embedding(50 x 40)"


def test_ids_are_checked():
    table = Tensor(normal(5, 2))
    for ids in ([0.0], [True], ["a"]):
        with pytest.raises(TypeError):
            embed(table, ids)
    for bad in (-1, 5, 1000):
        with pytest.raises(ValueError):
            embed(table, [[0, 1], [bad, 2]])
    with pytest.raises(ValueError):
        embed(Tensor(np.ones(3)), [0])
    assert embed(table, []).shape == (0, 2)
    assert embed(table, np.array([4], "uint8")).data.tolist() == table.data[[4]].tolist()
    assert embed(table, Tensor([4])).data.tolist() == table.data[[4]].tolist()


TOKENS = "0123456789+"


def ids(text):
    return np.array([[TOKENS.index(c) for c in text]])


def double(module):
    return module.astype(np.float64)


def test_attention_cannot_tell_order():
    attention = double(MultiHeadAttention(8, 2))
    x = normal(1, 6, 8)
    order = np.random.default_rng(1).permutation(6)
    plain = attention(Tensor(x), Tensor(x)).data
    permuted = attention(Tensor(x[:, order]), Tensor(x[:, order])).data
    close(permuted, plain[:, order])
    assert abs(plain[:, 0] - plain[:, 1]).max() > 0.01  # and it is no constant


def read(text, place):
    """What one query reads from the encoded text, [8]; `place` puts positions in."""
    rng = PCG32(5)
    tokens = double(Embedding(len(TOKENS), 8, rng=rng))
    encoder, reader = (double(MultiHeadAttention(8, 2, rng=rng)) for _ in range(2))
    x = place(tokens(ids(text)))
    x = x + encoder(x, x)
    query = Tensor(normal(1, 1, 8, seed=3))
    return reader(query, x).data[0, 0]


def test_two_sums_look_alike():
    close(read("123+456", lambda x: x), read("321+654", lambda x: x))
    assert abs(read("123+456", lambda x: x) - read("123+457", lambda x: x)).max() > 0.01


def test_positions_tell_order():
    for place in (SinusoidalPositions(8), double(LearnedPositions(7, 8)), rotary):
        assert abs(read("123+456", place) - read("321+654", place)).max() > 1e-4


def test_causal_mask_tells_order_in_the_second_layer():
    layers = [double(MultiHeadAttention(8, 2, rng=PCG32(seed))) for seed in range(2)]
    x = normal(1, 6, 8)
    moved = x[:, [2, 0, 4, 1, 3, 5]]  # all but the last change places

    def last(x, depth):
        h = Tensor(x)
        for layer in layers[:depth]:
            h = h + layer(h, h, causal_mask(6))
        return h.data[0, -1]

    close(last(x, 1), last(moved, 1))
    assert abs(last(x, 2) - last(moved, 2)).max() > 1e-3


def test_sinusoidal_formula():
    table = sinusoidal(20, 6, start=3, base=50.0, dtype=np.float64)
    for t in range(20):
        for j in range(6):
            angle = (t + 3) / 50.0 ** (2 * (j // 2) / 6)
            assert table[t, j] == pytest.approx([math.sin, math.cos][j % 2](angle), abs=1e-13)


def test_any_width():
    for d in range(1, 10):
        table = sinusoidal(11, d)
        assert table.shape == (11, d)
        assert table.dtype == np.float32
        assert (abs(table) <= 1).all()
        assert len({row.tobytes() for row in table}) == 11  # no two positions alike
        angles = np.arange(11) * 1e4 ** (-2 * ((d - 1) // 2) / d)
        close(table[:, -1], np.sin(angles) if d % 2 else np.cos(angles), 1e-6)
        close(SinusoidalPositions(d)(Tensor(np.zeros((2, 11, d)))).data[1], table, 1e-6)
    assert sinusoidal(0, 4).shape == (0, 4)


def test_far_positions():
    far = sinusoidal(2, 4, start=100_000, dtype=np.float64)
    close(far[0, :2], [math.sin(100_000), math.cos(100_000)], 1e-9)
    rounded = sinusoidal(1, 4, start=100_000)
    assert (rounded == far[:1].astype(np.float32)).all()
    module = SinusoidalPositions(4)
    close(module(Tensor(np.zeros((1, 2, 4))), offset=100_000).data[0], far, 1e-9)


def test_a_step_is_a_rotation():
    table = sinusoidal(40, 8, dtype=np.float64)
    for k in (1, 4, 17):
        angles = k * 1e4 ** (-np.arange(0, 8, 2) / 8)
        for i, angle in enumerate(angles):
            c, s = math.cos(angle), math.sin(angle)
            pairs = table[:, 2 * i : 2 * i + 2]
            close(pairs[k:], pairs[:-k] @ np.array([[c, s], [-s, c]]).T)


def test_products_depend_on_distance():
    table = sinusoidal(30, 16, dtype=np.float64)
    products = table @ table.T
    for distance in range(30):
        diagonal = np.diagonal(products, distance)
        close(diagonal, np.full(len(diagonal), diagonal[0]), 1e-12)
    close(np.diagonal(products), np.full(30, 8.0))
    assert (products.max(axis=1) == np.diagonal(products)).all()


def test_positions_go_along_the_second_last_axis():
    table = sinusoidal(3, 4, dtype=np.float64)
    learned = double(LearnedPositions(5, 4))
    for shape in [(3, 4), (3, 3, 4), (2, 3, 3, 4)]:
        x = normal(*shape)
        close(SinusoidalPositions(4)(Tensor(x)).data, x + table)
        close(learned(Tensor(x)).data, x + learned.weight.data[:3])
        turned = rotary(Tensor(x)).data
        close(
            turned,
            np.stack(
                [rotary(Tensor(x[..., t : t + 1, :]), t).data[..., 0, :] for t in range(3)], -2
            ),
        )


def test_offset_continues():
    x = Tensor(normal(2, 9, 6))
    for place in (SinusoidalPositions(6), double(LearnedPositions(9, 6)), rotary):
        whole = place(x).data
        pieces = [place(x[:, a:b], offset=a).data for a, b in [(0, 4), (4, 5), (5, 9)]]
        close(np.concatenate(pieces, axis=1), whole)
    module = SinusoidalPositions(6)
    first = module(x).data
    module(Tensor(normal(1, 500, 6)))  # the table grows
    assert (module(x).data == first).all()


def test_dtype_stays():
    for dtype in ("float16", "float32", "float64"):
        x = leaf(normal(2, 3, 4).astype(dtype))
        for place in (SinusoidalPositions(4), LearnedPositions(3, 4).astype(dtype), rotary):
            x.grad = None
            out = place(x)
            out.backward(np.ones(out.shape, dtype))
            assert out.dtype == x.grad.dtype == dtype
    assert sinusoidal(2, 2, dtype="float16").dtype == np.float16
    assert Embedding(3, 2)([0]).dtype == np.float32


def test_learned_positions_end():
    learned = LearnedPositions(4, 2)
    x = Tensor(np.zeros((1, 3, 2), "f4"))
    assert (learned(x, offset=1).data[0] == learned.weight.data[1:]).all()
    with pytest.raises(ValueError):
        learned(x, offset=2)
    with pytest.raises(ValueError):
        learned(Tensor(np.zeros((5, 2), "f4")))


def test_a_seed_is_no_generator():
    for make in (Embedding, LearnedPositions):
        with pytest.raises(TypeError):
            make(2, 2, rng=0)


def test_validation():
    with pytest.raises(ValueError):
        sinusoidal(-1, 4)
    with pytest.raises(ValueError):
        sinusoidal(1, 0)
    with pytest.raises(ValueError):
        SinusoidalPositions(4.0)
    with pytest.raises(ValueError):
        sinusoidal(1, 4, base=0)
    with pytest.raises(ValueError):
        Embedding(0, 4)
    with pytest.raises(ValueError):
        Embedding(3, -4)
    with pytest.raises(ValueError):
        LearnedPositions(0, 4)
    for place in (SinusoidalPositions(4), LearnedPositions(9, 4)):
        for shape in [(4,), (2, 3), (2, 3, 5)]:
            with pytest.raises(ValueError):
                place(Tensor(np.zeros(shape)))
        with pytest.raises(ValueError):
            place(Tensor(np.zeros((2, 4))), offset=-1)
    for shape in [(4,), (2, 3)]:
        with pytest.raises(ValueError):
            rotary(Tensor(np.zeros(shape)))
    for place in (
        SinusoidalPositions(4),
        LearnedPositions(9, 4),
        rotary,
    ):
        with pytest.raises(TypeError):
            place(np.zeros((2, 4)))
        with pytest.raises(TypeError):
            place(Tensor(np.zeros((2, 4), np.int64)))
    with pytest.raises(TypeError):
        embed(np.zeros((2, 4)), [0])


def test_rotary_scores_depend_on_distance():
    q, k = normal(6), normal(6, seed=1)

    def score(t, u):
        a = rotary(Tensor(q[None]), offset=t).data[0]
        b = rotary(Tensor(k[None]), offset=u).data[0]
        return a @ b

    for distance in (0, 1, 5, 40):
        close([score(t + distance, t) for t in (0, 3, 77)], [score(distance, 0)] * 3)
        close([score(t, t + distance) for t in (0, 3, 77)], [score(0, distance)] * 3)
    assert abs(score(5, 0) - score(0, 5)) > 0.1  # before and behind are different


def test_rotary_keeps_lengths():
    x = leaf(normal(2, 3, 7, 8))
    out = rotary(x)
    close((out.data**2).sum(-1), (x.data**2).sum(-1))
    close(out.data[..., 0, :], x.data[..., 0, :])  # position 0 is not turned
    g = normal(2, 3, 7, 8, seed=1)
    out.backward(g)
    close((x.grad**2).sum(-1), (g**2).sum(-1))


def test_rotary_formula():
    x = normal(2, 5, 8)
    pairs = torch.view_as_complex(torch.tensor(x).reshape(2, 5, 4, 2))
    angles = torch.outer(torch.arange(3, 8).double(), 100.0 ** (-torch.arange(4).double() / 4))
    want = torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).reshape(2, 5, 8)
    close(rotary(Tensor(x), offset=3, base=100.0).data, want)

    # many checkpoints pair features i and i + dh/2 instead: the same after a change of their order
    order = np.arange(8).reshape(2, 4).T.reshape(-1)  # 0 4 1 5 2 6 3 7
    cos, sin = angles.cos().numpy(), angles.sin().numpy()
    low, high = x[..., :4], x[..., 4:]
    halves = np.concatenate([low * cos - high * sin, low * sin + high * cos], axis=-1)
    close(rotary(Tensor(x[..., order]), offset=3, base=100.0).data, halves[..., order])
