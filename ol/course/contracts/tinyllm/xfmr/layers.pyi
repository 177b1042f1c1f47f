# Tangled from book/2-transformer/L5.5-layers.md
"""Encoder and decoder layers, their stacks, and the transformer that is made of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.nn import Dropout, Linear, Module, ModuleList
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor
from tinyllm.xfmr.gelu import gelu, gelu_tanh
from tinyllm.xfmr.mha import MultiHeadAttention
from tinyllm.xfmr.watch import read, watch_attention

__all__ = [
    "Decoder",
    "DecoderCache",
    "DecoderLayer",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "LayerConfig",
    "LayerNorm",
    "Transformer",
    "gelu",
    "gelu_tanh",
    "layer_norm",
    "relu",
    "watch_attention",
]

Array: TypeAlias = NDArray[Any]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = ...
"""The functions that FeedForward knows: relu, gelu, gelu_tanh."""

def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(variance + eps) over the last axis, times weight, plus bias.

    x [..., d], weight [d], bias [d] -> [..., d] in the dtype they promote to; computed in float32 at
    least. The variance is biased (divided by d), and exact for numbers of any size: of equal ones it is
    0. What is not finite spoils its own row alone. Any layout, and nothing is written to. TypeError unless all
    three are floating-point tensors, ValueError for shapes that do not fit. Source: Ba, Kiros and Hinton (2016).
    """

class LayerNorm(Module):
    """`layer_norm` with `weight` float32 [d], ones at first, and `bias` float32 [d], zeros; `repr` shows
    "8, eps=1e-05". ValueError unless d is a positive int and eps > 0."""

    eps: float
    weight: Tensor
    bias: Tensor

    def __init__(self, d: int, eps: float = 1e-5) -> None: ...
    def forward(self, x: Tensor) -> Tensor:
        """[..., d] -> [..., d]."""
    def extra_repr(self) -> str:
        """The sizes that `repr` shows of this module."""

def relu(x: Tensor) -> Tensor:
    """max(0, x) of each number, any shape, layout and dtype; the slope at 0 is 0. NaN stays NaN, and its gradient
    passes. TypeError unless x is a tensor."""

class FeedForward(Module):
    """down(dropout(activation(up(x)))), the same for every position.

    Parameters: up.weight [d_ff, d_model], up.bias, down.weight [d_model, d_ff], down.bias, L0.4's
    Linears drawn from `rng` in that order, by default default_generator(). activation: "relu",
    "gelu" (erf) or "gelu_tanh", else ValueError; `repr` shows it. ValueError for sizes that are no
    positive ints, TypeError for an `rng` that is no PCG32.
    """

    activation: str
    up: Linear
    down: Linear
    dropout: Dropout

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: str = "relu",
        dropout: float = 0.0,
        rng: PCG32 | None = None,
    ) -> None: ...
    def forward(self, x: Tensor) -> Tensor:
        """[..., d_model] -> [..., d_model]."""
    def extra_repr(self) -> str:
        """The sizes that `repr` shows of this module."""

@dataclass(frozen=True)
class LayerConfig:
    """The settings of an encoder or decoder layer, frozen; the modules that use them check them.

    dropout: while training, the rate at which attention weights, hidden features and what each
    sublayer adds are dropped, recorded or not; the stream itself is not. norm_first: pre-norm (True) or post-norm.
    """

    d_model: int
    n_heads: int
    d_ff: int
    dropout: float = 0.0
    activation: str = "relu"
    norm_first: bool = True
    eps: float = 1e-5

class EncoderLayer(Module):
    """Self-attention and a feed-forward network, each added to the stream. Attention is called through
    `read`, so that it can be watched.

    norm_first: x + F(norm(x)), else norm(x + F(x)). Parameters in order: self_attention.*,
    feed_forward.up.*, feed_forward.down.*, norm1.*, norm2.*; drawn from `rng`, by default
    default_generator(). Each place that drops has a generator of its own: rng.spawn(path), set by the
    outermost module (for the first module of an `rng`: rng.substream(path)). A call keeps nothing for
    the next, and other modules in the place of some are called. TypeError for inputs that are no
    tensors, masks that are not bool and an `rng` that is no PCG32, ValueError for shapes and settings
    that do not fit.
    """

    norm_first: bool
    self_attention: MultiHeadAttention
    feed_forward: FeedForward
    norm1: LayerNorm
    norm2: LayerNorm
    dropout1: Dropout
    dropout2: Dropout

    def __init__(self, config: LayerConfig, rng: PCG32 | None = None) -> None: ...
    def forward(self, x: Tensor, mask: ArrayLike | None = None) -> Tensor:
        """[B, T, d_model] -> the same shape; `mask` bool as L5.3 takes it, True = may attend."""

class DecoderLayer(Module):
    """Masked self-attention, cross-attention to the memory, and a feed-forward network.

    Parameters in order: self_attention.*, cross_attention.*, feed_forward.*, norm1.*, norm2.*,
    norm3.*; everything else as for EncoderLayer.
    """

    norm_first: bool
    self_attention: MultiHeadAttention
    cross_attention: MultiHeadAttention
    feed_forward: FeedForward
    norm1: LayerNorm
    norm2: LayerNorm
    norm3: LayerNorm
    dropout1: Dropout
    dropout2: Dropout
    dropout3: Dropout

    def __init__(self, config: LayerConfig, rng: PCG32 | None = None) -> None: ...
    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: ArrayLike | None = None,
        memory_mask: ArrayLike | None = None,
    ) -> Tensor:
        """x [B, Tt, d_model], memory [B, Ts, d_model] -> [B, Tt, d_model]. `mask` is the
        self-attention's, `memory_mask` the cross-attention's; None hides nothing."""

class Encoder(Module):
    """n_layers encoder layers, `layers.0` and so on, and a final `norm` or None: with final_norm None,
    there is one with pre-norm and none with post-norm. Other layers in the place of some are called.
    ValueError unless n_layers is a positive int, otherwise errors as for EncoderLayer."""

    layers: ModuleList
    norm: LayerNorm | None

    def __init__(
        self,
        n_layers: int,
        config: LayerConfig,
        final_norm: bool | None = None,
        rng: PCG32 | None = None,
    ) -> None: ...
    def forward(self, x: Tensor, mask: ArrayLike | None = None) -> Tensor:
        """[B, T, d_model] -> the same shape; the mask is every layer's."""

class DecoderCache:
    """Keys and values of N sequences and of their memories, as `Decoder.begin` and `Decoder.extend`
    return them. What a cache holds never changes: it can be continued in several ways."""

    def __init__(
        self,
        memory: list[tuple[Array, Array]],
        mask: NDArray[np.bool_] | None,
        tokens: list[tuple[Array, Array]],
        inputs: Array,
    ) -> None:
        """For each layer, keys and values [N, Ts, d] of the memory and [N, t, d] of the tokens; the mask
        of the memory that `Decoder.begin` was given; and the number of each sequence's input [N]."""
    @property
    def length(self) -> int:
        """How many tokens of each sequence have been read."""
    def select(self, sequences: ArrayLike) -> DecoderCache:
        """A cache of these sequences [M], given as numbers from 0 to N - 1 in any order, some several
        times, some not at all. TypeError for numbers that are not integers."""

class Decoder(Module):
    """n_layers decoder layers that read the same memory, and a final `norm` or None, as in Encoder."""

    layers: ModuleList
    norm: LayerNorm | None

    def __init__(
        self,
        n_layers: int,
        config: LayerConfig,
        final_norm: bool | None = None,
        rng: PCG32 | None = None,
    ) -> None: ...
    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: ArrayLike | None = None,
        memory_mask: ArrayLike | None = None,
    ) -> Tensor:
        """x [B, Tt, d_model], memory [B, Ts, d_model] -> [B, Tt, d_model]."""
    def begin(self, memory: Tensor, memory_mask: ArrayLike | None = None) -> DecoderCache:
        """A cache of B sequences with no tokens yet, for memory [B, Ts, d_model] and a bool mask as L5.3
        takes it for Tq = 1. TypeError for a memory that is no tensor, a mask that is not bool and layers or
        attentions with a `forward` of their own, ValueError for the mask's shape."""
    def extend(self, x: Tensor, cache: DecoderCache) -> tuple[Tensor, DecoderCache]:
        """The next n >= 1 tokens x [N, n, d_model] of the cache's sequences: `forward`'s output for
        them under a causal mask [N, n, d_model], and the cache that has read them. Nothing is recorded;
        for evaluation mode, no attention weight is dropped. Other modules in the place of projections, norms
        or the feed-forward network are called."""

class Transformer(Module):
    """`encoder` and `decoder`; takes and returns vectors. With final_norm=True it is
    torch.nn.Transformer."""

    encoder: Encoder
    decoder: Decoder

    def __init__(
        self,
        n_encoder_layers: int,
        n_decoder_layers: int,
        config: LayerConfig,
        final_norm: bool | None = None,
        rng: PCG32 | None = None,
    ) -> None: ...
    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_mask: ArrayLike | None = None,
        target_mask: ArrayLike | None = None,
        memory_mask: ArrayLike | None = None,
    ) -> Tensor:
        """source [B, Ts, d_model], target [B, Tt, d_model] -> [B, Tt, d_model]; a mask
        of None hides nothing."""
