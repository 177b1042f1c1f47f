# Tangled from book/workshop/mutants.md
"""The mutants of a chapter: its module, each time with one mistake in it."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ol.registry import COURSE, ROOT, Chapter

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


@dataclass(frozen=True)
class Mutant:
    """A module of a chapter with one mistake in it."""

    chapter: Chapter
    name: str  # s05 if a pitfall says what is wrong, g17 if it was generated
    path: str  # of the module, from the package's root: mostly the one that the chapter builds
    source: str  # of the whole module
    facts: Mapping[str, Any] = field(repr=False, compare=False)  # pitfall, caught_by, hint, witness

    def __str__(self) -> str:
        return f"{self.chapter.id}/{self.name}"

    def diff(self) -> list[str]:
        """The mistake, as a difference from the right module."""
        right = (ROOT / self.path).read_text(encoding="utf-8").splitlines()
        wrong = self.source.splitlines()
        return list(difflib.unified_diff(right, wrong, "right", self.name, lineterm="", n=2))


def demand(chapter: Chapter) -> dict[str, Any]:
    """What a chapter asks of a learner's tests: score, pitfalls, mutants."""
    path = COURSE / "graded" / f"{chapter.id}.json"
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return kept


def mutant(chapter: Chapter, name: str, facts: Mapping[str, Any]) -> Mutant:
    """One of a chapter's mutants. PatchError, with its name, if the module has changed too much."""
    try:
        patch = patch_file(chapter, name).read_text(encoding="utf-8")
        path = patched_file(patch)
        source = apply_patch((ROOT / path).read_text(encoding="utf-8"), patch)
        return Mutant(chapter, name, path, source, facts)
    except PatchError as error:
        raise PatchError(f"mutant {chapter.id}/{name}: {error}") from error


def patch_file(chapter: Chapter, name: str) -> Path:
    """Where a mutant's patch is kept."""
    return COURSE / "mutants" / chapter.id / f"{name}.patch"


def seeded_mutants(chapter: Chapter) -> list[Mutant]:
    """The mutants of a chapter's pitfalls."""
    return [mutant(chapter, *known) for known in chapter.facts.get("mutants", {}).items()]


def generated_mutants(chapter: Chapter) -> list[Mutant]:
    """The mutants that a program made for the chapter's grade."""
    return [mutant(chapter, *known) for known in demand(chapter)["mutants"].items()]


def graded_mutants(chapter: Chapter) -> list[Mutant]:
    """All mutants of a chapter's grade, seeded ones first."""
    seeded = [one for one in seeded_mutants(chapter) if one.facts["hint"]]
    return seeded + generated_mutants(chapter)
