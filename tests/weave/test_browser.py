# Tangled from book/workshop/site-tests.md
"""The site in a browser, by HTTP and from the disk: what a reader does works, and nothing goes wrong."""

import time
from pathlib import Path

import pytest

import literate.read

ROOT = Path(__file__).resolve().parents[2]
L53 = "2-transformer/L5.3-multi-head-attention.html"
LAB = "2-transformer/L5.3-lab.html"
TESTS = "2-transformer/L5.5-tests.html"
pytestmark = [pytest.mark.browser, pytest.mark.slow]


WIDE = """
    const limit = document.documentElement.clientWidth;
    const named = (e) => `${e.tagName}.${e.className}: ${e.textContent.trim().slice(0, 40)}`;
    const cut = [...document.querySelectorAll("article *")].filter((e) =>
        e.clientWidth > 1 && e.scrollWidth > e.clientWidth + 1
        && ["hidden", "clip"].includes(getComputedStyle(e).overflowX)
        && e.checkVisibility({visibilityProperty: true}));
    const box = (e) => e.getBoundingClientRect();
    cut.push(...[...document.querySelectorAll("svg.figure text")].filter((e) =>
        box(e).left < box(e.ownerSVGElement).left - 1 || box(e).right > box(e.ownerSVGElement).right + 1));
    cut.push(...[...document.querySelectorAll("article .headerlink")].filter((e) => {
        const words = document.createRange();
        words.selectNodeContents(e.parentElement);
        words.setEndBefore(e);
        return box(e).top > box(words).bottom; // on a line of its own, below the heading
    }));
    if (document.scrollingElement.scrollWidth <= limit) return cut.map(named);
    const out = [...document.querySelectorAll("body *")].filter((e) =>
        e.getBoundingClientRect().right > limit + 1 && e.checkVisibility({visibilityProperty: true}));
    return [`${document.scrollingElement.scrollWidth} > ${limit}`, ...out.slice(0, 5).map(named)];
"""


def test_every_page_opens_and_fits_the_screen(tab):
    wide = {}
    files = [path for path in tab.pages() if path.startswith("code/")]
    left_out = files[3:] if tab.base.startswith("file:") else []  # they are all of one kind
    for path in tab.pages():
        if path in left_out:
            continue
        tab.open(path)
        for width in (1440, 360):
            tab.size(width)
            if found := tab.js(WIDE):
                wide[path, width] = found
    assert not wide, "\n".join(map(str, wide.items()))


def test_next_leads_from_the_front_page_through_all_chapters(tab):
    tab.open("index.html")
    seen = [tab.path]
    while tab.js("return document.querySelector('.md-footer__link--next') !== null"):
        tab.click(".md-footer__link--next")
        assert tab.path not in seen
        seen.append(tab.path)
    chapters = [path.relative_to(ROOT / "book") for path in (ROOT / "book").glob("*/*.md")]
    assert {path.with_suffix(".html").as_posix() for path in chapters} <= set(seen)


CHAPTERS = [
    path.relative_to(ROOT / "book").with_suffix(".html").as_posix()
    for path in sorted((ROOT / "book").glob("[1-9]-*/*.md"))
    if "{.chapter " in path.read_text(encoding="utf-8")
]
MEASURED = """
const top = element => (element.getBoundingClientRect().top + scrollY) / 900;
const shown = [...document.querySelectorAll(".output, .figure-frame")].filter(e => e.checkVisibility());
const headings = [...document.querySelectorAll("h2")];
const section = headings.find(heading => heading.textContent.startsWith("4 The interface"));
return [Math.min(...shown.map(top)), top(section)];
"""


@pytest.mark.parametrize("path", CHAPTERS)
def test_a_chapter_shows_something_soon_and_comes_to_its_interface(tab, path):
    tab.size(1280, 900)
    tab.open(path)
    first, interface = tab.js(MEASURED)
    print(f"{path}: a picture or output after {first:.2f} screens, section 4 after {interface:.1f}")
    assert first < 2
    assert interface <= 15


def test_the_map_leads_to_chapters(tab):
    tab.open("index.html")
    tab.click(f".chapter-map svg a[href='{L53}']")
    assert tab.path == L53
    tab.driver.back()
    assert tab.path == "index.html"


LANDED = """(() => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const box = target && target.getBoundingClientRect();
    return box && box.top >= 0 && box.top < innerHeight / 2 && target.matches(":target")
        && target.checkVisibility() && target.textContent;
})()"""


def test_references_lead_to_blocks_across_pages(tab):
    tab.open(TESTS)
    tab.click("a.chunk-reference[href$='#chunk-hand-layer']")
    assert tab.path == "2-transformer/L5.5-layers.html#chunk-hand-layer"
    assert "hand-layer" in tab.wait(LANDED)
    tab.driver.back()
    assert tab.path == TESTS
    tab.click("a.chunk-reference[href='#chunk-test-layers-norm']")
    assert "test-layers-norm" in tab.wait(LANDED)


LOOK = """
    const style = (selector) => getComputedStyle(document.querySelector(selector));
    const light = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).reduce((a, b) => a + +b, 0) > 382;
    return [document.body.dataset.mdColorScheme, light(style("body").backgroundColor), light(style("svg.figure text").fill)];
"""


def test_the_theme_switches_and_is_remembered(tab):
    tab.open(L53)
    assert tab.js(LOOK) == ["default", True, False]
    tab.click(".theme-switch")
    assert tab.wait("document.body.dataset.mdColorScheme === 'slate'")
    assert tab.js(LOOK) == ["slate", False, True]
    tab.open("2-transformer/L5.1-attention.html")
    assert tab.js(LOOK) == ["slate", False, True]


def test_the_theme_switches_by_keyboard(tab):
    tab.open(L53)
    tab.js("document.querySelector('.theme-switch').focus()")
    for key, name, theme in [
        (tab.keys.SPACE, "dark", "slate"),
        (tab.keys.ENTER, "light", "default"),
    ]:
        assert tab.js("return document.activeElement.ariaLabel") == f"Switch to {name}"
        tab.press(key)
        assert tab.wait("document.body.dataset.mdColorScheme === arguments[0]", theme)
        assert tab.wait("document.activeElement.checkVisibility()")


def test_the_theme_is_the_one_of_the_system(tab):
    tab.scheme("dark")
    tab.open(L53)
    assert tab.js(LOOK) == ["slate", False, True]


@pytest.mark.parametrize("name", ["split-heads", "mha"])
def test_a_copied_block_is_the_block(tab, name):
    tab.open(L53)
    tab.click(f"#chunk-{name} .copy")
    tab.js("const t = document.createElement('textarea'); document.body.append(t); t.focus()")
    tab.driver.switch_to.active_element.send_keys(tab.keys.CONTROL, "v")
    pasted = tab.wait("document.activeElement.value")
    (block,) = literate.read.read_book([str(ROOT / "book")]).chunks[name]
    assert pasted.rstrip() == block.body.rstrip()


def test_a_variant_has_its_signs_and_they_are_not_copied(tab):
    tab.open(L53)
    sign = "return getComputedStyle(document.querySelector('#patch-s02 ' + arguments[0]), '::before').content"
    assert [tab.js(sign, tag) for tag in ("del", "ins")] == ['"-"', '"+"']
    code = tab.js("return document.querySelector('#patch-s02 code').textContent")
    assert [line[:8] for line in code.split("\n")[:2]] == ["    head", "    retu"]


COVERING = """
    return [...document.querySelectorAll(".copy")].filter((button) => {
        const code = button.parentElement.querySelector("code");
        const top = code.getBoundingClientRect().top + parseFloat(getComputedStyle(code).paddingTop);
        return button.checkVisibility() && button.getBoundingClientRect().bottom > top + 1;
    }).map((button) => button.ariaLabel);
"""


@pytest.mark.parametrize("page", [L53, LAB])
def test_where_nothing_hovers_no_button_covers_code(tab, page):
    tab.open(page)
    assert tab.js("return matchMedia('(hover: none)').matches")
    tab.size(360)
    assert tab.js(COVERING) == []


SEEN = "return document.querySelector('article').innerText"
CONTRACT = (ROOT / "ol/course/contracts/tinyllm/xfmr/mha.pyi").read_text(encoding="utf-8")
CODE = map(str.strip, (ROOT / "tinyllm/xfmr/mha.py").read_text(encoding="utf-8").split("\n"))
SECRET = {line for line in CODE if len(line) > 20 and line not in CONTRACT and line[:5] != "from "}


def test_the_implementation_can_be_hidden_and_stays_hidden(tab):
    tab.open(L53)
    assert [line for line in SECRET if line in tab.js(SEEN)]
    tab.click("details:has(#chunk-mha-example) > summary")
    tab.click(".hide-implementation")
    seen = tab.js(SEEN)
    assert not [line for line in SECRET if line in seen]
    for stays in ("Worked example by hand", "QUERY = np.array", "def head_mask(self, mask"):
        assert stays in seen
    assert "test_golden_torch" in seen
    tab.open(L53)
    tab.click("details:has(#chunk-mha-example) > summary")
    assert tab.js(SEEN) == seen
    tab.press("h")
    assert [line for line in SECRET if line in tab.js(SEEN)]


def test_one_hidden_block_can_be_shown(tab):
    tab.open(L53)
    tab.press("h")
    assert "return heads.transpose" not in tab.js(SEEN)
    tab.click("#chunk-split-heads .show-block")
    assert "return heads.transpose" in tab.js(SEEN)
    other = tab.js("return document.getElementById('chunk-merge-heads').innerText")
    assert "def merge_heads" not in other


@pytest.mark.parametrize(
    ("words", "target"),
    [
        ("split-heads", f"{L53}#chunk-split-heads"),
        ("MultiHeadAttention.head_mask", f"{L53}#chunk-head-mask"),
        ("mask for every head", f"{L53}#23-one-mask-for-every-head"),
        ("outvoted", f"{L53}#3-worked-example-by-hand"),
    ],
)
def test_search_leads_to_the_thing(tab, words, target):
    tab.open("workshop/writing.html")
    tab.press("/")
    tab.wait("document.activeElement.id === 'search-query'")
    tab.press(words)
    tab.wait("document.querySelectorAll('#search-results li').length > 0")
    tab.press(tab.keys.ENTER)
    tab.wait("location.href.startsWith(arguments[0])", tab.base + L53)
    assert tab.path == target
    tab.wait(LANDED)


def test_search_opens_by_its_button_and_says_when_nothing_is_found(tab):
    tab.open("index.html")
    tab.click(".search-open")
    tab.press("xyzzy-nowhere")
    tab.wait("document.getElementById('search-status').textContent === 'Nothing found'")
    tab.press(tab.keys.ESCAPE, tab.keys.ESCAPE)  # the first one empties the line
    tab.wait("!document.getElementById('search').open")


BEFORE = """
    const stops = [...document.querySelectorAll("a[href], button, input, summary, [tabindex='0']")].filter((e) =>
        e.checkVisibility({visibilityProperty: true}));
    stops[stops.indexOf(arguments[0]) - 1].focus({preventScroll: true});
"""


@pytest.mark.parametrize(
    ("page", "link", "shown"),
    [
        (L53, "a.chunk-reference[href='#chunk-split-heads']", "heads = x.reshape"),
        (TESTS, "a.chunk-reference[href$='#chunk-hand-layer']", "EncoderLayer"),
        (L53, "a.term", ""),
    ],
)
def test_a_link_shows_what_it_leads_to(tab, page, link, shown):
    tab.open(page)
    element = tab.find(link)
    tab.js("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
    tab.actions().move_to_element(element).perform()
    text = tab.wait("document.querySelector('#preview:not([hidden])')?.innerText")
    assert shown in text
    tab.press(tab.keys.ESCAPE)
    tab.wait("document.querySelector('#preview').hidden")
    tab.js(BEFORE, element)
    tab.press(tab.keys.TAB)
    assert tab.js("return document.activeElement === arguments[0]", element)
    assert tab.wait("document.querySelector('#preview:not([hidden])')?.innerText") == text


FOCUS = """
    const e = document.activeElement, walked = window.walked ??= new Set();
    if (e === document.body || walked.has(e)) return null;
    walked.add(e);
    const named = `${e.tagName} ${e.id} ${e.className}: ${(e.ariaLabel ?? e.textContent).trim().slice(0, 40)}`;
    const style = getComputedStyle(e);
    if (style.outlineStyle === "none" || style.outlineWidth === "0px") return `no outline: ${named}`;
    const preview = document.querySelector("#preview:not([hidden])");
    if (preview && e.getAttribute("aria-describedby") !== "preview") return `beside another's preview: ${named}`;
    const seen = [...e.getClientRects(), e.getBoundingClientRect()].some((box) => {
        const left = Math.max(box.left, 0), right = Math.min(box.right, innerWidth);
        const top = Math.max(box.top, 0), bottom = Math.min(box.bottom, innerHeight);
        const there = left < right && top < bottom && document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
        return there && (e.contains(there) || there.contains(e));
    });
    return seen ? "" : `hidden: ${named}`;
"""


@pytest.mark.parametrize("page", ["index.html", "2-transformer/L5.2-masks.html"])
@pytest.mark.parametrize("way", ["forth", "back"])
def test_the_focus_is_always_seen(tab, page, way):
    tab.open(page)
    if way == "back":
        tab.js("window.scrollTo(0, 1e9); [...document.links].at(-1).focus()")
    faults, stops = [], 0
    while stops < 2:
        actions = tab.actions().key_down(tab.keys.SHIFT) if way == "back" else tab.actions()
        actions.send_keys(tab.keys.TAB).key_up(tab.keys.SHIFT).perform()
        fault = tab.js(FOCUS)
        stops = stops + 1 if fault is None else 0
        faults += [fault] if fault else []
    assert not faults, "\n".join(faults)
    last = ".md-footer__link--next" if way == "forth" else ".md-skip"
    assert tab.js("return window.walked.has(document.querySelector(arguments[0]))", last)


@pytest.fixture
def scriptless(tab):
    """The tab, with scripts switched off."""
    tab.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    yield tab
    tab.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


BUTTONS = """
    const seen = [...document.querySelectorAll("button")].filter((e) => e.checkVisibility({visibilityProperty: true}));
    return seen.map((e) => e.outerHTML);
"""


def test_without_scripts_links_work_and_no_button_is_dead(scriptless):
    tab = scriptless
    tab.open(L53)
    assert tab.js(BUTTONS) == []
    tab.click("a.chunk-reference[href='#chunk-split-heads']")
    assert "split-heads" in tab.wait(LANDED)
    tab.click(".md-footer__link--next")
    assert tab.path == LAB


PAPER = """
    const seen = [...document.querySelectorAll("article *")].filter((e) => e.checkVisibility({visibilityProperty: true}));
    const named = (e) => `${e.tagName}.${e.className}: ${e.textContent.trim().slice(0, 40)}`;
    const light = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).reduce((a, b) => a + +b, 0) > 550;
    const text = (e) => [...e.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    return {
        cut: seen.filter((e) => e.clientWidth > 1 && e.scrollWidth > e.clientWidth + 1
            && getComputedStyle(e).overflowX !== "visible").map(named),
        buttons: seen.filter((e) => e.tagName === "BUTTON").map(named),
        pale: seen.filter((e) => text(e) && light(getComputedStyle(e)[e.closest("svg") ? "fill" : "color"])).map(named),
        code: seen.filter((e) => e.tagName === "CODE" && e.scrollWidth > e.parentElement.clientWidth + 1).map(named),
    };
"""


@pytest.fixture
def paper(tab):
    """The tab, showing what would be printed on A4."""
    tab.size(680)
    tab.scheme("dark")
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    tab.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": dark})
    yield tab
    tab.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


@pytest.mark.parametrize(
    "page", [L53, LAB, "2-transformer/MS-L5-addition.html", "reference/chunks.html"]
)
def test_a_printed_page_is_whole(paper, page):
    paper.open(page)
    found = paper.js(PAPER)
    assert not any(found.values()), found


def test_heat_maps_follow_the_theme(tab):
    colours = []
    for scheme in ("light", "dark"):
        tab.scheme(scheme)
        tab.open(LAB)
        cell = "getComputedStyle(document.querySelector('.heat tbody td'))"
        text = "getComputedStyle(document.querySelector('article p:not(.beside)'))"
        colours.append(tab.js(f"return [{cell}.backgroundColor, {cell}.color]"))
        assert colours[-1][1] == tab.js(f"return {text}.color")
    assert colours[0] != colours[1]


def test_an_answer_is_checked(tab):
    tab.open(LAB)
    tab.js("arguments[0].focus()", tab.find(".ask input"))
    right = tab.js("return document.querySelector('.ask').dataset.answer")
    rounded, off = f"{float(right):.3f}", f"{float(right) + 0.01:.3f}".replace(".", ",")
    verdict = "document.querySelector('.ask output').textContent"
    for typed, said in [(off, "Not yet"), ("much", "That isn't"), (rounded, "Right")]:
        tab.press(typed, tab.keys.ENTER)
        assert tab.wait(verdict).startswith(said)
        tab.press(tab.keys.BACKSPACE * len(typed))
        assert tab.js(f"return {verdict}") == ""
    tab.press(
        "1/18", tab.keys.TAB, tab.keys.SPACE
    )  # 0.0556, and 0.0558 is asked for to three places
    assert tab.wait(verdict) == "Right."
    assert tab.js("return document.querySelector('.ask output').role ?? 'status'") == "status"


def test_without_scripts_an_answer_can_still_be_seen(scriptless):
    scriptless.open(LAB)
    assert not scriptless.js("return document.querySelector('.ask input').checkVisibility()")
    scriptless.click(".ask summary")
    assert scriptless.js("return document.querySelector('.ask details p').checkVisibility()")


def test_what_is_folded_is_open_while_the_page_is_printed(tab):
    tab.open(LAB)
    folds = "document.querySelectorAll('article details{}').length"
    every = tab.js(f"return {folds.format('')}")
    for event, open_ones in [("beforeprint", every), ("afterprint", 0)]:
        tab.js("window.dispatchEvent(new Event(arguments[0]))", event)
        tab.wait(f"{folds.format('[open]')} === {open_ones}")  # the theme's own script may be first
    assert every > 5


@pytest.mark.parametrize("tab", ["http"], indirect=True)  # from a disk a link opens the file
def test_a_notebook_can_be_downloaded(tab, tmp_path):
    allowed = {"behavior": "allow", "downloadPath": str(tmp_path)}
    tab.driver.execute_cdp_cmd("Browser.setDownloadBehavior", allowed)
    tab.open(LAB)
    tab.click(".beside a[download]")
    there = (tab.site / LAB).with_suffix(".ipynb")
    saved = tmp_path / there.name
    end = time.monotonic() + 20
    while not (saved.exists() and saved.read_bytes() == there.read_bytes()):
        assert time.monotonic() < end
        time.sleep(0.02)
