# Tangled from book/1-foundations/L0.1-tensor.md
"""The cost of a node: chains of 10,000 scalar operations, forward + backward, against torch."""

import statistics
import sys
import time

import numpy as np
import torch

from tinyllm.autograd import Tensor

STEPS = 10_000
CHAINS = {
    "y + x, x a leaf": lambda y, x: y + x,
    "y + 1.0": lambda y, x: y + 1.0,
    "y * x, x a leaf": lambda y, x: y * x,
    "y * 1.0": lambda y, x: y * 1.0,
    "y.tanh()": lambda y, x: y.tanh(),
}


def seconds(step, x):
    start = time.perf_counter()
    y = x
    for _ in range(STEPS):
        y = step(y, x)
    y.backward()
    return time.perf_counter() - start


def main(repeats):
    torch.set_num_threads(1)
    ours = Tensor(np.float32(1.0), requires_grad=True)
    theirs = torch.tensor(1.0, requires_grad=True)
    print(f"{STEPS:,} operations in a chain, forward + backward; median of {repeats} runs")
    print(f"{'operation':18}{'tinyllm':>12}{'torch':>12}{'ratio':>8}")
    for name, step in CHAINS.items():
        times = [(seconds(step, ours), seconds(step, theirs)) for _ in range(repeats)]
        mine, its = (statistics.median(column) * 1e6 / STEPS for column in zip(*times, strict=True))
        print(f"{name:18}{mine:9.2f} us{its:9.2f} us{mine / its:8.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
