# Tangled from book/workshop/ol-grade.md
"""A grade in words."""

from __future__ import annotations

import math

from ol.grade import UNDECIDED, Grade
from ol.terminal import paint, table

_COLOURS = {"caught": "green", "missed": "red"}
_ORDER = {"caught": 0, "unbuildable": 1, "crashed": 2, "timeout": 3, "missed": 4}


def full(grade: Grade) -> list[str]:
    """The table of mutants, and what the grade is."""
    if grade.findings:
        return short(grade)
    rows = sorted(grade.rows, key=lambda row: _ORDER[row.state])
    lines = table(
        [
            row.name,
            paint(row.state, _COLOURS.get(row.state, "yellow")),
            row.by.rpartition("::")[2] or row.detail,
            f"{row.seconds:.2f} s",
            row.what,
        ]
        for row in rows
    )
    return [*lines, "", *short(grade)]


def short(grade: Grade) -> list[str]:
    """What the grade is, and what is missing."""
    head = f"your tests of {grade.chapter}: {grade.tests}"
    if grade.findings:
        listed = [f"  {finding}" for finding in grade.findings]
        return [head, paint("no grade:", "red"), *listed]
    caught, missed = grade.number("caught"), grade.number("missed")
    score = "none" if grade.score is None else f"{grade.score:.2f}"
    lines = [
        head,
        f"{grade.count} tests, {caught} of {caught + missed} mutants caught, score {score}",
    ]
    if grade.cached:
        lines[-1] += " (nothing has changed since it was worked out)"
    lines.append(f"sandbox: {grade.sandbox}")
    states = {s: grade.number(s) for s in ("timeout", "crashed", "unbuildable") if grade.number(s)}
    if states:
        said = ", ".join(f"{count} {state}" for state, count in states.items())
        lines.append(f"not counted: {said}")
    if grade.idle:
        lines.append(f"passes on everything, so proves nothing: {', '.join(grade.idle)}")
    return lines + wants(grade)


def wants(grade: Grade) -> list[str]:
    """What the rung asks for, and whether it is there."""
    pitfalls = ", ".join(grade.required)
    asks = f"{grade.rung} wants a score of {grade.wanted:.2f} and the pitfalls {pitfalls} caught"
    if grade.passed:
        return [paint(f"passed: {asks}", "green")]
    lines = [paint(f"not yet: {asks}", "red")]
    decided = grade.number("caught", "missed")
    more = math.ceil(grade.wanted * decided - 1e-9) - grade.number("caught")
    if more > 0:
        lines.append(f"  {more} more must be caught")
    if grade.uncaught:
        lines.append(f"  pitfalls not caught: {', '.join(grade.uncaught)}")
    if grade.undecided > UNDECIDED * len(grade.rows):
        lines.append("  too many mutants end in a timeout or a crash: let tests fail instead")
    missed = [row.name for row in grade.rows if row.state == "missed"]
    missed.sort(key=lambda name: name not in grade.required)
    return lines + [f"  next: ol mutate {grade.chapter} --hint {name}" for name in missed[:1]]
