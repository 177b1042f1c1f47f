# Tangled from book/workshop/ol.md
"""The command line of `ol`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import tinyllm
from ol.registry import NOTES, Answer, Chapter, Refusal, find
from ol.terminal import show
from ol.workspace import Workspace


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line; the exit status."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    for name in ("SIGTERM", "SIGHUP"):  # they end a command as Ctrl-C does: it tidies up first
        kind = getattr(signal, name, signal.SIGTERM)
        if signal.getsignal(kind) is signal.SIG_DFL and current_thread() is main_thread():
            signal.signal(kind, _leave)
    try:
        answer: Answer = options.run(options)
    except Refusal as error:
        answer = Answer(error.status, [f"ol: {error}"], {"refused": str(error), **error.data})
    except OSError as error:  # a disk that is full, a folder that may not be written to
        answer = Answer(1, [f"ol: {error}"], {"refused": str(error)})
    except KeyboardInterrupt:
        return 130
    for note in NOTES:
        print(f"ol: {note}", file=sys.stderr)
    NOTES.clear()
    return show(answer, options.json, refused="refused" in answer.data)


def _leave(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options of a command line; `command` is what stands after --."""
    words = ["run", "--", *words] if words[:1] == ["python"] else [*words, "--"]
    at = words.index("--")
    command = words[at + 1 :] if words[-1] != "--" else words[at + 1 : -1]
    return parser().parse_args(words[:at], argparse.Namespace(command=command))


EXAMPLES = """\
examples:
  ol                         the map, and the next step
  ol start L5.3              a stub and a test file
  ol start L5.3 --ref-deps   the same, and what is not built is taken from the book from now on
  ol tests L5.3 --watch      the course's tests, again at each save; in the chapter's folder without L5.3
  ol tests -x -k mask        the first that fails, of those with mask in their names
  ol run L5.3 -- python x.py your modules, and the book's for the rest; also ol python x.py, and pytest
  ol check L5.3              the course's tests, then the grade of yours
  ol mutate L5.3 --hint s05  a little more about one mistake that your tests do not see
  ol diff L5.3               your module beside the book's
  ol doctor                  what is installed, what is missing

exit status: 0 done, 1 not yet, 2 wrong use
"""


PYTEST = {  # what is handed on to pytest
    "-x": "end at the first test that fails",
    "-v": "a line for each test",
    "--pdb": "the debugger where a test fails",
}


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    common = _common(default=argparse.SUPPRESS)  # what was given before the command stays
    deps = argparse.ArgumentParser(add_help=False)
    said = "take the book's chapters where yours are not built"
    deps.add_argument("--ref-deps", action="store_true", help=said)
    chapter = argparse.ArgumentParser(add_help=False)
    chapter.add_argument("chapter", nargs="?", help="L5.3, for example; needless in its folder")

    top = argparse.ArgumentParser(
        "ol",
        description="Build the book's modules yourself, and have your own tests graded.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[_common()],
    )
    top.add_argument("--version", action="version", version=f"tinyllm-book {tinyllm.__version__}")
    top.set_defaults(run=_status)
    verbs = top.add_subparsers(title="commands", metavar="COMMAND")

    def verb(name: str, run: object, words: str, *parents: Any) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=words, description=words, parents=[*parents, common])
        made.set_defaults(run=run)
        return made

    _verbs(verb, chapter, deps)
    return top


def _verbs(verb: Callable[..., argparse.ArgumentParser], chapter: Any, deps: Any) -> None:
    verb("status", _status, "the map: what is built, begun, ready, blocked; the next step")
    start = verb("start", _start, "a stub and a test file; never over your work", deps)
    start.add_argument("chapter", help="L5.3, for example")
    start.add_argument("--reset", action="store_true", help="begin again; the old files are kept")
    tests = verb("tests", _tests, "the course's tests against your module", chapter, deps)
    tests.add_argument("--watch", action="store_true", help="run again at each save")
    tests.add_argument("-k", metavar="WORDS", help="only tests with these in their names")
    for option, said in PYTEST.items():
        tests.add_argument(option, action="store_true", help=said)
    check = verb("check", _check, "the course's tests, then the grade of yours", chapter, deps)
    check.add_argument("--verify", action="store_true", help="take no grade that was kept")
    mutate = verb("mutate", _mutate, "the grade of your tests in full", chapter, deps)
    mutate.add_argument("--hint", metavar="MUTANT", help="a little more about one mutant each time")
    mutate.add_argument("--fresh", action="store_true", help="run it even if nothing has changed")
    diff = verb("diff", _diff, "your module beside the book's, after passing", chapter)
    diff.add_argument("--spoil", action="store_true", help="before passing, too")
    verb("run", _run, "a command with your modules: ol run L5.3 -- python x.py", chapter)
    verb("python", _run, "short for ol run -- python")
    verb("doctor", _doctor, "what is installed, what is missing")
    _for_teachers(verb)


def _common(**default: Any) -> argparse.ArgumentParser:
    """The options of every command."""
    made = argparse.ArgumentParser(add_help=False)
    said = "print one object for machines"
    made.add_argument("--json", action="store_true", help=said, **default)
    where = "the workspace (default: the one that this folder is in, or this folder)"
    made.add_argument("--workspace", metavar="DIR", help=where, **default)
    return made


def _workspace(options: argparse.Namespace) -> tuple[Workspace, Chapter]:
    workspace = Workspace.around(options.workspace)
    if options.chapter is not None:
        return workspace, find(options.chapter)
    found = workspace.here(Path.cwd())
    if len(found) != 1:
        names = " or ".join(chapter.id for chapter in found) or "this is no chapter's folder"
        raise Refusal(f"which chapter? {names}", 2)
    return workspace, found[0]


def _status(options: argparse.Namespace) -> Answer:
    from ol.status import status

    return status(Workspace.around(options.workspace))


def _start(options: argparse.Namespace) -> Answer:
    from ol.start import start

    return start(*_workspace(options), options.ref_deps, options.reset)


def _tests(options: argparse.Namespace) -> Answer:
    from ol import lesson

    words = [word for word in PYTEST if getattr(options, word.strip("-"))]
    words += ["-k", options.k] if options.k else []
    how = lesson.How((*words, *options.command), options.json)
    run = lesson.watched if options.watch else lesson.run
    return run(*_workspace(options), options.ref_deps, how)


def _check(options: argparse.Namespace) -> Answer:
    from ol.check import check

    return check(*_workspace(options), options.ref_deps, options.json, options.verify)


def _mutate(options: argparse.Namespace) -> Answer:
    from ol import check

    workspace, chapter = _workspace(options)
    if options.hint is not None:
        return check.hint(workspace, chapter, options.hint)
    return check.mutate(workspace, chapter, options.ref_deps, options.fresh)


def _diff(options: argparse.Namespace) -> Answer:
    from ol.compare import diff

    return diff(*_workspace(options), options.spoil)


def _run(options: argparse.Namespace) -> Answer:
    from ol import overlay

    if not options.command:
        raise Refusal("which command? ol run L5.3 -- python x.py", 2)
    workspace = Workspace.around(options.workspace)
    here = [find(options.chapter)] if options.chapter else workspace.here(Path.cwd())
    own = workspace.own(here[0] if len(here) == 1 else None)
    raise SystemExit(overlay.run(options.command, own))


def _doctor(options: argparse.Namespace) -> Answer:
    from ol.doctor import doctor

    return doctor(Workspace.around(options.workspace))


def _for_teachers(verb: Callable[..., argparse.ArgumentParser]) -> None:
    grade = verb("grade", _grade, "for teachers: grade every submission under a folder")
    said = "a folder or a zip in it for each submission"
    grade.add_argument("folder", nargs="?", type=Path, metavar="DIR", help=said)
    grade.add_argument("--chapter", dest="chapter_name", metavar="ID", help="L5.3, for example")
    said = "names of the submissions, in the first column"
    grade.add_argument("--roster", type=Path, metavar="CSV", help=said)
    grade.add_argument("--csv", dest="csv_file", type=Path, metavar="FILE", help="write the table")
    grade.add_argument(
        "--feedback", type=Path, metavar="DIR", help="write a page for each submission"
    )
    said = "the folder is itself a submission, not a class of them"
    grade.add_argument("--one", action="store_true", help=said)
    said = "for the module and for the tests (default: 50:50)"
    grade.add_argument("--points", type=_points, metavar="M:T", default=(50.0, 50.0), help=said)
    said = "write a results.json for each; with --one straight into this folder"
    grade.add_argument("--gradescope", type=Path, metavar="DIR", help=said)
    grade.add_argument("--fresh", action="store_true", help="grade again what is graded already")
    grade.add_argument("--jobs", type=_number, metavar="N", help="at a time (default: the cores)")
    grade.add_argument("--dask", metavar="ADDRESS", help="on the workers of this cluster")
    grade.add_argument("--workflow", action="store_true", help="print a workflow for a class's CI")
    for name, unit in (("seconds", "S"), ("memory", "MIB"), ("disk", "MIB"), ("processes", "N")):
        said = f"limit of {name} for each"
        grade.add_argument(f"--{name}", type=_number, metavar=unit, help=said)
    dev = verb(
        "dev", _dev, "for authors: check that stubs fail, references pass, mutants are caught"
    )
    dev.add_argument("what", choices=["check", "freeze", "takeaways"])
    dev.add_argument("of", nargs="*", metavar="CHAPTER", help="or the book's folder, for takeaways")


def _number(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"wants a positive number, got {text}")
    return number


def _points(text: str) -> tuple[float, float]:
    module, _, tests = text.partition(":")
    points = float(module), float(tests)
    if not (min(points) >= 0 and 0 < sum(points) < 1e6):
        raise argparse.ArgumentTypeError(f"wants two numbers such as 30:70, got {text}")
    return points


def _grade(options: argparse.Namespace) -> Answer:
    from ol import classroom
    from ol.sandbox import Limits

    if options.workflow:
        return classroom.workflow(options.chapter_name)
    if options.folder is None:
        raise Refusal("which folder? ol grade DIR", 2)
    names = ("seconds", "memory", "disk", "processes")
    limits = Limits(**{n: value for n in names if (value := getattr(options, n)) is not None})
    wishes = "chapter_name roster points one fresh jobs dask csv_file feedback gradescope"
    how = {n: getattr(options, n) for n in wishes.split()}
    return classroom.grade_class(options.folder, limits=limits, **how)


def _dev(options: argparse.Namespace) -> Answer:
    if options.what == "check":
        from ol.dev import check

        return check([find(name) for name in options.of])
    from ol import authoring

    if options.what == "takeaways":
        return authoring.write_takeaways(Path(options.of[0] if options.of else "book"))
    if len(options.of) != 1:
        raise Refusal("which chapter? ol dev freeze L5.3", 2)
    return authoring.freeze(find(options.of[0]))
