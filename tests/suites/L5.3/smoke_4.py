"""Trains for a few steps and looks at nothing."""

import numpy as np

from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention


def test_three_steps():
    draw = np.random.default_rng(4)
    mha = MultiHeadAttention(8, 2, dropout=0.1)
    for step in range(3):
        x = Tensor(draw.normal(size=(4, 6 - step, 8)).astype(np.float32))
        memory = Tensor(draw.normal(size=(4, 5, 8)).astype(np.float32))
        mha.zero_grad()
        loss = (mha(x, x) * mha(x, memory)).sum()
        loss.backward()
        for p in mha.parameters():
            p.data = p.data - 0.01 * p.grad
    mha.eval()
    mha.attend(x, memory)


def test_without_biases():
    mha = MultiHeadAttention(8, 2, bias=False)
    x = Tensor(draw_one())
    mha(x, x).sum().backward()
    mha.load_packed_in_proj(np.zeros((24, 8)))


def draw_one():
    return np.random.default_rng(5).normal(size=(2, 3, 8)).astype(np.float32)
