"""Tokens, model, a step, writing, resuming: what the chapter promises."""

import json

import numpy as np
import pytest

from tinyllm.checkpoint import CheckpointError, read_safetensors, write_safetensors
from tinyllm.models.addition.data import (
    END,
    PAD,
    PLUS,
    START,
    held_out,
    pairs,
    parse,
    source_tokens,
    target_tokens,
    text,
)
from tinyllm.models.addition.model import (
    Adder,
    Settings,
    evaluating,
    exact_match,
    shard_gradient,
    translate,
)
from tinyllm.models.addition.training import Training, Workers, load_model
from tinyllm.num.pcg32 import PCG32
from tinyllm.train import cross_entropy
from tinyllm.xfmr.search import log_softmax

SMALL = {
    "d_model": 12,
    "n_heads": 3,
    "n_layers": 2,
    "d_ff": 16,
    "batch": 8,
    "steps": 40,
    "warmup": 3,
}


def numbers(n=6, seed=0):
    return np.random.default_rng(seed).integers(0, 1000, (n, 2))


def model(seed=0, **options):
    return Adder(Settings(**SMALL, **options), PCG32(seed))


def test_tokens():
    assert source_tokens([7], [120]).tolist() == [[0, 0, 7, PLUS, 1, 2, 0]]
    assert target_tokens([999], [5]).tolist() == [[START, 1, 0, 0, 4, END]]
    assert text([START, 0, 1, 9, END, PAD]) == "019"
    assert parse(" 12+7 ") == (12, 7)
    for bad in ("", "1+", "1+2+3", "1234+1", "-1+2"):
        with pytest.raises(ValueError):
            parse(bad)


def test_held_out():
    training, rest = pairs()
    a, b = rest.T
    assert held_out(a, b).all()
    assert held_out(b, a).all()
    assert not held_out(*training.T).any()
    assert len(training) + len(rest) == 10**6


def test_batches_come_from_training(monkeypatch):
    run, seen = Training(Settings(**{**SMALL, "batch": 3000, "d_model": 3, "d_ff": 2})), []
    real = Adder.forward

    def spy(self, source, target):
        seen.append((source.copy(), target.copy()))
        return real(self, source, target)

    monkeypatch.setattr(Adder, "forward", spy)
    for _ in range(2):
        run.advance()
    for source, target in seen:
        a, b = source[:, :3] @ [100, 10, 1], source[:, 4:] @ [100, 10, 1]
        assert not held_out(a, b).any()
        np.testing.assert_array_equal(target, target_tokens(a, b)[:, :-1])


def test_the_future_and_padding():
    m, asked = model(), numbers(9)
    source, target = source_tokens(*asked.T), target_tokens(*asked.T)[:, :-1]
    before = m(source, target).data
    for t in range(1, 5):
        changed = target.copy()
        changed[:, t:] = (changed[:, t:] + 1) % 10
        np.testing.assert_array_equal(m(source, changed).data[:, :t], before[:, :t])
        assert (m(source, changed).data[:, t:] != before[:, t:]).any()
    source[3:, 4:] = PAD
    padded = m(source, target).data
    np.testing.assert_allclose(m(source[3:, :4], target[3:]).data, padded[3:], atol=1e-5)
    m.source.weight.data[PAD] += 3
    np.testing.assert_array_equal(m(source, target).data, padded)
    seen = m.attend(source, target)
    assert (seen.cross[:, 3:, :, :, 4:] == 0).all()
    assert (seen.encoder[:, 3:, :, :, 4:] == 0).all()
    assert (np.triu(seen.decoder, 1) == 0).all()


@pytest.mark.parametrize(("n", "shards"), [(8, 1), (7, 3), (70, 2)])
def test_shards(n, shards):
    m, asked = model(), numbers(n)
    s = Settings(**{**SMALL, "batch": n, "shards": shards})
    source, target = source_tokens(*asked.T), target_tokens(*asked.T)
    parts = [shard_gradient(m, s, 0, i, source, target, 5 * n) for i in range(shards)]
    m.zero_grad()
    loss = cross_entropy(m(source, target[:, :-1]), target[:, 1:])
    loss.backward()
    whole = np.concatenate([p.grad.ravel() for p in m.parameters()])
    np.testing.assert_allclose(sum(g for g, _ in parts), whole, atol=1e-5)
    np.testing.assert_allclose(sum(x for _, x in parts), [loss.item()], rtol=1e-5)


@pytest.mark.parametrize("width", [1, 4, 9])
def test_writing(width):
    m, asked = model(), numbers(130)
    source = source_tokens(*asked.T)
    found = translate(m, source, width=width)
    for i in (0, 1, 124, 125, 129):
        for h in translate(m, source[i : i + 1], width=width)[0][:1]:
            assert h.tokens == found[i][0].tokens
    for line, beams in zip(source[::9], found[::9], strict=True):
        assert len(beams) == width
        for h in beams:
            log_probs = log_softmax(m(line[None], np.array([[START, *h.tokens[:-1]]])).data[0])
            banned = [PLUS, PAD, START]
            total = sum(log_probs[t, token] for t, token in enumerate(h.tokens))
            assert h.log_prob == pytest.approx(total, rel=1e-3)
            assert not set(banned) & set(h.tokens)
            assert h.score == pytest.approx(h.log_prob / len(h.tokens), rel=1e-6)


def test_exact_match():
    m, asked = model(), numbers(700)
    for _ in range(1):
        found = translate(m, source_tokens(*asked.T))
    for i in (0, 3, 600):  # a digit more or less is all the difference
        a, b = asked[i]
        right = text(found[i][0].tokens) == f"{a + b:04d}"
        assert exact_match(m, asked[i : i + 1]) == right


def test_modes():
    m, asked = model(dropout=0.5), numbers(9)
    source, target = source_tokens(*asked.T), target_tokens(*asked.T)[:, :-1]
    for mode in (True, False):
        m.train(mode)
        assert [[h.score for h in b] for b in translate(m, source, 2)] == [
            [h.score for h in b] for b in translate(m, source, 2)
        ]
        np.testing.assert_array_equal(
            m.attend(source, target).cross, m.attend(source, target).cross
        )
        with evaluating(m):
            assert not m.training
            np.testing.assert_array_equal(m(source, target).data, m(source, target).data)
        assert m.training == mode


def same(one, two):
    a, b = one.model.state_dict(), two.model.state_dict()
    return one.step == two.step and all(np.array_equal(a[n], b[n]) for n in a)


def test_resume(tmp_path):
    whole, parts = (Training(Settings(**SMALL)) for _ in range(2))
    for _ in range(6):
        whole.advance()
    for _ in range(3):
        parts.advance()
    parts.save(tmp_path / "run")
    again = Training.load(tmp_path / "run")
    for _ in range(3):
        again.advance()
    assert same(whole, again)
    m = load_model(tmp_path / "run")
    assert not m.training


def test_failed_steps(monkeypatch):
    class Broken(Workers):
        fails = False

        def all_reduce(self, array):
            if self.fails:
                raise OSError
            return array

    workers = Broken()
    run, other = Training(Settings(**SMALL), workers=workers), Training(Settings(**SMALL))
    for step in range(4):
        if step == 2:
            workers.fails = True
            with pytest.raises(OSError):
                run.advance()
            workers.fails = False
        run.advance()
        other.advance()
    assert same(run, other)


def test_what_is_broken_is_not_saved(tmp_path):
    run = Training(Settings(**SMALL))
    run.advance()
    run.save(tmp_path / "run")
    before = (tmp_path / "run").read_bytes()
    for p in run.model.parameters():
        p.data *= np.float32(1e30)
    with pytest.raises(FloatingPointError):
        run.save(tmp_path / "run")
    assert (tmp_path / "run").read_bytes() == before
    arrays, texts = read_safetensors(tmp_path / "run")
    settings = json.loads(texts["settings"])
    for wrong in ({"d_model": 999_999, "n_heads": 1}, {"n_layers": 99}):
        write_safetensors(
            tmp_path / "odd", arrays, {**texts, "settings": json.dumps(settings | wrong)}
        )
        for load in (load_model, Training.load):
            with pytest.raises(CheckpointError):
                load(tmp_path / "odd")


def test_refusals():
    for wrong in (
        {"d_model": 0},
        {"n_heads": 5},
        {"dropout": 1.0},
        {"lr": np.nan},
        {"shards": 999},
    ):
        with pytest.raises(ValueError):
            Settings(**wrong)
    with pytest.raises(ValueError):
        translate(model(), source_tokens([1], [2]), alpha=-1)
