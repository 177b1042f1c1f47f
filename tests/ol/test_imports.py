# Tangled from book/workshop/ol-tests.md
"""What a learner's tests may import, and what they may not look at."""

import os

import pytest

from ol.imports import check

GOOD = """
import math
import os.path
import numpy as np
import numpy.testing
import pytest
import torch
import tinyllm
import tinyllm.xfmr.mha as mha
from pathlib import Path
from tinyllm import MultiHeadAttention
from tinyllm.num import gradcheck as module
from tinyllm.num.gradcheck import gradcheck
from tinyllm.num.pcg32 import PCG32
from tinyllm.xfmr.masks import causal_mask
from tinyllm.xfmr.mha import MultiHeadAttention as Layer

HERE = Path(__file__).parent


def test_a():
    mha.MultiHeadAttention(4, 2).split_heads
    tinyllm.xfmr.mha.MultiHeadAttention
    tinyllm.Tensor, module.gradcheck
"""

BAD = [
    ("import scipy", "imports scipy"),
    ("import hypothesis", "imports hypothesis"),
    ("from tinyllm.xfmr.mha import _project", "imports _project from tinyllm.xfmr.mha"),
    ("from tinyllm.xfmr.mha import *", "imports * from"),
    ("from ol import mutants", "imports ol: only contracts"),
    ("import tinyllm.num.threads", "imports tinyllm.num.threads, which has no contract"),
    ("from . import conftest", "each test file stands alone"),
    ("import importlib", "imports importlib"),
    ("__import__('ol')", "uses __import__"),
    ("exec('import scipy')", "uses exec"),
    ("import dis", "imports dis"),
    ("def test_(:", "cannot be read"),
    ("\0", "cannot be read"),
    ("-" * 100_000 + "1", "cannot be read"),
    ("a" + ".b" * 9_000, "cannot be read"),
]


def test_what_is_allowed(tmp_path):
    (tmp_path / "test_a.py").write_text(GOOD)
    assert check(tmp_path) == []


@pytest.mark.parametrize(("code", "says"), BAD)
def test_what_is_not(tmp_path, code, says):
    (tmp_path / "test_a.py").write_text(f"\n{code}\n")
    findings = check(tmp_path)
    assert any(says in one.says for one in findings), findings
    assert all(one.where.startswith("test_a.py:") for one in findings)


def test_what_is_no_file_is_told(tmp_path):
    (tmp_path / "test_folder.py").mkdir()
    (tmp_path / "test_link.py").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "test_pipe.py")  # reading it would never end
    assert [str(one) for one in check(tmp_path)] == [
        f"test_{what}.py: is no file" for what in ("folder", "link", "pipe")
    ]


def test_place_is_file_line_and_test(tmp_path):
    (tmp_path / "deep").mkdir()
    text = "import scipy\n\n\ndef test_source():\n    import dis\n    dis.dis(len)\n"
    (tmp_path / "deep" / "test_b.py").write_text(text)
    places = [one.where for one in check(tmp_path)]
    assert places == ["deep/test_b.py:1", "deep/test_b.py:5"]
