# Tangled from book/workshop/ol.md
"""The command line of `ol`."""

from __future__ import annotations

import argparse
import importlib
import inspect
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import tinyllm
from ol.registry import Answer, Chapter, Refusal, find
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
        answer = _answer(options)
    except Refusal as error:
        answer = Answer(error.status, [f"ol: {error}"], {"refused": str(error), **error.data})
    except OSError as error:  # a disk that is full, a folder that may not be written to
        answer = Answer(1, [f"ol: {error}"], {"refused": str(error)})
    except KeyboardInterrupt:
        return 130
    return show(answer, options.json, refused="refused" in answer.data)


def _leave(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def _answer(options: argparse.Namespace) -> Answer:
    """Call the function of a command, with what it takes of the options that all have, and its own."""
    module, name = options.call.split(".")
    function = getattr(importlib.import_module(f"ol.{module}"), name)
    taken = inspect.signature(function).parameters
    wishes = {n: value for n, value in vars(options).items() if n in taken or n not in _COMMON}
    if "workspace" in wishes:
        workspace = wishes["workspace"] = Workspace.around(options.workspace)
        if "chapter" in wishes:
            needed = options.call != "lesson.command"
            wishes["chapter"] = _chapter(workspace, options.chapter, needed)
        if getattr(options, "ref_deps", False):
            workspace.set_ref_deps()
    answer: Answer = function(**wishes)
    return answer


_COMMON = {"call", "workspace", "json", "command", "ref_deps"}


def _chapter(workspace: Workspace, name: str | None, needed: bool) -> Chapter | None:
    """The chapter that was named, or whose folder this is. Refusal if one is needed and it is not clear."""
    found = [find(name)] if name is not None else workspace.here(Path.cwd())
    if len(found) != 1 and needed:
        names = " or ".join(chapter.id for chapter in found) or "this is no chapter's folder"
        raise Refusal(f"which chapter? {names}", 2)
    return found[0] if len(found) == 1 else None


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options of a command line; `command` is what stands after --."""
    words = ["run", "--", *words] if words[:1] == ["python"] else [*words]
    at = words.index("--") if "--" in words else len(words)
    return parser().parse_args(words[:at], argparse.Namespace(command=words[at + 1 :]))


EXAMPLES = """\
examples:
  ol                         the map, and the next step
  ol start L5.3              a stub and a test file
  ol start L5.3 --ref-deps   the same, and what is not built is taken from the book from now on
  ol tests L5.3 --watch      the course's tests, again at each save; in the chapter's folder without L5.3
  ol tests -x -k mask        the first that fails, of those with mask in their names
  ol run L5.3 -- python x.py your modules, and the book's for the rest; also ol python x.py, and pytest
  ol mutate L5.3 --hint s05  a little more about one mistake that your tests do not see

exit status: 0 done, 1 not yet, 2 wrong use
"""


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    common = _common(default=argparse.SUPPRESS)  # what was given before the command stays
    deps, verify, chapter = (argparse.ArgumentParser(add_help=False) for _ in range(3))
    said = "take the book's chapters where yours are not built"
    deps.add_argument("--ref-deps", action="store_true", help=said)
    verify.add_argument("--verify", action="store_true", help="take no grade that was kept")
    chapter.add_argument("chapter", nargs="?", help="L5.3, for example; needless in its folder")

    top = argparse.ArgumentParser(
        "ol",
        description="Build the book's modules yourself, and have your own tests graded.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[_common()],
    )
    top.add_argument("--version", action="version", version=f"tinyllm-book {tinyllm.__version__}")
    top.set_defaults(call="status.status")
    verbs = top.add_subparsers(title="commands", metavar="COMMAND")

    def verb(name: str, call: str, words: str, *parents: Any) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=words, description=words, parents=[*parents, common])
        made.set_defaults(call=call)
        return made

    verb("status", "status.status", "the map: what is built, begun, ready, blocked; the next step")
    start = verb("start", "start.start", "a stub and a test file; never over your work", deps)
    start.add_argument("chapter", help="L5.3, for example")
    said = "the course's tests against your module"
    tests = verb("tests", "lesson.tests", said, chapter, deps)
    tests.add_argument("--watch", action="store_true", help="run again at each save")
    tests.add_argument("-k", metavar="WORDS", help="only tests with these in their names")
    for option, said in (
        ("-x", "end at the first test that fails"),
        ("-v", "a line for each test"),
        ("--pdb", "the debugger where a test fails"),
    ):
        tests.add_argument(option, action="append_const", const=option, dest="options", help=said)
    said = "the course's tests, then the grade of yours"
    verb("check", "check.check", said, chapter, deps, verify)
    said = "the grade of your tests in full"
    mutate = verb("mutate", "check.mutate", said, chapter, deps, verify)
    mutate.add_argument("--hint", metavar="MUTANT", help="a little more about one mutant each time")
    verb("diff", "start.diff", "your module beside the book's, after passing", chapter)
    said = "a command with your modules: ol run L5.3 -- python x.py"
    verb("run", "lesson.command", said, chapter)
    verb("python", "lesson.command", "short for ol run -- python")
    verb("doctor", "doctor.doctor", "what is installed, what is missing")
    _for_teachers(verb)
    return top


def _common(**default: Any) -> argparse.ArgumentParser:
    """The options of every command."""
    made = argparse.ArgumentParser(add_help=False)
    said = "print one object for machines"
    made.add_argument("--json", action="store_true", help=said, **default)
    where = "the workspace (default: the one that this folder is in, or this folder)"
    made.add_argument("--workspace", metavar="DIR", help=where, **default)
    return made


def _for_teachers(verb: Callable[..., argparse.ArgumentParser]) -> None:
    words = "for teachers: grade every submission under a folder"
    add = verb("grade", "classroom.command", words).add_argument
    add("folder", nargs="?", type=Path, metavar="DIR", help="a folder or a zip in it for each")
    add("--chapter", dest="chapter_name", metavar="ID", help="L5.3, for example")
    add("--roster", type=Path, metavar="CSV", help="names of the submissions, in the first column")
    add("--csv", dest="csv_file", type=Path, metavar="FILE", help="write the table")
    add("--feedback", type=Path, metavar="DIR", help="write a page for each submission")
    add("--one", action="store_true", help="the folder is itself a submission, not a class of them")
    said = "for the module and for the tests (default: 50:50)"
    add("--points", type=_points, metavar="M:T", default=(50.0, 50.0), help=said)
    said = "write a results.json for each; with --one straight into this folder"
    add("--gradescope", type=Path, metavar="DIR", help=said)
    add("--fresh", action="store_true", help="grade again what is graded already")
    add("--jobs", type=_number, metavar="N", help="at a time (default: the cores)")
    add("--dask", metavar="ADDRESS", help="on the workers of this cluster")
    add("--workflow", action="store_true", help="print a workflow for a class's CI")
    for name, unit in (("seconds", "S"), ("memory", "MIB"), ("disk", "MIB"), ("processes", "N")):
        add(f"--{name}", type=_number, metavar=unit, help=f"limit of {name} for each")


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
