# Tangled from book/workshop/weave-figures.md
"""Finished pictures, and several of them in one."""

from __future__ import annotations

from collections.abc import Sequence

from weave.figures.svg import LINE, Drawing, width_of

GAP = 28.0  # between two pictures


class Picture(str):
    """The text of an `<svg>` element that still knows its drawing, so that pictures can be put together."""

    drawing: Drawing

    @classmethod
    def of(cls, drawing: Drawing, title: str = "") -> Picture:
        """The drawing under its title, if it has one."""
        if title:
            whole = Drawing(
                max(drawing.width, width_of(title, bold=True)), drawing.height + LINE + 6
            )
            whole.text(whole.width / 2, LINE / 2, title, bold=True)
            whole.inside(drawing, (whole.width - drawing.width) / 2, LINE + 6)
            drawing = whole
        picture = cls(drawing.svg())
        picture.drawing = drawing
        return picture

    def _repr_svg_(self) -> str:
        """What notebooks, and cells of a page, show of it."""
        return str(self)


def beside(*pictures: Picture, title: str = "", arrows: Sequence[str] | None = None) -> Picture:
    """The pictures in a row, on one middle line; with `arrows`, one text for each gap, an arrow with it between two."""
    gaps = [GAP] * (len(pictures) - 1)
    if arrows is not None:
        if len(arrows) != len(gaps):
            raise ValueError(f"{len(pictures)} pictures have {len(gaps)} gaps, not {len(arrows)}")
        gaps = [max(width_of(line) for line in text.split("\n")) + 36 for text in arrows]
    whole = Drawing(
        sum(picture.drawing.width for picture in pictures) + sum(gaps),
        max(picture.drawing.height for picture in pictures),
    )
    x, middle = 0.0, whole.height / 2
    for number, picture in enumerate(pictures):
        whole.inside(picture.drawing, x, middle - picture.drawing.height / 2)
        x += picture.drawing.width
        if number < len(gaps):
            if arrows is not None:
                text, left, right = arrows[number], x + 8, x + gaps[number] - 8
                whole.path([(left, middle), (right, middle)])
                whole.path([(right - 7, middle - 4), (right, middle), (right - 7, middle + 4)])
                whole.text((left + right) / 2, middle - 8 - LINE / 2 * len(text.split("\n")), text)
            x += gaps[number]
    return Picture.of(whole, title)


def below(*pictures: Picture, title: str = "") -> Picture:
    """The pictures one below the other, left edges in line."""
    whole = Drawing(
        max(picture.drawing.width for picture in pictures),
        sum(picture.drawing.height for picture in pictures) + GAP * 0.7 * (len(pictures) - 1),
    )
    y = 0.0
    for picture in pictures:
        whole.inside(picture.drawing, 0, y)
        y += picture.drawing.height + GAP * 0.7
    return Picture.of(whole, title)
