# Tangled from book/workshop/weave-figures.md
"""Curves and bars."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from weave.figures.panels import Picture
from weave.figures.svg import LINE, LINES, Drawing, decimals, listed, width_of

DASHES = ("", "7 4", "2 3", "9 3 2 3")  # so that curves can be told apart without colour


def line_plot(
    x: Any,
    series: Mapping[str, Any],
    *,
    x_title: str = "",
    y_title: str = "",
    title: str = "",
    x_log: bool = False,
    y_log: bool = False,
    points: bool = False,
    low: float | None = None,
    high: float | None = None,
    width: float = 460.0,
    height: float = 260.0,
) -> Picture:
    """Curves over one axis: `series` maps each curve's name to its values, as many as `x` has.

    The name stands at the curve's right end. `points=True` marks every value, `low` and `high` set the
    ends of the y axis, the logarithmic axes are of base 10. Values that are NaN leave a gap.
    """
    along = [float(value) for value in listed(x)]
    curves = _curves(series, len(along))
    finite = [v for values in curves.values() for v in values if math.isfinite(v)]
    across = _Axis(min(along), max(along), x_log, tight=True)
    up = _Axis(min(finite) if low is None else low, max(finite) if high is None else high, y_log)

    labels = [up.label(tick) for tick in up.ticks]
    top, left = LINE / 2 + 2, max(map(width_of, labels)) + 12 + (LINE + 4 if y_title else 0)
    right = left + width + 14 + max((width_of(name) for name in curves), default=0.0)
    drawing = Drawing(right, top + height + LINE + 8 + (LINE + 2 if x_title else 0))

    def place(px: float, py: float) -> tuple[float, float]:
        return left + across.share(px) * width, top + (1 - up.share(py)) * height

    for tick, label in zip(up.ticks, labels, strict=True):
        y = top + (1 - up.share(tick)) * height
        drawing.line(left, y, left + width, y, stroke="grid")
        drawing.text(left - 6, y, label, anchor="end", fill="faint")
    for tick in across.ticks:
        at = left + across.share(tick) * width
        drawing.line(at, top + height, at, top + height + 5)
        drawing.text(at, top + height + 6 + LINE / 2, across.label(tick), fill="faint")
    if x_title:
        drawing.text(left + width / 2, drawing.height - LINE / 2, x_title)
    if y_title:
        drawing.text(LINE / 2, top + height / 2, y_title, upright=False)
    ends = []
    for number, (name, values) in enumerate(curves.items()):
        hue = f"line-{number}"
        for is_finite, some in groupby(zip(along, values, strict=True), _is_finite):
            run = [place(*point) for point in some] if is_finite else []
            for spot in run if points else ():
                drawing.circle(*spot, 3, fill=hue)
            if len(run) > 1:
                drawing.path(run, stroke=hue, width=2, dashes=DASHES[number])
        last = next((v for v in reversed(values) if math.isfinite(v)), up.low)
        ends.append((place(across.high, last)[1], name, hue))
    _name(drawing, left + width + 10, ends)
    return Picture.of(drawing, title)


def _curves(series: Mapping[str, Any], count: int) -> dict[str, list[float]]:
    """Each curve's numbers. ValueError for too many curves, and for one of another length than x."""
    if len(series) > LINES:
        raise ValueError(f"line_plot: {len(series)} curves; more than {LINES} cannot be told apart")
    curves = {name: [float(v) for v in listed(values)] for name, values in series.items()}
    for name, values in curves.items():
        if len(values) != count:
            raise ValueError(f"line_plot: {name!r} has {len(values)} values for {count} of x")
    return curves


def _is_finite(point: tuple[float, float]) -> bool:
    return math.isfinite(point[1])


def _name(drawing: Drawing, x: float, ends: list[tuple[float, str, str]]) -> None:
    """Each curve's name at its end: height, name, hue. Names of curves that end close together keep a line's distance."""
    floor = -LINE
    for y, name, hue in sorted(ends):
        floor = max(y, floor + LINE)
        drawing.text(x, floor, name, anchor="start", fill=hue)
    drawing.height = max(drawing.height, floor + LINE)


def bar_chart(
    values: Mapping[str, float],
    *,
    title: str = "",
    digits: int = 2,
    unit: str = "",
    mark: float | None = None,
    width: float = 320.0,
) -> Picture:
    """One bar for each name, its number at its end. `mark` draws a line across all bars, e.g. at 1.0 for ratios.

    All numbers are at least 0. `unit` is written after each number.
    """
    numbers = {name: float(value) for name, value in values.items()}
    if any(not value >= 0 for value in numbers.values()):
        raise ValueError("bar_chart: bars start at 0, so no number may be negative or NaN")
    texts = [decimals(value, digits) + (" " + unit if unit else "") for value in numbers.values()]
    full = max([*numbers.values(), mark or 0.0]) or 1.0
    left = max(width_of(name) for name in numbers) + 10
    drawing = Drawing(left + width + 8 + max(map(width_of, texts)), len(numbers) * 28.0 + 4)
    for row, (name, value) in enumerate(numbers.items()):
        y = row * 28.0 + 2
        drawing.text(left - 8, y + 12, name, anchor="end")
        drawing.rectangle(left, y + 2, width * value / full, 20, fill="heat", stroke="rule")
    if mark is not None:
        at = left + width * mark / full
        drawing.path([(at, 0), (at, drawing.height)], width=1.5, dashes="4 3")
    for row, (value, text) in enumerate(zip(numbers.values(), texts, strict=True)):
        at = left + width * value / full
        drawing.text(at + 6, row * 28.0 + 14, text, anchor="start", halo=True)
    return Picture.of(drawing, title)


class _Axis:
    """An axis from `low` to `high`: its round ticks, and where on it a value stands, from 0 to 1."""

    def __init__(self, low: float, high: float, log: bool, *, tight: bool = False) -> None:
        self.log = log
        self.digits = 0
        if log:
            if low <= 0:
                raise ValueError(f"a logarithmic axis cannot show {low}")
            first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
            self.ticks: Sequence[float] = [10.0**power for power in range(first, last + 1)]
            if tight:
                self.ticks = [tick for tick in self.ticks if low <= tick <= high]
            self.low, self.high = (low, high) if tight else (10.0**first, 10.0**last)
            return
        if low == high:
            low, high = low - 0.5, high + 0.5
        rough = (high - low) / 5
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(n * unit for n in (1, 2, 5, 10) if n * unit >= rough * 0.999)
        self.digits = max(0, -math.floor(math.log10(step) + 1e-9))
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        self.ticks = [number * step for number in range(first, last + 1)]
        self.low, self.high = self.ticks[0], self.ticks[-1]
        if tight:
            slack = step * 1e-6
            self.ticks = [t for t in self.ticks if low - slack <= t <= high + slack]
            self.low, self.high = low, high

    def share(self, value: float) -> float:
        if self.log:
            value, low, high = math.log10(value), math.log10(self.low), math.log10(self.high)
        else:
            low, high = self.low, self.high
        return (value - low) / ((high - low) or 1.0)

    def label(self, tick: float) -> str:
        if self.log:
            return f"{tick:g}" if 1e-3 <= tick < 1e5 else f"{tick:.0e}".replace("e-0", "e-")
        return decimals(tick, self.digits)
