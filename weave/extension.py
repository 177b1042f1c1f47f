"""The Python-Markdown extension that weaves: it knows the chapter by its text and its blocks by their lines.

It works before Markdown does, on the lines: each block of the book and each formula becomes finished
HTML in Markdown's own stash, so that nothing later looks into it, and what is wrong is reported with
the line at which it stands.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

from weave import code, equations, execute, facts
from weave.index import Index, Page, current

# What may hold a dollar sign or the name of an equation, in the order in which it is looked for.
PROSE = re.compile(
    r"""
    (?P<comment> <!--.*?--> )
  | (?<!`)(?P<ticks> `+ )(?!`) (?:(?!\n[ \t]*\n).)+? (?<!`)(?P=ticks)(?!`)
  | \\(?P<escaped> [\\`$] )
  | (?P<margin> ^[ \t>]* )? \$\$ (?P<display> .+? ) \$\$
  | \$(?=\S) (?P<inline> (?:(?!\n[ \t]*\n)[^$])+? ) (?<![\s\\])\$(?!\d)
  | \[eq\.\s+(?P<label> [\w-]+ )\] \( (?P<file> [^)\s\#]* ) \#eq-(?P<name> [\w-]+ ) \)
    """,
    re.DOTALL | re.VERBOSE | re.MULTILINE,
)


class WeaveExtension(Extension):
    """`weave.extension` in the list of Markdown extensions."""

    def __init__(self, **configuration: Any) -> None:
        self.config = {"book": ["book", "the folder of the chapters"]}
        super().__init__(**configuration)

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802, Markdown calls it so
        """Registers the weaver after the lines are normalised (30) and before fences are read (25)."""
        md.preprocessors.register(Weaver(md, self.getConfig("book")), "weave", 27)


class Weaver(Preprocessor):
    """Puts stashed HTML in the place of blocks and formulas."""

    def __init__(self, md: Markdown, folder: str) -> None:
        super().__init__(md)
        self.folder = folder

    def run(self, lines: list[str]) -> list[str]:
        """The page's lines, woven; a page that is no chapter of the book is left as it is."""
        self.index: Index = current(self.folder)
        page = _page(self.index, lines)
        if page is None:
            return lines
        self.page = page
        self.figures = self._figures()
        done: list[str] = []
        at = 0  # lines that are done
        for block in page.blocks:
            done += self._prose(lines[at : block.line - 1], at + 1)
            html = self._block(block)
            opener = lines[block.line - 1]
            margin = opener[: len(opener) - len(opener.lstrip(" \t>"))]
            if html is None:
                done += lines[block.line - 1 : block.end_line]
            else:
                done += [margin.rstrip(), margin + self._stashed(html), margin.rstrip()]
            at = block.end_line
        return done + self._prose(lines[at:], at + 1)

    def _stashed(self, html: str) -> str:
        """A word that Markdown replaces by this HTML in the end."""
        return str(self.md.htmlStash.store(html))

    def _block(self, block: Any) -> str | None:
        """The HTML of a block; None where it is Markdown's to render."""
        index, page = self.index, self.page
        if "figure" in block.classes:
            return self._figure(block)
        if block.patch:
            return code.difference(index, page, block)
        if "chapter" in block.classes:
            return facts.overview(index, page, block)
        if "pitfall" in block.classes:
            return facts.pitfall(index, page, block)
        if "pitfalls" in block.classes:
            return facts.pitfalls(index, page, block)
        if "map" in block.classes:
            return facts.chapter_map(index, page)
        if "values" in block.classes:
            return code.collapsed(index, page, block, "The numbers of this section, computed")
        if block.name or block.file:
            return code.captioned(index, page, block)
        return None

    def _figures(self) -> dict[int, execute.Result]:
        blocks = [block for block in self.page.blocks if "figure" in block.classes]
        if not blocks:
            return {}
        results = execute.figures([(self.page.path, b.line, self.index.body(b)) for b in blocks])
        return {block.line: result for block, result in zip(blocks, results, strict=True)}

    def _figure(self, block: Any) -> str:
        result, name = self.figures[block.line], escape(block.name or "")
        alt = block.attributes.get("alt", "")
        if not name or not alt:
            self.index.fault(
                self.page.path, block.line, "a figure has a name, #fig-NAME, and alt text"
            )
        if isinstance(result, dict):
            self.index.fault(self.page.path, result["line"], result["error"])
            return (
                f'<figure id="{name}"><code class="bad">{escape(result["error"])}</code></figure>'
            )
        number = self.page.figures.get(block.name or "", 0)
        svg = result.replace("<svg", f'<svg role="img" aria-labelledby="{name}-t {name}-d"', 1)
        start = svg.index(">") + 1
        label = (
            f'<title id="{name}-t">Figure {number}</title><desc id="{name}-d">{escape(alt)}</desc>'
        )
        caption = facts.text(self.index, self.page, block.line, block.attributes.get("caption", ""))
        behind = code.collapsed(self.index, self.page, block, "How this figure is drawn")
        return (
            f'<figure id="{name}"><div class="figure-frame" tabindex="0" data-search-exclude>'
            f"{svg[:start]}{label}{svg[start:]}</div>"
            f"<figcaption><b>Figure {number}.</b> {caption}</figcaption>{behind}</figure>"
        )

    def _prose(self, lines: list[str], first: int) -> list[str]:
        """Lines between two blocks: formulas and references to equations; `first` is the first one's number."""
        source = "\n".join(lines)
        if "$" not in source and "#eq-" not in source:
            return lines

        def woven(found: re.Match[str]) -> str:
            line = first + source.count(
                "\n", 0, found.end("margin") if found["margin"] else found.start()
            )
            if found["escaped"] == "$":
                return "&#36;"
            if found["display"] is not None:
                margin = found["margin"] or ""
                tex = re.sub(r"\n[ \t>]*", "\n", found["display"])
                html = equations.displayed(self.index, self.page, line, tex)
                return f"{margin.rstrip()}\n{margin}{self._stashed(html)}\n{margin.rstrip()}"
            if found["inline"] is not None:
                html = equations.inline(self.index, self.page, line, found["inline"])
                return self._stashed(html)
            if found["label"] is not None:
                return self._reference(found, line)
            return found[0]

        return PROSE.sub(woven, source).split("\n")

    def _reference(self, found: re.Match[str], line: int) -> str:
        """A reference to an equation, with its number for its label."""
        page = self.page
        if found["file"]:
            folder = page.path.rpartition("/")[0]
            other = _joined(folder, found["file"])
            if other not in self.index.pages:
                return found[0]  # a dead link: MkDocs says so
            page = self.index.pages[other]
        number = page.equations.get(found["name"])
        if number is None:
            self.index.fault(
                self.page.path, line, f"no equation is labelled eq:{found['name']} in {page.path}"
            )
            return f"eq. {found['label']}"
        return f"[eq. ({number})]({found['file']}#eq-{found['name']})"


def _joined(folder: str, path: str) -> str:
    parts: list[str] = folder.split("/") if folder else []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _page(index: Index, lines: list[str]) -> Page | None:
    """The chapter whose text these lines are."""
    mine = _plain("\n".join(lines))
    return next((page for page in index.pages.values() if _plain(page.text) == mine), None)


def _plain(text: str) -> str:
    return "".join(text.split())


def makeExtension(**configuration: Any) -> WeaveExtension:  # noqa: N802, the name Markdown looks for
    """The extension."""
    return WeaveExtension(**configuration)
