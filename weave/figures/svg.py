# Tangled from book/workshop/weave-figures.md
"""The one place that writes SVG: elements, colours that follow the page's theme, widths of text."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

SIZE = 14.0  # of text, in px
LINE = 18.0  # from one line of text to the next

# name -> the light colour, for a picture without a style sheet; book/assets/figures.css has it too, and a dark one.
# On every filling ("heat", "heat-negative", "group-0" ...) the text colour "ink" is readable in both themes.
COLOURS = {
    "ink": "#1f2328",
    "faint": "#57606a",
    "rule": "#8c959f",
    "grid": "#d8dee4",
    "paper": "#ffffff",
    "heat": "#6fa8ff",
    "heat-negative": "#ffa057",
    "group-0": "#b6d4ff",
    "group-1": "#ffd8a8",
    "group-2": "#b8e6c1",
    "group-3": "#f3c4dd",
    "group-4": "#d9ccf5",
    "group-5": "#e8e3a3",
    "line-0": "#0b57c2",
    "line-1": "#a84300",
    "line-2": "#116329",
    "line-3": "#a3195b",
}
GROUPS = 6
LINES = 4


def colour(name: str) -> str:
    """The CSS value of a colour of `COLOURS`: the page's variable, else the colour written there."""
    return f"var(--fig-{name},{COLOURS[name]})"


def listed(values: Any) -> Any:
    """A Tensor, an array or a sequence as plain nested lists of Python numbers."""
    if callable(getattr(values, "numpy", None)):
        values = values.numpy()
    if hasattr(values, "tolist"):
        return values.tolist()
    if isinstance(values, (list, tuple, range)):
        return [listed(value) for value in values]
    return values


def decimals(value: float, digits: int) -> str:
    """The number as it is printed: `digits` decimals, a true minus sign, never a minus zero."""
    text = f"{value:.{digits}f}"
    if not text.strip("-0."):
        text = text.lstrip("-")
    return text.replace("-", "\N{MINUS SIGN}")


def width_of(text: str, *, bold: bool = False) -> float:
    """About how wide a line of text is, in px. No font is measured: it is what a wide one needs, such as DejaVu Sans."""
    narrow = sum(text.count(letter) for letter in "ijlI.,:;|!'()[]ftr- ")
    wide = sum(text.count(letter) for letter in "mwMW@%→−+=<>")
    capital = sum(letter.isupper() for letter in text)
    return (
        SIZE
        * (1.13 if bold else 1.0)
        * (0.64 * len(text) - 0.24 * narrow + 0.25 * wide + 0.1 * capital)
    )


def _number(value: float) -> str:
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")  # + 0.0: no minus zero


class Drawing:
    """A picture under construction; x to the right, y down, in px. `svg()` gives its text."""

    def __init__(self, width: float = 0.0, height: float = 0.0) -> None:
        self.width = width
        self.height = height
        self._elements: list[str] = []

    def rectangle(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str = "",
        opacity: float = 1.0,
        stroke: str = "rule",
        dashed: bool = False,
        radius: float = 0.0,
    ) -> None:
        """A rectangle filled with the colour named `fill` ("" for none) at `opacity`."""
        style = f"fill:{colour(fill)};" if fill else "fill:none;"
        if fill and opacity < 1.0:
            style += f"fill-opacity:{opacity:.3f};"
        style += f"stroke:{colour(stroke)}" if stroke else "stroke:none"
        if dashed:
            style += ";stroke-dasharray:4 3"
        corner = f' rx="{_number(radius)}"' if radius else ""
        self._elements.append(
            f'<rect x="{_number(x)}" y="{_number(y)}" width="{_number(width)}"'
            f' height="{_number(height)}"{corner} style="{style}"/>'
        )

    def line(
        self, x1: float, y1: float, x2: float, y2: float, *, stroke: str = "rule", width: float = 1
    ) -> None:
        """A straight line."""
        self.path([(x1, y1), (x2, y2)], stroke=stroke, width=width)

    def path(
        self,
        points: Iterable[tuple[float, float]] | str,
        *,
        stroke: str = "ink",
        width: float = 1,
        dashes: str = "",
        fill: str = "",
    ) -> None:
        """A line through the points, or the path whose SVG data are given as text."""
        if not isinstance(points, str):
            points = "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in points)
        style = f"fill:{colour(fill) if fill else 'none'};stroke:{colour(stroke)}"
        style += f";stroke-width:{_number(width)}" if width != 1 else ""
        style += f";stroke-dasharray:{dashes}" if dashes else ""
        self._elements.append(f'<path d="{points}" style="{style}"/>')

    def circle(self, x: float, y: float, radius: float, *, fill: str = "ink") -> None:
        """A filled circle without a border."""
        self._elements.append(
            f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{_number(radius)}"'
            f' style="fill:{colour(fill)}"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "middle",
        fill: str = "ink",
        bold: bool = False,
        upright: bool = True,
        link: str = "",
        halo: bool = False,
    ) -> None:
        """Lines of text, centred on the height `y`, with `anchor` start, middle or end.

        Not `upright` reads upwards; a `halo` keeps lines that run behind the text away from it.
        """
        style = f"fill:{colour(fill)};font-size:{_number(SIZE)}px;text-anchor:{anchor}"
        style += ";font-weight:700" if bold else ""
        if halo:
            style += f";paint-order:stroke;stroke:{colour('paper')};stroke-width:4px"
        turned = "" if upright else f' transform="rotate(-90 {_number(x)} {_number(y)})"'
        lines = text.split("\n")
        top = y - (len(lines) - 1) * LINE / 2 + SIZE * 0.35
        for number, line in enumerate(lines):
            if line:
                element = (
                    f'<text x="{_number(x)}" y="{_number(top + number * LINE)}"{turned}'
                    f' style="{style}">{escape(line, quote=False)}</text>'
                )
                self._elements.append(
                    f'<a href="{escape(link)}">{element}</a>' if link else element
                )

    def inside(self, other: Drawing, x: float, y: float) -> None:
        """Another drawing with its corner at (x, y)."""
        self._elements.append(f'<g transform="translate({_number(x)} {_number(y)})">')
        self._elements += other._elements
        self._elements.append("</g>")

    def svg(self) -> str:
        """The picture as one `<svg>` element, as wide as drawn where there is room and never under 3/4 of that."""
        width, height = _number(self.width), _number(self.height)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="figure" viewBox="0 0 {width} {height}"'
            f' width="{width}" height="{height}" style="min-width:{_number(self.width * 0.75)}px">\n'
            + "\n".join(self._elements)
            + "\n</svg>"
        )
