# Tangled from book/workshop/weave-program.md
"""The pages that are made from the book as a whole: chunks, identifiers, files, and each file's source."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby

import literate.book
import literate.expand
from literate.markdown import Block
from weave.model.index import Index
from weave.model.page import Page, Place
from weave.model.program import Definition
from weave.render import code, facts

SPECIAL = re.compile(r"[\\`*_{}\[\]()#!|$~^]")  # what Markdown might take for more than a character


CHUNKS = """\
# Index of chunks

Every named block of the book: where it is defined, the files it goes to, the blocks that refer to it.

``` {.all-chunks}
```
"""
IDENTIFIERS = """\
# Index of identifiers

Functions, classes, methods and constants of all tangled Python files, as Python's syntax tree shows them: the block that defines each,
and the blocks that use it. A method is counted as used where the tree says whose it is, or where no other class of the book has one of
that name.

## The package

``` {.identifiers below="tinyllm/"}
```

## The tools

``` {.identifiers below=""}
```

## The tests

``` {.identifiers below="tests/"}
```
"""
FILES = """\
# Files

Every file that is tangled from the book. Each page shows the file as a whole, and for each run of its lines the block that it comes from.

``` {.all-files}
```
"""


def of_everything(page: Page) -> bool:
    """Whether a page shows all that is in the book, and so changes with each change."""
    return page.generated and not page.path.startswith("code/")


def generated(index: Index) -> dict[str, str]:
    """Path below the book -> Markdown, of all pages that nobody writes."""
    if not index.book.targets:
        return {}
    pages = {
        "reference/chunks.md": CHUNKS,
        "reference/identifiers.md": IDENTIFIERS,
        "reference/files.md": FILES,
    }
    for target in index.book.targets if not index.book.errors else ():
        heading = SPECIAL.sub(r"\\\g<0>", escape(target, quote=False))
        pages[f"code/{target}.md"] = f"# {heading}\n\n``` {{.assembled}}\n```\n"
    return pages


def shown(index: Index, page: Page, block: Block) -> str:
    """What stands in the place of a generated page's fence."""
    kinds = {block.language, *block.classes}
    if "all-chunks" in kinds:
        return chunks(index, page)
    if "identifiers" in kinds:
        return identifiers(index, page, block.attributes["below"])
    if "all-files" in kinds:
        return files(index, page)
    return assembled(index, page, page.path.removeprefix("code/").removesuffix(".md"))


def _table(head: Iterable[str], rows: Iterable[Iterable[str]], css: str) -> str:
    names = "".join(f'<th scope="col">{name}</th>' for name in head)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}" for cell in row) for row in rows)
    return (
        f'<div class="table-frame" tabindex="0">'
        f'<table class="{css}"><thead><tr>{names}</thead><tbody>\n{body}\n</tbody></table></div>'
    )


def diagnostics(index: Index, page: Page) -> str:
    """What is wrong on a page, and on the front page what is wrong anywhere; "" where nothing is."""
    here = os.path.join(index.folder, page.path)
    by_path: dict[str, list[str]] = {}
    for path, line, message in sorted(set(index.diagnostics)):
        if path == here or page.path == "index.md":
            by_path.setdefault(path, []).append(f"<li>line {line}: {escape(message)}</li>")
    done = ""
    for path, items in by_path.items():
        name = os.path.relpath(path, index.folder)
        linked = path != here and name in index.pages
        where = facts.page_link(index, page, name) if linked else escape(path)
        done += f"<p><b>What's wrong in {where}</b></p>\n<ul>{''.join(items)}</ul>\n"
    return f'<div class="diagnostics" role="alert">{done}</div>\n' if done else ""


def chunks(index: Index, page: Page) -> str:
    """The table of all chunks by name."""

    def row(name: str) -> Iterable[str]:
        blocks = index.book.chunks[name]
        links = [code.block_link(index, page, blocks[0])]
        links += [
            code.block_link(index, page, block, str(number))
            for number, block in enumerate(blocks[1:], 2)
        ]
        yield " ".join(links)
        yield facts.page_link(index, page, blocks[0].chapter.name)
        yield "<br>".join(file_link(index, page, path) for path in index.targets(name))
        users = (code.block_link(index, page, user) for user in index.users.get(name, ()))
        yield ", ".join(dict.fromkeys(users))

    names = sorted((name for name in index.chunks if name), key=str.casefold)
    return _table(("Chunk", "Chapter", "Files", "Used in"), map(row, names), "index-table")


def file_link(index: Index, page: Page, target: str) -> str:
    """The path of a tangled file, a link to its page; a book with diagnostics has none."""
    if index.book.errors:
        return f"<code>{escape(target)}</code>"
    href = index.href(page.path, Place(f"code/{target}.md", ""))
    return f'<a href="{href}"><code>{escape(target)}</code></a>'


def group(definition: Definition) -> str:
    """The part of the index that a definition belongs to: the folder of its file, "" for the tools."""
    first = definition.module.partition(".")[0]
    return f"{first}/" if first in ("tinyllm", "tests") else ""


def identifiers(index: Index, page: Page, below: str) -> str:
    """The table of all definitions in one part of the tree."""
    found = [
        definition
        for module in index.program.modules.values()
        for definition in module.definitions.values()
        if group(definition) == below and not definition.name.startswith("__")
    ]

    def row(one: Definition) -> Iterable[str]:
        link = code.block_link(index, page, one.block, one.qualified)
        yield f"<code>{link}</code>"
        yield f"{one.kind} in {escape(one.module)}"
        yield code.block_link(index, page, one.block)
        uses = sorted(one.uses.values(), key=lambda block: (block.chapter.name, block.line))
        links = (code.block_link(index, page, block) for block in uses)
        yield ", ".join(dict.fromkeys(links))

    found.sort(key=lambda one: (one.qualified.lstrip("_").casefold(), one.module))
    return _table(("Name", "What", "Defined in", "Used in"), map(row, found), "index-table")


def files(index: Index, page: Page) -> str:
    """The list of all tangled files, by folder."""
    done = ""
    paths = sorted(index.book.targets, key=lambda path: (path.rpartition("/")[0], path))
    for folder, some in groupby(paths, lambda path: path.rpartition("/")[0]):
        rows = []
        for path in some:
            blocks = index.book.chunks[index.book.targets[path]]
            chapters = dict.fromkeys(block.chapter.name for block in blocks)
            links = ", ".join(facts.page_link(index, page, name) for name in chapters)
            rows.append(f"<li>{file_link(index, page, path)} from {links}</li>\n")
        done += f"<p><b>{escape(folder or 'at the top')}</b></p>\n<ul>\n{''.join(rows)}</ul>\n"
    return done


def assembled(index: Index, page: Page, target: str) -> str:
    """A tangled file: its text, and above each run of lines a link to the block that it comes from."""
    pieces = literate.expand.target_pieces(index.book, target)
    text = "".join(piece.text for piece in pieces)
    origins = literate.expand.origins(pieces)
    lines = text.removesuffix("\n").split("\n") if text else []
    chapters = dict.fromkeys(block.chapter.name for block, _ in origins)
    links = ", ".join(facts.page_link(index, page, name) for name in chapters)
    done, seen, at, built = "", set(), 0, False
    for _, some in groupby(origins[: len(lines)], lambda origin: id(origin[0])):
        run = list(some)
        block = run[0][0]
        place = index.place(block)
        anchor = "" if place.anchor in seen else f' id="{escape(place.anchor)}"'
        seen.add(place.anchor)
        page.anchors[at + 1] = place.anchor
        hidden = index.implements(index.pages[place.page], block)
        built |= hidden
        first, last = at + 1, at + len(run)
        where = f"line {first}" if first == last else f"lines {first} to {last}"
        done += (
            f'<span class="run{" implementation" if hidden else ""}"{anchor}><span class="run-from">'
            f'{code.block_link(index, page, block)} {where}</span><span class="run-code">'
        )
        done += "".join(_lines(block, run, lines[at:last])) + "</span></span>"
        at = last
    return (
        f"<p>{len(lines)} lines, from {links}.</p>\n{facts.HIDE if built else ''}"
        f'<div class="assembled">{code.framed(done)}</div>'
    )


def _lines(block: Block, run: list[tuple[Block, int]], text: list[str]) -> Iterator[str]:
    """The lines of a run as HTML: the block's, moved to their place in the file."""
    source, coloured = block.body.split("\n"), code.lines_of(block)
    for (_, line), written in zip(run, text, strict=True):
        number = line - block.line - 1
        if 0 <= number < len(coloured) and written.endswith(source[number]) and "<<" not in written:
            pad = written[: len(written) - len(source[number])]
            if not pad.strip():
                yield f"{pad}{coloured[number]}\n"
                continue
        yield f"{code.colours(written, block.language)[0]}\n"
