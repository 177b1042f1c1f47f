# Tangled from book/workshop/mutants.md
"""The warmed parent of the processes of jobs, and how a process begins that has no such parent."""

from __future__ import annotations

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
from ol.worker import (
    be_job,
    imported,
    kill_group,
    pytest_arguments,
    silence,
    stamp,
    test_files,
)

_WARM = {"hypothesis", "numpy", "pytest", "safetensors", "scipy", "threadpoolctl", "torch"}
_LATE = {
    "numpy": {"numpy.random", "numpy.testing"},
    "torch": {"torch.fx.experimental.symbolic_shapes"},  # by backward(gradient), with all of sympy
}


def _warm_up(tests: Sequence[str], root: str, warm: Sequence[str]) -> None:
    """Import what the tests will import, and these modules of the package at the root."""
    names = {"numpy", "pytest"}
    for file in test_files(tests):
        with contextlib.suppress(OSError, SyntaxError, ValueError):  # pytest will say it better
            names |= {name for name in imported(file) if name.partition(".")[0] in _WARM}
    names = names.union(*(_LATE.get(name, set()) for name in names))
    if warm:
        sys.path.insert(0, root)
    for name in [*sorted(names), *warm]:
        with contextlib.suppress(ImportError):  # the job will say what is missing
            importlib.import_module(name)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


class _Server:
    """The warmed parent: forks for each line of JSON, and answers when the child has ended."""

    def __init__(self, folder: str, limits: dict[str, Any]):
        self.folder, self.limits = folder, limits
        self.known: set[tuple[tuple[str, ...], int]] = set()  # tests whose imports are there
        self.channel = socket.socket(fileno=os.dup(0))
        silence()

    def serve(self) -> None:
        """Until the other end of the socket is closed."""
        while True:
            line, files, _, _ = socket.recv_fds(self.channel, 1 << 20, 2)
            if not line:
                return
            row, begun = json.loads(line), time.monotonic()
            tests = (tuple(row["tests"]), stamp(row["tests"]))
            if tests not in self.known:
                _warm_up(row["tests"], row["root"], row["warm"])
                if not self.known:
                    self.run_nothing()
                self.known.add(tests)
                gc.collect()
                gc.freeze()
            status = self.run(row, *files)
            answer = json.dumps([status, time.monotonic() - begun])
            with contextlib.suppress(OSError):  # then nobody wants to know
                self.channel.send(answer.encode())

    def run_nothing(self) -> None:
        """Let pytest run a test that does nothing, in this process: it imports more on the way."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "test_nothing.py")
            Path(path).write_text("def test_nothing(): pass\n", encoding="utf-8")
            os.chdir(folder)
            importlib.import_module("pytest").main(pytest_arguments(Job("", (path,)), self.folder))
            os.chdir(self.folder)

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
    _warm_up(facts["tests"], facts["root"], facts["warm"])
    if facts["limits"]:
        apart.restrict(facts["limits"])
    be_job(order, report, folder, os.path.join(folder, f"job-{facts['number']}"))


if __name__ == "__main__":
    main(*sys.argv[1:])
