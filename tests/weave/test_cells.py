# Tangled from book/workshop/weave-cells.md
"""Cells: what they show, where they fail, how long they may take; questions; notebooks."""

import json
import re
from pathlib import Path

import pytest

from tests.weave.books import noweb, plain
from weave.model.index import current
from weave.render import notebook
from weave.run import execute, outputs


def page(*cells):
    """A page with these cells, each given by what stands behind the fence's language and by its code."""
    return "# A\n" + "".join(f"\n```python {{{info}}}\n{code}\n```\n" for info, code in cells)


def shown(html):
    """The text of each output of a page."""
    return [
        plain(part).strip() for part in re.findall(r'<div class="output">(.*?)</div>', html, re.S)
    ]


@pytest.fixture
def toy():
    """Writes the module tinyllm.toy of the book's project."""

    def run(text):
        Path("tinyllm").mkdir(exist_ok=True)
        Path("tinyllm/__init__.py").touch()
        Path("tinyllm/toy.py").write_text(text)

    return run


def test_a_cell_shows_what_it_prints_warns_displays_and_returns_in_that_order(woven):
    code = """\
import numpy as np
print("a < b")
x = np.log(np.zeros(1))
display(x)
print("c")
{"x": x}"""
    told = "a < b\nRuntimeWarning: divide by zero encountered in log\narray([-inf])\nc\n"
    assert shown(woven(page((".run", code)))) == [told + "{'x': array([-inf])}"]


def test_cells_share_a_namespace_an_empty_folder_and_nothing_with_other_pages(woven):
    cells = (".run", "import os\nx = 1"), (".run", "print(os.listdir(), x, __name__)")
    book = {"b.md": page((".run", "x = 2")), "a.md": page(*cells)}
    assert shown(woven(book)) == ["[] 1 __main__"]


@pytest.mark.parametrize("code", ["", "x = 1", "None", "# nothing", "print(end='')"])
def test_a_cell_that_shows_nothing_has_no_output(woven, code):
    assert shown(woven(page((".run", code)))) == []


def test_any_text_can_be_printed(woven):
    html = woven(page((".run", "print('λ → 😀 <b> \\ud800 \\x00')")))
    assert shown(html) == ["λ → 😀 <b> \\ud800 \x00".replace("\x00", "\N{SYMBOL FOR NULL}")]


def test_what_is_printed_is_cut_with_a_note(woven):
    html = woven(page((".run", "for _ in range(2000):\n    print('x' * 9)")))
    text, _, note = shown(html)[0].partition("…")
    assert len(text.replace("\n", "")) == execute.LIMIT * 9 / 10
    assert note == " 10,000 more characters are left out"


def test_a_value_is_shown_as_the_picture_or_the_table_that_it_offers(woven):
    code = "class A:\n    def _repr_html_(self):\n        return '<b>bold</b>'\n\ndisplay(A())\n"
    code += "from weave.figures import heat_map\nheat_map([[0.5, 1.0]])"
    html = woven(page((".run alt='Two & two'", code)))
    assert '<div class="table-frame" tabindex="0"><b>bold</b></div>' in html
    assert '<svg role="img" aria-label="Two &amp; two"' in html
    assert "var(--fig-heat," in html  # the colours of the page's scheme


def test_a_cell_knows_the_source_of_what_it_defines_and_pickles_it(woven):
    code = "import inspect, pickle\nclass A:\n    def f(self):\n        pass\n\n"
    code += "print(inspect.getsource(A.f), type(pickle.loads(pickle.dumps(A()))) is A)"
    assert shown(woven(page((".run", code)))) == ["def f(self):\n        pass\n True"]


def test_an_output_waits_to_be_asked_for(woven, diagnostic):
    html = woven(page((".run .hide-output", "1 + 1")))
    hidden = re.search(r"<details class=\"hidden-output\">(.*?)</details>", html, re.S)
    assert "2" in shown(hidden[1])
    assert "<summary>Show the output</summary>" in hidden[1]
    said = "book/a.md:3: this cell shows nothing: there is no output to hide"
    assert diagnostic(page((".run .hide-output", "x = 1"))) == said


def test_code_is_folded_and_its_output_is_not(woven):
    cells = (".run .fold title='Long $x$'", "print(1)"), (".fold #b file=b.py", "b = 2")
    variant = "```diff {.fold #s01 patch=b}\n-b = 2\n+b = 3\n```\n"
    html = woven(f"{page(*cells)}\n{variant}")
    cell, block, other = re.findall(r"<details class=\"code-behind\">(.*?)</details>", html, re.S)
    assert "<summary>Long <math>" in cell
    assert "output" not in cell
    assert shown(html) == ["1"]
    assert "<summary>b</summary>" in block
    assert 'id="chunk-b"' in block
    assert other.startswith('<summary>s01</summary>\n<div class="chunk chunk-variant"')


def test_an_expected_error_is_the_output(woven):
    html = woven(page((".run", "x = 1"), (".run .raises", "print(x)\n1 / 0")))
    assert shown(html) == ["1\nZeroDivisionError: division by zero".replace("\n", "")]
    assert '<pre class="raised" tabindex="0">ZeroDivisionError: division by zero</pre>' in html


INDENTED = """\
# A

??? note "Answer"

    Prose.

    ```python {.run}
    x = 1
    print("folded")
    ```

> In a quote:
>
> ```python {.run}
> if x:
>     print("quoted")
> ```

1. One.

    ```python {.run}
    print("listed")
    ```

    ??? note "Answer"

        ```python {.run}
        x
        ```
"""


def test_cells_stand_in_notes_quotes_and_lists(woven):
    html = woven(INDENTED)
    assert shown(html) == ["folded", "quoted", "listed", "1"]
    notes = re.findall(r"<details class=\"note\">(.*?)</details>", html, re.S)
    assert [shown(note) for note in notes] == [["folded"], ["1"]]
    assert shown(re.search("<blockquote>(.*?)</blockquote>", html, re.S)[1]) == ["quoted"]
    assert shown(re.search("<ol>(.*?)</ol>", html, re.S)[1]) == ["listed", "1"]
    assert "<p><div" not in html


def test_a_cell_is_run_with_the_chunks_it_refers_to_and_tangled_as_well(woven):
    cells = ("#one", "x = 1"), (".run #two file=two.py", "«one»\nprint(x)"), (".run", "x + 1")
    html = woven(noweb(page(*cells)))
    assert shown(html) == ["1", "2"]
    assert current().book.targets == {"two.py": "two"}
    assert 'id="chunk-two"' in html


@pytest.mark.parametrize(
    ("code", "line", "message"),
    [
        ("y = 1\ny / 0", 11, "ZeroDivisionError: division by zero"),
        ("y = 1\n\n    y", 12, "IndentationError: unexpected indent"),
        ("f(0)", 10, "ZeroDivisionError: division by zero (raised at book/a.md:5)"),
        ("from tinyllm.toy import double\ndouble({})", 11, "TypeError: .* (raised at book/b.md:5)"),
        ("y = 1\n«chunk»", 19, "NameError: name 'gone' is not defined"),
        ("raise SystemExit(0)", 10, "SystemExit: 0"),
        ("raise ValueError", 10, "ValueError"),
        ("class A:\n    def __repr__(self):\n        1 / 0\n\nA()", 12, "ZeroDivisionError: "),
        ("import os\nos._exit(3)", 9, "the process that runs it ended with 3"),
    ],
)
def test_a_cell_that_fails_is_reported_at_its_line(weave, toy, code, line, message):
    double = "def double(x):\n    return 2 * x"
    toy(f"# Tangled from book/b.md\n{double}\n")
    chunk = "\n```python {#chunk}\ngone\n```\n"
    first, last = (".run", "def f(x):\n    1 / x"), (".run .hide-output", "print(x)")
    text = noweb(page(first) + "\n" + page((".run", code), last)[4:] + chunk)
    html, wrong = weave({"b.md": page(("#toy file=tinyllm/toy.py", double)), "a.md": text})
    assert len(wrong) == 1
    wanted = re.escape(f"book/a.md:{line}: {message}").replace(r"\.\*", ".*")
    assert re.match(wanted, wrong[0]), wrong
    assert '<code class="bad">' in html
    assert shown(html)[1:] == ["not run: a cell above it fails"]


def test_a_cell_that_does_not_raise_though_it_should_is_reported(diagnostic):
    said = "book/a.md:3: the cell is marked .raises, and raises nothing"
    assert diagnostic(page((".run .raises", "1"))) == said


def test_a_cell_that_never_ends_is_stopped(weave, monkeypatch):
    monkeypatch.setattr(execute, "SECONDS", 3)
    text = page((".run", "print('before')"), (".run", "while True:\n    pass"), (".run", "1"))
    html, wrong = weave({"a.md": text})
    stopped = "still running after 3 seconds, and stopped"
    assert wrong == [f"book/a.md:7: {stopped}"]
    assert shown(html) == ["before", stopped, "not run: a cell above it fails"]


def test_results_are_kept_while_cells_and_package_are_what_they_were(weave, toy):
    toy("x = 1\n")
    cell = ".run", "from tinyllm.toy import x\nprint(x)"

    def kept(text):
        weave({"a.md": text})
        index = current()
        index.pages["a.md"].outputs = None
        return outputs.known(index, index.pages["a.md"])

    assert kept(page(cell))[0]["shown"] == [["text", "1\n"]]
    moved = page(cell).replace("# A", "# A\n\nA word more.")
    Path("book/a.md").write_text(moved)
    assert outputs.known(current(), current().pages["a.md"])
    toy("x = 22\n")
    assert outputs.known(current(), current().pages["a.md"]) is None
    assert kept(moved)[0]["shown"] == [["text", "22\n"]]
    assert kept(page(cell, (".run", "1 / 0"))) is None


ASK = "# A\n\n```python {{.run}}\nimport numpy as np\nx = np.array([0.5, 2.25])\n```\n\n```ask {{answer={}}}\n{}\n```\n"


@pytest.mark.parametrize(
    ("answer", "data", "told"),
    [
        ('"x[1]"', ("2.25", "3"), "2.250"),
        ('"x[1]" decimals=1', ("2.25", "1"), "2.2"),
        ("len(x)", ("2", "0"), "2"),
        ("x.argmax()", ("1", "0"), "1"),
        ("-x[0]/1e6", ("-5e-07", "3"), "-0.000"),
        ("str(x.shape)", ("(2,)", None), "(2,)"),
        ("'\"a\" * 2'", ("aa", None), "aa"),
        ("x[0]==0.5", ("True", None), "True"),
    ],
)
def test_a_question_has_its_answer_computed(woven, answer, data, told):
    html = woven(ASK.format(answer, "What is `x`,\n and $x$?"))
    start = r'(?s)<form class="ask" data-answer="([^"]*)"(?: data-decimals="(\d)")?>'
    form = re.search(start + "(.*?)</form>", html)
    assert form.groups()[:2] == data
    assert '<label for="ask-8">What is <code>x</code>, and <math>' in form[3]
    assert 'id="ask-8"' in form[3]
    assert f"<summary>Show the answer</summary><p>{told}</p></details>" in form[3]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("x", "ValueError: an answer is a finite number or a text, not array"),
        ("''", "ValueError: an answer is a finite number or a text, not None"),
        ("'\"\"'", "ValueError: an answer is a finite number or a text, not ''"),
        ("np.inf", "ValueError: an answer is a finite number or a text, not inf"),
        ("gone", "NameError: name 'gone' is not defined"),
    ],
)
def test_a_question_without_an_answer_is_reported(diagnostic, answer, message):
    assert diagnostic(ASK.format(answer, "What is x?")).startswith(f"book/a.md:8: {message}")


CHAPTER = """\
# L1.1 Of one: two

```toml {.chapter file=chapters.toml}
["L1.1"]
title = "One"
```

"""


def test_a_chapter_and_its_pages_lead_to_each_other(weave):
    files = {"1-a/L1.1-of-one.md": CHAPTER, "1-a/L1.1-tests.md": "# L1.1 Of one: its tests\n"}
    files |= {"1-a/L1.10-lab.md": "# L1.10 Ten\n", "2-b/L1.1-lab.md": "# L1.1 Elsewhere\n"}
    weave(files | {"1-a/L1.1-lab.md": "# L1.1 Of one: its lab\n" + page((".run", "1"))[4:]})
    index = current()
    beside = {path: notebook.beside(index, index.pages[path]) for path in index.pages}
    link = re.compile(r'href="([^"]*)"[^>]*>([^<]*)')
    links = {path: link.findall(html) for path, html in beside.items()}
    lab, tests = ("L1.1-lab.html", "Its lab"), ("L1.1-tests.html", "Its tests")
    chapter, own = ("L1.1-of-one.html", "L1.1 Of one: two"), ("L1.1-lab.ipynb", "Notebook")
    assert links == {
        "1-a/L1.1-lab.md": [chapter, tests, own],
        "1-a/L1.1-of-one.md": [lab, tests],
        "1-a/L1.1-tests.md": [chapter, lab],
        "1-a/L1.10-lab.md": [],
        "2-b/L1.1-lab.md": [],
    }


def test_a_page_is_a_notebook_too(weave):
    text = CHAPTER.replace("two", "two\n\nOf [eq. sum](#eq-sum) and [two](b.md) and <https://a.b>.")
    text += "$$ x \\label{eq:sum} $$\n\n```python {.run}\nx = 1\n```\n\nThen:\n\n```text\na\n```\n"
    text += "\n" + INDENTED[5:] + "\nEnd.\n\n```python {.run .raises}\n1 / 0\n```\n\n"
    weave(text + "```ask {answer=x}\nWhat\nis it?\n```\n\n```python {.run .fold}\nx\n```\n")
    made = json.loads(notebook.notebook(current(), current().pages["a.md"]))
    assert (made["nbformat"], made["nbformat_minor"]) == (4, 5)
    cells = made["cells"]
    assert [cell["id"] for cell in cells] == [f"cell-{number}" for number in range(len(cells))]
    words = [cell["source"] for cell in cells if cell["cell_type"] == "markdown"]
    code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    assert words[0].startswith("# L1.1 Of one: two\n\n*A page of the book")
    assert words[0].endswith("Of eq. (1) and two and <https://a.b>.\n\n\n$$ x \\tag{1} $$")
    assert words[1] == "Then:\n\n```text\na\n```\n\n**Answer**\n\nProse."
    rest = ["> In a quote:\n>", "1. One.", "**Answer**", "End.", "**Question.** What is it?"]
    assert words[2:] == rest
    inner = ['x = 1\nprint("folded")', 'if x:\n    print("quoted")', 'print("listed")']
    assert code == ["x = 1", *inner, "x", "1 / 0", "x", "x"]
    hidden = {"jupyter": {"source_hidden": True}}
    metadata = [cell["metadata"] for cell in cells if cell["cell_type"] == "code"]
    assert metadata == [{}, hidden, {}, {}, hidden, {"tags": ["raises-exception"]}, hidden, hidden]
