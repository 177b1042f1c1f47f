# Tangled from book/workshop/ol-class.md
"""A submission: what is read of it, and what came of it."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ol.registry import Chapter, Refusal

LARGEST = 2_000_000  # bytes of all test files together
COLUMNS = ("name", "state", "score", "caught", "missed", "says")  # of the table


def read(folder: Path, chapter: Chapter) -> dict[str, str]:
    """The test files of a submission, by path, in base64. ValueError if they cannot be taken."""
    tests = tests_in(folder, chapter)
    if tests is None:
        raise ValueError(f"no folder {chapter.files[1]}")
    if folder.is_symlink() or tests.resolve() != folder.resolve() / tests.relative_to(folder):
        raise ValueError(f"{tests.relative_to(folder)} is reached through a link")
    found, size = {}, 0
    for path in sorted(tests.rglob("*")):
        name = path.relative_to(tests)
        if "__pycache__" in name.parts or path.is_dir() and not path.is_symlink():
            continue
        state = path.lstat()
        if not stat.S_ISREG(state.st_mode):
            raise ValueError(f"{name} is not a plain file")
        size += state.st_size
        if size > LARGEST:
            raise ValueError(f"the test files have more than {LARGEST} bytes")
        found[name.as_posix()] = base64.b64encode(path.read_bytes()).decode()
    return found


def tests_in(folder: Path, chapter: Chapter) -> Path | None:
    """Where a submission has its tests: as in a workspace, without python/, or in the folder itself."""
    whole = Path(chapter.files[1])
    for place in (folder / whole, folder / Path(*whole.parts[1:]), folder / whole.name):
        if place.is_dir() and not place.is_symlink():
            return place
    return folder if any(folder.glob("test_*.py")) else None


def names(folder: Path, roster: Path | None) -> list[str]:
    """The submissions under a folder, or those that a roster names."""
    if not folder.is_dir():
        raise Refusal(f"there is no folder {folder}", 2)
    if roster is None:
        return sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name[0] != ".")
    try:
        with roster.open(encoding="utf-8-sig", newline="") as file:
            rows = [row[0].strip() for row in csv.reader(file) if row and row[0].strip()]
    except (OSError, UnicodeError, csv.Error) as error:
        raise Refusal(f"{roster} cannot be read: {error}", 2) from error
    if rows and rows[0].lower() in {"name", "names", "student", "login", "id", "folder"}:
        rows = rows[1:]
    wrong = [name for name in rows if Path(name).name != name or name in {".", ".."}]
    if wrong:
        raise Refusal(f"{roster}: {wrong[0]!r} is not the name of a folder", 2)
    return list(dict.fromkeys(rows))


def fingerprint(order: dict[str, Any]) -> str:
    """Equal for submissions with the same files."""
    return hashlib.sha256(json.dumps(order, sort_keys=True).encode()).hexdigest()


@dataclass
class Result:
    """A row of the table."""

    name: str
    state: str  # passed, not yet, no grade, stopped, absent
    score: float | None = None
    caught: int = 0
    missed: int = 0
    says: str = ""
    lines: list[str] = field(default_factory=list)  # the feedback
    seconds: float = 0.0

    def row(self) -> dict[str, Any]:
        """What stands in the table."""
        score = "" if self.score is None else f"{self.score:.4f}"
        return {name: getattr(self, name) for name in COLUMNS} | {"score": score}

    def page(self, chapter: Chapter) -> str:
        """The page of feedback, in Markdown."""
        score = "" if self.score is None else f", score {self.score:.2f}"
        body = "\n".join(f"    {line}" if line else "" for line in self.lines)
        return f"# {self.name}: {chapter}\n\n**{self.state}**{score}. {self.says}\n\n{body}\n"
