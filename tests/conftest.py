# Tangled from book/workshop/tangle-tests-where.md
"""A failing test's report gets a section with the chapter lines of its frames; children can be interrupted."""

import os
import signal
import traceback

import pytest

ANNOTATOR = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    add_chapter_lines(report, call, item.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    add_chapter_lines(report, getattr(report, "call", None), collector.config)
    return report


def pytest_configure():
    """Let children be interrupted where this run cannot be, as in a background job or under nohup."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        kind = getattr(signal, name, signal.SIGTERM)  # not every system has the last
        if signal.getsignal(kind) == signal.SIG_IGN:
            signal.signal(kind, lambda *_: None)


def add_chapter_lines(report, call, config):
    if report.failed and call is not None and call.excinfo is not None:
        try:
            lines = chapter_lines(call.excinfo.value, annotator(config), str(config.rootpath))
        except Exception:  # the report matters more than its chapter lines
            return
        if lines:
            report.sections.append(("chapter lines", "\n".join(lines)))


def chapter_lines(error, annotate, root):
    """`file:line  chapter:line` for every frame, of the error and of its causes, in a generated file."""
    lines = []
    for path, line in frames(error):
        origin = annotate(path, line) if annotate else None
        if origin is not None:
            place = f"{os.path.relpath(path, root)}:{line}"
            lines.append(f"{place}  {os.path.relpath(origin, root)}")
    return list(dict.fromkeys(lines))


def frames(error, seen=()):
    """(path, line) of every frame, causes first."""
    if error is None or error in seen:
        return
    seen = (*seen, error)
    yield from frames(
        error.__cause__ or (not error.__suppress_context__ and error.__context__) or None, seen
    )
    for inner in getattr(error, "exceptions", ()):
        yield from frames(inner, seen)
    for frame, line in traceback.walk_tb(error.__traceback__):
        yield frame.f_code.co_filename, line
    if isinstance(error, SyntaxError) and error.filename:
        yield error.filename, error.lineno


def annotator(config):
    """`annotate(path, line)`, which gives `chapter:line` or None; None where there is no book."""
    if ANNOTATOR not in config.stash:
        config.stash[ANNOTATOR] = None
        if not (config.rootpath / "tangle.py").is_file():  # an installed one has another book
            return None
        try:
            import literate.expand
            import literate.read
            import literate.where

            book = literate.read.read_book([config.rootpath / "book"])
        except (ImportError, OSError):
            return None
        if not book.errors:
            config.stash[ANNOTATOR] = literate.where.Annotator(book, str(config.rootpath)).origin
    return config.stash[ANNOTATOR]
