# Tangled from book/workshop/ol.md
"""`ol tests`: the course's tests against the learner's module."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ol.jobs import Job, Verdict, error_line, function_name
from ol.registry import COURSE, ROOT, Answer, Chapter, Refusal, chapters, closure
from ol.runner import Runner
from ol.terminal import paint, show
from ol.watch import watch
from ol.workspace import Workspace, digest, text_of


@dataclass(frozen=True)
class Sources:
    """Where each module comes from."""

    own: Mapping[str, Path]  # chapter -> the learner's file
    needed: list[str]  # chapters that are the book's because they are not built
    tools: list[str]  # others of which the same is true, and that only the tests use

    def lines(self) -> list[str]:
        words = {
            f"from the book (--ref-deps): {', '.join(self.needed)}": self.needed,
            f"the tests use {', '.join(self.tools)} from the book: not built yet": self.tools,
        }
        return [line for line, names in words.items() if names]


def sources(workspace: Workspace, chapter: Chapter, ref_deps: bool) -> Sources:
    """Which modules are the learner's. Refusal if a chapter is missing that is needed."""
    module = workspace.written(chapter)
    require_needs(workspace, chapter, ref_deps)
    needed, tools = workspace.missing(chapter)
    others = closure([*chapter.needs, *chapter.test_needs])
    built = [n for n in others if n not in needed and n not in tools]
    own = {n: workspace.module(chapters()[n]) for n in built} | {chapter.id: module}
    return Sources(own, needed, tools)


def require_needs(workspace: Workspace, chapter: Chapter, ref_deps: bool) -> None:
    """Refusal if a chapter is needed that is not built, and the book's is not to be taken."""
    missing = workspace.missing(chapter)[0]
    missing = sorted(
        missing, key=[*chapter.needs, *missing].index
    )  # what it needs itself comes first
    if missing and not (ref_deps or workspace.state["ref_deps"]):
        lines = [f"{chapter.id} needs {name}: build it, or pass --ref-deps" for name in missing]
        raise Refusal("\n".join(lines), chapter=chapter.id, needs=missing)


@contextmanager
def package(own: Mapping[str, Path]) -> Iterator[str]:
    """A folder with a copy of the package that has the learner's modules in the book's places."""
    with tempfile.TemporaryDirectory(prefix="ol-", ignore_cleanup_errors=True) as folder:
        left_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "tinyllm", Path(folder, "tinyllm"), ignore=left_out)
        for name, path in own.items():
            shutil.copyfile(path, Path(folder, chapters()[name].path))
        yield folder


def job(chapter: Chapter, found: Sources, root: str) -> tuple[Job, str]:
    """The run of the course's tests, and the hash of the module that it tests."""
    module_hash, texts = digest([found.own[chapter.id]]), {}
    for name, path in found.own.items():
        texts[chapters()[name].module] = (str(path), text_of(path))
    tests = (str(chapter.course_tests),)
    return Job(chapter.id, tests, texts, root, explain=True, seconds=120), module_hash


def run(
    workspace: Workspace, chapter: Chapter, ref_deps: bool, runner: Runner | None = None
) -> Answer:
    """Run the course's tests; what passed is remembered."""
    found = sources(workspace, chapter, ref_deps)
    if not chapter.course_tests.exists():
        raise Refusal(f"the course's tests are not installed: {chapter.course_tests} is not there")
    with package(found.own) as root:
        task, module_hash = job(chapter, found, root)
        with _runner(runner) as one:
            (verdict,) = one.run([task])
    if verdict.state == "missed":
        workspace.passed(chapter, module_hash)
    return report(workspace, chapter, found, verdict)


@contextmanager
def _runner(given: Runner | None = None) -> Iterator[Runner]:
    """The one that is there, or one for this run."""
    if given is not None:
        yield given
        return
    try:
        with Runner() as made:
            yield made
    except RuntimeError as error:  # pytest is missing
        raise Refusal(str(error)) from error


def watched(workspace: Workspace, chapter: Chapter, ref_deps: bool, as_json: bool) -> Answer:
    """Run at each save until the user ends it; the last outcome's status."""
    last = Answer(1, [])

    def once() -> None:
        nonlocal last
        try:
            last = run(workspace, chapter, ref_deps, runner)
        except (Refusal, OSError) as error:  # half a save: go on watching
            last = Answer(getattr(error, "status", 1), [f"ol: {error}"], {"refused": str(error)})
        show(last, as_json)

    found = sources(workspace, chapter, ref_deps)
    with _runner() as runner:
        out = sys.stderr if as_json else sys.stdout
        watch(list(found.own.values()), once, out)
    return Answer(last.status, [], last.data)


def place(message: str, path: Path) -> tuple[int, str] | None:
    """Line number in the learner's file where a test failed, and that line."""
    tail = re.escape("/".join(path.parts[-2:]))
    found = re.findall(rf"{tail}:(\d+): ", message.replace("\\", "/"))
    if not found:
        return None
    number = int(found[-1])
    lines = path.read_text(encoding="utf-8").splitlines()
    return number, lines[number - 1].strip() if number <= len(lines) else ""


def takeaways(chapter: Chapter) -> list[dict[str, Any]]:
    """The chapter's key takeaways, each with the tests that show it."""
    path = COURSE / "takeaways.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return list(known.get(chapter.id, []))


STATES = {
    "caught": "failed",
    "missed": "passed",
    "timeout": "too slow",
    "crashed": "crashed",
    "unbuildable": "cannot be imported",
}


def report(workspace: Workspace, chapter: Chapter, found: Sources, verdict: Verdict) -> Answer:
    """The outcome in words and as data."""
    path = found.own[chapter.id]
    lines = [str(chapter), f"tested: {path}", f"tests:  {chapter.course_tests}"]
    lines += [f"with your {n}: {p}" for n, p in found.own.items() if n != chapter.id]
    lines += found.lines()
    failures = [_failure(chapter, path, name, verdict) for name in verdict.failed]
    groups: dict[str, list[dict[str, Any]]] = {}
    for failure in failures:
        groups.setdefault(function_name(f"::{failure['test']}"), []).append(failure)
    for group in groups.values():
        lines += ["", *_in_words(workspace, path, group[0])]
        if len(group) > 1:
            lines.append(f"  and {len(group) - 1} more of its cases")
    lines.append("")
    if verdict.detail and verdict.state != "missed":
        lines.append(f"{STATES[verdict.state]}: {verdict.detail}")
    count = f"{len(verdict.passed)} passed, {len(failures)} failed in {verdict.seconds:.1f} s"
    passed = verdict.state == "missed"
    lines.append(paint(count, "green" if passed else "red"))
    data = {
        "chapter": chapter.id,
        "state": STATES[verdict.state],
        "passed": len(verdict.passed),
        "failed": len(failures),
        "failures": failures,
        "tested": str(path),
        "tests": str(chapter.course_tests),
        "own": {name: str(file) for name, file in found.own.items()},
        "from_the_book": found.needed + found.tools,
        "detail": verdict.detail,
        "seconds": round(verdict.seconds, 3),
    }
    return Answer(0 if passed else 1, lines, data)


def _failure(chapter: Chapter, path: Path, name: str, verdict: Verdict) -> dict[str, Any]:
    message = verdict.messages[name]
    where = place(message, path)
    guards = [t["text"] for t in takeaways(chapter) if function_name(name) in t["tests"]]
    return {
        "test": name.partition("::")[2],
        "line": where and where[0],
        "code": where and where[1],
        "says": error_line(message),
        "takeaways": guards,
    }


def _in_words(workspace: Workspace, path: Path, failure: Mapping[str, Any]) -> list[str]:
    lines = [paint(failure["test"], "red")]
    if failure["line"]:
        lines.append(f"  {workspace.shown(path)}:{failure['line']}: {failure['code']}")
    says = failure["says"]
    lines.append(f"  {says if len(says) < 300 else says[:300] + ' ...'}")
    return lines + [f"  takeaway: {text}" for text in failure["takeaways"]]
