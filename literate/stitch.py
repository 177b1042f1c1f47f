# Tangled from book/workshop/literate-stitch.md
"""Edits of generated files, carried back into the chapters."""

from __future__ import annotations

import os
import posixpath
import re
from collections import namedtuple

from literate.book import RECORD, REFERENCE, STAGING, Book
from literate.disk import Swap, clear
from literate.expand import Piece, expand, target_pieces, target_tuples
from literate.header import add_header
from literate.markdown import NAME, Block, normal, spaces_for
from literate.patch import opcodes, products, unified
from literate.read import add_chapter, link
from literate.record import MEND_LINE_ENDS, Entry, digest, read_bytes, record_text, write_new
from literate.terminal import told
from literate.where import lines_from

Edit = namedtuple("Edit", "block start stop lines place")
Segment = namedtuple("Segment", "piece line column text source")


class Refused(Exception):
    """An edit that cannot be carried back; the message says where and why."""


def stitch(
    book: Book, root: str, known: dict[str, Entry], *, bare=False, join=False, force=False
) -> tuple[dict[str, tuple[str, str]], dict[str, bytes]]:
    """(chapter path -> its text and its new text, target -> bytes), of all chapters that edits of targets change.

    Tangling these chapters reproduces every edited file to the byte, but for a header line that a file without one
    gets. Otherwise raises Refused with all the reasons. `known` is the record: by it an edited file is told from one
    that is only older than its chapter. Byte order mark and line ends of a chapter stay as they are.
    """
    edited: dict[str, str] = {}
    on_disk: dict[str, bytes] = {}
    edits: list[Edit] = []
    reasons = []
    for target in book.targets:
        try:
            data = edited_bytes(book, root, target, known, bare, force)
            if data is not None:
                on_disk[target] = data
                edited[target] = edited_text(book, target, data, bare)
                edits += Carrier(book, target).edits(edited[target])
        except Refused as reason:
            reasons.append(str(reason))
    for block in [
        block for blocks in book.variants.values() for block in blocks if block.file is not None
    ]:
        path = posixpath.normpath(block.file)
        data = read_bytes(os.path.join(root, path))
        if path in known and data is not None and digest(data) not in known[path].hashes:
            reasons.append(
                f"{path}: is the diff that the patch at {block} makes; edit that block instead"
            )
    if not reasons:
        try:
            changes = merged(edits)
            texts = edited_chapters(changes | patch_edits(book, changes))
            check_stitched(book, texts, edited, edits, bare, join)
            return texts, on_disk
        except Refused as reason:
            reasons.append(str(reason))
    raise Refused("\n".join(reasons))


def edited_bytes(
    book: Book, root: str, target: str, known, bare: bool, force: bool
) -> bytes | None:
    """What a person made of the target; None where nobody edited it. Raises Refused where it cannot be told."""
    data, wanted = read_bytes(os.path.join(root, target)), expand(book, target, bare=bare)
    if data is None or data == wanted.encode():
        return None
    if not force:
        hashes = known[target].hashes if target in known else ()
        if digest(data) in hashes:
            return None
        if digest(wanted.encode()) not in hashes:
            chapter = book.chunks[book.targets[target]][0].chapter.path
            why, way_out = (
                "edited, and its chapter changed too since it was tangled",
                "undo one of the two, or let `tangle.py stitch --force` make the chapter agree with the file",
            )
            if not hashes:
                why, way_out = (
                    "the record does not know what was tangled there, so the chapter may be the newer one",
                    f"bring {RECORD} back if it was lost, or let `tangle.py --force` take the chapter, or `tangle.py "
                    "stitch --force` the file, which undoes in the chapter what differs here",
                )
            names = f"{chapter}, as it is now", f"{target}, as it is now"
            both = "".join(unified(wanted, data.decode("utf-8", "replace"), *names))
            raise Refused(f"{target}: {why}; {way_out}:\n{both}")
    return data


def edited_text(book: Book, target: str, data: bytes, bare: bool) -> str:
    """An edited target without its header line. Raises Refused for what tangling could never write."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Refused(
            f"{target}: is not UTF-8 at byte {error.start}, as chapters are; mend it there"
        ) from None
    if "\r\n" in text and "\r\n" not in expand(book, target, bare=True):
        raise Refused(f"{target}: has CRLF line ends, and tangling writes LF; {MEND_LINE_ENDS}")
    if text and text.rstrip("\n") + "\n" != text:
        raise Refused(
            f"{target}: does not end in exactly one newline, as every tangled file does; mend its end"
        )
    return text if bare else without_header(book, target, text)


def without_header(book: Book, target: str, text: str) -> str:
    """`text` without the line that tangling puts in. Raises Refused if it is not where tangling puts it."""
    header = with_header(book, target, "\n")[:-1]
    rest = re.sub(f"^{re.escape(header)}", "", text, count=1, flags=re.MULTILINE)
    wanted = with_header(book, target, rest)
    if rest and wanted != text and expand(book, target) != expand(book, target, bare=True):
        line = wanted[: wanted.index(header)].count("\n") + 1
        raise Refused(
            f"{target}:{line}: the header line is written by tangling and cannot be edited; "
            f"put it back there: {header.strip()}"
        )
    return rest


def with_header(book: Book, target: str, text: str) -> str:
    pieces = [(text, None, 0, "", None)] if text else []
    if text:
        add_header(book, target, pieces)
    return "".join([piece[0] for piece in pieces])


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
    return (
        not text.strip()
        and not body.strip()
        or text == pad + re.sub(rf"\\(?=<<{NAME}>>)", "", body)
    )


class Carrier:
    """Turns the changed lines of one generated file into edits of the bodies they came from."""

    def __init__(self, book: Book, target: str):
        pieces = target_pieces(book, target, bare=True)
        self.book, self.target, self.rows = book, target, segment_rows(pieces)
        self.old = ["".join(segment.text for segment in row) for row in self.rows]
        self.found: list[Edit] = []
        ways: dict[Block, set] = {}
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
        groups = self.groups(start, stop)
        shares = share_out([self.old[a:b] for a, b in groups], lines)
        between: dict[int, list[str]] = {}  # blank lines that are new on the edge of a group
        for (a, b), (first, last) in zip(groups, shares):
            old, new = self.old[a:b], lines[first:last]
            if any(map(str.strip, new)):
                head = max(0, blanks(new) - blanks(old))
                tail = len(new) - max(0, blanks(new[::-1]) - blanks(old[::-1]))
                between.setdefault(a, []).extend(new[:head])
                between.setdefault(b, []).extend(new[tail:])
                first, new = first + head, new[head:tail]
            if old != new:
                self.replace(a, b, new, number + first)
        for index, blank in between.items():
            if blank:
                self.insert(index, blank, number)

    def groups(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The lines parted into runs of consecutive whole lines of one body, and single lines."""
        found = [(start, start + 1)]
        for index in range(start + 1, stop):
            (last, *_), (this, *_) = before, row = self.rows[index - 1], self.rows[index]
            together = is_whole(before) and is_whole(row) and last.piece.block is this.piece.block
            if together and last.line + 1 == this.line and last.piece.via is this.piece.via:
                found[-1] = found[-1][0], index + 1
            else:
                found.append((index, index + 1))
        return found

    def replace(self, start: int, stop: int, lines: list[str], number: int) -> None:
        row = self.rows[start]
        first = row[0]
        if is_whole(row):
            end = first.line + stop - start
            self.add(first.piece.block, first.line, end, lines, first.piece.pad, number)
        elif lines:
            self.replace_composed(start, lines, number)
        else:
            outer = min(row, key=lambda segment: len(trail(segment)))
            self.add(outer.piece.block, outer.line, outer.line + 1, [], "", number)

    def replace_composed(self, index: int, lines: list[str], number: int) -> None:
        """A line put together around a reference became several: one of them is it, the others are new."""
        for kept, line in enumerate(lines):
            if edit := self.edit_inside(self.rows[index], self.old[index], line, number + kept):
                if kept > 0:
                    self.insert(index, lines[:kept], number)
                self.found.append(edit)
                if lines[kept + 1 :]:
                    self.insert(index + 1, lines[kept + 1 :], number + kept + 1)
                return
        segment = self.rows[index][0]
        block = segment.piece.block
        raise Refused(
            f"{self.target}:{number}: the change reaches over the edge of the reference inside "
            f"{block.chapter.path}:{block.line + 1 + segment.line}; make it in the chapter"
        )

    def edit_inside(self, row: list[Segment], old: str, new: str, number: int) -> Edit | None:
        """The change of the one segment of a composed line in which all of the difference lies; None if there is none."""
        head = len(os.path.commonprefix([old, new]))
        tail = len(os.path.commonprefix([old[head:][::-1], new[head:][::-1]]))
        begin = 0
        for segment in row:
            block, pad = segment.piece.block, len(segment.piece.pad) if segment is row[0] else 0
            end = begin + len(segment.text)
            is_padding = segment.piece.pad == segment.piece.text
            if begin + pad <= head and len(old) - tail <= end and not is_padding:
                shift = segment.column - begin - pad
                start, stop = (
                    segment.source[: head + shift],
                    segment.source[len(old) - tail + shift :],
                )
                body = start + new[head : len(new) - tail] + stop
                return Edit(
                    block, segment.line, segment.line + 1, (body,), f"{self.target}:{number}"
                )
            begin = end
        return None

    def insert(self, index: int, lines: list[str], number: int) -> None:
        """New lines: blank ones go to the block that refers to what is on both sides, others to the nearest block."""
        before = trail(self.rows[index - 1][-1]) if index else []
        after = trail(self.rows[index][0]) if index < len(self.rows) else []
        depth = 0  # so many references brought in the lines on both sides
        for one, two in zip(before, after):
            if one[:2] != two[:2]:
                break
            depth += 1
        outwards = -1 if any(map(str.strip, lines)) else 1
        homes = [(block, line + 1, pad) for block, line, pad in before[depth:][::outwards]]
        homes += after[depth:][::outwards]
        homes = homes or [(self.book.chunks[self.book.targets[self.target]][0], 0, "")]
        homes.sort(key=lambda home: home[0] in self.shared)
        fitting = [
            home
            for home in homes
            if all(line.startswith(home[2]) or not line.strip() for line in lines)
        ]
        block, line, pad = (fitting or homes)[0]
        self.add(block, line, line, lines, pad, number)

    def add(
        self, block: Block, start: int, stop: int, lines: list[str], pad: str, number: int
    ) -> None:
        body = []
        for offset, line in enumerate(lines):
            if line.strip() and not line.startswith(pad):
                white = line[: len(line) - len(line.lstrip())]
                wrong = (
                    f"is indented by less than the reference that brings in the block at {block}"
                )
                if "\t" in pad and "\t" not in white:
                    wrong = f"begins with {'spaces' if white else 'no tab'}, but a tab before its reference brings in the block at {block}"
                raise Refused(
                    f"{self.target}:{number + offset}: {wrong}: begin it with {pad!r}, or move it in the chapter"
                )
            body.append(escaped(line[len(pad) :] if line.strip() else line, self.book.chunks))
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
        via = via.outer
    return found[::-1]


def escaped(line: str, chunks) -> str:
    """`line` as a body writes it: what would be taken for a reference, or for an escaped one, gets a backslash."""

    def mark(match):
        escaped_already = line[match.start() - 1 : match.start()] == "\\"
        means_more = escaped_already or line.strip() == match[0] or normal(match[1]) in chunks
        return "\\" + match[0] if means_more else match[0]

    return REFERENCE.sub(mark, line) if "<<" in line else line


def share_out(groups: list[list[str]], lines: list[str]) -> list[tuple[int, int]]:
    """Which slice of the new lines each group of old lines became, in order: by the letters that lines have in common."""
    if len(groups) == 1:
        return [(0, len(lines))]
    owners = [number for number, group in enumerate(groups) for _ in group]
    old = [re.sub(r"\W+", "", line) for group in groups for line in group]
    new = [re.sub(r"\W+", "", line) for line in lines]
    ends = [0] * len(groups)
    for _, i1, i2, j1, j2 in (
        opcodes(old, new) if len(old) != len(new) else [("", 0, len(old), 0, len(new))]
    ):
        for j in range(j1, j2):
            owner = owners[min(i1 + j - j1, max(i2 - 1, i1 - 1, 0))]
            ends[owner:] = [j + 1] * (len(groups) - owner)
    return list(zip([0, *ends], ends))


def merged(edits: list[Edit]) -> dict[Block, list[Edit]]:
    """block -> its edits in order, the same edit of a shared chunk once. Raises Refused when two of them disagree."""
    found: dict[Block, dict[tuple, Edit]] = {}
    for edit in edits:
        found.setdefault(edit.block, {}).setdefault(edit[1:4], edit)
    ordered = {
        block: sorted(of_block.values(), key=lambda e: e[1:3]) for block, of_block in found.items()
    }
    for block, in_order in ordered.items():
        for one, two in zip(in_order, in_order[1:]):
            if two.start < one.stop or one[1:3] == two[1:3]:
                both = "\n".join(
                    f"  {e.place}: {' / '.join(e.lines) or '(nothing)'}" for e in (one, two)
                )
                place = f"{block.chapter.path}:{block.line + 1 + two.start}"
                raise Refused(
                    f"{place}: conflict: two edits want different things here; make them the same:\n{both}"
                )
    return ordered


def patch_edits(book: Book, changes: dict[Block, list[Edit]]) -> dict[Block, list[Edit]]:
    """What patches have to become so that their context and - lines fit the edited chunks."""
    found: dict[Block, list[Edit]] = {}
    for patches in book.variants.values():
        states: dict[str, list] = {}  # chunk -> (line, its number) after the patches so far
        for patch in patches:
            lines, becomes, behind = [], {}, {}
            for part in book.chunks[normal(patch.patch)]:
                for edit in changes.get(part, ()):
                    start, stop = len(lines) + edit.start, len(lines) + edit.stop
                    if start == stop:
                        behind[start - 1] = edit.lines
                        continue
                    old = [[line] for line in part.body.split("\n")[edit.start : edit.stop]]
                    for number, (first, last) in zip(
                        range(start, stop), share_out(old, edit.lines)
                    ):
                        becomes[number] = edit.lines[first:last]
                lines += part.body.split("\n")[:-1]
            numbered = [(line, number) for number, line in enumerate(lines)]
            at = shown(patch, states.setdefault(normal(patch.patch), numbered))
            old, new = patch.body.split("\n")[:-1], []
            for number, row in enumerate(old):
                line, sign = at.get(number, -1), row[:1]
                new += [signed(sign, text) for text in becomes[line]] if line in becomes else [row]
                following = next((k for k in range(number + 1, len(old)) if old[k][:1] != "+"), -1)
                if line in behind and at.get(following) == line + 1:
                    sign = "-" if sign == old[following][:1] == "-" else " "
                    new += [signed(sign, text) for text in behind[line]]
            if new != old:
                found[patch] = [Edit(patch, 0, len(old), tuple(new), str(patch))]
    return found


def signed(sign: str, line: str) -> str:
    return (sign or " ") + line if line or sign == "-" else ""


def shown(patch: Block, state: list[tuple[str, int]]) -> dict[int, int]:
    """row of the patch -> number of the chunk's line that it shows; `state` becomes what the patch makes of it."""
    at: dict[int, int] = {}
    hunk: list[tuple[str, str, int]] = []
    for number, row in enumerate([*patch.body.split("\n")[:-1], "@@"]):
        if row[:1] != "@":
            hunk.append((row[:1], row[1:], number))
            continue
        old = [(text, number) for sign, text, number in hunk if sign != "+"]
        wanted, texts = [text for text, _ in old], [text for text, _ in state]
        place = next(k for k in range(len(texts) + 1) if texts[k : k + len(old)] == wanted)
        at |= {number: mine for (_, mine), (_, number) in zip(state[place:], old)}
        lines = iter(state[place : place + len(old)])
        made = [(sign, (text, -1) if sign == "+" else next(lines)) for sign, text, _ in hunk]
        state[place : place + len(old)] = [line for sign, line in made if sign != "-"]
        hunk = []
    return at


def edited_chapters(edits: dict[Block, list[Edit]]) -> dict[str, tuple[str, str]]:
    """chapter path -> its text, and its text with the edits made."""
    rows: dict[str, list[str]] = {}
    before: dict[str, str] = {}
    for block in sorted(edits, key=lambda block: -block.line):
        path = block.chapter.path
        if path not in rows:
            with open(path, encoding="utf-8", newline="") as file:
                text = file.read()
            if plain_text(text) != block.chapter.text:
                raise Refused(f"{path}: was changed meanwhile; run stitch again")
            before[path], rows[path] = text, text.split("\n")
        edit_block(rows[path], block, edits[block])
    return {path: (before[path], "\n".join(lines)) for path, lines in rows.items()}


def edit_block(rows: list[str], block: Block, edits: list[Edit]) -> None:
    """Make the edits in the chapter's rows, and the fence longer where a line of the new body would close it."""
    opener, closer = block.line - 1, block.end_line - 1
    carriage_return = "\r" if rows[opener].endswith("\r") else ""
    before = spaces_for(block.prefix)
    blank = before.rstrip() if ">" in before else ""
    old, new, done = rows[opener + 1 : closer], [], 0
    for edit in edits:
        new += old[done : edit.start]
        new += [(before + line if line else blank) + carriage_return for line in edit.lines]
        done = edit.stop
    new += old[done:]
    added = longest_run(block.fence[0], [line for edit in edits for line in edit.lines])
    if added >= len(block.fence):
        longest = max(added, longest_run(block.fence[0], block.body.split("\n")))
        fence = block.fence[0] * (longest + 1)
        rows[opener] = rows[opener].replace(block.fence, fence, 1)
        rows[closer] = re.sub(re.escape(block.fence[0]) + "+", fence, rows[closer], count=1)
    rows[opener + 1 : closer] = new


def longest_run(mark: str, lines: list[str]) -> int:
    """The length of the longest run of a fence's character at the beginning of a line."""
    runs = (re.match(rf"[\s>]*({re.escape(mark)}*)", line)[1] for line in lines)
    return max(map(len, runs), default=0)


def plain_text(text: str) -> str:
    """A chapter's text as it is read: without byte order mark, with LF line ends."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def tangled_again(book: Book, texts: dict[str, tuple], bare: bool, join: bool) -> tuple[Book, dict]:
    """The book with some chapters' texts changed, and what it makes; nothing if it has errors."""
    again = Book()
    for chapter in book.chapters:
        text = plain_text(texts.get(chapter.path, [chapter.text])[-1])
        add_chapter(again, chapter.path, chapter.name, text)
    link(again, join=join)
    return again, {} if again.errors else products(again, bare=bare)


def used_twice(book: Book, edits: list[Edit], bare: bool) -> list[str]:
    """For each edit of a chapter line that several generated lines are made of, what to say of them."""
    pieces = {target: target_tuples(book, target, bare) for target in book.targets}
    found = {}
    for block, start, *_ in edits:
        line = min(block.line + 1 + start, block.end_line - 1)
        uses = [f"{t}:{n}" for t in pieces for n in lines_from(pieces[t], block.chapter, line)]
        if len(uses) > 1:
            place = f"{block.chapter.path}:{line}"
            found[place] = f"{place} is used in several places, {', '.join(uses)}; edit them alike"
    return [*found.values()]


def check_stitched(
    book: Book, texts, edited: dict[str, str], edits: list[Edit], bare: bool, join: bool
) -> None:
    """Tangle the new chapters in memory: every edited file has to come out as the person left it."""
    again, made = tangled_again(book, texts, True, join)
    if again.errors:
        raise Refused(
            "\n  ".join(
                ["these edits would break the book; mend the chapters first:", *told(again.errors)]
            )
        )
    for target, text in edited.items():
        if made.get(target) != text:
            names = f"{target}, as edited", f"{target}, as its chapters would make it"
            left = "".join(unified(text, made.get(target, ""), *names))
            why = (
                "; ".join(used_twice(book, edits, bare))
                or "white space that tangling does not keep"
            )
            raise Refused(
                f"{target}: the edit cannot be carried back ({why}); make it in the chapter:\n{left}"
            )
    for before, after in zip(book.chapters, again.chapters):
        for old, new in zip(before.blocks, after.blocks):
            gone = set(old.body.split("\n")) - set(new.body.split("\n"))
            if old.patch is not None and any(row[:1] == "-" for row in gone):
                wrong = (
                    "the - lines of this patch were edited with their chunk; look at its + lines"
                )
                book.warn(new, wrong)


def write_chapters(texts: dict[str, tuple[str, str]], staging: str) -> None:
    """Replace chapters on disk, all or none: each new text is written beside its chapter before the first is moved."""
    swap = Swap()
    places = {os.path.realpath(path): pair for path, pair in texts.items()}
    clear(staging)
    try:
        os.makedirs(staging)
        for path, (_, text) in places.items():
            write_new(path + STAGING, text.encode())
            os.chmod(path + STAGING, os.stat(path).st_mode & 0o7777)
        for number, (path, (before, _)) in enumerate(places.items()):
            swap.replace(path + STAGING, path, f"{staging}/old-{number}", before.encode())
    except BaseException:
        swap.roll_back()
        remove_aside(places)
        raise
    finally:
        clear(staging)


def remove_aside(places) -> None:
    """Remove what a run has left beside chapters, be it this one or one that was killed."""
    for path in places:
        if os.path.lexists(path + STAGING):
            os.remove(path + STAGING)


def allow_halves(book: Book, root: str, known, texts: dict[str, str], bare, join) -> None:
    """Let the record know what files would be made if a run were killed between two chapters of these.

    The next stitch then sees that the chapters changed by its own hand, and goes on with the rest.
    """
    entries, done = dict(known), {}
    for path in list(texts)[:-1]:
        done[path] = texts[path]
        for target, text in tangled_again(book, done, bare, join)[1].items():
            on_disk = read_bytes(os.path.join(root, target))
            if target in entries and on_disk != text.encode():
                hashes = [*entries[target].hashes, digest(text.encode())]
                entries[target] = entries[target]._replace(hashes=hashes)
    if entries != known:
        record = os.path.join(root, RECORD)
        try:
            write_new(record + STAGING, record_text(entries).encode())
            os.replace(record + STAGING, record)
        finally:
            remove_aside([record])
