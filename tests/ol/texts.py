# Tangled from book/workshop/ol-tests.md
"""Tests that are graded, and what they earn on the mutants s01 and s02."""

HEAD = """\
import contextlib, inspect, json, os, signal, socket, subprocess, sys, time
import numpy as np
import pytest
from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention
"""
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
EARNED = {"s01": "caught", "s02": "missed"}  # by MERGE


def says(answer, status, *words):
    """Asserts the status of a command, and that these words are in what it prints, or why it refuses."""
    found, said = answer
    text = said if isinstance(said, str) else said["refused"]
    assert found == status, text
    assert not [word for word in words if word not in text], text


def states(result):
    """The state of each mutant, of a grade without findings."""
    assert not result.findings
    return {row.name: row.state for row in result.rows}
