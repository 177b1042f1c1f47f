# Tangled from book/workshop/weave-figures.md
"""Pictures made of cells: matrices of numbers, masks, and layouts of labelled elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weave.figures.panels import Picture
from weave.figures.svg import GROUPS, LINE, Drawing, decimals, listed, width_of

HEIGHT = 30.0  # of a cell

Painter = Callable[[Drawing, int, int, float, float, float], None]


def heat_map(
    values: Any,
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    row_title: str = "",
    column_title: str = "",
    title: str = "",
    digits: int = 2,
    high: float | None = None,
    numbers: bool = True,
) -> Picture:
    """A matrix [R, C], each cell filled the stronger the larger its number, and the number written in it.

    Positive and negative numbers have two colours. `high` is the size that is filled fully (by default
    the largest there is); give the same to pictures that are to be compared. In a bool matrix (a mask)
    True is filled and False is crossed out; NaN and None are crossed out too. `rows` and `columns`
    label the cells; `row_title` and `column_title` say what the axes are. `numbers=False` leaves the
    numbers out, for large matrices.
    """
    matrix = _matrix(listed(values))
    present = [abs(float(value)) for row in matrix for value in row if not _crossed(value)]
    full = max(present, default=1.0) if high is None else float(high)

    def written(value: Any) -> str:
        if _crossed(value) or isinstance(value, bool) or not numbers:
            return ""
        return decimals(float(value), digits)

    texts = [[written(value) for value in row] for row in matrix]

    def paint(drawing: Drawing, row: int, column: int, x: float, y: float, width: float) -> None:
        value = matrix[row][column]
        drawing.rectangle(x, y, width, HEIGHT, fill="paper")
        if _crossed(value):
            drawing.line(x, y, x + width, y + HEIGHT)
            drawing.line(x, y + HEIGHT, x + width, y)
            return
        share = min(1.0, abs(float(value)) / full) if full else 0.0
        hue = "heat" if float(value) >= 0 else "heat-negative"
        drawing.rectangle(x, y, width, HEIGHT, fill=hue, opacity=share)
        drawing.text(x + width / 2, y + HEIGHT / 2, texts[row][column])

    return _cells(texts, paint, rows, columns, row_title, column_title, title)


def grid(
    labels: Any,
    *,
    groups: Any = None,
    legend: Mapping[int, str] | None = None,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    row_title: str = "",
    column_title: str = "",
    title: str = "",
) -> Picture:
    """A layout [R, C]: which element stands where.

    `labels` are texts or numbers, written in the cells; None leaves a gap without a cell. `groups` gives
    each cell a number, and cells of one number one colour and as many dots in their corner, so that
    groups can be told apart without colour; -1 is an empty white cell's. `legend` names the groups.
    A one-dimensional list is one row.
    """
    matrix = _matrix(listed(labels))
    numbers = _matrix(listed(groups)) if groups is not None else [[-1] * len(r) for r in matrix]
    if [len(row) for row in numbers] != [len(row) for row in matrix]:
        raise ValueError("grid: groups must have the shape of the labels")
    texts = [["" if value is None else str(value) for value in row] for row in matrix]

    def paint(drawing: Drawing, row: int, column: int, x: float, y: float, width: float) -> None:
        if matrix[row][column] is None:
            return
        _group_cell(drawing, int(numbers[row][column]), x, y, width)
        drawing.text(x + width / 2, y + HEIGHT / 2 + 2, texts[row][column])

    return _cells(texts, paint, rows, columns, row_title, column_title, title, legend or {})


def _group_cell(drawing: Drawing, group: int, x: float, y: float, width: float) -> None:
    fill = f"group-{group % GROUPS}" if group >= 0 else "paper"
    drawing.rectangle(x, y, width, HEIGHT, fill=fill)
    for dot in range(max(0, group)):
        drawing.circle(x + 5 + 5 * dot, y + 5, 1.6)


def _matrix(values: Any) -> list[list[Any]]:
    rows = values if values and isinstance(values[0], list) else [values]
    if len({len(row) for row in rows}) != 1 or any(isinstance(v, list) for r in rows for v in r):
        raise ValueError("a picture of cells needs one or two dimensions, and rows of one length")
    return rows


def _crossed(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, float) and math.isnan(value))


def _cells(
    texts: list[list[str]],
    paint: Painter,
    rows: Sequence[str] | None,
    columns: Sequence[str] | None,
    row_title: str,
    column_title: str,
    title: str,
    legend: Mapping[int, str] | None = None,
) -> Picture:
    """Cells with their labels and titles around them; `paint` draws the one at (x, y)."""
    count = len(texts), len(texts[0])
    for what, names, wanted in (("rows", rows, count[0]), ("columns", columns, count[1])):
        if names is not None and len(names) != wanted:
            raise ValueError(f"{len(names)} labels for {wanted} {what}")
    inner = max((width_of(text) for row in texts for text in row), default=0.0)
    inner = max([inner, *(width_of(str(name)) for name in columns or ())])
    width = max(HEIGHT, inner + 14)
    left = (LINE + 4 if row_title else 0.0) + max(
        (width_of(str(name)) + 8 for name in rows or ()), default=0.0
    )
    top = (LINE if column_title else 0.0) + (LINE if columns is not None else 0.0) + 2
    drawing = Drawing(left + count[1] * width + 1, top + count[0] * HEIGHT + 1)
    middle = left + count[1] * width / 2
    if column_title:
        drawing.text(middle, LINE / 2, column_title, fill="faint")
        reach = width_of(column_title) / 2
        drawing.width = max(drawing.width, middle + reach)
    if row_title:
        drawing.text(LINE / 2, top + count[0] * HEIGHT / 2, row_title, fill="faint", upright=False)
    for column, name in enumerate(columns or ()):
        drawing.text(left + (column + 0.5) * width, top - LINE / 2 - 1, str(name))
    for row, name in enumerate(rows or ()):
        drawing.text(left - 6, top + (row + 0.5) * HEIGHT, str(name), anchor="end")
    for row in range(count[0]):
        for column in range(count[1]):
            paint(drawing, row, column, left + column * width, top + row * HEIGHT, width)
    x, y = left, drawing.height + 12
    for group, name in (legend or {}).items():
        _group_cell(drawing, group, x, y, HEIGHT)
        drawing.text(x + HEIGHT + 6, y + HEIGHT / 2, name, anchor="start")
        drawing.width = max(drawing.width, x + HEIGHT + 6 + width_of(name))
        y += HEIGHT + 6
        drawing.height = y
    return Picture.of(drawing, title)
