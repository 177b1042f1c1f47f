# Tangled from book/workshop/weave.md
"""A chapter as the weaver sees it: its blocks, what stands between them, and the ids that links lead to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from literate.markdown import Block


@dataclass(frozen=True)
class Output:
    """What came of a block that was run."""

    text: str = ""
    late: bool = False  # nothing has come yet
    shown: tuple[tuple[str, str], ...] = ()  # of a cell: form and text
    diagnostic: tuple[int, str] | None = None  # the chapter line, and what went wrong there


@dataclass(frozen=True)
class Place:
    """A spot that a link can lead to."""

    page: str  # its path below the book, e.g. 2-transformer/L5.3-multi-head-attention.md
    anchor: str


@dataclass(frozen=True)
class Link:
    """Where the prose leads to; `raw` when HTML says it, which names pages of the site and no chapters."""

    line: int
    target: str
    raw: bool = False


@dataclass
class Section:
    """A heading and the words under it, for the search."""

    anchor: str
    level: int
    title: str
    words: list[str]


@dataclass
class Page:
    """One chapter file."""

    path: str
    text: str
    blocks: list[Block]
    anchors: dict[int, str] = field(default_factory=dict)  # opener line of a block -> its id
    equations: dict[str, int] = field(default_factory=dict)  # label -> number
    figures: dict[str, int] = field(default_factory=dict)  # name -> number
    chapter: str = ""  # the id of the chapter that it is, or that it belongs to, e.g. L5.3
    title: str = ""
    generated: bool = False  # made from the whole book, not written by anybody
    referred: dict[str, Place] = field(default_factory=dict)  # chunks that its code refers to
    links: list[Link] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    ids: set[str] | None = None  # of headings and the like; None until the page is rendered
    outputs: dict[int, Output] | None = None  # of its figures and sessions, once somebody asked

    def woven_ids(self) -> set[str]:
        """The ids of blocks, figures and equations."""
        return {*self.anchors.values(), *self.figures, *("eq-" + name for name in self.equations)}

    def all_ids(self) -> set[str]:
        """Every id that a link can lead to."""
        return self.woven_ids() | (self.ids or set())


def between(lines: list[str], blocks: list[Block]) -> Iterator[tuple[int, list[str]]]:
    """The runs of lines outside the blocks, each with the number of its first line; lines count from 1."""
    at = 0
    for block in blocks:
        yield at + 1, lines[at : block.line - 1]
        at = block.end_line
    yield at + 1, lines[at:]
