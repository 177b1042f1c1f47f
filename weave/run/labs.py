# Tangled from book/workshop/labs.md
"""Labs: notebooks that are run when the site is built, and what is wrong with them at the chapters' lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jupytext

import literate.expand
import literate.patch
import literate.read
import literate.where
from literate.book import Book
from weave.model.index import Index
from weave.run import kept

KEPT = "build/labs"  # beside the book
SECONDS = 120  # a lab that runs longer is a fault
Output = dict[str, Any]  # as the notebook format 4 has it


@dataclass
class Cell:
    """A cell of a notebook; `line` is the line of the lab on which its source begins, from 1."""

    kind: str  # "markdown" or "code"
    source: str
    line: int


@dataclass
class Lab:
    """A lab, its cells and its place in the book."""

    target: str  # e.g. labs/L5.3-multi-head-attention.py
    text: str
    origins: list[tuple[str, int]]  # for each line of the text its chapter and the line there
    cells: list[Cell] = field(default_factory=list)

    def origin(self, line: int) -> tuple[str, int]:
        """The chapter line behind a line of the lab."""
        return self.origins[min(line, len(self.origins)) - 1]

    def code(self) -> list[Cell]:
        """The cells that run."""
        return [cell for cell in self.cells if cell.kind == "code"]


def read(book: Book, target: str) -> Lab:
    """The lab that the book makes of this target."""
    text = literate.expand.expand(book, target, bare=True)
    lab = Lab(target, text, literate.expand.line_map(book, target, bare=True))
    at = 0
    for cell in jupytext.reads(text, fmt="py:percent").cells:
        found = text.find(cell.source, at)
        if found < 0:  # text in comments, whose marks jupytext takes away
            found = text.find("\n", text.find("# %%", at)) + 1
        lab.cells.append(Cell(cell.cell_type, cell.source, text.count("\n", 0, found) + 1))
        at = found + len(cell.source)
    return lab


def run(lab: Lab, root: Path) -> list[list[Output]]:
    """The outputs of the lab's code cells, run against the package of `root`."""
    wanted, outputs = key(lab, root), _run(lab, root)
    if not any(output["output_type"] == "error" for cell in outputs for output in cell):
        kept.write(_path(lab, root), wanted, outputs)
    return outputs


def known(lab: Lab, root: Path) -> list[list[Output]] | None:
    """The outputs of the last run, where nothing has changed since."""
    outputs: list[list[Output]] | None = kept.read(_path(lab, root), key(lab, root))
    return outputs


def _path(lab: Lab, root: Path) -> Path:
    return root / KEPT / (Path(lab.target).stem + ".json")


def _run(lab: Lab, root: Path) -> list[list[Output]]:
    with tempfile.TemporaryDirectory() as profile:
        environment = {
            **os.environ,
            "IPYTHONDIR": profile,  # not the settings of whoever builds the site
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": os.pathsep.join([str(root), *(path or os.getcwd() for path in sys.path)]),
        }
        wrong: list[list[Output]] = []  # the outputs of the cell that did not come to its end
        try:
            said = subprocess.run(
                [sys.executable, "-m", "weave.run.notebook"],
                input=json.dumps([cell.source for cell in lab.code()]).encode(),
                capture_output=True,
                env=environment,
                timeout=SECONDS,
                check=True,
            ).stdout
        except subprocess.TimeoutExpired as late:
            said = late.stdout or b""
            wrong = _failed("TimeoutError", f"the lab ran longer than {SECONDS} seconds")
        except subprocess.CalledProcessError as died:
            said, last = died.stdout, died.stderr.decode("utf-8", "replace").strip()
            message = f"its process ended with {died.returncode}: {last.rpartition(chr(10))[2]}"
            wrong = _failed("ChildProcessError", message)
    return [*map(json.loads, said.splitlines()), *wrong]


def _failed(name: str, message: str) -> list[list[Output]]:
    error = {"output_type": "error", "ename": name, "evalue": message, "frames": []}
    return [[{**error, "traceback": []}]]


def key(lab: Lab, root: Path) -> str:
    """A hash of the lab, of the package that it runs against, of its runner, and of the versions."""
    runner = Path(__file__).with_name("notebook.py")
    return kept.fingerprint(root, [runner], version("ipython"), lab.text)


def report(lab: Lab, outputs: list[list[Output]], index: Index, root: Path) -> None:
    """Logs the faults of a run, each with chapter and line."""
    for cell, found in zip(lab.code(), outputs, strict=False):
        failed = [output for output in found if output["output_type"] == "error"]
        for output in failed:
            _say(index, lab, *_where(lab, cell, output, index.book, root))
        for output in found if not failed else ():
            if output.get("name") == "stderr":
                last = output["text"].strip().rpartition("\n")[2]
                _say(index, lab, cell.line, f"the lab wrote to its standard error: {last}")


def _say(index: Index, lab: Lab, line: int, message: str) -> None:
    index.report(*lab.origin(line), f"{lab.target}: {message}")


def _where(lab: Lab, cell: Cell, output: Output, book: Book, root: Path) -> tuple[int, str]:
    """The lab's line of an error, and what to say of it."""
    line, deeper = cell.line, ""
    origins = literate.where.Annotator(book, str(root))
    for file, number in output["frames"]:
        if str(file).startswith("cell "):
            line = lab.code()[int(file.removeprefix("cell "))].line + number - 1
        else:
            deeper = origins.origin(file, number) or deeper
    raised = f" (raised at {deeper})" if deeper else ""
    return line, f"{output['ename']}: {output['evalue']}{raised}"
