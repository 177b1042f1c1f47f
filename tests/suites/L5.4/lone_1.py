"""Embeddings against torch."""

import numpy as np
import torch

from tinyllm.tensor import Tensor
from tinyllm.xfmr.positions import embed


def test_embedding():
    table, ids = np.random.default_rng(0).normal(size=(9, 4)), np.array([[1, 2], [8, 2]])
    wanted = torch.nn.functional.embedding(torch.tensor(ids), torch.tensor(table))
    np.testing.assert_array_equal(embed(Tensor(table), ids).data, wanted.numpy())
