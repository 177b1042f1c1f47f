# Tangled from book/workshop/weave-figures.md
"""Pictures of values, as SVG text that follows the light and the dark theme.

Every function takes plain lists, numpy arrays or Tensors and returns a `Picture`, a `str` that is one
`<svg>` element. The same values give the same bytes. Put several pictures next to each other with
`beside`, below each other with `below`.

    from weave.figures import beside, heat_map
    figure = beside(heat_map(w[0], title="head 0"), heat_map(w[1], title="head 1"))
"""

from weave.figures.cells import grid, heat_map
from weave.figures.graphs import graph
from weave.figures.panels import Picture, below, beside
from weave.figures.plots import bar_chart, line_plot

__all__ = ["Picture", "bar_chart", "below", "beside", "graph", "grid", "heat_map", "line_plot"]
