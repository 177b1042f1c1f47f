# Tangled from book/workshop/ol-class-tests.md
"""Runs that are interrupted, killed and repeated, and clusters that are lost."""

import json
import os
import re
import signal
import subprocess
import sys
import tomllib

import psutil
import pytest

from ol import classroom, cli, sandbox
from ol.bubblewrap import Limits
from ol.registry import ROOT, Refusal, find
from ol.worker import imported

L53 = find("L5.3")
HANG = "import time\n\n\ndef test_a():\n    time.sleep(1000)\n"


@pytest.fixture
def submissions(tmp_path, submit):
    """Four that are quick, and one that hangs."""
    folder = tmp_path / "a class"
    for i in range(4):
        submit(folder, f"student {i}", f"import nonsense{i}\n")
    submit(folder, "the slow one", HANG)
    return folder


def start(folder, scratch, *words):
    """A run in a process of its own; what it says of its progress can be read."""
    scratch.mkdir(exist_ok=True)
    words = ["grade", str(folder), "--chapter", "L5.3", "--points", "0:100", "--jobs", "2", *words]
    return subprocess.Popen(
        [sys.executable, "-m", "ol", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def lives_in(scratch, process):
    """Whether a process has its temporary files there."""
    return (process.info["environ"] or {}).get("TMPDIR", "").startswith(str(scratch))


def journal(folder):
    return sorted(path.name for path in (folder / classroom.JOURNAL).glob("*.json"))


@pytest.mark.parametrize(
    ("kind", "after", "status"),
    [("SIGINT", 1, 130), ("SIGTERM", 4, 143), ("SIGHUP", 2, 129), ("SIGKILL", 1, -9)],
)
@pytest.mark.slow
def test_a_signal_loses_nothing_and_leaves_nothing(submissions, tmp_path, kind, after, status):
    scratch = tmp_path / "scratch"
    with start(submissions, scratch) as run:
        for _ in range(after):
            assert b" of 5" in run.stderr.readline()
        run.send_signal(getattr(signal, kind))
        run.stderr.read()  # until every keeper has gone
        assert run.wait() == status
    assert list(scratch.iterdir()) == []
    assert not [one for one in psutil.process_iter(["environ"]) if lives_in(scratch, one)]
    kept = journal(submissions)
    assert after <= len(kept) <= 4
    before = {name: (submissions / classroom.JOURNAL / name).stat().st_mtime_ns for name in kept}

    with start(submissions, scratch, "--seconds", "3", "--json") as run:
        out, progress = run.communicate()
    assert run.returncode == 0
    assert progress.count(b" of 5") == 5 - len(kept)
    rows = json.loads(out)["submissions"]
    assert [row["state"] for row in rows] == ["no grade"] * 4 + ["stopped"]
    assert rows[4]["says"] == "more than 3 s"
    for name, time in before.items():  # they were not graded again
        assert (submissions / classroom.JOURNAL / name).stat().st_mtime_ns == time
    assert list(scratch.iterdir()) == []


@pytest.fixture
def told(monkeypatch):
    """Orders are not carried out but collected."""
    facts = {"state": "missed", "passed": ["a"], "count": 1, "messages": {}, "detail": ""}
    orders = type("Orders", (list,), {"answer": {"module": facts}})()
    monkeypatch.setattr(sandbox, "grade", lambda order: orders.append(order) or dict(orders.answer))
    return orders


def run(folder, **wishes):
    return classroom.grade_class(folder, "L5.3", points=(100.0, 0.0), **wishes)


def command(folder, *more):
    return cli.main(["grade", str(folder), "--chapter", "L5.3", "--points", "1:0", *more])


def module(folder, name, text, file="mha.py"):
    path = folder / name / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_only_what_has_changed_is_graded_again(tmp_path, told, monkeypatch):
    for name in ("ada", "bob", "carl"):
        module(tmp_path, name, "x = 1" if name != "carl" else "x = 2")
    assert run(tmp_path).data["passed"] == 3
    assert len(told) == 2  # two of them are the same
    run(tmp_path)
    assert len(told) == 2
    module(tmp_path, "bob", "x = 3")
    run(tmp_path)
    assert len(told) == 3
    run(tmp_path, fresh=True)
    assert len(told) == 6
    monkeypatch.setattr(classroom, "key", lambda *_: "another course")
    run(tmp_path)
    assert len(told) == 9


def test_what_was_stopped_or_lost_is_tried_again(tmp_path, told):
    module(tmp_path, "ada", "x = 1")
    told.answer = {"stopped": "more than 3 s"}
    for seconds, count in ((3, 1), (3, 1), (4, 2)):  # under other limits only
        assert run(tmp_path, limits=Limits(seconds=seconds)).status == 0
        assert len(told) == count
    told.answer = {"lost": "the scheduler is gone"}
    for count in (3, 4):
        answer = run(tmp_path, limits=Limits(seconds=5))
        assert (answer.status, len(told)) == (1, count)
        assert answer.data["submissions"][0]["state"] == "not graded"


def test_a_journal_that_is_damaged_or_cannot_be_written_costs_no_row(tmp_path, told):
    module(tmp_path, "ada", "x = 1")
    run(tmp_path)
    (path,) = (tmp_path / classroom.JOURNAL).iterdir()
    for count, text in enumerate(("", "{", "[]", "{}", '{"answer": 1}', "\udcff"), 2):
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        assert run(tmp_path).data["passed"] == 1
        assert len(told) == count
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("")
    answer = run(tmp_path)
    assert (answer.status, answer.data["passed"]) == (1, 1)
    assert "not kept" in answer.data["unwritten"][0]


def test_one_submission_has_no_journal_for_its_author(tmp_path, told, capsys, monkeypatch):
    module(tmp_path, "ada", "x = 1")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert command(tmp_path / "ada", "--one") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("::notice title=Autograding report::")
    assert [path.name for path in (tmp_path / "ada").iterdir()] == ["mha.py"]
    told.answer = {}
    assert command(tmp_path / "ada", "--one") == 1  # no module: not passed


def test_the_roster_and_copies_are_told(tmp_path, told, capsys):
    source = L53.reference.read_text()
    own = source.replace("return ", "return 1 and ", 1)
    module(tmp_path / "all", "ada", own)
    module(tmp_path / "all", "bob", own.replace("x_q", "q") + "\n# by bob\n")
    module(tmp_path / "all", "=carl", source)
    module(tmp_path / "all", "eve", "x = 1")
    (tmp_path / "all" / "dan").mkdir()
    roster, out = tmp_path / "class.csv", tmp_path / "grades.csv"
    roster.write_text("name\nada\nbob\n=carl\nfay\ndan\n")
    files = ["--roster", str(roster), "--csv", str(out)]
    assert command(tmp_path / "all", *files, "--json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["submissions"]}
    assert {name: (row["state"], row["copies"]) for name, row in rows.items()} == {
        "ada": ("passed", "bob"),
        "bob": ("passed", "ada"),
        "=carl": ("passed", "the book"),
        "dan": ("no grade", ""),
        "eve": ("not on the roster", ""),
        "fay": ("absent", ""),
    }
    assert "'=carl" in out.read_text()


def test_what_cannot_be_written_does_not_cost_the_table(tmp_path, told, capsys):
    module(tmp_path / "all", "bob", "x = 1")
    (tmp_path / "file").write_text("")
    assert command(tmp_path / "all", "--feedback", str(tmp_path / "file"), "--json") == 1
    data = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in data["submissions"]] == ["bob"]
    assert "File exists" in data["unwritten"][0]


@pytest.mark.slow
def test_a_module_is_graded_by_all_of_the_course_s_tests(tmp_path):
    """One that ends its process after the first tests gets no more than those."""
    source = find("M04.1").reference.read_text()
    quits = "\nimport os as _os\n_count = 0\n_real = gradcheck\n\n\ndef gradcheck(*a, **k):\n"
    quits += "    global _count\n    _count += 1\n    if _count > 5:\n        _os._exit(0)\n"
    quits += "    return _real(*a, **k)\n"
    for name, text in [("good", source), ("quits", source + quits), ("broken", "x = (")]:
        module(tmp_path, name, text, "gradcheck.py")
    rows = classroom.grade_class(tmp_path, "M04.1", points=(100.0, 0.0)).data["submissions"]
    broken, good, quits = rows
    assert (good["state"], good["module"], good["points"]) == ("passed", 1, 100)
    assert (broken["state"], broken["module"]) == ("not yet", 0)
    assert "SyntaxError" in broken["says"]
    assert quits["state"] == "not yet"
    assert 0 < quits["module"] < 0.5


@pytest.mark.parametrize(
    "words",
    ["--jobs 0", "--seconds -1", "--memory x"]
    + [f"--points {points}" for points in ("1", "0:0", "-1:2", "nan:1", "inf:1")],
)
def test_limits_are_positive_numbers(tmp_path, capsys, words):
    with pytest.raises(SystemExit) as error:
        cli.main(["grade", str(tmp_path), *words.split()])
    assert error.value.code == 2


def test_workflow_is_printed(capsys):
    import yaml

    assert cli.main(["grade", "--workflow", "--chapter", "L5.3"]) == 0
    text = capsys.readouterr().out
    made = yaml.safe_load(text)
    assert made["name"] == "Autograding Tests"
    assert list(made["jobs"]) == ["run-autograding-tests"]
    install, *_, last = [
        step["run"]
        for step in made["jobs"]["run-autograding-tests"]["steps"]
        if "pip" in step.get("run", "") or "ol grade" in step.get("run", "")
    ]
    assert last == "ol grade . --one --chapter L5.3"  # and no grade that was kept
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    there = {re.split(r"\W", name)[0] for name in extra["learn"]} | {"numpy", "tinyllm"}
    assert "tinyllm-book[learn]==" in install
    wanted = {name.partition(".")[0] for name in imported(L53.course_tests)}
    lacking = wanted - there - set(sys.stdlib_module_names)
    assert lacking <= set(install.split())
    assert cli.main(["grade"]) == 2


@pytest.fixture
def lose(submissions, tmp_path, monkeypatch):
    """Grades on a cluster that loses something at the first result."""
    import distributed

    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    put = classroom.Journal.put

    def grade(workers, loss, **wishes):
        with distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=":0", protocol="tcp"
        ) as cluster:

            def put_and_lose(self, name, answer):
                put(self, name, answer)
                if len(journal(submissions)) == 1:
                    loss(cluster)

            monkeypatch.setattr(classroom.Journal, "put", put_and_lose)
            where = cluster.scheduler_address
            return classroom.grade_class(
                submissions, "L5.3", points=(0.0, 100.0), dask=where, **wishes
            )

    return grade


@pytest.mark.slow
def test_no_cluster_is_said(submissions):
    for address in ("tcp://127.0.0.1:1", "nonsense"):
        with pytest.raises(Refusal, match=f"no cluster at {address}"):
            classroom.grade_class(submissions, "L5.3", dask=address)


@pytest.mark.slow
def test_a_lost_scheduler_loses_nothing_that_was_done(submissions, lose):
    answer = lose(1, lambda cluster: cluster.sync(cluster.scheduler.close))
    assert answer.status == 1
    states = [row["state"] for row in answer.data["submissions"]]
    assert 1 <= states.count("no grade") == len(journal(submissions))
    assert states.count("not graded") == 5 - states.count("no grade")


@pytest.mark.slow
def test_the_work_of_a_lost_worker_goes_to_another(lose, tmp_path):
    def kill(cluster):
        worker = psutil.Process(next(iter(cluster.workers.values())).pid)
        children = worker.children(recursive=True)
        worker.kill()
        assert not psutil.wait_procs(children, timeout=30)[1]

    answer = lose(2, kill, limits=Limits(seconds=6))
    states = [row["state"] for row in answer.data["submissions"]]
    assert states == ["no grade"] * 4 + ["stopped"]
    assert answer.status == 0
    assert not list((tmp_path / "scratch").glob("ol-*"))
