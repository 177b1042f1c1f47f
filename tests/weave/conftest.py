# Tangled from book/workshop/site-tests.md
"""What the tests of the weaver share: small books woven, the built site, a server for it, a browser; and what is said without one."""

import functools
import http.server
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from markdown import Markdown

from tests.weave.books import EXTENSIONS

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "node_modules/axe-core/axe.min.js"
LEFT_OUT = pytest.StashKey[list[str]]()


def missing():
    """What the tests marked `browser` need and do not find, each with where it comes from."""
    needed = {
        "chromium": (shutil.which("chromium"), "apt-get install chromium"),
        "chromedriver": (shutil.which("chromedriver"), "apt-get install chromium-driver"),
        "selenium": (importlib.util.find_spec("selenium"), "pip install selenium"),
        "axe-core": (AXE.exists(), "npm install"),
    }
    return [f"{name} ({remedy})" for name, (found, remedy) in needed.items() if not found]


@pytest.hookimpl(trylast=True)  # what -m and -k leave out is not wanted
def pytest_collection_modifyitems(config, items):
    """Without a browser, leaves out the tests that need one; in CI that is an error."""
    wanted = [item for item in items if item.get_closest_marker("browser")]
    lacking = missing() if wanted else []
    if not lacking:
        return
    if os.environ.get("CI"):
        raise pytest.UsageError(f"CI runs every test, but there is no {', no '.join(lacking)}")
    items[:] = [item for item in items if item not in wanted]
    config.hook.pytest_deselected(items=wanted)
    names = list(dict.fromkeys(item.nodeid.partition("[")[0] for item in wanted))
    config.stash[LEFT_OUT] = [f"{len(wanted)} tests, for want of {', '.join(lacking)}:", *names]


def pytest_terminal_summary(terminalreporter, config):
    """Says aloud which tests were left out, and why."""
    lines = config.stash.get(LEFT_OUT, [])
    if lines:
        terminalreporter.section("left out, not passed", yellow=True, bold=True)
        for line in lines:
            terminalreporter.line(line)


def written(folder, book):
    """Writes a book {path: text}, a surrogate as the byte it stands for; returns the last text."""
    for path, text in book.items():
        (folder / "book" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "book" / path).write_text(text, encoding="utf-8", errors="surrogateescape")
    return text


@pytest.fixture
def weave(tmp_path, monkeypatch, caplog):
    """weave({path: text}) -> (HTML of the last page, its diagnostics as "path:line: message"); of a text, of a.md."""
    monkeypatch.chdir(tmp_path)

    def run(book):
        text = written(tmp_path, {"a.md": book} if isinstance(book, str) else book)
        caplog.clear()
        html = Markdown(extensions=EXTENSIONS).convert(text)
        return html, [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]

    return run


@pytest.fixture
def woven(weave):
    """woven(book) -> HTML of the last page of a book with nothing wrong in it."""

    def run(book):
        html, wrong = weave(book)
        assert not wrong
        return html

    return run


@pytest.fixture
def diagnostic(weave):
    """diagnostic(book) -> the one thing that is wrong in a book."""

    def run(book):
        (wrong,) = weave(book)[1]
        return wrong

    return run


@pytest.fixture
def config(tmp_path, monkeypatch):
    """config({path: text}) -> the project's configuration for a small book."""
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    monkeypatch.chdir(tmp_path)

    def made(book):
        from mkdocs.config import load_config

        written(tmp_path, book)
        (tmp_path / "book/assets").mkdir(exist_ok=True)
        for style in ("book.css", "figures.css", "cells.css"):
            shutil.copy(ROOT / "book/assets" / style, tmp_path / "book/assets")
        folders = {"docs_dir": str(tmp_path / "book"), "site_dir": str(tmp_path / "site")}
        return load_config(str(ROOT / "mkdocs.yml"), **folders)

    return made


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the whole book's site, built with --strict; or the one that SITE names."""
    if os.environ.get("SITE"):
        return Path(os.environ["SITE"]).resolve()
    folder = tmp_path_factory.mktemp("built") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *_):
        """No line for each request."""


class Server(http.server.ThreadingHTTPServer):
    """A server to which it is nothing that a browser hangs up."""

    def handle_error(self, *_):
        """No traceback when the browser goes on to the next page."""


@pytest.fixture(scope="session")
def served(site):
    """The address under which the site is served, with a slash at its end."""
    with Server(("127.0.0.1", 0), functools.partial(Handler, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    """Headless Chromium that reaches this machine and no other."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in (
        "--headless=new",
        "--no-sandbox",  # or it does not start as root, which CI is
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_script_timeout(100)  # axe-core on a long page, on a busy machine
    yield driver
    driver.quit()


@pytest.fixture(params=["http", "file"])
def tab(request, driver, site):
    """A `Tab` on the site, by HTTP or from the disk; afterwards nothing may have gone wrong in it."""
    base = request.getfixturevalue("served") if request.param == "http" else site.as_uri() + "/"
    tab = Tab(driver, site, base)
    tab.size(1440)
    tab.scheme("light")
    yield tab
    faults = tab.faults()
    assert not faults, "\n".join(faults)


class Tab:
    """The one tab of the browser."""

    def __init__(self, driver, site, base):
        from selenium.webdriver import ActionChains, Keys

        self.driver, self.site, self.base = driver, site, base
        self.keys, self.actions = Keys, functools.partial(ActionChains, driver)
        self.requested = {}  # of the page's requests: id -> address
        for log in ("browser", "performance"):
            driver.get_log(log)  # what happened before is not this test's

    def open(self, path):
        """Opens a page of the site, and waits until all of it is there, which the driver at times does not."""
        self.driver.get(self.base + path)
        loaded = "location.href === arguments[0] && document.readyState === 'complete'"
        self.wait(loaded, self.base + path)

    @property
    def path(self):
        """The page that is open, with its fragment."""
        assert self.driver.current_url.startswith(self.base), self.driver.current_url
        return self.driver.current_url.removeprefix(self.base)

    def js(self, script, *values):
        """The value of a script's `return`."""
        return self.driver.execute_script(script, *values)

    def wait(self, script, *values, seconds=20):
        """Waits until an expression is true in the page, and returns it."""
        end = time.monotonic() + seconds
        while not (found := self.js(f"return {script}", *values)):
            assert time.monotonic() < end, f"never true on {self.path}: {script}"
            time.sleep(0.02)
        return found

    def find(self, selector):
        """The first visible element, once there is one."""
        script = "[...document.querySelectorAll(arguments[0])].find(e => e.checkVisibility({visibilityProperty: true}))"
        return self.wait(script, selector)

    def click(self, selector):
        """Clicks the first visible element where a person would, in its middle."""
        element = self.find(selector)
        self.js("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        element.click()

    def press(self, *keys):
        """Types on the keyboard, into whatever has the focus."""
        self.actions().send_keys(*keys).perform()

    def size(self, width, height=900):
        """Makes the window so large."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )

    def scheme(self, name):
        """What the system says that the reader likes, light or dark, and no choice made before."""
        self.js("try { localStorage.clear() } catch {}")
        self.driver.get("about:blank")  # or the page that is open stores what it sees
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def faults(self):
        """What the console complained of, and requests that failed or went elsewhere, since the last call."""
        found = [
            f"console: {entry['message']}"
            for entry in self.driver.get_log("browser")
            if entry["level"] in ("SEVERE", "WARNING")
        ]
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            method, event = message["method"], message["params"]
            if method == "Network.requestWillBeSent" and event["documentURL"].startswith(self.base):
                url = self.requested[event["requestId"]] = event["request"]["url"]
                if not url.startswith((self.base, "data:", "blob:")):
                    found.append(f"outside: {url}")
            elif event.get("requestId") in self.requested:
                url = self.requested[event["requestId"]]
                if method == "Network.responseReceived" and event["response"]["status"] >= 400:
                    found.append(f"{event['response']['status']}: {url}")
                elif method == "Network.loadingFailed" and not event["canceled"]:
                    found.append(f"{event['errorText']}: {url}")
        return found

    def pages(self):
        """The paths of all pages of the site."""
        found = sorted(path.relative_to(self.site).as_posix() for path in self.site.rglob("*.html"))
        return [path for path in found if path != "404.html"]
