# Tangled from book/workshop/literate-stitch.md
"""From the changed lines of one generated file to edits of the bodies they came from."""

from __future__ import annotations

import re
from typing import NamedTuple

from literate.book import REFERENCE, Book
from literate.expand import Piece, target_pieces
from literate.markdown import Block, normal
from literate.patch import opcodes


class Edit(NamedTuple):
    block: Block
    start: int
    stop: int
    lines: list[str]
    place: str


class Row(NamedTuple):
    text: str
    piece: Piece
    line: int


class Refused(Exception):
    """An edit that cannot be carried back; the message says where and why."""


def rows_of(pieces: list[Piece]) -> list[Row]:
    """Every generated line, by the first piece that has something on it."""
    rows, parts, first = list[Row](), list[str](), None
    for piece in pieces:
        line = piece.block.body.count("\n", 0, piece.start)
        for number, part in enumerate(re.findall("[^\n]*\n|[^\n]+", piece.text), line):
            parts, first = [*parts, part.removesuffix("\n")], first or (piece, number)
            if part[-1] == "\n":
                rows.append(Row("".join(parts), *first))
                parts, first = [], None
    return rows


class Carrier:
    """Turns the changed lines of one generated file into edits of the bodies they came from."""

    def __init__(self, book: Book, target: str):
        self.book, self.target = book, target
        self.rows = rows_of(target_pieces(book, target, bare=True))
        self.found: list[Edit] = []

    def edits(self, text: str) -> list[Edit]:
        old, new = [row.text for row in self.rows], text.split("\n")[:-1]
        for tag, i1, i2, j1, j2 in opcodes(old, new):
            if tag == "insert":
                self.insert(i1, new[j1:j2], j1 + 1)
            elif tag != "equal":
                number = j1 + 1
                for index, lines in enumerate(shared_out(old[i1:i2], new[j1:j2]), i1):
                    self.replace(index, lines, number)
                    number += len(lines)
        return self.found

    def replace(self, index: int, lines: list[str], number: int) -> None:
        """The line at `index` became `lines`, of which the first is line `number` of the edited file."""
        text, piece, line = self.rows[index]
        code = [k for k, new in enumerate(lines) if new.strip()]
        if code and text.strip():
            self.insert(index, lines[: code[0]], number)
            self.insert(index + 1, lines[code[-1] + 1 :], number + code[-1] + 1)
            lines, number = lines[code[0] : code[-1] + 1], number + code[0]
        if lines == [text]:
            return
        source = re.sub(rf"\\(?={REFERENCE.pattern})", "", piece.block.body.split("\n")[line])
        if text.strip() and text != piece.pad + source:
            place = f"{piece.block.chapter.path}:{piece.block.line + 1 + line}"
            wrong = f"this line is put together around a reference inside of {place}"
            raise Refused(f"{self.target}:{number}: {wrong}; change it in the chapter")
        self.add(piece.block, line, line + 1, lines, piece.pad, number)

    def insert(self, index: int, lines: list[str], number: int) -> None:
        """New lines: blank ones go to the block that refers to what is on both sides, others to the nearest block."""
        if not lines:
            return
        before = trail(self.rows[index - 1]) if index else []
        after = trail(self.rows[index]) if index < len(self.rows) else []
        while before and after and before[0][:2] == after[0][:2]:
            del before[0], after[0]
        code = [line for line in lines if line.strip()]
        outwards = -1 if code else 1
        homes = [(block, line + 1, pad) for block, line, pad in before[::outwards]]
        homes += after[::outwards]
        homes = homes or [(self.book.chunks[self.book.targets[self.target]][0], 0, "")]
        fitting = (home for home in homes if all(line.startswith(home[2]) for line in code))
        block, line, pad = next(fitting, homes[0])
        self.add(block, line, line, lines, pad, number)

    def add(
        self, block: Block, start: int, stop: int, lines: list[str], pad: str, number: int
    ) -> None:
        for at, line in enumerate(lines, number):
            if line.strip() and not line.startswith(pad):
                wrong = f"does not begin with {pad!r}, as the reference that brings in the block at {block} does"
                raise Refused(
                    f"{self.target}:{at}: {wrong}; begin it so, or move it in the chapter"
                )
        body = [escaped(line[len(pad) :] if line.strip() else line, self.book) for line in lines]
        self.found.append(Edit(block, start, stop, body, f"{self.target}:{number}"))


def trail(row: Row) -> list[tuple[Block, int, str]]:
    """(block, body line, pad) of every reference that a line came through, from the outermost, and its own."""
    found, via = [(row.piece.block, row.line, row.piece.pad)], row.piece.via
    while via is not None:
        found.append((via.block, via.block.body.count("\n", 0, via.start), via.pad))
        via = via.via
    return found[::-1]


def escaped(line: str, book: Book) -> str:
    """`line` as a body writes it: what would be taken for a reference, or for an escaped one, gets a backslash."""

    def mark(match: re.Match[str]) -> str:
        escaped_already = line[match.start() - 1 : match.start()] == "\\"
        means_more = escaped_already or line.strip() == match[0] or normal(match[1]) in book.chunks
        return "\\" + match[0] if means_more else match[0]

    return REFERENCE.sub(mark, line) if "<<" in line else line


def shared_out(old: list[str], new: list[str]) -> list[list[str]]:
    """For each old line, the new ones that it became."""
    becomes: list[list[str]] = [[] for _ in old]
    pairs = [("", 0, len(old), 0, len(old))]
    if len(old) != len(new):
        pairs = opcodes([*map(letters, old)], [*map(letters, new)])
    for _, i1, i2, j1, j2 in pairs:
        for j in range(j1, j2):
            becomes[min(i1 + j - j1, max(i2 - 1, i1 - 1, 0))].append(new[j])
    return becomes


def letters(line: str) -> str:
    """What a formatter leaves of a line."""
    return re.sub(r"\W+", "", line) or line.strip()
