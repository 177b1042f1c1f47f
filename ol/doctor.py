# Tangled from book/workshop/ol.md
"""`ol doctor`: what is there, what is missing, and how to get it."""

from __future__ import annotations

import platform
import shutil
from importlib import metadata

from ol.lesson import absent
from ol.registry import ROOT, Answer, chapters
from ol.terminal import table
from ol.workspace import Workspace

_WANTED = {  # what -> what it is for
    "numpy": "everything",
    "pytest": "ol tests, ol mutate",
    "torch": "the tests of most chapters compare with it",
}


def doctor(workspace: Workspace) -> Answer:
    """Status 1 if numpy or pytest is missing."""
    rows = [("tinyllm-book", _version("tinyllm-book") or "not installed", str(ROOT))]
    rows.append(("python", platform.python_version(), ""))
    found = {name: _version(name) for name in _WANTED}
    for name, version in found.items():
        rows.append(
            (name, version or "missing", "" if version else f"pip install {name}: {_WANTED[name]}")
        )
    lacking = {c.id: absent(c.course_tests) for c in chapters().values() if c.course_tests.exists()}
    for name in sorted({name for names in lacking.values() for name in names} - set(_WANTED)):
        of = ", ".join(one for one, names in lacking.items() if name in names)
        rows.append((name, "missing", f"pip install {name}: the tests of {of}"))
    there = shutil.which("bwrap")
    rows.append(("bwrap", there or "missing", "" if there else "apt install bubblewrap: ol grade"))
    begun = sum(map(workspace.is_begun, chapters().values()))
    known = f"{begun} begun" if workspace.memory.is_dir() else "none yet: ol start L0.1 makes one"
    rows.append(("workspace", str(workspace.root), known))
    ready = bool(found["numpy"] and found["pytest"])
    data = {"versions": found, "lacking": lacking, "bwrap": there, "ready": ready}
    return Answer(0 if ready else 1, table(rows), data)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
