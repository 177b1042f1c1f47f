# Tangled from book/workshop/labs.md
"""A lab as Markdown, its outputs as HTML, and both as a notebook to download."""

from __future__ import annotations

from html import escape
from pathlib import Path

import jupytext
import nbformat

from weave.model.index import Index
from weave.model.page import Place
from weave.run.labs import Lab, Output


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
            add(f"{fence}\n\n{place(runs)}\n", cell.line)
            runs += 1
        else:
            add(cell.source, cell.line, 1)
            add("", cell.line)
        if number == 0:
            add(f"{place('downloads')}\n", cell.line)
    return "\n".join(lines), origins


def place(what: object) -> str:
    """The comment that holds the place of an output, by its cell's number, or of the downloads."""
    return f"<!-- lab {what} -->"


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


def downloads(index: Index, lab: Lab) -> str:
    """The paragraph that offers the lab as a notebook and as a script."""
    name = escape(Path(lab.target).stem)
    source = index.href(lab.target, Place(index.files[lab.target].page, ""))
    return (
        f'<p class="lab-downloads">Run it yourself: <a href="{name}.ipynb" download>{name}.ipynb</a> for Jupyter, '
        f'<a href="{name}.py" download>{name}.py</a> for Python alone. '
        f'<a href="{source}">How it is written</a>.</p>'
    )


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
