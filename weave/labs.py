# Tangled from book/workshop/labs.md
"""Labs: notebooks that are run when the site is built and woven as pages like the others.

MkDocs loads this file as a hook of its own, beside weave/hooks.py; its events mend mkdocs-jupyter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from functools import partial
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File
from yaml import YAMLError  # type: ignore[import-untyped]

import tangle
from weave import kept
from weave.index import Index, Place, current
from weave.later import LATER, Work

KEPT = "build/labs"  # beside the book
SECONDS = 120  # a lab that runs longer is a fault
Output = dict[str, Any]


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


def read(book: Any, target: str) -> Lab:
    """The lab that the book makes of this target."""
    text = tangle.expand(book, target, bare=True)
    lab = Lab(target, text, tangle.line_map(book, target, bare=True))
    at = 0
    for cell in jupytext.reads(text, fmt="py:percent").cells:
        found = text.find(cell.source, at)
        if found < 0:  # text in comments, whose marks jupytext takes away
            found = text.find("\n", text.find("# %%", at)) + 1
        lab.cells.append(Cell(cell.cell_type, cell.source, text.count("\n", 0, found) + 1))
        at = found + len(cell.source)
    return lab


def markdown(lab: Lab) -> tuple[str, list[tuple[str, int]]]:
    """The lab's page as Markdown, and the chapter line behind each of its lines."""
    lines: list[str] = []
    origins: list[tuple[str, int]] = []
    runs = 0

    def add(text: str, line: int, step: int = 0) -> None:
        for number, row in enumerate(text.split("\n")):
            lines.append(row)
            origins.append(lab.origin(line + step * number))

    for number, cell in enumerate(lab.cells):
        if cell.kind == "code":
            fence = "```"
            while fence in cell.source:
                fence += "`"
            add(f"{fence}python", cell.line)
            add(cell.source, cell.line, 1)
            add(f"{fence}\n\n{_place(runs)}\n", cell.line)
            runs += 1
        else:
            add(cell.source, cell.line, 1)
            add("", cell.line)
        if number == 0:
            add(f"{_place('downloads')}\n", cell.line)
    return "\n".join(lines), origins


def _place(what: object) -> str:
    return f"<!-- lab {what} -->"


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
                [sys.executable, "-m", "weave.notebook"],
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


def _where(lab: Lab, cell: Cell, output: Output, book: Any, root: Path) -> tuple[int, str]:
    """The lab's line of an error, and what to say of it."""
    line, deeper = cell.line, ""
    origins = tangle.Annotator(book, str(root))
    for file, number in output["frames"]:
        if str(file).startswith("cell "):
            line = lab.code()[int(file.removeprefix("cell "))].line + number - 1
        else:
            deeper = origins.origin(file, number) or deeper
    raised = f" (raised at {deeper})" if deeper else ""
    return line, f"{output['ename']}: {output['evalue']}{raised}"


def shown(outputs: list[Output]) -> str:
    """The outputs of one cell as HTML."""
    return "\n".join(map(_shown, outputs))


def _shown(output: Output) -> str:
    if output["output_type"] == "stream":
        return _text(output["text"])
    if output["output_type"] == "error":
        message = f"{output['ename']}: {output['evalue']}"
        return f'<div class="lab-output"><code class="bad">{escape(message)}</code></div>'
    data = output["data"]
    for form in ("text/html", "image/svg+xml"):
        if form in data:
            return f'<div class="lab-output" tabindex="0">{"".join(data[form])}</div>'
    if "image/png" in data:
        alt = escape("".join(data.get("text/plain", "")))
        source = "".join(data["image/png"].split())
        return (
            f'<div class="lab-output"><img alt="{alt}" src="data:image/png;base64,{source}"></div>'
        )
    return _text("".join(data.get("text/plain", "")))


def _text(text: str) -> str:
    return f'<div class="lab-output"><pre tabindex="0">{escape(text.rstrip())}</pre></div>'


_labs: dict[str, Lab] = {}
_work: Work[list[list[Output]]] = Work()


@event_priority(50)
def on_files(files: Any, config: Any) -> Any:
    """Gives MkDocs the labs of the book, and lets them run."""
    index, root = current(config.docs_dir), Path(config.docs_dir).resolve().parent
    _labs.clear()
    for target in index.book.targets if not index.book.faults else ():
        if target.startswith("labs/") and target.endswith(".py"):
            try:
                lab = read(index.book, target)
            except YAMLError as error:
                message = f"{target}: its head is not YAML: {' '.join(str(error).split())}"
                index.report(*tangle.line_map(index.book, target, bare=True)[0], message)
                continue
            if not (root / target).is_file():
                index.report(*lab.origins[0], f"{target}: tangle the book first")
                continue
            _labs[target] = lab
            files.append(File(target, str(root), config.site_dir, config.use_directory_urls))
            index.adopt(target, *markdown(lab))
            _work.begin(target, key(lab, root), partial(run, lab, root), known(lab, root))
    return files


def on_page_markdown(text: str, page: Any, config: Any, files: Any) -> str:
    """A lab's page is its Markdown, and MkDocs renders it, not mkdocs-jupyter."""
    if page.file.src_uri not in _labs:
        return text
    vars(page).pop("render", None)  # the plugin's, put on this one page; the class's own comes back
    return markdown(_labs[page.file.src_uri])[0]


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Puts outputs and downloads in their places."""
    lab = _labs.get(page.file.src_uri)
    if lab is None:
        return html
    index = current(config.docs_dir)
    outputs, is_current = _work.result(lab.target)
    if outputs and is_current:
        report(lab, outputs, index, Path(config.docs_dir).resolve().parent)
    for number, found in enumerate(outputs or ()):
        html = html.replace(_place(number), shown(found), 1)
    late = "" if outputs or is_current else f"<p>({LATER})</p>"
    return html.replace(_place("downloads"), _downloads(index, lab) + late, 1)


def _downloads(index: Index, lab: Lab) -> str:
    name = escape(Path(lab.target).stem)
    source = index.href(lab.target, Place(index.files[lab.target].page, ""))
    return (
        f'<p class="lab-downloads">Run it yourself: <a href="{name}.ipynb" download>{name}.ipynb</a> for Jupyter, '
        f'<a href="{name}.py" download>{name}.py</a> for Python alone. '
        f'<a href="{source}">How it is written</a>.</p>'
    )


def on_post_build(config: Any) -> None:
    """Writes each lab beside its page, as a script and as a notebook."""
    for target, lab in _labs.items():
        outputs, _ = _work.result(target)
        path = Path(config.site_dir, target)
        path.write_text(lab.text, encoding="utf-8")
        path.with_suffix(".ipynb").write_text(notebook(lab, outputs or []), encoding="utf-8")


def notebook(lab: Lab, of_cells: list[list[Output]]) -> str:
    """The lab in Jupyter's format, with the outputs of its code cells."""
    made = jupytext.reads(lab.text, fmt="py:percent")
    made.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
    }
    outputs = iter(of_cells)
    for number, cell in enumerate(made.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
        if cell.cell_type == "code":
            cell.outputs = [nbformat.from_dict(output) for output in next(outputs, [])]
            for output in cell.outputs:
                output.pop("frames", None)  # which is no part of the format
    made.nbformat_minor = 5  # from here on cells have ids
    return str(nbformat.writes(made)) + "\n"
