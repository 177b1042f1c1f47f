"""A learner's multi-head attention: the sample solution that the project's tests grade."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.autograd import record
from tinyllm.nn import Linear, Module
from tinyllm.num.pcg32 import PCG32, default_generator
from tinyllm.tensor import Tensor
from tinyllm.xfmr.attention import bool_mask, scaled_dot_product_attention
from tinyllm.xfmr.fused import fused_attention

__all__ = ["MultiHeadAttention"]


class MultiHeadAttention(Module):
    """H attentions side by side, each in its own d_model / H features."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        rng: PCG32 | None = None,
    ) -> None:
        for name, value in {"d_model": d_model, "n_heads": n_heads}.items():
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if not whole or value < 1:
                raise ValueError(f"{name} must be a positive int, got {value!r}")
        if d_model % n_heads:
            raise ValueError(f"n_heads must divide d_model: d_model={d_model}, n_heads={n_heads}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        if rng is None:
            rng = default_generator()
        self.d_model = d_model
        self.n_heads = n_heads
        self.d_head = d_model // n_heads
        self.scale = self.d_head**-0.5
        assert math.isclose(self.scale**2 * self.d_head, 1)
        self.dropout = dropout
        self.q_proj = Linear(d_model, d_model, bias, rng)
        self.k_proj = Linear(d_model, d_model, bias, rng)
        self.v_proj = Linear(d_model, d_model, bias, rng)
        self.out_proj = Linear(d_model, d_model, bias, rng)
        self.dropout_rng = rng.spawn("dropout")

    def extra_repr(self) -> str:
        return f"{self.d_model} features, {self.n_heads} heads, dropout {self.dropout}"

    def split_heads(self, x: Tensor) -> Tensor:
        if x.ndim != 3 or x.shape[2] % self.d_model:
            raise ValueError(
                f"split_heads: wants [B, T, d_model={self.d_model}], got {list(x.shape)}"
            )
        B, T, width = x.shape
        return x.reshape(B, T, width // self.d_head, self.d_head).swapaxes(1, 2)

    def merge_heads(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[1] != self.n_heads or x.shape[3] != self.d_head:
            raise ValueError(f"merge_heads: wants [B, H, T, dh], got {list(x.shape)}")
        B, H, T, dh = x.shape
        return x.swapaxes(1, 2).reshape(B, T, H * dh)

    def head_mask(
        self, mask: ArrayLike | None, B: int, Tq: int, Tk: int
    ) -> NDArray[np.bool_] | None:
        if mask is None:
            return None
        m = bool_mask(mask)
        full = (B, self.n_heads, Tq, Tk)
        if m.ndim == 3:  # sequences, not heads
            m = m[:, None]
        if m.ndim <= 4 and all(
            a in (1, b) for a, b in zip(m.shape[::-1], full[::-1], strict=False)
        ):
            return m.reshape((1,) * (4 - m.ndim) + m.shape)
        raise ValueError(
            f"wants a mask [Tq, Tk] = {[Tq, Tk]}, [B, Tq, Tk] = {[B, Tq, Tk]} or one that broadcasts "
            f"to {list(full)}, got {list(m.shape)}"
        )

    def _heads(self, x_q: Tensor, x_kv: Tensor, mask: ArrayLike | None) -> Any:
        for x in (x_q, x_kv):
            if not isinstance(x, Tensor):
                raise TypeError(f"wants a Tensor, got {type(x).__name__}")
        d = self.d_model
        fits = x_q.ndim == x_kv.ndim == 3 and x_q.shape[2] == x_kv.shape[2] == d
        if not fits or x_q.shape[0] != x_kv.shape[0]:
            raise ValueError(
                f"wants x_q [B, Tq, {d}] and x_kv [B, Tk, {d}], got {list(x_q.shape)} and {list(x_kv.shape)}"
            )
        allowed = self.head_mask(mask, x_q.shape[0], x_q.shape[1], x_kv.shape[1])
        q = self.split_heads(_rows(self.q_proj, x_q))
        k = self.split_heads(_rows(self.k_proj, x_kv))
        v = self.split_heads(_rows(self.v_proj, x_kv))
        rate = self.dropout if self.training else 0.0
        options = {"scale": self.scale, "dropout": rate, "rng": self.dropout_rng}
        return (q, k, v, allowed), options

    def attend(
        self, x_q: Tensor, x_kv: Tensor, mask: ArrayLike | None = None
    ) -> tuple[Tensor, Tensor]:
        heads, options = self._heads(x_q, x_kv, mask)
        context, weights = scaled_dot_product_attention(*heads, **options)
        return _rows(self.out_proj, self.merge_heads(context)), weights

    def forward(self, x_q: Tensor, x_kv: Tensor, mask: ArrayLike | None = None) -> Tensor:
        heads, options = self._heads(x_q, x_kv, mask)
        return _rows(self.out_proj, self.merge_heads(fused_attention(*heads, **options)))

    def load_packed_in_proj(self, weight: ArrayLike, bias: ArrayLike | None = None) -> None:
        d = self.d_model
        new = {}
        w = np.asarray(weight)
        if w.shape != (3 * d, d):
            raise ValueError(f"wants in_proj_weight {[3 * d, d]}, got {list(w.shape)}")
        for i, name in enumerate(["q_proj", "k_proj", "v_proj"]):
            new[f"{name}.weight"] = w[i * d : (i + 1) * d]
        if bias is not None:
            b = np.asarray(bias)
            if b.shape != (3 * d,):
                raise ValueError(f"wants in_proj_bias {[3 * d]}, got {list(b.shape)}")
            for i, name in enumerate(["q_proj", "k_proj", "v_proj"]):
                new[f"{name}.bias"] = b[i * d : (i + 1) * d]
        for path in new:
            if path not in self.state_dict():
                raise ValueError(f"the module has no {path}; nothing was loaded")
        self.load_state_dict(new, strict=False)


def _rows(layer: Linear, x: Tensor) -> Tensor:
    """The layer, row by row: a row of garbage spoils itself and no other."""
    bad = ~np.isfinite(x.data).all(axis=-1, keepdims=True)
    if not bad.any():
        y: Tensor = layer(x)
        return y
    clean = record(np.where(bad, x.dtype.type(0), x.data), (x,), lambda grad: (grad,))
    y = layer(clean)

    def backward(grad: NDArray[Any]) -> tuple[NDArray[Any]]:
        return (np.where(bad & (grad != 0), grad.dtype.type(np.nan), grad),)

    return record(np.where(bad, y.dtype.type(np.nan), y.data), (y,), backward)
