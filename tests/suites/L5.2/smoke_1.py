"""Calls every function once."""

import numpy as np

from tinyllm.xfmr import masks


def test_runs():
    causal, padding = masks.causal_mask(3, 4), masks.padding_mask([1, 2], 4)
    masks.combine_masks(causal, padding, None)
    masks.token_mask([[1, 0, 0, 2]], 0)
    masks.from_torch_key_padding_mask(np.zeros((2, 4), bool))
    masks.from_torch_attn_mask(np.zeros((4, 3, 4), bool), 2)
    masks.from_torch_sdpa_mask(np.zeros((3, 4), bool))
