# Tangled from book/workshop/literate-expand.md
"""Variants: diffs of chunks, applied so that they cannot rot, and written as patches of the tangled files."""

from __future__ import annotations

import re

from literate.book import Book, Item, nearest, reached, split_items
from literate.expand import expand, target_pieces, text_of
from literate.markdown import NOTHING, Block, normal


class Misfit(ValueError):
    """A patch that cannot be applied; the arguments are its block and why."""


def hunks(block: Block) -> list[tuple[str, str]]:
    """The (old, new) texts of a `patch=` block; a line of `@@` parts two. Raises Misfit when it is no patch."""
    found, old, new = [], "", ""
    for number, line in enumerate([*block.body.split("\n")[:-1], "@@"], 1):
        sign, text = line[:1], line[1:] + "\n"
        if sign == "@":
            found += [(old, new)] if old != new else []
            old = new = ""
        elif sign not in ("", " ", "-", "+"):
            wrong = f"line {number} of the patch begins with {sign!r}; wanted a space, - or +"
            raise Misfit(block, wrong)
        else:
            old += text if sign != "+" else ""
            new += text if sign != "-" else ""
    if not found:
        raise Misfit(block, "patch changes nothing: no line of it begins with - or +")
    return found


def patched(book: Book, blocks: list[Block]) -> dict[str, list[Item]]:
    """chunk -> its items after the patches. Raises Misfit at one that does not fit."""
    texts: dict[str, str] = {}
    for block in blocks:
        chunk = normal(block.patch or "")
        if chunk not in book.chunks:
            wrong = f"patch of chunk {chunk!r}, which is undefined{nearest(book, chunk)}"
            raise Misfit(block, wrong)
        text = texts.get(chunk, "".join(part.body for part in book.chunks[chunk]))
        for old, new in hunks(block):
            text = replace_once(block, text, old, new)
        texts[chunk] = text
    firsts = {chunk: book.chunks[chunk][0] for chunk in texts}
    changed = {c: Block(b.chapter, b.line, "", "", NOTHING, texts[c]) for c, b in firsts.items()}
    return {chunk: split_items(block, book.chunks) for chunk, block in changed.items()}


def replace_once(block: Block, text: str, old: str, new: str) -> str:
    """`text` with the lines `old`, which must stand in it exactly once, replaced by `new`."""
    if not old:
        raise Misfit(block, "patch has no line of context, so it could go anywhere")
    places = [m.start() for m in re.finditer(f"^(?={re.escape(old)})", text, re.MULTILINE)]
    if len(places) != 1:
        lines = ", ".join(str(text.count("\n", 0, place) + 1) for place in places)
        fits = f"fits {len(places)} times (lines {lines} of the chunk)" if lines else "does not fit"
        wanted = "its context and - lines have to stand there exactly once"
        raise Misfit(block, f"patch {fits} in chunk {normal(block.patch or '')!r}; {wanted}")
    return text[: places[0]] + new + text[places[0] + len(old) :]


def check_variants(book: Book) -> None:
    """Every patch fits its chunk, and brings in no undefined reference and no cycle."""
    for blocks in book.variants.values():
        try:
            changed = patched(book, blocks)
        except Misfit as misfit:
            block, wrong = misfit.args
            block.error(wrong)
            continue
        for chunk, items in changed.items():
            for name in [item[3] for item in items if item[3] is not None]:
                if name not in book.chunks:
                    blocks[0].error(f"patch refers to {name!r}, which is undefined")
                elif chunk in reached(book.items | changed, [name]):
                    blocks[0].error(f"patch refers to {name!r}, which contains {chunk!r}: a cycle")


def opcodes(a: list[str], b: list[str]) -> list[tuple[str, int, int, int, int]]:
    """How `a` becomes `b`, as difflib tells it. Equal ends are set aside first, which makes a small change cheap."""
    from difflib import SequenceMatcher

    shorter = min(len(a), len(b))
    head = next((k for k in range(shorter) if a[k] != b[k]), shorter)
    tail = next((k for k in range(shorter - head) if a[-1 - k] != b[-1 - k]), shorter - head)
    c, d = len(a) - tail, len(b) - tail
    is_long = (c - head) * (d - head) > 1_000_000
    middle = SequenceMatcher(None, a[head:c], b[head:d], is_long).get_opcodes()
    found = [(tag, i + head, j + head, k + head, n + head) for tag, i, j, k, n in middle]
    every = [("equal", 0, head, 0, head), *found, ("equal", c, len(a), d, len(b))]
    return [code for code in every if code[1] < code[2] or code[3] < code[4]]


def unified(before: str, after: str, old_name: str, new_name: str) -> list[str]:
    """The lines of a unified diff."""
    from difflib import SequenceMatcher

    a, b = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (before, after))
    if a == b:
        return []
    matcher = SequenceMatcher(None, "", "")
    matcher.opcodes = opcodes(a, b)  # type: ignore[attr-defined]

    out = [f"--- {old_name}\n", f"+++ {new_name}\n"]
    for group in matcher.get_grouped_opcodes(3):
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        spans = [
            f"{at + (to > at)},{to - at}".removesuffix(",1") for at, to in ((i1, i2), (j1, j2))
        ]
        out.append(f"@@ -{spans[0]} +{spans[1]} @@\n")
        for tag, i1, i2, j1, j2 in group:
            out += [(" " if tag == "equal" else "-") + line for line in a[i1:i2]]
            out += ["+" + line for line in b[j1:j2]] if tag != "equal" else []
    return [row if row[-1] == "\n" else row + "\n\\ No newline at end of file\n" for row in out]


def products(book: Book, *, bare: bool = False) -> dict[str, str]:
    """path -> text of all that a book without errors makes: targets, and the diffs of variants that name a file.

    Adds an error for a variant that changes no file. Raises OverflowError for a file larger than LARGEST_FILE.
    """
    made = {target: expand(book, target, bare=bare) for target in book.targets}
    diffs = book.diffs
    inside = {t: reached(book.items, [name]) for t, name in book.targets.items() if diffs}
    for path, blocks in diffs.items():
        changed, lines = patched(book, blocks), list[str]()
        for target in [t for t in inside if not changed.keys().isdisjoint(inside[t])]:
            pieces = target_pieces(book, target, bare=bare, items={**book.items, **changed})
            lines += unified(made[target], text_of(pieces), f"a/{target}", f"b/{target}")
        made[path] = "".join(lines)
        if not lines:
            block = next(block for block in blocks if block.file == path)
            block.error(f"patch of {block.patch!r} changes no file that the book makes")
    return made
