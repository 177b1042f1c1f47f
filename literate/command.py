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

import os
import re
import sys

from literate.book import RECORD, STAGING, Book, nearest
from literate.disk import Lock, Plan, blocks_in, carry_out, make_plan
from literate.markdown import Diagnostic
from literate.patch import products, unified
from literate.read import find_chapters, read_book
from literate.record import MEND_LINE_ENDS, Entry, digest, load_record
from literate.terminal import complain, count, say, show_progress, told


def open_book(options) -> Book | None:
    """The book, or None when there is none or it has errors; these are told."""
    progress = show_progress if sys.stderr.isatty() else None
    try:
        book = read_book(options.book, join=options.join, progress=progress)
    except FileNotFoundError as error:
        verb = nearest(Book(), str(error), ("where", "stitch", "--check", "--list", "--watch"))
        complain(f"tangle: there is no book {str(error)!r}; name the folder of the chapters{verb}")
        return None
    except ValueError as error:
        complain(f"tangle: {error}")
        return None
    if not book.chapters and not book.errors:
        complain(
            f"tangle: no chapter (*.md) in {', '.join(options.book)}; name the folder of the chapters"
        )
        return None
    complain(*told(book.warnings, "warning: "))
    return None if stopped_by_errors(book) else book


def stopped_by_errors(book: Book) -> bool:
    if book.errors:
        complain(*told(book.errors), f"tangle: {count(len(book.errors), 'error')}; nothing written")
    return bool(book.errors)


def no_target(book: Book) -> list[str]:
    """What to say of a book that makes no file."""
    hints = ["tangle: no block names a file; open one with ```python {file=PATH}"]
    for chapter in book.chapters:
        if found := re.search(r"(?m)^<<[^<>\n]+>>=[ \t]*$", chapter.text):
            line = chapter.text.count("\n", 0, found.start()) + 1
            wrong = f"noweb's {found[0].rstrip()} defines nothing; write ```python {{#NAME}}"
            hints += told([Diagnostic(chapter.path, line, wrong)])
    return hints


def run_tangle(options, carried=None) -> int:
    """`carried`: path -> bytes that a person wrote there and that are in the chapters now."""
    book = open_book(options)
    if book is None:
        return 1
    made = products(book, bare=options.bare)
    if stopped_by_errors(book):
        return 1
    if not made:
        complain(*no_target(book))
    if not options.check:
        os.makedirs(options.output, exist_ok=True)
    with Lock(options.output):
        known, state = load_record(options.output)
        for path, data in (carried or {}).items():
            entry = known.get(path, Entry([], None))
            known[path] = entry._replace(hashes=[*entry.hashes, digest(data)])
        plan = make_plan(book, made, options.output, known, options.book)
        if stopped_by_errors(book):
            return 1
        if state == "damaged":
            complain(
                f"{RECORD}: damaged; files that match the book are adopted, others count as edited"
            )
        if options.check:
            return report(plan, known, state)
        if plan.edited and not options.force:
            for path, edit in plan.edited.items():
                complain(*difference(path, *edit[:3]))
            wrong = f"{count(len(plan.edited), 'file')} would be overwritten; nothing written"
            complain(f"tangle: {wrong}. {ways_out(plan)}")
            return 1
        damaged = state == "damaged"
        carry_out(plan, options.output, known, force=options.force, damaged=damaged)
    for path in plan.edited:
        say(f"discarded what was in {path}")
    changes = [f"{len(plan.writes) + len(plan.edited)} written", f"{plan.same} unchanged"]
    changes += [f"{len(plan.modes)} given a mode"] if plan.modes else []
    changes += [f"{len(plan.deletes)} removed"] if plan.deletes else []
    changes += [f"{len(plan.others)} of other chapters left alone"] if plan.others else []
    say(
        f"tangled {count(len(book.chapters), 'chapter')} into {count(len(made), 'file')}: {', '.join(changes)}"
    )
    complain(*left_alone(plan))
    return 0


def left_alone(plan: Plan) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for path, lost in plan.others.items():
        reasons.setdefault(lost[0], []).append(path)
    return [
        f"left alone: {', '.join(paths[:3])}{' …' if paths[3:] else ''}, made from {lost}, not read by this run"
        for lost, paths in reasons.items()
    ]


def ways_out(plan: Plan) -> str:
    """What to do about the files that stop a run."""
    edits = plan.edited.values()
    unknown = sum(not ours for _, _, ours, _ in edits)
    if unknown:
        return (
            f"The record does not know {count(unknown, 'file')} of them, so the diffs have to tell which side is newer: bring "
            f"{RECORD} back if it was lost; or `tangle.py --force` takes the chapters, and `tangle.py stitch --force` the "
            "files, undoing in the chapters what differs"
        )
    if any(b"\r\n" in old for _, old, _, _ in edits):
        return f"Line ends are CRLF: {MEND_LINE_ENDS}, or let `tangle.py --force` write LF"
    return "`tangle.py stitch` carries edits into the chapters, `tangle.py --force` discards them"


def difference(path: str, text: str | None, old: bytes, ours: bool) -> list[str]:
    """What to say of a file that tangling would overwrite or delete: why, and the diff."""
    if text is None:
        return [
            f"{path}: edited by hand, and no longer made by the book; move it away, or discard it with --force"
        ]
    why = "edited by hand" if ours else "not written by this book, as far as its record knows"
    lf = old.replace(b"\r\n", b"\n").decode("utf-8", "replace")
    lines = unified(text, lf, f"{path} from the book", f"{path} on disk")
    if lf.encode() != old and b"\r\n" in old:
        why = f"{why}, with CRLF" if lines else "only its line ends differ: they are CRLF"
    return [f"{path}: {why}", "".join(lines).rstrip("\n")] if lines else [f"{path}: {why}"]


def report(plan: Plan, known: dict[str, Entry], state: str) -> int:
    """What `--check` prints; the exit status."""
    for path, (data, old, _) in plan.writes.items():
        before = "" if old is None else old.decode("utf-8", "replace")
        say(
            f"{path}: missing"
            if old is None
            else f"{path}: stale: its chapter changed since it was tangled"
        )
        sys.stdout.writelines(
            unified(before, data.decode(), f"{path} on disk", f"{path} from the book")
        )
    for path, mode in plan.modes.items():
        say(f"{path}: its mode should be {mode:03o}")
    for path in plan.deletes:
        say(f"{path}: left over: the book makes it no more")
    for path, edit in plan.edited.items():
        say("\n".join(difference(path, *edit[:3])))
    complain(*left_alone(plan))
    wrong = len(plan.writes) + len(plan.modes) + len(plan.deletes) + len(plan.edited)
    if wrong:
        way_out = ways_out(plan) if plan.edited else "`tangle.py` writes what the book makes"
        say(f"{count(wrong, 'file')} not fresh. {way_out}")
    elif state == "damaged" or state == "whole" and plan.entries != known:
        wrong = 1
        say(f"{RECORD}: does not say what is on disk; run tangle.py and keep the record it writes")
    else:
        say(f"{count(plan.same, 'file')} fresh")
    return 1 if wrong else 0


def run_list(options) -> int:
    book = open_book(options)
    if book is None:
        return 1
    for target, name in book.targets.items():
        say(target)
        for block in blocks_in(book, name):
            say(f"    {block.name or '(nameless)'}  {block}")
    for blocks in book.variants.values():
        say(next((block.file for block in blocks if block.file), "(no file)"))
        for block in blocks:
            say(f"    patch of {block.patch}  {block}")
    return 0


def watch(options, sleep=None) -> int:
    """Run, and again when a chapter changed, or for stitch a generated file, and all have rested from one look to the
    next; errors are told and do not end it. `sleep`: called with the seconds between two looks."""
    import gc
    import time

    gc.enable()

    def state():
        found = {}
        try:
            paths = [path for path, _ in find_chapters(options.book)]
        except (FileNotFoundError, ValueError):
            paths = []
        if options.run is run_stitch:
            paths += [os.path.join(options.output, path) for path in load_record(options.output)[0]]
        for path in paths:
            try:
                status = os.stat(path)
                found[path] = status.st_mtime_ns, status.st_size
            except OSError:
                found[path] = None
        return found

    before, last = None, state()
    while True:
        now = state()
        if now != before and now == last:
            try:
                options.run(options)
            except OSError as error:
                complain(f"tangle: {blamed(error, options)}: {error.strerror or error}")
            say(f"watching {', '.join(options.book)}; Ctrl-C ends")
            sys.stdout.flush()
            before = now
        last = now
        (sleep or time.sleep)(0.3)


def parse_arguments(arguments: list[str]):
    import argparse
    from functools import partial

    verb = arguments[0] if arguments[:1] in (["where"], ["stitch"]) else ""
    if arguments[:1] in (["check"], ["list"], ["watch"]) and not os.path.exists(arguments[0]):
        arguments = [f"--{arguments[0]}", *arguments[1:]]
    descriptions = {
        "": __doc__.partition("\n")[0],
        "where": "Print the chapter line behind a generated line, and the generated lines behind a chapter line.",
        "stitch": "Carry edits of generated files back into the chapters they came from, then tangle.",
    }
    parser = argparse.ArgumentParser(
        f"tangle.py {verb}".strip(),
        description=descriptions[verb],
        epilog=""
        if verb
        else f"examples:\n{__doc__.partition(chr(10) * 2)[2]}\nwhere and stitch have a --help of their own.",
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=110),
    )
    add = parser.add_argument
    if verb == "where":
        add(
            "places",
            nargs="*",
            metavar="PATH:LINE",
            help="without one, a traceback or report is read from stdin",
        )
        add(
            "-b",
            "--book",
            action="append",
            help="folder of chapters, or a single file (default: book)",
        )
    else:
        add(
            "book",
            nargs="*",
            default=["book"],
            metavar="BOOK",
            help="folders of chapters, or single files (default: book)",
        )
        add("--watch", action="store_true", help="stay, and run again at every change")
        add(
            "--force",
            action="store_true",
            help="take edited files as they stand" if verb else "discard edits of generated files",
        )
    if not verb:
        add(
            "--check",
            action="store_true",
            help="write nothing; exit 1 when a file is not what the book makes",
        )
        add("--list", action="store_true", help="print the targets and the chunks they are made of")
    add(
        "-o",
        "--output",
        default=".",
        metavar="ROOT",
        help="where the generated files are (default: here)",
    )
    add(
        "--bare", action="store_true", help="files without the header line that names their chapter"
    )
    add(
        "--join",
        action="store_true",
        help="a name in several chapters is one chunk, as in Entangled",
    )
    options = parser.parse_args(arguments[1:] if verb else arguments)
    options.book = options.book or ["book"]
    options.run = {"": run_tangle, "where": run_where, "stitch": run_stitch}[verb]
    if not verb and options.list:
        options.run = run_list
    if not verb and options.check and (options.watch or options.force):
        parser.error("--check only looks; it goes with neither --watch nor --force")
    return options


def open_streams() -> None:
    """Let what a terminal cannot show stand there escaped, and bytes of a report pass as they are."""
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")
    for stream, errors in (
        (sys.stdin, "surrogateescape"),
        (sys.stdout, "backslashreplace"),
        (sys.stderr, "backslashreplace"),
    ):
        try:
            stream.reconfigure(errors=errors)
        except (AttributeError, OSError):  # no such stream, or one that has been read from
            pass


def blamed(error: OSError, options) -> str:
    names = [str(name) for name in (error.filename2, error.filename) if name]
    staged = "".join(names[:1]).partition(STAGING)[0].rstrip("/")
    return next((name for name in names if STAGING not in name), staged) or options.output


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status: 0 done, 1 errors or files that are not fresh, 2 wrong use."""
    open_streams()
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    try:
        status = watch(options) if getattr(options, "watch", False) else options.run(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # as in `tangle.py --list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OverflowError as error:
        complain(f"{error}; nothing written")
        return 1
    except OSError as error:
        where = blamed(error, options)
        complain(f"tangle: {where}: {error.strerror or error}; no file is left half-written")
        return 1
    except UnicodeEncodeError as error:  # names of files, where the locale has only ASCII
        complain(
            f"tangle: {error.object!r} cannot be a file's name in this locale; set PYTHONUTF8=1"
        )
        return 1
    except KeyboardInterrupt:
        return 130


def run_where(options) -> int:
    from literate.where import Annotator, locate

    book = open_book(options)
    if book is None:
        return 1
    if not options.places and sys.stdin.isatty():
        complain("where: name PATH:LINE, or pipe a traceback in")
        return 2
    annotator = Annotator(book, options.output, bare=options.bare)
    if not options.places and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="surrogateescape")
    for text in () if options.places else sys.stdin:
        sys.stdout.write(annotator.annotate(text))
        sys.stdout.flush()
    status = 0
    for place in options.places:
        try:
            say("\n".join(locate(book, place, options.output, bare=options.bare)))
        except LookupError as error:
            complain(f"where: {error.args[0]}")
            status = 1
    return status


def run_stitch(options) -> int:
    from literate.stitch import Refused, allow_halves, remove_aside, stitch, write_chapters

    bare, join, root = options.bare, options.join, options.output
    with Lock(root):
        book = open_book(options)
        if book is None:
            return 1
        remove_aside(os.path.realpath(chapter.path) for chapter in book.chapters)
        known, _ = load_record(root)
        told_already = len(book.warnings)
        try:
            texts, carried = stitch(book, root, known, bare=bare, join=join, force=options.force)
        except Refused as reason:
            complain(str(reason), "stitch: no chapter was touched")
            return 1
        complain(*told(book.warnings[told_already:], "warning: "))
        if len(texts) > 1:
            allow_halves(book, root, known, texts, bare, join)
        write_chapters(texts, os.path.join(root, STAGING))
    for path in texts:
        say(f"stitched {path}")
    return run_tangle(type(options)(**{**vars(options), "check": False, "force": False}), carried)


def run() -> None:
    """The command as a process, which ends here."""
    import gc

    gc.disable()  # one short run, whose objects all live to its end
    os._exit(main())  # the system frees memory faster than the interpreter takes a book apart
