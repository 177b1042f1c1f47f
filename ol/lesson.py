# Tangled from book/workshop/ol.md
"""`ol tests`: the course's tests against the learner's module."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ol import hints, overlay
from ol.jobs import Job, Verdict, error_line, function_name, judge
from ol.registry import COURSE, Answer, Chapter, Refusal, chapters, closure
from ol.runner import environment
from ol.status import state_of, status
from ol.terminal import paint, show
from ol.watch import watch
from ol.worker import PYTEST_INI, kill_group
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


@dataclass(frozen=True)
class How:
    """How pytest is run."""

    arguments: tuple[str, ...] = ()  # passed to it
    quiet: bool = False  # what it prints is kept, not shown
    over: Callable[[], bool] | None = None  # asked ten times a second whether it shall end now


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


SECONDS = 60  # for one test
GIBIBYTES = 4  # for the tests that are marked `memory`


def pytest(name: str, tests: Path, found: Sources, how: How, header: str) -> tuple[Verdict, str]:
    """Run tests with the learner's modules; what came of it, and what was printed if it was kept."""
    begun, token = time.monotonic(), secrets.token_hex(8)
    with tempfile.TemporaryDirectory(prefix="ol-", ignore_cleanup_errors=True) as folder:
        ini, told, printed = (Path(folder, n) for n in ("pytest.ini", "told", "printed"))
        limit = f"faulthandler_timeout = {SECONDS}\nfaulthandler_exit_on_timeout = true\n"
        ini.write_text(PYTEST_INI + limit, encoding="utf-8")
        told.touch()
        job = Job(name, (str(tests),), explain=True, seconds=SECONDS)
        lines = [
            header,
            *(f"with your {n}: {p}" for n, p in found.own.items() if n != name),
            *found.lines(),
        ]
        asked: dict[str, Any] = {"job": asdict(job), "token": token, "told": str(told)}
        asked |= {"header": lines, "gibibytes": GIBIBYTES}
        command = [
            *(sys.executable, "-P", "-m", "pytest", "-c", str(ini), f"--rootdir={tests.parent}"),
            *(
                f"--confcutdir={tests.parent}",
                f"--basetemp={folder}/tmp",
                "--import-mode=importlib",
            ),
            *("-p", "no:cacheprovider", "-p", "ol.learner", "-rN", *how.arguments, str(tests)),
        ]
        env = environment() | overlay.environment(found.own) | {overlay.RUN: json.dumps(asked)}
        env |= {"CI": "true", "HYPOTHESIS_STORAGE_DIRECTORY": folder}  # nothing cut, nothing random
        with printed.open("wb") as kept:
            out = kept if how.quiet else None
            apart = how.over is not None
            with subprocess.Popen(
                command, env=env, stdout=out, stderr=out, start_new_session=apart
            ) as process:
                try:
                    while how.over is not None and process.poll() is None and not how.over():
                        time.sleep(0.1)
                    status = process.wait() if not apart else process.poll()
                finally:
                    if apart:
                        kill_group(process.pid)  # with what the tests have started
        output = told.read_bytes()
        hung = status == 1 and b'"end"' not in output  # so ends pytest's faulthandler
        verdict = judge(job, token, output, None if hung else status, time.monotonic() - begun)
        if status is None:
            verdict = replace(
                verdict, detail=verdict.detail.replace("after 60 s", "by the save or the key")
            )
        return verdict, printed.read_text(encoding="utf-8", errors="replace")


def run(workspace: Workspace, chapter: Chapter, ref_deps: bool, how: How) -> Answer:
    """Run the course's tests; what passed is remembered."""
    found, tests = sources(workspace, chapter, ref_deps), chapter.course_tests
    if not tests.exists():
        raise Refusal(f"the course's tests are not installed: {tests} is not there")
    if missing := absent(tests):
        others = "".join(f"use {name} and " for name in missing if name != "torch")
        words = others + "compare with torch" if "torch" in missing else others[:-5]
        raise Refusal(
            f"{chapter.id}'s tests {words}: pip install {' '.join(missing)}", missing=missing
        )
    module_hash = digest([found.own[chapter.id]])
    text_of(found.own[chapter.id])
    head = f"tested: {found.own[chapter.id]}"
    apart = "mark.memory" in tests.read_text(encoding="utf-8") and "-k" not in how.arguments
    first = replace(how, arguments=("-m", "not memory", *how.arguments)) if apart else how
    verdict, text = pytest(chapter.id, tests, found, first, head)
    state = STATES[verdict.state]
    if apart and verdict.state == "missed":
        step = f"memory: within {GIBIBYTES} GiB and {SECONDS} s a test"
        how = replace(how, arguments=("-m", "memory", *how.arguments))
        more, also = pytest(chapter.id, tests, found, how, step)
        text += also
        if more.state != "missed":
            state = BUT
        more = replace(more, passed=verdict.passed + more.passed)
        verdict = replace(more, seconds=verdict.seconds + more.seconds)
    if state in (STATES["missed"], BUT) and "-k" not in how.arguments:
        workspace.passed(chapter, module_hash, *([BUT.removeprefix("passed ")] * (state == BUT)))
    return report(workspace, chapter, found, verdict, state, text)


def absent(tests: Path) -> list[str]:
    """What the tests import and is not installed."""
    tree = ast.parse(tests.read_bytes())
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {str(n.module) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    tops = {name.partition(".")[0] for name in names | {"pytest"}} - set(sys.stdlib_module_names)
    return sorted(name for name in tops if importlib.util.find_spec(name) is None)


def watched(workspace: Workspace, chapter: Chapter, ref_deps: bool, how: How) -> Answer:
    """Run at each save until the user ends it; the last outcome's status."""
    last = Answer(1, [])

    def once(over: Callable[[], bool]) -> None:
        nonlocal last
        try:
            last = run(workspace, chapter, ref_deps, replace(how, over=over))
        except (Refusal, OSError) as error:  # half a save: go on watching
            last = Answer(getattr(error, "status", 1), [f"ol: {error}"], {"refused": str(error)})
        show(last, how.quiet)

    paths = list(sources(workspace, chapter, ref_deps).own.values())
    watch(paths, once, sys.stderr if how.quiet else sys.stdout)
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
BUT = "passed but for memory"


def report(
    workspace: Workspace, chapter: Chapter, found: Sources, verdict: Verdict, state: str, text: str
) -> Answer:
    """The outcome as data, and what there is to say after pytest's own words."""
    path = found.own[chapter.id]
    failures = [_failure(chapter, path, name, verdict) for name in verdict.failed]
    shown = dict.fromkeys(told for failure in failures for told in failure["takeaways"])
    lines = ["", *(f"takeaway: {told}" for told in shown)]
    given = hints.given(workspace, chapter, verdict)
    lines += [line for one in given for line in one["lines"]]
    at = next((f["line"] for f in failures if f["line"]), 0)
    where = hints.section(chapter, [one["mutant"] for one in given], path, at)
    if verdict.state != "missed":
        lines.append(f"read: {where}")
    passed = state in (STATES["missed"], BUT)
    detail = "" if verdict.state == "unbuildable" else verdict.detail
    words = ": ".join(filter(None, [f"{chapter.id} {state}", detail]))
    lines.append(paint(words, {BUT: "yellow"}.get(state, "green" if passed else "red")))
    row, step = state_of(workspace, chapter), ""
    if row["state"] == "built" and passed:
        step = f"ol check {chapter.id}" if not row["done"] else status(workspace).data["next"]
        lines.append(f"next: {step}" if step else "every chapter is done")
    data = {
        "chapter": chapter.id,
        "state": state,
        "passed": len(verdict.passed),
        "failed": len(failures),
        "failures": failures,
        "hints": given,
        "read": where,
        "tested": str(path),
        "tests": str(chapter.course_tests),
        "own": {name: str(file) for name, file in found.own.items()},
        "from_the_book": found.needed + found.tools,
        "detail": verdict.detail,
        "output": text,
        "next": step,
        "seconds": round(verdict.seconds, 3),
    }
    return Answer(0 if passed else 1, lines, data)


def _failure(chapter: Chapter, path: Path, name: str, verdict: Verdict) -> dict[str, Any]:
    message = verdict.messages[name]
    where = place(message, path)
    told = [] if "NotImplementedError" in error_line(message) else takeaways(chapter)
    guards = [t["text"] for t in told if function_name(name) in t["tests"]]
    return {
        "test": name.partition("::")[2],
        "line": where and where[0],
        "code": where and where[1],
        "says": error_line(message),
        "takeaways": guards,
    }
