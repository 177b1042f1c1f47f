"""One batch by hand."""

from tinyllm.xfmr.masks import causal_mask, combine_masks, padding_mask


def test_batch():
    mask = combine_masks(causal_mask(3), padding_mask([3, 1], 3))
    assert mask[0, 0].tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert mask[1, 0].tolist() == [[True, False, False]] * 3
