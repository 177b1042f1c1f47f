# Tangled from book/workshop/literate-command.md
"""What the command says: to standard output what was wanted, to standard error what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from literate.markdown import Diagnostic


def complain(*lines: str) -> None:
    print(end="", flush=True)
    for line in lines:
        print(line, file=sys.stderr)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def told(diagnostics: Iterable[Diagnostic], kind: str = "") -> list[str]:
    return [f"{path}:{line}: {kind}{message}" for path, line, message in diagnostics]
