# Tangled from book/2-transformer/L5.6-search.md
"""Writing a sequence with a model that gives log-probabilities for the next token."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.arguments import positive_int

__all__ = ["Hypothesis", "beam_search", "greedy_search", "log_softmax"]

Array: TypeAlias = NDArray[Any]
Step: TypeAlias = Callable[[NDArray[np.int64], NDArray[np.int64]], Array]


class Hypothesis(NamedTuple):
    """A sequence that was written, and its score."""

    tokens: tuple[int, ...]  # with the end token if it ended, without the start token
    log_prob: float  # natural logarithm of its probability
    score: float  # log_prob / len(tokens)**alpha, by which it is ranked
    ended: bool  # False: it was cut off at the greatest length


def greedy_search(
    step: Step, n_inputs: int, *, start: int, end: int, max_length: int
) -> list[Hypothesis]:
    """The likeliest token each time, for each input; of equal ones the first.

    step(prefixes [N, t], inputs [N]) gives the log-probabilities [N, V] of the next token. The score is
    the mean log-probability. ValueError unless max_length is a positive int, and for log-probabilities
    that are NaN, positive, or of another shape.
    """
    max_length = positive_int("greedy_search", "max_length", max_length)
    prefixes = np.full((n_inputs, 1), start, np.int64)  # [N, t]
    rows = np.arange(n_inputs)  # [N]
    log_prob = np.zeros(n_inputs)
    found: list[Hypothesis] = [Hypothesis((), 0.0, 0.0, False)] * n_inputs
    for length in range(1, max_length + 1):
        if not len(rows):
            break
        log_probs = _checked(step(prefixes, rows), len(rows))  # [N, V]
        tokens = log_probs.argmax(axis=1)
        log_prob = log_prob + log_probs[np.arange(len(rows)), tokens]
        prefixes = np.column_stack([prefixes, tokens])
        done = tokens == end
        for i in np.flatnonzero(done | (length == max_length)):
            written = tuple(prefixes[i, 1:].tolist())
            total = float(log_prob[i])
            found[rows[i]] = Hypothesis(written, total, total / length, bool(done[i]))
        prefixes, rows, log_prob = prefixes[~done], rows[~done], log_prob[~done]
    return found


def beam_search(
    step: Step,
    n_inputs: int,
    *,
    start: int,
    end: int,
    max_length: int,
    width: int,
    alpha: float = 1.0,
) -> list[list[Hypothesis]]:
    """For each input up to `width` sequences, best score first.

    step(prefixes [N, t], inputs [N]) gives the log-probabilities [N, V] of the next token; a token of
    -inf is never written. The most probable beginnings are kept; of equal ones, the one whose own
    beginning ranked higher, then the smaller token. The search ends when ended sequences have all
    places, or at `max_length` tokens. ValueError unless width and max_length are positive ints and
    alpha >= 0 with max_length**alpha below 1e304, and for log-probabilities that are NaN, positive, or
    of another shape.
    """
    width = positive_int("beam_search", "width", width)
    max_length = positive_int("beam_search", "max_length", max_length)
    if not (alpha >= 0 and alpha * math.log(max_length) < 700):  # NaN too
        raise ValueError(
            "beam_search: wants alpha >= 0 with max_length**alpha below 1e304, got "
            f"max_length={max_length}, alpha={alpha}"
        )
    found: list[list[Hypothesis]] = [[] for _ in range(n_inputs)]
    places = np.full(n_inputs, width)  # still free, for each input
    prefixes = np.full((n_inputs, 1), start, np.int64)  # [N, t], those of an input in a row
    rows = np.arange(n_inputs)  # [N], ascending
    log_prob = np.zeros(n_inputs)  # [N]
    for _ in range(max_length):
        if not len(rows):
            break
        log_probs = _checked(step(prefixes, rows), len(rows))
        V = log_probs.shape[1]
        first = np.searchsorted(rows, rows)  # where the input of each begins
        rank = np.arange(len(rows)) - first
        live, line = np.unique(rows, return_inverse=True)  # the inputs that go on, [L]
        totals = np.full((len(live), width, V), -np.inf)
        totals[line, rank] = log_prob[:, None] + log_probs
        table = totals.reshape(len(live), width * V)
        best = _top(table, min(width, width * V))  # [L, width]
        values = np.take_along_axis(table, best, axis=1)
        kept = (np.arange(best.shape[1]) < places[live][:, None]) & (values > -np.inf)
        which, j = np.nonzero(kept)  # by input, then by rank
        parents = first[np.searchsorted(rows, live)][which] + best[which, j] // V
        tokens = best[which, j] % V
        prefixes = np.column_stack([prefixes[parents], tokens])
        rows, log_prob = live[which], values[which, j]
        done = tokens == end
        for i in np.flatnonzero(done):
            found[rows[i]].append(_hypothesis(prefixes[i], log_prob[i], alpha, ended=True))
        np.subtract.at(places, rows[done], 1)
        prefixes, rows, log_prob = prefixes[~done], rows[~done], log_prob[~done]
    for row, prefix, total in zip(rows, prefixes, log_prob, strict=True):
        found[row].append(_hypothesis(prefix, total, alpha, ended=False))
    return [sorted(beams, key=lambda h: -h.score) for beams in found]  # stable


def _top(table: Array, k: int) -> Array:
    """The places of the k largest numbers of each row, largest first; of equal ones, the first."""
    if table.shape[1] > 1024:  # sort only what can be among the k
        bound = np.partition(table, -k, axis=1)[:, -k, None]
        table = np.where(table >= bound, table, -np.inf)
        lines = []
        for row, limit in zip(table, bound[:, 0], strict=True):
            there = np.flatnonzero(row >= limit)
            lines.append(there[np.argsort(-row[there], kind="stable")[:k]])
        return np.array(lines)
    return np.argsort(-table, axis=1, kind="stable")[:, :k]


def _hypothesis(prefix: Array, log_prob: float, alpha: float, ended: bool) -> Hypothesis:
    length = len(prefix) - 1
    score = float(log_prob) / length**alpha  # eq. score
    return Hypothesis(tuple(prefix[1:].tolist()), float(log_prob), score, ended)


def _checked(log_probs: ArrayLike, n: int) -> Array:
    array = np.asarray(log_probs, np.float64)
    if array.ndim != 2 or len(array) != n or array.shape[1] == 0:
        raise ValueError(
            f"search: step returns [N, V] for N = {n} prefixes, got {list(array.shape)}"
        )
    if not (array <= 1e-6).all():  # False for NaN too; 0 may be rounded up
        raise ValueError(
            "search: step returned numbers that can't be log-probabilities (NaN or above 0)"
        )
    return array


def log_softmax(logits: ArrayLike) -> Array:
    """Logarithms of the softmax over the last axis: [..., V] -> [..., V], in float64."""
    z = np.asarray(logits, np.float64)
    z = z - z.max(axis=-1, keepdims=True)
    shifted: Array = z - np.log(np.exp(z).sum(axis=-1, keepdims=True))
    return shifted
