# Tangled from book/workshop/weave.md
"""What came of the blocks that a page runs: its figures and its sessions."""

from __future__ import annotations

from functools import partial

from literate.markdown import Block
from weave.model.index import Index
from weave.model.page import Output, Page
from weave.run import sessions
from weave.run.execute import Figure, figures
from weave.run.later import Work

_work: Work[list[str]] = Work()


def outputs(index: Index, page: Page) -> dict[int, Output]:
    """The opener line of each such block -> its output."""
    if page.outputs is None:
        if any("figure" in block.classes for block in page.blocks):
            _draw(index)
        page.outputs = {**index.drawn.get(page.path, {}), **_sessions(index, page)}
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


def _sessions(index: Index, page: Page) -> dict[int, Output]:
    """The opener line of each session of a page -> what it prints; the commands alone where they have not been run."""
    blocks = [block for block in page.blocks if "session" in block.classes]
    if not blocks:
        return {}
    pairs = [(index.body(block), block.attributes.get("workspace", "")) for block in blocks]
    root = str(index.root)
    known, key = sessions.known(pairs, root), sessions.key(pairs, root)
    _work.begin(page.path, key, partial(sessions.transcripts, pairs, root), known)
    texts, late, fault = None, False, None
    try:
        texts, is_new = _work.result(page.path)
        late = texts is None and not is_new
    except ValueError as error:
        fault = _line(blocks, str(error)), f"a session failed: {error}"
    if texts is None or len(texts) != len(blocks):
        texts = [text for text, _ in pairs]
    found = {block.line: Output(text, late) for block, text in zip(blocks, texts, strict=True)}
    if fault:
        found[blocks[0].line] = Output(texts[0], late, fault)
    return found


def _line(blocks: list[Block], message: str) -> int:
    """The line of the command that a message names."""
    for block in blocks:
        if message.startswith(f"workspace={block.attributes.get('workspace', '')}: "):
            return int(block.line)
        for number, line in enumerate(block.body.splitlines(), block.line + 1):
            if line.startswith("$ ") and message.startswith(f"{line[2:]}: "):
                return int(number)
    return int(blocks[0].line)
