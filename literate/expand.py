# Tangled from book/workshop/literate-expand.md
"""From chunks to files: every reference replaced, and each character's way back remembered."""

from __future__ import annotations

import re
from collections import namedtuple

from literate.book import COST_OF_PIECE, LARGEST_FILE, Book, line_of
from literate.header import add_header
from literate.markdown import Block

Piece = namedtuple("Piece", "text block start pad via")
Via = namedtuple("Via", "block start pad outer")


def expand_items(book: Book, name: str, items=None) -> list[tuple]:
    """The chunk with every reference replaced: pieces as in `target_pieces`, but plain tuples. No reference may be
    undefined, and no chunk contain itself. Raises OverflowError when the text would be larger than LARGEST_FILE."""
    items = book.items if items is None else items
    pieces: list[tuple] = []
    stack = []
    work, pad, via, inside, before = iter(items[name]), "", None, -1, None
    fresh, composed, room = True, False, LARGEST_FILE
    while True:
        for block, start, text, referred, indent in work:
            if referred is None:
                room -= COST_OF_PIECE + len(text) + (len(pad) * text.count("\n") if pad else 0)
                if room >= 0:
                    text = pad_lines(text, pad, fresh) if pad else text
                    pieces.append((text, block, start, pad, via))
                    fresh = text[-1] == "\n"
                    continue
            room -= COST_OF_PIECE
            if room < 0:
                raise OverflowError(name)
            stack.append((work, pad, via, inside, before))
            via, before = Via(block, start, pad, via), None
            if indent is None or not fresh:
                composed = True
                space = (pad if fresh else "") + (indent or "")
                if space:
                    before = (space, block, start, space, via.outer)
                    pieces.append(before)
                pad, fresh = re.sub(r"[^\t]", " ", last_line(pieces)), False
                inside = len(pieces) if indent is None else -1
            else:
                pad, inside = pad + indent, -1
            work = iter(items[referred])
            break
        else:
            if 0 <= inside < len(pieces) and fresh:
                text, *rest = pieces[-1]
                pieces[-1] = (text[:-1], *rest)
                fresh = not last_line(pieces)
            elif pieces and pieces[-1] is before:  # white space in front of a chunk that is empty
                pieces.pop()
                fresh = not last_line(pieces)
            if not stack:
                return blank_white_lines(pieces) if composed else pieces
            work, pad, via, inside, before = stack.pop()


def pad_lines(text: str, pad: str, fresh: bool) -> str:
    """`text` with `pad` before every line that begins in it; lines of nothing but white space become empty."""
    odd = text[0] == "\n" or any(ending in text for ending in ("\n\n", " \n", "\t\n"))
    if fresh and text[-1] == "\n" and not odd:
        return pad + text[:-1].replace("\n", "\n" + pad) + "\n"
    lines = text.split("\n")
    last = lines.pop()
    out = [pad + line if line.strip() else "" for line in lines]
    if not fresh and lines:
        out[0] = lines[0]
    out.append(pad + last if last and (fresh or lines) else last)
    return "\n".join(out)


def blank_white_lines(pieces: list[tuple]) -> list[tuple]:
    """The pieces, with every line that several of them share and that is only white space made empty."""
    first = 0  # the piece in which the current line begins
    for number, (text, block, start, pad, via) in enumerate(pieces):
        head, newline, _ = text.partition("\n")
        if not newline:
            continue
        if number > first and not (last_line(pieces[first:number]) + head).strip():
            for shared in range(first, number):
                before = pieces[shared]
                kept = before[0][: before[0].rfind("\n") + 1]
                pieces[shared] = (kept, *before[1:])
            pieces[number] = (text[len(head) :], block, start + len(head), pad, via)
        first = number
    return pieces


def last_line(pieces) -> str:
    """What stands on the last line so far."""
    line = ""
    for text, *_ in reversed(pieces):
        _, newline, tail = text.rpartition("\n")
        line = tail + line
        if newline:
            break
    return line


def target_tuples(book: Book, target: str, bare: bool, items=None) -> list[tuple]:
    """A target's pieces as plain tuples: one newline at the end, and the header line unless `bare`."""
    try:
        pieces = expand_items(book, book.targets[target], items)
    except OverflowError:
        block, mib = book.chunks[book.targets[target]][0], LARGEST_FILE >> 20
        raise OverflowError(f"{block}: target {target!r} would be larger than {mib} MiB") from None
    while pieces:
        text = pieces[-1][0].rstrip("\n")
        if text:
            pieces[-1] = (text + "\n", *pieces[-1][1:])
            break
        pieces.pop()
    if pieces and not bare:
        add_header(book, target, pieces)
    return pieces


def target_pieces(book: Book, target: str, *, bare: bool = False) -> list[Piece]:
    """A target's text as stretches that come from one place each.

    `text`: as it is written, the join of all being the file; `block` and `start`: the body and the offset in it where
    it begins (-1: the header line); `pad`: put before every line that begins in it; `via`: the reference that brought
    it in, as (block, start, pad there, the reference around it), None at the top.
    """
    return [Piece(*piece) for piece in target_tuples(book, target, bare)]


def expand(book: Book, target: str, *, bare: bool = False) -> str:
    """The text of one target: its chunk expanded, the header line unless `bare`, one newline at the end."""
    return "".join([piece[0] for piece in target_tuples(book, target, bare)])


def origins(pieces) -> list[tuple[Block, int]]:
    """(block, chapter line) of every generated line: where the first thing on it, white space aside, comes from."""
    found = []
    certain = True  # whether the last line in `found` has a thing on it
    fresh = True
    for text, block, start, *_ in pieces:
        line = line_of(block, start)
        for number, part in enumerate(text.split("\n")):
            if number:
                fresh = True
            if fresh:
                if not part and number == text.count("\n"):
                    break  # the line has not begun yet
                found.append((block, line + number))
                certain, fresh = bool(part.strip()), False
            elif not certain and part.strip():
                found[-1], certain = (block, line + number), True
    return found


def line_map(book: Book, target: str, *, bare: bool = False) -> list[tuple[str, int]]:
    """(chapter path, line from 1) for every line of the target, in order; the header's is its block's opener."""
    return [
        (block.chapter.path, line) for block, line in origins(target_tuples(book, target, bare))
    ]
