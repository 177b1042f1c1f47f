# Tangled from book/workshop/mutants.md
"""Runs tests with mutants in the place of modules, each in a process of its own.

Nothing heavy is imported here; pytest, and what the tests need, is imported in other processes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import secrets
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import IO, Any, Literal

from ol import bubblewrap
from ol.bubblewrap import Limits
from ol.jobs import Job, Verdict, how, judge
from ol.registry import ROOT
from ol.worker import PYTEST_INI, kill_group
from tinyllm.num.cores import cores

LONGEST = 4 << 20  # bytes that are read of a report
_SETTINGS = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_SETTINGS |= {"PYTHONHASHSEED": "0", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


class Stopped(Exception):  # noqa: N818, it is no error of the program
    """Why the jobs were given up."""


class Runner:
    """Runs jobs, several at a time, each in a process of its own.

    With "fork" (the default where it works) a parent process imports once what the tests
    import, and forks for each job. With "spawn" each job pays for its own imports. The verdicts are
    the same. Use it in a `with` block, or call `close`. RuntimeError without pytest.

    With limits, all of it happens in a sandbox; `watch` is asked now and then, with the number of
    the process, whether it must end, and why. Then `run` raises Stopped.
    """

    def __init__(
        self,
        workers: int | None = None,
        method: Literal["fork", "spawn"] | None = None,
        limits: Limits | None = None,
        watch: Callable[[int], str] = lambda _: "",
    ):
        if importlib.util.find_spec("pytest") is None:
            raise RuntimeError("pytest is missing: pip install pytest")
        self.workers = workers or cores()
        forks = hasattr(os, "fork") and sys.platform != "darwin"
        self.method = method or ("fork" if forks else "spawn")
        walls = bool(limits) and self.method == "fork" and bubblewrap.has_namespaces()
        self.sandbox = "bubblewrap" if walls else "limits only" if limits else "none"
        self.watch, self.limits = watch, asdict(limits) if limits else {}
        self.limits |= {"apart": walls, "user": bubblewrap.user()} if limits else {}
        self._kept = tempfile.TemporaryDirectory(prefix="ol-runner-", ignore_cleanup_errors=True)
        self.folder = Path(self._kept.name)
        self.folder.chmod(0o711 if walls else 0o700)  # another user may have to pass
        (self.folder / "pytest.ini").write_text(PYTEST_INI, encoding="utf-8")
        bubblewrap.copy_tool(self.folder)
        self._server: tuple[subprocess.Popen[bytes], socket.socket, tuple[str, ...]] | None = None
        self._numbers = itertools.count()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop what still runs, and remove the working folder."""
        self._stop()
        self._kept.cleanup()

    def run(self, jobs: Iterable[Job]) -> Iterator[Verdict]:
        """The verdicts, each as soon as it is there, so not in the order of the jobs."""
        return self._forked(iter(jobs)) if self.method == "fork" else self._spawned(jobs)

    def _forked(self, jobs: Iterator[Job]) -> Iterator[Verdict]:
        """A parent that has to be replaced is replaced between two jobs, when nobody waits for it."""
        for warm, some in itertools.groupby(jobs, lambda job: (job.root, *job.warm)):
            yield from self._of_one_parent(warm, some)

    def _of_one_parent(self, warm: tuple[str, ...], jobs: Iterator[Job]) -> Iterator[Verdict]:
        running: dict[int, tuple[Job, str, IO[bytes]]] = {}
        with contextlib.ExitStack() as opened:
            while True:
                while len(running) < self.workers and (job := next(jobs, None)) is not None:
                    number, token, order, report = self._files(job)
                    running[number] = job, token, opened.enter_context(report)
                    with order:
                        self._send(_facts(number, job), warm, order, report)
                if not running:
                    return
                answer = self._receive()
                if answer is None:
                    detail = f"the parent process ended with {how(self._stop())}"
                    for job, *_ in running.values():
                        yield Verdict(job.name, "crashed", detail=detail)
                    running.clear()
                elif answer[0] in running:  # not of a run that was given up
                    yield _read(*running.pop(answer[0]), *answer[1:])

    def _files(self, job: Job) -> tuple[int, str, IO[bytes], IO[bytes]]:
        """A job's number, the word that its report's lines begin with, its order and its report."""
        token = secrets.token_hex(8) + " "
        order: IO[bytes] = tempfile.TemporaryFile("a+b", dir=self.folder)  # noqa: SIM115, closed by
        report: IO[bytes] = tempfile.TemporaryFile("a+b", dir=self.folder)  # noqa: SIM115, the caller
        order.write(json.dumps([token, asdict(job)]).encode())
        order.flush()
        order.seek(0)
        return next(self._numbers), token, order, report

    def _process(self, *words: str, **streams: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "ol.server", *words]
        if self.sandbox == "bubblewrap":
            command = bubblewrap.command(command, self.folder)
        return subprocess.Popen(
            command,
            env=self._environment(),
            cwd=self.folder,
            start_new_session=True,  # Ctrl-C is for this process; the other ends with its input
            **streams,
        )

    def _send(self, facts: str, warm: tuple[str, ...], *files: IO[bytes]) -> None:
        if self._server and self._server[2] != warm:  # it has imported what this job may replace
            self._stop()
        if self._server is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                words = ("serve", str(self.folder), json.dumps(self.limits))
                quiet = subprocess.DEVNULL if self.limits else None
                process = self._process(*words, stdin=theirs, stdout=quiet, stderr=quiet)
            self._server = process, ours, warm
        with contextlib.suppress(OSError):  # then there will be no answer either
            descriptors = [file.fileno() for file in files]
            socket.send_fds(self._server[1], [facts.encode()], descriptors)

    def _environment(self) -> dict[str, str]:
        """The same for every run, whatever the user has set; in a sandbox there is nothing else."""
        if not self.limits:
            return environment()
        here = "/scratch" if self.sandbox == "bubblewrap" else str(self.folder)
        places = {"HOME": here, "TMPDIR": here, "PYTHONPATH": str(self.folder), "PATH": os.defpath}
        return {"SYSTEMROOT": os.environ.get("SYSTEMROOT", ""), **_SETTINGS, **places}

    def _receive(self) -> list[Any] | None:
        assert self._server is not None
        process, channel, _ = self._server
        while True:
            ready = select.select([channel], [], [], 0.1 if self.limits else None)[0]
            if why := self.watch(process.pid):
                raise Stopped(why)
            if ready:
                line = channel.recv(65536)
                return json.loads(line) if line else None

    def _stop(self) -> int:
        """End the parent process; its exit status."""
        server, self._server = self._server, None
        if server is None:
            return 0
        process, channel, _ = server
        channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(10)
        process.kill()
        return process.wait()

    def _spawned(self, jobs: Iterable[Job]) -> Iterator[Verdict]:
        with ThreadPool(self.workers) as pool:
            yield from pool.imap_unordered(self._spawn, jobs)

    def _spawn(self, job: Job) -> Verdict:
        number, token, order, report = self._files(job)
        begun, status = time.monotonic(), None
        words = ("job", str(self.folder), _facts(number, job, limits=self.limits))
        end = begun + 30 + 4 * job.seconds  # it has its libraries to import
        why, streams = "", {"stdin": order, "stdout": report, "stderr": subprocess.DEVNULL}
        with order, self._process(*words, **streams) as process:
            while status is None and time.monotonic() < end and not why:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(0.1)
                why = self.watch(process.pid)
            process.kill()
            kill_group(process.pid)
        shutil.rmtree(self.folder / f"job-{number}", ignore_errors=True)
        if why:
            raise Stopped(why)
        return _read(job, token, report, status, time.monotonic() - begun)


def environment() -> dict[str, str]:
    """The same for every run, whatever the user has set."""
    theirs = {n: v for n, v in os.environ.items() if not n.startswith(("PYTHONW", "PYTEST_"))}
    return {**theirs, **_SETTINGS, "PYTHONPATH": str(ROOT)}


def _facts(number: int, job: Job, **more: Any) -> str:
    """What the parent needs to know of a job."""
    facts = {"tests": job.tests, "root": job.root, "warm": job.warm, "seconds": job.seconds}
    return json.dumps({"number": number, **facts, **more})


def _read(job: Job, token: str, report: IO[bytes], status: int | None, seconds: float) -> Verdict:
    with report:
        report.seek(0)
        return judge(job, token, report.read(LONGEST), status, seconds)
