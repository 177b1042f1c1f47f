"""One wrong factor."""

import numpy as np
import pytest

from tinyllm.autograd import record
from tinyllm.num.gradcheck import GradientError, gradcheck
from tinyllm.tensor import Tensor


def test_wrong_factor():
    x = Tensor(np.ones(3), requires_grad=True)
    with pytest.raises(GradientError):
        gradcheck(lambda x: record(2 * x.data, (x,), lambda g: (3 * g,)), [x])
