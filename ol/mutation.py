# Tangled from book/workshop/mutants.md
"""Mutation testing: does any test fail when the code is wrong?

A mutant is a module with one fault in it. `Runner` runs tests with the mutant in the module's
place, each mutant in a process of its own, and says which tests failed. Only the standard library
is imported here; pytest, and what the tests need, is imported in other processes.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import importlib.util
import itertools
import json
import math
import os
import random
import re
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

COURSE = Path(__file__).resolve().parent / "course"  # chapters.toml, mutants/
ROOT = COURSE.parents[1]  # the folder that holds both packages


# ---- patches


class PatchError(ValueError):
    """A patch does not fit the text that it is to change."""


_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")


def apply_patch(text: str, patch: str) -> str:
    """The text with a unified diff of one file applied, at exactly the lines that the diff names.

    PatchError if a line that the diff keeps or removes is not there as it stands in the diff.
    """
    lines, rows = _lines(text), _lines(patch)
    result: list[str] = []
    at = row = hunks = 0
    while row < len(rows):
        head = _HUNK.match(rows[row])
        row += 1
        if head is None:
            continue  # the two lines with the file's name
        hunks += 1
        start, old, new = int(head[1]), int(head[2] or 1), int(head[3] or 1)
        first = start - 1 if old else start  # where nothing is removed, the line before is named
        result += lines[at:first]
        at = first
        while old > 0 or new > 0:
            sign, line, row = _patch_line(rows, row, head[0])
            if sign != "+":
                if lines[at : at + 1] != [line]:
                    raise _misfit(lines, at, line)
                at, old = at + 1, old - 1
            if sign != "-":
                result.append(line)
                new -= 1
    if not hunks:
        raise PatchError("the patch has no hunk: a line like @@ -3,7 +3,7 @@ opens one")
    return "".join(result + lines[at:])


def _patch_line(rows: list[str], row: int, hunk: str) -> tuple[str, str, int]:
    """Sign and text of the line at `row` of a patch, and where the next one is."""
    if row == len(rows):
        raise PatchError(f"the patch ends within the hunk {hunk}")
    sign, line = rows[row][0], rows[row][1:]
    if sign == "\n":  # an editor cut the space of an empty line off
        sign, line = " ", "\n"
    if sign not in " +-":
        raise PatchError(f"line {row + 1} of the patch begins with {sign!r}, not a space, + or -")
    if row + 1 < len(rows) and rows[row + 1].startswith("\\"):  # No newline at end of file
        return sign, line.removesuffix("\n"), row + 2
    return sign, line, row + 1


def _lines(text: str) -> list[str]:
    return re.findall(r".*\n|.+", text)  # splitlines would also split at form feeds


def _misfit(lines: list[str], at: int, wanted: str) -> PatchError:
    there = f"is {lines[at].rstrip()!r}" if at < len(lines) else "is past the end"
    return PatchError(
        f"the patch was made for another text: line {at + 1} {there}, "
        f"where the patch has {wanted.rstrip()!r}"
    )


# ---- mutants


@dataclass(frozen=True)
class Mutant:
    """A module with one fault, which a pitfall of a chapter describes."""

    chapter: str  # L5.3
    name: str  # s01
    path: str  # tinyllm/xfmr/mha.py
    source: str  # the text of that file, with the fault
    facts: Mapping[str, Any] = field(repr=False, compare=False)  # pitfall, caught_by, hint, ...

    def __str__(self) -> str:
        return f"{self.chapter}/{self.name}"

    @property
    def module(self) -> str:
        """The name that the file is imported by."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def read_chapters() -> dict[str, dict[str, Any]]:
    """The header facts of every chapter by its id, as the package holds them."""
    return tomllib.loads((COURSE / "chapters.toml").read_text(encoding="utf-8"))


def seeded_mutants(chapter: str) -> list[Mutant]:
    """The mutants of a chapter's pitfalls. PatchError, with the mutant's name, if one does not fit."""
    found = []
    for name, facts in read_chapters()[chapter].get("mutants", {}).items():
        patch = (COURSE / "mutants" / chapter / f"{name}.patch").read_text(encoding="utf-8")
        target = re.search(r"^\+\+\+ b/(.+)$", patch, re.MULTILINE)
        try:
            if target is None:
                raise PatchError("the line that names the file is missing: +++ b/tinyllm/...")
            text = (ROOT / target[1]).read_text(encoding="utf-8")
            found.append(Mutant(chapter, name, target[1], apply_patch(text, patch), facts))
        except PatchError as error:
            raise PatchError(f"mutant {chapter}/{name}: {error}") from error
    return found


def course_tests(chapter: str) -> Path:
    """The file of the chapter's own tests: in the checkout, or in the installed package."""
    path: str = read_chapters()[chapter]["tests"]
    return ROOT / path if (ROOT / path).exists() else COURSE / path


# ---- jobs and verdicts


@dataclass(frozen=True)
class Job:
    """Tests to run, and what to put in the place of modules."""

    name: str
    tests: tuple[str, ...]  # files or folders
    modules: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # name -> (file, text)
    root: str = str(ROOT)  # the folder that all other modules come from
    only: tuple[str, ...] = ()  # functions: no others are run
    first: tuple[str, ...] = ()  # functions: these are run before the others
    stop: bool = False  # at the first test that fails
    explain: bool = False  # tracebacks, with the values that an assert compared
    seconds: float = 60.0  # of processor time; four times as long by the clock


def job_for(mutant: Mutant, tests: Sequence[str | Path] = (), **options: Any) -> Job:
    """The job that runs tests, by default the chapter's own, with the mutant in place."""
    files = tuple(str(path) for path in tests or [course_tests(mutant.chapter)])
    shown = f"{ROOT / mutant.path} [{mutant.chapter} {mutant.name}]"  # in tracebacks
    return Job(str(mutant), files, {mutant.module: (shown, mutant.source)}, **options)


State = Literal["caught", "missed", "timeout", "crashed", "unbuildable"]


@dataclass(frozen=True)
class Verdict:
    """What came of a job.

    caught: a test failed. missed: tests were run, and all passed. Else no test failed, and
    timeout: the time was over; crashed: the process ended early, or no test could be run;
    unbuildable: a module of the job cannot be imported.
    """

    job: str
    state: State
    failed: tuple[str, ...] = ()  # test_mha.py::test_masks[causal], in the order of the run
    passed: tuple[str, ...] = ()
    messages: Mapping[str, str] = field(default_factory=dict)  # failed test -> what it said
    detail: str = ""  # what else there is to say: which test crashed, which was not found
    seconds: float = 0.0  # by the clock

    @property
    def failed_functions(self) -> frozenset[str]:
        """The functions whose tests failed, without file, class and parameters."""
        return frozenset(map(function_name, self.failed))


def function_name(test: str) -> str:
    """The function of a test: test_masks for test_mha.py::TestMasks::test_masks[causal]."""
    return test.partition("[")[0].rpartition("::")[2]


# ---- in the process of one job


class _Replaced(MetaPathFinder, Loader):
    """Imports modules from texts."""

    def __init__(self, modules: Mapping[str, tuple[str, str]]):
        self.modules = modules

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self.modules:
            return None
        return importlib.util.spec_from_file_location(name, self.modules[name][0], loader=self)

    def exec_module(self, module: ModuleType) -> None:
        file, text = self.modules[module.__name__]
        exec(compile(text, file, "exec"), module.__dict__)

    def get_source(self, name: str) -> str:
        return self.modules[name][1]


Send = Callable[[Mapping[str, Any]], None]


class _Reporter:
    """A pytest plugin that chooses the tests, and sends what comes of them."""

    def __init__(self, job: Job, send: Send):
        self.job, self.send = job, send

    def pytest_configure(self, config: Any) -> None:
        config.option.tbstyle = "short" if self.job.explain else "native"  # which is quicker

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        job = self.job
        names = {item: function_name(item.nodeid) for item in items}
        absent = {*job.only, *job.first} - set(names.values())
        if absent:
            self.send({"problem": f"no test is called {', '.join(sorted(absent))}"})
        if job.only:
            items[:] = [item for item in names if names[item] in job.only]
            left_out = [item for item in names if names[item] not in job.only]
            config.hook.pytest_deselected(items=left_out)
        items.sort(key=lambda item: names[item] not in job.first)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            message = _message(report, self.job.explain)
            self.send({"problem": f"{report.nodeid} cannot be imported: {message}"})

    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        self.send({"problem": f"a test stopped the run: {excinfo.typename}"})

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.send({"begun": nodeid})

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:  # the test, or what was set up for it
            message = _message(report, self.job.explain)
            self.send({"failed": report.nodeid, "message": message})
        elif report.passed and report.when == "call":
            self.send({"passed": report.nodeid})


def _message(report: Any, explain: bool) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(report.longreprtext if explain or crash is None else crash.message)
    return text if len(text) < 4000 else text[:2000] + "\n...\n" + text[-2000:]


_PYTEST_INI = """\
[pytest]
filterwarnings = error
xfail_strict = true
markers =
    slow
    browser
"""


def _pytest_arguments(job: Job, folder: str) -> list[str]:
    home = os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in job.tests])
    return [
        *("-c", os.path.join(folder, "pytest.ini"), f"--rootdir={home}", f"--confcutdir={home}"),
        "--import-mode=importlib",
        "--capture=no",  # the process has no standard output
        f"--basetemp={os.path.join(os.getcwd(), 'tmp')}",
        *("-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:faulthandler"),
        *([] if job.explain else ["--assert=plain"]),
        *(["--maxfail=1"] if job.stop else []),
        *job.tests,
    ]


def _run_tests(job: Job, folder: str, send: Send) -> None:
    """Run the job in this process, which is for nothing else; `send` takes what there is to tell."""
    _limit(job.seconds)
    sys.path.insert(0, job.root)
    os.environ["PYTHONPATH"] = job.root  # for processes that a test starts
    sys.meta_path.insert(0, _Replaced(job.modules))
    _seed(job)
    absent = [path for path in job.tests if not os.path.exists(path)]
    if absent:
        send({"problem": f"there is no {', '.join(absent)}"})
    try:
        for module in job.modules:
            importlib.import_module(module)
    except BaseException as error:
        send({"unbuildable": f"{type(error).__name__}: {error}"})
        return
    pytest = importlib.import_module("pytest")
    send({"end": int(pytest.main(_pytest_arguments(job, folder), plugins=[_Reporter(job, send)]))})


def _limit(seconds: float) -> None:
    """Let the system end this process when it has used its time, where the system can."""
    with contextlib.suppress(ImportError):
        import resource

        soft = math.ceil(time.process_time() + seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, soft + 5))


def _seed(job: Job) -> None:
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
    if "hypothesis" in sys.modules:
        hypothesis = sys.modules["hypothesis"]
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        if job.explain:
            phases.append(hypothesis.Phase.shrink)  # to a small example, which takes a while
        hypothesis.settings.register_profile(
            "mutation", derandomize=True, database=None, deadline=None, phases=phases
        )
        hypothesis.settings.load_profile("mutation")


def _be_job(job: Job, token: str, folder: str, number: int, pipe: int) -> None:
    """The whole life of a job's process, whichever way it was started. Does not return."""

    def send(row: Mapping[str, Any]) -> None:
        os.write(pipe, f"{token} {json.dumps(row)}\n".encode())

    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nowhere, standard)
        os.mkdir(scratch := _scratch(folder, number))
        os.chdir(scratch)
        sys.dont_write_bytecode = False
        sys.pycache_prefix = os.path.join(folder, f"compiled-{_state_of(job.tests):x}")
        _run_tests(job, folder, send)
    except BaseException as error:
        send({"problem": f"the test run ended: {type(error).__name__}: {error}"})
    finally:
        os._exit(0)


def _scratch(folder: str, number: int) -> str:
    return os.path.join(folder, f"job-{number}")


def _state_of(tests: Sequence[str]) -> int:
    """A number that differs after any change of the test files."""
    state = []
    for path in tests:
        for file in sorted(Path(path).rglob("*.py")) if os.path.isdir(path) else [path]:
            with contextlib.suppress(OSError):
                state.append((str(file), os.stat(file).st_mtime_ns))
    return zlib.crc32(repr(state).encode())


# ---- what came of it


def _verdict(job: Job, token: str, output: bytes, status: int | None, seconds: float) -> Verdict:
    """What the lines of a job's pipe say; `status` is Popen's, None for a process that was stopped."""
    rows = [
        json.loads(line.partition(" ")[2])
        for line in output.decode("utf-8", "replace").split("\n")[:-1]
        if line.startswith(token + " ")
    ]

    def said(key: str) -> list[Any]:
        return [row[key] for row in rows if key in row]

    messages = {row["failed"]: row["message"] for row in rows if "failed" in row}
    failed, problems, end = tuple(messages), said("problem"), said("end")
    passed = tuple(name for name in said("passed") if name not in messages)
    during = f" during {said('begun')[-1]}" if said("begun") else ""
    state: State = "crashed"
    if said("unbuildable"):
        state, problems = "unbuildable", said("unbuildable")
    elif status is None or status == -getattr(signal, "SIGXCPU", 0):
        state = "timeout"
        problems.append(f"stopped after {job.seconds:g} s{during}")
    elif not end:
        problems.append(f"the process ended{during} with {_how(status)}")
    elif not failed and not passed:
        problems.append(f"no test was run (exit code {end[0]} of pytest)")
    elif end[0] == 0 and not problems:
        state = "missed"
    if failed:
        state = "caught"
    return Verdict(job.name, state, failed, passed, messages, "; ".join(problems), seconds)


def _how(status: int) -> str:
    """An exit status of Popen in words."""
    with contextlib.suppress(ValueError):
        if status < 0:
            return signal.Signals(-status).name
    return f"exit status {status}"


# ---- the warmed parent


_WARM = {"hypothesis", "numpy", "pytest", "safetensors", "scipy", "threadpoolctl", "torch"}
_LATE = {
    "numpy": {"numpy.random", "numpy.testing"},
    "torch": {"torch.fx.experimental.symbolic_shapes"},  # by backward(gradient), with all of sympy
}


class _Warmth:
    """Imports once, in the parent, what the tests of many jobs import."""

    def __init__(self, folder: str, children: bool):
        self.folder, self.children = folder, children
        self.seen: set[tuple[tuple[str, ...], int]] = set()
        self.done: set[str] = set()

    def up(self, job: Job) -> None:
        """Import what the job's tests will import."""
        tests = (tuple(job.tests), _state_of(job.tests))
        if tests in self.seen:
            return
        self.seen.add(tests)
        names = {"numpy", "pytest"}.union(*map(_imports, job.tests)) - self.done
        names = names.union(*(_LATE.get(name, set()) for name in names))
        for name in sorted(names):
            with contextlib.suppress(ImportError):  # the job will say what is missing
                importlib.import_module(name)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        if self.children and not self.done:
            self.run_once()
        self.done |= names
        gc.collect()
        gc.freeze()

    def run_once(self) -> None:
        """Let pytest run a test that does nothing."""
        path = os.path.join(self.folder, "test_nothing.py")
        Path(path).write_text("def test_nothing(): pass\n", encoding="utf-8")
        pytest = importlib.import_module("pytest")
        os.chdir(self.folder)
        pytest.main(_pytest_arguments(Job("", (path,)), self.folder))


def _imports(path: str) -> set[str]:
    """What a file or folder of tests imports of the libraries that are worth importing once."""
    files = sorted(Path(path).rglob("*.py")) if os.path.isdir(path) else [Path(path)]
    names = set()
    for file in files:
        with contextlib.suppress(OSError, SyntaxError, ValueError):  # pytest will say it better
            for node in ast.walk(ast.parse(file.read_bytes())):
                if isinstance(node, ast.Import):
                    names |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in names if name.partition(".")[0] in _WARM}


@dataclass
class _Child:
    """A process that was forked for a job."""

    number: int
    job: Job
    pid: int
    pipe: int
    begun: float
    output: bytearray = field(default_factory=bytearray)

    def read(self) -> bool:
        """Take what is in the pipe; False at its end."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.pipe, 65536):
                self.output += data
            return False
        return True

    def end(self) -> float:
        """When its time is over, by the clock."""
        return self.begun + 4 * self.job.seconds


class _Server:
    """The warmed parent: takes jobs as lines of JSON, forks for each, answers with verdicts."""

    def __init__(self, folder: str):
        self.folder = folder
        self.warmth = _Warmth(folder, children=True)
        self.token = secrets.token_hex(8)
        self.children: dict[int, _Child] = {}
        self.pending = b""
        self.answers = os.dup(1)  # nothing that is imported can print into it
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        self.bell, button = os.pipe()
        for end in (self.bell, button):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(button, warn_on_full_buffer=False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(0, selectors.EVENT_READ)
        self.selector.register(self.bell, selectors.EVENT_READ)

    def serve(self) -> None:
        """Until standard input ends; what is running then is stopped."""
        open_ = True
        while open_:
            ends = [child.end() for child in self.children.values()]
            wait = max(0.0, min(ends) - time.monotonic()) if ends else None
            for key, _ in self.selector.select(wait):
                if key.fd == 0:
                    open_ = self.take_jobs()
                elif key.fd == self.bell:
                    os.read(self.bell, 65536)
                elif not key.data.read():
                    self.selector.unregister(key.fd)
            for child in list(self.children.values()):
                self.look_at(child)
        for child in self.children.values():
            _kill_group(child.pid)

    def take_jobs(self) -> bool:
        """Start what is asked for; False at the end of standard input."""
        data = os.read(0, 1 << 20)
        *lines, self.pending = (self.pending + data).split(b"\n")
        for line in lines:
            row = json.loads(line)
            self.start(row.pop("number"), Job(**row))
        return bool(data)

    def start(self, number: int, job: Job) -> None:
        """Fork for a job."""
        self.warmth.up(job)
        out, into = os.pipe()
        os.set_blocking(out, False)
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                button = signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                self.selector.close()
                for descriptor in (out, self.answers, self.bell, button):
                    os.close(descriptor)
                for other in self.children.values():
                    os.close(other.pipe)
                _be_job(job, self.token, self.folder, number, into)
            finally:
                os._exit(1)
        os.close(into)
        self.children[pid] = child = _Child(number, job, pid, out, time.monotonic())
        self.selector.register(out, selectors.EVENT_READ, child)

    def look_at(self, child: _Child) -> None:
        """Answer for a child that has ended, or whose time is over."""
        pid, status = os.waitpid(child.pid, os.WNOHANG)
        if not pid and time.monotonic() < child.end():
            return
        _kill_group(child.pid)
        if not pid:
            os.waitpid(child.pid, 0)
        child.read()
        with contextlib.suppress(KeyError):  # the pipe was at its end before
            self.selector.unregister(child.pipe)
        os.close(child.pipe)
        del self.children[child.pid]
        shutil.rmtree(_scratch(self.folder, child.number), ignore_errors=True)
        verdict = _verdict(
            child.job,
            self.token,
            bytes(child.output),
            os.waitstatus_to_exitcode(status) if pid else None,
            time.monotonic() - child.begun,
        )
        answer = {"number": child.number, **asdict(verdict)}
        os.write(self.answers, json.dumps(answer).encode() + b"\n")


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


# ---- from outside


class Runner:
    """Runs jobs, several at a time, each in a process of its own.

    With "fork" (the default where it works) a parent process imports once what the tests
    import, and forks for each job. With "spawn" each job pays for its own imports. The verdicts are
    the same. Use it in a `with` block, or call `close`. RuntimeError without pytest.
    """

    def __init__(self, workers: int | None = None, method: Literal["fork", "spawn"] | None = None):
        if importlib.util.find_spec("pytest") is None:
            raise RuntimeError("pytest is missing: pip install 'tinyllm-book[test]'")
        self.workers = workers or _processors()
        forks = hasattr(os, "fork") and sys.platform != "darwin"
        self.method = method or ("fork" if forks else "spawn")
        self._folder = tempfile.TemporaryDirectory(prefix="mutation-", ignore_cleanup_errors=True)
        Path(self._folder.name, "pytest.ini").write_text(_PYTEST_INI, encoding="utf-8")
        self._server: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop what still runs, and remove the working folder."""
        self._stop()
        self._folder.cleanup()

    def run(self, jobs: Iterable[Job]) -> Iterator[Verdict]:
        """The verdicts, each as soon as it is there, so not in the order of the jobs."""
        return self._forked(iter(jobs)) if self.method == "fork" else self._spawned(jobs)

    def _forked(self, jobs: Iterator[Job]) -> Iterator[Verdict]:
        running: dict[int, Job] = {}
        while True:
            while len(running) < self.workers and (job := next(jobs, None)) is not None:
                number = next(self._numbers)
                running[number] = job
                self._send({"number": number, **asdict(job)})
            if not running:
                return
            answer = self._receive()
            if answer is None:
                detail = f"the parent process ended with {_how(self._stop())}"
                for job in running.values():
                    yield Verdict(job.name, "crashed", detail=detail)
                running.clear()
            elif running.pop(answer.pop("number"), None):
                lists = {key: tuple(answer[key]) for key in ("failed", "passed")}
                yield Verdict(**{**answer, **lists})

    def _send(self, row: Mapping[str, Any]) -> None:
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-P", __file__, "serve", self._folder.name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for this process; the other ends with its input
            )
        assert self._server.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # then there will be no answer either
            self._server.stdin.write(json.dumps(row).encode() + b"\n")
            self._server.stdin.flush()

    def _receive(self) -> dict[str, Any] | None:
        assert self._server is not None
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def _stop(self) -> int:
        """End the parent process; its exit status."""
        server, self._server = self._server, None
        if server is None:
            return 0
        with contextlib.suppress(BrokenPipeError), server:  # which closes the pipes and waits
            pass
        return server.wait()

    def _spawned(self, jobs: Iterable[Job]) -> Iterator[Verdict]:
        with ThreadPoolExecutor(self.workers) as pool:
            tasks = [pool.submit(self._spawn, job, next(self._numbers)) for job in jobs]
            try:
                for task in as_completed(tasks):
                    yield task.result()
            finally:
                for task in tasks:
                    task.cancel()

    def _spawn(self, job: Job, number: int) -> Verdict:
        token, begun = secrets.token_hex(8), time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, "job", self._folder.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,
        )
        order = {"number": number, "token": token, **asdict(job)}
        status: int | None = None
        with process:
            try:
                limit = 30 + 4 * job.seconds  # it has its libraries to import
                output, _ = process.communicate(json.dumps(order).encode(), limit)
                status = process.returncode
            except subprocess.TimeoutExpired:
                process.kill()
                if hasattr(os, "killpg"):
                    _kill_group(process.pid)
                output, _ = process.communicate()
        shutil.rmtree(_scratch(self._folder.name, number), ignore_errors=True)
        return _verdict(job, token, output, status, time.monotonic() - begun)


def _processors() -> int:
    with contextlib.suppress(AttributeError):  # not every system has it
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _environment() -> dict[str, str]:
    """The same for every run, whatever the user has set."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in {"PYTHONPATH", "PYTHONWARNINGS"} and not name.startswith("PYTEST_")
    }
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**kept, **one, "PYTHONHASHSEED": "0", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def _main(verb: str, folder: str) -> None:
    if verb == "serve":
        _Server(folder).serve()
        os._exit(0)  # taking torch apart would last a second
    else:
        pipe = os.dup(1)
        order = json.loads(sys.stdin.buffer.read())
        number, token, job = order.pop("number"), order.pop("token"), Job(**order)
        _Warmth(folder, children=False).up(job)
        _be_job(job, token, folder, number, pipe)


if __name__ == "__main__":
    _main(*sys.argv[1:])
