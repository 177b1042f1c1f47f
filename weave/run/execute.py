# Tangled from book/workshop/weave-cells.md
"""Runs code of the chapters in a process of its own: always against the package as it is now.

`python -m weave.run.execute` reads a JSON list of [name, kind, code] and prints a line of JSON for each block: in "shown" what it
shows, as pairs of form and text; in "error" None, or its message and the frames that led to it, as pairs of file and line.
The kinds are run, raises, ask and figure. The name is the file of its frames.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import linecache
import math
import os
import subprocess
import sys
import traceback
import types
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

LIMIT = 10_000  # characters that a block prints; what comes after them is counted, and not shown
SECONDS = 120  # what a page's cells may take together
Result = dict[str, Any]


class Stream(io.TextIOBase):
    """Keeps what is written to it, up to `LIMIT` characters."""

    def __init__(self, shown: list[list[str]]) -> None:
        self.shown, self.room, self.left_out = shown, LIMIT, 0

    def write(self, text: str) -> int:
        """Appends the text to what is shown."""
        kept = text[: self.room].encode("utf-8", "backslashreplace").decode()
        if kept and self.shown and self.shown[-1][0] == "text":
            self.shown[-1][1] += kept
        elif kept:
            self.shown.append(["text", kept])
        self.left_out += max(0, len(text) - self.room)
        self.room = max(0, self.room - len(text))
        return len(text)


def display(shown: list[list[str]], value: Any) -> None:
    """Shows a value as the picture or the HTML that it offers, else by its repr."""
    for form in ("svg", "html"):
        offered = getattr(type(value), f"_repr_{form}_", None)
        text = offered(value) if offered else None
        if text:
            shown.append([form, str(text)])
            return
    print(repr(value))


def _answer(value: Any) -> list[str]:
    """What the answer to a question is: a number, or words."""
    if isinstance(value, str) and value.strip():
        return ["words", value.strip()]
    if type(value).__name__ in ("bool", "bool_"):
        return ["words", str(bool(value))]
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"an answer is a finite number or a text, not {value!r}")
    return ["number", str(int(value)) if hasattr(value, "__index__") else repr(number)]


def _picture(names: dict[str, Any]) -> list[list[str]]:
    """The figure that a block has assigned, and what it has assigned to `live`."""
    svg = names.get("figure")
    if not isinstance(svg, str) or not svg.lstrip().startswith("<svg"):
        raise TypeError("the block must assign a string that is one <svg> element to `figure`")
    ET.fromstring(svg)
    live = [["live", json.dumps(names["live"], separators=(",", ":"))]] if "live" in names else []
    return [["svg", str(svg)], *live]


def fresh() -> dict[str, Any]:
    """The namespace of a new module __main__."""
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    return vars(module)


def _value(name: str, code: str, names: dict[str, Any]) -> Any:
    """Runs the code; the value of its last line, None where that is no expression."""
    linecache.cache[name] = len(code), None, code.splitlines(keepends=True), name
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), name, "eval"), names)
    return None


def run(name: str, kind: str, code: str, names: dict[str, Any]) -> Result:
    """One block."""
    shown: list[list[str]] = []
    error: tuple[str, list[tuple[str, int | None]]] | None = None
    stream = Stream(shown)
    names["display"] = partial(display, shown)
    warnings.formatwarning = lambda message, category, *_: f"{category.__name__}: {message}\n"
    try:
        with (
            contextlib.redirect_stdout(stream),
            contextlib.redirect_stderr(stream),
            warnings.catch_warnings(),
        ):
            if kind == "figure":
                warnings.simplefilter("error")
            value = _value(name, code, names)
            if kind == "figure":
                shown[:] = _picture(names)
            elif kind == "ask":
                shown[:] = [_answer(value)]
            elif value is not None:
                display(shown, value)
        if kind == "raises":
            error = "the cell is marked .raises, and raises nothing", []
    except BaseException as raised:
        frames = [
            (frame.filename, frame.lineno) for frame in traceback.extract_tb(raised.__traceback__)
        ]
        words = str(raised)
        if isinstance(raised, SyntaxError):
            frames.append((raised.filename or "", raised.lineno))
            words = raised.msg  # without the place, which the parent knows better
        message = f"{type(raised).__name__}: {words}".removesuffix(": ")
        if kind == "raises":
            shown.append(["raised", message])
        else:
            error = message, frames
    if stream.left_out:
        shown.append(["note", f"… {stream.left_out:,} more characters are left out"])
    return {"shown": shown, "error": error}


def main() -> None:
    """Standard input to standard output; what the processes of the blocks print goes to standard error."""
    with os.fdopen(os.dup(1), "w") as answer:
        os.dup2(2, 1)
        names = fresh()
        for name, kind, code in json.load(sys.stdin):
            names = fresh() if kind == "figure" else names
            result = run(name, kind, code, names)
            print(json.dumps(result), file=answer, flush=True)
            if result["error"] and kind != "figure":
                return


def execute(
    blocks: Sequence[tuple[str, str]],
    root: Path,
    folder: str | None = None,
    seconds: float | None = None,
) -> list[Result]:
    """What came of each (kind, code), against the package at `root`; none for the cells behind one that failed.

    In the frames of an error, "block 2" is the file of the third. `folder`: where the code runs.
    """
    environment = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join([str(root), *(path or os.getcwd() for path in sys.path)]),
    }
    asked = [(f"block {number}", kind, code) for number, (kind, code) in enumerate(blocks)]
    results: list[Result] = []
    while len(results) < len(asked):
        try:
            done = subprocess.run(
                [sys.executable, "-m", "weave.run.execute"],
                input=json.dumps(asked[len(results) :]).encode(),
                stdout=subprocess.PIPE,
                env=environment,
                cwd=folder,
                timeout=seconds,
                check=False,
            )
            said, ended = done.stdout, f"the process that runs it ended with {done.returncode}"
        except subprocess.TimeoutExpired as late:
            said = late.stdout or b""
            ended = f"still running after {seconds:g} seconds, and stopped"
        results += map(json.loads, said[: said.rfind(b"\n") + 1].splitlines())
        alone = asked[0][1] == "figure"
        if len(results) < len(asked) and (alone or not (results and results[-1]["error"])):
            results.append({"shown": [], "error": (ended, [])})
        if not alone:
            break
    return results


if __name__ == "__main__":
    main()
