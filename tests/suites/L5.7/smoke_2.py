"""Asks for shapes."""

import numpy as np
import pytest

from tinyllm.tensor import Tensor
from tinyllm.xfmr.fused import fused_attention, fused_attention_packed


@pytest.mark.parametrize(("lead", "Tq", "Tk"), [((), 1, 1), ((2,), 3, 4), ((2, 3), 5, 2)])
def test_shapes(lead, Tq, Tk):
    q, k, v = (np.ones((*lead, *size), np.float32) for size in ((Tq, 4), (Tk, 4), (Tk, 6)))
    out = fused_attention(Tensor(q), Tensor(k), Tensor(v))
    assert out.shape == (*lead, Tq, 6)
    assert fused_attention_packed(Tensor(np.ones((2, 6, Tq, 4)))).shape == (2, 2, Tq, 4)
