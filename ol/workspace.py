# Tangled from book/workshop/ol.md
"""The learner's folder: where files stand, what was passed, what was kept."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ol.registry import Chapter, Refusal, chapters, closure

MARK = ".ol"
# table -> what it holds for a chapter
KEPT = {"built": list, "graded": dict, "hints": dict, "tried": str}


class Workspace:
    """A learner's folder."""

    def __init__(self, root: Path):
        self.root = root
        self.memory = root / MARK
        self.state: dict[str, Any] = {"ref_deps": False} | {table: {} for table in KEPT}
        path = self.memory / "state.json"
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
            for table, kind in KEPT.items():
                if not all(isinstance(held, kind) for held in known[table].values()):
                    raise ValueError(table)
            self.state |= known
        except FileNotFoundError:
            pass
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise Refusal(
                f"{path} cannot be read ({error!r}). Remove it: chapters then count as begun"
            ) from error

    @classmethod
    def around(
        cls, folder: str | os.PathLike[str] | None = None, here: Path | None = None
    ) -> Workspace:
        """The workspace that was named, or that the current folder is in, or the current folder."""
        if folder is not None:
            return cls(Path(folder).absolute())
        here = here or Path.cwd()
        return cls(next((p for p in (here, *here.parents) if (p / MARK).is_dir()), here))

    def module(self, chapter: Chapter) -> Path:
        """The learner's module."""
        return self.root / chapter.files[0]

    def written(self, chapter: Chapter) -> Path:
        """The same. Refusal if there is no such file."""
        path = self.module(chapter)
        if not path.is_file():
            there = "is no file: move it away, then" if path.exists() else "is not there:"
            raise Refusal(f"{self.shown(path)} {there} ol start {chapter.id}")
        return path

    def tests(self, chapter: Chapter) -> Path:
        """The folder of the learner's own tests."""
        return self.root / chapter.files[1]

    def here(self, place: Path) -> list[Chapter]:
        """The chapters whose folder this is: begun, and not built if there are several."""
        found = []
        for chapter in filter(self.is_begun, chapters().values()):
            module, tests = self.module(chapter), self.tests(chapter)
            if place in (module, module.parent) or (tests and place.is_relative_to(tests)):
                found.append(chapter)
        return [c for c in found if len(found) == 1 or not self.is_built(c)]

    def own(self, chapter: Chapter | None) -> dict[str, Path]:
        """The learner's modules: those that are built, and the chapter's; all that are begun for None."""
        return {
            known.id: self.module(known)
            for known in filter(self.is_begun, chapters().values())
            if chapter in (None, known) or self.is_built(known)
        }

    def shown(self, path: Path) -> str:
        """A path as a person wants it: from the workspace, if it lies there."""
        inside = path.is_relative_to(self.root)
        return path.relative_to(self.root).as_posix() if inside else str(path)

    def save(self) -> None:
        """Write down what is remembered; makes the folder a workspace."""
        try:
            write(self.memory / ".gitignore", "*\n")
            write(self.memory / "state.json", json.dumps(self.state, indent=1) + "\n")
        except Refusal as error:  # what was worked out can be told all the same
            print(f"ol: this will not be remembered: {error.__cause__}", file=sys.stderr)

    def put(self, table: str, name: str, value: Any) -> None:
        """Remember one thing of a chapter in a table, such as "built"."""
        self.state = Workspace(self.root).state
        self.state[table][name] = value
        self.save()

    def set_ref_deps(self) -> None:
        self.state = Workspace(self.root).state | {"ref_deps": True}
        self.save()

    def passed(self, chapter: Chapter, module_hash: str, *but: str) -> None:
        """The module, as it was when it had this hash, has passed the course's tests, perhaps but for some."""
        self.put("built", chapter.id, [module_hash, digest([chapter.course_tests]), *but])

    def is_built(self, chapter: Chapter) -> bool:
        """Whether the learner's module passed the course's tests as both are now."""
        kept = self.state["built"].get(chapter.id)
        if kept is None or not self.module(chapter).exists():
            return False
        return bool(kept[:2] == [digest([self.module(chapter)]), digest([chapter.course_tests])])

    def missing(self, chapter: Chapter) -> tuple[list[str], list[str]]:
        """What a chapter needs that is not built, and what only its tests need."""
        needs, whole = closure(chapter.needs), closure([*chapter.needs, *chapter.test_needs])
        left = [name for name in whole if not self.is_built(chapters()[name])]
        return [n for n in left if n in needs], [n for n in left if n not in needs]

    def borrowed(self, chapter: Chapter) -> list[str]:
        """In words: what is not built of that which a chapter needs, and whence it comes."""
        needed, tools = map(", ".join, self.missing(chapter))
        way = "Build them, or pass --ref-deps to take the book's"
        how = (
            f"from the book: {needed}" if self.state["ref_deps"] else f"not built: {needed}. {way}"
        )
        from_book = f"the tests use {tools} from the book: not built yet"
        return [line for line, names in ((how, needed), (from_book, tools)) if names]

    def is_begun(self, chapter: Chapter) -> bool:
        return self.module(chapter).exists()

    def grade_of(self, chapter: Chapter) -> dict[str, Any] | None:
        """The last grade, if it is of the tests as they are now."""
        kept, tests = self.state["graded"].get(chapter.id), self.tests(chapter)
        if kept is None or kept.get("tests") != digest([tests]):
            return None
        return {name: kept[name] for name in ("score", "passed", "tests")}


def digest(paths: Iterable[Path]) -> str:
    """One hash for the contents of files and folders, whatever their line ends."""
    total = hashlib.sha256()
    for path in paths:
        for file in files_in(path):
            name = file.relative_to(path).as_posix() if file != path else ""
            data = file.read_bytes().replace(b"\r\n", b"\n")
            total.update(f"{name}\0{len(data)}\0".encode())
            total.update(data)
    return total.hexdigest()


def write(path: Path, text: str) -> None:
    """Put a text into a file, all of it or nothing. Refusal if it cannot be written."""
    from tinyllm.checkpoint import write_atomically  # and numpy, which not every command needs

    try:
        write_atomically(path, [text.encode()])
    except OSError as error:
        raise Refusal(f"{path} cannot be written: {error}") from error


def text_of(path: Path) -> str:
    """What a file of the learner's says. Refusal if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise Refusal(f"{path} cannot be read: {error}") from error


def files_in(path: Path) -> list[Path]:
    """The files of a folder, without those that Python makes; a file is itself."""
    if not path.is_dir():
        return [path] if path.exists() else []
    found = [file for file in path.rglob("*") if file.is_file()]
    made = {"__pycache__", ".pytest_cache"}
    return sorted(file for file in found if not made & set(file.relative_to(path).parts))
