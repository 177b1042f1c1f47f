# Tangled from book/workshop/stitch-tests.md
"""Edits of generated files, carried back into their chapters or refused."""

import os
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path
from unittest import mock

import pytest

import literate.command
import literate.disk
import literate.patch
import literate.record
from tests.literate.project import Project, block, chunk, restore, target

HERE = Path(__file__).resolve().parent


NESTED = target("a.py", "def f():\n    <<body>>\n    return y\n")
CALL = target("a.py", "f(<<args>>) + 1\n")
LISTED = target("a.py", "<<c>>\n") + "1. Item.\n\n"
QUOTED = target("a.py", "<<c>>\n") + "> Text.\n>\n"


def two(first, second):
    return target("a.py", "<<one>>\n<<two>>\n") + chunk("one", first) + chunk("two", second)


def apart(first, second):
    return two(first, second).replace("one>>\n<<two", "one>>\n\n\n<<two")


def spaced(first, second):
    return two(first, second).replace("one>>\n<<two", "one>>\n\n<<two")


def quoted(prefix, opener, rows, fence="```"):
    lines = [fence + opener, *rows, fence]
    return "".join(f"{prefix}{line}".rstrip() + "\n" for line in lines) + "\n"


def item(*rows, fence="```"):
    lines = block("python {#c}", "".join(f"{row}\n" for row in rows), fence).splitlines()
    return LISTED + "".join(f"    {line}".rstrip() + "\n" for line in lines)


EDITS = {  # book, a.py after the edit, book after stitch
    "a line of the target": (
        target("a.py", "x\ny\nz\n"),
        "x\nnew\nz\n",
        target("a.py", "x\nnew\nz\n"),
    ),
    "a line added in front": (target("a.py", "x\n"), "new\nx\n", target("a.py", "new\nx\n")),
    "a line added behind": (target("a.py", "x\n"), "x\nnew\n", target("a.py", "x\nnew\n")),
    "lines removed": (target("a.py", "x\ny\nz\n"), "y\n", target("a.py", "y\n")),
    "all lines removed": (target("a.py", "x\ny\n"), "", target("a.py", "")),
    "a line in an empty file": (target("a.py", ""), "new\n", target("a.py", "new\n")),
    "everything replaced": (target("a.py", "x\ny\n"), "a\nb\nc\n", target("a.py", "a\nb\nc\n")),
    "lines moved": (target("a.py", "x\ny\nz\n"), "z\nx\ny\n", target("a.py", "z\nx\ny\n")),
    "a line of a chunk": (
        NESTED + chunk("body", "x = 1\ny = x\n"),
        "def f():\n    x = 2\n    y = x\n    return y\n",
        NESTED + chunk("body", "x = 2\ny = x\n"),
    ),
    "deeper lines in a chunk": (
        NESTED + chunk("body", "y = 1\n"),
        "def f():\n    if x:\n        y = 1\n\n    return y\n",
        NESTED.replace("body>>\n", "body>>\n\n") + chunk("body", "if x:\n    y = 1\n"),
    ),
    "lines of several blocks": (
        two("1\n2\n", "3\n4\n"),
        "1\ntwo\nthree\n4\n",
        two("1\ntwo\n", "three\n4\n"),
    ),
    "a line between two chunks": (two("1\n", "2\n"), "1\nnew\n2\n", two("1\nnew\n", "2\n")),
    "blank lines between two chunks": (two("1\n", "2\n"), "1\n\n\n2\n", apart("1\n", "2\n")),
    "blank lines between two chunks removed": (
        apart("1\n", "2\n"),
        "1\n\n2\n",
        target("a.py", "<<one>>\n\n<<two>>\n") + chunk("one", "1\n") + chunk("two", "2\n"),
    ),
    "the blank line between two references removed": (
        spaced("1\n", "2\n"),
        "1\n2\n",
        two("1\n", "2\n"),
    ),
    "the blank line between two references filled": (
        spaced("1\n", "2\n"),
        "1\nnew\n2\n",
        two("1\n", "2\n").replace("<<one>>\n", "<<one>>\nnew\n"),
    ),
    "a blank line beside the one between two references": (
        spaced("1\n", "2\n"),
        "1\n\n\n2\n",
        apart("1\n", "2\n"),
    ),
    "a function removed with its blank lines": (
        apart("def f():\n    x\n", "def g():\n    y\n"),
        "def g():\n    y\n",
        target("a.py", "<<one>>\n<<two>>\n") + chunk("one", "") + chunk("two", "def g():\n    y\n"),
    ),
    "the blank line behind a reference filled": (
        NESTED.replace("body>>\n", "body>>\n\n") + chunk("body", "x = 1\n"),
        "def f():\n    x = 1\n    # then\n    return y\n",
        NESTED.replace("body>>\n", "body>>\n    # then\n") + chunk("body", "x = 1\n"),
    ),
    "blank lines behind a changed line": (two("1\n", "2\n"), "one\n\n\n2\n", apart("one\n", "2\n")),
    "blank lines before a changed line": (two("1\n", "2\n"), "1\n\n\ntwo\n", apart("1\n", "two\n")),
    "blank lines between changed lines": (
        two("1\n", "2\n"),
        "one\n\n\ntwo\n",
        apart("one\n", "two\n"),
    ),
    "blank lines inside a chunk": (two("1\n2\n", "3\n"), "1\n\n2\n3\n", two("1\n\n2\n", "3\n")),
    "a continued chunk": (
        target("a.py", "<<c>>\n") + chunk("c", "1\n") + "Text.\n\n" + chunk("c", "2\n"),
        "one\ntwo\n",
        target("a.py", "<<c>>\n") + chunk("c", "one\n") + "Text.\n\n" + chunk("c", "two\n"),
    ),
    "the same edit wherever a chunk is used": (
        target("a.py", "<<c>>\n-\n    <<c>>\n") + chunk("c", "1\n"),
        "2\n-\n    2\n",
        target("a.py", "<<c>>\n-\n    <<c>>\n") + chunk("c", "2\n"),
    ),
    "in front of a reference inside a line": (
        CALL + chunk("args", "1\n"),
        "g(1) + 1\n",
        CALL.replace("f(", "g(") + chunk("args", "1\n"),
    ),
    "in front of a reference to an empty chunk": (
        target("a.py", "x<<hook>>\ny\n") + chunk("hook", ""),
        "new\ny\n",
        target("a.py", "new<<hook>>\ny\n") + chunk("hook", ""),
    ),
    "in front of a reference to a blank line": (
        CALL + chunk("args", "\n1\n"),
        "g(\n  1) + 1\n",
        CALL.replace("f(", "g(") + chunk("args", "\n1\n"),
    ),
    "on both sides of a reference to an empty chunk": (
        target("a.py", "x\n<<hook>>\ny\n") + chunk("hook", ""),
        "one\ntwo\n",
        target("a.py", "one\n<<hook>>\ntwo\n") + chunk("hook", ""),
    ),
    "behind a reference inside a line": (
        CALL + chunk("args", "1,\n2\n"),
        "f(1,\n  2) + 5\n",
        CALL.replace("+ 1", "+ 5") + chunk("args", "1,\n2\n"),
    ),
    "inside a reference inside a line": (
        CALL + chunk("args", "1\n"),
        "f(7) + 1\n",
        CALL + chunk("args", "7\n"),
    ),
    "a later line at a reference inside a line": (
        CALL + chunk("args", "1,\n2,\n3\n"),
        "f(1,\n  7,\n  3) + 1\n",
        CALL + chunk("args", "1,\n7,\n3\n"),
    ),
    "in a list": (
        item("1", "    2", ""),
        "new\n    2\n      new\n",
        item("new", "    2", "      new", ""),
    ),
    "in a quote": (
        QUOTED + quoted("> ", "python {#c}", ["1", "2"]),
        "1\n\n  2\n",
        QUOTED + quoted("> ", "python {#c}", ["1", "", "  2"]),
    ),
    "tabs": (
        target("a.py", "all:\n\t<<c>>\n") + chunk("c", "echo 1\n"),
        "all:\n\techo 2\n\t\techo 3\n",
        target("a.py", "all:\n\t<<c>>\n") + chunk("c", "echo 2\n\techo 3\n"),
    ),
    "trailing white space": (target("a.py", "x\n"), "x  \n", target("a.py", "x  \n")),
    "no ASCII": (target("a.py", "x\n"), "数\u2028é\x85\n", target("a.py", "数\u2028é\x85\n")),
    "what looks like a mark of a chapter": (
        target("a.py", "x\n"),
        "<!--\n# Title\n> q\n- l\n\\\n",
        target("a.py", "<!--\n# Title\n> q\n- l\n\\\n"),
    ),
}


@pytest.mark.parametrize(("book", "edited", "expected"), EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "bom"])
def test_an_edit_goes_to_its_block(book, edited, expected, ends, mark, tmp_path):
    project = Project(tmp_path, mark + book.replace("\n", ends))
    project.tangle("--bare")
    project.put("a.py", edited)
    run = project.run("stitch", "--bare")
    assert run.status == 0, run.err
    assert run.out.startswith("stitched book/ch.md\n")
    assert project.text("book/ch.md") == mark + expected.replace("\n", ends)
    assert project.tangle("--bare") == {"a.py": edited}


def fenced(body, fence):
    return block("python {file=a.py}", body, fence)


LOOKALIKES = {
    "a fence": ("```\n", fenced("x\n```\n", "````")),
    "an opener": ("```python {#b file=b.py}\n", fenced("x\n```python {#b file=b.py}\n", "````")),
    "a longer fence": ("`````\n", fenced("x\n`````\n", "``````")),
    "an indented fence": ("    ```\n", fenced("x\n    ```\n", "````")),
    "the other fence": ("~~~\n", fenced("x\n~~~\n", "```")),
    "a fence in the line": ("y ```\n", fenced("x\ny ```\n", "```")),
    "a reference": ("<<c>>\n", fenced("x\n\\<<c>>\n", "```")),
    "a reference in the line": ("f(<<c>>)\n", fenced("x\nf(\\<<c>>)\n", "```")),
    "a reference to nothing": ("  <<none>>\n", fenced("x\n  \\<<none>>\n", "```")),
    "nothing in the line": ("f(<<none>>)\n", fenced("x\nf(<<none>>)\n", "```")),
    "a backslash and a reference": ("\\<<c>>\n", fenced("x\n\\\\<<c>>\n", "```")),
    "two references": ("<<c>> <<c>>\n", fenced("x\n\\<<c>> \\<<c>>\n", "```")),
    "more brackets": ("<<<c>>>\n", fenced("x\n<\\<<c>>>\n", "```")),
}


@pytest.mark.parametrize(("line", "expected"), LOOKALIKES.values(), ids=LOOKALIKES)
def test_what_looks_like_a_fence_or_a_reference_is_carried_back_as_text(line, expected, tmp_path):
    rest = target("c.py", "<<c>>\n") + chunk("c", "1\n")
    project = Project(tmp_path, fenced("x\n", "```") + rest)
    project.tangle("--bare")
    project.put("a.py", "x\n" + line)
    assert project.run("stitch", "--bare").status == 0
    assert project.text("book/ch.md") == expected + rest
    assert project.tangle("--bare") == {"a.py": "x\n" + line, "c.py": "1\n"}


@pytest.mark.parametrize("edited", ["other\n", "x <<c>> y\n", "<<c>>\nnew\n", "    <<c>>\n", ""])
def test_a_line_that_was_written_with_a_backslash_can_be_edited(edited, tmp_path):
    book = fenced("\\<<c>>\n", "```") + target("c.py", "<<c>>\n") + chunk("c", "1\n")
    project = Project(tmp_path, book)
    assert project.tangle("--bare")["a.py"] == "<<c>>\n"
    project.put("a.py", edited)
    assert project.run("stitch", "--bare").status == 0
    assert project.tangle("--bare") == {"a.py": edited, "c.py": "1\n"}


@pytest.mark.parametrize("fence", ["```", "~~~~"])
def test_a_fence_is_made_longer_in_a_list_and_in_a_quote(fence, tmp_path):
    for place in (LISTED, QUOTED):
        prefix = "    " if place == LISTED else "> "
        project = Project(
            tmp_path / place[-3:-1], place + quoted(prefix, "python {#c}", ["1"], fence)
        )
        project.tangle("--bare")
        edited = f"1\n{fence} x\n\n{fence}\n"
        project.put("a.py", edited)
        assert project.run("stitch", "--bare").status == 0
        longer = fence + fence[0]
        rows = ["1", f"{fence} x", "", fence]
        assert project.text("book/ch.md") == place + quoted(prefix, "python {#c}", rows, longer)
        assert project.tangle("--bare") == {"a.py": edited}


def test_prose_and_other_blocks_keep_every_byte(tmp_path):
    prose = "# T\r\n\nText  \n\tx\r\n\n<!-- ``` -->\n\n````md\n```py {#no}\n```\n````\n\ntail"
    book = prose + "\n\n" + target("a.py", "1\n") + prose + "\n\n" + target("b.py", "2\n") + prose
    project = Project(tmp_path, book)
    project.tangle("--bare")
    project.put("a.py", "1\nnew\n")
    assert project.run("stitch", "--bare").status == 0
    assert project.text("book/ch.md") == book.replace("}\n1\n", "}\n1\nnew\n")


def test_edits_of_several_files_go_to_several_chapters(tmp_path):
    book = {
        "a.md": target("a.py", "<<one>>\n2\n") + chunk("one", "1\n"),
        "b/c.md": target("b.py", "<<two>>\n3\n").replace("\n", "\r\n"),
        "d.md": chunk("two", "2\n"),
        "e.md": target("e.py", "same\n"),
    }
    project = Project(tmp_path, book)
    project.tangle("--bare")
    (tmp_path / "book" / "a.md").chmod(0o600)
    shutil.move(tmp_path / "book" / "d.md", tmp_path / "d.md")
    (tmp_path / "book" / "d.md").symlink_to("../d.md")
    untouched = (tmp_path / "book" / "e.md").stat().st_mtime_ns
    project.put("a.py", "1\nnew\n2\n")
    project.put("b.py", "22\n33\n")
    run = project.run("stitch", "--bare")
    assert run.status == 0, run.err
    made = project.tangle("--bare")
    assert (made["a.py"], made["b.py"], made["e.py"]) == ("1\nnew\n2\n", "22\n33\n", "same\n")
    assert project.text("book/b/c.md") == target("b.py", "<<two>>\n33\n").replace("\n", "\r\n")
    assert (tmp_path / "book" / "d.md").is_symlink()
    assert project.text("d.md") == chunk("two", "22\n")
    assert project.snapshot()["book/a.md"][1] == 0o600
    assert (tmp_path / "book" / "e.md").stat().st_mtime_ns == untouched
    assert sorted(p.name for p in (tmp_path / "book").iterdir()) == ["a.md", "b", "d.md", "e.md"]


def test_lines_before_the_header_can_be_edited(tmp_path):
    project = Project(tmp_path, target("a.py", "#!/bin/sh\nx\n"))
    project.tangle()
    edited = "#!/bin/bash\n# Tangled from book/ch.md\nx\ny\n"
    project.put("a.py", edited)
    assert project.run("stitch").status == 0
    assert project.text("book/ch.md") == target("a.py", "#!/bin/bash\nx\ny\n")
    assert project.tangle() == {"a.py": edited}


def test_an_import_on_top_goes_to_the_chunk_below_the_header(tmp_path):
    book = target("a.py", "<<imports>>\n\nx\n") + chunk("imports", "import sys\n")
    project = Project(tmp_path, book)
    project.tangle()
    edited = "# Tangled from book/ch.md\nimport os\nimport sys\n\nx\n"
    project.put("a.py", edited)
    assert project.run("stitch").status == 0
    assert project.text("book/ch.md") == book.replace("import sys", "import os\nimport sys")
    assert project.tangle() == {"a.py": edited}


def test_an_empty_file_is_filled_and_emptied_with_and_without_its_header(tmp_path):
    project = Project(tmp_path, target("p/__init__.py", ""))
    assert project.tangle() == {"p/__init__.py": ""}
    header = "# Tangled from book/ch.md\n"
    for edited, body in [
        ("x = 1\n", "x = 1\n"),
        (header + "x = 2\n", "x = 2\n"),
        (header, ""),
        (header + "x = 3\n", "x = 3\n"),
        ("", ""),
        ("#!/bin/sh\ny\n", "#!/bin/sh\ny\n"),
    ]:
        project.put("p/__init__.py", edited)
        run = project.run("stitch")
        assert run.status == 0, run.err
        assert project.text("book/ch.md") == target("p/__init__.py", body)
        first, rest = ("#!/bin/sh\n", "y\n") if body.startswith("#!") else ("", body)
        assert project.tangle() == {"p/__init__.py": first + header + rest if body else ""}


def test_a_file_that_could_have_no_header_line_gets_one_when_it_can(tmp_path):
    project = Project(tmp_path, target("a.py", "<!-- x\n"))
    assert project.tangle() == {"a.py": "<!-- x\n"}
    project.put("a.py", "new = 1\n<!-- x\n")
    assert project.run("stitch").status == 0
    assert project.text("book/ch.md") == target("a.py", "new = 1\n<!-- x\n")
    assert project.tangle() == {"a.py": "# Tangled from book/ch.md\nnew = 1\n<!-- x\n"}


def test_a_long_file_is_compared_only_between_its_equal_ends():
    from difflib import SequenceMatcher

    old = [f"line {k}" for k in range(20_000)]
    new = [*old[:9_000], "new", *old[9_002:]]
    with mock.patch("difflib.SequenceMatcher", wraps=SequenceMatcher) as matcher:
        assert literate.patch.opcodes(old, new) == [
            ("equal", 0, 9_000, 0, 9_000),
            ("replace", 9_000, 9_002, 9_000, 9_001),
            ("equal", 9_002, 20_000, 9_001, 19_999),
        ]
    assert matcher.call_args.args[1:3] == (["line 9000", "line 9001"], ["new"])
    assert literate.patch.opcodes(["x"] * 3, ["x"] * 3) == [("equal", 0, 3, 0, 3)]
    assert literate.patch.opcodes([], []) == []


@pytest.mark.parametrize("options", [[], ["--bare"], ["--force"]])
def test_stitch_of_an_unedited_tree_touches_nothing(options, tmp_path):
    book = "\ufeff" + two("1\n", "2\n\n").replace("\n", "\r\n") + target("b.py", "`\n\\\\<<one>>\n")
    project = Project(tmp_path, book)
    project.tangle(*[option for option in options if option == "--bare"])

    def state():
        files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
        return [(path, path.read_bytes(), path.stat().st_mtime_ns) for path in files]

    before = state()
    run = project.run("stitch", *options)
    assert run.status == 0
    assert "stitched" not in run.out
    assert state() == before


def test_stitch_tangles_what_is_stale(tmp_path):
    project = Project(
        tmp_path, target("a.py", "1\n") + target("b.py", "1\n") + target("c.py", "1\n")
    )
    project.tangle("--bare")
    project.put("book/ch.md", project.text("book/ch.md").replace("b.py}\n1", "b.py}\n22"))
    project.put("a.py", "new\n")
    (tmp_path / "c.py").unlink()
    assert project.run("stitch", "--bare").status == 0
    assert project.made() == {"a.py": "new\n", "b.py": "22\n", "c.py": "1\n"}


SHARED = target("a.py", "<<c>>\n-\n<<c>>\n") + chunk("c", "1\n2\n")
WITH_PATCH = target("a.py", "<<c>>\n") + chunk("c", "1\n2\n") + block("diff {patch=c}", "-1\n+3\n")
REFUSED = {  # book, a.py after the edit, why
    "less indented than its reference": (
        NESTED + chunk("body", "x = 1\ny = x\n"),
        "def f():\n    x = 1\n  y = 2\n    return y\n",
        "a.py:3: is indented by less than the reference that brings in the block at book/ch.md:7",
    ),
    "spaces for a tab": (
        target("a.py", "all:\n\t<<c>>\n") + chunk("c", "x\ny\n"),
        "all:\n        x\n\ty\n",
        "a.py:2: begins with spaces, but a tab before its reference brings in the block at book/ch.md:6",
    ),
    "one of two uses in one file": (
        SHARED,
        "1\nnew\n-\n1\n2\n",
        "a.py: the edit cannot be carried back (book/ch.md:9 is used in several places, a.py:2, a.py:5; edit them alike)",
    ),
    "two uses, differently": (SHARED, "1\nnew\n-\n1\nother\n", "two edits want different things"),
    "over the edge of a reference": (
        CALL + chunk("args", "1\n"),
        "g) + 1\n",
        "a.py:1: the change reaches over the edge of the reference inside book/ch.md:2",
    ),
    "a line around a reference becomes two": (
        CALL + chunk("args", "1\n"),
        "f(1)\n+ 1\n",
        "a.py:1: the change reaches over the edge of the reference inside book/ch.md:2",
    ),
    "white space on a blank line of a chunk": (
        NESTED + chunk("body", "x = 1\n\ny = x\n"),
        "def f():\n    x = 1\n    \n    y = x\n    return y\n",
        "white space that tangling does not keep",
    ),
    "CRLF": (target("a.py", "x\ny\n"), "x\r\ny\r\n", "has CRLF line ends"),
    "not UTF-8": (target("a.py", "x\n"), b"x\xff\n", "is not UTF-8 at byte 1"),
    "a patch would fit twice": (
        WITH_PATCH.replace("2\n", "2\n3\n").replace("+3", "+4"),
        "3\n2\n3\n",
        "book/ch.md:11: patch fits 2 times (lines 1, 3 of the chunk) in chunk 'c'",
    ),
    "a patch would show nothing": (WITH_PATCH, "2\n", "patch has no line of context"),
}


@pytest.mark.parametrize(("book", "edited", "why"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("force", [[], ["--force"]], ids=["", "force"])
def test_an_edit_that_is_refused(book, edited, why, force, tmp_path):
    project = Project(tmp_path, book)
    project.tangle("--bare")
    project.put("a.py", edited)
    before = project.snapshot()
    run = project.run("stitch", "--bare", *force)
    assert run.status == 1
    assert why in run.err
    assert run.err.endswith("stitch: no chapter was touched\n")
    assert project.snapshot() == before


@pytest.mark.parametrize("edited", ["# Tangled by me\nx\n", "x\n"])
def test_the_header_cannot_be_edited(edited, tmp_path):
    project = Project(tmp_path, target("a.py", "x\n"))
    project.tangle()
    project.put("a.py", edited)
    run = project.run("stitch")
    assert run.status == 1
    assert "a.py: the header line is written by tangling and cannot be edited" in run.err


MADE_RIGHT = {  # a file after the edit ("@": the header line), and after stitch
    "a comment on top without a blank": ("a.py", "@#x\ny\n", "#x\ny\n"),
    "a cell above the header": ("a.py", "#%% cell\n@x\ny\n", "#%% cell\nx\ny\n"),
    "a mark of zsh": ("a.sh", "#compdef a\n@x\ny\n", "#compdef a\nx\ny\n"),
    "an include": ("a.py", "@#include <x>\nx\ny\n", "#include <x>\nx\ny\n"),
    "a text that is no reference": ("a.py", "<<new>>\n@x\ny\n", "<<new>>\nx\ny\n"),
    "a field of a page": ("a.md", "a: b\n@x\ny\n", "a: b\nx\ny\n"),
    "an import above the header": ("a.py", "import os\n@x\ny\n", "@import os\nx\ny\n"),
    "a shebang below the header": ("a.sh", "@#!/bin/sh\nx\ny\n", "#!/bin/sh\n@x\ny\n"),
    "no newline at the end": ("a.py", "@x\nz", "@x\nz\n"),
    "newlines at the end": ("a.py", "@x\nz\n\n\n", "@x\nz\n"),
    "nothing but a newline": ("a.py", "@x\ny\n\n", "@x\ny\n"),
    "nothing": ("a.py", "\n", ""),
    "the header line alone": ("a.sh", "# Tangled from book/ch.md", ""),
}


@pytest.mark.parametrize(("path", "edited", "after"), MADE_RIGHT.values(), ids=MADE_RIGHT)
def test_header_and_end_are_tanglings_own(path, edited, after, tmp_path):
    project = Project(tmp_path, target(path, "x\ny\n"))
    line = project.tangle()[path].removesuffix("x\ny\n")
    project.put(path, edited.replace("@", line))
    run = project.run("stitch")
    assert run.status == 0, run.err
    assert project.tangle() == {path: after.replace("@", line)}


def test_two_edits_of_one_chunk_that_disagree(tmp_path):
    book = target("a.py", "<<c>>\n") + target("b.py", "  <<c>>\n") + chunk("c", "1\n2\n")
    project = Project(tmp_path, book)
    project.tangle("--bare")
    project.put("a.py", "1\nnew\n")
    project.put("b.py", "  1\n  other\n")
    before = project.snapshot()
    run = project.run("stitch", "--bare")
    assert run.status == 1
    assert run.err == (
        "book/ch.md:11: conflict: two edits want different things here; make them the same:\n"
        "  a.py:2: new\n"
        "  b.py:2: other\n"
        "stitch: no chapter was touched\n"
    )
    assert project.snapshot() == before
    project.put("b.py", "  1\n  new\n")
    assert project.run("stitch", "--bare").status == 0
    assert project.tangle("--bare") == {"a.py": "1\nnew\n", "b.py": "  1\n  new\n"}


def test_different_lines_of_one_chunk_edited_in_two_files(tmp_path):
    book = target("a.py", "<<c>>\n") + target("b.py", "<<c>>\n") + chunk("c", "1\n2\n3\n")
    project = Project(tmp_path, book)
    project.tangle("--bare")
    project.put("a.py", "one\n2\n3\n")
    project.put("b.py", "1\n2\nthree\n")
    before = project.snapshot()
    run = project.run("stitch", "--bare")
    assert run.status == 1  # neither file would come out as it was left
    assert project.snapshot() == before


def test_a_warning_of_the_book_is_told_once(tmp_path):
    project = Project(tmp_path, target("a.py", "x\n") + chunk("unused", "y\n"))
    project.tangle("--bare")
    project.put("a.py", "new\nx\n")
    told = "book/ch.md:6: warning: chunk 'unused' is used nowhere, so its code is in no file\n"
    assert project.run("stitch", "--bare").err == told


def test_all_reasons_are_told(tmp_path):
    book = "".join(target(f"{name}.py", "x\n") for name in "abc")
    project = Project(tmp_path, book)
    project.tangle("--bare")
    for name, content in {"a": b"x\xff\n", "b": "x\r\n", "c": "fine\n"}.items():
        project.put(f"{name}.py", content)
    run = project.run("stitch", "--bare")
    assert run.status == 1
    assert "a.py: is not UTF-8" in run.err
    assert "b.py: has CRLF line ends" in run.err
    assert project.text("book/ch.md") == book


def test_the_diff_of_a_variant_is_not_edited_but_its_block(tmp_path):
    book = target("a.py", "1\n2\n") + chunk("c", "1\n") + target("b.py", "<<c>>\n")
    project = Project(tmp_path, book + block("diff {patch=c file=s.patch}", "-1\n+3\n"))
    project.tangle("--bare")
    project.put("s.patch", project.text("s.patch").replace("3", "4"))
    run = project.run("stitch", "--bare")
    assert run.status == 1
    assert "s.patch: is the diff that the patch at book/ch.md:14 makes" in run.err


FOLLOWED = {  # chunk, patch, a.py after the edit, patch afterwards
    "a - line": ("1\n2\n", "-1\n+3\n", "one\n2\n", "-one\n+3\n"),
    "a line of context": ("1\n2\n", " 1\n-2\n+3\n", "one\n2\n", " one\n-2\n+3\n"),
    "what it does not show": ("1\n2\n", "-1\n+3\n", "1\ntwo\n", "-1\n+3\n"),
    "one line becomes three": (
        "f(a, b)\n2\n",
        "-f(a, b)\n+f(b, a)\n 2\n",
        "f(\n    a, b\n)\n2\n",
        "-f(\n-    a, b\n-)\n+f(b, a)\n 2\n",
    ),
    "both signs at once": (
        "f( 1 )\ng( 2 )\nh( 3 )\n",
        " f( 1 )\n-g( 2 )\n+g( 0 )\n",
        "f(1)\ng(2)\nh(3)\n",
        " f(1)\n-g(2)\n+g( 0 )\n",
    ),
    "a new line inside": ("1\n2\n", " 1\n-2\n+3\n", "1\nnew\n2\n", " 1\n new\n-2\n+3\n"),
    "a new line between - lines": ("1\n2\n", "-1\n-2\n+3\n", "1\nnew\n2\n", "-1\n-new\n-2\n+3\n"),
    "a new blank line": ("1\n2\n", " 1\n-2\n+3\n", "1\n\n2\n", " 1\n\n-2\n+3\n"),
    "a new line before it": ("1\n2\n", "-1\n+3\n 2\n", "new\n1\n2\n", "-1\n+3\n 2\n"),
    "a line goes": ("1\n2\n3\n", " 1\n 2\n-3\n+4\n", "1\n3\n", " 1\n-3\n+4\n"),
    "two hunks": (
        "1\n2\n3\n4\n",
        "-1\n+0\n@@\n-4\n+5\n",
        "1\n2\nthree\nfour\n",
        "-1\n+0\n@@\n-four\n+5\n",
    ),
    "an escaped reference": ("1\n2\n", " 1\n-2\n+3\n", "<<c>>\n2\n", " \\<<c>>\n-2\n+3\n"),
}


@pytest.mark.parametrize(("lines", "patch", "edited", "after"), FOLLOWED.values(), ids=FOLLOWED)
def test_a_patch_follows_the_edits_of_its_chunk(lines, patch, edited, after, tmp_path):
    book = target("a.py", "<<c>>\n") + chunk("c", lines)
    project = Project(tmp_path, book + block("diff {#s patch=c file=s.patch}", patch))
    project.tangle("--bare")
    project.put("a.py", edited)
    run = project.run("stitch", "--bare")
    assert run.status == 0, run.err
    assert project.text("a.py") == edited
    text = project.text("book/ch.md")
    assert text.endswith(block("diff {#s patch=c file=s.patch}", after))
    changed = {line for line in patch.splitlines() if line[:1] == "-"} - set(after.splitlines())
    line = text[: text.index("```diff")].count("\n") + 1
    told = "warning: the - lines of this patch were edited with their chunk; look at its + lines\n"
    assert run.err == (f"book/ch.md:{line}: {told}" if changed else "")
    assert project.run("--check", "--bare").status == 0


def test_a_blank_line_behind_a_chunk_with_a_patch_is_none_of_the_patch(tmp_path):
    rest = block("diff {#s patch=one file=s.patch}", "-1\n+3\n")
    project = Project(tmp_path, spaced("1\n", "2\n") + rest)
    project.tangle()
    project.put("a.py", project.text("a.py").replace("\n\n", "\n"))
    run = project.run("stitch")
    assert (run.status, run.err) == (0, "")
    assert project.text("book/ch.md") == two("1\n", "2\n") + rest


def test_patches_of_one_variant_follow_one_after_the_other(tmp_path):
    book = target("a.py", "<<c>>\n") + chunk("c", "1\n2\n")
    first, second = "-1\n+3\n", " 3\n-2\n+4\n"
    variant = "diff {#s patch=c}", "diff {#s patch=c file=s.patch}"
    project = Project(tmp_path, book + block(variant[0], first) + block(variant[1], second))
    project.tangle("--bare")
    project.put("a.py", "1\ntwo\n")
    assert project.run("stitch", "--bare").status == 0
    after = block(variant[0], first) + block(variant[1], " 3\n-two\n+4\n")
    assert project.text("book/ch.md").endswith(after)


def test_an_edited_file_of_a_chapter_that_changed_too(tmp_path):
    project = Project(tmp_path, target("a.py", "1\n2\n"))
    project.tangle("--bare")
    project.put("book/ch.md", target("a.py", "1\nchapter\n"))
    project.put("a.py", "1\nfile\n")
    before = project.snapshot()
    for arguments in (["stitch", "--bare"], ["--bare"]):
        run = project.run(*arguments)
        assert run.status == 1
        assert "-chapter\n+file\n" in run.err
        assert project.snapshot() == before
    assert project.run("stitch", "--bare", "--force").status == 0
    assert project.text("book/ch.md") == target("a.py", "1\nfile\n")
    assert project.tangle("--bare") == {"a.py": "1\nfile\n"}


def test_without_a_record_only_force_takes_a_file(tmp_path):
    project = Project(tmp_path, target("a.py", "1\n") + target("b.py", "1\n"))
    project.tangle("--bare")
    (tmp_path / ".tangle.json").unlink()
    project.put("a.py", "2\n")
    before = project.snapshot()
    run = project.run("stitch", "--bare")
    assert run.status == 1
    assert "a.py: the record does not know what was tangled there" in run.err
    assert "the chapter may be the newer one" in run.err
    assert "-1\n+2\n" in run.err
    assert "b.py" not in run.err
    assert project.snapshot() == before
    assert project.run("stitch", "--bare", "--force").status == 0
    assert project.tangle("--bare") == {"a.py": "2\n", "b.py": "1\n"}


def test_the_same_edit_in_file_and_chapter_is_no_conflict(tmp_path):
    project = Project(tmp_path, target("a.py", "1\n"))
    project.tangle("--bare")
    project.put("book/ch.md", target("a.py", "2\n"))
    project.put("a.py", "2\n")
    assert project.run("stitch", "--bare").status == 0
    assert project.tangle("--bare") == {"a.py": "2\n"}


def test_a_book_with_errors_is_not_stitched(tmp_path):
    project = Project(tmp_path, target("a.py", "1\n"))
    project.tangle("--bare")
    project.put("a.py", "2\n")
    project.put("book/b.md", "```\n")
    before = project.snapshot()
    run = project.run("stitch", "--bare")
    assert run.status == 1
    assert "book/b.md:1: fence is not closed" in run.err
    assert project.snapshot() == before


def test_a_chapter_that_is_saved_while_stitch_runs_keeps_what_was_saved(tmp_path):
    project = Project(tmp_path, target("a.py", "1\n2\n"))
    project.tangle("--bare")
    project.put("a.py", "1\nfile\n")
    saved = "A new first line.\n\n" + target("a.py", "1\n2\n")
    really_load = literate.record.load_record

    def load_record(root):
        project.put("book/ch.md", saved)  # the book has been read by now
        return really_load(root)

    with mock.patch("literate.command.load_record", load_record):
        run = project.run("stitch", "--bare")
    text = project.text("book/ch.md")
    assert text.startswith("A new first line.\n\n```python {file=a.py}\n1\n")
    assert run.status == 1 and text == saved or text == saved.replace("2\n", "file\n")


@pytest.mark.parametrize("how", ["in its place", "by renaming"])
def test_a_chapter_that_is_saved_at_the_last_moment_keeps_what_was_saved(how, tmp_path):
    project = Project(tmp_path, target("a.py", "1\n"))
    project.tangle("--bare")
    project.put("a.py", "file\n")
    saved = "A new first line.\n\n" + target("a.py", "1\n")
    really = literate.disk.Change.make

    def make(change, *arguments):
        if how == "by renaming":
            os.remove(change.path)
        project.put("book/ch.md", saved)
        really(change, *arguments)

    with mock.patch("literate.disk.Change.make", make):
        run = project.run("stitch", "--bare")
    assert run.status == 1
    assert "ch.md: was saved by another program while this one ran; run it again" in run.err
    assert project.text("book/ch.md") == saved
    assert project.made() == {"a.py": "file\n"}


UNFORMATTED = {
    "a.md": target("p/a.py", "import os,sys\n<<class>>\n<<functions>>\n")
    + chunk("class", "class A:\n    x=1\n    <<methods>>\n")
    + chunk(
        "functions", "def f( a,b ):\n    return {'x':1,\n       'y':2}\ndef g(): return [\n1]\n"
    )
    + "1. In a list:\n\n    ```python {#methods}\n    def m(self):\n      return 'm'\n    ```\n\n",
    "b.md": target(
        "p/b.py", "<<functions>>\nx = f(<<numbers>>)\n" + "y = [" + "10000, " * 30 + "]\n"
    )
    + chunk("numbers", "1,2\n"),
    "c.md": target("p/c.py", '"""Text."""\n<<main>>\n').replace("\n", "\r\n")
    + chunk("main", "if __name__=='__main__':\n  print( 'x' )\n"),
}


def test_a_formatter_and_stitch_come_to_rest(tmp_path):
    project = Project(tmp_path, UNFORMATTED)
    before = project.tangle()
    results = []
    for _ in range(2):
        subprocess.run(
            [sys.executable, "-m", "ruff", "format", "--quiet", "--isolated", "--no-cache", "p"],
            cwd=tmp_path,
            check=True,
        )
        formatted = project.made()
        run = project.run("stitch")
        assert run.status == 0, run.err
        made = project.tangle()
        assert {path: made[path] for path in before} == {path: formatted[path] for path in before}
        results.append(project.snapshot())
    assert results[0] == results[1]
    assert made["p/a.py"] != before["p/a.py"]
    assert "<<class>>\n\n\n<<functions>>\n" in project.text("book/a.md")
    assert '    def m(self):\n        return "m"\n    ```' in project.text("book/a.md")


def test_a_watching_stitch_works_in_both_directions(tmp_path):
    project = Project(tmp_path, target("a.py", "1\n"))
    project.tangle("--bare")
    seen = []

    def put(path, content):
        def step():
            seen.append((project.text("book/ch.md").splitlines()[1], project.text("a.py")[:-1]))
            project.put(path, content)

        return step

    steps = iter(
        [
            put("a.py", "22\n"),
            put("book/ch.md", target("a.py", "333\n")),
            put("a.py", "4444\r\n"),
            put("a.py", "55555\n"),
            put("a.py", "666666\n"),
            put("book/b.md", ""),
        ]
    )

    looks = count()

    def sleep(_seconds):
        if next(looks) % 2 == 0:
            return  # what has changed has to rest from one look to the next
        step = next(steps, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    with mock.patch("time.sleep", sleep):
        run = project.run("stitch", "--watch", "--bare")
    assert run.status == 130
    assert seen == [
        ("1", "1"),
        ("22", "22"),
        ("333", "333"),
        ("333", "4444\r"),  # refused: CRLF
        ("55555", "55555"),
        ("666666", "666666"),
    ]


def test_an_edit_that_is_saved_while_a_watching_stitch_runs_is_not_missed(tmp_path):
    project = Project(tmp_path, target("a.py", "1\n") + target("b.py", "1\n"))
    project.tangle("--bare")
    really = literate.disk.commit
    looks = []

    def commit(*arguments):
        really(*arguments)
        if not looks:
            project.put("b.py", "from the editor\n")

    def sleep(_seconds):
        looks.append(project.text("book/ch.md"))
        if len(looks) == 5:
            raise KeyboardInterrupt

    with mock.patch("literate.command.commit", commit), mock.patch("time.sleep", sleep):
        project.put("a.py", "22\n")
        project.run("stitch", "--watch", "--bare")
    assert looks[0] == target("a.py", "22\n") + target("b.py", "1\n")
    assert looks[2] == target("a.py", "22\n") + target("b.py", "from the editor\n")
    assert project.tangle("--bare") == {"a.py": "22\n", "b.py": "from the editor\n"}


@pytest.fixture
def edited(tmp_path):
    """A project in which an edit of two files goes to two chapters."""
    book = {
        "a.md": target("a.py", "1\n<<two>>\n"),
        "b.md": (chunk("two", "2\n") + target("b.py", "3\n")).replace("\n", "\r\n"),
    }
    project = Project(tmp_path, book)
    project.tangle("--bare")
    (tmp_path / "book" / "a.md").chmod(0o600)
    project.put("a.py", "one\ntwo\n")
    project.put("b.py", "three\n")
    return project


def test_a_killed_stitch_loses_no_edit_and_the_next_one_ends_well(edited, faulty_disk):
    start = edited.snapshot()
    steps = faulty_disk(edited, "count", 0, "stitch", "--bare").seen
    end = edited.snapshot()
    assert steps >= 8
    for number in range(1, steps + 1):
        restore(edited, start)
        assert faulty_disk(edited, "kill", number, "stitch", "--bare").status == -9
        left = edited.snapshot()
        for path in ("book/a.md", "book/b.md"):
            assert left[path] in (start[path], end[path]), number
        for path in ("a.py", "b.py"):
            assert left[path] == start[path], number
        run = edited.run("stitch", "--bare")
        assert run.status == 0, (number, run.err)
        assert edited.snapshot() == end, number


@pytest.mark.parametrize("mode", ["fail", "full"])
def test_a_stitch_that_fails_loses_no_edit(mode, edited, faulty_disk):
    start = edited.snapshot()
    steps = faulty_disk(edited, "count", 0, "stitch", "--bare").seen
    end = edited.snapshot()
    for number in range(1, steps + 1):
        restore(edited, start)
        answer = faulty_disk(edited, mode, number, "stitch", "--bare")
        left = edited.snapshot()
        for path in ("book/a.md", "book/b.md"):
            assert left[path] in (start[path], end[path]), (number, answer.err)
        assert {path for path in left if path.startswith("book/")} == {"book/a.md", "book/b.md"}
        assert left["a.py"] == start["a.py"]
        run = edited.run("stitch", "--bare")
        assert run.status == 0, (number, run.err)
        assert edited.snapshot() == end, number
