# Tangled from book/workshop/ol-grade.md
"""The grade of a learner's tests: how many wrong modules fail one of them."""

from __future__ import annotations

import compileall
import contextlib
import hashlib
import json
import platform
import random
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ol import imports, mutants
from ol.bubblewrap import Limits
from ol.imports import Finding
from ol.jobs import Job, Verdict, error_line, function_name
from ol.registry import COURSE, ROOT, Chapter, Refusal, chapters, closure, module_name, version
from ol.runner import Runner
from ol.stubs import stub
from ol.variants import sealed, variants
from ol.workspace import Workspace, digest, files_in

RIGHT = 3  # right modules among the mutants, at least
LEAST = 10.0  # seconds of processor time that every mutant gets
Texts = Mapping[str, Mapping[str, str]]  # name -> path of a module -> what stands for it
UNDECIDED = 0.1  # the share of mutants that may end in a timeout or a crash


@dataclass
class Row:
    """What became of one mutant."""

    name: str
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
    sandbox: str = "none"  # or limits only, or bubblewrap
    cached: bool = False

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Grade:
        """A grade out of its `asdict`."""
        rows = [Row(**row) for row in kept["rows"]]
        findings = [Finding(**one) for one in kept["findings"]]
        return cls(**{**kept, "rows": rows, "findings": findings})

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
    result.sandbox, allowed = runner.sandbox, wants.get("files", [])
    result.findings = imports.check(folder, allowed)
    if result.findings:
        return result
    with tempfile.TemporaryDirectory(dir=runner.folder) as place:
        bench = Bench(chapter, folder, runner, allowed, Path(place))
        first = _reference(bench, result)
        if first is None:
            return result
        limit = min(60.0, LEAST + 5 * first.seconds)
        _mutants(bench, result, first, limit)
    return result


class Bench:
    """What the tests of one grade see: a copy of them, and the package without what may be wrong."""

    def __init__(
        self, chapter: Chapter, folder: Path, runner: Runner, allowed: list[str], place: Path
    ):
        self.chapter, self.runner, self.place = chapter, runner, place
        self.tests = self.place / "tests" / folder.name
        self.tests.mkdir(parents=True)
        for path in files_in(folder):
            name = path.relative_to(folder)
            if path.suffix == ".py" or name.as_posix() in allowed:
                (self.tests / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, self.tests / name)
        compileall.compile_dir(self.tests, quiet=2)
        paths = {chapter.path, *(one.path for one in mutants.graded_mutants(chapter))}
        self.right = {path: (ROOT / path).read_text(encoding="utf-8") for path in paths}
        shutil.copytree(ROOT / "tinyllm", self.place / "tinyllm")
        for path in map(self.place.joinpath, paths):
            for file in (path, *path.parent.glob(f"__pycache__/{path.stem}.*.pyc")):
                file.unlink()
        for path in (self.place, *self.place.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)

    def job(self, wrong: Mapping[str, str], known: bool = False, **options: Any) -> Job:
        """A run of the tests with these texts in the place of modules, by path."""
        options |= {"sealed": True, "root": str(self.place)}
        warm = tuple(chapters()[name].module for name in closure(self.chapter.needs))
        texts = {**self.right, **wrong}.items()
        modules = {module_name(path): (path, sealed(text, path, known)) for path, text in texts}
        return Job(secrets.token_hex(4), (str(self.tests),), modules, warm=warm, **options)

    def inside(self, test: str) -> str:
        """A test's name as pytest would say it in the folder: test_mha.py::test_masks[causal]."""
        return test.removeprefix(f"{self.tests.name}/")


def _reference(bench: Bench, result: Grade) -> Verdict | None:
    """The run on the right module; None, and findings in the result, if it does not pass."""
    job = bench.job({}, known=True, explain=True, seconds=60)
    (verdict,) = bench.runner.run([job])
    result.count = len(verdict.passed) + len(verdict.failed)
    for test in verdict.failed:
        says = f"fails on the right module: {error_line(verdict.messages[test])}"
        result.findings.append(Finding(bench.inside(test), says))
    if verdict.state != "missed" and not verdict.failed:
        if verdict.detail.startswith("no test was run (exit code 5"):
            verdict_says = "no test was collected: write functions test_... in files test_....py"
        else:
            verdict_says = f"on the right module: {verdict.state}: {verdict.detail}"
        result.findings.append(Finding(bench.tests.name, verdict_says))
    return None if result.findings else verdict


def _mutants(bench: Bench, result: Grade, first: Verdict, limit: float) -> None:
    """Fill in the rows; findings, if what is known beforehand comes out otherwise."""
    graded = {one.name: one for one in mutants.graded_mutants(bench.chapter)}
    path = bench.chapter.path
    right = {name: {path: text} for name, text in variants(bench.chapter).items()}
    again = range(RIGHT - len(right))
    right |= {f"the same in other words, {i}": {} for i in again}
    sources = {name: {one.path: one.source} for name, one in graded.items()} | right
    sources["empty"] = {path: stub(bench.chapter)}
    idle = dict.fromkeys(map(function_name, first.passed))  # what has caught nothing so far
    how = {"stop": True, "seconds": limit, "last": _slow(first)}
    verdicts = _in_any_order(bench, sources, idle, **how)
    wrong = {name: text for name, text in right.items() if verdicts[name].state != "missed"}
    told = _in_any_order(bench, wrong, {}, explain=True, **how)
    for name in wrong:
        says = told[name] if told[name].failed else verdicts[name]
        result.findings += _on_right_module(name, says, bench)
    if verdicts["empty"].state == "missed":
        why = "passes on a module in which nothing is written: no test looks at what it does"
        result.findings.append(Finding(bench.tests.name, why))
    result.idle = [] if result.findings else list(idle)
    known = {function_name(test) for test in first.passed}
    for name, mutant in graded.items():
        found = verdicts[name]
        state = found.state if found.failed_functions <= known else "crashed"
        by = bench.inside(found.failed[0]) if state == "caught" else ""
        detail = found.detail if state not in ("caught", "missed") else ""
        what = mutant.facts["pitfall"]
        result.rows.append(Row(name, what, state, by, detail, round(found.seconds, 3)))


def _slow(first: Verdict) -> tuple[str, ...]:
    """The functions that take more than a fifth of the time of all."""
    times: dict[str, float] = {}
    for test, seconds in first.times.items():
        times[function_name(test)] = times.get(function_name(test), 0.0) + seconds
    return tuple(name for name, seconds in times.items() if seconds > sum(times.values()) / 5)


def _in_any_order(
    bench: Bench, sources: Texts, idle: dict[str, None], **options: Any
) -> dict[str, Verdict]:
    """The verdicts by name; nobody can know which job is run when. What fails is no longer idle."""
    names, verdicts = dict[str, str](), dict[str, Verdict]()

    def jobs() -> Iterator[Job]:  # the next one is made while others run
        for name in random.SystemRandom().sample(list(sources), len(sources)):
            job = bench.job(sources[name], **options)
            names[job.name] = name
            yield job

    def late(job: Job) -> Job:
        return replace(job, after=tuple(idle)) if names[job.name] != "empty" else job

    for verdict in bench.runner.run(jobs(), late):
        name = names[verdict.job]
        verdicts[name] = verdict
        for function in verdict.failed_functions if name != "empty" else ():
            idle.pop(function, None)
    return verdicts


def _on_right_module(name: str, verdict: Verdict, bench: Bench) -> list[Finding]:
    """What is wrong with tests that do not pass on a right module."""
    why = f"fails on a right module that is built otherwise ({name}): it asks for more than the contract"
    if not verdict.failed:
        says = f"{verdict.state} on a right module ({name}): {verdict.detail}"
        return [Finding(bench.tests.name, says)]
    return [
        Finding(bench.inside(test), f"{why}: {error_line(verdict.messages[test])}")
        for test in verdict.failed
    ]


def key(chapter: Chapter, folder: Path) -> str:
    """A hash of all that a grade depends on."""
    code = sorted(path for name in ("tinyllm", "ol") for path in (ROOT / name).rglob("*.py"))
    data = [COURSE / "graded" / f"{chapter.id}.json", COURSE / "mutants" / chapter.id]
    total = hashlib.sha256(digest([folder, *code, *data]).encode())
    facts = chapter.facts.get("mutants", {})
    versions = {name: version(name) for name in ("numpy", "pytest", "torch")}
    total.update(json.dumps([platform.python_version(), versions, facts]).encode())
    return total.hexdigest()[:32]


def grade(workspace: Workspace, chapter: Chapter, fresh: bool = False) -> Grade:
    """The grade of the workspace's tests, from the cache if nothing has changed."""
    folder = workspace.tests(chapter)
    if not folder.is_dir():
        raise Refusal(f"there are no tests of yours for {chapter.id}: ol start {chapter.id}")
    known, tests = workspace.state["graded"].get(chapter.id, {}), digest([folder])
    course = key(chapter, folder)
    if known.get("key") == course and not fresh:
        with contextlib.suppress(TypeError, LookupError):  # it is damaged
            return replace(Grade.of(known["grade"]), cached=True)
    try:
        with Runner(limits=Limits()) as runner:
            result = grade_tests(chapter, folder, runner)
    except RuntimeError as error:  # pytest is missing
        raise Refusal(str(error)) from error
    told: dict[str, Any] = {"score": result.score, "passed": result.passed}
    told["tests"] = digest([folder])
    if result.rows and tests == told["tests"]:
        told |= {"key": course, "grade": asdict(result)}
    workspace.put("graded", chapter.id, told)
    return result
