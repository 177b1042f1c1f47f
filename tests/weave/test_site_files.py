# Tangled from book/workshop/site-tests.md
"""The built site as files: links lead somewhere, nothing is loaded from outside, no page is heavy."""

import os
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]


LOADS = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """The ids of a page, its links, and what it loads."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loads = {"__nothing"}, [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        """Keeps what is asked about."""
        attributes = dict(attributes)
        self.ids |= {attributes[name] for name in ("id", "name") if attributes.get(name)}
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        if attributes.get(LOADS.get(tag)) and attributes.get("rel") != "canonical":
            self.loads.append(attributes[LOADS[tag]])


page = cache(Page)


@pytest.mark.long
def test_every_link_leads_to_a_page_and_an_id_on_it(site):
    dead = []
    for path in site.rglob("*.html"):
        if path.name == "404.html":
            continue  # its links begin at the root of a server
        for link in page(path).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            wanted = unquote(parts.fragment)
            if not target.is_file():
                dead.append(f"{path.relative_to(site)}: {link}: no such file")
            elif wanted and target.suffix == ".html" and wanted not in page(target).ids:
                dead.append(f"{path.relative_to(site)}: {link}: no such id")
    assert not dead, "\n".join([f"{len(dead)} dead links", *dead[:20]])


@pytest.mark.long
def test_nothing_is_loaded_from_outside(site):
    loaded = {address for path in site.rglob("*.html") for address in page(path).loads}
    assert not [address for address in loaded if urlsplit(address).netloc]


@pytest.mark.long
@pytest.mark.parametrize(("name", "most"), [("multi-head-attention", 240), ("lab", 150)])
def test_pages_are_light(site, name, most):
    assert (site / f"2-transformer/L5.3-{name}.html").stat().st_size < most * 1000


def pytest_without_a_browser(**environment):
    """A run of one small test and of those that need a browser, with an empty PATH."""
    tests = ["weave/test_axe.py", "weave/test_browser.py", "workshop/test_package.py"]
    paths = [f"tests/{name}" for name in tests]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-k", "axe or browser or unknown", *paths],
        cwd=ROOT,
        env={"PATH": os.devnull, "PYTEST_ADDOPTS": "-p no:cacheprovider", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_browser_it_is_said_which_tests_are_left_out_and_why():
    done = pytest_without_a_browser()
    assert done.returncode == 0, done.stdout
    said = done.stdout.partition("left out, not passed")[2]
    assert "for want of chromium (apt-get install chromium), chromedriver (apt-get" in said
    for test in ("test_axe.py::test_axe_finds_nothing", "::test_a_notebook_can_be_downloaded"):
        assert test in said
    assert " deselected" in said


def test_in_ci_a_missing_browser_is_an_error():
    done = pytest_without_a_browser(CI="true")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "CI runs every test, but there is no chromium" in done.stderr
