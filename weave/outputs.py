# Tangled from book/workshop/weave.md
"""What came of the blocks that a page runs: its figures and its sessions."""

from __future__ import annotations

from weave import console
from weave.execute import Figure, figures
from weave.index import Index, Page
from weave.later import Output


def outputs(index: Index, page: Page) -> dict[int, Output]:
    """The opener line of each such block -> its output."""
    if page.outputs is None:
        if any("figure" in block.classes for block in page.blocks):
            _draw(index)
        page.outputs = {**index.drawn.get(page.path, {}), **console.outputs(index, page)}
    return page.outputs


def _draw(index: Index) -> None:
    """Fills `index.drawn`, once."""
    if index.drawn:
        return
    blocks = [
        Figure(page.path, block.name or str(block.line), block.line, index.body(block))
        for page in index.pages.values()
        for block in page.blocks
        if "figure" in block.classes
    ]
    for block, output in zip(blocks, figures(index.root, blocks), strict=True):
        index.drawn.setdefault(block.path, {})[block.line] = output
