"""Wants lists of the right lengths."""

import numpy as np

from tinyllm.xfmr.search import beam_search, greedy_search


def step(prefixes, rows):
    return np.full((len(prefixes), 4), -np.log(4))


def test_lengths():
    found = beam_search(step, 3, start=1, end=0, max_length=4, width=2)
    assert [len(beams) for beams in found] == [2, 2, 2]
    assert len(greedy_search(step, 3, start=1, end=0, max_length=4)) == 3
