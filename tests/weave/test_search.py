# Tangled from book/workshop/weave-search.md
"""The glossary, the search and the check of links."""

import json
import re

import pytest
from markdown import Markdown

from tests.weave.books import EXTENSIONS, FACTS, PROGRAM, plain
from weave.model import links
from weave.model.index import current
from weave.render import search

GLOSSARY = """\
# Glossary

causal mask (causal masks)
:   A mask by which a position reads *earlier* positions only.

`d_model`
:   The number of features.

mask
:   What may be read.

## In Part 5

key (keys)
:   What is compared
    with `queries`.
"""


def test_terms_get_a_tooltip_at_their_first_place(woven):
    text = "# Masks and a mask\n\nTwo Causal masks, *a mask*; a mask, `d_model`, key. <b>mask</b>\n"
    html = woven({"reference/glossary.md": GLOSSARY, "a.md": text})
    links = re.findall(r'<a class="term" data-tip="([^"]+)" href="([^"]+)">(.*?)</a>', html)
    assert [word for _, _, word in links] == ["Causal masks", "mask", "<code>d_model</code>"]
    assert links[0][0] == "A mask by which a position reads earlier positions only."
    assert links[0][1] == "reference/glossary.html#term-causal-mask"
    assert plain(html).count("mask") == 5  # and "Masks"


def test_terms_of_a_part_are_marked_in_that_part_only(woven):
    chapter = FACTS.format("L5", "a.py", "") + "\nIts keys.\n"
    html = woven({"reference/glossary.md": GLOSSARY, "a.md": chapter})
    assert 'data-tip="What is compared with queries."' in html


def test_a_word_that_stands_twice_in_the_glossary_is_reported(weave):
    text = GLOSSARY + "\nmask\n:   Again.\n\nhead (Keys, heads)\n:   A part.\n"
    assert weave({"reference/glossary.md": text})[1] == [
        "book/reference/glossary.md:18: the glossary has two entries mask",
        "book/reference/glossary.md:21: Keys is a form of key already",
    ]


def test_the_glossary_has_an_id_for_each_term(weave):
    weave({"reference/glossary.md": GLOSSARY})
    html = Markdown(extensions=[*EXTENSIONS, "def_list"]).convert(GLOSSARY)
    ids = ["term-causal-mask", "term-d_model", "term-mask", "term-key"]
    assert re.findall('<dt id="([^"]+)"', html) == ids
    assert 'class="term"' not in html


def test_the_search_knows_headings_prose_blocks_and_names(weave):
    weave({**PROGRAM, "z.md": "# Z\n\nfirst $x$ &amp; `code`\n\n## Two & more\n\n- a \\* b\n"})
    Markdown(extensions=[*EXTENSIONS, "toc"]).convert(current().pages["z.md"].text)
    text = search.script(current())
    entries = json.loads(text.removeprefix("window.bookIndex=").removesuffix(";\n"))
    assert ["page", "Z", "z.html", "", "first & code"] in entries
    assert ["section", "Two & more", "z.html#two-more", "Z", "a * b"] in entries
    assert ["block", "work", "1-top/b.html#chunk-work", "B", "p/b.py"] in entries
    assert ["method", "Derived.work", "1-top/b.html#chunk-work", "p/b.py", ""] in entries


LINKS = [
    "[b](b.md 'title')",
    '[b]( b.md "title" )',
    "[b](<b.md>)",
    "[b]\n\n[b]: b.md",
    "![b](b.md)",
]
LINKS += ["> [b]: <b.md>", "[eq. b](b.md#eq-b)", '<a class=x href="b.md">b</a>', "## [$x$](b.md)"]
LINKS += ["- a\n\n    | a |\n    |---|\n    | [b](b.md) |", "a[^1]\n\n[^1]: see [b](b.md)"]


@pytest.mark.parametrize("text", [*LINKS, "<img alt=b src=b.md>"])
def test_links_are_found_however_they_are_written(weave, caplog, text):
    weave({"a.md": text})
    assert not caplog.records
    links.check(current(), ())
    line = next(n for n, row in enumerate(text.split("\n"), 1) if "b.md" in row)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"book/a.md:{line}: the link to b.md is dead: ")


def test_links_in_code_and_to_odd_names_are_not_dead(weave, caplog):
    odd = "[a](c%23d.md) <a href='c%23d.html#c'>b</a> [c](e(1).md) <b title='$x$'> $5 \n\n<!-- [x](x.md) -->"
    weave({"c#d.md": "# C {#c}\n", "e(1).md": "# E\n", "a.md": odd})
    links.check(current(), ())
    assert not caplog.records


def test_a_heading_with_the_id_of_a_block_is_reported(weave):
    text = "# A\n\n```python {#a file=a.py}\nx = 1\n```\n\n## Chunk a\n"
    weave(text)
    Markdown(extensions=[*EXTENSIONS, "toc"]).convert(text)
    assert [(at, message) for _, at, message in current().diagnostics] == [
        (3, "a heading of this page has the id chunk-a too")
    ]


def test_a_diagnostic_is_said_once(weave):
    _, wrong = weave("[eq. a](#eq-a), [eq. a](#eq-a)\n[eq. a](#eq-a)\n")
    assert [said.partition(": ")[0] for said in wrong] == ["book/a.md:1", "book/a.md:2"]


def test_a_picture_without_words_is_reported(diagnostic):
    said = diagnostic("\n![](a.png) ![a](a.png)\n")
    assert said == "book/a.md:2: the image a.png has no alt text"


@pytest.mark.parametrize(
    "head", ["\n\n\n", "---\ntitle: A\n---\n\n", "Note: a word.\n\n", "\n\x02\r\0\f\u2028\x1b\n"]
)
def test_lines_are_those_of_the_chapter_whatever_stands_at_its_head(weave, head):
    from mkdocs.utils.meta import get_data

    text = head + "# A\n\n```python {#a file=a.py}\nx = 1\ry = '\x03'\n```\n\n$\\nonsense$\n"
    weave({"a.md": text})
    current().diagnostics.clear()
    given, _ = get_data(text.replace("\r", "\n"))
    html = Markdown(extensions=EXTENSIONS).convert(given)
    line = text[: text.index("$")].count("\n") + 1
    assert [(path, at) for path, at, _ in current().diagnostics] == [("book/a.md", line)]
    assert "title: A" not in html
    assert "x = 1␍y = '␃'" in plain(html)
    assert html.count("x = ") == 1


def test_two_chapters_of_one_text_are_reported(diagnostic):
    assert (
        diagnostic({"c.md": "", "d.md": "", "a.md": "# A\n", "b.md": "# A\n"})
        == "book/b.md:1: has the same text as a.md; the two cannot be told apart"
    )


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[b](b.md)", "the link to b.md is dead: there is no file b.md"),
        ("[b](#b)", "the link to #b is dead: nothing in a.md has the id b"),
        ("[a](#a), [b](https://b.example), [c](c.png), `[d](d.md)`", ""),
        ("see `test_gone` here", "no block of the book defines the test test_gone"),
        ("- `t/a.py::test_gone[x]`", "no block of the book defines the test t/a.py::test_gone[x]"),
        ("[c](code/a.md#c)", "the link to code/a.md#c is dead: there is no file code/a.md"),
    ],
)
def test_dead_links_and_unknown_tests_name_their_line(weave, caplog, text, wrong):
    text = f"# A\n\n\n{text}\n"
    weave(text)
    Markdown(extensions=[*EXTENSIONS, "toc"]).convert(text)
    links.check(current(), ["c.png"])
    said = [record.getMessage() for record in caplog.records]
    assert said == ([f"book/a.md:4: {wrong}"] if wrong else [])
