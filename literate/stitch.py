# Tangled from book/workshop/literate-stitch.md
"""Edits of generated files, carried back into the chapters."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from literate.book import RECORD, Book
from literate.carry import Carrier, Edit, Refused
from literate.disk import Change
from literate.expand import expand, target_pieces
from literate.header import header
from literate.markdown import Block, Diagnostic, normal, spaces_for
from literate.patch import opcodes, products, unified
from literate.read import add_chapter, link
from literate.record import MEND_LINE_ENDS, Entry, digest, read_bytes
from literate.terminal import told
from literate.where import lines_from


class Stitched(NamedTuple):
    chapters: dict[str, Change]
    carried: dict[str, bytes]
    warnings: list[Diagnostic]


def stitch(
    book: Book, root: str, known: dict[str, Entry], *, bare: bool = False, force: bool = False
) -> Stitched:
    """The chapters that edits of targets change, by path; the targets' bytes that are in them then; and warnings.

    Tangling these chapters reproduces every edited file to the byte, but for its end, which is one newline, and the
    header line, which tangling puts where it belongs. Otherwise raises Refused with all the reasons. `known` is the
    record: by it an edited file is told from one that is only older than its chapter. Byte order mark and line ends of
    a chapter stay as they are.
    """
    edited, carried, edits, reasons = dict[str, str](), dict[str, bytes](), list[Edit](), []
    for target in book.targets:
        try:
            data = edited_bytes(book, root, target, known, bare, force)
            if data is not None:
                carried[target] = data
                edited[target] = edited_text(book, target, data, bare)
                edits += Carrier(book, target).edits(edited[target])
        except Refused as reason:
            reasons.append(str(reason))
    for path, blocks in book.diffs.items():
        data = read_bytes(os.path.join(root, path))
        if path in known and data is not None and digest(data) not in known[path].hashes:
            patch = next(block for block in blocks if block.file == path)
            reasons.append(
                f"{path}: is the diff that the patch at {patch} makes; edit that block instead"
            )
    if reasons:
        raise Refused("\n".join(reasons))
    changes = merged(edits)
    chapters = edited_chapters(changes | patch_edits(book, changes))
    warnings = check_stitched(book, chapters, edited, edits, bare)
    return Stitched(chapters, carried, warnings)


def edited_bytes(
    book: Book, root: str, target: str, known: dict[str, Entry], bare: bool, force: bool
) -> bytes | None:
    """What a person made of the target; None where nobody edited it. Raises Refused where it cannot be told."""
    data, wanted = read_bytes(os.path.join(root, target)), expand(book, target, bare=bare)
    if data is None or data == wanted.encode():
        return None
    hashes = known.get(target, Entry()).hashes
    if digest(data) in hashes and not force:
        return None
    if force or digest(wanted.encode()) in hashes:
        return data
    chapter = book.chunks[book.targets[target]][0].chapter.path
    why = "edited, and its chapter changed too since it was tangled"
    way_out = "undo one of the two, or let `tangle.py stitch --force` make the chapter agree with the file"
    if not hashes:
        why = "the record does not know what was tangled there, so the chapter may be the newer one"
        way_out = (
            f"bring {RECORD} back if it was lost, or let `tangle.py --force` take the chapter,"
        )
        way_out += (
            " or `tangle.py stitch --force` the file, which undoes in the chapter what differs"
        )
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
    if "\r\n" in text and "\r\n" not in expand(book, target, bare=True):
        raise Refused(f"{target}: has CRLF line ends, and tangling writes LF; {MEND_LINE_ENDS}")
    text = text if bare else without_header(book, target, text + "\n")
    return text.rstrip("\n") + "\n" if text.strip("\n") else ""


def without_header(book: Book, target: str, text: str) -> str:
    """`text` without the line that tangling puts in. Raises Refused if that line was edited or deleted."""
    _, line = header(target, book.chunks[book.targets[target]], "\n")
    bare, there = expand(book, target, bare=True), re.compile(f"^{re.escape(line)}", re.MULTILINE)
    if line and len(there.findall(text)) > len(there.findall(bare)):
        return there.sub("", text, count=1)
    if text.strip("\n") and expand(book, target) != bare:
        wrong = "the header line is written by tangling and cannot be edited; put it back"
        raise Refused(f"{target}: {wrong}: {line.strip()}")
    return text


def merged(edits: list[Edit]) -> dict[Block, list[Edit]]:
    """block -> its edits in order, the same edit of a shared chunk once. Raises Refused when two of them disagree."""
    found: dict[Block, dict[tuple[int, int, Sequence[str]], Edit]] = {}
    for edit in edits:
        found.setdefault(edit.block, {}).setdefault(edit[1:4], edit)
    ordered = {b: sorted(found[b].values(), key=lambda edit: edit[1:3]) for b in found}
    for block, in_order in ordered.items():
        for one, two in pairwise(in_order):
            if two.start < one.stop or one[1:3] == two[1:3]:
                both = [f"  {e.place}: {' / '.join(e.lines) or '(nothing)'}" for e in (one, two)]
                place = f"{block.chapter.path}:{block.line + 1 + two.start}"
                wrong = "conflict: two edits want different things here; make them the same:"
                raise Refused("\n".join([f"{place}: {wrong}", *both]))
    return ordered


def patch_edits(book: Book, changes: dict[Block, list[Edit]]) -> dict[Block, list[Edit]]:
    """What patches have to become so that their context and - lines fit the edited chunks."""
    found: dict[Block, list[Edit]] = {}
    for patch in [patch for patches in book.variants.values() for patch in patches]:
        lines, becomes, behind = list[str](), dict[int, Sequence[str]](), dict[int, Sequence[str]]()
        parts = book.chunks[normal(patch.patch or "")]
        for part in parts if not changes.keys().isdisjoint(parts) else ():
            for edit in changes.get(part, ()):
                first = len(lines) + edit.start
                if edit.start == edit.stop:
                    behind[first - 1] = edit.lines
                else:
                    becomes[first] = edit.lines
            lines += part.body.split("\n")[:-1]
        body = patch.body.split("\n")[:-1]
        shown = [
            k for k, row in enumerate(body) if row[:1] not in ("+", "@")
        ]  # rows with a line of the chunk
        same = [code for code in opcodes(lines, [body[k][1:] for k in shown]) if code[0] == "equal"]
        at = {shown[j1 + k]: i1 + k for _, i1, i2, j1, _ in same for k in range(i2 - i1)}
        new: list[str] = []
        for number, row in enumerate(body):
            line, sign = at.get(number, -1), row[:1]
            new += [signed(sign, text) for text in becomes[line]] if line in becomes else [row]
            following = next((k for k in shown if k > number), -1)
            if line in behind and at.get(following) == line + 1:
                sign = "-" if sign == body[following][:1] == "-" else " "
                new += [signed(sign, text) for text in behind[line]]
        if new != body:
            found[patch] = [Edit(patch, 0, len(body), new, str(patch))]
    return found


def signed(sign: str, line: str) -> str:
    return (sign or " ") + line if line or sign == "-" else ""


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


def plain_text(data: bytes) -> str:
    """A chapter's text as it is read: without byte order mark, with LF line ends."""
    return data.decode("utf-8-sig").replace("\r\n", "\n")


def tangled_again(
    book: Book, chapters: dict[str, Change], bare: bool
) -> tuple[Book, dict[str, str]]:
    """The book with some chapters changed, and what it makes; nothing if it has errors."""
    again = Book()
    for chapter in book.chapters:
        change = chapters.get(chapter.path)
        text = plain_text(change.new or b"") if change else chapter.text
        add_chapter(again, chapter.path, chapter.name, text)
    link(again, join=book.join)
    return again, {} if again.errors else products(again, bare=bare)


def used_twice(book: Book, edits: list[Edit], bare: bool) -> str:
    """What to say of the first edited chapter line that several generated lines are made of."""
    pieces = {target: target_pieces(book, target, bare=bare) for target in book.targets}
    for block, start, *_ in edits:
        line = min(block.line + 1 + start, block.end_line - 1)
        uses = [f"{t}:{n}" for t in pieces for n in lines_from(pieces[t], block.chapter, line)]
        if len(uses) > 1:
            place = f"{block.chapter.path}:{line}"
            return f"{place} is used in several places, {', '.join(uses)}; edit them alike"
    return "white space that tangling does not keep"


def check_stitched(
    book: Book, chapters: dict[str, Change], edited: dict[str, str], edits: list[Edit], bare: bool
) -> list[Diagnostic]:
    """Tangle the new chapters in memory: every edited file has to come out as the person left it. Returns warnings."""
    again, made = tangled_again(book, chapters, True)
    if again.errors:
        wrong = "these edits would break the book; mend the chapters first:"
        raise Refused("\n  ".join([wrong, *told(again.errors)]))
    for target, text in edited.items():
        if made.get(target) != text:
            names = f"{target}, as edited", f"{target}, as its chapters would make it"
            left = "".join(unified(text, made.get(target, ""), *names))
            wrong = f"the edit cannot be carried back ({used_twice(book, edits, bare)}); make it in the chapter"
            raise Refused(f"{target}: {wrong}:\n{left}")
    warnings = []
    for before, after in zip(book.chapters, again.chapters):
        for old, new in zip(before.blocks, after.blocks):
            gone = set(old.body.split("\n")) - set(new.body.split("\n"))
            if old.patch is not None and any(row[:1] == "-" for row in gone):
                wrong = (
                    "the - lines of this patch were edited with their chunk; look at its + lines"
                )
                warnings.append(Diagnostic(new.chapter.path, new.line, wrong))
    return warnings


def halves(
    book: Book, root: str, known: dict[str, Entry], chapters: dict[str, Change], bare: bool
) -> dict[str, Entry]:
    """The record, which also knows what files would be made if a run were killed between two of these chapters.

    The next stitch then sees that the chapters changed by its own hand, and goes on with the rest.
    """
    entries, done = dict(known), dict[str, Change]()
    for path in list(chapters)[:-1]:
        done[path] = chapters[path]
        for target, text in tangled_again(book, done, bare)[1].items():
            on_disk, entry = read_bytes(os.path.join(root, target)), entries.get(target)
            if entry and on_disk != text.encode():
                hashes = (*entry.hashes, digest(text.encode()))
                entries[target] = entry._replace(hashes=hashes)
    return entries
