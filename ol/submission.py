# Tangled from book/workshop/ol-class.md
"""A submission: what is read of it, and how it is graded."""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import json
import keyword
import re
import shutil
import stat
import tempfile
import unicodedata
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from ol.grade import Bench, grade_tests
from ol.jobs import Verdict
from ol.registry import Chapter, Refusal, find, module_name
from ol.runner import Runner

LARGEST, ARCHIVE = 2_000_000, 50_000_000  # bytes of all that is read, and of a zip
MOST = 20_000  # files in a submission
SHORT = 60  # tokens, below which two students may well have written the same
Opener = Callable[[], Any]  # what gives a binary file to read from


def _listed(
    place: Path, stack: contextlib.ExitStack
) -> Iterator[tuple[PurePosixPath, Opener | None]]:
    """The files of a folder or a zip, and what opens them; None: it is a link, or encrypted, ..."""
    kind = place.lstat().st_mode
    if stat.S_ISDIR(kind):
        for path in place.rglob("*"):  # which goes through no link
            opener = partial(path.open, "rb")
            if not stat.S_ISDIR(mode := path.lstat().st_mode):
                inside = PurePosixPath(path.relative_to(place).as_posix())
                yield inside, opener if stat.S_ISREG(mode) else None
        return
    if not stat.S_ISREG(kind) or place.stat().st_size > ARCHIVE:
        raise ValueError(f"it is no plain file of at most {ARCHIVE} bytes")
    archive = stack.enter_context(zipfile.ZipFile(place))
    for info in archive.infolist():
        mode = stat.S_IFMT(info.external_attr >> 16)  # 0 where it was not made on Unix
        packed = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        plain = mode in (0, stat.S_IFREG) and packed and not info.flag_bits & 1
        if not info.is_dir():
            inside = PurePosixPath(info.filename.replace("\\", "/"))  # from old Windows tools
            yield inside, partial(archive.open, info) if plain else None


def read(places: list[Path], chapter: Chapter) -> dict[str, Any]:
    """A submission's "files", its tests by path, and its "module", all in base64. None: not there.

    An exception of any kind says why it cannot be taken.
    """
    if len(places) > 1:
        raise ValueError(f"handed in twice: {', '.join(path.name for path in places)}")
    found: dict[PurePosixPath, Opener | None] = {}
    with contextlib.ExitStack() as stack:
        inside = [path for path in places[0].glob("*") if path.name[0] != "."]
        packed = len(inside) == 1 and inside[0].suffix.lower() == ".zip"  # as Moodle has it
        for path, opener in _listed(inside[0] if packed else places[0], stack):
            if path in found or len(found) == MOST:
                raise ValueError(f"{path} is in it twice, or it has more than {MOST} files")
            if not any(p == "__pycache__" or p[0] == "." and p != ".." for p in path.parts):
                found[path] = opener
        module = _likest(found, chapter.files[0])
        loose = any(path.match("test_*.py") and len(path.parts) == 1 for path in found)
        folders = {parent for path in found for parent in path.parents}
        home = _likest(folders, chapter.files[1]) or (PurePosixPath() if loose else None)
        tests = [path for path in found if home in path.parents and path != module]
        left, texts = LARGEST, {}
        for path in [*tests, *([module] if module else [])]:
            text = _text(path, found[path], left)
            left, texts[path] = left - len(text), base64.b64encode(text).decode()
    if not texts:
        raise ValueError(f"neither {' nor '.join(chapter.files)} is in it (links are not followed)")
    files = {path.relative_to(home or "").as_posix(): texts[path] for path in tests}
    return {"files": files, "module": texts[module] if module else None}


def _likest(paths: Iterable[PurePosixPath], wanted: str) -> PurePosixPath | None:
    """Of the paths with that name the one that ends most like it; the one nearest the top."""
    end = PurePosixPath(wanted).parts[::-1]

    def unlike(path: PurePosixPath) -> tuple[int, int, str]:
        alike = [a == b for a, b in zip(path.parts[::-1], end, strict=False)]
        return -[*alike, False].index(False), len(path.parts), str(path)

    return min((path for path in paths if path.name == end[0]), key=unlike, default=None)


def _text(path: PurePosixPath, opener: Opener | None, left: int) -> bytes:
    """What a file says. ValueError if it may not be read, or says more than is left to read."""
    if not str(path).isprintable() or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{str(path)!a} is no name for a file")
    if opener is None:
        raise ValueError(f"{path} is not a plain file")
    with opener() as file:
        text: bytes = file.read(left + 1)
    if len(text) > left:
        raise ValueError(f"its files have more than {LARGEST} bytes")
    return text


def submissions(folder: Path) -> dict[str, list[Path]]:
    """Name -> where it was handed in: the folders and zips in a folder."""
    if not folder.is_dir():
        raise Refusal(f"there is no folder {folder}", 2)
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if path.name[0] != "." and (path.is_dir() or path.suffix.lower() == ".zip"):
            name = unicodedata.normalize("NFC", path.name if path.is_dir() else path.stem)
            found.setdefault(name, []).append(path)
    return found


def names(roster: Path) -> list[str]:
    """The names in the first column of a table, under a heading or not."""
    try:
        with roster.open(encoding="utf-8-sig", newline="") as file:
            rows = [row[0].strip() for row in csv.reader(file) if row and row[0].strip()]
    except (OSError, UnicodeError, csv.Error) as error:
        raise Refusal(f"{roster} cannot be read: {error}", 2) from error
    if rows and rows[0].lower() in {"name", "names", "student", "login", "id", "folder"}:
        rows = rows[1:]
    return [unicodedata.normalize("NFC", name) for name in rows]


def likeness(texts: Iterable[bytes]) -> str:
    """Equal for code that differs only in names, comments and layout; "" if there is little of it."""
    code = re.sub("#.*", "", "\n".join(text.decode("latin-1") for text in texts))
    words = re.findall(r"\w+|[^\w\s]", code)
    renamed = [w.isidentifier() and not keyword.iskeyword(w) or w for w in words]
    return fingerprint(renamed) if len(words) >= SHORT else ""


def fingerprint(data: Any) -> str:
    """Equal for equal data."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def graded(order: dict[str, Any], folder: Path, runner: Runner) -> dict[str, Any]:
    """In the sandbox: what comes of a module and of the tests in a folder, as far as they are there."""
    chapter, answer = find(order["chapter"]), dict[str, Any]()

    def course(text: str) -> Verdict:
        with tempfile.TemporaryDirectory(dir=runner.folder) as place:
            tests = Path(place, "course")
            tests.mkdir()
            shutil.copy(chapter.course_tests, tests)
            bench, modules = Bench(chapter, tests, runner, [], Path(place)), {}
            for path, said in {**bench.right, chapter.path: text}.items():
                module = bench.place / path  # for the processes that a test starts
                module.write_text(said, encoding="utf-8")
                module.chmod(0o644)
                modules[module_name(path)] = (path, said)
            job = bench.job({}, True, explain=True)
            job = replace(job, modules=modules, sealed=False, seconds=120)
            return next(iter(runner.run([job])))

    if order["module"] is not None:
        verdict = course(base64.b64decode(order["module"]).decode("utf-8", "replace"))
        known = {*verdict.passed, *verdict.failed}
        if known and (verdict.failed or verdict.detail):
            known = {*course(chapter.reference.read_text("utf-8")).passed}
        messages = {test: said for test, said in verdict.messages.items() if test in known}
        passed = [test for test in verdict.passed if test in known]
        good = not (verdict.detail or messages) and passed
        facts = {"state": "missed" if good else verdict.state, "messages": messages}
        answer["module"] = facts | {"passed": passed, "count": len(known), "detail": verdict.detail}
    if order["files"] is not None:
        answer["grade"] = asdict(grade_tests(chapter, folder, runner))
    return answer
