# Tangled from book/workshop/weave.md
"""MkDocs events, kept thin: what renders stands in the extension."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import socket
import threading
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import FileSystemBytecodeCache
from mkdocs.exceptions import Abort
from mkdocs.structure.files import File, InclusionLevel
from watchdog.observers.polling import PollingObserver

import literate.book
import literate.command
import literate.expand
import literate.read
from weave.model import links
from weave.model.index import Index, current, forget, hold
from weave.render import equations, live, notebook, pages, search
from weave.run import later
from weave.run.outputs import cells
from weave.serve import printed, rendered

FONT = "assets/stix-two-math.woff2"
BUILD = Path("build/pages")
TEMPLATES = Path("build/templates")
MARGIN = re.compile(r"\n\s+")
BESIDE = re.compile(r'(<a href="[^"]*-(?:lab|tests)\.html"[^>]*>\s*<span[^>]*>\s*)[^<]*: (\w)')
serving = False
reachable = False  # whether the server has its port


def on_startup(command: str, dirty: bool) -> None:
    """Whether this is `mkdocs serve`."""
    global serving
    serving = command == "serve"
    later.patient = not serving


def on_serve(server: Any, config: Any, builder: Any) -> Any:
    """What comes late is shown when it has come."""
    news = Path(config.docs_dir).parent / "build/arrived"
    news.parent.mkdir(parents=True, exist_ok=True)
    news.touch()
    _look_often(server, config)
    server.watch(str(news))
    global reachable
    reachable = True
    later.arrived = news.touch
    if later.early.is_set():  # during the first build; the server begins to watch after this
        threading.Timer(2, news.touch).start()
    return server


def _look_often(server: Any, config: Any) -> None:
    """MkDocs looks for changes twice a second, which is a sixth of the time that a writer is to wait at most."""
    watched = []
    for path in filter(None, (config.docs_dir, config.config_file_path, *config.theme.dirs)):
        with contextlib.suppress(KeyError):  # of a path that is not watched
            server.unwatch(path)
            watched.append(path)
    server.observer = PollingObserver(timeout=0.1)
    for path in watched:
        server.watch(path)


def on_config(config: Any) -> Any:
    """Before a server takes its time to weave, it looks whether it can be reached at all."""
    if serving and not reachable:
        address = config.dev_addr
        try:
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            socket.create_server((address.host, address.port), family=family).close()
        except OSError as error:
            raise Abort(
                f"nothing can be served on {address}: {os.strerror(error.errno or 0)}; "
                f"make serve ARGS='-a 127.0.0.1:{address.port + 1}' takes another port"
            ) from error
    return config


def on_pre_build(config: Any) -> None:
    """Each build reads the book anew."""
    if serving:
        literate.command.main([config["docs_dir"], "-o", str(Path(config["docs_dir"]).parent)])
    forget()
    hold(True)
    later.free.clear()
    gc.disable()  # a build makes a million objects that live to its end


def on_build_error(error: Exception) -> None:
    """The build ends here."""
    _end()


def _end() -> None:
    hold(False)
    later.free.set()
    if serving:
        gc.freeze()  # or all that was made would be looked through now
        threading.Timer(1, _collect).start()
    gc.enable()


def _collect() -> None:
    """Takes out the garbage of a build, while nobody waits."""
    gc.unfreeze()
    gc.collect()


def on_files(files: Any, config: Any) -> Any:
    """Writes the generated pages, and hands them to MkDocs."""
    index = current(config["docs_dir"])
    unread = {one.path for one in index.book.errors} - {c.path for c in index.book.chapters}
    for file in files.documentation_pages() if unread else ():
        if os.path.join(index.folder, file.src_uri) in unread:  # MkDocs would stop at it
            file.content_string = ""
    shown = {file.src_uri for file in files if not file.inclusion.is_excluded()}
    for path in index.pages.keys() - shown:
        index.diagnose(
            path, 1, "MkDocs leaves this chapter out: its folder or its name is excluded"
        )
    folder = Path(config["docs_dir"]).parent / BUILD
    for path, text in pages.generated(index).items():
        index.add(path, text)
        target = folder / path
        if not target.is_file() or target.read_text(encoding="utf-8") != text:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        source = path.startswith("code/")
        inclusion = InclusionLevel.NOT_IN_NAV if source else InclusionLevel.UNDEFINED
        file = File.generated(config, path, abs_src_path=str(target), inclusion=inclusion)
        files.append(file)
    config.nav = _contents(index)
    return files


def _contents(index: Index) -> list[Any]:
    """The pages in reading order, by folder; 2-transformer becomes "Part 2: Transformer"."""
    parts: dict[str, list[str]] = {}
    for path in index.reading_order():
        if not path.startswith("code/"):
            parts.setdefault(path.rpartition("/")[0], []).append(path)
    top = parts.pop("", [])
    return [*top, *({_title(folder): paths} for folder, paths in parts.items())]


def _title(folder: str) -> str:
    number, _, name = folder.partition("-")
    words = (name if number.isdigit() else folder).replace("-", " ").capitalize()
    return f"Part {number}: {words}" if number.isdigit() else words


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> None:
    """While the site is served, a page that would come out as before is not rendered again."""
    index = current(config["docs_dir"])
    woven = index.pages.get(page.file.src_uri)
    if serving and woven is not None and not pages.of_everything(woven):
        page.render = partial(rendered.render, index, woven, page)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Keeps the page for print, tells MkDocs' check of links which ids it has, and leads to what belongs to it."""
    index = current(config["docs_dir"])
    woven = index.pages.get(page.file.src_uri)
    if woven is None:
        return html
    printed.collected[page.file.src_uri] = printed.Printed(page.url, woven.title, html)
    if page.present_anchor_ids is not None:
        page.present_anchor_ids |= woven.all_ids()
    head, end, rest = html.partition("</h1>")
    return head + end + notebook.beside(index, woven) + rest


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Material's template indents by ten columns and more: a tenth of a page is spaces, outside of its text. Before the
    page stands what our own template begins with, its header as a tangled file. In the list of pages, what belongs to a
    chapter does without the chapter's title, which is above it."""
    _, first, whole = output.partition("<!doctype")
    head, start, rest = whole.partition("<article")
    head = BESIDE.sub(lambda found: found[1] + found[2].upper(), head)
    text, end, foot = rest.partition("</article>")
    return first + MARGIN.sub("\n", head) + start + text + end + MARGIN.sub("\n", foot)


def on_env(env: Any, config: Any, files: Any) -> Any:
    """When all pages are rendered, checks the links, and writes what is wrong on top of the pages."""
    folder = Path(config["docs_dir"]).parent / TEMPLATES
    folder.mkdir(parents=True, exist_ok=True)
    # to compile the templates takes a fifth of a second
    env.bytecode_cache = FileSystemBytecodeCache(str(folder))
    index = current(config["docs_dir"])
    links.check(index, files.src_uris)
    for file in files.documentation_pages() if index.diagnostics else ():
        page = index.pages.get(file.src_uri)
        if page is not None and file.page is not None:
            file.page.content = pages.diagnostics(index, page) + (file.page.content or "")
    return env


def on_post_build(config: Any) -> None:
    """Writes the index of the search, the notebooks, what live figures compute with, and the font of the equations."""
    folder = Path(config["site_dir"])
    (folder / "assets").mkdir(parents=True, exist_ok=True)
    index = current(config["docs_dir"])
    (folder / search.FILE).write_text(search.script(index), encoding="utf-8")
    for page in index.pages.values():
        if cells(page):
            path = (folder / page.path).with_suffix(".ipynb")
            path.write_text(notebook.notebook(index, page), encoding="utf-8")
        for name, text in live.scripts(index, page):
            (folder / name).write_text(text, encoding="utf-8")
    if equations.used:
        (folder / FONT).write_bytes(equations.font())
    _end()
