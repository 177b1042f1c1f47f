# Tangled from book/workshop/mutants.md
"""Unified diffs, applied to texts in memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class PatchError(ValueError):
    """A patch does not fit the text that it is to change."""


def patched_file(patch: str) -> str:
    """The path of the file that a unified diff changes. PatchError if it names none."""
    named = re.search(r"^\+\+\+ b/(.+)$", patch, re.MULTILINE)
    if named is None:
        raise PatchError(
            "the patch has no line like +++ b/tinyllm/nn.py: which file does it change?"
        )
    return named[1]


def apply_patch(text: str, patch: str) -> str:
    """The text with a unified diff of one file applied, each hunk as near as can be to where it says.

    PatchError if the lines that a hunk keeps or removes are nowhere in the text.
    """
    lines, result, at = _lines(text), list[str](), 0
    for named, old, new in _hunks(_lines(patch)):
        fits = [i for i in range(at, len(lines) - len(old) + 1) if lines[i : i + len(old)] == old]
        if not fits:
            raise _misfit(lines, named, old)
        first = min(fits, key=lambda i: abs(i - named))
        result += lines[at:first] + new
        at = first + len(old)
    return "".join(result + lines[at:])


def _hunks(rows: list[str]) -> Iterator[tuple[int, list[str], list[str]]]:
    """The line that each hunk names, counted from 0, and its lines before and after."""
    row = hunks = 0
    while row < len(rows):
        head = _HUNK.match(rows[row])
        row += 1
        if head is None:
            continue  # the two lines with the file's name
        hunks += 1
        start, old, new = int(head[1]), int(head[2] or 1), int(head[3] or 1)
        named = start - 1 if old else start  # where nothing is removed, the line before is named
        before, after = list[str](), list[str]()
        while len(before) < old or len(after) < new:
            sign, line, row = _patch_line(rows, row, head[0])
            before += [line] if sign != "+" else []
            after += [line] if sign != "-" else []
        yield named, before, after
    if not hunks:
        raise PatchError("the patch has no hunk: a line like @@ -3,7 +3,7 @@ opens one")


def _patch_line(rows: list[str], row: int, hunk: str) -> tuple[str, str, int]:
    """Sign and text of the line at `row` of a patch, and where the next one is."""
    if row == len(rows):
        raise PatchError(f"the patch ends within the hunk {hunk}")
    sign, line = rows[row][0], rows[row][1:]
    if sign == "\n":  # an editor cut the space of an empty line off
        sign, line = " ", "\n"
    if sign not in " +-":
        raise PatchError(f"line {row + 1} of the patch begins with {sign!r}, not a space, + or -")
    if row + 1 < len(rows) and rows[row + 1].startswith("\\"):  # No newline at end of file
        return sign, line.removesuffix("\n"), row + 2
    return sign, line, row + 1


def _lines(text: str) -> list[str]:
    return re.findall(r".*\n|.+", text)  # splitlines would also split at form feeds


def _misfit(lines: list[str], first: int, wanted: list[str]) -> PatchError:
    """What is wrong at the place that the patch names."""
    at, want = next((i, w) for i, w in enumerate(wanted, first) if lines[i : i + 1] != [w])
    there = f"is {lines[at].rstrip()!r}" if at < len(lines) else "is past the end"
    return PatchError(
        f"the patch was made for another text: line {at + 1} {there}, "
        f"where the patch has {want.rstrip()!r}"
    )
