# Tangled from book/workshop/mutants.md
"""The mutants of a chapter: its module, each time with one mistake in it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ol.patches import PatchError, apply_patch, patched_file
from ol.registry import COURSE, ROOT, Chapter


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
