# Tangled from book/workshop/weave.md
"""Small books as whole sites: built, served, refused."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from html import unescape

import pytest

from tests.weave.books import ROOT, SMALL, noweb, plain


@pytest.fixture
def site(tmp_path, config):
    """site({path: text}) -> the folder of the built site; raises Abort where MkDocs does."""

    def built(book):
        from mkdocs.commands.build import build

        made = config(book)
        made.plugins.on_startup(command="build", dirty=False)
        build(made)
        return tmp_path / "site"

    return built


@pytest.mark.slow
def test_site_builds_and_asks_for_nothing_from_outside(site):
    folder = site(SMALL)
    page = (folder / "2-transformer/L5.3-mha.html").read_text(encoding="utf-8")
    assert "Part 2: Transformer" in page
    for path in folder.rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        assert path.name == "404.html" or html.startswith("<!doctype html>")
        fetched = re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="?(\w+:)?//', html)
        assert not fetched, path
    font = (folder / "assets/stix-two-math.woff2").read_bytes()
    assert font[:4] == b"wOF2"
    assert len(font) < 40_000


DRAWN = """
~~~python {.figure #fig-late alt="A word"}
figure = "<svg xmlns='http://www.w3.org/2000/svg'><text>it {} come</text></svg>".format("has")
~~~
"""


@pytest.mark.slow
def test_serving_starts_with_diagnostics_and_changes_code_and_page_together(tmp_path, config):
    text = SMALL["2-transformer/L5.3-mha.md"] + DRAWN
    faulty = text.replace("x = 1", noweb("«gone»"))
    config({**SMALL, "2-transformer/L5.3-mha.md": faulty})  # writes the book
    chapter, made = tmp_path / "book/2-transformer/L5.3-mha.md", tmp_path / "mha.py"
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{one.getsockname()[1]}"
    options = {"docs_dir": str(tmp_path / "book"), "dev_addr": address, "strict": False}
    call = f"serve({str(ROOT / 'mkdocs.yml')!r}, livereload=True, **{options!r})"
    command = [sys.executable, "-c", f"from mkdocs.commands.serve import serve; {call}"]
    path = os.pathsep.join([str(ROOT), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "NO_MKDOCS_2_WARNING": "1"}
    log = (tmp_path / "log").open("w")
    server = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=log)

    def page():
        try:
            with urllib.request.urlopen(f"http://{address}/2-transformer/L5.3-mha.html") as got:
                return got.read().decode()
        except OSError:
            return ""

    def wait_for(text):
        end = time.monotonic() + 60  # three seconds on a quiet machine
        while text not in unescape(plain(page())):
            assert server.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)

    try:
        wait_for("chunk 'gone' is undefined")
        wait_for("it has come")
        assert not made.exists()
        chapter.write_text(text, encoding="utf-8")
        wait_for("x = 1")
        assert "gone" not in page()
        assert "x = 1\n" in made.read_text(encoding="utf-8")
        chapter.write_text(text.replace("x = 1", "x = 2"), encoding="utf-8")
        wait_for("x = 2")
        assert "x = 2\n" in made.read_text(encoding="utf-8")
    finally:
        server.terminate()
        server.wait()
        log.close()


DEAD = "book/index.md:3: the link to gone.md is dead"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        ("see $\\nonsense$\n", {}, ["book/index.md:3: bad TeX"]),
        ("[gone](#chunk-gone)\n", {}, ["book/index.md:3: the link to #chunk-gone is dead"]),
        ("```python {.figure #fig-a alt='a'}\n1 / 0\n```\n", {}, ["book/index.md:4: ZeroDivision"]),
        ("[a](gone.md)\n", {"a.md": "# A\n\n\udce4\n"}, ["book/a.md:3: is not UTF-8", DEAD]),
        (
            "",
            {"templates/a.md": "# A\n"},
            ["book/templates/a.md:1: MkDocs leaves this chapter out"],
        ),
    ],
)
def test_what_is_wrong_is_reported_and_fails_the_build(site, caplog, text, more, said):
    from mkdocs.exceptions import Abort

    with pytest.raises(Abort):
        site({"index.md": f"# Book\n\n{text}", **more})
    assert not [words for words in said if words not in caplog.text], caplog.text
