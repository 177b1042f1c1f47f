# Tangled from book/workshop/ol-grade.md
"""`ol check` and `ol mutate`: the course's tests, the grade of the learner's own, and hints."""

from __future__ import annotations

from ol import grade, hints, lesson, report
from ol.mutants import graded_mutants
from ol.registry import Answer, Chapter, Refusal
from ol.stubs import stub
from ol.workspace import Workspace, digest, text_of


def check(workspace: Workspace, chapter: Chapter, verify: bool, json: bool) -> Answer:
    """The course's tests, then the grade, worked out again to verify it; status 0 if both pass."""
    answer = lesson.run(workspace, chapter, lesson.How(quiet=json))
    data = {"chapter": chapter.id, "tests": answer.data, "grade": None}
    if answer.status:
        return Answer(1, answer.lines, data)
    require_own(workspace, chapter)
    found = grade.grade(workspace, chapter, verify)
    data["grade"] = found.data()
    return Answer(0 if found.passed else 1, [*answer.lines, "", *report.short(found)], data)


def mutate(workspace: Workspace, chapter: Chapter, verify: bool, hint: str | None) -> Answer:
    """The grade in full, or a hint on one mutant."""
    if hint is not None:
        return _hint(workspace, chapter, hint)
    require_own(workspace, chapter)
    result = grade.grade(workspace, chapter, verify)
    return Answer(0 if result.passed else 1, report.full(result), result.data())


def require_own(workspace: Workspace, chapter: Chapter) -> None:
    """Refusal unless the learner's tests pass on the learner's own module, or are none."""
    own, tests = lesson.sources(workspace, chapter), workspace.tests(chapter)
    module, again = own[chapter.id], f"then ol mutate {chapter.id}"
    if not tests.is_dir():
        return
    if text_of(module) == stub(chapter):
        raise Refusal(f"{workspace.shown(module)} is still the stub: fill it in, {again}")
    tried = digest([*own.values(), tests])
    if workspace.state["tried"].get(chapter.id) == tried:
        return
    verdict, text = lesson.pytest(tests, own, lesson.How(quiet=True), ["your tests"])
    if verdict.failed or verdict.state == "unbuildable":
        words = f"no grade: your tests fail on your own module. Mend one of the two, {again}"
        raise Refusal(f"{words}\n{text}", failed=verdict.failed)
    workspace.put("tried", chapter.id, tried)


def _hint(workspace: Workspace, chapter: Chapter, name: str) -> Answer:
    """The hints given so far on a mutant, and the next one."""
    found = {mutant.name: mutant for mutant in graded_mutants(chapter)}
    if name not in found:
        raise Refusal(f"{chapter.id} has no mutant {name!r}. It has {', '.join(found)}", 2)
    mutant = found[name]
    level, lines = hints.step(workspace, chapter, name, mutant.facts, 3)
    if level > 2:
        lines += mutant.diff()
    left = f"{3 - level} more to come" if level < 3 else "that is all"
    data = {"chapter": chapter.id, "mutant": name, "level": level, "hints": lines}
    return Answer(0, [*lines, f"({left})"], data)
