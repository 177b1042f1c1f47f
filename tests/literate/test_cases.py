# Tangled from book/workshop/tangle-tests.md
"""The cases of cases.json, each with its steps."""

import contextlib
import json
import os
import re
import stat
from pathlib import Path

import pytest

import literate.read
import tangle
from tests.literate.project import Project, line_map, process, refused

HERE = Path(__file__).resolve().parent
CASES = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))


SAYS = {
    "same-name-two-chapters": [r"book/b\.md:5: name 'imports', defined at book/a\.md:5, is ext"],
    "cycle": [r"book/ch\.md:10: cycle: p \(book/ch\.md:6\) -> q \(book/ch\.md:10\) -> p"],
    "missing-refs": [
        r"book/ch\.md:3: chunk 'setup' is undefined",
        r"book/ch\.md:4: chunk 'finnish' is undefined; did you mean 'finish'\?",
    ],
    "escape-path": [r"book/ch\.md:1: target '\.\./escaped_case\.py' is outside the output folder"],
    "overwrite-source": [r"book/ch\.md:1: target 'book/ch\.md' is a source file"],
    "unclosed": [r"book/ch\.md:3: fence is not closed"],
}


def stale(project, expected):
    assert project.tangle("--bare") == {"pkg/old.py": "x = 1\n"}
    project.put("book/ch.md", project.text("book/ch.md").replace("old", "new"))
    assert project.tangle("--bare") == expected
    project.put("pkg/new.py", "x = 2\n")
    project.put("book/ch.md", project.text("book/ch.md").replace("pkg/new", "other/newer"))
    told = refused(project, "--bare")
    assert "pkg/new.py: edited by hand, and no longer made by the book" in told
    assert project.tangle("--bare", "--force") == {"other/newer.py": "x = 1\n"}
    assert not (project.root / "pkg").exists()


def deleted(project, expected):
    assert project.tangle("--bare") == expected
    (project.root / "a.py").unlink()
    assert project.tangle("--bare") == expected


def mode(project, expected):
    file = project.root / "run.sh"
    before = os.umask(0o022)
    try:
        assert project.tangle("--bare") == expected
        assert stat.S_IMODE(file.stat().st_mode) == 0o644
        opener = project.text("book/ch.md")
        project.put("book/ch.md", opener.replace("run.sh}", "run.sh mode=0755}"))
        assert project.run("--bare", "--check").status == 1
        assert project.tangle("--bare") == expected
        assert stat.S_IMODE(file.stat().st_mode) == 0o755
        project.put("book/ch.md", opener)
        assert project.tangle("--bare") == expected
        assert stat.S_IMODE(file.stat().st_mode) == 0o644
    finally:
        os.umask(before)


def unedited(project, expected):
    assert project.tangle("--bare") == expected
    before = project.snapshot()
    assert project.run("stitch", "--bare").status == 0
    assert project.snapshot() == before


def shared(project, expected):
    assert project.tangle("--bare") == expected
    project.put("a.py", "z = 1\n")
    assert project.run("stitch", "--bare").status == 0
    assert project.made() == {"a.py": "z = 1\n", "b.py": "z = 1\n"}
    assert "#s}\nz = 1\n" in project.text("book/ch.md")


def formatted(project, expected):
    assert project.tangle("--bare") == expected
    project.put("a.py", "def f():\n    return 1\n\n\ndef g():\n    return 2\n")
    told = refused(project, "--bare", "--check")
    assert "a.py: edited by hand" in told
    assert "stale" not in told
    assert "\n+\n+\n def g():\n" in told  # the blank lines, as a diff
    assert project.run("stitch", "--bare").status == 0
    assert project.made() == {"a.py": "def f():\n    return 1\n\n\ndef g():\n    return 2\n"}


def traced(project, expected):
    assert project.tangle("--bare") == expected
    lines = [("book/ch.md", line) for line in (4, 13, 14, 6, 7)]
    with contextlib.chdir(project.root):
        assert line_map(literate.read.read_book(), "a.py", bare=True) == lines
    done = process(project.root, "a.py", text=True)
    told = project.run("where", "--bare", stdin=done.stderr).out.splitlines()
    assert [line[line.index("[") :] for line in told if "[" in line] == [
        "[book/ch.md:7]",
        "[book/ch.md:14]",
    ]
    for number, (path, line) in enumerate(lines, 1):
        there = project.run("where", "--bare", f"a.py:{number}").out
        assert there.startswith(f"{path}:{line}")
        assert project.run("where", "--bare", f"{path}:{line}").out == f"a.py:{number}\n"


STEPS = {
    "stale": stale,
    "deleted-target": deleted,
    "mode": mode,
    "end-marker-in-code": unedited,
    "shared-chunk-edit": shared,
    "formatter": formatted,
    "error-lines": traced,
}


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_case_comes_out_as_it_says(case, tmp_path):
    project = Project(tmp_path, case["files"])
    if "error" in case:
        told = refused(project, "--bare")
        for pattern in SAYS[case["id"]]:
            assert re.search(f"^{pattern}", told, re.MULTILINE), told
        assert not (tmp_path.parent / "escaped_case.py").exists()
    elif case["id"] in STEPS:
        STEPS[case["id"]](project, case["expect"])
    else:
        assert project.tangle("--bare") == case["expect"]


def test_every_case_with_steps_has_them_run():
    assert {case["id"] for case in CASES if "steps" in case} <= STEPS.keys()
    assert {case["id"] for case in CASES if "error" in case} == SAYS.keys()
    assert len({case["id"] for case in CASES}) == 28


def test_the_program_runs_on_its_own(tmp_path):
    case = next(case for case in CASES if case["id"] == "blank-lines")
    project = Project(tmp_path, case["files"])

    def status(*arguments):
        done = process(tmp_path, "-I", "-S", tangle.__file__, *arguments)
        assert b"Traceback" not in done.stderr
        return done.returncode

    assert status("--bare", "--check") == 1
    assert status("--bare") == 0
    assert project.made() == case["expect"]
    assert status("--bare", "--check") == 0
    assert status("--help") == 0
    assert status("--no-such-option") == 2
    assert status("nowhere") == 1
