# Tangled from book/workshop/weave-program.md
"""The pages that are made of the whole book."""

import re
from html import unescape
from urllib.parse import unquote

import pytest
from markdown import Markdown

import literate.book
import literate.expand
from tests.weave.books import EXTENSIONS, PROGRAM, noweb, plain
from weave.model.index import current
from weave.render import pages


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
    assert plain(written) == literate.expand.expand(current().book, "p/b.py")
    assert 'class="hide-implementation"' in html


def test_captions_lead_to_what_a_file_has_of_their_block(woven):
    text = "# A\n\n```python {#a file=a.py}\n«b»\n«c»\n```\n\n```python {#b}\n```\n\n```python {#c}\n1\n```\n"
    html = woven(noweb(text))
    links = re.findall(r'<a href="code/a.py.html(#[^"]+)?"', html)
    assert links == ["", "", "#chunk-c"]
    assert re.findall(r' id="([^"]+)"', shown("code/a.py.md")) == ["chunk-c"]


ODD = ["a&b.py", "x<y>.py", 'q"u.py', "50%.py", "a#b.py", "{x}.py", "p/__init__.py", "*a*.py"]
ODD += ["[l](x)", "$x$", "d/README"]


@pytest.mark.parametrize("target", ODD)
def test_a_file_of_any_name_has_a_page_and_links_to_it(woven, target):
    html = woven({"a.md": f"# A\n\n```text {{#a file='{target}'}}\nx\n```\n"})
    heading = re.search("<h1>(.*?)</h1>", shown(f"code/{target}.md"))[1]
    assert unescape(heading) == target
    href = unescape(re.search('href="(code/[^"#]*)#', html)[1])
    assert unquote(href) == f"code/{target}.html".replace("README", "index")


def test_a_preview_says_where_its_own_chunk_stands(woven):
    here = "# B\n\n```python {#b file=b.py}\n«a»\n```\n"
    there = "# A\n\n```python {#a file=a.py}\nx = 1\n```\n"
    template = woven({"a.md": there, "b.md": noweb(here)}).partition("<template")[2]
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
