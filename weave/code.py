# Tangled from book/workshop/weave-blocks.md
"""Blocks of code as HTML: captions, links from a reference to its chunk, variants as differences."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from weave.index import REFERENCE, Index, Page, Place

STAND_IN = "WEAVE{}EVAEW"  # a word that every lexer takes for one name
STOOD_IN = re.compile(r"WEAVE(\d+)EVAEW")
EQUATION = re.compile(r"\beqs?\. ([A-Za-z][\w-]*)")
COMMENT = re.compile(r'<span class="c1?[mh]?">.*?</span>')
LANGUAGES = {"": "text", "pyi": "python", "py": "python"}


def captioned(index: Index, page: Page, block: Any) -> str:
    """A block under a caption with its name, the files it goes to, and which part of the chunk it is."""
    anchor = page.anchors.get(block.line, "")
    return (
        f'<div class="chunk" id="{escape(anchor)}">\n'
        f'<div class="chunk-caption" data-search-exclude>{caption(index, page, block)}</div>\n'
        f"{coloured(index, page, block)}\n</div>"
    )


def caption(index: Index, page: Page, block: Any) -> str:
    """The line above a block."""
    here = Place(page.path, page.anchors.get(block.line, ""))
    parts = []
    if block.name:
        parts.append(
            f'<a class="chunk-name" href="{index.href(page.path, here)}">{escape(block.name)}</a>'
        )
    made = [block.file] if block.file else index.targets(block.name) if block.name else []
    if made:
        parts.append(", ".join(f'<span class="chunk-file">{escape(path)}</span>' for path in made))
    siblings = index.book.chunks.get(block.name or index.book.targets.get(block.file, ""), [])
    if len(siblings) > 1 and block in siblings:
        parts.append(f"part {siblings.index(block) + 1} of {len(siblings)}")
    return " · ".join(parts)


def coloured(index: Index, page: Page, block: Any) -> str:
    """The block's code with its colours and its links."""
    lines = list(_lines(index, page, block, block.body, block.language))
    return _framed(block.language, "\n".join(lines) + "\n")


def difference(index: Index, page: Page, block: Any) -> str:
    """A variant of a chunk: removed and added lines, told apart by sign and by colour."""
    patched = index.book.chunks.get(block.patch, [])
    language = patched[0].language if patched else ""
    written = block.body.removesuffix("\n").split("\n")
    signs = [line[:1] or " " for line in written]
    body = "\n".join(line[1:] for line in written)
    lines = []
    for sign, line in zip(signs, _lines(index, page, block, body, language), strict=True):
        tag = {"-": "del", "+": "ins"}.get(sign, "span")
        lines.append(
            f'<{tag} class="diff-line"><span class="diff-sign">{sign}</span>{line}\n</{tag}>'
        )
    anchor = page.anchors.get(block.line, "")
    chunk = escape(block.patch)
    if block.patch in index.chunks:
        chunk = f'<a href="{index.href(page.path, index.chunks[block.patch])}">{chunk}</a>'
    name = (
        f'<a class="chunk-name" href="#{escape(anchor)}">{escape(block.name or "")}</a> · '
        if block.name
        else ""
    )
    return (
        f'<div class="chunk chunk-variant" id="{escape(anchor)}">\n'
        f'<div class="chunk-caption" data-search-exclude>{name}a variant of {chunk}, no part of the program</div>\n'
        f"{_framed(language, ''.join(lines))}\n</div>"
    )


def collapsed(index: Index, page: Page, block: Any, summary: str) -> str:
    """The block's code behind a line that opens it."""
    return (
        f'<details class="code-behind"><summary>{escape(summary)}</summary>\n'
        f"{coloured(index, page, block)}\n</details>"
    )


def _framed(language: str, inner: str) -> str:
    name = escape(LANGUAGES.get(language, language))
    return (
        f'<div class="language-{name} highlight"><pre tabindex="0"><span></span>'
        f"<code>{inner}</code></pre></div>"
    )


def _lines(index: Index, page: Page, block: Any, body: str, language: str) -> list[str]:
    """The code's lines as HTML."""
    links: list[str] = []

    def hidden(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        if found[2] not in index.chunks:
            return found[0]
        href = index.href(page.path, index.chunks[found[2]])
        links.append(f'<a class="chunk-reference" href="{href}">{escape(found[0])}</a>')
        return STAND_IN.format(len(links) - 1)

    source = REFERENCE.sub(hidden, body)
    try:
        lexer = get_lexer_by_name(LANGUAGES.get(language, language), stripnl=False, ensurenl=False)
    except ClassNotFound:
        lexer = get_lexer_by_name("text", stripnl=False, ensurenl=False)
    html: str = highlight(source, lexer, HtmlFormatter(nowrap=True))
    wanted = body.removesuffix("\n").count("\n") + 1
    lines = html.split("\n")[:wanted]
    lines += [""] * (wanted - len(lines))
    return [
        STOOD_IN.sub(
            lambda found: links[int(found[1])], _equations(index, page, block.line + number, line)
        )
        for number, line in enumerate(lines, 1)
    ]


def _equations(index: Index, page: Page, line: int, html: str) -> str:
    """A line in whose comments each `eq. label` leads to the equation and shows its number."""

    def link(found: re.Match[str]) -> str:
        number = page.equations.get(found[1])
        if number is None:
            index.fault(page.path, line, f"no equation of this chapter is labelled eq:{found[1]}")
            return found[0]
        return f'<a href="#eq-{escape(found[1])}">{found[0]} ({number})</a>'

    return COMMENT.sub(lambda comment: EQUATION.sub(link, comment[0]), html)
