# Tangled from book/workshop/tangle-tests.md
"""What is a block, what its opener says, how chunks are put together, and which books are refused."""

import contextlib
import io
import os
import re
import stat
import subprocess
import unicodedata
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

import literate.book
import literate.command
import literate.expand
import literate.read


class Run(NamedTuple):
    status: int
    out: str
    err: str


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


def block(opener: str, body: str, fence: str = "```") -> str:
    return f"{fence}{opener}\n{body}{fence}\n\n"


def target(path: str, body: str) -> str:
    return block(f"python {{file={path}}}", body)


def chunk(name: str, body: str) -> str:
    return block(f"python {{#{name}}}", body)


def errors(project: Project, *arguments: str) -> list[str]:
    """What a run that has to refuse the book, and to change nothing, says is wrong with it."""
    before = project.snapshot()
    run = project.run("--bare", *arguments)
    assert run.status == 1, run
    assert project.snapshot() == before
    told = [line for line in run.err.splitlines() if ": warning: " not in line]
    assert told.pop() == f"tangle: {len(told)} error{'s'[: len(told) > 1]}; nothing written"
    return told


# ---- where a block stands

BODY = "def f():\n    return 1\n\n\tx\n>\n- y\ntrailing  \n"
CONTAINERS = {
    "margin": ("", ""),
    "one space": ("", " "),
    "three spaces": ("", "   "),
    "numbered item": ("1. Item.\n\n", "    "),
    "numbered item, three columns": ("1. Item.\n\n", "   "),
    "item with a bracket": ("12) Item.\n\n", "    "),
    "item with a tab": ("- Item.\n\n", "\t"),
    "item, no blank line": ("* Item.\n", "  "),
    "lazily wrapped item": ("- An item\ngoes on.\n\n", "    "),
    "item in an item": ("- a\n\n    + b\n\n", "        "),
    "item in an item, two tabs": ("- a\n\n\t- b\n\n", "\t\t"),
    "third level": ("- a\n\n    - b\n\n        - c\n\n", "            "),
    "item after a paragraph of the item": ("- a\n\n    More.\n\n", "    "),
    "admonition": ("!!! note\n\n", "    "),
    "admonition with a title": ('!!! note "Title"\n', "    "),
    "folded admonition": ("???+ tip\n\n    Text.\n\n", "    "),
    "admonition in an admonition": ("!!! a\n\n    !!! b\n\n", "        "),
    "tab": ('=== "Python"\n\n', "    "),
    "second tab": ('=== "A"\n\n    Text.\n\n=== "B"\n\n', "    "),
    "item in a tab": ('=== "A"\n\n    - i\n\n', "        "),
    "admonition in an item": ("- i\n\n    !!! note\n\n", "        "),
    "footnote": ("[^1]:\n    Note.\n\n", "    "),
    "definition": ("Term\n\n:   Meaning.\n\n", "    "),
    "quote": ("> Text.\n>\n", "> "),
    "quote in a quote": ("> > Text.\n> >\n", "> > "),
    "quote in an item": ("1. i\n\n    > q\n    >\n", "    > "),
    "item in a quote": ("> - i\n>\n", ">   "),
    "quote in a quote in an item": ("- i\n\n    > > q\n    > >\n", "    > > "),
}


@pytest.mark.parametrize("fence", ["```", "~~~", "`````"])
@pytest.mark.parametrize(("before", "prefix"), CONTAINERS.values(), ids=CONTAINERS)
def test_a_container_takes_its_own_indentation_and_nothing_else(before, prefix, fence, tmp_path):
    rows = block("{.python file=a.py}", BODY, fence).splitlines()
    shown = "".join((prefix + row if row else prefix.rstrip()) + "\n" for row in rows)
    text = f"# Title\n\n{before}{shown}\nAfter it.\n\n" + target("b.py", "y\n")
    project = Project(tmp_path, text)
    assert project.tangle("--bare") == {"a.py": BODY, "b.py": "y\n"}
    book = literate.read.read_book([str(tmp_path / "book")])
    first = book.chapters[0].blocks[0]
    assert first.line == book.chapters[0].text[: book.chapters[0].text.index(fence)].count("\n") + 1
    assert first.end_line == first.line + BODY.count("\n") + 1
    assert not book.warnings


@pytest.mark.parametrize(
    ("shown", "body"),
    [
        ("- ```{#a file=a}\n  x\n    y\n  ```\n", "x\n  y\n"),
        ("10. ~~~ {#a file=a}\n    x\n    ~~~\n", "x\n"),
        ("> - ```{#a file=a}\n>   x\n>   ```\n", "x\n"),
        ("- > ```{#a file=a}\n  > x\n  > ```\n", "x\n"),
        ("- i\n\n    ```{#a file=a}\n\tx\n\t\ty\n\t```\n", "x\n\ty\n"),
        ("- i\n\n  ```{#a file=a}\n\tx\n  \ty\n  ```\n", "  x\n\ty\n"),
        ("- i\n\n\t```{#a file=a}\n    x\n\t    y\n    ```\n", "x\n    y\n"),
        ("- i\n\n    ```{#a file=a}\n  less\n\n      more\n    ```\n", "less\n\n  more\n"),
        ("- i\n\n    ```{#a file=a}\n    x\n  ```\n", "x\n"),
        (">```{#a file=a}\n>x\n>  y\n>```\n", "x\n y\n"),
        ("> ```{#a file=a}\n> x\n>y\n>\n>  z\n> ```\n", "x\ny\n\n z\n"),
    ],
)
def test_prefixes_that_change_within_a_block(shown, body, tmp_path):
    assert Project(tmp_path, shown).tangle() == {"a": body}


# ---- what is no block

REAL = block("{#real file=real.py}", "y\n")
NO_BLOCKS = {
    "longer fence": block("markdown", block("{#a file=a}", "x\n"), "````"),
    "longer fence of tildes": block("", block("{#a file=a}", "x\n", "~~~"), "~~~~"),
    "other fence": block("", block("{#a file=a}", "x\n"), "~~~"),
    "fences three deep": block("", block("", block("{#a file=a}", "x\n"), "````"), "`````"),
    "comment": "<!--\n" + block("{#a file=a}", "x\n") + "-->\n\n",
    "comment on one line, unclosed fence": "<!-- ``` {#a file=a} -->\n\n",
    "comment in a list": "- i\n\n    <!--\n    ``` {#a file=a}\n    x\n    ```\n    -->\n\n",
    "two comments": "<!-- a --> <!--\n" + block("{#a file=a}", "x\n") + "-->\n\n",
    "half a block in a comment": "<!--\n``` {#a file=a}\n-->\n\n",
    "indented code": "Text.\n\n    ``` {#a file=a}\n    x\n    ```\n\n",
    "indented code by a tab": "Text.\n\n\t``` {#a file=a}\n\tx\n\t```\n\n",
    "indented code in a list": "- i\n\n        ``` {#a file=a}\n        x\n        ```\n\n",
    "indented code in an admonition": "!!! n\n\n        ``` {#a file=a}\n        x\n        ```\n\n",
    "indented code after a list": "- i\n\nText.\n\n    ``` {#a file=a}\n    x\n    ```\n\n",
    "code span": "Write ``` {#a file=a} ``` for a block.\n\n",
    "backtick in an opener that is not meant": "``` python `a`\n\n",
    "text before the fence": "Text ``` {#a file=a}\n\n",
    "two backticks": "`` {#a file=a}\nx\n``\n\n",
    "no name and no file": block("python", "x\n") + block("{.python}", "x\n") + block("", "x\n"),
    "other attributes": block('python {.values hl_lines="1 2" title="file=a"}', "x\n"),
    "other attributes without braces": block('python title="a b" linenums="1"', "x\n"),
    "braces of a template": block("{{ language }}", "x\n") + block("python {% raw %}", "x\n"),
}


@pytest.mark.parametrize("text", NO_BLOCKS.values(), ids=NO_BLOCKS)
@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_text_that_is_no_block_makes_no_file(text, ends, tmp_path):
    project = Project(tmp_path, (text + REAL + text).replace("\n", ends))
    assert project.tangle("--bare") == {"real.py": "y\n"}


def test_a_named_fence_in_indented_code_is_warned_of(tmp_path):
    project = Project(tmp_path, NO_BLOCKS["indented code"] + REAL)
    run = project.run()
    assert run.status == 0
    assert "book/ch.md:3: warning: this fence stands in indented code" in run.err


def test_file_without_braces_is_warned_of(tmp_path):
    run = Project(tmp_path, block("python file=a.py", "x\n") + REAL).run()
    assert run.status == 0
    assert "book/ch.md:1: warning: file= outside of {...} is not read" in run.err


@pytest.mark.parametrize(
    "before",
    [
        "A comment begins with `<!--` there.\n\n",
        "Between `<!--` and `-->` is nothing; `<!--` opens.\n\n",
        "Two: ``<!-- ` `` and `` ` <!--``.\n\n",
        "Split over `two\nlines <!-- of` a span.\n\n",
        "Escaped \\<!-- is text.\n\n",
        "Text with <!-- that no mark closes.\n\n",
        "Text with <!-- that a diagram closes.\n\n" + block("mermaid", "A --> B\n"),
        "- Text <!-- in a list.\n\n",
        "> Text <!-- in a quote.\n\n",
        "# Title <!--\n\n",
        "---\ntitle: About <!-- marks\n---\n\n",
        "---\n# x\n\na: |\n  text\n<!-- b\n...\n\n",
        "+++\na = 1\n<!-- b\n+++\n\n",
        "    <!-- in indented code\n\n",
        block("html", "<!--\n"),
        block("html", "<!-- a --> <!--\n", "~~~"),
        "<!-- closed at once -->\n",
        "<!---->\n",
        "<!--->\n",
        "<!-- a\nb --> text\n\n",
        "<!-- ` --> and `x`\n\n",
    ],
)
def test_comment_marks_that_hide_nothing(before, tmp_path):
    behind = "\nFrom A --> B.\n"
    project = Project(
        tmp_path, before + REAL + behind * (before.count("<!--") > before.count("-->"))
    )
    assert project.tangle("--bare") == {"real.py": "y\n"}


def test_a_fence_ends_the_comment_in_a_paragraph(tmp_path):
    book = "Text <!-- and\n" + block("{#a file=a}", "x\n") + " --> more\n"
    assert Project(tmp_path, book).tangle("--bare") == {"a": "x\n"}


def test_a_rule_on_top_is_no_front_matter(tmp_path):
    book = "---\n\n<!--\n" + block("{#a file=a}", "x\n") + "-->\n\n---\n\n" + REAL
    assert Project(tmp_path, book).tangle("--bare") == {"real.py": "y\n"}


@pytest.mark.parametrize(
    "before",
    [
        "<!--\n",
        "Text.\n\n<!-- x\n",
        "Text\n   <!-- x\n",
        "> <!--\n\n",
        "> <!-- x\n\n`-->`\n",
        "- <!-- x\n",
        "- a\n\n    <!--\n",
    ],
)
def test_a_comment_that_is_never_closed_is_a_error(before, tmp_path):
    line = before.count("\n", 0, before.index("<!--")) + 1
    (told,) = errors(Project(tmp_path, before + REAL))
    assert told.startswith(f"book/ch.md:{line}: HTML comment is not closed")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("```\n", 1),
        ("Text.\n\n``` {#a file=a}", 3),
        ("``` {#a file=a}\nx\n``", 1),
        ("```` {#a file=a}\nx\n```\n", 1),
        ("~~~ {#a file=a}\nx\n```\n", 1),
        ("``` {#a file=a}\nx\n``` text\n", 1),
        ("``` {#a file=a}\nx\n    ```\n", 1),
        ("> ``` {#a file=a}\n> x\n```\n", 1),
        ("> ``` {#a file=a}\nx\n> ```\n", 1),
        ("``` {#a file=a}\n> ```\n", 1),
        ("- i\n\n    ``` {#a file=a}\n    x\n            ```\n", 3),
        ("- i\n\n    ``` {#a file=a}\n    x\n\nText.\n\n``` {#b file=b}\ny\n```\n", 3),
        ('=== "T"\n\n    ``` {#a file=a}\n    x\n\n``` {#b file=b}\ny\n```\n', 3),
    ],
)
def test_a_fence_that_is_never_closed_is_a_error(text, line, tmp_path):
    told = errors(Project(tmp_path, text))
    assert told[0].startswith(f"book/ch.md:{line}: fence is not closed")


def test_a_fence_swallows_no_other_block(tmp_path):
    text = "``` {#a file=a.py}\nx\n\n" + block("{#b file=b.py}", "<<nowhere>>\n")
    told = errors(Project(tmp_path, text))
    assert told[0] == "book/ch.md:1: fence is not closed before another block opens in line 4"
    assert told[1].startswith("book/ch.md:5: chunk 'nowhere' is undefined")


ENDED_EARLY = (
    "; the block of line 1 ended in line 3: if that fence is part of its text, "
    "open and close the block with ````"
)


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        ("'\n```\n", "5: fence is not closed: no line of ``` follows that ends it"),
        ("'\n```\n\n" + REAL, "5: fence is not closed before another block opens in line 7"),
        ("x\n```\n'\n```\n", "5: warning: this fence opens a block of its own"),
        ("x\n```\n'\n```\n\n" + REAL, "5: warning: this fence opens a block of its own"),
        ("\n```\nx\n```\n", ""),
        ("x\n```text\nx\n```\n", ""),
        ("x\n~~~\nx\n~~~\n", ""),
    ],
)
def test_a_fence_in_a_string_that_ended_the_block_is_told(rest, told, tmp_path):
    run = Project(tmp_path, "```python {file=a.py}\na = '\n```\n" + rest).run()
    (first,) = run.err.splitlines()[:1] or [""]
    assert first == (told and f"book/ch.md:{told}{ENDED_EARLY}")
    assert run.status == ("not closed" in told)


# ---- openers

SAME = [
    "python {#main file=a.py}",
    "python {file=a.py #main}",
    "python{#main file=a.py}",
    " python  {  #main   file=a.py  }  ",
    "\tpython\t{#main\tfile=a.py}\t",
    "{.python #main file=a.py}",
    "{.python file=a.py #main}",
    "{#main .python file=a.py}",
    "{.python #main file='a.py'}",
    ' {.python #main file="a.py"}',
    "{python #main file=a.py}",
    "{ .python #main file = a.py }",
    "python {#main file=./a.py}",
    "python {#main file=x/../a.py}",
]


@pytest.mark.parametrize("fence", ["```", "~~~", "~~~~~~"])
@pytest.mark.parametrize("opener", SAME)
def test_openers_that_say_the_same(opener, fence, tmp_path):
    project = Project(tmp_path, block(opener, "x\n", fence))
    assert project.tangle("--bare") == {"a.py": "x\n"}
    (chapter,) = literate.read.read_book([str(tmp_path / "book")]).chapters
    (found,) = chapter.blocks
    assert (found.language, found.name, found.classes, found.fence) == ("python", "main", [], fence)


def test_other_attributes_are_handed_on(tmp_path):
    opener = 'python {#a .values .x file=a.py title="b {c} \\"d\\"" hl_lines=\'1 2\' data-n=1}'
    project = Project(tmp_path, block(opener, "x\n"))
    assert project.tangle("--bare") == {"a.py": "x\n"}
    (found,) = literate.read.read_book([str(tmp_path / "book")]).chapters[0].blocks
    assert found.classes == ["values", "x"]
    assert found.attributes == {
        "file": "a.py",
        "title": 'b {c} "d"',
        "hl_lines": "1 2",
        "data-n": "1",
    }


@pytest.mark.parametrize(
    ("opener", "message"),
    [
        ("python {#a #b file=a.py}", "two names"),
        ("python {#a file=a.py file=b.py}", "file= is given twice"),
        ("python {#a file=a.py mode=755 mode=644}", "mode= is given twice"),
        ('python {#a file="a.py}', "cannot read attributes from"),
        ("python {#a file=a.py", "does not end in one {...}"),
        ("python {#a file=a.py} text", "does not end in one {...}"),
        ("python title=x {#a file=a.py}", "does not end in one {...}"),
        ("python {#a+b file=a.py}", "is not a name"),
        ("python {#a file=a.py ==}", "cannot read attributes from"),
        ("python {#a file=a.py title=`x`}", "a backtick in the info string makes this no fence"),
        ("python {#a file=a.py mode=9}", "mode=9 is not three octal digits"),
        ("python {#a file=a.py mode=rwx}", "is not three octal digits"),
        ("python {#a file=a.py mode=07555}", "is not three octal digits"),
        ("python {#a mode=755}", "mode= without file= sets nothing"),
        ("python {#a file=a.py header=yes}", "header= takes only no"),
        ("python {#my chunk}", "chunk is no #name, .class or key=value"),
        ("python {#my chunk file=a.py}", "chunk is no #name, .class or key=value"),
        ("python {#a append}", "append is no #name, .class or key=value"),
        ("python {# my-chunk}", "cannot read attributes from '# my-chunk'"),
        ("python {file=my file.py}", "file.py is no #name, .class or key=value"),
        ("python {#a file=a.py, mode=755}", "file=a.py, has a comma"),
        ("python {#a, file=a.py}", "#a, has a comma"),
        ("python {#a,file=a.py}", "#a,file=a.py has a comma"),
        ("python {file=a.py,mode=755}", "file=a.py,mode=755 has a comma"),
        ("python {file=a.py;mode=755}", "file=a.py;mode=755 has a comma"),
        ("python {file=a.py .x, .y}", ".x, has a comma"),
        ("python {file=\u201ca.py\u201d}", "has curly quotes"),
        ("python {#a title=\u2018x\u2019}", "has curly quotes"),
        ("python {#a file:a.py}", "file:a.py has a colon"),
        ("python {file: a.py}", "file: has a colon"),
        ("python {file= mode=755}", "file=mode=755 has two ="),
    ],
)
def test_an_opener_that_is_meant_and_malformed_is_a_error(opener, message, tmp_path):
    told = errors(Project(tmp_path, "Text.\n\n" + block(opener, "x\n") + REAL))
    assert message in told[0]
    assert told[0].startswith("book/ch.md:3: ")


@pytest.mark.parametrize("mode", ["755", "0755", "o755", "0o755"])
def test_spellings_of_a_mode(mode, tmp_path):
    project = Project(tmp_path, block(f"sh {{file=run mode={mode}}}", "x\n"))
    project.tangle()
    assert project.snapshot()["run"] == (b"x\n", 0o755)


@pytest.mark.parametrize("name", ["a", "1", "_", "a-b", "a.b", "a:b", "p/q.r", "größe", "数", "π2"])
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_names(name, form, tmp_path):
    defined = unicodedata.normalize(form, name)
    book = target("a.py", f"<<{name}>>\nf(<<{defined}>>)\n") + chunk(defined, "x\n")
    project = Project(tmp_path, book)
    assert project.tangle("--bare") == {"a.py": "x\nf(x)\n"}
    assert list(literate.read.read_book([str(tmp_path / "book")]).chunks)[1] == name


# ---- references

CHUNKS = (
    chunk("one", "1\n")
    + chunk("two", "1,\n2\n")
    + chunk("gap", "1\n\n2\n")
    + chunk("none", "")
    + chunk("blank", "\n")
    + chunk("led", "\n1\n")
    + chunk("trailed", "1\n\n")
    + chunk("deep", "if x:\n    <<two>>\n")
    + chunk("call", "f(<<two>>)\n")
    + chunk("tail", "g(<<trailed>>)\n")
    + chunk("begun", "<<led>>x\n")
    + chunk("hollow", "    <<none>>\nx\n")
)
REFERENCES = {
    "alone": ("<<one>>\n", "1\n"),
    "alone, indented": ("    <<two>>\n", "    1,\n    2\n"),
    "alone, tab": ("all:\n\t<<two>>\n", "all:\n\t1,\n\t2\n"),
    "alone, tab and spaces": ("\t  <<two>>\n", "\t  1,\n\t  2\n"),
    "alone, white space behind": ("<<one>> \t \n", "1\n"),
    "blank lines stay empty": ("  <<gap>>\n", "  1\n\n  2\n"),
    "white space on a line is blank": ("x\n    <<white>>\n", "x\n    1\n\n    2\n"),
    "two levels": ("  <<deep>>\n", "  if x:\n      1,\n      2\n"),
    "twice": ("<<one>>\n<<one>>\n", "1\n1\n"),
    "inside": ("f(<<one>>)\n", "f(1)\n"),
    "inside, longer": ("f(<<two>>)\n", "f(1,\n  2)\n"),
    "inside, twice": ("f(<<one>>, <<one>>)\n", "f(1, 1)\n"),
    "inside, side by side": ("<<one>><<one>>\n", "11\n"),
    "inside, longer twice": ("<<two>> + <<two>>\n", "1,\n2 + 1,\n    2\n"),
    "inside, at the start": ("<<two>>)\n", "1,\n2)\n"),
    "inside, at the end": ("f = <<two>>\n", "f = 1,\n    2\n"),
    "inside, tab before": ("\tf(<<two>>)\n", "\tf(1,\n\t  2)\n"),
    "inside, blank line": ("f(<<gap>>)\n", "f(1\n\n  2)\n"),
    "inside, deep": ("x = <<deep>>\n", "x = if x:\n        1,\n        2\n"),
    "inside the inside": ("g(<<call>>)\n", "g(f(1,\n    2))\n"),
    "inside, indented by an outer one": ("  <<call>>\n", "  f(1,\n    2)\n"),
    "inside, one ends in a blank line": ("  <<tail>>\n", "  g(1\n  )\n"),
    "inside, one begins with a blank line": ("  <<begun>>\n", "\n  1x\n"),
    "inside, a blank chunk": ("<<blank>>x\n", "x\n"),
    "inside, a blank chunk in the middle": ("a<<blank>>x\n", "ax\n"),
    "empty, alone": ("a\n    <<none>>\nb\n", "a\nb\n"),
    "empty, inside": ("f(<<none>>)\n", "f()\n"),
    "empty, behind an inside one": ("f(<<hollow>>)\n", "f(x)\n"),
    "empty, the whole file": ("<<none>>\n", ""),
    "no chunk: text": ("x <<n>> 1\n", "x <<n>> 1\n"),
    "no name: text": ("<<>> << o >> <<o ne>> <<one>\n", "<<>> << o >> <<o ne>> <<one>\n"),
    "more brackets": ("<<<one>>>\n", "<1>\n"),
    "shift and compare": ("a<<b>>c\n", "a<<b>>c\n"),
    "escaped": ("\\<<one>>\n    \\<<nowhere>>\n", "<<one>>\n    <<nowhere>>\n"),
    "escaped, inside": ("f(\\<<one>>, <<one>>)\n", "f(<<one>>, 1)\n"),
    "escaped twice": ("\\\\<<one>>\n", "\\<<one>>\n"),
    "backslash elsewhere": ("\\ <<one>> \\n\n", "\\ 1 \\n\n"),
    "in a comment": ("# <<one>>\n", "# 1\n"),
}


@pytest.mark.parametrize(("body", "expected"), REFERENCES.values(), ids=REFERENCES)
@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_references(body, expected, ends, tmp_path):
    book = target("a.py", body) + CHUNKS + chunk("white", "1\n  \t\n2\n")
    project = Project(tmp_path, book.replace("\n", ends))
    assert project.tangle("--bare") == {"a.py": expected}


def test_the_column_of_a_reference_counts_every_character_before_it(tmp_path):
    book = target("a.py", "größe = f(<<two>>)\n") + CHUNKS
    assert Project(tmp_path, book).tangle("--bare") == {"a.py": "größe = f(1,\n          2)\n"}


def test_text_that_is_nearly_a_reference_is_warned_of(tmp_path):
    book = target(
        "a.py", "x = f(<<setupp>>)\ny = f(<< setup >>)\nz = f(\\<<setup>>)\na <<zzz>> b\n"
    )
    run = Project(tmp_path, book + chunk("setup", "1\n")).run()
    assert run.status == 0
    assert "book/ch.md:2: warning: <<setupp>> is text here" in run.err
    assert "book/ch.md:3: warning: << setup >> is text here" in run.err
    assert "ch.md:4" not in run.err
    assert "ch.md:5" not in run.err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("<<my chunk>>", "<<my chunk>> is text here and no reference"),
        ("    << setup >> ", "<< setup >> is text here and no reference; did you mean 'setup'?"),
        ("<<none>>  # then", "<<none>> is text here and no reference"),
        ("<<none>>=", "<<none>>= is text here and no reference"),
        ("<<setup()>>", "<<setup()>> is text here and no reference; did you mean 'setup'?"),
        ("  <<setup>", "<<setup> is text here and no reference; did you mean <<setup>>?"),
        ("<<nothing>", "<<nothing> is text here and no reference; did you mean <<nothing>>?"),
        ("\\<<my chunk>>", ""),
        ("cat <<my >>chunk", ""),
        ("x <<setup> y", ""),
        ("<<EOF", ""),
        ("<div>", ""),
    ],
)
def test_a_line_that_looks_like_a_reference_is_warned_of(line, told, tmp_path):
    book = target("a.py", f"x\n{line}\n<<setup>>\n") + chunk("setup", "1\n")
    run = Project(tmp_path, book).run()
    told = told.replace(">>= is", ">> is")
    assert (run.status, run.err) == (0, told and f"book/ch.md:3: warning: {told}\n")


def test_a_chunk_that_nothing_uses_is_warned_of(tmp_path):
    run = Project(tmp_path, REAL + chunk("lonely", "x\n")).run()
    assert run.status == 0
    assert "book/ch.md:5: warning: chunk 'lonely' is used nowhere" in run.err


def test_ten_thousand_levels(tmp_path):
    deep = "".join(chunk(f"n{k}", f"<<n{k + 1}>>\n") for k in range(10_000))
    book = target("a.py", "<<n0>>\n") + deep + chunk("n10000", "x\n")
    assert Project(tmp_path, book).tangle("--bare") == {"a.py": "x\n"}


DOUBLING = target("a.py", "<<n0>>\n") + "".join(
    chunk(f"n{k}", f"<<n{k + 1}>>\n<<n{k + 1}>>\n") for k in range(40)
)
TOO_LARGE = {
    "text": DOUBLING + chunk("n40", "x\n"),
    "nothing at all": DOUBLING + chunk("n40", ""),
    "padding": target("a.py", "a" * 10_000 + "<<b>>\n")
    + chunk("b", "x\n" * 10_000 + "<<c>>\n")
    + chunk("c", "y\n"),
}


@pytest.mark.parametrize("book", TOO_LARGE.values(), ids=TOO_LARGE)
@pytest.mark.parametrize(
    "command",
    [[], ["--check"], ["--list"], ["where", "a.py:1"], ["where"], ["stitch"]],
    ids=" ".join,
)
def test_a_file_of_any_size_is_refused(book, command, tmp_path):
    project = Project(tmp_path, book)
    before = project.snapshot()
    run = project.run(*command, stdin="a.py:1\n")
    if command == ["--list"] and not run.status:
        return  # it needs no text
    assert run.status == 1
    assert "book/ch.md:1: target 'a.py' would be larger than 64 MiB" in run.err
    assert project.snapshot() == before


# ---- chunks from several blocks


def test_blocks_of_one_name_are_one_chunk(tmp_path):
    book = chunk("a", "1\n") + target("f", "<<a>>\n0\n") + chunk("a", "2\n") + chunk("a", "")
    assert Project(tmp_path, book).tangle() == {"f": "1\n2\n0\n"}


def test_a_named_target_is_continued_by_its_name_and_by_its_path(tmp_path):
    book = (
        block("{#main file=f}", "1\n")
        + chunk("main", "2\n")
        + target("f", "3\n")
        + block("{#main file=./f}", "4\n")
    )
    assert Project(tmp_path, book).tangle() == {"f": "1\n2\n3\n4\n"}


def test_a_target_may_be_named_after_its_first_block(tmp_path):
    book = target("f", "1\n") + block("{#main file=f}", "2\n") + target("g", "<<main>>\n")
    assert Project(tmp_path, book).tangle() == {"f": "1\n2\n", "g": "1\n2\n"}


def test_nameless_blocks_of_one_path_are_put_together_in_book_order(tmp_path):
    book = {
        "b.md": target("p/f", "4\n"),
        "a/z.md": target("p//f", "2\n") + target("./p/f", "3\n"),
        "a/b/c.md": target("q/../p/f", "1\n"),
        "a-1.md": target("p/f", "0\n"),
    }
    parts = ["a", "a-1.md", "b.md"]
    assert sorted(parts) == parts  # so the folder a comes before the file a-1.md
    assert Project(tmp_path, book).tangle() == {"p/f": "1\n2\n3\n0\n4\n"}


APPENDING = ["python {#x .append}", "{.python .append #x}", "{#x .append}", "{.append .python #x}"]


@pytest.mark.parametrize("opener", APPENDING)
def test_a_chunk_of_another_chapter_is_continued_by_append(opener, tmp_path):
    book = {
        "a.md": chunk("x", "1\n") + target("f", "<<x>>\n"),
        "b.md": block(opener, "2\n"),
        "c.md": block(opener, "3\n") + target("g", "<<x>>\n"),
    }
    assert Project(tmp_path, book).tangle() == {"f": "1\n2\n3\n", "g": "1\n2\n3\n"}


@pytest.mark.parametrize("opener", APPENDING)
def test_append_and_no_owner_is_a_error(opener, tmp_path):
    book = {"a.md": block(opener, "1\n") + target("f", "<<x>>\n")}
    (told,) = errors(Project(tmp_path, book))
    assert told == "book/a.md:1: .append, but no block defines 'x' to append to"


def test_every_chapter_that_takes_a_name_is_told(tmp_path):
    book = {f"{k}.md": chunk("x", "1\n") for k in "abc"} | {"0.md": target("f", "<<x>>\n")}
    told = errors(Project(tmp_path, book))
    assert [line[:12] for line in told] == ["book/b.md:1:", "book/c.md:1:"]
    assert all("'x', defined at book/a.md:1" in line for line in told)


def test_join_makes_one_chunk_of_a_name_in_many_chapters(tmp_path):
    book = {f"{k:03}.md": chunk("x", f"{k}\n") for k in range(120)}
    project = Project(tmp_path, book | {"f.md": target("f", "<<x>>\n")})
    assert project.tangle("--join") == {"f": "".join(f"{k}\n" for k in range(120))}
    assert project.run().status == 1


def test_join_reads_names_and_paths_as_entangled_does(tmp_path):
    book = (
        target("one.txt", "1\n")
        + block("text {#one.txt file=two.txt}", "2\n")
        + block("text {#all file=three.txt}", "3\n<<one.txt>>\n")
        + block("text {#all file=p/four.txt}", "4\n")
    )
    made = Project(tmp_path, book).tangle("--bare", "--join")
    ones, threes = "1\n2\n", "3\n1\n2\n4\n"
    assert made == {"one.txt": ones, "two.txt": ones, "three.txt": threes, "p/four.txt": threes}


def test_join_warns_of_what_is_undefined_in_no_file(tmp_path):
    sketch = chunk("sketch", "<<step>>\n<<other>>\n") + chunk("other", "<<far>>\n")
    project = Project(tmp_path, target("a.py", "x\n") + sketch)
    assert [told.partition(";")[0] for told in errors(project)] == [
        "book/ch.md:6: chunk 'step' is undefined",
        "book/ch.md:11: chunk 'far' is undefined",
    ]
    run = project.run("--join")
    assert run.status == 0
    assert "book/ch.md:6: warning: chunk 'step' is undefined" in run.err
    assert "book/ch.md:11: warning: chunk 'far' is undefined" in run.err
    project.put("book/ch.md", target("a.py", "<<sketch>>\n") + sketch)
    assert project.run("--join").status == 1


@pytest.mark.parametrize(
    ("book", "told"),
    [
        ("Text.\n", ""),
        (chunk("a", "x\n"), ""),
        ("<<a>>=\nx\n@\n", "book/ch.md:1: noweb's <<a>>= defines nothing"),
        (block("python", "x\n"), ""),
        (
            block("{python}", "#| echo: 1\n#| file: a.py\n"),
            "book/ch.md:1: warning: #| file: is not",
        ),
        (block("{ojs}", "//| file: a.js\n"), "book/ch.md:1: warning: #| file: is not read"),
    ],
)
def test_a_book_that_makes_no_file_gets_a_hint(book, told, tmp_path):
    run = Project(tmp_path, book).run()
    assert run.status == 0
    assert "tangle: no block names a file; open one with ```python {file=PATH}" in run.err
    assert told in run.err


def test_hidden_folders_are_no_part_of_the_book(tmp_path):
    book = {".git/a.md": target("f", "1\n"), "node_modules/b.md": target("f", "2\n")}
    book |= {"c.markdown": target("f", "3\n"), "d.txt": target("f", "4\n")}
    assert Project(tmp_path, book).tangle() == {"f": "3\n"}


# ---- bytes

BYTES = {
    "byte order mark": (b"\xef\xbb\xbf```{#a file=a}\nx\n```\n", b"x\n"),
    "byte order mark and CRLF": (b"\xef\xbb\xbf```{#a file=a}\r\nx\r\n```\r\n", b"x\n"),
    "some lines CRLF": (b"```{#a file=a}\r\nx\ny\r\n```\n", b"x\ny\n"),
    "CR in a line": (b"```{#a file=a}\nx\ry\n```\n", b"x\ry\n"),
    "NUL": (b"```{#a file=a}\nx\0\n```\n", b"x\0\n"),
    "odd line ends": (
        "```{#a file=a}\nx\u2028y\x85z\x0c\x0b\x1c\n```\n".encode(),
        "x\u2028y\x85z\x0c\x0b\x1c\n".encode(),
    ),
    "combining marks": ("```{#a file=a}\ne\u0301\n```\n".encode(), "e\u0301\n".encode()),
    "newlines at the end": (b"```{#a file=a}\nx\n\n\n```\n", b"x\n"),
    "newlines at the start": (b"```{#a file=a}\n\nx\n```\n", b"\nx\n"),
    "nothing but newlines": (b"```{#a file=a}\n\n\n```\n", b""),
    "no newline in the chapter": (b"```{#a file=a}\nx\n```", b"x\n"),
    "white space at a line's end": (b"```{#a file=a}\nx \t\n  \ny\n```\n", b"x \t\n  \ny\n"),
}


@pytest.mark.parametrize(("chapter", "expected"), BYTES.values(), ids=BYTES)
def test_bytes(chapter, expected, tmp_path):
    project = Project(tmp_path)
    project.put("book/ch.md", chapter)
    project.tangle()
    assert project.snapshot()["a"][0] == expected


@pytest.mark.parametrize("wrong", [b"\xff", b"\xc3(", b"\xed\xa0\x80", b"x\xf0\x9f"])
def test_a_chapter_that_is_not_utf8_is_a_error_at_its_line(wrong, tmp_path):
    project = Project(tmp_path, {"a.md": REAL})
    project.put("book/b.md", b"Text.\n\n" + wrong + b"\n")
    (told,) = errors(project)
    assert told.startswith(f"book/b.md:3: is not UTF-8: byte 0x{wrong.removeprefix(b'x')[0]:02x}")


# ---- errors

TARGETS = {
    "../a": "is outside the output folder",
    "x/../../a": "is outside the output folder",
    "/tmp/tangle-test-a": "is outside the output folder",
    "//a": "is outside the output folder",
    "..": "is outside the output folder",
    "C:/a": "is outside the output folder",
    "a\\b": "holds a backslash",
    "..\\a": "holds a backslash",
    "~/a.py": "holds a ~",
    "x/~ada/a.py": "holds a ~",
    ".": "is a folder",
    "a/": "is a folder",
    "a/.": "is a folder",
    "": "is empty",
    ".git/config": "belongs to git",
    "x/.GIT/hooks/post-checkout": "belongs to git",
    "./.git": "belongs to git",
    ".tangle.json": "belongs to",
    ".Tangle.JSON": "belongs to",
    ".tangle.json.new": "belongs to",
    ".tangle-tmp/0": "belongs to",
    "book/ch.md.tangle-tmp": "belongs to",
    "a\x07": "holds a control character",
    "a\u200bb": "holds a control character",
    "a\u202eyp": "holds a control character",
    "book/ch.md": "is a source file",
    "x/../book/ch.md": "is a source file",
    "book/new.md": "is a source file",
    "book/sub/new.markdown": "is a source file",
}


@pytest.mark.parametrize(("path", "message"), TARGETS.items(), ids=map(ascii, TARGETS))
def test_targets_that_are_refused(path, message, tmp_path):
    opener = f'python {{#a file="{path.replace(chr(92), chr(92) * 2)}"}}'
    (told,) = errors(Project(tmp_path / "root", REAL + block(opener, "x\n")))
    assert told.startswith("book/ch.md:5: target ")
    assert message in told
    assert [entry.name for entry in tmp_path.iterdir()] == ["root"]


@pytest.mark.parametrize(
    "path",
    [
        ".github/a.yml",
        "..a",
        "a..b",
        ".gitignore",
        "git/a",
        "book/a.css",
        "a b/c",
        "größe/数",
        "a~",
        "a,b",
    ],
)
def test_targets_that_only_look_odd(path, tmp_path):
    project = Project(tmp_path, block(f'text {{#a file="{path}"}}', "x\n"))
    project.tangle("--bare")
    assert project.text(path) == "x\n"


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("a.py", "A.py", "differs from 'a.py' only in case"),
        ("a/b.py", "A/B.py", "differs from 'a/b.py' only in case"),
        ("straße", "STRASSE", "only in case"),
        ("\u00e9", "e\u0301", "only in case"),
        ("a", "a/b", "is wanted as a file here, and as a folder for 'a/b'"),
        ("a/b/c", "a", "is wanted as a file here, and as a folder for 'a/b/c'"),
        ("A", "a/b", "is wanted as a file here"),
    ],
)
def test_targets_that_cannot_both_be_there(first, second, message, tmp_path):
    told = errors(Project(tmp_path, target(first, "x\n") + target(second, "y\n")))
    assert len(told) == 1
    assert message in told[0]


def test_one_target_with_two_names(tmp_path):
    book = block("{#one file=a.py}", "1\n") + block("{#two file=./a.py}", "2\n")
    (told,) = errors(Project(tmp_path, book))
    assert told.startswith("book/ch.md:5: target 'a.py' is claimed by #two here and by #one at ")


def test_one_name_with_two_targets(tmp_path):
    book = block("{#one file=a.py}", "1\n") + block("{#one file=b.py}", "2\n")
    (told,) = errors(Project(tmp_path, book))
    assert told == "book/ch.md:5: chunk 'one' already goes to 'a.py'; one chunk makes one file"


def test_one_target_with_two_modes(tmp_path):
    book = block("{file=a mode=755}", "1\n") + block("{file=a mode=644}", "2\n")
    (told,) = errors(Project(tmp_path, book))
    assert told.startswith("book/ch.md:5: mode=644 for 'a', which has mode 755")


@pytest.mark.parametrize("what", ["link", "link to a chapter", "dangling link", "folder", "pipe"])
def test_what_stands_in_a_targets_place(what, tmp_path):
    project = Project(tmp_path, target("p/a.py", "x\n"))
    place = tmp_path / "p" / "a.py"
    if what == "folder":
        project.put("p/a.py/mine.txt", "mine\n")
    else:
        place.parent.mkdir()
    if what == "link":
        project.put("b.py", "mine\n")
        place.symlink_to("../b.py")
    elif what == "link to a chapter":
        place.symlink_to("../book/ch.md")
    elif what == "dangling link":
        place.symlink_to("nowhere")
    elif what == "pipe":
        os.mkfifo(place)
    (told,) = errors(project)
    assert told.startswith("book/ch.md:1: target 'p/a.py' is a ")
    assert errors(project, "--force") == [told]


@pytest.mark.parametrize("where", ["outside", "inside", "nowhere"])
def test_a_target_behind_a_link(where, tmp_path):
    project = Project(tmp_path / "root", target("p/q/a.py", "x\n"))
    (tmp_path / "outside").mkdir()
    project.put("inside/mine.txt", "mine\n")
    (tmp_path / "root" / "p").symlink_to({"outside": "../outside"}.get(where, where))
    (told,) = errors(project)
    assert told.startswith("book/ch.md:1: target 'p/q/a.py' goes through 'p', which is a link")
    assert not any((tmp_path / "outside").iterdir())


def test_a_file_in_the_place_of_a_folder(tmp_path):
    project = Project(tmp_path, target("p/a.py", "x\n"))
    project.put("p", "mine\n")
    (told,) = errors(project)
    assert told.startswith("book/ch.md:1: target 'p/a.py' goes through 'p', which is a file")


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ("<<setup>>\n", 2, "chunk 'setup' is undefined; did you mean 'set-up'?"),
        ("x\n\n    <<zebra>>\n", 4, "chunk 'zebra' is undefined"),
        ("<<none>> \t\n", 2, "chunk 'none' is undefined"),
    ],
)
@pytest.mark.parametrize("where", ["margin", "list", "quote"])
def test_an_undefined_reference_is_told_at_its_line(where, body, line, message, tmp_path):
    before, prefix = CONTAINERS["numbered item" if where == "list" else where]
    rows = block("{#a file=a.py}", body).splitlines()
    text = before + "".join(f"{prefix}{row}\n" for row in rows) + "\n" + chunk("set-up", "x\n")
    (told,) = errors(Project(tmp_path, text))
    assert told == f"book/ch.md:{before.count(chr(10)) + line}: {message}"


def test_a_name_without_its_mark_is_told(tmp_path):
    text = target("a.py", "<<set-up>>\n") + block("python {set-up}", "x\n")
    (told,) = errors(Project(tmp_path, text))
    assert (
        told == "book/ch.md:2: chunk 'set-up' is undefined; book/ch.md:5 has 'set-up' without a #"
    )


MISREAD = {
    "file": [
        "fil",
        "flie",
        "File",
        "FILE",
        "files",
        "filename",
        "filepath",
        "path",
        "target",
        "tangle",
    ],
    "mode": ["mdoe", "MODE"],
    "patch": ["pacth", "Patch"],
}


@pytest.mark.parametrize(
    ("attribute", "meant"), [(wrong, ours) for ours, names in MISREAD.items() for wrong in names]
)
def test_an_attribute_that_is_nearly_ours_is_a_error(attribute, meant, tmp_path):
    book = target("a.py", "x\n") + block(f"python {{{attribute}=b.py}}", "y\n")
    wrong = f"{attribute}= is no attribute of a block; write {meant}=b.py"
    project = Project(tmp_path, book)
    assert errors(project) == [f"book/ch.md:5: {wrong}"]
    run = project.run("--join")
    assert (run.status, run.err) == (0, f"book/ch.md:5: warning: {wrong}\n")


@pytest.mark.parametrize(
    "attribute",
    [
        "title",
        "tile",
        "linenums",
        "model",
        "node",
        "f",
        "code",
        "fill",
        "filter",
        "data-file",
        "match",
    ],
)
def test_an_attribute_of_another_tool_is_left_alone(attribute, tmp_path):
    book = target("a.py", "x\n") + block(f"python {{{attribute}=b.py}}", "y\n")
    run = Project(tmp_path, book).run()
    assert (run.status, run.err) == (0, "")


def test_beside_file_a_path_is_another_tools(tmp_path):
    book = block("python {#a file=a.py path=b.py filename=c.py .run numbers hl_lines=1,3-4}", "x\n")
    assert Project(tmp_path, book).tangle("--bare") == {"a.py": "x\n"}


CIRCLES = {
    "itself": ("<<a>>\n", ["a (book/ch.md:6) -> a"]),
    "itself, inside a line": ("f(<<a>>)\n", ["a (book/ch.md:6) -> a"]),
    "two": (
        "<<b>>\n" + "```\n\n```python {#b}\n<<a>>\n",
        ["a (book/ch.md:6) -> b (book/ch.md:10) -> a"],
    ),
    "two circles": (
        "<<b>>\n<<c>>\n```\n\n```python {#b}\n<<a>>\n```\n\n```python {#c}\n\n x <<c>>\n",
        ["a (book/ch.md:6) -> b (book/ch.md:11) -> a", "c (book/ch.md:16) -> c"],
    ),
}


@pytest.mark.parametrize(("body", "circles"), CIRCLES.values(), ids=CIRCLES)
@pytest.mark.parametrize("used", [True, False], ids=["used", "unused"])
def test_a_cycle_is_told_with_its_whole_path(body, circles, used, tmp_path):
    book = target("f", "<<a>>\n" if used else "x\n") + chunk("a", body)
    told = errors(Project(tmp_path, book))
    assert [line.partition("cycle: ")[2] for line in told] == circles


def test_a_cycle_of_ten_thousand_chunks(tmp_path):
    ring = "".join(chunk(f"n{k}", f"<<n{(k + 1) % 10_000}>>\n") for k in range(10_000))
    (told,) = errors(Project(tmp_path, target("f", "<<n0>>\n") + ring))
    assert told.startswith("book/ch.md:40002: cycle: n0 (book/ch.md:6) -> n1 (book/ch.md:10) -> ")


def test_all_errors_of_the_whole_book_are_told_in_order(tmp_path):
    book = {
        "a.md": target("x", "<<no>>\n") + block("{#b file=../b}", "1\n") + "<!--\n",
        "b.md": target("X", "1\n") + "``` {#c}\n",
        "c.md": chunk("d", "<<d>>\n") + block("diff {patch=nothing}", "-x\n"),
    }
    places = [line.split(": ")[0] for line in errors(Project(tmp_path, book))]
    assert places == [
        "book/a.md:2",
        "book/a.md:5",
        "book/a.md:9",
        "book/b.md:1",
        "book/b.md:5",
        "book/c.md:2",
        "book/c.md:5",
    ]


# ---- the header line

HASH, SLASH, STAR, XML = "# {}\n", "// {}\n", "/* {} */\n", "<!-- {} -->\n"
HEADERS = [  # target, what has to stay in front, header, the rest
    ("a.py", "", HASH, "x\n"),
    ("a.pyi", "", HASH, "x\n"),
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
    ("a.sh", "#!/bin/sh\n", HASH, "x\n"),
    ("a.toml", "", HASH, "x = 1\n"),
    ("a.yaml", "", HASH, "---\na: 1\n---\nb: 1\n"),
    ("x/Makefile", "", HASH, "all:\n"),
    ("Dockerfile", "", HASH, "FROM x\n"),
    ("Dockerfile", "# syntax=docker/dockerfile:1\n# escape=`\n", HASH, "FROM x\n"),
    (".gitignore", "", HASH, "x\n"),
    ("a.c", "", SLASH, "x\n"),
    ("a.js", "#!/usr/bin/env node\n", SLASH, "x\n"),
    ("a.rs", "", SLASH, "x\n"),
    ("a.css", "", STAR, "a {}\n"),
    ("a.css", '@charset "utf-8";\n', STAR, "a {}\n"),
    ("a.html", "", XML, "<p>\n"),
    ("a.html", "<!DOCTYPE html>\n", XML, "<html>\n"),
    ("a.html", "<!doctype html>\n", XML, "<html>\n"),
    ("a.html", '<!DOCTYPE html PUBLIC "x"\n  "y">\n', XML, "<html>\n"),
    ("a.xml", '<?xml version="1.0"?>\n', XML, "<a/>\n"),
    ("a.svg", '<?xml version="1.0"?>\n', XML, "<svg/>\n"),
    ("a.md", "---\ntitle: x\n---\n", XML, "# T\n"),
    ("a.sql", "", "-- {}\n", "x\n"),
    ("a.lua", "", "-- {}\n", "x\n"),
    ("a.ini", "", "; {}\n", "x\n"),
    ("a.el", "", ";; {}\n", "x\n"),
    ("a.el", "", "", ";;; a.el --- text  -*- lexical-binding: t; -*-\nx\n"),
    ("a.el", "#!/usr/bin/emacs --script\n", "", ";; -*- lexical-binding: t -*-\n"),
    ("a.h", "", "", "// -*- C++ -*-\nx\n"),
    ("a.h", "", SLASH, "#include <x>\n"),
    ("a.rs", "", SLASH, "//! x\n"),
    ("a.sed", "", "", "#n\np\n"),
    ("a.sed", "", HASH, "p\n"),
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
    *[
        (f"a.{ending}", "", "", "x\n")
        for ending in ["s", "S", "asm", "pl", "v", "cls", "bib", "zzz"]
    ],
    ("a.tex", "", "% {}\n", "x\n"),
    ("a.f90", "", "! {}\n", "x\n"),
    ("a.ml", "", "(* {} *)\n", "x\n"),
    ("a.json", "", "", "{}\n"),
    ("a.txt", "", "", "x\n"),
    ("LICENSE", "", "", "x\n"),
    ("a.patch", "", "", "x\n"),
    ("bin/go", "#!/bin/sh\n", "", "x\n"),
]


@pytest.mark.parametrize(("path", "first", "header", "rest"), HEADERS)
def test_the_header_stands_first_or_behind_what_must_be_first(path, first, header, rest, tmp_path):
    project = Project(tmp_path, target(path, first + rest))
    wanted = header.format("Tangled from book/ch.md")
    assert project.tangle() == {path: first + wanted + rest}
    assert project.tangle("--bare") == {path: first + rest}
    found = literate.expand.line_map(literate.read.read_book([str(tmp_path / "book")]), path)
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


def test_the_prologue_may_come_from_another_chunk(tmp_path):
    book = target("a.py", "<<top>>\nx\n") + chunk("top", "#!/bin/sh\n# coding: utf-8\ny\n")
    assert Project(tmp_path, book).tangle() == {
        "a.py": "#!/bin/sh\n# coding: utf-8\n# Tangled from book/ch.md\ny\nx\n"
    }


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


# ---- variants


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
    "empty": ("", "patch is empty"),
    "no sign": ("y = x + 1\n", "line 1 of the patch begins with 'y'; wanted a space, - or +"),
    "undefined": (
        "-return z\n+<<bodi>>\n",
        "chunk 'bodi', which is undefined; did you mean 'body'?",
    ),
    "itself": ("-return z\n+<<body>>\n", "which contains 'body': a cycle"),
    "a circle": ("-return z\n+<<other>>\n", "which contains 'body': a cycle"),
}


@pytest.mark.parametrize(("body", "message"), MISFITS.values(), ids=MISFITS)
def test_a_patch_that_does_not_fit_is_a_error_at_its_line(body, message, tmp_path):
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
        (
            patch("-1\n+3\n", "#v patch=a file=s") + patch("-2\n", "#v patch=b file=t"),
            6,
            "this variant already goes to 's'",
        ),
        (patch("-1\n+" + "x" * 2**20 + "\n" + "+<<b>>\n" * 70, "patch=a file=s"), 1, "larger than"),
    ],
)
def test_errors_of_variants(patches, line, message, tmp_path):
    program = target("f", "<<a>>\n<<b>>\n") + chunk("unused", "1\n")
    program += chunk("a", "1\n") + chunk("b", "2\n" * (2**19 if "larger" in message else 1))
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
