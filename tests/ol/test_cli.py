# Tangled from book/workshop/ol-tests.md
"""What the commands say, up to the tests and the grade."""

import os

import numpy as np
import pytest

from ol import cli, doctor, lesson
from ol.registry import find
from tests.ol.texts import says


def test_start_never_overwrites(ol, root):
    status, first = ol("start", "L5.3", "--json")
    module, tests = (root / path for path in find("L5.3").files)
    tests /= "test_mha.py"
    assert (status, first["written"]) == (0, [str(module), str(tests)])
    assert "rung R5" in tests.read_text()
    module.write_text("mine\n")
    says(ol("start", "L5.3"), 0, "is there already and was not touched")
    assert module.read_text() == "mine\n"


def test_start_says_what_is_missing(ol):
    missing = "the tests use M04.1, L5.2 from the book"
    says(ol("start", "L5.3"), 0, "not built: L0.1", "--ref-deps", missing, "R5 oracles")
    assert "R3 properties" in (text := ol("start", "L5.2")[1])
    assert "R4" not in text


def test_needs_are_asked_for(ol):
    ol("start", "L5.3")
    for verb in ("tests", "check", "mutate"):
        says(ol(verb, "L5.3"), 1, "needs L5.1: build it, or pass --ref-deps")
    status, data = ol("check", "L5.3", "--json")
    assert (status, data["status"], data["needs"][0]) == (1, 1, "L5.1")


def test_ref_deps_is_remembered_and_shown(ol):
    ol("start", "L5.3", "--ref-deps")
    says(ol("status"), 0, "(--ref-deps)")
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
    assert ol("mutate", "L5.3", "--hint", "s99")[0] == 2


def test_what_cannot_be_read_is_told(ol, root):
    module = root / "python/tinyllm/xfmr/masks.py"
    for words in (["tests", "L5.2"], ["check", "L5.2"], ["diff", "L5.2"]):
        assert ol(*words) == (1, "ol: python/tinyllm/xfmr/masks.py is not there: ol start L5.2\n")
    module.mkdir(parents=True)
    assert "masks.py is no file: move it away, then ol start L5.2" in ol("tests", "L5.2")[1]
    module.rmdir()
    module.write_bytes(b'x = "\xff"')
    says(ol("tests", "L5.2"), 1, "masks.py cannot be read: ")
    ol("start", "L5.3", "--ref-deps")
    (root / "python/tests/l5-3-mha/test_mha.py").unlink()
    (root / "python/tests/l5-3-mha").rmdir()
    assert "there are no tests of yours" in ol("mutate", "L5.3")[1]


def test_a_full_disk_leaves_no_half_file(ol, root, monkeypatch):
    def full(number):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        says(ol("start", "L5.2"), 1, "masks.py cannot be written: [Errno 28]")
        forgotten = "this will not be remembered: [Errno 28]"
        says(ol("mutate", "L5.3", "--hint", "s05"), 0, forgotten, "(2 more to come)")
    assert [p.name for p in root.rglob("*") if p.is_file()] == []
    assert "masks.py: written" in ol("start", "L5.2")[1]


@pytest.mark.parametrize(
    ("chapter", "missing", "said"),
    [
        ("L5.1", ["torch"], "L5.1's tests compare with torch: pip install torch"),
        ("L0.6", ["safetensors"], "L0.6's tests use safetensors: pip install safetensors"),
        ("L5.1", ["pytest", "torch"], "pytest and compare with torch: pip install pytest torch"),
    ],
)
def test_a_library_that_is_missing_is_named(ol, monkeypatch, chapter, missing, said):
    ol("start", chapter, "--ref-deps")
    util, there = lesson.importlib.util, lesson.importlib.util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: name not in missing and there(name) or None)
    says(ol("tests", chapter), 1, said)


def test_doctor(ol, monkeypatch):
    status, data = ol("doctor", "--json")
    assert (status, data["versions"]["numpy"]) == (0, np.__version__)
    monkeypatch.setattr(doctor, "version", lambda name: "")
    says(ol("doctor"), 1, "pip install pytest: ol tests, ol mutate")


def test_hints_come_one_by_one(ol):
    levels = [ol("mutate", "L5.3", "--hint", "s05", "--json")[1] for _ in range(4)]
    assert [data["level"] for data in levels] == [1, 2, 3, 3]
    assert [len(data["hints"]) for data in levels[:2]] == [1, 2]
    assert any(line.startswith("-") for line in levels[2]["hints"])
    assert levels[3] == levels[2]


def test_status_is_quick_and_imports_little(python, root):
    code = "import sys; from ol import cli; cli.main([]); print(*sorted(sys.modules))"
    modules = set(python("-c", code).stdout.splitlines()[-1].split())
    assert not modules & {"numpy", "torch", "pytest", "subprocess", "ol.runner"}
    spent = []
    for _ in range(3):
        before = os.times()
        python("-m", "ol")
        after = os.times()
        spent.append(sum(after[2:4]) - sum(before[2:4]))  # processor time of children
    assert min(spent) < 0.3
