# Tangled from book/workshop/weave.md
"""The Python-Markdown extension that weaves: it knows the chapter by its text and its blocks by their lines.

It works before Markdown does, on the lines: each block of the book and each formula becomes finished
HTML in Markdown's own stash, so that nothing later looks into it, and what is wrong is reported with
the line at which it stands.
"""

from __future__ import annotations

import posixpath
import re
from html import escape, unescape
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

from literate.markdown import Block
from weave.model import prose
from weave.model.index import Index, current
from weave.model.page import Link, Page
from weave.render import cells, code, console, equations, facts, live, pages
from weave.render.tree import Finisher
from weave.run.later import LATER
from weave.run.outputs import outputs

TEST = re.compile(r"(?:[\w./-]+::)*test_\w+(?:\[.*\]|\(\))?")
ADDRESS = re.compile(r"""\s(?:href|src)\s*=\s*["']?([^"'\s>]+)""", re.IGNORECASE)
FRONT = re.compile(r"---[ \t]*\n.*?\n(?:\.\.\.|---)[ \t]*\n", re.DOTALL)
TARGETS = ("to", "angled", "below", "below_angled")  # groups of a link's address


class WeaveExtension(Extension):
    """`weave.render.extension` in the list of Markdown extensions."""

    def __init__(self, **configuration: Any) -> None:
        self.config = {"book": ["book", "the folder of the chapters"]}
        super().__init__(**configuration)

    def extendMarkdown(self, md: Markdown) -> None:
        """Registers the weaver after the lines are normalised (30) and before fences are read (25)."""
        weaver = Weaver(md, self.getConfig("book"))
        md.preprocessors.register(weaver, "weave", 27)
        md.treeprocessors.register(Finisher(md, weaver), "weave-finish", -10)


class Weaver(Preprocessor):
    """Puts stashed HTML in the place of blocks and formulas."""

    def __init__(self, md: Markdown, folder: str) -> None:
        super().__init__(md)
        self.folder = folder
        self.page: Page | None = None  # that is being rendered

    def run(self, lines: list[str]) -> list[str]:
        """The page's lines, woven; a page that is no chapter of the book is left as it is."""
        self.index: Index = current(self.folder)
        page = self.page = self.index.page("\n".join(lines))
        if page is None:
            return lines
        page.links.clear()
        lines = self._own(page, lines)
        self.outputs = outputs(self.index, page)
        for output in self.outputs.values():
            if output.diagnostic:
                self.index.diagnose(page.path, *output.diagnostic)
        done: list[str] = []
        at = 0  # lines that are done
        for block in page.blocks:
            done += self._prose(page, lines[at : block.line - 1], at + 1)
            html = self._block(page, block)
            opener = lines[block.line - 1]
            margin = opener[: len(opener) - len(opener.lstrip(" \t>"))]
            if html is None:
                done += lines[block.line - 1 : block.end_line]
            else:
                done += [margin.rstrip(), margin + self._stashed(html)]
                if lines[block.end_line].strip(
                    " >"
                ):  # at the end of a quote an empty line would do harm
                    done.append(margin.rstrip())
            at = block.end_line
        done += self._prose(page, lines[at:], at + 1)
        others = [name for name, place in page.referred.items() if place.page != page.path]
        if others:
            html = "".join(code.preview(self.index, page, name) for name in others)
            done += ["", self._stashed(html), ""]
        return done

    def _own(self, page: Page, given: list[str]) -> list[str]:
        """The page's lines as its chapter counts them: MkDocs takes away front matter, and empty lines at the head."""
        text = page.text
        front = FRONT.match(text)
        if front and not "\n".join(given).startswith(front[0]):
            text = "\n" * front[0].count("\n") + text[front.end() :]
        text = text.translate(prose.PICTURES).expandtabs(self.md.tab_length)
        return [line if line.strip() else "" for line in text.split("\n")] + ["", ""]

    def _stashed(self, html: str) -> str:
        """A word that Markdown replaces by this HTML in the end."""
        return str(self.md.htmlStash.store(html))

    def _block(self, page: Page, block: Block) -> str | None:
        """The HTML of a block; None where it is Markdown's to render."""
        index = self.index
        if page.generated:
            return pages.shown(index, page, block)
        kinds = {block.language, *block.classes}  # of ``` {.pitfalls} the class is the language
        if "figure" in kinds:
            return self._figure(page, block)
        if "session" in kinds:
            return console.terminal(self.outputs[block.line])
        if block.language == "ask":
            return cells.question(index, page, block, self.outputs[block.line])
        if "run" in kinds:
            return cells.cell(index, page, block, self.outputs[block.line])
        if "fold" in kinds:
            return cells.folded(index, page, block)
        if block.patch:
            return code.difference(index, page, block)
        if "chapter" in kinds:
            return facts.overview(index, page, block)
        if "pitfall" in kinds:
            return facts.pitfall(index, page, block)
        if "pitfalls" in kinds:
            return facts.pitfalls(index, page, block)
        if "map" in kinds:
            return facts.chapter_map(index, page)
        if "values" in kinds:
            return code.folded(
                "The numbers of this section, computed", code.shown(index, page, block)
            )
        if block.name or block.file:
            return code.captioned(index, page, block)
        return None

    def _figure(self, page: Page, block: Block) -> str:
        output, name = self.outputs[block.line], escape(block.name or "")
        alt = block.attributes.get("alt", "")
        if not name.startswith("fig-") or not alt:
            self.index.diagnose(
                page.path, block.line, "a figure has a name, #fig-NAME, and alt text"
            )
        if output.diagnostic:
            return f'<figure id="{name}"><code class="bad">{escape(output.diagnostic[1])}</code></figure>'
        number = page.figures.get(block.name or "", 0)
        label = (
            f'<title id="{name}-t">Figure {number}</title><desc id="{name}-d">{escape(alt)}</desc>'
        )
        svg = output.text.replace("<svg", f'<svg role="img" aria-labelledby="{name}-t {name}-d"', 1)
        head, end, picture = svg.partition(">")
        written = block.attributes.get("caption", "")
        if re.match(r"figure \d", written, re.IGNORECASE):
            self.index.diagnose(
                page.path, block.line, "the weaver numbers figures: leave the number out"
            )
        caption = facts.text(self.index, page, block.line, written)
        caption += f" ({LATER})" if output.late else ""
        behind = code.folded("How this figure is drawn", code.shown(self.index, page, block))
        drawn = cells.slim(head + end + label + picture) if svg else ""
        frame = f'<div class="figure-frame" tabindex="0">{drawn}</div>'
        return (
            f'<figure id="{name}">{live.element(page, block, frame)}'
            f"<figcaption><b>Figure {number}.</b> {caption}</figcaption>{behind}</figure>"
        )

    def _prose(self, page: Page, lines: list[str], first: int) -> list[str]:
        """Lines between two blocks, `first` the number of the first, with formulas and references done."""
        return prose.replaced(lines, first, lambda line, match: self._woven(page, line, match))

    def _woven(self, page: Page, line: int, match: re.Match[str]) -> str | None:
        """What stands in the place of a match of `prose.PROSE`; None for what stays."""
        index = self.index
        if match["escaped"] == "$":
            return "&#36;"
        if match["display"] is not None:
            margin = match["margin"] or ""
            if match["behind"].strip() or match["margin"] is None:
                index.diagnose(page.path, line, "a displayed equation stands on lines of its own")
            tex = re.sub(r"\n[ \t>]*", "\n", match["display"])
            html = self._stashed(equations.displayed(index, page, line, tex))
            return f"{margin.rstrip()}\n{margin}{html}\n{margin.rstrip()}"
        if match["open"]:
            index.diagnose(page.path, line, "no other $$ follows this one before an empty line")
        if match["inline"] is not None:
            after = match.string[match.end() : match.end() + 1]
            return self._stashed(equations.inline(index, page, line, match["inline"], after))
        if match["label"] is not None:
            return self._reference(page, match, line)
        for target in filter(None, (match[one] for one in TARGETS)):
            page.links.append(Link(line, target))
            if match.string.endswith("![", 0, match.start()):
                index.diagnose(page.path, line, f"the image {target} has no alt text")
        for target in ADDRESS.findall(match["tag"] or ""):
            page.links.append(Link(line, unescape(target), raw=True))
        named = match[0].strip("`") if match["ticks"] else ""
        if TEST.fullmatch(named) and not index.test(named.removesuffix("()"), page.path):
            index.diagnose(page.path, line, f"no block of the book defines the test {named}")
        return None

    def _reference(self, here: Page, found: re.Match[str], line: int) -> str | None:
        """A reference to an equation or a figure, with its number for its label."""
        page = here
        if found["file"]:
            folder = here.path.rpartition("/")[0]
            other = posixpath.normpath(posixpath.join(folder, found["file"]))
            if other not in self.index.pages:
                here.links.append(Link(line, found["file"]))
                return None
            page = self.index.pages[other]
        name = found["name"]
        if found["kind"] == "eq":
            number, shown = page.equations.get(name), "eq. ({})"
            wanted = f"equation eq:{name}"
        else:
            number, shown = page.figures.get(f"fig-{name}"), "figure {}"
            wanted = f"figure fig-{name}"
        if number is None:
            self.index.diagnose(here.path, line, f"there is no {wanted} in {page.path}")
            return f"{found['kind']}. {found['label']}"
        return f"[{shown.format(number)}]({found['file']}#{found['kind']}-{name})"


def makeExtension(**configuration: Any) -> WeaveExtension:
    """The extension."""
    return WeaveExtension(**configuration)
