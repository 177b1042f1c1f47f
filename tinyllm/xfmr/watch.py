# Tangled from book/2-transformer/L5.5-layers.md
"""The weights of a model's attentions, collected from outside while the model runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeAlias

from numpy.typing import ArrayLike

from tinyllm.nn import Module
from tinyllm.tensor import Tensor
from tinyllm.xfmr.mha import MultiHeadAttention

__all__ = ["Seen", "read", "watch_attention"]


class Seen(NamedTuple):
    """One call of one attention."""

    path: str  # of the attention in the model that is watched
    weights: Tensor  # [B, H, Tq, Tk], before dropout


Watcher: TypeAlias = tuple[dict[MultiHeadAttention, str], list[Seen]]
_watchers: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())


@contextmanager
def watch_attention(model: Module) -> Iterator[list[Seen]]:
    """A list that grows, inside the block, by one `Seen` for each attention of the model that runs.

    Attentions are those called through `read`, as the layers do, in the order they run; writing token
    by token (`Decoder.extend`) has no weights to show. Blocks may be nested; another thread's calls are
    not seen.
    """
    paths = {m: path for path, m in model.named_modules() if isinstance(m, MultiHeadAttention)}
    seen: list[Seen] = []
    before = _watchers.set((*_watchers.get(), (paths, seen)))
    try:
        yield seen
    finally:
        _watchers.reset(before)


def read(
    attention: MultiHeadAttention, x_q: Tensor, x_kv: Tensor, mask: ArrayLike | None = None
) -> Tensor:
    """`attention.forward`; if somebody watches, the output of `attend`, and the weights to them."""
    watchers = [(paths[attention], seen) for paths, seen in _watchers.get() if attention in paths]
    if not watchers:
        return attention.forward(x_q, x_kv, mask)
    out, weights = attention.attend(x_q, x_kv, mask)
    for path, seen in watchers:
        seen.append(Seen(path, weights))
    return out
