# Tangled from book/workshop/weave-blocks.md
"""TeX to MathML when the site is built, and the mathematics font cut down to what the pages use."""

from __future__ import annotations

import io
import re
from functools import lru_cache
from html import escape, unescape
from importlib.util import find_spec

from math_core import LatexError, LatexToMathML

from weave.model.index import LABEL, Index
from weave.model.page import Page

used: set[str] = set()  # the characters of all equations so far
_converter = LatexToMathML(fancy_error=False)
LOW_ROOT = re.compile(r"<msqrt>((?:(?!<(?:msqrt|mfrac|munder|mover|mtable)\b).)*?)</msqrt>")


class TeXError(ValueError):
    """TeX that does not convert."""


@lru_cache(maxsize=4096)
def mathml(tex: str, display: bool = False) -> str:
    """A formula as a `<math>` element; raises TeXError."""
    try:
        html = _converter.convert_with_local_state(tex, displaystyle=display)
    except LatexError as error:
        raise TeXError(" ".join(str(error).split())) from error
    used.update(unescape(re.sub(r"<[^>]*>", "", html)))
    return LOW_ROOT.sub(r"<msqrt class=low>\1</msqrt>", str(html))


CLOSING = ".,;:!?)]'\"-"  # signs that begin no line
TIE = "\N{WORD JOINER}"


def inline(index: Index, page: Page, line: int, tex: str, after: str = "") -> str:
    """A formula inside a line of text, in front of the text `after`."""
    try:
        return breakable(mathml(tex)) + (TIE if after.startswith(tuple(CLOSING)) else "")
    except TeXError as error:
        return _bad(index, page, line, tex, error)


def displayed(index: Index, page: Page, line: int, tex: str) -> str:
    """A formula on a line of its own, with its number; what is wrong is reported at `line`."""
    labels = LABEL.findall(tex)
    try:
        html = mathml(LABEL.sub("", tex).strip(), display=True)
    except TeXError as error:
        return _bad(index, page, line, tex, error)
    if len(labels) != 1:
        index.diagnose(
            page.path, line, f"a displayed equation has one \\label{{eq:...}}, not {len(labels)}"
        )
        return f'<div class="equation">{html}</div>'
    anchor, number = "eq-" + escape(labels[0]), page.equations[labels[0]]
    return (
        f'<div class="equation" id="{anchor}" tabindex="0">{html}'
        f'<a class="equation-number" href="#{anchor}">({number})</a></div>'
    )


def _bad(index: Index, page: Page, line: int, tex: str, error: TeXError) -> str:
    index.diagnose(page.path, line, f"bad TeX: {error}: {tex.strip()}")
    return f'<code class="bad">{escape(tex)}</code>'


ELEMENT = re.compile(r"<(/?)(\w+)([^>]*?)(/?)>([^<]*)")
RELATIONS = frozenset("=≠≈≡∼≃<>≤≥≪≫∈∉⊂⊆→↦⇒⇔∝")
OPERATORS = frozenset("+−±⋅×,;")
LONG = 20  # characters that stay together


def breakable(html: str) -> str:
    """A formula inside a line; in a long one the line may end behind relations, and behind operators where need be."""
    head, rest = html[: html.index(">") + 1], html[html.index(">") + 1 :].removesuffix("</math>")
    parts = _cut(_cut([rest], RELATIONS), OPERATORS)
    return "<wbr>".join(f"{head}{part}</math>" for part in parts)


def _cut(parts: list[str], behind: frozenset[str]) -> list[str]:
    """The long ones of the parts, cut behind these signs where they stand inside no other element."""
    done = []
    for part in parts:
        depth, start, sign = 0, 0, False
        for found in ELEMENT.finditer(part) if _length(part) > LONG else ():
            closing, name, attributes, empty, text = found.groups()
            depth += 0 if empty else -1 if closing else 1
            if not closing:  # a sign that is no operator, as in -1, has no space around it
                sign = name == "mo" and unescape(text) in behind and 'lspace="0"' not in attributes
            elif sign and depth == 0 and found.end() < len(part):
                done.append(part[start : found.end()])
                start = found.end()
        done.append(part[start:])
    return done


def _length(html: str) -> int:
    return len(unescape(re.sub(r"<[^>]*>", "", html)))


def font() -> bytes:
    """STIX Two Math as woff2 with no more than the characters used, and their larger and stretched forms."""
    return _font(frozenset(used))


@lru_cache(maxsize=1)
def _font(characters: frozenset[str]) -> bytes:
    from fontTools import subset
    from fontTools.ttLib import TTFont

    package = find_spec("ziamath")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("the font of the equations comes with the package ziamath")
    source = package.submodule_search_locations[0] + "/fonts/STIXTwoMath-Regular.ttf"
    options = subset.Options(flavor="woff2", layout_features=["*"], notdef_outline=True)
    options.drop_tables += ["DSIG"]
    stix = TTFont(source, recalcTimestamp=False)
    cutter = subset.Subsetter(options)
    letters = {letter for one in characters for letter in one + _italic(one)}
    # a root's sign stands in no element's text
    cutter.populate(text="".join(sorted(letters)) + " √")
    cutter.subset(stix)
    stix.flavor = "woff2"
    written = io.BytesIO()
    stix.save(written)
    return written.getvalue()


def _italic(letter: str) -> str:
    """The mathematical italic that a browser shows for a single letter in `<mi>`."""
    code = ord(letter)
    if letter == "h":
        return "\N{PLANCK CONSTANT}"
    if "A" <= letter <= "Z":
        return chr(0x1D434 + code - ord("A"))
    if "a" <= letter <= "z":
        return chr(0x1D44E + code - ord("a"))
    if "\N{GREEK SMALL LETTER ALPHA}" <= letter <= "\N{GREEK SMALL LETTER OMEGA}":
        return chr(0x1D6FC + code - ord("\N{GREEK SMALL LETTER ALPHA}"))
    return ""
