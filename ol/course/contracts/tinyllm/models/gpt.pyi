# Tangled from book/3-language-models/L6.1-gpt.md
"""L6.1 GPT: a language model that reads from the left and says what may come next."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import ArrayLike, NDArray

from tinyllm.nn import Dropout, Module
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor
from tinyllm.xfmr.layers import Encoder
from tinyllm.xfmr.positions import Embedding, LearnedPositions

__all__ = ["GPT", "GPTConfig", "generate", "gpt2_arrays", "load_gpt2_arrays", "probabilities"]

Array: TypeAlias = NDArray[Any]

@dataclass(frozen=True)
class GPTConfig:
    """The sizes of a GPT. dropout: while training, after the positions, of attention weights, and of
    what attention and feed-forward add; hidden features are not dropped. eps: of each LayerNorm."""

    n_tokens: int
    context: int
    d_model: int
    n_heads: int
    n_layers: int
    dropout: float = 0.0
    eps: float = 1e-5

class GPT(Module):
    """Token ids -> logits of the token after each: pre-norm blocks of L5.5's Encoder with a final
    norm, tanh GELU and 4 d_model hidden features, under a causal mask; the head is the table of tokens.

    Parameters: tokens.weight [V, d], positions.weight [context, d], blocks.layers.N.* and blocks.norm.*.
    Matrices and tables are drawn from a normal distribution with standard deviation 0.02, those that
    write into the stream (out_proj, down) 0.02 / sqrt(2 n_layers); biases are 0, norms 1 and 0. `rng`
    is default_generator() unless given; each place that drops has a generator of its own. A call keeps
    nothing for the next. ValueError for settings that do not fit.
    Source: Radford et al. (2019), section 2.3.
    """

    config: GPTConfig
    tokens: Embedding
    positions: LearnedPositions
    dropout: Dropout
    blocks: Encoder

    def __init__(self, config: GPTConfig, rng: PCG32 | None = None) -> None: ...
    def forward(self, ids: ArrayLike, mask: ArrayLike | None = None) -> Tensor:
        """Token ids [B, T] -> logits [B, T, V]; row t is about the token after t.

        `mask` bool [B, T], True for tokens that may be read. Positions count from the left, padding
        too. ValueError for ids that are not [B, T] with T at most `context`, ids that are no tokens,
        and other masks.
        """

    def loss(self, ids: ArrayLike) -> Tensor:
        """The mean negative log-probability of each token but the first, ids [B, T].

        ValueError for other shapes and T below 2.
        """

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
    temperature that is negative or not finite, a top_k that is no int of at least 1, and top_p outside 0 < p <= 1. Source: Holtzman et al. (2020).
    """

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

    `ids`: at least one token. `rng` is default_generator() unless given. Each
    token is the first at which the sum of the probabilities so far is above ``rng.uniform()``. Nothing is recorded; dropout is the model's mode. TypeError for ids that aren't
    ints; ValueError for no tokens, for n that is no int of at least 0, and as `probabilities`.
    """

def gpt2_arrays(model: GPT) -> dict[str, Array]:
    """The parameters under the names and in the shapes of Hugging Face's GPT-2; copies, C-contiguous."""

def load_gpt2_arrays(model: GPT, arrays: Mapping[str, ArrayLike]) -> None:
    """Copy arrays in the layout of Hugging Face's GPT-2 into the model; floating of any width, while the
    model keeps its dtype.

    Masks that old files hold (h.N.attn.bias, h.N.attn.masked_bias) are passed over, `transformer.` in
    front of names too. ValueError, and nothing is loaded, for missing and unknown names, other shapes,
    dtypes that are not floating, and a head `lm_head.weight` that differs from `wte.weight`.
    """
