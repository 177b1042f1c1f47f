# Tangled from book/workshop/weave-cells.md
"""What belongs to a page: links to the pages beside it, and its cells as a notebook to download."""

from __future__ import annotations

import json
import posixpath
import re
from html import escape
from typing import Any

from literate.markdown import Block
from weave.model.index import LABEL, Index
from weave.model.page import Page, Place, between
from weave.render.facts import page_link
from weave.run.outputs import cells

LEFT_OUT = {"chapter", "figure", "map", "pitfall", "pitfalls", "run", "session", "values"}
RUN_IT = (
    "*A page of the book tinyllm as a notebook. It needs numpy and the book's package: in a copy of the book, say*"
    " `pip install .`"
)
FOLD = re.compile(r"([ >]*)(?:\?\?\?\+?|!!!) +\w+(?: +\"([^\"]*)\")? *")
LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\((?![a-z]+:|//)[^)\s]*\)")
EQUATION = re.compile(r"\[eq\. ([\w-]+)\]\(#eq-\1\)")


def beside(index: Index, page: Page) -> str:
    """The line below a page's title; "" where nothing belongs to it."""
    links = []
    main = index.page_of.get(page.chapter)
    for path in [main.path, *index.companions(page.chapter)] if main else ():
        if path != page.path:
            own = page_link(index, page, path)
            kind = index.pages[path].title.rpartition(": ")[2].capitalize()
            href = index.href(page.path, Place(path, ""))
            links.append(
                own if main and path == main.path else f'<a href="{href}">{escape(kind)}</a>'
            )
    if cells(page):
        name = posixpath.splitext(posixpath.basename(page.path))[0] + ".ipynb"
        links.append(f'<a href="{escape(name)}" download>Notebook</a>')
    return f'\n<p class="beside">{" · ".join(links)}</p>' if links else ""


def notebook(index: Index, page: Page) -> str:
    """The page in Jupyter's format, version 4.5, without outputs."""
    made: list[dict[str, Any]] = []
    text, folded = _prose(page)
    running = cells(page)
    words = ""
    runs = [lines for _, lines in between(text, page.blocks)]
    title, _, rest = "\n".join(runs[0]).partition("\n")
    runs[0] = [title, "", RUN_IT, *rest.split("\n")]
    for lines, block in zip(runs, [*page.blocks, None], strict=True):
        words += _dedented(lines) + (_shown(block) if block else "")
        if block is None or block in running:
            _add(made, "markdown", words, {})
            words = ""
        if block in running:
            asks = block.language == "ask"
            hidden = asks or "fold" in block.classes or block.line in folded
            metadata: dict[str, Any] = {"jupyter": {"source_hidden": True}} if hidden else {}
            metadata |= {"tags": ["raises-exception"]} if "raises" in block.classes else {}
            code = block.attributes.get("answer", "") if asks else index.body(block)
            _add(made, "code", code, metadata)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {
        "cells": made,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def _add(made: list[dict[str, Any]], kind: str, source: str, metadata: dict[str, Any]) -> None:
    """A cell more, unless it is empty."""
    if source.strip():
        cell = {"id": f"cell-{len(made)}", "cell_type": kind, "metadata": metadata}
        more: dict[str, Any] = {"execution_count": None, "outputs": []} if kind == "code" else {}
        made.append({**cell, **more, "source": source.strip("\n")})


def _prose(page: Page) -> tuple[list[str], set[int]]:
    """The page's lines, as many as there are, in the Markdown that notebooks read; and which of them are in a fold."""
    done: list[str] = []
    folded: set[int] = set()
    column = -1  # what is indented by more is in a fold
    for number, line in enumerate(page.text.split("\n"), 1):
        opened = FOLD.fullmatch(line)
        indent = len(line) - len(line.lstrip(" "))
        if opened:
            column = indent
            line = f"{opened[1]}**{opened[2] or 'Note'}**"
        elif column >= 0 and line.strip() and indent < column + 4:
            column = -1
        elif column >= 0:
            folded.add(number)
            line = line[:column] + line[column + 4 :]
        line = EQUATION.sub(lambda found: f"eq. ({page.equations.get(found[1], found[1])})", line)
        line = LABEL.sub(lambda found: rf"\tag{{{page.equations.get(found[1], '')}}}", line)
        done.append(LINK.sub(r"\1", line))
    return done, folded


def _dedented(lines: list[str]) -> str:
    """Lines behind a block that was indented: they would be code, standing first in a cell."""
    first = next((line for line in lines if line.strip()), "")
    margin = len(first) - len(first.lstrip(" "))
    at = next((n for n, line in enumerate(lines) if line[:margin].strip()), len(lines))
    return "\n".join([*(line[margin:] for line in lines[:at]), *lines[at:]]) + "\n"


def _shown(block: Block) -> str:
    """What there is of a block in Markdown: a question, code that does not run."""
    if block.language == "ask":
        return f"**Question.** {' '.join(block.body.split())}"
    if LEFT_OUT & {block.language, *block.classes}:
        return ""
    return f"{block.fence}{block.language}\n{block.body}{block.fence}\n"
