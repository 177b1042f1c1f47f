# Tangled from book/workshop/weave-cells.md
"""What came of the blocks that a page runs: its cells, its figures and its sessions."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import literate.expand
import literate.where
from literate.markdown import Block
from weave.model.index import Index
from weave.model.page import Output, Page
from weave.run import execute, kept, sessions
from weave.run.execute import Result
from weave.run.later import Work

_cells: Work[list[Result]] = Work()
_figures: Work[list[Result]] = Work()
_sessions: Work[list[str]] = Work()
_drawn: dict[Path, tuple[str, dict[str, list[str]]]] = {}  # root -> key; code -> SVG, live data
_last: dict[tuple[Path, str, str], list[str]] = {}  # root, chapter, name -> the same


def outputs(index: Index, page: Page) -> dict[int, Output]:
    """The info string's line of each such block -> its output."""
    if page.outputs is None:
        _begin(index)
        if any("figure" in block.classes for block in page.blocks):
            _of_figures(index)
        figures = index.drawn.get(page.path, {})
        page.outputs = {**figures, **_of_cells(index, page), **_of_sessions(index, page)}
    return page.outputs


def cells(page: Page) -> list[Block]:
    """The blocks of a page that run one after the other: its cells, and its questions, whose answers are computed between them."""
    return [block for block in page.blocks if "run" in block.classes or block.language == "ask"]


def results(index: Index, page: Page) -> list[Result]:
    """What came of the page's cells, run now in an empty folder; of none behind one that failed."""
    asked = _asked(index, page)
    with tempfile.TemporaryDirectory() as folder:
        found = execute.execute(asked, index.root, folder, execute.SECONDS)
    if not any(result["error"] for result in found):
        kept.write(*_place(index, page, asked), found)
    return found


def known(index: Index, page: Page) -> list[Result] | None:
    """What came of the page's cells the last time, where nothing has changed since."""
    found: list[Result] | None = kept.read(*_place(index, page, _asked(index, page)))
    return found


def diagnosis(
    index: Index, blocks: Sequence[Block], number: int, result: Result
) -> tuple[int, str]:
    """The line of the page on which a block failed, and what to say of it."""
    message, frames = result["error"]
    block, deeper = blocks[number], ""
    line = block.line
    files = literate.where.Annotator(index.book, str(index.root))
    for file, at in frames:
        name, _, other = file.partition(" ")
        if name != "block":
            deeper = files.origin(file, at or 0) or deeper
        elif block.language != "ask" or int(other) != number:
            lines = literate.expand.origins(index.pieces(blocks[int(other)]))
            origin, there = lines[min(at or 1, len(lines)) - 1]
            if int(other) == number and origin.chapter is block.chapter:
                line, deeper = there, ""
            else:
                deeper = f"{origin.chapter.path}:{there}"
    return line, message + (f" (raised at {deeper})" if deeper else "")


def _asked(index: Index, page: Page) -> list[tuple[str, str]]:
    """The kind and the code of each cell."""
    return [
        ("ask", block.attributes.get("answer", ""))
        if block.language == "ask"
        else ("raises" if "raises" in block.classes else "run", index.body(block))
        for block in cells(page)
    ]


def _place(index: Index, page: Page, asked: list[tuple[str, str]]) -> tuple[Path, str]:
    """Where the results of a page's cells are kept, and under which key."""
    path = index.root / "build/cells" / f"{page.path}.json"
    return path, kept.fingerprint(index.root, _tools(index.root), json.dumps(asked))


def _tools(root: Path) -> list[Path]:
    """The files, besides the package, that what the blocks show depends on."""
    here = Path(__file__).parent
    figures = kept.below(here.parent / "figures")
    return [here / "execute.py", *figures, *kept.below(root / "ol")]


def _begin(index: Index) -> None:
    """Runs the cells of all pages, once: one page at a time, while others are rendered."""
    for page in index.pages.values() if not index.begun else ():
        if cells(page):
            _, key = _place(index, page, _asked(index, page))
            _cells.begin(page.path, key, partial(results, index, page), known(index, page))
    index.begun = True


def _of_cells(index: Index, page: Page) -> dict[int, Output]:
    blocks = cells(page)
    if not blocks:
        return {}
    found, current = _cells.result(page.path)
    if found is None or not current and len(found) != len(blocks):
        found = []
    behind = (("note", "not run: a cell above it fails"),)
    done = {
        block.line: Output(shown=behind if found else (), late=not found and not current)
        for block in blocks
    }
    for number, (block, result) in enumerate(zip(blocks, found, strict=False)):
        wrong = diagnosis(index, blocks, number, result) if result["error"] and current else None
        shown = tuple((form, text) for form, text in result["shown"])
        done[block.line] = Output(shown=shown, diagnostic=wrong)
    return done


def _of_figures(index: Index) -> None:
    """Fills `index.drawn`, once."""
    if index.drawn:
        return
    pages = index.pages.values()
    blocks = [block for page in pages for block in page.blocks if "figure" in block.classes]
    codes = {block: index.body(block) for block in blocks}
    root, path = index.root, index.root / "build/figures.json"
    key = kept.fingerprint(root, _tools(root))
    if _drawn.get(root, ("",))[0] != key:
        _drawn[root] = key, kept.read(path, key) or {}
    drawn = _drawn[root][1]
    missing = [block for block in blocks if codes[block] not in drawn]
    wrong: dict[Block, tuple[int, str]] = {}
    if missing:
        asked = [("figure", codes[block]) for block in missing]
        _figures.begin(str(root), f"{key} {asked}", partial(execute.execute, asked, root))
        found, current = _figures.result(str(root))
        for number, result in enumerate((found or ()) if current else ()):
            block = missing[number]
            if result["error"]:
                wrong[block] = diagnosis(index, missing, number, result)
            else:
                drawn[codes[block]] = [text for _, text in result["shown"]]
        if current:
            kept.write(path, key, {code: drawn[code] for code in codes.values() if code in drawn})
    for block, code in codes.items():
        place = root, block.chapter.name, block.name or str(block.line)
        if code in drawn:
            _last[place] = drawn[code]
        text, *live = [""] if block in wrong else _last.get(place, [""])
        late = not text and block not in wrong
        shown = tuple(("live", one) for one in live)
        output = Output(text, late, shown, diagnostic=wrong.get(block))
        index.drawn.setdefault(block.chapter.name, {})[block.line] = output


def _of_sessions(index: Index, page: Page) -> dict[int, Output]:
    """The opener line of each session of a page -> what it prints; the commands alone where they have not been run."""
    blocks = [block for block in page.blocks if "session" in block.classes]
    if not blocks:
        return {}
    pairs = [(index.body(block), block.attributes.get("workspace", "")) for block in blocks]
    root = str(index.root)
    known, key = sessions.known(pairs, root), sessions.key(pairs, root)
    _sessions.begin(page.path, key, partial(sessions.transcripts, pairs, root), known)
    texts, late, diagnostic = None, False, None
    try:
        texts, is_new = _sessions.result(page.path)
        late = texts is None and not is_new
    except ValueError as error:
        diagnostic = _line(blocks, str(error)), f"a session failed: {error}"
    if texts is None or len(texts) != len(blocks):
        texts = [text for text, _ in pairs]
    found = {block.line: Output(text, late) for block, text in zip(blocks, texts, strict=True)}
    if diagnostic:
        found[blocks[0].line] = Output(texts[0], late, diagnostic=diagnostic)
    return found


def _line(blocks: list[Block], message: str) -> int:
    """The line of the command that a message names."""
    for block in blocks:
        if message.startswith(f"workspace={block.attributes.get('workspace', '')}: "):
            return int(block.line)
        for number, line in enumerate(block.body.splitlines(), block.line + 1):
            if line.startswith("$ ") and message.startswith(f"{line[2:]}: "):
                return int(number)
    return int(blocks[0].line)
