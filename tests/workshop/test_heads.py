# Tangled from book/2-transformer/MS-L5-tests.md
"""MS-L5: the rows that were measured of its heads are what the script writes and what the page says."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from tinyllm.models.addition import Adder, Settings, Training, source_tokens, target_tokens
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention
from weave.model.index import Index

ROOT = Path(__file__).resolve().parents[2]
ROWS = json.loads((ROOT / "tinyllm/models/addition/heads.json").read_text(encoding="utf-8"))
TINY = Settings(d_model=8, n_heads=2, n_layers=1, d_ff=8, batch=4, warmup=5, steps=200)


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location(
        "measure_heads", ROOT / "tests/bench/measure_heads.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def numbers(value):
    """All numbers in lists and dictionaries."""
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return [number for part in parts for number in numbers(part)]
    return [value]


def test_rows_are_those_of_the_script(script):
    found = [(row["layers"], row["heads"], row["seed"], row["steps"]) for row in ROWS]
    assert found == [(s.n_layers, s.n_heads, s.seed, s.steps) for s in script.SETTINGS]
    for row in ROWS:
        layers, heads = row["layers"], row["heads"]
        assert len(row["learning"]) == row["steps"] // script.EVERY
        assert abs(row["learning"][-1] - row["right"]) < 0.1  # other sums, the same model
        assert len(row["without"]) == 3 * layers
        assert {len(shares) for shares in row["without"].values()} == {heads + 1}
        if heads == 1:
            assert all(one == every for one, every in row["without"].values())
        for when in ("untrained", "trained"):
            assert np.shape(row[when]["partner"]) == (layers, heads, 3)
            assert np.shape(row[when]["near"]) == (4,)
        measured = numbers([row[key] for key in ("right", "learning", "without", "trained")])
        assert all(0 <= number <= 1 for number in measured)


def test_rows_of_an_interrupted_run(script, tmp_path, monkeypatch):
    script.main([TINY], tmp_path / "whole", tmp_path / "whole.json")
    real = Training.advance

    def until(self):
        if self.step == 150:
            raise KeyboardInterrupt
        return real(self)

    monkeypatch.setattr(Training, "advance", until)
    again = [TINY], tmp_path / "broken", tmp_path / "broken.json"
    with pytest.raises(KeyboardInterrupt):
        script.main(*again)
    monkeypatch.setattr(Training, "advance", real)
    script.main(*again)
    text = (tmp_path / "broken.json").read_text()
    assert text == (tmp_path / "whole.json").read_text()
    (row,) = json.loads(text)
    assert row.keys() == ROWS[0].keys()
    assert len(row["learning"]) == 2
    assert row["untrained"]["near"] != row["trained"]["near"]


def test_a_silenced_head_says_nothing(script, monkeypatch):
    model, asked = Adder(TINY, PCG32(3)), np.array([[3, 4], [500, 700]])
    source, target = source_tokens(*asked.T), target_tokens(*asked.T)[:, :-1]
    monkeypatch.setattr(script, "exact_match", lambda model, _: model(source, target).data)
    before = model(source, target).data
    found = script.silenced(model, asked)
    assert (model(source, target).data == before).all()  # all weights are back
    real = MultiHeadAttention.attend
    for path, logits in found.items():
        silent = dict(model.named_modules())["transformer." + path]
        for head, got in enumerate(logits):

            def attend(self, x_q, x_kv, mask=None, head=head, silent=silent):
                out, weights = real(self, x_q, x_kv, mask)
                if self is not silent:
                    return out, weights
                values = self.split_heads(self.v_proj(x_kv)).data
                context = weights.data @ values
                context[:, head if head < 2 else slice(None)] = 0.0
                return self.out_proj(self.merge_heads(Tensor(context))), weights

            monkeypatch.setattr(MultiHeadAttention, "attend", attend)
            monkeypatch.setattr(MultiHeadAttention, "forward", lambda *a: a[0].attend(*a[1:])[0])
            np.testing.assert_allclose(got, model(source, target).data, atol=1e-5)
            assert abs(got - before).max() > 1e-3
            monkeypatch.setattr(MultiHeadAttention, "attend", real)


def test_looks_are_means_of_weights(script):
    model, asked = Adder(TINY, PCG32(3)), np.array([[3, 4], [500, 700], [128, 64]])
    found = script.looks(model, asked)
    partner, near = np.zeros((1, 2, 3)), np.zeros(4)
    own = ["hundreds tens", "hundreds tens", "tens units", "units"]
    places = {"hundreds": (0, 4), "tens": (1, 5), "units": (2, 6)}
    for a, b in asked:
        seen = model.attend(source_tokens([a], [b]), target_tokens([a], [b])[:, :-1])
        for i, (left, right) in enumerate(places.values()):
            both = seen.encoder[:, 0, :, left, right] + seen.encoder[:, 0, :, right, left]
            partner[..., i] += both / 2 / len(asked)
        for t, names in enumerate(own):
            keys = [key for name in names.split() for key in places[name]]
            near[t] += seen.cross[0, 0, :, t][:, keys].sum() / 2 / len(asked)
    np.testing.assert_allclose(found["partner"], partner, rtol=1e-5)
    np.testing.assert_allclose(found["near"], near, rtol=1e-5)


def right_of(layers, heads, steps=1500):
    kind = (layers, heads, steps)
    return [r["right"] for r in ROWS if (r["layers"], r["heads"], r["steps"]) == kind]


def test_any_number_of_heads_adds():
    for heads in (1, 2, 4, 8):
        assert max(right_of(2, heads)) == 1.0
    assert min(right_of(2, 4) + right_of(2, 8)) >= 0.995
    assert min(right_of(2, 1)) < 0.1  # still on the plateau
    assert np.mean(right_of(2, 1)) < np.mean(right_of(2, 2)) < np.mean(right_of(2, 4))


def test_more_heads_are_needed_less():
    needless = []
    for heads in (1, 2, 4, 8):
        cost = [
            row["right"] - share
            for row in ROWS
            if (row["layers"], row["heads"], row["steps"]) == (2, heads, 1500)
            for shares in row["without"].values()
            for share in shares[:-1]
        ]
        needless.append(np.mean(np.array(cost) < 0.01))
    assert needless == sorted(needless)
    assert needless[0] < 0.1
    assert needless[-1] > 0.6


def test_a_right_model_need_not_look_at_partners():
    best = {
        row["seed"]: np.max(row["trained"]["partner"])
        for row in ROWS
        if (row["layers"], row["heads"], row["right"]) == (2, 4, 1.0)
    }
    assert sorted(best) == [0, 1, 2, 3, 4]
    assert max(best.values()) > 0.99
    assert min(best.values()) < 0.5
    assert all(np.max(row["untrained"]["partner"]) < 0.2 for row in ROWS)


def test_two_places_take_two_heads_or_two_layers():
    """By the page's own code."""
    index = Index(str(ROOT / "book"))
    bodies = [index.body(block) for block in index.page_of["MS-L5"].blocks]
    space = {"np": np, "PCG32": PCG32}
    for mark in ("class Reader(", "def trained_reader("):
        (body,) = [body for body in bodies if mark in body]
        exec(body, space)
    train, percent_right = space["trained_reader"], space["percent_right"]
    for seed in (3, 4):  # the page has 0 to 2
        found, guessed = sorted(percent_right(train(1, seed=seed)), reverse=True)
        assert found > 95
        assert 5 < guessed < 20
        assert min(percent_right(train(2, seed=seed))) > 99
        assert min(percent_right(train(1, 2, seed=seed))) > 99
