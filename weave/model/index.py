# Tangled from book/workshop/weave.md
"""What the pages say about each other: chapters, chunks, tests, equations and where they stand.

Read from the book by the tangler's own parser; kept until a chapter changes.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import literate.book
import literate.command
import literate.expand
import literate.read
from literate.markdown import Block
from weave.model import glossary, header, prose
from weave.model.page import Output, Page, Place, between
from weave.model.program import Program

log = logging.getLogger("mkdocs.weave")  # below MkDocs' own, so that --strict counts the warnings

REFERENCE = re.compile(r"(\\?)" + literate.book.REFERENCE.pattern)  # a backslash makes it text
BESIDE = ("lab", "tests")  # what pages beside a chapter hold: L5.3-lab.md, L5.3-tests.md
LABEL = re.compile(r"\\label\{eq:([^{}]+)\}")
TEST = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
TITLE = re.compile(r"^# +(.+?)(?: *\{.*\})?$", re.MULTILINE)
WORD = re.compile(r"[\w-]+")
FACTS = {"chapter", "pitfall"}
GLOSSARY = "reference/glossary.md"


class Index:
    """The book as the weaver sees it."""

    def __init__(self, folder: str = "book") -> None:
        self.folder = folder
        self.root = Path(folder).absolute().parent
        self.drawn: dict[str, dict[int, Output]] = {}  # page -> its figures, once all are drawn
        self.common: object = None  # what goes into every page, once somebody asked
        # page -> what it asked by `test` and `defined`: by that it is known whether it would come out the same
        self.answers: defaultdict[str, dict[tuple[str, str], Place | None]] = defaultdict(dict)
        self.faults: list[tuple[str, int, str]] = []  # path, line, what is wrong
        self.book = literate.read.read_book([folder])
        self.pages: dict[str, Page] = {}
        self.facts: dict[str, dict[str, Any]] = {}  # chapter id -> its header facts and mutants
        self.page_of: dict[str, Page] = {}  # chapter id -> its page
        self.headers: dict[str, Block] = {}  # chapter id -> the block of its header facts
        self.chunks: dict[str, Place] = {}  # name -> its first block
        self.files: dict[str, Place] = {}  # target -> the first block that makes it
        self.tests: dict[str, list[Place]] = {}
        self.users: dict[str, list[Block]] = {}  # name of a chunk -> the blocks that refer to it
        self._by_text: dict[str, Page] = {}
        self.origins: dict[str, Sequence[tuple[str, int]]] = {}  # of adopted pages
        self._makes: dict[str, list[str]] | None = None
        self._made_of: dict[str, list[str]] = {}
        self._sources: dict[str, set[Block]] = {}
        for chapter in self.book.chapters:
            self._read(chapter)
        for chapter_id, line, message in header.needs(self.facts, self.headers):
            self.fault(self.page_of[chapter_id].path, line, message)
        self.program = Program(self.book)
        source = self.pages.get(GLOSSARY)
        self.terms, self.forms = glossary.read(source.text if source else "")
        for line, message in self.terms.faults:
            self.fault(GLOSSARY, line, message)
        self.term_pattern = glossary.pattern(self.forms)
        for fault in self.book.errors:
            self.report(*fault)

    def fault(self, page: str, line: int, message: str) -> None:
        """Say what is wrong and where; under `--strict` the build then fails, after all pages."""
        path, at = os.path.join(self.folder, page), line
        if page in self.origins:
            path, at = self.origins[page][line - 1]
        self.report(path, at, message)

    def report(self, path: str, line: int, message: str) -> None:
        """Say what is wrong in a chapter that is known by its file's path."""
        if (path, line, message) in self.faults:
            return
        self.faults.append((path, line, message))
        log.warning("%s:%d: %s", path, line, message)

    def page(self, text: str) -> Page | None:
        """The page that has this text, give or take white space and what MkDocs takes away at its head; None for one
        that is not of the book."""
        plain = _plain(text)
        if plain and plain not in self._by_text:
            return next((p for whole, p in self._by_text.items() if whole.endswith(plain)), None)
        return self._by_text.get(plain)

    def add(self, path: str, text: str) -> None:
        """Take in a page that was made for the book and is no chapter of it."""
        if path not in self.pages:
            made = literate.read.add_chapter(literate.book.Book(), path, path, text)
            page = Page(path, text, made.blocks, title=TITLE.findall(text)[0], generated=True)
            self.pages[path] = self._by_text[_plain(text)] = page

    def adopt(self, path: str, text: str, origins: Sequence[tuple[str, int]]) -> None:
        """Take in a page that was made of lines of chapters, such as a lab, and that the weaver is to treat as one of them.

        `origins` has the chapter and line behind each of its lines, where its faults are reported.
        """
        self.origins[path] = origins
        self._read(literate.read.add_chapter(literate.book.Book(), path, path, text))

    def href(self, page: str, place: Place) -> str:
        """The address of a place, as a link on `page` has it."""
        fragment = "#" + quote(place.anchor, safe="-_.:/~") if place.anchor else ""
        if place.page == page and fragment:
            return fragment
        return _way(posixpath.dirname(page), place.page) + fragment

    def targets(self, name: str) -> list[str]:
        """The files that a chunk ends up in, in book order."""
        if self._makes is None:
            self._makes = {}
            for target, root in self.book.targets.items():
                self._made_of[target] = self._reached(root)
                for reached in self._made_of[target]:
                    self._makes.setdefault(reached, []).append(target)
        return self._makes.get(name, [])

    def made_of(self, target: str) -> list[Any]:
        """The blocks of all chunks that a file is made of."""
        self.targets("")  # which looks at all files
        names = self._made_of.get(target, ())
        return [block for name in names for block in self.book.chunks[name]]

    def sources(self, target: str) -> set[Any]:
        """The blocks that lines of a tangled file come from."""
        if target not in self._sources:
            lines = literate.expand.origins(literate.expand.target_pieces(self.book, target))
            self._sources[target] = {block for block, _ in lines}
        return self._sources[target]

    def place(self, block: Block) -> Place:
        """Where a block stands on the site."""
        page = self.pages[block.chapter.name]
        return Place(page.path, page.anchors.get(block.line, ""))

    def implements(self, page: Page, block: Block) -> bool:
        """Whether a block, or the chunk that it is a variant of, goes to the module that the chapter builds, and nowhere else."""
        built = self.facts.get(page.chapter, {}).get("builds")
        name = block.patch or block.name
        made = self.targets(name) if name else [block.file]
        return bool(built) and made == [built]

    def test(self, name: str, page: str) -> Place | None:
        """Where a test is defined; on this page rather than on another."""
        places = self.tests.get(name.partition("[")[0].rpartition("::")[2], [])
        found = next(
            (place for place in places if place.page == page), places[0] if places else None
        )
        self.answers[page]["test", name] = found
        return found

    def defined(self, name: str, page: str) -> Place | None:
        """Where that is defined which a name in a page's prose means."""
        meant = self.program.lookup(name, page)
        found = self.answers[page]["defined", name] = self.place(meant.block) if meant else None
        return found

    def is_beside(self, path: str) -> bool:
        """Whether a page is a chapter's lab or its tests: the chapter leads there, the contents don't."""
        chapter, _, kind = posixpath.basename(path).removesuffix(".md").rpartition("-")
        return kind in BESIDE and chapter in self.facts

    def reading_order(self) -> list[str]:
        """The paths of all pages as they are read: the front page, then folder by folder, in each a chapter behind those that it
        needs, and its lab and tests behind it; what is to be looked up comes last."""
        order: list[str] = []
        seen: set[str] = set()

        def read(path: str) -> None:
            if path in seen:
                return
            seen.add(path)
            folder, chapter = posixpath.dirname(path), self.pages[path].chapter
            facts = self.facts.get(chapter, {})
            for need in [*facts.get("needs", ()), *facts.get("test_needs", ())]:
                if need in self.page_of and posixpath.dirname(self.page_of[need].path) == folder:
                    read(self.page_of[need].path)
            order.append(path)
            for beside in (posixpath.join(folder, f"{chapter}-{kind}.md") for kind in BESIDE):
                if chapter and beside in self.pages:
                    read(beside)

        for path in sorted(
            self.pages, key=lambda path: ("/" in path, path.startswith("reference/"), path)
        ):
            read(path)
        return order

    def used_by(self, chapter: str) -> list[str]:
        """The chapters that need this one: those in the book, then those planned."""
        written = [other for other, facts in self.facts.items() if chapter in facts["needs"]]
        planned = self.facts[chapter].get("used_by_planned", [])
        return written + [other for other in planned if other not in written]

    def body(self, block: Block) -> str:
        """A block's code with the chunks that it refers to in their places; as it is written where that cannot be."""
        items = {**self.book.items, "": literate.book.split_items(block, self.book.chunks)}
        try:
            pieces = literate.expand.expand_items(self.book, "", items)
        except (KeyError, OverflowError):  # a chunk that is not there, or one that contains itself
            return str(block.body)
        return literate.expand.text_of(pieces)

    def _reached(self, root: str) -> list[str]:
        """A chunk and all that it refers to, directly or not."""
        found = [root]
        for name in found:
            for block in self.book.chunks.get(name, ()):
                for escaped, other in REFERENCE.findall(block.body):
                    if not escaped and other in self.book.chunks and other not in found:
                        found.append(other)
        return found

    def _read(self, chapter: Any) -> None:
        page = Page(chapter.name, chapter.text, chapter.blocks)
        runs = list(between(page.text.split("\n"), page.blocks))
        headings = (TITLE.search("\n".join(lines)) for _, lines in runs)
        heading = next(filter(None, headings), None)
        page.title = re.sub(r"[`*$]", "", heading[1]).strip() if heading else page.path
        plain = _plain(page.text)
        if plain and plain in self._by_text:
            same = f"has the same text as {self._by_text[plain].path}; the two cannot be told apart"
            self.fault(page.path, 1, same)
        self.pages[page.path] = self._by_text[plain] = page
        seen: Counter[str] = Counter()
        for block in page.blocks:
            anchor = _anchor(block)
            if anchor:
                seen[anchor] += 1
                anchor += f"-{seen[anchor]}" if seen[anchor] > 1 else ""
                page.anchors[block.line] = anchor
                self._note(block, Place(page.path, anchor))
            if "figure" in block.classes and block.name:
                if block.name in page.figures:
                    self.fault(page.path, block.line, f"there are two figures {block.name}")
                page.figures.setdefault(block.name, len(page.figures) + 1)
            if FACTS & set(block.classes):
                self._gather(page, block)
        self._number(page, runs)

    def _note(self, block: Block, place: Place) -> None:
        if block.patch:
            return
        if block.name in self.book.chunks:
            self.chunks.setdefault(block.name, place)
        if block.file:
            self.files.setdefault(block.file, place)
        for test in TEST.findall(block.body):
            self.tests.setdefault(test, []).append(place)
        for escaped, name in dict.fromkeys(REFERENCE.findall(block.body)):
            if not escaped:
                self.users.setdefault(name, []).append(block)

    def _number(self, page: Page, runs: Iterable[tuple[int, list[str]]]) -> None:
        for first, lines in runs:
            for line, match in prose.found(lines, first):
                for label in LABEL.findall(match["display"] or ""):
                    if label in page.equations:
                        self.fault(page.path, line, f"there are two equations eq:{label}")
                    if not WORD.fullmatch(label):
                        wrong = f"a label consists of letters, digits, - and _, unlike eq:{label}"
                        self.fault(page.path, line, wrong)
                    page.equations.setdefault(label, len(page.equations) + 1)

    def _gather(self, page: Page, block: Block) -> None:
        try:
            tables = tomllib.loads(block.body)
        except tomllib.TOMLDecodeError as error:
            message, _, at = str(error).partition(" (at line ")
            line = int(at.partition(",")[0]) if at[:1].isdigit() else 0
            self.fault(page.path, block.line + line, f"this block is not TOML: {message}")
            return
        if len(tables) != 1:
            wrong = f"a block has the facts of one chapter, and this one of {len(tables)}"
            self.fault(page.path, block.line, wrong)
        for chapter, written in tables.items():
            table, faults = header.checked(chapter, written, block)
            for line, message in faults:
                self.fault(page.path, line, message)
            self._merge(page, block, chapter, table)

    def _merge(self, page: Page, block: Block, chapter: str, table: dict[str, Any]) -> None:
        wrong = ""
        if "chapter" in block.classes:
            if chapter in self.headers:
                wrong = (
                    f"the header facts of {chapter} stand in {self.page_of[chapter].path} already"
                )
            page.chapter = chapter
            self.page_of[chapter], self.headers[chapter] = page, block
            table = {"needs": [], **table}
        elif page.chapter and chapter != page.chapter:
            wrong = f"{chapter} is not the chapter of this page"
        if wrong:
            self.fault(page.path, block.line, wrong)
        facts = self.facts.setdefault(chapter, {"needs": []})
        before, more = facts.get("mutants", {}), table.get("mutants", {})
        for name in sorted(before.keys() & more.keys()):
            line = header.line(block, chapter, "mutants", name)
            self.fault(page.path, line, f"the facts of {name} stand in another block already")
        facts.update(table)
        if before or more:
            facts["mutants"] = {**before, **more}


_kept: dict[str, tuple[object, Index]] = {}
_held = False


def current(folder: str = "book") -> Index:
    """The index of the book as it is on the disk now, or as it was when `hold` was said."""
    folder = os.path.relpath(folder)
    if _held and folder in _kept:
        return _kept[folder][1]
    stamp = [(path, status.st_mtime_ns, status.st_size) for path, status in _chapters(folder)]
    if folder not in _kept or _kept[folder][0] != stamp:
        _kept[folder] = stamp, Index(folder)
    return _kept[folder][1]


def _chapters(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    for path, _ in literate.read.find_chapters([folder]):
        yield path, os.stat(path)


def forget() -> None:
    """The next `current` reads the book anew, and reports its faults again."""
    _kept.clear()


def hold(held: bool) -> None:
    """Whether `current` is to give the index that it has without looking at the disk."""
    global _held
    _held = held


def _plain(text: str) -> str:
    return "".join(text.replace("\x02", "").replace("\x03", "").split())  # as Markdown does


def _anchor(block: Block) -> str:
    """The id of a block on its page, before continued chunks are numbered; "" for one without."""
    if "figure" in block.classes:
        return ""
    if block.patch:
        return f"patch-{block.name or block.patch}"
    if block.name:
        return f"chunk-{block.name}"
    return f"file-{block.file}" if block.file else ""


@lru_cache(maxsize=65536)
def _way(folder: str, page: str) -> str:
    """The relative address of a page, seen from a folder. MkDocs makes index.html of a README."""
    parent, name = posixpath.split(posixpath.splitext(page)[0])
    name = "index" if name == "README" else name
    return quote(posixpath.relpath(posixpath.join(parent, f"{name}.html"), folder or "."))
