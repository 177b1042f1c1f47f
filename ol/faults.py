# Tangled from book/workshop/ol-grade.md
"""What a learner's tests are run against: the mutants of a chapter, and its other right modules."""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ol.mutation import seeded_mutants
from ol.registry import COURSE, Chapter, Refusal


@dataclass(frozen=True)
class Demand:
    """What a chapter asks of the learner's tests."""

    score: float
    pitfalls: tuple[str, ...]  # these must be caught
    mutants: tuple[Mapping[str, Any], ...]  # generated ones, as they are kept


def demand(chapter: Chapter) -> Demand:
    """The chapter's demand. Refusal if it grades no tests."""
    path = COURSE / "graded" / f"{chapter.id}.json"
    if not chapter.rung:
        raise Refusal(
            f"{chapter.id} has no graded tests: the course's are all (ol tests {chapter.id})"
        )
    kept = json.loads(path.read_text(encoding="utf-8"))
    return Demand(kept["score"], tuple(kept["pitfalls"]), tuple(kept["mutants"]))


@dataclass(frozen=True)
class Graded:
    """One mutant of the grade."""

    name: str  # s05, g17
    seeded: bool
    what: str  # in a few words
    source: str  # of the whole module
    hints: tuple[str, str]  # what goes wrong; an input that shows it
    right: str  # the module without the fault

    def diff(self) -> list[str]:
        """The fault, as a difference from the right module."""
        lines = difflib.unified_diff(
            self.right.splitlines(), self.source.splitlines(), "right", self.name, lineterm="", n=2
        )
        return list(lines)


def segment(source: str, function: str) -> tuple[int, int]:
    """First and last line, counted from 0 and without the last, of a function; "" is the module."""
    if not function:
        return 0, len(source.splitlines())
    body: list[ast.stmt] = ast.parse(source).body
    for name in function.split("."):
        found = [n for n in body if getattr(n, "name", None) == name]
        if not found:
            raise LookupError(f"there is no {function} in the module")
        node = found[0]
        body = getattr(node, "body", [])
    assert node.end_lineno is not None
    return node.lineno - 1, node.end_lineno


def replaced(source: str, kept: Mapping[str, Any]) -> str:
    """The module with a generated mutant's lines in the place of its own. LookupError if stale."""
    lines = source.splitlines(keepends=True)
    first, last = segment(source, kept["in"])
    old, new = kept["old"].splitlines(keepends=True), kept["new"].splitlines(keepends=True)
    places = [i for i in range(first, last - len(old) + 1) if lines[i : i + len(old)] == old]
    if len(places) <= kept["nth"]:
        raise LookupError(f"{kept['name']}: these lines are not in {kept['in']}: {kept['old']!r}")
    at = places[kept["nth"]]
    return "".join(lines[:at] + new + lines[at + len(old) :])


def graded(chapter: Chapter) -> list[Graded]:
    """All mutants of a chapter's grade, seeded ones first."""
    right = chapter.reference.read_text(encoding="utf-8")
    found = []
    for mutant in seeded_mutants(chapter.id):
        if mutant.facts["hint"]:
            hints = mutant.facts["hint"], mutant.facts["witness"]
            found.append(
                Graded(mutant.name, True, mutant.facts["pitfall"], mutant.source, hints, right)
            )
    for kept in demand(chapter).mutants:
        function = kept["in"].rpartition(".")[2]
        words = f"{kept['what']} in {function or 'the module'}"
        witness = f"what the course's {kept['test']} tries, which fails on it"
        hints = f"Look at {function}: {kept['what']}.", witness
        found.append(Graded(kept["name"], False, words, replaced(right, kept), hints, right))
    return found


def variants(chapter: Chapter) -> dict[str, str]:
    """Right modules that are built otherwise: name -> source."""
    folder = COURSE / "variants" / chapter.id
    found = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}
    found["renamed"] = renamed(chapter.reference.read_text(encoding="utf-8"))
    return found


def renamed(source: str) -> str:
    """The same module with other private names, other lines and no docstrings."""
    tree = ast.parse(source)
    mine = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and node.name.startswith("_")
        and not node.name.endswith("__")
    }
    return ast.unparse(_Renamer(mine).visit(without_docstring(tree))) + "\n"


class _Renamer(ast.NodeTransformer):
    """Gives the private definitions of a module other names, and drops docstrings."""

    def __init__(self, names: set[str]):
        self.names = names

    def other(self, name: str) -> str:
        return f"{name}_by_another_name" if name in self.names else name

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self.other(node.name)
        return self.generic_visit(without_docstring(node))

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self.other(node.name)
        return self.generic_visit(without_docstring(node))

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.other(node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        node.attr = self.other(node.attr)
        return node


def without_docstring(node: ast.AST) -> ast.AST:
    """A module, class or function without what it says of itself."""
    body: list[ast.stmt] = node.body  # type: ignore[attr-defined]
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body[:1] = [] if len(body) > 1 else [ast.Pass()]
    return node
