# Tangled from book/workshop/literate-expand.md
"""The line on top of a tangled file that names its chapter."""

from __future__ import annotations

import os
import re

from literate.markdown import FRONT_MATTER, Block, Chapter

COMMENT_STYLES = {
    "# {}": "py pyi pyx sh bash zsh fish rb r jl nim toml yaml yml mk cmake tcl awk sed ps1 properties "
    "gitignore gitattributes dockerignore editorconfig makefile gnumakefile dockerfile justfile",
    "// {}": "c h cc hh cpp hpp cxx cu rs go java js mjs cjs jsx ts mts tsx kt kts scala swift cs dart zig scss proto",
    "/* {} */": "css less",
    "<!-- {} -->": "html htm xml svg md markdown vue",
    "-- {}": "sql lua hs elm adb ads vhd vhdl",
    "; {}": "ini",
    ";; {}": "el lisp clj scm rkt",
    "% {}": "tex sty erl",
    "! {}": "f90 f95 f03 f08",
    "(* {} *)": "ml mli",
}
# First lines that a program reads: comments without a blank behind their mark, such as `#n` of sed, `#compdef`,
# `#cloud-config`, `%&latex`, `--liquibase`; `%%! -smp`; a notebook of Pluto's; variables of Emacs.
FIRST_LINE = r".*-\*-|%%!|(?:{})+(?:[\w%&:@$]| A Pluto)"
# What has to stay in front of the header: shebang and coding lines, directives of a Dockerfile, the front matter of a
# notebook or a page, declarations that XML, HTML and CSS want first.
PROLOGUE = r"""(?xi)
    (?:\#!.*\n)?
    (?:\#.*coding[:=][ \t]*[-\w.]+.*\n | \#[ \t]*(?:syntax|escape|check)[ \t]*=.*\n)*
    (?:\#[ ]---\n(?:\#.*\n)*?\#[ ]---\n
      | <\?.*\n | <!DOCTYPE[^>\[]*(?:\[[^\]]*\])?[^>]*>.*\n | @charset.*\n)?"""


def header(target: str, blocks: list[Block], text: str) -> tuple[int, str]:
    """Where in a target's text the line that names the chapter goes, and the line; "" where the format has none."""
    _, dot, ending = target.rpartition("/")[2].lower().rpartition(".")
    known = COMMENT_STYLES if dot or ending.endswith("file") else {}
    style = next((s for s, endings in known.items() if f" {ending} " in f" {endings} "), None)
    if style is None or any(block.attributes.get("header") == "no" for block in blocks):
        return 0, ""
    chapters = list(dict.fromkeys(chapter_title(block.chapter) for block in blocks))
    more = f" and {len(chapters) - 1} more" if len(chapters) > 1 else ""
    line = style.format(f"Tangled from {without_comment_ends(chapters[0])}{more}") + "\n"
    is_page = style[0] == "<"
    found = re.match(FRONT_MATTER, text) if is_page else None
    found = found or re.match(PROLOGUE, text)
    at = found.end() if found else 0
    first_line = FIRST_LINE.format(re.escape(style.split()[0])) + r"|\w[\w-]*:\s" * is_page
    is_read = re.match(first_line, text[at:]) or text[:1] == "<" and not is_page
    return at, "" if is_read else line


def chapter_title(chapter: Chapter) -> str:
    """How a header names a chapter: with the book's folder, the same from wherever the run was started."""
    if os.path.normpath(chapter.path).replace(os.sep, "/") == chapter.name:
        return chapter.name
    folder = os.path.abspath(chapter.path)[: -len(chapter.name) - 1]
    return f"{os.path.basename(folder)}/{chapter.name}"


def without_comment_ends(title: str) -> str:
    """`title` as it can stand in a comment of any format: on one line, and ending none."""
    title = title if title.isprintable() else ascii(title)[1:-1]
    return re.sub("-(?=-)", "- ", title).replace("*/", "* /").replace("*)", "* )")
