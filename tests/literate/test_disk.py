# Tangled from book/workshop/tangle-tests-writing.md
"""What a run does to the disk: the record, edited and stale files, modes, runs that are killed or fail."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import literate.book
import literate.disk
import tangle
from tests.literate.project import Project, block, errors, refused, restore, target, two_files

HERE = Path(__file__).resolve().parent


def test_only_what_changed_is_touched(tmp_path):
    project = two_files(tmp_path)

    def state():
        found = {path: path.stat() for path in [tmp_path, *sorted(tmp_path.rglob("*"))]}
        return {path: (status.st_ino, status.st_mtime_ns) for path, status in found.items()}

    before = state()
    assert project.run("--bare").status == 0
    assert project.run("--bare", "--check").status == 0
    assert project.run("--list").status == 0
    assert state() == before
    project.put("book/ch.md", project.text("book/ch.md").replace("y\n", "z\n"))
    assert project.tangle("--bare") == {"a.py": "x\n", "p/b.py": "z\n"}
    assert state()[tmp_path / "a.py"] == before[tmp_path / "a.py"]
    assert state()[tmp_path / "p/b.py"] != before[tmp_path / "p/b.py"]


@pytest.mark.parametrize("lost", [None, "", "{", "null\n", "[1, 2]", "\0\0", "\ufeff{}", "{}" * 9])
def test_a_lost_or_damaged_record_costs_no_file(lost, tmp_path):
    project = two_files(tmp_path)
    whole = project.text(".tangle.json")
    project.put("p/b.py", "edited\n")
    if lost is None:
        (tmp_path / ".tangle.json").unlink()
    else:
        project.put(".tangle.json", lost)
    told = refused(project, "--bare")
    assert "p/b.py: not written by this book, as far as its record knows" in told
    assert "-y\n+edited\n" in told
    assert "The record does not know all of them" in told  # so nobody is sent to undo a chapter
    assert "carries edits into the chapters" not in told
    project.put("p/b.py", "y\n")
    assert project.tangle("--bare") == {"a.py": "x\n", "p/b.py": "y\n"}
    assert project.text(".tangle.json") == whole


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_record_with_conflict_marks_knows_both_sides(ends, tmp_path):
    project = two_files(tmp_path)
    ours = project.text(".tangle.json").splitlines()
    project.put("book/ch.md", target("a.py", "theirs\n") + target("c.py", "z\n"))
    project.tangle("--bare")
    theirs = project.text(".tangle.json").splitlines()
    merged = ["{", "<<<<<<< HEAD", *ours[1:-1], "=======", *theirs[1:-1], ">>>>>>> theirs", "}", ""]

    for content in ("x\n", "theirs\n"):
        for book in ("x\n", "theirs\n", "third\n"):
            project.put(".tangle.json", ends.join(merged))
            project.put("a.py", content)
            project.put("p/b.py", "y\n")
            project.put("book/ch.md", target("a.py", book))
            assert project.run("--bare", "--check").status == 1
            assert project.tangle("--bare") == {"a.py": book}
    project.put(".tangle.json", ends.join(merged))
    project.put("a.py", "edited\n")
    assert project.run("--bare").status == 1
    assert project.text("a.py") == "edited\n"


JUNK = [
    "junk",
    '"a.py": "not a hash",',
    '"a.py"',
    "<<<<<<< HEAD",
    '"\\": "00",',
    '"a\0b": "00"',
    '"\ufffd": "00"',
    '"a.py": "00" mode=999',
    '"p/../a.py": "00",',
    '"p//b.py": "00",',
]


@pytest.mark.parametrize("line", JUNK, ids=map(ascii, JUNK))
def test_a_line_of_junk_is_gone_after_one_run(line, tmp_path):
    project = two_files(tmp_path)
    whole = project.text(".tangle.json")
    project.put(".tangle.json", whole.replace("{\n", f"{{\n{line}\n"))
    assert project.run("--bare", "--check").status == 1
    assert project.run("--bare").status == 0
    assert project.text(".tangle.json") == whole
    assert project.tangle("--bare") == {"a.py": "x\n", "p/b.py": "y\n"}


HOSTILE = "../mine p/../../mine OUTSIDE/mine .git/config book/mine.md book/sub/../mine.md".split()
HOSTILE += ["", *"link/mine link folder . p\\mine C:mine .tangle.json".split()]


@pytest.mark.parametrize("path", HOSTILE)
def test_a_hostile_record_deletes_nothing(path, tmp_path):
    project = two_files(tmp_path / "root")
    for place in ("../mine", ".git/config", "book/mine.md", "../other/mine", "folder/mine"):
        project.put(place, "mine\n")
    (tmp_path / "root" / "link").symlink_to("../other")
    hashed = literate.disk.digest(b"mine\n")
    entry = path.replace("OUTSIDE", str(tmp_path)).replace("\\", "\\\\")
    record = project.text(".tangle.json").replace("{\n", f'{{\n"{entry}": "{hashed}",\n')
    project.put(".tangle.json", record)
    assert project.run("--bare").status == 0
    for place in ("../mine", ".git/config", "book/mine.md", "../other/mine", "folder/mine"):
        assert project.text(place) == "mine\n"
    assert project.tangle("--bare")["a.py"] == "x\n"


@pytest.mark.parametrize("header", [["--bare"], []], ids=["bare", "header"])
def test_check_shows_what_is_wrong_and_writes_nothing(header, tmp_path):
    book = "".join(
        target(f"{name}.py", "x\n") for name in ["same", "stale", "edited", "gone", "no"]
    )
    Project(tmp_path / "ours", book).tangle(*header)
    shutil.copytree(tmp_path / "ours", tmp_path / "clone", copy_function=shutil.copyfile)
    project = Project(tmp_path / "clone")
    project.put("edited.py", "mine\n")
    (project.root / "gone.py").unlink()
    changed = book.replace("stale.py}\nx", "stale.py}\ny").replace(target("no.py", "x\n"), "")
    project.put("book/ch.md", changed + target("new.py", "x\n"))
    told = refused(project, "--check", *header)
    assert re.findall(r"^(\w+)\.py: ([\w ]+)", told, re.MULTILINE) == [
        ("stale", "stale"),
        ("gone", "missing"),
        ("new", "missing"),
        ("no", "left over"),
        ("edited", "edited by hand"),
    ]
    assert "-x\n+y\n" in told
    assert "+mine\n" in told


def test_an_edited_file_stops_the_whole_run(tmp_path):
    project = two_files(tmp_path)
    project.put("a.py", "mine\n")
    project.put("book/ch.md", project.text("book/ch.md").replace("y\n", "z\n"))
    told = refused(project, "--bare")
    assert "a.py: edited by hand" in told
    assert "-x\n+mine\n" in told
    assert "1 file would be overwritten; nothing written" in told
    assert project.tangle("--bare", "--force") == {"a.py": "x\n", "p/b.py": "z\n"}


def test_a_file_that_was_there_before_the_book_is_not_overwritten(tmp_path):
    project = Project(tmp_path, target("a.py", "x\n"))
    project.put("a.py", b"mine\n\xff\0")
    assert "a.py: not written by this book" in refused(project)
    assert project.tangle("--force") == {"a.py": "# Tangled from book/ch.md\nx\n"}


def test_line_ends_that_git_made_are_told(tmp_path):
    project = two_files(tmp_path)
    project.put("a.py", "x\r\n")
    project.put("p/b.py", "mine\r\n")
    for arguments in ([], ["--check"], ["stitch"]):
        told = refused(project, *arguments, "--bare")
        assert "a.py: edited by hand, with CRLF: " in told or "a.py: has CRLF line ends" in told
        assert "* text=auto eol=lf" in told
        assert "-x\n" not in told
    assert project.tangle("--bare", "--force") == {"a.py": "x\n", "p/b.py": "y\n"}


@pytest.mark.parametrize("options", [[], ["--force"]], ids=["stale", "forced"])
@pytest.mark.parametrize("path", ["a.py", "p/b.py", "c.py"], ids=["written", "deleted", "new"])
def test_a_file_that_is_saved_while_a_run_writes_keeps_what_was_saved(options, path, tmp_path):
    project = two_files(tmp_path)
    project.put("book/ch.md", target("a.py", "new\n") + target("c.py", "z\n"))
    if options:
        project.put("a.py", "mine\n")
    really = os.replace

    def save(staged, place):
        if place.endswith(literate.book.RECORD):  # the plan has been made, and no file has changed
            project.put(path, "saved\n")
        really(staged, place)

    with mock.patch("os.replace", save):
        run = project.run("--bare", *options)
    assert run.status == 1
    assert f"{path}: was saved by another program while this one ran" in run.err
    assert project.text(path) == "saved\n"
    assert project.run("--bare").status == 1  # by now it is an edited file like any other
    assert project.tangle("--bare", "--force") == {"a.py": "new\n", "c.py": "z\n"}


def test_an_error_names_the_file_and_not_the_one_that_was_to_take_its_place(tmp_path):
    project = two_files(tmp_path)
    project.put("book/ch.md", target("a.py", "new\n") + target("p/b.py", "y\n"))

    def replace(staged, place):
        raise PermissionError(13, "Permission denied", staged, None, place)

    with mock.patch("os.replace", replace):
        assert project.run("--bare").err.startswith("tangle: ./.tangle.json: Permission denied")
    really_replace = os.replace

    def only_targets(staged, place):
        (replace if place.endswith("a.py") else really_replace)(staged, place)

    with mock.patch("os.replace", only_targets):
        assert project.run("--bare").err.startswith("tangle: ./a.py: Permission denied")
    with mock.patch(
        "os.mkdir", side_effect=PermissionError(13, "Permission denied", "./.tangle-tmp")
    ):
        assert project.run("--bare").err.startswith("tangle: .: Permission denied")


@pytest.mark.parametrize(
    "path", ["a.py", ".ci/run", "p/q/r/a.py", ".a", "p/__init__.py", "a b", "é"]
)
def test_a_target_that_leaves_the_book_is_deleted(path, tmp_path):
    quoted = block(f'text {{file="{path}"}}', "x\n")
    project = Project(tmp_path, quoted + target("stays.py", "y\n"))
    project.tangle("--bare")
    project.put("book/ch.md", target("stays.py", "y\n"))
    assert f"{path}: left over" in project.run("--bare", "--check").out
    assert "1 removed" in project.run("--bare").out
    assert project.tangle("--bare") == {"stays.py": "y\n"}
    assert {p.name for p in tmp_path.iterdir()} == {"book", "stays.py", ".tangle.json"}


def test_a_folder_goes_with_its_last_file_and_its_bytecode(tmp_path):
    project = Project(tmp_path, target("p/q/a.py", "x\n") + target("p/b.py", "y\n"))
    project.tangle()
    for cache in ("p/q/__pycache__/a.cpython-311.pyc", "p/__pycache__/b.cpython-311.opt-1.pyc"):
        project.put(cache, "bytecode")
    project.put("book/ch.md", target("p/b.py", "y\n"))
    project.tangle()
    assert not (tmp_path / "p" / "q").exists()
    assert (tmp_path / "p" / "__pycache__").exists()
    project.put("p/mine.txt", "mine\n")
    project.put("book/ch.md", target("c.py", "y\n"))
    project.tangle("--bare")
    assert not (tmp_path / "p" / "b.py").exists()
    assert project.text("p/mine.txt") == "mine\n"


def test_a_full_disk_is_told_with_the_file_that_has_no_room(tmp_path):
    project = two_files(tmp_path)
    project.put("book/ch.md", project.text("book/ch.md").replace("\ny\n", "\nz\n"))
    for path in ("p/b.py", ".tangle.json"):
        with mock.patch("os.write", side_effect=OSError(errno.ENOSPC, "no room")):
            assert project.run("--bare").err.startswith(f"tangle: {path}: no room; ")
        project.put("book/ch.md", target("a.py", "x\n"))


def test_an_edited_file_that_leaves_the_book_stays(tmp_path):
    project = two_files(tmp_path)
    project.put("p/b.py", "mine\n")
    project.put("book/ch.md", target("a.py", "x\n"))
    for arguments in ([], ["--check"]):
        told = refused(project, "--bare", *arguments)
        assert "p/b.py: edited by hand, and no longer made by the book" in told
        assert "No chapter makes them now: move them away" in told
        assert "stitch" not in told
    (tmp_path / "p" / "b.py").rename(tmp_path / "mine.py")
    project.tangle("--bare")
    assert project.made() == {"a.py": "x\n", "mine.py": "mine\n"}


def test_a_generated_file_that_became_a_chapter_stays(tmp_path):
    project = Project(tmp_path, target("extra/x.md", "# X\n") + target("a.py", "x\n"))
    project.tangle("--bare")
    project.put("book/ch.md", target("a.py", "x\n"))
    assert project.run("--bare", "book", "extra").status == 0
    assert project.text("extra/x.md") == "# X\n"


def test_a_file_that_cannot_be_read_is_not_overwritten(tmp_path):
    project = two_files(tmp_path)
    project.put("a.py", "mine\n")
    really_open = open

    def no_permission(path, *arguments, **options):
        if os.fspath(path).endswith("a.py"):
            raise PermissionError(13, "Permission denied", path)
        return really_open(path, *arguments, **options)

    with mock.patch("builtins.open", no_permission):
        run = project.run("--bare")
    assert run.status == 1
    assert "Permission denied" in run.err
    assert project.text("a.py") == "mine\n"


@pytest.mark.parametrize(("mask", "bits"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_new_files_follow_the_umask(mask, bits, tmp_path):
    before = os.umask(mask)
    try:
        project = Project(tmp_path, target("p/a.py", "x\n") + block("{file=b mode=751}", "y\n"))
        project.tangle()
        found = project.snapshot()
        assert found["p/a.py"][1] == found[".tangle.json"][1] == bits
        assert found["p"][1] == 0o777 & ~mask
        assert found["b"][1] == 0o751
        assert os.umask(mask) == mask  # left as it was
    finally:
        os.umask(before)


def test_permissions_that_a_person_gave_stay(tmp_path):
    project = two_files(tmp_path)
    (tmp_path / "a.py").chmod(0o700)
    project.put("book/ch.md", project.text("book/ch.md").replace("x\n", "new\n"))
    assert project.tangle("--bare")["a.py"] == "new\n"
    assert project.snapshot()["a.py"][1] == 0o700
    project.put("a.py", "mine\n")
    assert project.tangle("--bare", "--force")["a.py"] == "new\n"
    assert project.snapshot()["a.py"][1] == 0o700


def test_a_mode_is_kept_in_step(tmp_path):
    project = Project(tmp_path, block("{file=a mode=750}", "x\n"))
    project.tangle()
    for spoil in (lambda file: file.chmod(0o644), lambda file: file.unlink()):
        spoil(tmp_path / "a")
        assert project.run("--check").status == 1
        project.tangle()
        assert project.snapshot()["a"] == (b"x\n", 0o750)
    project.put("a", "mine\n")
    project.tangle("--force")
    assert project.snapshot()["a"] == (b"x\n", 0o750)
    (tmp_path / ".tangle.json").unlink()
    (tmp_path / "a").chmod(0o644)
    project.tangle()
    assert project.snapshot()["a"] == (b"x\n", 0o750)


FLIPS = [
    (["p/a.py"], ["p"]),
    (["p/q/r/a.py", "p/q/b.py"], ["p"]),
    (["p/q/a.py", "p/b.py"], ["p/q", "p/b.py/c"]),
    (["p"], ["p/q/a.py"]),
    (["p", "q/a"], ["p/a", "q"]),
    (["a", "b/c"], ["a/d", "b"]),
]


@pytest.mark.parametrize(("old", "new"), FLIPS)
def test_a_path_may_turn_from_file_to_folder_and_back(old, new, tmp_path):
    project = Project(tmp_path)
    for paths in (old, new, old):
        project.put("book/ch.md", "".join(target(path, "x\n") for path in paths))
        assert project.tangle("--bare").keys() == set(paths)


def test_a_folder_with_something_else_in_it_does_not_turn_into_a_file(tmp_path):
    for mine in ("p/mine.txt", "p/q/mine.py", "p/__pycache__/mine.txt"):
        project = Project(tmp_path / mine.replace("/", "-"), target("p/a.py", "x\n"))
        project.tangle()
        project.put(mine, "mine\n")
        project.put("book/ch.md", target("p", "x\n"))
        (told,) = errors(project)
        assert told.startswith("book/ch.md:1: target 'p' is a folder on disk")
    (tmp_path / "p-mine.txt" / "p" / "mine.txt").unlink()
    (tmp_path / "p-mine.txt" / "p" / "link").symlink_to(tmp_path)
    (told,) = errors(Project(tmp_path / "p-mine.txt", target("p", "x\n")))
    assert told.startswith("book/ch.md:1: target 'p' is a folder on disk")


@pytest.mark.parametrize("inside", ["p/q/", "p/__pycache__/a.cpython-311.pyc"])
def test_a_folder_with_nothing_in_it_gives_way_to_a_file(inside, tmp_path):
    project = Project(tmp_path, target("p", "y\n"))
    (tmp_path / inside).parent.mkdir(parents=True)
    if inside[-1] != "/":
        project.put(inside, "bytecode")
    assert project.tangle("--bare") == {"p": "y\n"}


def targets(bodies):
    return "".join(target(path, body) for path, body in bodies.items())


FLIPPED = {"keep.py": "k\n", "change.py": "new\n", "run.sh mode=755": "echo\n"}
FLIPPED |= {
    "fresh/deep/n.py": "n\n",
    "flip": "f2\n",
    "flop/a.py": "f2\n",
    "mode.sh mode=755": "y\n",
}
OLD = {"keep.py": "k\n", "change.py": "old\n", "run.sh": "echo\n", "gone/deep/g.py": "g\n"}
OLD = targets(OLD | {"flip/a.py": "f\n", "flop": "f\n", "mode.sh mode=755": "x\n"})
NEW = targets(FLIPPED)


@pytest.fixture
def changed(tmp_path):
    """A project tangled from OLD whose chapter is now NEW; what it was then, is now, and will be."""
    project = Project(tmp_path / "new", NEW)
    project.tangle()
    new = project.snapshot()
    project = Project(tmp_path / "p", OLD)
    project.tangle()
    (project.root / "change.py").chmod(0o640)
    old = project.snapshot()
    project.put("book/ch.md", NEW)
    new["change.py"] = new["change.py"][0], 0o640
    return project, old, project.snapshot(), new


def check_old_or_new(left, old, new, number):
    for path in (old.keys() | new.keys()) - {literate.book.RECORD, "book/ch.md"}:
        was, will = old.get(path), new.get(path)
        between = None if path in ("flip", "flop") else was
        assert left.get(path) in (was, between, will), (number, path)


def test_a_killed_run_leaves_old_or_new_files_and_the_next_run_ends_well(changed, faulty_disk):
    project, old, start, new = changed
    steps = faulty_disk(project, "count", 0).seen
    assert steps > 30
    assert project.snapshot() == new
    for number in range(1, steps + 1):
        restore(project, start)
        assert faulty_disk(project, "kill", number).status == -signal.SIGKILL
        left = project.snapshot()
        check_old_or_new(left, old, new, number)

        assert project.run().status == 0
        assert project.snapshot() == new, number

        restore(project, left)  # or the author takes the change back
        project.put("book/ch.md", OLD)
        assert project.run().status == 0
        contents = {path: content for path, (content, _) in project.snapshot().items()}
        assert contents == {path: content for path, (content, _) in old.items()}


def test_a_run_that_is_killed_twice_recovers(changed, faulty_disk):
    project, _, start, new = changed
    steps = faulty_disk(project, "count", 0).seen
    for number in range(1, steps + 1, 7):
        for again in range(2, steps, 9):
            restore(project, start)
            faulty_disk(project, "kill", number)
            faulty_disk(project, "kill", again)
            assert project.run().status == 0
            assert project.snapshot() == new, (number, again)


@pytest.mark.parametrize("mode", ["fail", "full"])
def test_a_run_that_fails_leaves_old_or_new_files_and_the_next_run_goes_on(
    mode, changed, faulty_disk
):
    project, old, start, new = changed
    steps = faulty_disk(project, "count", 0).seen
    made, failed = project.made(), 0
    for number in range(1, steps + 1):
        restore(project, start)
        answer = faulty_disk(project, mode, number)
        if answer.status:
            failed += 1
            assert answer.status == 1
            assert "this change fails" in answer.err or "this disk is full" in answer.err
            left = project.snapshot()
            check_old_or_new(left, old, new, number)
            if ".tangle-tmp" in answer.err or number < 10:
                assert left == start
        assert project.run().status == 0
        if answer.status:
            assert project.snapshot() == new, number
        else:  # a folder that could not be removed may be left, with nothing in it
            assert project.tangle() == made
    assert failed > steps // 3


def test_an_edited_file_survives_any_failure_of_a_forced_run(tmp_path, faulty_disk):
    project = two_files(tmp_path)
    project.put("a.py", "mine\n")
    (tmp_path / "a.py").chmod(0o755)
    start = project.snapshot()
    steps = faulty_disk(project, "count", 0, "--bare", "--force").seen
    for number in range(1, steps + 1):
        restore(project, start)
        faulty_disk(project, "fail", number, "--bare", "--force")
        assert project.snapshot()["a.py"] in (start["a.py"], (b"x\n", 0o755)), number


def test_runs_at_the_same_time_do_not_mix(tmp_path):
    paths = [f"p{k % 5}/f{k}.py" for k in range(60)]
    project = Project(tmp_path)
    command = [sys.executable, "-S", tangle.__file__, "--bare"]
    for content in ("one\n", "two\n", "three\n"):
        project.put("book/ch.md", "".join(target(path, content * 50) for path in paths))
        runs = [
            subprocess.Popen(
                command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            for _ in range(4)
        ]
        assert [run.wait(timeout=60) for run in runs] == [0] * 4
        assert project.tangle("--bare") == dict.fromkeys(paths, content * 50)
    assert {path.name for path in tmp_path.iterdir()} == {
        ".tangle.json",
        "book",
        *(path[:2] for path in paths),
    }
