# Tangled from book/workshop/commands.md
"""The commands that README and the chapters show: they are understood, and they do what is said of them."""

import contextlib
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import tomllib
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

import literate.command
import ol.cli
import tinyllm.cli
from ol import registry

ROOT = Path(__file__).resolve().parents[2]
WORK = "How to work this chapter"


def commands(path, heading=None):
    """The commands of a page, or of one of its sections, as they are written."""
    found, section = [], None
    text = path.read_text(encoding="utf-8")
    part = re.compile(r"^## (.+)$|^( *)(`{3,}|~{3,})(.*)\n((?:.*\n)*?)\2\3 *$", re.MULTILINE)
    for match in part.finditer(text):
        if match[1]:
            section = match[1]
            continue
        info, lines = match[4].strip(), [line.strip() for line in match[5].splitlines()]
        if heading in (None, section):
            if info.startswith("console"):
                found += [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
            elif section == WORK:
                found += lines
    return found


def chapters():
    """The file of each chapter, by its id, each after those it needs."""
    pages = {path.name: path for path in (ROOT / "book").glob("*/*.md")}
    beside = ("-lab.md", "-tests.md")
    chapters = [name for name in pages if not name.endswith(beside)]
    return {
        n: pages[next(c for c in chapters if c.startswith(f"{n}-"))] for n in registry.chapters()
    }


OTHERS = {"cd", "git", "head", "mkdir", "printf", "tail"}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]


def calls(command):
    """The programs that a line of shell calls, each with its words."""
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.whitespace_split, words.commenters = True, "#"
    call, skip = [], False
    for word in [*words, ";"]:
        if word in ("|", "&&", ";"):
            yield call
            call = []
        elif word in ("<", ">"):
            skip = True
        elif skip:
            skip = False
        else:
            call.append(word)


def understand(words):
    """Raises for a call that its program would refuse."""
    program, *rest = words
    match Path(program).name:
        case "ol":
            options = ol.cli.parse(rest)
            if getattr(options, "chapter", None):
                registry.find(options.chapter)
        case "tinyllm":
            tinyllm.cli._parser().parse_args(rest)
        case "torchrun":
            assert find_spec("torch.distributed.run")
            understand(["python", *rest[rest.index("-m") :]])
        case "make":
            for word in rest:
                name, is_setting, _ = word.partition("=")
                wanted = rf"^{name} *\?=" if is_setting else rf"^{name}:"
                assert re.search(wanted, MAKEFILE, re.MULTILINE), word
        case "pip":
            assert rest[0] == "install"
            for extra in re.findall(r"\[(.+)\]", " ".join(rest)):
                assert EXTRAS.keys() >= set(extra.split(",")), extra
        case "python" | "python3":
            match rest:
                case ["-c", code]:
                    compile(code, "README", "exec")
                case ["-m", "tinyllm" | "ol" as module, *others]:
                    understand([module, *others])
                case ["-m", module, *_]:
                    assert find_spec(module), module
                case ["tangle.py", *others]:
                    literate.command.parse_arguments(others)
                case _:
                    raise AssertionError(rest)
        case "pytest":
            assert find_spec("pytest")
        case name:
            assert name in OTHERS, f"{name}: what would judge this?"


PAGES = [ROOT / "README.md", *sorted((ROOT / "book").rglob("*.md"))]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda p: p.name)
def test_every_command_is_understood(page):
    for command in commands(page):
        for words in calls(command):
            try:
                understand(words)
            except (SystemExit, AssertionError, registry.Refusal) as error:
                pytest.fail(f"{page.name}: {command}: {error}")


def test_readme_shows_and_links_only_what_is_there():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    paths = re.findall(r'\]\(([^)#:]+)|src(?:set)?="([^":]+)"', text)
    wanted = {one or other for one, other in paths}
    assert len(wanted) > 4
    assert not {path for path in wanted if not (ROOT / path).exists()}


@pytest.mark.parametrize(
    "wrong", ["ol begin L5.2", "ol start L9.9", "tinyllm train --fast", "make it", "sing"]
)
def test_a_command_that_is_not_understood(wrong):
    with pytest.raises((SystemExit, AssertionError, registry.Refusal)):
        understand(shlex.split(wrong))


def test_every_chapter_says_how_to_begin():
    for name, page in chapters().items():
        assert any(c.startswith(f"ol start {name}") for c in commands(page, WORK)), page


def test_readme_lists_what_make_can_do():
    listed = re.findall(r"^\| `make (\w+)` \|", PAGES[0].read_text(encoding="utf-8"), re.MULTILINE)
    there = re.findall(r"^(\w+):.*##", MAKEFILE, re.MULTILINE)
    assert set(listed) == set(there) - {"help"}


END = "-- end of command:"


class Shell:
    """A shell in which somebody types, in an environment of its own."""

    def __init__(self, folder, programs=None):
        hidden = ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL", "SITE")
        environment = {k: v for k, v in os.environ.items() if k not in hidden}
        environment |= {"OPENBLAS_NUM_THREADS": "1", "NO_MKDOCS_2_WARNING": "1"}
        if programs is not None:
            environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
        self.process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(f"{END} the shell has ended\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in [*psutil.Process(self.process.pid).children(recursive=True), self.process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.reader.join(60)
        with self.process:
            self.process.stdin.close()

    def type(self, command, until=None, then=None, seconds=600):
        """The exit status of a command and what it printed. At the line with `until`, does `then`."""
        print(f"{{ {command}\n}}; printf '\\n{END} %s\\n' $?", file=self.process.stdin, flush=True)
        said = ""
        while True:
            try:
                line = self.lines.get(timeout=seconds)
            except queue.Empty:
                raise AssertionError(f"{command}: silent for {seconds} s after\n{said}") from None
            if line.startswith(END):
                status = line.removeprefix(END).strip()
                assert status.isdigit(), f"{command}: {status}\n{said}"
                return int(status), said
            said += line
            if until is not None and until in line:
                until = None
                then(self)

    def done(self, command, *allowed, **options):
        """What a command printed that must end well, or with a status that is allowed."""
        status, said = self.type(command, **options)
        assert status in (0, *allowed), f"{command}: status {status}\n{said}"
        return said


def interrupt(shell):
    """What Ctrl-C does to the command that runs."""
    psutil.Process(shell.process.pid).children()[0].send_signal(signal.SIGINT)


SHORTER = {
    "tinyllm train transformer": "--steps 150",  # 1500 of them are a test of their own
    ".venv/bin/python -m pytest": "tests/L5.2",  # make test runs all
}
LEFT_OUT = {
    ".venv/bin/python -m weave.serve.printed": not shutil.which("chromium"),
}


def plain(command):
    """The command without its comment."""
    return command.partition("  #")[0].strip()


def typed(command):
    """The command as the test types it; None if it is left out."""
    words = plain(command)
    if LEFT_OUT.get(words):
        return None
    return f"{words} {SHORTER[words]}" if words in SHORTER else command


def test_what_is_shortened_or_left_out_is_there():
    there = {plain(command) for page in PAGES for command in commands(page)}
    assert there >= SHORTER.keys() | LEFT_OUT.keys()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A function that unpacks the source archive into a folder of its own."""
    from hatchling.builders.sdist import SdistBuilder

    folder = tmp_path_factory.mktemp("archive")
    archive = next(SdistBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"]))

    def unpack():
        place = tmp_path_factory.mktemp("checkout")
        with tarfile.open(archive) as file:
            file.extractall(place, filter="data")
        (inside,) = place.iterdir()
        return inside

    return unpack


def type_all(shell, lines):
    """Type the commands; those of `ol` may say "not yet"."""
    for line in lines:
        if (command := typed(line)) is not None:
            watch = {"until": "watching ", "then": interrupt} if "--watch" in command else {}
            said = shell.done(command, *([1] if command.startswith("ol ") else []), **watch)
            assert "Traceback" not in said or command.startswith(("ol tests", "ol check")), said
            assert not watch or "Ctrl-C ends" in said


def build(name, workspace):
    """What the learner does after `ol start`: the chapter's module, and a good suite of tests."""
    chapter = registry.find(name)
    module, *tests = (workspace / path for path in chapter.files)
    assert module.is_file(), f"ol start {name} made no stub"
    shutil.copy(chapter.reference, module)
    suite = Path(__file__).parents[1] / "suites" / name / "honest_1.py"
    for folder in tests:
        shutil.copy(suite, folder / f"test_{module.name}")


def type_again(shell, lines):
    """Type the commands of `ol` once more, now that there is something to find: all succeed."""
    for line in lines:
        if line.startswith("ol ") and not line.startswith("ol start"):
            shell.done(
                line, **({"until": "watching ", "then": interrupt} if "--watch" in line else {})
            )


@pytest.fixture(scope="module")
def installed(checkout, tmp_path_factory):
    """README's "Three ways to use it", typed into a shell: its environment's programs, and its folder."""
    environment, folder = tmp_path_factory.mktemp("environment"), checkout()
    subprocess.run([sys.executable, "-m", "venv", environment], check=True, timeout=300)
    with Shell(folder, environment / "bin") as shell:
        lines = commands(folder / "README.md", "Three ways to use it")
        assert lines[0] == "pip install ."
        type_all(shell, lines)
        for name in ("L5.2", "L5.3"):
            build(name, folder / "learn")
        type_again(shell, lines)
    return environment / "bin", folder


@pytest.mark.long
def test_readme_in_an_empty_environment(installed):
    _, folder = installed
    assert (folder / "runs/addition/checkpoint.safetensors").is_file()
    assert "<table" in (folder / "heads.html").read_text(encoding="utf-8")


@pytest.mark.long
def test_a_learner_types_what_the_chapters_say(installed, tmp_path):
    programs, _ = installed
    with Shell(tmp_path, programs) as shell:
        for name, page in chapters().items():
            lines = commands(page, WORK)
            type_all(shell, lines)
            build(name, tmp_path)
            type_again(shell, lines)
        shell.done("ol check L5.3")  # its page runs all but this
        count = len(registry.chapters())
        assert f"{count} of {count} chapters done" in shell.done("ol")


@pytest.mark.long
def test_readme_without_make(checkout):
    folder = checkout()
    with Shell(folder) as shell:
        lines = commands(folder / "README.md", "Commands")
        for line in lines:
            if (command := typed(line)) is not None:
                shell.done(command)
        (folder / ".venv/ready").touch()  # the set-up that make would do is done
        assert "make site" in shell.done("make")
        assert (folder / "site/index.html").is_file()
        shell.done("make format check")
        shell.done("make clean")
        assert not (folder / ".venv").exists()
