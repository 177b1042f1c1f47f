# Tangled from book/workshop/ol.md
"""`ol doctor`: what is there, what is missing, and how to get it."""

from __future__ import annotations

import platform
import shutil

from ol.lesson import absent
from ol.registry import ROOT, Answer, chapters, version
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
    found = {name: version(name) for name in wanted}
    rows = [("tinyllm-book", version("tinyllm-book") or "not installed", str(ROOT))]
    rows.append(("python", platform.python_version(), ""))
    for name, there in found.items():
        help_ = "" if there else f"pip install {name}: {wanted[name]}"
        rows.append((name, there or "missing", help_))
    bwrap = shutil.which("bwrap")
    rows.append(("bwrap", bwrap or "missing", "" if bwrap else "apt install bubblewrap: ol grade"))
    begun = f"{sum(map(workspace.is_begun, chapters().values()))} begun"
    rows.append(("workspace", str(workspace.root), begun))
    ready = bool(found["numpy"] and found["pytest"])
    return Answer(0 if ready else 1, table(rows), {"versions": found, "bwrap": bwrap})
