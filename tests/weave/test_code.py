# Tangled from book/workshop/weave.md
"""Blocks on a page: captions, references, variants, sessions."""

import os
import re

import pytest
from markdown import Markdown

from tests.weave.books import BOOK, EXTENSIONS, plain
from weave.model.index import current
from weave.model.page import Place
from weave.run import sessions

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


def test_captions_name_chunk_files_and_part_and_feet_lead_to_users_and_other_parts(woven):
    html = woven(BOOK)
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert {"chunk-mha", "chunk-split", "chunk-split-2"} <= set(ids)
    text = plain(html)
    assert "mha · tinyllm/mha.py" in text
    assert "split · tinyllm/mha.py · part 1 of 2" in text
    assert "split · tinyllm/mha.py · part 2 of 2" in text
    feet = [plain(foot) for foot in re.findall(r'<div class="chunk-foot">(.*?)</div>', html)]
    assert feet == ["used in mha · continued in part 2", "used in mha · continues part 1"]
    assert 'continued in <a href="#chunk-split-2">' in html
    assert "add · tinyllm/mha.py" in plain(woven(dict(reversed(BOOK.items()))))


def test_references_lead_to_definitions_and_bring_a_preview_of_another_page_along(woven):
    html = woven(BOOK)
    link = r'<a class="chunk-reference" href="{}">&lt;&lt;{}&gt;&gt;</a>'
    assert link.format("../1-foundations/L0.1-tensor.html#chunk-add", "add") in html
    assert link.format("#chunk-split", "split") in html
    assert html.count("chunk-reference") == 2
    assert "x <<shift>> 1\n<<add>>\n" in plain(html)  # which are none
    template = html[html.index("<template") : html.index("</template>")]
    assert 'data-preview="chunk-add"' in template
    assert "return a + b" in plain(template)
    assert " id=" not in template
    assert html.count("<template") == 1


def test_the_lines_of_a_string_share_an_element_but_not_with_a_comment(woven):
    html = woven("```python {#a}\n# c\n'r'\n's'\nt = 1\n```\n")
    assert "<i class=c># c</i>\n<i>'r'\n's'</i>\nt" in html


def test_what_is_no_chunk_is_left_to_markdown(weave, woven):
    html = woven(BOOK)
    item = html[html.index("<li>") : html.index("</li>")]
    assert 'id="chunk-split"' in item
    assert "\treturn 1" in plain(item)
    assert html.count("chunk-caption") == 4  # one of them in a template
    assert "plain = 1" in plain(html)
    assert weave(BOOK) == (html, [])  # the same bytes
    assert Markdown(extensions=EXTENSIONS).convert("a $5$ b") == "<p>a $5$ b</p>"  # no chapter


def test_whatever_a_page_shows_of_a_block_is_where_links_to_it_lead(woven):
    html = woven(ANCHORED)
    page = current().pages["a.md"]
    ids = re.findall(r' id="([^"]+)"', html)
    assert sorted(ids) == sorted(page.anchors.values())
    assert len(ids) == 6
    folded = html.partition('<details class="code-behind">')[2].partition("</details>")[0]
    assert 'id="chunk-numbers"' in folded.partition("</summary>")[2]  # so that it opens


def test_pages_have_the_address_that_mkdocs_gives_them(weave):
    weave(BOOK)
    index = current()
    assert index.href("a/b.md", Place("c/d.md", "x")) == "../c/d.html#x"
    assert index.href("", Place("code/c.py.md", "")) == "code/c.py.html"


VARIANT = """\
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


def test_variants_say_what_is_removed_and_added(woven):
    variant = woven(VARIANT).partition('id="patch-s01"')[2]
    assert "s01 · a variant of merge, no part of the program" in plain(variant)
    lines = re.findall(r"<(span|del|ins)>(.*?)</\1>", variant, re.DOTALL)
    wanted = [("span", "x = 1\n"), ("del", "y = 2\n"), ("ins", "y = 3\n")]
    assert [(tag, plain(line)) for tag, line in lines] == wanted


SESSION = "# A\n\n```console {.session}\n$ ol a\n```\n\n```console {.session workspace=f}\n$ ol b  # <c>\n```\n"


def test_sessions_show_what_their_commands_print(woven, monkeypatch):
    def transcripts(blocks, root):
        return [f"{text}{files} <printed> in {root}\n" for text, files in blocks]

    monkeypatch.setattr(sessions, "transcripts", transcripts)
    html = woven(SESSION)
    assert f"$ ol a\n <printed> in {os.getcwd()}\n" in plain(html)
    assert f"$ ol b  # <c>\nf <printed> in {os.getcwd()}\n" in plain(html)


@pytest.mark.parametrize(
    ("opener", "commands", "line", "message"),
    [
        ("", "$ ol\n$ ls", 5, "ls: a session can only call ol"),
        ("", "text\n$ ol 'a", 5, "ol 'a: No closing quotation"),
        (" workspace=gone", "$ ol", 3, "workspace=gone: there is no such folder"),
    ],
)
def test_sessions_that_cannot_be_run_are_reported(diagnostic, opener, commands, line, message):
    text = f"# A\n\n```console {{.session{opener}}}\n{commands}\n```\n"
    assert diagnostic(text) == f"book/a.md:{line}: a session failed: {message}"


def test_a_session_that_fails_is_reported_at_its_command(weave, monkeypatch):
    def transcripts(blocks, root):
        raise ValueError("ol b  # <c>: status 2")

    monkeypatch.setattr(sessions, "transcripts", transcripts)
    html, wrong = weave({"a.md": SESSION})
    assert wrong == ["book/a.md:8: a session failed: ol b  # <c>: status 2"]
    assert "$ ol a\n" in plain(html)
