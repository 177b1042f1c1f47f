"""Runs everything once."""

import numpy as np

from tinyllm.tensor import Tensor
from tinyllm.xfmr.layers import (
    Decoder,
    Encoder,
    FeedForward,
    LayerConfig,
    LayerNorm,
    Transformer,
    gelu,
    gelu_tanh,
    relu,
    watch_attention,
)
from tinyllm.xfmr.masks import causal_mask, padding_mask


def draw(*shape):
    return Tensor(
        np.random.default_rng(0).normal(size=shape).astype(np.float32), requires_grad=True
    )


def test_runs():
    x, y = draw(2, 5, 8), draw(2, 4, 8)
    for bend in ("relu", "gelu", "gelu_tanh"):
        for first in (True, False):
            config = LayerConfig(8, 2, 12, 0.1, bend, first)
            model = Transformer(2, 2, config)
            model(
                x, y, padding_mask([5, 3], 5), causal_mask(4), padding_mask([5, 3], 5)
            ).sum().backward()
            Encoder(2, config)(x).sum().backward()
            decoder = Decoder(2, config)
            decoder(y, x).sum().backward()
            _, cache = decoder.extend(y, decoder.begin(x))
            decoder.extend(y[:, :1], cache.select([0, 1]))
    for call in (relu, gelu, gelu_tanh, LayerNorm(8), FeedForward(8, 3)):
        call(x).sum().backward()
    with watch_attention(model):
        model(x, y)
