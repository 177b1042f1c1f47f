# Tangled from book/2-transformer/L5.3-multi-head-attention.md
"""Multi-head attention: several attentions side by side, each in its own slice of the features.

Vaswani et al., "Attention Is All You Need" (2017), section 3.2.2. Layout and names of the
parameters are fixed here for every model that stands on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.arguments import positive_int
from tinyllm.autograd import record, tensor_argument
from tinyllm.generators import generator
from tinyllm.nn import Linear, Module
from tinyllm.num.pcg32 import PCG32
from tinyllm.num.threads import column_sums, product
from tinyllm.tensor import Tensor
from tinyllm.xfmr.attention import bool_mask, scaled_dot_product_attention
from tinyllm.xfmr.fused import fused_attention, fused_attention_packed

__all__ = ["MultiHeadAttention"]

Array = NDArray[Any]
Mask = NDArray[np.bool_]


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

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        rng: PCG32 | None = None,
    ) -> None:
        d_model = positive_int("MultiHeadAttention", "d_model", d_model)
        n_heads = positive_int("MultiHeadAttention", "n_heads", n_heads)
        if d_model % n_heads:
            raise ValueError(
                f"MultiHeadAttention: n_heads must divide d_model, got d_model={d_model} and "
                f"n_heads={n_heads}, which leaves {d_model % n_heads} features over"
            )
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"MultiHeadAttention: wants 0 <= dropout < 1, got {dropout}")
        rng = generator("MultiHeadAttention", rng)
        self.d_model, self.n_heads, self.d_head = d_model, n_heads, d_model // n_heads
        self.scale = 1.0 / math.sqrt(self.d_head)  # eq. heads
        self.dropout = dropout
        self.q_proj = Linear(d_model, d_model, bias, rng)
        self.k_proj = Linear(d_model, d_model, bias, rng)
        self.v_proj = Linear(d_model, d_model, bias, rng)
        self.out_proj = Linear(d_model, d_model, bias, rng)
        self.dropout_rng = rng.spawn("dropout")

    def split_heads(self, x: Tensor) -> Tensor:
        """[B, T, d] -> [B, H, T, dh]: head h gets features h*dh to (h+1)*dh - 1.

        Projections side by side, [B, T, n*d], become [B, n*H, T, dh]. ValueError for other shapes.
        """
        if x.ndim != 3 or x.shape[-1] % self.d_model:
            raise ValueError(
                f"split_heads: wants [B, T, d_model={self.d_model}], got {list(x.shape)}"
            )
        B, T, width = x.shape
        heads = x.reshape(B, T, width // self.d_head, self.d_head)  # [B, T, H, dh]
        return heads.transpose(0, 2, 1, 3)  # [B, H, T, dh]

    def merge_heads(self, x: Tensor) -> Tensor:
        """[B, H, T, dh] -> [B, T, d], undoing `split_heads`. ValueError for other shapes."""
        if x.ndim != 4 or x.shape[1] != self.n_heads or x.shape[3] != self.d_head:
            raise ValueError(
                f"merge_heads: wants [B, n_heads={self.n_heads}, T, d_head={self.d_head}], "
                f"got {list(x.shape)}"
            )
        B, _, T, _ = x.shape
        return x.transpose(0, 2, 1, 3).reshape(B, T, self.d_model)  # [B, T, H, dh] -> [B, T, d]

    def head_mask(
        self, mask: ArrayLike | None, B: int, Tq: int, Tk: int
    ) -> NDArray[np.bool_] | None:
        """A view of the mask with an axis for the heads, broadcasts to [B, H, Tq, Tk]; None for None.

        Up to two axes broadcast to [Tq, Tk]. Three are sequences, never heads, and broadcast to
        [B, Tq, Tk]: [B, 1, Tk] is key padding. Four broadcast to [B, H, Tq, Tk]. TypeError unless the
        mask is bool (True = may attend), ValueError for other shapes.
        """
        if mask is None:
            return None
        allowed, whole = bool_mask(mask), (B, self.n_heads, Tq, Tk)
        if allowed.ndim == 3:
            allowed = allowed[:, None]  # [B, 1, Tq, Tk]
        allowed = allowed[(None,) * (4 - allowed.ndim)]  # [Tq, Tk] -> [1, 1, Tq, Tk]
        if allowed.ndim == 4 and all(
            n in (1, m) for n, m in zip(allowed.shape, whole, strict=True)
        ):
            return allowed
        raise ValueError(
            f"MultiHeadAttention: got a mask {list(np.shape(mask))}, wants up to two axes that "
            f"broadcast to [Tq, Tk] = {[Tq, Tk]}, three (sequences, never heads) that broadcast to "
            f"[B, Tq, Tk] = {[B, Tq, Tk]}, or four that broadcast to [B, H, Tq, Tk] = {list(whole)}. "
            "Key padding [B, Tk] is mask[:, None], a mask for each head [H, Tq, Tk] is mask[None]"
        )

    def attend(
        self, x_q: Tensor, x_kv: Tensor, mask: ArrayLike | None = None
    ) -> tuple[Tensor, Tensor]:
        """Output and weights: x_q [B, Tq, d], x_kv [B, Tk, d] -> [B, Tq, d], [B, H, Tq, Tk].

        `mask` as for `head_mask`. The weights are those before dropout; each row of them sums to 1, or
        is 0 if its query may read nothing, whose output is then out_proj's bias. Both can be
        differentiated. ValueError for shapes that do not fit, TypeError for inputs that are no tensors
        and a mask that is not bool.
        """
        allowed = self._checked(x_q, x_kv, mask)
        q, k, v = self._heads(x_q, x_kv, allowed)
        context, weights = scaled_dot_product_attention(q, k, v, allowed, **self._options())
        return self._output(context, allowed), weights

    def forward(self, x_q: Tensor, x_kv: Tensor, mask: ArrayLike | None = None) -> Tensor:
        """The output of `attend`, [B, Tq, d]; the weights of long sequences are never held."""
        allowed = self._checked(x_q, x_kv, mask)
        layers = [self.q_proj, self.k_proj, self.v_proj]
        if x_q is x_kv and _alike(layers):
            qkv = self.split_heads(_project(partial(_side_by_side, layers), x_q, allowed))
            context = fused_attention_packed(qkv, allowed, **self._options())  # [B, H, T, dh]
        else:
            q, k, v = self._heads(x_q, x_kv, allowed)
            context = fused_attention(q, k, v, allowed, **self._options())  # [B, H, Tq, dh]
        return self._output(context, allowed)

    def _checked(self, x_q: Tensor, x_kv: Tensor, mask: ArrayLike | None) -> Mask | None:
        """The mask for these inputs, with its axis for the heads."""
        tensor_argument("MultiHeadAttention", "x_q", x_q)
        tensor_argument("MultiHeadAttention", "x_kv", x_kv)
        d = self.d_model
        if not x_q.ndim == x_kv.ndim == 3 or not x_q.shape[::2] == x_kv.shape[::2] == (len(x_q), d):
            raise ValueError(
                f"MultiHeadAttention: wants x_q [B, Tq, {d}] and x_kv [B, Tk, {d}] of one B, "
                f"got {list(x_q.shape)} and {list(x_kv.shape)}"
            )
        return self.head_mask(mask, x_q.shape[0], x_q.shape[1], x_kv.shape[1])

    def _heads(
        self, x_q: Tensor, x_kv: Tensor, allowed: Mask | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, H, Tq, dh], keys and values [B, H, Tk, dh]."""
        q = self.split_heads(_project(self.q_proj, x_q, allowed))
        k = self.split_heads(_project(self.k_proj, x_kv, allowed))
        v = self.split_heads(_project(self.v_proj, x_kv, allowed))
        return q, k, v

    def _options(self) -> dict[str, Any]:
        """Scale and dropout, for attention."""
        rate = self.dropout if self.training else 0.0
        return {"scale": self.scale, "dropout": rate, "rng": self.dropout_rng}

    def _output(self, context: Tensor, allowed: Mask | None) -> Tensor:
        """What the heads have read [B, H, Tq, dh], mixed by the last projection: [B, Tq, d]."""
        return _project(self.out_proj, self.merge_heads(context), allowed)

    def load_packed_in_proj(self, weight: ArrayLike, bias: ArrayLike | None = None) -> None:
        """Copy torch's in_proj_weight [3d, d] and in_proj_bias [3d], rows in the order q, k, v.

        Without `bias`, the biases stay as they are. ValueError, and nothing is loaded, for other
        shapes and where a projection has no such weight or bias.
        """
        d = self.d_model
        state: dict[str, Array] = {}
        for name, given, shape in (("weight", weight, (3 * d, d)), ("bias", bias, (3 * d,))):
            if given is None:
                continue
            array = np.asarray(given)
            if array.shape != shape:
                raise ValueError(
                    f"load_packed_in_proj: wants in_proj_{name} {list(shape)}, got {list(array.shape)}; "
                    "nothing was loaded"
                )
            for layer, rows in zip(("q_proj", "k_proj", "v_proj"), np.split(array, 3), strict=True):
                state[f"{layer}.{name}"] = rows
        self.load_state_dict(self.state_dict() | state)

    def extra_repr(self) -> str:
        """What repr() shows: d_model, n_heads and dropout."""
        return f"{self.d_model}, n_heads={self.n_heads}, dropout={self.dropout}"


_CALLS = Linear.__call__, Linear.forward  # their own, before anybody puts another in their place


def _alike(layers: Sequence[Module]) -> bool:
    """Whether these are plain Linears of one kind, so that one product can stand for their calls."""
    kinds = set()
    if (Linear.__call__, Linear.forward) != _CALLS:
        return False
    for layer in layers:
        if type(layer) is not Linear or "forward" in vars(layer):
            return False
        parameters = (layer.weight, layer.bias)
        kinds.add(
            tuple(None if p is None else (p.shape, p.dtype, p.requires_grad) for p in parameters)
        )
    return len(kinds) == 1


def _side_by_side(layers: Sequence[Linear], x: Tensor) -> Tensor:
    """The layers' outputs side by side [B, T, n*d], by one product."""
    weight = np.concatenate([layer.weight.data for layer in layers])  # [n*d, d]
    biases = [layer.bias for layer in layers if layer.bias is not None]
    rows = x.data.reshape(-1, x.shape[-1])  # [B*T, d]
    out = product(rows, weight.T)  # eq. packed, [B*T, n*d]
    if biases:
        bias = np.concatenate([b.data for b in biases])
        out = np.add(out, bias, out=out if np.can_cast(bias.dtype, out.dtype) else None)

    def backward(grad: Array) -> list[Array | None]:
        g = grad.reshape(len(rows), len(weight))  # [B*T, n*d]
        dx = product(g, weight).reshape(x.shape) if x.requires_grad else None  # eq. packed
        each = (len(layers), -1, rows.shape[1])  # [n, d, d]
        shares: list[Array | None] = [dx, *product(g.T, rows).reshape(each)]
        if biases:
            shares += [*column_sums(g).reshape(each[:2])]
        return shares

    parents = [x, *(layer.weight for layer in layers), *biases]
    return record(out.reshape(*x.shape[:-1], len(weight)), parents, backward)


def _project(layer: Callable[[Tensor], Tensor], x: Tensor, allowed: Mask | None) -> Tensor:
    """What the layer makes of x [B, T, d].

    With a mask, rows of x that are not finite spoil no other row and meet no product.
    """
    if allowed is None or np.isfinite(x.data).all():
        return layer(x)
    bad = ~np.isfinite(x.data).all(axis=-1, keepdims=True)  # [B, T, 1]
    clean = record(np.where(bad, x.dtype.type(0), x.data), (x,), lambda grad: (grad,))
    y = layer(clean)
    garbage = y.dtype.type(np.nan)

    def backward(grad: Array) -> tuple[Array]:
        return (np.where(bad & (grad != 0), garbage, grad),)

    return record(np.where(bad, garbage, y.data), (y,), backward)
