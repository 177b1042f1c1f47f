# Tangled from book/workshop/mutants.md
"""The warmed parent of the processes of jobs, and how a process begins that has no such parent."""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import json
import os
import secrets
import selectors
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ol.jobs import Job, judge
from ol.worker import be_job, kill_group, pytest_arguments, scratch, state_of, test_files

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
        tests = (tuple(job.tests), state_of(job.tests))
        if tests in self.seen:
            return
        self.seen.add(tests)
        names = {"numpy", "pytest"}.union(_imports(job.tests)) - self.done
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
        pytest.main(pytest_arguments(Job("", (path,)), self.folder))


def _imports(tests: Sequence[str]) -> set[str]:
    """What tests import of the libraries that are worth importing once."""
    names = set()
    for file in test_files(tests):
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
            kill_group(child.pid)

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
                be_job(job, self.token, self.folder, number, into)
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
        kill_group(child.pid)
        if not pid:
            os.waitpid(child.pid, 0)
        child.read()
        with contextlib.suppress(KeyError):  # the pipe was at its end before
            self.selector.unregister(child.pipe)
        os.close(child.pipe)
        del self.children[child.pid]
        shutil.rmtree(scratch(self.folder, child.number), ignore_errors=True)
        verdict = judge(
            child.job,
            self.token,
            bytes(child.output),
            os.waitstatus_to_exitcode(status) if pid else None,
            time.monotonic() - child.begun,
        )
        answer = {"number": child.number, **asdict(verdict)}
        os.write(self.answers, json.dumps(answer).encode() + b"\n")


def main(verb: str, folder: str) -> None:
    """Serve jobs from this process, or be one."""
    if verb == "serve":
        _Server(folder).serve()
        os._exit(0)  # taking torch apart would last a second
    pipe = os.dup(1)
    order = json.loads(sys.stdin.buffer.read())
    number, token, job = order.pop("number"), order.pop("token"), Job(**order)
    _Warmth(folder, children=False).up(job)
    be_job(job, token, folder, number, pipe)


if __name__ == "__main__":
    main(*sys.argv[1:])
