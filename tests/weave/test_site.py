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
    code = (
        "from mkdocs.commands.serve import serve;"
        f"serve({str(ROOT / 'mkdocs.yml')!r}, livereload=True, **{options!r})"
    )
    path = os.pathsep.join([str(ROOT), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "NO_MKDOCS_2_WARNING": "1"}
    log = (tmp_path / "log").open("w")
    server = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, stderr=log
    )

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


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "see $\\nonsense$\n",
        "[gone](#chunk-gone)\n",
        "```python {.figure #fig-a alt='a'}\n1 / 0\n```\n",
    ],
)
def test_what_is_wrong_fails_the_build(site, text):
    from mkdocs.exceptions import Abort

    with pytest.raises(Abort):
        site({"index.md": "# Book\n\n" + text})


@pytest.mark.slow
def test_a_chapter_that_cannot_be_read_is_reported_like_others(tmp_path, config, caplog):
    from mkdocs.commands.build import build
    from mkdocs.exceptions import Abort

    made = config({"index.md": "# Book\n\n[gone](gone.md)\n"})
    (tmp_path / "book/a.md").write_bytes(b"# A\n\n\xe4\n")
    made.plugins.on_startup(command="build", dirty=False)
    with pytest.raises(Abort):
        build(made)
    text = caplog.text
    assert "book/a.md:3: is not UTF-8" in text
    assert "book/index.md:3: the link to gone.md is dead" in text


@pytest.mark.slow
def test_a_chapter_that_mkdocs_leaves_out_is_reported(site, caplog):
    from mkdocs.exceptions import Abort

    with pytest.raises(Abort):
        site({"index.md": "# Book\n", "templates/a.md": "# A\n"})
    assert "book/templates/a.md:1: MkDocs leaves this chapter out" in caplog.text
