"""Searches, and looks at nothing."""

import numpy as np

from tinyllm.xfmr.search import beam_search, greedy_search, log_softmax


def step(prefixes, rows):
    return log_softmax(np.random.default_rng(0).normal(size=(len(prefixes), 5)))


def test_runs():
    for width in (1, 2, 7):
        beam_search(step, 3, start=1, end=0, max_length=4, width=width)
    greedy_search(step, 3, start=1, end=0, max_length=4)
