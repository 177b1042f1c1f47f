# Tangled from book/workshop/command.md
"""The command `tinyllm`: trains the transformer that adds, and lets it write sums.

Exit status: 0 done, 1 failed, 2 wrong use or a bad checkpoint, 128 + n stopped by signal n.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, fields
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from tinyllm import __version__, pictures
from tinyllm.addition import (
    START,
    Progress,
    Settings,
    Training,
    Workers,
    exact_match,
    load_model,
    pairs,
    parse,
    source_tokens,
    text,
    translate,
)
from tinyllm.checkpoint import CheckpointError, try_lock, write_atomically

__all__ = ["main"]


class WrongUseError(Exception):
    """Something that the person who called can mend; the message says how."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.call(options)
        sys.stdout.flush()
        return status
    except WrongUseError as error:
        print(f"tinyllm: {'; '.join(str(error).splitlines())}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever reads has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a disk that is full, for one
        path = error.filename or "stdout"  # the one file that is written without being opened here
        print(f"tinyllm: {path}: {error.strerror or error}", file=sys.stderr)
        return 1


HELP = {
    "d_model": "features of a position",
    "n_heads": "heads of each attention; divides d_model",
    "n_layers": "layers of the encoder, and of the decoder",
    "d_ff": "hidden features of the feed-forward networks",
    "dropout": "share of weights and features dropped while training",
    "steps": "steps of training",
    "batch": "sums in a step",
    "lr": "learning rate at its peak",
    "warmup": "steps until the peak",
    "weight_decay": "decay of the matrices",
    "beta2": "how slowly AdamW forgets squares of gradients",
    "clip": "greatest length of a gradient",
    "seed": "runs of one seed are equal to the last bit",
    "shards": "parts of a batch that processes or workers share",
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tinyllm", description="A transformer that adds: train it, and let it write."
    )
    parser.add_argument("--version", action="version", version=f"tinyllm {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    _add_train(commands)
    _add_translate(commands)
    return parser


def _add_train(commands: Any) -> None:
    train = commands.add_parser(
        "train",
        help="train a model",
        description="Train the transformer that adds. Ctrl-C or SIGTERM stops after the step at hand "
        "and saves; --resume goes on to the same bits.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    train.add_argument("model", choices=["transformer"], help="what to train")
    _add_run(train)
    begin = train.add_mutually_exclusive_group()
    begin.add_argument("--resume", action="store_true", help="go on with the run in the folder")
    begin.add_argument("--force", action="store_true", help="begin anew where a run is already")
    train.add_argument("--processes", type=_count, help="default: one a core, at most one a shard")
    train.add_argument("--evaluate-every", type=_count, default=100, metavar="STEPS", help="steps")
    train.add_argument("--save-every", type=_count, default=200, metavar="STEPS", help="steps")
    train.add_argument(
        "--ddp", action="store_true", help="one process of many, started by torchrun"
    )
    own = train.add_argument_group("settings of the run")
    for field in fields(Settings):
        own.add_argument(
            "--" + field.name.replace("_", "-"),
            type=type(field.default),
            metavar="N" if isinstance(field.default, int) else "X",
            default=argparse.SUPPRESS,
            help=f"{HELP[field.name]} (default: {field.default})",
        )
    train.set_defaults(call=_train)


def _add_translate(commands: Any) -> None:
    command = commands.add_parser(
        "translate",
        help="write sums",
        description="Write sums such as 123+456; without any on the command line, those of stdin, one a "
        "line. Prints one line a beam, best first: the sum, the digits, the score.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    command.add_argument("sums", nargs="*", metavar="A+B", help="numbers of one to three digits")
    _add_run(command)
    command.add_argument(
        "--beam", type=_width, default=1, metavar="WIDTH", help="answers kept; 1 is greedy"
    )
    command.add_argument(
        "--alpha", type=float, default=1.0, help="score: log-probability / length**alpha"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object a sum")
    command.add_argument("--threads", type=_count, help="default: one a core")
    command.add_argument(
        "--attention", type=Path, metavar="PAGE.html", help="also write a page of all heads"
    )
    command.set_defaults(call=_translate)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(  # torchrun takes --run for an abbreviation of an option of its own
        "--run",
        "--run-dir",
        type=Path,
        default=Path("runs/addition"),
        metavar="DIR",
        help="its folder",
    )


def _count(word: str) -> int:
    number = int(word)
    if number < 1:
        raise argparse.ArgumentTypeError(f"wants a number of at least 1, got {number}")
    return number


def _width(word: str) -> int:
    number = _count(word)
    if (
        number > MOST_BEAMS
    ):  # a search takes memory for all of them, whether it finds so many or not
        raise argparse.ArgumentTypeError(f"wants a number up to {MOST_BEAMS}, got {number}")
    return number


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# ---- train


def _train(options: argparse.Namespace) -> int:
    workers = _workers(options)
    chief = workers.rank == 0
    with ExitStack() as stack:
        run = _begin(options, workers, stack)
        stop = stack.enter_context(_Stop())
        metrics = _Metrics(options.run / METRICS, run.step, chief)
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
    path = options.run / CHECKPOINT
    if isinstance(failed, FloatingPointError):
        kept = "nothing was saved"
        if metrics.saved:
            kept = f"{path} still holds step {metrics.saved}, resumed from there it would diverge again"
        print(
            f"tinyllm: the run diverged: {failed}; {kept}: begin anew with a lower --lr than "
            f"{run.settings.lr:g}, and --force or another --run-dir",
            file=sys.stderr,
        )
        if chief:
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
    if workers.total(np.array([float(bool(holder))]))[0]:
        raise WrongUseError(
            f"{folder} is in use: {holder or 'a process'} trains there. Wait for it or stop it, or take "
            f"another folder by --run-dir DIR"
        )


def _processes(options: argparse.Namespace, shards: int, workers: Workers) -> int:
    most = max(1, _cores() // workers.count)
    return int(options.processes or min(most, max(1, shards // workers.count)))


def _loop(
    run: Training, options: argparse.Namespace, metrics: _Metrics, bar: _Bar, stop: _Stop
) -> None:
    """Steps until the last, or until somebody says stop."""
    chief, share = run.workers.rank == 0, None
    while run.step < run.settings.steps:
        asked_to_stop = run.workers.total(np.array([float(stop.signal)]))[0]
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
    """The file of metrics, one JSON object a line."""

    def __init__(self, path: Path, step: int, writes: bool) -> None:
        self.saved = step  # of the checkpoint; 0: there is none
        self.lines = self._read(path, step, writes) if step else []
        self.started = time.perf_counter() - max(
            (line["seconds"] for line in self.lines if _is_number(line.get("seconds"))), default=0.0
        )
        self.file = None
        if writes:
            text = "".join(json.dumps(line) + "\n" for line in self.lines)
            write_atomically(path, [text.encode()])
            self.file = open(path, "ab", buffering=0)  # noqa: SIM115  closed in close()

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


# ---- translate


MOST_ON_A_PAGE = 50
MOST_BEAMS, MOST_ALPHA = 1000, 100.0


def _translate(options: argparse.Namespace) -> int:
    sums = _sums(options.sums)
    if not 0 <= options.alpha <= MOST_ALPHA:
        raise WrongUseError(f"--alpha is a number from 0 to {MOST_ALPHA:g}, got {options.alpha}")
    if options.attention is not None and len(sums) > MOST_ON_A_PAGE:
        raise WrongUseError(f"--attention shows up to {MOST_ON_A_PAGE} sums, got {len(sums)}")
    path = options.run / CHECKPOINT
    try:
        model = load_model(path)
    except FileNotFoundError:
        raise WrongUseError(
            f"no checkpoint at {path}: train one with `tinyllm train transformer`, or say where it is "
            f"with --run"
        ) from None
    except (CheckpointError, OSError) as error:
        raise WrongUseError(str(error)) from None
    source = source_tokens(*np.array([numbers for _, numbers in sums]).T)
    try:
        with np.errstate(all="ignore"):  # the search refuses what comes of an overflow
            found = translate(
                model, source, options.beam, options.alpha, options.threads or _cores()
            )
    except ValueError as error:
        raise WrongUseError(
            f"{path}: the parameters are finite, but too large to compute with ({error}); "
            f"train anew with a smaller --lr"
        ) from None
    if options.attention is not None:
        page: list[pictures.Sum] = []
        for line, beams in zip(source, found, strict=True):
            told = [START, *beams[0].tokens[: -1 if beams[0].ended else None]]
            seen = model.attend(line[None], np.array([told]))
            encoder, decoder, cross = (weights[:, 0] for weights in seen)
            page.append((text(line), text(beams[0].tokens), encoder, decoder, cross))
        try:
            write_atomically(options.attention, [pictures.heads(page).encode()])
        except OSError as error:
            raise WrongUseError(f"cannot write {options.attention}: {error}") from None
    for (asked, _), beams in zip(sums, found, strict=True):
        if options.json:
            answers = [{"text": text(beam.tokens), "score": beam.score} for beam in beams]
            print(json.dumps({"sum": asked, "answers": answers}))
        else:
            for beam in beams:
                print(asked, text(beam.tokens), f"{beam.score:.6f}")
    return 0


def _sums(given: Sequence[str]) -> list[tuple[str, tuple[int, int]]]:
    """All sums and their numbers, from the command line or from the lines of stdin that are not blank."""
    lines: Iterable[str] = given
    if not given and sys.stdin is not None:  # None: closed by whoever started this
        lines = sys.stdin.read().splitlines()
    found = []
    for n, line in enumerate(lines, 1):
        if line.strip() or given:
            try:
                found.append((line.strip(), parse(line)))
            except ValueError as error:
                where = f"{line!r}" if given else f"line {n}"
                raise WrongUseError(f"{where}: {error}") from None
    if not found:
        raise WrongUseError(
            "nothing to translate: give sums such as 123+456, or one a line on stdin"
        )
    return found
