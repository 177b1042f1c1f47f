# Tangled from book/1-foundations/M06.3-tests.md
"""The cost of a million random numbers, against numpy's default generator (PCG64)."""

import statistics
import sys
import time

import numpy as np

from tinyllm.num.pcg32 import PCG32

N = 1_000_000
ours, theirs = PCG32(0), np.random.Generator(np.random.PCG64(0))
CASES = {
    "uint32": (lambda: ours.uint32s(N), lambda: theirs.integers(0, 2**32, N, np.uint32)),
    "uniform, float32": (lambda: ours.uniform(0, 1, N), lambda: theirs.random(N, np.float32)),
    "uniform, float64": (lambda: ours.uniform(0, 1, N, np.float64), lambda: theirs.random(N)),
    "normal, float32": (
        lambda: ours.normal(0, 1, N),
        lambda: theirs.standard_normal(N, np.float32),
    ),
    "normal, float64": (
        lambda: ours.normal(0, 1, N, np.float64),
        lambda: theirs.standard_normal(N),
    ),
    "integers below 1000": (lambda: ours.integers(0, 1000, N), lambda: theirs.integers(0, 1000, N)),
    "permutation of 100,000": (
        lambda: ours.permutation(N // 10),
        lambda: theirs.permutation(N // 10),
    ),
}


def milliseconds(work, repeats):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def main(repeats):
    print(f"{N:,} numbers; median of {repeats} runs")
    print(f"{'':24}{'PCG32':>12}{'numpy':>12}{'ratio':>8}")
    for name, (mine, its) in CASES.items():
        a, b = milliseconds(mine, repeats), milliseconds(its, repeats)
        print(f"{name:24}{a:9.2f} ms{b:9.2f} ms{a / b:8.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
