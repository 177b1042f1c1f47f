# Tangled from book/workshop/weave.md
"""Header facts on a page, and what is wrong with them."""

import re

import pytest

from tests.weave.books import FACTS, plain
from weave.model.index import current

L1, L2 = FACTS.format("L1", "a.py", ""), FACTS.format("L2", "b.py", '"L1"')


def test_overview_derives_who_uses_a_chapter(woven):
    html = woven({"b.md": L2, "a.md": L1})
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
KNOWN = PITFALL.replace(', "test_gone"', "")


def test_pitfalls_name_their_tests_and_an_unknown_one_is_reported(weave):
    chapter = L1 + PITFALL
    html, wrong = weave({"a.md": chapter})
    line = chapter.split("\n").index("```toml {.pitfall file=chapters.toml}") + 1
    table = chapter.split("\n").index("``` {.pitfalls}") + 1
    missing = "no block of the book defines the test test_gone"
    assert wrong == [f"book/a.md:{table}: {missing}", f"book/a.md:{line}: {missing}"]
    assert html.count('<a href="#chunk-test-L1"><code>test_it</code></a>') == 2
    assert "merging by <code>reshape</code>" in html


VARIANT = "```python {#c file=c}\n1\n```\n\n```diff {#s01 patch=c file=ol/course/mutants/L1/s01.patch}\n-1\n+2\n```\n"


def test_the_table_of_pitfalls_leads_to_a_mutant_beside_the_chapter(weave):
    html, _ = weave({"L1-tests.md": f"# L1: the tests\n\n{VARIANT}", "L1-a.md": L1 + PITFALL})
    assert '<a href="L1-tests.html#patch-s01">s01</a>' in html


HONEST = """
```toml {.pitfall file=chapters.toml}
["L1".mutants.f01]
symptom = "not for readers"
hint = ""
caught_by = ["test_it"]
```
"""


def test_mutants_without_a_hint_are_not_in_the_table_of_pitfalls(woven):
    html = woven(L1 + KNOWN + HONEST)
    assert "positions mix" in html
    assert "not for readers" not in html


def test_map_draws_chapters_needs_and_planned_ones(woven):
    chapters = {"2-transformer/a.md": L1, "2-transformer/b.md": L2}
    html = woven(chapters | {"index.md": "# Book\n\n``` {.map}\n```\n"})
    assert '<a href="2-transformer/a.html">' in html
    assert "stroke-dasharray" in html[html.index("<svg") : html.index("</svg>")]
    assert html.count("<li>") == 2
    # L9.9 is planned on top of both chapters; the arrow from L1 follows from the other two
    assert plain(html).count("L9.9") == 1
    assert len(re.findall(r'<path d="M[^"]*C', html)) == 2


def test_broken_toml_is_reported_at_its_line(diagnostic):
    said = diagnostic("# A\n\n```toml {.chapter file=c.toml}\na = 1\n[oops\n```\n")
    assert said.startswith("book/a.md:5: this block is not TOML")


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
def test_header_facts_of_another_kind_are_reported_at_their_line(weave, facts, line, message):
    html, wrong = weave({"a.md": HEADER.format(facts)})
    assert len(wrong) == 1
    assert wrong[0].startswith(f"book/a.md:{line}: {message}")
    assert "<svg" in html


def test_a_block_that_is_no_table_is_reported(diagnostic):
    assert (
        diagnostic('# A\n\n```toml {.chapter file=c.toml}\n\ntitle = "x"\n```\n')
        == "book/a.md:5: title must be a table"
    )


def test_needs_in_a_circle_are_reported_with_its_way(weave):
    texts = {
        f"{c}.md": HEADER.format(f'needs = ["{n}"]').replace('"A"', f'"{c}"', 1)
        for c, n in ("AB", "BC", "CB")
    }
    assert weave(texts)[1] == ["book/B.md:5: needs go in a circle: B needs C needs B"]


def test_facts_that_stand_twice_or_on_another_page_are_reported(weave):
    second = "# B\n\n```toml {.chapter file=chapters.toml}\n[L1]\n```\n"
    third = "# C\n\n```toml {.chapter file=chapters.toml}\n[L3]\n```\n\n```toml {.pitfall file="
    third += 'chapters.toml}\n["L1".mutants.s01]\ncaught_by = ["test_it"]\n```\n'
    assert weave({"c.md": third, "b.md": second, "a.md": L1 + KNOWN})[1] == [
        "book/b.md:3: the header facts of L1 stand in a.md already",
        "book/c.md:7: L1 is not the chapter of this page",
        "book/c.md:8: the facts of s01 stand in another block already",
    ]


def test_chapters_are_read_after_those_that_they_need_and_before_what_belongs_to_them(weave):
    texts = {"index.md": "# Book\n", "reference/a.md": "# Words\n", "workshop/a.md": "# Tools\n"}
    needs = {"A": '"M"', "B": "", "C": '"A", "D"', "D": "", "M": '"L"', "L": ""}
    texts |= {f"5-x/{name}.md": FACTS.format(name, name, need) for name, need in needs.items()}
    texts["4-w/L.md"] = texts.pop("5-x/L.md")  # of another part
    weave(texts | {"5-x/D-tests.md": "# Tests of D\n", "5-x/D-lab.md": "# Lab of D\n"})
    order = ["index.md", "4-w/L.md", "5-x/M.md", "5-x/A.md", "5-x/B.md"]
    order += ["5-x/D.md", "5-x/D-lab.md", "5-x/D-tests.md", "5-x/C.md"]
    assert current().reading_order() == [*order, "workshop/a.md", "reference/a.md"]
