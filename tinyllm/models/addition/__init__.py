# Tangled from book/2-transformer/MS-L5-addition.md
"""A transformer that adds: it reads 123+456 and writes 0579."""

from tinyllm.models.addition.data import (
    DIGITS,
    END,
    N_TOKENS,
    PAD,
    PLUS,
    START,
    TOKENS,
    held_out,
    pairs,
    parse,
    source_tokens,
    target_tokens,
    text,
)
from tinyllm.models.addition.model import (
    Adder,
    Attention,
    Settings,
    evaluating,
    exact_match,
    shard_gradient,
    translate,
)
from tinyllm.models.addition.training import Progress, Training, Workers, load_model

__all__ = [
    "DIGITS",
    "END",
    "N_TOKENS",
    "PAD",
    "PLUS",
    "START",
    "TOKENS",
    "Adder",
    "Attention",
    "Progress",
    "Settings",
    "Training",
    "Workers",
    "evaluating",
    "exact_match",
    "held_out",
    "load_model",
    "pairs",
    "parse",
    "shard_gradient",
    "source_tokens",
    "target_tokens",
    "text",
    "translate",
]
