# Tangled from book/workshop/literate-disk.md
"""The disk compared with the book, and changed: each file old or new, never half."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Sequence
from functools import cache

from literate.book import RECORD, STAGING, Book, reached
from literate.markdown import Block, Chapter
from literate.read import MARKDOWN
from literate.record import Entry, digest, read_bytes, record_text, write_new

EBUSY = 16  # errno.EBUSY
SAVED_MEANWHILE = "was saved by another program while this one ran; run it again"


class Change:
    """One file of a plan: `old` is what is there, `new` what is to be, None where there is nothing.

    `path` is seen from the root. `mode`: the permission bits it is to have, None for those of a new file; `ours`:
    whether the record knows the path.
    """

    __slots__ = ("mode", "new", "old", "ours", "path")

    def __init__(
        self, path: str, new: bytes | None, old: bytes | None, mode: int | None, ours: bool
    ):
        self.path, self.new, self.old, self.mode, self.ours = path, new, old, mode, ours

    def stage(self, staged: str) -> None:
        """Write the new content aside."""
        if self.new is not None and self.new != self.old:
            write_new(staged, self.new, self.path)
            if self.mode is not None:
                os.chmod(staged, self.mode)

    def make(self, root: str, staged: str) -> None:
        """Change the file. Raises OSError if what is there is not what the plan has seen."""
        place = os.path.join(root, self.path)
        if self.old is None and os.path.isdir(place):
            remove_husk(place)
        if os.path.lexists(place) if self.old is None else read_bytes(place) != self.old:
            raise OSError(EBUSY, SAVED_MEANWHILE, place)
        if self.new is None:
            os.remove(place)
        elif self.new == self.old:
            os.chmod(place, self.mode or 0)
        else:
            try:
                os.replace(staged, place)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(place), exist_ok=True)
                os.replace(staged, place)


class Plan:
    """What a run would do.

    `changes`: what it may do, `edited`: what it may only do when told to, since a person's work is in the way. `gone`:
    paths of the record where nothing is any more. `others`: recorded path -> chapters it was made from that this run
    did not read. `entries`: the record afterwards. `same`: how many files are right.
    """

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.edited: list[Change] = []
        self.gone: list[str] = []
        self.others: dict[str, Sequence[str]] = {}
        self.entries: dict[str, Entry] = {}
        self.same = 0


class Disk:
    """What stands where under the root; each folder is looked at once."""

    def __init__(self, root: str):
        self.root = os.path.realpath(root)
        self.kinds = {"": self.kind("")}

    def full(self, path: str) -> str:
        return os.path.join(self.root, path)

    def kind(self, path: str) -> str:
        """`file`, `folder`, `nothing`, or what is wrong with the place."""
        try:
            mode = os.lstat(self.full(path)).st_mode & 0o170000
        except (FileNotFoundError, NotADirectoryError):
            return "nothing"
        except OSError as error:
            return f"cannot be written: {error.strerror}"
        kinds = {0o040000: "folder", 0o100000: "file", 0o120000: "is a link on disk"}
        return kinds.get(mode, "is a device on disk")

    def look(self, path: str, going: Container[str]) -> str:
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

    def is_husk(self, path: str, going: Container[str] = ()) -> bool:
        """Whether a folder holds no more than folders, bytecode, and files that are going."""
        for inside, folders, files in os.walk(self.full(path)):
            here = os.path.relpath(inside, self.root).replace(os.sep, "/")
            ending = ".pyc" if here.endswith("__pycache__") else "\0"
            if not all(f"{here}/{name}" in going or name.endswith(ending) for name in files):
                return False
            if any(self.kind(f"{here}/{name}") != "folder" for name in folders):
                return False
        return True


class Seen:
    """Which chapters a run has read, and of which others it can say that they are gone."""

    def __init__(self, book: Book, disk: Disk, sources: Sequence[str]):
        self.disk = disk
        real = cache(os.path.realpath)  # of few folders
        self.names = {c: from_root(c.path, disk.root, real) for c in book.chapters}
        links = [os.path.realpath(c.path) for c in book.chapters if os.path.islink(c.path)]
        self.read = {*self.names.values(), *(from_root(path, disk.root) for path in links)}
        folders = [os.path.join(source, ".") for source in sources if os.path.isdir(source)]
        self.homes = [from_root(folder, disk.root) for folder in folders]

    def in_book(self, name: str) -> bool:
        return any(home == "." or name.startswith(home + "/") for home in self.homes)

    def is_source(self, path: str) -> bool:
        return path in self.read or path.endswith(MARKDOWN) and self.in_book(path)

    def unseen(self, entry: Entry) -> list[str]:
        """The chapters a file was made from that this run has not read, and that are not surely gone."""
        return [
            name
            for name in entry.chapters
            if name not in self.read
            and (os.path.lexists(self.disk.full(name)) or not self.in_book(name))
        ]


def from_root(path: str, root: str, real: Callable[[str], str] = os.path.realpath) -> str:
    """How the record names a chapter: by its path from the root, with links among the folders resolved."""
    folder, base = os.path.split(path)
    name = os.path.join(real(folder), base)
    if os.path.splitdrive(name)[0] == os.path.splitdrive(root)[0]:
        name = os.path.relpath(name, root)
    name = name.replace(os.sep, "/").replace(", ", ",")  # a comma and a space part two
    return name if name.isprintable() else ascii(name)


def makers(book: Book, names: dict[Chapter, str]) -> dict[str, tuple[str, ...]]:
    """path -> the names of the chapters with blocks in that file."""
    found = book.diffs | {target: blocks_in(book, name) for target, name in book.targets.items()}
    return {p: tuple(dict.fromkeys(names[b.chapter] for b in found[p])) for p in found}


def blocks_in(book: Book, name: str) -> list[Block]:
    """The blocks that a chunk is expanded from, in the order of first use."""
    return [block for chunk in reached(book.items, [name]) for block in book.chunks[chunk]]


def make_plan(
    book: Book,
    made: dict[str, str],
    root: str,
    known: dict[str, Entry],
    sources: Sequence[str] = (),
) -> Plan:
    """Compare what the book makes with what is on disk; what is wrong with a target's place becomes an error."""
    plan, disk = Plan(), Disk(root)
    seen = Seen(book, disk, sources)
    for path, entry in known.items():
        if path not in made and not seen.is_source(path):
            kind = disk.look(path, ())
            if kind not in ("file", "nothing"):
                continue
            unseen = seen.unseen(entry)
            if kind == "file" and not entry.chapters:
                unseen = ["chapters that the record does not name"]
            if unseen:
                plan.others[path], plan.entries[path] = unseen, entry
            elif kind == "nothing":
                plan.gone.append(path)
            else:
                compare(plan, path, None, None, disk.full(path), entry)
    going = {change.path for change in plan.changes}
    chapters = makers(book, seen.names)
    for path, text in made.items():
        entry = known.get(path, Entry())
        unseen = seen.unseen(entry)
        if 0 < len(unseen) < len(entry.chapters):
            plan.others[path], plan.entries[path] = unseen, entry
            continue
        kind = disk.look(path, going)
        if seen.is_source(path):
            kind = "is a source file: a chapter, or where the next run would take it for one"
        if kind in ("file", "nothing"):
            full = disk.full(path) if kind == "file" else None
            new, mode = text.encode(), book.modes.get(path)
            plan.entries[path] = Entry((digest(new),), mode, chapters[path])
            compare(plan, path, new, mode, full, known.get(path))
        else:
            block = next(b for c in book.chapters for b in c.blocks if b.file == path)
            block.error(f"target {path!r} {kind}; choose another, or move that away")
    return plan


def compare(
    plan: Plan,
    path: str,
    new: bytes | None,
    mode: int | None,
    full: str | None,
    entry: Entry | None,
) -> None:
    """Sort one change into the plan by the file in its place, at `full`, if there is one."""
    old, bits = None, None
    if full is not None:
        bits = os.stat(full).st_mode & 0o777
        with open(full, "rb") as file:
            old = file.read()
    if mode is None and entry is not None and entry.mode is not None:
        mode = 0o666 & ~umask()  # the chapter asked for a mode once and does so no more
    if old == new and (mode in (None, bits) or os.name == "nt"):
        plan.same += 1
        return
    ours = old in (None, new) or entry is not None and digest(old or b"") in entry.hashes
    change = Change(path, new, old, bits if mode is None else mode, entry is not None)
    (plan.changes if ours else plan.edited).append(change)


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


class Lock:
    """Keeps the root for one run at a time, where the system has flock; elsewhere does nothing."""

    def __init__(self, root: str):
        self.root = root
        self.handle: int | None = None

    def __enter__(self) -> None:
        try:
            import fcntl

            self.handle = os.open(self.root, os.O_RDONLY)
            fcntl.flock(self.handle, fcntl.LOCK_EX)
        except (ImportError, OSError):
            pass

    def __exit__(self, *_: object) -> None:
        if self.handle is not None:
            os.close(self.handle)


def carry_out(
    plan: Plan, root: str, known: dict[str, Entry], *, force: bool = False, damaged: bool = False
) -> None:
    """Make the changes of a plan; with `force` those that edited files stand in the way of, too."""
    changes = plan.changes + (plan.edited if force else [])
    gone = [*plan.gone, *(change.path for change in changes if change.new is None)]
    between = {path: known[path] for path in gone if path in known} | plan.entries
    for change in changes:
        if change.old is not None and change.new is not None:
            entry = between[change.path]
            between[change.path] = entry._replace(hashes=(digest(change.old), *entry.hashes))
    if changes or damaged or between != known or plan.entries != known:
        commit(root, changes, between, plan.entries, gone)
    clear(os.path.join(root, STAGING))


def commit(
    root: str,
    changes: list[Change],
    between: dict[str, Entry],
    after: dict[str, Entry],
    gone: Iterable[str] = (),
) -> None:
    """Make changes. `between` is what the record says meanwhile, so that a run that ends early can be followed by
    another that knows old and new; `after`, what it says then. `gone`: paths where there is nothing any more.

    Raises OSError with each file old or new; before anything has changed, if the disk has no room for what is new.
    """
    staging, changes = os.path.join(root, STAGING), sorted(changes, key=lambda c: c.new is not None)
    clear(staging)
    try:
        os.mkdir(staging)
        for number, change in enumerate(changes):
            change.stage(f"{staging}/{number}")
        put_record(root, between)
        for number, change in enumerate(changes):
            change.make(root, f"{staging}/{number}")
        remove_husks(Disk(root), gone)
        if after != between:
            put_record(root, after)
    finally:
        clear(staging)


def put_record(root: str, entries: dict[str, Entry]) -> None:
    record, staged = os.path.join(root, RECORD), os.path.join(root, STAGING, "record")
    if entries:
        write_new(staged, record_text(entries).encode(), RECORD)
        os.replace(staged, record)
    elif os.path.lexists(record):
        os.remove(record)


def clear(folder: str) -> None:
    """Remove a folder and the files in it, so far as it can be done; the next run comes here too."""
    if os.path.isdir(folder) and not os.path.islink(folder):
        for name in [*os.listdir(folder), ""]:
            try:
                (os.remove if name else os.rmdir)(os.path.join(folder, name))
            except OSError:
                pass


def remove_husks(disk: Disk, deleted: Iterable[str]) -> None:
    """Remove the folders in which deleted files leave nothing but bytecode."""
    for path in deleted:
        while (path := path.rpartition("/")[0]) and disk.is_husk(path):
            remove_husk(disk.full(path))


def remove_husk(folder: str) -> None:
    for inside, _, names in os.walk(folder, topdown=False):
        for name in names if os.path.basename(inside) == "__pycache__" else ():
            os.remove(os.path.join(inside, name))
        os.rmdir(inside)
