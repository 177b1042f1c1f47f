# Tangled from book/workshop/ol.md
"""Hints on pitfalls, one step at a time, and where the chapter speaks of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ol.jobs import Verdict, error_line, function_name
from ol.registry import COURSE, ROOT, Chapter
from ol.workspace import Workspace


def step(
    workspace: Workspace, chapter: Chapter, name: str, facts: Mapping[str, Any], last: int
) -> tuple[int, list[str]]:
    """The hints given so far on a mutant, and the next one: how many, and in words."""
    given = dict(workspace.state["hints"].get(chapter.id, {}))
    level = given[name] = min(last, int(given.get(name, 0)) + 1)
    workspace.put("hints", chapter.id, given)
    return level, [f"{name}: {facts['hint']}", f"shown by: {facts['witness']}"][:level]


def on(
    workspace: Workspace, chapter: Chapter, verdict: Verdict
) -> tuple[list[str], dict[str, Any]]:
    """What helps with tests that failed: takeaways, a step of hints on the two likeliest pitfalls, a link."""
    failed = {
        function_name(test)
        for test, message in verdict.messages.items()
        if not error_line(message).startswith("NotImplementedError")
    }
    book = json.loads((COURSE / "book.json").read_text(encoding="utf-8"))[chapter.id]
    told = [one["text"] for one in book["takeaways"] if failed.intersection(one["tests"])]
    shares = {
        name: len(failed.intersection(facts["caught_by"])) / len(facts["caught_by"])
        for name, facts in chapter.facts.get("mutants", {}).items()
        if facts["hint"] and failed.intersection(facts["caught_by"])
    }
    lines, hints = [f"takeaway: {text}" for text in told], []
    for name in sorted(shares, key=lambda name: -shares[name])[:2]:
        level, said = step(workspace, chapter, name, chapter.facts["mutants"][name], 2)
        said[0] = f"hint {said[0]}" + (" (the next run says more)" if level < 2 else "")
        hints.append({"mutant": name, "level": level, "lines": said})
        lines += said
    read = section(chapter, next((book["places"].get(one["mutant"], "") for one in hints), ""))
    return [*lines, f"read: {read}"], {"takeaways": told, "hints": hints, "read": read}


def section(chapter: Chapter, chunk: str) -> str:
    """Where the chapter has a chunk of code, or begins: on the disk, if it is there, and on the site."""
    page = ROOT / "book" / chapter.page
    site = f"site/{chapter.page.removesuffix('.md')}.html"
    named, anchor = (f" ({{#{chunk}}})", f"#chunk-{chunk}") if chunk else ("", "")
    return (f"{page}{named}, " if page.is_file() else "") + site + anchor
