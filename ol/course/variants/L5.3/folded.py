# Tangled from book/workshop/ol-variants.md
"""Multi-head attention, its heads folded into the batch."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.nn import Linear, Module
from tinyllm.num.pcg32 import PCG32, default_generator
from tinyllm.tensor import Tensor, where
from tinyllm.xfmr.attention import bool_mask, masked_softmax

__all__ = ["MultiHeadAttention"]


class MultiHeadAttention(Module):
    """A batch of H * B sequences with one head each."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        rng: PCG32 | None = None,
    ) -> None:
        sizes = [d_model, n_heads]
        if any(isinstance(n, bool) or not isinstance(n, int | np.integer) or n <= 0 for n in sizes):
            raise ValueError(
                f"d_model and n_heads are positive ints, not {d_model!r} and {n_heads!r}"
            )
        if d_model % n_heads != 0:
            raise ValueError(f"{n_heads} heads cannot share {d_model} features evenly")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is a rate below 1, not {dropout}")
        rng = rng if rng is not None else default_generator()
        self.d_model, self.n_heads, self.dropout = d_model, n_heads, dropout
        self.d_head = d_model // n_heads
        self.scale = 1 / math.sqrt(self.d_head)
        made = [Linear(d_model, d_model, bias=bias, rng=rng) for _ in range(4)]
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = made
        self.dropout_rng = rng.spawn("dropout")

    def folded(self, x: Tensor) -> Tensor:
        B, T, _ = x.shape
        parts = x.reshape(B, T, self.n_heads, self.d_head).transpose(2, 0, 1, 3)
        return parts.reshape(self.n_heads * B, T, self.d_head)

    def attend(
        self, x_q: Tensor, x_kv: Tensor, mask: ArrayLike | None = None
    ) -> tuple[Tensor, Tensor]:
        allowed = self.checked(x_q, x_kv, mask)
        B, Tq, Tk = x_q.shape[0], x_q.shape[1], x_kv.shape[1]
        whole, flat = (self.n_heads, B, Tq, Tk), (self.n_heads * B, Tq, Tk)
        if allowed is not None:
            wide = np.broadcast_to(allowed, (B, self.n_heads, Tq, Tk))
            mine = wide.swapaxes(0, 1).reshape(flat)
        x_q, x_kv, fine, spoiled = self.cleaned(x_q, x_kv, allowed)
        k, v = (self.folded(where(fine, of(x_kv), 0)) for of in (self.k_proj, self.v_proj))
        q, root = self.folded(self.q_proj(x_q)), math.sqrt(self.scale)
        scores = (q * root) @ (k * root).swapaxes(-1, -2)
        weights = masked_softmax(scores, None if allowed is None else mine)
        weights = weights.reshape(*whole).swapaxes(0, 1)  # [B, H, Tq, Tk]
        read = self.dropped(weights).swapaxes(0, 1).reshape(*flat) @ v  # [H * B, Tq, dh]
        read = read.reshape(self.n_heads, B, Tq, self.d_head).transpose(1, 2, 0, 3)
        merged = read.reshape(B, Tq, self.d_model)
        return where(spoiled, np.nan, self.out_proj(merged)), weights

    def forward(self, x_q: Tensor, x_kv: Tensor, mask: ArrayLike | None = None) -> Tensor:
        return self.attend(x_q, x_kv, mask)[0]

    def cleaned(
        self, x_q: Tensor, x_kv: Tensor, allowed: NDArray[np.bool_] | None
    ) -> tuple[Tensor, Tensor, NDArray[np.bool_], NDArray[np.bool_]]:
        """Both inputs without what nobody reads; which keys are finite, which outputs cannot be."""
        whole = (x_q.shape[0], self.n_heads, x_q.shape[1], x_kv.shape[1])
        seen = np.broadcast_to(np.True_ if allowed is None else allowed, whole)
        x_kv = where(np.logical_or.reduce(seen, (1, 2))[..., None], x_kv, 0)
        fine_q, fine = (np.logical_and.reduce(np.isfinite(x.data), -1) for x in (x_q, x_kv))
        spoiled = ~fine_q | np.logical_or.reduce(seen & ~fine[:, None, None], (1, 3))
        return where(fine_q[..., None], x_q, 0), x_kv, fine[..., None], spoiled[..., None]

    def dropped(self, weights: Tensor) -> Tensor:
        """The weights after dropout: some 0, the others larger."""
        if not self.training or self.dropout == 0:
            return weights
        drawn = self.dropout_rng.uniform(0.0, 1.0, weights.shape)
        kept = (drawn >= self.dropout).astype(weights.dtype) / weights.dtype.type(1 - self.dropout)
        thinned: Tensor = weights * kept
        return thinned

    def split_heads(self, x: Tensor) -> Tensor:
        if len(x.shape) != 3 or x.shape[2] % self.d_model != 0:
            raise ValueError(f"split_heads wants [B, T, {self.d_model}], got {list(x.shape)}")
        parts = x.reshape(x.shape[0], x.shape[1], x.shape[2] // self.d_head, self.d_head)
        return parts.swapaxes(1, 2)

    def merge_heads(self, x: Tensor) -> Tensor:
        if len(x.shape) != 4 or (x.shape[1], x.shape[3]) != (self.n_heads, self.d_head):
            raise ValueError(
                f"merge_heads wants [B, {self.n_heads}, T, {self.d_head}], got {list(x.shape)}"
            )
        return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], self.d_model)

    def head_mask(
        self, mask: ArrayLike | None, B: int, Tq: int, Tk: int
    ) -> NDArray[np.bool_] | None:
        if mask is None:
            return None
        given, wanted = bool_mask(mask), (B, self.n_heads, Tq, Tk)
        wide = np.expand_dims(given, 1) if given.ndim == 3 else given
        try:
            np.broadcast_to(wide, wanted)
        except ValueError:
            raise ValueError(f"a mask {list(given.shape)} does not fit {list(wanted)}") from None
        return np.expand_dims(wide, tuple(range(4 - wide.ndim)))

    def checked(
        self, x_q: Tensor, x_kv: Tensor, mask: ArrayLike | None
    ) -> NDArray[np.bool_] | None:
        d = self.d_model
        if not isinstance(x_q, Tensor) or not isinstance(x_kv, Tensor):
            raise TypeError("x_q and x_kv are tensors")
        shapes = [x.shape for x in (x_q, x_kv)]
        if any(len(s) != 3 or s[2] != d for s in shapes) or shapes[0][0] != shapes[1][0]:
            raise ValueError(f"x_q and x_kv are [B, T, {d}], not {list(map(list, shapes))}")
        return self.head_mask(mask, shapes[0][0], shapes[0][1], shapes[1][1])

    def load_packed_in_proj(self, weight: ArrayLike, bias: ArrayLike | None = None) -> None:
        d, state = self.d_model, self.state_dict()
        for part, given, shape in (("weight", weight, (3 * d, d)), ("bias", bias, (3 * d,))):
            rows = np.zeros(shape) if given is None else np.asarray(given)
            if rows.shape != shape:
                raise ValueError(f"in_proj_{part} is {list(shape)}, not {list(rows.shape)}")
            for i, layer in enumerate("qkv"):
                path = f"{layer}_proj.{part}"
                if given is not None and path not in state:
                    raise ValueError(f"there is no {path} to load")
                if given is not None:
                    state[path] = rows[i * d : (i + 1) * d]
        self.load_state_dict(state)

    def extra_repr(self) -> str:
        return f"{self.d_model}, {self.n_heads} heads, dropout {self.dropout}"
