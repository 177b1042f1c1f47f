# Tangled from book/workshop/literate-book.md
"""What the chapters define together: chunks, targets, references, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from posixpath import normpath

from literate.markdown import NAME, Block, Chapter, Diagnostic, normal

RECORD = ".tangle.json"
STAGING = ".tangle-tmp"


class Book:
    """What the chapters define.

    `chapters` and each one's `blocks` are in book order; `unread`: those that cannot be read; `chunks`: name -> blocks;
    `targets`: path -> name of the chunk that is expanded into it (of a nameless block, `file=PATH`); `modes`: path ->
    permission bits; `variants`: (chapter name, block name or line) -> its `patch=` blocks; `items`: chunk -> its parts; `join`: whether a name that two chapters define is one chunk.
    """

    def __init__(self) -> None:
        self.chapters: list[Chapter] = []
        self.unread: list[Chapter] = []
        self.chunks: dict[str, list[Block]] = {}
        self.targets: dict[str, str] = {}
        self.modes: dict[str, int] = {}
        self.variants: dict[tuple[str, str | int], list[Block]] = {}
        self.items: dict[str, list[Item]] = {}
        self.join = False
        self.guesses = 30

    @property
    def errors(self) -> list[Diagnostic]:
        """(path, line, message) of all that is wrong, from the top of the book to its end."""
        every = (*self.unread, *self.chapters)
        return [error for c in every for error in sorted(c.errors, key=lambda e: int(e.line))]

    @property
    def warnings(self) -> list[Diagnostic]:
        return [w for c in self.chapters for w in sorted(c.warnings, key=lambda w: int(w.line))]

    @property
    def diffs(self) -> dict[str, list[Block]]:
        """path -> the blocks of the variant whose diff goes there."""
        every = self.variants.values()
        return {b.file: blocks for blocks in every for b in blocks if b.file is not None}


# ---- targets


def wrong_path(given: str) -> str:
    """Why nothing may be written to, or deleted at, a path that was given; "" when it may."""
    path = normpath(given)
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
    if found := re.search(r"(?:^|/)(~|\$[A-Z]\w+|%\w+%)", path):
        return f"holds a {found[1]}, which stands for no folder here; write a path from the output folder"
    ours = parts[0].startswith((RECORD, STAGING)) or path.lower().endswith(STAGING)
    return "belongs to git or to the tangler; choose another" if ours or ".git" in parts else ""


def read_mode(book: Book, block: Block, path: str) -> None:
    if block.attributes.get("header", "no") != "no":
        block.error("header= takes only no, which leaves the header line out")
    if (given := block.attributes.get("mode")) is None:
        return
    if not re.fullmatch(r"0?o?[0-7]{3}", given):
        block.error(f"mode={given} is not three octal digits, such as 755")
    elif (mode := book.modes.setdefault(path, int(given[-3:], 8))) != int(given[-3:], 8):
        block.error(f"mode={given} for {path!r}, which has mode {mode:03o} in an earlier block")


def check_collisions(book: Book) -> None:
    """Two targets that are one file where case does not count, or a path wanted both as a file and as a folder."""
    owner = {path: book.chunks[name][0] for path, name in book.targets.items()}
    for blocks in book.variants.values():
        for path, block in [(block.file, block) for block in blocks]:
            if path is not None and (other := owner.setdefault(path, block)) not in blocks:
                block.error(f"target {path!r} is claimed at {other} too")
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path, block in owner.items():
        key = normal(path).casefold()
        if (first := files.setdefault(key, path)) != path:
            wrong = f"differs from {first!r} only in case; many file systems hold only one"
            block.error(f"target {path!r} {wrong}")
        while (key := key.rpartition("/")[0]) and key not in folders:
            folders[key] = path
    for key in files.keys() & folders.keys():
        wrong = f"is wanted as a file here, and as a folder for {folders[key]!r}"
        owner[files[key]].error(f"target {files[key]!r} {wrong}")


# ---- references

REFERENCE = re.compile(f"<<({NAME})>>")
Item = tuple[Block, int, str, str | None, str | None]


def split_items(block: Block, chunks: Mapping[str, list[Block]]) -> list[Item]:
    """A block's body as (block, start, text, name, indent): stretches of text (`name` None) and references.

    `start` is the offset in the body. `indent` is what stands before a reference that has the line for itself, None
    for one inside a line. What refers to no chunk inside a line is text, and so is what has a backslash before it.
    """
    body, done = block.body, 0
    if "<<" not in body:
        return [(block, 0, body, None, None)] if body else []
    items: list[Item] = []
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
        indent: str | None = body[line_start:start]
        begins = not line_start or body[line_start - 1] == "\n"
        if not begins or (body[line_start:start] + body[stop:line_stop]).strip():
            if name not in chunks:
                continue
            line_start, line_stop, indent = start, stop, None
        if line_start > done:
            items.append((block, done, body[done:line_start], None, None))
        items.append((block, start, "", name, indent))
        done = line_stop
    if done < len(body):
        items.append((block, done, body[done:], None, None))
    return items


def check_references(book: Book) -> None:
    """Split every chunk into its items; find undefined and unused chunks, cycles, and text that is nearly a reference."""
    chunks, used, undefined, only_forward = book.chunks, set(book.targets.values()), [], True
    order = dict(zip(chunks, range(len(chunks))))
    for name, blocks in chunks.items():
        items = book.items[name] = [item for block in blocks for item in split_items(block, chunks)]
        for block, start, text, referred, _ in items:
            if referred is None:
                if "<<" in text:
                    warn_almost(book, block, start, text)
            elif referred in order:
                only_forward = only_forward and order[name] < order[referred]
                used.add(referred)
            else:
                undefined.append((name, block, line_of(block, start), referred))
    made = reached(book.items, book.targets.values()) if book.join and undefined else chunks
    for name, block, line, referred in undefined:
        wrong = f"chunk {referred!r} is undefined{nearest(book, referred)}"
        (block.error if name in made else block.warn)(wrong, line)
    for name in chunks.keys() - used:
        if not chunks[name][0].classes:  # {.figure} and the like are run by somebody else
            chunks[name][0].warn(f"chunk {name!r} is used nowhere, so its code is in no file")
    if not only_forward:
        check_cycles(book)


def reached(items: Mapping[str, list[Item]], names: Iterable[str]) -> dict[str, None]:
    """The chunks of these names and all that they refer to, each once, in the order of their first use."""
    found: dict[str, None] = {}
    ahead = [*names][::-1]
    while ahead:
        name = ahead.pop()
        if name in items and name not in found:
            found[name] = None
            ahead += [item[3] for item in reversed(items[name]) if item[3] is not None]
    return found


def blocks_in(book: Book, name: str) -> list[Block]:
    """The blocks that a chunk is expanded from, in the order of first use."""
    return [block for chunk in reached(book.items, [name]) for block in book.chunks[chunk]]


def line_of(block: Block, start: int) -> int:
    """The chapter line of an offset in a block's body; of -1, the opener's."""
    return block.line + 1 + block.body.count("\n", 0, start) if start >= 0 else block.line


def warn_almost(book: Book, block: Block, start: int, text: str) -> None:
    for match in re.finditer(r"<<([^<>\n]+)>>", text):
        at, name = start + match.start(), match[1].strip()
        before = block.body[block.body.rfind("\n", 0, at) + 1 : at]
        close = nearest(book, name) if len(name) > 2 else ""
        if (close or not before.strip()) and before[-1:] != "\\":
            block.warn(f"{match[0]} is text here and no reference{close}", line_of(block, at))


def nearest(book: Book, name: str, names: Iterable[str] | None = None) -> str:
    """`; did you mean …?` with the chunks (or `names`) most like this one, while the book has guesses left."""
    from difflib import get_close_matches

    book.guesses -= 1
    every = [*(book.chunks if names is None else names)] if book.guesses >= 0 else []
    close = get_close_matches(name, every)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def check_cycles(book: Book) -> None:
    """Tell of circles, each with the way round, until every one has a reference that was told."""
    from graphlib import CycleError, TopologicalSorter

    chunks = book.chunks
    graph = {n: {i[3]: i for i in items if i[3] in chunks} for n, items in book.items.items()}
    while True:
        try:
            TopologicalSorter(graph).prepare()
            return
        except CycleError as error:
            circle = error.args[1][:0:-1]
        first = min(range(len(circle)), key=lambda k: [*chunks].index(circle[k]))
        names = [*circle[first:], *circle[: first + 1]]
        steps = [graph[name].pop(other) for name, other in pairwise(names)]
        way = [f"{n} ({s[0].chapter.path}:{line_of(*s[:2])})" for n, s in zip(names, steps)]
        wrong = f"cycle: {' -> '.join(way)} -> {names[0]}"
        steps[-1][0].error(wrong, line_of(*steps[-1][:2]))
