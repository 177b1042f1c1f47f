# Tangled from book/workshop/weave-figures.md
"""Graphs without cycles: nodes in layers, arrows between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from weave.figures.panels import Picture
from weave.figures.svg import LINE, Drawing, width_of

BETWEEN = 22.0  # nodes of one layer
LAYERS = 46.0  # between two layers


@dataclass(eq=False)
class _Node:
    name: str
    text: str = ""
    width: float = 0.0
    height: float = 0.0
    above: list[_Node] = field(default_factory=list)
    below: list[_Node] = field(default_factory=list)
    layer: int = 0
    x: float = 0.0  # of the middle, across the layers
    y: float = 0.0
    corner: bool = False  # of a long edge, not a node to be seen


def graph(
    nodes: Mapping[str, str],
    edges: Iterable[tuple[str, str] | tuple[str, str, str]],
    *,
    title: str = "",
    links: Mapping[str, str] | None = None,
    faint: Iterable[str] = (),
    across: bool = True,
) -> Picture:
    """A graph without cycles: `nodes` maps each name to the text in its box, `edges` are pairs of names.

    The text may have several lines. An arrow runs from the first name of a pair to the second; a third
    entry is the arrow's label. Arrows point right, or down with `across=False`. `links` gives the nodes
    that are links their address; nodes in `faint` are drawn pale with a dashed border.
    """
    if not nodes:
        raise ValueError("graph: there are no nodes")
    made = {name: _box(name, text) for name, text in nodes.items()}
    pairs = []
    for start, end, *rest in edges:
        for name in (start, end):
            if name not in made:
                raise ValueError(f"graph: an edge names {name!r}, which is no node")
        pairs.append((made[start], made[end], "".join(rest)))
    _rank(made, [(start, end) for start, end, _ in pairs])
    everyone = list(made.values())
    chains = [_chain(start, end, everyone) for start, end, _ in pairs]
    layers = _ordered(everyone)
    _place(layers, across, [label for _, _, label in pairs])

    drawing = Drawing()
    for node in everyone:
        for upright, size in ((True, node.width), (False, node.height)):
            at = (node.x if upright != across else node.y) + size / 2 + 2
            if upright:
                drawing.width = max(drawing.width, at)
            else:
                drawing.height = max(drawing.height, at)
    pale = set(faint)
    for chain, (_, _, label) in zip(chains, pairs, strict=True):
        colour = "rule" if {chain[0].name, chain[-1].name} & pale else "faint"
        _arrow(drawing, chain, across, label, colour)
    for name, node in made.items():
        x, y = (node.y, node.x) if across else (node.x, node.y)
        drawing.rectangle(
            x - node.width / 2,
            y - node.height / 2,
            node.width,
            node.height,
            fill="paper" if name in pale else "group-0",
            stroke="rule" if name in pale else "faint",
            dashed=name in pale,
            radius=4,
        )
        drawing.text(
            x,
            y,
            node.text,
            fill="faint" if name in pale else "ink",
            link=(links or {}).get(name, ""),
        )
    return Picture.of(drawing, title)


def _box(name: str, text: str) -> _Node:
    lines = text.split("\n")
    return _Node(name, text, max(map(width_of, lines)) + 18, LINE * len(lines) + 12)


def _rank(nodes: Mapping[str, _Node], pairs: list[tuple[_Node, _Node]]) -> None:
    """Layer of a node: the length of the longest path that leads to it."""
    waiting = {id(node): sum(1 for _, end in pairs if end is node) for node in nodes.values()}
    ready = [node for node in nodes.values() if not waiting[id(node)]]
    for node in ready:
        for start, end in pairs:
            if start is node:
                end.layer = max(end.layer, node.layer + 1)
                waiting[id(end)] -= 1
                if not waiting[id(end)]:
                    ready.append(end)
    if len(ready) < len(nodes):
        left = sorted(node.name for node in nodes.values() if waiting[id(node)])
        raise ValueError(f"graph: a cycle among {', '.join(left)}")
    for node in reversed(ready):  # a source stands directly before the first node that it leads to
        after = [end.layer for start, end in pairs if start is node]
        if after and not any(end is node for _, end in pairs):
            node.layer = min(after) - 1


def _chain(start: _Node, end: _Node, everyone: list[_Node]) -> list[_Node]:
    """The edge as a row of neighbours, with a corner in every layer that it passes."""
    chain = [start]
    for layer in range(start.layer + 1, end.layer):
        chain.append(_Node("", width=4, height=4, layer=layer, corner=True))
        everyone.append(chain[-1])
    chain.append(end)
    for one, other in pairwise(chain):
        one.below.append(other)
        other.above.append(one)
    return chain


def _ordered(everyone: list[_Node]) -> list[list[_Node]]:
    """The layers, each in an order with few crossings: sweeps by the middle of the neighbours, best kept."""
    layers: list[list[_Node]] = [[] for _ in range(1 + max(node.layer for node in everyone))]
    for node in everyone:
        layers[node.layer].append(node)
    best, fewest = [list(layer) for layer in layers], _crossings(layers)
    for sweep in range(24):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            for other in layers:
                for place, node in enumerate(other):
                    node.x = place
            layer.sort(key=lambda node: _middle(node.above if down else node.below, node.x))
        count = _crossings(layers)
        if count < fewest:
            best, fewest = [list(layer) for layer in layers], count
    return best


def _middle(neighbours: list[_Node], otherwise: float) -> float:
    return sum(n.x for n in neighbours) / len(neighbours) if neighbours else otherwise


def _crossings(layers: list[list[_Node]]) -> int:
    count = 0
    for upper, lower in pairwise(layers):
        place = {id(node): number for number, node in enumerate(lower)}
        ends = [[place[id(end)] for end in node.below] for node in upper]
        for number, mine in enumerate(ends):
            for theirs in ends[number + 1 :]:
                count += sum(1 for a in mine for b in theirs if a > b)
    return count


def _place(layers: list[list[_Node]], across: bool, labels: list[str]) -> None:
    """Coordinates: across the layers close to the middle of the neighbours, along them layer after layer."""

    def size(node: _Node) -> float:
        return node.height if across else node.width

    def apart(one: _Node, other: _Node) -> float:
        return (size(one) + size(other)) / 2 + (
            BETWEEN / 2 if one.corner or other.corner else BETWEEN
        )

    for layer in layers:
        at = 0.0
        for number, node in enumerate(layer):
            at += apart(layer[number - 1], node) if number else size(node) / 2
            node.x = at
    for sweep in range(30):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted = [_middle(node.above + node.below, node.x) for node in layer]
            forward, backward = list(wanted), list(wanted)
            for i in range(1, len(layer)):
                forward[i] = max(forward[i], forward[i - 1] + apart(layer[i - 1], layer[i]))
            for i in range(len(layer) - 2, -1, -1):
                backward[i] = min(backward[i], backward[i + 1] - apart(layer[i], layer[i + 1]))
            for node, one, other in zip(layer, forward, backward, strict=True):
                node.x = (one + other) / 2  # both keep the distances, so their mean does
    least = min(node.x - size(node) / 2 for layer in layers for node in layer)
    gap = LAYERS + (max((width_of(label) for label in labels), default=0.0) if across else 0.0)
    at = 2.0
    for layer in layers:
        depth = max(node.width if across else node.height for node in layer)
        for node in layer:
            node.x += 2 - least
            node.y = at + depth / 2
        at += depth + gap


def _arrow(drawing: Drawing, chain: list[_Node], across: bool, label: str, colour: str) -> None:
    points = []
    for number, node in enumerate(chain):
        reach = (node.width if across else node.height) / 2
        if number:
            points.append((node.x, node.y - (0 if node.corner else reach)))
        if number < len(chain) - 1 and not node.corner:
            points.append((node.x, node.y + reach))
    turned = [(y, x) if across else (x, y) for x, y in points]
    data = "M{:.1f} {:.1f}".format(*turned[0])
    for (x1, y1), (x2, y2) in pairwise(turned):
        if across:
            bend = (x2 - x1) / 2
            data += f"C{x1 + bend:.1f} {y1:.1f} {x2 - bend:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
        else:
            bend = (y2 - y1) / 2
            data += f"C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} {x2:.1f} {y2:.1f}"
    drawing.path(data, stroke=colour, width=1.4)
    x, y = turned[-1]
    head = (
        [(x - 8, y - 4), (x, y), (x - 8, y + 4)]
        if across
        else [(x - 4, y - 8), (x, y), (x + 4, y - 8)]
    )
    drawing.path(head, stroke=colour, width=1.4)
    if label:
        (x1, y1), (x2, y2) = turned[0], turned[1]
        drawing.text((x1 + x2) / 2, (y1 + y2) / 2, label, fill="faint", halo=True)
