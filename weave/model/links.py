# Tangled from book/workshop/weave-search.md
"""Every link of the chapters leads somewhere; one that does not is reported with its line."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Container
from urllib.parse import unquote

from weave.model.index import Index
from weave.model.page import Link, Page

OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)


def check(index: Index, known: Container[str]) -> None:
    """Report the dead links of all pages; `known` holds the paths of files that are on the site besides."""
    for page in index.pages.values():
        for link in page.links:
            wrong = _wrong(index, page, link, known)
            if wrong:
                index.diagnose(page.path, link.line, f"the link to {link.target} is dead: {wrong}")


def _wrong(index: Index, page: Page, link: Link, known: Container[str]) -> str:
    if OUTSIDE.match(link.target):
        return ""
    path, _, anchor = map(unquote, link.target.partition("#"))
    other = posixpath.normpath(posixpath.join(posixpath.dirname(page.path), path))
    if link.raw and other.endswith(".md"):
        return "in HTML a link leads to the page of a chapter, which ends in .html"
    if link.raw and other.endswith(".html"):
        chapter = other.removesuffix("html")
        other = next((chapter + end for end in ("md", "py") if chapter + end in index.pages), other)
    if not path:
        other = page.path
    elif other not in index.pages:
        return "" if other in known else f"there is no file {other}"
    there = index.pages[other]
    if anchor and there.ids is not None and anchor not in there.all_ids():
        return f"nothing in {other} has the id {anchor}"
    return ""
