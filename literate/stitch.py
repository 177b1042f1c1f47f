# Tangled from book/workshop/literate-stitch.md
"""Edits of generated files, carried back into the chapters."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from literate.book import RECORD, REFERENCE, Book
from literate.disk import MEND_CRLF, Change, Entries, Entry, digest, read_bytes
from literate.expand import Row, expand, header, rows_of, target_pieces
from literate.markdown import Block, normal, spaces_for, told
from literate.patch import opcodes, products, unified
from literate.read import add_chapter, link, plain_text


class Edit(NamedTuple):
    block: Block
    start: int
    stop: int
    lines: list[str]
    place: str


class Refused(Exception):
    """An edit that cannot be carried back; the message says where and why."""


def stitch(
    book: Book, root: str, known: Entries, *, bare: bool = False, force: bool = False
) -> tuple[dict[str, Change], Entries]:
    """The changes of chapters that edits of targets make, by path, and what the record may say of the targets then.

    Tangling these chapters reproduces every edited file to the byte, but for its end, which is one newline, and the
    header line, which tangling puts where it belongs. Otherwise raises Refused with all the reasons. `known` is the
    record: by it an edited file is told from one that is only older than its chapter. Byte order mark and line ends of
    a chapter stay as they are.
    """
    edited, after, edits, reasons = dict[str, str](), known.copy(), list[Edit](), []
    for target in book.targets:
        try:
            data = edited_bytes(book, root, target, known, bare, force)
            if data is not None:
                entry = known.get(target, Entry())
                after[target] = entry._replace(hashes=(*entry.hashes, digest(data)))
                edited[target] = edited_text(book, target, data, bare)
                edits += Carrier(book, target).edits(edited[target])
        except Refused as reason:
            reasons.append(str(reason))
    if reasons:
        raise Refused("\n".join(reasons))
    changes = merged(edits)
    chapters = edited_chapters(changes | followed(book, changes))
    check_stitched(book, chapters, edited)
    return chapters, after


def edited_bytes(
    book: Book, root: str, target: str, known: Entries, bare: bool, force: bool
) -> bytes | None:
    """What a person made of the target; None where nobody edited it. Raises Refused where it cannot be told."""
    data, wanted = read_bytes(os.path.join(root, target)), expand(book, target, bare=bare)
    hashes = known.get(target, Entry()).hashes
    if data is None or data == wanted.encode() or digest(data) in hashes and not force:
        return None
    if force or digest(wanted.encode()) in hashes:
        return data
    chapter = book.chunks[book.targets[target]][0].chapter.path
    why = "edited, and the record does not know what its chapter makes of it now"
    way_out = f"undo one of the two, bring {RECORD} back if it was lost, or let `tangle.py --force` take the chapter or `tangle.py stitch --force` the file"
    names = f"{chapter}, as it is now", f"{target}, as it is now"
    both = "".join(unified(wanted, data.decode("utf-8", "replace"), *names))
    raise Refused(f"{target}: {why}; {way_out}:\n{both}")


def edited_text(book: Book, target: str, data: bytes, bare: bool) -> str:
    """An edited target without its header line. Raises Refused for what tangling could never write."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        wrong = f"is not UTF-8 at byte {error.start}, as chapters are; mend it there"
        raise Refused(f"{target}: {wrong}") from None
    made = expand(book, target, bare=True)
    if "\r\n" in text and "\r\n" not in made:
        raise Refused(f"{target}: has CRLF line ends, and tangling writes LF; {MEND_CRLF}")
    text = text.rstrip("\n") + "\n"
    _, line = ("", "") if bare else header(target, book.chunks[book.targets[target]], "\n")
    without = re.sub(f"^{re.escape(line)}", "", text, count=1, flags=re.MULTILINE)
    if without == text and text.strip("\n") and not bare and expand(book, target) != made:
        wrong = "the header line is written by tangling and cannot be edited; put it back"
        raise Refused(f"{target}: {wrong}: {line.strip()}")
    return without if without.strip("\n") else ""


class Carrier:
    """Turns the changed lines of one generated file into edits of the bodies they came from."""

    def __init__(self, book: Book, target: str):
        self.book, self.target = book, target
        self.rows = rows_of(target_pieces(book, target, bare=True))
        blocks = {block for row in self.rows for _, block, _ in row.parts}
        self.bodies = {block: block.body.split("\n") for block in blocks}
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
        text, piece, place, _ = self.rows[index]
        line = place - piece.block.line - 1
        code = [k for k, new in enumerate(lines) if new.strip()]
        if code and text.strip():
            self.insert(index, lines[: code[0]], number)
            self.insert(index + 1, lines[code[-1] + 1 :], number + code[-1] + 1)
            lines, number = lines[code[0] : code[-1] + 1], number + code[0]
        if lines == [text]:
            return
        source = re.sub(rf"\\(?={REFERENCE.pattern})", "", self.bodies[piece.block][line])
        if text.strip() and text != piece.pad + source:
            self.splice(self.rows[index], lines, number)
        else:
            self.add(piece.block, line, line + 1, lines, piece.pad, number)

    def splice(self, row: Row, lines: list[str], number: int) -> None:
        """A line that is put together around a reference became `lines`. Raises Refused unless one part has all the change."""
        place, new, end = f"{self.target}:{number}", "\n".join(lines), 0
        head = len(os.path.commonprefix([row.text, new]))
        tail = len(os.path.commonprefix([row.text[head:][::-1], new[head:][::-1]]))
        for part, block, there in row.parts if len(lines) == 1 else ():
            end, code, line = end + len(part), part.strip(), there - block.line - 1
            at, source = end - len(part.lstrip()), self.bodies[block][line]
            first, last = head - at, len(row.text) - tail - at
            if first >= 0 and last <= len(code) and source.count(code) == 1:
                becomes = code[:first] + new[head : len(new) - tail] + code[last:]
                self.found.append(
                    Edit(block, line, line + 1, [source.replace(code, becomes)], place)
                )
                return
        wrong = f"this line is put together around a reference inside of {row.piece.block.chapter.path}:{row.line}"
        raise Refused(f"{place}: {wrong}; change it in the chapter")

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
    block, via = row.piece.block, row.piece.via
    found = [(block, row.line - block.line - 1, row.piece.pad)]
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


def merged(edits: list[Edit]) -> dict[Block, list[Edit]]:
    """block -> its edits in order, the same edit of a shared chunk once. Raises Refused when two of them disagree."""
    found: dict[Block, dict[tuple[int, int], Edit]] = {}
    for edit in edits:
        other = found.setdefault(edit.block, {}).setdefault(edit[1:3], edit)
        if other.lines != edit.lines:
            both = [f"  {e.place}: {' / '.join(e.lines) or '(nothing)'}" for e in (other, edit)]
            place = f"{edit.block.chapter.path}:{edit.block.line + 1 + edit.start}"
            wrong = "conflict: two edits want different things here; make them the same:"
            raise Refused("\n".join([f"{place}: {wrong}", *both]))
    return {block: [found[block][span] for span in sorted(found[block])] for block in found}


def followed(book: Book, changes: dict[Block, list[Edit]]) -> dict[Block, list[Edit]]:
    """What patches become when the lines that they show, as context or with a -, are replaced as in their chunks."""
    found: dict[Block, list[Edit]] = {}
    for patch in [patch for patches in book.variants.values() for patch in patches]:
        becomes, old, new = dict[str, list[str]](), patch.body.split("\n")[:-1], list[str]()
        for part in book.chunks[normal(patch.patch or "")]:
            rows = part.body.split("\n")
            becomes |= {rows[e.start]: e.lines for e in changes.get(part, ()) if e.start < e.stop}
        for row in old:
            sign, lines = row[:1], becomes.get(row[1:]) if row[:1] in ("", " ", "-") else None
            new += [row] if lines is None else [(sign or " ") + line for line in lines]
        if new != old:
            found[patch] = [Edit(patch, 0, len(old), new, str(patch))]
    return found


def edited_chapters(edits: dict[Block, list[Edit]]) -> dict[str, Change]:
    """chapter path -> the change that the edits make of it."""
    rows: dict[str, list[str]] = {}
    found: dict[str, Change] = {}
    for block in sorted(edits, key=lambda block: -block.line):
        path = block.chapter.path
        if path not in rows:
            data = read_bytes(path) or b""
            if plain_text(data) != block.chapter.text:
                raise Refused(f"{path}: was changed meanwhile; run stitch again")
            rows[path], mode = data.decode().split("\n"), os.stat(path).st_mode & 0o7777
            found[path] = Change(os.path.realpath(path), None, data, mode, True)
        edit_block(rows[path], block, edits[block])
    for path, change in found.items():
        change.new = "\n".join(rows[path]).encode()
    return found


def edit_block(rows: list[str], block: Block, edits: list[Edit]) -> None:
    """Make the edits in the chapter's rows, and the fence longer where a line of the new body would close it."""
    opener, closer, mark = block.line - 1, block.end_line - 1, block.fence[0]
    carriage_return = "\r" if rows[opener].endswith("\r") else ""
    before = spaces_for(block.prefix)
    blank = before.rstrip() if ">" in before else ""
    old, new, done = rows[opener + 1 : closer], list[str](), 0
    for edit in edits:
        new += old[done : edit.start]
        new += [(before + line if line else blank) + carriage_return for line in edit.lines]
        done = edit.stop
    new += old[done:]
    added = longest_run(mark, [line for edit in edits for line in edit.lines])
    if added >= len(block.fence):
        fence = mark * (max(added, longest_run(mark, block.body.split("\n"))) + 1)
        rows[opener] = rows[opener].replace(block.fence, fence, 1)
        rows[closer] = re.sub(re.escape(mark) + "+", fence, rows[closer], count=1)
    rows[opener + 1 : closer] = new


def longest_run(mark: str, lines: Iterable[str]) -> int:
    """The length of the longest run of a fence's character at the beginning of a line."""
    runs = (re.sub(r"^[\s>]*", "", line) for line in lines)
    return max((len(run) - len(run.lstrip(mark)) for run in runs), default=0)


def check_stitched(book: Book, chapters: dict[str, Change], edited: dict[str, str]) -> None:
    """Tangle the new chapters in memory. Raises Refused unless every edited file comes out as the person left it."""
    again = Book()
    for chapter in book.chapters:
        change = chapters.get(chapter.path)
        text = plain_text(change.new or b"") if change else chapter.text
        add_chapter(again, chapter.path, chapter.name, text)
    link(again, join=book.join)
    made = {} if again.errors else products(again, bare=True)
    if again.errors:
        wrong = "these edits would break the book; mend the chapters first:"
        raise Refused("\n  ".join([wrong, *told(again.errors)]))
    for target, text in edited.items():
        if made[target] != text:
            names = f"{target}, as edited", f"{target}, as its chapters would make it"
            left = "".join(unified(text, made[target], *names))
            way_out = (
                "if a chunk of it is used in several places, edit them alike, or edit the chapter"
            )
            raise Refused(f"{target}: the edit cannot be carried back; {way_out}:\n{left}")
