# Tangled from book/workshop/literate-where.md
"""From generated lines to chapter lines, and back."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from literate.book import Book, line_of, nearest
from literate.expand import Piece, origins, target_pieces, text_of
from literate.markdown import Chapter
from literate.patch import opcodes
from literate.record import read_bytes
from literate.terminal import count

LONGEST_PATH = 4096


def locate(book: Book, place: str, root: str = ".", *, bare: bool = False) -> list[str]:
    """The lines behind `path:line`: of a generated file its chapter line, of a chapter the generated lines made of it.

    Raises LookupError, saying what the book knows, when there is none.
    """
    path, _, number = place.rpartition(":")
    with_column = re.fullmatch("(.+):([0-9]{1,9})", path, re.DOTALL)
    if with_column and "\0" not in path and target_of(book, path, root) is None:
        path, number = with_column.groups()
    if not path or "\0" in path or not re.fullmatch("[0-9]{1,9}", number):
        raise LookupError(f"{place!r} is not PATH:LINE")
    line, target, real = int(number), target_of(book, path, root), os.path.realpath(path)
    if target is not None:
        pieces, first = target_pieces(book, target, bare=bare), book.chunks[book.targets[target]][0]
        tangled, total = lines_on_disk(pieces, os.path.join(root, target))
        if not 0 < line <= total:
            raise LookupError(f"{path} has {count(total, 'line')}, so there is no line {line}")
        above = tangled[max(k for k in tangled if k <= line)]
        block, origin = origins(pieces)[above - 1] if above else (first, first.line)
        place = f"{block.chapter.path}:{origin}" + (f" ({block.name})" if block.name else "")
        if line not in tangled:
            edited = f"{path}:{line} was edited since it was tangled"
            raise LookupError(f"{edited}; what is above it is from {place}")
        return [place]
    chapter = next((c for c in book.chapters if os.path.realpath(c.path) == real), None)
    if chapter is None:
        close = nearest(book, path, book.targets)
        raise LookupError(f"{path} is neither made by the book nor one of its chapters{close}")
    made = []
    for target in book.targets:
        place_on_disk = os.path.normpath(os.path.join(root, target))
        pieces = target_pieces(book, target, bare=bare)
        if lines := lines_from(pieces, chapter, line):
            tangled, _ = lines_on_disk(pieces, place_on_disk)
            made += [f"{place_on_disk}:{here}" for here, there in tangled.items() if there in lines]
    if not made:
        raise LookupError(f"no generated line comes from {place}")
    return made


def lines_from(pieces: Iterable[Piece], chapter: Chapter, line: int) -> list[int]:
    """The generated lines (from 1) on which something stands that came from a line of a chapter."""
    found, index = dict[int, bool](), 1
    for piece in pieces:
        newlines = piece.text.count("\n")
        if piece.block.chapter is chapter and piece.start >= 0:
            offset = line - line_of(piece.block, piece.start)
            if 0 <= offset < newlines + (piece.text[-1:] != "\n"):
                found[index + offset] = True
        index += newlines
    return list(found)


def lines_on_disk(pieces: list[Piece], path: str) -> tuple[dict[int, int], int]:
    """Line of the file on disk -> line of the target, for lines that are as they were tangled (0 -> 0 for
    the place above); and how many lines are on disk. A file that is not there counts as just tangled."""
    old, data = text_of(pieces).split("\n")[:-1], read_bytes(path)
    text = "" if data is None else data.decode("utf-8", "replace").replace("\r\n", "\n")
    new = old if data is None else text.removesuffix("\n").split("\n") if text else []
    same = [code for code in opcodes(old, new) if code[0] == "equal"]
    pairs = [zip(range(j1 + 1, j2 + 1), range(i1 + 1, i2 + 1)) for _, i1, i2, j1, j2 in same]
    return {0: 0} | {j: i for pair in pairs for j, i in pair}, len(new)


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
      | (file://(?=/))? ((?:[A-Za-z]:(?=[\\/]))? [^\s:"'()\[\]\0]+) (?::(\d{1,9})\b | \((\d{1,9})(?:,\d{1,9})?\))?""")

    def __init__(self, book: Book, root: str = ".", *, bare: bool = False):
        self.book, self.root, self.bare = book, root, bare
        self.maps: dict[str, dict[int, str]] = {}

    def annotate(self, text: str) -> str:
        """`text`, one line, with `[chapter:line]` at its end when it names a line of a generated file."""
        line = text.rstrip("\r\n")
        for found, in_python, is_url, named, number, in_brackets in self.FRAME.findall(text):
            path, number = found or named, in_python or number or in_brackets
            if number and "." in path and len(path) < LONGEST_PATH:
                if origin := self.origin(unquoted(path) if is_url else path, int(number)):
                    return f"{line}  [{origin}]{text[len(line) :]}"
        return text

    def origin(self, path: str, line: int) -> str | None:
        """`chapter:line` behind a line of a generated file; None where the file is none, or the line was edited."""
        if path not in self.maps:
            self.maps[path] = self.origins_in(path)
        return self.maps[path].get(line)

    def origins_in(self, path: str) -> dict[int, str]:
        target = target_of(self.book, path, self.root)
        if target is None:
            return {}
        pieces = target_pieces(self.book, target, bare=self.bare)
        tangled, _ = lines_on_disk(pieces, os.path.join(self.root, target))
        places = [f"{block.chapter.path}:{line}" for block, line in origins(pieces)]
        return {here: places[there - 1] for here, there in tangled.items() if there}


def unquoted(path: str) -> str:
    from urllib.parse import unquote

    return unquote(path)
