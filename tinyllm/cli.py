# Tangled from book/workshop/command.md
"""The command `tinyllm`: trains the transformer that adds, and lets it write sums.

Exit status: 0 done, 1 failed, 2 wrong use or a bad checkpoint, 128 + n stopped by signal n.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from tinyllm import __version__
from tinyllm.checkpoint import CheckpointError, write_atomically
from tinyllm.models.addition import (
    START,
    Settings,
    load_model,
    parse,
    pictures,
    source_tokens,
    text,
    translate,
)
from tinyllm.num.cores import cores
from tinyllm.runs import CHECKPOINT, WrongUseError, train

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    with open(os.devnull, "w") as nowhere, redirect_stderr(sys.stderr or nowhere):
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    try:
        status: int = options.call(options)
        if sys.stdout is not None:  # closed by whoever started this
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
    command = commands.add_parser(
        "train",
        help="train a model",
        description="Train the transformer that adds. Ctrl-C or SIGTERM stops after the step at hand "
        "and saves; --resume goes on to the same bits.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    command.add_argument("model", choices=["transformer"], help="what to train")
    _add_run(command)
    begin = command.add_mutually_exclusive_group()
    begin.add_argument("--resume", action="store_true", help="go on with the run in the folder")
    begin.add_argument("--force", action="store_true", help="begin anew where a run is already")
    command.add_argument(
        "--processes", type=_count, help="default: one a core, at most one a shard"
    )
    command.add_argument(
        "--evaluate-every", type=_count, default=100, metavar="STEPS", help="steps"
    )
    command.add_argument("--save-every", type=_count, default=200, metavar="STEPS", help="steps")
    command.add_argument(
        "--ddp", action="store_true", help="one process of many, started by torchrun"
    )
    own = command.add_argument_group("settings of the run")
    for field in fields(Settings):
        own.add_argument(
            "--" + field.name.replace("_", "-"),
            type=type(field.default),
            metavar="N" if isinstance(field.default, int) else "X",
            default=argparse.SUPPRESS,
            help=f"{HELP[field.name]} (default: {field.default})",
        )
    command.set_defaults(call=train)


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
        type=_folder,
        default=Path("runs/addition"),
        metavar="DIR",
        help="its folder",
    )


def _folder(word: str) -> Path:
    if not word or os.path.lexists(word) and not os.path.isdir(word):
        raise argparse.ArgumentTypeError(f"wants a folder, got {word!r}")
    return Path(word)


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


MOST_ON_A_PAGE = 50
MOST_BEAMS, MOST_ALPHA = 1000, 100.0


def _translate(options: argparse.Namespace) -> int:
    if sys.stdout is None:
        raise WrongUseError("stdout is closed, and the answers go there")
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
                model, source, options.beam, options.alpha, options.threads or cores()
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
        lines = sys.stdin.read().removeprefix("\ufeff").splitlines()  # a byte order mark
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
