# Tangled from book/workshop/ol-authors.md
"""`ol dev check`: stubs fail, references pass, every mutant of every grade is caught."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ol import faults
from ol.authoring import lenient
from ol.mutation import Job, Runner, Verdict, job_for, seeded_mutants
from ol.registry import COURSE, Answer, Chapter, chapters
from ol.stubs import stub


def jobs_of(chapter: Chapter) -> Iterator[Job]:
    """Everything that is to be run for a chapter on the course's tests."""
    tests, module = (str(chapter.course_tests),), chapter.module
    file = str(chapter.reference)
    yield Job(f"{chapter.id} stub", tests, {module: (file, stub(chapter))}, stop=True)
    yield Job(f"{chapter.id} reference", tests, seconds=120)
    for mutant in seeded_mutants(chapter.id):
        yield job_for(mutant, only=tuple(mutant.facts["caught_by"]))
    if chapter.rung:
        found = {mutant.name: mutant for mutant in faults.graded(chapter)}
        for kept in faults.demand(chapter).mutants:
            text = found[kept["name"]].source
            first = (kept["test"],)
            yield Job(
                f"{chapter.id} {kept['name']}",
                tests,
                {module: (file, text)},
                first=first,
                stop=True,
            )


def variants_of(chapter: Chapter, folder: Path) -> Iterator[Job]:
    """The other right modules, on the course's tests without what goes beyond the contract."""
    kept = json.loads((COURSE / "graded" / f"{chapter.id}.json").read_text(encoding="utf-8"))
    path = folder / chapter.course_tests.name
    text = chapter.course_tests.read_text(encoding="utf-8")
    path.write_text(lenient(text, set(kept["beyond"])), encoding="utf-8")
    for name, source in faults.variants(chapter).items():
        modules = {chapter.module: (str(chapter.reference), source)}
        yield Job(f"{chapter.id} variant {name}", (str(path),), modules, seconds=120)


def fault_in(verdict: Verdict) -> str:
    """What is wrong with the outcome of a job, if anything is."""
    what = verdict.job.partition(" ")[2]
    if what == "stub":
        wanted = "caught"
    elif what == "reference" or what.startswith("variant"):
        wanted = "missed"
    else:
        wanted = "caught"
    if verdict.state == wanted:
        passed = {test.rpartition("::")[2].partition("[")[0] for test in verdict.passed}
        silent = sorted(passed - verdict.failed_functions) if "/" in verdict.job else []
        return f"{verdict.job}: {', '.join(silent)} should fail and does not" if silent else ""
    names = {"caught": "tests fail", "missed": "all tests pass"}
    state, should = names.get(verdict.state, verdict.state), names[wanted]
    tests = f" ({', '.join(verdict.failed[:3])})" if verdict.failed else ""
    return f"{verdict.job}: {state}{tests}, where {should} was wanted. {verdict.detail}".strip()


def check(chosen: list[Chapter]) -> Answer:
    """Run everything for the chapters, by default all; status 1 if anything is not as it should be."""
    jobs: list[Job] = []
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder, Runner() as runner:
        for chapter in chosen or chapters().values():
            try:
                jobs += jobs_of(chapter)
                if chapter.rung:
                    jobs += variants_of(chapter, Path(folder))
            except LookupError as error:  # a mutant was made for another text
                problems.append(f"{chapter.id}: {error}: ol dev freeze {chapter.id}")
        problems += filter(None, map(fault_in, runner.run(jobs)))
    lines = [*problems, f"{len(jobs)} runs, {len(problems)} not as they should be"]
    return Answer(1 if problems else 0, lines, {"runs": len(jobs), "problems": problems})
