# Tangled from book/workshop/literate-expand.md
"""From chunks to files: every reference replaced, and each character's way back remembered."""

from __future__ import annotations

import os
import re
from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence

from literate.book import Book, Item, line_of
from literate.markdown import FRONT_MATTER, Block, Chapter

LARGEST_FILE = 64 * 2**20
COST_OF_PIECE = 100  # bytes that a stretch of text costs beside its characters


class Piece:
    """A stretch of a target's text that comes from one place.

    `text`: as it is written, the join of all being the file; `block` and `start`: the body and the offset in it where
    it begins (-1: the header line); `pad`: put before every line that begins in it; `via`: the reference that brought
    it in, itself a piece without text, None at the top.
    """

    __slots__ = ("block", "pad", "start", "text", "via")

    def __init__(self, text: str, block: Block, start: int, pad: str, via: Piece | None):
        self.text, self.block, self.start, self.pad, self.via = text, block, start, pad, via


Row = namedtuple("Row", "text piece line parts")


def expand_items(book: Book, name: str, items: Mapping[str, list[Item]]) -> list[Piece]:
    """The chunk with every reference replaced. No reference may be undefined, and no chunk contain itself.

    Raises OverflowError when the text would be larger than LARGEST_FILE.
    """
    pieces: list[Piece] = []
    stack = []
    work, pad, inside = iter(items[name]), "", -1
    via: Piece | None = None
    before: Piece | None = None
    fresh, composed, room = True, False, LARGEST_FILE
    while True:
        for block, start, text, referred, indent in work:
            room -= COST_OF_PIECE + len(text) + (len(pad) * text.count("\n") if pad else 0)
            if room < 0:
                raise OverflowError(name)
            if referred is None:
                text = pad_lines(text, pad, fresh) if pad else text
                pieces.append(Piece(text, block, start, pad, via))
                fresh = text[-1] == "\n"
                continue
            stack.append((work, pad, via, inside, before))
            outer, via, before = via, Piece("", block, start, pad, via), None
            if indent is None or not fresh:
                composed = True
                if space := (pad if fresh else "") + (indent or ""):
                    before = Piece(space, block, start, space, outer)
                    pieces.append(before)
                pad, fresh = re.sub(r"[^\t]", " ", last_line(pieces)), False
                inside = len(pieces) if indent is None else -1
            else:
                pad, inside = pad + indent, -1
            work = iter(items[referred])
            break
        else:
            if 0 <= inside < len(pieces) and fresh:
                pieces[-1].text = pieces[-1].text[:-1]
                fresh = not last_line(pieces)
            elif pieces and pieces[-1] is before:  # white space in front of a chunk that is empty
                pieces.pop()
                fresh = not last_line(pieces)
            if not stack:
                if composed:
                    blank_white_lines(pieces)
                return pieces
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


def blank_white_lines(pieces: list[Piece]) -> None:
    """Make every line that several pieces share, and that is only white space, empty."""
    first = 0  # the piece in which the current line begins
    for number, piece in enumerate(pieces):
        head, newline, _ = piece.text.partition("\n")
        if not newline:
            continue
        if number > first and not (last_line(pieces[first:number]) + head).strip():
            for shared in pieces[first:number]:
                shared.text = shared.text[: shared.text.rfind("\n") + 1]
            piece.text, piece.start = piece.text[len(head) :], piece.start + len(head)
        first = number


def last_line(pieces: Sequence[Piece]) -> str:
    """What stands on the last line so far."""
    line = ""
    for piece in reversed(pieces):
        _, newline, tail = piece.text.rpartition("\n")
        line = tail + line
        if newline:
            break
    return line


def target_pieces(
    book: Book, target: str, *, bare: bool = False, items: Mapping[str, list[Item]] | None = None
) -> list[Piece]:
    """A target's text in pieces: its chunk expanded, the header line unless `bare`, one newline at the end."""
    name = book.targets[target]
    try:
        pieces = expand_items(book, name, book.items if items is None else items)
    except OverflowError:
        wrong = f"target {target!r} would be larger than {LARGEST_FILE >> 20} MiB"
        raise OverflowError(f"{book.chunks[name][0]}: {wrong}") from None
    while pieces and not (text := pieces[-1].text.rstrip("\n")):
        pieces.pop()
    if pieces:
        pieces[-1].text = text + "\n"
        if not bare:
            at, line = header(target, book.chunks[name], text_of(pieces))
            if line:
                put_header(pieces, at, line)
    return pieces


def put_header(pieces: list[Piece], at: int, line: str) -> None:
    """Put the header line into the text at an offset, as a piece of its own."""
    number = 0
    while at >= (size := len(pieces[number].text)) and number < len(pieces) - 1:
        at, number = at - size, number + 1
    piece = pieces[number]
    rest = Piece(piece.text[at:], piece.block, piece.start + at, piece.pad, piece.via)
    piece.text = piece.text[:at]
    pieces[number + 1 : number + 1] = [Piece(line, pieces[0].block, -1, "", None), rest]


def text_of(pieces: Iterable[Piece]) -> str:
    return "".join([piece.text for piece in pieces])


def expand(book: Book, target: str, *, bare: bool = False) -> str:
    """The text of one target: its chunk expanded, the header line unless `bare`, one newline at the end."""
    return text_of(target_pieces(book, target, bare=bare))


def rows_of(pieces: Iterable[Piece]) -> list[Row]:
    """Every generated line, with the piece and the chapter line of the first thing on it, white space aside, and with
    all that it is made of: text, block, chapter line."""
    rows, text, first, parts = list[Row](), "", None, []
    for piece in pieces:
        line = line_of(piece.block, piece.start)
        for number, part in enumerate(re.findall("[^\n]*\n|[^\n]+", piece.text), line):
            if first is None or not text.strip() and part.strip():
                first = piece, number
            text += part
            parts.append((part, piece.block, number))
            if part[-1] == "\n":
                rows.append(Row(text[:-1], *first, parts))
                text, first, parts = "", None, []
    return rows


def origins(pieces: Iterable[Piece]) -> list[tuple[Block, int]]:
    """(block, chapter line) of every generated line; of the header's, its block's opener."""
    return [(row.piece.block, row.line) for row in rows_of(pieces)]


COMMENT_STYLES = {
    "# {}": "py pyi pyx sh bash zsh fish rb r jl nim toml yaml yml mk cmake tcl awk sed ps1 properties "
    "gitignore gitattributes dockerignore editorconfig makefile gnumakefile dockerfile justfile",
    "// {}": "c h cc hh cpp hpp cxx cu rs go java js mjs cjs jsx ts mts tsx kt kts scala swift cs dart zig scss proto",
    "/* {} */": "css less",
    "<!-- {} -->": "html htm xml svg md markdown vue",
    "-- {}": "sql lua hs elm adb ads vhd vhdl",
    "; {}": "ini",
    ";; {}": "el lisp clj scm rkt",
    "% {}": "tex sty erl",
    "! {}": "f90 f95 f03 f08",
    "(* {} *)": "ml mli",
}
# First lines that a program reads: comments without a blank behind their mark, such as `#n` of sed, `#compdef`,
# `#cloud-config`, `%&latex`, `--liquibase`; `%%! -smp`; a notebook of Pluto's; variables of Emacs.
FIRST_LINE = r".*-\*-|%%!|(?:{})+(?:[\w%&:@$]| A Pluto)"
# What has to stay in front of the header: shebang and coding lines, directives of a Dockerfile, the front matter of a
# notebook or a page, declarations that XML, HTML and CSS want first.
PROLOGUE = r"""(?xi)
    (?:\#!.*\n)?
    (?:\#.*coding[:=][ \t]*[-\w.]+.*\n | \#[ \t]*(?:syntax|escape|check)[ \t]*=.*\n)*
    (?:\#[ ]---\n(?:\#.*\n)*?\#[ ]---\n
      | <\?.*\n | <!DOCTYPE[^>\[]*(?:\[[^\]]*\])?[^>]*>.*\n | @charset.*\n)?"""


def header(target: str, blocks: list[Block], text: str) -> tuple[int, str]:
    """Where in a target's text the line that names the chapter goes, and the line; "" where the format has none."""
    _, dot, ending = target.rpartition("/")[2].lower().rpartition(".")
    known = COMMENT_STYLES if dot or ending.endswith("file") else {}
    style = next((s for s, endings in known.items() if f" {ending} " in f" {endings} "), None)
    if style is None or any(block.attributes.get("header") == "no" for block in blocks):
        return 0, ""
    chapters = list(dict.fromkeys(chapter_title(block.chapter) for block in blocks))
    more = f" and {len(chapters) - 1} more" if len(chapters) > 1 else ""
    line = style.format(f"Tangled from {without_comment_ends(chapters[0])}{more}") + "\n"
    is_page = style[0] == "<"
    found = (re.match(FRONT_MATTER, text) if is_page else None) or re.match(PROLOGUE, text)
    at = found.end() if found else 0
    first_line = FIRST_LINE.format(re.escape(style.split()[0])) + r"|\w[\w-]*:\s" * is_page
    is_read = re.match(first_line, text[at:]) or text[:1] == "<" and not is_page
    return at, "" if is_read else line


def chapter_title(chapter: Chapter) -> str:
    """How a header names a chapter: with the book's folder, the same from wherever the run was started."""
    if os.path.normpath(chapter.path).replace(os.sep, "/") == chapter.name:
        return chapter.name
    folder = os.path.abspath(chapter.path)[: -len(chapter.name) - 1]
    return f"{os.path.basename(folder)}/{chapter.name}"


def without_comment_ends(title: str) -> str:
    """`title` as it can stand in a comment of any format: on one line, and ending none."""
    title = title if title.isprintable() else ascii(title)[1:-1]
    return re.sub("-(?=-)", "- ", title).replace("*/", "* /").replace("*)", "* )")
