# Tangled from book/workshop/weave-search.md
"""Every link of the chapters leads somewhere; one that does not is reported with its line."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Container
from urllib.parse import unquote

from weave.index import Index, Page

OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)


def check(index: Index, known: Container[str]) -> None:
    """Report the dead links of all pages; `known` holds the paths of files that are on the site besides."""
    for page in index.pages.values():
        for line, target in page.links:
            wrong = _wrong(index, page, target, known)
            if wrong:
                index.fault(page.path, line, f"the link to {target} is dead: {wrong}")


def _wrong(index: Index, page: Page, target: str, known: Container[str]) -> str:
    if OUTSIDE.match(target):
        return ""
    path, _, anchor = unquote(target).partition("#")
    other = posixpath.normpath(posixpath.join(posixpath.dirname(page.path), path))
    if not path:
        other = page.path
    elif other not in index.pages:
        return "" if other in known else f"there is no file {other}"
    there = index.pages[other]
    if anchor and there.ids is not None and anchor not in there.all_ids():
        return f"nothing in {other} has the id {anchor}"
    return ""
