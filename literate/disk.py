# Tangled from book/workshop/literate-disk.md
"""The disk compared with the book, and changed: each file old or new, never half."""

from __future__ import annotations

import os
import posixpath
from functools import lru_cache

from literate.book import RECORD, STAGING, Book, reached
from literate.markdown import Block, Chapter
from literate.record import Entry, digest, read_bytes, record_text, write_new

ACROSS_FILE_SYSTEMS = 18  # errno.EXDEV
EBUSY = 16  # errno.EBUSY
SAVED_MEANWHILE = "was saved by another program while this one ran; run it again"


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
    """Compare what the book makes with what is on disk; what is wrong with a target's place becomes an error."""
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
            book.error(block, f"target {path!r} {kind}; choose another, or move that away")
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
