# Tangled from book/workshop/literate-read.md
"""From folders of Markdown to one linked book."""

from __future__ import annotations

import os
from collections.abc import Iterable
from posixpath import normpath

from literate.book import Book, check_collisions, check_references, read_mode, wrong_path
from literate.markdown import Block, Chapter, scan
from literate.patch import check_variants

MARKDOWN = (".md", ".markdown")
Source = str | os.PathLike[str]


def find_chapters(sources: Iterable[Source]) -> list[tuple[str, str]]:
    """(path, name in the book) of every Markdown file in the sources, each a folder or a file, in book order; once.

    What is hidden and `node_modules` are left out. Raises OSError for a source that does not exist or is
    no Markdown, and for a folder that cannot be listed.
    """
    found = dict[str, tuple[str, str]]()
    for source in [os.fspath(source) for source in sources]:
        if os.path.isdir(source):
            home, names = source, sorted(walk(source))
        elif not os.path.exists(source) or not source.endswith(MARKDOWN):
            raise FileNotFoundError(source)
        else:
            home, names = os.path.dirname(source), [[os.path.basename(source)]]
        real = os.path.realpath(home)
        for parts in names:
            path, place = os.path.join(home, *parts), os.path.join(real, *parts)
            place = os.path.realpath(path) if os.path.islink(path) else place
            found.setdefault(place, (path, "/".join(parts)))
    return [*found.values()]


def walk(folder: str) -> Iterable[list[str]]:
    """The Markdown files in a folder at any depth, each as the parts of its path."""

    def stop(error: OSError) -> None:
        raise error

    for inside, folders, names in os.walk(folder, onerror=stop):
        folders[:] = [name for name in folders if name[0] != "." and name != "node_modules"]
        parts = inside[len(folder) :].strip(os.sep).split(os.sep)
        within = parts if parts[0] else []
        yield from ([*within, n] for n in names if n[0] != "." and n.endswith(MARKDOWN))


def read_chapter(path: str, name: str) -> Chapter:
    """A chapter and its text; of one that cannot be read an error says why."""
    chapter = Chapter(path, name, "")
    try:
        with open(path, "rb", buffering=0) as file:
            chapter.text = plain_text(file.read())
    except OSError as error:
        chapter.error(1, f"cannot be read: {error.strerror}")
    except UnicodeDecodeError as error:
        line, byte = error.object.count(b"\n", 0, error.start) + 1, error.object[error.start]
        chapter.error(line, f"is not UTF-8: byte 0x{byte:02x}; save the chapter as UTF-8")
    return chapter


def plain_text(data: bytes) -> str:
    """A chapter's text as it is read: without byte order mark, with LF line ends."""
    return data.removeprefix(b"\xef\xbb\xbf").decode().replace("\r\n", "\n")


def read_book(sources: Iterable[Source] = ("book",), *, join: bool = False) -> Book:
    """Read and check a whole book from folders or Markdown files.

    `join`: a name that two chapters define is one chunk, as in Entangled. Raises only for a source that is not there or
    is no Markdown: what is wrong in a chapter is in `errors`; look there first.
    """
    book = Book()
    for place in find_chapters(sources):
        chapter = read_chapter(*place)
        (book.unread if chapter.errors else book.chapters).append(chapter)
        scan(chapter)
    link(book, join=join)
    return book


def add_chapter(book: Book, path: str, name: str, text: str) -> Chapter:
    """Scan one chapter's text into the book; `link` comes after the last."""
    chapter = Chapter(path, name, text)
    book.chapters.append(chapter)
    scan(chapter)
    return chapter


def link(book: Book, *, join: bool = False) -> None:
    """Collect chunks, targets and variants from the blocks of all chapters, and check what they say of each other."""
    book.join = join
    claims: dict[str, dict[str, Block]] = {}  # target -> name -> first block
    tangled = []
    for chapter in book.chapters:
        for block in chapter.blocks:
            if len(block.attributes) > (block.file is not None):
                check_attributes(block, join)
            if block.file is not None:
                if wrong := wrong_path(block.file):
                    block.error(f"target {block.file!r} {wrong}")
                    continue
                block.file = normpath(block.file)
            if block.patch is not None:
                key = chapter.name, block.name or block.line
                book.variants.setdefault(key, []).append(block)
                continue
            if block.file is not None:
                read_mode(book, block, block.file)
                names = claims.setdefault(block.file, {})
                if block.name is not None:
                    names.setdefault(block.name, block)
            if block.file is not None or block.name is not None:
                tangled.append(block)
    taken: dict[str, str] = {}
    for path, names in claims.items():
        owner = book.targets[path] = next(iter(names), path if join else f"file={path}")
        for name, block in names.items():
            if name != owner:
                others = f"#{name} here and by #{owner} at {names[owner]}"
                block.error(f"target {path!r} is claimed by {others}; use one name")
            if (other := taken.setdefault(name, path)) != path and not join:
                block.error(f"chunk {name!r} already goes to {other!r}; one chunk makes one file")
    for block in tangled:
        name = block.name or book.targets[block.file or ""]
        book.chunks.setdefault(name, []).append(block)
        if len(book.chunks[name]) > 1 and not join:
            check_continued(book, block, name)
    for name, blocks in book.chunks.items():
        if "append" in blocks[0].classes and all("append" in block.classes for block in blocks):
            if any(block.name for block in blocks):
                blocks[0].error(f".append, but no block defines {name!r} to append to")
    check_collisions(book)
    check_references(book)
    check_variants(book)


SYNONYMS = "fil files filename filepath path tangle target".split()


def check_attributes(block: Block, join: bool) -> None:
    """Tell of attributes that are nearly `file=`, `patch=` or `mode=` where these are missing, or that do nothing."""
    tell = block.warn if join else block.error
    for key, value in block.attributes.items():
        word = key.lower().replace("-", "").replace("_", "")
        if block.file is None and (key == "mode" or key == "header" and not block.name):
            wrong = f"{key}= without file= sets nothing; write it where file= is"
            (tell if block.name else block.warn)(wrong)
        for ours in {"file", "patch", "mode"} - block.attributes.keys():
            typo = word[0] == ours[0] and set(word) == set(ours)  # letters swapped or doubled
            if typo or ours == "file" and word in SYNONYMS:
                tell(f"{key}= is no attribute of a block; write {ours}={value}")


def check_continued(book: Book, block: Block, name: str) -> None:
    """A later block of a chunk has to say that it is one, where the chunk is another chapter's."""
    if name[:5] == "file=" or "append" in block.classes:
        return
    blocks = book.chunks[name]
    owner = next((other for other in blocks if "append" not in other.classes), block)
    if owner.chapter is not block.chapter:
        what = f"name {name!r}" if block.name else f"target {block.file!r}"
        way_out = "add .append to this block, choose another name, or run with --join"
        wrong = "is extended in another chapter without being marked"
        block.error(f"{what}, defined at {owner}, {wrong}: {way_out}")
