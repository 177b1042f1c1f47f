# Tangled from book/workshop/ol-tests.md
"""Chapters from start to end, as a learner goes through them."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from ol.registry import ROOT, find
from tests.ol.texts import says

SAMPLE = Path(__file__).parent / "sample"
WEAK = Path(__file__).parent / "weak"
RIGHT = find("L5.2").reference.read_text(encoding="utf-8")
WRONG = RIGHT.replace("Tk - Tq", "Tq - Tk")
FIRST = "    Tk = Tq if Tk is None else Tk\n"  # a line in both


@pytest.fixture
def masks(shell, root):
    """L5.2's module, begun and wrong."""
    shell("start", "L5.2")
    module = root / "python/tinyllm/xfmr/masks.py"
    module.write_text(WRONG, encoding="utf-8")
    return module


def state_of(shell, name):
    return next(row for row in shell("status")[1]["chapters"] if row["id"] == name)


def test_a_chapter_from_the_stub_to_the_end(shell, root):
    shell("start", "L5.2")
    module = root / "python/tinyllm/xfmr/masks.py"
    status, data = shell("tests", "L5.2")
    assert (status, data["passed"], data["state"]) == (1, 0, "failed")
    assert data["failures"][0]["says"].startswith("NotImplementedError: L5.2: ")
    assert (data["takeaways"], data["hints"]) == ([], [])

    module.write_text(WRONG, encoding="utf-8")
    status, data = shell("check", "L5.2")
    assert (status, data["grade"]) == (1, None)
    assert data["tests"]["failed"] > 0 < data["tests"]["passed"]
    assert data["tests"]["takeaways"]
    says(shell("diff", "L5.2"), 1, "has not passed yet")

    module.write_text("def broken(:\n", encoding="utf-8")
    status, data = shell("tests", "L5.2")
    assert (status, data["state"]) == (1, "cannot be imported")
    assert 'masks.py", line 1' in data["detail"]

    module.write_text(RIGHT + "\n# mine\n", encoding="utf-8")
    tested = f"tested: {module}"
    says(shell("check", "L5.2", plain=True), 1, "no test was collected", tested)
    assert "-# mine" in shell("diff", "L5.2")[1]["diff"]
    assert state_of(shell, "L5.2")["state"] == "built"
    module.write_text(RIGHT + "\n\n# edited\n", encoding="utf-8")
    row = state_of(shell, "L5.2")
    assert (row["state"], row["note"]) == ("begun", "changed since it passed")


def test_a_failure_teaches(shell, masks):
    status, text = shell("tests", "L5.2", "-v", plain=True)
    facts = find("L5.2").facts["mutants"]["s01"]
    hint = f"hint s01: {facts['hint']} (the next run says more)"
    values = "E   assert np.False_ == (0 <= ((0 + 2) - 1))"
    says((status, text), 1, values, "test_mask_errors PASSED", "more cases of these failed", hint)
    assert facts["witness"] not in text
    test = find("L5.2").course_tests.read_text(encoding="utf-8")
    assert "assert mask[i, j] == (j <= i + Tk - Tq)" in test  # its line
    place = r"test_masks.py:\d+: in test_causal_is_the_lower_triangle\n +assert mask"
    chapter = r"read: .*L5\.2-masks\.md \({#(.+)}\), site/.*L5\.2-masks\.html#chunk-\1"
    assert re.search(place, text)
    assert re.search(chapter, text)
    status, data = shell("tests", "L5.2", "-x", "-k", "lower_triangle")
    assert (data["failed"], data["passed"]) == (1, 0)
    steps = {hint["mutant"]: hint["lines"] for hint in data["hints"]}
    assert f"shown by: {facts['witness']}" in steps["s01"]
    assert shell("tests", "L5.2", "-k", "test_mask_errors")[0] == 0
    assert state_of(shell, "L5.2")["state"] == "begun"  # a part of the tests builds nothing
    masks.write_text(RIGHT)
    assert "next: ol check L5.2" in shell("tests", "L5.2", plain=True)[1]
    noisy = WRONG.replace(FIRST, FIRST + "    print('was here')\n    raise RuntimeError('here')\n")
    masks.write_text(noisy)
    line = noisy[: noisy.index("raise RuntimeError('here')")].count("\n") + 1
    place = f"masks.py:{line}: in causal_mask\n    raise RuntimeError('here')"
    answer = shell("tests", "L5.2", "-k", "lower_triangle", plain=True)
    says(answer, 1, "Captured stdout call", "was here", place)


def test_the_debugger_stops_where_a_test_fails(python, masks):
    said = python("-m", "ol", "tests", "L5.2", "--pdb", "-x", input="print('i is', i + 70)\nq\n")
    assert "i is 70" in said.stdout


def test_everything_runs_with_the_learners_modules(shell, python, root, masks):
    script = root / "who.py"
    script.write_text(
        "import subprocess, sys, tinyllm.shapes, tinyllm.xfmr.masks as masks\n"
        "print(masks.__file__, tinyllm.shapes.__file__, sep='\\n')\n"
        "if len(sys.argv) == 1:\n"
        "    subprocess.run([sys.executable, __file__, 'child'], check=True)\n"
        "    sys.exit(3)\n"
    )
    wanted = [str(masks), str(find("L0.2").reference)] * 2
    for words in (["python"], ["run", "L5.2", "--", "python"]):
        status, text = shell(*words, "who.py", plain=True)
        assert sorted(text.splitlines()) == sorted(wanted)
        assert status == 3
    tests = root / "python/tests"
    mine = f"import tinyllm.xfmr.masks as m\n\ndef test_mine():\n    assert m.__file__ == {str(masks)!r}\n"
    (tests / "test_mine.py").write_text(mine)
    for folder in (root, tests, ROOT):
        done = python("-m", "pytest", str(tests), folder=folder)
        assert done.returncode == 0, done.stdout
        assert f"yours: {masks}" in done.stdout
    for words in (["tests"], ["check"], ["diff"]):  # in its folder a chapter need not be named
        done = python("-m", "ol", *words, "--json", folder=masks.parent)
        assert done.returncode == 1
        assert "L5.2" in done.stdout


def test_a_stub_has_no_grade_and_own_tests_come_first(shell, root):
    shell("start", "L5.3", "--ref-deps")
    says(shell("mutate", "L5.3"), 1, "mha.py is still the stub")
    right = (SAMPLE / "python/tinyllm/xfmr/mha.py").read_text()
    (root / "python/tinyllm/xfmr/mha.py").write_text(right + "\n\nWRONG = 1\n")
    tests = root / "python/tests/l5-3-mha/test_mha.py"
    tests.write_text("import tinyllm.xfmr.mha as m\n\n\ndef test_a():\n    assert m.WRONG == 2\n")
    says(shell("mutate", "L5.3"), 1, "your tests fail on your own module", "assert 1 == 2")


@pytest.mark.long
def test_multi_head_attention_from_start_to_end(shell, root):
    shell("start", "L5.3", "--ref-deps")
    tests = root / "python/tests/l5-3-mha/test_mha.py"
    shutil.copy(SAMPLE / "python/tinyllm/xfmr/mha.py", root / "python/tinyllm/xfmr/mha.py")

    status, data = shell("check", "L5.3")  # the module is right, and there are no tests yet
    assert (status, data["tests"]["failed"]) == (1, 0)
    assert "no test was collected" in data["grade"]["findings"][0]["says"]

    shutil.copy(WEAK / "python/tests/l5-3-mha/test_mha.py", tests)
    status, weak = shell("mutate", "L5.3")
    assert status == 1
    assert weak["score"] < 0.80
    assert "s03" in weak["uncaught"]
    assert weak["idle"] == ["test_shape", "test_nothing"]
    wants = "wants a score of 0.80 and the pitfalls s01, s02, s03, s04, s05, s06, s07 caught"
    lacks = "more must be caught", "pitfalls not caught: s03"
    says(shell("mutate", "L5.3", plain=True), 1, wants, *lacks)

    shutil.copy(SAMPLE / "python/tests/l5-3-mha/test_mha.py", tests)
    status, strong = shell("mutate", "L5.3")
    assert (status, strong["uncaught"], strong["undecided"]) == (0, [], 0)
    assert strong["score"] >= 0.95
    assert {"g01", "t01", *(f"s0{i}" for i in range(1, 9))} < {r["name"] for r in strong["rows"]}
    assert all(row["by"] for row in strong["rows"] if row["state"] == "caught")

    begun = time.monotonic()
    again = shell("mutate", "L5.3")[1]
    assert again["cached"]
    assert time.monotonic() - begun < 10  # with everything else that runs here; 1 s alone
    fresh = shell("mutate", "L5.3", "--verify")[1]
    assert not fresh["cached"]
    keys = ("name", "state", "by")
    one, *others = [[[row[k] for k in keys] for row in x["rows"]] for x in (strong, again, fresh)]
    assert others == [one, one]

    tests.write_text(tests.read_text() + "\n\ndef test_wrong():\n    assert 1 == 2\n")
    says(shell("mutate", "L5.3"), 1, "test_wrong")
    row = state_of(shell, "L5.3")
    assert (row["state"], row["done"]) == ("built", False)


@pytest.mark.slow
def test_passed_but_for_memory(shell, root):
    shell("start", "L5.3", "--ref-deps")
    right = find("L5.3").reference.read_text(encoding="utf-8")
    first = "        allowed = self._checked(x_q, x_kv, mask)\n        layers"
    head, _, rest = right.partition(first)
    naive = f"{head}        return self.attend(x_q, x_kv, mask)[0]\n\n    def _checked"
    naive += rest.partition("    def _checked")[2]
    (root / "python/tinyllm/xfmr/mha.py").write_text(naive, encoding="utf-8")
    status, data = shell("tests", "L5.3")
    assert (status, data["state"]) == (0, "passed but for memory")
    failed = [failure["test"] for failure in data["failures"]]
    assert failed == ["test_long_sequence_in_little_memory"]
    assert "memory: within 4 GiB and 60 s a test" in data["output"]
    row = state_of(shell, "L5.3")
    assert row["state"] == "built"
    assert row["note"].startswith("passed but for memory")


def test_watch_runs_again(root, masks):
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "ol", "tests", "L5.2", "--watch"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as run:

        def until(word):
            seen = []
            for line in run.stdout:
                seen.append(line)
                if word in line:
                    return "".join(seen)
            raise AssertionError(f"{word} never came: {seen}")

        try:
            first = until("watching")
            assert "L5.2 failed" in first
            assert str(masks) in first
            masks.write_text(RIGHT, encoding="utf-8")
            assert "L5.2 passed" in until("watching")
            endless = RIGHT.replace(FIRST, FIRST + "    while True:\n        pass\n")
            masks.write_text(endless, encoding="utf-8")
            until("test session starts")
            masks.write_text(RIGHT, encoding="utf-8")
            until("stopped by the save")
            until("watching")
            assert "L5.2 passed" in until("watching")
            run.send_signal(signal.SIGINT)
            assert run.wait(60) == 0
        finally:
            run.kill()


def test_works_from_a_wheel(tmp_path, python):
    from hatchling.builders.wheel import WheelBuilder

    built = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    site = tmp_path / "site packages"
    zipfile.ZipFile(built).extractall(site)
    held = {path.relative_to(site).as_posix() for path in site.rglob("test_*.py")}
    courses = {p.relative_to(ROOT) for c in "LM" for p in (ROOT / "tests").glob(f"{c}*/*.py")}
    assert held == {f"ol/course/{path.as_posix()}" for path in courses}
    work = tmp_path / "w s"
    work.mkdir()

    def run(*words):
        done = python("-P", "-m", "ol", *words, folder=work, package=site)
        return done.returncode, done.stdout + done.stderr

    assert run("start", "L5.2")[0] == 0
    status, text = run("tests", "L5.2")
    assert (status, str(site / "ol/course/tests/L5.2") in text) == (1, True)
    right = (site / "tinyllm/xfmr/masks.py").read_text(encoding="utf-8")
    (work / "python/tinyllm/xfmr/masks.py").write_text(right, encoding="utf-8")
    status, text = run("tests", "L5.2")
    assert status == 0, text
    assert run("mutate", "L5.3", "--hint", "s05")[0] == 0
