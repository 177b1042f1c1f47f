# Tangled from book/workshop/ol-class.md
"""The results of a class: a table, CSV, pages of feedback, and what Gradescope and GitHub read."""

from __future__ import annotations

import csv
import hashlib
import html
import io
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ol import report
from ol.grade import Grade
from ol.jobs import error_line
from ol.registry import COURSE, Chapter, Refusal
from ol.terminal import plain
from ol.workspace import write

COLUMNS = ("name", "state", "points", "module", "score", "caught", "missed", "copies", "says")
Row = dict[str, Any]  # by column; None is what could not be measured


class Part(NamedTuple):
    """What the module or the tests are worth, and why."""

    title: str
    points: float
    out_of: float
    passed: bool
    lines: list[str]


def row(name: str, state: str, says: str, parts: Iterable[Part] = (), **more: Any) -> Row:
    """A row of the table, and its parts.

    A state is passed, not yet, no grade, stopped, absent, not on the roster, or not graded.
    """
    texts = {"name": printable(name), "state": state, "says": printable(says[:120])}
    return dict.fromkeys(COLUMNS) | texts | {"copies": "", "parts": [*parts]} | more


def printable(text: str) -> str:
    """The text with escapes for what a terminal would obey, and a file could not hold."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def result(name: str, found: Mapping[str, Any], points: tuple[float, float]) -> Row:
    """A row from what the sandbox has answered."""
    if why := found.get("stopped") or found.get("lost"):
        titles = zip(("Your module", "Your tests"), points, strict=True)
        none = [Part(title, 0.0, of, False, [f"stopped: {why}"]) for title, of in titles if of]
        return row(name, "stopped" if "stopped" in found else "not graded", why, none)
    facts: dict[str, Any] = {"says": ""}
    parts: list[Part] = []
    if points[0]:
        parts.append(_module(found.get("module"), points[0], facts))
    if points[1]:
        parts.append(_tests(Grade.of({**found["grade"], "tests": "yours"}), points[1], facts))
    state = "passed" if all(part.passed for part in parts) else "not yet"
    total = round(sum(part.points for part in parts), 2)
    return row(name, parts=parts, **{"state": state, "points": total, **facts})


def _module(verdict: Mapping[str, Any] | None, out_of: float, facts: dict[str, Any]) -> Part:
    """The module by the course's tests; its column and what it says go into the facts."""
    if verdict is None:
        facts |= {"module": 0.0, "says": "no module was handed in"}
        return Part("Your module", 0.0, out_of, False, [facts["says"]])
    passed, count = len(verdict["passed"]), verdict["count"]
    share = round(passed / max(1, count), 4)
    lines = [f"{test}: {error_line(said)}" for test, said in verdict["messages"].items()]
    lines += [verdict["detail"]] if verdict["detail"] else []
    facts |= {"module": share, "says": "".join(lines[:1])}
    lines = [f"{passed} of the course's {count} tests pass", *lines]
    return Part(
        "Your module", round(share * out_of, 2), out_of, verdict["state"] == "missed", lines
    )


def _tests(grade: Grade, out_of: float, facts: dict[str, Any]) -> Part:
    """The tests by the mutants that they catch; the same."""
    if grade.findings:
        more = len(grade.findings) - 1
        says = f"{grade.findings[0]}" + (f" (and {more} more)" if more else "")
        facts |= {"state": "no grade", "says": says}
    else:
        says = f"pitfalls not caught: {', '.join(grade.uncaught)}" if grade.uncaught else ""
        facts |= {"says": facts["says"] or says, "score": grade.score and round(grade.score, 4)}
        facts |= {state: grade.number(state) for state in ("caught", "missed")}
    points = round((grade.score or 0.0) * out_of, 2)
    return Part("Your tests", points, out_of, grade.passed, list(map(plain, report.full(grade))))


def put(rows: list[Row], chapter: Chapter, one: bool, **outputs: Path | None) -> list[str]:
    """Write csv_file, feedback, gradescope, each file whole or not at all; what was not written."""
    csv_file, *folders = (outputs.get(name) for name in ("csv_file", "feedback", "gradescope"))
    files, unwritten = dict[Path, str](), []
    if csv_file:
        table = io.StringIO(newline="")
        writer = csv.writer(table)
        writer.writerows([COLUMNS, *([_cell(row[c]) for c in COLUMNS] for row in rows)])
        files[csv_file] = table.getvalue()
    for row in rows:
        if feedback := folders[0]:
            files[feedback / f"{_slug(row['name'])}.html"] = page(row, chapter)
        if gradescope := folders[1]:
            folder = gradescope if one else gradescope / _slug(row["name"])
            files[folder / "results.json"] = json.dumps(results_json(row), indent=1)
    for path, text in files.items():
        try:
            write(path, text)
        except Refusal as error:  # the table on the screen is all the more needed
            unwritten.append(f"not written: {error}")
    return unwritten


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in {*"=+-@"} else value


def _slug(name: str) -> str:
    """A name for a file: the same for the same name only, on every system."""
    safe = re.sub(r"[^\w -]", "_", name)[:50].strip()
    return safe if safe == name else f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def page(row: Row, chapter: Chapter) -> str:
    """A student's page of feedback, in HTML that needs no script."""
    points = "" if row["points"] is None else f", {row['points']:g} points"
    body = [f"<p>{html.escape(row['state'] + points + '. ' + row['says'])}</p>"]
    for title, got, out_of, _, lines in row["parts"]:
        quoted = html.escape("\n".join(map(printable, lines)))
        body.append(f"<h2>{title}: {got:g} of {out_of:g} points</h2>")
        body.append(f'<pre tabindex="0">{quoted}</pre>')
    frame = (COURSE / "feedback.html").read_text("utf-8")
    frame = frame.replace("TITLE", html.escape(f"{row['name']}: {chapter}"))
    return frame.replace("BODY", "\n".join(body))


def results_json(row: Row) -> dict[str, Any]:
    """What Gradescope reads."""
    keys = ("name", "score", "max_score", "status", "output")
    tests = [
        dict(zip(keys, (*part[:3], "passed" if part.passed else "failed", text), strict=True))
        for part in row["parts"]
        for text in ["\n".join(map(printable, part.lines))]
    ]
    total: dict[str, Any] = {"tests": tests} if tests else {"score": 0.0}
    return total | {"output": f"{row['state']}. {row['says']}", "stdout_visibility": "hidden"}


def notice(row: Row, lines: list[str]) -> list[str]:
    """The lines for GitHub's log, where none of them is a command, and the points."""
    out_of = sum(part.out_of for part in row["parts"])
    points = json.dumps({"totalPoints": row["points"] or 0, "maxPoints": out_of})
    token = secrets.token_hex(16)
    told = f"::notice title=Autograding report::{points}"
    return [f"::stop-commands::{token}", *lines, f"::{token}::", told]
