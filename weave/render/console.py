# Tangled from book/workshop/weave-blocks.md
"""Console sessions on a page: the commands and what they print."""

from __future__ import annotations

from html import escape

from weave.model.page import Output
from weave.render import code
from weave.run.later import LATER


def terminal(output: Output) -> str:
    """A session as HTML."""
    text = f"{output.text.rstrip()}\n({LATER})" if output.late else output.text
    lines = []
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("$ "):
            lines.append(f"<i class=gp>$</i> {code.colours(line[2:], 'bash')[0]}\n")
        else:
            lines.append(f"<span class=printed>{escape(line, quote=False)}\n</span>")
    return code.framed("".join(lines).replace("\n</span><span class=printed>", "\n"))
