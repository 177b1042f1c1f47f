# Tangled from book/3-language-models/L6.1-gpt.md
"""GPT: a language model that reads from the left and says what may come next."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.arguments import non_negative_int, positive_int
from tinyllm.autograd import no_grad
from tinyllm.generators import generator
from tinyllm.nn import Dropout, Module, linear
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor
from tinyllm.train import cross_entropy
from tinyllm.xfmr.layers import Encoder, LayerConfig
from tinyllm.xfmr.masks import causal_mask
from tinyllm.xfmr.positions import Embedding, LearnedPositions

__all__ = ["GPT", "GPTConfig", "generate", "gpt2_arrays", "load_gpt2_arrays", "probabilities"]

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class GPTConfig:
    """The sizes of a GPT; GPT-2's smallest has (50257, 1024, 768, 12, 12)."""

    n_tokens: int
    context: int  # positions, the longest text
    d_model: int
    n_heads: int
    n_layers: int
    dropout: float = 0.0  # while training: after the positions, of weights, and of what is added
    eps: float = 1e-5  # of each LayerNorm


class GPT(Module):
    """Token ids -> logits of the token after each: pre-norm blocks under a causal mask, a tied head.

    Parameters: tokens.weight [V, d], positions.weight [context, d], blocks.layers.N.* and blocks.norm.*
    as L5.5's Encoder has them. Matrices are drawn from a normal distribution with standard deviation
    0.02, those that write into the stream divided by sqrt(2 n_layers); biases are 0. `rng` is
    default_generator() unless given. ValueError for settings that do not fit. Source: Radford et al.
    (2019), section 2.3.
    """

    def __init__(self, config: GPTConfig, rng: PCG32 | None = None) -> None:
        c, rng = config, generator("GPT", rng)
        self.config = c
        self.tokens = Embedding(c.n_tokens, c.d_model, 0.02, rng)
        self.positions = LearnedPositions(c.context, c.d_model, 0.02, rng)
        self.dropout = Dropout(c.dropout, PCG32())
        block = LayerConfig(
            c.d_model, c.n_heads, 4 * c.d_model, c.dropout, "gelu_tanh", True, c.eps
        )
        self.blocks = Encoder(c.n_layers, block, rng=rng)
        for layer in self.blocks.layers:
            layer.feed_forward.dropout = Dropout(0.0, PCG32())  # GPT-2 has none there
        for path, parameter in self.blocks.named_parameters():
            if path.endswith("bias"):
                parameter.data[...] = 0.0
            elif parameter.ndim == 2:
                adds = path.endswith(("out_proj.weight", "down.weight"))  # to the stream, 2 a block
                std = 0.02 / math.sqrt(2 * c.n_layers) if adds else 0.02
                parameter.data[...] = rng.normal(0.0, std, parameter.shape)
        self.seed_generators(rng)

    def forward(self, ids: ArrayLike, mask: ArrayLike | None = None) -> Tensor:
        """Token ids [B, T] -> logits [B, T, V]; row t is about the token after t.

        `mask` bool [B, T], True for tokens that may be read; padding is False. Positions count from the
        left, padding too. ValueError for ids that are not [B, T] with T at most `context`, or no tokens.
        """
        array = np.asarray(ids)
        if array.ndim != 2 or array.shape[1] > self.config.context:
            raise ValueError(
                f"GPT: wants ids [B, T] with T at most {self.config.context}, got {list(array.shape)}"
            )
        readable = causal_mask(array.shape[1])
        if mask is not None:
            given = np.asarray(mask)
            if given.dtype != np.bool_ or given.shape != array.shape:
                raise ValueError(
                    f"GPT: wants a bool mask {list(array.shape)}, got {given.dtype} {list(given.shape)}"
                )
            readable = readable & given[:, None, :]  # [B, T, T]
        x = self.dropout(self.positions(self.tokens(array)))  # [B, T, d]
        return linear(self.blocks(x, readable), self.tokens.weight)

    def loss(self, ids: ArrayLike) -> Tensor:
        """The mean negative log-probability of each token but the first, ids [B, T].

        ValueError for other shapes and T below 2.
        """
        array = np.asarray(ids)
        if array.ndim != 2 or array.shape[1] < 2:
            raise ValueError(f"GPT.loss: wants ids [B, T] with T >= 2, got {list(array.shape)}")
        return cross_entropy(self.forward(array[:, :-1]), array[:, 1:])

    def extra_repr(self) -> str:
        c = self.config
        return f"n_tokens={c.n_tokens}, context={c.context}, d_model={c.d_model}"


def probabilities(
    logits: ArrayLike,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Array:
    """What to draw the next token from: logits [V] -> [V], float64, summing to 1.

    Logits are divided by the temperature; 0 leaves the likeliest token alone. Then top_k keeps the k
    likeliest, then top_p as many of the likeliest as are needed for a probability of at least p. Of
    equal ones the first. ValueError for logits that are not [V] or whose largest is infinite or NaN, a
    temperature that is negative or not finite, top_k below 1, and top_p outside 0 < p <= 1. Source: Holtzman et al. (2020).
    """
    z = np.asarray(logits, np.float64)
    if z.ndim != 1 or not len(z):
        raise ValueError(f"probabilities: wants logits [V], got {list(z.shape)}")
    if not math.isfinite(z.max()):
        raise ValueError(f"probabilities: the largest logit should be finite, got {z.max()}")
    if not 0.0 <= temperature < math.inf:
        raise ValueError(f"probabilities: wants a temperature of at least 0, got {temperature}")
    if top_p is not None and not 0.0 < top_p <= 1.0:
        raise ValueError(f"probabilities: wants 0 < top_p <= 1, got {top_p}")
    if temperature == 0.0:
        top_k, temperature = 1, 1.0
    order = np.argsort(-z, kind="stable")
    if top_k is not None:
        order = order[: positive_int("probabilities", "top_k", top_k)]
    kept = np.exp((z[order] - z[order[0]]) / temperature)  # likeliest first
    kept /= kept.sum()
    if top_p is not None:
        before = np.cumsum(kept) - kept  # the probability of the likelier ones
        order, kept = order[before < top_p], kept[before < top_p]
        kept /= kept.sum()
    chances = np.zeros(len(z))
    chances[order] = kept
    return chances


def generate(
    model: GPT,
    ids: Sequence[int],
    n: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    rng: PCG32 | None = None,
) -> Iterator[int]:
    """The next n tokens, one by one, as they are drawn; the model reads the last `context` tokens.

    `ids`: at least one token. `rng` is default_generator() unless given. Nothing is recorded; dropout
    is the model's mode. TypeError for ids that aren't ints; ValueError for no tokens, for n that is no
    int of at least 0, and as `probabilities`.
    """
    n, rng = non_negative_int("generate", "n", n), generator("generate", rng)
    known = np.asarray(list(ids)).tolist()  # and forward refuses what is no [T] of whole numbers
    if not known:
        raise ValueError("generate: wants at least one token to begin with, got none")
    for _ in range(n):
        with no_grad():
            logits = model.forward([known[-model.config.context :]]).data[0, -1]
        chances = probabilities(logits, temperature, top_k, top_p)
        drawn = np.searchsorted(np.cumsum(chances), rng.uniform(0.0, 1.0, (1,))[0], side="right")
        known.append(min(int(drawn), int(np.flatnonzero(chances)[-1])))  # sums may end below 1
        yield known[-1]


_PARTS = {
    "norm1": "ln_1",
    "self_attention.out_proj": "attn.c_proj",
    "norm2": "ln_2",
    "feed_forward.up": "mlp.c_fc",
    "feed_forward.down": "mlp.c_proj",
}  # of a block, ours: theirs
_QKV = [f"self_attention.{name}_proj" for name in "qkv"]


def gpt2_arrays(model: GPT) -> dict[str, Array]:
    """The parameters under the names and in the shapes of Hugging Face's GPT-2; copies, C-contiguous."""
    state = model.state_dict()
    out = {"wte.weight": state["tokens.weight"], "wpe.weight": state["positions.weight"]}
    for i in range(model.config.n_layers):
        block = f"blocks.layers.{i}."
        for part in ("weight", "bias"):
            for ours, theirs in _PARTS.items():
                out[f"h.{i}.{theirs}.{part}"] = state[f"{block}{ours}.{part}"].T.copy()
            qkv = [state[f"{block}{name}.{part}"].T for name in _QKV]
            joined = np.concatenate(qkv, axis=-1)  # [d, 3d]
            out[f"h.{i}.attn.c_attn.{part}"] = np.ascontiguousarray(joined)
    for part in ("weight", "bias"):
        out[f"ln_f.{part}"] = state[f"blocks.norm.{part}"]
    return out


def load_gpt2_arrays(model: GPT, arrays: Mapping[str, ArrayLike]) -> None:
    """Copy arrays in the layout of Hugging Face's GPT-2 into the model; floating of any width.

    Masks that old files hold are passed over, `transformer.` in front of names too. ValueError, and
    nothing is loaded, for missing and unknown names, other shapes, dtypes that are not floating, and a
    head `lm_head.weight` that differs from `wte.weight`.
    """
    given = {name.removeprefix("transformer."): np.asarray(a) for name, a in arrays.items()}
    given = {n: a for n, a in given.items() if not re.fullmatch(r"h\.\d+\.attn\.(masked_)?bias", n)}
    head = given.pop("lm_head.weight", None)
    if head is not None and not np.array_equal(head, given.get("wte.weight", head)):
        raise ValueError("load_gpt2_arrays: lm_head.weight is not wte.weight; GPT has one for both")
    wanted = gpt2_arrays(model)
    wrong = [f"missing: {name}" for name in wanted if name not in given]
    wrong += [f"unknown: {name}" for name in given if name not in wanted]
    wrong += [
        f"{name}: wants floating {list(wanted[name].shape)}, got {a.dtype} {list(a.shape)}"
        for name, a in given.items()
        if name in wanted and (a.shape != wanted[name].shape or a.dtype.kind != "f")
    ]
    if wrong:
        raise ValueError("load_gpt2_arrays: " + "; ".join(wrong))
    state = {"tokens.weight": given["wte.weight"], "positions.weight": given["wpe.weight"]}
    for part in ("weight", "bias"):
        state[f"blocks.norm.{part}"] = given[f"ln_f.{part}"]
        for i in range(model.config.n_layers):
            block = f"blocks.layers.{i}."
            for ours, theirs in _PARTS.items():
                state[f"{block}{ours}.{part}"] = given[f"h.{i}.{theirs}.{part}"].T
            qkv = np.split(given[f"h.{i}.attn.c_attn.{part}"], 3, axis=-1)
            for name, array in zip(_QKV, qkv, strict=True):
                state[f"{block}{name}.{part}"] = array.T
    kinds = {path: parameter.dtype for path, parameter in model.named_parameters()}
    model.load_state_dict({path: array.astype(kinds[path]) for path, array in state.items()})
