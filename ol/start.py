# Tangled from book/workshop/ol.md
"""`ol start`: a stub to fill in, and a place for the tests; `ol diff`: the book's module beside it."""

from __future__ import annotations

import difflib
from pathlib import Path

from ol.registry import Answer, Chapter, Refusal
from ol.stubs import rungs_up_to, stub, test_stub
from ol.workspace import Workspace, text_of, write

SETTINGS = """\
# Written by `ol start`: with this, pytest tests your modules, and takes the book's for the rest.
[pytest]
addopts = -p ol.learner --import-mode=importlib
"""


def start(workspace: Workspace, chapter: Chapter) -> Answer:
    """Write the stub and the test file where there is none."""
    tests = workspace.tests(chapter) / f"test_{Path(chapter.path).stem}.py"
    files = {workspace.module(chapter): stub(chapter), tests: test_stub(chapter)}
    lines, written = [str(chapter)], []
    for path, text in files.items():
        if path.exists():
            lines.append(f"{workspace.shown(path)} is there already and was not touched")
        else:
            write(path, text)
            written.append(str(path))
            lines.append(f"{workspace.shown(path)}: written")
    workspace.save()
    if not (settings := workspace.root / "pytest.ini").exists():
        write(settings, SETTINGS)
    lines += [*workspace.borrowed(chapter), f"course tests: {chapter.course_tests}"]
    lines.append(f"your tests are graded, rung {chapter.rung}:")
    lines += [f"  {line}" for line in rungs_up_to(chapter.rung)]
    module = workspace.shown(workspace.module(chapter))
    lines.append(f"next: fill in {module}, then ol tests {chapter.id}")
    data = {"chapter": chapter.id, "files": list(map(str, files)), "written": written}
    return Answer(0, lines, data)


def diff(workspace: Workspace, chapter: Chapter) -> Answer:
    """The difference, from the learner's module to the book's. Refusal before it passes."""
    path, book = workspace.written(chapter), chapter.reference
    if not workspace.is_built(chapter):
        why = "has not passed yet, and this would show the answer: ol tests"
        raise Refusal(f"{chapter.id} {why} {chapter.id}")
    texts = text_of(path).splitlines(), book.read_text(encoding="utf-8").splitlines()
    lines = [*difflib.unified_diff(*texts, f"yours: {path}", f"the book's: {book}", lineterm="")]
    return Answer(0, lines or ["no difference"], {"chapter": chapter.id, "diff": lines})
