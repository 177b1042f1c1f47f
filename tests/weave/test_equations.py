# Tangled from book/workshop/weave.md
"""Formulas: numbers, links, what is none, what is wrong with one."""

import pytest

from tests.weave.books import plain

NUMBERED = """\
As [eq. heads](#eq-heads) and [eq. other](a.md#eq-other) say:

$$
x = \\frac{1}{2}
\\label{eq:first}
$$

$$\\sqrt{d_h} \\label{eq:heads}$$

```python {#code file=code.py}
y = 1  # eq. heads
```
"""


def test_equations_are_numbered_and_linked(woven):
    html = woven({"a.md": "$$ b \\label{eq:other} $$\n", "b.md": NUMBERED})
    assert '<a href="#eq-heads">eq. (2)</a>' in html
    assert '<a href="a.md#eq-other">eq. (1)</a>' in html
    assert html.index('id="eq-first"') < html.index('id="eq-heads"')
    assert '<a href="#eq-heads">eq. heads (2)</a>' in html
    assert html.count('<math display="block">') == 2


def test_dollars_in_code_prices_and_comments_are_no_formulas(woven):
    html = woven("`$x$` costs $5 or $6, \\$7$ and <!-- $\\nonsense$ --> ``a ` $b$``\n")
    assert "<math" not in html
    assert "$x$" in html
    assert "$7$" in plain(html).replace("&#36;", "$")


def test_long_formulas_in_a_line_may_be_broken_behind_relations_and_operators(woven):
    assert "<wbr>" not in woven("$x = 1 - 2$\n")
    tex = r"\hat{x} = 0.25 \cdot (1 - 0.125, -0.25 + 0.125) < \frac{a = b}{2}"
    html = woven(f"${tex}$\n")
    parts = [plain(part) for part in html.split("<wbr>")]
    assert parts == ["xˆ=", "0.25⋅", "(1−", "0.125,", "−0.25+", "0.125)<", "a=b2"]
    assert html.count("<math>") == html.count("</math>") == len(parts)


def test_no_line_begins_with_the_stop_behind_a_formula(woven):
    html = woven("$x$ and $y$, or $z$'s ($v$) part, $w$.\n")
    assert plain(html) == "x and y\u2060, or z\u2060's (v\u2060) part, w\u2060."


def test_roots_of_a_line_s_height_are_marked(woven):
    html = woven({"a.md": r"$\sqrt{d_h} + \sqrt{\frac{1}{2}} + \sqrt{1 + \sqrt{2}}$"})
    roots = [part.partition(">")[0] for part in html.split("<msqrt")[1:]]
    assert roots == [" class=low", "", "", " class=low"]


def test_in_a_table_a_long_path_may_be_broken_and_two_words_are_not(woven):
    path = "src/transformers/models/gpt2.py"
    html = woven(f"| a | b |\n|---|---|\n| L5.1 s01 | `{path}` or `a/b` |\n")
    assert "<td>L5.1\xa0s01</td>" in html
    assert f"<code>{path.replace('/', '/<wbr>')}</code> or <code>a/b</code></td></tr>" in html


def test_formulas_in_tables_may_hold_bars(woven):
    assert woven("| a | b |\n|---|---|\n| $|x|$ | $y$ |\n").count("<td>") == 2


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
def test_diagnostics_of_equations_name_their_line(diagnostic, text, line, message):
    assert diagnostic(text).startswith(f"book/a.md:{line}: {message}")
