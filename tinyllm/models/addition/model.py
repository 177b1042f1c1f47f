# Tangled from book/2-transformer/MS-L5-addition.md
"""The transformer that adds: its settings, the model, the gradient of a step, what it writes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.autograd import no_grad
from tinyllm.generators import generator
from tinyllm.models.addition.data import (
    DIGITS,
    END,
    N_TOKENS,
    PAD,
    PLUS,
    START,
    source_tokens,
    target_tokens,
)
from tinyllm.nn import Linear, Module
from tinyllm.num.pcg32 import PCG32
from tinyllm.num.threads import in_threads
from tinyllm.tensor import Tensor
from tinyllm.train import cross_entropy
from tinyllm.xfmr.layers import LayerConfig, Transformer
from tinyllm.xfmr.masks import causal_mask, token_mask
from tinyllm.xfmr.positions import Embedding, SinusoidalPositions
from tinyllm.xfmr.search import Hypothesis, beam_search, greedy_search, log_softmax
from tinyllm.xfmr.watch import watch_attention

__all__ = [
    "Adder",
    "Attention",
    "Settings",
    "evaluating",
    "exact_match",
    "shard_gradient",
    "translate",
]

Array: TypeAlias = NDArray[Any]
Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

# what overflows is found by looking at the result, and one message is enough
_quiet = np.errstate(over="ignore", invalid="ignore", divide="ignore")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A run: the model's sizes, the training, the seed. ValueError for values out of range.

    Two runs with the same settings on one machine are equal to the last bit.
    """

    d_model: int = 64
    n_heads: int = 4
    n_layers: int = 2  # of the encoder, and of the decoder
    d_ff: int = 256
    dropout: float = 0.0
    steps: int = 1500
    batch: int = 128
    lr: float = 3e-3  # at its peak
    warmup: int = 100
    weight_decay: float = 0.01  # of matrices
    beta2: float = 0.99
    clip: float = 1.0
    seed: int = 0
    shards: int = 2  # parts of a batch that processes or workers share

    def __post_init__(self) -> None:
        for field in fields(self):
            value, whole = getattr(self, field.name), isinstance(field.default, int)
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                kind = "a whole number" if whole else "a number"
                raise ValueError(f"{field.name} is {kind}, got {value!r}")
            least = 0 if field.name in ("dropout", "warmup", "weight_decay", "seed", "lr") else 1
            if not value >= least and field.name not in ("beta2", "clip"):
                raise ValueError(f"{field.name} is at least {least}, got {value}")
        for name, fits, wanted in (
            ("n_layers", self.n_layers <= 100, "at most 100"),
            ("n_heads", self.d_model % self.n_heads == 0, f"a divisor of d_model={self.d_model}"),
            ("dropout", self.dropout < 1, "below 1"),
            ("warmup", self.warmup < self.steps, f"less than steps={self.steps}"),
            ("beta2", 0 <= self.beta2 < 1, "from 0 up to, not including, 1"),
            ("clip", self.clip > 0, "above 0"),
            ("shards", self.shards <= self.batch, f"at most batch={self.batch}"),
            ("batch", self.batch <= 10**6, "at most 1,000,000, as many as there are sums"),
            ("lr", self.lr <= sys.float_info.max, "finite"),
            ("weight_decay", self.weight_decay <= sys.float_info.max, "finite"),
        ):
            if not fits:
                raise ValueError(f"{name} is {wanted}, got {getattr(self, name)}")


class Attention(NamedTuple):
    """Weights by layer, sequence and head: what each query reads."""

    encoder: Array  # [layers, B, H, 7, 7]
    decoder: Array  # [layers, B, H, Tt, Tt]
    cross: Array  # [layers, B, H, Tt, 7]


class Adder(Module):
    """Tokens of a source and of the target so far -> logits for the next token."""

    def __init__(self, settings: Settings, rng: PCG32 | None = None) -> None:
        s, rng = settings, generator("Adder", rng)
        self.source = Embedding(N_TOKENS, s.d_model, rng=rng)
        self.target = Embedding(N_TOKENS, s.d_model, rng=rng)
        self.positions = SinusoidalPositions(s.d_model)
        self.transformer = Transformer(
            s.n_layers, s.n_layers, LayerConfig(s.d_model, s.n_heads, s.d_ff, s.dropout), rng=rng
        )
        self.output = Linear(s.d_model, N_TOKENS, rng=rng)
        self.seed_generators(rng)

    def encode(self, source: ArrayLike) -> tuple[Tensor, Mask | None]:
        """source [B, Ts] -> memory [B, Ts, d] and the mask of its padding, None if there is none."""
        ids = np.asarray(source)
        mask = token_mask(ids, PAD) if (ids == PAD).any() else None
        x = self.positions.forward(self.source.forward(ids))
        return self.transformer.encoder.forward(x, mask), mask

    def decode(self, target: ArrayLike, memory: Tensor, mask: Mask | None) -> Tensor:
        """target so far [B, Tt], memory [B, Ts, d] -> states [B, Tt, d]; none sees a later token."""
        ids = np.asarray(target)
        y = self.positions.forward(self.target.forward(ids))
        return self.transformer.decoder.forward(y, memory, causal_mask(ids.shape[1]), mask)

    def forward(self, source: ArrayLike, target: ArrayLike) -> Tensor:
        """source [B, Ts], target so far [B, Tt] -> logits [B, Tt, 14] for the token after each."""
        memory, mask = self.encode(source)
        return self.output.forward(self.decode(target, memory, mask))

    def attend(self, source: ArrayLike, target: ArrayLike) -> Attention:
        """All weights for source [B, Ts] and target so far [B, Tt], in evaluation mode."""
        with evaluating(self), no_grad(), watch_attention(self.transformer) as seen:
            self.forward(source, target)

        def of(stack: str, reader: str) -> Array:
            return np.stack(
                [w.data for path, w in seen if path.startswith(stack) and path.endswith(reader)]
            )

        own = "self_attention"
        return Attention(of("encoder", own), of("decoder", own), of("decoder", "cross_attention"))

    def writer(self, source: ArrayLike) -> Callable[[Ints, Ints], Array]:
        """The step function of `greedy_search` and `beam_search` for these sources [B, Ts]."""
        return _Writer(self, source)


class _Writer:
    """L5.6's step function for some sources: log-probabilities of the next token."""

    def __init__(self, model: Adder, source: ArrayLike) -> None:
        self.model = model
        with no_grad():
            memory, mask = model.encode(source)
        self.unread = model.transformer.decoder.begin(memory, mask)
        self.cache, self.names = self.unread, np.arange(len(memory))

    def __call__(self, prefixes: Ints, rows: Ints) -> Array:
        names, beginnings = rows, rows  # [N]
        for tokens in prefixes.T:
            names, beginnings = names * N_TOKENS + tokens, names
        order = np.argsort(self.names)
        at = np.searchsorted(self.names, beginnings, sorter=order)
        at = order[np.minimum(at, len(order) - 1)]
        t = prefixes.shape[1] - 1
        if self.cache.length == t and (self.names[at] == beginnings).all():
            cache, new = self.cache.select(at), prefixes[:, t:]
        else:
            cache, new, t = self.unread.select(rows), prefixes, 0
        with no_grad():
            x = self.model.positions.forward(self.model.target.forward(new), t)
            states, self.cache = self.model.transformer.decoder.extend(x, cache)
            logits = self.model.output.forward(Tensor(states.data[:, -1]))  # [N, 14]
        self.names = names
        log_probs = log_softmax(logits.data)
        log_probs[:, [PLUS, PAD, START, *([END] if prefixes.shape[1] == 1 else [])]] = -np.inf
        return log_probs


@_quiet
def shard_gradient(
    model: Adder, settings: Settings, step: int, shard: int, source: Ints, target: Ints, n: int
) -> tuple[Array, Array]:
    """One shard's share of the batch's gradient, all parameters end to end, and of its loss [1]."""
    if settings.dropout:
        model.seed_generators(PCG32(settings.seed).substream(f"dropout {step} {shard}"))
    rows = np.array_split(np.arange(settings.batch), settings.shards)[shard]
    parameters = list(model.parameters())
    for p in parameters:
        p.grad = None
    logits = model.forward(source[rows], target[rows, :-1])  # [b, 5, 14]
    total = cross_entropy(logits, target[rows, 1:], ignore=PAD, reduction="sum")
    (total * (1.0 / n)).backward()
    grads = [p.grad.reshape(-1) for p in parameters if p.grad is not None]
    return np.concatenate(grads), np.array([total.item() / n])


CHUNK = 125  # inputs written at a time: what they need stays in the cache


def translate(
    model: Adder, source: ArrayLike, width: int = 1, alpha: float = 1.0, threads: int = 1
) -> list[list[Hypothesis]]:
    """What the model writes for each source [N, Ts]: up to `width` sequences, best first.

    By L5.6's beam search, at most five tokens each; width 1 is greedy search. ValueError unless alpha is
    from 0 to 400. The model is in evaluation mode while it writes. The number of threads does not change a
    bit, and the other sources change no more than the last bits of a score.
    """
    ids = np.asarray(source)
    if not 0 <= alpha <= 400:  # 5**400 is about as large as a number can be
        raise ValueError(f"translate: alpha is from 0 to 400, got {alpha}")
    found: list[list[Hypothesis]] = [[] for _ in ids]

    @_quiet
    def chunk(start: int) -> None:
        part = ids[start : start + CHUNK]
        step, length = model.writer(part), DIGITS + 2
        if width == 1:
            best = greedy_search(step, len(part), start=START, end=END, max_length=length)
            beams = [[h._replace(score=h.log_prob / len(h.tokens) ** alpha)] for h in best]
        else:
            beams = beam_search(
                step, len(part), start=START, end=END, max_length=length, width=width, alpha=alpha
            )
        found[start : start + CHUNK] = beams

    with evaluating(model):
        in_threads(chunk, range(0, len(ids), CHUNK), threads > 1, threads)
    return found


@contextmanager
def evaluating(model: Module) -> Iterator[None]:
    """Evaluation mode for a while."""
    mode = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(mode)


@_quiet
def exact_match(model: Adder, asked: Ints) -> float:
    """The share of pairs [N, 2] whose sum greedy search writes without a fault."""
    a, b = asked.T
    target = target_tokens(a, b)
    right = 0
    with evaluating(model), no_grad():
        for start in range(0, len(asked), 500):
            part = slice(start, start + 500)
            logits = model.forward(source_tokens(a[part], b[part]), target[part, :-1]).data
            logits[..., [PLUS, PAD, START]] = logits[:, 0, END] = -np.inf  # as writer() has it
            right += int((logits.argmax(axis=-1) == target[part, 1:]).all(axis=1).sum())
    return right / len(asked)
