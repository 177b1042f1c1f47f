# Tangled from book/2-transformer/L5.6-tests.md
"""L5.6: greedy and beam search against tables, enumeration and each other."""

import itertools
import math

import numpy as np
import pytest

from tinyllm.xfmr.search import Hypothesis, beam_search, greedy_search, log_softmax

TABLE = {(): (0.6, 0.4, 0.0), (0,): (0.4, 0.3, 0.3), (1,): (0.05, 0.05, 0.9)}


def by_table(prefixes, rows):
    """The step function of the table in section 1; the start token is 3."""
    with np.errstate(divide="ignore"):
        return np.log([TABLE.get(tuple(p[1:]), (0.0, 0.0, 1.0)) for p in prefixes.tolist()])


START = 3
ENDS = {"start": START, "end": 2, "max_length": 9}


class Model:
    """Random log-probabilities that depend on the input and on all that was written; token 0 ends."""

    def __init__(self, V, seed=0, grain=None):
        self.V, self.seed, self.grain, self.asked = V, seed, grain, []

    def __call__(self, prefixes, rows):
        self.asked.append(len(prefixes))
        lines = []
        for prefix, row in zip(prefixes.tolist(), rows.tolist(), strict=True):
            rng = np.random.default_rng([self.seed, row, *prefix])
            z = rng.normal(size=self.V)
            if self.grain:
                z = rng.integers(0, self.grain, self.V).astype(float)  # many ties
            lines.append(z)
        return log_softmax(lines)

    def log_prob(self, row, tokens, start):
        total, prefix = 0.0, [start]
        for token in tokens:
            total += self(np.array([prefix]), np.array([row]))[0, token]
            prefix.append(token)
        return total


A, B, END = 0, 1, 2


def test_hand_table():
    greedy = greedy_search(by_table, 1, **ENDS)[0]
    assert greedy.tokens == (A, A, END)
    assert greedy.log_prob == pytest.approx(math.log(0.24))
    assert greedy.score == pytest.approx(math.log(0.24) / 3)
    assert greedy.ended
    by_length = beam_search(by_table, 1, width=2, **ENDS)[0]
    assert [h.tokens for h in by_length] == [(A, A, END), (B, END)]
    assert [h.score for h in by_length] == pytest.approx([-0.475705, -0.510826], abs=1e-6)
    by_probability = beam_search(by_table, 1, width=2, alpha=0.0, **ENDS)[0]
    assert [h.tokens for h in by_probability] == [(B, END), (A, A, END)]
    assert [h.log_prob for h in by_probability] == pytest.approx([math.log(0.36), math.log(0.24)])
    three = beam_search(by_table, 1, width=3, alpha=0.0, **ENDS)[0]
    assert [h.tokens for h in three] == [(B, END), (A, A, END), (A, B, END)]


def test_length_normalisation():
    for alpha in (0.0, 0.5, 1.0, 2.0):
        for h in beam_search(by_table, 1, width=3, alpha=alpha, **ENDS)[0]:
            assert h.score == pytest.approx(h.log_prob / len(h.tokens) ** alpha, rel=1e-15)


def test_a_live_beam_can_still_win():
    table = {  # "end" at once, or three tokens that are nearly certain after a doubtful first
        (): (0.3, 0.0, 0.7),
        (A,): (0.0, 1.0, 0.0),
        (A, B): (1.0, 0.0, 0.0),
    }

    def step(prefixes, rows):
        with np.errstate(divide="ignore"):
            return np.log([table.get(tuple(p[1:]), (0.0, 0.0, 1.0)) for p in prefixes.tolist()])

    first, second = beam_search(step, 1, width=2, **ENDS)[0]
    assert first.tokens == (A, B, A, END)
    assert second.tokens == (END,)
    assert first.score == pytest.approx(math.log(0.3) / 4)
    assert second.score == pytest.approx(math.log(0.7))
    assert beam_search(step, 1, width=2, alpha=0.0, **ENDS)[0][0].tokens == (END,)


@pytest.mark.parametrize("grain", [None, 2])
@pytest.mark.parametrize("V", [2, 5, 14])
def test_width_one_is_greedy(V, grain):
    options = {"start": 1, "end": 0, "max_length": 7}
    greedy = greedy_search(Model(V, V, grain), 20, **options)
    beams = beam_search(Model(V, V, grain), 20, width=1, **options)
    assert [[h] for h in greedy] == beams  # bitwise
    assert len({len(h.tokens) for h in greedy}) > 1


def test_full_width_is_exhaustive():
    V, length, model = 3, 4, Model(3)
    for row in range(4):
        every = []
        for n in range(1, length + 1):
            every += [(*body, 0) for body in itertools.product((1, 2), repeat=n - 1)]
        every += list(itertools.product((1, 2), repeat=length))  # cut off
        worth = {tokens: model.log_prob(row, tokens, 1) / len(tokens) for tokens in every}
        want = sorted(every, key=lambda tokens: -worth[tokens])

        def step(prefixes, rows, row=row):
            return model(prefixes, np.full(len(rows), row))

        got = beam_search(step, 1, start=1, end=0, max_length=length, width=V**length)[0]
        assert [h.tokens for h in got] == want
        assert [h.score for h in got] == pytest.approx([worth[tokens] for tokens in want])
        assert [h.ended for h in got] == [tokens[-1] == 0 for tokens in want]


def test_widths_up_to_the_vocabulary():
    V, model = 6, Model(6)
    for width in [*range(1, V + 1), 2 * V, 50]:
        found = beam_search(model, 5, start=1, end=0, max_length=6, width=width)
        for row, beams in enumerate(found):
            assert len(beams) == width
            assert len({h.tokens for h in beams}) == width
            assert [h.score for h in beams] == sorted((h.score for h in beams), reverse=True)
            for h in beams:
                assert h.log_prob == pytest.approx(model.log_prob(row, h.tokens, 1))
                assert h.ended == (h.tokens[-1] == 0)
                assert 0 not in h.tokens[:-1]
                assert len(h.tokens) <= 6


def test_ties():
    def flat(V):
        return lambda prefixes, rows: np.full((len(prefixes), V), -math.log(V))

    for V in (4, 700, 3000):  # 3 beginnings of 700 tokens are sorted another way than 4
        beams = beam_search(flat(V), 2, start=V - 1, end=V - 1, max_length=2, width=3)
        for found in beams:
            assert [h.tokens for h in found] == [(0, 0), (0, 1), (0, 2)]
    for grain, V in ((2, 5), (3, 400)):
        runs = [
            beam_search(Model(V, 1, grain), 6, start=1, end=0, max_length=4, width=4)
            for _ in range(2)
        ]
        assert runs[0] == runs[1]


def test_inputs_do_not_touch():
    options = {"start": 1, "end": 0, "max_length": 6}
    for V, grain in ((5, None), (5, 2), (400, 3)):
        model = Model(V, 2, grain)
        together = beam_search(model, 7, width=3, **options)
        greedy = greedy_search(model, 7, **options)
        for row in range(7):

            def alone(prefixes, rows, row=row, model=model):
                assert set(rows) == {0}
                return model(prefixes, rows + row)

            assert beam_search(alone, 1, width=3, **options) == [together[row]]
            assert greedy_search(alone, 1, **options) == [greedy[row]]


def test_ended_ones_are_not_continued():
    def step(prefixes, rows):
        asked.append(prefixes.tolist())
        return by_table(prefixes, rows)

    asked = []
    beam_search(step, 1, width=2, **ENDS)
    assert asked == [[[START]], [[START, A], [START, B]], [[START, A, A]]]
    asked = []
    greedy_search(step, 2, **ENDS)
    assert asked == [[[START]] * 2, [[START, A]] * 2, [[START, A, A]] * 2]


def test_cut_off():
    def endless(prefixes, rows):
        return np.log(np.full((len(prefixes), 3), [0.5, 0.5, 1e-300]))

    options = {"start": START, "end": 2, "max_length": 3}
    assert greedy_search(endless, 1, **options) == [
        Hypothesis((0, 0, 0), 3 * np.log(0.5), np.log(0.5), False)
    ]
    beams = beam_search(endless, 1, width=2, **options)[0]
    assert [(h.tokens, h.ended) for h in beams] == [((0, 0, 0), False), ((0, 0, 1), False)]

    def narrow(prefixes, rows):  # only one token can ever be written: there is one sequence
        with np.errstate(divide="ignore"):
            return np.log(np.full((len(prefixes), 3), [0.0, 1.0, 0.0]))

    assert [h.tokens for h in beam_search(narrow, 1, width=4, **options)[0]] == [(1, 1, 1)]

    def dead(prefixes, rows):
        return np.full((len(prefixes), 3), -np.inf)

    assert beam_search(dead, 2, width=4, **options) == [[], []]
    assert beam_search(dead, 0, width=4, **options) == []
    assert greedy_search(dead, 0, **options) == []


def test_log_softmax():
    z = np.random.default_rng(0).normal(size=(3, 4, 5)) * 5
    want = np.log(np.exp(z) / np.exp(z).sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(log_softmax(z), want, rtol=1e-12)
    far = log_softmax(np.array([1e4, 0, -np.inf], "f4"))
    assert far.tolist() == [0, -1e4, -np.inf]
    assert far.dtype == np.float64


def test_validation():
    for size in (0, -1, 2.0, True):
        for name in ("width", "max_length"):
            with pytest.raises(ValueError):
                beam_search(by_table, 1, **ENDS | {"width": 2, name: size})
        with pytest.raises(ValueError):
            greedy_search(by_table, 1, **ENDS | {"max_length": size})
    for width, length, alpha in [
        (2, 3, -1.0),
        (2, 1, -1.0),
        (2, 3, math.nan),
        (2, 3, math.inf),
        (2, 3, 1e308),
    ]:
        with pytest.raises(ValueError):
            beam_search(by_table, 1, start=3, end=2, max_length=length, width=width, alpha=alpha)
    steep = beam_search(by_table, 1, start=3, end=2, max_length=3, width=2, alpha=600.0)[0]
    assert all(-math.inf < h.score <= 0 for h in steep)
    for answer in [
        np.full((1, 3), np.nan),
        np.array([[0.5, -1.0, -2.0]]),
        np.zeros((2, 3)),
        np.zeros(3),
        np.zeros((1, 0)),
    ]:
        for search in (greedy_search, lambda *a, **o: beam_search(*a, width=2, **o)):
            with pytest.raises(ValueError):
                search(lambda p, r, answer=answer: answer, 1, **ENDS)


def plain_beams(step, row, start, end, max_length, width, alpha=1.0):
    """Beam search for one input, by sorting lists."""
    live, found, places = [((), 0.0)], [], width
    for _ in range(max_length):
        if not live:
            break
        prefixes = np.array([(start, *tokens) for tokens, _ in live])
        log_probs = step(prefixes, np.full(len(live), row))
        every = [
            (-(total + log_probs[rank, v]), rank, v)
            for rank, (_, total) in enumerate(live)
            for v in np.flatnonzero(log_probs[rank] > -np.inf).tolist()
        ]
        kept = [((*live[rank][0], v), -worth) for worth, rank, v in sorted(every)[:places]]
        found += [(tokens, total, True) for tokens, total in kept if tokens[-1] == end]
        live = [(tokens, total) for tokens, total in kept if tokens[-1] != end]
        places = width - len(found)
    found += [(tokens, total, False) for tokens, total in live]
    made = [Hypothesis(t, total, total / len(t) ** alpha, ended) for t, total, ended in found]
    return sorted(made, key=lambda h: -h.score)


class Chain:
    """Log-probabilities that depend on the input, the last token and the length; quick."""

    def __init__(self, V, grain=None, end=0, late=0.0, holes=False):
        rng = np.random.default_rng([V, grain or 0])
        z = rng.normal(size=(5, 7, V)) if grain is None else rng.integers(0, grain, (5, 7, V))
        z = z.astype(float)
        z[..., end] -= late
        if holes:
            z[rng.random(z.shape) < 0.4] = -np.inf
            z[..., 1] = 0.0
        self.table = log_softmax(z)

    def __call__(self, prefixes, rows):
        assert prefixes.dtype.kind == rows.dtype.kind == "i"
        return self.table[rows % 5, (prefixes[:, -1] + prefixes.shape[1]) % 7]


SEARCHES = [  # V, inputs, width, max_length, alpha, grain, late
    (5, 3, 1, 80, 1.0, None, 5.0), (5, 70, 2, 6, 0.7, None, 0.0), (9, 3, 12, 9, 1.0, None, 0.0),
    (30, 2, 24, 5, 2.0, None, 0.0), (4, 2, 3, 80, 0.0, 2, 6.0), (6, 9, 9, 20, 1.0, 2, 2.0),
    (3000, 2, 9, 4, 1.0, 3, 0.0), (70000, 2, 2, 3, 1.0, None, 0.0), (2, 5, 17, 8, 0.5, None, 0.0),
    (300, 6, 3, 70, 1.0, None, 9.0), (12, 130, 3, 4, 1.0, 3, 0.0), (5, 2, 4, 1, 1.0, None, 0.0),
]  # fmt: skip


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("case", SEARCHES, ids=str)
def test_searches_of_any_size(case, holes):
    V, inputs, width, max_length, alpha, grain, late = case
    end = V - 1 if max_length % 2 else 0
    model = Chain(V, grain, end, late, holes)
    options = {"start": 1, "end": end, "max_length": max_length}
    wanted = [plain_beams(model, row, width=width, alpha=alpha, **options) for row in range(inputs)]
    for _ in range(2):  # nothing is remembered
        found = beam_search(model, inputs, width=width, alpha=alpha, **options)
        assert found == wanted
    greedy = greedy_search(model, inputs, **options)
    assert [[h] for h in greedy] == [
        plain_beams(model, r, width=1, **options) for r in range(inputs)
    ]
    for h in (*greedy, *found[0]):
        assert all(type(token) is int for token in h.tokens)


@pytest.mark.parametrize("search", ["greedy", "beams"])
def test_whatever_array_a_model_returns(search):
    options = {"start": 1, "end": 0, "max_length": 12}
    model = Chain(9, late=2.0)

    def run(step):
        if search == "greedy":
            return greedy_search(step, 8, **options)
        return beam_search(step, 8, width=10, **options)

    wanted, buffer = run(model), np.empty((200, 9))

    def reused(prefixes, rows):  # one buffer for all steps
        buffer[: len(rows)] = model(prefixes, rows)
        return buffer[: len(rows)]

    def frozen(prefixes, rows):
        array = np.asfortranarray(model(prefixes, rows))
        array.flags.writeable = False
        return array

    def kept(prefixes, rows):  # a model may keep what it is given
        seen.append((prefixes, prefixes.copy(), rows, rows.copy()))
        return model(prefixes, rows).tolist()

    seen = []
    for step in (reused, frozen, kept):
        assert run(step) == wanted
    for prefixes, copy, rows, copied in seen:
        np.testing.assert_array_equal(prefixes, copy)
        np.testing.assert_array_equal(rows, copied)
    single = run(lambda p, r: model(p, r).astype(np.float32))
    exact = run(lambda p, r: model(p, r).astype(np.float32).astype(np.float64))
    assert single == exact


def test_hardly_probable_is_not_impossible():
    def step(prefixes, rows):
        return np.full((len(prefixes), 3), -1e4) + np.arange(3)

    options = {"start": 1, "end": 0, "max_length": 70}
    for h in (greedy_search(step, 1, **options)[0], beam_search(step, 1, width=9, **options)[0][0]):
        assert h.tokens == (2,) * 70
        assert h.log_prob == 70 * (2 - 1e4)


def test_late_numbers_are_checked():
    for late in (0, 1, 7):
        for wrong in (np.nan, 0.5):

            def step(prefixes, rows, late=late, wrong=wrong):
                found = Chain(9, late=9.0)(prefixes, rows).copy()
                if prefixes.shape[1] == late + 1:
                    found[-1, -1] = wrong
                return found

            for search in (greedy_search, lambda *a, **o: beam_search(*a, width=9, **o)):
                with pytest.raises(ValueError):
                    search(step, 9, start=1, end=0, max_length=12)


@pytest.mark.parametrize("shape", [(1,), (1, 1), (70, 3), (3, 2, 300), (2, 70000)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int64])
def test_log_softmax_at_any_size(shape, dtype):
    z = (np.random.default_rng(1).normal(size=shape) * 60).astype(dtype)
    copy, exact = z.copy(), z.astype(np.float64)
    top = exact.max(axis=-1, keepdims=True)
    want = exact - top - np.log(np.exp(exact - top).sum(axis=-1, keepdims=True))
    for given in (z, np.asfortranarray(z), z.tolist()):
        found = log_softmax(given)
        np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-12)
        assert found.dtype == np.float64
    np.testing.assert_array_equal(z, copy)
