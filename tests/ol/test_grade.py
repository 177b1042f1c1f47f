# Tangled from book/workshop/ol-tests.md
"""The grade: no test suite gets another verdict than it has earned."""

import re

import pytest

from ol import mutants
from ol.grade import Grade, Row, grade_tests
from ol.registry import find
from ol.report import full
from tests.ol.texts import EARNED, HEAD, MERGE, SPLIT, states

L53 = find("L5.3")


@pytest.fixture
def grade(tmp_path, monkeypatch, runner):
    """Grades a text on the mutants s01 and s02, or others."""
    every = {mutant.name: mutant for mutant in mutants.graded_mutants(L53)}

    def run(text, names=("s01", "s02"), using=runner):
        monkeypatch.setattr(mutants, "graded_mutants", lambda _: [every[name] for name in names])
        (tmp_path / "test_mine.py").write_text(HEAD + text)
        return grade_tests(L53, tmp_path, using)

    return run


def test_caught_and_missed(grade):
    result = grade(MERGE)
    assert states(result) == EARNED
    assert result.rows[0].by == "test_mine.py::test_merge"
    assert (result.score, result.count, result.idle) == (0.5, 1, [])
    result = grade(MERGE + SPLIT)
    assert states(result) == {"s01": "caught", "s02": "caught"}
    assert result.score == 1.0


def test_what_passes_on_everything_is_named(grade):
    late = MERGE.replace("test_merge", "test_late")  # behind test_merge, and as good
    result = grade(MERGE + "\ndef test_true(): assert True\n" + late)
    assert result.idle == ["test_true"]
    assert "passes on everything, so proves nothing: test_true" in "\n".join(full(result))


PRIVATE = "def test_a():\n    assert hasattr(MultiHeadAttention, '_heads')\n"
IMPORTED = "def test_a():\n    module = sys.modules['tinyllm.xfmr.mha']\n"
IMPORTED += "    assert module.math\n    assert module.fused_attention\n"
ONCE = """
def test_a():
    with open("COUNT", "a") as file:
        file.write("x")
        assert file.tell() == 1  # passes the first time, and never again
"""
TELLS = "import resource\ndef test_a(request): assert not ({})\n"  # mutants from the right module
OPTIONS = "request.config.option.maxfail or request.config.option.assertmode == 'plain'"


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("", "", "no test was collected"),
        ("def tets_merge(): pass\n", "", "no test was collected"),
        ("def test_a(): assert 1 == 2\n", "test_mine.py::test_a", "fails on the right module"),
        ("import scipy\ndef test_a(): pass\n", "test_mine.py:6", "only contracts, numpy, pytest"),
        (PRIVATE, "test_mine.py::test_a", "built otherwise"),
        (IMPORTED, "test_mine.py::test_a", "built otherwise"),
        (ONCE, "test_mine.py::test_a", ""),
        (TELLS.format(OPTIONS), "test_mine.py::test_a", ""),
        (TELLS.format("os.getcwd().rpartition('-')[2] != '0'"), "test_mine.py::test_a", ""),
        (TELLS.format("resource.getrlimit(resource.RLIMIT_CPU)[0] < 50"), "::test_a", ""),
        ("def test_a():\n    sys.exit(0)\n", "::test_a", "fails on the right module: SystemExit"),
        ("def teardown_module():\n    sys.exit(0)\n" + MERGE, "", ""),
        ("def test_a():\n    os._exit(0)\n" + MERGE, "", "crashed: .*::test_a"),
        ("def test_a():\n    raise KeyboardInterrupt\n" + MERGE, "", "crashed"),
    ],
)
def test_no_grade(grade, tmp_path, text, where, says):
    result = grade(text.replace("COUNT", str(tmp_path / "count")))
    assert result.score is None
    assert not result.passed
    found = [one.says for one in result.findings if where in one.where]
    assert re.search(says, "\n".join(found)), result.findings
    assert found
    assert "no grade:" in "\n".join(full(result))


@pytest.mark.parametrize(
    ("end", "state"),
    [
        ("os._exit(0)", "crashed"),
        ("raise KeyboardInterrupt", "crashed"),
        ("while True: pass", "timeout"),
    ],
)
def test_not_ending_as_a_test_does_catches_nothing(grade, monkeypatch, end, state):
    """The mutant that MERGE would catch."""
    monkeypatch.setattr("ol.grade.LEAST", 1.0)
    first, *body = MERGE.strip().replace("\n", "\n    ").splitlines()
    caught = [first, "    try:", *body, "    except AssertionError:", f"        {end}\n"]
    result = grade("\n".join(caught))
    assert states(result) == {**EARNED, "s01": state}
    assert result.score == 0.0
    assert not result.passed
    assert f"not counted: 1 {state}" in "\n".join(full(result))


def test_a_fork_has_no_say(grade):
    result = grade("def test_a():\n    if os.fork() == 0: os._exit(0)\n" + MERGE)
    assert states(result) == EARNED


def test_a_grade_that_was_refused_is_not_kept(tmp_path, monkeypatch, grade):
    from ol import grade as module
    from ol.workspace import Workspace

    grade(MERGE)  # on two mutants from here on
    workspace = Workspace(tmp_path / "w")
    tests = workspace.tests(L53)
    tests.mkdir(parents=True)
    (tests / "test_mine.py").write_text(HEAD + MERGE)
    (tests / "test_link.py").symlink_to("nothing")
    assert module.grade(workspace, L53).score is None
    (tests / "test_link.py").unlink()
    assert module.grade(workspace, L53).score == 0.5
    kept = module.grade(workspace, L53)
    assert (kept.score, kept.cached) == (0.5, True)
    for damaged in (None, [], {"rows": [], "findings": [], "more": 1}):
        workspace.state["graded"]["L5.3"]["grade"] = damaged
        workspace.save()
        again = module.grade(workspace, L53)
        assert (again.score, again.cached) == (0.5, False)


def test_the_graded_files_are_a_copy(grade, tmp_path):
    more = str(tmp_path / "test_more.py")
    text = f"from pathlib import Path\ndef test_a():\n    Path({more!r}).write_text('')\n"
    assert states(grade(text + MERGE)) == EARNED


def made(states, required=("s01",)):
    rows = [Row(f"s{i:02}", "", state) for i, state in enumerate(states, 1)]
    return Grade("L5.3", "R5", 0.80, list(required), "tests", rows)


def test_rules():
    assert made(["caught"] * 4 + ["missed"]).passed
    assert not made(["caught"] * 3 + ["missed"]).passed
    assert not made(["missed"] + ["caught"] * 9).passed  # a pitfall
    assert made(["missed"] + ["caught"] * 9, required=()).passed
    assert made(["caught"] * 9 + ["timeout"]).passed
    assert made(["caught"] * 9 + ["timeout"]).score == 1.0
    assert not made(["caught"] * 8 + ["timeout", "crashed"]).passed
    assert not made(["timeout"]).passed
    assert made(["timeout"]).score is None
    assert "more must be caught" not in "\n".join(full(made(["missed"] + ["caught"] * 9)))
    assert "  1 more must be caught" in full(made(["caught"] * 3 + ["missed"]))
