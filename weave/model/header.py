# Tangled from book/workshop/weave.md
"""The shape of header facts: what kind of value each key has, and which chapters need which."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from literate.markdown import Block

TEXT, NUMBER, TEXTS, TABLE = "a string", "a whole number", "a list of strings", "a table"
STRINGS = "title kind language time rung builds contract tests milestone summary"
LISTS = "names learner_files needs test_needs used_by_planned reading"
CHAPTER = {
    **dict.fromkeys(STRINGS.split(), TEXT),
    **dict.fromkeys(LISTS.split(), TEXTS),
    "part": NUMBER,
    "pass": NUMBER,
    "mutants": TABLE,
}
MUTANT = {**dict.fromkeys(["pitfall", "symptom", "hint", "witness"], TEXT), "caught_by": TEXTS}


def checked(
    chapter: str, written: Any, block: Block
) -> tuple[dict[str, Any], list[tuple[int, str]]]:
    """Of one chapter's facts those whose values can be used, and what is wrong with the others: line, message."""
    diagnostics: list[tuple[int, str]] = []

    def kept(value: Any, kinds: Mapping[str, str], *way: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            diagnostics.append((line(block, *way), f"{way[-1]} must be {TABLE}"))
            return {}
        done = {}
        for key, one in value.items():
            kind = kinds.get(key)
            if kind is None or _fits(one, kind):
                done[key] = one
            else:
                diagnostics.append((line(block, *way, key), f"{key} must be {kind}"))
        return done

    table = kept(written, CHAPTER, chapter)
    if "mutants" in table:
        named = table["mutants"].items()
        table["mutants"] = {n: kept(m, MUTANT, chapter, "mutants", n) for n, m in named}
    return table, diagnostics


def _fits(value: Any, kind: str) -> bool:
    if kind == TEXTS:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    return type(value) is {TEXT: str, NUMBER: int, TABLE: dict}[kind]


def line(block: Block, *way: str) -> int:
    """The chapter's line on which a block of TOML has a key, given the keys that lead to it."""
    at = 0
    for key in way:
        word = (
            rf"""^[ \t]*["']?{re.escape(key)}["']?[ \t]*[.=]|[\[.]["']?{re.escape(key)}["']?[].]"""
        )
        found = re.compile(word, re.MULTILINE).search(block.body, at)
        at = found.start() if found else at
    return int(block.line + 1 + block.body.count("\n", 0, at))


def needs(facts: Mapping[str, Any], headers: Mapping[str, Any]) -> Iterator[tuple[str, int, str]]:
    """What is wrong with the needs of the chapters: chapter, line, message."""
    for chapter, block in headers.items():
        for key in ("needs", "test_needs"):
            for need in facts[chapter].get(key, ()):
                if need not in headers:
                    yield chapter, line(block, chapter, key), f"there is no chapter {need} to need"
    done: set[str] = set()
    for start in headers:
        way = [start]
        waiting = [iter(facts[start]["needs"])]
        while waiting:
            need = next(waiting[-1], None)
            if need is None:
                waiting.pop()
                done.add(way.pop())
            elif need in way:
                circle = " needs ".join([*way[way.index(need) :], need])
                yield need, line(headers[need], need, "needs"), f"needs go in a circle: {circle}"
            elif need in headers and need not in done:
                way.append(need)
                waiting.append(iter(facts[need]["needs"]))
