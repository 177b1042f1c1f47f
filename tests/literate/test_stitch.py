# Tangled from book/workshop/stitch-tests.md
"""Edits of generated files, carried back into their chapters or refused."""

import os
import shutil
import subprocess
import sys
from unittest import mock

import pytest

import literate.command
import literate.disk
import literate.patch
from tests.literate.project import Project, at_rest, block, chunk, refused, restore, target, watch


def edited(folder, book, text, *options, path="a.py"):
    """A project whose book is tangled and whose file was edited since."""
    project = Project(folder, book)
    project.tangle(*options)
    project.put(path, text)
    return project


def carried(project, *options):
    """What the files are after a stitch that has to go well."""
    run = project.run("stitch", *options)
    assert run.status == 0, run.err
    return project.tangle(*[option for option in options if option != "--force"])


NESTED = target("a.py", "def f():\n    <<body>>\n    return y\n")
CALL = target("a.py", "f(<<args>>) + 1\n")
LISTED = target("a.py", "<<c>>\n") + "1. Item.\n\n"
QUOTED = target("a.py", "<<c>>\n") + "> Text.\n>\n"
USE = target("a.py", "<<c>>\n")
USED_TWICE = target("a.py", "<<c>>\n-\n    <<c>>\n")
MAKE = target("a.py", "all:\n\t<<c>>\n")


def alone(before, after):
    return target("a.py", before), after, target("a.py", after)


def two(first, second, between=""):
    outline = target("a.py", f"<<one>>\n{between}<<two>>\n")
    return outline + chunk("one", first) + chunk("two", second)


def quoted(prefix, opener, rows, fence="```"):
    lines = [fence + opener, *rows, fence]
    return "".join(f"{prefix}{line}".rstrip() + "\n" for line in lines) + "\n"


def item(*rows):
    lines = block("python {#c}", "".join(f"{row}\n" for row in rows)).splitlines()
    return LISTED + "".join(f"    {line}".rstrip() + "\n" for line in lines)


def continued(first, second):
    return USE + chunk("c", first) + "Text.\n\n" + chunk("c", second)


EDITS = {  # book, a.py after the edit, book after stitch
    "a line of the target": alone("x\ny\nz\n", "x\nnew\nz\n"),
    "lines added at both ends": alone("x\n", "new\nx\nnew\n"),
    "lines removed": alone("x\ny\nz\n", "y\n"),
    "all lines removed": alone("x\ny\n", ""),
    "a line in an empty file": alone("", "new\n"),
    "everything replaced": alone("x\ny\n", "a\nb\nc\n"),
    "lines moved": alone("x\ny\nz\n", "z\nx\ny\n"),
    "trailing white space": alone("x\n", "x  \n"),
    "no ASCII": alone("x\n", "数\u2028é\x85\n"),
    "what looks like a mark of a chapter": alone("x\n", "<!--\n# Title\n> q\n- l\n\\\n"),
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
    "blank lines between chunks": (two("1\n", "2\n"), "1\n\n\n2\n", two("1\n", "2\n", "\n\n")),
    "fewer blank lines": (two("1\n", "2\n", "\n\n"), "1\n\n2\n", two("1\n", "2\n", "\n")),
    "a blank line removed": (two("1\n", "2\n", "\n"), "1\n2\n", two("1\n", "2\n")),
    "a blank line filled": (two("1\n", "2\n", "\n"), "1\nx\n2\n", two("1\n", "2\n", "x\n")),
    "one more blank line": (two("1\n", "2\n", "\n"), "1\n\n\n2\n", two("1\n", "2\n", "\n\n")),
    "a function removed with its blank lines": (
        two("def f():\n    x\n", "def g():\n    y\n", "\n\n"),
        "def g():\n    y\n",
        two("", "def g():\n    y\n"),
    ),
    "blank lines behind a change": (two("1\n", "2\n"), "x\n\n2\n", two("x\n", "2\n", "\n")),
    "blank lines before a change": (two("1\n", "2\n"), "1\n\nx\n", two("1\n", "x\n", "\n")),
    "blank lines between changes": (two("1\n", "2\n"), "x\n\ny\n", two("x\n", "y\n", "\n")),
    "blank lines inside a chunk": (two("1\n2\n", "3\n"), "1\n\n2\n3\n", two("1\n\n2\n", "3\n")),
    "a continued chunk": (continued("1\n", "2\n"), "one\ntwo\n", continued("one\n", "two\n")),
    "the same edit wherever a chunk is used": (
        USED_TWICE + chunk("c", "1\n"),
        "2\n-\n    2\n",
        USED_TWICE + chunk("c", "2\n"),
    ),
    "a later line at a reference inside a line": (
        CALL + chunk("args", "1,\n2,\n3\n"),
        "f(1,\n  7,\n  3) + 1\n",
        CALL + chunk("args", "1,\n7,\n3\n"),
    ),
    "beside a reference inside a line": (
        CALL + chunk("args", "1,\n2\n"),
        "g(1,\n  2) + 1\n",
        CALL.replace("f(", "g(") + chunk("args", "1,\n2\n"),
    ),
    "in a reference inside a line": (
        CALL + chunk("args", "1,\n2\n"),
        "f(x,\n  2 * y) + 1\n",
        CALL + chunk("args", "x,\n2 * y\n"),
    ),
    "behind an escaped reference": (
        target("a.py", "\\<<c>> <<c>>x\n") + chunk("c", "1\n"),
        "<<c>> 1x * y\n",
        target("a.py", "\\<<c>> <<c>>x * y\n") + chunk("c", "1\n"),
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
        MAKE + chunk("c", "echo 1\n"),
        "all:\n\techo 2\n\t\techo 3\n",
        MAKE + chunk("c", "echo 2\n\techo 3\n"),
    ),
}


@pytest.mark.parametrize(("book", "text", "expected"), EDITS.values(), ids=EDITS)
@pytest.mark.parametrize(("ends", "mark"), [("\n", ""), ("\r\n", "\ufeff")], ids=["lf", "crlf"])
def test_an_edit_goes_to_its_block(book, text, expected, ends, mark, tmp_path):
    project = edited(tmp_path, mark + book.replace("\n", ends), text, "--bare")
    assert project.run("stitch", "--bare").out.startswith("stitched book/ch.md\n")
    assert project.text("book/ch.md") == mark + expected.replace("\n", ends)
    assert project.tangle("--bare") == {"a.py": text}


LOOKALIKES = {  # a line, the line in the chapter, the fence around it
    "a fence": ("```\n", "```\n", "````"),
    "an opener": ("```python {#b file=b.py}\n", "```python {#b file=b.py}\n", "````"),
    "a longer fence": ("`````\n", "`````\n", "``````"),
    "an indented fence": ("    ```\n", "    ```\n", "````"),
    "the other fence": ("~~~\n", "~~~\n", "```"),
    "a fence in the line": ("y ```\n", "y ```\n", "```"),
    "a reference": ("<<c>>\n", "\\<<c>>\n", "```"),
    "a reference in the line": ("f(<<c>>)\n", "f(\\<<c>>)\n", "```"),
    "a reference to nothing": ("  <<none>>\n", "  \\<<none>>\n", "```"),
    "nothing in the line": ("f(<<none>>)\n", "f(<<none>>)\n", "```"),
    "a backslash and a reference": ("\\<<c>>\n", "\\\\<<c>>\n", "```"),
    "two references": ("<<c>> <<c>>\n", "\\<<c>> \\<<c>>\n", "```"),
    "more brackets": ("<<<c>>>\n", "<\\<<c>>>\n", "```"),
}
REST = target("c.py", "<<c>>\n") + chunk("c", "1\n")


@pytest.mark.parametrize(("line", "written", "fence"), LOOKALIKES.values(), ids=LOOKALIKES)
def test_what_looks_like_a_mark_is_carried_back_as_text(line, written, fence, tmp_path):
    project = edited(tmp_path, target("a.py", "x\n") + REST, "x\n" + line, "--bare")
    assert carried(project, "--bare") == {"a.py": "x\n" + line, "c.py": "1\n"}
    opened = block("python {file=a.py}", "x\n" + written, fence)
    assert project.text("book/ch.md") == opened + REST


@pytest.mark.parametrize("text", ["other\n", "x <<c>> y\n", "<<c>>\nnew\n", "    <<c>>\n", ""])
def test_a_line_that_was_written_with_a_backslash_can_be_edited(text, tmp_path):
    project = edited(tmp_path, target("a.py", "\\<<c>>\n") + REST, text, "--bare")
    assert carried(project, "--bare") == {"a.py": text, "c.py": "1\n"}


@pytest.mark.parametrize("fence", ["```", "~~~~"])
@pytest.mark.parametrize(("place", "prefix"), [(LISTED, "    "), (QUOTED, "> ")])
def test_a_fence_is_made_longer_in_a_list_and_in_a_quote(fence, place, prefix, tmp_path):
    book, rows = place + quoted(prefix, "python {#c}", ["1"], fence), ["1", f"{fence} x", "", fence]
    project = edited(tmp_path, book, "\n".join(rows) + "\n", "--bare")
    assert carried(project, "--bare") == {"a.py": "\n".join(rows) + "\n"}
    longer = quoted(prefix, "python {#c}", rows, fence + fence[0])
    assert project.text("book/ch.md") == place + longer


def test_prose_and_other_blocks_keep_every_byte(tmp_path):
    prose = "# T\r\n\nText  \n\tx\r\n\n<!-- ``` -->\n\n````md\n```py {#no}\n```\n````\n\ntail"
    book = prose + "\n\n" + target("a.py", "1\n") + prose + "\n\n" + target("b.py", "2\n") + prose
    project = edited(tmp_path, book, "1\nnew\n", "--bare")
    carried(project, "--bare")
    assert project.text("book/ch.md") == book.replace("}\n1\n", "}\n1\nnew\n")


def test_edits_of_several_files_go_to_several_chapters(tmp_path):
    book = {
        "a.md": target("a.py", "<<one>>\n2\n") + chunk("one", "1\n"),
        "b/c.md": target("b.py", "<<two>>\n3\n").replace("\n", "\r\n"),
        "d.md": chunk("two", "2\n"),
        "e.md": target("e.py", "same\n"),
    }
    project = edited(tmp_path, book, "1\nnew\n2\n", "--bare")
    project.put("b.py", "22\n33\n")
    chapters = tmp_path / "book"
    (chapters / "a.md").chmod(0o600)
    shutil.move(chapters / "d.md", tmp_path / "d.md")
    (chapters / "d.md").symlink_to("../d.md")
    untouched = (chapters / "e.md").stat().st_mtime_ns
    made = carried(project, "--bare")
    assert (made["a.py"], made["b.py"], made["e.py"]) == ("1\nnew\n2\n", "22\n33\n", "same\n")
    assert project.text("book/b/c.md") == target("b.py", "<<two>>\n33\n").replace("\n", "\r\n")
    assert (chapters / "d.md").is_symlink()
    assert project.text("d.md") == chunk("two", "22\n")
    assert project.snapshot()["book/a.md"][1] == 0o600
    assert (chapters / "e.md").stat().st_mtime_ns == untouched
    assert sorted(path.name for path in chapters.iterdir()) == ["a.md", "b", "d.md", "e.md"]


def test_an_import_on_top_goes_to_the_chunk_below_the_header(tmp_path):
    book = target("a.py", "<<imports>>\n\nx\n") + chunk("imports", "import sys\n")
    text = "# Tangled from book/ch.md\nimport os\nimport sys\n\nx\n"
    project = edited(tmp_path, book, text)
    assert carried(project) == {"a.py": text}
    assert project.text("book/ch.md") == book.replace("import sys", "import os\nimport sys")


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


def test_stitch_tangles_what_is_stale(tmp_path):
    book = target("a.py", "1\n") + target("b.py", "1\n") + target("c.py", "1\n")
    project = edited(tmp_path, book, "new\n", "--bare")
    project.put("book/ch.md", project.text("book/ch.md").replace("b.py}\n1", "b.py}\n22"))
    (tmp_path / "c.py").unlink()
    assert carried(project, "--bare") == {"a.py": "new\n", "b.py": "22\n", "c.py": "1\n"}


WITH_PATCH = target("a.py", "<<c>>\n") + chunk("c", "1\n2\n") + block("diff {patch=c}", "-1\n+3\n")
AROUND = "a.py:1: this line is put together around a reference inside of book/ch.md:2"
REFUSED = {  # book, a.py after the edit, why
    "less indented than its reference": (
        NESTED + chunk("body", "x = 1\ny = x\n"),
        "def f():\n    x = 1\n  y = 2\n    return y\n",
        "a.py:3: does not begin with '    ', as the reference that brings in the block at book/ch.md:7",
    ),
    "spaces for a tab": (
        MAKE + chunk("c", "x\ny\n"),
        "all:\n        x\n\ty\n",
        r"a.py:2: does not begin with '\t', as the reference that brings in the block at book/ch.md:6",
    ),
    "one of two uses in one file": (
        USED_TWICE + chunk("c", "1\n2\n"),
        "1\nnew\n-\n    1\n    2\n",
        "if a chunk of it is used in several places, edit them alike",
    ),
    "two uses, differently": (
        USED_TWICE + chunk("c", "1\n2\n"),
        "1\nnew\n-\n    1\n    other\n",
        "two edits want different things",
    ),
    "both sides of a reference": (CALL + chunk("args", "1\n"), "g(1) + 2\n", AROUND),
    "a reference and what is beside it": (CALL + chunk("args", "1\n"), "g(7) + 1\n", AROUND),
    "a line around a reference becomes two": (CALL + chunk("args", "1\n"), "f(1)\n+ 1\n", AROUND),
    "text that is twice around a reference": (
        target("a.py", "a<<c>>a\n") + chunk("c", "1\n"),
        "b1a\n",
        AROUND,
    ),
    "white space on a blank line of a chunk": (
        NESTED + chunk("body", "x = 1\n\ny = x\n"),
        "def f():\n    x = 1\n    \n    y = x\n    return y\n",
        "a.py: the edit cannot be carried back",
    ),
    "CRLF": (target("a.py", "x\ny\n"), "x\r\ny\r\n", "has CRLF line ends"),
    "not UTF-8": (target("a.py", "x\n"), b"x\xff\n", "is not UTF-8 at byte 1"),
    "a patch would fit twice": (
        WITH_PATCH.replace("2\n", "2\n3\n").replace("+3", "+4"),
        "3\n2\n3\n",
        "book/ch.md:11: patch fits 2 times (lines 1, 3 of the chunk) in chunk 'c'",
    ),
    "a patch would show nothing": (WITH_PATCH, "2\n", "patch has no line of context"),
    "a line between two of a patch": (
        WITH_PATCH.replace("+3\n", "+3\n 2\n"),
        "1\nnew\n2\n",
        "book/ch.md:11: patch does not fit in chunk 'c'",
    ),
}


@pytest.mark.parametrize(("book", "text", "why"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("force", [[], ["--force"]], ids=["", "force"])
def test_an_edit_that_is_refused(book, text, why, force, tmp_path):
    told = refused(edited(tmp_path, book, text, "--bare"), "stitch", "--bare", *force)
    assert why in told
    assert told.endswith("stitch: no chapter was touched\n")


@pytest.mark.parametrize("text", ["# Tangled by me\nx\n", "x\n"])
def test_the_header_cannot_be_edited(text, tmp_path):
    told = refused(edited(tmp_path, target("a.py", "x\n"), text), "stitch")
    assert "a.py: the header line is written by tangling and cannot be edited" in told


MADE_RIGHT = {  # body, path, the file after the edit ("@": the header line), and after stitch
    "a comment on top without a blank": ("x\n", "a.py", "@#x\ny\n", "#x\ny\n"),
    "a cell above the header": ("x\n", "a.py", "#%% cell\n@x\ny\n", "#%% cell\nx\ny\n"),
    "a mark of zsh": ("x\n", "a.sh", "#compdef a\n@x\ny\n", "#compdef a\nx\ny\n"),
    "a text that is no reference": ("x\n", "a.py", "<<new>>\n@x\ny\n", "<<new>>\nx\ny\n"),
    "a field of a page": ("x\n", "a.md", "a: b\n@x\ny\n", "a: b\nx\ny\n"),
    "an import above the header": ("x\n", "a.py", "import os\n@x\ny\n", "@import os\nx\ny\n"),
    "a shebang below the header": ("x\n", "a.sh", "@#!/bin/sh\nx\ny\n", "#!/bin/sh\n@x\ny\n"),
    "another shebang": ("#!/bin/sh\nx\n", "a.py", "#!/bin/b\n@x\n", "#!/bin/b\n@x\n"),
    "no newline at the end": ("x\n", "a.py", "@x\nz", "@x\nz\n"),
    "newlines at the end": ("x\n", "a.py", "@x\nz\n\n\n", "@x\nz\n"),
    "nothing but a newline": ("x\n", "a.py", "@x\n\n", "@x\n"),
    "nothing": ("x\n", "a.py", "\n", ""),
    "the header line alone": ("x\n", "a.sh", "# Tangled from book/ch.md", ""),
    "an empty file, filled": ("", "p/__init__.py", "x\n", "# Tangled from book/ch.md\nx\n"),
    "no header before": (
        "<!-- x\n",
        "a.py",
        "x\n<!-- x\n",
        "# Tangled from book/ch.md\nx\n<!-- x\n",
    ),
}


@pytest.mark.parametrize(("body", "path", "text", "after"), MADE_RIGHT.values(), ids=MADE_RIGHT)
def test_header_and_end_are_tanglings_own(body, path, text, after, tmp_path):
    project = Project(tmp_path, target(path, body))
    line = "".join(row for row in project.tangle()[path].splitlines(True) if "Tangled" in row)
    project.put(path, text.replace("@", line))
    assert carried(project) == {path: after.replace("@", line)}


def test_two_edits_of_one_chunk_that_disagree(tmp_path):
    book = target("a.py", "<<c>>\n") + target("b.py", "  <<c>>\n") + chunk("c", "1\n2\n")
    project = edited(tmp_path, book, "1\nnew\n", "--bare")
    project.put("b.py", "  1\n  other\n")
    assert refused(project, "stitch", "--bare") == (
        "book/ch.md:11: conflict: two edits want different things here; make them the same:\n"
        "  a.py:2: new\n"
        "  b.py:2: other\n"
        "stitch: no chapter was touched\n"
    )
    project.put("b.py", "  one\n  2\n")
    assert "the edit cannot be carried back" in refused(project, "stitch", "--bare")
    project.put("b.py", "  1\n  new\n")
    assert carried(project, "--bare") == {"a.py": "1\nnew\n", "b.py": "  1\n  new\n"}


def test_a_warning_of_the_book_is_told_once(tmp_path):
    project = edited(tmp_path, target("a.py", "x\n") + chunk("unused", "y\n"), "y\nx\n", "--bare")
    told = "book/ch.md:6: warning: chunk 'unused' is used nowhere, so its code is in no file\n"
    assert project.run("stitch", "--bare").err == told


def test_all_reasons_are_told(tmp_path):
    book = "".join(target(f"{name}.py", "x\n") for name in "abc")
    project = edited(tmp_path, book, b"x\xff\n", "--bare")
    project.put("b.py", "x\r\n")
    project.put("c.py", "fine\n")
    told = refused(project, "stitch", "--bare")
    assert "a.py: is not UTF-8" in told
    assert "b.py: has CRLF line ends" in told


def test_the_diff_of_a_variant_is_not_overwritten(tmp_path):
    book = USE + chunk("c", "1\n") + block("diff {patch=c file=s.patch}", "-1\n+3\n")
    project = edited(tmp_path, book, "mine\n", "--bare", path="s.patch")
    told = refused(project, "stitch", "--bare")
    assert "s.patch: edited by hand" in told


FOLLOWED = {  # chunk, patch, a.py after the edit, patch afterwards
    "a - line": ("1\n2\n", "-1\n+3\n", "one\n2\n", "-one\n+3\n"),
    "a line of context": ("1\n2\n", " 1\n-2\n+3\n", "one\n2\n", " one\n-2\n+3\n"),
    "what it does not show": ("1\n2\n", "-1\n+3\n", "1\ntwo\n", "-1\n+3\n"),
    "one line becomes two": ("f( )\n2\n", "-f( )\n+g\n 2\n", "f(\n)\n2\n", "-f(\n-)\n+g\n 2\n"),
    "both signs": (
        "f( 1 )\ng( 2 )\n",
        " f( 1 )\n-g( 2 )\n+3\n",
        "f(1)\ng(2)\n",
        " f(1)\n-g(2)\n+3\n",
    ),
    "a new line before it": ("1\n2\n", "-1\n+3\n 2\n", "new\n1\n2\n", "-1\n+3\n 2\n"),
    "a line goes": ("1\n2\n3\n", " 1\n 2\n-3\n+4\n", "1\n3\n", " 1\n-3\n+4\n"),
    "two hunks": ("1\n2\n3\n", "-1\n+0\n@@\n-3\n+5\n", "1\ntwo\nx\n", "-1\n+0\n@@\n-x\n+5\n"),
    "an escaped reference": ("1\n2\n", " 1\n-2\n+3\n", "<<c>>\n2\n", " \\<<c>>\n-2\n+3\n"),
}


@pytest.mark.parametrize(("lines", "patch", "text", "after"), FOLLOWED.values(), ids=FOLLOWED)
def test_a_patch_follows_the_edits_of_its_chunk(lines, patch, text, after, tmp_path):
    book = USE + chunk("c", lines) + block("diff {#s patch=c file=s.patch}", patch)
    project = edited(tmp_path, book, text, "--bare")
    assert carried(project, "--bare")["a.py"] == text
    follows = block("diff {#s patch=c file=s.patch}", after)
    assert project.text("book/ch.md").endswith(follows)


def test_patches_of_one_variant_follow_one_after_the_other(tmp_path):
    first = block("diff {#s patch=c}", "-1\n+3\n")
    second = block("diff {#s patch=c file=s.patch}", " 3\n-2\n+4\n")
    project = edited(tmp_path, USE + chunk("c", "1\n2\n") + first + second, "1\ntwo\n", "--bare")
    carried(project, "--bare")
    assert project.text("book/ch.md").endswith(first + second.replace("-2", "-two"))


def test_an_edited_file_of_a_chapter_that_changed_too(tmp_path):
    project = edited(tmp_path, target("a.py", "1\n2\n"), "1\nfile\n", "--bare")
    project.put("book/ch.md", target("a.py", "1\nchapter\n"))
    assert "-chapter\n+file\n" in refused(project, "stitch", "--bare")
    assert "-chapter\n+file\n" in project.run("--bare").err
    assert carried(project, "--bare", "--force") == {"a.py": "1\nfile\n"}
    assert project.text("book/ch.md") == target("a.py", "1\nfile\n")


def test_without_a_record_only_force_takes_a_file(tmp_path):
    project = edited(tmp_path, target("a.py", "1\n") + target("b.py", "1\n"), "2\n", "--bare")
    (tmp_path / ".tangle.json").unlink()
    told = refused(project, "stitch", "--bare")
    assert "a.py: edited, and the record does not know what its chapter makes of it now" in told
    assert "-1\n+2\n" in told
    assert "b.py" not in told
    assert carried(project, "--bare", "--force") == {"a.py": "2\n", "b.py": "1\n"}


def test_the_same_edit_in_file_and_chapter_is_no_conflict(tmp_path):
    project = edited(tmp_path, target("a.py", "1\n"), "2\n", "--bare")
    project.put("book/ch.md", target("a.py", "2\n"))
    assert carried(project, "--bare") == {"a.py": "2\n"}


def test_a_book_with_errors_is_not_stitched(tmp_path):
    project = edited(tmp_path, target("a.py", "1\n"), "2\n", "--bare")
    project.put("book/b.md", "```\n")
    assert "book/b.md:1: fence is not closed" in refused(project, "stitch", "--bare")


def test_a_chapter_that_is_saved_while_stitch_runs_keeps_what_was_saved(tmp_path):
    project = edited(tmp_path, target("a.py", "1\n2\n"), "1\nfile\n", "--bare")
    saved = "A new first line.\n\n" + target("a.py", "1\n2\n")
    really_load = literate.disk.load_record

    def load_record(root):
        project.put("book/ch.md", saved)  # the book has been read by now
        return really_load(root)

    with mock.patch("literate.command.load_record", load_record):
        run = project.run("stitch", "--bare")
    assert "book/ch.md: was changed meanwhile; run stitch again" in run.err
    assert (run.status, project.text("book/ch.md")) == (1, saved)


@pytest.mark.parametrize("how", ["in its place", "by renaming"])
def test_a_chapter_that_is_saved_at_the_last_moment_keeps_what_was_saved(how, tmp_path):
    project = edited(tmp_path, target("a.py", "1\n"), "file\n", "--bare")
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
    "b.md": target("p/b.py", "<<functions>>\nx = f(1,2)\ny = [" + "10000, " * 30 + "]\n"),
    "c.md": target("p/c.py", '"""Text."""\n<<main>>\n').replace("\n", "\r\n")
    + chunk("main", "if __name__=='__main__':\n  print( 'x' )\n"),
}


def test_a_formatter_and_stitch_come_to_rest(tmp_path):
    project = Project(tmp_path, UNFORMATTED)
    before = project.tangle()
    ruff = [sys.executable, "-m", "ruff", "format", "--quiet", "--isolated", "--no-cache", "p"]
    results = []
    for _ in range(2):
        subprocess.run(ruff, cwd=tmp_path, check=True)
        formatted = project.made()
        made = carried(project)
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
        seen.append((project.text("book/ch.md").splitlines()[1], project.text("a.py")[:-1]))
        project.put(path, content)

    edits = [
        ("a.py", "22\n"),
        ("book/ch.md", target("a.py", "333\n")),
        ("a.py", "4444\r\n"),
        ("a.py", "55555\n"),
        ("book/b.md", ""),
    ]
    watch(project, at_rest(lambda edit=edit: put(*edit) for edit in edits), "stitch")
    refused = ("333", "4444\r")  # CRLF
    assert seen == [("1", "1"), ("22", "22"), ("333", "333"), refused, ("55555", "55555")]


def test_an_edit_that_is_saved_while_a_watching_stitch_runs_is_not_missed(tmp_path):
    project = Project(tmp_path, target("a.py", "1\n") + target("b.py", "1\n"))
    project.tangle("--bare")
    really = literate.disk.commit
    looks = []

    def commit(*arguments):
        really(*arguments)
        if not looks:
            project.put("b.py", "from the editor\n")

    with mock.patch("literate.command.commit", commit):
        project.put("a.py", "22\n")
        watch(project, [lambda: looks.append(project.text("book/ch.md"))] * 4, "stitch")
    assert looks[0] == target("a.py", "22\n") + target("b.py", "1\n")
    assert looks[2] == target("a.py", "22\n") + target("b.py", "from the editor\n")
    assert project.tangle("--bare") == {"a.py": "22\n", "b.py": "from the editor\n"}


@pytest.mark.parametrize("mode", ["kill", "fail", "full"])
def test_a_stitch_that_ends_early_loses_no_edit_and_the_next_one_ends_well(
    mode, tmp_path, faulty_disk
):
    book = {
        "a.md": target("a.py", "1\n<<two>>\n"),
        "b.md": (chunk("two", "2\n") + target("b.py", "3\n")).replace("\n", "\r\n"),
    }
    project = edited(tmp_path, book, "one\ntwo\n", "--bare")
    project.put("b.py", "three\n")
    (tmp_path / "book" / "a.md").chmod(0o600)
    start, force = project.snapshot(), 0
    steps = faulty_disk(project, "count", 0, "stitch", "--bare").seen
    end = project.snapshot()
    assert steps >= 8
    for number in range(1, steps + 1):
        restore(project, start)
        answer = faulty_disk(project, mode, number, "stitch", "--bare")
        assert mode != "kill" or answer.status == -9
        left = project.snapshot()
        assert {path for path in left if path.startswith("book/")} == {"book/a.md", "book/b.md"}
        for path in ("book/a.md", "book/b.md"):
            assert left[path] in (start[path], end[path]), (number, answer.err)
        assert (left["a.py"], left["b.py"]) == (start["a.py"], start["b.py"]), number
        run = project.run("stitch", "--bare")
        if run.status:
            assert any(left[path] == end[path] for path in ("book/a.md", "book/b.md"))
            run, force = project.run("stitch", "--bare", "--force"), force + 1
        assert run.status == 0, (number, run.err)
        assert project.snapshot() == end, number
    assert force <= 1
