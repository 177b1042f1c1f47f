"""Calls everything."""

import numpy as np

from tinyllm.tensor import Tensor
from tinyllm.train import SGD, AdamW, clip_grad_norm, cross_entropy, warmup_cosine


def test_runs():
    w = Tensor(np.ones((4, 3)), requires_grad=True)
    for optimiser in (AdamW([w]), SGD([w], momentum=0.9)):
        for step in range(3):
            optimiser.zero_grad()
            cross_entropy(w * 2, [0, 1, 2, -100]).backward()
            clip_grad_norm([w], 1.0)
            optimiser.lr = warmup_cosine(step, peak=1e-2, warmup=1, total=9)
            optimiser.step()
        optimiser.load_state_dict(optimiser.state_dict())
    cross_entropy(w, [0, 1, 2, 2], reduction="sum")
    cross_entropy(w, [0, 1, 2, 2], reduction="none")
