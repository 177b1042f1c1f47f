# Tangled from book/workshop/ol.md
"""The map: what is built, what is begun, what can be begun, and the next step."""

from __future__ import annotations

from typing import Any

from ol.registry import Answer, Chapter, chapters
from ol.terminal import bar, paint, table
from ol.workspace import Workspace


def state_of(workspace: Workspace, chapter: Chapter) -> dict[str, Any]:
    """The state of a chapter: built, begun, ready or blocked; and why."""
    row: dict[str, Any] = {"id": chapter.id, "title": chapter.facts["title"], "rung": chapter.rung}
    ref_deps = workspace.state["ref_deps"]
    blocked = [n for n in chapter.needs if not workspace.is_built(chapters()[n])]
    row["blocked_by"] = [] if ref_deps else blocked
    if workspace.is_built(chapter):
        row["state"] = "built"
        grade = workspace.grade_of(chapter) if chapter.rung else None
        row["graded"] = grade and {"score": grade["score"], "passed": grade["passed"]}
        row["done"] = not chapter.rung or bool(grade and grade["passed"])
        row["note"] = " ".join(["passed", *workspace.state["built"][chapter.id][2:]])
    else:
        ready = "blocked" if row["blocked_by"] else "ready"
        row["state"] = "begun" if workspace.is_begun(chapter) else ready
        row["done"] = False
        changed = row["state"] == "begun" and chapter.id in workspace.state["built"]
        row["note"] = "changed since it passed" if changed else ""
    return row


def note_on(row: dict[str, Any]) -> str:
    """What the map says beside the state."""
    note = "" if row["note"] == "passed" else row["note"]
    if row["state"] == "built" and row["rung"] and row["graded"] is None:
        note = ", ".join(filter(None, [note, f"your tests ({row['rung']}) are not graded yet"]))
    elif row["state"] == "built" and row["rung"]:
        score = "no score" if row["graded"]["score"] is None else f"{row['graded']['score']:.2f}"
        enough = "" if row["done"] else ", not enough"
        note = ", ".join(filter(None, [note, f"tests graded {score}{enough}"]))
    needs = f"needs {', '.join(row['blocked_by'])}" if row["blocked_by"] else ""
    return ", ".join(filter(None, [note, needs]))


def next_step(rows: list[dict[str, Any]]) -> str:
    """The command to type next."""
    for row in rows:
        if row["state"] == "begun" and not row["blocked_by"]:
            return f"ol tests {row['id']}"
    for row in rows:
        if row["state"] == "built" and not row["done"]:
            return f"ol check {row['id']}"
    return next((f"ol start {row['id']}" for row in rows if row["state"] == "ready"), "")


COLOURS = {"built": "green", "begun": "yellow", "ready": "bold", "blocked": "dim"}


def status(workspace: Workspace) -> Answer:
    """The whole map."""
    rows = [state_of(workspace, chapter) for chapter in chapters().values()]
    done, step = sum(row["done"] for row in rows), next_step(rows)
    lines = table(
        [row["id"], row["title"], paint(row["state"], COLOURS[row["state"]]), note_on(row)]
        for row in rows
    )
    lines += ["", f"{bar(done / len(rows))} {done} of {len(rows)} chapters done"]
    if workspace.state["ref_deps"]:
        lines.append("chapters that are not built are taken from the book (--ref-deps)")
    lines.append(f"next: {step}" if step else "every chapter is done")
    data = {
        "workspace": str(workspace.root),
        "ref_deps": workspace.state["ref_deps"],
        "done": done,
        "chapters": rows,
        "next": step,
    }
    return Answer(0, lines, data)
