# Tangled from book/workshop/weave.md
"""The weaver: small books in, pages and faults out."""

import logging
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from markdown import Markdown

from weave.figures import bar_chart, below, beside, graph, grid, heat_map, line_plot
from weave.figures.svg import COLOURS, decimals

ROOT = Path(__file__).resolve().parents[2]
EXTENSIONS = ["weave.extension", "pymdownx.highlight", "pymdownx.superfences", "tables"]


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
""".replace("«", "<<").replace("»", ">>"),  # so that the tangler does not take them for its own
}


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


def test_references_lead_to_definitions_across_pages(weave):
    html, _ = weave(BOOK)
    link = r'<a class="chunk-reference" href="{}">&lt;&lt;{}&gt;&gt;</a>'
    assert link.format("../0-foundations/L0.1-tensor.html#chunk-add", "add") in html
    assert link.format("#chunk-split", "split") in html


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
    assert html.count("chunk-caption") == 3
    assert "plain = 1" in plain(html)


def test_a_page_that_is_no_chapter_passes_unchanged(weave):
    weave(BOOK)
    assert Markdown(extensions=EXTENSIONS).convert("a $5$ b") == "<p>a $5$ b</p>"


def test_variants_show_sign_and_colour(weave):
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
    removed = re.search(r'<del class="diff-line">(.*?)</del>', variant, re.DOTALL)
    added = re.search(r'<ins class="diff-line">(.*?)</ins>', variant, re.DOTALL)
    assert plain(removed[1]) == "-y = 2\n"
    assert plain(added[1]) == "+y = 3\n"


def test_weaving_twice_gives_the_same_bytes(weave):
    assert weave(BOOK) == weave(BOOK)


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


def test_broken_toml_is_a_fault_at_its_block(weave):
    _, faults = weave({"a.md": "# A\n\n```toml {.chapter file=c.toml}\n[oops\n```\n"})
    assert len(faults) == 1
    assert faults[0].startswith("book/a.md:3: this block is not TOML")


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
    assert html.count('<math data-search-exclude display="block">') == 2


def test_dollars_in_code_prices_and_comments_are_no_formulas(weave):
    text = "`$x$` costs $5 or $6, \\$7$ and <!-- $\\nonsense$ --> ``a ` $b$``\n"
    html, faults = weave({"a.md": text})
    assert not faults
    assert "<math" not in html
    assert "$x$" in html
    assert "$7$" in plain(html).replace("&#36;", "$")


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
    ],
)
def test_a_figure_that_fails_is_a_fault_at_its_line(weave, code, line, message):
    _, faults = weave({"a.md": FIGURE.format(code)})
    assert len(faults) == 1
    assert faults[0].startswith(f"book/a.md:{line}: {message}")


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
    for theme in css.split("svg.figure")[0].split("}")[:2]:
        colours = dict(re.findall(r"--fig-([\w-]+): (#\w{6});", theme))
        assert set(colours) == set(COLOURS)
        for name, filling in colours.items():
            texts = [name] if name.startswith("line") or name == "faint" else []
            pairs = [(colours[text], colours["paper"]) for text in texts]
            if name == "paper" or name.startswith(("heat", "group")):
                pairs.append((colours["ink"], filling))
            for one, other in pairs:
                dark, light = sorted((luminance(one), luminance(other)))
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (name, one, other)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """site({path: text}) -> the folder of the built site; raises Abort where MkDocs does."""
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    monkeypatch.chdir(tmp_path)

    def built(book):
        from mkdocs.commands.build import build
        from mkdocs.config import load_config

        for path, text in book.items():
            (tmp_path / "book" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "book" / path).write_text(text, encoding="utf-8")
        (tmp_path / "book/assets").mkdir(exist_ok=True)
        for style in ("book.css", "figures.css"):
            text = (ROOT / "book/assets" / style).read_text(encoding="utf-8")
            (tmp_path / "book/assets" / style).write_text(text, encoding="utf-8")
        config = load_config(
            str(ROOT / "mkdocs.yml"),
            docs_dir=str(tmp_path / "book"),
            site_dir=str(tmp_path / "site"),
        )
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
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
        fetched = re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="?(\w+:)?//', html)
        assert not fetched, path
    font = (folder / "assets/stix-two-math.woff2").read_bytes()
    assert font[:4] == b"wOF2"
    assert len(font) < 40_000


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
