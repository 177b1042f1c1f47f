# Tangled from book/workshop/literate-command.md
"""Tangle a literate book: Markdown chapters in, the program's files out.

python tangle.py                          tangle book/ into the current folder
python tangle.py docs -o build            another book, another root
python tangle.py --check                  write nothing; exit 1 and a diff when a file is stale
python tangle.py --watch                  tangle again whenever a chapter changes
python tangle.py --list                   targets and the chunks they are made of
python tangle.py where src/a.py:42        the chapter line behind a generated line (and back)
pytest 2>&1 | python tangle.py where      add chapter lines to a traceback
python tangle.py stitch                   carry edits of generated files back into the chapters
"""

from __future__ import annotations

import argparse
import os
import sys
from io import TextIOWrapper

from literate.book import RECORD, STAGING, Book, blocks_in
from literate.disk import MEND_CRLF, Change, Lock, Plan, carry_out, commit, load_record, make_plan
from literate.markdown import told
from literate.patch import products, unified
from literate.read import find_chapters, read_book


def complain(*lines: str) -> None:
    print(end="", flush=True)
    for line in lines:
        print(line, file=sys.stderr)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


class Stopped(Exception):
    """A run that ends with status 1; the arguments are lines that say why."""


def open_book(options: argparse.Namespace, *, warn: bool = True) -> Book:
    """The book. Raises Stopped when there is none or it has errors."""
    book, wrong = Book(), f"no chapter (*.md) in {', '.join(options.book)}"
    try:
        book = read_book(options.book, join=options.join)
    except FileNotFoundError as error:
        wrong = f"there is no book {str(error)!r}"
    if not book.chapters and not book.errors:
        raise Stopped(f"tangle: {wrong}; name the folder of the chapters")
    complain(*told(book.warnings if warn else (), "warning: "))
    stop_at_errors(book)
    return book


def stop_at_errors(book: Book) -> None:
    if errors := book.errors:
        raise Stopped(*told(errors), f"tangle: {count(len(errors), 'error')}; nothing written")


def run_tangle(options: argparse.Namespace) -> int:
    """Tangle a literate book: Markdown chapters in, the program's files out."""
    book, root = open_book(options), options.output
    made = products(book, bare=options.bare)
    stop_at_errors(book)
    if not made:
        complain("tangle: no block names a file; open one with ```python {file=PATH}")
    if not options.check:
        os.makedirs(root, exist_ok=True)
    with Lock(root):
        known, damaged = load_record(root)
        plan = make_plan(book, made, root, known, options.book)
        stop_at_errors(book)
        if damaged:
            wrong = "damaged; files that match the book are adopted, others count as edited"
            complain(f"{RECORD}: {wrong}")
        if options.check:
            return report(plan, not damaged and known in ({}, plan.entries))
        if plan.edited and not options.force:
            edits = [line for change in plan.edited for line in difference(change, edited=True)]
            wrong = f"{count(len(plan.edited), 'file')} would be overwritten; nothing written"
            raise Stopped(*edits, f"tangle: {wrong}. {ways_out(plan.edited)}")
        carry_out(plan, root, known, damaged)
    for change in plan.edited:
        print(f"discarded what was in {change.path}")
    modes = sum(change.new == change.old for change in plan.changes)
    removed = sum(change.new is None for change in plan.changes)
    written = len(plan.changes) + len(plan.edited) - modes - removed
    changes = f"{written} written, {plan.same} unchanged"
    changes += f", {modes} given a mode" if modes else ""
    changes += f", {removed} removed" if removed else ""
    changes += f", {len(plan.others)} of other chapters left alone" if plan.others else ""
    read = count(len(book.chapters), "chapter")
    print(f"tangled {read} into {count(len(made), 'file')}: {changes}")
    complain(*left_alone(plan))
    return 0


def left_alone(plan: Plan) -> list[str]:
    if not plan.others:
        return []
    every = [*plan.others], [*dict.fromkeys(unseen[0] for unseen in plan.others.values())]
    some, unseen = (", ".join(names[:3]) + " …" * (len(names) > 3) for names in every)
    return [f"left alone: {some}, made from {unseen}, not read by this run"]


def ways_out(edited: list[Change]) -> str:
    """What to do about the files that stop a run, or else about those that are not fresh."""
    if not edited:
        return "`tangle.py` writes what the book makes"
    if all(change.new is None for change in edited):
        return "No chapter makes them now: move them away, or let `tangle.py --force` discard them"
    if all(change.ours for change in edited):
        ways = "carries edits into the chapters, `tangle.py --force` discards them"
        return f"`tangle.py stitch` {ways}"
    return (
        f"The record does not know all of them, so the diffs have to tell which side is newer: bring {RECORD} back if it "
        "was lost; or `tangle.py --force` takes the chapters, and `tangle.py stitch --force` the files"
    )


def difference(change: Change, *, edited: bool) -> list[str]:
    """What to say of a file that is not as the book makes it: why, and the diff."""
    path, new, old = change.path, change.new, (change.old or b"").decode("utf-8", "replace")
    made, there = f"{path} from the book", f"{path} on disk"
    if edited:
        why = (
            "edited by hand"
            if change.ours
            else "not written by this book, as far as its record knows"
        )
        if new is None:
            return [f"{path}: {why}, and no longer made by the book"]
        if "\r\n" in old:
            why, old = f"{why}, with CRLF: {MEND_CRLF}", old.replace("\r\n", "\n")
        lines = unified(new.decode(), old, made, there)
    elif new is None:
        return [f"{path}: left over: the book makes it no more"]
    elif new == change.old:
        return [f"{path}: its mode should be {change.mode:03o}"]
    else:
        why = "missing" if change.old is None else "stale: its chapter changed since it was tangled"
        lines = unified(old, new.decode(), there, made)
    return [f"{path}: {why}", *(line.rstrip("\n") for line in lines)]


def report(plan: Plan, is_recorded: bool) -> int:
    """What `--check` prints; the exit status."""
    for change in sorted(plan.changes, key=lambda change: change.new is None):
        print(*difference(change, edited=False), sep="\n")
    for change in plan.edited:
        print(*difference(change, edited=True), sep="\n")
    complain(*left_alone(plan))
    if wrong := len(plan.changes) + len(plan.edited):
        print(f"{count(wrong, 'file')} not fresh. {ways_out(plan.edited)}")
    elif not is_recorded:
        way_out = "run tangle.py and keep the record it writes"
        print(f"{RECORD}: does not say what is on disk; {way_out}")
    else:
        print(f"{count(plan.same, 'file')} fresh")
        return 0
    return 1


def run_list(options: argparse.Namespace) -> int:
    book = open_book(options)
    for target, name in book.targets.items():
        print(target)
        for block in blocks_in(book, name):
            print(f"    {block.name or '(nameless)'}  {block}")
    for blocks in book.variants.values():
        print(next((block.file for block in blocks if block.file), "(no file)"))
        for block in blocks:
            print(f"    patch of {block.patch}  {block}")
    return 0


def run_where(options: argparse.Namespace) -> int:
    """Print the chapter line behind a generated line, and the generated lines behind a chapter line."""
    from literate.where import Annotator, locate

    book, status = open_book(options), 0
    if not options.places and sys.stdin and sys.stdin.isatty():
        complain("where: name PATH:LINE, or pipe a traceback in")
        return 2
    for place in options.places:
        try:
            print("\n".join(locate(book, place, options.output, bare=options.bare)))
        except LookupError as error:
            complain(f"where: {error.args[0]}")
            status = 1
    if not options.places and sys.stdin is not None:
        annotator = Annotator(book, options.output, bare=options.bare)
        reconfigure(sys.stdout, "surrogateescape")
        for text in sys.stdin:
            print(annotator.annotate(text), end="", flush=True)
    return status


def run_stitch(options: argparse.Namespace) -> int:
    """Carry edits of generated files back into the chapters they came from, then tangle."""
    from literate.stitch import Refused, stitch

    root = options.output
    with Lock(root):
        book = open_book(options, warn=False)  # tangling, which follows, warns
        known, _ = load_record(root)
        try:
            chapters, after = stitch(book, root, known, bare=options.bare, force=options.force)
        except Refused as reason:
            raise Stopped(str(reason), "stitch: no chapter was touched") from None
        if after != known:
            commit(root, [*chapters.values()], known, after)
    for path in chapters:
        print(f"stitched {path}")
    return run_tangle(argparse.Namespace(**{**vars(options), "check": False, "force": False}))


def watch(options: argparse.Namespace) -> int:
    """Run, and again when a chapter changed, or for stitch a generated file, and all have rested from one look to the
    next; errors are told and do not end it."""
    import gc
    import time

    gc.enable()
    before, last = None, watched(options)
    while True:
        now = watched(options)
        if now != before and now == last:
            attempt(options)
            print(f"watching {', '.join(options.book)}; Ctrl-C ends", flush=True)
            before = now
        last = now
        time.sleep(0.3)


def watched(options: argparse.Namespace) -> dict[str, tuple[int, int]]:
    """path -> time stamp and size."""
    from contextlib import suppress

    paths, found = list[str](), dict[str, tuple[int, int]]()
    with suppress(OSError):
        paths = [path for path, _ in find_chapters(options.book)]
    if options.run is run_stitch:
        paths += [os.path.join(options.output, path) for path in load_record(options.output)[0]]
    for path in paths:
        with suppress(OSError):
            status = os.stat(path)
            found[path] = status.st_mtime_ns, status.st_size
    return found


VERBS = {"tangle": run_tangle, "where": run_where, "stitch": run_stitch}
FLAGS = [  # flag, the verbs that take it, help
    ("--watch", "tangle stitch", "stay, and run again at every change"),
    ("--force", "tangle", "discard edits of generated files"),
    ("--force", "stitch", "take edited files as they stand"),
    ("--check", "tangle", "write nothing; exit 1 when a file is not what the book makes"),
    ("--list", "tangle", "print the targets and the chunks they are made of"),
    ("--bare", "tangle where stitch", "files without the header line that names their chapter"),
    ("--join", "tangle where stitch", "a name in several chapters is one chunk, as in Entangled"),
]
PLACES = "without one, a traceback or report is read from stdin"
BOOK = "folders of chapters, or single files (default: book)"
ROOT = "where the generated files are (default: here)"


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    verb = arguments[0] if arguments[:1] in (["where"], ["stitch"]) else "tangle"
    parser = argparse.ArgumentParser(f"tangle.py {verb}".removesuffix(" tangle"))
    parser.description = str(VERBS[verb].__doc__).partition("\n")[0]
    parser.formatter_class = lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=100)
    add = parser.add_argument
    if verb == "where":
        add("places", nargs="*", metavar="PATH:LINE", help=PLACES)
        add("-b", "--book", action="append", help=BOOK)
    else:
        add("book", nargs="*", metavar="BOOK", help=BOOK)
    add("-o", "--output", default=".", metavar="ROOT", help=ROOT)
    for flag, verbs, text in FLAGS:
        if verb in verbs.split():
            add(flag, action="store_true", help=text)
    if verb == "tangle":
        examples = __doc__.partition("\n\n")[2]
        parser.epilog = f"examples:\n{examples}\nwhere and stitch have a --help of their own."
    options = parser.parse_args(arguments[verb != "tangle" :])
    if not options.output:
        parser.error("-o '' names no folder; write -o . for this one")
    options.book = options.book or ["book"]
    options.run = VERBS[verb]
    if verb == "tangle" and options.list:
        options.run = run_list
    if verb == "tangle" and options.check and (options.watch or options.force):
        parser.error("--check only looks; it goes with neither --watch nor --force")
    return options


def reconfigure(stream: object, errors: str) -> None:
    """Let bytes of a report pass as they are, or what a terminal cannot show stand there escaped."""
    if isinstance(stream, TextIOWrapper):  # and not closed, or a test's
        stream.reconfigure(errors=errors)


def blamed(error: OSError, options: argparse.Namespace) -> str:
    names = [str(name) for name in (error.filename2, error.filename) if name]
    staged = "".join(names[:1]).partition(STAGING)[0].rstrip("/")
    return next((name for name in names if STAGING not in name), staged) or str(options.output)


def attempt(options: argparse.Namespace) -> int:
    """Run the verb; what stops it is told. Returns the exit status."""
    try:
        status: int = options.run(options)
        print(end="", flush=True)
        return status
    except Stopped as reason:
        complain(*reason.args)
    except BrokenPipeError:  # as in `tangle.py --list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OverflowError as error:
        complain(f"{error}; nothing written")
    except OSError as error:
        wrong = f"{blamed(error, options)}: {error.strerror or error}"
        complain(f"tangle: {wrong}; no file is left half-written, and the next run goes on")
    return 1


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status: 0 done, 1 errors or files that are not fresh, 2 wrong use."""
    reconfigure(sys.stdin, "surrogateescape")
    reconfigure(sys.stdout, "backslashreplace")
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    try:
        return watch(options) if getattr(options, "watch", False) else attempt(options)
    except KeyboardInterrupt:
        return 130


def run() -> None:
    """The command as a process, which ends here."""
    import gc

    gc.disable()  # one short run, whose objects all live to its end
    os._exit(main())  # the system frees memory faster than the interpreter takes a book apart
