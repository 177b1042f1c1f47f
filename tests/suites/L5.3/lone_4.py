"""One comparison with torch: every gradient of cross-attention without biases."""

import numpy as np
import torch

from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention


def test_gradients_of_cross_attention():
    draw = np.random.default_rng(2)
    ours = MultiHeadAttention(12, 4, bias=False).astype(np.float64)
    theirs = torch.nn.MultiheadAttention(12, 4, bias=False, batch_first=True).double()
    ours.load_packed_in_proj(theirs.in_proj_weight.detach())
    ours.out_proj.load_state_dict({"weight": theirs.out_proj.weight.detach().numpy()})
    x, y, grad = (
        draw.normal(size=(3, 4, 12)),
        draw.normal(size=(3, 5, 12)),
        draw.normal(size=(3, 4, 12)),
    )
    a, b = Tensor(x, requires_grad=True), Tensor(y, requires_grad=True)
    ta, tb = torch.tensor(x, requires_grad=True), torch.tensor(y, requires_grad=True)
    ours(a, b).backward(grad)
    theirs(ta, tb, tb)[0].backward(torch.tensor(grad))
    np.testing.assert_allclose(a.grad, ta.grad.numpy(), atol=1e-10)
    np.testing.assert_allclose(b.grad, tb.grad.numpy(), atol=1e-10)
    packed = np.concatenate([getattr(ours, f"{n}_proj").weight.grad for n in "qkv"])
    np.testing.assert_allclose(packed, theirs.in_proj_weight.grad.numpy(), atol=1e-10)
    np.testing.assert_allclose(
        ours.out_proj.weight.grad, theirs.out_proj.weight.grad.numpy(), atol=1e-10
    )
