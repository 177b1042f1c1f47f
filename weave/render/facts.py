# Tangled from book/workshop/weave-blocks.md
"""What is made of the chapters' header facts: overview, pitfalls, the map of chapters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Any

from literate.markdown import Block
from weave.figures import graph
from weave.model import header
from weave.model.index import Index
from weave.model.page import Page, Place
from weave.render import equations
from weave.render.code import anchored

SEVERAL = 3  # names that fit in a line
SPAN = re.compile(
    r"`([^`]+)`|(?<![\\$])\$(\S(?:[^$]*\S)?)\$|(?<!\*)\*([^*\s](?:[^*]*[^*\s])?)\*(?!\*)"
)

HIDE = (
    '<p class="hide-line"><button type="button" class="hide-implementation" aria-pressed="false"'
    ' title="Key: h">Hide the implementation</button></p>\n'
)


def text(index: Index, page: Page, line: int, source: str, owner: Page | None = None) -> str:
    """A short text from an attribute or a header: code in backticks, formulas in dollars, stress in stars. `line` is one
    of the owner's, where that is another page."""
    done, at = "", 0
    for found in SPAN.finditer(source):
        done += escape(source[at : found.start()], quote=False)
        if found[1] is not None:
            done += name(index, page, found[1])
        elif found[2] is not None:
            done += equations.inline(index, owner or page, line, found[2], source[found.end() :])
        else:
            done += f"<em>{escape(found[3], quote=False)}</em>"
        at = found.end()
    return done + escape(source[at:], quote=False)


def name(index: Index, page: Page, written: str) -> str:
    """Code in a short text; a link where it is the name of something that the book defines."""
    shown = f"<code>{escape(written, quote=False)}</code>"
    place = index.defined(written, page.path)
    if place is None:
        return shown
    return f'<a href="{index.href(page.path, place)}">{shown}</a>'


def chapter_link(index: Index, page: Page, chapter: str) -> str:
    """A chapter's id and title, a link where it is written."""
    if chapter not in index.page_of:
        return f'<span class="planned">{escape(chapter)} (planned)</span>'
    href = index.href(page.path, Place(index.page_of[chapter].path, ""))
    title = index.facts[chapter].get("title", "")
    return f'<a href="{href}">{escape(f"{chapter} {title}".strip())}</a>'


def page_link(index: Index, page: Page, path: str) -> str:
    """A link to a chapter file, by the title of its first heading."""
    other = index.pages[path]
    return f'<a href="{index.href(page.path, Place(path, ""))}">{escape(other.title)}</a>'


def file_link(index: Index, page: Page, path: str) -> str:
    """A file's path, a link to the block that makes it where one does."""
    code = f"<code>{escape(path).replace('/', '/<wbr>')}</code>"
    place = index.files.get(path.strip("`"))
    return f'<a href="{index.href(page.path, place)}">{code}</a>' if place else code


def tests(index: Index, page: Page, line: int, names: Iterable[str]) -> str:
    """Tests by name, each a link to the block that defines it."""
    links = []
    for name in names:
        place = index.test(name, page.path)
        if place is None:
            index.diagnose(page.path, line, f"no block of the book defines the test {name}")
            links.append(f'<code class="bad">{escape(name)}</code>')
        else:
            href = index.href(page.path, place)
            links.append(f'<a href="{href}"><code>{escape(name)}</code></a>')
    return ", ".join(links)


def overview(index: Index, page: Page, block: Block) -> str:
    """What a chapter opens with: two lines, and the table of all facts folded."""
    facts = index.facts.get(page.chapter)
    if facts is None:
        return ""

    def plain(source: str) -> str:
        return text(index, page, block.line, source)

    def chapters(ids: Iterable[str]) -> str:
        return ", ".join(chapter_link(index, page, chapter) for chapter in ids)

    rows = [
        ("Part, kind, language, pass", _together(facts)),
        ("Time", plain(facts.get("time", ""))),
        ("Rung", plain(facts.get("rung", ""))),
        ("Builds", file_link(index, page, facts["builds"]) if facts.get("builds") else ""),
        ("Names", ", ".join(name(index, page, one) for one in facts.get("names", []))),
        ("Contract", file_link(index, page, facts["contract"]) if facts.get("contract") else ""),
        ("Tests", file_link(index, page, facts["tests"]) if facts.get("tests") else ""),
        (
            "Your files",
            ", ".join(
                f"<code>{escape(p).replace('/', '/<wbr>')}</code>"
                for p in facts.get("learner_files", [])
            ),
        ),
        ("Needs", chapters(facts["needs"])),
        ("Its tests need", chapters(facts.get("test_needs", []))),
        ("Used by", chapters(index.used_by(page.chapter))),
        ("Milestone", plain(facts.get("milestone", ""))),
        (
            "Further reading",
            "".join(f"<p>{plain(source)}</p>" for source in facts.get("reading", [])),
        ),
    ]
    body = "".join(
        f'<tr><th scope="row">{name}</th><td>{value}</td></tr>\n' for name, value in rows if value
    )
    button = HIDE if any(index.implements(page, one) for one in page.blocks) else ""
    return (
        f"{_in_short(index, page, facts, plain(facts.get('time', '')))}\n{button}"
        f'<details class="facts"><summary>All facts</summary><table class="overview"{anchored(page, block)}>'
        f"<tbody>\n{body}</tbody></table></details>\n"
    )


def _in_short(index: Index, page: Page, facts: dict[str, Any], time: str) -> str:
    """What is built and how long that takes; what it needs and leads to."""

    def ids(chapters: Iterable[str]) -> str:
        return ", ".join(
            f'<a href="{index.href(page.path, Place(index.page_of[c].path, ""))}"'
            f' title="{escape(index.facts[c].get("title", ""))}">{escape(c)}</a>'
            if c in index.page_of
            else f'<span class="planned">{escape(c)}</span>'
            for c in chapters
        )

    builds, names = facts.get("builds", ""), facts.get("names", [])
    what = file_link(index, page, builds) if builds else ""
    if builds and 0 < len(names) <= SEVERAL:
        what = f"{', '.join(name(index, page, one) for one in names)} in {what}"
    needs, users = ids(facts["needs"]), ids(index.used_by(page.chapter))
    lines = (
        (f"You build {what}" if what else "", time),
        (f"After {needs}" if needs else "", f"leads to {users}" if users else ""),
    )
    shown = (" · ".join(filter(None, line)) for line in lines)
    return f'<p class="facts">{"<br>".join(filter(None, shown))}</p>'


def _together(facts: dict[str, Any]) -> str:
    parts = [f"Part {facts['part']}" if "part" in facts else "", facts.get("kind", "")]
    parts += [facts.get("language", ""), f"pass {facts['pass']}" if "pass" in facts else ""]
    return escape(" · ".join(part for part in parts if part))


def pitfall(index: Index, page: Page, block: Block) -> str:
    """The line below a pitfall: which tests catch it."""
    named = re.search(r"""\[["']?(.+?)["']?\.mutants\.["']?([^"'\]]+)""", block.body)
    chapter, name = named.groups() if named else (page.chapter, "")
    mutant = index.facts.get(chapter, {}).get("mutants", {}).get(name, {})
    caught = mutant.get("caught_by", [])
    if not caught:
        index.diagnose(page.path, block.line, "this pitfall names no test in caught_by")
    shown = tests(index, page, block.line, caught)
    return f'<p class="caught"{anchored(page, block)}>Caught by {shown}.</p>'


def pitfalls(index: Index, page: Page, block: Block) -> str:
    """The table of all pitfalls of the chapter."""
    rows = []
    for name, mutant in sorted(index.facts.get(page.chapter, {}).get("mutants", {}).items()):
        if mutant.get("hint") == "":  # a mutant that only keeps the chapter's own tests honest
            continue
        cells = [
            f'<a href="{_patch(index, page, name)}">{escape(name)}</a>',
            text(index, page, block.line, mutant.get("pitfall", "")),
            text(index, page, block.line, mutant.get("symptom", "")),
            tests(index, page, block.line, mutant.get("caught_by", [])),
        ]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n")
    head = "".join(
        f'<th scope="col">{name}</th>' for name in ("Mutant", "Pitfall", "Symptom", "Caught by")
    )
    return f'<div class="table-frame" tabindex="0"><table class="pitfalls"><thead><tr>{head}</tr></thead><tbody>\n{"".join(rows)}</tbody></table></div>'


def _patch(index: Index, page: Page, name: str) -> str:
    """Where a mutant of the chapter is shown: on its page, beside it, or among the benchmark's."""
    file = f"ol/course/mutants/{page.chapter}/{name}.patch"
    for other in (page, *index.pages.values()):
        for block in other.blocks:
            if block.patch and block.file == file:
                return escape(index.href(page.path, index.place(block)))
    return f"#patch-{escape(name)}"


def chapter_map(index: Index, page: Page) -> str:
    """All chapters and what they need, drawn; planned ones pale."""
    order = sorted(
        index.page_of, key=lambda chapter: (index.facts[chapter].get("part", 0), chapter)
    )
    planned = sorted(
        {other for chapter in order for other in index.used_by(chapter)} - set(index.page_of)
    )
    needs = {chapter: set(index.facts[chapter]["needs"]) & set(order) for chapter in order}
    for chapter in planned:
        needs[chapter] = {other for other in order if chapter in index.used_by(other)}
    nodes = {c: f"{c}\n{index.facts[c].get('title', '')}".strip() for c in order}
    nodes.update({chapter: f"{chapter}\nplanned" for chapter in planned})
    if not nodes:
        return ""
    links = {c: index.href(page.path, Place(index.page_of[c].path, "")) for c in order}
    edges = [
        (need, c)
        for c in nodes
        for need in nodes
        if need in needs[c] and need not in _implied(c, needs)
    ]
    picture = graph(nodes, edges, links=links, faint=planned, across=False)
    rows = "".join(
        f"<li>{chapter_link(index, page, chapter)}: {_summary(index, page, chapter)}</li>\n"
        for chapter in order
    )
    return (
        '<figure class="chapter-map"><div class="figure-frame" tabindex="0">'
        + picture.replace("<svg", '<svg role="group" aria-label="The map of chapters"', 1)
        + "</div><figcaption>An arrow leads from a chapter to those that build on it directly; "
        "what follows from other arrows is left out.</figcaption></figure>\n"
        f'<ul class="chapter-list">\n{rows}</ul>'
    )


def _summary(index: Index, page: Page, chapter: str) -> str:
    line = header.line(index.headers[chapter], chapter, "summary")
    summary = index.facts[chapter].get("summary", "")
    return text(index, page, line, summary, index.page_of[chapter])


def _implied(chapter: str, needs: dict[str, set[str]]) -> set[str]:
    """What the chapter's needs need in their turn."""
    found: set[str] = set()
    waiting = list(needs[chapter])
    while waiting:
        new = needs.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found
