# Tangled from book/workshop/ol.md
"""`ol check`: the course's tests against the module, then the grade of the learner's own tests."""

from __future__ import annotations

from ol import lesson
from ol.registry import Answer, Chapter
from ol.workspace import Workspace


def check(workspace: Workspace, chapter: Chapter, ref_deps: bool) -> Answer:
    """Both, in this order; status 0 if both pass."""
    answer = lesson.run(workspace, chapter, ref_deps)
    data = {"chapter": chapter.id, "tests": answer.data, "grade": None}
    if answer.status:
        return Answer(1, answer.lines, data)
    if not chapter.rung:
        words = f"{chapter.id} has no graded tests: it is done"
        return Answer(0, [*answer.lines, words], data)
    from ol import grade, report

    found = grade.grade(workspace, chapter)
    data["grade"] = found.data()
    return Answer(0 if found.passed else 1, [*answer.lines, "", *report.short(found)], data)
