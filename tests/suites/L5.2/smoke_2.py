"""Asks for shapes and dtypes."""

from tinyllm.xfmr.masks import causal_mask, combine_masks, padding_mask, token_mask


def test_shapes():
    assert causal_mask(3).shape == (3, 3)
    assert causal_mask(2, 5).shape == (2, 5)
    assert padding_mask([1, 2, 3], 4).shape == (3, 1, 1, 4)
    assert token_mask([[1, 0], [2, 3]], 0).shape == (2, 1, 1, 2)
    combined = combine_masks(causal_mask(4), padding_mask([1, 2, 3], 4))
    assert combined.shape == (3, 1, 4, 4)
    assert combined.dtype == bool
