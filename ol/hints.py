# Tangled from book/workshop/ol.md
"""Hints on pitfalls, one step at a time, and where the chapter speaks of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ol.jobs import Verdict, error_line, function_name
from ol.registry import ROOT, Chapter
from ol.workspace import Workspace


def step(
    workspace: Workspace, chapter: Chapter, name: str, facts: Mapping[str, Any], last: int
) -> tuple[int, list[str]]:
    """The hints given so far on a mutant, and the next one: how many, and in words."""
    given = dict(workspace.state["hints"].get(chapter.id, {}))
    level = given[name] = min(last, int(given.get(name, 0)) + 1)
    workspace.put("hints", chapter.id, given)
    return level, [f"{name}: {facts['hint']}", f"shown by: {facts['witness']}"][:level]


def given(workspace: Workspace, chapter: Chapter, verdict: Verdict) -> list[dict[str, Any]]:
    """A step of the hints on the two likeliest pitfalls, by the tests that failed."""
    failed = {
        function_name(test)
        for test, message in verdict.messages.items()
        if not error_line(message).startswith("NotImplementedError")
    }
    shares = {}
    for name, facts in chapter.facts.get("mutants", {}).items():
        if facts["hint"] and failed.intersection(facts["caught_by"]):
            shares[name] = len(failed.intersection(facts["caught_by"])) / len(facts["caught_by"])
    found = []
    for name in sorted(shares, key=lambda name: -shares[name])[:2]:
        facts = chapter.facts["mutants"][name]
        level, lines = step(workspace, chapter, name, facts, 2)
        lines[0] = f"hint {lines[0]}"
        if level < 2:
            lines[0] += " (the next run says more)"
        found.append({"mutant": name, "level": level, "lines": lines})
    return found


def section(chapter: Chapter, mutants: list[str], module: Path, line: int) -> str:
    """Where the chapter speaks of mutants, or else of the function at a line of a module: page and section."""
    page = ROOT / "book" / chapter.page
    site = f"site/{chapter.page.removesuffix('.md')}.html"
    if not page.is_file():
        return site
    text = page.read_text(encoding="utf-8")
    wanted = [
        rf"\{{#{re.escape(chunk)}[ }}]"
        for name in mutants
        for chunk in re.findall(rf"\{{#{name} patch=([^ }}]+)", text)
    ]
    wanted += [
        rf"^ *def {node.name}\("
        for node in ast.walk(ast.parse(module.read_bytes() if line else b""))
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    found = next(filter(None, (re.search(one, text, re.M) for one in wanted)), None)
    above = list(re.finditer(r"^##+ (.+)$", text[: found.start() if found else 0], re.M))
    if not above:
        return f"{page}, {site}"
    title = above[-1][1]
    anchor = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())
    number = text.count("\n", 0, above[-1].start()) + 1
    return f"{page}:{number} ({title}), {site}#{anchor}"
