# Tangled from book/5-transformer/L5.3-multi-head-attention.md
"""Multi-head attention: several attentions side by side, each in its own slice of the features."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.nn import Linear, Module
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor
from tinyllm.xfmr.attention import attend, attention


class MultiHeadAttention(Module):
    """Multi-head attention of Vaswani et al. (2017), section 3.2.2."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        rng: PCG32 | None = None,
    ) -> None:
        rng = PCG32(0) if rng is None else rng
        self.d_model, self.n_heads, self.d_head = d_model, n_heads, d_model // n_heads
        self.scale = 1.0 / math.sqrt(self.d_head)
        self.dropout = dropout
        self.q_proj = Linear(d_model, d_model, bias, rng)
        self.k_proj = Linear(d_model, d_model, bias, rng)
        self.v_proj = Linear(d_model, d_model, bias, rng)
        self.out_proj = Linear(d_model, d_model, bias, rng)
        self.dropout_rng = rng.substream("dropout")

    def split_heads(self, x: Tensor) -> Tensor:
        """[B, T, d] -> [B, H, T, dh]."""
        B, T, _ = x.shape
        return x.reshape(B, T, self.n_heads, self.d_head).transpose(0, 2, 1, 3)

    def merge_heads(self, x: Tensor) -> Tensor:
        """[B, H, T, dh] -> [B, T, d]."""
        B, _, T, _ = x.shape
        return x.transpose(0, 2, 1, 3).reshape(B, T, self.d_model)

    def head_mask(self, mask: Any, B: int, Tq: int, Tk: int) -> NDArray[np.bool_] | None:
        """The mask with an axis for the heads."""
        if mask is None:
            return None
        array = np.asarray(mask)
        return array[:, None] if array.ndim == 3 else array

    def _heads(self, x_q: Tensor, x_kv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q = self.split_heads(self.q_proj(x_q))
        k = self.split_heads(self.k_proj(x_kv))
        v = self.split_heads(self.v_proj(x_kv))
        return q, k, v

    def attend(self, x_q: Tensor, x_kv: Tensor, mask: Any = None) -> tuple[Tensor, Tensor]:
        """The output [B, Tq, d] and every head's weights [B, H, Tq, Tk]."""
        allowed = self.head_mask(mask, x_q.shape[0], x_q.shape[1], x_kv.shape[1])
        rate = self.dropout if self.training else 0.0
        context, weights = attend(
            *self._heads(x_q, x_kv), allowed, scale=self.scale, dropout=rate, rng=self.dropout_rng
        )
        out: Tensor = self.out_proj(self.merge_heads(context))
        return out, weights

    def forward(self, x_q: Tensor, x_kv: Tensor, mask: Any = None) -> Tensor:
        """The output [B, Tq, d]."""
        allowed = self.head_mask(mask, x_q.shape[0], x_q.shape[1], x_kv.shape[1])
        rate = self.dropout if self.training else 0.0
        context = attention(
            *self._heads(x_q, x_kv), allowed, scale=self.scale, dropout=rate, rng=self.dropout_rng
        )
        out: Tensor = self.out_proj(self.merge_heads(context))
        return out

    def load_packed_in_proj(self, weight: ArrayLike, bias: ArrayLike | None = None) -> None:
        """torch's in_proj_weight [3d, d] and in_proj_bias [3d], rows in the order q, k, v."""
        names = ("q_proj", "k_proj", "v_proj")
        state = {
            f"{n}.weight": w for n, w in zip(names, np.split(np.asarray(weight), 3), strict=True)
        }
        if bias is not None:
            state |= {
                f"{n}.bias": b for n, b in zip(names, np.split(np.asarray(bias), 3), strict=True)
            }
        self.load_state_dict(state, strict=False)
