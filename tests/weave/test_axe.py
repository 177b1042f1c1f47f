# Tangled from book/workshop/site-tests.md
"""axe-core finds nothing on the pages of the book, light and dark, wide and narrow."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "node_modules/axe-core/axe.min.js"
CHAPTERS = sorted(
    p.relative_to(ROOT / "book").with_suffix(".html") for p in (ROOT / "book").rglob("*.md")
)
L53 = "2-transformer/L5.3-multi-head-attention.html"
LAB = "2-transformer/L5.3-lab.html"
MADE = ["reference/chunks.html", "reference/files.html", "code/tinyllm/xfmr/mha.py.html"]
PAGES = [*map(str, CHAPTERS), *MADE]
FULLY = ["index.html", L53, LAB, "code/tinyllm/xfmr/mha.py.html"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]


RUN = """
    const done = arguments[0];
    axe.run(document, {resultTypes: ["violations"]}).then(({violations}) => done(violations.flatMap(
        ({id, impact, nodes}) => nodes.map((n) => `${id} (${impact}): ${n.target}: ${n.html.slice(0, 150)}`))));
"""


@pytest.fixture(scope="module")
def axe():
    """The text of axe-core."""
    return AXE.read_text(encoding="utf-8")


@pytest.mark.parametrize("tab", ["http"], indirect=True)
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing(tab, axe, path):
    found = []
    ways = [("light", 1440), ("dark", 360)]
    for scheme, width in [*ways, ("dark", 1440), ("light", 360)] if path in FULLY else ways:
        tab.scheme(scheme)
        tab.size(width)
        tab.open(path)
        if tab.js("return document.querySelector('tiny-adder')"):  # opened as far as it goes
            tab.click("tiny-adder [type=submit]")
            tab.wait("document.querySelector('tiny-adder').dataset.shown")
            tab.js("document.querySelector('tiny-adder details').open = true")
        tab.js(axe)
        found += [f"{scheme} {width}: {one}" for one in tab.driver.execute_async_script(RUN)]
    assert not found, "\n".join(found)
