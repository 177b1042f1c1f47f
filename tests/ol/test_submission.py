# Tangled from book/workshop/ol-class-tests.md
"""Submissions as they come: folders and zips, harmless, odd and hostile."""

import base64
import json
import os
import struct
import unicodedata
import zipfile
import zlib

import pytest

from ol import gradebook
from ol.registry import Refusal, find
from ol.submission import ARCHIVE, LARGEST, likeness, names, read, submissions

L53, L02 = find("L5.3"), find("L0.2")
MODULE, TESTS = "python/tinyllm/xfmr/mha.py", "python/tests/l5-3-mha"
TEST = "def test_one():\n    assert 1\n"


def put(folder, **files):
    """A folder with these files: a.b for a path, a text for what it says."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def found(place, chapter=L53):
    """What is read, decoded."""
    kept = read([place], chapter)
    files = {name: base64.b64decode(text).decode() for name, text in kept["files"].items()}
    return files, kept["module"] and base64.b64decode(kept["module"]).decode()


@pytest.mark.parametrize(
    ("module", "tests"),
    [
        (MODULE, f"{TESTS}/test_mha.py"),
        (f"my-repo-main/{MODULE}", f"my-repo-main/{TESTS}/test_mha.py"),
        ("tinyllm/xfmr/mha.py", "tests/l5-3-mha/test_mha.py"),
        ("mha.py", "l5-3-mha/test_mha.py"),
        ("mha.py", "test_mha.py"),
    ],
)
def test_a_submission_is_found_wherever_it_is(tmp_path, module, tests):
    folder = put(tmp_path / "a", **{module: "x = 1", tests: TEST})
    assert found(folder) == ({"test_mha.py": TEST}, "x = 1")
    zipped(tmp_path / "a.zip", (module, "x = 1"), (tests.replace("/", "\\"), TEST))
    assert found(tmp_path / "a.zip") == ({"test_mha.py": TEST}, "x = 1")
    put(tmp_path / "b", readme="").joinpath("readme").unlink()
    os.replace(tmp_path / "a.zip", tmp_path / "b" / "Work (1).ZIP")
    assert found(tmp_path / "b") == ({"test_mha.py": TEST}, "x = 1")


def test_the_one_most_like_a_workspace_is_taken(tmp_path):
    files = {MODULE: "right", "mha.py": "draft", f"old/{MODULE}": "old", f".ol/{MODULE}": "hidden"}
    assert found(put(tmp_path, **files))[1] == "right"


def test_a_submission_has_a_module_or_tests(tmp_path):
    assert found(put(tmp_path, **{"shapes.py": "x", "a/test_a.py": TEST}), L02) == ({}, "x")
    with pytest.raises(ValueError, match=r"neither python/tinyllm/xfmr/mha.py nor .*l5-3-mha"):
        read([put(tmp_path / "other", readme="x")], L53)


MADE = {  # in a folder, beside a file of tests
    "link": lambda odd: odd.symlink_to("/etc/hostname"),
    "folder": lambda odd: odd.symlink_to("/etc"),  # which must not be read, however deep
    "pipe": os.mkfifo,
    "large": lambda odd: odd.write_bytes(bytes(LARGEST)),
    "many": lambda odd: put(odd.parent, a="", b="", c="", d="", e=""),
}


@pytest.mark.parametrize("kind", [*MADE, "twice", "top"])
def test_only_plain_files_are_read(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("ol.submission.MOST", 5)
    folder, top = put(tmp_path / "a", **{f"{TESTS}/test_mha.py": TEST}), tmp_path / "b"
    top.symlink_to("/etc")
    MADE.get(kind, str)(folder / TESTS / "x.py")
    places = {"twice": [folder, tmp_path / "a.zip"], "top": [top]}.get(kind, [folder])
    with pytest.raises(ValueError, match=r"not a plain file|no plain file|more than|twice"):
        read(places, L53)


def zipped(path, *members, method=zipfile.ZIP_DEFLATED):
    """A zip of (name or ZipInfo, bytes)."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


def as_link(name):
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o120777 << 16
    return info


IN = f"{TESTS}/"
BAD = {
    "slip": [(IN + "../../../../../tmp/slip.py", b"")],
    "absolute": [("/" + IN + "test_a.py", b"")],
    "escape": [(IN + "\x1b[2J.py", b"")],
    "link": [(as_link(IN + "passwd.py"), b"/etc/passwd")],
    "bomb": [(IN + "zeros.py", bytes(50_000_000))],
    "many bombs": [(f"{IN}{i}.py", bytes(LARGEST // 10)) for i in range(12)],
    "bzip2": [],  # a method that unpacks without a limit
    "lzma": [],
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_members_are_refused(tmp_path, kind):
    good = [(IN + "test_mha.py", TEST)] if kind != "absolute" else []
    method = getattr(zipfile, f"ZIP_{kind.upper()}", zipfile.ZIP_DEFLATED)
    path = zipped(tmp_path / "a.zip", *good, *BAD[kind], method=method)
    words = r"no name for a file|not a plain file|more than 2000000 bytes"
    with pytest.raises(ValueError, match=words):
        read([path], L53)


def test_bad_members_elsewhere_do_no_harm(tmp_path):
    others = [(name if isinstance(name, str) else as_link("x"), data) for name, data in BAD["link"]]
    others += [("../../x.py", b""), ("/etc/passwd", b""), ("notes/zeros", bytes(10_000_000))]
    path = zipped(tmp_path / "a.zip", (IN + "test_mha.py", TEST), *others)
    assert found(path) == ({"test_mha.py": TEST}, None)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.zip"]
    old = IN + b"\x81.py".decode("cp437")  # a name in an old encoding is odd, and no more
    assert len(found(zipped(path, (IN + "test_mha.py", TEST), (old, b"")))[0]) == 2


def test_a_member_that_lies_about_its_size_is_not_believed(tmp_path):
    path = zipped(tmp_path / "a.zip", (IN + "test_mha.py", bytes(30_000_000)))
    data = path.read_bytes()
    true, small = struct.pack("<L", 30_000_000), struct.pack("<L", 100)
    path.write_bytes(data.replace(true, small))
    with pytest.raises((ValueError, zipfile.BadZipFile, zlib.error)):
        found(path)


def test_zips_that_are_none(tmp_path):
    whole = zipped(tmp_path / "whole.zip", (IN + "test_mha.py", TEST * 50)).read_bytes()
    path = tmp_path / "a.zip"
    for data in (b"", b"PK", whole[:60], whole[:-30], whole[:40] + b"\xff" * 30 + whole[70:]):
        path.write_bytes(data)
        with pytest.raises((ValueError, zipfile.BadZipFile, zlib.error, EOFError)):
            read([path], L53)
    with path.open("wb") as file:
        file.truncate(ARCHIVE + 1)
    with pytest.raises(ValueError, match="no plain file"):
        read([path], L53)


def test_names_come_from_folders_and_zips(tmp_path):
    for name in ("ada", "bob", ".git"):
        (tmp_path / name).mkdir()
    zipped(tmp_path / "Carl.ZIP")
    zipped(tmp_path / "bob.zip")
    (tmp_path / "class.csv").write_text("")
    nfd = unicodedata.normalize("NFD", "Zoë")
    (tmp_path / nfd).mkdir()
    assert list(submissions(tmp_path)) == ["Carl", "Zoë", "ada", "bob"]
    assert len(submissions(tmp_path)["bob"]) == 2
    with pytest.raises(Refusal, match="there is no folder"):
        submissions(tmp_path / "x")


def test_rosters(tmp_path):
    roster = tmp_path / "class.csv"
    roster.write_text("\ufeffname,group\nbob,1\ncarl,2\n../x,3\nZoe\u0308\n", encoding="utf-8")
    assert names(roster) == ["bob", "carl", "../x", "Zoë"]
    roster.write_bytes(b"\xff")
    with pytest.raises(Refusal, match="cannot be read"):
        names(roster)


ODD = ["<script>alert(1)</script>", "a\nb\x1b[31m", "=1+1", "\udcff", "x" * 250, "CON", "é" * 120]
ODD += ["..", "\u202egnp", "a/b", "a_b", "'\"&", " "]


def test_odd_names_are_rows_and_pages(tmp_path):
    rows = [gradebook.row(name, "absent", f"says {name}") for name in ODD]
    out = {"csv_file": tmp_path / "g.csv", "feedback": tmp_path / "f", "gradescope": tmp_path / "g"}
    assert gradebook.put(rows, L53, False, **out) == []
    pages = {path.name: path.read_text("utf-8") for path in (tmp_path / "f").iterdir()}
    assert len(pages) == len({name.casefold() for name in pages}) == len(ODD)
    for text in pages.values():
        assert "<script" not in text
        assert "\x1b" not in text
        assert "default-src 'none'" in text
    assert "&lt;script&gt;" in "".join(pages.values())
    table = (tmp_path / "g.csv").read_text("utf-8").splitlines()
    assert len(table) == 1 + len(ODD)
    assert any(line.startswith("'=1+1,absent") for line in table)
    assert len(list((tmp_path / "g").iterdir())) == len(ODD)


def part(**more):
    module = {"state": "caught", "passed": ["a"] * 3, "count": 4, "detail": ""}
    return module | {"messages": {"t.py::test_x": "E  <b>\x1b[1m"}} | more


def test_points_are_numbers_everywhere(tmp_path):
    """Three of four tests of a module that is worth 30 points: 22.5."""
    row = gradebook.result("ada", {"module": part()}, (30.0, 0.0))
    assert (row["points"], row["module"], row["state"]) == (22.5, 0.75, "not yet")
    whole = gradebook.result("ada", {"module": part(state="missed", messages={})}, (30.0, 0.0))
    assert whole["state"] == "passed"
    assert gradebook.result("ada", {}, (30.0, 0.0))["points"] == 0
    gradebook.put([row], L53, True, csv_file=tmp_path / "g.csv", gradescope=tmp_path)
    assert (tmp_path / "g.csv").read_text().splitlines()[1].startswith("ada,not yet,22.5,0.75,,,,,")
    kept = json.loads((tmp_path / "results.json").read_text())
    module = {"score": 22.5, "max_score": 30, "status": "failed"}
    assert kept["tests"][0].items() >= module.items()
    assert "\x1b" not in (tmp_path / "results.json").read_text()
    assert set(kept) <= {"score", "tests", "output", "stdout_visibility"}  # of Gradescope's keys
    *quiet, last = gradebook.notice(row, ["  ::notice title=Autograding report::{}"])
    assert last == '::notice title=Autograding report::{"totalPoints": 22.5, "maxPoints": 30.0}'
    assert quiet[0].partition("::stop-commands::")[2] == quiet[-1].strip(":")


@pytest.mark.parametrize("why", ["stopped", "lost"])
def test_what_was_stopped_has_no_points_to_show_for_it(why):
    row = gradebook.result("ada", {why: "more than 4 s"}, (30.0, 70.0))
    assert row["points"] is None
    assert row["state"] == {"stopped": "stopped", "lost": "not graded"}[why]
    scores = [test["score"] for test in gradebook.results_json(row)["tests"]]
    assert scores == [0, 0]


def test_copies_are_seen_through_names_and_layout():
    source = L53.reference.read_bytes()
    changed = source.replace(b"x_q", b"query").replace(b"    return", b"    # mine\n    return")
    assert changed != source
    assert likeness([changed]) == likeness([source])
    assert likeness([source.replace(b"+", b"-", 1)]) != likeness([source])
    assert likeness([TEST.encode()]) == ""  # two students may well have written this
    for hostile in (b"(" * 100_000, b"'" * 99_999, bytes(100_000), b"\xff\xfe" * 50_000):
        likeness([hostile])
