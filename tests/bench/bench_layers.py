# Tangled from book/2-transformer/L5.5-layers.md
"""Layers and their parts, forward + backward in float32, against torch: medians, alternating runs."""

import statistics
import sys
import time

import numpy as np
import torch

from tinyllm.tensor import Tensor
from tinyllm.xfmr.layers import DecoderLayer, EncoderLayer, LayerConfig, LayerNorm, gelu, relu
from tinyllm.xfmr.masks import causal_mask

SIZES = [(128, 7, 64, 4), (8, 128, 256, 8), (4, 512, 512, 8)]  # B, T, d, H


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def both(function, oracle, *shapes):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    ours = [Tensor(x, requires_grad=True) for x in arrays]
    theirs = [torch.tensor(x, requires_grad=True) for x in arrays]
    g = rng.normal(size=shapes[0]).astype(np.float32)
    torch_g = torch.tensor(g)
    parameters = list(function.parameters()) if hasattr(function, "parameters") else []

    def mine():
        for t in ours + parameters:
            t.grad = None
        function(*ours).backward(g)

    def its():
        for t in theirs:
            t.grad = None
        if isinstance(oracle, torch.nn.Module):
            oracle.zero_grad()
        oracle(*theirs).backward(torch_g)

    return mine, its


def main(repeats):
    torch.set_num_threads(2)
    print(f"forward + backward, float32, medians of {repeats} runs, 2 threads each")
    print(f"{'B, T, d, H':22}{'what':16}{'tinyllm':>12}{'torch':>12}{'ratio':>8}")
    for B, T, d, H in SIZES:
        options = {"dropout": 0.0, "batch_first": True, "norm_first": True}
        encoder = torch.nn.TransformerEncoderLayer(d, H, 4 * d, **options)
        decoder = torch.nn.TransformerDecoderLayer(d, H, 4 * d, **options)
        causal = causal_mask(T)
        blocked = torch.tensor(~causal)
        mine = EncoderLayer(LayerConfig(d, H, 4 * d)), DecoderLayer(LayerConfig(d, H, 4 * d))

        class Causal:
            """The decoder layer with its mask."""

            def __init__(self, layer, mask):
                self.layer, self.mask = layer, mask
                self.parameters = layer.parameters

            def __call__(self, x, memory):
                return self.layer(x, memory, self.mask)

        def masked(x, memory, layer=decoder, mask=blocked):
            return layer(x, memory, tgt_mask=mask, tgt_is_causal=True)

        x, wide = (B, T, d), (B, T, 4 * d)
        for name, pair in {
            "encoder layer": both(mine[0], encoder, x),
            "decoder layer": both(Causal(mine[1], causal), masked, x, x),
            "LayerNorm": both(LayerNorm(d), torch.nn.LayerNorm(d), x),
            "ReLU": both(relu, torch.nn.functional.relu, wide),
            "GELU": both(gelu, torch.nn.functional.gelu, wide),
        }.items():
            for call in pair:
                call()
            times = [(seconds(pair[0]), seconds(pair[1])) for _ in range(repeats)]
            a, b = (statistics.median(column) * 1e3 for column in zip(*times, strict=True))
            print(f"{(B, T, d, H)!s:22}{name:16}{a:9.2f} ms{b:9.2f} ms{a / b:8.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
