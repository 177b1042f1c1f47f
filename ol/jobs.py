# Tangled from book/workshop/mutants.md
"""What to run, and what came of it."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ol.registry import ROOT


@dataclass(frozen=True)
class Job:
    """Tests to run, and what to put in the place of modules."""

    name: str
    tests: tuple[str, ...]  # files or folders
    modules: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # name -> (file, text)
    root: str = str(ROOT)  # the folder that all other modules come from
    sealed: bool = False  # what stands for a text is compiled code: marshalled, in base64
    warm: tuple[str, ...] = ()  # modules of it that the parent may import, once for all jobs
    stop: bool = False  # at the first test that fails
    after: tuple[str, ...] = ()  # functions that are run even then
    last: tuple[str, ...] = ()  # functions that are run after all others
    explain: bool = False  # tracebacks, with the values that an assert compared
    seconds: float = 60.0  # of processor time; four times as long by the clock


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
    times: Mapping[str, float] = field(default_factory=dict, compare=False)  # of what passed
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


def error_line(message: str) -> str:
    """What an error says, in one line, out of pytest's report."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    errors = [line[1:].strip() for line in lines if line.startswith("E ")]
    return next(iter([*filter(None, errors), *lines[-1:]]), "")


def judge(job: Job, token: str, output: bytes, status: int | None, seconds: float) -> Verdict:
    """What a job's report says; `status` is Popen's, None for a process that was stopped."""
    lines = output.decode("utf-8", "replace").split("\n")[:-1]
    try:
        rows = [json.loads(line[len(token) :]) for line in lines if line.startswith(token)]
        return _judged(job, rows, status, seconds)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return Verdict(job.name, "crashed", detail="the report cannot be read", seconds=seconds)


def _judged(job: Job, rows: list[Any], status: int | None, seconds: float) -> Verdict:
    def said(key: str) -> list[Any]:
        return [_plain(row[key]) for row in rows if key in row]

    messages = {_plain(row["failed"]): _plain(row["message"]) for row in rows if "failed" in row}
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
        problems.append(f"the process ended{during} with {how(status)}")
    elif not failed and not passed:
        problems.append(f"no test was run (exit code {end[0]} of pytest)")
    elif end[0] == "0" and not problems:
        state = "missed"
    if failed:
        state = "caught"
    times = {_plain(row["passed"]): float(row["seconds"]) for row in rows if "passed" in row}
    return Verdict(job.name, state, failed, passed, times, messages, "; ".join(problems), seconds)


def _plain(value: Any) -> str:
    """In letters that do nothing to a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in str(value))


def how(status: int) -> str:
    """An exit status of Popen in words."""
    with contextlib.suppress(ValueError):
        if status < 0:
            return signal.Signals(-status).name
    return f"exit status {status}"
