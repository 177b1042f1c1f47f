# Tangled from book/workshop/mutants.md
"""The process of one job: runs pytest, and reports what comes of each test."""

from __future__ import annotations

import ast
import base64
import contextlib
import importlib
import importlib.util
import json
import marshal
import math
import os
import random
import signal
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from ol.apart import limit
from ol.jobs import Job, function_name


class _Replaced(MetaPathFinder, Loader):
    """Imports modules from texts, or from what was compiled of them."""

    def __init__(self, job: Job):
        self.modules, self.sealed = dict(job.modules), job.sealed

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self.modules:
            return None
        return importlib.util.spec_from_file_location(name, self.modules[name][0], loader=self)

    def exec_module(self, module: ModuleType) -> None:
        file, text = self.modules[module.__name__]
        if self.sealed:
            del self.modules[module.__name__]
            code = marshal.loads(base64.b64decode(text))
        else:
            code = compile(text, file, "exec")
        exec(code, module.__dict__)

    def get_source(self, name: str) -> str | None:
        return None if self.sealed else self.modules[name][1]


Send = Callable[[Mapping[str, Any]], None]


class Reporter:
    """A pytest plugin that chooses the tests, and sends what comes of them."""

    def __init__(self, job: Job, send: Send):
        self.job, self.send, self.stopped = job, send, False

    def pytest_configure(self, config: Any) -> None:
        config.option.tbstyle = "short" if self.job.explain else "native"  # which is quicker

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items.sort(key=lambda item: function_name(item.nodeid) in self.job.last)

    def pytest_runtest_setup(self, item: Any) -> None:
        if self.stopped and function_name(item.nodeid) not in self.job.after:
            sys.modules["pytest"].skip("one has failed")

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
            self.stopped = self.job.stop
            message = _message(report, self.job.explain)
            self.send({"failed": report.nodeid, "message": message})
        elif report.passed and report.when == "call":
            self.send({"passed": report.nodeid, "seconds": report.duration})


def _message(report: Any, explain: bool) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(report.longreprtext if explain or crash is None else crash.message)
    return text if len(text) < 4000 else text[:2000] + "\n...\n" + text[-2000:]


PYTEST_INI = """\
[pytest]
filterwarnings = error
xfail_strict = true
markers =
    memory
    slow
    browser
"""


def pytest_arguments(job: Job, folder: str) -> list[str]:
    """How pytest is called; the same for every job on the same tests."""
    home = os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in job.tests])
    return [
        *("-c", os.path.join(folder, "pytest.ini"), f"--rootdir={home}", f"--confcutdir={home}"),
        "--import-mode=importlib",
        "--capture=no",  # the process has no standard output
        f"--basetemp={os.path.join(os.getcwd(), 'tmp')}",
        *("-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:faulthandler"),
        *([] if job.explain else ["--assert=plain"]),
        *(["--maxfail=1"] if job.stop and not job.after else []),
        *job.tests,
    ]


def _run_tests(job: Job, folder: str, send: Send) -> None:
    """Run the job in this process, which is for nothing else; `send` takes what there is to tell."""
    limit(CPU=math.ceil(time.process_time() + job.seconds))  # the system ends this process then
    sys.path.insert(0, job.root)
    os.environ["PYTHONPATH"] = job.root  # for processes that a test starts
    sys.meta_path.insert(0, _Replaced(job))
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
    send({"end": int(pytest.main(pytest_arguments(job, folder), plugins=[Reporter(job, send)]))})


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


def be_job(order: int, report: int, folder: str, here: str) -> None:
    """The whole life of a job's process, whichever way it was started. Does not return."""

    def send(row: Mapping[str, Any]) -> None:
        os.write(report, f"{token}{json.dumps(row)}\n".encode())

    try:
        with open(order, "rb") as file:
            token, facts = json.load(file)
        job = Job(**facts)
        silence()
        os.mkdir(here)
        os.chdir(here)
        if not job.sealed:  # else it is all compiled, and nobody may leave anything to others
            sys.dont_write_bytecode = False
            sys.pycache_prefix = os.path.join(folder, f"compiled-{stamp(job.tests):x}")
        _run_tests(job, folder, send)
    except BaseException as error:
        send({"problem": f"the test run ended: {type(error).__name__}: {error}"})
    finally:
        os._exit(0)


def silence() -> None:
    """Give this process no input and no output."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    os.close(nowhere)


def kill_group(pid: int) -> None:
    """End a process with all that it has started, where it is the first of its group."""
    with contextlib.suppress(AttributeError, ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def test_files(tests: Sequence[str]) -> list[Path]:
    """The Python files of tests that are files or folders."""
    found = []
    for path in map(Path, tests):
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return found


def imported(file: Path) -> set[str]:
    """The modules that a file of Python imports, and the names out of them: they may be modules too."""
    names = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def stamp(tests: Sequence[str]) -> int:
    """A number that differs after any change of the files."""
    state = []
    for file in test_files(tests):
        with contextlib.suppress(OSError):
            state.append((str(file), file.stat().st_mtime_ns))
    return zlib.crc32(repr(state).encode())
