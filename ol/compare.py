# Tangled from book/workshop/ol.md
"""`ol diff`: the learner's module beside the book's."""

from __future__ import annotations

import difflib

from ol.registry import Answer, Chapter, Refusal
from ol.workspace import Workspace, text_of


def diff(workspace: Workspace, chapter: Chapter) -> Answer:
    """The difference, from the learner's module to the book's. Refusal before it passes."""
    path, book = workspace.written(chapter), chapter.reference
    if not workspace.is_built(chapter):
        why = "has not passed yet, and this would show the answer: ol tests"
        raise Refusal(f"{chapter.id} {why} {chapter.id}")
    texts = text_of(path).splitlines(), book.read_text(encoding="utf-8").splitlines()
    lines = [*difflib.unified_diff(*texts, f"yours: {path}", f"the book's: {book}", lineterm="")]
    return Answer(0, lines or ["no difference"], {"chapter": chapter.id, "diff": lines})
