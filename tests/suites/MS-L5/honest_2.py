"""By effects: what a run does, what it writes, what it refuses."""

import contextlib
import json

import numpy as np
import pytest

from tinyllm.autograd import no_grad
from tinyllm.checkpoint import CheckpointError, read_safetensors, write_safetensors
from tinyllm.models.addition.data import (
    END,
    PAD,
    PLUS,
    START,
    held_out,
    pairs,
    source_tokens,
    target_tokens,
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
from tinyllm.train import cross_entropy
from tinyllm.xfmr.search import beam_search, greedy_search, log_softmax

OPTIONS = {
    "d_model": 8,
    "n_heads": 2,
    "n_layers": 1,
    "d_ff": 12,
    "batch": 9,
    "steps": 30,
    "warmup": 2,
    "shards": 3,
}


@pytest.fixture(scope="module")
def knows():
    """A model that has learned a few sums by heart."""
    run = Training(Settings(**{**OPTIONS, "d_model": 16}))
    a, b = np.divmod(np.arange(64), 8)
    source, target = source_tokens(a, b), target_tokens(a, b)
    for _ in range(120):
        run.model.zero_grad()
        cross_entropy(run.model(source, target[:, :-1]), target[:, 1:]).backward()
        run.optimizer.lr = 0.01
        run.optimizer.step()
    return run.model


def some(n, seed=3):
    a, b = np.random.default_rng(seed).integers(0, 1000, (2, n))
    return a, b, source_tokens(a, b), target_tokens(a, b)


def test_digits():
    for a, b in ((0, 0), (999, 999), (120, 7), (5, 995)):
        (source,), (target,) = source_tokens([a], [b]), target_tokens([a], [b])
        assert [*source[:3], *source[4:]] == [int(c) for c in f"{a:03d}{b:03d}"]
        assert source[3] == PLUS
        assert [*target] == [START, *(int(c) for c in f"{a + b:04d}"), END]


def test_a_pair_and_its_mirror():
    training, rest = pairs()
    a, b = np.random.default_rng(0).integers(0, 1000, (2, 5000))
    assert (held_out(a, b) == held_out(b, a)).all()
    codes = set((rest @ [1000, 1]).tolist())
    assert {b * 1000 + a for a, b in rest.tolist()} == codes
    assert not codes & set((training @ [1000, 1]).tolist())


def test_first_loss():
    run, seen = Training(Settings(**OPTIONS)), []
    twin, real = Training(Settings(**OPTIONS)), run._shards.gradients

    def spy(step, source, target, n):
        seen.append((source, target))
        return real(step, source, target, n)

    run._shards.gradients = spy
    first = run.advance()
    ((source, target),) = seen
    logits = twin.model(source, target[:, :-1]).data
    losses = [
        -log_softmax(z)[t]
        for row, told in zip(logits, target, strict=True)
        for z, t in zip(row, told[1:], strict=True)
    ]
    assert first.loss == pytest.approx(np.mean(losses), rel=1e-5)
    for line in source:
        a, b = line[:3] @ [100, 10, 1], line[4:] @ [100, 10, 1]
        assert not held_out(a, b)


def test_shards_of_a_batch():
    _, _, source, target = some(9)
    losses, gradients = [], []
    for shards in (1, 2, 9):
        s = Settings(**{**OPTIONS, "shards": shards})
        m = Adder(s)
        m.load_state_dict(Training(Settings(**OPTIONS)).model.state_dict())
        parts = [shard_gradient(m, s, 0, i, source, target, 45) for i in range(shards)]
        losses.append(sum(float(x[0]) for _, x in parts))
        gradients.append(sum(g for g, _ in parts))
    np.testing.assert_allclose(losses, losses[0], rtol=1e-5)
    for g in gradients[1:]:
        np.testing.assert_allclose(g, gradients[0], atol=1e-5)


def test_what_may_be_read(knows):
    _, _, source, target = some(7)
    target = target[:, :-1]
    before = knows(source, target).data
    last = target.copy()
    last[:, -1] = (last[:, -1] + 5) % 10
    np.testing.assert_array_equal(knows(source, last).data[:, :-1], before[:, :-1])
    short = source.copy()
    short[2:, 5:] = PAD
    padded = knows(short, target).data
    np.testing.assert_allclose(padded[2:], knows(source[2:, :5], target[2:]).data, atol=1e-4)
    np.testing.assert_allclose(padded[:2], before[:2], atol=1e-4)
    for name, w in zip(("encoder", "cross"), knows.attend(short, target)[::2], strict=True):
        assert (w[:, 2:, :, :, 5:] == 0).all(), name


@pytest.mark.parametrize("width", [1, 3, 10])
def test_what_is_written(knows, width):
    _, _, source, _ = some(140)

    def step(prefixes, rows):
        with no_grad():
            z = knows(source[rows], prefixes).data[:, -1].copy()
        found = log_softmax(z)
        found[:, [PLUS, PAD, START, *([END] if prefixes.shape[1] == 1 else [])]] = -np.inf
        return found

    options = {"start": START, "end": END, "max_length": 5}
    wanted = (
        greedy_search(step, 140, **options)
        if width == 1
        else beam_search(step, 140, width=width, **options)
    )
    for found, beams in zip(translate(knows, source, width=width), wanted, strict=True):
        beams = [beams] if width == 1 else beams
        assert found[0].tokens == beams[0].tokens
        np.testing.assert_allclose(
            [h.log_prob for h in found], [h.log_prob for h in beams], rtol=1e-3, atol=1e-4
        )


def test_a_writer_goes_on_from_any_prefix(knows):
    _, _, source, _ = some(4)
    step = knows.writer(source)
    for prefixes, rows in (
        ([[START]] * 4, [0, 1, 2, 3]),
        ([[START, 1], [START, 2], [START, 3]], [0, 0, 3]),
        ([[START, 3, 4], [START, 1, 5], [START, 2, 2]], [3, 0, 0]),
        ([[START, 7, 7]], [2]),
        ([[START, 1]], [1]),
    ):
        found = step(np.array(prefixes), np.array(rows))
        z = knows(source[rows], np.array(prefixes)).data[:, -1]
        may = found[0] > -np.inf
        np.testing.assert_allclose(found[:, may], log_softmax(z)[:, may], atol=1e-4)


def test_how_many_are_right(knows):
    asked = np.stack(np.divmod(np.random.default_rng(0).permutation(600) % 64, 8), axis=1)
    a, b = asked.T
    found = translate(knows, source_tokens(a, b))
    right = [
        h[0].tokens == tuple(t[1:].tolist())
        for h, t in zip(found, target_tokens(a, b), strict=True)
    ]
    assert exact_match(knows, asked) == pytest.approx(np.mean(right))
    assert np.mean(right) > 0


def test_evaluation_is_quiet():
    m = Adder(Settings(**OPTIONS, dropout=0.5))
    _, _, source, target = some(5)
    for mode in (True, False):
        m.train(mode)
        twice = [translate(m, source, width=2) for _ in range(2)]
        assert twice[0] == twice[1]
        with pytest.raises(KeyError), evaluating(m):
            raise KeyError
        assert m.training == mode
        a, b = (m(source, target[:, :-1]).data for _ in range(2))
        assert (a != b).any() == mode


def states(run):
    return {
        **run.model.state_dict(),
        **{f"o/{n}": a for n, a in run.optimizer.state_dict().items()},
    }


def test_a_saved_run_goes_on(tmp_path):
    whole, half = (Training(Settings(**OPTIONS, dropout=0.1)) for _ in range(2))
    steps = [whole.advance() for _ in range(7)]
    assert [half.advance() for _ in range(4)] == steps[:4]
    half.save(tmp_path / "half")
    rest = Training.load(tmp_path / "half")
    assert [rest.advance() for _ in range(3)] == steps[4:]
    for name, array in states(whole).items():
        np.testing.assert_array_equal(states(rest)[name], array)
    assert not load_model(tmp_path / "half").training


def test_a_step_that_fails_is_not_made():
    class Lost(Workers):
        calls = 0

        def all_reduce(self, array):
            self.calls += 1
            if self.calls in (3, 6):
                raise ConnectionError
            return array

    run, plain = Training(Settings(**OPTIONS), workers=Lost()), Training(Settings(**OPTIONS))
    made = []
    while len(made) < 4:
        with contextlib.suppress(ConnectionError):
            made.append(run.advance())
    assert made == [plain.advance() for _ in range(4)]


def test_diverged_runs_and_odd_files(tmp_path):
    run = Training(Settings(**OPTIONS))
    run.advance()
    run.save(tmp_path / "good")
    kept = (tmp_path / "good").read_bytes()
    run.model.output.bias.data = run.model.output.bias.data * np.float32(np.inf)
    with pytest.raises(FloatingPointError), np.errstate(all="ignore"):
        run.save(tmp_path / "good")
    assert (tmp_path / "good").read_bytes() == kept
    arrays, texts = read_safetensors(tmp_path / "good")
    settings = json.loads(texts["settings"])
    for changed in (
        {"settings": json.dumps(settings | {"d_model": 1_000_000})},
        {"format": "other"},
        {"settings": "[]"},
    ):
        write_safetensors(tmp_path / "odd", arrays, texts | changed)
        for load in (load_model, Training.load):
            with pytest.raises(CheckpointError):
                load(tmp_path / "odd")
    for wrong in ({"batch": 0}, {"warmup": 99}, {"dropout": -1}, {"clip": 0}):
        with pytest.raises(ValueError):
            Settings(**{**OPTIONS, **wrong})
