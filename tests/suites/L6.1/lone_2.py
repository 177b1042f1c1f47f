"""Arrays in GPT-2's layout come back."""

import numpy as np

from tinyllm.models.gpt import GPT, GPTConfig, gpt2_arrays, load_gpt2_arrays
from tinyllm.num.pcg32 import PCG32


def test_there_and_back():
    one, two = (GPT(GPTConfig(9, 6, 8, 2, 2), PCG32(seed)) for seed in (1, 2))
    load_gpt2_arrays(two, gpt2_arrays(one))
    np.testing.assert_array_equal(one([[1, 2, 3]]).data, two([[1, 2, 3]]).data)
