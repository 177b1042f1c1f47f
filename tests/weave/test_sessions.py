# Tangled from book/workshop/ol-sessions.md
"""Sessions show what the commands print today."""

import re
import shutil

import pytest

from ol.registry import ROOT
from weave.run import sessions


@pytest.fixture
def home(tmp_path):
    """A small checkout: both packages, and no kept sessions."""
    for package in ("tinyllm", "ol"):
        shutil.copytree(ROOT / package, tmp_path / package)
    shutil.copytree(ROOT / "tests" / "L5.2", tmp_path / "tests" / "L5.2")
    return tmp_path


def test_sessions_of_a_chapter_share_a_workspace(home):
    mine = home / "mine" / "python" / "tinyllm" / "xfmr"
    mine.mkdir(parents=True)
    shutil.copy(ROOT / "tinyllm/xfmr/masks.py", mine)
    blocks = [("$ ol start L5.2\n$ ol status | tail -1", ""), ("$ ol tests L5.2 | tail -5", "mine")]
    first, second = sessions.transcripts(blocks, str(home))
    assert "$ ol start L5.2\nL5.2 Masks\npython/tinyllm/xfmr/masks.py: written" in first
    assert first.endswith("...\nnext: ol tests L5.2")
    assert str(home) not in first + second
    assert " passed in … s " in second
    assert not re.search(r"\d ?s\b", first + second)
    assert len(list((home / "build/sessions").iterdir())) == 1
    assert sessions.known(blocks, str(home)) == [first, second]
    (home / "tests/L5.2/more.py").write_text("")
    assert sessions.known(blocks, str(home)) is None


@pytest.mark.parametrize("command", ["rm -r x", "ol tests L9.9", "ol paint"])
def test_faults_are_told(home, command):
    with pytest.raises(ValueError, match=r"a session can only|status 2"):
        sessions.transcripts([(f"$ {command}", "")], str(home))
