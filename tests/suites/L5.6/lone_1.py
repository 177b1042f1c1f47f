"""One sequence by hand, greedily."""

import numpy as np

from tinyllm.xfmr.search import greedy_search


def test_greedy():
    table = {1: [0.1, 0.1, 0.8], 2: [0.7, 0.2, 0.1]}

    def step(prefixes, rows):
        return np.log([table[p[-1]] for p in prefixes.tolist()])

    (found,) = greedy_search(step, 1, start=1, end=0, max_length=5)
    assert found.tokens == (2, 0)
    assert np.isclose(found.log_prob, np.log(0.56))
    assert found.ended
