# Tangled from book/2-transformer/L5.1-attention.md
"""Scaled dot-product attention: each query reads a mean of values, weighted by their keys."""

from numpy import bool_
from numpy.typing import ArrayLike, NDArray

from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor

__all__ = ["attend", "attention", "attention_packed", "bool_mask", "masked_softmax"]

def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: PCG32 | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention step by step: what each query reads, and its weights; both can be differentiated.

    q [..., Tq, d], k [..., Tk, d], v [..., Tk, dv], floating point; the axes in front broadcast.
    `mask` is bool, True = may attend, and broadcasts to [..., Tq, Tk]. `scale` is 1/sqrt(d) unless
    given. With `dropout` > 0 weights are dropped at that rate, by draws from `rng`. Returns the
    output [..., Tq, dv] and the weights [..., Tq, Tk] before dropout, in the inputs' dtype;
    computed in float32 at least. A query that may read nothing has weights 0 and output 0.
    TypeError for a mask that is not bool and inputs that are not floating-point tensors, ValueError for
    shapes that do not fit and a rate outside [0, 1). Vaswani et al. (2017), eq. 1.
    """

def attention(
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
    """What `attend` returns first, as one operation that keeps no weights of long sequences.

    Arguments, output and errors as for `attend`. `rows` is the number of query rows worked on at a
    time, by default chosen by the sizes; memory grows with Tq + Tk, not with Tq * Tk. Dao et al.
    (2022), appendix B.
    """

def attention_packed(
    qkv: Tensor,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: PCG32 | None = None,
    rows: int | None = None,
) -> Tensor:
    """`attention` of queries, keys and values that lie in one array, one after the other.

    qkv [..., 3H, T, d]: H heads of queries, H of keys, H of values. Returns [..., H, T, d]. The
    gradient is one array too. Other arguments and errors as for `attention`.
    """

def bool_mask(mask: ArrayLike) -> NDArray[bool_]:
    """A mask [...] as a bool array of its shape, True = may attend; TypeError for other dtypes."""

def masked_softmax(scores: Tensor, mask: ArrayLike | None = None) -> Tensor:
    """Softmax over the last axis of what `mask` allows; exactly 0 elsewhere.

    scores [..., Tq, Tk] floating point; mask bool, True = may attend, broadcasts to the scores. A
    row in which nothing is allowed is 0. What stands in the places that are not allowed does not
    matter, be it NaN.
    """
