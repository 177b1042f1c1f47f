# Tangled from book/workshop/house.md
"""The modules of this project by room, and which imports which."""

from __future__ import annotations

import ast
from pathlib import Path

ROOMS: dict[str, set[str]] = {  # room -> the rooms that it may know
    "tangle": set(),
    "tinyllm": set(),
    "ol": {"tinyllm"},
    "weave": {"tangle", "tinyllm"},
}


def modules(root: Path, room: str) -> dict[str, Path]:
    """The modules of a room by name; the data of the exercise tool are none."""
    paths = [root / f"{room}.py", *sorted((root / room).rglob("*.py"))]
    found = [path.relative_to(root) for path in paths if path.is_file()]
    return {
        ".".join(path.with_suffix("").parts).removesuffix(".__init__"): root / path
        for path in found
        if path.parts[:2] != ("ol", "course")
    }


def imports(root: Path) -> dict[str, set[str]]:
    """Each module of all rooms with the modules that it imports, those inside of functions too."""
    every = {name: path for room in ROOMS for name, path in modules(root, room).items()}
    found: dict[str, set[str]] = {}
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


def lines(path: Path) -> int:
    """How many lines of a file are not blank."""
    return sum(bool(line.strip()) for line in path.read_text(encoding="utf-8").splitlines())
