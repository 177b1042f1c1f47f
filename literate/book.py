# Tangled from book/workshop/literate-book.md
"""What the chapters define together: chunks, targets, references, and what is wrong with them."""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache

from literate.markdown import NAME, Block, Chapter, Diagnostic, normal

RECORD = ".tangle.json"
STAGING = ".tangle-tmp"
LARGEST_FILE = 64 * 2**20
COST_OF_PIECE = 100  # bytes that a stretch of text costs beside its characters


class Book:
    """What the chapters define.

    `chapters` and each one's `blocks` are in book order; `chunks`: name -> blocks; `targets`: path -> name of the chunk
    that is expanded into it (of a nameless block, `file=PATH`); `modes`: path -> permission bits; `variants`:
    (chapter name, block name or line) -> its `patch=` blocks; `errors` and `warnings`: lists of (path, line, message).
    """

    def __init__(self):
        self.chapters: list[Chapter] = []
        self.chunks: dict[str, list[Block]] = {}
        self.targets: dict[str, str] = {}
        self.modes: dict[str, int] = {}
        self.variants: dict[tuple, list[Block]] = {}
        self.errors: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        self.items: dict[str, list[tuple]] = {}
        self.guesses = 30

    def error(self, block: Block, message: str, line: int | None = None) -> None:
        self.errors.append(Diagnostic(block.chapter.path, line or block.line, message))

    def warn(self, block: Block, message: str, line: int | None = None) -> None:
        self.warnings.append(Diagnostic(block.chapter.path, line or block.line, message))


CELL_OPTION = r"(?:\S{1,2}\|.*\n)*?\S{1,2}\| *file(?:name)?\s*:"  # of Quarto
SYNONYMS = "filename filepath file-name file-path file_name file_path path tangle target".split()


def check_attributes(book: Book, block: Block, join: bool) -> None:
    """Tell of attributes that are nearly `file=`, `patch=` or `mode=` where these are missing, or that do nothing."""
    from difflib import SequenceMatcher

    tell = book.warn if join else book.error
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
        book.error(
            block,
            f"{what}, defined at {owner}, is extended in another chapter without being marked: {way_out}",
        )


# ---- targets


def clean_target(book: Book, block: Block) -> str | None:
    """The target's path from the root, with forward slashes; None, and an error, when it is no path inside the root."""
    wrong = wrong_path(block.file)
    if wrong:
        book.error(block, f"target {block.file!r} {wrong}")
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
        book.error(block, "header= takes only no, which leaves the header line out")
    given = block.attributes.get("mode")
    if given is None:
        return
    if not re.fullmatch(r"0?o?[0-7]{3}", given):
        book.error(block, f"mode={given} is not three octal digits, such as 755")
    elif book.modes.setdefault(path, int(given[-3:], 8)) != int(given[-3:], 8):
        book.error(
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
                book.error(block, f"target {path!r} is claimed at {owner[path]} too")
            owner.setdefault(path, block)
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path, block in owner.items():
        key = normal(path).casefold()
        if files.setdefault(key, path) != path:
            book.error(
                block,
                f"target {path!r} differs from {files[key]!r} only in case; many file systems hold only one",
            )
        while (key := key.rpartition("/")[0]) and key not in folders:
            folders[key] = path
    for key in files.keys() & folders.keys():
        wrong = (
            f"target {files[key]!r} is wanted as a file here, and as a folder for {folders[key]!r}"
        )
        book.error(owner[files[key]], wrong)


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
        (book.error if name in made else book.warn)(block, wrong, line)
    for name in chunks.keys() - used:
        block = chunks[name][0]
        if not block.classes:  # {.figure} and the like are run by somebody else
            book.warn(block, f"chunk {name!r} is used nowhere, so its code is in no file")
    order_of_sizes = reversed(chunks) if only_forward else check_cycles(book)
    if not is_tree and not book.errors:  # where no chunk is used twice, no file outgrows the book
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

    To look through thousands of names for each of thousands of errors would take minutes and help nobody.
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
            book.error(book.chunks[name][0], wrong)


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
                book.error(step[0], f"cycle: {' -> '.join(told)} -> {step[3]}", line_of(*step[:2]))
            elif step[3] not in done:
                path[step[3]] = len(path)
                steps.append(step)
                ahead.append(iter(graph[step[3]]))
    return done
