# Tangled from book/workshop/weave.md
"""The text between two blocks: where formulas and references to equations and figures stand in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

# Control characters are shown by their pictures: HTML has none, and Markdown's own marks are two of them.
PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {127: 0x2421}

# What may hold a dollar sign or lead somewhere, in the order in which it is looked for:
# a comment and a span of code hold none of these; neither formula goes past an empty line.
PROSE = re.compile(
    r"""
    <!-- .*? -->
  | (?<!`)(?P<ticks> `+ )(?!`) (?: (?!\n[ \t]*\n). )+? (?<!`)(?P=ticks)(?!`)
  | \\ (?P<escaped> [\\`$] )
  | (?P<margin> ^[ \t>]* )? \$\$ (?P<display> (?: (?!\n[ \t]*\n). )+? ) \$\$ (?= (?P<behind> [^\n]* ) )
  | (?P<open> \$\$ )
  | \$ (?P<inline> (?=\S) (?: (?!\n[ \t]*\n)[^$] )+? (?<![\s\\]) ) \$ (?!\d)
  | \]\( [ \t]* (?: <(?P<angled> [^<>\n]+ )> | (?P<to> (?: [^()\s] | \([^()\s]*\) )+ ) ) (?: \s+ (?: "[^"]*" | '[^']*' ) )? \s* \)
  | ^[ \t>]* \[ [^\]\n^][^\]\n]* \]: [ \t]+ (?: <(?P<below_angled> [^<>\n]+ )> | (?P<below> \S+ ) )
  | (?P<tag> <[a-zA-Z][\w-]* (?: \s+ [\w:@.-]+ (?: \s*=\s* (?: "[^"]*" | '[^']*' | [^\s"'=<>`]+ ) )? )* \s* /?> )
  | \[(?P<kind> eq|fig )\.\s+(?P<label> [\w-]+ )\]
    \( (?P<file> [^)\s\#]* ) \#(?P=kind)-(?P<name> [\w-]+ ) \)
    """,
    re.DOTALL | re.VERBOSE | re.MULTILINE,
)


def found(lines: list[str], first: int) -> Iterator[tuple[int, re.Match[str]]]:
    """The matches of `PROSE` in the lines, each with its line; `first` is the number of the first line."""
    text = "\n".join(lines)
    line, at = first, 0  # the line of what is counted up to
    for match in PROSE.finditer(text):
        start = match.end("margin") if match["margin"] else match.start()
        line, at = line + text.count("\n", at, start), start
        yield line, match


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
