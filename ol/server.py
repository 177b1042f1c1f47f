# Tangled from book/workshop/mutants.md
"""The warmed parent of the processes of jobs, and how a process begins that has no such parent."""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import json
import os
import select
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ol import apart
from ol.jobs import Job
from ol.worker import be_job, kill_group, pytest_arguments, silence, state_of, test_files

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

    def up(self, tests: Sequence[str], root: str, warm: Sequence[str]) -> None:
        """Import what the tests will import, and these modules of the package at the root."""
        state = (tuple(tests), state_of(tests))
        if state in self.seen:
            return
        self.seen.add(state)
        names = {"numpy", "pytest"}.union(_imports(tests)) - self.done
        names = names.union(*(_LATE.get(name, set()) for name in names))
        if warm:
            sys.path.insert(0, root)
        for name in [*sorted(names), *warm]:
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
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "test_nothing.py")
            Path(path).write_text("def test_nothing(): pass\n", encoding="utf-8")
            pytest = importlib.import_module("pytest")
            os.chdir(folder)
            pytest.main(pytest_arguments(Job("", (path,)), self.folder))
            os.chdir(self.folder)


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


class _Server:
    """The warmed parent: forks for each line of JSON, and answers when the child has ended."""

    def __init__(self, folder: str, limits: dict[str, Any]):
        self.folder, self.limits = folder, limits
        self.warmth = _Warmth(folder, children=True)
        self.channel = socket.socket(fileno=os.dup(0))
        silence()

    def serve(self) -> None:
        """Until the other end of the socket is closed."""
        while True:
            line, files, _, _ = socket.recv_fds(self.channel, 1 << 20, 2)
            if not line:
                return
            row, begun = json.loads(line), time.monotonic()
            self.warmth.up(row["tests"], row["root"], row["warm"])
            status = self.run(row, *files)
            answer = json.dumps([status, time.monotonic() - begun])
            with contextlib.suppress(OSError):  # then nobody wants to know
                self.channel.send(answer.encode())

    def run(self, row: dict[str, Any], order: int, report: int) -> int | None:
        """Fork for a job; the child's exit status, None if it was stopped."""
        hidden = bool(self.limits.get("apart"))
        here = "/scratch/job" if hidden else os.path.join(self.folder, f"job-{row['number']}")
        pid = apart.fork() if hidden else os.fork()
        if pid == 0:
            try:
                os.setsid()
                self.channel.close()
                if self.limits:
                    apart.restrict(self.limits)
                be_job(order, report, self.folder, here)
            finally:
                os._exit(1)
        os.close(order)
        os.close(report)
        child = os.pidfd_open(pid)
        awaited: list[Any] = [child, self.channel]
        select.select(awaited, [], [], 4 * row["seconds"])
        os.close(child)
        ended, code = os.waitpid(pid, os.WNOHANG)
        kill_group(pid)
        if not ended:
            os.waitpid(pid, 0)
        if not hidden:
            shutil.rmtree(here, ignore_errors=True)
        status = os.waitstatus_to_exitcode(code)
        status = 128 - status if hidden and status > 128 else status
        return status if ended else None


def main(verb: str, folder: str, words: str) -> None:
    """Serve jobs from this process, or be one."""
    facts = json.loads(words)
    if verb == "serve":
        _Server(folder, facts).serve()
        os._exit(0)  # taking torch apart would last a second
    order, report = os.dup(0), os.dup(1)
    _Warmth(folder, children=False).up(facts["tests"], facts["root"], facts["warm"])
    if facts["limits"]:
        apart.restrict(facts["limits"])
    be_job(order, report, folder, os.path.join(folder, f"job-{facts['number']}"))


if __name__ == "__main__":
    main(*sys.argv[1:])
