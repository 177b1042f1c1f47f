# Tangled from book/workshop/mutants.md
"""Runs tests with mutants in the place of modules, each in a process of its own.

Only the standard library is imported here; pytest, and what the tests need, is imported in other processes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from ol.jobs import Job, Verdict, how, judge
from ol.registry import ROOT
from ol.worker import PYTEST_INI, kill_group, scratch


class Runner:
    """Runs jobs, several at a time, each in a process of its own.

    With "fork" (the default where it works) a parent process imports once what the tests
    import, and forks for each job. With "spawn" each job pays for its own imports. The verdicts are
    the same. Use it in a `with` block, or call `close`. RuntimeError without pytest.
    """

    def __init__(self, workers: int | None = None, method: Literal["fork", "spawn"] | None = None):
        if importlib.util.find_spec("pytest") is None:
            raise RuntimeError("pytest is missing: pip install pytest")
        self.workers = workers or processors()
        forks = hasattr(os, "fork") and sys.platform != "darwin"
        self.method = method or ("fork" if forks else "spawn")
        self._folder = tempfile.TemporaryDirectory(prefix="mutation-", ignore_cleanup_errors=True)
        Path(self._folder.name, "pytest.ini").write_text(PYTEST_INI, encoding="utf-8")
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
                detail = f"the parent process ended with {how(self._stop())}"
                for job in running.values():
                    yield Verdict(job.name, "crashed", detail=detail)
                running.clear()
            elif running.pop(answer.pop("number"), None):
                lists = {key: tuple(answer[key]) for key in ("failed", "passed")}
                yield Verdict(**{**answer, **lists})

    def _process(self, verb: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "ol.server", verb, self._folder.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if verb == "job" else None,
            env=environment(),
            start_new_session=True,  # Ctrl-C is for this process; the other ends with its input
        )

    def _send(self, row: Mapping[str, Any]) -> None:
        self._server = self._server or self._process("serve")
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
        order = {"number": number, "token": token, **asdict(job)}
        status: int | None = None
        with self._process("job") as process:
            try:
                limit = 30 + 4 * job.seconds  # it has its libraries to import
                output, _ = process.communicate(json.dumps(order).encode(), limit)
                status = process.returncode
            except subprocess.TimeoutExpired:
                process.kill()
                kill_group(process.pid)
                output, _ = process.communicate()
        shutil.rmtree(scratch(self._folder.name, number), ignore_errors=True)
        return judge(job, token, output, status, time.monotonic() - begun)


def processors() -> int:
    """How many this process may use."""
    with contextlib.suppress(AttributeError):  # not every system has it
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def environment() -> dict[str, str]:
    """The same for every run, whatever the user has set."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONWARNINGS" and not name.startswith("PYTEST_")
    }
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    more = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return {**kept, **one, **more}
