# Tangled from book/workshop/ol-tests.md
"""The grade: no test suite gets another verdict than it has earned."""

import pytest

from ol import mutants
from ol.grade import Grade, Row, grade_tests
from ol.registry import find
from ol.report import full
from ol.runner import Runner

L53 = find("L5.3")
HEAD = "import os, sys, time\nimport numpy as np\nimport pytest\n"
HEAD += "from tinyllm.tensor import Tensor\nfrom tinyllm.xfmr.mha import MultiHeadAttention\n"
MERGE = """
def test_merge():
    merged = MultiHeadAttention(4, 2).merge_heads(Tensor(np.arange(8.0).reshape(1, 2, 2, 2)))
    np.testing.assert_array_equal(merged.data, [[[0, 1, 4, 5], [2, 3, 6, 7]]])
"""
SPLIT = """
def test_split():
    split = MultiHeadAttention(4, 2).split_heads(Tensor(np.arange(8.0).reshape(1, 2, 4)))
    np.testing.assert_array_equal(split.data, [[[[0, 1], [4, 5]], [[2, 3], [6, 7]]]])
"""


@pytest.fixture(scope="module")
def runner():
    with Runner(workers=2) as runner:
        yield runner


@pytest.fixture
def grade(tmp_path, monkeypatch, runner):
    """Grades a text on the mutants s01 and s02, or others."""
    every = {mutant.name: mutant for mutant in mutants.graded_mutants(L53)}

    def run(text, names=("s01", "s02"), using=runner):
        monkeypatch.setattr(mutants, "graded_mutants", lambda _: [every[name] for name in names])
        (tmp_path / "test_mine.py").write_text(HEAD + text)
        return grade_tests(L53, tmp_path, using)

    return run


def states(result):
    assert not result.findings
    return {row.name: row.state for row in result.rows}


def test_caught_and_missed(grade):
    result = grade(MERGE)
    assert states(result) == {"s01": "caught", "s02": "missed"}
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


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("", "", "no test was collected"),
        ("def tets_merge(): pass\n", "", "no test was collected"),
        ("def test_a(): assert 1 == 2\n", "test_mine.py::test_a", "fails on the right module"),
        ("import scipy\ndef test_a(): pass\n", "test_mine.py:6", "only contracts, numpy, pytest"),
        (PRIVATE, "test_mine.py::test_a", "built otherwise"),
        (
            "def test_a():\n    assert sys.modules['tinyllm.xfmr.mha'].math\n"
            "    assert sys.modules['tinyllm.xfmr.mha'].fused_attention\n",
            "test_mine.py::test_a",
            "built otherwise",
        ),
    ],
)
def test_no_grade(grade, text, where, says):
    result = grade(text)
    assert result.score is None
    assert not result.passed
    assert any(where in one.where and says in one.says for one in result.findings), result.findings
    assert "no grade:" in "\n".join(full(result))


def test_chance_is_found_out(grade, tmp_path):
    count = tmp_path / "count"
    flaky = f"""
def test_now_and_then():
    with open({str(count)!r}, "a") as file:
        file.write("x")
        assert file.tell() == 1  # passes the first time, and never again
"""
    result = grade(flaky)
    assert result.score is None
    assert any("test_now_and_then" in one.where for one in result.findings)


ENDS = {
    "exit": "os._exit(0)",
    "interrupt": "raise KeyboardInterrupt",
}


@pytest.mark.parametrize("how", ENDS)
def test_ending_the_interpreter_is_no_verdict(grade, how):
    result = grade(f"def test_a():\n    {ENDS[how]}\n" + MERGE)
    assert result.score is None
    assert "crashed" in result.findings[0].says
    assert "test_a" in result.findings[0].says or how == "interrupt"


@pytest.mark.parametrize("how", ENDS)
def test_ending_it_on_a_mutant_catches_nothing(grade, how):
    lines = MERGE.strip().splitlines()
    body = "\n".join(f"    {line}" for line in lines[1:])
    text = f"{lines[0]}\n    try:\n{body}\n    except AssertionError:\n        {ENDS[how]}\n"
    result = grade(text)
    assert states(result) == {"s01": "crashed", "s02": "missed"}
    assert result.score == 0.0
    assert not result.passed


def test_sys_exit_is_a_failing_test(grade):
    result = grade("def test_a():\n    sys.exit(0)\n")
    assert "fails on the right module: SystemExit" in result.findings[0].says
    result = grade("def teardown_module():\n    sys.exit(0)\n" + MERGE)
    assert result.score is None


def test_a_hang_is_a_timeout(grade, monkeypatch):
    monkeypatch.setattr("ol.grade.LEAST", 1.0)
    lines = MERGE.strip().splitlines()
    body = "\n".join(f"    {line}" for line in lines[1:])
    text = f"{lines[0]}\n    try:\n{body}\n    except AssertionError:\n        while True: pass\n"
    result = grade(text)
    assert states(result) == {"s01": "timeout", "s02": "missed"}
    assert "not counted: 1 timeout" in "\n".join(full(result))


def test_a_fork_has_no_say(grade):
    result = grade("def test_a():\n    if os.fork() == 0: os._exit(0)\n" + MERGE)
    assert states(result) == {"s01": "caught", "s02": "missed"}


LOOKS = {
    "options": "request.config.option.maxfail or request.config.option.assertmode == 'plain'",
    "number": "os.getcwd().rpartition('-')[2] != '0'",
    "limit": "resource.getrlimit(resource.RLIMIT_CPU)[0] < 50",
}


@pytest.mark.parametrize("how", LOOKS)
def test_nothing_tells_a_mutant_from_the_right_module(grade, how):
    """What passes at the first run and fails at all others gets no grade."""
    result = grade(f"import resource\ndef test_a(request): assert not ({LOOKS[how]})\n")
    assert result.score is None
    assert any("test_a" in one.where for one in result.findings), result.findings


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
    assert states(grade(text + MERGE)) == {"s01": "caught", "s02": "missed"}


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
