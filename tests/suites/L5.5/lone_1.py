"""Layer normalisation against torch."""

import numpy as np
import torch

from tinyllm.tensor import Tensor
from tinyllm.xfmr.layers import layer_norm


def test_layer_norm():
    x, w, b = (
        np.random.default_rng(i).normal(size=s) for i, s in enumerate(((3, 4, 6), (6,), (6,)))
    )
    ours = [Tensor(a, requires_grad=True) for a in (x, w, b)]
    theirs = [torch.tensor(a, requires_grad=True) for a in (x, w, b)]
    out, want = layer_norm(*ours), torch.nn.functional.layer_norm(theirs[0], (6,), *theirs[1:])
    np.testing.assert_allclose(out.data, want.detach(), atol=1e-10)
    out.sum().backward()
    want.sum().backward()
    for mine, its in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.grad, its.grad, atol=1e-10)
