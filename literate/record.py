# Tangled from book/workshop/literate-disk.md
"""What was written, by path and hash: how a stale file is told from one that a person edited."""

from __future__ import annotations

import os
import re
from collections import namedtuple

from literate.book import RECORD, wrong_path

MEND_LINE_ENDS = "git's core.autocrlf makes such ends; put `* text=auto eol=lf` into .gitattributes and check out again"
ROW = (
    r'\s*"((?:[^"\\]|\\.)*)": "([0-9a-f ]+)(?: mode=([0-7]{3}))?(?: from ((?:[^"\\]|\\.)*))?",?\s*'
)


Entry = namedtuple("Entry", "hashes mode chapters", defaults=[(), None, ()])


def digest(data: bytes) -> str:
    from hashlib import sha256

    return sha256(data).hexdigest()


def load_record(root: str) -> tuple[dict[str, Entry], bool]:
    """path -> (hashes that tangling may have left there, mode it was given or None, chapters it was made from); and
    whether the record is damaged. Read line by line, so that one with a merge's conflict marks tells both sides."""
    entries, damaged = dict[str, Entry](), False
    try:
        with open(os.path.join(root, RECORD), encoding="utf-8", errors="replace") as file:
            lines = file.read().split("\n")
    except FileNotFoundError:
        return entries, False
    for line in lines:
        match = re.fullmatch(ROW, line)
        path = re.sub(r"\\(.)", r"\1", match[1]) if match else ""
        if match and not wrong_path(path):
            origin = re.sub(r"\\(.)", r"\1", match[4] or "").split(", ")
            other = entries.get(path, Entry())
            chapters = dict.fromkeys([*filter(None, origin), *other.chapters])
            mode = int(match[3], 8) if match[3] else None
            entries[path] = Entry((*match[2].split(), *other.hashes), mode, tuple(chapters))
        else:
            damaged = damaged or line.strip() not in ("", "{", "}")
    return entries, damaged


def record_text(entries: dict[str, Entry]) -> str:
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
