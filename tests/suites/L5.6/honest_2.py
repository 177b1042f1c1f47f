"""A table by hand, properties, and batches against single inputs."""

import math

import numpy as np
import pytest

from tinyllm.xfmr.search import beam_search, greedy_search, log_softmax

TABLE = {(): (0.6, 0.4, 0.0), (0,): (0.4, 0.3, 0.3), (1,): (0.05, 0.05, 0.9)}


def by_table(prefixes, rows):
    with np.errstate(divide="ignore"):
        return np.log([TABLE.get(tuple(p[1:]), (0.0, 0.0, 1.0)) for p in prefixes.tolist()])


ENDS = {"start": 3, "end": 2, "max_length": 9}


class Model:
    def __init__(self, V, coarse=False):
        self.V, self.coarse = V, coarse

    def __call__(self, prefixes, rows):
        z = []
        for p, r in zip(prefixes.tolist(), rows.tolist(), strict=True):
            rng = np.random.default_rng([r, len(p), *p])
            z.append(np.round(rng.normal(size=self.V)) if self.coarse else rng.normal(size=self.V))
        return log_softmax(z)


def total(step, row, tokens, start):
    out = 0.0
    for n, token in enumerate(tokens):
        out += step(np.array([[start, *tokens[:n]]]), np.array([row]))[0, token]
    return out


def test_table():
    one = greedy_search(by_table, 1, **ENDS)[0]
    assert (one.tokens, one.ended) == ((0, 0, 2), True)
    assert one.score == pytest.approx(math.log(0.24) / 3)
    for alpha, wanted in ((1.0, [(0, 0, 2), (1, 2)]), (0.0, [(1, 2), (0, 0, 2)])):
        beams = beam_search(by_table, 1, width=2, alpha=alpha, **ENDS)[0]
        assert [h.tokens for h in beams] == wanted
        for h in beams:
            assert h.score == pytest.approx(h.log_prob / len(h.tokens) ** alpha)
    three = beam_search(by_table, 1, width=3, alpha=0.0, **ENDS)[0]
    assert [h.tokens for h in three] == [(1, 2), (0, 0, 2), (0, 1, 2)]


def test_a_late_winner():
    table = {(): (0.3, 0.0, 0.7), (0,): (0.0, 1.0, 0.0), (0, 1): (1.0, 0.0, 0.0)}

    def step(prefixes, rows):
        with np.errstate(divide="ignore"):
            return np.log([table.get(tuple(p[1:]), (0.0, 0.0, 1.0)) for p in prefixes.tolist()])

    beams = beam_search(step, 1, width=2, **ENDS)[0]
    assert [h.tokens for h in beams] == [(0, 1, 0, 2), (2,)]


@pytest.mark.parametrize("coarse", [True, False])
@pytest.mark.parametrize("V", [3, 8, 500])
def test_properties(V, coarse):
    step, options = Model(V, coarse), {"start": 1, "end": 0, "max_length": 6}
    greedy = greedy_search(step, 6, **options)
    assert beam_search(step, 6, width=1, **options) == [[h] for h in greedy]
    for width in (2, 3, 11):
        together = beam_search(step, 6, width=width, **options)
        for row, beams in enumerate(together):
            alone = beam_search(lambda p, r, row=row: step(p, r + row), 1, width=width, **options)
            assert alone == [beams]
            assert len({h.tokens for h in beams}) == len(beams) == width
            assert [h.score for h in beams] == sorted((h.score for h in beams), reverse=True)
            for h in beams:
                assert h.log_prob == pytest.approx(total(step, row, h.tokens, 1))
                assert h.ended == (h.tokens[-1] == 0)
                assert 0 not in h.tokens[:-1]


def test_ties_go_to_the_smaller_token_of_the_better_beginning():
    def flat(prefixes, rows):
        return np.full((len(prefixes), 700), -math.log(700))

    for beams in beam_search(flat, 3, start=1, end=699, max_length=2, width=4):
        assert [h.tokens for h in beams] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert greedy_search(flat, 1, start=1, end=699, max_length=2)[0].tokens == (0, 0)


def test_long_texts():
    def step(prefixes, rows):
        out = np.full((len(prefixes), 3), [math.log(1e-9), math.log(0.6), math.log(0.4)])
        return out if prefixes.shape[1] < 70 else out[:, ::-1].copy()

    (one,) = greedy_search(step, 1, start=1, end=2, max_length=200)
    assert len(one.tokens) > 64
    best = beam_search(step, 2, start=1, end=2, max_length=90, width=9)
    assert best[0] == best[1]
    assert len(best[0][0].tokens) > 64


def test_how_often_the_model_is_asked():
    asked = []

    def step(prefixes, rows):
        asked.append((prefixes.tolist(), rows.tolist()))
        return by_table(prefixes, rows)

    beam_search(step, 1, width=2, **ENDS)
    assert [p for p, _ in asked] == [[[3]], [[3, 0], [3, 1]], [[3, 0, 0]]]
    asked.clear()
    greedy_search(step, 2, **ENDS)
    assert asked[-1] == ([[3, 0, 0]] * 2, [0, 1])


def test_log_softmax_and_errors():
    np.testing.assert_allclose(log_softmax([[0.0, math.log(3)]]), np.log([[0.25, 0.75]]))
    assert log_softmax([1e4, 0.0]).tolist() == [0, -1e4]
    for answer in (
        np.full((1, 3), np.nan),
        np.full((1, 3), 1.0),
        np.zeros((1, 0)),
        np.zeros((2, 3)),
    ):
        for search in (greedy_search, lambda *a, **o: beam_search(*a, width=3, **o)):
            with pytest.raises(ValueError):
                search(lambda p, r, answer=answer: answer, 1, **ENDS)
    with pytest.raises(ValueError):
        beam_search(by_table, 1, width=2, alpha=-0.5, **ENDS)
    with pytest.raises(ValueError):
        greedy_search(by_table, 1, start=3, end=2, max_length=0)
