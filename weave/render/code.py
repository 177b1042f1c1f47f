# Tangled from book/workshop/weave-blocks.md
"""Blocks of code as HTML: captions, links from a reference to its chunk, variants as differences."""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape
from typing import Any

from pygments.lexers import get_lexer_by_name
from pygments.token import Token
from pygments.util import ClassNotFound

from literate.markdown import Block
from weave.model.index import REFERENCE, Index
from weave.model.page import Page, Place
from weave.model.prose import PICTURES

STAND_IN = "WEAVE{}EVAEW"  # a word that every lexer takes for one name
STOOD_IN = re.compile(r"WEAVE(\d+)EVAEW")
EQUATION = re.compile(r"\beqs?\. ([A-Za-z][\w-]*)")
COMMENT = re.compile(r"<i class=c>.*?</i>")
STRINGS = re.compile(r"<i>[^<]*(?:</i>\n<i>[^<]*)+")  # the lines of one string
LANGUAGES = {"": "text", "pyi": "python", "py": "python"}


def captioned(index: Index, page: Page, block: Block) -> str:
    """A block under a caption with its name, the files it goes to, and which part of the chunk it is."""
    kind = "chunk implementation" if index.implements(page, block) else "chunk"
    return (
        f'<div class="{kind}"{anchored(page, block)}>\n'
        f'<div class="chunk-caption">{caption(index, page, block)}</div>\n'
        f"{coloured(index, page, block)}\n{foot(index, page, block)}</div>"
    )


def anchored(page: Page, block: Block) -> str:
    """The attribute by which links find a block; whatever a page shows of a block with a name or a file has it."""
    anchor = page.anchors.get(block.line, "")
    return f' id="{escape(anchor)}"' if anchor else ""


def caption(index: Index, page: Page, block: Block) -> str:
    """The line above a block."""
    here = index.place(block)
    parts = []
    if block.name:
        parts.append(
            f'<a class="chunk-name" href="{index.href(page.path, here)}">{escape(block.name)}</a>'
        )
    made = [block.file] if block.file else index.targets(block.name) if block.name else []
    files = []
    for path in made:
        if index.book.errors:  # then there are no pages of files
            files.append(f"<span>{escape(path)}</span>")
            continue
        anchor = here.anchor if block in index.sources(path) else ""
        href = index.href(page.path, Place(f"code/{path}.md", anchor))
        files.append(f'<a href="{href}">{escape(path)}</a>')
    if files:
        parts.append(", ".join(files))
    siblings = parts_of(index, block)
    if len(siblings) > 1:
        parts.append(f"part {siblings.index(block) + 1} of {len(siblings)}")
    inside = index.program.at.get((here.page, block.line))
    if inside:
        parts.append(f"in {escape(inside)}")
    return " · ".join(parts)


def preview(index: Index, page: Page, name: str) -> str:
    """The first block of a chunk of another page, for the preview of links to it; not a part of the page."""
    block = index.book.chunks[name][0]
    place = index.chunks[name]
    kind = "chunk implementation" if index.implements(index.pages[place.page], block) else "chunk"
    inner = framed("\n".join(lines_of(block)) + "\n")
    return (
        f'<template data-preview="{escape(place.anchor)}"><div class="{kind}">'
        f'<div class="chunk-caption">{caption(index, page, block)}</div>{inner}</div></template>\n'
    )


def parts_of(index: Index, block: Block) -> list[Block]:
    """The blocks that make up this one's chunk, in order."""
    if block.patch:
        return []
    name = block.name or index.book.targets.get(block.file or "", "")
    return index.book.chunks.get(name, [])


def foot(index: Index, page: Page, block: Block) -> str:
    """The line below a block: who uses it, what it continues, where it goes on; "" where nothing is to be said."""
    links = []
    if block.name:
        users = [block_link(index, page, user) for user in index.users.get(block.name, ())]
        if users:
            links.append("used in " + ", ".join(dict.fromkeys(users)))
    siblings = parts_of(index, block)
    if len(siblings) > 1:
        at = siblings.index(block)
        for other, words in ((at - 1, "continues"), (at + 1, "continued in")):
            if 0 <= other < len(siblings):
                link = block_link(index, page, siblings[other], f"part {other + 1}")
                links.append(f"{words} {link}")
    return f'<div class="chunk-foot">{" · ".join(links)}</div>\n' if links else ""


def block_link(index: Index, page: Page, block: Block, text: str = "") -> str:
    """A link to a block, by its chunk's name unless `text` says otherwise."""
    href = index.href(page.path, index.place(block))
    shown = text or block.name or block.file or "a block"
    return f'<a href="{href}">{escape(shown)}</a>'


# Kinds of tokens with a colour of their own, and the class that Material's style sheet has for it; the first that fits counts.
COLOURED = (
    (Token.Comment, "c"),
    (Token.Literal.String, "s"),
    (Token.Literal.Number, "m"),
    (Token.Keyword.Constant, "kc"),
    (Token.Keyword, "k"),
    (Token.Operator.Word, "k"),
    (Token.Name.Function, "nf"),
    (Token.Name.Class, "nc"),
    (Token.Name.Decorator, "nd"),
    (Token.Name.Tag, "nt"),
    (Token.Generic.Prompt, "gp"),
)
SHORT = {"s": "i", "k": "b", "m": "u"}  # most of what has a colour


@lru_cache(maxsize=64)
def _lexer(language: str) -> Any:
    try:
        name = LANGUAGES.get(language, language)
        return get_lexer_by_name(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return get_lexer_by_name("text", stripnl=False, ensurenl=False)


@lru_cache(maxsize=256)
def _class(kind: Any) -> str:
    return next((css for family, css in COLOURED if kind in family), "")


@lru_cache(maxsize=16384)
def colours(body: str, language: str) -> tuple[str, ...]:
    """The lines of a piece of code as HTML with colours; as many as the code has."""
    lines, line = [], ""
    run, last = "", ""  # text that is not written yet, and its class
    shown = body.removesuffix("\n").translate(PICTURES)
    for kind, value in [*_lexer(language).get_tokens(shown), (Token.End, "")]:
        css = _class(kind)
        for number, part in enumerate(value.split("\n")):
            if number or css != last and (part.strip() or kind is Token.End):
                line += _run(run, last)
                run, last = "", css
            if number:
                lines.append(line)
                line = ""
            run += part
    lines.append(line + _run(run, last))
    return tuple(lines)


def _run(text: str, css: str) -> str:
    inner = escape(text, quote=False)
    if not css or not text.strip():
        return inner
    if css in SHORT:
        return f"<{SHORT[css]}>{inner}</{SHORT[css]}>"
    return f"<i class={css}>{inner}</i>"


def coloured(index: Index, page: Page, block: Block) -> str:
    """The block's code with its colours and its links."""
    lines = _lines(index, page, block, block.body, block.language)
    return framed("\n".join(lines) + "\n")


def difference(index: Index, page: Page, block: Block) -> str:
    """A variant of a chunk: removed and added lines, each in an element that says which it is."""
    patched = index.book.chunks.get(block.patch or "", [])
    language = patched[0].language if patched else ""
    written = block.body.removesuffix("\n").split("\n")
    signs = [line[:1] or " " for line in written]
    body = "\n".join(line[1:] for line in written)
    kind = "chunk chunk-variant" + (" implementation" if index.implements(page, block) else "")
    lines = []
    for sign, line in zip(signs, _lines(index, page, block, body, language), strict=True):
        tag = {"-": "del", "+": "ins"}.get(sign, "span")
        lines.append(f"<{tag}>{line}\n</{tag}>")
    anchor = page.anchors.get(block.line, "")
    chunk = escape(block.patch or "")
    if block.patch in index.chunks:
        chunk = f'<a href="{index.href(page.path, index.chunks[block.patch])}">{chunk}</a>'
    name = (
        f'<a class="chunk-name" href="#{escape(anchor)}">{escape(block.name or "")}</a> · '
        if block.name
        else ""
    )
    return (
        f'<div class="{kind}" id="{escape(anchor)}">\n'
        f'<div class="chunk-caption">{name}a variant of {chunk}, no part of the program</div>\n'
        f"{framed(''.join(lines))}\n</div>"
    )


def folded(summary: str, inner: str) -> str:
    """HTML behind a line, HTML too, that opens it. A block's id is inside: a browser that is led there opens what is around it."""
    return f'<details class="code-behind"><summary>{summary}</summary>\n{inner}\n</details>'


def shown(index: Index, page: Page, block: Block) -> str:
    """A block under its caption, if it has a name or makes a file."""
    inner = captioned if page.anchors.get(block.line) else coloured
    return inner(index, page, block)


def framed(inner: str) -> str:
    """Code in the elements that Material's style sheet looks for."""
    inner = STRINGS.sub(lambda lines: lines[0].replace("</i>\n<i>", "\n"), inner)
    inner = inner.replace("</u>, <u>", ", ")  # the numbers of one array
    return f'<div class="highlight"><pre tabindex=0><code>{inner}</code></pre></div>'


def lines_of(block: Block) -> tuple[str, ...]:
    """A block's lines in colours, without links."""
    return colours(block.body, block.language)


def _lines(index: Index, page: Page, block: Block, body: str, language: str) -> list[str]:
    """The code's lines as HTML."""
    links: list[str] = []

    def hidden(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        if found[2] not in index.chunks:
            before, after = body[: found.start()], body[found.end() :]
            if (before.rpartition("\n")[2] + after.partition("\n")[0]).strip():  # code
                return found[0]
            links.append(f'<span class="bad">{escape(found[0])}</span>')
            return STAND_IN.format(len(links) - 1)
        place = index.chunks[found[2]]
        page.referred.setdefault(found[2], place)
        href = index.href(page.path, place)
        links.append(f'<a class="chunk-reference" href="{href}">{escape(found[0])}</a>')
        return STAND_IN.format(len(links) - 1)

    lines = colours(REFERENCE.sub(hidden, body), language)
    patched = index.book.chunks.get(block.patch or "", ())  # its comments speak of its own chapter
    owner = index.pages[patched[0].chapter.name] if patched else page
    return [
        STOOD_IN.sub(
            lambda found: links[int(found[1])] if int(found[1]) < len(links) else found[0],
            _equations(index, page, owner, block.line + number, line),
        )
        for number, line in enumerate(lines, 1)
    ]


def _equations(index: Index, page: Page, owner: Page, line: int, html: str) -> str:
    """A line in whose comments each `eq. label` leads to the owner's equation and shows its number."""

    def link(found: re.Match[str]) -> str:
        number = owner.equations.get(found[1])
        if number is None:
            index.diagnose(
                page.path, line, f"no equation of this chapter is labelled eq:{found[1]}"
            )
            return found[0]
        href = index.href(page.path, Place(owner.path, f"eq-{found[1]}"))
        return f'<a href="{href}">{found[0]} ({number})</a>'

    return COMMENT.sub(lambda comment: EQUATION.sub(link, comment[0]), html)
