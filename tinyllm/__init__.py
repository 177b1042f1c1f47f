# Tangled from book/workshop/package.md
"""tinyllm: a language model built from numpy alone, chapter by chapter.

The names below are imported when they are first used; `import tinyllm` itself imports no numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinyllm import checkpoint as checkpoint
    from tinyllm import nn as nn
    from tinyllm import tensor as tensor
    from tinyllm import train as train
    from tinyllm.nn import Dropout as Dropout
    from tinyllm.nn import Linear as Linear
    from tinyllm.nn import Module as Module
    from tinyllm.nn import ModuleList as ModuleList
    from tinyllm.nn import Sequential as Sequential
    from tinyllm.nn import randn as randn
    from tinyllm.num.gradcheck import gradcheck as gradcheck
    from tinyllm.num.pcg32 import PCG32 as PCG32
    from tinyllm.num.pcg32 import manual_seed as manual_seed
    from tinyllm.tensor import Tensor as Tensor
    from tinyllm.tensor import arange as arange
    from tinyllm.tensor import concatenate as concatenate
    from tinyllm.tensor import no_grad as no_grad
    from tinyllm.tensor import ones as ones
    from tinyllm.tensor import stack as stack
    from tinyllm.tensor import where as where
    from tinyllm.tensor import zeros as zeros
    from tinyllm.train import SGD as SGD
    from tinyllm.train import AdamW as AdamW
    from tinyllm.train import cross_entropy as cross_entropy
    from tinyllm.xfmr.layers import LayerNorm as LayerNorm
    from tinyllm.xfmr.mha import MultiHeadAttention as MultiHeadAttention
    from tinyllm.xfmr.positions import Embedding as Embedding

__version__ = "0.1.0"

_HOME = {
    "Tensor": "tinyllm.tensor",
    "concatenate": "tinyllm.tensor",
    "stack": "tinyllm.tensor",
    "where": "tinyllm.tensor",
    "zeros": "tinyllm.tensor",
    "ones": "tinyllm.tensor",
    "arange": "tinyllm.tensor",
    "no_grad": "tinyllm.tensor",
    "Module": "tinyllm.nn",
    "ModuleList": "tinyllm.nn",
    "Sequential": "tinyllm.nn",
    "Linear": "tinyllm.nn",
    "Dropout": "tinyllm.nn",
    "randn": "tinyllm.nn",
    "AdamW": "tinyllm.train",
    "SGD": "tinyllm.train",
    "cross_entropy": "tinyllm.train",
    "PCG32": "tinyllm.num.pcg32",
    "manual_seed": "tinyllm.num.pcg32",
    "gradcheck": "tinyllm.num.gradcheck",
    "MultiHeadAttention": "tinyllm.xfmr.mha",
    "Embedding": "tinyllm.xfmr.positions",
    "LayerNorm": "tinyllm.xfmr.layers",
}
_MODULES = ("checkpoint", "nn", "tensor", "train")
__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"tinyllm.{name}")  # which binds it as well
    if name not in _HOME:
        raise AttributeError(f"module 'tinyllm' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_MODULES})
