# Tangled from book/workshop/weave-serve.md
"""While the site is served: pages that would come out as they did in the last build are not rendered again."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

from literate.markdown import Block
from weave.model.index import GLOSSARY, REFERENCE, Index
from weave.model.page import Page
from weave.render import code
from weave.run.outputs import outputs

OF_MKDOCS = ("content", "toc", "present_anchor_ids", "links_to_anchors", "_title_from_render")
OF_PAGE = ("referred", "links", "sections", "ids")


@dataclass
class Rendered:
    """A page as it came out, and what it was made of."""

    description: object
    questions: list[tuple[str, str]]
    mkdocs: dict[str, Any]
    page: dict[str, Any]
    diagnostics: list[tuple[str, int, str]]


_last: dict[str, Rendered] = {}


def render(index: Index, page: Page, rendered: Any, config: Any, files: Any) -> None:
    """In the place of the method `render` of MkDocs' page `rendered`."""
    common = _common(index, config, files)
    last = _last.get(page.path)
    if last is not None:
        page.referred = dict(last.page["referred"])
        for method, name in last.questions:
            getattr(index, method)(name, page.path)
        if last.description == (common, _own(index, page)):
            vars(rendered).update({name: copy(value) for name, value in last.mkdocs.items()})
            vars(page).update({name: copy(value) for name, value in last.page.items()})
            for diagnostic in last.diagnostics:
                index.report(*diagnostic)
            return
        page.referred.clear()
        index.answers[page.path].clear()
    before = len(index.diagnostics)
    type(rendered).render(rendered, config, files)
    _last[page.path] = Rendered(
        (common, _own(index, page)),
        list(index.answers[page.path]),
        {name: copy(vars(rendered)[name]) for name in OF_MKDOCS},
        {name: copy(vars(page)[name]) for name in OF_PAGE},
        index.diagnostics[before:],
    )


def _common(index: Index, config: Any, files: Any) -> object:
    """What goes into every page."""
    if index.common is None:
        glossary = index.pages.get(GLOSSARY)
        numbers = [
            (p.path, p.title, p.chapter, p.equations, p.figures) for p in index.pages.values()
        ]
        index.common = (
            sorted(files.src_uris),
            repr((config.markdown_extensions, config.mdx_configs)),
            repr((numbers, index.facts, index.files)),
            glossary.text if glossary else "",
            bool(index.book.errors),
        )
    return index.common


def _own(index: Index, page: Page) -> object:
    """What goes into this page."""
    if page.generated:
        target = page.path.removeprefix("code/").removesuffix(".md")
        return [(_around(index, page, block), block.body) for block in index.made_of(target)]
    previews = [code.preview(index, page, name) for name in page.referred if name in index.chunks]
    return (
        page.text,
        outputs(index, page),
        [_around(index, page, block) for block in page.blocks],
        previews,
        dict(index.answers[page.path]),
    )


def _around(index: Index, page: Page, block: Block) -> object:
    """What the other blocks have to do with this one."""
    shown = index.place(block), index.implements(index.pages[block.chapter.name], block)
    if block.patch:
        patched = index.book.chunks.get(block.patch, ())
        return shown, [(one.language, index.place(one)) for one in patched]
    names = REFERENCE.findall(block.body) if "<<" in block.body else ()
    referred = [index.chunks.get(name) for _, name in names]
    seen = code.caption(index, page, block), code.foot(index, page, block)
    return shown, block.language, referred, seen
