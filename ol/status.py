# Tangled from book/workshop/ol.md
"""The map: what is built, what is begun, what can be begun, and the next step."""

from __future__ import annotations

from typing import Any

from ol.registry import Answer, Chapter, chapters
from ol.terminal import bar, paint, table
from ol.workspace import Workspace


def state_of(workspace: Workspace, chapter: Chapter) -> dict[str, Any]:
    """The state of a chapter: built, begun, ready or blocked; whether it is done; and a note on both."""
    needs = [n for n in chapter.needs if not workspace.is_built(chapters()[n])]
    blocked_by = [] if workspace.state["ref_deps"] else needs
    built, known = workspace.is_built(chapter), workspace.state["built"].get(chapter.id, [])
    grade = workspace.grade_of(chapter) if built else None
    done = grade is not None and grade["passed"]
    notes = [" ".join(["passed", *known[2:]])] if built and known[2:] else []
    if built and grade is None:
        notes.append(f"your tests ({chapter.rung}) are not graded yet")
    elif grade is not None:
        score = "no score" if grade["score"] is None else f"{grade['score']:.2f}"
        notes.append(f"tests graded {score}" + ("" if done else ", not enough"))
    begun = not built and workspace.is_begun(chapter)
    notes += ["changed since it passed"] if begun and known else []
    notes += [f"needs {', '.join(blocked_by)}"] if blocked_by else []
    ready = "blocked" if blocked_by else "ready"
    state = "built" if built else "begun" if begun else ready
    row = {name: chapter.facts[name] for name in ("title", "rung")} | {"id": chapter.id}
    row |= {"state": state, "done": done, "graded": grade, "note": ", ".join(notes)}
    return row | {"blocked_by": blocked_by}


def next_step(rows: list[dict[str, Any]]) -> str:
    """The command to type next."""
    steps = [f"ol tests {r['id']}" for r in rows if r["state"] == "begun" and not r["blocked_by"]]
    steps += [f"ol check {r['id']}" for r in rows if r["state"] == "built" and not r["done"]]
    steps += [f"ol start {r['id']}" for r in rows if r["state"] == "ready"]
    return next(iter(steps), "")


COLOURS = {"built": "green", "begun": "yellow", "ready": "bold", "blocked": "dim"}


def status(workspace: Workspace) -> Answer:
    """The whole map."""
    rows = [state_of(workspace, chapter) for chapter in chapters().values()]
    done, step = sum(row["done"] for row in rows), next_step(rows)
    lines = table(
        [
            *(row[i] for i in ("id", "title", "rung")),
            paint(s := row["state"], COLOURS[s]),
            row["note"],
        ]
        for row in rows
    )
    lines += ["", f"{bar(done / len(rows))} {done} of {len(rows)} chapters done"]
    if workspace.state["ref_deps"]:
        lines.append("chapters that are not built are taken from the book (--ref-deps)")
    lines.append(f"next: {step}" if step else "every chapter is done")
    data = {"ref_deps": workspace.state["ref_deps"], "done": done, "chapters": rows, "next": step}
    return Answer(0, lines, data)
