# Tangled from book/workshop/ol.md
"""`ol start`: a stub to fill in, and a place for the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ol.registry import Answer, Chapter
from ol.stubs import rungs_up_to, stub, test_stub
from ol.workspace import Workspace, write

SETTINGS = """\
# Written by `ol start`: with this, pytest tests your modules, and takes the book's for the rest.
[pytest]
addopts = -p ol.learner --import-mode=importlib
"""


def start(workspace: Workspace, chapter: Chapter, ref_deps: bool, reset: bool) -> Answer:
    """Write the stub and the test file where there is none."""
    if ref_deps:
        workspace.set_ref_deps()
    lines, files = [str(chapter)], []
    for kind, path, text in _files(workspace, chapter):
        entry: dict[str, Any] = {"kind": kind, "path": str(path), "state": "written"}
        shown = workspace.shown(path)
        if path.exists() and reset:
            kept = workspace.back_up(path)
            entry |= {"state": "reset", "backup": str(kept)}
            lines.append(f"{shown}: begun again, the old one is {workspace.shown(kept)}")
        elif path.exists():
            entry["state"] = "kept"
            lines.append(f"{shown} is there already and was not touched (--reset begins again)")
        if not path.exists():
            write(path, text)
            if entry["state"] == "written":
                lines.append(f"{shown}: written")
        files.append(entry)
    if reset:
        workspace.put("built", chapter.id, None)
    workspace.save()
    if not (settings := workspace.root / "pytest.ini").exists():
        write(settings, SETTINGS)
    borrowed, words = _what_is_missing(workspace, chapter)
    lines += words
    lines.append(f"course tests: {chapter.course_tests}")
    if chapter.rung:
        lines.append(f"your tests are graded, rung {chapter.rung}:")
        lines += [f"  {line}" for line in rungs_up_to(chapter.rung)]
    else:
        lines.append("this chapter has no graded tests: the course's tests are all")
    module = workspace.shown(workspace.module(chapter))
    lines.append(f"next: fill in {module}, then ol tests {chapter.id}")
    data = {
        "chapter": chapter.id,
        "rung": chapter.rung,
        "files": files,
        "course_tests": str(chapter.course_tests),
        "not_built": workspace.missing(chapter)[0],
        "from_the_book": borrowed,
    }
    return Answer(0, lines, data)


def _files(workspace: Workspace, chapter: Chapter) -> list[tuple[str, Path, str]]:
    files = [("module", workspace.module(chapter), stub(chapter))]
    folder = workspace.tests(chapter)
    if folder is not None:
        name = f"test_{Path(chapter.path).stem}.py"
        files.append(("tests", folder / name, test_stub(chapter)))
    return files


def _what_is_missing(workspace: Workspace, chapter: Chapter) -> tuple[list[str], list[str]]:
    """What comes from the book because it is not built, and that in words."""
    missing, tools = workspace.missing(chapter)
    borrowed = missing + tools if workspace.state["ref_deps"] else tools
    names, lines = ", ".join(missing), []
    if missing and workspace.state["ref_deps"]:
        lines.append(f"taken from the book, because they are not built: {names}")
    elif missing:
        lines.append(f"not built yet: {names}. Build them, or pass --ref-deps to take the book's")
    if tools:
        used = ", ".join(tools)
        lines.append(f"its tests also use {used}: not built, so the book's will be taken")
    return borrowed, lines
