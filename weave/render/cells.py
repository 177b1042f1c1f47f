# Tangled from book/workshop/weave-cells.md
"""Cells on a page: their code, what came of it, and questions that the page checks."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from html import escape

from literate.markdown import Block
from weave.model.index import Index
from weave.model.page import Output, Page
from weave.model.prose import PICTURES
from weave.render import code, facts
from weave.run.later import LATER

STYLE = re.compile(r' style="([^"]*)"')


def cell(index: Index, page: Page, block: Block, output: Output) -> str:
    """The code, folded where the author says so, and what came of it."""
    shown = folded if "fold" in block.classes else code.shown
    done = shown(index, page, block)
    if output.diagnostic:
        done += f'<div class="output"><code class="bad">{escape(output.diagnostic[1])}</code></div>'
    elif output.late:
        done += f'<div class="output"><p>({LATER})</p></div>'
    elif output.shown:
        name = block.attributes.get("alt", "What this code draws")
        inner = "".join(_form(form, text, name) for form, text in output.shown)
        done += f'<div class="output">{inner}</div>'
    if "hide-output" in block.classes:
        before, start, inner = done.rpartition('<div class="output">')
        if not start:
            index.diagnose(
                page.path, block.line, "this cell shows nothing: there is no output to hide"
            )
        summary = "<summary>Show the output</summary>"
        done = f'{before}<details class="hidden-output">{summary}{start}{inner}</details>'
    return f'<div class="cell">{done}</div>'


def folded(index: Index, page: Page, block: Block) -> str:
    """A block behind its title, else its name."""
    title = block.attributes.get("title") or block.name or block.file or "The code"
    inner = code.difference if block.patch else code.shown
    return code.folded(facts.text(index, page, block.line, title), inner(index, page, block))


def _form(form: str, text: str, name: str) -> str:
    if form == "svg":
        picture = text.replace("<svg", f'<svg role="img" aria-label="{escape(name)}"', 1)
        return f'<div class="figure-frame" tabindex="0">{slim(picture)}</div>'
    if form == "html":
        return f'<div class="table-frame" tabindex="0">{text}</div>'
    if form == "note":
        return f'<p class="note">{escape(text)}</p>'
    return f'<pre class="{form}" tabindex="0">{escape(text.rstrip().translate(PICTURES), quote=False)}</pre>'


def slim(svg: str) -> str:
    """The picture with a class in the place of each style that it has several times."""
    often = [style for style, times in Counter(STYLE.findall(svg)).items() if times > 2]
    rules = ""
    for style in often:
        name = f"f{zlib.crc32(style.encode()):x}"
        svg = svg.replace(f' style="{style}"', f' class="{name}"')
        rules += f".{name}{{{style}}}"
    start = svg.index(">") + 1
    return f"{svg[:start]}<style>{rules}</style>{svg[start:]}" if rules else svg


def question(index: Index, page: Page, block: Block, output: Output) -> str:
    """A question with a field for the answer, and the answer folded."""
    if output.diagnostic:
        return f'<p><code class="bad">{escape(output.diagnostic[1])}</code></p>'
    form, answer = output.shown[0] if output.shown else ("words", f"({LATER})")
    decimals = block.attributes.get("decimals", "0" if answer.lstrip("-").isdigit() else "3")
    shown = f"{float(answer):.{int(decimals)}f}" if form == "number" else answer
    asked = facts.text(index, page, block.line + 1, " ".join(block.body.split()))
    name, number = f"ask-{block.line}", form == "number"
    return (
        f'<form class="ask" data-answer="{escape(answer)}"'
        + (f' data-decimals="{decimals}"' if number else "")
        + f'><p><label for="{name}">{asked}</label></p>'
        f'<p class="ask-try"><input id="{name}" autocomplete="off" spellcheck="false"'
        f' autocapitalize="off"{" inputmode=text size=10" if number else " size=24"}>'
        f' <button>Check</button> <output for="{name}"></output></p>'
        f"<details><summary>Show the answer</summary><p>{escape(shown)}</p></details></form>"
    )
