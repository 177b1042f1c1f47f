# Tangled from book/workshop/ol-tests.md
"""The exercise tool up to the grade: stubs, workspace, map, command line."""

import ast
import json
import os
import subprocess
import sys
import types

import pytest

from ol import cli, doctor, lesson, registry, stubs
from ol.registry import ROOT, Refusal, chapters, closure, find
from ol.workspace import Workspace, digest


def functions(text):
    """Name -> signature and docstring of each function of a text."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef | ast.Module):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    marks = [ast.unparse(mark) for mark in inner.decorator_list]
                    key = getattr(node, "name", ""), inner.name, *marks
                    returns = inner.returns and ast.unparse(inner.returns)
                    found[key] = ast.unparse(inner.args), returns, ast.get_docstring(inner)
    return found


@pytest.mark.parametrize("name", chapters())
def test_stub_has_all_of_the_contract(name):
    chapter = find(name)
    text = stubs.stub(chapter)
    assert functions(text) == functions(chapter.contract.read_text(encoding="utf-8"))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert ast.unparse(node.body[-1]).startswith(f"raise NotImplementedError('{name}: ")
    doc = ast.get_docstring(ast.parse(text))
    assert doc == ast.get_docstring(ast.parse(chapter.contract.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", chapters())
def test_stub_can_be_imported(name, monkeypatch):
    module = types.ModuleType("stub")
    monkeypatch.setitem(sys.modules, "stub", module)
    exec(compile(stubs.stub(find(name)), "stub.py", "exec"), module.__dict__)
    for public in find(name).facts["names"]:
        assert hasattr(module, public)


def test_stub_of_a_method_names_chapter_and_method():
    space = {"__name__": "mha"}
    exec(stubs.stub(find("L5.3")), space)
    with pytest.raises(NotImplementedError, match=r"L5\.3: MultiHeadAttention\.split_heads is not"):
        space["MultiHeadAttention"].split_heads(None, None)


def test_stub_handles_every_shape_of_function(tmp_path):
    contract = tmp_path / "a.pyi"
    contract.write_text(
        "# Tangled from x\n'''Doc.'''\nT = TypeVar('T', bound=A)\nclass A:\n    x: int\n"
        "    def a(self) -> 'ä': ...\n    @property\n    def b(self) -> int:\n"
        "        '''Doc.'''\n    def c(self):\n        '''Doc.'''\n        ...\ndef d(): ...\nN: 'ä'  # how many\n"
    )
    chapter = registry.Chapter("X1", {"title": "Toy", "contract": str(contract)})
    text = stubs.stub(chapter)
    assert text.splitlines()[-1] == "T = TypeVar('T', bound=A)"
    assert functions(text) == functions(contract.read_text())
    assert "\nN: 'ä' = ...  # not written yet\n" in text
    for name in ("A.a", "A.b", "A.c", "d"):
        assert text.count(f'raise NotImplementedError("X1: {name} is not written yet")') == 1


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


@pytest.mark.parametrize("text", ["{", "[]", '"x"', "\xff"])
def test_damaged_state_is_told(tmp_path, text):
    (tmp_path / ".ol").mkdir()
    (tmp_path / ".ol" / "state.json").write_text(text, encoding="latin-1")
    with pytest.raises(Refusal, match="cannot be read"):
        Workspace(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        '{"built": {"L5.2": 3}, "graded": {"L5.3": 4}, "hints": {"L5.3": 3}}',
        '{"built": {}, "graded": {"L5.3": {"tests": 1}}, "hints": {"L5.3": {"s05": "x"}}}',
        '{"ref_deps": "yes"}',
    ],
)
def test_what_makes_no_sense_in_the_state_is_forgotten(tmp_path, text):
    (tmp_path / ".ol").mkdir()
    (tmp_path / ".ol" / "state.json").write_text(text)
    empty = {"ref_deps": False, "built": {}, "graded": {}, "hints": {}, "tried": {}}
    assert Workspace(tmp_path).state == empty


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


@pytest.fixture
def ol(tmp_path, capsys):
    """Runs the command line in a workspace; status and what is printed, or the object."""
    root = tmp_path / "a path with spaces"
    root.mkdir()

    def run(*words):
        status = cli.main([*words, "--workspace", str(root)])
        printed = capsys.readouterr()
        text = printed.out + printed.err
        return (status, json.loads(text)) if "--json" in words else (status, text)

    run.root = root
    return run


def test_start_never_overwrites(ol):
    status, first = ol("start", "L5.3", "--json")
    assert status == 0
    assert [file["state"] for file in first["files"]] == ["written", "written"]
    module = ol.root / "python/tinyllm/xfmr/mha.py"
    tests = ol.root / "python/tests/l5-3-mha/test_mha.py"
    assert tests.exists()
    assert first["course_tests"] == str(find("L5.3").course_tests)
    assert first["rung"] == "R5"
    module.write_text("mine\n")
    status, text = ol("start", "L5.3")
    assert status == 0
    assert "is there already and was not touched" in text
    assert module.read_text() == "mine\n"
    status, again = ol("start", "L5.3", "--reset", "--json")
    (backup,) = [f["backup"] for f in again["files"] if f["kind"] == "module"]
    assert status == 0
    assert (ol.root / ".ol") in (ol.root / backup).parents
    assert (ol.root / backup).read_text() == "mine\n"
    assert "NotImplementedError" in module.read_text()
    module.write_text("mine again\n")
    ol("start", "L5.3", "--reset")
    assert (ol.root / backup).read_text() == "mine\n"


def test_start_says_what_is_missing(ol):
    status, text = ol("start", "L5.3")
    assert status == 0
    assert "not built yet: L0.1" in text
    assert "--ref-deps" in text
    assert "its tests also use M04.1, L5.2" in text
    assert "R5 oracles" in text
    status, text = ol("start", "L5.2")
    assert "no graded tests" in text


def test_needs_are_asked_for(ol):
    ol("start", "L5.3")
    for verb in ("tests", "check", "mutate"):
        status, text = ol(verb, "L5.3")
        assert status == 1
        assert "needs L5.1: build it, or pass --ref-deps" in text
    status, data = ol("check", "L5.3", "--json")
    assert (status, data["status"], data["needs"][0]) == (1, 1, "L5.1")


def test_ref_deps_is_remembered_and_shown(ol):
    ol("start", "L5.3", "--ref-deps")
    status, text = ol("status")
    assert status == 0
    assert "(--ref-deps)" in text
    data = ol("--json")[1]
    assert data["ref_deps"] is True
    assert {row["state"] for row in data["chapters"]} == {"ready", "begun"}
    assert data["next"] == "ol tests L5.3"


def test_wrong_use_is_status_2(ol, capsys):
    assert ol("tests", "L9.9")[0] == 2
    assert "which chapter? this is no chapter's folder" in ol("tests")[1]
    assert "which command?" in ol("run", "L5.2")[1]
    for words in (["paint"], ["start"], ["mutate", "L5.3", "--paint"]):
        with pytest.raises(SystemExit) as error:
            cli.main(words)
        assert error.value.code == 2
    assert "usage: ol" in capsys.readouterr().err
    assert ol("mutate", "L0.1")[0] == 1
    assert "has no graded tests" in ol("mutate", "L0.1")[1]
    assert ol("mutate", "L5.3", "--hint", "s99")[0] == 2


def test_what_is_no_file_is_told(ol):
    module = ol.root / "python/tinyllm/xfmr/masks.py"
    module.mkdir(parents=True)
    for words in (["tests", "L5.2"], ["check", "L5.2"], ["diff", "L5.2", "--spoil"]):
        status, text = ol(*words)
        assert status == 1
        assert "masks.py is no file: ol start L5.2 --reset moves it away" in text
    assert ol("start", "L5.2", "--reset")[0] == 0
    assert module.is_file()
    module.write_bytes(b'x = "\xff"')
    for words in (["tests", "L5.2"], ["diff", "L5.2", "--spoil"]):
        status, text = ol(*words)
        assert (status, "masks.py cannot be read: " in text) == (1, True)


def test_a_full_disk_leaves_no_half_file(ol, monkeypatch):
    def full(number):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        status, text = ol("start", "L5.2")
        assert (status, "masks.py cannot be written: [Errno 28]" in text) == (1, True)
        status, text = ol("mutate", "L5.3", "--hint", "s05")
        assert (status, "this will not be remembered: [Errno 28]" in text) == (0, True)
        assert "(2 more to come)" in text
    assert [p.name for p in ol.root.rglob("*") if p.is_file()] == []
    assert "masks.py: written" in ol("start", "L5.2")[1]


@pytest.mark.parametrize("text", ["[", "[a]\ntitle = 1\n", 'a = "b"\n', None])
def test_a_damaged_package_is_told(ol, monkeypatch, tmp_path, text):
    monkeypatch.setattr(registry, "COURSE", tmp_path)
    if text is not None:
        (tmp_path / "chapters.toml").write_text(text)
    registry.chapters.cache_clear()
    try:
        for words in (["status"], ["start", "L5.2"], ["grade", str(tmp_path)]):
            status, said = ol(*words)
            assert status == 1
            assert "chapters.toml is damaged (" in said
            assert "install tinyllm-book again" in said
    finally:
        registry.chapters.cache_clear()


def test_nothing_to_test_is_said(ol):
    status, text = ol("tests", "L5.2")
    assert status == 1
    assert "python/tinyllm/xfmr/masks.py is not there: ol start L5.2" in text
    assert ol("diff", "L5.2")[0] == 1
    ol("start", "L5.3", "--ref-deps")
    (ol.root / "python/tests/l5-3-mha/test_mha.py").unlink()
    (ol.root / "python/tests/l5-3-mha").rmdir()
    assert "there are no tests of yours" in ol("mutate", "L5.3")[1]


@pytest.mark.parametrize(
    ("chapter", "missing", "said"),
    [
        ("L5.1", ["torch"], "L5.1's tests compare with torch: pip install torch"),
        ("L0.6", ["safetensors"], "L0.6's tests use safetensors: pip install safetensors"),
        (
            "L5.1",
            ["pytest", "torch"],
            "use pytest and compare with torch: pip install pytest torch",
        ),
    ],
)
def test_a_library_that_is_missing_is_named(ol, monkeypatch, chapter, missing, said):
    ol("start", chapter, "--ref-deps")
    find = lesson.importlib.util.find_spec
    monkeypatch.setattr(
        lesson.importlib.util, "find_spec", lambda name: None if name in missing else find(name)
    )
    status, text = ol("tests", chapter)
    assert status == 1
    assert said in text


def test_a_grade_needs_pytest(ol, monkeypatch):
    def version(name):
        raise doctor.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "version", version)
    status, text = ol("doctor")
    assert status == 1
    assert "pip install pytest: ol tests, ol mutate" in text


def test_diff_is_not_a_spoiler(ol):
    ol("start", "L5.2")
    status, text = ol("diff", "L5.2")
    assert status == 1
    assert "has not passed yet" in text
    status, text = ol("diff", "L5.2", "--spoil")
    assert status == 0
    assert "+def " in text or "+    " in text


def test_hints_come_one_by_one(ol):
    levels = [ol("mutate", "L5.3", "--hint", "s05", "--json")[1] for _ in range(4)]
    assert [data["level"] for data in levels] == [1, 2, 3, 3]
    assert len(levels[0]["hints"]) == 1
    assert len(levels[1]["hints"]) == 2
    assert any(line.startswith("-") for line in levels[2]["hints"])
    assert levels[3] == levels[2]


def python(*words, folder):
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_status_imports_little(tmp_path):
    code = "import sys; from ol import cli; cli.main([]); print(*sorted(sys.modules))"
    modules = set(python("-c", code, folder=tmp_path).splitlines()[-1].split())
    assert not modules & {"numpy", "torch", "pytest", "subprocess", "ol.runner"}


def test_status_is_quick(tmp_path):
    spent = []
    for _ in range(3):
        before = os.times()
        python("-m", "ol", folder=tmp_path)
        after = os.times()
        spent.append(sum(after[2:4]) - sum(before[2:4]))  # processor time of children
    assert min(spent) < 0.3


def test_every_state_of_the_map(tmp_path):
    from ol.status import status

    workspace = Workspace(tmp_path)
    for name in ("L0.1", "L0.2"):
        module = workspace.module(find(name))
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text("x = 1\n")
    workspace.passed(find("L0.1"), digest([workspace.module(find("L0.1"))]))
    answer = status(Workspace(tmp_path))
    states = {row["id"]: row["state"] for row in answer.data["chapters"]}
    assert [states[n] for n in ("L0.1", "L0.2", "L0.3", "M06.3")] == [
        "built",
        "begun",
        "blocked",
        "ready",
    ]
    assert answer.data["done"] == 1
    assert answer.data["next"] == "ol tests L0.2"
    assert f"1 of {len(chapters())} chapters done" in "\n".join(answer.lines)
