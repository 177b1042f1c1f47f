# Tangled from book/workshop/ol-tests.md
"""Grading a class: fifty submissions, ten of them hostile."""

import csv

import pytest

from ol import classroom
from ol.bubblewrap import Limits, has_namespaces
from tests.ol.texts import HEAD, MERGE, SPLIT

TESTS = {
    "shape": """
def test_shape():
    x = Tensor(np.ones((2, 3, 8), np.float32))
    assert MultiHeadAttention(8, 2)(x, x).shape == (2, 3, 8)
""",
    "merge": MERGE,
    "split": SPLIT,
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
    "bomb": "    while True:\n        os.fork()",
    "all": "    os.kill(-1, signal.SIGKILL)",
    "package": "    with open(sys.modules['tinyllm.xfmr.mha'].np.__path__[0] + '/x.py', 'w'): pass",
}


@pytest.fixture(scope="module")
def submissions(tmp_path_factory, submit):
    assert has_namespaces(), "these tests need bubblewrap: apt install bubblewrap"
    folder = tmp_path_factory.mktemp("a class") / "all of them"
    for i in range(40):
        kind = HONEST[i % len(HONEST)]
        submit(folder, f"student {i:02}", HEAD + "".join(TESTS[name] for name in kind))
    for name, body in HOSTILE.items():
        submit(folder, f"hostile {name}", f"{HEAD}\n\ndef test_it():\n{body}\n")
    return folder


LIMITS = Limits(seconds=40, memory=2048, disk=64, processes=40)


@pytest.fixture(scope="module")
def graded(submissions, tmp_path_factory):
    """The whole class, graded here; the answer and the files."""
    out = tmp_path_factory.mktemp("out")
    wishes = {"csv_file": out / "grades.csv", "feedback": out / "pages", "points": (0.0, 100.0)}
    (out / "scratch").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(out / "scratch"))
        return classroom.grade_class(submissions, "L5.3", limits=LIMITS, **wishes), out


@pytest.mark.long
def test_fifty_submissions_give_fifty_rows(graded, submissions):
    answer, out = graded
    rows = {row["name"]: row for row in answer.data["submissions"]}
    assert set(rows) == {path.name for path in submissions.iterdir() if path.name[0] != "."}
    assert len(rows) == 50
    for name, row in rows.items():
        if name.startswith("hostile"):
            assert row["state"] in ("no grade", "stopped"), row
            assert row["score"] is None
    by_kind = [rows[f"student {i:02}"] for i in range(len(HONEST))]
    shape, layout, both, wrong, private, empty = by_kind
    assert shape["state"] == layout["state"] == both["state"] == "not yet"
    assert shape["score"] < both["score"]
    assert shape["points"] == round(100 * shape["score"], 2)
    assert "pitfalls not caught" in both["says"]
    assert "fails on the right module" in wrong["says"]
    assert "imports _project" in private["says"]
    assert "no test was collected" in empty["says"]
    for i in range(40):  # the same work, the same row
        one, other = rows[f"student {i:02}"], by_kind[i % len(HONEST)]
        assert {**one, "name": "", "copies": ""} == {**other, "name": "", "copies": ""}

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
    assert "processes" in rows["hostile bomb"] or "BlockingIOError" in rows["hostile bomb"]
