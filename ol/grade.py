# Tangled from book/workshop/ol-grade.md
"""The grade of a learner's tests: how many wrong modules fail one of them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import random
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from ol import imports, mutants
from ol.imports import Finding
from ol.jobs import Job, Verdict, error_line, function_name, job_for
from ol.registry import COURSE, ROOT, Chapter, Refusal
from ol.runner import Runner
from ol.variants import variants
from ol.workspace import Workspace, digest, files_in

AGAIN = 3  # times that the right module is run among the mutants
LEAST = 10.0  # seconds of processor time that every mutant gets
UNDECIDED = 0.1  # the share of mutants that may end in a timeout or a crash


@dataclass
class Row:
    """What became of one mutant."""

    name: str
    seeded: bool
    what: str
    state: str  # caught, missed, timeout, crashed, unbuildable
    by: str = ""  # the test that caught it
    detail: str = ""
    seconds: float = 0.0


@dataclass
class Grade:
    """What became of all, or why there is no grade."""

    chapter: str
    rung: str
    wanted: float
    required: list[str]
    tests: str  # the folder
    rows: list[Row] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)  # tests that pass on everything
    count: int = 0  # of tests
    seconds: float = 0.0
    cached: bool = False

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Grade:
        """A grade out of its `asdict`."""
        rows = [Row(**row) for row in kept["rows"]]
        return cls(
            **{**kept, "rows": rows, "findings": [Finding(**one) for one in kept["findings"]]}
        )

    def number(self, *states: str) -> int:
        return sum(row.state in states for row in self.rows)

    @property
    def undecided(self) -> int:
        return len(self.rows) - self.number("caught", "missed")

    @property
    def score(self) -> float | None:
        """eq. score; None if there is no grade."""
        decided = self.number("caught", "missed")
        return self.number("caught") / decided if decided and not self.findings else None

    @property
    def uncaught(self) -> list[str]:
        """The pitfalls that must be caught and are not."""
        caught = {row.name for row in self.rows if row.state == "caught"}
        return [name for name in self.required if name not in caught]

    @property
    def passed(self) -> bool:
        enough = self.score is not None and self.score >= self.wanted and not self.uncaught
        return enough and self.undecided <= UNDECIDED * len(self.rows)

    def data(self) -> dict[str, Any]:
        """All of it, for machines."""
        score = None if self.score is None else round(self.score, 4)
        numbers = {"caught": self.number("caught"), "missed": self.number("missed")}
        whole = {**asdict(self), "passed": self.passed, "score": score, **numbers}
        return whole | {"undecided": self.undecided, "uncaught": self.uncaught}


def grade_tests(chapter: Chapter, folder: Path, runner: Runner) -> Grade:
    """Grade the tests in a folder."""
    wants = mutants.demand(chapter)
    result = Grade(chapter.id, chapter.rung, wants["score"], wants["pitfalls"], str(folder))
    before = digest([folder])
    result.findings = imports.check(folder)
    if result.findings:
        return result
    first = _reference(chapter, folder, runner, result)
    if first is None:
        return result
    limit = min(60.0, LEAST + 5 * first.seconds)
    _mutants(chapter, folder, runner, result, limit)
    if not result.findings:
        result.idle = _idle(chapter, folder, runner, result, first, limit)
    if digest([folder]) != before:
        result.findings.append(Finding(str(folder), "the files changed while they were graded"))
    return result


def _reference(chapter: Chapter, folder: Path, runner: Runner, result: Grade) -> Verdict | None:
    """The run on the right module; None, and findings in the result, if it does not pass."""
    source = chapter.reference.read_text(encoding="utf-8")
    (verdict,) = runner.run([job_for(chapter, "first", source, folder, explain=True, seconds=60)])
    result.seconds += verdict.seconds
    result.count = len(verdict.passed) + len(verdict.failed)
    for test in verdict.failed:
        says = f"fails on the right module: {error_line(verdict.messages[test])}"
        result.findings.append(Finding(_inside(folder, test), says))
    if verdict.state != "missed" and not verdict.failed:
        if verdict.detail.startswith("no test was run (exit code 5"):
            verdict_says = "no test was collected: write functions test_... in files test_....py"
        else:
            verdict_says = f"on the right module: {verdict.state}: {verdict.detail}"
        result.findings.append(Finding(folder.name, verdict_says))
    return None if result.findings else verdict


def _inside(folder: Path, test: str) -> str:
    """A test's name as pytest would say it in the folder: test_mha.py::test_masks[causal]."""
    return test.removeprefix(f"{folder.name}/")


def _mutants(chapter: Chapter, folder: Path, runner: Runner, result: Grade, limit: float) -> None:
    """Fill in the rows; findings, if tests fail on right modules."""
    graded = {one.name: one for one in mutants.graded_mutants(chapter)}
    right = {f"variant {name}": source for name, source in variants(chapter).items()}
    text = chapter.reference.read_text(encoding="utf-8")
    right |= {f"again {i}": text for i in range(AGAIN)}
    modules = {name: (mutant.path, mutant.source) for name, mutant in graded.items()}
    modules |= {name: (chapter.path, source) for name, source in right.items()}
    jobs = {
        name: job_for(chapter, secrets.token_hex(4), source, folder, path, stop=True, seconds=limit)
        for name, (path, source) in modules.items()
    }
    verdicts = _in_any_order(jobs, runner)
    wrong = {n: jobs[n] for n in right if verdicts[n].state != "missed"}
    told = _in_any_order({n: replace(job, explain=True) for n, job in wrong.items()}, runner)
    result.seconds += sum(verdict.seconds for verdict in (*verdicts.values(), *told.values()))
    for name in wrong:
        says = told[name] if told[name].failed else verdicts[name]
        result.findings += _on_right_module(name, says, folder)
    for name, mutant in graded.items():
        found = verdicts[name]
        by = _inside(folder, found.failed[0]) if found.state == "caught" else ""
        detail = found.detail if found.state not in ("caught", "missed") else ""
        seeded, what = "maker" not in mutant.facts, mutant.facts["pitfall"]
        row = Row(name, seeded, what, found.state, by, detail, round(found.seconds, 3))
        result.rows.append(row)


def _in_any_order(jobs: Mapping[str, Job], runner: Runner) -> dict[str, Verdict]:
    """The verdicts by name; nobody can know which job is run when."""
    names = {job.name: name for name, job in jobs.items()}
    shuffled = random.SystemRandom().sample(list(jobs.values()), len(jobs))
    return {names[verdict.job]: verdict for verdict in runner.run(shuffled)}


def _on_right_module(name: str, verdict: Verdict, folder: Path) -> list[Finding]:
    """What is wrong with tests that do not pass on a right module."""
    if name.startswith("variant"):
        why = (
            f"fails on a right module that is built otherwise ({name.partition(' ')[2]}): it asks for "
            "more than the contract promises"
        )
    else:
        why = "passes and fails on one and the same module"
    if not verdict.failed:
        return [
            Finding(folder.name, f"{verdict.state} on a right module ({name}): {verdict.detail}")
        ]
    return [
        Finding(_inside(folder, test), f"{why}: {error_line(verdict.messages[test])}")
        for test in verdict.failed
    ]


def _idle(
    chapter: Chapter, folder: Path, runner: Runner, result: Grade, first: Verdict, limit: float
) -> list[str]:
    """The test functions that fail on no mutant."""
    functions = list(dict.fromkeys(function_name(test) for test in first.passed))
    active = {function_name(row.by) for row in result.rows if row.by}
    idle = [name for name in functions if name not in active]
    graded = {one.name: one for one in mutants.graded_mutants(chapter)}
    caught = [row.name for row in result.rows if row.state == "caught"]
    step = 4 * runner.workers
    for at in range(0, len(caught), step):
        if not idle:
            break
        jobs = [
            job_for(chapter, name, one.source, folder, one.path, only=tuple(idle), seconds=limit)
            for name, one in ((name, graded[name]) for name in caught[at : at + step])
        ]
        for verdict in runner.run(jobs):
            result.seconds += verdict.seconds
            idle = [name for name in idle if name not in verdict.failed_functions]
    return idle


def key(chapter: Chapter, folder: Path) -> str:
    """A hash of all that a grade depends on."""
    code = [
        path
        for package in ("tinyllm", "ol")
        for path in files_in(ROOT / package)
        if path.suffix == ".py"
    ]
    data = [COURSE / "graded" / f"{chapter.id}.json", COURSE / "mutants" / chapter.id]
    total = hashlib.sha256(digest([folder, *code, *data]).encode())
    facts = chapter.facts.get("mutants", {})
    versions = {name: _version(name) for name in ("numpy", "pytest", "torch")}
    total.update(json.dumps([platform.python_version(), versions, facts]).encode())
    return total.hexdigest()[:32]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def grade(workspace: Workspace, chapter: Chapter, fresh: bool = False) -> Grade:
    """The grade of the workspace's tests, from the cache if nothing has changed."""
    mutants.demand(chapter)
    folder = workspace.tests(chapter)
    if folder is None or not folder.is_dir():
        raise Refusal(f"there are no tests of yours for {chapter.id}: ol start {chapter.id}")
    path = workspace.memory / "grades" / f"{chapter.id}-{key(chapter, folder)}.json"
    result = None if fresh else _kept(path)
    if result is None:
        tests = digest([folder])
        try:
            with Runner() as runner:
                result = grade_tests(chapter, folder, runner)
        except RuntimeError as error:  # pytest is missing
            raise Refusal(str(error)) from error
        if result.rows and tests == digest([folder]):
            with contextlib.suppress(OSError):  # then it will be worked out again
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(asdict(result)), encoding="utf-8")
    told = {"score": result.score, "passed": result.passed, "tests": digest([folder])}
    if workspace.state["graded"].get(chapter.id) != told:
        workspace.put("graded", chapter.id, told)
    return result


def _kept(path: Path) -> Grade | None:
    """A grade from the cache; None if it is not there, or damaged."""
    try:
        kept: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return replace(Grade.of(kept), cached=True)
    except (OSError, ValueError, TypeError, KeyError):
        return None
