# Tangled from book/workshop/weave.md
"""The text between two blocks: where formulas and references to equations and figures stand in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

# What may hold a dollar sign or refer to an equation or a figure, in the order in which it is looked for:
# a comment and a span of code hold none of these; neither formula goes past an empty line.
PROSE = re.compile(
    r"""
    <!-- .*? -->
  | (?<!`)(?P<ticks> `+ )(?!`) (?: (?!\n[ \t]*\n). )+? (?<!`)(?P=ticks)(?!`)
  | \\ (?P<escaped> [\\`$] )
  | (?P<margin> ^[ \t>]* )? \$\$ (?P<display> (?: (?!\n[ \t]*\n). )+? ) \$\$
  | \$ (?P<inline> (?=\S) (?: (?!\n[ \t]*\n)[^$] )+? (?<![\s\\]) ) \$ (?!\d)
  | \]\( (?P<to> [^)\s]+ ) (?:\s+"[^"]*")? \)
  | \[(?P<kind> eq|fig )\.\s+(?P<label> [\w-]+ )\]
    \( (?P<file> [^)\s\#]* ) \#(?P=kind)-(?P<name> [\w-]+ ) \)
    """,
    re.DOTALL | re.VERBOSE | re.MULTILINE,
)


def found(lines: list[str], first: int) -> Iterator[tuple[int, re.Match[str]]]:
    """The matches of `PROSE` in the lines, each with its line; `first` is the number of the first line."""
    text = "\n".join(lines)
    for match in PROSE.finditer(text):
        start = match.end("margin") if match["margin"] else match.start()
        yield first + text.count("\n", 0, start), match


def replaced(
    lines: list[str], first: int, new: Callable[[int, re.Match[str]], str | None]
) -> list[str]:
    """The lines with each match that `new` has other text for replaced by it."""
    text = "\n".join(lines)
    done, at = "", 0
    for line, match in found(lines, first):
        other = new(line, match)
        if other is not None:
            done += text[at : match.start()] + other
            at = match.end()
    return (done + text[at:]).split("\n")
