# Tangled from book/workshop/weave-program.md
"""The program behind the pages: definitions, uses, names in prose."""

import re

from tests.weave.books import PROGRAM, noweb, plain
from weave.model.index import current


def test_a_block_says_where_in_the_program_it_stands(woven):
    html = woven(PROGRAM)
    text = plain(html)
    assert "work · p/b.py · in class Derived" in text
    assert "deep · p/b.py · in Derived.work.inner" in text
    assert "b · p/b.py\n" in text


def test_names_in_backticks_lead_to_their_definitions(woven):
    html = woven(PROGRAM)
    paragraph = html[html.index("<p><a") :].partition("</p>")[0]
    base, own = "../0-base/a.html#chunk-a", "#chunk-work"
    links = {"helper": base, "p.a.helper": base, "Derived.kept": base}
    for name, href in {**links, "Derived.work": own, "work(3)": own}.items():
        assert f'<a href="{href}"><code>{name}</code></a>' in paragraph
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


def test_what_builds_the_module_can_be_hidden_and_no_more(woven):
    html = woven(PROGRAM)
    hidden = re.findall(r'<div class="chunk[^"]* implementation" id="([^"]+)"', html)
    assert hidden == ["chunk-b", "chunk-work", "chunk-deep", "patch-s01"]
    assert html.count('class="hide-implementation"') == 1


def test_a_program_that_is_wrong_is_not_guessed_at(weave):
    html, (said,) = weave(noweb("```python {#a file=a.py}\n«gone»\n```\n"))
    assert said.startswith("book/a.md:2: ")
    assert "gone" in said
    assert not current().program.modules
    assert html.count('class="chunk"') == 1
