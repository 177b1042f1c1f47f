# Tangled from book/2-transformer/L5.2-masks.md
"""Masks for attention: bool arrays in which True means that a query may read a key."""

from typing import Any

from numpy import bool_
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "causal_mask",
    "combine_masks",
    "from_torch_attn_mask",
    "from_torch_key_padding_mask",
    "from_torch_sdpa_mask",
    "padding_mask",
    "token_mask",
]

def causal_mask(Tq: int, Tk: int | None = None) -> NDArray[bool_]:
    """True where key j is not later than query i: j <= i + (Tk - Tq); bool [Tq, Tk].

    Tk is Tq unless given. The last query stands at the last key, as it does with a cache; if there
    are more queries than keys, the first Tq - Tk read nothing. ValueError for lengths that are no ints
    >= 0. Each call of this function, `padding_mask` and `token_mask` makes a new array.
    """

def padding_mask(lengths: ArrayLike, Tk: int) -> NDArray[bool_]:
    """True for the keys before a sequence's end: lengths [B] -> bool [B, 1, 1, Tk].

    It hides keys, never queries. TypeError for lengths that are not whole numbers, ValueError for
    other shapes and lengths outside 0 to Tk.
    """

def token_mask(tokens: ArrayLike, pad: int) -> NDArray[bool_]:
    """True for the keys that are not `pad`, wherever they stand: tokens [B, Tk] -> bool [B, 1, 1, Tk].
    ValueError for other shapes."""

def combine_masks(*masks: ArrayLike | None) -> NDArray[bool_] | None:
    """What every mask allows: logical and, as bool of four axes; None if there is no mask.

    Up to two axes broadcast to [Tq, Tk], three are sequences and broadcast to [B, Tq, Tk], four
    broadcast to [B, H, Tq, Tk]; None stands for no restriction. No mask is written to. TypeError unless
    they are bool, ValueError if they do not fit together.
    """

def from_torch_key_padding_mask(mask: Any) -> NDArray[bool_]:
    """`key_padding_mask` [B, Tk] of nn.MultiheadAttention (True = blocked) -> bool [B, 1, 1, Tk].

    Floats, here and below, are 0 where a key may be read and -inf where it is blocked. ValueError for
    other numbers and shapes, TypeError for other dtypes.
    """

def from_torch_attn_mask(mask: Any, n_heads: int) -> NDArray[bool_]:
    """`attn_mask` of nn.MultiheadAttention (True = blocked) -> bool [Tq, Tk] or [B, H, Tq, Tk].

    mask is [Tq, Tk], or [B * n_heads, Tq, Tk] with the heads of a sequence next to each other. Errors
    as for `from_torch_key_padding_mask`.
    """

def from_torch_sdpa_mask(mask: Any) -> NDArray[bool_]:
    """`attn_mask` of F.scaled_dot_product_attention (True = allowed) -> bool of four axes.

    mask has two to four axes and broadcasts to [B, H, Tq, Tk] from the right. Errors as for
    `from_torch_key_padding_mask`.
    """
