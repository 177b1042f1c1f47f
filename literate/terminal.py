# Tangled from book/workshop/literate-command.md
"""What the command says: to standard output what was wanted, to standard error what is wrong."""

from __future__ import annotations

import sys


def say(text: str, stream=None) -> None:
    print(text, file=stream or sys.stdout)


def complain(*lines) -> None:
    sys.stdout.flush()
    for line in lines:
        say(line, sys.stderr)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def show_progress(number: int, total: int) -> None:
    if total >= 50 and (number % 25 == 0 or number == total):
        done = "\r\x1b[K" if number == total else ""
        sys.stderr.write(f"\rreading chapter {number} of {total}{done}")
        sys.stderr.flush()


def told(errors, kind: str = "") -> list[str]:
    return [f"{path}:{line}: {kind}{message}" for path, line, message in errors]
