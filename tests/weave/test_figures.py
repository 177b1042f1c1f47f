# Tangled from book/workshop/weave.md
"""Figures: run, described, drawn; what is wrong with one."""

import re
import xml.etree.ElementTree as ET

import pytest

from tests.weave.books import ROOT, noweb
from weave.figures import bar_chart, below, beside, graph, grid, heat_map, line_plot
from weave.figures.svg import COLOURS, decimals

FIGURE = """\
# A

See [fig. one](#fig-one).

~~~python {{.figure #fig-one alt="One & two" caption="Weights $w_h$ of `attend`"}}
from weave.figures import heat_map
{0}
~~~
"""


def test_figures_are_run_and_described(woven):
    html = woven(FIGURE.format("figure = heat_map([[1.0, 2.0]])"))
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
        ("import os\nos._exit(3)", 5, "the process that runs it ended with 3"),
        ("figure = '<svg'", 5, "ParseError: unclosed token"),
        ("figure = '<svg>\\ud800</svg>'", 5, "UnicodeEncodeError"),
        ("x = '\0'", 5, "SyntaxError"),
    ],
)
def test_a_figure_that_fails_is_reported_at_its_line(diagnostic, code, line, message):
    assert diagnostic(FIGURE.format(code)).startswith(f"book/a.md:{line}: {message}")


def test_a_figure_that_ends_its_process_leaves_the_others(woven):
    other = FIGURE.format("figure = '<svg/>'").replace("fig-one", "fig-two")
    ends = FIGURE.format("import os\nos._exit(0)")
    assert "<svg" in woven({"a.md": ends, "b.md": other.replace("fig. one", "fig. two")})


def test_what_a_figure_s_processes_print_does_no_harm(woven):
    woven(FIGURE.format("import os\nos.system('echo hello')\nfigure = '<svg/>'"))


@pytest.mark.parametrize(
    ("openers", "line", "message"),
    [
        (["#fig-a"], 3, "a figure has a name, #fig-NAME, and alt text"),
        (["#a alt=b"], 3, "a figure has a name, #fig-NAME, and alt text"),
        (["#fig-a alt=b"] * 2, 7, "there are two figures fig-a"),
    ],
)
def test_a_figure_has_a_name_of_its_own_and_words(diagnostic, openers, line, message):
    figures = [f"\n```python {{.figure {opener}}}\nfigure = '<svg/>'\n```\n" for opener in openers]
    assert diagnostic("# A\n" + "".join(figures)) == f"book/a.md:{line}: {message}"


def test_a_figure_of_a_book_that_is_wrong_elsewhere_is_drawn(weave):
    chain = "".join(f"```python {{#c{n}}}\n«c{n + 1}»\n```\n\n" for n in range(1200))
    text = FIGURE.format("«c0»") + "\n" + chain + "```python {#c1200}\nfigure = '<svg/>'\n```\n"
    wrong = noweb("# B\n\n```python {#b}\n«gone»\n```\n")
    html, (said,) = weave({"b.md": wrong, "a.md": noweb(text)})
    assert said.startswith("book/b.md:4: chunk 'gone' is undefined")
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
    assert [decimals(x, 2) for x in (-1.5, -0.001)] == ["\N{MINUS SIGN}1.50", "0.00"]


def luminance(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_ink_is_readable_on_every_filling_in_both_themes():
    css = (ROOT / "book/assets/figures.css").read_text(encoding="utf-8")
    colour = re.compile(r"--fig-([\w-]+): (#\w{6});")
    light, dark = (dict(colour.findall(theme)) for theme in css.split("}")[:2])
    assert light == COLOURS
    assert set(dark) == set(COLOURS)
    for colours in (light, dark):
        for name, filling in colours.items():
            text = name.startswith("line") or name == "faint"
            pairs = [(filling, colours["paper"])] if text else []
            if name == "paper" or name.startswith(("heat", "group")):
                pairs.append((colours["ink"], filling))
            for one, other in pairs:
                less, more = sorted((luminance(one), luminance(other)))
                assert (more + 0.05) / (less + 0.05) >= 4.5, (name, one, other)
