# Tangled from book/workshop/ol-class.md
"""`ol grade DIR`: every submission under a folder."""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ol import gradebook, sandbox
from ol.bubblewrap import Limits, has_namespaces
from ol.grade import key
from ol.gradebook import Row, printable, row
from ol.registry import COURSE, Answer, Chapter, Refusal, chapters, find
from ol.stubs import stub
from ol.submission import fingerprint, likeness, names, read, submissions
from ol.terminal import bar, table
from ol.workspace import write
from tinyllm.num.cores import cores

JOURNAL = ".ol-grades"  # in the folder of submissions
Order = dict[str, Any]
Done = Callable[[str, dict[str, Any]], None]


def grade_class(
    folder: Path,
    chapter_name: str | None = None,
    roster: Path | None = None,
    points: tuple[float, float] = (50.0, 50.0),  # for the module, for the tests
    one: bool = False,  # the folder is itself a submission
    fresh: bool = False,
    limits: Limits = Limits(),  # noqa: B008, it cannot be changed
    jobs: int | None = None,
    dask: str | None = None,
    **outputs: Path | None,
) -> Answer:
    """Grade all, write what was asked for; status 0 if all are graded, and one alone has passed."""
    begun, chapter = time.monotonic(), named(chapter_name)
    places = {folder.resolve().name: [folder]} if one else submissions(folder)
    rows, orders = _orders(places, names(roster) if roster else None, chapter, points)
    journal = Journal(None if one else folder / JOURNAL, chapter, limits)
    unlike = {journal.name(order): (name, order) for name, order in orders.items()}
    found = {} if fresh else {n: kept for n in unlike if (kept := journal.get(n))}
    left = {n: {**o, "limits": asdict(limits)} for n, (_, o) in unlike.items() if n not in found}

    def done(number: str, answer: dict[str, Any]) -> None:
        found[number] = answer
        journal.put(number, answer)
        pace = (time.monotonic() - begun) / (len(found) + len(left) - len(unlike))
        ready = f"{bar(len(found) / len(unlike))} {len(found)} of {len(unlike)}"
        minutes = f"{(len(unlike) - len(found)) * pace / 60:.0f} min left"
        who = printable(unlike[number][0])
        with contextlib.suppress(OSError):  # nobody listens any more
            print(f"{ready}, {minutes}: {who}", file=sys.stderr, flush=True)

    if left:
        _run(left, _pool(jobs, dask), done)
    for name, others in _copies(orders, chapter).items():
        rows[name] = gradebook.result(name, found[journal.name(orders[name])], points)
        rows[name]["copies"] = printable(", ".join(sorted(others)))
    listed = [rows[name] for name in sorted(rows)]
    unwritten = journal.unwritten + gradebook.put(listed, chapter, one, **outputs)
    return _answer(chapter, listed, unwritten, one)


def _answer(chapter: Chapter, rows: list[Row], unwritten: list[str], one: bool) -> Answer:
    data = [{column: row[column] for column in gradebook.COLUMNS} for row in rows]
    cells = [["" if value is None else str(value) for value in row.values()] for row in data]
    passed, lost = (sum(r["state"] == state for r in rows) for state in ("passed", "not graded"))
    lines = [f"{chapter}: {len(rows)} submissions", *table([gradebook.COLUMNS, *cells])]
    lines += [f"{passed} of {len(rows)} passed", *unwritten]
    if not has_namespaces():
        lines.append("without bubblewrap: limits and watching only (see the chapter on sandboxes)")
    if lost:
        lines.append(f"{lost} not graded: the same command goes on with them")
    if one and os.environ.get("GITHUB_ACTIONS"):
        lines = gradebook.notice(rows[0], lines)
    more = {"chapter": chapter.id, "passed": passed, "unwritten": unwritten}
    bad = bool(unwritten or lost or (one and not passed))
    return Answer(int(bad), lines, more | {"submissions": data})


def named(name: str | None) -> Chapter:
    """The chapter of that name. Refusal if none is named."""
    if name is None:
        raise Refusal(f"which chapter? --chapter {' or '.join(chapters())}", 2)
    return find(name)


def command(folder: Path | None, chapter_name: str | None, workflow: bool, **how: Any) -> Answer:
    """`ol grade`; among the wishes are the limits, None where the usual one will do."""
    if workflow:
        return workflow_for(chapter_name)
    if folder is None:
        raise Refusal("which folder? ol grade DIR", 2)
    wanted = {limit.name: how.pop(limit.name) for limit in fields(Limits)}
    limits = Limits(**{name: value for name, value in wanted.items() if value is not None})
    return grade_class(folder, chapter_name, limits=limits, **how)


def workflow_for(chapter_name: str | None) -> Answer:
    """A workflow file for a class's repositories."""
    from tinyllm import __version__

    text = (COURSE / "workflow.yml").read_text("utf-8")
    text = text.replace("CHAPTER", named(chapter_name).id).replace("VERSION", __version__)
    return Answer(0, text.splitlines(), {"workflow": text})


def _orders(
    places: Mapping[str, list[Path]],
    listed: list[str] | None,
    chapter: Chapter,
    points: tuple[float, float],
) -> tuple[dict[str, Row], dict[str, Order]]:
    """Rows for what cannot be graded, and orders for the rest."""
    rows: dict[str, Row] = {}
    orders: dict[str, Order] = {}
    for name in {**dict.fromkeys(listed or ()), **places}:
        if name not in places:
            rows[name] = row(name, "absent", "nothing was handed in")
        elif listed is not None and name not in listed:
            rows[name] = row(name, "not on the roster", "not graded")
        else:
            try:
                files = read(places[name], chapter)
            except Exception as error:
                rows[name] = row(name, "no grade", f"cannot be read: {error}")
                continue
            wanted = zip(("module", "files"), points, strict=True)
            orders[name] = {"chapter": chapter.id} | {k: files[k] if p else None for k, p in wanted}
    return rows, orders


def _copies(orders: Mapping[str, Order], chapter: Chapter) -> dict[str, set[str]]:
    """Name -> whose module or tests are nearly the same; the stub does not count."""
    nobody = likeness([stub(chapter).encode()])
    groups = {likeness([chapter.reference.read_bytes()]): {"the book"}}
    for name, order in orders.items():
        tests = [text for path, text in (order["files"] or {}).items() if path.endswith(".py")]
        for part in ([order["module"] or ""], tests):
            tokens = likeness(base64.b64decode(text) for text in part)
            if tokens not in ("", nobody):
                groups.setdefault(tokens, set()).add(name)
    near = {name: [group for group in groups.values() if name in group] for name in orders}
    return {name: set[str]().union(*others) - {name} for name, others in near.items()}


class Journal:
    """Results of earlier runs, and of this one as they come; folder None keeps nothing."""

    def __init__(self, folder: Path | None, chapter: Chapter, limits: Limits):
        self.folder, self.limits = folder, asdict(limits)
        self.course = key(chapter, chapter.course_tests)
        self.unwritten: list[str] = []

    def name(self, order: Order) -> str:
        """A file's name for the result of an order."""
        return f"{fingerprint([order, self.course])}.json"

    def get(self, name: str) -> dict[str, Any] | None:
        """The result, if it is there and still counts."""
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            kept = json.loads((self.folder or Path(os.devnull)).joinpath(name).read_text("utf-8"))
            if "stopped" not in kept["answer"] or kept["limits"] == self.limits:
                return dict(kept["answer"])
        return None

    def put(self, name: str, answer: Mapping[str, Any]) -> None:
        """Keep a result; if that fails, the run goes on, and the failure is told at its end."""
        try:
            if self.folder and "lost" not in answer:
                write(self.folder / name, json.dumps({"limits": self.limits, "answer": answer}))
        except Refusal as error:
            self.unwritten = [f"not kept: {error}"]


def _run(orders: Mapping[str, Order], pool: AbstractContextManager[Executor], done: Done) -> None:
    """Carry out the orders; `done` hears of each as soon as it is."""
    sandbox.STOP.clear()
    with pool as executor:
        tasks = {executor.submit(sandbox.grade, order): name for name, order in orders.items()}
        try:
            for task in as_completed(tasks):
                try:
                    answer = task.result()
                except Exception as error:  # whatever a cluster says of it
                    answer = {"lost": f"{type(error).__name__}: {error}"}
                done(tasks[task], answer)
        except BaseException:
            sandbox.stop()
            for task in tasks:
                task.cancel()
            print("ol: stopped; the same command goes on from here", file=sys.stderr)
            raise


@contextlib.contextmanager
def _pool(jobs: int | None, dask: str | None) -> Iterator[Executor]:
    """What runs orders: threads on this machine, or the workers of a dask.distributed cluster."""
    if dask is None:
        with ThreadPoolExecutor(jobs or cores()) as pool:
            yield pool
        return
    try:
        distributed: Any = importlib.import_module("distributed")
        client = distributed.Client(dask, timeout="10s")
    except ImportError as error:
        raise Refusal("dask.distributed is missing: pip install 'tinyllm-book[class]'") from error
    except (OSError, ValueError) as error:
        raise Refusal(f"there is no cluster at {dask}: {error}") from error
    with client, client.get_executor(pure=False, retries=2) as pool:
        yield pool
