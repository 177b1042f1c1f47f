# Tangled from book/workshop/weave-blocks.md
"""Console sessions on a page: the commands and what they print."""

from __future__ import annotations

import os
import threading
from html import escape
from typing import Any

from weave import code, sessions
from weave.index import Index, Page

patient = True  # whether a page waits for its sessions; not while the site is served
SECONDS = 0.3  # for what is kept, where it does not


class Run(threading.Thread):
    """The sessions of one page."""

    one = threading.Lock()  # they measure time, and are not to disturb each other

    def __init__(self, blocks: list[tuple[str, str]], root: str) -> None:
        super().__init__(daemon=True)  # the end of the server is their end
        self.blocks, self.root = blocks, root
        self.texts: list[str] = []
        self.error = ""
        self.unwanted = False

    def run(self) -> None:
        """Fills `texts` or `error`."""
        with self.one:
            if self.unwanted:
                return
            try:
                self.texts = sessions.transcripts(self.blocks, self.root)
            except ValueError as error:
                self.error = str(error)


_last: dict[str, Run] = {}  # page -> its last run that has ended
_now: dict[str, Run] = {}  # page -> the one that was begun last


def shown(index: Index, page: Page) -> dict[int, str]:
    """The opener line of each session of a page -> its text; the commands alone where they have not been run."""
    blocks = [block for block in page.blocks if "session" in block.classes]
    if not blocks:
        return {}
    pairs = [(index.body(block), block.attributes.get("workspace", "")) for block in blocks]
    if page.path in _now:
        _now[page.path].unwanted = True
    run = _now[page.path] = Run(pairs, os.path.dirname(os.path.abspath(index.folder)))
    run.start()
    run.join(None if patient else SECONDS)
    if not run.is_alive():
        _last[page.path] = run
    run = _last.get(page.path, run)
    if run.error:
        index.fault(page.path, _line(blocks, run.error), f"a session failed: {run.error}")
    same = run.texts if len(run.texts) == len(blocks) else [text for text, _ in pairs]
    return {block.line: text for block, text in zip(blocks, same, strict=True)}


def _line(blocks: list[Any], message: str) -> int:
    """The line of the command that a message names."""
    for block in blocks:
        if message.startswith(f"workspace={block.attributes.get('workspace', '')}: "):
            return int(block.line)
        for number, line in enumerate(block.body.splitlines(), block.line + 1):
            if line.startswith("$ ") and message.startswith(f"{line[2:]}: "):
                return int(number)
    return int(blocks[0].line)


def terminal(text: str) -> str:
    """A session as HTML."""
    lines = []
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("$ "):
            lines.append(f"<i class=gp>$</i> {code.colours(line[2:], 'bash')[0]}\n")
        else:
            lines.append(f"<span class=printed>{escape(line, quote=False)}\n</span>")
    return code.framed("console", "".join(lines).replace("\n</span><span class=printed>", "\n"))
