# Tangled from book/workshop/ol-tests.md
"""Grading a class: fifty submissions, ten of them hostile, here and on a cluster."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from ol import classroom, cli
from ol.bubblewrap import has_namespaces
from ol.registry import ROOT, Refusal, find
from ol.sandbox import Limits, grade_files
from ol.submission import fingerprint, names, read

L53 = find("L5.3")
HEAD = """
import json, os, signal, sys, time
import numpy as np
from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention
"""
TESTS = {
    "shape": """
def test_shape():
    x = Tensor(np.ones((2, 3, 8), np.float32))
    assert MultiHeadAttention(8, 2)(x, x).shape == (2, 3, 8)
""",
    "merge": """
def test_merge():
    merged = MultiHeadAttention(4, 2).merge_heads(Tensor(np.arange(8.0).reshape(1, 2, 2, 2)))
    np.testing.assert_array_equal(merged.data, [[[0, 1, 4, 5], [2, 3, 6, 7]]])
""",
    "split": """
def test_split():
    split = MultiHeadAttention(4, 2).split_heads(Tensor(np.arange(8.0).reshape(1, 2, 4)))
    np.testing.assert_array_equal(split.data, [[[[0, 1], [4, 5]], [[2, 3], [6, 7]]]])
""",
    "wrong": "\ndef test_wrong():\n    assert 1 == 2\n",
    "private": "\nfrom tinyllm.xfmr.mha import _project\n\n\ndef test_it():\n    assert _project\n",
}
HONEST = [("shape",), ("merge", "split"), ("shape", "merge", "split"), ("wrong",), ("private",), ()]


HOSTILE = {
    "hang": "    time.sleep(10**6)",
    "exit": "    os._exit(0)",
    "parent": "    os.kill(os.getppid(), signal.SIGKILL)\n    time.sleep(5)",
    "memory": "    kept = []\n    while True: kept.append(np.ones(10**6))",
    "disk": "    with open('big', 'wb') as file:\n        while True: file.write(bytes(10**6))",
    "forge": """
    text = json.dumps({"rows": [], "findings": [], "score": 1.0, "state": "caught"})
    for descriptor in range(64):
        try: os.write(descriptor, text.encode() + b"\\n")
        except OSError: pass
    os._exit(0)""",
    "import": "    pass\nsys.exit(0)",
}
WORST = {
    "bomb": "    while True:\n        os.fork()",
    "all": "    os.kill(-1, signal.SIGKILL)",
    "package": "    with open(sys.modules['tinyllm.xfmr.mha'].np.__path__[0] + '/x.py', 'w'): pass",
}
MILD = {
    "bomb": "    for _ in range(50):\n        if os.fork() == 0: time.sleep(100)",
    "all": "    os.kill(os.getpid(), signal.SIGKILL)",
    "package": "    os.close(1)\n    os._exit(3)",
}


def submit(folder, name, text):
    path = folder / name / "python/tests/l5-3-mha/test_mha.py"
    path.parent.mkdir(parents=True)
    path.write_text(text)


@pytest.fixture(scope="module")
def submissions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a class") / "all of them"
    for i in range(40):
        kind = HONEST[i % len(HONEST)]
        submit(folder, f"student {i:02}", HEAD + "".join(TESTS[name] for name in kind))
    bad = HOSTILE | (WORST if has_namespaces() else MILD)
    for name in bad:
        submit(folder, f"hostile {name}", HEAD + "\n\ndef test_it():\n" + bad[name] + "\n")
    return folder


LIMITS = Limits(seconds=40, memory=2048, disk=64, processes=40)


@pytest.fixture(scope="module")
def graded(submissions, tmp_path_factory):
    """The whole class, graded here; the answer and the files."""
    out = tmp_path_factory.mktemp("out")
    (out / "scratch").mkdir()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(out / "scratch"))
        answer = classroom.grade_class(
            submissions, limits=LIMITS, csv_file=out / "grades.csv", feedback=out / "pages"
        )
    return answer, out


@pytest.mark.long
def test_fifty_submissions_give_fifty_rows(graded, submissions):
    answer, out = graded
    rows = {row["name"]: row for row in answer.data["submissions"]}
    assert set(rows) == {path.name for path in submissions.iterdir()}
    assert len(rows) == 50
    for name, row in rows.items():
        if name.startswith("hostile"):
            assert row["state"] in ("no grade", "stopped"), row
            assert row["score"] == ""
    by_kind = [rows[f"student {i:02}"] for i in range(len(HONEST))]
    shape, layout, both, wrong, private, empty = by_kind
    assert shape["state"] == layout["state"] == both["state"] == "not yet"
    assert float(shape["score"]) < float(both["score"])
    assert "pitfalls not caught" in both["says"]
    assert "fails on the right module" in wrong["says"]
    assert "imports _project" in private["says"]
    assert "no test was collected" in empty["says"]
    for i in range(40):  # the same work, the same row
        one, other = rows[f"student {i:02}"], by_kind[i % len(HONEST)]
        assert {**one, "name": ""} == {**other, "name": ""}

    with (out / "grades.csv").open(encoding="utf-8", newline="") as file:
        assert {row["name"] for row in csv.DictReader(file)} == set(rows)
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (out / "pages").iterdir()}
    assert set(pages) == set(rows)
    assert "s05  missed" in pages["student 02"]
    assert not list((out / "scratch").iterdir())


@pytest.mark.long
def test_hostile_submissions_are_stopped_for_what_they_do(graded):
    rows = {row["name"]: row["says"] for row in graded[0].data["submissions"]}
    assert rows["hostile hang"] == f"more than {LIMITS.seconds} s"
    assert "crashed" in rows["hostile exit"]
    assert "MemoryError" in rows["hostile memory"] or "of memory" in rows["hostile memory"]
    if has_namespaces():
        assert "processes" in rows["hostile bomb"] or "BlockingIOError" in rows["hostile bomb"]


@pytest.mark.long
def test_a_cluster_gives_the_same_table_when_a_worker_dies(graded, submissions):
    import distributed

    at_kill = []
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, protocol="tcp"
    ) as cluster:
        tasks = cluster.scheduler.tasks

        def kill_one():
            while sum(task.state == "memory" for task in [*tasks.values()]) < 6:
                time.sleep(0.05)  # half way is when some are done, and the others run or wait
            at_kill.extend(task.state for task in tasks.values())
            os.kill(next(iter(cluster.workers.values())).pid, 9)

        killer = threading.Thread(target=kill_one)
        killer.start()
        answer = classroom.grade_class(submissions, limits=LIMITS, dask=cluster.scheduler_address)
        killer.join()

    def table(found):
        """All but the words on hostile ones, which may break one limit or another first."""
        return [
            {k: v for k, v in row.items() if k != "says" or row["name"].startswith("student")}
            for row in found.data["submissions"]
            if not row["name"].startswith("hostile")
        ]

    assert "processing" in at_kill
    assert table(answer) == table(graded[0])
    assert len(answer.data["submissions"]) == 50
    for row in answer.data["submissions"]:
        if row["name"].startswith("hostile"):
            assert row["state"] in ("no grade", "stopped")


@pytest.mark.slow
def test_no_cluster_is_said(tmp_path):
    submit(tmp_path, "a", HEAD)
    for address in ("tcp://127.0.0.1:1", "nonsense"):
        with pytest.raises(Refusal, match=f"no cluster at {address}"):
            classroom.grade_class(tmp_path, dask=address)


def test_only_plain_files_are_read(tmp_path):
    submit(tmp_path, "good", HEAD)
    assert list(read(tmp_path / "good", L53)) == ["test_mha.py"]
    for name in ("link", "pipe", "large"):
        submit(tmp_path, name, HEAD)
        tests = tmp_path / name / "python/tests/l5-3-mha"
        if name == "link":
            (tests / "x.txt").symlink_to("/etc/hostname")
        elif name == "pipe":
            os.mkfifo(tests / "x.txt")
        else:
            (tests / "x.txt").write_bytes(bytes(3_000_000))
        with pytest.raises(ValueError, match=r"not a plain file|bytes"):
            read(tmp_path / name, L53)
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="no folder"):
        read(tmp_path / "none", L53)
    (tmp_path / "flat").mkdir()
    shutil.copy(tmp_path / "good/python/tests/l5-3-mha/test_mha.py", tmp_path / "flat")
    assert fingerprint(read(tmp_path / "flat", L53)) == fingerprint(read(tmp_path / "good", L53))


def test_rosters(tmp_path):
    for name in ("ada", "bob", ".git"):
        (tmp_path / name).mkdir()
    assert names(tmp_path, None) == ["ada", "bob"]
    roster = tmp_path / "class.csv"
    roster.write_text("\ufeffname,group\nbob,1\ncarl,2\nbob,1\n", encoding="utf-8")
    assert names(tmp_path, roster) == ["bob", "carl"]
    roster.write_text("../bob\n")
    with pytest.raises(Refusal, match="not the name of a folder"):
        names(tmp_path, roster)
    with pytest.raises(Refusal, match="there is no folder"):
        names(tmp_path / "x", None)


def test_the_box_stops_what_breaks_a_limit():
    def order(text, **limits):
        import base64

        code = base64.b64encode((HEAD + text).encode()).decode()
        kept = {"seconds": 60, "memory": 2048, "disk": 64, "processes": 30, **limits}
        return {"chapter": "L5.3", "files": {"test_mha.py": code}, "limits": kept}

    hang = "def test_a():\n    time.sleep(1000)\n"
    begun = time.monotonic()
    assert grade_files(order(hang, seconds=4)) == {"stopped": "more than 4 s"}
    assert time.monotonic() - begun < 30
    found = grade_files(order("def test_a():\n    print('x')\n    assert 0\n"))
    assert "fails on the right module" in found["findings"][0]["says"]


def test_table_names_absent_students(tmp_path, capsys):
    submit(tmp_path / "all", "bob", HEAD)
    (tmp_path / "class.csv").write_text("name\nbob\n=carl\n")
    out = tmp_path / "grades.csv"
    words = ["grade", str(tmp_path / "all"), "--roster", str(tmp_path / "class.csv")]
    assert cli.main([*words, "--csv", str(out), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    states = {row["name"]: row["state"] for row in data["submissions"]}
    assert states == {"bob": "no grade", "=carl": "absent"}
    assert "'=carl" in out.read_text()


def test_an_interrupt_ends_all_boxes(tmp_path):
    submit(tmp_path / "all", "hang", HEAD + "def test_a():\n    time.sleep(1000)\n")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    words = [sys.executable, "-m", "ol", "grade", str(tmp_path / "all")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) as run:
        try:
            while not list(scratch.iterdir()):
                time.sleep(0.05)
            time.sleep(1)
            run.send_signal(signal.SIGINT)
            assert run.wait(60) == 130
        finally:
            run.kill()
    assert list(scratch.iterdir()) == []


def test_what_cannot_be_written_does_not_cost_the_table(tmp_path, capsys):
    submit(tmp_path / "all", "bob", HEAD)
    (tmp_path / "file").write_text("")
    words = ["grade", str(tmp_path / "all"), "--feedback", str(tmp_path / "file"), "--json"]
    assert cli.main(words) == 1
    data = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in data["submissions"]] == ["bob"]
    assert "File exists" in data["unwritten"][0]


@pytest.mark.parametrize("words", [["--jobs", "0"], ["--seconds", "-1"], ["--memory", "x"]])
def test_limits_are_positive_numbers(tmp_path, capsys, words):
    with pytest.raises(SystemExit) as error:
        cli.main(["grade", str(tmp_path), *words])
    assert error.value.code == 2


def test_workflow_is_printed(capsys):
    import yaml

    assert cli.main(["grade", "--workflow"]) == 0
    text = capsys.readouterr().out
    assert "ol check L5.3 --ref-deps" in text
    assert yaml.safe_load(text)["jobs"]["grade"]["steps"]
    assert cli.main(["grade"]) == 2
