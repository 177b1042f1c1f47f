# Tangled from book/1-foundations/L0.4-modules.md
"""Checks of sizes: what is an int, and what only looks like one."""

import numpy as np
import pytest

from tinyllm.arguments import non_negative_int, positive_int


@pytest.mark.parametrize("value", [1, 7, np.int64(7), np.uint8(1)])
def test_ints_become_ints(value):
    for check in (positive_int, non_negative_int):
        assert check("f", "n", value) == value
        assert type(check("f", "n", value)) is int
    assert non_negative_int("f", "n", 0) == 0


@pytest.mark.parametrize("value", [-1, 2.0, np.float32(2), True, np.True_, "2", None])
def test_others_are_refused(value):
    with pytest.raises(ValueError, match=r"f: wants a positive int for n, got ") as said:
        positive_int("f", "n", value)
    assert str(said.value).endswith(repr(value))
    with pytest.raises(ValueError, match="f: wants an int of at least 0 for n, got"):
        non_negative_int("f", "n", value)
    with pytest.raises(ValueError, match="got 0"):
        positive_int("f", "n", 0)
