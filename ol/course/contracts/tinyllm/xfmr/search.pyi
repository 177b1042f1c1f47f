# Tangled from book/2-transformer/L5.6-search.md
"""Greedy and beam search with any model that gives log-probabilities for the next token."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from numpy import int64
from numpy.typing import ArrayLike, NDArray

__all__ = ["Hypothesis", "beam_search", "greedy_search", "log_softmax"]

Array: TypeAlias = NDArray[Any]
Step: TypeAlias = Callable[[NDArray[int64], NDArray[int64]], Array]

class Hypothesis(NamedTuple):
    """A sequence that was written: its tokens (the end token included, the start token not), the
    natural logarithm of its probability, its score log_prob / len(tokens)**alpha, and whether it
    ended or was cut off at the greatest length."""

    tokens: tuple[int, ...]
    log_prob: float
    score: float
    ended: bool

def greedy_search(
    step: Step, n_inputs: int, *, start: int, end: int, max_length: int
) -> list[Hypothesis]:
    """The likeliest token each time, of equally likely ones the smallest; one sequence for each input.

    step(prefixes [N, t], inputs [N]) -> log-probabilities of the next token [N, V]; prefixes begin with
    `start`. It is called once a length, for all sequences that have not ended, and may keep what it is
    given and use again, or freeze, what it returns, an array or lists. Inputs, of which there may be
    none, do not influence each other. At max_length tokens a sequence is cut off. The score is the mean
    log-probability. ValueError unless max_length is a positive int, and for log-probabilities that are
    NaN, positive, or of another shape.
    """

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
    """For each input up to `width` sequences, best score first; of equal scores, the one that ended
    first.

    step, inputs and errors as for `greedy_search`, prefixes [N, t], those of an input in their ranks;
    tokens of log-probability -inf are never written, so there may be no sequence. At each length the `width` most probable beginnings are kept; of equal ones, the one whose own
    beginning ranked higher, then the smaller token. One that ended keeps its place and is not
    continued. The search ends when ended sequences have all places, or at max_length tokens; what is
    still alive is returned too, with ended=False. ValueError unless width and max_length are positive ints and
    alpha >= 0 with max_length**alpha below 1e304. Source: Sutskever et al. (2014), section 3.2; score: Wu et al. (2016), eq. 14, with
    the plain length.
    """

def log_softmax(logits: ArrayLike) -> Array:
    """Logarithms of the softmax over the last axis: [..., V] of any real dtype and size of numbers ->
    [..., V], float64; not written to."""
