"""Asks for shapes."""

import numpy as np
import pytest

from tinyllm.tensor import Tensor
from tinyllm.xfmr.attention import check_attention, masked_softmax, scaled_dot_product_attention


@pytest.mark.parametrize(("lead", "Tq", "Tk"), [((), 1, 1), ((2,), 3, 4), ((2, 3), 5, 2)])
def test_shapes(lead, Tq, Tk):
    q, k, v = (np.ones((*lead, *size), np.float32) for size in ((Tq, 4), (Tk, 4), (Tk, 6)))
    out, weights = scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v))
    assert out.shape == (*lead, Tq, 6)
    assert weights.shape == (*lead, Tq, Tk)
    assert masked_softmax(weights, np.ones((Tq, Tk), bool)).shape == weights.shape
    assert check_attention(q, k, v)[0] == weights.shape
