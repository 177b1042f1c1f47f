# Tangled from book/workshop/command.md
"""A run of training in a folder: begun or resumed, shown, saved, and stopped without loss."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, fields
from pathlib import Path
from types import FrameType
from typing import IO, Any

import numpy as np

from tinyllm.checkpoint import try_lock, write_atomically
from tinyllm.models.addition import (
    Progress,
    Settings,
    Training,
    Workers,
    exact_match,
    pairs,
    pictures,
)
from tinyllm.num.cores import cores

__all__ = ["CHECKPOINT", "WrongUseError", "train"]


class WrongUseError(Exception):
    """Something that the person who called can mend; the message says how."""


def train(options: argparse.Namespace) -> int:
    """What `tinyllm train` does; returns the exit status. WrongUseError, OSError."""
    workers = _workers(options)
    chief = workers.rank == 0
    path = options.run / CHECKPOINT
    with ExitStack() as stack:
        run = _begin(options, workers, stack)
        stop = stack.enter_context(_Stop())
        another = options.force and path.exists()
        metrics = _Metrics(options.run / METRICS, run.step, chief, another)
        bar = _Bar(run.settings.steps, chief)
        failed = None
        try:
            _loop(run, options, metrics, bar, stop)
        except (FloatingPointError, RuntimeError, ConnectionError) as error:
            failed = error
        finally:
            try:
                # if another worker is gone, it may have been the chief
                if (chief or failed) and not isinstance(failed, FloatingPointError):
                    _save(run, options.run, metrics)
            except FloatingPointError as error:
                failed = error
            finally:
                metrics.close()
                bar.close()
    if isinstance(failed, FloatingPointError):
        kept = "nothing was saved"
        if metrics.another:
            kept = f"nothing was saved, and {path} still holds the run from before --force"
        elif metrics.saved:
            kept = f"{path} still holds step {metrics.saved}, resumed from there it would diverge again"
        print(
            f"tinyllm: the run diverged: {failed}; {kept}: begin anew with a lower --lr than "
            f"{run.settings.lr:g}, and --force or another --run-dir",
            file=sys.stderr,
        )
        if chief and not metrics.another:
            _plot(options.run, metrics)
        return 1
    if failed:
        print(f"tinyllm: step {run.step + 1} failed: {failed}", file=sys.stderr)
        print(f"tinyllm: saved after step {run.step}: {path}; --resume goes on", file=sys.stderr)
        return 1
    if run.step < run.settings.steps:
        if chief:
            print(f"stopped and saved after step {run.step}: {path}; --resume goes on")
        return 128 + stop.signal
    if chief:
        share = exact_match(run.model, _asked())
        print(
            f"{run.step} steps, {share:.1%} of 1,000 held-out sums right: {path}".replace("%", " %")
        )
    return 0


def _asked() -> Any:
    return pairs()[1][:1000]


def _save(run: Training, folder: Path, metrics: _Metrics) -> None:
    run.save(folder / CHECKPOINT)
    metrics.saved = run.step
    if metrics.another:
        metrics.begin()
    _plot(folder, metrics)


def _plot(folder: Path, metrics: _Metrics) -> None:
    write_atomically(folder / PLOT, [pictures.learning(metrics.lines).encode()])


def _workers(options: argparse.Namespace) -> Workers:
    """This process's place among those that torchrun has started, or itself alone."""
    if not options.ddp:
        if "TORCHELASTIC_RUN_ID" in os.environ:
            raise WrongUseError(
                "started by torchrun without --ddp, each process would train a run of its own: say --ddp"
            )
        return Workers()
    from tinyllm.distributed import TorchWorkers

    try:
        return TorchWorkers()
    except ImportError:
        raise WrongUseError("--ddp needs torch: pip install torch") from None
    except KeyError as missing:
        raise WrongUseError(
            f"--ddp wants {missing.args[0]} in the environment: start it by "
            f"torchrun --nproc-per-node 2 -m tinyllm train transformer --ddp --run-dir DIR"
        ) from None
    except (ValueError, RuntimeError) as error:
        raise WrongUseError(f"--ddp: {error}") from None


CHECKPOINT, METRICS, PLOT = "checkpoint.safetensors", "metrics.jsonl", "loss.svg"
LOCK = "lock"


def _begin(options: argparse.Namespace, workers: Workers, stack: ExitStack) -> Training:
    """The run that the options ask for, new or from its checkpoint; its folder is locked."""
    path = options.run / CHECKPOINT
    given = {f.name: getattr(options, f.name) for f in fields(Settings) if f.name in options}
    try:
        if not options.resume:
            settings = Settings(**given)
            options.run.mkdir(parents=True, exist_ok=True)
            _lock(options.run, workers, stack)
            if path.is_dir():
                raise WrongUseError(f"{path} is a folder, and the checkpoint goes there")
            if path.exists() and not options.force:
                raise WrongUseError(
                    f"{options.run} has a run already: --resume goes on with it, --force begins anew, "
                    f"--run-dir DIR takes another folder"
                )
            return Training(settings, _processes(options, settings.shards, workers), workers)
        _lock(options.run, workers, stack)
        run = Training.load(path, _processes(options, 1 << 20, workers), workers)
    except FileNotFoundError as error:
        nothing = f"no checkpoint at {path}, so there is nothing to resume"
        raise WrongUseError(nothing if options.resume else str(error)) from None
    except (ValueError, OSError) as error:  # CheckpointError is a ValueError
        raise WrongUseError(str(error)) from None
    except MemoryError as error:
        raise WrongUseError(f"these settings want more memory than there is: {error}") from None
    for name, value in given.items():
        before = asdict(run.settings)[name]
        if value != before:
            raise WrongUseError(
                f"the run in {options.run} has --{name.replace('_', '-')} {before}, not {value}: "
                f"settings cannot change when resuming"
            )
    return run


def _lock(folder: Path, workers: Workers, stack: ExitStack) -> None:
    """Keep other runs out of the folder until this one ends, in whatever way."""
    holder = ""
    if workers.rank == 0:
        file = open(folder / LOCK, "ab+", buffering=0)  # noqa: SIM115  closed by the stack
        stack.callback(file.close)
        with suppress(OSError):  # a file system without locks
            if try_lock(file):
                file.truncate(0)
                file.write(f"process {os.getpid()} on {platform.node()}".encode())
            else:
                file.seek(0)
                holder = file.read().decode(errors="replace") or "a process"
    if workers.all_reduce(np.array([float(bool(holder))]))[0]:
        raise WrongUseError(
            f"{folder} is in use: {holder or 'a process'} trains there. Wait for it or stop it, or take "
            f"another folder by --run-dir DIR"
        )


def _processes(options: argparse.Namespace, shards: int, workers: Workers) -> int:
    most = max(1, cores() // workers.count)
    return int(options.processes or min(most, max(1, shards // workers.count)))


def _loop(
    run: Training, options: argparse.Namespace, metrics: _Metrics, bar: _Bar, stop: _Stop
) -> None:
    """Steps until the last, or until somebody says stop."""
    chief, share = run.workers.rank == 0, None
    while run.step < run.settings.steps:
        asked_to_stop = run.workers.all_reduce(np.array([float(stop.signal)]))[0]
        if asked_to_stop:
            stop.signal = stop.signal or signal.SIGTERM
            return
        progress = run.advance()
        due = run.step % options.evaluate_every == 0 or run.step == run.settings.steps
        if chief:
            new = exact_match(run.model, _asked()) if due else None
            share = share if new is None else new
            metrics.add(progress, new)
            bar.show(progress, share, due)
            if run.step % options.save_every == 0 and run.step < run.settings.steps:
                _save(run, options.run, metrics)


class _Stop:
    """Notes the first SIGINT or SIGTERM; a second one kills."""

    def __init__(self) -> None:
        self.signal, self.before = 0, dict[int, Any]()

    def __enter__(self) -> _Stop:
        with suppress(ValueError):  # in a thread that is not the main one, which gets no signals
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():  # None: it was not Python's
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        for each in self.before:
            signal.signal(each, signal.SIG_DFL)


class _Metrics:
    """The file of metrics, one JSON object a line.

    It belongs to the checkpoint beside it, so that of `another` run stays until this one's first save.
    """

    def __init__(self, path: Path, step: int, writes: bool, another: bool) -> None:
        self.path, self.writes, self.another = path, writes, another
        self.saved = step  # of the checkpoint; 0: there is none
        self.lines = self._read(path, step, writes) if step else []
        self.started = time.perf_counter() - max(
            (line["seconds"] for line in self.lines if _is_number(line.get("seconds"))), default=0.0
        )
        self.file: IO[bytes] | None = None
        if not another:
            self.begin()

    def begin(self) -> None:
        """Make the file this run's: the lines so far, and each further one at once."""
        self.another = False
        if self.writes:
            text = "".join(json.dumps(line) + "\n" for line in self.lines)
            write_atomically(self.path, [text.encode()])
            self.file = open(self.path, "ab", buffering=0)  # noqa: SIM115  closed in close()

    @staticmethod
    def _read(path: Path, step: int, warns: bool) -> list[dict[str, Any]]:
        """The lines up to a step; the others that are whole will come again."""
        lines = []
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            data = b""
        for n, raw in enumerate(data.splitlines(), 1):
            try:
                line = json.loads(raw)
                whole = all(_is_number(line[name]) for name in ("step", "loss"))
                if not whole or not _is_number(line.get("exact_match", 0)):
                    raise ValueError(raw)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                if warns:
                    print(f"tinyllm: {path}:{n} is damaged and left out", file=sys.stderr)
                continue
            if line["step"] <= step:
                lines.append(line)
        return lines

    def add(self, progress: Progress, share: float | None) -> None:
        line: dict[str, Any] = progress._asdict()
        line["seconds"] = round(time.perf_counter() - self.started, 3)
        if share is not None:
            line["exact_match"] = share
        self.lines.append(line)
        if self.file is not None:
            try:
                self.file.write(json.dumps(line).encode() + b"\n")
            except OSError as error:
                error.filename = self.file.name
                raise

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def _is_number(value: Any) -> bool:
    """Whether it is a finite number, of whatever length."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


class _Bar:
    """Progress on stderr: a line that is written over on a terminal, a line an evaluation elsewhere."""

    def __init__(self, steps: int, shown: bool) -> None:
        self.steps, self.shown, self.live = steps, shown, sys.stderr.isatty()
        self.first: tuple[float, int] | None = None
        self.last = 0.0

    def show(self, progress: Progress, share: float | None, due: bool) -> None:
        now = time.perf_counter()
        if self.first is None:
            self.first = now, progress.step
        if not self.shown or not (due or self.live and now - self.last > 0.1):
            return
        self.last = now
        took, made = now - self.first[0], progress.step - self.first[1]
        speed = made / took if took > 0 and made else 0.0
        left = round((self.steps - progress.step) / speed) if speed else 0
        right = "" if share is None else f"  right {share:.1%}".replace("%", " %")
        done = progress.step / self.steps
        head = f"{progress.step:>{len(str(self.steps))}}/{self.steps}"
        tail = f"{speed:.0f} steps/s  loss {progress.loss:.4f}{right}  {left // 60}:{left % 60:02d} left"
        if self.live:
            full = round(30 * done)
            bar = "#" * full + "." * (30 - full)
            print(
                f"\r {head} [{bar}] {done:4.0%}  {tail} \x1b[K", end="", file=sys.stderr, flush=True
            )
        else:
            print(f"step {head}  {tail}", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.shown and self.live and self.last:
            print(file=sys.stderr)
