# Tangled from book/workshop/literate-where.md
"""From generated lines to chapter lines, and back."""

from __future__ import annotations

import os
import re

from literate.book import Book, nearest
from literate.disk import read_bytes
from literate.expand import origins, target_pieces, text_of
from literate.markdown import Block
from literate.patch import opcodes

LONGEST_PATH = 4096


def locate(book: Book, place: str, root: str = ".", *, bare: bool = False) -> list[str]:
    """The lines behind `path:line`: of a generated file its chapter line, of a chapter the generated lines made of it.

    Raises LookupError, saying what the book knows, when there is none.
    """
    named = re.fullmatch(r"([^\0]+?):([0-9]{1,9})(?::[0-9]{1,9})?", place)
    if named is None:
        raise LookupError(f"{place!r} is not PATH:LINE")
    path, line = named[1], int(named[2])
    target, real = target_of(book, path, root), os.path.realpath(path)
    if target is not None:
        found = origins_on_disk(book, target, root, bare)
        if line not in found:
            raise LookupError(
                f"{path}:{line} is no line of the book; was it edited since it was tangled?"
            )
        block, origin = found[line]
        return [f"{block.chapter.path}:{origin}" + (f" ({block.name})" if block.name else "")]
    if not any(os.path.realpath(chapter.path) == real for chapter in book.chapters):
        close = nearest(book, path, book.targets)
        raise LookupError(f"{path} is neither made by the book nor one of its chapters{close}")
    made = []
    for target in book.targets:
        place_on_disk = os.path.normpath(os.path.join(root, target))
        for here, (block, at) in origins_on_disk(book, target, root, bare).items():
            if at == line and os.path.realpath(block.chapter.path) == real:
                made.append(f"{place_on_disk}:{here}")
    if not made:
        raise LookupError(f"no generated line comes from {place}")
    return made


def origins_on_disk(book: Book, target: str, root: str, bare: bool) -> dict[int, tuple[Block, int]]:
    """Line of the file on disk -> block and chapter line that it comes from, for lines that are as they were tangled.
    A file that is not there counts as just tangled."""
    pieces, data = target_pieces(book, target, bare=bare), read_bytes(os.path.join(root, target))
    text, places, found = text_of(pieces), origins(pieces), dict[int, tuple[Block, int]]()
    on_disk = text if data is None else data.decode("utf-8", "replace").replace("\r\n", "\n")
    for tag, i1, i2, j1, _ in opcodes(text.split("\n")[:-1], on_disk.split("\n")[:-1]):
        if tag == "equal":
            found |= zip(range(j1 + 1, j1 + 1 + i2 - i1), places[i1:i2])
    return found


def target_of(book: Book, path: str, root: str) -> str | None:
    """The target that `path` names, seen from the current folder or from the root; None if it names none."""
    for place in (path, os.path.join(root, path)):
        full = os.path.join(os.path.realpath(os.path.dirname(place)), os.path.basename(place))
        relative = os.path.relpath(full, os.path.realpath(root)).replace(os.sep, "/")
        if relative in book.targets:
            return relative
    return None


class Annotator:
    """Adds chapter lines to the lines of a traceback, a test report or a linter's output."""

    FRAME = re.compile(r"""(?x)
        File\ "([^"\0]+)",\ line\ (\d{1,9})\b
      | ((?:[A-Za-z]:(?=[\\/]))? [^\s:"'()\[\]\0]+) (?::(\d{1,9})\b)?""")

    def __init__(self, book: Book, root: str = ".", *, bare: bool = False):
        self.book, self.root, self.bare = book, root, bare
        self.maps: dict[str, dict[int, str]] = {}

    def annotate(self, text: str) -> str:
        """`text`, one line, with `[chapter:line]` at its end when it names a line of a generated file."""
        line = text.rstrip("\r\n")
        for found, in_python, named, number in self.FRAME.findall(text):
            path, number = found or named, in_python or number
            if number and "." in path and len(path) < LONGEST_PATH:
                if origin := self.origin(path, int(number)):
                    return f"{line}  [{origin}]{text[len(line) :]}"
        return text

    def origin(self, path: str, line: int) -> str | None:
        """`chapter:line` behind a line of a generated file; None where the file is none, or the line was edited."""
        if path not in self.maps:
            target = target_of(self.book, path, self.root)
            known = origins_on_disk(self.book, target, self.root, self.bare) if target else {}
            self.maps[path] = {n: f"{block.chapter.path}:{at}" for n, (block, at) in known.items()}
        return self.maps[path].get(line)
