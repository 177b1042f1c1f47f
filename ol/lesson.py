# Tangled from book/workshop/ol.md
"""`ol tests`: the course's tests against the learner's module."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from ol import hints, overlay
from ol.jobs import Job, Verdict, error_line, judge
from ol.registry import Answer, Chapter, Refusal, chapters, closure
from ol.runner import environment
from ol.status import state_of, status
from ol.terminal import paint, show
from ol.worker import PYTEST_INI, imported, kill_group, stamp
from ol.workspace import Workspace, digest, text_of


@dataclass(frozen=True)
class How:
    """How pytest is run."""

    arguments: tuple[str, ...] = ()  # passed to it
    quiet: bool = False  # what it prints is kept, not shown
    over: Callable[[], bool] | None = None  # asked ten times a second whether it shall end now


def sources(workspace: Workspace, chapter: Chapter) -> dict[str, Path]:
    """Chapter -> the learner's file, the chapter's own first. Refusal if one is missing that is needed."""
    module = workspace.written(chapter)
    needed, tools = workspace.missing(chapter)
    needed.sort(key=[*chapter.needs, *needed].index)  # what it needs itself comes first
    if needed and not workspace.state["ref_deps"]:
        lines = [f"{chapter.id} needs {name}: build it, or pass --ref-deps" for name in needed]
        raise Refusal("\n".join(lines), chapter=chapter.id, needs=needed)
    others = closure([*chapter.needs, *chapter.test_needs])
    built = [name for name in others if name not in (*needed, *tools)]
    return {chapter.id: module} | {n: workspace.module(chapters()[n]) for n in built}


SECONDS = 60  # for one test
GIBIBYTES = 4  # for the tests that are marked `memory`


def pytest(
    tests: Path, own: Mapping[str, Path], how: How, header: Sequence[str]
) -> tuple[Verdict, str]:
    """Run tests with the learner's modules; what came of it, and what was printed if it was kept."""
    begun, token = time.monotonic(), secrets.token_hex(8)
    with tempfile.TemporaryDirectory(prefix="ol-", ignore_cleanup_errors=True) as folder:
        ini, told, printed = (Path(folder, n) for n in ("pytest.ini", "told", "printed"))
        limit = f"faulthandler_timeout = {SECONDS}\nfaulthandler_exit_on_timeout = true\n"
        ini.write_text(PYTEST_INI + limit, encoding="utf-8")
        told.touch()
        job = Job("", (str(tests),), explain=True, seconds=SECONDS)
        asked: dict[str, Any] = {"job": asdict(job), "token": token, "told": str(told)}
        asked |= {"header": header, "gibibytes": GIBIBYTES}
        home = tests.parent
        command = [
            *(sys.executable, "-P", "-m", "pytest", "-c", str(ini), f"--basetemp={folder}/tmp"),
            *(f"--rootdir={home}", f"--confcutdir={home}", "--import-mode=importlib"),
            *("-p", "no:cacheprovider", "-p", "ol.learner", "-rN", *how.arguments, str(tests)),
        ]
        env = environment() | overlay.environment(own) | {overlay.RUN: json.dumps(asked)}
        env |= {"CI": "true", "HYPOTHESIS_STORAGE_DIRECTORY": folder}  # nothing cut, nothing random
        with printed.open("wb") as kept:
            status = _wait_for(command, env, kept if how.quiet else None, how.over)
        output = told.read_bytes()
        hung = status == 1 and b'"end"' not in output  # so ends pytest's faulthandler
        verdict = judge(job, token, output, None if hung else status, time.monotonic() - begun)
        if status is None:
            said = verdict.detail.replace(f"after {SECONDS} s", "by the save")
            verdict = replace(verdict, detail=said)
        return verdict, printed.read_text(encoding="utf-8", errors="replace")


def _wait_for(
    command: list[str], env: Mapping[str, str], out: Any, over: Callable[[], bool] | None
) -> int | None:
    """Run a command; its exit status, None if it was over before it had ended."""
    alone = over is not None  # else the debugger wants the terminal
    with subprocess.Popen(
        command, env=env, stdout=out, stderr=out, start_new_session=alone
    ) as process:
        try:
            while process.poll() is None and not (over and over()):
                time.sleep(0.1)
            return process.poll()
        finally:
            kill_group(process.pid)  # with what the tests have started


def tests(
    workspace: Workspace,
    chapter: Chapter,
    watch: bool,
    k: str | None,
    options: list[str] | None,
    json: bool,
    command: list[str],
) -> Answer:
    """`ol tests`, now or at each save; what stands after -- goes to pytest as it is."""
    how = How((*(options or ()), *(("-k", k) if k else ()), *command), quiet=json)
    return (watched if watch else run)(workspace, chapter, how)


def run(workspace: Workspace, chapter: Chapter, how: How) -> Answer:
    """Run the course's tests; what passed is remembered."""
    own, tests = sources(workspace, chapter), chapter.course_tests
    require_installed(chapter)
    module_hash = digest([own[chapter.id]])
    text_of(own[chapter.id])
    others = [f"with your {name}: {path}" for name, path in own.items() if name != chapter.id]
    head = [f"tested: {own[chapter.id]}", *others, *workspace.borrowed(chapter)]
    apart = "mark.memory" in tests.read_text(encoding="utf-8") and "-k" not in how.arguments
    first = replace(how, arguments=("-m", "not memory", *how.arguments)) if apart else how
    verdict, text = pytest(tests, own, first, head)
    state = STATES[verdict.state]
    if apart and verdict.state == "missed":
        step = f"memory: within {GIBIBYTES} GiB and {SECONDS} s a test"
        how = replace(how, arguments=("-m", "memory", *how.arguments))
        more, also = pytest(tests, own, how, [step])
        text += also
        state = BUT if more.state != "missed" else state
        verdict = replace(more, passed=verdict.passed + more.passed)
    if state in (STATES["missed"], BUT) and "-k" not in how.arguments:
        but = [BUT.removeprefix("passed ")] if state == BUT else []
        workspace.passed(chapter, module_hash, *but)
    return report(workspace, chapter, verdict, state, text)


def require_installed(chapter: Chapter) -> None:
    """Refusal if the course's tests are not there, or what they import."""
    if not chapter.course_tests.exists():
        raise Refusal(f"the course's tests are not installed: {chapter.course_tests} is not there")
    if missing := absent(chapter.course_tests):
        words = " and ".join("compare with torch" if n == "torch" else f"use {n}" for n in missing)
        raise Refusal(
            f"{chapter.id}'s tests {words}: pip install {' '.join(missing)}", missing=missing
        )


def absent(tests: Path) -> list[str]:
    """What the tests import and is not installed."""
    tops = {name.partition(".")[0] for name in imported(tests) | {"pytest"}}
    tops -= set(sys.stdlib_module_names)
    return sorted(name for name in tops if importlib.util.find_spec(name) is None)


def watched(workspace: Workspace, chapter: Chapter, how: How) -> Answer:
    """Run at each save until the user ends it; the last outcome's status."""
    last, paths = Answer(1, []), list(map(str, sources(workspace, chapter).values()))
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            seen = stamp(paths)

            def saved(seen: int = seen) -> bool:
                return stamp(paths) != seen

            try:
                last = run(workspace, chapter, replace(how, over=saved))
            except (Refusal, OSError) as error:  # half a save: go on watching
                status = getattr(error, "status", 1)
                last = Answer(status, [f"ol: {error}"], {"refused": str(error)})
            show(last, how.quiet)
            out = sys.stderr if how.quiet else sys.stdout
            print(f"watching {', '.join(paths)}; Ctrl-C ends", file=out, flush=True)
            while not saved():
                time.sleep(0.2)
            time.sleep(0.1)
    return Answer(last.status, [], last.data)


def command(workspace: Workspace, chapter: Chapter | None, command: Sequence[str]) -> NoReturn:
    """`ol run`: run a command with the learner's modules, and end with its exit status."""
    if not command:
        raise Refusal("which command? ol run L5.3 -- python x.py", 2)
    own = workspace.own(chapter)
    print(f"yours: {', '.join(own) or 'none'}; the rest is the book's", file=sys.stderr, flush=True)
    raise SystemExit(subprocess.call(command, env=os.environ | overlay.environment(own)))


STATES = {
    "caught": "failed",
    "missed": "passed",
    "timeout": "too slow",
    "crashed": "crashed",
    "unbuildable": "cannot be imported",
}
BUT = "passed but for memory"


def report(
    workspace: Workspace, chapter: Chapter, verdict: Verdict, state: str, text: str
) -> Answer:
    """The outcome as data, and what there is to say after pytest's own words."""
    lines, told = hints.on(workspace, chapter, verdict) if verdict.state != "missed" else ([], {})
    passed = state in (STATES["missed"], BUT)
    detail = "" if verdict.state == "unbuildable" else verdict.detail
    words = ": ".join(filter(None, [f"{chapter.id} {state}", detail]))
    lines.append(paint(words, {BUT: "yellow"}.get(state, "green" if passed else "red")))
    row = state_of(workspace, chapter)
    if row["state"] == "built" and passed:
        step = f"ol check {chapter.id}" if not row["done"] else status(workspace).data["next"]
        lines.append(f"next: {step}" if step else "every chapter is done")
    failures = [
        {"test": name.partition("::")[2], "says": error_line(verdict.messages[name])}
        for name in verdict.failed
    ]
    data = {
        "chapter": chapter.id,
        "state": state,
        "passed": len(verdict.passed),
        "failed": len(failures),
        "failures": failures,
        "detail": verdict.detail,
        "output": text,
    }
    return Answer(0 if passed else 1, ["", *lines], data | told)
