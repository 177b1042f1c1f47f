# Tangled from book/workshop/weave.md
"""MkDocs events, kept thin: what renders stands in the extension."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weave import equations
from weave.index import current, forget

FONT = "assets/stix-two-math.woff2"


def on_pre_build(config: Any) -> None:
    """Each build reads the book anew."""
    forget()


def on_nav(nav: Any, config: Any, files: Any) -> Any:
    """Folders are named as parts: 5-transformer becomes "Part 5: Transformer"."""
    for item in nav.items:
        if item.is_section:
            number, _, name = item.title.lower().partition(" ")
            item.title = f"Part {number}: {name.capitalize()}" if number.isdigit() else item.title
    return nav


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Tells MkDocs' check of links about the ids of blocks, figures and equations."""
    woven = current(config["docs_dir"]).pages.get(page.file.src_uri)
    if woven is not None and page.present_anchor_ids is not None:
        page.present_anchor_ids |= set(woven.anchors.values()) | set(woven.figures)
        page.present_anchor_ids |= {"eq-" + label for label in woven.equations}
    return html


def on_post_build(config: Any) -> None:
    """Writes the font of the equations."""
    if equations.used:
        path = Path(config["site_dir"], FONT)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(equations.font())
