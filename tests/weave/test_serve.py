# Tangled from book/workshop/weave-serve.md
"""What is served: results that come late, results that are kept, pages that are not rendered again."""

import os
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from mkdocs.livereload import LiveReloadServer

from weave.run import kept, later
from weave.serve import hooks, rendered

ROOT = Path(__file__).parents[2]


@pytest.fixture
def news(monkeypatch):
    """Set when something has come late; nothing is waited for."""
    event = threading.Event()
    monkeypatch.setattr(later, "patient", False)
    monkeypatch.setattr(later, "arrived", event.set)
    monkeypatch.setattr(later, "_give_way", lambda: None)  # a thread of the tests stays as it is
    return event


def test_a_served_page_has_the_last_result_until_the_new_one_is_there(news):
    work, go = later.Work(), threading.Event()
    work.begin("figure", "1", lambda: go.wait(30) and "first")
    assert work.result("figure") == (None, False)
    assert not news.is_set()
    go.set()
    assert news.wait(30)
    assert work.result("figure") == ("first", True)
    go.clear()
    work.begin("figure", "2", lambda: go.wait(30) and "second")
    assert work.result("figure") == ("first", False)
    news.clear()
    go.set()
    assert news.wait(30)
    assert work.result("figure") == ("second", True)


def test_work_is_done_once_for_a_key_even_if_it_fails(news):
    work, runs = later.Work(), []
    work.begin("figure", "1", lambda: runs.append(1) or 1 / 0)
    if work._runs["figure"].done() is False:
        assert news.wait(30)
    for _ in range(2):
        work.begin("figure", "1", lambda: runs.append(2))
        with pytest.raises(ZeroDivisionError):
            work.result("figure")
    assert runs == [1]


def test_work_that_was_overtaken_is_left_out(news):
    work, go, runs = later.Work(), threading.Event(), []
    work.begin("other", "1", lambda: go.wait(30))
    work.begin("figure", "1", lambda: runs.append("old") or "old")
    work.begin("figure", "2", lambda: runs.append("new") or "new")
    assert work.result("figure") == (None, False)
    go.set()
    assert news.wait(30)
    assert work.result("figure") == ("new", True)
    assert runs == ["new"]


def test_what_is_known_needs_no_work(news):
    work = later.Work()
    work.begin("page", "1", lambda: 1 / 0, known=["kept"])
    assert work.result("page") == (["kept"], True)


def test_what_came_before_the_server_watches_is_told_to_it(tmp_path, monkeypatch):
    timers = []

    class Timer(threading.Timer):
        def start(self):
            timers.append(self)

    monkeypatch.setattr(threading, "Timer", Timer)
    monkeypatch.setattr(later, "early", threading.Event())
    monkeypatch.setattr(later, "arrived", later.arrived)
    monkeypatch.setattr(hooks, "reachable", False)
    folder = tmp_path / "book"
    folder.mkdir()
    theme = SimpleNamespace(dirs=[])
    config = SimpleNamespace(docs_dir=str(folder), config_file_path=None, theme=theme)
    server = LiveReloadServer(lambda: None, "127.0.0.1", 0, str(tmp_path))
    try:
        server.watch(config.docs_dir)
        hooks.on_serve(server, config, None)
        assert timers == []
        seen = {emitter.watch.path for emitter in server.observer.emitters}
        assert seen == {str(folder), str(tmp_path / "build")}  # of a file, the folder
        later.early.set()
        hooks.on_serve(server, config, None)
    finally:
        server.server_close()
    news = tmp_path / "build/arrived"
    os.utime(news, (0, 0))
    timers[0].function()
    assert news.stat().st_mtime > 0


def test_a_build_waits_and_runs_again_what_failed():
    work = later.Work()
    work.begin("figure", "1", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        work.result("figure")
    work.begin("figure", "1", lambda: "then")
    assert work.result("figure") == ("then", True)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"key": "1"}', b"\xff", b"null"])
def test_a_damaged_file_counts_as_none(tmp_path, damage):
    path = tmp_path / "build/kept.json"
    assert kept.read(path, "1") is None
    kept.write(path, "1", {"a": [1, None]})
    assert kept.read(path, "1") == {"a": [1, None]}
    assert kept.read(path, "2") is None
    assert [one.name for one in path.parent.iterdir()] == ["kept.json"]
    path.write_bytes(damage)
    assert kept.read(path, "1") is None


def test_a_fingerprint_knows_each_byte_name_and_word(tmp_path):
    package, file = tmp_path / "tinyllm", tmp_path / "more.txt"
    for folder in ("sub", "__pycache__"):
        (package / folder).mkdir(parents=True)
    edits = [
        lambda: file.write_text("2"),
        lambda: (package / "a.py").write_text("1"),
        lambda: file.write_text("22"),
        lambda: (package / "a.py").rename(package / "b.py"),
        lambda: (package / "b.py").write_text("11"),
        lambda: (package / "sub/table.json").write_text(""),
    ]
    seen = []
    for edit in edits:
        edit()
        seen.append(kept.fingerprint(tmp_path, [file], "word"))
    others = [kept.fingerprint(tmp_path, [file], "words"), kept.fingerprint(tmp_path, [], "word")]
    assert len({*seen, *others}) == len(edits) + 2
    (package / "__pycache__/a.pyc").write_text("")
    assert kept.fingerprint(tmp_path, [file], "word") == seen[-1]


L53, L52 = "2-transformer/L5.3-multi-head-attention.md", "2-transformer/L5.2-masks.md"
EDITS = {
    "nothing": {},
    "a sentence": {L53: ("\n## ", "\nA sentence about `causal_mask`.\n\n## ")},
    "a line of a block": {L53: ("    if x.ndim != 3 or", "    # a line\n    if x.ndim != 3 or")},
    "a name elsewhere": {L52: ("def causal_mask(", "def causal_masks(")},
    "a chunk has another name": {L53: ("split-heads", "cut-heads")},
    "a chunk goes on": {L53: ("\n## ", "\n```python {#cut-heads}\n# more\n```\n\n## ")},
    "a title": {L52: ("# L5.2", "# L5.2 On")},
    "a fact": {L52: ("used_by_planned = [", 'used_by_planned = ["L9.9", ')},
    "a block before others": {L52: ("\n## ", "\n```python {#new}\nx = 1\n```\n\n## ")},
    "a term": {"reference/glossary.md": ("\n:   ", "\n:   Said otherwise: ")},
    "a label": {L53: ("\\label{eq:", "\\label{eq:new-")},
    "a diagnostic": {L53: ("\n## ", "\n```python {#bad}\n<<" + "gone>>\n```\n\n## ")},
    "no diagnostic any more": {L53: ("<<" + "gone>>", "pass")},
}


def folder_of_pages(site):
    return {path.relative_to(site): path.read_bytes() for path in site.rglob("*.html")}


@pytest.mark.long
def test_pages_not_rendered_again_are_what_rendering_makes_of_them(tmp_path, monkeypatch):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    shutil.copytree(ROOT / "book", tmp_path / "book")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rendered, "_last", {})
    monkeypatch.setattr(later, "patient", False)
    monkeypatch.setattr(later.Work, "begin", lambda *_, **__: None)  # nothing is run
    monkeypatch.setattr(later.Work, "result", lambda *_: (None, False))
    folders = {"docs_dir": str(tmp_path / "book"), "site_dir": str(tmp_path / "site")}
    config = load_config(str(ROOT / "mkdocs.yml"), strict=False, **folders)
    config.plugins.on_startup(command="serve", dirty=False)
    taken = []
    for name, edits in EDITS.items():
        for path, (old, new) in edits.items():
            chapter = tmp_path / "book" / path
            text = chapter.read_text(encoding="utf-8")
            assert old in text, (name, path, old)
            chapter.write_text(text.replace(old, new), encoding="utf-8")
        before = dict(rendered._last)
        build(config)
        served, last = folder_of_pages(tmp_path / "site"), rendered._last
        taken.append(sum(last.get(path) is page for path, page in before.items()))
        rendered._last = {}
        build(config)
        rendered._last = last
        anew = folder_of_pages(tmp_path / "site")
        assert served.keys() == anew.keys(), name
        assert [path for path in anew if served[path] != anew[path]] == [], name
    assert taken[0] == 0
    assert min(taken[1:3]) > 200  # after a sentence, after a line
