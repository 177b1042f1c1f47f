# Tangled from book/workshop/literate-stitch.md
"""From the changed lines of one generated file to edits of the bodies they came from."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from literate.book import REFERENCE, Book
from literate.expand import Piece, target_pieces
from literate.markdown import NAME, Block, normal
from literate.patch import opcodes


class Edit(NamedTuple):
    block: Block
    start: int
    stop: int
    lines: Sequence[str]
    place: str


class Segment(NamedTuple):
    piece: Piece
    line: int
    column: int
    text: str
    source: str


class Refused(Exception):
    """An edit that cannot be carried back; the message says where and why."""


def segment_rows(pieces: list[Piece]) -> list[list[Segment]]:
    """Every generated line as the segments it is made of: piece, body line and column (from 0). A line with nothing
    on it is of the piece that ends it."""
    rows: list[list[Segment]] = [[]]
    sources = {piece.block: piece.block.body.split("\n") for piece in pieces}
    for piece in pieces:
        body, start = piece.block.body, piece.start
        line, column = body.count("\n", 0, start), start - body.rfind("\n", 0, start) - 1
        for number, text in enumerate(piece.text.split("\n"), line):
            if number > line:
                rows.append([])
                column = 0
            rows[-1].append(Segment(piece, number, column, text, sources[piece.block][number]))
    return [[s for s in row if s.text] or row[-1:] for row in rows[:-1]]


def is_whole(row: list[Segment]) -> bool:
    """Whether the line is one line of one body, and not put together around a reference inside it."""
    first, pad = row[0], row[0].piece.pad
    block, line, via = first.piece.block, first.line, first.piece.via
    if any(s.piece.block is not block or s.line != line or s.piece.via is not via for s in row):
        return False
    text, body = "".join(s.text for s in row), first.source
    is_blank = not text.strip() and not body.strip()
    return is_blank or text == pad + re.sub(rf"\\(?=<<{NAME}>>)", "", body)


class Carrier:
    """Turns the changed lines of one generated file into edits of the bodies they came from."""

    def __init__(self, book: Book, target: str):
        pieces = target_pieces(book, target, bare=True)
        self.book, self.target, self.rows = book, target, segment_rows(pieces)
        self.old = ["".join(segment.text for segment in row) for row in self.rows]
        self.found: list[Edit] = []
        ways: dict[Block, set[int]] = {}
        for piece in pieces:
            ways.setdefault(piece.block, set()).add(id(piece.via))
        self.shared = {block for block, vias in ways.items() if len(vias) > 1}

    def edits(self, text: str) -> list[Edit]:
        new = text.split("\n")[:-1]
        for tag, i1, i2, j1, j2 in opcodes(self.old, new):
            if tag == "insert":
                self.insert(i1, new[j1:j2], j1 + 1)
            elif tag != "equal":
                self.change(i1, i2, new[j1:j2], j1 + 1)
        return self.found

    def change(self, start: int, stop: int, lines: list[str], number: int) -> None:
        """The lines `start` to `stop` became `lines`, of which the first is line `number` of the edited file."""
        old = self.old[start:stop]
        becomes: list[list[str]] = [[] for _ in old]
        pairs = opcodes([*map(letters, old)], [*map(letters, lines)])
        one_to_one = [("", 0, len(old), 0, len(old))]
        for _, i1, i2, j1, j2 in pairs if len(old) != len(lines) else one_to_one:
            for j in range(j1, j2):
                becomes[min(i1 + j - j1, max(i2 - 1, i1 - 1, 0))].append(lines[j])
        for index, (line, new) in enumerate(zip(old, becomes), start):
            if any(
                map(str.strip, new)
            ):  # blank lines that are new belong to what surrounds the line
                is_blank = not line.strip()
                head = max(0, blanks(new) - is_blank)
                tail = len(new) - max(0, blanks(new[::-1]) - is_blank)
                self.insert(index, new[:head], number)
                self.insert(index + 1, new[tail:], number + tail)
                if new[head:tail] != [line]:
                    self.replace(index, new[head:tail], number + head)
            elif new != [line]:
                self.replace(index, new, number)
            number += len(new)

    def replace(self, index: int, lines: list[str], number: int) -> None:
        row = self.rows[index]
        first, outer = row[0], min(row, key=lambda segment: len(trail(segment)))
        if is_whole(row):
            self.add(first.piece.block, first.line, first.line + 1, lines, first.piece.pad, number)
        elif lines:
            self.found.append(self.edit_inside(index, lines, number))
        else:
            self.add(outer.piece.block, outer.line, outer.line + 1, [], "", number)

    def edit_inside(self, index: int, lines: list[str], number: int) -> Edit:
        """The change of the one segment of a composed line in which all of the difference lies."""
        row, old, new, begin = self.rows[index], self.old[index], lines[0], 0
        place = f"{self.target}:{number}"
        head = len(os.path.commonprefix([old, new]))
        tail = len(os.path.commonprefix([old[head:][::-1], new[head:][::-1]]))
        for segment in row if len(lines) == 1 else ():
            piece, pad = segment.piece, len(segment.piece.pad) if segment is row[0] else 0
            end = begin + len(segment.text)
            if begin + pad <= head and len(old) - tail <= end and piece.pad != piece.text:
                shift, text = segment.column - begin - pad, segment.source
                body = text[: head + shift] + new[head : len(new) - tail]
                body += text[len(old) - tail + shift :]
                return Edit(piece.block, segment.line, segment.line + 1, (body,), place)
            begin = end
        block = row[0].piece.block
        inside = f"{block.chapter.path}:{block.line + 1 + row[0].line}"
        wrong = f"the change reaches over the edge of the reference inside {inside}"
        raise Refused(f"{place}: {wrong}; make it in the chapter")

    def insert(self, index: int, lines: list[str], number: int) -> None:
        """New lines: blank ones go to the block that refers to what is on both sides, others to the nearest block."""
        if not lines:
            return
        before = trail(self.rows[index - 1][-1]) if index else []
        after = trail(self.rows[index][0]) if index < len(self.rows) else []
        both = zip(before, after)
        depth = next(
            (k for k, (one, two) in enumerate(both) if one[:2] != two[:2]),
            min(len(before), len(after)),
        )
        outwards = -1 if any(map(str.strip, lines)) else 1
        homes = [(block, line + 1, pad) for block, line, pad in before[depth:][::outwards]]
        homes += after[depth:][::outwards]
        homes = homes or [(self.book.chunks[self.book.targets[self.target]][0], 0, "")]
        homes.sort(key=lambda home: home[0] in self.shared)
        code = [line for line in lines if line.strip()]
        fitting = [home for home in homes if all(line.startswith(home[2]) for line in code)]
        block, line, pad = (fitting or homes)[0]
        self.add(block, line, line, lines, pad, number)

    def add(
        self, block: Block, start: int, stop: int, lines: list[str], pad: str, number: int
    ) -> None:
        body = []
        for at, line in enumerate(lines, number):
            if line.strip() and not line.startswith(pad):
                white = line[: len(line) - len(line.lstrip())]
                wrong = (
                    f"is indented by less than the reference that brings in the block at {block}"
                )
                if "\t" in pad and "\t" not in white:
                    wrong = f"begins with {'spaces' if white else 'no tab'}, but a tab before its reference brings in the block at {block}"
                way_out = f"begin it with {pad!r}, or move it in the chapter"
                raise Refused(f"{self.target}:{at}: {wrong}: {way_out}")
            body.append(escaped(line[len(pad) :] if line.strip() else line, self.book))
        self.found.append(Edit(block, start, stop, tuple(body), f"{self.target}:{number}"))


def blanks(lines: list[str]) -> int:
    """How many blank lines come first."""
    return next((k for k, line in enumerate(lines) if line.strip()), len(lines))


def trail(segment: Segment) -> list[tuple[Block, int, str]]:
    """(block, body line, pad) of every reference that a segment came through, from the outermost, and its own."""
    found = [(segment.piece.block, segment.line, segment.piece.pad)]
    via = segment.piece.via
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


def letters(line: str) -> str:
    """What a formatter leaves of a line."""
    return re.sub(r"\W+", "", line) or line.strip()
