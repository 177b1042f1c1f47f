# Tangled from book/1-foundations/L0.4-tests.md
"""The cost of Linear, forward + backward in float32 on one thread, against torch."""

import statistics
import sys
import time

import torch

from tinyllm.nn import Linear
from tinyllm.num.pcg32 import PCG32
from tinyllm.tensor import Tensor

SIZES = [(1, 1, 16), (32, 16, 64), (8, 128, 256), (4, 512, 512)]


def seconds(layer, x, grad):
    start = time.perf_counter()
    layer(x).backward(grad)
    return time.perf_counter() - start


def main(repeats):
    torch.set_num_threads(1)
    print(f"Linear(d, d) of [B, T, d], forward + backward; median of {repeats} runs")
    print(f"{'B, T, d':16}{'tinyllm':>12}{'torch':>12}{'ratio':>8}")
    for size in SIZES:
        data, grad = PCG32(0).normal(0.0, 1.0, (2, *size))
        ours, theirs = Linear(size[-1], size[-1]), torch.nn.Linear(size[-1], size[-1])
        mine, its = [], []
        for _ in range(repeats):
            ours.zero_grad()
            theirs.zero_grad()
            mine.append(seconds(ours, Tensor(data, requires_grad=True), grad))
            x = torch.tensor(data, requires_grad=True)
            its.append(seconds(theirs, x, torch.from_numpy(grad)))
        a, b = (statistics.median(times) * 1e6 for times in (mine, its))
        print(f"{str(size)[1:-1]:16}{a:9.0f} us{b:9.0f} us{a / b:8.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
