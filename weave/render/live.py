# Tangled from book/workshop/weave-live.md
"""Figures that answer: the element around the still picture, and the script that holds its `live` value."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from html import escape

from literate.markdown import Block
from weave.model.index import Index
from weave.model.page import Page
from weave.run.outputs import outputs

FOLDER = "assets/live"


def element(page: Page, block: Block, frame: str) -> str:
    """The frame of a figure; if its opener says `live=NAME`, inside an element `tiny-NAME`."""
    kind, name = block.attributes.get("live"), escape(block.name or "")
    if not kind:
        return frame
    folder = posixpath.relpath(FOLDER, posixpath.dirname(page.path) or ".")
    return (
        f'<tiny-{kind} data-name="{name}" data-src="{folder}/{name}.js">{frame}</tiny-{kind}>'
        f'<script src="{folder}/{kind}.js" defer></script>'
    )


def scripts(index: Index, page: Page) -> Iterable[tuple[str, str]]:
    """Path and text of the script behind each such figure of the page."""
    for block in page.blocks:
        if "live" in block.attributes:
            for form, text in outputs(index, page)[block.line].shown:
                if form == "live":
                    yield (
                        f"{FOLDER}/{block.name}.js",
                        f'(window.liveData??={{}})["{block.name}"]={text};',
                    )
