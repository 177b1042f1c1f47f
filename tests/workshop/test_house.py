# Tangled from book/workshop/house.md
"""The rooms of the house: imports lead down only, and nothing grows beyond its budget."""

import ast
import graphlib
from pathlib import Path

import pytest

from weave.model.imports import ROOMS, imports, modules, room_of

ROOT = Path(__file__).resolve().parents[2]
BUDGET = {"literate": 1900, "weave": 4200, "ol": 2890, "ol.authors": 310}  # lines not blank
TESTS = ["literate/*.py", "weave/*.py", "ol/*.py", "workshop/test_c*.py"]
BUDGET_OF_TESTS = 8330  # of the tools
LONGEST_MODULE, LONGEST_FUNCTION = 400, 60


def circle(graph):
    """The first circle of imports that is found, as a list of names; empty if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def arrows_up(graph):
    """Imports of a room that the importing one may not know."""
    for name, others in graph.items():
        room = room_of(name)
        for other in others:
            if room_of(other) not in {room, *ROOMS[room]}:
                yield f"{name} imports {other}"


def lines(text):
    """How many lines are not blank."""
    return sum(bool(line.strip()) for line in text.splitlines())


def sizes(name, text):
    """A module and its functions, each with its lines and with how many it may have."""
    yield name, lines(text), LONGEST_MODULE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            part = "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])
            yield f"{name}.{node.name}", lines(part), LONGEST_FUNCTION


TEXTS = {name: path.read_text(encoding="utf-8") for name, path in modules(ROOT).items()}


def test_no_import_leads_back():
    graph = imports(ROOT)
    assert len(graph) > 60
    assert not circle(graph)


def test_rooms_know_only_what_is_below_them():
    assert not list(arrows_up(imports(ROOT)))


def test_a_circle_and_an_arrow_up_are_found(tmp_path):
    for name, text in {
        "tinyllm/__init__.py": "",
        "tinyllm/a.py": "from tinyllm import b",
        "tinyllm/b.py": "def f():\n    import tinyllm.a",
        "literate/e.py": "def f():\n    from weave.model.c import d",
        "weave/model/c.py": "import tinyllm",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    graph = imports(tmp_path)
    assert graph["weave.model.c"] == {"tinyllm"}
    assert set(circle(graph)) == {"tinyllm.a", "tinyllm.b"}
    assert list(arrows_up(graph)) == [
        "literate.e imports weave.model.c",
        "weave.model.c imports tinyllm",
    ]


@pytest.mark.parametrize("room", BUDGET)
def test_rooms_stay_within_their_budget(room):
    own = {n: [r for r in BUDGET if f"{n}.".startswith(f"{r}.")] for n in TEXTS}  # rooms around it
    inside = {name: lines(TEXTS[name]) for name, rooms in own.items() if rooms[-1:] == [room]}
    count = sum(inside.values())
    print(f"{room}: {count} lines of {BUDGET[room]}")
    assert count <= BUDGET[room], inside


def test_the_tests_of_the_tools_stay_within_their_budget():
    paths = [path for pattern in TESTS for path in (ROOT / "tests").glob(pattern)]
    count = sum(lines(path.read_text(encoding="utf-8")) for path in paths)
    print(f"tests of the tools: {count} lines of {BUDGET_OF_TESTS}")
    assert count <= BUDGET_OF_TESTS


def test_nothing_is_too_long():
    found = [size for name, text in TEXTS.items() for size in sizes(name, text)]
    long = {name: count for name, count, most in found if count > most}
    assert not long
