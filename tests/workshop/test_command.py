# Tangled from book/workshop/command.md
"""The command tinyllm: options, files, signals, resuming, several processes, addition.pictures."""

import errno
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from tinyllm import __version__, runs
from tinyllm.checkpoint import read_safetensors, try_lock, write_safetensors
from tinyllm.cli import main
from tinyllm.models import addition
from tinyllm.models.addition import Training, load_model, source_tokens, translate

CHECKPOINT = "checkpoint.safetensors"
ROOT = Path(__file__).resolve().parents[2]
TINY = ["--d-model", "16", "--n-heads", "2", "--n-layers", "1", "--d-ff", "32", "--batch", "8"]
TINY += ["--warmup", "5"]


def train(folder, *options, steps=20):
    arguments = ["train", "transformer", "--run", str(folder), "--steps", str(steps)]
    return main([*arguments, *TINY, *options])


def metrics(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["seconds"]
    return lines


def same_run(one, two):
    """Two folders hold the same run, bit for bit."""
    (a, texts_a), (b, texts_b) = (read_safetensors(f / CHECKPOINT) for f in (one, two))
    assert texts_a == texts_b
    assert a.keys() == b.keys()
    assert all((a[name] == b[name]).all() for name in a)
    assert metrics(one) == metrics(two)


def start(command, **environment):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", **environment}
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # as a terminal does, whose Ctrl-C goes to all of a session
    )


def wait_for(condition, process, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


def refused(capsys, arguments, message):
    """Exit status 2, and one line that says why."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tinyllm: ")
    assert err.count("\n") == 1
    assert re.search(message, err), err


def ended(capsys, arguments, status=2):
    """What the parser says when it ends the command."""
    with pytest.raises(SystemExit) as caught:
        main([*map(str, arguments)])
    assert caught.value.code == status
    return "".join(capsys.readouterr())


def finished(command, timeout=120):
    """The exit status of a process, and what it says about errors."""
    process = start(command)
    _, err = process.communicate(timeout=timeout)
    return process.returncode, err


def before_step(monkeypatch, number, act):
    """Let `act` happen when this step is about to be made."""
    real = Training.advance

    def advance(self):
        if self.step == number - 1:
            act()
        return real(self)

    monkeypatch.setattr(Training, "advance", advance)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("with a space") / "run"
    assert train(folder) == 0
    return folder


def test_train_writes_its_files(tmp_path, capsys):
    folder = tmp_path / "a" / "b"
    assert train(folder, "--evaluate-every", "8") == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(r"20 steps, \d+\.\d % of 1,000 held-out sums right: .*safetensors\n", out)
    bar = r"step  8/20  \d+ steps/s  loss \d\.\d{4}  right \d+\.\d %  \d+:\d\d left\n"
    assert re.search(bar, err)
    names = sorted(path.name for path in folder.iterdir())
    assert names == [CHECKPOINT, "lock", "loss.svg", "metrics.jsonl"]
    lines = metrics(folder)
    assert [line["step"] for line in lines] == list(range(1, 21))
    assert [line["step"] for line in lines if "exact_match" in line] == [8, 16, 20]
    assert set(lines[0]) == {"step", "loss", "norm", "rate"}
    assert Training.load(folder / CHECKPOINT).step == 20
    ET.fromstring((folder / "loss.svg").read_text())


def test_seeds(tmp_path):
    for name, seed in (("one", 5), ("two", 5), ("three", 6)):
        assert train(tmp_path / name, "--seed", str(seed), "--dropout", "0.1") == 0
    same_run(tmp_path / "one", tmp_path / "two")
    assert metrics(tmp_path / "one") != metrics(tmp_path / "three")
    assert train(tmp_path / "four", "--seed", "5", "--dropout", "0.1", "--processes", "2") == 0
    same_run(tmp_path / "one", tmp_path / "four")


def test_nothing_is_overwritten(trained, tmp_path, capsys):
    base = ["train", "transformer", "--run", str(trained)]
    before = (trained / CHECKPOINT).read_bytes()
    refused(capsys, [*base, *TINY], "has a run already: --resume .* --force .* --run")
    refused(capsys, [*base, "--resume", "--seed", "9"], "has --seed 0, not 9: settings cannot")
    refused(capsys, [*base, "--resume", "--d-model", "32"], "has --d-model 16, not 32")
    assert (trained / CHECKPOINT).read_bytes() == before
    assert main([*base, "--resume", "--seed", "0"]) == 0  # there is nothing left to do
    assert "20 steps" in capsys.readouterr().out
    assert train(tmp_path / "x", steps=6) == 0
    assert train(tmp_path / "x", "--force", "--seed", "1", steps=7) == 0
    assert len(metrics(tmp_path / "x")) == 7


def test_force_keeps_the_run_before_until_it_saves(trained, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "r"
    assert train(folder) == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    capsys.readouterr()
    assert train(folder, "--force", "--lr", "1e30") == 1
    told = r"nothing was saved, and .*safetensors still holds the run from before --force"
    assert re.search(told, capsys.readouterr().err)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    real = runs._save

    def killed(run, *others):
        assert (folder / "metrics.jsonl").read_bytes() == before["metrics.jsonl"]
        assert run.step == 5
        real(run, *others)
        assert [line["step"] for line in metrics(folder)] == [1, 2, 3, 4, 5]
        monkeypatch.setattr(runs, "_save", real)

    monkeypatch.setattr(runs, "_save", killed)
    assert train(folder, "--force", "--seed", "1", "--save-every", "5") == 0
    assert train(tmp_path / "s", "--seed", "1") == 0
    same_run(folder, tmp_path / "s")


def test_streams_that_are_closed(trained, tmp_path, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        assert main(["translate", "--run", str(trained), "1+2"]) == 2
        assert "stdout is closed" in capsys.readouterr().err
        assert train(tmp_path / "r") == 0
        patch.setattr(sys, "stderr", None)
        assert train(tmp_path / "s") == 0
        assert train(tmp_path / "t", "--n-heads", "5") == 2
    assert capsys.readouterr().out == ""
    same_run(tmp_path / "r", trained)
    same_run(tmp_path / "s", trained)


def test_folders_that_are_none(trained, tmp_path, capsys, monkeypatch):
    file = tmp_path / "file"
    file.touch()
    for command in (["train", "transformer"], ["train", "transformer", "--resume"], ["translate"]):
        for name in (str(file), ""):
            told = ended(capsys, [*command, "--run", name])
            assert f"argument --run/--run-dir: wants a folder, got {name!r}" in told
    checkpoint = tmp_path / "r" / CHECKPOINT
    checkpoint.mkdir(parents=True)
    base = ["train", "transformer", "--run", str(tmp_path / "r")]
    refused(capsys, [*base, "--force"], "checkpoint.safetensors is a folder")
    refused(capsys, [*base, "--force", "--n-layers", "10000000"], "n_layers is at most 100")
    monkeypatch.setattr(sys, "stdin", io.StringIO("\ufeff1+2\n3+4\n"))  # as Windows writes it
    assert main(["translate", "--run", str(trained)]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["1+2", "3+4"]


def test_a_checkpoint_without_an_entry(trained, tmp_path, capsys):
    arrays, texts = read_safetensors(trained / CHECKPOINT)
    for name in ("settings", "step", "generators"):
        rest = {key: text for key, text in texts.items() if key != name}
        write_safetensors(tmp_path / CHECKPOINT, arrays, rest)
        resume = ["train", "transformer", "--run", str(tmp_path), "--resume"]
        refused(capsys, resume, f"there is no entry '{name}'")


def test_wrong_use_of_train(tmp_path, capsys, monkeypatch):
    base = ["train", "transformer", "--run", str(tmp_path / "r")]
    refused(capsys, [*base, "--resume"], "no checkpoint at .*r/checkpoint.safetensors")
    refused(capsys, [*base, "--n-heads", "5"], "n_heads is a divisor of d_model=64, got 5")
    refused(capsys, [*base, "--steps", "50"], "warmup is less than steps=50, got 100")
    monkeypatch.delenv("RANK", raising=False)
    refused(capsys, [*base, "--ddp"], "--ddp wants RANK in the environment: start it by torchrun")
    assert not (tmp_path / "r").exists()
    (tmp_path / "file").touch()
    refused(capsys, ["train", "transformer", "--run", str(tmp_path / "file" / "r")], "directory")
    refused(capsys, ["train", "transformer", "--run", "/proc/nope"], "tinyllm: .*: '/proc/nope'")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / CHECKPOINT).write_bytes(b"hello")
    refused(capsys, [*base, "--resume"], "no safetensors file, or cut off")
    wrong = "--steps many/--processes 0/--colour red/--save-every 0/--force --resume"
    for bad in wrong.split("/"):
        assert bad.split()[0] in ended(capsys, [*base, *bad.split()])
    for bad in ("", "train", "train bert", "sing"):
        ended(capsys, bad.split())


def test_help_and_version(capsys):
    train_help = ended(capsys, ["train", "--help"], 0)
    assert "--weight-decay X" in train_help
    assert "(default: 1500)" in train_help
    for arguments in (["--help"], ["translate", "--help"]):
        assert "usage: tinyllm" in ended(capsys, arguments, 0)
    assert ended(capsys, ["--version"], 0) == f"tinyllm {__version__}\n"
    script = Path(sys.executable).with_name("tinyllm")
    for command in ([sys.executable, "-m", "tinyllm"], [script]):
        done = subprocess.run([*command, "--version"], cwd=ROOT, capture_output=True, check=True)
        assert done.stdout.decode() == f"tinyllm {__version__}\n"


def test_bar_on_a_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert train(tmp_path / "r", "--evaluate-every", "5") == 0
    err = capsys.readouterr().err
    assert err.endswith("\n")
    last = err.rstrip("\n").split("\r")[-1]
    assert last.startswith(f" 20/20 [{'#' * 30}] 100%  ")
    assert "loss" in last
    assert "0:00 left" in last


def test_a_step_that_fails(trained, tmp_path, capsys, monkeypatch):
    def fail():
        raise RuntimeError("a worker process has died")

    before_step(monkeypatch, 5, fail)
    assert train(tmp_path / "r") == 1
    err = capsys.readouterr().err
    assert "step 5 failed: a worker process has died" in err
    assert "saved after step 4" in err
    monkeypatch.undo()
    assert train(tmp_path / "r", "--resume") == 0
    same_run(tmp_path / "r", trained)


@pytest.mark.parametrize("ruined", [6, 7, 10, 20])
def test_a_diverged_run_keeps_its_last_good_checkpoint(
    ruined, trained, tmp_path, capsys, monkeypatch
):
    folder = tmp_path / "r"
    real = Training.advance

    def advance(self):
        progress = real(self)
        if self.step == ruined:
            for p in self.model.parameters():
                p.data = p.data * np.float32(1e30)
        return progress

    with monkeypatch.context() as patch:
        patch.setattr(Training, "advance", advance)
        assert train(folder, "--save-every", "5", "--evaluate-every", "50") == 1
    out, err = capsys.readouterr()
    assert out == ""
    last = err.splitlines()[-1]
    good = 5 * ((ruined - 1) // 5)
    early, late = f"step {ruined + 1}, the loss is nan", f"after step {ruined}, the parameters"
    assert last.startswith(f"tinyllm: the run diverged: {early if ruined < 10 else late}")
    assert f"still holds step {good}" in last
    assert "a lower --lr than 0.003" in last
    assert "Traceback" not in err
    assert Training.load(folder / CHECKPOINT).step == good
    assert (folder / "loss.svg").exists()
    assert train(folder, "--resume") == 0
    same_run(folder, trained)


@pytest.mark.parametrize("value", ["1e5", "1e12", "1e30", "1e308"])
def test_a_learning_rate_that_explodes(value, tmp_path, capfd):
    assert train(tmp_path / "r", "--lr", value, "--processes", "2") == 1
    _, err = capfd.readouterr()  # what workers write, too
    assert re.search(r"the run diverged: step \d+, .*; nothing was saved: begin anew", err)
    assert err.count("\n") == 1
    assert not (tmp_path / "r" / CHECKPOINT).exists()
    base = ["train", "transformer", "--run", str(tmp_path / "r")]
    refused(capfd, [*base, "--resume"], "no checkpoint")
    refused(capfd, [*base, "--lr", "inf"], "lr is finite")


def test_two_runs_in_one_folder(trained, tmp_path, capsys):
    folder = tmp_path / "r"
    assert train(folder, steps=10) == 0
    base = ["train", "transformer", "--run", str(folder), *TINY]
    before = {path: path.read_bytes() for path in folder.iterdir()}
    capsys.readouterr()
    with open(folder / "lock") as other:
        assert try_lock(other)
        for option in ("--force", "--resume"):
            refused(capsys, [*base, option], rf"r is in use: process {os.getpid()} on .*--run-dir")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert main([*base, "--resume"]) == 0
    with ThreadPoolExecutor(3) as threads:
        found = threads.map(lambda _: train(tmp_path / "s", steps=30), range(3))
    assert sorted(found) == [0, 2, 2]
    assert train(tmp_path / "t", steps=30) == 0
    same_run(tmp_path / "s", tmp_path / "t")


def test_metrics_with_damaged_lines(tmp_path, capsys):
    folder = tmp_path / "r"
    assert train(folder, steps=20) == 0
    whole = (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    old = b'{"step": 5, "loss": 2.25}\n'
    damaged = [b"\n", b'{"step": 9, \n', b"[1]\n", b"\xff\n", b"7\n", b"[" * 10**5 + b"\n"]
    damaged += [b'{"step": "1", "loss": 1}\n', b'{"step": 1, "loss": NaN}\n', b'{"loss": 1}\n']
    damaged += [b'{"step": 1, "loss": 1%s}\n' % (b"0" * 400)]
    damaged += [b'{"step": 1, "loss": 1, "exact_match": "all"}\n', b'{"step": 21, "lo']
    lines = [*whole[:4], old, *damaged[:3], *whole[5:], *damaged[3:]]
    (folder / "metrics.jsonl").write_bytes(b"".join(lines))
    capsys.readouterr()
    assert train(folder, "--resume", steps=20) == 0
    err = capsys.readouterr().err.splitlines()
    places = [*range(6, 9), *range(24, 33)]
    assert err == [f"tinyllm: {folder}/metrics.jsonl:{n} is damaged and left out" for n in places]
    assert (folder / "metrics.jsonl").read_bytes().splitlines() == [
        json.dumps(json.loads(line)).encode() for line in (*whole[:4], old, *whole[5:])
    ]
    ET.fromstring((folder / "loss.svg").read_text())
    (folder / "metrics.jsonl").write_bytes(old)
    assert train(folder, "--resume", steps=20) == 0
    assert (folder / "metrics.jsonl").read_bytes() == old


def test_a_disk_that_is_full(tmp_path, capsys, monkeypatch):
    assert train(tmp_path / "r", "--save-every", "5", steps=12) == 0
    real = os.fsync

    def fsync(number):
        if (tmp_path / "s" / "metrics.jsonl").exists() and len(metrics(tmp_path / "s")) > 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    capsys.readouterr()
    assert train(tmp_path / "s", "--save-every", "5", steps=12) == 1
    path = tmp_path / "s" / CHECKPOINT
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.search(f"{path}.*No space left on device|No space left on device.*{path}", last)
    monkeypatch.undo()
    assert Training.load(path).step == 5
    assert train(tmp_path / "s", "--resume", steps=12) == 0
    same_run(tmp_path / "r", tmp_path / "s")
    metrics_file = runs._Metrics(tmp_path / "m", 0, writes=True, another=False)
    metrics_file.file.close()
    with (
        open("/dev/full", "ab", buffering=0) as metrics_file.file,
        pytest.raises(OSError, match="No space left on device: '/dev/full'"),
    ):
        metrics_file.add(addition.Progress(1, 2.0, 3.0, 4.0), None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_and_resumed(number, tmp_path, capsys, monkeypatch):
    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    before_step(monkeypatch, 8, lambda: os.kill(os.getpid(), number))
    assert train(tmp_path / "r", "--dropout", "0.1") == 128 + number
    assert "stopped and saved after step 8" in capsys.readouterr().out
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert len(metrics(tmp_path / "r")) == 8
    monkeypatch.undo()
    assert main(["train", "transformer", "--run", str(tmp_path / "r"), "--resume"]) == 0
    assert train(tmp_path / "s", "--dropout", "0.1") == 0
    same_run(tmp_path / "r", tmp_path / "s")


def test_a_run_that_has_not_begun_is_not_asked_to_finish_its_step(tmp_path, monkeypatch):
    real, seen = Training.load, []

    def load(*arguments):
        seen.append(signal.getsignal(signal.SIGTERM))
        return real(*arguments)

    assert train(tmp_path / "r", steps=6) == 0
    monkeypatch.setattr(Training, "load", load)
    assert train(tmp_path / "r", "--resume", steps=6) == 0
    assert seen == [signal.getsignal(signal.SIGTERM)]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    assert train(folder, steps=400) == 0
    return folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_killed_and_resumed(number, unbroken, tmp_path):
    folder = tmp_path / "r"
    command = ["-m", "tinyllm", "train", "transformer", "--run", folder, *TINY, "--steps", "400"]
    process = start([*command, "--save-every", "10"])
    wait_for((folder / CHECKPOINT).exists, process)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=60)
    run = Training.load(folder / CHECKPOINT)
    assert 10 <= run.step < 400
    if number == signal.SIGKILL:
        assert process.returncode == -number
    else:
        assert process.returncode == 128 + number, err
        assert f"stopped and saved after step {run.step}" in out
        assert run.step == len(metrics(folder))
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": ')  # a line that was cut off
    assert train(folder, "--resume", steps=400) == 0
    same_run(folder, unbroken)


TORCHRUN = "-m torch.distributed.run --standalone --nproc-per-node 2 -m tinyllm train transformer"
TORCHRUN = [*TORCHRUN.split(), *TINY]


def test_two_workers_are_one_run(tmp_path):
    options = ["--steps", "100", "--dropout", "0.1", "--run-dir", tmp_path / "two"]
    status, err = finished([*TORCHRUN, "--ddp", *options], 300)
    assert status == 0, err
    assert train(tmp_path / "one", "--dropout", "0.1", steps=100) == 0
    one, two = ([line["loss"] for line in metrics(tmp_path / n)] for n in ("one", "two"))
    np.testing.assert_allclose(two, one, rtol=0, atol=1e-5)
    same_run(tmp_path / "two", tmp_path / "one")  # not only to 1e-5


@pytest.mark.slow
def test_workers_that_cannot_begin(tmp_path):
    command = [*TORCHRUN, "--run-dir", tmp_path]
    status, err = finished(command)
    assert status != 0
    assert "started by torchrun without --ddp" in err
    assert not list(tmp_path.iterdir())
    with open(tmp_path / "lock", "w") as other:
        assert try_lock(other)
        status, err = finished([*command, "--ddp"])
    assert status != 0
    assert f"tinyllm: {tmp_path} is in use: a process trains there" in err
    assert [p.name for p in tmp_path.iterdir()] == ["lock"]


def test_the_group_ends_before_python_does():
    code = (
        "import atexit, torch.distributed as group; "
        "atexit.register(lambda: print(group.is_initialized())); "  # the last to be called
        "from tinyllm.distributed import TorchWorkers; print(TorchWorkers().count)"
    )
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(one.getsockname()[1])}
    process = start(["-c", code], **place, RANK="0", WORLD_SIZE="1")
    out, err = process.communicate(timeout=120)
    assert out.split() == ["1", "False"], err


def worker(parent, rank):
    """The process that torchrun started with this rank."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            status, environment = (entry / "status").read_text(), (entry / "environ").read_bytes()
        except OSError:
            continue
        if f"PPid:\t{parent}\n" in status and f"RANK={rank}".encode() in environment.split(b"\0"):
            return int(entry.name)
    raise AssertionError(f"no worker of rank {rank}")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_worker_leaves_a_checkpoint(rank, tmp_path):
    folder = tmp_path / "r"
    process = start([*TORCHRUN, "--ddp", "--steps", "5000", "--run-dir", folder])
    wait_for(lambda: (folder / "metrics.jsonl").exists() and len(metrics(folder)) > 5, process)
    os.kill(worker(process.pid, rank), signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "failed: " in err
    run = Training.load(folder / CHECKPOINT)
    assert run.step > 5
    alone = Training(run.settings)  # the run as it goes when nobody is killed
    while alone.step < run.step:
        alone.advance()
    assert [run.advance() for _ in range(3)] == [alone.advance() for _ in range(3)]


def ask(capsys, *arguments):
    assert main(["translate", *map(str, arguments)]) == 0
    return capsys.readouterr().out.splitlines()


def test_translate_prints_beams(trained, capsys, monkeypatch):
    lines = ask(capsys, "--run", trained, "--beam", 4, "123+456")
    assert len(lines) == 4
    for line in lines:
        assert re.fullmatch(r"123\+456 \d+ -\d+\.\d{6}", line)
    scores = [float(line.split()[2]) for line in lines]
    assert scores == sorted(scores, reverse=True)
    model = load_model(trained / CHECKPOINT)
    beams = translate(model, source_tokens([123], [456]), width=4)[0]
    assert lines == [f"123+456 {addition.text(h.tokens)} {h.score:.6f}" for h in beams]
    short, long = (ask(capsys, "--run", trained, words)[0].split() for words in ("7+5", "007+005"))
    assert short[1:] == long[1:]
    assert len(ask(capsys, "--run", trained, "--beam", "14", "1+2")) == 14
    greedy = ask(capsys, "--run", trained, "123+456", "7+5")
    assert len(greedy) == 2
    numbers = [f"{a}+{b}" for a in range(20) for b in range(15)]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(["123+456", "7+5", *numbers])))
    many = ask(capsys, "--run", trained, "--threads", 2)
    assert len(many) == 302
    assert [line.split()[:2] for line in many[:2]] == [line.split()[:2] for line in greedy]
    plain = ask(capsys, "--run", trained, "--beam", 2, "--alpha", 0, "9+9")
    best = translate(model, source_tokens([9], [9]), width=2, alpha=0.0)[0][0]
    assert float(plain[0].split()[2]) == pytest.approx(best.log_prob, abs=1e-6)


def test_several_sums_are_told_apart(trained, capsys, monkeypatch):
    words = ["--run", trained, "--beam", 3]
    lines = ask(capsys, *words, "123+456", "7+5")
    assert [line.split()[0] for line in lines] == ["123+456"] * 3 + ["7+5"] * 3
    objects = [json.loads(line) for line in ask(capsys, *words, "--json", "123+456", "7+5")]
    told = [(o["sum"], a["text"], f"{a['score']:.6f}") for o in objects for a in o["answers"]]
    assert told == [tuple(line.split()) for line in lines]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n123+456\n  \n 7+5 \n\n"))
    assert ask(capsys, *words) == lines


def test_wrong_use_of_translate(trained, tmp_path, capsys, monkeypatch):
    base = ["translate", "--run", str(trained)]
    for bad in ("123+", "1234+5", "abc", "1-2", "1+2+3", ""):
        refused(capsys, [*base, "1+1", bad], "one to three digits")
    monkeypatch.setattr(sys, "stdin", io.StringIO("1+1\n\n3*3\n4+4\n"))
    refused(capsys, base, r"line 3: wants two numbers .* got '3\*3'")
    for nothing in (io.StringIO(""), io.StringIO("\n \n"), None):
        monkeypatch.setattr(sys, "stdin", nothing)
        refused(capsys, base, "nothing to translate")
    for bad in ("-1", "nan", "inf", "1e308"):
        refused(capsys, [*base, f"--alpha={bad}", "1+1"], "--alpha is a number from 0 to 100, got ")
    assert "wants a number up to 1000" in ended(capsys, [*base, "--beam", "100000000", "1+1"])
    no_run = ["translate", "--run", str(tmp_path / "no"), "1+1"]
    refused(capsys, no_run, "no checkpoint at .*: train one with")
    refused(capsys, [*base, "--attention", str(tmp_path), "1+1"], "cannot write")
    refused(capsys, [*base, "--attention", "x.html", *["1+1"] * 51], "up to 50 sums, got 51")
    path = tmp_path / "r" / CHECKPOINT
    arrays, texts = read_safetensors(trained / CHECKPOINT)
    base = ["translate", "--run", str(path.parent), "1+1"]
    for name in ("output.bias", "source.weight"):
        write_safetensors(path, arrays | {f"model/{name}": np.zeros(2, "f4")}, texts)
        refused(capsys, base, re.escape(f"{name}: the state has shape (2,)"))
    for bad in (np.nan, np.inf):
        bias = np.where(np.arange(14) == 3, bad, 0).astype("f4")
        write_safetensors(path, arrays | {"model/output.bias": bias}, texts)
        refused(capsys, base, r"not all numbers are finite in output\.bias")
    huge = {k: v * 1e12 if k.startswith("model/") else v for k, v in arrays.items()}
    write_safetensors(path, huge, texts)
    refused(capsys, base, "checkpoint.safetensors: the parameters are finite, but too large")
    write_safetensors(path, arrays, {})
    refused(capsys, base, "no checkpoint of the transformer that adds")
    data = bytearray((trained / CHECKPOINT).read_bytes())
    data[-1000] ^= 1
    path.write_bytes(data)
    refused(capsys, base, "the checksum does not match: the file is damaged")
    path.write_bytes(data[:-5000])
    refused(capsys, base, "checkpoint.safetensors: .*damaged")
    path.unlink()
    path.mkdir()
    refused(capsys, base, "directory")
    ended(capsys, [*base, "--beam", "0"])


def test_a_closed_pipe_is_no_error(trained):
    process = start(["-m", "tinyllm", "translate", "--run", trained, "--beam", "4", *["1+1"] * 200])
    process.stdout.close()
    with process.stderr as errors:
        assert errors.read() == ""
    assert process.wait(timeout=120) == 0


def test_what_cannot_be_written_is_named(trained, capsys, monkeypatch):
    def write(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    for full in ("write", "flush"):
        with monkeypatch.context() as patch:
            patch.setattr(sys.stdout, full, write if full == "write" else lambda: write(""))
            assert main(["translate", "--run", str(trained), "1+1"]) == 1
        assert capsys.readouterr().err == "tinyllm: stdout: No space left on device\n"


class Page(HTMLParser):
    """Counts tags and collects what a page would ask for."""

    def __init__(self, content):
        super().__init__()
        self.tags, self.wants, self.titles = [], [], []
        self.feed(content)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        facts = dict(attributes)
        self.wants += [facts[key] for key in ("src", "href") if key in facts]
        if tag == "td" and "title" in facts:
            self.titles.append(float(facts["title"]))


def test_page_of_heads(trained, tmp_path, capsys):
    path = tmp_path / "new" / "heads.html"
    ask(capsys, "--run", trained, "--attention", path, "123+456", "7+5")
    content = path.read_text(encoding="utf-8")
    page = Page(content)
    assert not page.wants
    assert "http" not in content
    assert page.tags.count("details") == 2
    assert page.tags.count("table") == 2 * 3 * 2  # sums, kinds, heads of one layer
    model = load_model(trained / CHECKPOINT)
    source = source_tokens([123], [456])
    told = [[12, *translate(model, source)[0][0].tokens[:-1]]]
    seen = model.attend(source, np.array(told))
    first = np.array(page.titles[: 2 * 49]).reshape(2, 7, 7)
    np.testing.assert_allclose(first, seen.encoder[0, 0], atol=6e-4)
    assert "123+456 → " in content


def test_pictures_of_little(tmp_path):
    line = {"step": 1, "loss": 2.5, "norm": 1.0, "rate": 0.1}
    for lines in ([], [line], [line, {**line, "step": 2, "loss": 0.0, "exact_match": 0.5}]):
        ET.fromstring(addition.pictures.learning(lines))
    assert Page(addition.pictures.heads([])).tags.count("table") == 0
    nasty = addition.pictures.heads([("<b>", "&", *(np.ones((1, 1, 1, 3)) for _ in range(3)))])
    assert "<b>" not in nasty
