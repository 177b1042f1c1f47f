# Tangled from book/workshop/ol-authors.md
"""`ol dev check`: stubs fail, references pass, every mutant of every grade is caught."""

from __future__ import annotations

from collections.abc import Iterator

from ol.jobs import Job, Verdict, function_name, job_for
from ol.mutants import generated_mutants, seeded_mutants
from ol.patches import PatchError
from ol.registry import Answer, Chapter, chapters
from ol.runner import Runner
from ol.stubs import stub
from ol.variants import variants


def jobs_of(chapter: Chapter) -> Iterator[Job]:
    """Everything that is to be run for a chapter on the course's tests."""
    yield job_for(chapter, f"{chapter.id} stub", stub(chapter), stop=True)
    yield Job(f"{chapter.id} reference", (str(chapter.course_tests),), seconds=120)
    for one in seeded_mutants(chapter):
        only = tuple(one.facts["caught_by"])
        yield job_for(chapter, str(one), one.source, path=one.path, only=only)
    for one in generated_mutants(chapter) if chapter.rung else ():
        first = tuple(one.facts["caught_by"])
        what = f"{chapter.id} {one.name}"
        yield job_for(chapter, what, one.source, path=one.path, first=first, stop=True)
    for name, source in variants(chapter).items():
        yield job_for(chapter, f"{chapter.id} variant {name}", source, seconds=120)


def problem_with(verdict: Verdict) -> str:
    """What is wrong with the outcome of a job, if anything is."""
    what = verdict.job.partition(" ")[2]
    wanted = "missed" if what == "reference" or what.startswith("variant") else "caught"
    if verdict.state == wanted:
        passed = set(map(function_name, verdict.passed)) - verdict.failed_functions
        silent = ", ".join(sorted(passed)) if "/" in verdict.job else ""
        return f"{verdict.job}: {silent} should fail and does not" if silent else ""
    names = {"caught": "tests fail", "missed": "all tests pass"}
    state, should = names.get(verdict.state, verdict.state), names[wanted]
    tests = f" ({', '.join(verdict.failed[:3])})" if verdict.failed else ""
    return f"{verdict.job}: {state}{tests}, where {should} was wanted. {verdict.detail}".strip()


def check(chosen: list[Chapter]) -> Answer:
    """Run everything for the chapters, by default all; status 1 if anything is not as it should be."""
    jobs: list[Job] = []
    problems: list[str] = []
    with Runner() as runner:
        for chapter in chosen or chapters().values():
            try:
                jobs += jobs_of(chapter)
            except PatchError as error:  # a mutant was made for another text
                problems.append(f"{chapter.id}: {error}: ol dev freeze {chapter.id}")
        problems += filter(None, map(problem_with, runner.run(jobs)))
    lines = [*problems, f"{len(jobs)} runs, {len(problems)} not as they should be"]
    return Answer(1 if problems else 0, lines, {"runs": len(jobs), "problems": problems})
