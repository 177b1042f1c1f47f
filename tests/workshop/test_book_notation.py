# Tangled from book/workshop/proof.md
"""The tables of symbols agree with the notation of the book."""

import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

BOOK = Path(__file__).resolve().parents[2] / "book"
NOTATION = BOOK / "reference/notation.md"
CHAPTERS = sorted(BOOK.glob("[1-9]-*/*.md"))


class Row(NamedTuple):
    """A symbol of a table: the cells of its row, and where it stands."""

    symbol: str
    cells: list[str]
    chapter: str
    place: str


def symbols(text):
    """The symbols between dollars: of `$Q, K$ and $f(x, y)$` the three Q, K, f(x, y)."""
    for formula in re.findall(r"\$([^$]*)\$", text):
        for part in re.split(r",(?![^({]*[)}])", formula):
            if part.strip() != r"\dots":
                yield part.strip()


def rows(path, text):
    """The rows of the tables of symbols in a text."""
    chapter, inside = re.match(r"[A-Z]+(-[A-Z])?[\d.]+", path.name), False
    for number, line in enumerate(map(str.strip, text.split("\n")), 1):
        inside = line.startswith("|") and (inside or line.startswith("| symbol |"))
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if inside and not line.startswith("|-"):
            for symbol in symbols(cells[0]):
                yield Row(symbol, cells, chapter[0] if chapter else "", f"{path.name}:{number}")


def disagreements(notation, chapters):
    """What is wrong. `notation`: its rows, and the letters without a home."""
    rows, homeless = notation
    known, used, needed = defaultdict(list), defaultdict(set), set()
    for row in rows:
        known[row.symbol].append(row)
    for row in chapters:
        used[row.symbol].add(row.chapter)
        some = known[row.symbol] or (known[r"\bar v"] if row.symbol.startswith(r"\bar") else [])
        if any(agrees(row.cells, one.cells) for one in some) or not some:
            continue
        needed.add((row.symbol, row.chapter))
        if not any(row.chapter in one.cells[4].split(", ") for one in some):
            yield f"{row.place}: ${row.symbol}$ is {row.cells[1]}; {NOTATION.name} says {some[0].cells[1]}"
    for row in rows:
        for chapter in filter(None, row.cells[4].split(", ")):
            if (row.symbol, chapter) not in needed:
                yield f"{row.place}: {chapter} is no exception for ${row.symbol}$"
        if re.match(r"\[([^]]*)", row.cells[3])[1] not in used[row.symbol]:
            yield f"{row.place}: ${row.symbol}$ is not introduced there"
    for symbol, where in used.items():
        if len(where) > 1 and not known[symbol] and symbol not in homeless and "bar" not in symbol:
            yield f"{NOTATION.name}: ${symbol}$ of {', '.join(sorted(where))} is missing"


def agrees(cells, wanted):
    """Whether a chapter's row has the bold words of the notation's, and its last axes."""
    words = all(bold in cells[1] for bold in re.findall(r"\*\*(.*?)\*\*", wanted[1]))
    shape = re.fullmatch(r"\[\.\.\.(, .*\])", wanted[2])
    return words and (not shape or shape[1] in cells[2])


def notation_of(text):
    """The rows of the notation, and the letters without a home."""
    return list(rows(NOTATION, text)), set(symbols(text.partition("without a home")[2]))


def test_chapters_agree_on_what_letters_mean():
    chapters = [row for p in CHAPTERS for row in rows(p, p.read_text(encoding="utf-8"))]
    assert len({row.chapter for row in chapters}) > 10
    wrong = list(disagreements(notation_of(NOTATION.read_text(encoding="utf-8")), chapters))
    assert not wrong, "\n".join(wrong)


TABLE = """
| symbol | meaning | shape | introduced in | something else in |
|---|---|---|---|---|
| $Q$ | **queries** | [..., Tq, d] | [L1](a) | {} |
| $\\bar v$ | the **gradient** | | [L1](a) | |

### Letters without a home: $x$
"""


@pytest.mark.parametrize(
    ("row", "exception", "wrong"),
    [
        ("| $Q, K$ | queries and keys | [B, Tq, d] twice |", "", []),
        ("| $Q$ | questions | [B, Tq, d] |", "", ["L2-b.md:3: $Q$ is questions"]),
        ("| $Q$ | queries | [Tk, d] |", "", ["L2-b.md:3: $Q$ is queries"]),
        ("| $Q$ | questions | |", "L2", []),
        ("| $Q$ | queries | [B, Tq, d] |", "L2", ["notation.md:4: L2 is no exception for $Q$"]),
        ("| $x$ | one thing | |", "", []),
        ("| $y$, $z$ | one thing | |", "", ["notation.md: $y$ of L1, L2 is missing"]),
        (r"| $\bar Q$ | the gradient | |", "", []),
        (r"| $\bar Q$ | the slope | |", "", ["L2-b.md:3: $\\bar Q$ is the slope"]),
    ],
)
def test_disagreements_are_found(row, exception, wrong):
    head = "| symbol | what it is | type |\n|---|---|---|\n"
    first = "| $Q$ | queries | [T, Tq, d] |\n| $x$, $y$ | 1 | |\n| $\\bar v$ | its gradient | |"
    chapters = [*rows(Path("L1-a.md"), head + first), *rows(Path("L2-b.md"), head + row)]
    found = list(disagreements(notation_of(TABLE.format(exception)), chapters))
    assert len(found) == len(wrong)
    assert all(one.startswith(start) for one, start in zip(found, wrong, strict=True))
