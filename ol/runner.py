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
from dataclasses import asdict, dataclass
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


@dataclass
class _Parent:
    """A process that forks for jobs, one at a time."""

    process: subprocess.Popen[bytes]
    channel: socket.socket
    warm: tuple[str, ...]  # what it may have imported, and from where

    def stop(self) -> int:
        """End it; its exit status."""
        with contextlib.suppress(OSError):
            self.channel.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.channel.close()
        return self.process.wait()


class Runner:
    """Runs jobs, several at a time, each in a process of its own.

    With "fork" (the default on Linux) parent processes, as many as jobs run at a time, import once what
    the tests import, and fork for each job. With "spawn" each job pays for its own imports. The verdicts
    are the same. Use it in a `with` block, or call `close`. RuntimeError without pytest.

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
        self.workers = workers or min(4, cores())  # each parent takes memory
        forks = hasattr(os, "pidfd_open")
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
        self._pool = ThreadPool(self.workers)  # a sandbox ends with the thread that has started it
        self._parents: list[_Parent] = []
        self._free: list[_Parent] = []
        self._numbers: Iterator[int] = itertools.count()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop what still runs, and remove the working folder."""
        self._numbers = iter(())  # no job begins any more
        for parent in self._parents:
            parent.stop()
        self._pool.terminate()
        self._kept.cleanup()

    def run(
        self, jobs: Iterable[Job], late: Callable[[Job], Job] = lambda job: job
    ) -> Iterator[Verdict]:
        """The verdicts, each as soon as it is there, so not in the order of the jobs.

        `late` may change a job just before it begins.
        """
        return self._pool.imap_unordered(lambda job: self._run(late(job)), jobs)

    def _run(self, job: Job) -> Verdict:
        """Run one job, in a thread of its own."""
        token, number = secrets.token_hex(8) + " ", next(self._numbers)
        facts = {"tests": job.tests, "root": job.root, "warm": job.warm, "seconds": job.seconds}
        with (
            tempfile.TemporaryFile("a+b", dir=self.folder) as order,
            tempfile.TemporaryFile("a+b", dir=self.folder) as report,
        ):
            order.write(json.dumps([token, asdict(job)]).encode())
            order.flush()
            order.seek(0)
            ways = {"fork": self._fork, "spawn": self._spawn}
            try:
                status, seconds = ways[self.method]({"number": number, **facts}, order, report)
            except ConnectionError as error:
                detail = f"the parent process ended with {error}"
                return Verdict(job.name, "crashed", detail=detail)
            report.seek(0)
            return judge(job, token, report.read(LONGEST), status, seconds)

    def _fork(
        self, facts: dict[str, Any], order: IO[bytes], report: IO[bytes]
    ) -> tuple[int | None, float]:
        """How the child of a parent ended, None if it was stopped, and after how many seconds."""
        parent = self._parent((facts["root"], *facts["warm"]))
        with contextlib.suppress(OSError):  # then there will be no answer either
            files = [order.fileno(), report.fileno()]
            socket.send_fds(parent.channel, [json.dumps(facts).encode()], files)
        ready = False
        while not ready:
            ready = bool(select.select([parent.channel], [], [], 0.1 if self.limits else None)[0])
            if why := self.watch(parent.process.pid):
                raise Stopped(why)
        if not (answer := parent.channel.recv(65536)):
            raise ConnectionError(how(parent.stop()))
        self._free.append(parent)
        status, seconds = json.loads(answer)
        return status, seconds

    def _parent(self, warm: tuple[str, ...]) -> _Parent:
        with contextlib.suppress(IndexError):
            parent = self._free.pop()
            if parent.warm == warm:
                return parent
            parent.stop()  # it has imported what this job may replace
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = ("serve", str(self.folder), json.dumps(self.limits))
            quiet = subprocess.DEVNULL if self.limits else None
            process = self._process(*words, stdin=theirs, stdout=quiet, stderr=quiet)
        self._parents.append(_Parent(process, ours, warm))
        return self._parents[-1]

    def _spawn(
        self, facts: dict[str, Any], order: IO[bytes], report: IO[bytes]
    ) -> tuple[int | None, float]:
        """The same of a process that nobody forked."""
        begun, status, why = time.monotonic(), None, ""
        words = ("job", str(self.folder), json.dumps({**facts, "limits": self.limits}))
        end = begun + 30 + 4 * facts["seconds"]  # it has its libraries to import
        quiet = subprocess.DEVNULL
        with self._process(*words, stdin=order, stdout=report, stderr=quiet) as process:
            while status is None and time.monotonic() < end and not why:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(0.1)
                why = self.watch(process.pid)
            process.kill()
            kill_group(process.pid)
        shutil.rmtree(self.folder / f"job-{facts['number']}", ignore_errors=True)
        if why:
            raise Stopped(why)
        return status, time.monotonic() - begun

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

    def _environment(self) -> dict[str, str]:
        """The same for every run, whatever the user has set; in a sandbox there is nothing else."""
        if not self.limits:
            return environment()
        here = "/scratch" if self.sandbox == "bubblewrap" else str(self.folder)
        places = {"HOME": here, "TMPDIR": here, "PYTHONPATH": str(self.folder), "PATH": os.defpath}
        return {"SYSTEMROOT": os.environ.get("SYSTEMROOT", ""), **_SETTINGS, **places}


def environment() -> dict[str, str]:
    """The same for every run, whatever the user has set."""
    theirs = {n: v for n, v in os.environ.items() if not n.startswith(("PYTHONW", "PYTEST_"))}
    return {**theirs, **_SETTINGS, "PYTHONPATH": str(ROOT)}
