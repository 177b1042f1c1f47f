# Tangled from book/workshop/ol.md
"""`ol diff`: the learner's module beside the book's."""

from __future__ import annotations

import difflib

from ol.registry import Answer, Chapter, Refusal
from ol.terminal import paint
from ol.workspace import Workspace, text_of

_COLOURS = {"+": "green", "-": "red", "@": "bold"}


def diff(workspace: Workspace, chapter: Chapter, spoil: bool) -> Answer:
    """The difference, from the learner's module to the book's. Refusal before it passes."""
    path = workspace.written(chapter)
    if not (spoil or workspace.is_built(chapter)):
        raise Refusal(
            f"{chapter.id} has not passed yet, and this would show the answer: "
            f"ol tests {chapter.id}, or --spoil"
        )
    theirs = chapter.reference.read_text(encoding="utf-8").splitlines()
    own = text_of(path).splitlines()
    lines = list(
        difflib.unified_diff(
            own, theirs, f"yours: {path}", f"the book's: {chapter.path}", lineterm=""
        )
    )
    shown = [paint(line, _COLOURS[line[0]]) if line[0] in _COLOURS else line for line in lines]
    data = {"chapter": chapter.id, "yours": str(path), "book": chapter.path, "diff": lines}
    return Answer(0, shown or ["no difference"], data)
