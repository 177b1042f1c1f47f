# Tangled from book/2-transformer/MS-L5-tests.md
"""MS-L5: tokens, model, training and writing, without a long run."""

import gc
import json
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from tinyllm.checkpoint import CheckpointError, read_safetensors, write_safetensors
from tinyllm.models.addition import training
from tinyllm.models.addition.data import (
    END,
    N_TOKENS,
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
from tinyllm.models.addition.model import Adder, Settings, exact_match, translate
from tinyllm.models.addition.training import Training, Workers, load_model
from tinyllm.num.pcg32 import PCG32, manual_seed
from tinyllm.train import cross_entropy
from tinyllm.xfmr.positions import sinusoidal
from tinyllm.xfmr.search import greedy_search, log_softmax

SMALL = {
    "d_model": 16,
    "n_heads": 2,
    "n_layers": 1,
    "d_ff": 32,
    "batch": 8,
    "warmup": 5,
    "steps": 60,
}


@pytest.fixture(autouse=True)
def seeded():
    """What is built without a generator is the same in every test."""
    manual_seed(0)


def test_tokens_by_hand():
    a, b = parse("7+5")
    assert source_tokens([a], [b]).tolist() == [[0, 0, 7, PLUS, 0, 0, 5]]
    assert target_tokens([a], [b]).tolist() == [[START, 0, 0, 1, 2, END]]
    assert source_tokens([123, 999], [456, 0]).tolist() == [
        [1, 2, 3, PLUS, 4, 5, 6],
        [9, 9, 9, PLUS, 0, 0, 0],
    ]
    assert target_tokens([123, 999], [456, 999]).tolist() == [
        [START, 0, 5, 7, 9, END],
        [START, 1, 9, 9, 8, END],
    ]
    assert text([1, 2, 3, PLUS, 4, 5, 6]) == "123+456"
    assert text([START, 0, 5, 7, 9, END, PAD]) == "0579"
    assert len({PLUS, PAD, START, END, *range(10)}) == N_TOKENS == 14


def test_parse():
    assert parse("123+456") == (123, 456)
    assert parse(" 7+15\n") == (7, 15)
    assert parse("000+010") == (0, 10)
    for bad in [
        "",
        "7",
        "7+",
        "+7",
        "1+2+3",
        "1234+1",
        "1+1234",
        "1 + 2",
        "-1+2",
        "1-2",
        "a+b",
        "1.0+2",
        "١+٢",
        "1+2 3",
    ]:
        with pytest.raises(ValueError):
            parse(bad)


def test_split():
    training, rest = pairs()
    assert len(training) == 990_039
    assert len(rest) == 9_961
    codes = set((training @ [1000, 1]).tolist())
    held = set((rest @ [1000, 1]).tolist())
    assert not codes & held
    assert len(codes | held) == 1_000_000
    assert set((rest @ [1, 1000]).tolist()) == held  # the mirror of each is held out too
    assert held_out([3, 4], [4, 3]).tolist() == [held_out(3, 4)] * 2
    assert rest[:5].tolist() == pairs()[1][:5].tolist()
    sums = rest[:1000].sum(axis=1)
    assert 900 < sums.mean() < 1100  # no kind of sum is preferred
    for array in (training, rest):
        with pytest.raises(ValueError):
            array[0] = 0


def batch(n=4, seed=0):
    a, b = np.random.default_rng(seed).integers(0, 1000, (2, n))
    return source_tokens(a, b), target_tokens(a, b)


def test_parameters():
    model = Adder(Settings())
    names = list(model.state_dict())
    assert names[:3] == [
        "source.weight",
        "target.weight",
        "transformer.encoder.layers.0.self_attention.q_proj.weight",
    ]
    assert names[-2:] == ["output.weight", "output.bias"]
    assert sum(p.size for p in model.parameters()) == 236_430
    again = Adder(Settings(), PCG32(0)).state_dict()
    assert all((again[name] == array).all() for name, array in model.state_dict().items())
    assert (
        Training(Settings(seed=1, **SMALL)).model.output.weight.data
        != Training(Settings(**SMALL)).model.output.weight.data
    ).any()


def torch_twin(model, s):
    """torch's modules with the same numbers, as a function of source and target."""
    twin = torch.nn.Transformer(
        s.d_model,
        s.n_heads,
        s.n_layers,
        s.n_layers,
        s.d_ff,
        0.0,
        batch_first=True,
        norm_first=True,
        dtype=torch.float64,
    )
    state = {
        name: torch.tensor(array, dtype=torch.float64) for name, array in model.state_dict().items()
    }
    loaded = {}
    for name in twin.state_dict():
        ours = "transformer." + name.replace("self_attn", "self_attention")
        ours = ours.replace("multihead_attn", "cross_attention")
        ours = ours.replace("linear1", "feed_forward.up").replace("linear2", "feed_forward.down")
        if "in_proj_" in ours:
            parts = [ours.replace("in_proj_", f"{p}_proj.") for p in "qkv"]
            loaded[name] = torch.cat([state[part] for part in parts])
        else:
            loaded[name] = state[ours]
    twin.load_state_dict(loaded)
    tables = {n: state[n].requires_grad_() for n in state if not n.startswith("transformer.")}
    waves = torch.tensor(sinusoidal(8, s.d_model, dtype=np.float64))

    def call(source, target):
        x = tables["source.weight"][torch.tensor(source)] + waves[: source.shape[1]]
        y = tables["target.weight"][torch.tensor(target)] + waves[: target.shape[1]]
        causal = torch.ones(target.shape[1], target.shape[1]).triu(1).bool()
        padding = torch.tensor(source == PAD)
        out = twin(
            x, y, tgt_mask=causal, src_key_padding_mask=padding, memory_key_padding_mask=padding
        )
        return out @ tables["output.weight"].T + tables["output.bias"]

    return call, tables


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("padded", [False, True])
def test_model_against_torch(padded):
    s = Settings(d_model=16, n_heads=4, d_ff=24)
    model = Adder(s).astype(np.float64)
    source, target = batch()
    if padded:
        source[1, 5:] = source[2, 1:] = PAD
    call, tables = torch_twin(model, s)
    logits, want = model(source, target[:, :-1]), call(source, target[:, :-1])
    np.testing.assert_allclose(logits.data, want.detach().numpy(), rtol=1e-12, atol=1e-12)
    cross_entropy(logits, target[:, 1:]).backward()
    torch.nn.functional.cross_entropy(
        want.reshape(-1, N_TOKENS), torch.tensor(target[:, 1:]).reshape(-1)
    ).backward()
    for name in tables:
        mine = dict(model.named_parameters())[name].grad
        np.testing.assert_allclose(mine, tables[name].grad.numpy(), rtol=1e-10, atol=1e-12)


def test_later_targets_change_nothing():
    model = Adder(Settings())
    source, target = batch(9)
    before = model(source, target[:, :-1]).data
    for t in range(1, 5):
        changed = target[:, :-1].copy()
        changed[:, t:] = (changed[:, t:] + 3) % 10
        after = model(source, changed).data
        assert (after[:, :t] == before[:, :t]).all()
        assert (after[:, t:] != before[:, t:]).any(axis=2).all()


def test_padded_sources_change_nothing():
    model = Adder(Settings())
    source, target = batch(9)
    source[:, 5:] = PAD
    before = model(source, target[:, :-1]).data
    with_other = model.state_dict()
    with_other["source.weight"][PAD] += 5  # what a padded position holds
    other = Adder(Settings())
    other.load_state_dict(with_other)
    assert (other(source, target[:, :-1]).data == before).all()
    short = model(source[:, :5], target[:, :-1]).data
    np.testing.assert_allclose(short, before, atol=1e-5)
    mixed = source.copy()
    mixed[0] = batch(1, seed=5)[0][0]  # one sequence of the batch has no padding
    after = model(mixed, target[:, :-1]).data
    assert (after[1:] == before[1:]).all()
    assert (after[0] != before[0]).any()


def curve(run, steps):
    return [run.advance() for _ in range(steps)]


def test_loss_of_a_batch(monkeypatch):
    run = Training(Settings(**SMALL))
    seen = []
    real = Adder.forward

    def spy(self, source, target):
        logits = real(self, source, target)
        seen.append((source.copy(), target.copy(), logits.data.copy()))
        return logits

    monkeypatch.setattr(Adder, "forward", spy)
    progress = run.advance()
    assert len(seen) == 2  # shards
    losses = []
    for source, told, logits in seen:
        for line, so_far, z in zip(source, told, logits, strict=True):
            a, b = parse(text(line))
            asked = [*map(int, f"{a + b:04d}"), END]
            assert so_far.tolist() == [START, *asked[:-1]]
            losses += [-log_softmax(z)[t, token] for t, token in enumerate(asked)]
    assert len(losses) == 40
    assert progress.loss == pytest.approx(np.mean(losses), rel=1e-5)
    assert progress.step == run.step == 1
    assert progress.rate == pytest.approx(3e-3 / 5)


def test_batches_are_for_training(monkeypatch):
    run = Training(Settings(**{**SMALL, "batch": 200}))
    real, drawn = Adder.forward, []

    def forward(self, source, target):
        drawn.append(source)
        return real(self, source, target)

    monkeypatch.setattr(Adder, "forward", forward)
    monkeypatch.setattr(run.optimizer, "step", lambda: None)
    curve(run, 30)
    a, b = np.array([parse(text(line)) for line in np.concatenate(drawn)]).T
    assert len(a) == 6000
    assert not held_out(a, b).any()
    assert len(set(zip(a.tolist(), b.tolist(), strict=True))) > 5900
    assert 450 < a.mean() < 550


def test_shards_add_up():
    runs = {s: Training(Settings(**{**SMALL, "shards": s})) for s in (1, 2, 3)}
    for run in runs.values():
        run.optimizer.step = lambda: None  # gradients are looked at, not used
    curves = {s: run.advance() for s, run in runs.items()}
    for s in (2, 3):
        assert curves[s].loss == pytest.approx(curves[1].loss, rel=1e-6)
        for p, q in zip(runs[s].model.parameters(), runs[1].model.parameters(), strict=True):
            np.testing.assert_allclose(p.grad, q.grad, rtol=1e-3, atol=1e-6)


def same(one, two):
    a, b = one.model.state_dict(), two.model.state_dict()
    assert all((a[name] == b[name]).all() for name in a)
    a, b = one.optimizer.state_dict(), two.optimizer.state_dict()
    assert all((a[name] == b[name]).all() for name in a)
    assert one.step == two.step


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_processes_change_no_bit(dropout):
    settings = Settings(**{**SMALL, "shards": 4}, dropout=dropout)
    one, two, three = (Training(settings, processes) for processes in (1, 2, 3))
    want = curve(one, 6)
    assert curve(two, 6) == want
    assert curve(three, 6) == want
    same(one, two)
    same(one, three)


def test_a_worker_process_that_dies():
    run, alone = Training(Settings(**SMALL), processes=2), Training(Settings(**SMALL))
    want = curve(alone, 4)
    before = set(multiprocessing.active_children())
    assert curve(run, 2) == want[:2]
    (worker,) = set(multiprocessing.active_children()) - before
    assert os.getsid(worker.pid) == worker.pid  # Ctrl-C is for the parent
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError):
        run.advance()
    assert run.step == 2
    assert curve(run, 2) == want[2:]
    (another,) = set(multiprocessing.active_children()) - before
    assert another.pid != worker.pid
    del run
    gc.collect()
    assert set(multiprocessing.active_children()) == before  # the pipe was closed, and it left


def test_a_worker_process_that_fails(monkeypatch):
    run, alone = Training(Settings(**SMALL), processes=2), Training(Settings(**SMALL))
    want = curve(alone, 2)
    real = training.source_tokens

    def no_tokens(a, b):
        tokens = real(a, b)
        tokens[-1] = 99  # in the shard of the worker
        return tokens

    with monkeypatch.context() as patch:
        patch.setattr(training, "source_tokens", no_tokens)
        with pytest.raises(RuntimeError):
            run.advance()
    assert curve(run, 2) == want


SCRIPT = """
import os, sys, threading
from tinyllm.models.addition import Settings, Training

print("begun", flush=True)
run = Training(Settings(**{settings}), processes=2)
if {thread}:
    thread = threading.Thread(target=run.advance, daemon=True)
    thread.start()
    thread.join()
else:
    run.advance()
import multiprocessing
(worker,) = multiprocessing.active_children()
print(run.step, worker.pid, flush=True)
sys.stdin.readline()
"""


def gone(pid):
    """Whether a process comes to its end."""
    with suppress(ProcessLookupError):  # it has been gone for long
        descriptor = os.pidfd_open(pid)
        try:
            return bool(select.select([descriptor], [], [], 60)[0])
        finally:
            os.close(descriptor)
    return True


@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize("end", ["return", "kill"])
def test_a_script_without_a_guard(thread, end, tmp_path):
    """It has no `if __name__ == "__main__"`, and its worker does not run it, and leaves when it ends."""
    script = tmp_path / "with a space.py"
    script.write_text(SCRIPT.format(settings=SMALL, thread=thread))
    root = Path(training.__file__).parents[3]
    process = subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "begun\n"
    step, pid = map(int, process.stdout.readline().split())
    assert step == 1
    if end == "kill":
        process.kill()
    out, err = process.communicate(timeout=60)  # which waits for the worker, who has stderr too
    assert (out, err) == ("", "")
    assert gone(pid)
    assert not list(Path("/dev/shm").glob(f"pym-{process.pid}-*"))


def test_shared_memory_has_no_name():
    run = Training(Settings(**SMALL), processes=2)
    assert curve(run, 3) == curve(Training(Settings(**SMALL)), 3)
    maps = Path("/proc/self/maps").read_text().splitlines()
    ours = [line for line in maps if f"pym-{os.getpid()}" in line]
    assert ours
    assert all(line.endswith("(deleted)") for line in ours)


class Together(Workers):
    """Workers that are threads of one process and meet at a barrier."""

    def __init__(self, rank, shared):
        self.rank, self.count, self.shared = rank, len(shared.arrays), shared

    def all_reduce(self, array):
        self.shared.arrays[self.rank] = array
        self.shared.barrier.wait(timeout=60)
        result = self.shared.arrays[0]
        for other in self.shared.arrays[1:]:
            result = result + other
        self.shared.barrier.wait(timeout=60)
        return result


class Shared:
    def __init__(self, count):
        self.arrays, self.barrier = [None] * count, threading.Barrier(count)


@pytest.mark.parametrize("shards", [2, 4])
def test_workers_change_no_bit(shards):
    settings = Settings(**{**SMALL, "shards": shards}, dropout=0.1)
    alone = Training(settings)
    want = curve(alone, 5)
    shared, got = Shared(2), [None, None]
    runs = [Training(settings, workers=Together(rank, shared)) for rank in range(2)]

    def work(rank):
        got[rank] = curve(runs[rank], 5)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [want, want]
    same(runs[0], alone)
    same(runs[1], alone)
    with pytest.raises(ValueError):
        Training(settings, workers=Together(0, Shared(3)))


def test_a_failed_step_changes_nothing(monkeypatch):
    class Gone(Workers):
        def all_reduce(self, array):
            if run.step == 2:
                raise ConnectionError("a worker is gone")
            return array

    settings = Settings(**SMALL)
    reference, run = Training(settings), Training(settings, workers=Gone())
    curve(reference, 2)
    curve(run, 2)
    with pytest.raises(ConnectionError):
        run.advance()
    same(run, reference)
    run.workers = Workers()
    assert curve(run, 2) == curve(reference, 2)  # as if nothing had been
    bad = run.model.output.bias
    bad.data = np.full_like(bad.data, np.nan)
    with pytest.raises(FloatingPointError):
        run.advance()
    assert run.step == 4
    for name, p in run.model.named_parameters():
        assert name == "output.bias" or np.isfinite(p.data).all()


def test_resume_to_the_same_bits(tmp_path):
    settings, path = Settings(**SMALL, dropout=0.1, seed=3), tmp_path / "run" / "c.safetensors"
    unbroken, broken = Training(settings), Training(settings)
    want = curve(unbroken, 9)
    got = curve(broken, 4)
    broken.save(path)
    curve(broken, 2)  # goes on after saving: what is saved does not change
    resumed = Training.load(path, processes=2)
    assert resumed.step == 4
    assert resumed.settings == settings
    assert got + curve(resumed, 5) == want
    same(resumed, unbroken)
    model = load_model(path)
    assert not model.training
    again = Training.load(path).model.state_dict()
    assert all((array == again[name]).all() for name, array in model.state_dict().items())
    assert curve(Training(Settings(**SMALL, dropout=0.1, seed=4)), 4) != got


def test_what_has_diverged_is_not_saved(tmp_path):
    path = tmp_path / "c.safetensors"
    run = Training(Settings(**SMALL, clip=np.inf), processes=2)
    curve(run, 2)
    run.save(path)
    before = path.read_bytes()
    good = {name: p.data for name, p in run.model.named_parameters()}
    means = run.optimizer.state_dict()

    def refused(_what):
        with pytest.raises(FloatingPointError):
            run.save(path)
        assert path.read_bytes() == before

    bias = run.model.output.bias
    bias.data = np.where(np.arange(N_TOKENS) == 3, np.inf, 0).astype("f4")
    refused(r"not all numbers are finite in model/output\.bias$")
    for p in run.model.parameters():
        p.data = np.full_like(p.data, np.nan)
    refused(r"not all numbers are finite in model/\S+, \S+, \S+ and 47 others")
    for name, p in run.model.named_parameters():
        p.data = good[name] * np.float32(1e30)  # each is finite
    refused("the parameters are finite, but too large")
    for name, p in run.model.named_parameters():
        p.data = good[name]
    name = "output.bias.exp_avg_sq"
    run.optimizer.load_state_dict(means | {name: np.full(N_TOKENS, np.inf, "f4")})
    refused(r"not all numbers are finite in optimizer/output\.bias\.exp_avg_sq")
    run.optimizer.load_state_dict(means)
    run.save(path)
    assert path.read_bytes() == before  # looking changes nothing


@pytest.mark.parametrize("lr", [1e12, 1e30, 1e308])
def test_a_learning_rate_that_explodes(lr):
    run = Training(Settings(**{**SMALL, "lr": lr}))
    with pytest.raises(FloatingPointError):
        curve(run, 9)


def test_checkpoint_faults(tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    run = Training(Settings(**SMALL))
    run.advance()
    run.save(path)
    arrays, texts = read_safetensors(path)

    def broken(_what, arrays=arrays, texts=texts, both=True):
        write_safetensors(path, arrays, texts)
        for load in (Training.load, load_model) if both else (Training.load,):
            with pytest.raises(CheckpointError):
                load(path)

    broken("no checkpoint of the transformer that adds", texts={})
    broken("format is 'GPT'", texts=texts | {"format": "GPT"})
    broken("its settings", texts={k: v for k, v in texts.items() if k != "settings"})
    broken("its settings", texts=texts | {"settings": "[1]"})
    broken(
        "its settings: d_model is at least 1, got 0", texts=texts | {"settings": '{"d_model": 0}'}
    )
    broken("its settings.*colour", texts=texts | {"settings": '{"colour": 1}'})
    broken("shape", texts=texts | {"settings": texts["settings"].replace("16", "18")})
    broken("its settings: maximum recursion", texts=texts | {"settings": "[" * 10**5})
    missing = {name: a for name, a in arrays.items() if name != "model/output.bias"}
    broken(r"missing from the state: output\.bias", missing)
    wrong = arrays | {"model/output.bias": np.zeros(3, "f4")}
    broken(r"output\.bias: the state has shape \(3,\)", wrong)
    for bad in (np.nan, np.inf):
        array = np.where(np.arange(N_TOKENS) == 3, bad, 0).astype("f4")
        message = (
            r"not all numbers are finite in \S*output\.bias\S*: the run that it is of had diverged"
        )
        broken(message, arrays | {"model/output.bias": array})
        broken(message, arrays | {"optimizer/output.bias.exp_avg": array}, both=False)
    wide = {
        n: a.astype("f8") * 1e300 for n, a in arrays.items() if n.startswith("model/")
    }  # float64
    broken("not all numbers are finite in", arrays | wide)
    huge = {n: a * np.float32(1e30) for n, a in arrays.items() if n.startswith("model/")}
    broken("the parameters are finite, but too large to compute with: the run", arrays | huge)
    for step in ("soon", "-1", "1.0", "61"):
        broken(f"its step is '{step}', wanted", texts=texts | {"step": step}, both=False)
    broken("generators", texts={k: v for k, v in texts.items() if k != "generators"}, both=False)
    broken("set_state", texts=texts | {"generators": '{"batches": {}}'}, both=False)
    missing = {n: a for n, a in arrays.items() if n != "optimizer/output.bias.step"}
    broken(r"missing from the state: output\.bias\.step", missing, both=False)
    deep = "[" * 10**5
    broken("maximum recursion", texts=texts | {"generators": deep}, both=False)

    def built(*_, **__):
        raise AssertionError("a model was built")

    monkeypatch.setattr(training, "Adder", built)
    for changes, message in [
        (
            {"d_model": 10**6},
            "n_layers=1 and 12,000,198,000,078 parameters, the file holds 50 arrays",
        ),
        ({"n_layers": 10**7}, "n_layers is at most 100"),
        ({"n_layers": 100}, "they ask for n_layers=100 and"),
        ({"d_ff": 10**15}, "the file holds 50 arrays with 6,318$"),
        ({"batch": 10**7}, "batch is at most 1,000,000"),
        ({"lr": 10**400}, "lr is finite"),
        ({"d_model": 10**4000}, "its settings: "),
        ({"d_model": 1, "n_heads": 1, "d_ff": 1, "n_layers": 51}, "they ask for n_layers=51"),
    ]:
        settings = json.dumps({**json.loads(texts["settings"]), **changes})
        broken(message, texts=texts | {"settings": settings})
    monkeypatch.undo()
    path.write_bytes(b"hello")
    for load in (Training.load, load_model):
        with pytest.raises(CheckpointError):
            load(path)
        with pytest.raises(FileNotFoundError):
            load(tmp_path / "none")


@pytest.mark.parametrize(
    "sizes", [{}, SMALL, {"d_model": 6, "n_heads": 3, "n_layers": 3, "d_ff": 5}]
)
def test_parameters_are_counted_before_they_are_made(sizes, tmp_path, monkeypatch):
    settings, path = Settings(**sizes), tmp_path / "c.safetensors"
    n = sum(p.size for p in Adder(settings).parameters())
    texts = {"format": training.FORMAT, "settings": json.dumps(asdict(settings))}
    write_safetensors(path, {"model/x": np.zeros(n // 2 - 1)}, texts)
    monkeypatch.setattr(training, "Adder", None)  # none is made
    with pytest.raises(CheckpointError):
        load_model(path)


def test_settings():
    for wrong in [
        {"d_model": 0},
        {"d_model": 64.0},
        {"steps": True},
        {"lr": "fast"},
        {"lr": float("nan")},
        {"lr": float("inf")},
        {"weight_decay": float("inf")},
        {"batch": 10**6 + 1},
        {"n_heads": 5},
        {"dropout": 1.0},
        {"dropout": -0.1},
        {"warmup": 1500},
        {"beta2": 1.0},
        {"clip": 0},
        {"shards": 200},
        {"seed": -1},
    ]:
        with pytest.raises(ValueError):
            Settings(**wrong)
    assert Settings(lr=1).lr == 1
    for processes in (0, -1, 1.5, True):
        with pytest.raises(ValueError):
            Training(Settings(**SMALL), processes=processes)


@pytest.fixture(scope="module")
def half_trained():
    """A model that knows something: it adds some of the numbers below 10."""
    run = Training(Settings(**SMALL))
    a, b = np.divmod(np.arange(100), 10)
    source, target = source_tokens(a, b), target_tokens(a, b)
    for _ in range(150):
        run.model.zero_grad()
        cross_entropy(run.model(source, target[:, :-1]), target[:, 1:]).backward()
        run.optimizer.lr = 0.01
        run.optimizer.step()
    return run.model


def test_exact_match_is_greedy(half_trained):
    asked = np.stack(np.divmod(np.arange(400), 20), axis=1)
    a, b = asked.T
    found = translate(half_trained, source_tokens(a, b))
    right = [
        text(beams[0].tokens) == f"{x + y:04d}" for beams, x, y in zip(found, a, b, strict=True)
    ]
    assert 10 < sum(right) < 400
    assert exact_match(half_trained, asked) == sum(right) / 400


def test_writer_is_a_function(half_trained):
    """What is answered depends on the prefix alone, whatever was asked before."""
    source, _ = batch(6)
    source[4, 5:] = PAD
    rng, step = np.random.default_rng(0), half_trained.writer(source)
    asked = [1, 2, 3, 4, 2, 3, 3, 5, 1, 2, 4, 5]
    for n, t in zip([6, 9, 9, 5, 8, 8, 20, 4, 3, 3, 1, 1], asked, strict=True):
        rows, prefixes = rng.integers(0, 6, n), rng.integers(0, 3, (n, t))
        prefixes[:, 0] = START
        got = step(prefixes, rows)
        logits = half_trained(source[rows], prefixes).data[:, -1]
        never = [PLUS, PAD, START, *([END] if t == 1 else [])]
        assert (got[:, never] == -np.inf).all()
        may = np.delete(np.arange(N_TOKENS), never)
        want = log_softmax(logits)[:, may]
        np.testing.assert_allclose(got[:, may], want, rtol=1e-4, atol=1e-5)


def test_translate(half_trained):
    n = 155  # more than are written at a time
    source, _ = batch(n)
    step = half_trained.writer(source)
    greedy = greedy_search(step, n, start=START, end=END, max_length=5)
    one = translate(half_trained, source)
    assert [beams[0].tokens for beams in one] == [h.tokens for h in greedy]
    # products of other numbers of rows have other last bits
    scores = [beams[0].score for beams in one]
    np.testing.assert_allclose(scores, [h.score for h in greedy], rtol=1e-4)
    four = translate(half_trained, source, width=4)
    assert translate(half_trained, source, width=4, threads=2) == four
    for i in (0, 1, 124, 125, n - 1):
        alone = translate(half_trained, source[i : i + 1], width=4)[0]
        assert [h.tokens for h in alone] == [h.tokens for h in four[i]]
        np.testing.assert_allclose([h.score for h in alone], [h.score for h in four[i]], rtol=1e-4)
    for line, beams in zip(source, four, strict=True):
        assert len(beams) == 4
        for h in beams[:2]:
            told = np.array([[START, *h.tokens[:-1]]])
            log_probs = log_softmax(half_trained(line[None], told).data[0])
            want = sum(log_probs[t, token] for t, token in enumerate(h.tokens))
            assert h.log_prob == pytest.approx(want, rel=1e-4)
            assert h.score == pytest.approx(want / len(h.tokens), rel=1e-4)
            assert not {PLUS, PAD, START} & set(h.tokens)
            assert h.tokens[0] != END
    for width in (1, 3):
        by_sum = translate(half_trained, source, width=width, alpha=0.0)
        assert all(h.score == h.log_prob for beams in by_sum for h in beams)
    every = translate(half_trained, source[:3], width=14)
    assert [len(beams) for beams in every] == [14] * 3
    assert translate(half_trained, source[:0], width=4) == []


def test_attend(half_trained):
    source, target = batch(5)
    target = target[:, :-1]
    seen = half_trained.attend(source, target)
    assert [w.shape for w in seen] == [(1, 5, 2, 7, 7), (1, 5, 2, 5, 5), (1, 5, 2, 5, 7)]
    for w in seen:
        np.testing.assert_allclose(w.sum(axis=-1), 1, rtol=1e-5)
    assert (np.triu(seen.decoder, 1) == 0).all()
    source[2, 5:] = PAD
    hidden = half_trained.attend(source, target)
    assert (hidden.encoder[:, 2, :, :, 5:] == 0).all()
    assert (hidden.cross[:, 2, :, :, 5:] == 0).all()
    assert (hidden.cross[:, 1] == seen.cross[:, 1]).all()


def test_evaluation_is_without_dropout(tmp_path):
    run = Training(Settings(**SMALL, dropout=0.5))
    asked, model = pairs()[1][:20], run.model
    a, b = asked.T
    source, target = source_tokens(a, b), target_tokens(a, b)[:, :-1]
    quiet = model.eval()(source, target).data
    model.train()
    assert (model(source, target).data != quiet).any()
    first = translate(model, source, width=2)
    assert translate(model, source, width=2) == first
    assert (model.attend(source, target).cross == model.attend(source, target).cross).all()
    assert exact_match(model, asked) == exact_match(model, asked)
    assert model.training
    model.eval()
    translate(model, source)
    assert not model.training
