# Tangled from book/workshop/ol-tests.md
"""The map of the chapters, and what a workspace remembers."""

import pytest

from ol.registry import Refusal, chapters, closure, find
from ol.status import status
from ol.workspace import Workspace, digest


def test_map_is_in_the_order_of_needs():
    order = list(chapters())
    for name, chapter in chapters().items():
        assert all(order.index(need) < order.index(name) for need in chapter.needs)
    assert closure(["L0.2"]) == ["L0.1", "L0.2"]


def test_chapters_are_found_by_id_and_module():
    assert find("l5.3") is find("L5.3") is find("mha")
    with pytest.raises(Refusal, match=r"did you mean L5\.3\?") as error:
        find("L53")
    assert error.value.status == 2
    with pytest.raises(Refusal, match=r"There are L0\.1"):
        find("nothing like it")


def test_state_survives_and_merges(tmp_path):
    one, two = Workspace(tmp_path), Workspace(tmp_path)
    one.put("built", "L0.1", ["a", "b"])
    two.put("hints", "L5.3", {"s05": 1})
    two.set_ref_deps()
    again = Workspace(tmp_path)
    assert again.state["built"] == {"L0.1": ["a", "b"]}
    assert again.state["hints"] == {"L5.3": {"s05": 1}}
    assert again.state["ref_deps"] is True
    assert [path.name for path in again.memory.iterdir() if "state" in path.name] == ["state.json"]


@pytest.mark.parametrize(
    "text", ["{", "[]", '"x"', "\xff", '{"built": {"L5.2": 3}}', '{"hints": 1}']
)
def test_damaged_state_is_told(tmp_path, text):
    (tmp_path / ".ol").mkdir()
    (tmp_path / ".ol" / "state.json").write_text(text, encoding="latin-1")
    with pytest.raises(Refusal, match="cannot be read"):
        Workspace(tmp_path)


def test_built_is_what_passed_as_it_is_now(tmp_path):
    workspace, chapter = Workspace(tmp_path), find("L5.2")
    module = workspace.module(chapter)
    module.parent.mkdir(parents=True)
    module.write_text("x = 1\n")
    assert not workspace.is_built(chapter)
    workspace.passed(chapter, digest([module]))
    assert workspace.is_built(chapter)
    module.write_bytes(b"x = 1\r\n")  # as git may write it
    assert workspace.is_built(chapter)
    module.write_text("x = 2\n")
    assert not workspace.is_built(chapter)
    workspace.passed(chapter, digest([module]))
    module.unlink()
    assert not workspace.is_built(chapter)


def test_workspace_is_found_from_inside(tmp_path, monkeypatch):
    (tmp_path / ".ol").mkdir()
    (tmp_path / "python" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "python" / "deep")
    assert Workspace.around().root == tmp_path
    assert Workspace.around(tmp_path / "python").root == tmp_path / "python"


def test_every_state_of_the_map(tmp_path):
    workspace = Workspace(tmp_path)
    for name in ("L0.1", "L0.2"):
        module = workspace.module(find(name))
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text("x = 1\n")
    workspace.passed(find("L0.1"), digest([workspace.module(find("L0.1"))]))
    tests = workspace.tests(find("L0.1"))
    tests.mkdir(parents=True)
    assert status(Workspace(tmp_path)).data["done"] == 0  # its tests are not graded
    graded = {"score": 0.9, "passed": True, "tests": digest([tests])}
    workspace.put("graded", "L0.1", graded)
    answer = status(Workspace(tmp_path))
    states = {row["id"]: row["state"] for row in answer.data["chapters"]}
    found = [states[name] for name in ("L0.1", "L0.2", "L0.3", "M06.3")]
    assert found == ["built", "begun", "blocked", "ready"]
    assert (answer.data["done"], answer.data["next"]) == (1, "ol tests L0.2")
    assert f"1 of {len(chapters())} chapters done" in "\n".join(answer.lines)
