"""Enumeration, by hand, and the contract's words."""

import itertools
import math

import numpy as np
import pytest

from tinyllm.xfmr.search import beam_search, greedy_search, log_softmax


def model(V, seed=0, ties=False):
    def step(prefixes, rows):
        lines = []
        for p, r in zip(prefixes.tolist(), rows.tolist(), strict=True):
            rng = np.random.default_rng([seed, r, *p])
            lines.append(rng.integers(0, 2, V).astype(float) if ties else rng.normal(size=V))
        return log_softmax(lines)

    return step


def worth(step, row, tokens, start=1):
    total, prefix = 0.0, [start]
    for token in tokens:
        total += step(np.array([prefix]), np.array([row]))[0, token]
        prefix.append(token)
    return total


def slow(step, row, width, length, alpha, start=1, end=0):
    live, done = [((), 0.0)], []
    for _ in range(length):
        places = width - len(done)
        every = []
        for rank, (tokens, total) in enumerate(live):
            z = step(np.array([[start, *tokens]]), np.array([row]))[0]
            every += [(-(total + z[v]), rank, v, tokens) for v in range(len(z)) if z[v] > -np.inf]
        kept = [((*tokens, v), -minus) for minus, _, v, tokens in sorted(every)[:places]]
        done += [(*one, True) for one in kept if one[0][-1] == end]
        live = [one for one in kept if one[0][-1] != end]
        if not live:
            break
    done += [(*one, False) for one in live]
    return sorted(done, key=lambda h: -h[1] / len(h[0]) ** alpha)


@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize(
    ("V", "width", "length", "alpha"),
    [(4, 2, 5, 1.0), (5, 12, 4, 0.5), (3, 3, 9, 2.0), (6, 1, 6, 0.0)],
)
def test_against_lists(V, width, length, alpha, ties):
    step = model(V, ties=ties)
    found = beam_search(step, 9, start=1, end=0, max_length=length, width=width, alpha=alpha)
    for row, beams in enumerate(found):
        wanted = slow(step, row, width, length, alpha)
        assert [(h.tokens, h.ended) for h in beams] == [(t, e) for t, _, e in wanted]
        for h, (tokens, total, _) in zip(beams, wanted, strict=True):
            assert h.log_prob == pytest.approx(total)
            assert h.score == pytest.approx(total / len(tokens) ** alpha)


def test_exhaustive():
    step = model(3)
    every = [(*b, 0) for n in range(3) for b in itertools.product((1, 2), repeat=n)]
    every += list(itertools.product((1, 2), repeat=3))
    wanted = sorted(every, key=lambda t: -worth(step, 0, t) / len(t))
    found = beam_search(step, 1, start=1, end=0, max_length=3, width=40)[0]
    assert [h.tokens for h in found] == wanted


def test_greedy():
    step = model(7, 3)
    for row, h in enumerate(greedy_search(step, 70, start=1, end=0, max_length=70)):
        tokens = []
        while len(tokens) < 70 and (not tokens or tokens[-1] != 0):
            tokens.append(int(step(np.array([[1, *tokens]]), np.array([row]))[0].argmax()))
        assert h.tokens == tuple(tokens)
        assert h.ended == (tokens[-1] == 0)
        assert h.log_prob == pytest.approx(worth(step, row, tokens))
        assert h.score == pytest.approx(h.log_prob / len(tokens))


def test_ended_ones_are_left_alone():
    asked = []

    def step(prefixes, rows):
        asked.append(len(prefixes))
        assert (prefixes[:, 1:] != 0).all()
        return np.log(np.full((len(prefixes), 3), [0.5, 0.3, 0.2]))

    beam_search(step, 1, start=1, end=0, max_length=5, width=2)
    assert asked[0] == 1
    assert max(asked[1:]) <= 1
    asked.clear()
    greedy_search(step, 4, start=1, end=0, max_length=5)
    assert asked == [4]


def test_impossible_tokens():
    def step(prefixes, rows):
        return np.full((len(prefixes), 3), [-np.inf, 0.0, -np.inf])

    (beams,) = beam_search(step, 1, start=1, end=0, max_length=3, width=5)
    assert [(h.tokens, h.ended) for h in beams] == [((1, 1, 1), False)]
    assert beam_search(
        lambda p, r: np.full((len(p), 2), -np.inf), 1, start=1, end=0, max_length=3, width=2
    ) == [[]]


def test_large_vocabularies():
    def step(prefixes, rows):
        return np.full((len(prefixes), 3000), -math.log(3000))

    for beams in beam_search(step, 2, start=1, end=2999, max_length=2, width=3):
        assert [h.tokens for h in beams] == [(0, 0), (0, 1), (0, 2)]


def test_log_softmax():
    z = np.random.default_rng(0).normal(size=(2, 3, 9)) * 100
    found = log_softmax(z)
    np.testing.assert_allclose(np.exp(found).sum(axis=-1), 1)
    np.testing.assert_allclose(found - found[..., :1], z - z[..., :1], atol=1e-9)
    assert log_softmax(np.array([1e5, 0], "f4")).tolist() == [0, -1e5]


def test_refusals():
    def bad(answer):
        return lambda p, r: answer

    for answer in (
        np.full((1, 3), np.nan),
        np.array([[0.5, -1, -2]]),
        np.zeros((2, 3)),
        np.zeros(3),
    ):
        with pytest.raises(ValueError):
            greedy_search(bad(answer), 1, start=1, end=0, max_length=3)
        with pytest.raises(ValueError):
            beam_search(bad(answer), 1, start=1, end=0, max_length=3, width=2)
    for wrong in (
        {"width": 0},
        {"max_length": 0},
        {"alpha": -1.0},
        {"width": 1.5},
        {"alpha": math.nan},
    ):
        with pytest.raises(ValueError):
            beam_search(model(3), 1, **{"start": 1, "end": 0, "max_length": 3, "width": 2} | wrong)
