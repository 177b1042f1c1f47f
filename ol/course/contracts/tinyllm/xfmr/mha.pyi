# Tangled from book/2-transformer/L5.3-multi-head-attention.md
"""Multi-head attention: several attentions side by side, each in its own slice of the features."""

from numpy import bool_
from numpy.typing import ArrayLike, NDArray

from tinyllm.nn import Linear, Module
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor

__all__ = ["MultiHeadAttention"]

class MultiHeadAttention(Module):
    """Attention by n_heads heads of d_model / n_heads features each, with learned projections.

        out = [head_0; ...; head_{H-1}] W_o^T + b_o,    head_h = softmax(Q_h K_h^T / sqrt(dh)) V_h

    Queries are projected from x_q [B, Tq, d_model], keys and values from x_kv [B, Tk, d_model]; head h
    owns features h*dh to (h+1)*dh - 1. Parameters, in the order of the state dict: q_proj.weight,
    q_proj.bias, k_proj.*, v_proj.*, out_proj.*; weights [d_model, d_model], biases [d_model], or none
    of the four with ``bias=False``. They are drawn in that order from `rng`, by default the process's
    ``default_generator()``, uniformly within 1/sqrt(d_model), in float32. While training, attention
    weights are dropped at rate `dropout`, by draws from ``rng.spawn("dropout")``, so no two modules of
    one generator drop alike; in evaluation nothing is drawn. ``rng_state()`` holds where the draws are.

    ValueError unless d_model and n_heads are positive ints, n_heads divides d_model, and 0 <= dropout
    < 1; TypeError for an `rng` that is no PCG32. Vaswani et al. (2017), section 3.2.2.
    """

    d_model: int
    n_heads: int
    d_head: int
    scale: float
    dropout: float
    q_proj: Linear
    k_proj: Linear
    v_proj: Linear
    out_proj: Linear
    dropout_rng: PCG32

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        rng: PCG32 | None = None,
    ) -> None: ...
    def split_heads(self, x: Tensor) -> Tensor:
        """[B, T, d] -> [B, H, T, dh]: head h gets features h*dh to (h+1)*dh - 1. A view, not a copy.

        Projections side by side, [B, T, n*d], become [B, n*H, T, dh]. ValueError for other shapes.
        """

    def merge_heads(self, x: Tensor) -> Tensor:
        """[B, H, T, dh] -> [B, T, d], undoing `split_heads`. ValueError for other shapes."""

    def head_mask(self, mask: ArrayLike | None, B: int, Tq: int, Tk: int) -> NDArray[bool_] | None:
        """A view of the mask with an axis for the heads, broadcasts to [B, H, Tq, Tk]; None for None.

        Up to two axes broadcast to [Tq, Tk]. Three are sequences, never heads, and broadcast to
        [B, Tq, Tk]: [B, 1, Tk] is key padding. Four broadcast to [B, H, Tq, Tk]. TypeError unless the
        mask is bool (True = may attend), ValueError for other shapes.
        """

    def attend(
        self, x_q: Tensor, x_kv: Tensor, mask: ArrayLike | None = None
    ) -> tuple[Tensor, Tensor]:
        """Output and weights: x_q [B, Tq, d], x_kv [B, Tk, d] -> [B, Tq, d], [B, H, Tq, Tk].

        `mask` as for `head_mask`. The weights are those before dropout; each row of them sums to 1, or
        is 0 if its query may read nothing, whose output is then out_proj's bias. Both can be
        differentiated. ValueError for shapes that do not fit, TypeError for inputs that are no tensors
        and a mask that is not bool.

        The projections are called as modules: another module in the place of one, a subclass or a
        forward of its own does what it does. Sequences don't meet, and keys are a set. Inputs may have
        any memory layout and are never written to; any of B, Tq and Tk may be 0. The output has the
        dtype that inputs and parameters promote to.

        What no query may read changes nothing, be it NaN or infinite, and its gradient is 0. A query that
        reads what is not finite, or is not finite itself, is answered with NaN; no other one is. A call
        keeps nothing for the next: parameters and masks may change in place, results stay the caller's.
        """

    def forward(self, x_q: Tensor, x_kv: Tensor, mask: ArrayLike | None = None) -> Tensor:
        """The output of `attend`, [B, Tq, d]; the weights of long sequences are never held.

        Forward and backward on 16,384 positions in self-attention take less than 2 GiB.
        """

    def load_packed_in_proj(self, weight: ArrayLike, bias: ArrayLike | None = None) -> None:
        """Copy torch's in_proj_weight [3d, d] and in_proj_bias [3d], rows in the order q, k, v.

        They are cast to the parameters' dtype. Without `bias`, the biases stay as they are. ValueError,
        and nothing is loaded, for other shapes and where a projection has no such weight or bias.
        """

    def extra_repr(self) -> str:
        """What repr() shows: d_model, n_heads and dropout."""
