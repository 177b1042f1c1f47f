"""Width 1 is greedy: one comparison."""

import numpy as np

from tinyllm.xfmr.search import beam_search, greedy_search, log_softmax


def step(prefixes, rows):
    z = [
        np.random.default_rng([r, *p]).normal(size=6)
        for p, r in zip(prefixes.tolist(), rows.tolist(), strict=True)
    ]
    return log_softmax(z)


def test_width_one():
    options = {"start": 1, "end": 0, "max_length": 6}
    greedy = greedy_search(step, 10, **options)
    assert [[h] for h in greedy] == beam_search(step, 10, width=1, **options)
