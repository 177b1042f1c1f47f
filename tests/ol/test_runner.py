# Tangled from book/workshop/mutants.md
"""The runner for mutants: patches, verdicts, and tests that misbehave."""

import dataclasses
import difflib
import os
import random
import time

import pytest

from ol import mutants
from ol import runner as runners
from ol.jobs import Job, function_name
from ol.mutants import PatchError, apply_patch, patched_file
from ol.registry import Chapter
from ol.runner import Runner

TOY = "def double(x):\n    return 2 * x\n"
USER = "from shop.toy import double\n\ndef quadruple(x):\n    return double(double(x))\n"
IMPORT = "from shop.toy import double\n"
GOOD = IMPORT + "def test_five():\n    assert double(5) == 10\n"
FIT = "@@ -1,2 +1,2 @@\n a\n-c\n+d\n"


@pytest.fixture
def toy(tmp_path):
    """Makes jobs: a package with one module, tests for it, and another text for the module."""
    root = tmp_path / "a path with spaces"
    (root / "shop").mkdir(parents=True)
    (root / "shop" / "__init__.py").touch()
    (root / "shop" / "toy.py").write_text(TOY)
    (root / "shop" / "user.py").write_text(USER)

    def job(tests, text=TOY, name="job", **options):
        path = root / f"test_{name}.py"
        path.write_text(tests)
        return Job(name, (str(path),), {"shop.toy": ("toy.py", text)}, str(root), **options)

    return job


def one(runner, job):
    (verdict,) = runner.run([job])
    return verdict


def test_patches_of_random_edits():
    rng, lines = random.Random(1), ["a\n", "b\n", "\n", "@@ -1 +1 @@\n", "-x\n", "+y\n", "\f\n"]
    for _ in range(200):
        old = rng.choices(lines, k=12)
        new = [line for line in old if rng.random() < 0.8]
        for _ in range(rng.randrange(3)):
            new.insert(rng.randrange(len(new) + 1), f"{rng.random()}\n")
        patch = "".join(difflib.unified_diff(old, new, "a/f", "b/f"))
        assert not patch or apply_patch("".join(old), patch) == "".join(new)


@pytest.mark.parametrize(
    ("text", "patch", "says"),
    [
        ("a\nb\n", FIT, "another text: near line 1 there is no\na\nc\n"),
        ("a\n", FIT, "there is no\na\nc\n"),
        ("\nb\nc\n", FIT, "there is no\na\nc\n"),
        ("a\n", "", "no hunk"),
        ("a\n", "--- a/f\n+++ b/f\n", "no hunk"),
        ("a\n", "@@ 1 @@\n-a\n+b\n", "opens no hunk: @@ 1 @@"),
    ],
)
def test_a_patch_that_does_not_fit(text, patch, says):
    with pytest.raises(PatchError, match=says):
        apply_patch(text, patch)


def test_a_patch_goes_to_the_nearest_place_where_it_fits():
    text = "a\nb\na\nb\n"
    assert apply_patch(text, "@@ -2 +2 @@\n-b\n+c\n") == "a\nc\na\nb\n"
    assert apply_patch(text, "@@ -4 +4 @@\n-b\n+c\n") == "a\nb\na\nc\n"
    assert apply_patch("x\n" * 9 + text, "@@ -4 +4 @@\n-b\n+c\n") == "x\n" * 9 + "a\nc\na\nb\n"
    twice = "@@ -1 +1 @@\n-b\n+c\n@@ -1 +1 @@\n-b\n+d\n"
    assert apply_patch(text, twice) == "a\nc\na\nd\n"


def test_names_imported_from_the_module_are_the_mutants(runner, toy):
    tests = GOOD + "from shop.user import quadruple\ndef test_user(): assert quadruple(1) == 4\n"
    right, wrong = toy(tests), toy(tests, TOY.replace("2 *", "3 *"), "wrong")
    verdicts = {verdict.job: verdict for verdict in runner.run([right, wrong])}
    assert verdicts["job"].state == "missed"
    assert verdicts["job"].passed == ("test_job.py::test_five", "test_job.py::test_user")
    assert verdicts["wrong"].state == "caught"
    assert verdicts["wrong"].failed_functions == {"test_five", "test_user"}


SKIPPED = "import pytest\n@pytest.mark.skip\ndef test_a(): pass\n"


@pytest.mark.parametrize(
    ("state", "text", "tests", "says"),
    [
        ("unbuildable", "def double(x:\n", GOOD, "SyntaxError"),
        ("unbuildable", "1 / 0\n", GOOD, "ZeroDivisionError"),
        ("unbuildable", "import absent_module\n", GOOD, "No module named 'absent_module'"),
        ("unbuildable", "raise SystemExit\n", GOOD, "SystemExit"),
        ("crashed", TOY, "", "no test was run"),
        ("crashed", TOY, SKIPPED, "no test was run"),
        ("crashed", TOY, GOOD + "import absent_module\n", "No module named 'absent_module'"),
        ("crashed", TOY, GOOD + "assert double(1) == 3\n", "test_job.py cannot be imported"),
        ("crashed", TOY, GOOD + "def test_b(:\n", "SyntaxError"),
    ],
)
def test_what_cannot_be_run_is_not_caught(runner, toy, state, text, tests, says):
    verdict = one(runner, toy(tests, text))
    assert (verdict.state, verdict.failed, verdict.passed) == (state, (), ())
    assert says in verdict.detail


def test_what_is_set_up_for_a_test_belongs_to_it(runner, toy):
    tests = GOOD + "import pytest\n@pytest.fixture\ndef six(): assert double(3) == 6\n"
    tests += "def test_six(six): pass\n"
    assert one(runner, toy(tests)).state == "missed"
    verdict = one(runner, toy(tests, TOY.replace("2 * x", "10")))
    assert (verdict.state, verdict.failed) == ("caught", ("test_job.py::test_six",))


def test_warnings_are_failures(runner, toy):
    tests = "import warnings\ndef test_a(): warnings.warn('old', DeprecationWarning)\n"
    verdict = one(runner, toy(tests))
    assert verdict.state == "caught"
    assert verdict.messages == {"test_job.py::test_a": "DeprecationWarning: old"}


CHANCE = """
import random
import numpy as np
from hypothesis import given, strategies as st
seen = []
@given(st.integers())
def test_draw(n): seen.append(n)
def test_show(): assert not [seen, random.random(), np.random.rand(), hash("a")]
"""


def test_chance_is_the_same_in_every_run(runner, toy):
    jobs = [toy(CHANCE, explain=True) for _ in range(3)]
    verdicts = [dataclasses.replace(verdict, seconds=0.0) for verdict in runner.run(jobs)]
    assert "assert not [[0, " in next(iter(verdicts[0].messages.values()))
    assert verdicts[0] == verdicts[1] == verdicts[2]


def test_a_job_that_wants_another_parent_takes_no_other_job_with_it(runner, toy):
    jobs = [toy(GOOD, name=f"job{i}") for i in range(6)]
    jobs[2:4] = [dataclasses.replace(job, warm=("shop.user",)) for job in jobs[2:4]]
    assert {v.job: v.state for v in runner.run(jobs)} == {f"job{i}": "missed" for i in range(6)}


def test_spawned_processes_give_the_same_verdicts(toy):
    jobs = [
        toy(GOOD, name="right"),
        toy(GOOD, TOY.replace("2", "3"), "wrong", explain=True),
        toy(GOOD, "def double(x:\n", "unbuildable"),
        toy(CHANCE, name="chance", explain=True),
        toy("def test_a():\n    while True: pass\n", name="loop", seconds=1),
        toy("import os\ndef test_a(): os._exit(0)\n", name="exit"),
        toy("import os\ndef test_a(): os.abort()\n", name="abort"),
        toy("", name="empty"),
    ]
    seen = []
    for method in ("fork", "spawn"):
        with Runner(method=method) as runner:
            verdicts = {v.job: dataclasses.replace(v, seconds=0.0) for v in runner.run(jobs)}
        seen.append([verdicts[job.name] for job in jobs])
    assert seen[0] == seen[1]
    states = ["missed", "caught", "unbuildable", "caught", "timeout", *["crashed"] * 3]
    assert [verdict.state for verdict in seen[0]] == states


@pytest.mark.parametrize(
    ("body", "state", "says"),
    [
        ("os._exit(0)", "crashed", "ended during test_job.py::test_bad with exit status 0"),
        ("os.kill(os.getpid(), 9)", "crashed", "with SIGKILL"),
        ("os.abort()", "crashed", "with SIGABRT"),
        ("list(iter(int, 1))", "timeout", "stopped after 1 s during test_job.py::test_bad"),
        ("time.sleep(600)", "timeout", "stopped after 1 s during test_job.py::test_bad"),
        ("raise KeyboardInterrupt", "crashed", "a test stopped the run: KeyboardInterrupt"),
        ("pytest.exit('enough', 0)", "crashed", "a test stopped the run: Exit"),
        ("sys.exit(0)", "caught", ""),
        ("print('{\"end\": 0}', flush=True); os._exit(0)", "crashed", "ended during"),
        ("[write(n) for n in range(3, 40)]; os._exit(0)", "crashed", "ended during"),
    ],
)
def test_misbehaviour(runner, toy, body, state, says):
    tests = f"""
import contextlib, os, pytest, sys, time
def write(n):
    with contextlib.suppress(OSError):
        os.write(n, b'{{"failed": "test_job.py::test_a", "message": ""}}\\n{{"end": 1}}\\n')
def test_bad(): {body}
"""
    bad, good = toy(tests, name="job", seconds=1), toy(GOOD, name="good")
    verdicts = {verdict.job: verdict for verdict in runner.run([bad, good])}
    assert verdicts["good"].state == "missed"
    assert verdicts["job"].state == state
    assert says in verdicts["job"].detail
    assert bool(verdicts["job"].failed) == (state == "caught")


def test_what_a_test_has_started_ends_with_it(runner, toy, tmp_path):
    alive = str(tmp_path / "alive")
    os.mkfifo(alive)
    reader = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    code = f"import time; writer = open({alive!r}, 'w'); print(flush=True); time.sleep(50)"
    tests = f"""
import subprocess, sys
kept = []
def test_a():
    kept.append(subprocess.Popen([sys.executable, "-c", {code!r}], stdout=subprocess.PIPE))
    kept[0].stdout.readline()
"""
    begun = time.monotonic()
    assert one(runner, toy(tests)).state == "missed"
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""  # there is no writer any more
    os.close(reader)
    assert time.monotonic() - begun < 50


def test_a_test_that_ends_the_parent_harms_no_other(toy):
    tests = "import os, signal\ndef test_a(): os.kill(os.getppid(), signal.SIGKILL)\n"
    with Runner(workers=1, method="fork") as runner:
        jobs = [toy(GOOD, name="first"), toy(tests, name="bad"), toy(GOOD, name="last")]
        verdicts = list(runner.run(jobs))
    assert [verdict.state for verdict in verdicts] == ["missed", "crashed", "missed"]
    assert "the parent process ended with SIGKILL" in verdicts[1].detail


def test_closing_stops_what_still_runs(toy):
    runner = Runner(workers=1, method="fork")
    jobs = [toy(GOOD, name="a"), toy("def test_a():\n    while True: pass\n", name="b")]
    assert next(runner.run(jobs)).job == "a"
    folder = runner.folder
    runner.close()
    assert not folder.exists()


def test_a_failure_before_a_crash_counts(runner, toy):
    tests = GOOD + "import os\ndef test_then(): os._exit(0)\n"
    verdict = one(runner, toy(tests, TOY.replace("2", "3")))
    assert verdict.state == "caught"
    assert "ended during test_job.py::test_then" in verdict.detail


MANY = (
    IMPORT
    + """
import pytest
def test_a(): pass
@pytest.mark.parametrize("x", [0, 1, 2])
def test_b(x): assert double(x) == 2 * x
class TestC:
    def test_c(self): assert double(3) == 6
"""
)


@pytest.mark.parametrize(
    ("how", "failed"),
    [({"after": ("test_c",)}, ["b", "c"]), ({"last": ("test_b",)}, ["c"]), ({}, ["b"])],
)
def test_a_run_ends_at_the_first_failure_but_for_some(runner, toy, how, failed):
    verdict = one(runner, toy(MANY, TOY.replace("2 *", "3 *"), stop=True, **how))
    assert [function_name(test) for test in verdict.failed] == [f"test_{name}" for name in failed]


def test_an_edited_test_is_read_again(runner, toy):
    for number, state in [(10, "missed"), (11, "caught"), (10, "missed")]:
        tests = IMPORT + f"def test_five(): assert double(5) == {number}\n"
        assert one(runner, toy(tests)).state == state


def test_a_patch_says_which_file_it_changes():
    assert patched_file("--- a/x y.py\n+++ b/x y.py\n@@ -1 +1 @@\n-+++ b/z\n+b\n") == "x y.py"
    with pytest.raises(PatchError, match="which file is it for"):
        patched_file("@@ -1 +1 @@\n-a\n+b\n")


def test_a_misfit_names_the_mutant(tmp_path, monkeypatch):
    monkeypatch.setattr(mutants, "COURSE", tmp_path)
    facts = {"builds": "ol/__init__.py", "mutants": {"s01": {"pitfall": "a"}}}
    (tmp_path / "mutants" / "L9.1").mkdir(parents=True)
    patch = tmp_path / "mutants" / "L9.1" / "s01.patch"
    patch.write_text("--- a/ol/__init__.py\n+++ b/ol/__init__.py\n@@ -9 +9 @@\n-a\n+b\n")
    with pytest.raises(PatchError, match=r"mutant L9\.1/s01: .* near line 9 there is no\na\n"):
        mutants.seeded_mutants(Chapter("L9.1", facts))


def test_asking_imports_nothing_heavy(python):
    code = "import sys, ol.mutants, ol.runner; print({'numpy', 'pytest', 'torch'} & {*sys.modules})"
    assert python("-c", code).stdout == "set()\n"


def test_without_pytest_the_runner_says_what_to_install(monkeypatch):
    monkeypatch.setattr(runners.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="pip install pytest"):
        Runner()
