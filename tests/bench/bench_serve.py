# Tangled from book/workshop/weave-serve.md
"""How long after an edit `mkdocs serve` has the new code and the new page: a copy of the book is served and edited.

python tests/bench/bench_serve.py [--write]     --write puts the table into the chapter
"""

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from datetime import date
from pathlib import Path
from statistics import median

from kept_table import keep

ROOT = Path(__file__).parents[2]
CHAPTER = ROOT / "book/workshop/weave-serve.md"
LEFT_OUT = (".*", "site", "node_modules", "__pycache__", "runs", "dist")
ROUNDS = 5
IDLE = 4  # seconds
MARK = "written by the benchmark"
L01, L53 = "1-foundations/L0.1-tensor", "2-transformer/L5.3-multi-head-attention"
CHECK = "    if x.ndim != 3 or x.shape[-1] % self.d_model:\n"
EDITS = {  # page, the text that gets something before it, what it gets, the file that it goes to
    "a sentence": (L53, "\n## ", f"\n{MARK}\n", ""),
    "a sentence of the longest chapter": ("workshop/tangle", "\n## ", f"\n{MARK}\n", ""),
    "a line of code": (L53, CHECK, f"    # {MARK}\n", "tinyllm/xfmr/mha.py"),
    "a function, on which all builds": (
        L01,
        "def unbroadcast(",
        f"def measured() -> None:\n    # {MARK}\n    return\n\n\n",
        "tinyllm/autograd.py",
    ),
}


def page(address):
    """A page's text; "" while there is no server."""
    try:
        with urllib.request.urlopen(address) as answer:
            return answer.read().decode()
    except urllib.error.URLError:
        return ""


def settle(log):
    """Waits until nothing has been built for some seconds."""
    size, since = -1, time.monotonic()
    while time.monotonic() - since < IDLE:
        if log.stat().st_size != size:
            size, since = log.stat().st_size, time.monotonic()
        time.sleep(0.2)


def measure(book, address, edit):
    """Seconds until the page shows the edit; then the file does too."""
    name, before, added, target = edit
    chapter, made = book / f"book/{name}.md", book / target
    text = chapter.read_text(encoding="utf-8")
    if before not in text:
        raise SystemExit(f"{chapter}: {before!r} is not there any more")
    start = time.monotonic()
    chapter.write_text(text.replace(before, added + before, 1), encoding="utf-8")
    while MARK not in page(f"{address}/{name}.html"):  # which comes when the build is done
        time.sleep(0.05)
    waited = time.monotonic() - start
    if target and MARK not in made.read_text(encoding="utf-8"):
        raise SystemExit(f"{made}: the page shows an edit that the file does not")
    chapter.write_text(text, encoding="utf-8")
    while MARK in page(f"{address}/{name}.html"):
        time.sleep(0.05)
    return waited


def serve(book, address, log):
    """The server's process; it has built the site once."""
    environment = {**os.environ, "PYTHONPATH": str(book), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "serve", "--no-strict", "-a", address]
    with log.open("w") as file:
        return subprocess.Popen(command, cwd=book, env=environment, stdout=file, stderr=file)


def measured():
    """The lines of the table, and under what circumstances it was measured."""
    yield f"{'seconds until the page shows':<40}{'median':>8}{'at most':>9}"
    with tempfile.TemporaryDirectory() as scratch:
        book, log = Path(scratch, "book"), Path(scratch, "log")
        shutil.copytree(ROOT, book, ignore=shutil.ignore_patterns(*LEFT_OUT))
        shutil.copy(ROOT / ".tangle.json", book)
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{one.getsockname()[1]}"
        start = time.monotonic()
        with serve(book, address, log) as server:
            try:
                while server.poll() is None and not page(f"http://{address}/index.html"):
                    time.sleep(0.1)
                yield f"{'the book, after the start':<40}{time.monotonic() - start:>8.2f}"
                for name, edit in EDITS.items():
                    times = []
                    for _ in range(ROUNDS):
                        settle(log)
                        times.append(measure(book, f"http://{address}", edit))
                        if server.poll() is not None:
                            raise SystemExit(log.read_text(encoding="utf-8"))
                    yield f"{name:<40}{median(times):>8.2f}{max(times):>9.2f}"
            finally:
                server.terminate()
    yield ""
    yield f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, nothing else runs,"
    yield f"Python {platform.python_version()}; {ROUNDS} edits of each kind; {date.today()}"


if __name__ == "__main__":
    table = "\n".join(measured())
    print(table)
    if "--write" in sys.argv:
        keep(table, CHAPTER, "serve-cost")
