# Tangled from book/workshop/tangle-tests.md
"""A project to tangle in, and the books that the tests put there."""

import contextlib
import io
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import literate.book
import literate.command
import literate.expand
from literate.book import Book


class Run(NamedTuple):
    status: int
    out: str
    err: str


def process(folder: Path, *command: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Python, or with `executable` another program, with these arguments in a process of its own."""
    program = options.pop("executable", sys.executable)
    options = {"cwd": folder, "capture_output": True, "check": False} | options
    return subprocess.run([program, *map(str, command)], **options)


class Project:
    """A folder with a book in it. `run` is the command, in that folder and in this process."""

    def __init__(self, root: Path, book: str | dict[str, str] = "") -> None:
        self.root = root
        for name, text in ({"ch.md": book} if isinstance(book, str) else book).items():
            self.put(f"book/{name}", text)

    def put(self, path: str, content: str | bytes) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    def text(self, path: str) -> str:
        return (self.root / path).read_bytes().decode()

    def run(self, *arguments: str, stdin: str = "") -> Run:
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.chdir(self.root),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch("sys.stdin", io.StringIO(stdin)),
        ):
            try:
                status = literate.command.main(list(arguments))
            except SystemExit as usage:
                status = usage.code
        return Run(status, out.getvalue(), err.getvalue())

    def tangle(self, *arguments: str) -> dict[str, str]:
        """Tangle, which has to go well and to be done with one run. The files that were made."""
        run = self.run(*arguments)
        assert run.status == 0, run.err
        again = self.run(*arguments)
        assert ": 0 written, " in again.out, again
        assert "removed" not in again.out, again
        check = self.run("--check", *[name for name in arguments if name != "--force"])
        assert check.status == 0, check
        return self.made()

    def made(self) -> dict[str, str]:
        """Every file but the chapters and the record."""
        ours = [
            p for p in self.snapshot() if not p.startswith("book/") and p != literate.book.RECORD
        ]
        return {path: self.text(path) for path in ours if (self.root / path).is_file()}

    def snapshot(self) -> dict[str, tuple[bytes, int]]:
        """Everything in the folder, with permission bits; of a folder, the bits alone."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name, mode = path.relative_to(self.root).as_posix(), path.lstat().st_mode
            content = path.read_bytes() if stat.S_ISREG(mode) else b""
            found[name] = content, stat.S_IMODE(mode)
        return found


def line_map(book: Book, target: str, *, bare: bool = False) -> list[tuple[str, int]]:
    """(chapter path, line) of every line of a target."""
    origins = literate.expand.origins(literate.expand.target_pieces(book, target, bare=bare))
    return [(block.chapter.path, line) for block, line in origins]


def block(opener: str, body: str, fence: str = "```") -> str:
    return f"{fence}{opener}\n{body}{fence}\n\n"


def target(path: str, body: str) -> str:
    return block(f"python {{file={path}}}", body)


def chunk(name: str, body: str) -> str:
    return block(f"python {{#{name}}}", body)


REAL = block("{#real file=real.py}", "y\n")


def two_files(folder: Path) -> Project:
    project = Project(folder, target("a.py", "x\n") + target("p/b.py", "y\n"))
    project.tangle("--bare")
    return project


def watch(project: Project, steps: Iterable[Callable[[], object]], *arguments: str) -> Run:
    """Run a command with `--watch`; it looks, a step is done, it looks again. The last step is Ctrl-C."""
    todo = iter(steps)

    def sleep(_seconds: float) -> None:
        step = next(todo, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    with mock.patch("time.sleep", sleep):
        run = project.run(*arguments, "--watch", "--bare")
    assert run.status == 130
    return run


def at_rest(steps: Iterable[Callable[[], object]]) -> list[Callable[[], object]]:
    """Each step, and then none for one look."""
    return [rest for step in steps for rest in (step, lambda: None)]


def refused(project: Project, *arguments: str) -> str:
    """What a run says that has to refuse its work, and to change nothing."""
    before = project.snapshot()
    run = project.run(*arguments)
    assert run.status == 1, run
    assert project.snapshot() == before
    return run.out + run.err


def errors(project: Project, *arguments: str) -> list[str]:
    """What a run that has to refuse the book says is wrong with it."""
    every = refused(project, "--bare", *arguments).splitlines()
    told = [line for line in every if ": warning: " not in line]
    assert told.pop() == f"tangle: {len(told)} error{'s'[: len(told) > 1]}; nothing written"
    return told


def restore(project, snapshot):
    """Make the folder what it was when the snapshot was taken."""
    shutil.rmtree(project.root)
    project.root.mkdir()
    for path, (content, mode) in snapshot.items():
        full = project.root / path
        if any(other.startswith(f"{path}/") for other in snapshot) or mode & 0o111 and not content:
            full.mkdir()
        else:
            project.put(path, content)
        full.chmod(mode)
