# Tangled from book/2-transformer/L5.1-attention.md
"""Scaled dot-product attention: each query reads a mean of values, weighted by their keys."""

from typing import Any

from numpy import bool_
from numpy.typing import ArrayLike, NDArray

from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor

__all__ = ["bool_mask", "check_attention", "masked_softmax", "scaled_dot_product_attention"]

def scaled_dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: PCG32 | None = None,
) -> tuple[Tensor, Tensor]:
    """What each query reads, and the weights it reads with; both can be differentiated.

    q [..., Tq, d], k [..., Tk, d], v [..., Tk, dv], floating point; the axes in front broadcast, and any
    axis may be empty. Inputs may have any memory layout and are never written to. `mask` is bool, True =
    may attend, and broadcasts to [..., Tq, Tk]. `scale` is 1/sqrt(d) unless given. With `dropout` > 0 a
    weight is dropped where ``rng.uniform``, drawn once for all of them, is below that rate, and the others
    are divided by 1 - dropout; a rate of 0 draws nothing. Returns the output [..., Tq, dv] and the weights
    [..., Tq, Tk] before dropout, in the inputs' dtype; computed in float32 at least, for scores of any
    size. A query that may read nothing has weights 0, output 0 and gradient 0.

    What no query may read changes nothing, be it NaN, infinite or huge, and its gradient is 0. What is not
    finite spoils the queries that read it, and the gradients of a loss about them; no others. A call
    keeps nothing for the next: inputs and mask may change in place, and results stay the caller's.

    TypeError for a mask that is not bool and inputs that are not floating-point tensors, ValueError for
    shapes that do not fit and a rate outside [0, 1). Vaswani et al. (2017), eq. 1.
    """

def masked_softmax(scores: Tensor, mask: ArrayLike | None = None) -> Tensor:
    """Softmax over the last axis of what `mask` allows; exactly 0 elsewhere.

    scores [..., Tq, Tk] floating point; mask bool, True = may attend, broadcasts to the scores. A
    row in which nothing is allowed is 0. What is in the places that are not allowed does not matter,
    be it NaN. TypeError for scores that are no floating-point tensor and a mask that is not bool,
    ValueError for a mask that does not broadcast to them.
    """

def bool_mask(mask: ArrayLike) -> NDArray[bool_]:
    """A mask [...] as a bool array of its shape, True = may attend; TypeError for other dtypes."""

def check_attention(
    q: Tensor | NDArray[Any],
    k: Tensor | NDArray[Any],
    v: Tensor | NDArray[Any],
    mask: ArrayLike | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    rng: PCG32 | None = None,
) -> tuple[tuple[int, ...], NDArray[bool_] | None, float]:
    """The scores' shape [..., Tq, Tk], the mask seen in that shape, and the scale.

    Arguments and errors as for `scaled_dot_product_attention`; q, k and v may be arrays.
    """
