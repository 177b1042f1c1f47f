# Tangled from book/workshop/weave-print.md
"""The book as one document."""

import re
import sys

import pytest

from tests.weave.books import SMALL
from weave.serve import printed


def test_what_was_rendered_is_printed_in_order_without_the_pages_of_code(monkeypatch):
    order = ["b.md", "code/a.md", "gone.md", "a.md"]
    pages = {name: printed.Printed(name, name, "") for name in sorted(order) if name != "gone.md"}
    monkeypatch.setattr(printed, "collected", pages)
    assert [page.url for page in printed.in_order(order)] == ["b.md", "a.md"]


def test_ids_and_links_are_those_of_one_document():
    first = '<h1 id="book">Book</h1><a href="a/b.html#x">b</a>'
    second = '<h1 id="b">b</h1><h2 id="x">x &amp; y</h2><a href="#x">1</a><a href="../index.html">2'
    second += '</a><a href="../code/m.py.html#z">3</a><a href="https://w.example/">4</a> id="code"'
    second += '<template id="t">no</template>'
    pages = [("index.html", "Book", first), ("a/b.html", 'A "b"', second)]
    pages = [printed.Printed(*page) for page in pages]
    html = printed.document(pages, "Name", "About", {"p0": 3, "p1": 4, "p1-x": 5})
    assert '<a href="#p1-x">b</a>' in html
    links = '<a href="#p1-x">1</a><a href="#p0">2</a><a>3</a><a href="https://w.example/">4</a>'
    assert f'{links} id="code"' in html
    assert '<h2 id="p1-x">' in html
    assert "<template" not in html
    contents = html[html.index('<nav class="contents">') : html.index("</nav>")]
    entry = r'href="#([\w-]+)".*?class="entry">(.*?)</span>.*?number">(\d+)<'
    wanted = [("p0", "Book", "3"), ("p1", "A &quot;b&quot;", "4"), ("p1-x", "x &amp; y", "5")]
    assert re.findall(entry, contents) == wanted
    assert '{ content: "A \\"b\\""; }' in html


def test_pictures_and_odd_names_are_found_in_one_document():
    first = '<img alt="x" src="../d%20e.png"><a href="c%23d.html#x">c</a>'
    second = '<img src="data:image/png;base64,x"><h2 id="x">x</h2>'
    pages = [("a/b%20c.html", "</style>", first), ("a/c%23d.html", "C", second)]
    html = printed.document([printed.Printed(*page) for page in pages], "Name", "About")
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
        "1-more/b.md": "# More\n\n## Way back\n\nTo [the root](../2-transformer/L5.3-mha.md#eq-root).\n",
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


def test_the_pdf_of_no_book_is_refused_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["weave.serve.printed", "-f", str(tmp_path / "gone.yml")])
    assert printed.main() == 1
    assert capsys.readouterr().err.count("\n") == 1
