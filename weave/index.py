"""What the pages say about each other: chapters, chunks, tests, equations and where they stand.

Read from the book by the tangler's own parser; kept until a chapter changes.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import tangle

log = logging.getLogger("mkdocs.weave")  # below MkDocs' own, so that --strict counts the warnings

REFERENCE = re.compile(r"(?<!\\)<<([^<>\s]+)>>")
LABEL = re.compile(r"\\label\{eq:([^{}]+)\}")
TEST = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
FACTS = {"chapter", "pitfall"}


@dataclass(frozen=True)
class Place:
    """A spot that a link can lead to."""

    page: str  # its path below the book, e.g. 5-transformer/L5.3-multi-head-attention.md
    anchor: str


@dataclass
class Page:
    """One chapter file."""

    path: str
    text: str
    blocks: list[Any]
    anchors: dict[int, str] = field(default_factory=dict)  # opener line of a block -> its id
    equations: dict[str, int] = field(default_factory=dict)  # label -> number
    figures: dict[str, int] = field(default_factory=dict)  # name -> number
    chapter: str = ""  # the id of its header facts, e.g. L5.3


class Index:
    """The book as the weaver sees it."""

    def __init__(self, folder: str = "book") -> None:
        self.folder = folder
        self.book = tangle.read_book([folder])
        self.pages: dict[str, Page] = {}
        self.facts: dict[str, dict[str, Any]] = {}  # chapter id -> its header facts and mutants
        self.page_of: dict[str, Page] = {}  # chapter id -> its page
        self.chunks: dict[str, Place] = {}  # name -> its first block
        self.files: dict[str, Place] = {}  # target -> the first block that makes it
        self.tests: dict[str, list[Place]] = {}
        self._makes: dict[str, list[str]] | None = None
        for chapter in self.book.chapters:
            self._read(chapter)
        for fault in self.book.faults:
            self.fault(_below(str(fault.path), folder), fault.line, fault.message)

    def fault(self, page: str, line: int, message: str) -> None:
        """Say what is wrong and where; under `--strict` the build then fails, after all pages."""
        log.warning("%s:%d: %s", posixpath.join(self.folder, page), line, message)

    def href(self, page: str, place: Place) -> str:
        """The address of a place, as a link on `page` has it."""
        fragment = "#" + quote(place.anchor, safe="-_.:/~") if place.anchor else ""
        if place.page == page and fragment:
            return fragment
        target = place.page.removesuffix(".md") + ".html"
        return quote(posixpath.relpath(target, posixpath.dirname(page) or ".")) + fragment

    def targets(self, name: str) -> list[str]:
        """The files that a chunk ends up in, in book order."""
        if self._makes is None:
            self._makes = {}
            for target, root in self.book.targets.items():
                for reached in _reached(root, self.book.chunks):
                    self._makes.setdefault(reached, []).append(target)
        return self._makes.get(name, [])

    def test(self, name: str, page: str) -> Place | None:
        """Where a test is defined; on this page rather than on another."""
        places = self.tests.get(name.partition("[")[0].rpartition("::")[2], [])
        return next(
            (place for place in places if place.page == page), places[0] if places else None
        )

    def used_by(self, chapter: str) -> list[str]:
        """The chapters that need this one: those in the book, then those planned."""
        written = [other for other, facts in self.facts.items() if chapter in facts["needs"]]
        planned = self.facts[chapter].get("used_by_planned", [])
        return written + [other for other in planned if other not in written]

    def body(self, block: Any) -> str:
        """A block's code with the chunks that it refers to in their places."""
        lines: list[str] = []
        for line in block.body.splitlines():
            found = REFERENCE.fullmatch(line.strip())
            if found and found[1] in self.book.chunks:
                indent = line[: len(line) - len(line.lstrip())]
                for part in self.book.chunks[found[1]]:
                    lines += (indent + text for text in self.body(part).splitlines())
            else:
                lines.append(line)
        return "\n".join(lines) + "\n"

    def _read(self, chapter: Any) -> None:
        page = Page(_below(str(chapter.path), self.folder), chapter.text, list(chapter.blocks))
        self.pages[page.path] = page
        seen: dict[str, int] = {}
        for block in page.blocks:
            anchor = _anchor(block)
            if anchor:
                seen[anchor] = seen.get(anchor, 0) + 1
                anchor += f"-{seen[anchor]}" if seen[anchor] > 1 else ""
                page.anchors[block.line] = anchor
                place = Place(page.path, anchor)
                if block.name and not block.patch:
                    self.chunks.setdefault(block.name, place)
                if block.file and not block.patch:
                    self.files.setdefault(block.file, place)
                for test in TEST.findall(block.body):
                    self.tests.setdefault(test, []).append(place)
            if "figure" in block.classes and block.name:
                page.figures[block.name] = len(page.figures) + 1
            if FACTS & set(block.classes):
                self._gather(page, block)
        in_blocks = {n for block in page.blocks for n in range(block.line, block.end_line + 1)}
        for number, line in enumerate(page.text.splitlines(), 1):
            if number not in in_blocks:
                for label in LABEL.findall(line):
                    page.equations.setdefault(label, len(page.equations) + 1)

    def _gather(self, page: Page, block: Any) -> None:
        try:
            tables = tomllib.loads(block.body)
        except tomllib.TOMLDecodeError as error:
            self.fault(page.path, block.line, f"this block is not TOML: {error}")
            return
        for chapter, table in tables.items():
            if "chapter" in block.classes:
                page.chapter = chapter
                self.page_of[chapter] = page
                table = {"needs": [], **table}
            facts = self.facts.setdefault(chapter, {"needs": []})
            mutants = {**facts.get("mutants", {}), **table.get("mutants", {})}
            facts.update(table)
            if mutants:
                facts["mutants"] = mutants


_kept: dict[str, tuple[object, Index]] = {}


def current(folder: str = "book") -> Index:
    """The index of the book as it is on the disk now."""
    stamp = [(str(p), s.st_mtime_ns, s.st_size) for p, s in _chapters(folder)]
    if folder not in _kept or _kept[folder][0] != stamp:
        _kept[folder] = stamp, Index(folder)
    return _kept[folder][1]


def _chapters(folder: str) -> Iterator[tuple[Path, os.stat_result]]:
    for path in sorted(Path(folder).rglob("*.md")):
        yield path, path.stat()


def _below(path: str, folder: str) -> str:
    return posixpath.relpath(path.replace(os.sep, "/"), folder.replace(os.sep, "/"))


def _anchor(block: Any) -> str:
    """The id of a block on its page, before continued chunks are numbered; "" for one without."""
    if "figure" in block.classes:
        return ""
    if block.patch:
        return f"patch-{block.name or block.patch}"
    if block.name:
        return f"chunk-{block.name}"
    return f"file-{block.file}" if block.file else ""


def _reached(root: str, chunks: Mapping[str, list[Any]]) -> list[str]:
    """A chunk and all that it refers to, directly or not."""
    found = [root]
    for name in found:
        for block in chunks.get(name, ()):
            for other in REFERENCE.findall(block.body):
                if other in chunks and other not in found:
                    found.append(other)
    return found
