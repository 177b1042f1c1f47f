# Tangled from book/workshop/command.md
"""The curves of a run as SVG, and a page on which every head can be looked at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from numpy.typing import NDArray

__all__ = ["heads", "learning"]

Sum = tuple[str, str, NDArray[Any], NDArray[Any], NDArray[Any]]


WIDTH, HEIGHT, LEFT, TOP, GAP = 640.0, 180.0, 60.0, 24.0, 56.0


def learning(lines: Sequence[dict[str, Any]]) -> str:
    """Loss and share of right sums over the steps, from the lines of a metrics file, as SVG."""
    steps = [line["step"] for line in lines]
    last = max(steps, default=1)
    losses = [max(line["loss"], 1e-9) for line in lines]
    size = max(1, min(20, len(losses) // 10))
    points = [
        (steps[i], math.log10(sum(losses[i - size + 1 : i + 1]) / size))
        for i in range(size - 1, len(losses), max(1, len(losses) // 400))
    ]
    low = math.floor(min((y for _, y in points), default=-1.0))
    high = math.ceil(max((y for _, y in points), default=0.0))
    high = max(high, low + 1)
    marks = [(float(y), f"{10.0**y:g}") for y in range(low, high + 1)]
    shares = [(line["step"], line["exact_match"]) for line in lines if "exact_match" in line]
    ticks = [(y / 4, f"{y * 25} %") for y in range(5)]
    height = TOP + 2 * HEIGHT + GAP + 40
    body = _panel(TOP, "loss", points, low, high, marks, last)
    body += _panel(TOP + HEIGHT + GAP, "held-out sums that are right", shares, 0, 1, ticks, last)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20:g} {height:g}" '
        f'role="img" aria-label="Loss and share of right sums over {last} steps" '
        'font-family="sans-serif" font-size="13">'
        "<style>svg{background:#fff;color:#222}line{stroke:#ccc}text{fill:currentColor}"
        "path,circle{stroke:#0b5cad;fill:none;stroke-width:2}circle{fill:#0b5cad;stroke:none}"
        "@media(prefers-color-scheme:dark){svg{background:#1b1b1f;color:#ddd}line{stroke:#444}"
        "path{stroke:#7db7f0}circle{fill:#7db7f0}}</style>" + body + "</svg>\n"
    )


def _panel(
    top: float,
    title: str,
    points: Sequence[tuple[float, float]],
    low: float,
    high: float,
    marks: Sequence[tuple[float, str]],
    last: float,
) -> str:
    def x(step: float) -> float:
        return LEFT + WIDTH * step / last

    def y(value: float) -> float:
        return top + HEIGHT * (1 - (value - low) / (high - low))

    text = f'<text x="{LEFT:g}" y="{top - 9:g}" font-weight="bold">{title}</text>'
    for value, name in marks:
        text += (
            f'<line x1="{LEFT:g}" y1="{y(value):.1f}" x2="{LEFT + WIDTH:g}" y2="{y(value):.1f}"/>'
        )
        text += f'<text x="{LEFT - 6:g}" y="{y(value) + 4:.1f}" text-anchor="end">{name}</text>'
    for quarter in range(5):
        at = last * quarter / 4
        text += (
            f'<text x="{x(at):.1f}" y="{top + HEIGHT + 18:g}" text-anchor="middle">{at:g}</text>'
        )
    if len(points) > 1:
        way = " L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in points)
        text += f'<path d="M{way}"/>'
    for a, b in points if len(points) < 60 else ():
        text += f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="2.5"/>'
    return text


def heads(sums: Sequence[Sum]) -> str:
    """A self-contained HTML page of all heads for some sums.

    A sum is its text, what was written, and the weights of encoder, decoder and cross-attention,
    [layers, H, Tq, Tk] each.
    """
    parts = []
    for n, (question, answer, encoder, decoder, cross) in enumerate(sums):
        read = list(question)
        wrote = ["start", *answer]
        kinds = [
            ("Encoder", "each token of the source reads the source", read, read, encoder),
            ("Cross", "each position that writes reads the source", wrote, read, cross),
            ("Decoder", "each position that writes reads what was written", wrote, wrote, decoder),
        ]
        body = "".join(
            f"<h3>{kind}</h3><p>{what}</p>" + _layers(kind, rows, columns, weights)
            for kind, what, rows, columns, weights in kinds
        )
        is_open = " open" if n == 0 else ""
        title = f"{escape(question)} → {escape(answer)}"
        parts.append(f"<details{is_open}><summary>{title}</summary>{body}</details>")
    return PAGE.replace("@SUMS@", "".join(parts))


def _layers(kind: str, rows: Sequence[str], columns: Sequence[str], weights: NDArray[Any]) -> str:
    lines = []
    for layer, of_layer in enumerate(weights, 1):
        tables = "".join(
            _table(f"{kind}, layer {layer}, head {head}", rows, columns, of_head)
            for head, of_head in enumerate(of_layer, 1)
        )
        lines.append(f'<h4>layer {layer}</h4><div class="layer">{tables}</div>')
    return "".join(lines)


def _table(name: str, rows: Sequence[str], columns: Sequence[str], weights: NDArray[Any]) -> str:
    head = "".join(f'<th scope="col">{escape(c)}</th>' for c in columns)
    body = ""
    for row, line in zip(rows, weights.tolist(), strict=False):
        cells = "".join(f'<td style="--w:{w:.3f}" title="{w:.3f}"></td>' for w in line)
        body += f'<tr><th scope="row">{escape(row)}</th>{cells}</tr>'
    return (
        f'<table tabindex="0" aria-label="{name}"><caption>{name.rpartition(", ")[2]}</caption>'
        f"<thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>What each head reads</title>
<style>
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --rule: #bbb; --heat: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ddd; --paper: #1b1b1f; --rule: #555; --heat: #7db7f0; }
}
body { margin: 1rem; background: var(--paper); color: var(--ink); font: 15px/1.4 system-ui, sans-serif; }
output { position: sticky; top: 0; display: block; min-height: 1.5em; padding: .4em 0;
  background: var(--paper); border-bottom: 1px solid var(--rule); }
summary { font-size: 1.2rem; cursor: pointer; }
h3 { margin: 1rem 0 0; } h4 { margin: 0; font-weight: normal; } p { margin: 0 0 .3rem; }
.layer { display: flex; flex-wrap: wrap; gap: 1rem; margin-bottom: 1rem; }
table { border-collapse: collapse; font: 13px/1 ui-monospace, monospace; }
caption { font: 13px system-ui, sans-serif; padding: .2rem; }
th { padding: 0 .4em; font-weight: normal; text-align: right; } thead th { padding: .2em 0; text-align: center; }
tbody td { width: 1.7em; height: 1.7em; border: 1px solid var(--rule);
  background: color-mix(in srgb, var(--heat) calc(var(--w) * 100%), var(--paper)); }
th.on { font-weight: bold; text-decoration: underline; } td.on { outline: 2px solid var(--ink); }
</style>
</head>
<body>
<h1>What each head reads</h1>
<p>A row is what reads, a column what is read; the stronger the cell, the larger the weight. Point at a
cell, or go to a table with Tab and move with the arrow keys.</p>
<output aria-live="polite">&nbsp;</output>
@SUMS@
<script>
const say = document.querySelector("output");
let at = null;
function show(cell) {
  document.querySelectorAll(".on").forEach(e => e.classList.remove("on"));
  at = cell;
  const row = cell.parentNode, table = cell.closest("table");
  const reads = row.cells[0], key = table.tHead.rows[0].cells[cell.cellIndex];
  [cell, reads, key].forEach(e => e.classList.add("on"));
  say.textContent = table.getAttribute("aria-label") + ": at “" + reads.textContent + "”, " +
    cell.title + " of the attention is on “" + key.textContent + "” (token " + cell.cellIndex + ")";
}
document.addEventListener("pointerover", event => {
  const cell = event.target.closest("tbody td");
  if (cell) show(cell);
});
document.addEventListener("keydown", event => {
  const table = event.target.closest && event.target.closest("table");
  const step = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
  if (!table || !step) return;
  event.preventDefault();
  const rows = table.tBodies[0].rows;
  let [r, c] = [0, 1];
  if (at && at.closest("table") === table) {
    r = Math.min(rows.length - 1, Math.max(0, at.parentNode.sectionRowIndex + step[0]));
    c = Math.min(rows[0].cells.length - 1, Math.max(1, at.cellIndex + step[1]));
  }
  show(rows[r].cells[c]);
});
</script>
</body>
</html>
"""
