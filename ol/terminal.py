# Tangled from book/workshop/ol.md
"""Words on a terminal: colours, tables, a bar, the answer of a command."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence

from ol.registry import Answer

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_PAINTED = re.compile("\033\\[[0-9]*m")


def paint(text: str, colour: str) -> str:
    """The text in a colour, where standard output is a terminal."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty():
        return text
    return f"\033[{_CODES[colour]}m{text}\033[0m"


def plain(text: str) -> str:
    """The text without colours."""
    return _PAINTED.sub("", text)


def table(rows: Iterable[Sequence[str]]) -> list[str]:
    """The rows with their cells one below the other."""
    kept = list(rows)
    wide = [max(len(plain(cell)) for cell in column) for column in zip(*kept, strict=True)]
    return [
        "  ".join(c + " " * (w - len(plain(c))) for c, w in zip(row, wide, strict=True)).rstrip()
        for row in kept
    ]


def bar(part: float, size: int = 24) -> str:
    """A progress bar."""
    full = round(part * size)
    return f"[{'#' * full}{'.' * (size - full)}]"


def show(answer: Answer, as_json: bool, refused: bool = False) -> int:
    """Print an answer; its exit status."""
    stream = sys.stderr if refused and not as_json else sys.stdout
    text = "\n".join(answer.lines)
    if as_json:
        text = json.dumps({"status": answer.status, **answer.data}, indent=1)
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:  # `ol | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except UnicodeEncodeError:  # a terminal of another time
        print(text.encode("ascii", "replace").decode(), file=stream)
    return answer.status
