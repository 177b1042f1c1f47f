# Tangled from book/workshop/threads.md
"""How many cores there are for this process."""

import os

__all__ = ["cores"]


def cores() -> int:
    """The number of processors that this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
