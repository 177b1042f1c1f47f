# Tangled from book/workshop/weave.md
"""Runs the figures of the chapters in a process of their own: always against the package as it is now.

`python -m weave.run.execute` reads a JSON list of [path, line, code] and prints for each a line of JSON: the
figure's SVG or {"line": ..., "error": ...} with the chapter line at which it failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

from weave.model.page import Output
from weave.run import kept
from weave.run.later import Work

Result = str | dict[str, Any]


class Figure(NamedTuple):
    """A block that draws: its chapter, its name, the line before its first, and its code."""

    path: str
    name: str
    line: int
    code: str


_work: Work[list[Result]] = Work()
_drawn: dict[Path, tuple[str, dict[str, str]]] = {}  # root -> key; code -> SVG under that key
_last: dict[tuple[Path, str, str], str] = {}  # root, chapter, name -> SVG


def figures(root: Path, blocks: Sequence[Figure]) -> list[Output]:
    """What came of each block. `root` is the folder in which the book and its package stand."""
    here = Path(__file__)
    key = kept.fingerprint(root, [here, *kept.below(here.parents[1] / "figures")])
    path = root / "build" / "figures.json"
    if _drawn.get(root, ("",))[0] != key:
        _drawn[root] = key, kept.read(path, key) or {}
    drawn = _drawn[root][1]
    failed: dict[Figure, dict[str, Any]] = {}
    current = True
    missing = [block for block in blocks if block.code not in drawn]
    if missing:
        work = partial(_run, [(block.path, block.line, block.code) for block in missing])
        _work.begin(str(root), f"{key} {missing}", work)
        results, current = _work.result(str(root))
        for block, result in zip(missing, (results or ()) if current else (), strict=current):
            if isinstance(result, str):
                drawn[block.code] = result
            else:
                failed[block] = result
        if current:
            codes = {block.code for block in blocks}
            kept.write(path, key, {code: svg for code, svg in drawn.items() if code in codes})
    found = []
    for block in blocks:
        place = root, block.path, block.name
        if block.code in drawn:
            _last[place] = drawn[block.code]
            found.append(Output(drawn[block.code]))
        elif block in failed:
            found.append(Output(fault=(failed[block]["line"], failed[block]["error"])))
        else:
            found.append(Output(_last.get(place, ""), late=place not in _last))
    return found


def _run(blocks: Sequence[tuple[str, int, str]]) -> list[Result]:
    environment = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
    }
    results: list[Result] = []
    while len(results) < len(blocks):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "weave.run.execute"],
            input=json.dumps(blocks[len(results) :]),
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=environment,
            check=False,
        )
        results += map(json.loads, done.stdout.splitlines())
        if len(results) < len(blocks):  # the next one has ended the process
            ended = f"the process that draws it ended with {done.returncode}"
            results.append({"line": blocks[len(results)][1], "error": ended})
    return results


def run(path: str, line: int, code: str) -> Result:
    """One block: the text that it assigned to `figure`, or what went wrong and where."""
    try:
        # the empty lines before it give every line of a traceback the number that it has in the chapter
        program = compile("\n" * line + code, path, "exec")
        names: dict[str, Any] = {"__name__": "figure"}
        exec(program, names)
        svg = names.get("figure")
        if not isinstance(svg, str) or not svg.lstrip().startswith("<svg"):
            raise TypeError("the block must assign a string that is one <svg> element to `figure`")
        ET.fromstring(svg)
        return str(svg)
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        at = [frame.lineno for frame in frames if frame.filename == path and frame.lineno]
        if isinstance(error, SyntaxError) and error.filename == path and error.lineno:
            at.append(error.lineno)
        return {"line": at[-1] if at else line, "error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Standard input to standard output; what the figures and their processes print goes to standard error."""
    with os.fdopen(os.dup(1), "w") as answer, contextlib.redirect_stdout(sys.stderr):
        os.dup2(2, 1)
        for block in json.load(sys.stdin):
            print(json.dumps(run(*block)), file=answer, flush=True)


if __name__ == "__main__":
    main()
