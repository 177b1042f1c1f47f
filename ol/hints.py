# Tangled from book/workshop/ol-grade.md
"""`ol mutate --hint`: one hint more each time."""

from __future__ import annotations

from ol import faults
from ol.registry import Answer, Chapter, Refusal
from ol.workspace import Workspace


def hint(workspace: Workspace, chapter: Chapter, name: str) -> Answer:
    """The hints given so far on a mutant, and the next one."""
    found = {mutant.name: mutant for mutant in faults.graded(chapter)}
    if name not in found:
        raise Refusal(f"{chapter.id} has no mutant {name!r}. It has {', '.join(found)}", 2)
    mutant = found[name]
    given = dict(workspace.state["hints"].get(chapter.id, {}))
    level = given[name] = min(3, int(given.get(name, 0)) + 1)
    workspace.put("hints", chapter.id, given)
    words, witness = mutant.hints
    lines = [f"{name}: {words}"]
    if level > 1:
        lines.append(f"shown by: {witness}")
    if level > 2:
        lines += mutant.diff()
    left = f"{3 - level} more to come" if level < 3 else "that is all"
    data = {"chapter": chapter.id, "mutant": name, "level": level, "hints": lines}
    return Answer(0, [*lines, f"({left})"], data)
