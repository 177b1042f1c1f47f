# Tangled from book/workshop/mutants.md
"""Unified diffs, applied to texts in memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@\n")


class PatchError(ValueError):
    """A patch does not fit the text that it is to change."""


def patched_file(patch: str) -> str:
    """The path of the file that a unified diff changes. PatchError if it names none."""
    named = re.search(r"^\+\+\+ b/(.+)$", patch, re.MULTILINE)
    if named is None:
        raise PatchError("the patch has no line like +++ b/tinyllm/nn.py: which file is it for?")
    return named[1]


def apply_patch(text: str, patch: str) -> str:
    """The text with a unified diff of one file applied, each hunk as near as can be to where it says.

    PatchError if there is no hunk, or the lines that one keeps or removes are nowhere in the text.
    """
    lines, result, at, hunks = _lines(text), list[str](), 0, list(_hunks(patch))
    for named, old, new in hunks:
        fits = [i for i in range(at, len(lines) - len(old) + 1) if lines[i : i + len(old)] == old]
        if not fits:
            words = f"the patch was made for another text: near line {named + 1} there is no"
            raise PatchError(f"{words}\n{''.join(old)}")
        first = min(fits, key=lambda i: abs(i - named))
        result += lines[at:first] + new
        at = first + len(old)
    if not hunks:
        raise PatchError("the patch has no hunk: a line like @@ -3,7 +3,7 @@ opens one")
    return "".join(result + lines[at:])


def _hunks(patch: str) -> Iterator[tuple[int, list[str], list[str]]]:
    """The line that each hunk names, counted from 0, and its lines before and after."""
    for hunk in re.split(r"(?m)^(?=@@ )", patch)[1:]:
        if (head := _HUNK.match(hunk)) is None:
            raise PatchError(f"this opens no hunk: {hunk.partition(chr(10))[0]}")
        rows = _lines(hunk[head.end() :])
        named = int(head[1]) - (head[2] != "0")  # for a hunk that only adds, the line before
        before, after = ([row[1:] for row in rows if row[0] in signs] for signs in (" -", " +"))
        yield named, before, after


def _lines(text: str) -> list[str]:
    return re.findall(r".*\n|.+", text)  # splitlines would also split at form feeds
