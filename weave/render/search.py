# Tangled from book/workshop/weave-search.md
"""The index of the search: headings, prose, chunks, identifiers, as a script that a page can load from a disk."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html import unescape

from weave.model.index import Index
from weave.model.page import Page, Place, Section

FILE = "assets/search-index.js"
HEADING = re.compile(r"<h([1-6])[^>]*? id=[\"']?([^\"'\s>]+)[^>]*>(.*?)</h\1>", re.DOTALL)
OUT = re.compile(r"<(script|style|svg|math|pre)\b.*?</\1>|<a class=.headerlink.*?</a>", re.DOTALL)


def script(index: Index, others: Iterable[Page] = ()) -> str:
    """The text of the script. `others` are pages that are not of the book, such as notebooks."""
    pages = [page for page in index.pages.values() if not page.generated]
    entries = [entry for page in [*pages, *others] for entry in _of_page(index, page)]
    entries += _of_program(index)
    written = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
    return "window.bookIndex=" + written.replace("</", "<\\/") + ";\n"


def _of_page(index: Index, page: Page) -> Iterable[list[str]]:
    for section in page.sections:
        if section.title or section.words:
            href = index.href("", Place(page.path, "" if section.level == 1 else section.anchor))
            kind = "page" if section.level == 1 else "section"
            title = section.title or page.title
            yield [kind, title, href, "" if kind == "page" else page.title, " ".join(section.words)]


def _of_program(index: Index) -> Iterable[list[str]]:
    for name in index.chunks:
        blocks = index.book.chunks.get(name)
        if blocks:
            href = index.href("", index.place(blocks[0]))
            page = index.pages[blocks[0].chapter.name]
            yield ["block", name, href, page.title, ", ".join(index.targets(name))]
    for module in index.program.modules.values():
        for one in module.definitions.values():
            if not one.name.startswith("__"):
                href = index.href("", index.place(one.block))
                yield [one.kind, one.qualified, href, module.target, ""]


def page_of_html(path: str, title: str, html: str) -> Page:
    """A page that is known by its HTML only."""
    page = Page(path, "", [], title=title)
    parts = HEADING.split(OUT.sub(" ", html))
    page.sections.append(Section("", 1, title, [_words(parts[0])]))
    for level, anchor, heading, text in zip(*[iter(parts[1:])] * 4, strict=True):
        page.sections.append(Section(anchor, int(level), _words(heading), [_words(text)]))
    return page


def _words(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).replace("¶", " ").split())
