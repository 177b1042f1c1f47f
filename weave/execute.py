# Tangled from book/workshop/weave.md
"""Runs the figures of a chapter in a process of their own: always against the package as it is now.

`python -m weave.execute` reads a JSON list of [path, line, code] and prints for each a line of JSON: the
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
from typing import Any
from xml.etree import ElementTree as ET

Result = str | dict[str, Any]


_kept: dict[object, Result] = {}


def figures(blocks: Sequence[tuple[str, int, str]]) -> list[Result]:
    """The result of each block, given its chapter, the line before its first, and its code."""
    stamp = _stamp()
    if _kept.get("stamp") != stamp:
        _kept.clear()
        _kept["stamp"] = stamp
    missing = [block for block in blocks if block[2] not in _kept and block not in _kept]
    for block, result in zip(missing, _drawn(missing) if missing else (), strict=True):
        _kept[block[2] if isinstance(result, str) else block] = result
    return [_kept[block[2]] if block[2] in _kept else _kept[block] for block in blocks]


def _stamp() -> str:
    """What figures depend on besides their own code: the package, and what draws."""
    found = []
    for folder in ("tinyllm", os.path.join(os.path.dirname(__file__), "figures")):
        for path, _, names in os.walk(folder):
            for name in names:
                if name.endswith((".py", ".toml", ".json")):
                    status = os.stat(os.path.join(path, name))
                    found.append((path, name, status.st_mtime_ns, status.st_size))
    return repr(sorted(found))


def _drawn(blocks: Sequence[tuple[str, int, str]]) -> list[Result]:
    environment = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
    }
    results: list[Result] = []
    while len(results) < len(blocks):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "weave.execute"],
            input=json.dumps(blocks[len(results) :]),
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=environment,
            check=False,
        )
        results += map(json.loads, done.stdout.splitlines())
        if len(results) < len(
            blocks
        ):  # the next one has ended the process; the others are drawn without it
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
