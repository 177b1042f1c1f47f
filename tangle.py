#!/usr/bin/env python3
# Tangled from book/workshop/tangle.md
"""Tangle a literate book: Markdown chapters in, the program's files out.

python tangle.py                          tangle book/ into the current folder
python tangle.py docs -o build            another book, another root
python tangle.py --check                  write nothing; exit 1 and a diff when a file is stale
python tangle.py --watch                  tangle again whenever a chapter changes
python tangle.py --list                   targets and the chunks they are made of
python tangle.py where src/a.py:42        the chapter line behind a generated line (and back)
pytest 2>&1 | python tangle.py where      add chapter lines to a traceback
python tangle.py stitch                   carry edits of generated files back into the chapters
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from collections import namedtuple
from functools import lru_cache

RECORD = ".tangle.json"
STAGING = ".tangle-tmp"
TAB_STOP = 4
LARGEST_FILE = 64 * 2**20
ACROSS_FILE_SYSTEMS, EBUSY = 18, 16  # of errno
LONGEST_PATH = 4096
MEND_LINE_ENDS = "git's core.autocrlf makes such ends; put `* text=auto eol=lf` into .gitattributes and check out again"
SAVED_MEANWHILE = "was saved by another program while this one ran; run it again"
COST_OF_PIECE = 100  # bytes that a stretch of text costs beside its characters

Fault = namedtuple("Fault", "path line message")


class Chapter:
    """One Markdown file: `path` as it was found, `name` in the book, `text` with LF line ends, `blocks` in order."""

    def __init__(self, path: str, name: str, text: str):
        self.path, self.name, self.text = path, name, text
        self.blocks: list[Block] = []


class Block:
    """One fenced block of a chapter, tangled or not.

    `line` is the opener's line, `end_line` the closing fence's, both from 1; `prefix` is what stands before the fence;
    `body` is the text between, without the fence's own indentation: empty, or ending in a newline.
    """

    __slots__ = "chapter line end_line prefix fence language classes name attributes file patch body".split()

    def __init__(self, chapter, line, end_line, prefix, fence, opener, body):
        self.chapter, self.line, self.end_line, self.prefix, self.fence = (
            chapter,
            line,
            end_line,
            prefix,
            fence,
        )
        self.language, self.classes, self.name, self.attributes = opener
        self.file, self.patch, self.body = (
            self.attributes.get("file"),
            self.attributes.get("patch"),
            body,
        )

    @property
    def indent(self) -> int:
        """Columns between the margin, or the last quote mark, and the fence."""
        return columns(strip_quotes(self.prefix))

    def __str__(self):
        return f"{self.chapter.path}:{self.line}"


class Book:
    """What the chapters define.

    `chapters` and each one's `blocks` are in book order; `chunks`: name -> blocks; `targets`: path -> name of the chunk
    that is expanded into it (of a nameless block, `file=PATH`); `modes`: path -> permission bits; `variants`:
    (chapter name, block name or line) -> its `patch=` blocks; `faults` and `warnings`: lists of (path, line, message).
    """

    def __init__(self):
        self.chapters: list[Chapter] = []
        self.chunks: dict[str, list[Block]] = {}
        self.targets: dict[str, str] = {}
        self.modes: dict[str, int] = {}
        self.variants: dict[tuple, list[Block]] = {}
        self.faults: list[Fault] = []
        self.warnings: list[Fault] = []
        self.items: dict[str, list[tuple]] = {}
        self.guesses = 30

    def fault(self, block: Block, message: str, line: int | None = None) -> None:
        self.faults.append(Fault(block.chapter.path, line or block.line, message))

    def warn(self, block: Block, message: str, line: int | None = None) -> None:
        self.warnings.append(Fault(block.chapter.path, line or block.line, message))


# ---- the chapters


def find_chapters(sources) -> list[tuple[str, str]]:
    """(path, name in the book) of every Markdown file in the sources, each a folder or a file, in book order.

    Hidden folders and `node_modules` are left out. Raises FileNotFoundError for a source that does not exist, and
    ValueError for a file that is not Markdown.
    """
    found = []
    for source in map(os.fspath, sources):
        if os.path.isdir(source):
            below = []
            for folder, folders, files in os.walk(source):
                folders[:] = [f for f in folders if f[0] != "." and f != "node_modules"]
                inside = folder[len(source) :].strip(os.sep).split(os.sep)
                below += [
                    [*filter(None, inside), name]
                    for name in files
                    if name.endswith((".md", ".markdown"))
                    and os.path.isfile(os.path.join(folder, name))
                ]
            found += [(os.path.join(source, *parts), "/".join(parts)) for parts in sorted(below)]
        elif os.path.exists(source):
            if not source.endswith((".md", ".markdown")):
                raise ValueError(
                    f"{source} is no chapter (*.md); name the book's folder, or nothing"
                )
            found.append((source, os.path.basename(source)))
        else:
            raise FileNotFoundError(source)
    return found


def read_chapter(path: str, book: Book) -> str | None:
    """A chapter's text with LF line ends and no byte order mark; None, and a fault, when it is not UTF-8."""
    try:
        with open(path, "rb", buffering=0) as file:
            data = file.read().removeprefix(b"\xef\xbb\xbf")
        text = data.decode().replace("\r\n", "\n")
        if "\r" in text and "\n" not in text:
            book.faults.append(Fault(path, 1, "ends its lines with CR alone; save it with LF"))
        return text
    except OSError as error:
        book.faults.append(Fault(path, 1, f"cannot be read: {error.strerror}"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        wrong = f"is not UTF-8: byte 0x{data[error.start]:02x}; save the chapter as UTF-8"
        book.faults.append(Fault(path, line, wrong))
    return None


# ---- fences


def scan(chapter: Chapter, book: Book) -> None:
    """Find every fenced block of the chapter that stands outside HTML comments and indented code."""
    text, find = chapter.text, chapter.text.find
    position = counted = 0  # looked at up to here; the line that `line` counts begins there
    line = 1
    last_end = 0  # of the last block that was kept
    header = re.match(FRONT_MATTER, text)
    ticks, tildes, comment = find("```"), find("~~~"), find("<!--", header.end() if header else 0)
    while True:
        ticks = find("```", position) if 0 <= ticks < position else ticks
        tildes = find("~~~", position) if 0 <= tildes < position else tildes
        comment = find("<!--", position) if 0 <= comment < position else comment
        at = ticks if tildes < 0 or 0 <= ticks < tildes else tildes
        if 0 <= comment and (at < 0 or comment < at):
            position = after_comment(chapter, book, comment, position)
            continue
        if at < 0:
            return
        prefix, wrong = "", ""
        simple = SIMPLE.match(text, at) if at == 0 or text[at - 1] == "\n" else None
        if simple:  # as nearly every block begins: all that is said below, in one expression
            fence, language, cls, name, file = simple.groups()
            classes = [cls] if cls and (language or cls == "append") else []
            language = language or ("" if classes else cls) or ""
            opener = language, classes, name, {"file": file} if file else {}
            start, stop = at, simple.end() - 1
            position = stop
        else:
            start, stop = text.rfind("\n", 0, at) + 1, find("\n", at)
            position = stop = stop if stop >= 0 else len(text)
            prefix, info = text[start:at], text[at:stop].lstrip(text[at])
            fence = text[at : stop - len(info)]
            is_opener = not prefix or re.fullmatch(OPENER_PREFIX, prefix)
            if not is_opener or "`" in info and fence[0] == "`":
                if is_opener and re.match(r"[ \t]*[\w+-]*[ \t]*\{[.#]", info):
                    line = text.count("\n", 0, start) + 1
                    wrong = "a backtick in the opener makes this no fence; open it with ~~~"
                    book.faults.append(Fault(chapter.path, line, wrong))
                    counted = start
                continue
            try:
                opener = parse_opener(info)
            except ValueError as error:
                opener, wrong = NOTHING, str(error)
        line += text.count("\n", counted, start)
        counted = start
        block = Block(chapter, line, line, prefix, fence, opener, "")
        if prefix and prefix.isspace() and is_indented_code(text, start, columns(prefix)):
            if block.file or block.name or block.patch:
                book.warn(block, "this fence stands in indented code, so it is text and no block")
            continue
        close, end = find(fence, stop), -1
        if close > 0 and not prefix and text[close - 1] == "\n":
            end = close + len(fence)  # as nearly every block ends
        if end < 0 or text[end : end + 1] not in ("\n", ""):
            close, end = find_close(text, stop, prefix, fence)
            if close < 0:
                wrong = f"fence is not closed: no line of {fence} follows that ends it"
                book.fault(block, wrong + ended_early(block))
                continue
            swallowed = opener_within(text[stop + 1 : close], prefix, fence)
            if swallowed >= 0:
                position = stop + 1 + swallowed
                other = line + text.count("\n", start, position)
                wrong = f"fence is not closed before another block opens in line {other}"
                book.fault(block, wrong + ended_early(block))
                continue
        if wrong:
            book.fault(block, wrong)
        if not simple and "{" not in info and re.search(r"(?:^|\s)file\s*=", info):
            book.warn(block, "file= outside of {...} is not read; write {file=...}")
        line += text.count("\n", counted, close)
        position = end
        block.end_line, counted = line, close
        if simple and text[last_end : last_end + 2].strip() and (wrong := ended_early(block)):
            book.warn(block, "this fence opens a block of its own" + wrong)
        last_end = end
        body = text[stop + 1 : close]
        block.body = strip_prefix(body, prefix) if prefix else body
        chapter.blocks.append(block)


def ended_early(block: Block) -> str:
    """What to add to a message about a bare fence that may be the true end of the block before it."""
    last = block.chapter.blocks[-1] if block.chapter.blocks else block
    opener = block.language, block.classes, block.name, block.attributes
    mark, is_tangled = last.fence[0], last.name or last.file or last.patch
    if opener != NOTHING or not is_tangled or block.fence[0] != mark:
        return ""
    longer = mark * (max(len(last.fence), len(block.fence)) + 1)
    return (
        f"; the block of line {last.line} ended in line {last.end_line}: "
        f"if that fence is part of its text, open and close the block with {longer}"
    )


def find_close(text: str, stop: int, prefix: str, fence: str) -> tuple[int, int]:
    """(start, end) of the line that closes a fence whose opener ends at `stop`; (-1, -1) without one."""
    at = stop
    depth, width = prefix.count(">"), columns(strip_quotes(spaces_for(prefix))) if prefix else 0
    while (at := text.find(fence, at)) >= 0:
        start = text.rfind("\n", 0, at) + 1
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        before, rest = text[start:at], text[at:end]
        if (
            rest.rstrip(" \t").strip(fence[0]) == ""
            and before.strip(" \t>") == ""
            and before.count(">") == depth
        ):
            if -TAB_STOP < columns(strip_quotes(before)) - width < TAB_STOP:
                if depth and not all(
                    quote_marks(depth).match(row) for row in text[stop + 1 : start].split("\n")[:-1]
                ):
                    break
                return start, end
        at = end
    return -1, -1


def opener_within(body: str, prefix: str, fence: str) -> int:
    """Where in `body` a tangled block opens with a fence as strong as the one around it; -1 if nowhere."""
    opener = re.compile(rf"^([ \t>]*){fence}+[^\n`]*$", re.MULTILINE)
    width = columns(strip_quotes(spaces_for(prefix)))
    for match in opener.finditer(body):
        as_deep = columns(strip_quotes(match[1])) < width + TAB_STOP
        if as_deep and re.search(MEANT_FOR_US, match[0]):
            return match.start()
    return -1


# ---- columns, quotes, containers

OPENER_PREFIX = r"(?:[ \t]*(?:>|(?:[-*+]|\d{1,9}[.)])(?=[ \t])))*[ \t]*"


def quote_marks(depth: int) -> re.Pattern:
    return re.compile(rf"(?:[ \t]*> ?){{{depth}}}")


def columns(space: str, start: int = 0) -> int:
    """The column reached after `space`, read from column `start`, with a tab stop every four columns."""
    for character in space:
        start = start + TAB_STOP - start % TAB_STOP if character == "\t" else start + 1
    return start


def strip_columns(line: str, count: int) -> str:
    """`line` without its first `count` columns of white space; a tab that is cut leaves its rest as spaces."""
    column = 0
    for index, character in enumerate(line):
        if column >= count or character not in " \t":
            return " " * (column - count) + line[index:]
        column = columns(character, column)
    return " " * (column - count)


def spaces_for(prefix: str) -> str:
    """What stands before a body line where `prefix` stands before the fence: list marks become spaces."""
    return re.sub(r"[^\s>]", " ", prefix)


def strip_quotes(prefix: str) -> str:
    """`prefix` behind its last quote mark and the one space that belongs to the mark."""
    _, mark, inner = prefix.rpartition(">")
    return inner[1:] if mark and inner[:1] == " " else inner


def strip_prefix(body: str, prefix: str) -> str:
    """`body` without quote marks and without the columns before the fence."""
    depth, width = prefix.count(">"), columns(strip_quotes(spaces_for(prefix)))
    rows = body.split("\n")[:-1]
    if depth:
        rows = [row[quote_marks(depth).match(row).end() :] for row in rows]
    return "".join(strip_columns(row, width) + "\n" for row in rows)


def is_indented_code(text: str, start: int, column: int) -> bool:
    """Whether the line at `start`, indented by `column`, is Markdown's indented code.

    It is, unless a list item, admonition, tab, footnote or definition that is still open brings its content within
    four columns of it. The nearest lines above with less and less indentation decide.
    """
    limit, end = column, start - 1
    in_paragraph = False  # whether the line below is the lazy rest of what may be a list item
    while column >= TAB_STOP and (limit > 0 or in_paragraph) and end > 0:
        begin = text.rfind("\n", 0, end) + 1
        line, end = text[begin:end], begin - 1
        indent = columns(line[: len(line) - len(line.lstrip(" \t"))])
        if not line.strip() or indent >= limit and not in_paragraph:
            in_paragraph = False
            continue
        mark = re.match(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+(?=\S)", line)
        if mark and not re.fullmatch(r"[ \t]*([-*_])([ \t]*\1){2,}[ \t]*", line):
            return column >= columns(mark[0]) + TAB_STOP
        if re.match(r"[ \t]*(?:!!!|\?\?\?|===|\[\^[^\]]+\]:|:[ \t])", line):
            return column >= indent + 2 * TAB_STOP
        limit, in_paragraph = min(limit, indent), True
    return column >= TAB_STOP


# ---- comments


def after_comment(chapter: Chapter, book: Book, at: int, since: int) -> int:
    """Where to go on after the `<!--` at `at`: behind its `-->`, or at the line's end where it hides nothing.

    `since` is where the last comment on the line ended, if there was one.
    """
    text = chapter.text
    start = max(text.rfind("\n", since, at) + 1, since)
    before = text[start:at]
    at_margin = not before.isspace() or text[start - 1 : start] not in "\n"
    is_indented = not at_margin and is_indented_code(text, start, columns(before))
    if re.fullmatch(OPENER_PREFIX, before) and not is_indented:
        end, in_quote = text.find("-->", at + 2), quote_marks(before.count(">"))
        if end >= 0 and all(in_quote.match(row) for row in text[at:end].split("\n")[1:]):
            return end + 3
        wrong = "HTML comment is not closed: without --> every block after it would vanish"
        book.faults.append(Fault(chapter.path, text.count("\n", 0, at) + 1, wrong))
    end = text.find("\n", at)
    return end if end >= 0 else len(text)


# ---- the opener

NAME = r"[^\x00-,;-@\[-^`{-\x7f\s]+"  # letters of any script, digits, - _ . : /
SIMPLE = re.compile(
    r"(`{3,}|~{3,})[ \t]*([\w+-]*)[ \t]*"
    r"(?:\{(?:\.([\w+-]+))?[ \t]*(?:#([\w\-.:/]+))?[ \t]*(?:file=([\w\-./]+))?\})?[ \t]*\n",
    re.ASCII,
)
MEANT_FOR_US = r"\{[^{}]*?(?:#\s*[^\s{}]|\b(?:file|patch)\s*[=:])"
NOTHING: tuple = ("", [], None, {})
ATTRIBUTE = r"""(?x)\s*(?:
    \#(?P<id>[^\s{}"']+)
  | \.(?P<cls>[^\s{}"'=]+)
  | (?P<key>[A-Za-z_][\w:.\-]*)\s*=\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<plain>[^\s"'{}]+))
  | (?P<word>[^\s{}"'=\#]+)
)(?=\s|\Z)"""


def parse_opener(info: str) -> tuple:
    """(language, classes, name, attributes) of what follows a fence; `python {#name file=a.py}` and
    `{.python #name file="a.py"}` say the same. Raises ValueError where a block meant for the tangler is malformed."""
    outer = re.match(r"\s*([^\s{}]*)\s*\{(.*)\}\s*\Z", info)
    meant = re.search(MEANT_FOR_US, info)
    if outer is None:
        if meant:
            raise ValueError(
                f"the opener does not end in one {{...}} of attributes: {info.strip()!r}"
            )
        return (info.replace("{", " ").split() or [""])[0], [], None, {}
    language, inside = outer.groups()
    classes: list[str] = []
    name, attributes, at, token = None, {}, 0, ""
    while inside[at:].strip():
        found = re.compile(ATTRIBUTE).match(inside, at)
        if found is None:
            if not meant:
                return language, classes, None, {}
            raise ValueError(
                f"cannot read attributes from {inside[at:].strip()!r} on; wanted #name, .class, key=value"
            )
        at, kind = found.end(), found.lastgroup
        last, token = token, "".join(found[0].split())
        if meant and kind not in ("double", "single"):
            half_read(last, token)
        if kind == "id":
            if name is not None:
                raise ValueError(f"two names, #{name} and #{found['id']}; a block has one")
            name = normal(found["id"])
        elif kind in ("cls", "word"):
            classes.append(found[kind])
        else:
            key, value = found["key"], found[kind]
            if key in attributes and key in ("file", "patch", "mode"):
                raise ValueError(f"{key}= is given twice: {attributes[key]!r} and {value!r}")
            attributes[key] = value if kind == "plain" else re.sub(r"\\(.)", r"\1", value)
    if name is not None and not re.fullmatch(NAME, name):
        raise ValueError(f"#{name} is not a name: letters, digits and - _ . : / make one")
    if not language and (named := [cls for cls in classes if cls != "append"]):
        language = named[0]
        classes.remove(language)
    return language, classes, name, attributes


OURS = r"(?:file|patch|mode|header)"
HALF_READ = {  # two tokens, of which the second was meant otherwise than it reads: why
    r"\S* .*[\u2018-\u201f].*": "has curly quotes; write straight ones",
    rf"\S* (?:.*[,;]|(?:#|{OURS}=)[^,;]*[,;](?:[#.]|\w+=).*)": "has a comma; blanks separate attributes",
    rf"\S* {OURS}:.*": "has a colon; write key=value",
    rf"\S* {OURS}={OURS}=.*": "has two =; is a value missing?",
    rf"(?:#|{OURS}=[^\"'])\S* [^#.=][^=]*": "is no #name, .class or key=value; a name has no blanks, a path with blanks is quoted",
}


def half_read(last: str, token: str) -> None:
    """Raise ValueError for a token of the braces that was meant otherwise than it reads behind the `last` one."""
    for pattern, why in HALF_READ.items():
        if re.fullmatch(pattern, f"{last} {token}"):
            raise ValueError(f"{token} {why}")


def normal(name: str) -> str:
    """One spelling for names that look alike: composed characters."""
    if name.isascii():
        return name
    from unicodedata import normalize

    return normalize("NFC", name)


# ---- what the blocks define


def read_book(sources=("book",), *, join: bool = False, progress=None) -> Book:
    """Read and check a whole book from folders or Markdown files.

    `join`: a name that two chapters define is one chunk, as in Entangled. `progress`: called with (number, total).
    Raises only for a source that does not exist: what is wrong in a chapter is in `faults`; look there first.
    """
    book = Book()
    found = find_chapters(sources)
    for number, (path, name) in enumerate(found, 1):
        text = read_chapter(path, book)
        if text is not None:
            add_chapter(book, path, name, text)
        if progress:
            progress(number, len(found))
    link(book, join=join)
    return book


def add_chapter(book: Book, path: str, name: str, text: str) -> Chapter:
    """Scan one chapter's text into the book; `link` comes after the last."""
    chapter = Chapter(path, name, text)
    book.chapters.append(chapter)
    scan(chapter, book)
    return chapter


def link(book: Book, *, join: bool = False) -> None:
    """Collect chunks, targets and variants from the blocks of all chapters, and check what they say of each other."""
    claims: dict[str, dict[str, Block]] = {}  # target -> name -> first block
    tangled = []
    for chapter in book.chapters:
        for block in chapter.blocks:
            if len(block.attributes) > (block.file is not None):
                check_attributes(book, block, join)
            if "|" in block.body[:3] and block.file is None and re.match(CELL_OPTION, block.body):
                book.warn(block, "#| file: is not read; write {file=PATH} behind the fence")
            path = None
            if block.file is not None and (path := clean_target(book, block)) is None:
                continue
            if block.patch is not None:
                book.variants.setdefault((chapter.name, block.name or block.line), []).append(block)
                continue
            if path is not None:
                read_mode(book, block, path)
                names = claims.setdefault(path, {})
                if block.name is not None:
                    names.setdefault(block.name, block)
            if path is not None or block.name is not None:
                tangled.append((block, path))
    taken: dict[str, str] = {}
    for path, names in claims.items():
        owner = book.targets[path] = next(iter(names), path if join else f"file={path}")
        for name, block in names.items():
            if name != owner:
                book.fault(
                    block,
                    f"target {path!r} is claimed by #{name} here and by #{owner} at {names[owner]}; use one name",
                )
            if taken.setdefault(name, path) != path and not join:
                book.fault(
                    block,
                    f"chunk {name!r} already goes to {taken[name]!r}; one chunk makes one file",
                )
    for block, path in tangled:
        name = block.name or book.targets[path]
        if name in book.chunks:
            continue_chunk(book, block, name, join)
        else:
            book.chunks[name] = [block]
    for name, blocks in book.chunks.items():
        if all("append" in block.classes for block in blocks) and any(b.name for b in blocks):
            book.fault(blocks[0], f".append, but no block defines {name!r} to append to")
    check_collisions(book)
    check_references(book, join)
    check_variants(book)
    order = {chapter.path: number for number, chapter in enumerate(book.chapters)}
    for faults in (book.faults, book.warnings):
        faults.sort(key=lambda fault: (order.get(fault.path, -1), fault.line))


CELL_OPTION = r"(?:\S{1,2}\|.*\n)*?\S{1,2}\| *file(?:name)?\s*:"  # of Quarto
SYNONYMS = "filename filepath file-name file-path file_name file_path path tangle target".split()


def check_attributes(book: Book, block: Block, join: bool) -> None:
    """Tell of attributes that are nearly `file=`, `patch=` or `mode=` where these are missing, or that do nothing."""
    from difflib import SequenceMatcher

    tell = book.warn if join else book.fault
    if "mode" in block.attributes and block.name and block.file is None:
        tell(block, "mode= without file= sets nothing; write it where file= is")
    for key, value in block.attributes.items():
        word = key.lower()
        for ours in {"file", "patch", "mode"} - block.attributes.keys():
            typo = word[0] == ours[0] and (
                sorted(word) == sorted(ours) or SequenceMatcher(None, word, ours).ratio() > 0.85
            )
            if ours == "file" and word in SYNONYMS or typo and word not in ("path", "model"):
                tell(block, f"{key}= is no attribute of a block; write {ours}={value}")


def continue_chunk(book: Book, block: Block, name: str, join: bool) -> None:
    """Add a later block to a chunk; that it may, it has to say when the chunk is another chapter's."""
    blocks = book.chunks[name]
    blocks.append(block)
    if join or name[:5] == "file=" or "append" in block.classes:
        return
    owner = next((other for other in blocks if "append" not in other.classes), block)
    if owner.chapter is not block.chapter:
        what = f"name {name!r}" if block.name else f"target {block.file!r}"
        way_out = "add .append to this block, choose another name, or run with --join"
        book.fault(
            block,
            f"{what}, defined at {owner}, is extended in another chapter without being marked: {way_out}",
        )


# ---- targets


def clean_target(book: Book, block: Block) -> str | None:
    """The target's path from the root, with forward slashes; None, and a fault, when it is no path inside the root."""
    wrong = wrong_path(block.file)
    if wrong:
        book.fault(block, f"target {block.file!r} {wrong}")
        return None
    return posixpath.normpath(block.file)


def wrong_path(given: str) -> str:
    """Why nothing may be written to, or deleted at, a path that was given; "" when it may."""
    path = posixpath.normpath(given)
    parts = path.lower().split("/")
    if not given:
        return "is empty; write file=PATH"
    if "\\" in given:
        return "holds a backslash; write it with forward slashes"
    if not given.isprintable():
        return "holds a control character"
    if path.startswith(("/", "../")) or path == ".." or given[1:2] == ":":
        return "is outside the output folder; write a path inside it"
    if path == "." or given.endswith(("/", "/.")):
        return "is a folder; name a file in it"
    if path.startswith("~") or "/~" in path:
        return "holds a ~, which stands for no folder here; write a path from the output folder"
    if ".git" in parts or parts[0].startswith(RECORD) or path.lower().endswith(STAGING):
        return "belongs to git or to the tangler; choose another"
    return "belongs to the tangler; choose another" if parts[0] == STAGING else ""


def read_mode(book: Book, block: Block, path: str) -> None:
    if block.attributes.get("header", "no") != "no":
        book.fault(block, "header= takes only no, which leaves the header line out")
    given = block.attributes.get("mode")
    if given is None:
        return
    if not re.fullmatch(r"0?o?[0-7]{3}", given):
        book.fault(block, f"mode={given} is not three octal digits, such as 755")
    elif book.modes.setdefault(path, int(given[-3:], 8)) != int(given[-3:], 8):
        book.fault(
            block,
            f"mode={given} for {path!r}, which has mode {book.modes[path]:03o} in an earlier block",
        )


def check_collisions(book: Book) -> None:
    """Two targets that are one file where case does not count, or a path wanted both as a file and as a folder."""
    owner = {path: book.chunks[name][0] for path, name in book.targets.items()}
    for blocks in book.variants.values():
        for path, block in {
            posixpath.normpath(b.file): b for b in reversed(blocks) if b.file is not None
        }.items():
            if path in owner:
                book.fault(block, f"target {path!r} is claimed at {owner[path]} too")
            owner.setdefault(path, block)
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path, block in owner.items():
        key = normal(path).casefold()
        if files.setdefault(key, path) != path:
            book.fault(
                block,
                f"target {path!r} differs from {files[key]!r} only in case; many file systems hold only one",
            )
        while (key := key.rpartition("/")[0]) and key not in folders:
            folders[key] = path
    for key in files.keys() & folders.keys():
        wrong = (
            f"target {files[key]!r} is wanted as a file here, and as a folder for {folders[key]!r}"
        )
        book.fault(owner[files[key]], wrong)


# ---- references

REFERENCE = re.compile(f"<<({NAME})>>")


def split_items(block: Block, chunks) -> list[tuple]:
    """A block's body as (block, start, text, name, indent): stretches of text (`name` None) and references.

    `start` is the offset in the body. `indent` is what stands before a reference that has the line for itself, None
    for one inside a line. What refers to no chunk inside a line is text, and so is what has a backslash before it.
    """
    body = block.body
    if "<<" not in body:
        return [(block, 0, body, None, None)] if body else []
    items = []
    done = 0
    for match in REFERENCE.finditer(body):
        start, stop = match.span()
        if start > done and body[start - 1] == "\\":
            if start - 1 > done:
                items.append((block, done, body[done : start - 1], None, None))
            done = start
            continue
        name = normal(match[1])
        line_start = body.rfind("\n", done, start) + 1 or done
        line_stop = body.find("\n", stop) + 1
        indent = body[line_start:start]
        if (
            indent.strip()
            or body[stop:line_stop].strip()
            or (line_start and body[line_start - 1] != "\n")
        ):
            if name not in chunks:
                continue
            line_start, line_stop, indent = start, stop, None
        if line_start > done:
            items.append((block, done, body[done:line_start], None, None))
        items.append((block, start, None, name, indent))
        done = line_stop
    if done < len(body):
        items.append((block, done, body[done:], None, None))
    return items


def check_references(book: Book, join: bool) -> None:
    """Split every chunk into its items; find undefined and unused chunks, cycles, and text that is nearly a reference."""
    chunks, used = book.chunks, set(book.targets.values())
    order = dict(zip(chunks, range(len(chunks))))
    only_forward, is_tree, undefined = True, True, []
    for name, blocks in chunks.items():
        items: list[tuple] = []
        book.items[name] = items
        for block in blocks:
            if "<<" in block.body:
                items += split_items(block, chunks)
            elif block.body:
                items.append((block, 0, block.body, None, None))
        here = order[name]
        for block, start, text, referred, _ in items:
            if referred is None:
                if "<<" in text:
                    warn_almost(book, block, start, text)
            elif referred in order:
                is_tree = is_tree and referred not in used
                only_forward = only_forward and here < order[referred]
                used.add(referred)
            else:
                undefined.append((name, block, line_of(block, start), referred))
    made = reached(book.items, book.targets.values()) if join and undefined else chunks
    for name, block, line, referred in undefined:
        wrong = f"chunk {referred!r} is undefined{nameless(book, referred)}"
        (book.fault if name in made else book.warn)(block, wrong, line)
    for name in chunks.keys() - used:
        block = chunks[name][0]
        if not block.classes:  # {.figure} and the like are run by somebody else
            book.warn(block, f"chunk {name!r} is used nowhere, so its code is in no file")
    order_of_sizes = reversed(chunks) if only_forward else check_cycles(book)
    if not is_tree and not book.faults:  # where no chunk is used twice, no file outgrows the book
        check_sizes(book, order_of_sizes)


def reached(items, names) -> dict[str, None]:
    """The chunks of these names and all that they refer to, each once, in the order of their first use."""
    found: dict[str, None] = {}
    ahead = [*names][::-1]
    while ahead:
        name = ahead.pop()
        if name in items and name not in found:
            found[name] = None
            ahead += [item[3] for item in reversed(items[name]) if item[3] is not None]
    return found


def line_of(block: Block, start: int) -> int:
    """The chapter line of an offset in a block's body; of -1, the opener's."""
    return block.line + 1 + block.body.count("\n", 0, start) if start >= 0 else block.line


def nameless(book: Book, name: str) -> str:
    """What to say of an undefined chunk: where `#` was left out before its name, or else the nearest names."""
    blocks = (block for chapter in book.chapters for block in chapter.blocks)
    found = next((block for block in blocks if name in block.classes), None)
    return f"; {found} has {name!r} without a #" if found else nearest(book, name)


def warn_almost(book: Book, block: Block, start: int, text: str) -> None:
    body = block.body
    for match in re.finditer(r"<<([^<>\n]+)>>?", text):
        at, shown, name = start + match.start(), match[0], match[1].strip()
        is_first = not body[body.rfind("\n", 0, at) + 1 : at].strip()
        if shown.endswith(">>"):
            close = nearest(book, name) if len(name) > 2 else ""
            is_meant = name and (close or is_first)
        else:
            close = f"; did you mean {shown}>?"
            is_meant = is_first and not body[start + match.end() : body.find("\n", at)].strip()
        if is_meant and body[at - 1 : at] != "\\":
            book.warn(block, f"{shown} is text here and no reference{close}", line_of(block, at))


def nearest(book: Book, name: str, names=None) -> str:
    """`; did you mean …?` with the chunks (or `names`) most like this one, while the book has guesses left.

    To look through thousands of names for each of thousands of faults would take minutes and help nobody.
    """
    book.guesses -= 1
    if book.guesses < 0:
        return ""
    close = closest(name, tuple(book.chunks if names is None else names))
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


# A served book is read at every change, and nearly always has the same names.
@lru_cache(maxsize=256)
def closest(name: str, names: tuple[str, ...]) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(name, names, 3, 0.6)


def check_sizes(book: Book, order) -> None:
    """Chunks that double each other reach any size in a few lines; `order` has a chunk behind all it refers to."""
    sizes: dict[str, int] = {}
    for name in order:
        size = 0
        for _, _, text, referred, _ in book.items[name]:
            size += COST_OF_PIECE + (len(text) if referred is None else sizes.get(referred, 0))
        sizes[name] = size
    for target, name in book.targets.items():
        if sizes.get(name, 0) > LARGEST_FILE:
            wrong = f"target {target!r} would be larger than {LARGEST_FILE >> 20} MiB"
            book.fault(book.chunks[name][0], wrong)


def check_cycles(book: Book):
    """Depth first and without recursion; every reference that closes a circle is told once, with the whole circle.
    Returns the chunks, each behind those that it refers to."""
    graph = {
        name: refs
        for name, items in book.items.items()
        if (refs := [i for i in items if i[3] in book.chunks])
    }
    done = dict.fromkeys(name for name in book.chunks if name not in graph)
    for root in graph:
        path, steps, ahead = {root: 0}, [], [iter(graph[root])]
        while ahead and root not in done:
            step = next(ahead[-1], None)
            if step is None:
                done[path.popitem()[0]] = None
                ahead.pop()
                del steps[-1:]
            elif step[3] in path:
                circle = [*steps[path[step[3]] :], step]
                told = [
                    f"{n} ({s[0].chapter.path}:{line_of(*s[:2])})"
                    for n, s in zip([*path][path[step[3]] :], circle)
                ]
                book.fault(step[0], f"cycle: {' -> '.join(told)} -> {step[3]}", line_of(*step[:2]))
            elif step[3] not in done:
                path[step[3]] = len(path)
                steps.append(step)
                ahead.append(iter(graph[step[3]]))
    return done


# ---- expansion

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


# ---- the header line

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
FRONT_MATTER = (  # of a page or a chapter
    r"(---|\+\+\+)[ \t]*\n(?=\s*(?:#.*\n\s*)*[\w\"'][\w\"'. -]*[:=])(?:.*\n)*?(?:\1|\.\.\.)[ \t]*\n"
)


def add_header(book: Book, target: str, pieces: list[tuple]) -> None:
    """Put the line that names the chapter on top, where the target's format has comments."""
    _, dot, ending = target.rpartition("/")[2].lower().rpartition(".")
    known = COMMENT_STYLES if dot or ending.endswith("file") else {}
    style = next((s for s, endings in known.items() if f" {ending} " in f" {endings} "), None)
    if style is None:
        return
    blocks = book.chunks[book.targets[target]]
    if any(block.attributes.get("header") == "no" for block in blocks):
        return
    chapters = list(dict.fromkeys(chapter_title(block.chapter) for block in blocks))
    more = f" and {len(chapters) - 1} more" if len(chapters) > 1 else ""
    line = style.format(f"Tangled from {without_comment_ends(chapters[0])}{more}") + "\n"
    text = "".join([piece[0] for piece in pieces])
    is_page = style[0] == "<"
    found = is_page and re.match(FRONT_MATTER, text) or re.match(PROLOGUE, text)
    first_line = FIRST_LINE.format(re.escape(style.split()[0])) + r"|\w[\w-]*:\s" * is_page
    if re.match(first_line, text[found.end() :]) or text[0] == "<" and not is_page:
        return
    kept, header = found.end(), (line, pieces[0][1], -1, "", None)
    for number, (text, block, start, *rest) in enumerate(pieces):
        if kept < len(text):
            split = [
                (text[:kept], block, start, *rest),
                header,
                (text[kept:], block, start + kept, *rest),
            ]
            pieces[number : number + 1] = split if kept else split[1:]
            return
        kept -= len(text)
    pieces.append(header)


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


# ---- variants


def hunks(block: Block) -> list[tuple[str, str]]:
    """The (old, new) texts of a `patch=` block; a line of `@@` parts two. Raises ValueError when it is no patch."""
    found, old, new = [], "", ""
    for number, line in enumerate([*block.body.split("\n")[:-1], "@@"], 1):
        sign, text = line[:1], line[1:] + "\n"
        if sign == "@":
            if old == new and old:
                raise ValueError("patch changes nothing: no line of it begins with - or +")
            found += [(old, new)] if old != new else []
            old = new = ""
        elif sign not in ("", " ", "-", "+"):
            raise ValueError(
                f"line {number} of the patch begins with {sign!r}; wanted a space, - or +"
            )
        else:
            old += text if sign != "+" else ""
            new += text if sign != "-" else ""
    if not found:
        raise ValueError("patch is empty")
    return found


def patched(book: Book, blocks: list[Block]) -> dict[str, Block]:
    """chunk -> one block with its text after the patches. Raises ValueError, with the block, at one that does not fit."""
    found: dict[str, Block] = {}
    for block in blocks:
        chunk = normal(block.patch)
        try:
            if chunk not in book.chunks:
                raise ValueError(
                    f"patch of chunk {chunk!r}, which is undefined{nearest(book, chunk)}"
                )
            first = book.chunks[chunk][0]
            text = (
                found[chunk].body if chunk in found else "".join(b.body for b in book.chunks[chunk])
            )
            for old, new in hunks(block):
                text = replace_once(text, old, new, chunk)
            found[chunk] = Block(
                first.chapter, first.line, first.end_line, first.prefix, first.fence, NOTHING, text
            )
        except ValueError as error:
            raise ValueError(str(error), block) from None
    return found


def replace_once(text: str, old: str, new: str, chunk: str) -> str:
    """`text` with the lines `old`, which must stand in it exactly once, replaced by `new`."""
    if not old:
        raise ValueError("patch has no line of context, so it could go anywhere")
    places = [m.start() for m in re.finditer(f"^(?={re.escape(old)})", text, re.MULTILINE)]
    if len(places) != 1:
        lines = ", ".join(str(text.count("\n", 0, place) + 1) for place in places)
        fits = (
            f"fits {len(places)} times (lines {lines} of the chunk)" if places else "does not fit"
        )
        raise ValueError(
            f"patch {fits} in chunk {chunk!r}; its context and - lines have to stand there exactly once"
        )
    return text[: places[0]] + new + text[places[0] + len(old) :]


def check_variants(book: Book) -> None:
    """Every patch fits its chunk, and brings in no undefined reference and no cycle."""
    for blocks in book.variants.values():
        files = [block for block in blocks if block.file is not None]
        for block in files[1:]:
            if posixpath.normpath(block.file) != posixpath.normpath(files[0].file):
                book.fault(block, f"this variant already goes to {files[0].file!r} at {files[0]}")
        try:
            changed = {
                chunk: split_items(block, book.chunks)
                for chunk, block in patched(book, blocks).items()
            }
            for chunk, items in changed.items():
                for name in [item[3] for item in items if item[3] is not None]:
                    if wrong := bad_reference(book, book.items | changed, chunk, name):
                        book.fault(blocks[0], f"patch refers to chunk {name!r}, {wrong}")
        except ValueError as error:
            book.fault(error.args[1], error.args[0])


def bad_reference(book: Book, items, chunk: str, name: str) -> str | None:
    if name not in book.chunks:
        return f"which is undefined{nearest(book, name)}"
    return f"which contains {chunk!r}: a cycle" if chunk in reached(items, [name]) else None


def variant_diff(
    book: Book, blocks: list[Block], *, bare: bool = False, cache: dict | None = None
) -> str:
    """The unified diff, over every target they are in, that the patches of one variant make.

    `cache` (target -> text and blocks) saves work from one variant to the next.
    """
    cache = {} if cache is None else cache
    chunks = patched(book, blocks)
    items = {
        **book.items,
        **{chunk: split_items(block, book.chunks) for chunk, block in chunks.items()},
    }
    touched = {block for chunk in chunks for block in book.chunks[chunk]}
    out = []
    for target in book.targets:
        if target not in cache:
            pieces = target_tuples(book, target, bare)
            cache[target] = "".join([p[0] for p in pieces]), {p[1] for p in pieces}
        text, within = cache[target]
        if not touched.isdisjoint(within):
            changed = "".join([p[0] for p in target_tuples(book, target, bare, items)])
            out += unified(text, changed, f"a/{target}", f"b/{target}")
    return "".join(out)


def opcodes(a: list[str], b: list[str]) -> list[tuple]:
    """How `a` becomes `b`, as difflib tells it. Equal ends are set aside first, which makes a small change cheap."""
    from difflib import SequenceMatcher

    shorter = min(len(a), len(b))
    head = next((k for k in range(shorter) if a[k] != b[k]), shorter)
    tail = next((k for k in range(shorter - head) if a[-1 - k] != b[-1 - k]), shorter - head)
    c, d = len(a) - tail, len(b) - tail
    is_long = (c - head) * (d - head) > 1_000_000
    middle = SequenceMatcher(None, a[head:c], b[head:d], is_long).get_opcodes()
    found = [(tag, *(place + head for place in places)) for tag, *places in middle]
    ends = ("equal", 0, head, 0, head), ("equal", c, len(a), d, len(b))
    return [
        code for code in (ends[0], *found, ends[1]) if code[1:3] != code[3:5] or code[1] < code[2]
    ]


def unified(before: str, after: str, old_name: str, new_name: str) -> list[str]:
    """The lines of a unified diff."""
    from difflib import SequenceMatcher

    a, b = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (before, after))
    if a == b:
        return []
    matcher = SequenceMatcher(None, "", "")
    matcher.opcodes = opcodes(a, b)

    def span(start, stop):
        return f"{start + (stop > start)},{stop - start}".removesuffix(",1")

    out = [f"--- {old_name}\n", f"+++ {new_name}\n"]
    for group in matcher.get_grouped_opcodes(3):
        start, stop = (span(group[0][k], group[-1][k + 1]) for k in (1, 3))
        out.append(f"@@ -{start} +{stop} @@\n")
        for tag, i1, i2, j1, j2 in group:
            out += [(" " if tag == "equal" else "-") + line for line in a[i1:i2]]
            out += ["+" + line for line in b[j1:j2]] if tag != "equal" else []
    return [
        line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in out
    ]


def products(book: Book, *, bare: bool = False) -> dict[str, str]:
    """path -> text of all that a book without faults makes: targets, and the diffs of variants that name a file.

    Adds a fault for a variant that changes no file, or makes one larger than LARGEST_FILE.
    """
    made = {target: expand(book, target, bare=bare) for target in book.targets}
    cache: dict = {}
    for blocks in book.variants.values():
        block = next((b for b in blocks if b.file is not None), None)
        if block is None:
            continue
        try:
            diff = variant_diff(book, blocks, bare=bare, cache=cache)
        except OverflowError:
            book.fault(block, f"patch makes a file larger than {LARGEST_FILE >> 20} MiB")
            continue
        if not diff:
            book.fault(block, f"patch of {block.patch!r} changes no file that the book makes")
        made[posixpath.normpath(block.file)] = diff
    return made


# ---- the record

Entry = namedtuple("Entry", "hashes mode chapters", defaults=[()])


def digest(data: bytes) -> str:
    from hashlib import sha256

    return sha256(data).hexdigest()


def load_record(root: str) -> tuple[dict[str, Entry], str]:
    """path -> (hashes that tangling may have left there, mode it was given or None, chapters it was made from); and
    whether the record is "missing", "damaged" or "whole". Read line by line, so that one with a merge's conflict marks
    tells both sides."""
    entries: dict[str, Entry] = {}
    state = "whole"
    try:
        with open(os.path.join(root, RECORD), encoding="utf-8", errors="replace") as file:
            lines = file.read().split("\n")
    except FileNotFoundError:
        return entries, "missing"
    for line in lines:
        match = re.fullmatch(
            r'\s*"((?:[^"\\]|\\.)*)": "([0-9a-f ]+)(?: mode=([0-7]{3}))?(?: from ((?:[^"\\]|\\.)*))?",?\s*',
            line,
        )
        path, origin = (
            (re.sub(r"\\(.)", r"\1", match[k] or "") for k in (1, 4)) if match else ("", "")
        )
        if match and not wrong_path(path):
            other = entries.get(path, Entry([], None))
            chapters = dict.fromkeys([*filter(None, origin.split(", ")), *other.chapters])
            mode = int(match[3], 8) if match[3] else None
            entries[path] = Entry(match[2].split() + other.hashes, mode, tuple(chapters))
        elif line.strip() not in ("", "{", "}"):
            state = "damaged"
    return entries, state


def record_text(entries: dict[str, Entry]) -> str:
    rows = []
    for path, (hashes, mode, chapters) in sorted(entries.items()):
        value = " ".join(dict.fromkeys(hashes))
        value += "" if mode is None else f" mode={mode:03o}"
        value += f" from {', '.join(chapters)}" if chapters else ""
        path, value = (re.sub(r'(["\\])', r"\\\1", text) for text in (path, value))
        rows.append(f'"{path}": "{value}"')
    return "{\n" + ",\n".join(rows) + "\n}\n"


def write_new(path: str, data: bytes) -> None:
    handle = os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o666
    )
    try:
        while data:
            data = data[os.write(handle, data) :]
    finally:
        os.close(handle)


# ---- comparing with the disk


class Plan:
    """What a run would do.

    `writes`: path -> (new bytes, old bytes or None, permission bits or None). `modes`: path -> bits for a file whose
    bytes are right. `deletes`: path -> its bytes. `edited`: path -> (text from the book or None, bytes on disk,
    whether the record knows the path, permission bits). `gone`: paths of the record where nothing is any more.
    `others`: recorded path -> chapters it was made from that this run did not read. `entries`: the record afterwards.
    `same`: how many files are right.
    """

    def __init__(self):
        self.writes, self.modes, self.deletes, self.edited, self.entries = {}, {}, {}, {}, {}
        self.gone, self.others = [], {}
        self.same = 0


class Disk:
    """What stands where under the root; each folder is looked at once."""

    def __init__(self, root: str):
        self.root = os.path.realpath(root)
        self.kinds = {"": self.kind("")}

    def kind(self, path: str) -> str:
        """`file`, `folder`, `nothing`, or what is wrong with the place."""
        try:
            mode = os.lstat(os.path.join(self.root, path)).st_mode & 0o170000
        except (FileNotFoundError, NotADirectoryError):
            return "nothing"
        except OSError as error:
            return f"cannot be written: {error.strerror}"
        kinds = {0o040000: "folder", 0o100000: "file", 0o120000: "is a link on disk"}
        return kinds.get(mode, "is a device on disk")

    def look(self, path: str, going) -> str:
        """As `kind`, with all folders on the way looked at too. `going`: files that will have been deleted."""
        folder = ""
        for part in path.split("/")[:-1]:
            folder = f"{folder}/{part}" if folder else part
            kind = self.kinds.get(folder) or self.kinds.setdefault(folder, self.kind(folder))
            if kind == "nothing" or kind == "file" and folder in going:
                return "nothing"
            if kind != "folder":
                return f"goes through {folder!r}, which {kind if kind != 'file' else 'is a file'}"
        kind = self.kind(path) if self.kinds[""] == "folder" else "nothing"
        if kind == "folder":
            return "nothing" if self.is_husk(path, going) else "is a folder on disk"
        return kind

    def is_husk(self, path: str, going) -> bool:
        """Whether a folder holds no more than folders, bytecode, and files that are going."""
        for inside, folders, files in os.walk(os.path.join(self.root, path)):
            here = os.path.relpath(inside, self.root).replace(os.sep, "/")
            if any(os.path.islink(os.path.join(inside, name)) for name in folders):
                return False
            if not all(f"{here}/{name}" in going or is_bytecode(inside, name) for name in files):
                return False
        return True


def is_bytecode(folder: str, name: str) -> bool:
    return os.path.basename(folder) == "__pycache__" and name.endswith(".pyc")


def make_plan(
    book: Book, made: dict[str, str], root: str, known: dict[str, Entry], sources=()
) -> Plan:
    """Compare what the book makes with what is on disk; what is wrong with a target's place becomes a fault."""
    plan, disk = Plan(), Disk(root)
    names = {chapter: from_root(chapter.path, disk.root) for chapter in book.chapters}
    links = [chapter.path for chapter in book.chapters if os.path.islink(chapter.path)]
    read = {*names.values(), *(from_root(os.path.realpath(path), disk.root) for path in links)}
    folders = [os.path.join(source, ".") for source in sources if os.path.isdir(source)]
    homes = [from_root(folder, disk.root) for folder in folders]

    def in_book(name):
        return any(home == "." or name.startswith(home + "/") for home in homes)

    def is_source(path):
        return path in read or path.endswith((".md", ".markdown")) and in_book(path)

    def not_read(entry):
        return [name for name in entry.chapters if name not in read]

    def is_there(name):
        return os.path.lexists(os.path.join(disk.root, name))

    @lru_cache(maxsize=1)
    def unseen():
        return [place for source in sources for place in cannot_see(source)]

    def why_kept(entry):
        """What this run did not see of what a file was made from; nothing, where each chapter was read or is surely gone."""
        unread = not_read(entry)
        lost = [name for name in unread if is_there(name) or not in_book(name)]
        return (
            lost or unread and unseen()
            if entry.chapters
            else ["chapters that the record does not name"]
        )

    for path, entry in known.items():
        kind = "made" if path in made or is_source(path) else disk.look(path, ())
        if kind not in ("file", "nothing"):
            continue
        if reasons := why_kept(entry) if kind == "file" or entry.chapters else []:
            plan.others[path], plan.entries[path] = reasons, entry
        elif kind == "nothing":
            plan.gone.append(path)
        else:
            with open(os.path.join(disk.root, path), "rb") as file:
                old = file.read()
            if digest(old) in entry.hashes:
                plan.deletes[path] = old
            else:
                plan.edited[path] = None, old, True, None
    chapters = makers(book, names)
    for path, text in made.items():
        entry = known.get(path, Entry([], None))
        unread = [name for name in not_read(entry) if is_there(name)]
        if 0 < len(unread) < len(entry.chapters):
            plan.others[path], plan.entries[path] = unread, entry
            continue
        kind = disk.look(path, plan.deletes)
        if is_source(path):
            kind = "is a source file: a chapter, or where the next run would take it for one"
        if kind not in ("file", "nothing"):
            blocks = [b for c in book.chapters for b in c.blocks if b.file]
            block = next(b for b in blocks if posixpath.normpath(b.file) == path)
            book.fault(block, f"target {path!r} {kind}; choose another, or move that away")
            continue
        full = os.path.join(disk.root, path) if kind == "file" else None
        plan.entries[path] = Entry([digest(text.encode())], book.modes.get(path), chapters[path])
        compare(plan, path, text.encode(), full, known.get(path))
    return plan


def from_root(path: str, root: str) -> str:
    """How the record names a chapter: by its path from the root, with links among the folders resolved."""
    folder, base = os.path.split(path)
    name = os.path.join(os.path.realpath(folder), base)
    if os.path.splitdrive(name)[0] == os.path.splitdrive(root)[0]:
        name = os.path.relpath(name, root)
    name = name.replace(os.sep, "/")
    return (name if name.isprintable() else ascii(name)).replace(
        ", ", ","
    )  # a comma and a space part two


def makers(book: Book, names: dict[Chapter, str]) -> dict[str, tuple[str, ...]]:
    """path -> the names of the chapters with blocks in that file."""
    found = {
        posixpath.normpath(block.file): [block]
        for blocks in book.variants.values()
        for block in blocks
        if block.file is not None
    }
    found |= {target: blocks_in(book, name) for target, name in book.targets.items()}
    return {
        path: tuple(dict.fromkeys(names[block.chapter] for block in blocks))
        for path, blocks in found.items()
    }


def blocks_in(book: Book, name: str) -> list[Block]:
    """The blocks that a chunk is expanded from, in the order of first use."""
    return [block for chunk in reached(book.items, [name]) for block in book.chunks[chunk]]


def cannot_see(source: str) -> list[str]:
    """The folders of a source that cannot be listed, and the chapters in it that cannot be opened."""
    errors: list[OSError] = []
    lost = []
    for folder, folders, names in os.walk(source, onerror=errors.append):
        folders[:] = [f for f in folders if f[0] != "." and f != "node_modules"]
        places = [os.path.join(folder, n) for n in names if n.endswith((".md", ".markdown"))]
        lost += [place for place in places if not os.path.isfile(place)]
    return lost + [error.filename for error in errors]


def compare(plan: Plan, path: str, data: bytes, full: str | None, entry: Entry | None) -> None:
    """Sort one target into the plan by the file in its place, if there is one."""
    mode = plan.entries[path].mode
    old = bits = None
    if full is not None:
        bits = os.stat(full).st_mode & 0o777
        with open(full, "rb") as file:
            old = file.read()
    if mode is None and entry is not None and entry.mode is not None:
        mode = 0o666 & ~umask()  # the chapter asked for a mode once and does so no more
    if old == data:
        if mode in (None, bits) or os.name == "nt":
            plan.same += 1
        else:
            plan.modes[path] = mode
    elif old is None or entry is not None and digest(old) in entry.hashes:
        plan.writes[path] = data, old, bits if mode is None else mode
    else:
        plan.edited[path] = data.decode(), old, entry is not None, bits if mode is None else mode


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# ---- writing


class Lock:
    """Keeps the root for one run at a time, where the system has flock; elsewhere does nothing."""

    def __init__(self, root: str):
        self.root, self.handle = root, None

    def __enter__(self):
        try:
            import fcntl

            self.handle = os.open(self.root, os.O_RDONLY)
            fcntl.flock(self.handle, fcntl.LOCK_EX)
        except (ImportError, OSError):
            pass

    def __exit__(self, *_):
        if self.handle is not None:
            os.close(self.handle)


def move(staged: str, place: str) -> None:
    """Rename a file; from one file system to another, copy it beside its place first."""
    try:
        os.replace(staged, place)
    except OSError as error:
        if error.errno != ACROSS_FILE_SYSTEMS:
            raise
        with open(staged, "rb") as file:
            write_new(place + STAGING, file.read())
        os.chmod(place + STAGING, os.stat(staged).st_mode & 0o777)
        os.replace(place + STAGING, place)


class Swap:
    """Changes on disk that can all be undone: what is replaced or removed is kept aside until then."""

    def __init__(self):
        self.undo: list[tuple] = []
        self.folders: set[str] = set()

    def replace(self, staged: str, place: str, kept: str | None, old: bytes | None = None) -> None:
        """Move a file to its place; `kept` is where to keep what is there, None when nothing is. Raises OSError, to be
        rolled back, if what was there is not `old`."""
        self.make_folder(os.path.dirname(place))
        if kept is None:
            if os.path.lexists(place):
                raise OSError(EBUSY, SAVED_MEANWHILE, place)
            move(staged, place)
            self.undo.append((os.remove, place))
            return
        try:
            os.link(place, kept)
        except OSError:  # a file system without links
            with open(place, "rb") as file:
                write_new(kept, file.read())
            os.chmod(kept, os.stat(place).st_mode & 0o777)
        move(staged, place)
        self.undo.append((move, kept, place))
        if old is not None and read_bytes(kept) != old:
            raise OSError(EBUSY, SAVED_MEANWHILE, place)

    def chmod(self, place: str, mode: int) -> None:
        before = os.stat(place).st_mode & 0o777
        os.chmod(place, mode)
        self.undo.append((os.chmod, place, before))

    def make_folder(self, folder: str) -> None:
        if folder in self.folders:
            return
        self.folders.add(folder)
        if folder and not os.path.isdir(folder):
            self.make_folder(os.path.dirname(folder))
            os.mkdir(folder)
            self.undo.append((os.rmdir, folder))

    def set_aside(self, place: str, kept: str, old: bytes | None) -> None:
        """Move a file that holds `old`, or a folder with nothing but bytecode, out of its place."""
        move(place, kept)
        if os.path.lexists(place):  # copied to another file system
            os.remove(place)
        self.undo.append((move, kept, place))
        inside = [(folder, name) for folder, _, names in os.walk(kept) for name in names]
        if read_bytes(kept) != old or not all(is_bytecode(*one) for one in inside):
            raise OSError(EBUSY, SAVED_MEANWHILE, place)

    def roll_back(self) -> None:
        for function, *arguments in reversed(self.undo):
            try:
                function(*arguments)
            except OSError:
                pass


def carry_out(
    plan: Plan, root: str, known: dict[str, Entry], *, force: bool = False, damaged: bool = False
) -> None:
    """Write, delete and set modes as planned: all or nothing. `force` discards the edits that are in the way.

    The new contents are written aside first. Then the record learns old and new hashes; a run that is killed from here
    on leaves only files that the next run knows. Then the files change place. Raises OSError, with all put back.
    """
    writes, deletes = dict(plan.writes), dict(plan.deletes)
    for path, (text, old, _, mode) in plan.edited.items() if force else ():
        if text is None:
            deletes[path] = old
        else:
            writes[path] = text.encode(), old, mode
    staging, record = os.path.join(root, STAGING), os.path.join(root, RECORD)
    clear(staging)
    both = {path: known[path] for path in (*deletes, *plan.gone) if path in known} | plan.entries
    for path, (_, old, _) in writes.items():
        if old is not None:
            both[path] = both[path]._replace(hashes=[digest(old), *both[path].hashes])
    if not (writes or plan.modes or damaged or both != known or plan.entries != known):
        return
    swap = Swap()
    try:
        os.mkdir(staging)
        for number, (data, _, mode) in enumerate(writes.values()):
            write_new(f"{staging}/{number}", data)
            if mode is not None:
                os.chmod(f"{staging}/{number}", mode)
        write_new(f"{staging}/record", record_text(both).encode())
        kept = f"{staging}/old-record" if os.path.lexists(record) else None
        swap.replace(f"{staging}/record", record, kept)
        change_places(swap, root, staging, writes, deletes)
        for path, mode in plan.modes.items():
            swap.chmod(os.path.join(root, path), mode)
    except BaseException:
        swap.roll_back()
        clear(staging)
        raise
    try:
        remove_empty_folders(root, (*deletes, *plan.gone))
        if not plan.entries:
            os.remove(record)
        elif both != plan.entries:
            write_new(f"{staging}/record", record_text(plan.entries).encode())
            os.replace(f"{staging}/record", record)
        clear(staging)
    except OSError:  # the files are right, and the next run tidies up
        pass


def clear(staging: str) -> None:
    """Empty and remove the staging folder, so far as it can be done; the next run comes here too."""
    if not os.path.isdir(staging) or os.path.islink(staging):
        return
    for folder, folders, files in os.walk(staging, topdown=False):
        for remove, names in ((os.remove, files), (os.rmdir, folders)):
            for name in names:
                try:
                    remove(os.path.join(folder, name))
                except OSError:
                    pass
    try:
        os.rmdir(staging)
    except OSError:
        pass


def change_places(swap: Swap, root: str, staging: str, writes, deletes) -> None:
    """Set aside what is to go, and move the staged files to their places."""
    for number, path in enumerate(deletes):
        swap.set_aside(os.path.join(root, path), f"{staging}/gone-{number}", deletes[path])
    for number, (path, (_, old, _)) in enumerate(writes.items()):
        full = os.path.join(root, path)
        if old is None and os.path.isdir(full):  # only folders and bytecode, as the plan has seen
            swap.set_aside(full, f"{staging}/husk-{number}", None)
        kept = None if old is None else f"{staging}/old-{number}"
        swap.replace(f"{staging}/{number}", full, kept, old)


def remove_empty_folders(root: str, deleted) -> None:
    """Remove the folders that deleted files leave empty, and the bytecode that Python made of these files."""
    for path in deleted:
        folder, _, base = path.rpartition("/")
        cache = os.path.join(root, folder, "__pycache__")
        if base.endswith(".py") and os.path.isdir(cache):
            for name in os.listdir(cache):
                if name.startswith(base[:-2]) and name.endswith(".pyc"):
                    os.remove(os.path.join(cache, name))
            if not os.listdir(cache):
                os.rmdir(cache)
        while folder and not os.path.islink(os.path.join(root, folder)):
            if os.path.isdir(os.path.join(root, folder)):
                if os.listdir(os.path.join(root, folder)):
                    break
                os.rmdir(os.path.join(root, folder))
            folder = folder.rpartition("/")[0]


# ---- from generated lines to chapter lines, and back


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
    line = int(number)
    target = target_of(book, path, root)
    if target is not None:
        pieces, first = target_tuples(book, target, bare), book.chunks[book.targets[target]][0]
        tangled, total = lines_on_disk(pieces, os.path.join(root, target))
        if not 0 < line <= total:
            raise LookupError(f"{path} has {count(total, 'line')}, so there is no line {line}")
        above = tangled[max(k for k in tangled if k <= line)]
        block, origin = origins(pieces)[above - 1] if above else (first, first.line)
        place = f"{block.chapter.path}:{origin}" + (f" ({block.name})" if block.name else "")
        if line not in tangled:
            raise LookupError(
                f"{path}:{line} was edited since it was tangled; what is above it is from {place}"
            )
        return [place]
    chapter = next(
        (c for c in book.chapters if os.path.realpath(c.path) == os.path.realpath(path)), None
    )
    if chapter is None:
        raise LookupError(
            f"{path} is neither made by the book nor one of its chapters{nearest(book, path, book.targets)}"
        )
    made = []
    for target in book.targets:
        place_on_disk = os.path.normpath(os.path.join(root, target))
        pieces = target_tuples(book, target, bare)
        if lines := lines_from(pieces, chapter, line):
            tangled, _ = lines_on_disk(pieces, place_on_disk)
            made += [
                f"{place_on_disk}:{k}" for k, as_tangled in tangled.items() if as_tangled in lines
            ]
    if not made:
        raise LookupError(f"no generated line comes from {place}")
    return made


def lines_from(pieces, chapter: Chapter, line: int) -> list[int]:
    """The generated lines (from 1) on which something stands that came from a line of a chapter."""
    found, index = {}, 1
    for text, block, start, *_ in pieces:
        offset = line - line_of(block, start)
        if (
            block.chapter is chapter
            and start >= 0
            and 0 <= offset < text.count("\n") + (text[-1:] != "\n")
        ):
            found[index + offset] = True
        index += text.count("\n")
    return list(found)


def lines_on_disk(pieces, path: str) -> tuple[dict[int, int], int]:
    """Line of the file on disk -> line of the target, for lines that are as they were tangled (0 -> 0 for
    the place above); and how many lines are on disk. A file that is not there counts as just tangled."""
    old = "".join([piece[0] for piece in pieces]).split("\n")[:-1]
    data = read_bytes(path)
    text = "" if data is None else data.decode("utf-8", "replace").replace("\r\n", "\n")
    new = old if data is None else text.removesuffix("\n").split("\n") if text else []
    same = [code for code in opcodes(old, new) if code[0] == "equal"]
    pairs = [zip(range(j1 + 1, j2 + 1), range(i1 + 1, i2 + 1)) for _, i1, i2, j1, j2 in same]
    return {0: 0} | {j: i for pair in pairs for j, i in pair}, len(new)


def target_of(book: Book, path: str, root: str) -> str | None:
    """The target that `path` names, seen from the current folder or from the root; None if it names none."""
    for place in (path, os.path.join(root, path)):
        folder = os.path.realpath(os.path.dirname(place))
        relative = os.path.relpath(
            os.path.join(folder, os.path.basename(place)), os.path.realpath(root)
        )
        if relative.replace(os.sep, "/") in book.targets:
            return relative.replace(os.sep, "/")
    return None


class Annotator:
    """Adds chapter lines to the lines of a traceback, a test report or a linter's output."""

    FRAME = re.compile(r"""(?x)
        File\ "([^"\0]+)",\ line\ (\d{1,9})\b
      | (file://(?=/))? ((?:[A-Za-z]:(?=[\\/]))? [^\s:"'()\[\]\0]+) (?::(\d{1,9})\b | \((\d{1,9})(?:,\d{1,9})?\))?""")

    def __init__(self, book: Book, root: str = ".", *, bare: bool = False):
        self.book, self.root, self.bare = book, root, bare
        self.maps: dict[str, list[str]] = {}

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
        """`chapter:line` behind a line of a generated file; None where the file is none, or not as it was tangled."""
        if path not in self.maps:
            self.maps[path] = self.origins_in(path)
        return self.maps[path][line - 1] if 0 < line <= len(self.maps[path]) else None

    def origins_in(self, path: str) -> list[str]:
        target = target_of(self.book, path, self.root)
        if target is None:
            return []
        pieces = target_tuples(self.book, target, self.bare)
        if (
            read_bytes(os.path.join(self.root, target))
            != "".join([piece[0] for piece in pieces]).encode()
        ):
            return []
        return [f"{block.chapter.path}:{line}" for block, line in origins(pieces)]


def unquoted(path: str) -> str:
    from urllib.parse import unquote

    return unquote(path)


def read_bytes(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def run_where(options) -> int:
    book = open_book(options)
    if book is None:
        return 1
    if not options.places and sys.stdin.isatty():
        complain("where: name PATH:LINE, or pipe a traceback in")
        return 2
    annotator = Annotator(book, options.output, bare=options.bare)
    if not options.places and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="surrogateescape")
    for text in () if options.places else sys.stdin:
        sys.stdout.write(annotator.annotate(text))
        sys.stdout.flush()
    status = 0
    for place in options.places:
        try:
            say("\n".join(locate(book, place, options.output, bare=options.bare)))
        except LookupError as error:
            complain(f"where: {error.args[0]}")
            status = 1
    return status


# ---- stitch: edits of generated files, carried back

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
    """The book with some chapters' texts changed, and what it makes; nothing if it has faults."""
    again = Book()
    for chapter in book.chapters:
        text = plain_text(texts.get(chapter.path, [chapter.text])[-1])
        add_chapter(again, chapter.path, chapter.name, text)
    link(again, join=join)
    return again, {} if again.faults else products(again, bare=bare)


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
    if again.faults:
        raise Refused(
            "\n  ".join(
                ["these edits would break the book; mend the chapters first:", *told(again.faults)]
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


def run_stitch(options) -> int:
    bare, join, root = options.bare, options.join, options.output
    with Lock(root):
        book = open_book(options)
        if book is None:
            return 1
        remove_aside(os.path.realpath(chapter.path) for chapter in book.chapters)
        known, _ = load_record(root)
        told_already = len(book.warnings)
        try:
            texts, carried = stitch(book, root, known, bare=bare, join=join, force=options.force)
        except Refused as reason:
            complain(str(reason), "stitch: no chapter was touched")
            return 1
        complain(*told(book.warnings[told_already:], "warning: "))
        if len(texts) > 1:
            allow_halves(book, root, known, texts, bare, join)
        write_chapters(texts, os.path.join(root, STAGING))
    for path in texts:
        say(f"stitched {path}")
    return run_tangle(type(options)(**{**vars(options), "check": False, "force": False}), carried)


# ---- the command


def say(text: str, stream=None) -> None:
    print(text, file=stream or sys.stdout)


def complain(*lines) -> None:
    sys.stdout.flush()
    for line in lines:
        say(line, sys.stderr)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def show_progress(number: int, total: int) -> None:
    if total >= 50 and (number % 25 == 0 or number == total):
        done = "\r\x1b[K" if number == total else ""
        sys.stderr.write(f"\rreading chapter {number} of {total}{done}")
        sys.stderr.flush()


def told(faults, kind: str = "") -> list[str]:
    return [f"{path}:{line}: {kind}{message}" for path, line, message in faults]


def open_book(options) -> Book | None:
    """The book, or None when there is none or it has faults; these are told."""
    progress = show_progress if sys.stderr.isatty() else None
    try:
        book = read_book(options.book, join=options.join, progress=progress)
    except FileNotFoundError as error:
        verb = nearest(Book(), str(error), ("where", "stitch", "--check", "--list", "--watch"))
        complain(f"tangle: there is no book {str(error)!r}; name the folder of the chapters{verb}")
        return None
    except ValueError as error:
        complain(f"tangle: {error}")
        return None
    if not book.chapters and not book.faults:
        complain(
            f"tangle: no chapter (*.md) in {', '.join(options.book)}; name the folder of the chapters"
        )
        return None
    complain(*told(book.warnings, "warning: "))
    return None if stopped_by_faults(book) else book


def stopped_by_faults(book: Book) -> bool:
    if book.faults:
        complain(*told(book.faults), f"tangle: {count(len(book.faults), 'fault')}; nothing written")
    return bool(book.faults)


def no_target(book: Book) -> list[str]:
    """What to say of a book that makes no file."""
    hints = ["tangle: no block names a file; open one with ```python {file=PATH}"]
    for chapter in book.chapters:
        if found := re.search(r"(?m)^<<[^<>\n]+>>=[ \t]*$", chapter.text):
            line = chapter.text.count("\n", 0, found.start()) + 1
            wrong = f"noweb's {found[0].rstrip()} defines nothing; write ```python {{#NAME}}"
            hints += told([Fault(chapter.path, line, wrong)])
    return hints


def run_tangle(options, carried=None) -> int:
    """`carried`: path -> bytes that a person wrote there and that are in the chapters now."""
    book = open_book(options)
    if book is None:
        return 1
    made = products(book, bare=options.bare)
    if stopped_by_faults(book):
        return 1
    if not made:
        complain(*no_target(book))
    if not options.check:
        os.makedirs(options.output, exist_ok=True)
    with Lock(options.output):
        known, state = load_record(options.output)
        for path, data in (carried or {}).items():
            entry = known.get(path, Entry([], None))
            known[path] = entry._replace(hashes=[*entry.hashes, digest(data)])
        plan = make_plan(book, made, options.output, known, options.book)
        if stopped_by_faults(book):
            return 1
        if state == "damaged":
            complain(
                f"{RECORD}: damaged; files that match the book are adopted, others count as edited"
            )
        if options.check:
            return report(plan, known, state)
        if plan.edited and not options.force:
            for path, edit in plan.edited.items():
                complain(*difference(path, *edit[:3]))
            wrong = f"{count(len(plan.edited), 'file')} would be overwritten; nothing written"
            complain(f"tangle: {wrong}. {ways_out(plan)}")
            return 1
        damaged = state == "damaged"
        carry_out(plan, options.output, known, force=options.force, damaged=damaged)
    for path in plan.edited:
        say(f"discarded what was in {path}")
    changes = [f"{len(plan.writes) + len(plan.edited)} written", f"{plan.same} unchanged"]
    changes += [f"{len(plan.modes)} given a mode"] if plan.modes else []
    changes += [f"{len(plan.deletes)} removed"] if plan.deletes else []
    changes += [f"{len(plan.others)} of other chapters left alone"] if plan.others else []
    say(
        f"tangled {count(len(book.chapters), 'chapter')} into {count(len(made), 'file')}: {', '.join(changes)}"
    )
    complain(*left_alone(plan))
    return 0


def left_alone(plan: Plan) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for path, lost in plan.others.items():
        reasons.setdefault(lost[0], []).append(path)
    return [
        f"left alone: {', '.join(paths[:3])}{' …' if paths[3:] else ''}, made from {lost}, not read by this run"
        for lost, paths in reasons.items()
    ]


def ways_out(plan: Plan) -> str:
    """What to do about the files that stop a run."""
    edits = plan.edited.values()
    unknown = sum(not ours for _, _, ours, _ in edits)
    if unknown:
        return (
            f"The record does not know {count(unknown, 'file')} of them, so the diffs have to tell which side is newer: bring "
            f"{RECORD} back if it was lost; or `tangle.py --force` takes the chapters, and `tangle.py stitch --force` the "
            "files, undoing in the chapters what differs"
        )
    if any(b"\r\n" in old for _, old, _, _ in edits):
        return f"Line ends are CRLF: {MEND_LINE_ENDS}, or let `tangle.py --force` write LF"
    return "`tangle.py stitch` carries edits into the chapters, `tangle.py --force` discards them"


def difference(path: str, text: str | None, old: bytes, ours: bool) -> list[str]:
    """What to say of a file that tangling would overwrite or delete: why, and the diff."""
    if text is None:
        return [
            f"{path}: edited by hand, and no longer made by the book; move it away, or discard it with --force"
        ]
    why = "edited by hand" if ours else "not written by this book, as far as its record knows"
    lf = old.replace(b"\r\n", b"\n").decode("utf-8", "replace")
    lines = unified(text, lf, f"{path} from the book", f"{path} on disk")
    if lf.encode() != old and b"\r\n" in old:
        why = f"{why}, with CRLF" if lines else "only its line ends differ: they are CRLF"
    return [f"{path}: {why}", "".join(lines).rstrip("\n")] if lines else [f"{path}: {why}"]


def report(plan: Plan, known: dict[str, Entry], state: str) -> int:
    """What `--check` prints; the exit status."""
    for path, (data, old, _) in plan.writes.items():
        before = "" if old is None else old.decode("utf-8", "replace")
        say(
            f"{path}: missing"
            if old is None
            else f"{path}: stale: its chapter changed since it was tangled"
        )
        sys.stdout.writelines(
            unified(before, data.decode(), f"{path} on disk", f"{path} from the book")
        )
    for path, mode in plan.modes.items():
        say(f"{path}: its mode should be {mode:03o}")
    for path in plan.deletes:
        say(f"{path}: left over: the book makes it no more")
    for path, edit in plan.edited.items():
        say("\n".join(difference(path, *edit[:3])))
    complain(*left_alone(plan))
    wrong = len(plan.writes) + len(plan.modes) + len(plan.deletes) + len(plan.edited)
    if wrong:
        way_out = ways_out(plan) if plan.edited else "`tangle.py` writes what the book makes"
        say(f"{count(wrong, 'file')} not fresh. {way_out}")
    elif state == "damaged" or state == "whole" and plan.entries != known:
        wrong = 1
        say(f"{RECORD}: does not say what is on disk; run tangle.py and keep the record it writes")
    else:
        say(f"{count(plan.same, 'file')} fresh")
    return 1 if wrong else 0


def run_list(options) -> int:
    book = open_book(options)
    if book is None:
        return 1
    for target, name in book.targets.items():
        say(target)
        for block in blocks_in(book, name):
            say(f"    {block.name or '(nameless)'}  {block}")
    for blocks in book.variants.values():
        say(next((block.file for block in blocks if block.file), "(no file)"))
        for block in blocks:
            say(f"    patch of {block.patch}  {block}")
    return 0


def watch(options, sleep=None) -> int:
    """Run, and again when a chapter changed, or for stitch a generated file, and all have rested from one look to the
    next; faults are told and do not end it. `sleep`: called with the seconds between two looks."""
    import gc
    import time

    gc.enable()

    def state():
        found = {}
        try:
            paths = [path for path, _ in find_chapters(options.book)]
        except (FileNotFoundError, ValueError):
            paths = []
        if options.run is run_stitch:
            paths += [os.path.join(options.output, path) for path in load_record(options.output)[0]]
        for path in paths:
            try:
                status = os.stat(path)
                found[path] = status.st_mtime_ns, status.st_size
            except OSError:
                found[path] = None
        return found

    before, last = None, state()
    while True:
        now = state()
        if now != before and now == last:
            try:
                options.run(options)
            except OSError as error:
                complain(f"tangle: {blamed(error, options)}: {error.strerror or error}")
            say(f"watching {', '.join(options.book)}; Ctrl-C ends")
            sys.stdout.flush()
            before = now
        last = now
        (sleep or time.sleep)(0.3)


def parse_arguments(arguments: list[str]):
    import argparse
    from functools import partial

    verb = arguments[0] if arguments[:1] in (["where"], ["stitch"]) else ""
    if arguments[:1] in (["check"], ["list"], ["watch"]) and not os.path.exists(arguments[0]):
        arguments = [f"--{arguments[0]}", *arguments[1:]]
    descriptions = {
        "": __doc__.partition("\n")[0],
        "where": "Print the chapter line behind a generated line, and the generated lines behind a chapter line.",
        "stitch": "Carry edits of generated files back into the chapters they came from, then tangle.",
    }
    parser = argparse.ArgumentParser(
        f"tangle.py {verb}".strip(),
        description=descriptions[verb],
        epilog=""
        if verb
        else f"examples:\n{__doc__.partition(chr(10) * 2)[2]}\nwhere and stitch have a --help of their own.",
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=110),
    )
    add = parser.add_argument
    if verb == "where":
        add(
            "places",
            nargs="*",
            metavar="PATH:LINE",
            help="without one, a traceback or report is read from stdin",
        )
        add(
            "-b",
            "--book",
            action="append",
            help="folder of chapters, or a single file (default: book)",
        )
    else:
        add(
            "book",
            nargs="*",
            default=["book"],
            metavar="BOOK",
            help="folders of chapters, or single files (default: book)",
        )
        add("--watch", action="store_true", help="stay, and run again at every change")
        add(
            "--force",
            action="store_true",
            help="take edited files as they stand" if verb else "discard edits of generated files",
        )
    if not verb:
        add(
            "--check",
            action="store_true",
            help="write nothing; exit 1 when a file is not what the book makes",
        )
        add("--list", action="store_true", help="print the targets and the chunks they are made of")
    add(
        "-o",
        "--output",
        default=".",
        metavar="ROOT",
        help="where the generated files are (default: here)",
    )
    add(
        "--bare", action="store_true", help="files without the header line that names their chapter"
    )
    add(
        "--join",
        action="store_true",
        help="a name in several chapters is one chunk, as in Entangled",
    )
    options = parser.parse_args(arguments[1:] if verb else arguments)
    options.book = options.book or ["book"]
    options.run = {"": run_tangle, "where": run_where, "stitch": run_stitch}[verb]
    if not verb and options.list:
        options.run = run_list
    if not verb and options.check and (options.watch or options.force):
        parser.error("--check only looks; it goes with neither --watch nor --force")
    return options


def open_streams() -> None:
    """Let what a terminal cannot show stand there escaped, and bytes of a report pass as they are."""
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")
    for stream, errors in (
        (sys.stdin, "surrogateescape"),
        (sys.stdout, "backslashreplace"),
        (sys.stderr, "backslashreplace"),
    ):
        try:
            stream.reconfigure(errors=errors)
        except (AttributeError, OSError):  # no such stream, or one that has been read from
            pass


def blamed(error: OSError, options) -> str:
    names = [str(name) for name in (error.filename2, error.filename) if name]
    staged = "".join(names[:1]).partition(STAGING)[0].rstrip("/")
    return next((name for name in names if STAGING not in name), staged) or options.output


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status: 0 done, 1 faults or files that are not fresh, 2 wrong use."""
    open_streams()
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    try:
        status = watch(options) if getattr(options, "watch", False) else options.run(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # as in `tangle.py --list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OverflowError as error:
        complain(f"{error}; nothing written")
        return 1
    except OSError as error:
        where = blamed(error, options)
        complain(f"tangle: {where}: {error.strerror or error}; no file is left half-written")
        return 1
    except UnicodeEncodeError as error:  # names of files, where the locale has only ASCII
        complain(
            f"tangle: {error.object!r} cannot be a file's name in this locale; set PYTHONUTF8=1"
        )
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    import gc

    gc.disable()  # one short run, whose objects all live to its end
    os._exit(main())  # the system frees memory faster than the interpreter takes a book apart
