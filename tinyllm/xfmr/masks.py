# Tangled from book/2-transformer/L5.2-masks.md
"""Masks for attention: bool arrays in which True means that a query may read a key.

What takes them is `scaled_dot_product_attention` (L5.1) and `MultiHeadAttention` (L5.3). Up to two axes
broadcast to [Tq, Tk], three are sequences, [B, Tq, Tk], and four are [B, H, Tq, Tk].
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.arguments import non_negative_int

__all__ = [
    "causal_mask",
    "combine_masks",
    "from_torch_attn_mask",
    "from_torch_key_padding_mask",
    "from_torch_sdpa_mask",
    "padding_mask",
    "token_mask",
]

Mask: TypeAlias = NDArray[np.bool_]


def causal_mask(Tq: int, Tk: int | None = None) -> Mask:
    """True where key j is not later than query i: j <= i + (Tk - Tq); bool [Tq, Tk].

    Tk is Tq unless given. The last query stands at the last key, as it does with a cache; if there
    are more queries than keys, the first Tq - Tk read nothing. ValueError for lengths that are no ints >= 0.
    """
    Tk = Tq if Tk is None else Tk
    Tq, Tk = non_negative_int("causal_mask", "Tq", Tq), non_negative_int("causal_mask", "Tk", Tk)
    return np.tri(Tq, Tk, Tk - Tq, dtype=np.bool_)  # eq. causal


def padding_mask(lengths: ArrayLike, Tk: int) -> Mask:
    """True for the keys before a sequence's end: lengths [B] -> bool [B, 1, 1, Tk].

    It hides keys, never queries. TypeError for lengths that are not whole numbers, ValueError for
    other shapes and lengths outside 0 to Tk.
    """
    ends = np.asarray(lengths)
    if ends.ndim != 1:
        raise ValueError(f"padding_mask: wants lengths [B], got shape {list(ends.shape)}")
    if ends.dtype.kind not in "iu" and ends.size:
        raise TypeError(f"padding_mask: wants whole numbers for lengths, got {ends.dtype}")
    if ((ends < 0) | (ends > Tk)).any():
        raise ValueError(f"padding_mask: wants lengths from 0 to Tk={Tk}, got {ends.tolist()}")
    allowed: Mask = np.arange(Tk) < ends[:, None]  # [B, Tk]
    return allowed[:, None, None]


def token_mask(tokens: ArrayLike, pad: int) -> Mask:
    """True for the keys that are not `pad`: tokens [B, Tk] -> bool [B, 1, 1, Tk].

    ValueError for other shapes.
    """
    array = np.asarray(tokens)
    if array.ndim != 2:
        raise ValueError(f"token_mask: wants tokens [B, Tk], got shape {list(array.shape)}")
    allowed: Mask = array != pad  # [B, Tk]
    return allowed[:, None, None]


def combine_masks(*masks: ArrayLike | None) -> Mask | None:
    """What every mask allows: logical and, as bool of four axes; None if there is no mask.

    Up to two axes broadcast to [Tq, Tk], three are sequences and broadcast to [B, Tq, Tk], four
    broadcast to [B, H, Tq, Tk]; None stands for no restriction. TypeError unless they are bool,
    ValueError if they do not fit together.
    """
    given = [_four_axes(mask) for mask in masks if mask is not None]
    if not given:
        return None
    combined = given[0]
    for mask in given[1:]:
        try:
            combined = combined & mask
        except ValueError:
            shapes = [list(np.shape(mask)) for mask in masks if mask is not None]
            raise ValueError(f"combine_masks: these do not fit together: {shapes}") from None
    return combined


def _four_axes(mask: ArrayLike) -> Mask:
    array = _bool("combine_masks", mask)
    if array.ndim > 4:
        raise ValueError(
            f"combine_masks: wants masks of at most four axes, got shape {list(array.shape)}"
        )
    if array.ndim == 3:
        array = array[:, None]  # [B, 1, Tq, Tk]
    return array[(None,) * (4 - array.ndim)]  # [Tq, Tk] -> [1, 1, Tq, Tk]


def from_torch_key_padding_mask(mask: Any) -> Mask:
    """`key_padding_mask` [B, Tk] of nn.MultiheadAttention (True = blocked) -> bool [B, 1, 1, Tk].

    ValueError for floats other than 0 and -inf and for other shapes, TypeError for other dtypes.
    """
    blocked = _blocked("from_torch_key_padding_mask", mask)
    if blocked.ndim != 2:
        raise ValueError(
            f"from_torch_key_padding_mask: wants [B, Tk], got shape {list(blocked.shape)}"
        )
    return ~blocked[:, None, None]


def from_torch_attn_mask(mask: Any, n_heads: int) -> Mask:
    """`attn_mask` of nn.MultiheadAttention (True = blocked) -> bool [Tq, Tk] or [B, H, Tq, Tk].

    mask is [Tq, Tk], or [B * n_heads, Tq, Tk] with the heads of a sequence next to each other.
    """
    blocked = _blocked("from_torch_attn_mask", mask)
    if blocked.ndim == 2:
        return ~blocked
    if blocked.ndim != 3 or blocked.shape[0] % n_heads:
        raise ValueError(
            f"from_torch_attn_mask: wants [Tq, Tk] or [B * n_heads, Tq, Tk] with "
            f"n_heads={n_heads}, got shape {list(blocked.shape)}"
        )
    return ~blocked.reshape(-1, n_heads, *blocked.shape[1:])


def from_torch_sdpa_mask(mask: Any) -> Mask:
    """`attn_mask` of F.scaled_dot_product_attention (True = allowed) -> bool of four axes.

    mask has two to four axes and broadcasts to [B, H, Tq, Tk] from the right.
    """
    array = np.asarray(mask)
    allowed = array if array.dtype == np.bool_ else ~_blocked("from_torch_sdpa_mask", array)
    if not 2 <= allowed.ndim <= 4:
        raise ValueError(
            "from_torch_sdpa_mask: wants two to four axes that broadcast to [B, H, Tq, Tk], "
            f"got shape {list(allowed.shape)}"
        )
    return allowed.reshape((1,) * (4 - allowed.ndim) + allowed.shape)


def _bool(where: str, mask: ArrayLike) -> Mask:
    array = np.asarray(mask)
    if array.dtype != np.bool_:
        raise TypeError(
            f"{where}: wants bool masks, True = may attend; got {array.dtype}. For masks of torch "
            "there are from_torch_attn_mask, from_torch_key_padding_mask (True = blocked) and "
            "from_torch_sdpa_mask (True = allowed)"
        )
    return array


def _blocked(where: str, mask: Any) -> Mask:
    """A mask of torch in which True or -inf means blocked, as bool."""
    array = np.asarray(mask)
    if array.dtype == np.bool_:
        return array
    if array.dtype.kind != "f":
        raise TypeError(
            f"{where}: wants a mask of bool, or of floats 0 and -inf, got {array.dtype}"
        )
    blocked: Mask = array == -np.inf
    if not (blocked | (array == 0)).all():
        raise ValueError(
            f"{where}: a float mask with numbers other than 0 and -inf is a bias, not a mask; "
            "attention here takes none"
        )
    return blocked
