# Tangled from book/workshop/package.md
"""tinyllm: a language model built from numpy alone, chapter by chapter.

The names below are imported when they are first used; `import tinyllm` itself imports no numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinyllm.nn import Linear as Linear
    from tinyllm.nn import Module as Module
    from tinyllm.num.gradcheck import gradcheck as gradcheck
    from tinyllm.num.pcg32 import PCG32 as PCG32
    from tinyllm.tensor import Tensor as Tensor
    from tinyllm.tensor import concatenate as concatenate
    from tinyllm.tensor import no_grad as no_grad
    from tinyllm.tensor import stack as stack
    from tinyllm.xfmr.mha import MultiHeadAttention as MultiHeadAttention

__version__ = "0.1.0"

_HOME = {
    "Tensor": "tinyllm.tensor",
    "concatenate": "tinyllm.tensor",
    "stack": "tinyllm.tensor",
    "no_grad": "tinyllm.tensor",
    "Module": "tinyllm.nn",
    "Linear": "tinyllm.nn",
    "PCG32": "tinyllm.num.pcg32",
    "gradcheck": "tinyllm.num.gradcheck",
    "MultiHeadAttention": "tinyllm.xfmr.mha",
}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tinyllm' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
