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
    lacking = {c.id: absent(c.course_tests) for c in chapters().values() if c.course_tests.exists()}
    others = sorted({name for names in lacking.values() for name in names} - set(_WANTED))
    users = {n: [chapter for chapter, names in lacking.items() if n in names] for n in others}
    wanted = _WANTED | {name: f"the tests of {', '.join(users[name])}" for name in others}
    found = {name: _version(name) for name in wanted}
    rows = [("tinyllm-book", _version("tinyllm-book") or "not installed", str(ROOT))]
    rows.append(("python", platform.python_version(), ""))
    for name, version in found.items():
        help_ = "" if version else f"pip install {name}: {wanted[name]}"
        rows.append((name, version or "missing", help_))
    there = shutil.which("bwrap")
    rows.append(("bwrap", there or "missing", "" if there else "apt install bubblewrap: ol grade"))
    begun = f"{sum(map(workspace.is_begun, chapters().values()))} begun"
    rows.append(("workspace", str(workspace.root), begun))
    ready = bool(found["numpy"] and found["pytest"])
    return Answer(0 if ready else 1, table(rows), {"versions": found, "bwrap": there})


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
