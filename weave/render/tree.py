# Tangled from book/workshop/weave-search.md
"""The element tree of a page: names and terms become links, sections are collected for the search."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from markdown import Markdown
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString

from weave.model.index import GLOSSARY, Index
from weave.model.page import Page, Place, Section

HEADINGS = {f"h{level}": level for level in range(1, 7)}
# Elements in which nothing becomes a link.
QUIET = {*HEADINGS, "a", "pre", "th", "code", "button", "summary"}
# What Markdown has put aside.
PLACEHOLDER = re.compile("\x02(?:(amp)|(\\d+)|wzxhzdk:(\\d+)|[^\x03]*)\x03")
LONG = 24  # characters of a path in a table that may be broken
SHORT = 10  # characters of a cell that is not


class Finisher(Treeprocessor):
    """Runs after Markdown's own tree processors."""

    def __init__(self, md: Markdown, weaver: Any) -> None:
        super().__init__(md)
        self.weaver = weaver

    def run(self, root: Element) -> None:
        """Changes the tree in place; a page that is not of the book stays as it is."""
        page: Page | None = self.weaver.page
        if page is None:
            return
        self.index: Index = self.weaver.index
        self.page = page
        self.ids: set[str] = set()
        part = self.index.facts.get(page.chapter, {}).get("part")
        quiet = page.path == GLOSSARY or page.generated
        self.terms = {} if quiet else self.index.terms.of(part)
        page.sections, page.ids = [Section("", 1, "", [])], self.ids
        for child in root:
            self._collect(child)
        for one in sorted(self.ids & page.woven_ids()):
            line = next((n for n, anchor in page.anchors.items() if anchor == one), 1)
            self.index.diagnose(page.path, line, f"a heading of this page has the id {one} too")
        if not page.generated:
            self._walk(root)

    def _collect(self, element: Element) -> None:
        """The words of a child of the page go to the section that is open."""
        for inner in element.iter():
            if "id" in inner.attrib:
                self.ids.add(inner.attrib["id"])
        words = plain(element, self.md.htmlStash.rawHtmlBlocks)
        if element.tag in HEADINGS:
            level = HEADINGS[element.tag]
            self.page.sections.append(Section(element.get("id", ""), level, words, []))
        elif words:
            self.page.sections[-1].words.append(words)

    def _walk(self, element: Element) -> None:
        """Links for names and terms in an element's text and in the text behind its children, in reading order."""
        if element.tag == "dt" and self.page.path == GLOSSARY:
            self._entry(element)
        linking = bool(self.terms) and element.tag not in QUIET
        children = list(element)
        if element.text and linking:
            self._terms(element, 0, element.text, None)
        at = 0
        for child in children:
            while element[at] is not child:  # links have come between
                at += 1
            if child.tag == "table":
                element[at] = self._table(child)
            if child.tag == "code":
                self._name(element, at, child)
            elif child.tag not in QUIET:
                self._walk(child)
            here = element[at]
            if here.tail and linking:
                self._terms(element, at + 1, here.tail, here)

    def _table(self, table: Element) -> Element:
        """A table in a frame in which it can be scrolled. A long path may be broken, a few words are not. Empty headings
        would be read aloud; one that is all formula has its words for those who hear the page."""
        table.set("class", "book-table")
        self._breaks(table)
        for cell in table.iter("th"):
            if not len(cell) and not plain(cell):
                formula = self.words(cell.text or "")
                if not formula:
                    cell.tag = "td"
                    continue
                shown = SubElement(cell, "span", {"aria-hidden": "true"})
                shown.text, cell.text = cell.text, ""
                SubElement(cell, "span", {"class": "said"}).text = formula
        frame = Element("div", {"class": "table-frame", "tabindex": "0"})
        frame.tail, table.tail = table.tail, None
        frame.append(table)
        return frame

    def _breaks(self, table: Element) -> None:
        """Where the lines of a table may end; and no white space between its cells, of which a long page has a kilobyte."""
        slash = "/" + self.md.htmlStash.store("<wbr>")
        for element in table.iter():
            text = element.text or ""
            if element.tag == "code" and len(text) > LONG:
                element.text = AtomicString(text.replace("/", slash))
            elif element.tag == "td" and not len(element) and len(text) <= SHORT:
                element.text = text.replace(" ", "\N{NO-BREAK SPACE}")
            elif element.tag in ("table", "thead", "tbody", "tr"):
                element.text = None
            if element.tag in ("thead", "tbody", "tr", "th", "td"):
                element.tail = None

    def words(self, text: str) -> str:
        """The letters of the formulas that stand in a text."""
        stash = self.md.htmlStash.rawHtmlBlocks
        kept = " ".join(
            str(stash[int(found[3])]) for found in PLACEHOLDER.finditer(text) if found[3]
        )
        return " ".join(re.sub(r"<[^>]*>", " ", kept).split())

    def _entry(self, element: Element) -> None:
        """An entry of the glossary gets its id, and is shown without the other forms of its term."""
        name = slug(plain(element).partition(" (")[0])
        element.set("id", name)
        self.ids.add(name)
        last = element[-1] if len(element) else None
        if last is None:
            element.text = (element.text or "").partition(" (")[0]
        else:
            last.tail = (last.tail or "").partition(" (")[0]

    def _name(self, parent: Element, at: int, code: Element) -> None:
        text = unescape(PLACEHOLDER.sub("", "".join(code.itertext())))
        place = self.index.test(text, self.page.path) if text.startswith("test_") else None
        if place is None:
            place = self.index.defined(text, self.page.path)
        if place is None:
            if text.casefold() in self.terms:
                self._wrap(parent, at, code, text.casefold())
            return
        link = Element("a", {"href": self.index.href(self.page.path, place)})
        link.tail, code.tail = code.tail, None
        parent[at] = link
        link.append(code)

    def _wrap(self, parent: Element, at: int, code: Element, name: str) -> None:
        link = self._term(name, "")
        link.tail, code.tail = code.tail, None
        parent[at] = link
        link.append(code)

    def _terms(self, parent: Element, at: int, text: str, before: Element | None) -> None:
        """Splits a text at the terms in it; `before` is the child whose tail it is, None for the parent's own text."""
        pieces: list[Element] = []
        start, kept = 0, ""
        for found in self.index.term_pattern.finditer(text):
            name = self.index.forms.get(found[0].casefold(), "")
            if name not in self.terms:
                continue
            link = self._term(name, found[0])
            if pieces:
                pieces[-1].tail = text[start : found.start()]
            else:
                kept = text[: found.start()]
            pieces.append(link)
            start = found.end()
        if not pieces:
            return
        pieces[-1].tail = text[start:]
        if before is None:
            parent.text = kept
        else:
            before.tail = kept
        for number, piece in enumerate(pieces):
            parent.insert(at + number, piece)

    def _term(self, name: str, text: str) -> Element:
        meaning = self.terms.pop(name)
        place = Place(GLOSSARY, slug(name))
        href = self.index.href(self.page.path, place)
        link = Element("a", {"class": "term", "href": href, "data-tip": meaning})
        link.text = text
        return link


def plain(element: Element, stash: list[Any] | None = None) -> str:
    """The words of an element, without the sign behind a heading; of what Markdown has put aside only single characters."""
    parts: list[str] = []
    waiting: list[Element | str] = [element]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            parts.append(one)
        elif "headerlink" not in one.get("class", ""):
            waiting += reversed(
                [one.text or "", *(part for c in one for part in (c, c.tail or ""))]
            )

    def put_back(found: re.Match[str]) -> str:
        if found[3] and stash:
            kept = str(stash[int(found[3])])
            return kept if kept.startswith("&") else ""
        return "&" if found[1] else chr(int(found[2])) if found[2] else ""

    return " ".join(unescape(PLACEHOLDER.sub(put_back, "".join(parts))).split())


def slug(term: str) -> str:
    """The id of a term in the glossary."""
    return "term-" + re.sub(r"[^\w]+", "-", term.casefold()).strip("-")
