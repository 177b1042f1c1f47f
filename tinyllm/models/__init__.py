# Tangled from book/2-transformer/MS-L5-addition.md
"""Whole models: each is a package or a module. `load` reads one from a folder."""

from typing import Any

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    if name != "load":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tinyllm.models.pretrained import load

    return load
