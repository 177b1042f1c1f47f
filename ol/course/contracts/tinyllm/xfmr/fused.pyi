# Tangled from book/2-transformer/L5.7-fused-attention.md
"""Fused attention: the output of attention, without ever holding all of its weights."""

from numpy.typing import ArrayLike

from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor

__all__ = ["fused_attention", "fused_attention_packed"]

def fused_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: PCG32 | None = None,
    rows: int | None = None,
) -> Tensor:
    """The output [..., Tq, dv] of `scaled_dot_product_attention`, without its weights.

    Arguments, output and errors as there. `rows` is the number of query rows worked on at a time, by
    default chosen by the sizes; ValueError if it is not positive. Neither it nor the number of threads
    changes more than last bits. Memory grows with Tq + Tk, not with
    Tq * Tk. Dao et al. (2022), appendix B.
    """

def fused_attention_packed(
    qkv: Tensor,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: PCG32 | None = None,
    rows: int | None = None,
) -> Tensor:
    """`fused_attention` of queries, keys and values that are in one array, one after the other.

    qkv [..., 3H, T, d]: H heads of queries, H of keys, H of values. Returns [..., H, T, d]. The
    gradient is one array too. ValueError for another shape; other arguments and errors as for
    `fused_attention`.
    """
