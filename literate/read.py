# Tangled from book/workshop/literate-read.md
"""From folders of Markdown to one linked book."""

from __future__ import annotations

import os
import re

from literate.book import (
    CELL_OPTION,
    Book,
    check_attributes,
    check_collisions,
    check_references,
    clean_target,
    continue_chunk,
    read_mode,
)
from literate.markdown import Block, Chapter, Diagnostic, scan
from literate.patch import check_variants


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
    """A chapter's text with LF line ends and no byte order mark; None, and an error, when it is not UTF-8."""
    try:
        with open(path, "rb", buffering=0) as file:
            data = file.read().removeprefix(b"\xef\xbb\xbf")
        text = data.decode().replace("\r\n", "\n")
        if "\r" in text and "\n" not in text:
            book.errors.append(Diagnostic(path, 1, "ends its lines with CR alone; save it with LF"))
        return text
    except OSError as error:
        book.errors.append(Diagnostic(path, 1, f"cannot be read: {error.strerror}"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        wrong = f"is not UTF-8: byte 0x{data[error.start]:02x}; save the chapter as UTF-8"
        book.errors.append(Diagnostic(path, line, wrong))
    return None


def read_book(sources=("book",), *, join: bool = False, progress=None) -> Book:
    """Read and check a whole book from folders or Markdown files.

    `join`: a name that two chapters define is one chunk, as in Entangled. `progress`: called with (number, total).
    Raises only for a source that does not exist: what is wrong in a chapter is in `errors`; look there first.
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
    scan(chapter)
    book.errors += chapter.errors
    book.warnings += chapter.warnings
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
                book.error(
                    block,
                    f"target {path!r} is claimed by #{name} here and by #{owner} at {names[owner]}; use one name",
                )
            if taken.setdefault(name, path) != path and not join:
                book.error(
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
            book.error(blocks[0], f".append, but no block defines {name!r} to append to")
    check_collisions(book)
    check_references(book, join)
    check_variants(book)
    order = {chapter.path: number for number, chapter in enumerate(book.chapters)}
    for errors in (book.errors, book.warnings):
        errors.sort(key=lambda error: (order.get(error.path, -1), error.line))
