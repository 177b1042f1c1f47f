# Tangled from book/workshop/ol-grade.md
"""`ol check` and `ol mutate`: the course's tests, the grade of the learner's own, and hints."""

from __future__ import annotations

from ol import grade, lesson, report
from ol.mutants import demand, graded_mutants
from ol.registry import Answer, Chapter, Refusal
from ol.workspace import Workspace


def check(workspace: Workspace, chapter: Chapter, ref_deps: bool, verify: bool) -> Answer:
    """The course's tests, then the grade, worked out again to verify it; status 0 if both pass."""
    answer = lesson.run(workspace, chapter, ref_deps)
    data = {"chapter": chapter.id, "tests": answer.data, "grade": None}
    if answer.status:
        return Answer(1, answer.lines, data)
    if not chapter.rung:
        words = f"{chapter.id} has no graded tests: it is done"
        return Answer(0, [*answer.lines, words], data)
    found = grade.grade(workspace, chapter, verify)
    data["grade"] = found.data()
    return Answer(0 if found.passed else 1, [*answer.lines, "", *report.short(found)], data)


def mutate(workspace: Workspace, chapter: Chapter, ref_deps: bool, fresh: bool) -> Answer:
    """The grade in full."""
    demand(chapter)
    lesson.require_needs(workspace, chapter, ref_deps)
    result = grade.grade(workspace, chapter, fresh)
    return Answer(0 if result.passed else 1, report.full(result), result.data())


def hint(workspace: Workspace, chapter: Chapter, name: str) -> Answer:
    """The hints given so far on a mutant, and the next one."""
    found = {mutant.name: mutant for mutant in graded_mutants(chapter)}
    if name not in found:
        raise Refusal(f"{chapter.id} has no mutant {name!r}. It has {', '.join(found)}", 2)
    mutant = found[name]
    given = dict(workspace.state["hints"].get(chapter.id, {}))
    level = given[name] = min(3, int(given.get(name, 0)) + 1)
    workspace.put("hints", chapter.id, given)
    lines = [f"{name}: {mutant.facts['hint']}"]
    if level > 1:
        lines.append(f"shown by: {mutant.facts['witness']}")
    if level > 2:
        lines += mutant.diff()
    left = f"{3 - level} more to come" if level < 3 else "that is all"
    data = {"chapter": chapter.id, "mutant": name, "level": level, "hints": lines}
    return Answer(0, [*lines, f"({left})"], data)
