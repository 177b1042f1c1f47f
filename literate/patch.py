# Tangled from book/workshop/literate-expand.md
"""Variants: diffs of chunks, applied so that they cannot rot, and written as patches of the tangled files."""

from __future__ import annotations

import posixpath
import re

from literate.book import LARGEST_FILE, Book, nearest, reached, split_items
from literate.expand import expand, target_tuples
from literate.markdown import NOTHING, Block, normal

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
                book.error(block, f"this variant already goes to {files[0].file!r} at {files[0]}")
        try:
            changed = {
                chunk: split_items(block, book.chunks)
                for chunk, block in patched(book, blocks).items()
            }
            for chunk, items in changed.items():
                for name in [item[3] for item in items if item[3] is not None]:
                    if wrong := bad_reference(book, book.items | changed, chunk, name):
                        book.error(blocks[0], f"patch refers to chunk {name!r}, {wrong}")
        except ValueError as error:
            book.error(error.args[1], error.args[0])


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
    """path -> text of all that a book without errors makes: targets, and the diffs of variants that name a file.

    Adds an error for a variant that changes no file, or makes one larger than LARGEST_FILE.
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
            book.error(block, f"patch makes a file larger than {LARGEST_FILE >> 20} MiB")
            continue
        if not diff:
            book.error(block, f"patch of {block.patch!r} changes no file that the book makes")
        made[posixpath.normpath(block.file)] = diff
    return made
