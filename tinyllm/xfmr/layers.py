# Tangled from book/2-transformer/L5.5-layers.md
"""Encoder and decoder layers, their stacks, and the transformer that is made of them.

Vaswani et al., "Attention Is All You Need" (2017), section 3, with normalisation before or after
each sublayer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.arguments import positive_int
from tinyllm.autograd import no_grad, record, tensor_argument
from tinyllm.generators import generator
from tinyllm.nn import Dropout, Linear, Module, ModuleList
from tinyllm.num.pcg32 import PCG32
from tinyllm.num.threads import in_blocks
from tinyllm.tensor import Tensor
from tinyllm.xfmr.fused import fused_attention
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
Mask: TypeAlias = NDArray[np.bool_]
Pair: TypeAlias = tuple[Array, Array]  # keys and values; normalised rows and their factors
Sublayer: TypeAlias = Callable[[Tensor], Tensor]


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Each row normalised, then scaled and shifted: x [..., d], weight [d], bias [d] -> [..., d].

    The variance is the biased one. Computed in float32 at least; one recorded operation. TypeError
    unless all three are floating-point tensors, ValueError for shapes that do not fit.
    """
    for name, tensor in (("x", x), ("weight", weight), ("bias", bias)):
        tensor_argument("layer_norm", name, tensor, floating=True)
    d = x.shape[-1] if x.ndim else 0
    if d == 0 or weight.shape != (d,) or bias.shape != (d,):
        raise ValueError(
            f"layer_norm: wants x [..., d] and weight and bias [d], got {list(x.shape)}, "
            f"{list(weight.shape)} and {list(bias.shape)}"
        )
    dtype = np.result_type(x.dtype, weight.dtype, bias.dtype)
    rows = x.data.reshape(-1, d).astype(np.result_type(dtype, np.float32), copy=False)  # [N, d]
    scale, y = weight.data, np.empty_like(rows)
    kept: dict[int, Pair] = {}  # by first row, what `_normalised` returns of each block

    def forward(b: slice) -> None:
        kept[b.start] = normed, _ = _normalised(rows[b], eps)  # [n, d]
        np.add(normed * scale, bias.data, out=y[b])  # eq. layer-norm

    in_blocks(forward, *rows.shape)

    def backward(grad: Array) -> tuple[Array, Array, Array]:
        whole, d_rows = grad.reshape(-1, d).astype(rows.dtype, copy=False), np.empty_like(rows)
        sums: dict[int, Pair] = {}  # what each block adds to the gradients of weight and bias

        def one(b: slice) -> None:
            (normed, inverse), g, d_x = kept[b.start], whole[b], d_rows[b]  # [n, d], [n, 1]
            work = g * normed
            column = np.ones(len(g), g.dtype)
            sums[b.start] = column @ work, column @ g  # [d]
            mean_h, mean_hx = (g @ scale) / d, (work @ scale) / d  # [n]
            np.multiply(normed, mean_hx[:, None], out=work)
            np.multiply(g, scale, out=d_x)
            d_x -= work
            d_x -= mean_h[:, None]
            d_x *= inverse  # eq. layer-norm-grad

        in_blocks(one, *rows.shape)
        d_scale, d_shift = np.sum([sums[i] for i in sorted(sums)], axis=0)
        return d_rows.reshape(x.shape), d_scale, d_shift

    return record(y.reshape(x.shape).astype(dtype, copy=False), (x, weight, bias), backward)


def _normalised(rows: Array, eps: float) -> tuple[Array, Array]:
    """Rows [N, d] with mean 0 and variance 1, and 1 / sqrt(variance + eps) of each [N, 1]."""
    factor = np.ones((len(rows), 1), rows.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        normed, mean, variance = _moments(rows)
        least = (4096 * np.finfo(rows.dtype).eps * mean) ** 2
        doubtful = ~((variance >= least) & (variance < np.inf))[:, 0]  # [N]
        if doubtful.any():
            half = rows[doubtful] * 0.5  # a difference of halves is never infinite
            half -= half[:, :1].copy()
            exponents = np.frexp(np.abs(half).max(axis=1, keepdims=True))[1]
            small = np.ldexp(rows.dtype.type(1), -np.maximum(exponents, 0))
            normed[doubtful], _, variance[doubtful] = _moments(half * small)
            factor[doubtful] = 0.5 * small
        inverse = (1.0 / np.sqrt(variance + eps * factor * factor)).astype(rows.dtype)  # [N, 1]
        normed *= inverse
    return normed, inverse * factor


def _moments(rows: Array) -> tuple[Array, Array, Array]:
    """Rows less their mean [N, d], the mean, and the variance [N, 1]."""
    d = rows.shape[1]
    mean = (np.einsum("nd->n", rows) / d)[:, None]  # no product: its sums depend on the other rows
    rest = rows - mean
    return rest, mean, (np.einsum("nd,nd->n", rest, rest) / d)[:, None]


class LayerNorm(Module):
    """`layer_norm` with its scale and shift: `weight` float32 [d], ones; `bias` float32 [d], zeros.

    ValueError unless d is a positive int and eps > 0.
    """

    def __init__(self, d: int, eps: float = 1e-5) -> None:
        d = positive_int("LayerNorm", "d", d)
        if not eps > 0:
            raise ValueError(f"LayerNorm: wants eps > 0, got {eps}")
        self.eps = eps
        self.weight = Tensor(np.ones(d, np.float32), requires_grad=True)
        self.bias = Tensor(np.zeros(d, np.float32), requires_grad=True)

    def forward(self, x: Tensor) -> Tensor:
        """[..., d] -> [..., d]."""
        return layer_norm(x, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps:g}"


def relu(x: Tensor) -> Tensor:
    """max(0, x) of each number; the slope at 0 is 0. NaN stays NaN, and its gradient passes.

    TypeError unless x is a tensor.
    """
    tensor_argument("relu", "x", x)
    y = np.maximum(x.data, 0)  # eq. relu
    return record(y, (x,), lambda grad: (grad * ~(y <= 0),))


ACTIVATIONS = {"relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh}


class FeedForward(Module):
    """Two linear maps with a bend between them, the same for every position: `up`, then `down`.

    ValueError for an activation that is not "relu", "gelu" or "gelu_tanh" and for sizes that are no
    positive ints, TypeError for an `rng` that is no PCG32.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: str = "relu",
        dropout: float = 0.0,
        rng: PCG32 | None = None,
    ) -> None:
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"FeedForward: activation is one of {', '.join(ACTIVATIONS)}, got {activation!r}"
            )
        rng = generator(type(self).__name__, rng)
        self.activation = activation
        self.up = Linear(d_model, d_ff, rng=rng)
        self.down = Linear(d_ff, d_model, rng=rng)
        self.dropout = Dropout(dropout, PCG32())
        self.seed_generators(rng)

    def forward(self, x: Tensor) -> Tensor:
        """[..., d_model] -> [..., d_model]."""
        hidden = ACTIVATIONS[self.activation](self.up(x))  # [..., d_ff]
        out: Tensor = self.down(self.dropout(hidden))  # eq. feed-forward
        return out

    def extra_repr(self) -> str:
        return self.activation


def _with_sublayer(
    x: Tensor, sublayer: Sublayer, norm: LayerNorm, dropout: Dropout, norm_first: bool
) -> Tensor:
    """The stream after one sublayer."""
    if norm_first:
        out: Tensor = x + dropout(sublayer(norm(x)))  # eq. pre-norm
    else:
        out = norm(x + dropout(sublayer(x)))  # eq. post-norm
    return out


def _read_cached(
    reader: MultiHeadAttention, x: Tensor, keys: Array, values: Array, mask: Mask | None
) -> Tensor:
    """Attention of x [N, n, d] to projected keys and values [N, T, d]."""
    q, k, v = (
        reader.split_heads(a) for a in (reader.q_proj.forward(x), Tensor(keys), Tensor(values))
    )
    context = fused_attention(q, k, v, mask, scale=reader.scale)  # [N, H, n, dh]
    return reader.out_proj.forward(reader.merge_heads(context))


def _must_be_called(module: Module, kind: type[Module]) -> None:
    """TypeError for a `forward` of its own, which reading token by token would not call."""
    if type(module).forward is not kind.forward or "forward" in vars(module):
        raise TypeError(
            f"Decoder.begin: a {type(module).__name__} with a forward of its own is where a "
            f"{kind.__name__} was, and reading token by token would not call it: use forward"
        )


@dataclass(frozen=True)
class LayerConfig:
    """The settings of an encoder or decoder layer; they are checked where they are used."""

    d_model: int
    n_heads: int
    d_ff: int
    dropout: float = 0.0  # while training, of attention weights, hidden features, sublayers
    activation: str = "relu"  # or "gelu", "gelu_tanh"
    norm_first: bool = True  # pre-norm; False: post-norm
    eps: float = 1e-5  # of each LayerNorm


class EncoderLayer(Module):
    """Self-attention and a feed-forward network, each added to the stream.

    Parameters in order: self_attention.*, feed_forward.up.*, feed_forward.down.*, norm1.*, norm2.*;
    drawn from `rng`, by default default_generator(). TypeError for inputs that are no tensors, masks that
    are not bool and an `rng` that is no PCG32, ValueError for shapes and settings that do not fit.
    """

    def __init__(self, config: LayerConfig, rng: PCG32 | None = None) -> None:
        c, rng = config, generator(type(self).__name__, rng)
        self.norm_first = c.norm_first
        self.self_attention = MultiHeadAttention(c.d_model, c.n_heads, c.dropout, rng=rng)
        self.feed_forward = FeedForward(c.d_model, c.d_ff, c.activation, c.dropout, rng)
        self.norm1, self.norm2 = LayerNorm(c.d_model, c.eps), LayerNorm(c.d_model, c.eps)
        self.dropout1, self.dropout2 = Dropout(c.dropout, PCG32()), Dropout(c.dropout, PCG32())
        self.seed_generators(rng)

    def forward(self, x: Tensor, mask: ArrayLike | None = None) -> Tensor:
        """[B, T, d_model] -> the same shape; `mask` as L5.3 takes it, True = may attend."""

        def attention(a: Tensor) -> Tensor:
            return read(self.self_attention, a, a, mask)

        x = _with_sublayer(x, attention, self.norm1, self.dropout1, self.norm_first)
        return _with_sublayer(x, self.feed_forward, self.norm2, self.dropout2, self.norm_first)


class DecoderLayer(Module):
    """Masked self-attention, cross-attention to the memory, and a feed-forward network.

    Parameters in order: self_attention.*, cross_attention.*, feed_forward.*, norm1.*, norm2.*,
    norm3.*; everything else as for `EncoderLayer`.
    """

    def __init__(self, config: LayerConfig, rng: PCG32 | None = None) -> None:
        c, rng = config, generator(type(self).__name__, rng)
        self.norm_first = c.norm_first
        self.self_attention = MultiHeadAttention(c.d_model, c.n_heads, c.dropout, rng=rng)
        self.cross_attention = MultiHeadAttention(c.d_model, c.n_heads, c.dropout, rng=rng)
        self.feed_forward = FeedForward(c.d_model, c.d_ff, c.activation, c.dropout, rng)
        self.norm1, self.norm2 = LayerNorm(c.d_model, c.eps), LayerNorm(c.d_model, c.eps)
        self.norm3 = LayerNorm(c.d_model, c.eps)
        self.dropout1, self.dropout2 = Dropout(c.dropout, PCG32()), Dropout(c.dropout, PCG32())
        self.dropout3 = Dropout(c.dropout, PCG32())
        self.seed_generators(rng)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: ArrayLike | None = None,
        memory_mask: ArrayLike | None = None,
    ) -> Tensor:
        """x [B, Tt, d_model], memory [B, Ts, d_model] -> [B, Tt, d_model].

        `mask` is the self-attention's, usually causal; `memory_mask` hides keys of the memory.
        """

        def own(a: Tensor) -> Tensor:
            return read(self.self_attention, a, a, mask)

        def reading(a: Tensor) -> Tensor:
            return read(self.cross_attention, a, memory, memory_mask)

        return self._run(x, own, reading)

    def _run(self, x: Tensor, own: Sublayer, reading: Sublayer) -> Tensor:
        x = _with_sublayer(x, own, self.norm1, self.dropout1, self.norm_first)
        x = _with_sublayer(x, reading, self.norm2, self.dropout2, self.norm_first)
        return _with_sublayer(x, self.feed_forward, self.norm3, self.dropout3, self.norm_first)

    def _extend(
        self, x: Tensor, memory: Pair, memory_mask: Mask | None, past: Pair, causal: Mask | None
    ) -> tuple[Tensor, Pair]:
        """The stream after this layer [N, n, d], and keys and values of all tokens [N, t + n, d]."""
        grown: list[Array] = []

        def own(a: Tensor) -> Tensor:
            reader = self.self_attention
            for before, project in zip(past, (reader.k_proj, reader.v_proj), strict=True):
                grown.append(np.concatenate([before, project.forward(a).data], axis=1))
            return _read_cached(reader, a, grown[0], grown[1], causal)

        def reading(a: Tensor) -> Tensor:
            return _read_cached(self.cross_attention, a, *memory, memory_mask)

        return self._run(x, own, reading), (grown[0], grown[1])


class _Stack(Module):
    """n_layers layers of one kind, `layers.0` and so on, and a final `norm`, or None."""

    _kind: ClassVar[type[EncoderLayer] | type[DecoderLayer]]

    def __init__(
        self,
        n_layers: int,
        config: LayerConfig,
        final_norm: bool | None = None,
        rng: PCG32 | None = None,
    ) -> None:
        n_layers = positive_int(type(self).__name__, "n_layers", n_layers)
        rng = generator(type(self).__name__, rng)
        self.layers = ModuleList(self._kind(config, rng) for _ in range(n_layers))
        wanted = config.norm_first if final_norm is None else final_norm
        self.norm = LayerNorm(config.d_model, config.eps) if wanted else None
        self.seed_generators(rng)


class Encoder(_Stack):
    """A stack of encoder layers, `layers.0` and so on, and a final `norm`, or None.

    With `final_norm` None there is one after pre-norm layers and none after post-norm layers. Parameters
    are drawn from `rng`, by default default_generator(). ValueError unless n_layers is a positive int.
    """

    _kind = EncoderLayer

    def forward(self, x: Tensor, mask: ArrayLike | None = None) -> Tensor:
        """[B, T, d_model] -> the same shape; the mask is every layer's."""
        for layer in self.layers:
            x = layer(x, mask)
        return x if self.norm is None else self.norm.forward(x)


class DecoderCache:
    """What a decoder keeps of N sequences that it reads piece by piece: `Decoder.begin` makes one.

    For each layer, the keys and values of each sequence's memory [N, Ts, d] and of its tokens so far
    [N, t, d]. Arrays in a cache are never written to; a cache can be continued in several ways.
    """

    def __init__(
        self, memory: list[Pair], mask: Mask | None, tokens: list[Pair], inputs: Array
    ) -> None:
        self._memory, self._mask, self._tokens, self._inputs = memory, mask, tokens, inputs

    @property
    def length(self) -> int:
        """How many tokens of each sequence have been read."""
        return int(self._tokens[0][0].shape[1])

    def select(self, sequences: ArrayLike) -> DecoderCache:
        """A cache of these sequences [M], each a number from 0 to N - 1 and as often as wanted.

        TypeError for numbers that are not integers.
        """
        numbers = np.asarray(sequences)
        if numbers.dtype.kind not in "iu" and numbers.size:
            raise TypeError(f"select: wants integers, got {numbers.dtype}")
        chosen = numbers.astype(np.intp)
        inputs, memory, mask = self._inputs[chosen], self._memory, self._mask
        if not np.array_equal(inputs, self._inputs):
            memory = [(k[chosen], v[chosen]) for k, v in memory]
            mask = None if mask is None else mask[chosen]
        tokens = [(k[chosen], v[chosen]) for k, v in self._tokens]
        return DecoderCache(memory, mask, tokens, inputs)


class Decoder(_Stack):
    """A stack of decoder layers that all read the same memory, and a final `norm`, or None.

    Arguments as for `Encoder`.
    """

    _kind = DecoderLayer

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: ArrayLike | None = None,
        memory_mask: ArrayLike | None = None,
    ) -> Tensor:
        """x [B, Tt, d_model], memory [B, Ts, d_model] -> [B, Tt, d_model]; the masks are every
        layer's."""
        for layer in self.layers:
            x = layer(x, memory, mask, memory_mask)
        return x if self.norm is None else self.norm.forward(x)

    def begin(self, memory: Tensor, memory_mask: ArrayLike | None = None) -> DecoderCache:
        """A cache of B sequences with no tokens yet, which read memory [B, Ts, d_model].

        `memory_mask` hides keys, the same ones from every token: as L5.3 takes it, for Tq = 1.
        TypeError for a mask that is not bool and for layers with a `forward` of their own, ValueError
        for the mask's shape.
        """
        tensor_argument("Decoder.begin", "memory", memory)
        B, Ts, d = memory.shape
        pairs, nothing = [], np.empty((B, 0, d), memory.dtype)
        with no_grad():
            for layer in self.layers:
                reader = layer.cross_attention
                _must_be_called(layer, DecoderLayer)
                _must_be_called(layer.self_attention, MultiHeadAttention)
                _must_be_called(reader, MultiHeadAttention)
                pairs.append(
                    (reader.k_proj.forward(memory).data, reader.v_proj.forward(memory).data)
                )
        mask = None
        if memory_mask is not None:
            mask = reader.head_mask(memory_mask, B, 1, Ts)
            mask = np.broadcast_to(mask, (B, *mask.shape[1:]))
        return DecoderCache(pairs, mask, [(nothing, nothing)] * len(pairs), np.arange(B))

    def extend(self, x: Tensor, cache: DecoderCache) -> tuple[Tensor, DecoderCache]:
        """Read the next n tokens x [N, n, d_model]: what `forward` returns for them under a causal mask,
        [N, n, d_model], and the cache with them. Nothing is recorded, and no attention weight dropped.
        """
        tensor_argument("Decoder.extend", "x", x)
        t, n = cache.length, x.shape[1]
        causal = None if n == 1 else np.tri(n, t + n, t, dtype=np.bool_)  # [n, t + n]
        tokens = []
        with no_grad():
            for layer, memory, past in zip(self.layers, cache._memory, cache._tokens, strict=True):
                x, pair = layer._extend(x, memory, cache._mask, past, causal)
                tokens.append(pair)
            out = x if self.norm is None else self.norm.forward(x)
        return out, DecoderCache(cache._memory, cache._mask, tokens, cache._inputs)


class Transformer(Module):
    """An encoder and a decoder that reads its output, as torch.nn.Transformer has them.

    Takes and returns vectors; tokens, positions and the map to logits come around it. Arguments as for
    `Encoder`, with a number of layers for each stack.
    """

    def __init__(
        self,
        n_encoder_layers: int,
        n_decoder_layers: int,
        config: LayerConfig,
        final_norm: bool | None = None,
        rng: PCG32 | None = None,
    ) -> None:
        rng = generator(type(self).__name__, rng)
        self.encoder = Encoder(n_encoder_layers, config, final_norm, rng)
        self.decoder = Decoder(n_decoder_layers, config, final_norm, rng)
        self.seed_generators(rng)

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_mask: ArrayLike | None = None,
        target_mask: ArrayLike | None = None,
        memory_mask: ArrayLike | None = None,
    ) -> Tensor:
        """source [B, Ts, d_model], target [B, Tt, d_model] -> [B, Tt, d_model].

        `target_mask` is the decoder's own and usually causal; a mask of None hides nothing.
        """
        memory = self.encoder.forward(source, source_mask)
        return self.decoder.forward(target, memory, target_mask, memory_mask)
