# Tangled from book/workshop/weave-blocks.md
"""Console sessions on a page: the commands and what they print."""

from __future__ import annotations

from functools import partial
from html import escape
from typing import Any

from weave import code, sessions
from weave.index import Index, Page
from weave.later import LATER, Output, Work

_work: Work[list[str]] = Work()


def outputs(index: Index, page: Page) -> dict[int, Output]:
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


def _line(blocks: list[Any], message: str) -> int:
    """The line of the command that a message names."""
    for block in blocks:
        if message.startswith(f"workspace={block.attributes.get('workspace', '')}: "):
            return int(block.line)
        for number, line in enumerate(block.body.splitlines(), block.line + 1):
            if line.startswith("$ ") and message.startswith(f"{line[2:]}: "):
                return int(number)
    return int(blocks[0].line)


def terminal(output: Output) -> str:
    """A session as HTML."""
    text = f"{output.text.rstrip()}\n({LATER})" if output.late else output.text
    lines = []
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("$ "):
            lines.append(f"<i class=gp>$</i> {code.colours(line[2:], 'bash')[0]}\n")
        else:
            lines.append(f"<span class=printed>{escape(line, quote=False)}\n</span>")
    return code.framed("".join(lines).replace("\n</span><span class=printed>", "\n"))
