"""One mask by hand."""

from tinyllm.xfmr.masks import causal_mask


def test_causal():
    assert causal_mask(2, 3).tolist() == [[True, True, False], [True, True, True]]
