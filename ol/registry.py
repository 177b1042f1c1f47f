# Tangled from book/workshop/ol.md
"""The chapters, as this tool knows them: header facts, needs, contracts and tests."""

from __future__ import annotations

import difflib
import functools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

COURSE = Path(__file__).resolve().parent / "course"  # the data of this tool
ROOT = COURSE.parents[1]  # the folder that holds both packages


@dataclass
class Answer:
    """What a command has to say: exit status, lines for people, an object for machines."""

    status: int
    lines: list[str]
    data: dict[str, Any] = field(default_factory=dict)


class Refusal(Exception):  # noqa: N818, it is no error of the program
    """Why a command did nothing, and the way out. Status 1: not yet. Status 2: wrong use."""

    def __init__(self, message: str, status: int = 1, **data: Any):
        super().__init__(message)
        self.status, self.data = status, data


@dataclass(frozen=True)
class Chapter:
    """One chapter's facts."""

    id: str  # L5.3
    facts: Mapping[str, Any] = field(repr=False, compare=False)
    rung: str = ""  # what it asks of the learner's own tests: R1 to R5
    path: str = ""  # the module, from the package's root: tinyllm/xfmr/mha.py
    files: tuple[str, ...] = ()  # the learner's, from the workspace: module, folder of tests
    needs: tuple[str, ...] = ()
    test_needs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.id} {self.facts['title']}"

    @property
    def module(self) -> str:
        """The name that it is imported by: tinyllm.xfmr.mha."""
        return module_name(self.path)

    @property
    def reference(self) -> Path:
        """The book's own module."""
        return ROOT / self.path

    @property
    def contract(self) -> Path:
        return ROOT / str(self.facts["contract"])

    @property
    def course_tests(self) -> Path:
        """In the checkout, or in the installed package."""
        path = str(self.facts["tests"])
        return ROOT / path if (ROOT / path).exists() else COURSE / path

    @property
    def page(self) -> str:
        """The chapter itself, from the book's folder on: 2-transformer/L5.3-multi-head-attention.md."""
        first = self.reference.read_text(encoding="utf-8").partition("\n")[0]
        return first.partition(" from book/")[2].partition(" and ")[0]


def version(name: str) -> str:
    """The version of what is installed by this name, "" if it is not."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def module_name(path: str) -> str:
    """The name that a file of a package is imported by, from its path in the package's root."""
    return path.removesuffix(".py").replace("/", ".")


@functools.cache
def chapters() -> dict[str, Chapter]:
    """All chapters by id, each after those it needs."""
    facts = tomllib.loads((COURSE / "chapters.toml").read_text(encoding="utf-8"))
    listed: dict[str, Chapter] = {}

    def put(name: str) -> None:
        for need in facts[name]["needs"]:
            if need in facts and need not in listed:
                put(need)
        known = facts[name]
        lists = (tuple(known[key]) for key in ("learner_files", "needs", "test_needs"))
        listed.setdefault(name, Chapter(name, known, known["rung"], known["builds"], *lists))

    for name in facts:
        put(name)
    return listed


def find(name: str) -> Chapter:
    """The chapter that is called so, by id in any case or by its module. Refusal if there is none."""
    found = {known.lower(): chapter for known, chapter in chapters().items()}
    found |= {Path(chapter.path).stem: chapter for chapter in chapters().values()}
    if name.lower() in found:
        return found[name.lower()]
    near = difflib.get_close_matches(name.lower(), found, n=1, cutoff=0.6)
    hint = f"did you mean {found[near[0]].id}? " if near else ""
    raise Refusal(f"there is no chapter {name!r}: {hint}There are {', '.join(chapters())}", 2)


def closure(names: Iterable[str]) -> list[str]:
    """These chapters and all that they need, directly or not, in the order of the map."""
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        wanted += [need for need in chapters()[name].needs if need not in wanted]
    return [name for name in chapters() if name in wanted]
