# Tangled from book/workshop/weave-search.md
"""The index of the search: headings, prose, chunks, identifiers, as a script that a page can load from a disk."""

from __future__ import annotations

import json
from collections.abc import Iterable

from weave.model.index import Index
from weave.model.page import Page, Place

FILE = "assets/search-index.js"


def script(index: Index) -> str:
    """The text of the script."""
    pages = [page for page in index.pages.values() if not page.generated]
    entries = [entry for page in pages for entry in _of_page(index, page)]
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
