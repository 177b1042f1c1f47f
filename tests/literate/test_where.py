# Tangled from book/workshop/tangle-tests-where.md
"""From generated lines to chapter lines and back: the line map, `where`, and the reports of failing tests."""

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from unittest import mock

import pytest

import literate.expand
import literate.read
import tangle
from tests.literate.project import Project, Run, chunk, line_map, process, target

TESTS = Path(__file__).resolve().parents[1]


PYPROJECT = """\
[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
addopts = ["--import-mode=importlib", "-p", "no:cacheprovider"]
"""
MODULE = target("half.py", "def half(x):\n    <<check>>\n    return x / 2\n") + chunk(
    "check", "if x < 0:\n    raise ValueError(x)\n"
)
TEST = "import pytest\n\nfrom half import half\n\n\n"
CHAPTER = (
    MODULE
    + target("tests/test_half.py", TEST + "<<tests>>\n")
    + chunk("tests", "def test_half():\n    assert half(2) == 1\n")
)
FAILING = chunk("tests", "\n\ndef test_negative():\n    assert half(-2) == -1\n")


class OwnTests(Project):
    """A project with its own pytest run."""

    def __init__(self, root, book):
        super().__init__(root, book)
        self.put("pyproject.toml", PYPROJECT)
        self.put("tests/conftest.py", (TESTS / "conftest.py").read_bytes())
        self.put("tangle.py", Path(tangle.__file__).read_bytes())
        if not self.run().status:
            self.tangle()

    def pytest(self, *arguments):
        environment = {
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": os.path.dirname(tangle.__file__),  # as where it is installed editable
        }
        command = "-m", "pytest", "-q", *arguments
        done = process(self.root, *command, env=environment, text=True)
        assert "INTERNALERROR" not in done.stdout + done.stderr
        return done.stdout

    def chapter_lines(self, *arguments):
        """The sections of that name in the report."""
        sections = re.split(r"^-+ chapter lines -+\n", self.pytest(*arguments), flags=re.MULTILINE)
        return [re.match(r"(?:\S+:\d+  \S+:\d+\n)*", text)[0].splitlines() for text in sections[1:]]


def test_a_failing_test_names_the_chapter_lines_of_its_frames(tmp_path):
    project = OwnTests(tmp_path, CHAPTER + FAILING)
    chapter = (CHAPTER + FAILING).splitlines()
    call = chapter.index("    assert half(-2) == -1") + 1
    cause = chapter.index("    raise ValueError(x)") + 1
    assert project.chapter_lines() == [
        [f"tests/test_half.py:12  book/ch.md:{call}", f"half.py:4  book/ch.md:{cause}"]
    ]


INTERRUPTED = """import subprocess, sys

CODE = "import signal; print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"

def test_children_can_be_interrupted():
    assert subprocess.check_output([sys.executable, "-c", CODE], text=True) == "False\\n"
"""


def test_children_can_be_interrupted_where_the_run_cannot(tmp_path):
    project = OwnTests(tmp_path, CHAPTER)
    project.put("tests/test_child.py", INTERRUPTED)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert "2 passed" in project.pytest()
    finally:
        signal.signal(signal.SIGINT, before)


def test_passing_tests_cost_nothing(tmp_path):
    project = OwnTests(tmp_path, CHAPTER)
    project.put("tangle.py", "raise SystemExit('imported')\n")
    assert "1 passed" in project.pytest()


def annotator(root):
    """What conftest.py makes of a project."""
    spec = importlib.util.spec_from_file_location("conftest", TESTS / "conftest.py")
    conftest = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conftest)
    return conftest.annotator(mock.Mock(stash={}, rootpath=root))


def test_without_a_book_or_with_errors_there_are_no_chapter_lines(tmp_path):
    project = Project(tmp_path, MODULE)
    project.tangle()
    assert annotator(tmp_path) is None  # there is no tangle.py, though one can be imported here
    project.put("tangle.py", Path(tangle.__file__).read_bytes())
    assert annotator(tmp_path)(f"{tmp_path}/half.py", 4) == f"{tmp_path}/book/ch.md:9"
    assert annotator(tmp_path)("/usr/lib/half.py", 4) is None
    project.put("half.py", project.text("half.py").replace("\n", " #\n"))
    assert annotator(tmp_path)(f"{tmp_path}/half.py", 4) is None
    project.put("book/ch.md", "```\n")
    assert annotator(tmp_path) is None
    shutil.rmtree(tmp_path / "book")
    assert annotator(tmp_path) is None
    with mock.patch.dict(sys.modules, {"tangle": None}):
        assert annotator(tmp_path) is None


CAUSES = chunk(
    "tests",
    """

def test_from():
    try:
        half(-2)
    except ValueError as error:
        raise KeyError from error


def test_group():
    errors = []
    try:
        half(-2)
    except ValueError as error:
        errors.append(error)
    raise ExceptionGroup("two", errors)


@pytest.fixture
def broken():
    half(-3)


def test_broken_fixture(broken):
    pass


def test_stream_of_errors(monkeypatch):
    monkeypatch.setattr("builtins.open", half)
    half(-4)
""",
)


def test_causes_groups_and_fixtures(tmp_path):
    found = OwnTests(tmp_path, CHAPTER + CAUSES).chapter_lines()
    chapter = ["", *(CHAPTER + CAUSES).splitlines()]
    shown = [[chapter[int(line.rpartition(":")[2])].strip() for line in lines] for lines in found]
    raises = "raise ValueError(x)"
    assert shown[0] == ["half(-3)", raises]
    assert shown[1] == ["half(-2)", raises, "raise KeyError from error"]
    assert shown[2] == ["half(-2)", raises, 'raise ExceptionGroup("two", errors)']
    assert shown[3:] in ([], [["half(-4)", raises]])  # open was not there to read the book with


def test_a_test_file_that_cannot_be_imported(tmp_path):
    wrong = MODULE + target("tests/test_a.py", "from half import half\nhalf(-1)\n")
    syntax = target("tests/test_b.py", "def f(:\n")
    assert OwnTests(tmp_path, wrong + syntax).chapter_lines() == [
        ["tests/test_a.py:3  book/ch.md:14", "half.py:4  book/ch.md:9"],
        ["tests/test_b.py:2  book/ch.md:18"],
    ]


def test_the_header_belongs_to_the_opener_behind_what_stands_before_it(tmp_path):
    project = Project(
        tmp_path, "\n" + target("a.py", "<<top>>\nx\n") + chunk("top", "#!/bin/sh\ny\n")
    )
    project.tangle()
    book = literate.read.read_book([str(tmp_path / "book")])
    assert [line for _, line in line_map(book, "a.py")] == [8, 7, 9, 4]


INLINE = target("p/a.py", "x = f(<<two>>)\n\n<<two>>\n") + chunk("two", "1,\n2\n")


def test_where_goes_both_ways(tmp_path):
    project = Project(tmp_path / "p", INLINE)
    project.tangle()
    ways = ["1", "2", "9 (two)", "3", "8 (two)", "9 (two)"]
    for number, line in enumerate(ways, 1):
        told = Run(0, f"book/ch.md:{line}\n", "")
        for place in ("p/a.py:", f"{project.root}/p/a.py:", "./p/a.py:"):
            assert project.run("where", f"{place}{number}") == told
            assert project.run("where", f"{place}{number}:5") == told
    back = {1: [1], 2: [2], 3: [4], 8: [5], 9: [3, 6]}
    for line, made in back.items():
        told = project.run("where", f"book/ch.md:{line}")
        assert told == Run(0, "".join(f"p/a.py:{number}\n" for number in made), "")
    several = project.run("where", "p/a.py:5", "book/ch.md:8")
    assert several.out == "book/ch.md:8 (two)\np/a.py:5\n"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("p/a.py:0", "p/a.py:0 is no line of the book"),
        ("p/a.py:7", "p/a.py:7 is no line of the book"),
        ("p/a.py", "is not PATH:LINE"),
        ("p/a.py:", "is not PATH:LINE"),
        (":1", "is not PATH:LINE"),
        ("p/a.py:-1", "is not PATH:LINE"),
        ("p/a.py:1x", "is not PATH:LINE"),
        ("p/a.py:²", "is not PATH:LINE"),
        ("p/a.py:" + "9" * 5000, "is not PATH:LINE"),
        ("p/b.py:1", "p/b.py is neither made by the book nor one of its chapters; did you mean"),
        ("../p/a.py:1", "neither made by the book"),
        ("book:1", "neither made by the book"),
        ("book/ch.md:4", "no generated line comes from book/ch.md:4"),
        ("book/ch.md:999", "no generated line comes from book/ch.md:999"),
    ],
    ids=lambda text: text[:40],
)
def test_where_there_is_nothing(place, message, tmp_path):
    project = Project(tmp_path / "p", INLINE)
    run = project.run("where", place, "p/a.py:1")
    assert run.status == 1
    assert run.out == "book/ch.md:1\n"  # the other place is answered
    assert run.err.startswith("where: ")
    assert message in run.err


def test_where_knows_the_lines_of_an_edited_file(tmp_path):
    project = Project(tmp_path, target("a.py", "import os\n\n\ndef f():\n    return os\n"))
    project.tangle()
    rows = project.text("a.py").splitlines()
    project.put("a.py", "\n".join([rows[0], "# one", "# two", *rows[1:5], "    return 1"]) + "\n")
    assert project.run("where", "a.py:1", "a.py:4", "a.py:7").out.splitlines() == [
        "book/ch.md:1",
        "book/ch.md:2",
        "book/ch.md:5",
    ]
    assert project.run("where", "book/ch.md:5").out == "a.py:7\n"
    for line in (2, 3, 8, 9):
        run = project.run("where", f"a.py:{line}")
        assert (run.status, run.out) == (1, "")
        assert f"a.py:{line} is no line of the book; was it edited since" in run.err
        assert project.run("where", stdin=f"a.py:{line}\n").out == f"a.py:{line}\n"
    assert project.run("where", stdin="a.py:7\n").out == "a.py:7  [book/ch.md:5]\n"
    assert project.run("where", "book/ch.md:6").status == 1
    project.put("a.py", "")
    assert project.run("where", "a.py:1").status == 1


def test_where_from_another_folder_and_with_another_root(tmp_path):
    project = Project(tmp_path, INLINE)
    assert project.run("book", "-o", "out").status == 0
    assert project.run("where", "-o", "out", "p/a.py:3").out == "book/ch.md:9 (two)\n"
    assert project.run("where", "-o", "out", "out/p/a.py:3").out == "book/ch.md:9 (two)\n"
    assert project.run("where", "-o", "out", "book/ch.md:3").out == "out/p/a.py:4\n"
    with contextlib.chdir(tmp_path / "out" / "p"):
        inside = Project(tmp_path / "out" / "p")
        place = inside.run("where", "-b", "../../book", "-o", "..", "a.py:3").out
        assert place == "../../book/ch.md:9 (two)\n"
        back = inside.run("where", "-b", "../../book", "-o", "..", "../../book/ch.md:3").out
        assert back == "../p/a.py:4\n"


def test_a_book_with_errors_has_no_where(tmp_path):
    project = Project(tmp_path, "```\n")
    run = project.run("where", "a.py:1")
    assert run.status == 1
    assert "fence is not closed" in run.err


PROGRAM = (
    target("p/main.py", "from p.low import low\n\n\ndef main():\n    <<call>>\n\n\nmain()\n")
    + target("p/low.py", "def low():\n    <<call>>\n")
    + chunk("call", "x = 1\nlow()\n")
)


def test_a_traceback_gets_chapter_lines(tmp_path):
    project = Project(
        tmp_path, PROGRAM.replace("def low():\n    <<call>>", "def low():\n    1 / 0")
    )
    project.tangle()
    done = process(tmp_path, "-m", "p.main", text=True)
    told = process(tmp_path, tangle.__file__, "where", input=done.stderr, text=True).stdout
    places = re.findall(r'File ".*/p/(\w+\.py)", line (\d+).*  \[(.*)\]$', told, re.MULTILINE)
    assert places == [
        ("main.py", "10", "book/ch.md:9"),
        ("main.py", "7", "book/ch.md:19"),
        ("low.py", "3", "book/ch.md:14"),
    ]
    assert re.sub(r"  \[book.*\]$", "", told, flags=re.MULTILINE) == done.stderr


@pytest.mark.parametrize(
    ("line", "origin"),
    [
        ('  File "p/low.py", line 3, in low', "book/ch.md:18"),
        ("p/low.py:3: in low", "book/ch.md:18"),
        ("p/low.py:3:5: F821 undefined name", "book/ch.md:18"),
        ("FAILED p/low.py:4 - x", "book/ch.md:19"),
        ("E   x (p/low.py:3)", "book/ch.md:18"),
        ("  --> p/low.py:3:5", "book/ch.md:18"),
        ("ROOT/p/low.py:3: in low", "book/ch.md:18"),
        ('  File "ROOT/p/low.py", line 3, in low', "book/ch.md:18"),
        ("./p/low.py:3", "book/ch.md:18"),
        ("p/low.py:1", "book/ch.md:12"),
        ("    at low (file://ROOT/p/low.py:3:5)", "book/ch.md:18"),
        ("warning: lib/x.py:1: from p/low.py:4", "book/ch.md:19"),
    ],
)
@pytest.mark.parametrize("end", ["\n", ""])
def test_lines_of_many_tools_are_understood(line, origin, end, tmp_path):
    project = Project(tmp_path, PROGRAM)
    project.tangle()
    line = line.replace("ROOT", str(tmp_path))
    assert project.run("where", stdin=line + end) == Run(0, f"{line}  [{origin}]{end}", "")


NOWHERE = (
    "nothing here|p/low.py|p/low.py:0|p/low.py:5|p/other.py:1|book/ch.md:3|12:30:59 p:1|x.y:1|   ||"
)
NOWHERE += (
    'File "p/low.py", line x|File "p\0/low.py", line 1|File "", line 1|File "<string>", line 1|'
)
NOWHERE += f'\x1b[31mp\x1b[0m|p/low.py:{"9" * 5000}|File "p/low.py", line {"9" * 5000}'


@pytest.mark.parametrize("line", NOWHERE.split("|"), ids=lambda line: ascii(line[:40]))
def test_what_names_no_generated_line_passes_through_unchanged(line, tmp_path):
    project = Project(tmp_path, PROGRAM)
    project.tangle()
    text = f"{line}\n{line}\n\n{line}"
    assert project.run("where", stdin=text) == Run(0, text, "")


LONG = ["a" * 80_000, "a." * 40_000, "a/" * 40_000 + "a.py:3", 'File "' * 16_000, "a.b:" * 20_000]


@pytest.mark.parametrize("line", LONG, ids=lambda line: line[:6])
def test_a_long_line_is_read_once(line, tmp_path):
    project = Project(tmp_path, PROGRAM)
    project.tangle()
    start = time.perf_counter()
    assert project.run("where", stdin=line) == Run(0, line, "")
    assert (
        time.perf_counter() - start < 10
    )  # where each character was read again for each: 44 seconds


@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii", "cp1252"])
def test_bytes_pass_through_as_they_are(encoding, tmp_path):
    project = Project(tmp_path, PROGRAM)
    project.tangle()
    sent = b"\xff\xfe \xe2\x82 gr\xc3\xb6\xc3\x9fe \0\r\np/low.py:3\r\n50 %\rdone\n\x85\x0c\n"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = process(tmp_path, tangle.__file__, "where", env=environment, input=sent)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == sent.replace(b"low.py:3", b"low.py:3  [book/ch.md:18]")
