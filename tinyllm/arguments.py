# Tangled from book/1-foundations/L0.4-modules.md
"""Checks of arguments that the whole package shares; `tensor_argument` is L0.1's."""

from typing import Any

import numpy as np

__all__ = ["non_negative_int", "positive_int"]


def positive_int(who: str, name: str, value: Any) -> int:
    """`value`, the argument `name` of `who`, as an int; ValueError unless it is one above 0."""
    if not _is_int(value) or value < 1:
        raise ValueError(f"{who}: wants a positive int for {name}, got {value!r}")
    return int(value)


def non_negative_int(who: str, name: str, value: Any) -> int:
    """The same for an int that may be 0."""
    if not _is_int(value) or value < 0:
        raise ValueError(f"{who}: wants an int of at least 0 for {name}, got {value!r}")
    return int(value)


def _is_int(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
