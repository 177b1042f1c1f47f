# Tangled from book/workshop/tangle-tests.md
"""What the files are: the header line, and the diffs of variants."""

import os
import re
import subprocess

import pytest

import literate.read
from tests.literate.project import Project, block, chunk, errors, line_map, target

HASH, SLASH, STAR, XML = "# {}\n", "// {}\n", "/* {} */\n", "<!-- {} -->\n"
PLAIN = {  # header -> targets that begin with it
    HASH: "a.py a.pyi a.toml x/Makefile Dockerfile .gitignore a.sed",
    SLASH: "a.c a.rs",
    STAR: "a.css",
    XML: "a.html",
    "-- {}\n": "a.sql a.lua",
    "; {}\n": "a.ini",
    ";; {}\n": "a.el",
    "% {}\n": "a.tex",
    "! {}\n": "a.f90",
    "(* {} *)\n": "a.ml",
    "": "a.s a.S a.asm a.pl a.v a.cls a.bib a.zzz a.json a.txt LICENSE a.patch",
}
HEADERS = [  # target, what has to stay in front, header, the rest
    ("a.py", "", HASH, '"""Text."""\n'),
    ("a.py", "", HASH, "# a comment\nx\n"),
    ("a.py", "", HASH, "---\n---\n"),
    ("a.py", "#!/usr/bin/env python3\n", HASH, "x\n"),
    ("a.py", "#!/usr/bin/env python3\n", HASH, ""),
    ("a.py", "#!/bin/sh\n# -*- coding: utf-8 -*-\n", HASH, "x\n"),
    ("a.py", "# vim: set fileencoding=utf-8 :\n", HASH, "x\n"),
    ("a.py", "# ---\n# jupyter:\n#   kernel: x\n# ---\n", HASH, "\n# %%\nx\n"),
    ("a.py", "#!/bin/sh\n# ---\n# a: b\n# ---\n", HASH, "x\n"),
    ("a.py", "", HASH, "# ---\nx\n"),
    ("a.yaml", "", HASH, "---\na: 1\n---\nb: 1\n"),
    ("Dockerfile", "# syntax=docker/dockerfile:1\n# escape=`\n", HASH, "FROM x\n"),
    ("a.js", "#!/usr/bin/env node\n", SLASH, "x\n"),
    ("a.css", '@charset "utf-8";\n', STAR, "a {}\n"),
    ("a.html", "<!DOCTYPE html>\n", XML, "<html>\n"),
    ("a.html", '<!DOCTYPE html PUBLIC "x"\n  "y">\n', XML, "<html>\n"),
    ("a.xml", '<?xml version="1.0"?>\n', XML, "<a/>\n"),
    ("a.md", "---\ntitle: x\n---\n", XML, "# T\n"),
    ("a.el", "", "", ";;; a.el --- text  -*- lexical-binding: t; -*-\nx\n"),
    ("a.el", "#!/usr/bin/emacs --script\n", "", ";; -*- lexical-binding: t -*-\n"),
    ("a.h", "", "", "// -*- C++ -*-\nx\n"),
    ("a.h", "", SLASH, "#include <x>\n"),
    ("a.rs", "", SLASH, "//! x\n"),
    ("a.sed", "", "", "#n\np\n"),
    ("a.zsh", "", "", "#compdef a\nx\n"),
    ("a.zsh", "", "", "#autoload\nx\n"),
    ("a.yaml", "", "", "#cloud-config\na: 1\n"),
    ("a.jl", "", "", "### A Pluto.jl notebook ###\n# v0.19.40\n"),
    ("a.sql", "", "", "--liquibase formatted sql\nx\n"),
    ("a.tex", "", "", "%&latex\nx\n"),
    ("a.erl", "#!/usr/bin/escript\n", "", "%%! -smp\nx\n"),
    ("a.ts", '<?xml version="1.0"?>\n', "", "<TS/>\n"),
    ("a.md", "", "", "title: x\n\n# T\n"),
    ("a.md", "+++\ntitle = 1\n+++\n", XML, "# T\n"),
    ("bin/go", "#!/bin/sh\n", "", "x\n"),
    *[(path, "", style, "x\n") for style, paths in PLAIN.items() for path in paths.split()],
]


@pytest.mark.parametrize(("path", "first", "header", "rest"), HEADERS)
def test_the_header_stands_first_or_behind_what_must_be_first(path, first, header, rest, tmp_path):
    project = Project(tmp_path, target(path, first + rest))
    wanted = header.format("Tangled from book/ch.md")
    assert project.tangle() == {path: first + wanted + rest}
    assert project.tangle("--bare") == {path: first + rest}
    found = line_map(literate.read.read_book([str(tmp_path / "book")]), path)
    place = first.count("\n")
    lines = [number for _, number in found]
    assert lines[:place] + lines[place + bool(header) :] == [
        2 + k for k in range((first + rest).count("\n"))
    ]


def test_an_empty_file_has_no_header(tmp_path):
    book = target("a.py", "") + target("b/__init__.py", "\n\n") + target("c.py", "<<a>>\n")
    project = Project(tmp_path, book + chunk("a", ""))
    assert project.tangle() == {"a.py": "", "b/__init__.py": "", "c.py": ""}


@pytest.mark.parametrize("where", [0, 1])
def test_header_no_leaves_the_header_out(where, tmp_path):
    marks = ["", " header=no"][:: -1 if where else 1]
    book = block(f"python {{#a file=a.py{marks[0]}}}", "x\n") + block(
        f"python {{#a{marks[1]}}}", "y\n"
    )
    project = Project(tmp_path, book + target("b.py", "z\n"))
    assert project.tangle() == {"a.py": "x\ny\n", "b.py": "# Tangled from book/ch.md\nz\n"}


def test_the_header_tells_of_more_chapters(tmp_path):
    book = {f"{k}.md": target("a.py", f"{k}\n") for k in "123"} | {"4.md": target("a.py", "4\n")}
    project = Project(tmp_path, book)
    assert project.tangle()["a.py"].startswith("# Tangled from book/1.md and 3 more\n1\n")


def test_the_header_is_the_same_from_everywhere(tmp_path):
    project = Project(tmp_path / "p", {"part/ch.md": target("a.py", "x\n")})
    made = project.tangle()
    assert made == {"a.py": "# Tangled from book/part/ch.md\nx\n"}
    elsewhere = Project(tmp_path / "q")
    book = str(tmp_path / "p" / "book")
    assert elsewhere.tangle(book) == made
    assert elsewhere.tangle(os.path.relpath(book, tmp_path / "q"), "-o", ".") == made
    assert elsewhere.tangle(book + os.sep) == made


@pytest.mark.parametrize("name", ["a--b", "a---b", "a--", "a*b", "x\ny", "a-->b", "é", "e\u0301"])
def test_no_chapters_name_ends_the_comment(name, tmp_path):
    targets = ["a.py", "a.css", "a.xml", "a.ml"]
    project = Project(tmp_path, {f"{name}.md": "".join(target(path, "x\n") for path in targets)})
    made = project.tangle()
    for path, text in made.items():
        _, *rest = text.splitlines()
        assert rest == ["x"], path
    assert "--" not in made["a.xml"].removeprefix("<!--").partition("-->\nx\n")[0]


def test_a_chapters_name_that_is_not_utf8(tmp_path):
    folder = os.fsencode(tmp_path / "book")
    os.mkdir(folder)
    with open(folder + b"/\xff.md", "wb") as file:
        file.write(target("a.py", "x\n").encode())
    project = Project(tmp_path, {})
    (text,) = project.tangle().values()
    assert text.endswith("\nx\n")
    assert text.isascii()


def program(body):
    outline = "def f(x):\n    <<body>>\n\n\ndef g(x):\n    <<body>>\n"
    return target("a.py", outline) + chunk("body", body)


BODY_OF_F = "y = x + 1\nz = y\nz = y\nreturn z\n"
PATCHED = program(BODY_OF_F)


def patch(body, attributes="#s1 patch=body file=s1.patch"):
    return block(f"diff {{{attributes}}}", body)


def test_a_variant_is_a_diff_and_no_part_of_the_program(tmp_path):
    book = PATCHED + patch("-y = x + 1\n+y = x - 1\n z = y\n")
    made = Project(tmp_path, book).tangle("--bare")
    assert "x - 1" not in made["a.py"]
    before = [" def f(x):", "-    y = x + 1", "+    y = x - 1"]
    after = ["     z = y", "     z = y", "     return z"]
    again = [" ", " ", " def g(x):", *before[1:], *after]
    header = ["--- a/a.py", "+++ b/a.py", "@@ -1,12 +1,12 @@"]
    assert made["s1.patch"].splitlines() == header + before + after + again


FITTING = {
    "replaced": "-y = x + 1\n+y = x - 1\n",
    "removed": "-y = x + 1\n",
    "added behind": " return z\n+# end\n",
    "added before": "+# start\n y = x + 1\n",
    "everything": "-y = x + 1\n-z = y\n-z = y\n-return z\n+return 0\n",
    "nothing left": "-y = x + 1\n-z = y\n-z = y\n-return z\n",
    "two hunks": " y = x + 1\n+y = 2 * y\n@@\n-return z\n+return 2 * z\n",
    "hunk marks as diff writes them": "@@ -1,2 +1,2 @@ body\n-y = x + 1\n+y = x - 1\n z = y\n",
    "a line twice, with context": " y = x + 1\n-z = y\n+z = 2 * y\n z = y\n",
    "a reference added": "-return z\n+return (<<two>>)\n",
    "a chunk added": " y = x + 1\n+    <<two>>\n z = y\n",
    "an escaped reference added": " y = x + 1\n+# \\<<two>>\n z = y\n",
}


@pytest.mark.parametrize("body", FITTING.values(), ids=FITTING)
@pytest.mark.parametrize("options", [[], ["--bare"]], ids=["header", "bare"])
def test_git_applies_the_diff_of_a_variant(body, options, tmp_path):
    two = chunk("two", "1,\n2\n") + target("two.txt", "<<two>>\n")
    project = Project(tmp_path / "p", PATCHED + two + patch(body))
    project.tangle(*options)
    subprocess.run(["git", "apply", "s1.patch"], cwd=tmp_path / "p", check=True)

    changed = BODY_OF_F
    for hunk in re.split(r"^@@.*\n", body, flags=re.MULTILINE):
        rows = hunk.splitlines(keepends=True)
        old = "".join(row[1:] for row in rows if row[0] in " -")
        new = "".join(row[1:] for row in rows if row[0] in " +")
        changed = changed.replace(old, new) if rows else changed
    by_hand = Project(tmp_path / "q", program(changed) + two)
    assert project.text("a.py") == by_hand.tangle(*options)["a.py"]


MISFITS = {
    "nowhere": ("-y = x - 1\n+y = 0\n", "patch does not fit in chunk 'body'"),
    "twice": ("-z = y\n+z = 0\n", "patch fits 2 times (lines 2, 3 of the chunk)"),
    "white space": ("-y =  x + 1\n+y = 0\n", "does not fit"),
    "not a whole line": ("-y = x\n+y = 0\n", "does not fit"),
    "wrong order": ("-return z\n-y = x + 1\n", "does not fit"),
    "second hunk": ("-y = x + 1\n@@\n-nothing\n", "does not fit"),
    "no context": ("+new\n", "patch has no line of context"),
    "no change": (" y = x + 1\n", "patch changes nothing"),
    "empty": ("", "patch changes nothing"),
    "no sign": ("y = x + 1\n", "line 1 of the patch begins with 'y'; wanted a space, - or +"),
    "undefined": (
        "-return z\n+<<bodi>>\n",
        "patch refers to 'bodi', which is undefined",
    ),
    "itself": ("-return z\n+<<body>>\n", "which contains 'body': a cycle"),
    "a circle": ("-return z\n+<<other>>\n", "which contains 'body': a cycle"),
}


@pytest.mark.parametrize(("body", "message"), MISFITS.values(), ids=MISFITS)
def test_a_patch_that_does_not_fit_is_an_error_at_its_line(body, message, tmp_path):
    book = PATCHED + chunk("other", "<<body>>\n") + target("o", "<<other>>\n")
    told = errors(Project(tmp_path, book + patch(body)))
    assert len(told) == 1
    assert told[0].startswith(f"book/ch.md:{book.count(chr(10)) + 1}: ")
    assert message in told[0]


def test_a_circle_through_two_patches_of_one_variant(tmp_path):
    book = target("f", "<<a>>\n<<b>>\n") + chunk("a", "1\n") + chunk("b", "2\n")
    book += patch(" 1\n+<<b>>\n", "#s patch=a file=s.patch") + patch(" 2\n+<<a>>\n", "#s patch=b")
    told = errors(Project(tmp_path, book))
    assert all("a cycle" in line and "book/ch.md:1" in line for line in told)


@pytest.mark.parametrize(
    ("patches", "line", "message"),
    [
        (patch("-1\n", "patch=nothing file=s"), 1, "patch of chunk 'nothing', which is undefined"),
        (patch("-1\n", "patch=unused file=s"), 1, "patch of 'unused' changes no file"),
        (patch("-1\n", "patch=a file=s") * 2, 5, "target 's' is claimed at book/ch.md:"),
        (patch("-1\n", "patch=a file=f"), 1, "target 'f' is claimed at book/ch.md:"),
        (patch("-1\n", "patch=a file=../s"), 1, "target '../s' is outside"),
    ],
)
def test_errors_of_variants(patches, line, message, tmp_path):
    program = target("f", "<<a>>\n<<b>>\n") + chunk("unused", "1\n")
    program += chunk("a", "1\n") + chunk("b", "2\n")
    run = Project(tmp_path, patches + program).run()
    assert run.status == 1
    told = re.findall(rf"^book/ch\.md:{line}: .*", run.err, re.MULTILINE)
    assert any(message in one for one in told), run.err


def test_names_of_variants_are_their_chapters_own(tmp_path):
    book = {
        "a.md": target("f", "<<a>>\n") + chunk("a", "1\n") + patch("-1\n", "#s patch=a file=s1"),
        "b.md": patch("-1\n+2\n", "#s patch=a file=s2")
        + chunk("s", "3\n")
        + target("g", "<<s>>\n"),
    }
    made = Project(tmp_path, book).tangle()
    assert (made["g"], made["s1"][-5:], made["s2"][-6:]) == ("3\n", "@\n-1\n", "-1\n+2\n")


def test_patches_of_one_variant_are_made_in_order(tmp_path):
    book = target("f", "<<a>>\n<<b>>\n") + chunk("a", "1\n") + chunk("b", "2\n")
    book += patch("-1\n+3\n", "#s patch=a file=s") + patch("-3\n+4\n", "#s patch=a file=./s")
    book += patch("-2\n+5\n", "#s patch=b")
    made = Project(tmp_path, book).tangle()
    assert made["s"].endswith("@@ -1,2 +1,2 @@\n-1\n-2\n+4\n+5\n")


def test_a_chunk_of_several_blocks_is_patched_as_one(tmp_path):
    book = target("f", "<<a>>\n") + chunk("a", "1\n") + chunk("a", "2\n")
    book += patch(" 1\n+1.5\n 2\n", "patch=a file=s")
    assert Project(tmp_path, book).tangle()["s"].endswith("@@ -1,2 +1,3 @@\n 1\n+1.5\n 2\n")
