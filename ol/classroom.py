# Tangled from book/workshop/ol-class.md
"""`ol grade DIR`: every submission under a folder."""

from __future__ import annotations

import csv
import importlib
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ol import report
from ol.grade import Grade
from ol.registry import Answer, Chapter, Refusal, chapters, find
from ol.runner import processors
from ol.sandbox import STOP, Limits, grade_files
from ol.submission import COLUMNS, Result, fingerprint, names, read
from ol.terminal import table


def grade_class(
    folder: Path,
    chapter_name: str | None = None,
    roster: Path | None = None,
    limits: Limits = Limits(),  # noqa: B008, it cannot be changed
    jobs: int | None = None,
    dask: str | None = None,
    csv_file: Path | None = None,
    feedback: Path | None = None,
) -> Answer:
    """Grade all, write what was asked for; status 0 if every submission has a row."""
    begun = time.monotonic()
    chapter = _graded_chapter(chapter_name)
    results, orders = _orders(folder, chapter, roster, limits)
    unlike = {fingerprint(order): order for order in orders.values()}
    found = dict(_on_cluster(unlike, dask) if dask else _here(unlike, jobs))
    for name, order in orders.items():
        results[name] = _result(name, found[fingerprint(order)])
    rows = [results[name] for name in sorted(results)]
    unwritten = []
    try:
        if csv_file is not None:
            _write_csv(csv_file, rows)
        if feedback is not None:
            _write_pages(feedback, rows, chapter)
    except OSError as error:  # the table on the screen is all the more needed
        unwritten.append(f"not written: {error}")
    cells = [[str(value) for value in row.row().values()] for row in rows]
    passed = sum(row.state == "passed" for row in rows)
    lines = [f"{chapter}: {len(rows)} submissions", *table(cells)]
    lines.append(f"{passed} of {len(rows)} passed, {time.monotonic() - begun:.0f} s")
    if any(one.get("sandbox") == "limits only" for one in found.values()):
        lines.append("without bubblewrap: limits and watching only (see the chapter on sandboxes)")
    data = {"chapter": chapter.id, "submissions": [row.row() for row in rows], "passed": passed}
    return Answer(1 if unwritten else 0, lines + unwritten, data | {"unwritten": unwritten})


def _graded_chapter(name: str | None) -> Chapter:
    if name is not None:
        chapter = find(name)
        if not chapter.rung:
            raise Refusal(f"{chapter.id} has no graded tests", 2)
        return chapter
    graded = [chapter for chapter in chapters().values() if chapter.rung]
    if len(graded) != 1:
        raise Refusal(f"which chapter? --chapter {' or '.join(c.id for c in graded)}", 2)
    return graded[0]


def _orders(
    folder: Path, chapter: Chapter, roster: Path | None, limits: Limits
) -> tuple[dict[str, Result], dict[str, dict[str, Any]]]:
    """Rows for what cannot be graded, and orders for the rest."""
    results: dict[str, Result] = {}
    orders: dict[str, dict[str, Any]] = {}
    for name in names(folder, roster):
        try:
            if not (folder / name).is_dir():
                raise FileNotFoundError("nothing was handed in")
            files = read(folder / name, chapter)
            orders[name] = {"chapter": chapter.id, "files": files, "limits": asdict(limits)}
        except (OSError, ValueError) as error:
            state = "absent" if isinstance(error, FileNotFoundError) else "no grade"
            results[name] = Result(name, state, says=str(error))
    return results, orders


def _here(
    orders: Mapping[str, dict[str, Any]], jobs: int | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """On this machine, as many at a time as it has cores."""
    STOP.clear()
    with ThreadPoolExecutor(jobs or processors()) as pool:
        tasks = {pool.submit(grade_files, order): key for key, order in orders.items()}
        try:
            for task in as_completed(tasks):
                yield tasks[task], task.result()
        except BaseException:  # Ctrl-C: the pool would finish everything first
            STOP.set()
            raise


def _on_cluster(
    orders: Mapping[str, dict[str, Any]], address: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """On the workers of a dask.distributed cluster."""
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError as error:
        raise Refusal("dask.distributed is missing: pip install 'tinyllm-book[class]'") from error
    try:
        client = distributed.Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise Refusal(f"there is no cluster at {address}: {error}") from error
    with client:
        tasks = {
            key: client.submit(grade_files, order, key=f"ol-{key}-{time.time_ns()}", retries=2)
            for key, order in orders.items()
        }
        for key, task in tasks.items():
            try:
                yield key, task.result()
            except Exception as error:  # whatever the cluster says of it
                yield key, {"stopped": f"lost by the cluster: {type(error).__name__}: {error}"}


def _result(name: str, found: Mapping[str, Any]) -> Result:
    """A row from what the sandbox has answered."""
    if "stopped" in found:
        why = found["stopped"]
        return Result(name, "stopped", says=why, lines=[f"stopped: {why}"])
    grade = Grade.of({**found, "tests": "your tests"})
    says = f"pitfalls not caught: {', '.join(grade.uncaught)}" if grade.uncaught else ""
    if grade.findings:
        more = len(grade.findings) - 1
        says = f"{grade.findings[0]}" + (f" (and {more} more)" if more else "")
    state = "no grade" if grade.findings else "passed" if grade.passed else "not yet"
    caught, missed = grade.number("caught"), grade.number("missed")
    says = says if len(says) < 120 else f"{says[:117]}..."
    lines = report.full(grade)
    return Result(name, state, grade.score, caught, missed, says, lines, grade.seconds)


def _write_csv(path: Path, rows: list[Result]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for row in rows:
            writer.writerow({key: _cell(value) for key, value in row.row().items()})


def _cell(value: Any) -> Any:
    dangerous = isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t"}
    return f"'{value}" if dangerous else value


def _write_pages(folder: Path, rows: list[Result], chapter: Chapter) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for row in rows:
        (folder / f"{row.name}.md").write_text(row.page(chapter), encoding="utf-8")


WORKFLOW = """\
# Grades the tests of {chapter} at each push.
name: grade
on: [push, workflow_dispatch]
permissions:
  contents: read
jobs:
  grade:
    runs-on: ubuntu-latest
    timeout-minutes: 20
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.11"
      - run: python -m pip install "tinyllm-book[test]=={version}"
      - run: ol check {chapter} --ref-deps --verify
"""


def workflow(chapter_name: str | None) -> Answer:
    """A workflow file for a class's repositories."""
    from tinyllm import __version__

    text = WORKFLOW.format(chapter=_graded_chapter(chapter_name).id, version=__version__)
    return Answer(0, text.splitlines(), {"workflow": text})
