# Tangled from book/workshop/labs.md
"""Labs: run against the package as it is, woven like chapters, faults at the chapter's lines."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from yaml import YAMLError

import literate.expand
import literate.patch
import literate.read
import literate.where
from weave.model.index import Index, forget
from weave.render.labs import markdown, notebook, shown
from weave.run import labs
from weave.serve.labs import on_files

ROOT = Path(__file__).resolve().parents[2]


LAB = """\
# A lab

```python {#lab file=labs/a.py}
# %% [markdown]
r'''
«words»
'''

# %%
«start»

# %% [markdown]
# In comments: $x$.

# %%
«more»
```

```markdown {#words}
# Lab A

Of $\\sqrt{d_h}$.
```
""".replace("«", "<<").replace("»", ">>")

CODE = """\
# Code

```python {{#start}}
from tinyllm.toy import double
x = double(2)
print("x =", x)
```

```python {{#more}}
{}
```

```python {{#toy file=tinyllm/toy.py}}
def double(x):
    return 2 * x
```
"""


@pytest.fixture
def book(tmp_path, monkeypatch, caplog):
    """book(last cell, {path: text}) writes and tangles a book, and gives its index and its lab."""
    monkeypatch.chdir(tmp_path)

    def made(more, texts=None):
        for path, text in {"a.md": LAB, "b.md": CODE.format(more), **(texts or {})}.items():
            Path("book").mkdir(exist_ok=True)
            Path("book", path).write_text(text, encoding="utf-8")
        Path("tinyllm").mkdir(exist_ok=True)
        Path("tinyllm/__init__.py").touch()
        index = Index("book")
        for path, text in literate.patch.products(index.book).items():
            Path(path).parent.mkdir(exist_ok=True)
            Path(path).write_text(text, encoding="utf-8")
        caplog.clear()
        return index, labs.read(index.book, "labs/a.py")

    return made


@pytest.fixture
def faults(book, caplog):
    """faults(last cell, texts) -> the faults of a run, as "path:line: message"."""

    def found(more, texts=None):
        index, lab = book(more, texts)
        labs.report(lab, labs.run(lab, Path.cwd()), index, Path.cwd())
        return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]

    return found


def test_cells_know_the_chapter_lines_they_came_from(book):
    _, lab = book("y = 3")
    assert [(cell.kind, cell.source.split("\n")[0]) for cell in lab.cells] == [
        ("markdown", "# Lab A"),
        ("code", "from tinyllm.toy import double"),
        ("markdown", "In comments: $x$."),
        ("code", "y = 3"),
    ]
    lines = [lab.origin(cell.line) for cell in lab.cells]
    assert lines == [("book/a.md", 20), ("book/b.md", 4), ("book/a.md", 13), ("book/b.md", 10)]


def test_a_lab_is_markdown_whose_lines_have_chapter_lines(book):
    _, lab = book("y = '```'")
    text, origins = markdown(lab)
    lines = text.split("\n")
    assert len(lines) == len(origins)
    assert "````python\ny = '```'\n````\n\n<!-- lab 1 -->" in text
    for line, origin in (("Of $\\sqrt{d_h}$.", 22), ("In comments: $x$.", 13)):
        assert origins[lines.index(line)] == ("book/a.md", origin)
    assert origins[lines.index("x = double(2)")] == ("book/b.md", 5)


def test_labs_take_part_in_the_weaving(book, caplog):
    from markdown import Markdown

    index, lab = book("y = 3  # eq. gone", {"a.md": LAB.replace("Of $", "Of $\\nonsense")})
    index.adopt(lab.target, *markdown(lab))
    weaver = Markdown(extensions=["weave.render.extension", "pymdownx.superfences"]).preprocessors[
        "weave"
    ]
    assert index.page(markdown(lab)[0]) is index.pages["labs/a.py"]
    weaver.index, weaver.page = index, index.pages["labs/a.py"]
    html = weaver._prose(weaver.page, markdown(lab)[0].split("\n"), 1)
    assert any("bad TeX" in r.getMessage() for r in caplog.records)
    assert [r.getMessage().partition(" bad")[0] for r in caplog.records] == ["book/a.md:22:"]
    assert "$x$" not in "\n".join(html)


def test_outputs_come_in_order_and_in_all_their_forms(book):
    more = """\
from IPython.display import HTML, SVG, display
print("a < b")
display(HTML("<b>bold</b>"))
print("c")
SVG("<svg><g/></svg>")"""
    _, lab = book(more)
    first, second = labs.run(lab, Path.cwd())
    assert first == [{"output_type": "stream", "name": "stdout", "text": "x = 4\n"}]
    assert [output["output_type"] for output in second] == [
        "stream",
        "display_data",
        "stream",
        "execute_result",
    ]
    html = shown(second)
    assert html.index("a &lt; b") < html.index("<b>bold</b>") < html.index("<svg><g/></svg>")
    assert shown([]) == ""


def test_a_value_without_a_picture_is_shown_as_text(book):
    _, lab = book("[x, '<']")
    assert "[4, &#x27;&lt;&#x27;]</pre>" in shown(labs.run(lab, Path.cwd())[1])


def test_nothing_is_shown_for_none_and_behind_a_semicolon(book):
    _, lab = book("x;")
    assert labs.run(lab, Path.cwd())[1] == []


def test_a_changed_package_changes_the_outputs(book):
    _, lab = book("x")
    assert "x = 4" in str(labs.run(lab, Path.cwd()))
    toy = Path("tinyllm/toy.py")
    toy.write_text(toy.read_text().replace("2 * x", "3 * x"))
    assert "x = 6" in str(labs.run(lab, Path.cwd()))


def test_a_run_is_kept_while_nothing_changes(book):
    _, lab = book("x")
    assert labs.known(lab, Path.cwd()) is None
    assert labs.run(lab, Path.cwd()) == labs.known(lab, Path.cwd())
    Path("tinyllm/toy.py").write_text("")
    assert labs.known(lab, Path.cwd()) is None


def test_each_file_of_the_package_and_each_byte_of_the_lab_is_in_the_key(book):
    keys = [labs.key(book(cell)[1], Path.cwd()) for cell in ("x", "x ", "x")]
    assert keys[0] == keys[2] != keys[1]
    Path("tinyllm/num").mkdir()
    Path("tinyllm/num/new.py").touch()
    assert labs.key(book("x")[1], Path.cwd()) != keys[0]


def test_a_failed_run_is_not_kept(faults):
    first, second = faults("1 / 0"), faults("1 / 0")
    assert len(first) == 1
    assert first == second


@pytest.mark.parametrize(
    ("more", "line", "message"),
    [
        ("y = 1\ny / 0", 11, "ZeroDivisionError: division by zero"),
        ("y = 1\ny = (", 11, "SyntaxError: incomplete input"),
        (
            "y = 1\n\ndouble(object())",
            12,
            "TypeError: unsupported operand type(s) for *: 'int' and 'object' (raised at book/b.md:17)",
        ),
        ("import warnings\nwarnings.warn('old')", 10, "the lab wrote to its standard error"),
        ("raise SystemExit(0)", 10, "SystemExit: 0"),
        ("y = 1\nprint('x' * 100_001)", 11, "ValueError: a cell prints no more than 100,000"),
        ("class A:\n    def __repr__(self):\n        1 / 0\n\nA()", 12, "ZeroDivisionError"),
        ("import os\n_ = os.write(2, b'\\xff')\nos._exit(3)", 10, "ChildProcessError: its process"),
    ],
)
def test_faults_name_the_chapter_line(faults, more, line, message):
    found = faults(more)
    assert len(found) == 1
    assert found[0].startswith(f"book/b.md:{line}: labs/a.py: {message}")


def test_a_process_that_dies_or_hangs_is_a_fault(faults, monkeypatch):
    assert "book/b.md:10: labs/a.py: ChildProcessError" in faults("import os\nos._exit(3)")[0]
    monkeypatch.setattr(labs, "SECONDS", 3)
    (fault,) = faults("while True: pass")
    assert fault.startswith("book/b.md:10: labs/a.py: TimeoutError: the lab ran longer than 3 sec")


def test_what_another_process_prints_does_no_harm(faults):
    assert faults("import os\n_ = os.system('echo hello')\n_ = os.write(2, b'\\xff')") == []


def test_what_is_no_text_is_printed_escaped(book):
    _, lab = book("print('\\ud800')")
    assert labs.run(lab, Path.cwd())[1][0]["text"] == "\\ud800\n"


@pytest.fixture
def build(book, monkeypatch):
    """build(last cell) -> the folder of the site; raises Abort where MkDocs does."""
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")

    def built(more):
        from mkdocs.commands.build import build
        from mkdocs.config import load_config

        here = Path.cwd()
        book(more, {"index.md": "# Book\n\n[The lab](labs/a.py)\n", "no_lab.py": "print(1)\n"})
        for style in (ROOT / "book/assets").glob("*.css"):
            (here / "book/assets").mkdir(exist_ok=True)
            (here / "book/assets" / style.name).write_bytes(style.read_bytes())
        config = load_config(
            str(ROOT / "mkdocs.yml"), docs_dir=str(here / "book"), site_dir=str(here / "site")
        )
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
        return here / "site"

    return built


@pytest.mark.slow
def test_a_lab_becomes_a_page_and_nothing_else_does(build):
    site = build("x")
    page = (site / "labs/a.html").read_text(encoding="utf-8")
    assert "<title>Lab A - tinyllm</title>" in page
    assert "<msqrt" in page
    assert '<pre tabindex="0">x = 4</pre>' in page
    assert "<!-- lab" not in page
    assert page.count("<style") == 0
    assert (site / "no_lab.py").read_text() == "print(1)\n"
    assert not (site / "no_lab.html").exists()
    assert 'href="labs/a.html"' in (site / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_failing_lab_fails_the_build(build, caplog):
    from mkdocs.exceptions import Abort

    with pytest.raises(Abort):
        build("1 / 0")
    assert [record.getMessage() for record in caplog.records if record.levelno >= 30] == [
        "book/b.md:10: labs/a.py: ZeroDivisionError: division by zero"
    ]


def test_a_lab_whose_head_is_not_yaml_is_a_fault(book, caplog):
    with pytest.raises(YAMLError):
        book(
            "1",
            {
                "a.md": LAB.replace(
                    "# %% [markdown]\nr", "# ---\n# jupyter:\n#   a: [\n# ---\n# %% [markdown]\nr"
                )
            },
        )
    forget()
    assert on_files([], SimpleNamespace(docs_dir="book")) == []
    assert "book/a.md:4: labs/a.py: its head is not YAML" in caplog.text


REAL = [
    path
    for path in literate.read.read_book([str(ROOT / "book")]).targets
    if path.startswith("labs/")
]


@pytest.fixture(params=REAL)
def real(request):
    """A lab of this book."""
    return labs.read(literate.read.read_book([str(ROOT / "book")]), request.param)


def test_labs_run_as_scripts_without_ipython(real, tmp_path):
    (tmp_path / "lab.py").write_text(real.text, encoding="utf-8")
    (tmp_path / "IPython.py").write_text("raise ImportError('not here')\n")
    done = subprocess.run(
        [sys.executable, "-W", "error", "lab.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "0.669762" in done.stdout


@pytest.mark.slow
def test_labs_run_as_notebooks_in_a_kernel(real, tmp_path, monkeypatch):
    import nbformat

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    made = nbformat.reads(notebook(real, []), as_version=4)
    nbformat.validate(made)
    made.cells.append(nbformat.v4.new_code_cell("print('to the end')"))
    (tmp_path / "lab.ipynb").write_text(nbformat.writes(made), encoding="utf-8")
    run = ["-m", "nbconvert", "--to", "notebook", "--execute", "--stdout", "lab.ipynb"]
    done = subprocess.run(
        [sys.executable, *run],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outputs = [c.get("outputs") for c in json.loads(done.stdout)["cells"]]
    assert outputs[-1][0]["text"] == ["to the end\n"]


def test_building_twice_gives_the_same_notebook(real):
    assert notebook(real, []) == notebook(real, [])
