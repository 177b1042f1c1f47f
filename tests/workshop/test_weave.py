# Tangled from book/workshop/weave.md
"""The weaver: small books in, pages and faults out."""

import json
import logging
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
import xml.etree.ElementTree as ET
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown import Markdown

import tangle
from weave.figures import bar_chart, below, beside, graph, grid, heat_map, line_plot
from weave.figures.svg import COLOURS, decimals
from weave.model import links
from weave.model.index import current
from weave.model.page import Place
from weave.render import pages, search
from weave.run import sessions
from weave.serve import printed

ROOT = Path(__file__).resolve().parents[2]
EXTENSIONS = ["weave.render.extension", "pymdownx.highlight", "pymdownx.superfences", "tables"]


@pytest.fixture
def weave(tmp_path, monkeypatch, caplog):
    """weave({path: text}) -> (HTML of the last page, its faults as "path:line: message")."""
    monkeypatch.chdir(tmp_path)

    def woven(book):
        for path, text in book.items():
            (tmp_path / "book" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "book" / path).write_text(text, encoding="utf-8")
        caplog.clear()
        html = Markdown(extensions=EXTENSIONS).convert(text)
        return html, [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]

    return woven


def plain(html):
    """The text of a page without its tags."""
    return re.sub(r"<[^>]*>", "", html).replace("&lt;", "<").replace("&gt;", ">")


def noweb(text):
    """The text with «name» for a reference, so that the tangler does not take it for one of its own."""
    return text.replace("«", "<<").replace("»", ">>")


BOOK = {
    "0-foundations/L0.1-tensor.md": """\
# Tensor

```python {#add}
def add(a, b):
    return a + b
```
""",
    "5-transformer/L5.3-mha.md": """\
# Attention

```python {#mha file=tinyllm/mha.py}
«add»
«split»
x «shift» 1
\\«add»
```

- in a list

    ```python {#split}
    def split():
    \treturn 1
    ```

More of it:

```python {#split}
pass
```

```python
plain = 1
```
""",
}
BOOK = {path: text.replace("«", "<<").replace("»", ">>") for path, text in BOOK.items()}


ANCHORED = """\
# A

```toml {.chapter file=chapters.toml}
["A"]
builds = "a.py"
```

```python {#numbers .values}
x = 1
```

```python {file=a.py}
def test_it():
    return 1
```

```diff {#s01 patch=numbers}
-x = 1
+x = 2
```

```toml {.pitfall file=chapters.toml}
["A".mutants.s01]
caught_by = ["test_it"]
```

```python {file=b.py}
pass
```
"""


def test_captions_name_chunk_files_and_part(weave):
    html, faults = weave(BOOK)
    assert not faults
    assert 'id="chunk-mha"' in html
    assert 'id="chunk-split"' in html
    assert 'id="chunk-split-2"' in html
    text = plain(html)
    assert "mha · tinyllm/mha.py" in text
    assert "split · tinyllm/mha.py · part 1 of 2" in text
    assert "split · tinyllm/mha.py · part 2 of 2" in text


def test_a_chunk_of_another_chapter_knows_its_files(weave):
    html, _ = weave(dict(reversed(BOOK.items())))
    assert "add · tinyllm/mha.py" in plain(html)


def test_feet_lead_to_users_and_to_the_other_parts(weave):
    html, _ = weave(BOOK)
    feet = [plain(foot) for foot in re.findall(r'<div class="chunk-foot">(.*?)</div>', html)]
    assert feet == [
        "used in mha · continued in part 2",
        "used in mha · continues part 1",
    ]
    assert 'continued in <a href="#chunk-split-2">' in html


def test_ids_are_unique(weave):
    html, _ = weave(BOOK)
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))


def test_a_preview_of_another_page_comes_along(weave):
    html, _ = weave(BOOK)
    template = html[html.index("<template") : html.index("</template>")]
    assert 'data-preview="chunk-add"' in template
    assert "return a + b" in plain(template)
    assert " id=" not in template
    assert html.count("<template") == 1


def test_references_lead_to_definitions_across_pages(weave):
    html, _ = weave(BOOK)
    link = r'<a class="chunk-reference" href="{}">&lt;&lt;{}&gt;&gt;</a>'
    assert link.format("../0-foundations/L0.1-tensor.html#chunk-add", "add") in html
    assert link.format("#chunk-split", "split") in html


def test_the_lines_of_a_string_share_an_element_but_not_with_a_comment(weave):
    html, _ = weave({"a.md": "```python {#a}\n# c\n'r'\n's'\nt = 1\n```\n"})
    assert "<i class=c># c</i>\n<i>'r'\n's'</i>\nt" in html


def test_text_that_is_no_reference_stays(weave):
    html, _ = weave(BOOK)
    assert "x <<shift>> 1\n<<add>>\n" in plain(html)
    assert html.count("chunk-reference") == 2


def test_a_block_in_a_list_stays_in_its_item_and_keeps_its_tab(weave):
    html, _ = weave(BOOK)
    item = html[html.index("<li>") : html.index("</li>")]
    assert 'id="chunk-split"' in item
    assert "\treturn 1" in plain(item)


def test_blocks_without_name_or_file_are_left_to_markdown(weave):
    html, _ = weave(BOOK)
    assert html.count("chunk-caption") == 4  # one of them in a template
    assert "plain = 1" in plain(html)


def test_a_page_that_is_no_chapter_passes_unchanged(weave):
    weave(BOOK)
    assert Markdown(extensions=EXTENSIONS).convert("a $5$ b") == "<p>a $5$ b</p>"


def test_whatever_a_page_shows_of_a_block_is_where_links_to_it_lead(weave):
    html, faults = weave({"a.md": ANCHORED})
    assert not faults
    page = current().pages["a.md"]
    ids = re.findall(r' id="([^"]+)"', html)
    assert sorted(ids) == sorted(page.anchors.values())
    assert len(ids) == 6
    folded = html[html.index("<details") : html.index("</details>")]
    assert 'id="chunk-numbers"' in folded.partition("</summary>")[2]  # so that it opens


def test_pages_of_notebooks_have_the_address_that_mkdocs_gives_them(weave):
    weave(BOOK)
    index = current()
    assert index.href("a/b.md", Place("labs/c.py", "x")) == "../labs/c.html#x"
    assert index.href("", Place("code/c.py.md", "")) == "code/c.py.html"


def test_variants_say_what_is_removed_and_added(weave):
    html, faults = weave(
        {
            "a.md": """\
```python {#merge file=m.py}
x = 1
y = 2
```

```diff {#s01 patch=merge file=s01.patch}
 x = 1
-y = 2
+y = 3
```
"""
        }
    )
    assert not faults
    variant = html[html.index('id="patch-s01"') :]
    assert "s01 · a variant of merge, no part of the program" in plain(variant)
    lines = re.findall(r"<(span|del|ins)>(.*?)</\1>", variant, re.DOTALL)
    assert [(tag, plain(line)) for tag, line in lines] == [
        ("span", "x = 1\n"),
        ("del", "y = 2\n"),
        ("ins", "y = 3\n"),
    ]


def test_weaving_twice_gives_the_same_bytes(weave):
    assert weave(BOOK) == weave(BOOK)


SESSION = "# A\n\n```console {.session}\n$ ol a\n```\n\n```console {.session workspace=f}\n$ ol b  # <c>\n```\n"


def test_sessions_show_what_their_commands_print(weave, monkeypatch):
    asked = []

    def transcripts(blocks, root):
        asked.append(root)
        return [f"{text}{files} <printed>\n" for text, files in blocks]

    monkeypatch.setattr(sessions, "transcripts", transcripts)
    html, faults = weave({"a.md": SESSION})
    assert not faults
    assert asked == [os.getcwd()]
    assert "$ ol a\n <printed>\n" in plain(html)
    assert "$ ol b  # <c>\nf <printed>\n" in plain(html)


@pytest.mark.parametrize(
    ("opener", "commands", "line", "message"),
    [
        ("", "$ ol\n$ ls", 5, "ls: a session can only call ol"),
        ("", "text\n$ ol 'a", 5, "ol 'a: No closing quotation"),
        (" workspace=gone", "$ ol", 3, "workspace=gone: there is no such folder"),
    ],
)
def test_sessions_that_cannot_be_run_are_faults(weave, opener, commands, line, message):
    _, faults = weave({"a.md": f"# A\n\n```console {{.session{opener}}}\n{commands}\n```\n"})
    assert faults == [f"book/a.md:{line}: a session failed: {message}"]


def test_a_session_that_fails_is_a_fault_at_its_command(weave, monkeypatch):
    def transcripts(blocks, root):
        raise ValueError("ol b  # <c>: status 2")

    monkeypatch.setattr(sessions, "transcripts", transcripts)
    html, faults = weave({"a.md": SESSION})
    assert faults == ["book/a.md:8: a session failed: ol b  # <c>: status 2"]
    assert "$ ol a\n" in plain(html)


FACTS = """\
# {0}

```toml {{.chapter file=chapters.toml}}
["{0}"]
title = "Title of {0}"
part = 5
kind = "build"
builds = "{1}"
tests = "test_{1}"
needs = [{2}]
used_by_planned = ["L9.9"]
summary = "What `{0}` is: $d_h$."
```

```python {{#code-{0} file={1}}}
pass
```

```python {{#test-{0} file=test_{1}}}
def test_it():
    pass
```

"""


def test_overview_derives_who_uses_a_chapter(weave):
    html, faults = weave(
        {"b.md": FACTS.format("L2", "b.py", '"L1"'), "a.md": FACTS.format("L1", "a.py", "")}
    )
    assert not faults
    table = html[html.index("<table") : html.index("</table>")]
    assert '<a href="b.html">L2 Title of L2</a>' in table
    assert '<span class="planned">L9.9 (planned)</span>' in table
    assert '<a href="#chunk-code-L1"><code>a.py</code></a>' in table
    assert '<a href="#chunk-test-L1"><code>test_a.py</code></a>' in table


PITFALL = """\
``` {.pitfalls}
```

```toml {.pitfall file=chapters.toml}
["L1".mutants.s01]
pitfall = "merging by `reshape`"
symptom = "positions mix"
caught_by = ["test_it", "test_gone"]
```
"""


def test_pitfalls_name_their_tests_and_an_unknown_one_is_a_fault(weave):
    chapter = FACTS.format("L1", "a.py", "") + PITFALL
    html, faults = weave({"a.md": chapter})
    line = chapter.split("\n").index("```toml {.pitfall file=chapters.toml}") + 1
    table = chapter.split("\n").index("``` {.pitfalls}") + 1
    missing = "no block of the book defines the test test_gone"
    assert faults == [f"book/a.md:{table}: {missing}", f"book/a.md:{line}: {missing}"]
    assert html.count('<a href="#chunk-test-L1"><code>test_it</code></a>') == 2
    assert "merging by <code>reshape</code>" in html


HONEST = """
```toml {.pitfall file=chapters.toml}
["L1".mutants.f01]
symptom = "not for readers"
hint = ""
caught_by = ["test_it"]
```
"""


def test_faults_without_a_hint_are_not_in_the_table_of_pitfalls(weave):
    chapter = FACTS.format("L1", "a.py", "") + PITFALL.replace(', "test_gone"', "") + HONEST
    html, faults = weave({"a.md": chapter})
    assert not faults
    assert "positions mix" in html
    assert "not for readers" not in html


def test_map_draws_chapters_needs_and_planned_ones(weave):
    html, faults = weave(
        {
            "5-transformer/a.md": FACTS.format("L1", "a.py", ""),
            "5-transformer/b.md": FACTS.format("L2", "b.py", '"L1"'),
            "index.md": "# Book\n\n``` {.map}\n```\n",
        }
    )
    assert not faults
    assert '<a href="5-transformer/a.html">' in html
    assert "stroke-dasharray" in html[html.index("<svg") : html.index("</svg>")]
    assert html.count("<li>") == 2
    # L9.9 is planned on top of both chapters; the arrow from L1 follows from the other two
    assert plain(html).count("L9.9") == 1
    assert len(re.findall(r'<path d="M[^"]*C', html)) == 2


def test_broken_toml_is_a_fault_at_its_line(weave):
    _, faults = weave({"a.md": "# A\n\n```toml {.chapter file=c.toml}\na = 1\n[oops\n```\n"})
    assert len(faults) == 1
    assert faults[0].startswith("book/a.md:5: this block is not TOML")


HEADER = """\
# A

```toml {{.chapter file=chapters.toml}}
["A"]
{}
```

``` {{.pitfalls}}
```

``` {{.map}}
```
"""


@pytest.mark.parametrize(
    ("facts", "line", "message"),
    [
        ('title = "a"\nneeds = "L0.1"', 6, "needs must be a list of strings"),
        ("needs = [1]", 5, "needs must be a list of strings"),
        ("title = 3", 5, "title must be a string"),
        ('title = "part = 5"\npart = "five"', 6, "part must be a whole number"),
        ("part = true", 5, "part must be a whole number"),
        ("mutants = 3", 5, "mutants must be a table"),
        ('[A.mutants]\ns01 = "x"', 6, "s01 must be a table"),
        ('["A".mutants."s 1"]\ncaught_by = "test_a"', 6, "caught_by must be a list of strings"),
        ('needs = ["gone"]', 5, "there is no chapter gone to need"),
        ('needs = []\ntest_needs = ["gone"]', 6, "there is no chapter gone to need"),
        ('needs = ["A"]', 5, "needs go in a circle: A needs A"),
        ('[B]\ntitle = "B"', 3, "a block has the facts of one chapter, and this one of 2"),
        ('summary = "$\\\\nonsense$"', 5, "bad TeX"),
    ],
)
def test_header_facts_of_another_kind_are_faults_at_their_line(weave, facts, line, message):
    html, faults = weave({"a.md": HEADER.format(facts)})
    assert len(faults) == 1
    assert faults[0].startswith(f"book/a.md:{line}: {message}")
    assert "<svg" in html


def test_a_block_that_is_no_table_is_a_fault(weave):
    _, faults = weave({"a.md": '# A\n\n```toml {.chapter file=c.toml}\n\ntitle = "x"\n```\n'})
    assert faults == ["book/a.md:5: title must be a table"]


def test_needs_in_a_circle_are_a_fault_with_its_way(weave):
    texts = {
        f"{c}.md": HEADER.format(f'needs = ["{n}"]').replace('"A"', f'"{c}"', 1)
        for c, n in ("AB", "BC", "CB")
    }
    assert weave(texts)[1] == ["book/B.md:5: needs go in a circle: B needs C needs B"]


def test_facts_that_stand_twice_or_on_another_page_are_faults(weave):
    chapter = FACTS.format("L1", "a.py", "") + PITFALL.replace(', "test_gone"', "")
    second = "# B\n\n```toml {.chapter file=chapters.toml}\n[L1]\n```\n"
    third = '# C\n\n```toml {.pitfall file=chapters.toml}\n["L1".mutants.s01]\ncaught_by = ["test_it"]\n```\n'
    assert weave({"c.md": third, "b.md": second, "a.md": chapter})[1] == [
        "book/b.md:3: the header facts of L1 stand in a.md already",
        "book/c.md:3: L1 is not the chapter of this page",
        "book/c.md:4: the facts of s01 stand in another block already",
    ]


def test_equations_are_numbered_and_linked(weave):
    html, faults = weave(
        {
            "a.md": "$$ b \\label{eq:other} $$\n",
            "b.md": """\
As [eq. heads](#eq-heads) and [eq. other](a.md#eq-other) say:

$$
x = \\frac{1}{2}
\\label{eq:first}
$$

$$\\sqrt{d_h} \\label{eq:heads}$$

```python {#code file=code.py}
y = 1  # eq. heads
```
""",
        }
    )
    assert not faults
    assert '<a href="#eq-heads">eq. (2)</a>' in html
    assert '<a href="a.md#eq-other">eq. (1)</a>' in html
    assert html.index('id="eq-first"') < html.index('id="eq-heads"')
    assert '<a href="#eq-heads">eq. heads (2)</a>' in html
    assert html.count('<math display="block">') == 2


def test_dollars_in_code_prices_and_comments_are_no_formulas(weave):
    text = "`$x$` costs $5 or $6, \\$7$ and <!-- $\\nonsense$ --> ``a ` $b$``\n"
    html, faults = weave({"a.md": text})
    assert not faults
    assert "<math" not in html
    assert "$x$" in html
    assert "$7$" in plain(html).replace("&#36;", "$")


def test_long_formulas_in_a_line_may_be_broken_behind_relations_and_operators(weave):
    html, _ = weave({"a.md": "$x = 1 - 2$\n"})
    assert "<wbr>" not in html
    tex = r"\hat{x} = 0.25 \cdot (1 - 0.125, -0.25 + 0.125) < \frac{a = b}{2}"
    html, _ = weave({"a.md": f"${tex}$\n"})
    parts = [plain(part) for part in html.split("<wbr>")]
    assert parts == ["xˆ=", "0.25⋅", "(1−", "0.125,", "−0.25+", "0.125)<", "a=b2"]
    assert html.count("<math>") == html.count("</math>") == len(parts)


def test_no_line_begins_with_the_stop_behind_a_formula(weave):
    html, _ = weave({"a.md": "$x$ and $y$, or $z$'s ($v$) part, $w$.\n"})
    assert plain(html) == "x and y\u2060, or z\u2060's (v\u2060) part, w\u2060."


def test_roots_of_a_line_s_height_are_marked(weave):
    html, _ = weave({"a.md": r"$\sqrt{d_h} + \sqrt{\frac{1}{2}} + \sqrt{1 + \sqrt{2}}$"})
    roots = [part.partition(">")[0] for part in html.split("<msqrt")[1:]]
    assert roots == [" class=low", "", "", " class=low"]


def test_in_a_table_a_long_path_may_be_broken_and_two_words_are_not(weave):
    path = "src/transformers/models/gpt2.py"
    html, _ = weave({"a.md": f"| a | b |\n|---|---|\n| L5.1 s01 | `{path}` or `a/b` |\n"})
    assert "<td>L5.1\xa0s01</td>" in html
    assert f"<code>{path.replace('/', '/<wbr>')}</code> or <code>a/b</code></td></tr>" in html


def test_formulas_in_tables_may_hold_bars(weave):
    html, faults = weave({"a.md": "| a | b |\n|---|---|\n| $|x|$ | $y$ |\n"})
    assert not faults
    assert html.count("<td>") == 2


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("\n\nsee $\\nonsense$\n", 3, "bad TeX"),
        ("\n$$\n\\frac{1\n\\label{eq:a}\n$$\n", 2, "bad TeX"),
        ("\n$$ x $$\n", 2, "a displayed equation has one"),
        ("\n$$ x\n\ny $5$\n", 2, "no other $$ follows"),
        ("| a |\n|---|\n| $$x \\label{eq:a}$$ |\n", 3, "a displayed equation stands on lines of"),
        ("\n$$x \\label{eq:a}$$,\n", 2, "a displayed equation stands on lines of its own"),
        ("$$x \\label{eq:a}$$\n\n$$y \\label{eq:a}$$\n", 3, "there are two equations eq:a"),
        ("\n$$x \\label{eq:a b}$$\n", 2, "a label consists of letters, digits, - and _"),
        ("a\n[eq. gone](#eq-gone)\n", 2, "there is no equation eq:gone"),
        ("a\n\n[fig. gone](#fig-gone)\n", 3, "there is no figure fig-gone"),
        ("\n```python {#a file=a.py}\nx = 1\ny = 2  # eq. gone\n```\n", 4, "no equation of this"),
    ],
)
def test_faults_of_equations_name_their_line(weave, text, line, message):
    _, faults = weave({"a.md": text})
    assert len(faults) == 1
    assert faults[0].startswith(f"book/a.md:{line}: {message}")


FIGURE = """\
# A

See [fig. one](#fig-one).

~~~python {{.figure #fig-one alt="One & two" caption="Weights $w_h$ of `attend`"}}
from weave.figures import heat_map
{0}
~~~
"""


def test_figures_are_run_and_described(weave):
    html, faults = weave({"a.md": FIGURE.format("figure = heat_map([[1.0, 2.0]])")})
    assert not faults
    assert '<figure id="fig-one">' in html
    assert 'role="img" aria-labelledby="fig-one-t fig-one-d"' in html
    assert '<desc id="fig-one-d">One &amp; two</desc>' in html
    assert "<b>Figure 1.</b> Weights <math" in html
    assert '<a href="#fig-one">figure 1</a>' in html
    assert "<details" in html


@pytest.mark.parametrize(
    ("code", "line", "message"),
    [
        ("x = 1\nfigure = heat_map(1 / 0)", 8, "ZeroDivisionError"),
        ("figure = heat_map([[1", 7, "SyntaxError"),
        ("figure = 3", 5, "TypeError: the block must assign"),
        ("import warnings\nwarnings.warn('old')", 8, "UserWarning: old"),
        ("import os\nos._exit(3)", 5, "the process that draws it ended with 3"),
        ("figure = '<svg'", 5, "ParseError: unclosed token"),
        ("figure = '<svg>\\ud800</svg>'", 5, "UnicodeEncodeError"),
        ("x = '\0'", 5, "SyntaxError"),
    ],
)
def test_a_figure_that_fails_is_a_fault_at_its_line(weave, code, line, message):
    _, faults = weave({"a.md": FIGURE.format(code)})
    assert len(faults) == 1
    assert faults[0].startswith(f"book/a.md:{line}: {message}")


def test_a_figure_that_ends_its_process_leaves_the_others(weave):
    book = {
        "a.md": FIGURE.format("import os\nos._exit(0)"),
        "b.md": FIGURE.format("figure = '<svg/>'"),
    }
    book["b.md"] = book["b.md"].replace("fig-one", "fig-two").replace("fig. one", "fig. two")
    html, faults = weave(book)
    assert not faults
    assert "<svg" in html


def test_what_a_figure_s_processes_print_does_no_harm(weave):
    code = "import os\nos.system('echo hello')\nfigure = '<svg/>'"
    assert not weave({"a.md": FIGURE.format(code)})[1]


@pytest.mark.parametrize(
    ("opener", "line", "message"),
    [
        ("#fig-a", 3, "a figure has a name, #fig-NAME, and alt text"),
        ("#a alt=b", 3, "a figure has a name, #fig-NAME, and alt text"),
        (
            "#fig-a alt=b}\nfigure = '<svg/>'\n```\n\n```python {.figure #fig-a alt=b",
            7,
            "there are two figures fig-a",
        ),
    ],
)
def test_a_figure_has_a_name_of_its_own_and_words(weave, opener, line, message):
    _, faults = weave({"a.md": f"# A\n\n```python {{.figure {opener}}}\nfigure = '<svg/>'\n```\n"})
    assert faults == [f"book/a.md:{line}: {message}"]


def test_a_figure_of_a_book_with_faults_elsewhere_is_drawn(weave):
    chain = "".join(f"```python {{#c{n}}}\n«c{n + 1}»\n```\n\n" for n in range(1200))
    text = FIGURE.format("«c0»") + "\n" + chain + "```python {#c1200}\nfigure = '<svg/>'\n```\n"
    html, faults = weave(
        {"b.md": noweb("# B\n\n```python {#b}\n«gone»\n```\n"), "a.md": noweb(text)}
    )
    assert len(faults) == 1
    assert faults[0].startswith("book/b.md:4: chunk 'gone' is undefined")
    assert "<svg" in html


def test_pictures_are_well_formed_and_the_same_each_time():
    def drawn():
        cells = heat_map([[-1.0, float("nan")], [0.5, 2.0]], rows=["a & b", "c"], title="<t>")
        layout = grid([[0, 1], [None, 3]], groups=[[0, 1], [0, 2]], legend={0: "zero", 1: "one"})
        yield beside(cells, layout, arrows=["reshape\nthen"])
        yield below(cells, layout)
        yield line_plot([1, 10, 100], {"a": [1, 2, 3], "b": [3.0, 2.0, 1.0]}, x_log=True)
        yield bar_chart({"x": 0.5, "y": 1.13}, mark=1.0)
        yield graph({"": "A", "b": "B", "c": "C"}, [("", "b"), ("b", "c", "d"), ("", "c")])

    for first, second in zip(drawn(), drawn(), strict=True):
        assert first == second
        ET.fromstring(first)


def test_pictures_take_masks_tensors_and_arrays():
    import numpy as np

    class Tensor:
        def numpy(self):
            return np.array([[0.25, 0.75]])

    assert heat_map(Tensor()) == heat_map([[0.25, 0.75]])
    mask = heat_map(np.array([[True, False]]))
    assert mask.count("<path") == 2  # the two strokes of the cross
    assert "<text" not in mask


def test_pictures_refuse_what_they_cannot_show():
    with pytest.raises(ValueError, match="rows of one length"):
        heat_map([[1, 2], [3]])
    with pytest.raises(ValueError, match="3 labels for 2 columns"):
        grid([[1, 2]], columns=["a", "b", "c"])
    with pytest.raises(ValueError, match="a cycle among a, b"):
        graph({"a": "A", "b": "B"}, [("a", "b"), ("b", "a")])
    with pytest.raises(ValueError, match="no number may be negative"):
        bar_chart({"a": -1.0})


def test_numbers_are_printed_with_a_true_minus_and_no_minus_zero():
    assert decimals(-1.5, 2) == "\N{MINUS SIGN}1.50"
    assert decimals(-0.001, 2) == "0.00"


def luminance(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_ink_is_readable_on_every_filling_in_both_themes():
    css = (ROOT / "book/assets/figures.css").read_text(encoding="utf-8")
    light, dark = (
        dict(re.findall(r"--fig-([\w-]+): (#\w{6});", theme)) for theme in css.split("}")[:2]
    )
    assert light == COLOURS
    assert set(dark) == set(COLOURS)
    for colours in (light, dark):
        for name, filling in colours.items():
            texts = [name] if name.startswith("line") or name == "faint" else []
            pairs = [(colours[text], colours["paper"]) for text in texts]
            if name == "paper" or name.startswith(("heat", "group")):
                pairs.append((colours["ink"], filling))
            for one, other in pairs:
                less, more = sorted((luminance(one), luminance(other)))
                assert (more + 0.05) / (less + 0.05) >= 4.5, (name, one, other)


PROGRAM = {
    "0-base/a.md": noweb("""\
# A

```python {#a file=p/a.py}
class Base:
    def kept(self):
        return 1


def helper():
    return Base()
```
"""),
    "1-top/b.md": noweb("""\
# B

```toml {.chapter file=chapters.toml}
["B"]
builds = "p/b.py"
```

`helper` and `Derived.work`, `work(3)`, `p.a.helper`, `Derived.kept`, `nothing`, `x`, [`work`](#chunk-work)

```python {#b file=p/b.py}
from p.a import Base, helper as made


class Derived(Base):
    «work»

    «doc»
```

```python {#work}
def work(self):
    def inner():
        «deep»

    return made()
```

```python {#deep}
return self.kept()
```

```python {#doc}
SHARED = 1
```

```python {#contract file=c/b.py}
«doc»
```

```diff {#s01 patch=deep}
-return self.kept()
+return 0
```
"""),
}


def test_a_block_says_where_in_the_program_it_stands(weave):
    html, faults = weave(PROGRAM)
    assert not faults
    text = plain(html)
    assert "work · p/b.py · in class Derived" in text
    assert "deep · p/b.py · in Derived.work.inner" in text
    assert "b · p/b.py\n" in text


def test_names_in_backticks_lead_to_their_definitions(weave):
    html, _ = weave(PROGRAM)
    paragraph = html[html.index("<p><a") :].partition("</p>")[0]
    link = '<a href="{}"><code>{}</code></a>'
    assert link.format("../0-base/a.html#chunk-a", "helper") in paragraph
    assert link.format("#chunk-work", "Derived.work") in paragraph
    assert link.format("#chunk-work", "work(3)") in paragraph
    assert link.format("../0-base/a.html#chunk-a", "p.a.helper") in paragraph
    assert link.format("../0-base/a.html#chunk-a", "Derived.kept") in paragraph
    assert "<code>nothing</code>, <code>x</code>" in paragraph
    assert '<a href="#chunk-work"><code>work</code></a>' in paragraph  # no link in a link


def test_uses_are_found_through_imports_and_bases(weave):
    weave(PROGRAM)
    program = current().program
    used = {
        one.qualified: [block.name for block in one.uses.values()]
        for module in program.modules.values()
        for one in module.definitions.values()
    }
    assert used["helper"] == ["work"]
    assert used["Base"] == ["b"]
    assert used["Base.kept"] == ["deep"]
    assert used["Derived"] == []


def test_what_builds_the_module_can_be_hidden_and_no_more(weave):
    html, _ = weave(PROGRAM)
    hidden = re.findall(r'<div class="chunk[^"]* implementation" id="([^"]+)"', html)
    assert hidden == ["chunk-b", "chunk-work", "chunk-deep", "patch-s01"]
    assert html.count('class="hide-implementation"') == 1


def test_a_program_with_faults_is_not_guessed_at(weave):
    html, faults = weave(
        {"a.md": "```python {#a file=a.py}\n«gone»\n```\n".replace("«", "<<").replace("»", ">>")}
    )
    assert len(faults) == 1
    assert faults[0].startswith("book/a.md:2: ")
    assert "gone" in faults[0]
    assert not current().program.modules
    assert html.count('class="chunk"') == 1


def shown(path):
    """A generated page as HTML."""
    index = current()
    text = pages.generated(index)[path]
    index.add(path, text)
    return Markdown(extensions=EXTENSIONS).convert(text)


def test_an_assembled_file_is_the_file_and_leads_back(weave):
    weave(PROGRAM)
    html = shown("code/p/b.py.md")
    code = html[html.index("<code>") : html.index("</code>")]
    runs = re.findall(
        r'<span class="run-from"><a href="([^"]+)">\w+</a> ([^<]+)</span><span class="run-code">',
        code,
    )
    assert runs[2] == ("../../1-top/b.html#chunk-deep", "line 8")
    assert [lines for _, lines in runs][:2] == ["lines 1 to 5", "lines 6 to 7"]
    assert 'id="chunk-deep"' in code
    written = re.sub(r'<span class="run-from">.*?</span>', "", code)
    assert plain(written) == tangle.expand(current().book, "p/b.py")
    assert 'class="hide-implementation"' in html


def test_captions_lead_to_what_a_file_has_of_their_block(weave):
    text = "# A\n\n```python {#a file=a.py}\n«b»\n«c»\n```\n\n```python {#b}\n```\n\n```python {#c}\n1\n```\n"
    html, _ = weave({"a.md": noweb(text)})
    links = re.findall(r'<a href="code/a.py.html(#[^"]+)?"', html)
    assert links == ["", "", "#chunk-c"]
    assert re.findall(r' id="([^"]+)"', shown("code/a.py.md")) == ["chunk-c"]


ODD = [
    "a&b.py",
    "x<y>.py",
    'q"u.py',
    "50%.py",
    "a#b.py",
    "{x}.py",
    "p/__init__.py",
    "*a*.py",
    "[l](x)",
    "$x$",
    "d/README",
]


@pytest.mark.parametrize("target", ODD)
def test_a_file_of_any_name_has_a_page_and_links_to_it(weave, target):
    html, faults = weave({"a.md": f"# A\n\n```text {{#a file='{target}'}}\nx\n```\n"})
    assert not faults
    heading = re.search("<h1>(.*?)</h1>", shown(f"code/{target}.md"))[1]
    assert unescape(heading) == target
    href = unescape(re.search('href="(code/[^"#]*)#', html)[1])
    assert unquote(href) == f"code/{target}.html".replace("README", "index")


def test_a_preview_says_where_its_own_chunk_stands(weave):
    here = "# B\n\n```python {#b file=b.py}\n«a»\n```\n"
    html, _ = weave({"a.md": "# A\n\n```python {#a file=a.py}\nx = 1\n```\n", "b.md": noweb(here)})
    template = html[html.index("<template") :]
    assert 'class="chunk-name" href="a.html#chunk-a"' in template
    assert 'href="code/a.py.html#chunk-a"' in template


def test_indexes_list_every_chunk_identifier_and_file(weave):
    weave(PROGRAM)
    chunks = shown("reference/chunks.md")
    for name in current().chunks:
        assert f">{name}</a>" in chunks or not name
    assert '<a href="../1-top/b.html#chunk-work">work</a>' in chunks
    files = shown("reference/files.md")
    assert '<a href="../code/p/b.py.html"><code>p/b.py</code></a>' in files
    identifiers = shown("reference/identifiers.md")
    assert '<a href="../1-top/b.html#chunk-work">Derived.work</a>' in identifiers
    assert "method in p.b" in identifiers


def test_blocks_that_one_line_is_made_of_are_coloured_anew(weave):
    book = "```python {#a file=a.py}\nx = [«b»]\n\\«a»\n```\n\n```python {#b}\n1,\n2\n```\n"
    weave({"a.md": noweb("# A\n\n" + book)})
    html = shown("code/a.py.md")
    written = re.sub(r'<span class="run-from">.*?</span>', "", html)
    assert "x = [1,\n     2]\n<<a>>\n" in plain(written)


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


def test_terms_get_a_tooltip_at_their_first_place(weave):
    text = "# Masks and a mask\n\nTwo Causal masks, *a mask*; a mask, `d_model`, key. <b>mask</b>\n"
    html, faults = weave({"reference/glossary.md": GLOSSARY, "a.md": text})
    assert not faults
    links = re.findall(r'<a class="term" data-tip="([^"]+)" href="([^"]+)">(.*?)</a>', html)
    assert [word for _, _, word in links] == ["Causal masks", "mask", "<code>d_model</code>"]
    assert links[0][0] == "A mask by which a position reads earlier positions only."
    assert links[0][1] == "reference/glossary.html#term-causal-mask"
    assert plain(html).count("mask") == 5  # and "Masks"


def test_terms_of_a_part_are_marked_in_that_part_only(weave):
    chapter = FACTS.format("L5", "a.py", "") + "\nIts keys.\n"
    html, _ = weave({"reference/glossary.md": GLOSSARY, "a.md": chapter})
    assert 'data-tip="What is compared with queries."' in html


def test_a_word_that_stands_twice_in_the_glossary_is_a_fault(weave):
    text = GLOSSARY + "\nmask\n:   Again.\n\nhead (Keys, heads)\n:   A part.\n"
    assert weave({"reference/glossary.md": text})[1] == [
        "book/reference/glossary.md:18: the glossary has two entries mask",
        "book/reference/glossary.md:21: Keys is a form of key already",
    ]


def test_the_glossary_has_an_id_for_each_term(weave):
    weave({"reference/glossary.md": GLOSSARY})
    html = Markdown(extensions=[*EXTENSIONS, "def_list"]).convert(GLOSSARY)
    assert re.findall('<dt id="([^"]+)"', html) == [
        "term-causal-mask",
        "term-d_model",
        "term-mask",
        "term-key",
    ]
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


def test_the_search_takes_pages_of_other_tools_from_their_html():
    html = (
        '<p>before</p><h2 class="x" id="two">Two<a class="headerlink">#</a></h2><pre>no</pre>text'
    )
    page = search.page_of_html("lab.ipynb", "Lab", html)
    found = [(s.anchor, s.title, " ".join(s.words)) for s in page.sections]
    assert found == [("", "Lab", "before"), ("two", "Two", "text")]


@pytest.mark.parametrize(
    "text",
    [
        "[b](b.md 'title')",
        '[b]( b.md "title" )',
        "[b](<b.md>)",
        "[b]\n\n[b]: b.md",
        "> [b]: <b.md>",
        "[eq. b](b.md#eq-b)",
        "![b](b.md)",
        '<a class=x href="b.md">b</a>',
        "<img alt=b src=b.md>",
        "- a\n\n    | a |\n    |---|\n    | [b](b.md) |",
        "a[^1]\n\n[^1]: see [b](b.md)",
        "## [$x$](b.md)",
    ],
)
def test_links_are_found_however_they_are_written(weave, caplog, text):
    weave({"a.md": text})
    assert not caplog.records
    links.check(current(), ())
    line = next(n for n, row in enumerate(text.split("\n"), 1) if "b.md" in row)
    (fault,) = [record.getMessage() for record in caplog.records]
    assert fault.startswith(f"book/a.md:{line}: the link to b.md is dead: ")


def test_links_in_code_and_to_odd_names_are_not_dead(weave, caplog):
    odd = "[a](c%23d.md) <a href='c%23d.html#c'>b</a> [c](e(1).md) <b title='$x$'> $5 \n\n<!-- [x](x.md) -->"
    weave({"c#d.md": "# C {#c}\n", "e(1).md": "# E\n", "a.md": odd})
    links.check(current(), ())
    assert not caplog.records


def test_a_heading_with_the_id_of_a_block_is_a_fault(weave):
    text = "# A\n\n```python {#a file=a.py}\nx = 1\n```\n\n## Chunk a\n"
    weave({"a.md": text})
    Markdown(extensions=[*EXTENSIONS, "toc"]).convert(text)
    assert [(at, message) for _, at, message in current().faults] == [
        (3, "a heading of this page has the id chunk-a too")
    ]


def test_a_fault_is_said_once(weave):
    text = "[eq. a](#eq-a), [eq. a](#eq-a)\n[eq. a](#eq-a)\n"
    assert [fault.partition(": ")[0] for fault in weave({"a.md": text})[1]] == [
        "book/a.md:1",
        "book/a.md:2",
    ]


def test_a_picture_without_words_is_a_fault(weave):
    assert weave({"a.md": "\n![](a.png) ![a](a.png)\n"})[1] == [
        "book/a.md:2: the image a.png has no alt text"
    ]


@pytest.mark.parametrize(
    "head", ["\n\n\n", "---\ntitle: A\n---\n\n", "Note: a word.\n\n", "\n\x02\r\0\f\u2028\x1b\n"]
)
def test_lines_are_those_of_the_chapter_whatever_stands_at_its_head(weave, head):
    from mkdocs.utils.meta import get_data

    text = head + "# A\n\n```python {#a file=a.py}\nx = 1\ry = '\x03'\n```\n\n$\\nonsense$\n"
    weave({"a.md": text})
    current().faults.clear()
    given, _ = get_data(text.replace("\r", "\n"))
    html = Markdown(extensions=EXTENSIONS).convert(given)
    line = text[: text.index("$")].count("\n") + 1
    assert [(path, at) for path, at, _ in current().faults] == [("book/a.md", line)]
    assert "title: A" not in html
    assert "x = 1␍y = '␃'" in plain(html)
    assert html.count("x = ") == 1


def test_two_chapters_of_one_text_are_a_fault(weave):
    _, faults = weave({"c.md": "", "d.md": "", "a.md": "# A\n", "b.md": "# A\n"})
    assert faults == ["book/b.md:1: has the same text as a.md; the two cannot be told apart"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("# A\n\n[b](b.md)\n", "book/a.md:3: the link to b.md is dead: there is no file b.md"),
        ("# A\n\n\n[b](#b)\n", "book/a.md:4: the link to #b is dead: nothing in a.md has the id b"),
        ("# A\n\n[a](#a), [b](https://b.example), [c](c.png), `[d](d.md)`\n", ""),
        (
            "# A\n\nsee `test_gone` here\n",
            "book/a.md:3: no block of the book defines the test test_gone",
        ),
        (
            "# A\n\n- `tests/a.py::test_gone[x]`\n",
            "book/a.md:3: no block of the book defines the test tests/a.py::test_gone[x]",
        ),
        (
            "# A\n\n[code](code/a.py.md#chunk-gone)\n",
            "book/a.md:3: the link to code/a.py.md#chunk-gone is dead: there is no file code/a.py.md",
        ),
    ],
)
def test_dead_links_and_unknown_tests_name_their_line(weave, caplog, text, wrong):
    weave({"a.md": text})
    Markdown(extensions=[*EXTENSIONS, "toc"]).convert(text)
    links.check(current(), ["c.png"])
    assert [record.getMessage() for record in caplog.records] == ([wrong] if wrong else [])


@pytest.fixture
def config(tmp_path, monkeypatch):
    """config({path: text}) -> the project's configuration for a small book."""
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    monkeypatch.chdir(tmp_path)

    def made(book):
        from mkdocs.config import load_config

        for path, text in book.items():
            (tmp_path / "book" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "book" / path).write_text(text, encoding="utf-8")
        (tmp_path / "book/assets").mkdir(exist_ok=True)
        for style in ("book.css", "figures.css", "labs.css"):
            text = (ROOT / "book/assets" / style).read_text(encoding="utf-8")
            (tmp_path / "book/assets" / style).write_text(text, encoding="utf-8")
        return load_config(
            str(ROOT / "mkdocs.yml"),
            docs_dir=str(tmp_path / "book"),
            site_dir=str(tmp_path / "site"),
        )

    return made


@pytest.fixture
def site(tmp_path, config):
    """site({path: text}) -> the folder of the built site; raises Abort where MkDocs does."""

    def built(book):
        from mkdocs.commands.build import build

        made = config(book)
        made.plugins.on_startup(command="build", dirty=False)
        build(made)
        return tmp_path / "site"

    return built


SMALL = {
    "index.md": "# Book\n\nSee [eq. root](5-transformer/L5.3-mha.md#eq-root) and"
    " [the code](5-transformer/L5.3-mha.md#chunk-mha).\n",
    "5-transformer/L5.3-mha.md": "# L5.3 Attention\n\n$$ \\sqrt{d} \\label{eq:root} $$\n\n"
    "```python {#mha file=mha.py}\nx = 1\n```\n",
}


@pytest.mark.slow
def test_site_builds_and_asks_for_nothing_from_outside(site):
    folder = site(SMALL)
    page = (folder / "5-transformer/L5.3-mha.html").read_text(encoding="utf-8")
    assert "Part 5: Transformer" in page
    for path in folder.rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        assert path.name == "404.html" or html.startswith("<!doctype html>")
        fetched = re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="?(\w+:)?//', html)
        assert not fetched, path
    font = (folder / "assets/stix-two-math.woff2").read_bytes()
    assert font[:4] == b"wOF2"
    assert len(font) < 40_000


DRAWN = """
~~~python {.figure #fig-late alt="A word"}
figure = "<svg xmlns='http://www.w3.org/2000/svg'><text>it {} come</text></svg>".format("has")
~~~
"""


@pytest.mark.slow
def test_serving_starts_with_faults_and_changes_code_and_page_together(tmp_path, config):
    text = SMALL["5-transformer/L5.3-mha.md"] + DRAWN
    faulty = text.replace("x = 1", noweb("«gone»"))
    config({**SMALL, "5-transformer/L5.3-mha.md": faulty})  # writes the book
    chapter, made = tmp_path / "book/5-transformer/L5.3-mha.md", tmp_path / "mha.py"
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{one.getsockname()[1]}"
    options = {"docs_dir": str(tmp_path / "book"), "dev_addr": address, "strict": False}
    code = (
        "from mkdocs.commands.serve import serve;"
        f"serve({str(ROOT / 'mkdocs.yml')!r}, livereload=True, **{options!r})"
    )
    path = os.pathsep.join([str(ROOT), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "NO_MKDOCS_2_WARNING": "1"}
    log = (tmp_path / "log").open("w")
    server = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, stderr=log
    )

    def page():
        try:
            with urllib.request.urlopen(f"http://{address}/5-transformer/L5.3-mha.html") as got:
                return got.read().decode()
        except OSError:
            return ""

    def wait_for(text):
        end = time.monotonic() + 60  # three seconds on a quiet machine
        while text not in unescape(plain(page())):
            assert server.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)

    try:
        wait_for("chunk 'gone' is undefined")
        wait_for("it has come")
        assert not made.exists()
        chapter.write_text(text, encoding="utf-8")
        wait_for("x = 1")
        assert "gone" not in page()
        assert "x = 1\n" in made.read_text(encoding="utf-8")
        chapter.write_text(text.replace("x = 1", "x = 2"), encoding="utf-8")
        wait_for("x = 2")
        assert "x = 2\n" in made.read_text(encoding="utf-8")
    finally:
        server.terminate()
        server.wait()
        log.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "see $\\nonsense$\n",
        "[gone](#chunk-gone)\n",
        "```python {.figure #fig-a alt='a'}\n1 / 0\n```\n",
    ],
)
def test_a_fault_fails_the_build(site, text):
    from mkdocs.exceptions import Abort

    with pytest.raises(Abort):
        site({"index.md": "# Book\n\n" + text})


def test_the_pdf_of_no_book_is_refused_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["weave.serve.printed", "-f", str(tmp_path / "gone.yml")])
    assert printed.main() == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_a_chapter_that_cannot_be_read_is_a_fault_like_others(tmp_path, config, caplog):
    from mkdocs.commands.build import build
    from mkdocs.exceptions import Abort

    made = config({"index.md": "# Book\n\n[gone](gone.md)\n"})
    (tmp_path / "book/a.md").write_bytes(b"# A\n\n\xe4\n")
    made.plugins.on_startup(command="build", dirty=False)
    with pytest.raises(Abort):
        build(made)
    text = caplog.text
    assert "book/a.md:3: is not UTF-8" in text
    assert "book/index.md:3: the link to gone.md is dead" in text


@pytest.mark.slow
def test_a_chapter_that_mkdocs_leaves_out_is_a_fault(site, caplog):
    from mkdocs.exceptions import Abort

    with pytest.raises(Abort):
        site({"index.md": "# Book\n", "templates/a.md": "# A\n"})
    assert "book/templates/a.md:1: MkDocs leaves this chapter out" in caplog.text


def test_a_lab_follows_its_chapter(monkeypatch):
    order = ["index.md", "5-x/L5.2-b.md", "5-x/L5.3-mha.md", "5-x/L5.3-lab.md", "5-x/L5.4-a.md"]
    order += ["9-w/a.md", "reference/a.md"]
    pages = {source: printed.Printed(source, source, "") for source in sorted(order)}
    monkeypatch.setattr(printed, "collected", pages | {"code/a.md": printed.Printed("", "", "")})
    assert [page.url for page in printed.in_order()] == order


def test_ids_and_links_are_those_of_one_document():
    pages = [
        printed.Printed("index.html", "Book", '<h1 id="book">Book</h1><a href="a/b.html#x">b</a>'),
        printed.Printed(
            "a/b.html",
            'A "b"',
            '<h1 id="b">b</h1><h2 id="x">x &amp; y</h2><a href="#x">1</a><a href="../index.html">2</a>'
            '<a href="../code/m.py.html#z">3</a><a href="https://w.example/">4</a> id="code"'
            '<template id="t">no</template>',
        ),
    ]
    html = printed.document(pages, "Name", "About", {"p0": 3, "p1": 4, "p1-x": 5})
    assert '<a href="#p1-x">b</a>' in html
    assert (
        '<a href="#p1-x">1</a><a href="#p0">2</a><a>3</a><a href="https://w.example/">4</a> id="code"'
        in html
    )
    assert '<h2 id="p1-x">' in html
    assert "<template" not in html
    contents = html[html.index('<nav class="contents">') : html.index("</nav>")]
    assert re.findall(
        r'href="#([\w-]+)".*?class="entry">(.*?)</span>.*?number">(\d+)<', contents
    ) == [
        ("p0", "Book", "3"),
        ("p1", "A &quot;b&quot;", "4"),
        ("p1-x", "x &amp; y", "5"),
    ]
    assert '{ content: "A \\"b\\""; }' in html


def test_pictures_and_odd_names_are_found_in_one_document():
    pages = [
        printed.Printed(
            "a/b%20c.html",
            "</style>",
            '<img alt="x" src="../d%20e.png"><a href="c%23d.html#x">c</a>',
        ),
        printed.Printed(
            "a/c%23d.html", "C", '<img src="data:image/png;base64,x"><h2 id="x">x</h2>'
        ),
    ]
    html = printed.document(pages, "Name", "About")
    assert '<img alt="x" src="d%20e.png"><a href="#p1-x">c</a>' in html
    assert '<img src="data:image/png;base64,x">' in html
    assert html.count("</style>") == 1


WIDE = f"wide = '{'=' * 91}'"  # a hundred columns


@pytest.mark.slow
@pytest.mark.browser
def test_the_pdf_has_contents_page_numbers_and_links(tmp_path, config):
    from pypdf import PdfReader

    book = {
        **SMALL,
        "1-more/b.md": "# More\n\n## Way back\n\nTo [the root](../5-transformer/L5.3-mha.md#eq-root).\n",
        "1-more/c.md": "# Last\n\nFrom [the folded block](#chunk-two).\n\n```python {#two .values}\ntwo = 2.0\n```\n"
        f"\n```python {{#wide file=wide.py}}\n{WIDE}\n```\n",
    }
    count = printed.make(config(book), tmp_path / "book.pdf")
    reader = PdfReader(tmp_path / "book.pdf")
    texts = [page.extract_text() for page in reader.pages]
    assert count == len(texts)
    number = next(n for n, text in enumerate(texts, 1) if "To the root" in text)
    assert re.search(rf"Way back\s*{number}\b", texts[1])
    assert texts[number - 1].split("\n")[:2] == ["More", str(number)]  # head and foot
    links = [note.get_object()["/Dest"] for note in reader.pages[number - 1]["/Annots"]]
    assert links == ["/p3-eq-root"]
    assert any("two = 2.0" in text for text in texts)
    assert any(WIDE in text.splitlines() for text in texts)
    notes = [note.get_object() for page in reader.pages for note in page.get("/Annots", [])]
    inside = {note["/Dest"] for note in notes if "/Dest" in note}
    assert "/p2-chunk-two" in inside
    assert not inside - reader.named_destinations.keys()
    assert "Way back" in str(reader.outline)
