# Tangled from book/workshop/proof.md
"""Every number with four or more decimals in the prose is computed by its chapter."""

import re
from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import islice
from numbers import Real
from pathlib import Path

import numpy as np
import pytest

from weave.model.index import Index
from weave.model.page import between
from weave.run.outputs import cells, known, results

ROOT = Path(__file__).resolve().parents[2]
INDEX = Index(str(ROOT / "book"))
MOST = 200
SHOWN = re.compile(r"-?\b\d+(?:\.\d+)?(?:e[-+]?\d+)?\b")


NOT_NUMBERS = re.compile(
    r"<!--.*?-->|\w+://\S+|\b(?:arxiv|doi)[:.]\S+|\b10\.\d{4,}/\S+", re.I | re.S
)
NUMBER = re.compile(
    r"""
    (?P<before> [\w)}\]] [ ]? )? (?P<sign> [-−±] )?
    (?<![\w.,]) (?P<whole> \d{1,3}(?:,\d{3})+ | \d+ ) \. (?P<decimals> \d{4,} ) (?! \.?\d )
    (?: e (?P<e> [-+]?\d+ ) | \s* (?: \\times | · | × ) \s* 10\^ (?P<power> \d | \{ -? \d+ \} ) )?
    """,
    re.VERBOSE,
)


def prose_of(page):
    """The pieces of text that the page shows, each with the line it begins at."""
    for first, lines in between(page.text.split("\n"), page.blocks):
        yield first, "\n".join(lines)
    for block in page.blocks:
        if {"chapter", "pitfall"} & set(block.classes):
            yield block.line + 1, block.body
        for shown in ("alt", "caption"):
            yield block.line, block.attributes.get(shown, "")


def printed(pieces):
    """Each number with four or more decimals, with its line."""
    for first, text in pieces:
        text = NOT_NUMBERS.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
        for match in NUMBER.finditer(text):
            yield first + text.count("\n", 0, match.start("whole")), match


def values_of(page):
    """What the chapter's blocks of values compute and its cells show: number, name, line of the block."""
    names = {"__name__": "values"}
    for block in page.blocks:
        if "values" not in block.classes:
            continue
        before = dict(names)
        code = "\n" * block.line + INDEX.body(block)
        exec(compile(code, str(ROOT / "book" / page.path), "exec"), names)
        for name, value in names.items():
            if not name.startswith("_") and (name not in before or before[name] is not value):
                some = list(islice(numbers_in(value), MOST + 1))
                if len(some) <= MOST:
                    yield from ((number, name, block.line) for number in some)
    ran = cells(page) and (known(INDEX, page) or results(INDEX, page))
    for block, result in zip(cells(page), ran, strict=False):
        for _, text in result["shown"]:
            for number in SHOWN.findall(re.sub("<[^>]*>", " ", text)):
                yield Decimal(number), "a cell", block.line


def numbers_in(value):
    """The numbers of a value: itself, or what is in it."""
    if isinstance(getattr(value, "data", None), np.ndarray):  # a tensor
        value = value.data
    if isinstance(value, np.ndarray | np.generic):
        value = value.ravel()[: MOST + 1].tolist()
    if isinstance(value, Real) and not isinstance(value, bool):
        number = Decimal(value) if isinstance(value, int | float) else Decimal(float(value))
        if number.is_finite():
            yield number
    elif isinstance(value, Mapping):
        yield from (number for part in value.values() for number in numbers_in(part))
    elif isinstance(value, list | tuple | set):
        yield from (number for part in value for number in numbers_in(part))


def fault(match, computed):
    """What is wrong with a printed number; "" where it is right."""
    digits = len(match["decimals"])
    power = int((match["e"] or match["power"] or "0").strip("{}"))
    wanted = Decimal(match["whole"].replace(",", "") + "." + match["decimals"])
    signs = {1}
    if match["sign"]:
        signs = {-1, 1} if match["before"] or match["sign"] == "±" else {-1}
    unit = Decimal(1).scaleb(-digits)
    distances = []
    for number, name, line in computed:
        number = number.scaleb(-power)
        distance = min(abs(number - sign * wanted) for sign in signs)
        if distance <= unit:
            rounded = number.quantize(unit, ROUND_HALF_EVEN)
            if any(rounded == sign * wanted for sign in signs):
                return ""
        shown = f"{float(number):.{digits + 2}f}" + (f"e{power}" if power else "")
        distances.append((distance, f"{shown} ({name}, line {line})"))
    nearest = "; ".join(dict.fromkeys(text for _, text in sorted(distances)[:3]))
    text = match[0].removeprefix(match["before"] or "")
    return f"{text} is printed, but neither a cell nor a values block computes it. Nearest: {nearest or 'there are no values'}"


@pytest.mark.parametrize("page", sorted(INDEX.pages))
def test_numbers_are_computed(page):
    page = INDEX.pages[page]
    found = list(printed(prose_of(page)))
    computed = (
        list(values_of(page)) if found or any("values" in b.classes for b in page.blocks) else []
    )
    faults = [
        f"{page.path}:{line}: {fault(number, computed)}"
        for line, number in found
        if fault(number, computed)
    ]
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.055807", 0.0558072),
        ("a - 0.1235", 0.12345678),
        ("x = -0.1235", -0.12345678),
        ("−0.1235", -0.12345678),
        ("±1.3416", 1.34164),
        ("1,234.5000", 1234.5),
        ("1.2346e-5", 1.23456e-5),
        (r"$1.2346 \times 10^{-5}$", 1.23456e-5),
        ("0.7071", np.float32(0.70710678)),
        ("[0.1000, 2.0000]", {"a": np.array([[0.1], [2.0]])}),
        ("2.0000", 2),
        ("0.5000", np.float64(0.5)),
    ],
)
def test_right_numbers(text, value):
    computed = [(number, "v", 1) for number in numbers_in(value)]
    found = list(printed([(1, text)]))
    assert found
    assert [fault(match, computed) for _, match in found] == [""] * len(found)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.055817", 0.0558072),
        ("0.1235", -0.12345678),
        ("x = -0.1235", 0.12345678),
        ("0.12345", 0.12345678),
        ("1.2346", 1.23456e-5),
        ("1.2346e-4", 1.23456e-5),
        ("1,234.5678", 234.5678),
        ("1.0000", True),
    ],
)
def test_wrong_numbers(text, value):
    ((_, match),) = printed([(1, text)])
    assert "is printed" in fault(match, [(number, "v", 1) for number in numbers_in(value)])


def test_fault_names_line_and_nearest():
    ((line, match),) = printed([(7, "two lines\nand 0.055817 in the second")])
    assert line == 8
    assert "Nearest: 0.05580722 (weight, line 3)" in fault(
        match, [(Decimal("0.0558072215"), "weight", 3)]
    )


@pytest.mark.parametrize(
    "text",
    [
        "https://arxiv.org/abs/1706.03762",
        "arXiv:1706.03762",
        "doi:10.1109/5.771073",
        "10.48550/arXiv.1706.03762",
        "<!-- 0.1234 -->",
        "version 1.2345.6",
        "0.123",
    ],
)
def test_what_is_no_number(text):
    assert not list(printed([(1, text)]))
