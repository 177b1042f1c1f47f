# Tangled from book/workshop/tangle-tests.md
"""What is a block, and what its opener says."""

import unicodedata

import pytest

import literate.read
from tests.literate.project import REAL, Project, block, chunk, errors, target

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


STRING = "```python {file=a.py}\na = '\n```\n"
BEHIND = "this fence opens a block right behind the one that ended in line 3"


@pytest.mark.parametrize(
    ("text", "line", "warning"),
    [
        (NO_BLOCKS["indented code"], 3, "this fence stands in indented code"),
        (block("python file=a.py", "x\n"), 1, "file= outside of {...} is not read"),
        (block("python [file=a.py]", "x\n"), 1, "file= outside of {...} is not read"),
        (block("python {mode=755}", "x\n"), 1, "mode= without file= sets nothing"),
        (block("python {header=no}", "x\n"), 1, "header= without file= sets nothing"),
        (STRING + "x\n```\n'\n```\n", 5, BEHIND),
        (STRING + "x\n```\n'\n```\n\n" + REAL, 5, BEHIND),
        (STRING + "\n```\nx\n```\n", 0, ""),
        (STRING + "x\n```text\nx\n```\n", 0, ""),
        (STRING + "x\n~~~\nx\n~~~\n", 0, ""),
    ],
)
def test_what_is_probably_not_meant_is_warned_of(text, line, warning, tmp_path):
    run = Project(tmp_path, text).run()
    assert run.status == 0
    told = "".join(row for row in run.err.splitlines(True) if ": warning: " in row)
    assert told.startswith(f"book/ch.md:{line}: warning: {warning}" if line else "")
    assert bool(told) == bool(line)


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
        "- a\n\n  <!-- x\n\nText. -->\n\n",
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
        "- a\n\n  <!-- x\n\n" + block("{#a file=a}", "x\n") + "-->\n",
        "1. a\n\n   <!-- x\n\nText.\n\n   ``` {#a file=a}\n   x\n   ```\n-->\n",
        "- <!-- a --> <!-- x\n\n" + block("{#a file=a}", "x\n") + "-->\n",
        "> <!-- x\n\n" + block("{#c}", "x\n") + "-->\n",
    ],
)
def test_a_comment_that_is_never_closed_is_an_error(before, tmp_path):
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
def test_a_fence_that_is_never_closed_is_an_error(text, line, tmp_path):
    told = errors(Project(tmp_path, text))
    assert told[0].startswith(f"book/ch.md:{line}: fence is not closed")


def test_a_fence_swallows_no_other_block(tmp_path):
    text = "``` {#a file=a.py}\nx\n\n" + block("{#b file=b.py}", "<<nowhere>>\n")
    told = errors(Project(tmp_path, text))
    assert told[0] == "book/ch.md:1: fence is not closed before another block opens in line 4"
    assert told[1].startswith("book/ch.md:5: chunk 'nowhere' is undefined")


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


HALF_READ = [
    "python {#my chunk}",
    "python {#my chunk file=a.py}",
    "python {#a append}",
    "python {file=my file.py}",
    "python {file==a.py}",
    "python {file=a.py=}",
    "python {file=a.py; mode=755}",
    "python {#a file=a.py, mode=755}",
    "python {file=a.py,mode=755}",
    "python {file=a.py;mode=755}",
    "python {file=a.py .x, .y}",
    "python {file=\u201ca.py\u201d}",
    "python {#a title=\u2018x\u2019}",
    "python {#a file:a.py}",
    "python {file: a.py}",
    "python {file= mode=755}",
]


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
        ("python {# my-chunk}", "cannot read attributes from '# my-chunk'"),
        ('python {"file"="a.py"}', "cannot read attributes from"),
        ("python {#a, file=a.py}", "#a, is not a name"),
        ("python {#a,file=a.py}", "#a,file=a.py is not a name"),
        *[(opener, "is not what it looks like") for opener in HALF_READ],
    ],
)
def test_an_opener_that_is_meant_and_malformed_is_an_error(opener, message, tmp_path):
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
def test_a_chapter_that_is_not_utf8_is_an_error_at_its_line(wrong, tmp_path):
    project = Project(tmp_path, {"a.md": REAL})
    project.put("book/b.md", b"Text.\n\n" + wrong + b"\n")
    (told,) = errors(project)
    assert told.startswith(f"book/b.md:3: is not UTF-8: byte 0x{wrong.removeprefix(b'x')[0]:02x}")
