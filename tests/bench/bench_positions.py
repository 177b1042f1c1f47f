# Tangled from book/2-transformer/L5.4-positions.md
"""An embedding, forward and backward, against torch: medians, alternating runs."""

import statistics
import sys
import time

import numpy as np
import torch

from tinyllm.tensor import Tensor
from tinyllm.xfmr.positions import embed


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main(repeats):
    torch.set_num_threads(2)
    print(f"embed, forward + backward; medians of {repeats} runs")
    for V, N, d in [(14, 896, 64), (50257, 1024, 768)]:
        rng = np.random.default_rng(0)
        table = rng.normal(size=(V, d)).astype(np.float32)
        ids, g = rng.integers(0, V, N), rng.normal(size=(N, d)).astype(np.float32)
        ours, theirs = Tensor(table, requires_grad=True), torch.tensor(table, requires_grad=True)
        torch_ids, torch_g = torch.tensor(ids), torch.tensor(g)

        def mine(ours=ours, ids=ids, g=g):
            ours.grad = None
            embed(ours, ids).backward(g)

        def its(theirs=theirs, torch_ids=torch_ids, torch_g=torch_g):
            theirs.grad = None
            torch.nn.functional.embedding(torch_ids, theirs).backward(torch_g)

        mine()
        its()
        times = [(seconds(mine), seconds(its)) for _ in range(repeats)]
        a, b = (statistics.median(column) * 1e3 for column in zip(*times, strict=True))
        print(f"table [{V}, {d}], {N} ids: tinyllm {a:.3f} ms, torch {b:.3f} ms, ratio {a / b:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
