# Tangled from book/workshop/tangle-tests-writing.md
"""The command line, and watching."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import tangle
from tests.literate.project import Project, at_rest, block, chunk, process, target, two_files, watch

HERE = Path(__file__).resolve().parent


def test_a_watcher_outlives_every_error(tmp_path):
    project = Project(tmp_path, target("a.py", "1\n"))
    made = []
    full = mock.patch(
        "literate.command.carry_out", side_effect=OSError(28, "No space left on device")
    )

    def put(text, name="ch.md"):
        return lambda: (made.append(project.made()), project.put(f"book/{name}", text))

    def spoil():
        made.append(project.made())
        project.put("a.py", "mine\n")
        project.put("book/ch.md", target("a.py", "55555\n"))

    def mend():
        (tmp_path / "a.py").unlink()
        project.put("book/ch.md", target("a.py", "666666\n"))

    run = watch(
        project,
        at_rest(
            [
                put(target("a.py", "22\n")),
                lambda: None,
                put("```"),
                put(target("a.py", "<<none>>\n")),
                put(target("a.py", "333\n") + "\n"),
                lambda: shutil.rmtree(tmp_path / "book"),
                put(b"\xff"),
                put(target("a.py", "4444\n")),
                spoil,
                mend,
                lambda: (full.start(), put(target("a.py", "7777777\n"))()),
                lambda: (full.stop(), put(target("a.py", "88888888\n"))()),
                lambda: (tmp_path / "book" / "ch.md").unlink(),
                put(target("a.py", "999999999\n"), "other.md"),
                put(target("b.py", "0\n"), "third.md"),
            ]
        ),
    )
    contents = [files["a.py"] for files in made]
    assert contents == [f"{str(k) * k}\n" for k in (1, 2, 2, 2, 3, 3, 4, 6, 6, 8, 9)]
    assert project.made() == {"a.py": "999999999\n", "b.py": "0\n"}
    for said in [
        "fence is not closed",
        "chunk 'none' is undefined",
        "is not UTF-8",
        "edited by hand",
        "No space left on device",
        "there is no book",
        "no chapter",
    ]:
        assert said in run.err
    assert run.out.count("watching book; Ctrl-C ends") == 15


def test_a_watcher_waits_until_a_save_is_whole(tmp_path):
    project = Project(tmp_path, {"a.md": target("a.py", "1\n"), "b.md": target("b.py", "1\n")})
    chapter = tmp_path / "book/a.md"
    steps = [
        lambda: chapter.write_text(""),
        lambda: project.put("book/a.md", target("a.py", "22\n")),
        lambda: None,
        lambda: chapter.rename(tmp_path / "a.bak"),
        lambda: project.put("book/a.md", target("a.py", "333\n")),
        lambda: None,
        lambda: None,
    ]

    run = watch(project, steps)
    assert project.made() == {"a.py": "333\n", "b.py": "1\n", "a.bak": target("a.py", "22\n")}
    assert run.out.count("tangled 2 chapters into 2 files") == 3
    assert "removed" not in run.out


def test_a_watcher_does_nothing_when_nothing_changed(tmp_path):
    project = Project(tmp_path, target("a.py", "1\n"))
    run = watch(project, [lambda: None] * 20)
    assert run.out.count("tangled") == 1


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_a_watcher_in_a_process_of_its_own(number, status, tmp_path):
    project = Project(tmp_path, target("a.py", "1\n"))
    with subprocess.Popen(
        [sys.executable, tangle.__file__, "--watch", "--bare"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # ignored by a job in the background
    ) as watcher:
        try:
            assert b"tangled 1 chapter" in watcher.stdout.readline()
            assert b"watching book" in watcher.stdout.readline()
            project.put("book/ch.md", target("a.py", "22\n"))
            assert b"1 written" in watcher.stdout.readline()
            watcher.send_signal(number)
            assert watcher.wait(timeout=60) == status
            assert watcher.stderr.read() == b""
        finally:
            watcher.kill()
    assert project.made() == {"a.py": "22\n"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--check", "--watch"],
        ["--check", "--force"],
        ["--nothing"],
        ["where", "--check"],
        ["-o"],
        ["-o", ""],
    ],
    ids=" ".join,
)
def test_wrong_use_is_told_and_writes_nothing(arguments, tmp_path):
    project = Project(tmp_path, target("a.py", "x\n"))
    before = project.snapshot()
    run = project.run(*arguments)
    assert run.status == 2
    assert "usage:" in run.err
    assert project.snapshot() == before


@pytest.mark.parametrize("book", ["nowhere", "empty", "book/ch.txt"])
def test_a_book_that_is_not_there_is_told(book, tmp_path):
    project = Project(tmp_path)
    project.put("book/ch.txt", target("a.py", "x\n"))
    (tmp_path / "empty").mkdir()
    run = project.run(book, "-o", "out")
    assert run.status == 1
    assert "book" in run.err or "chapter" in run.err
    assert not (tmp_path / "out").exists()


KEPT = "left alone: {}, made from {}, not read by this run\n"


def test_what_a_run_did_not_see_is_not_deleted(tmp_path):
    book = {
        "one/a.md": target("a.py", "x\n"),
        "sub/b.md": target("b.txt", "y\n") + target("c.json", "{}\n"),
    }
    project = Project(tmp_path, book)
    made = project.tangle("--bare")
    chapter = tmp_path / "book/sub/b.md"

    def keeps(*arguments):
        run = project.run(*arguments, "--bare")
        assert run.status == 0
        assert run.err == KEPT.format("b.txt, c.json", "book/sub/b.md")
        assert project.made() == made
        return run

    for part in ("book/one", "book/one/a.md"):
        assert "2 of other chapters left alone" in keeps(part).out
        assert keeps(part, "--check").out == "1 file fresh\n"
    chapter.rename(tmp_path / "book/b.bak")
    keeps("book/one/a.md")  # it may have another name now
    before = project.snapshot()
    (tmp_path / "book/c.md").symlink_to("nowhere")
    assert "book/c.md:1: cannot be read" in project.run("--bare").err
    (tmp_path / "book/c.md").unlink()
    really_list = os.scandir

    def scandir(path):
        if os.fspath(path).endswith("sub"):
            raise PermissionError(13, "Permission denied", path)
        return really_list(path)

    with mock.patch("os.scandir", scandir):
        assert project.run("--bare").err.startswith("tangle: book/sub: Permission denied")
    assert project.snapshot() == before
    assert project.tangle("--bare") == {"a.py": made["a.py"]}
    project.put("elsewhere.md", target("d.py", "z\n"))
    (tmp_path / "book/d.md").symlink_to("../elsewhere.md")
    project.run("--bare")
    assert (tmp_path / "d.py").exists()
    (tmp_path / "book/d.md").unlink()  # the link was the chapter
    project.run("--bare")
    assert not (tmp_path / "d.py").exists()


@pytest.mark.parametrize("again", ["book", "./book", "book/a.md", "link", "link/a.md", "a.md"])
def test_a_chapter_that_is_named_twice_is_read_once(again, tmp_path):
    project = Project(tmp_path, {"a.md": target("a.py", "x\n"), "b.md": target("b.py", "y\n")})
    (tmp_path / "link").symlink_to("book")
    (tmp_path / "a.md").symlink_to("book/a.md")
    assert project.run("--bare", "book", again).out.startswith("tangled 2 chapters into 2 files")
    assert project.text("a.py") == "x\n"


def test_a_file_of_several_chapters_is_left_alone_by_a_run_over_one(tmp_path):
    book = {name: target("a.txt", f"{name}\n") for name in ("a.md", "b.md")}
    project = Project(tmp_path, book)
    made = project.tangle()
    run = project.run("book/a.md")
    assert (run.status, project.made()) == (0, made)
    assert run.err == KEPT.format("a.txt", "book/b.md")
    (tmp_path / "book").rename(tmp_path / "docs")  # a book that moves takes its files along
    project.put("docs/b.md", target("a.txt", "c\n"))
    assert project.run("docs").status == 0
    assert project.text("a.txt") == "a.md\nc\n"


def test_a_record_without_chapters_deletes_nothing(tmp_path):
    project = two_files(tmp_path)
    record = project.text(".tangle.json")
    project.put(".tangle.json", record.replace(" from book/ch.md", ""))
    project.put("book/ch.md", target("a.py", "x\n"))
    run = project.run("--bare")
    assert run.err == KEPT.format("p/b.py", "chapters that the record does not name")
    assert project.text("p/b.py") == "y\n"
    (tmp_path / "p/b.py").unlink()
    assert project.tangle("--bare") == {"a.py": "x\n"}


@pytest.mark.parametrize("name", ['q"b.md', "back\\s.md", "a, b.md", "größe from x.md"])
def test_the_record_names_any_chapter(name, tmp_path):
    project = Project(tmp_path, {name: target("a.py", "x\n"), "z.md": target("z.py", "z\n")})
    project.tangle()
    assert list(json.loads(project.text(".tangle.json"))) == ["a.py", "z.py"]
    assert project.text(".tangle.json").count("\n") == 4  # a line a file, for git
    (tmp_path / "book" / name).unlink()
    project.run()
    assert not (tmp_path / "a.py").exists()


def test_another_root_is_made_and_kept_apart(tmp_path):
    project = Project(tmp_path, target("p/a.py", "x\n"))
    for root in ("out", "deep/er/out", str(tmp_path / "absolute")):
        assert project.run("-o", root, "--bare").status == 0
        assert project.run("-o", root, "--bare", "--check").status == 0
        assert (tmp_path / root / "p" / "a.py").read_text() == "x\n"
        assert (tmp_path / root / ".tangle.json").exists()
    assert not (tmp_path / ".tangle.json").exists()
    project.put("file", "mine\n")
    run = project.run("-o", "file")
    assert run.status == 1
    assert project.text("file") == "mine\n"


def test_the_list_shows_targets_with_their_chunks(tmp_path):
    book = block("{#main file=a.py}", "<<one>>\n<<two>>\n") + chunk("one", "<<two>>\n")
    book += chunk("two", "x\n") + target("b.py", "y\n") + block("diff {patch=one}", "-<<two>>\n")
    run = Project(tmp_path, book).run("--list")
    assert run.status == 0
    assert [line.split() for line in run.out.splitlines()] == [
        ["a.py"],
        ["main", "book/ch.md:1"],
        ["one", "book/ch.md:6"],
        ["two", "book/ch.md:10"],
        ["b.py"],
        ["(nameless)", "book/ch.md:14"],
        ["(no", "file)"],
        ["patch", "of", "one", "book/ch.md:18"],
    ]


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
@pytest.mark.parametrize("arguments", [["--check"], ["--list"], ["where", "größe.py:2"], []])
def test_no_terminal_is_too_poor(encoding, arguments, tmp_path):
    project = Project(tmp_path, {"größe.md": target("größe.py", "数 = '\u2028'\n")})
    project.put("a", "")
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = process(tmp_path, "-S", tangle.__file__, *arguments, env=environment)
    assert done.stderr == b""
    assert done.returncode == (1 if arguments == ["--check"] else 0)


def test_streams_that_are_closed(tmp_path):
    Project(tmp_path, target("a.py", "x\n"))
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        for verb in ("", "--list", "where"):
            command = f'"$0" -S "$1" {verb} {closed}'
            shell = "-c", command, sys.executable, tangle.__file__
            done = process(tmp_path, *shell, executable="sh", stdin=subprocess.DEVNULL)
            assert b"Traceback" not in done.stderr
            assert done.returncode == 0


def test_a_reader_that_goes_away_early(tmp_path):
    Project(tmp_path, "".join(target(f"f{k}", "x\n") for k in range(3000)))
    command = '"$0" -S "$1" --list | head -n 1'
    done = process(tmp_path, "-c", command, sys.executable, tangle.__file__, executable="sh")
    assert (done.stdout, done.stderr) == (b"f0\n", b"")


def test_one_file_is_the_whole_tangler(tmp_path):
    root = Path(tangle.__file__).parent
    made = process(root, "tangler", f"PYTHON={sys.executable}", executable="make")
    assert made.returncode == 0, made.stderr
    shutil.copy(root / "build/tangle.pyz", tmp_path)
    project = Project(tmp_path / "p", target("a.py", "x\n"))
    packed = "-I", tmp_path / "tangle.pyz"
    process(project.root, *packed, "--bare", check=True)
    assert project.made() == {"a.py": "x\n"}
    project.put("a.py", "y\n")
    process(project.root, *packed, "stitch", "--bare", check=True)
    assert project.text("book/ch.md") == target("a.py", "y\n")
