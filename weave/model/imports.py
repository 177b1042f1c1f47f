# Tangled from book/workshop/house.md
"""The modules of this project by room, and which imports which."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

ROOMS: dict[str, set[str]] = {  # room -> the rooms that it may know
    "literate": set(),
    "tinyllm": set(),
    "ol": {"tinyllm"},
    "ol.authors": {"tinyllm", "ol"},
    "weave": set(),
    "weave.figures": {"tinyllm"},
    "weave.model": {"literate"},
    "weave.run": {"literate", "weave.model"},
    "weave.render": {"literate", "weave.model", "weave.run", "weave.figures"},
    "weave.serve": {"literate", "weave.model", "weave.run", "weave.render"},
}


def room_of(module: str) -> str:
    """The room that a module is in: weave.model for weave.model.index."""
    return max((room for room in ROOMS if f"{module}.".startswith(f"{room}.")), key=len)


def modules(root: Path) -> dict[str, Path]:
    """The modules of all rooms by name; the data of the exercise tool are none."""
    tops = sorted({room.partition(".")[0] for room in ROOMS})
    found = [root / f"{top}.py" for top in tops]
    found += [path for top in tops for path in sorted((root / top).rglob("*.py"))]
    return {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in found
        if path.is_file() and path.relative_to(root).parts[:2] != ("ol", "course")
    }


def imports(root: Path) -> dict[str, set[str]]:
    """Each module with the modules that it imports, those inside of functions too."""
    every, found = modules(root), dict[str, set[str]]()
    for name, path in every.items():
        names: set[str] = set()
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                whole = {f"{node.module}.{alias.name}" for alias in node.names}
                names |= whole if whole <= every.keys() else {*whole, str(node.module)}
        found[name] = names & every.keys() - {name}
    return found


def nearest(graph: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """The arrows of a graph without circles, but for those that a longer way makes needless."""

    def below(name: str) -> set[str]:
        return graph[name].union(*map(below, graph[name]))

    return [
        (name, other)
        for name in graph
        for other in sorted(graph[name])
        if not any(other in below(nearer) for nearer in graph[name])
    ]
