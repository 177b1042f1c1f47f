# Tangled from book/workshop/literate-disk.md
"""The disk compared with the book, and changed: each file old or new, never half."""

from __future__ import annotations

import os
import re
from collections import namedtuple
from collections.abc import Container, Iterable, Sequence
from functools import cache

from literate.book import RECORD, STAGING, Book, blocks_in, wrong_path
from literate.markdown import Chapter
from literate.read import MARKDOWN

EBUSY = 16  # errno.EBUSY
MEND_CRLF = "git's core.autocrlf makes such ends; put `* text=auto eol=lf` into .gitattributes and check out again"
ROW = (
    r'\s*"((?:[^"\\]|\\.)*)": "([0-9a-f ]+)(?: mode=([0-7]{3}))?(?: from ((?:[^"\\]|\\.)*))?",?\s*'
)


Entry = namedtuple("Entry", "hashes mode chapters", defaults=[(), None, ()])
Entries = dict[str, Entry]


def digest(data: bytes) -> str:
    from hashlib import sha256

    return sha256(data).hexdigest()


def load_record(root: str) -> tuple[Entries, bool]:
    """path -> (hashes that tangling may have left there, mode it was given or None, chapters it was made from); and
    whether the record is damaged. Read line by line, so that one with a merge's conflict marks tells both sides."""
    entries, damaged = Entries(), False
    try:
        with open(os.path.join(root, RECORD), encoding="utf-8", errors="replace") as file:
            lines = file.read().split("\n")
    except FileNotFoundError:
        return entries, False
    for line in lines:
        match = re.fullmatch(ROW, line)
        path = re.sub(r"\\(.)", r"\1", match[1]) if match else ""
        if match and not wrong_path(path) and {"", ".", ".."}.isdisjoint(path.split("/")):
            origin = re.sub(r"\\(.)", r"\1", match[4] or "").split(", ")
            other = entries.get(path, Entry())
            chapters = dict.fromkeys([*filter(None, origin), *other.chapters])
            mode = int(match[3], 8) if match[3] else None
            entries[path] = Entry((*match[2].split(), *other.hashes), mode, tuple(chapters))
        else:
            damaged = damaged or line.strip() not in ("", "{", "}")
    return entries, damaged


def record_text(entries: Entries) -> str:
    rows = []
    for path, (hashes, mode, chapters) in sorted(entries.items()):
        value = " ".join(dict.fromkeys(hashes))
        value += "" if mode is None else f" mode={mode:03o}"
        value += f" from {', '.join(chapters)}" if chapters else ""
        row = f"{path}\0{value}".replace("\\", "\\\\").replace('"', '\\"')
        rows.append('"' + row.replace("\0", '": "') + '"')
    return "{\n" + ",\n".join(rows) + "\n}\n"


def write_new(path: str, data: bytes, place: str) -> None:
    """Write a file. An OSError names `place`, where it is to go."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags, 0o666)
    try:
        while data:
            data = data[os.write(handle, data) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, place) from None
    finally:
        os.close(handle)


def read_bytes(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


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
        is_other = os.path.lexists(place) if self.old is None else read_bytes(place) != self.old
        if is_other and self.old is None and os.path.isdir(place):
            remove_husk(place)
        elif is_other:
            wrong = "was saved by another program while this one ran; run it again"
            raise OSError(EBUSY, wrong, place)
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
        self.entries: Entries = {}
        self.same = 0


class Disk:
    """What stands where under the root; each folder is looked at once."""

    def __init__(self, root: str):
        self.root = os.path.realpath(root)
        self.kinds: dict[str, str] = {}
        self.real = cache(os.path.realpath)  # of few folders

    def full(self, path: str) -> str:
        return os.path.join(self.root, path)

    def name(self, path: str) -> str:
        """How the record names a chapter: by its path from the root, with links among the folders resolved."""
        folder, base = os.path.split(path)
        name = os.path.join(self.real(folder), base)
        if os.path.splitdrive(name)[0] == os.path.splitdrive(self.root)[0]:
            name = os.path.relpath(name, self.root)
        name = name.replace(os.sep, "/").replace(", ", ",")  # a comma and a space part two
        return name if name.isprintable() else ascii(name)

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
        kind = self.kind(path)
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
        self.names = {c: disk.name(c.path) for c in book.chapters}
        links = [os.path.realpath(c.path) for c in book.chapters if os.path.islink(c.path)]
        self.read = {*self.names.values(), *map(disk.name, links)}
        self.homes = [disk.name(os.path.join(s, ".")) for s in sources if os.path.isdir(s)]

    def in_book(self, name: str) -> bool:
        return any(home == "." or name.startswith(home + "/") for home in self.homes)

    def is_source(self, path: str) -> bool:
        return path in self.read or path.endswith(MARKDOWN) and self.in_book(path)

    def unseen(self, entry: Entry) -> list[str]:
        """The chapters a file was made from that this run has not read, and that are not surely gone."""
        away = [name for name in entry.chapters if name not in self.read]
        there = self.disk.full
        return [n for n in away if not self.in_book(n) or os.path.lexists(there(n))]


def makers(book: Book, names: dict[Chapter, str]) -> dict[str, tuple[str, ...]]:
    """path -> the names of the chapters with blocks in that file."""
    found = book.diffs | {target: blocks_in(book, name) for target, name in book.targets.items()}
    return {p: tuple(dict.fromkeys(names[b.chapter] for b in found[p])) for p in found}


def make_plan(
    book: Book, made: dict[str, str], root: str, known: Entries, sources: Sequence[str]
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
                compare(plan, Change(path, None, None, None, True), disk.full(path), entry)
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
            new, mode = text.encode(), book.modes.get(path)
            plan.entries[path] = Entry((digest(new),), mode, chapters[path])
            change = Change(path, new, None, mode, path in known)
            compare(plan, change, disk.full(path) if kind == "file" else "", entry)
        else:
            block = next(b for c in book.chapters for b in c.blocks if b.file == path)
            block.error(f"target {path!r} {kind}; choose another, or move that away")
    return plan


def compare(plan: Plan, change: Change, place: str, entry: Entry) -> None:
    """Sort a change into the plan by the file in its place, if there is one there."""
    bits = None
    if place:
        bits = os.stat(place).st_mode & 0o777
        with open(place, "rb") as file:
            change.old = file.read()
    if change.mode is None and entry.mode is not None:
        os.umask(mask := os.umask(0))
        change.mode = 0o666 & ~mask  # the chapter asked for a mode once and does so no more
    if change.old == change.new and (change.mode in (None, bits) or os.name == "nt"):
        plan.same += 1
        return
    change.mode = bits if change.mode is None else change.mode
    is_known = change.old in (None, change.new) or digest(change.old or b"") in entry.hashes
    (plan.changes if is_known else plan.edited).append(change)


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


def carry_out(plan: Plan, root: str, known: Entries, damaged: bool) -> None:
    """Make all changes of a plan, also those that edited files stand in the way of."""
    changes = plan.changes + plan.edited
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
    root: str, changes: list[Change], between: Entries, after: Entries, gone: Iterable[str] = ()
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


def put_record(root: str, entries: Entries) -> None:
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
