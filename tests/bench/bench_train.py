# Tangled from book/1-foundations/L0.5-training.md
"""AdamW with clipping, and the cross-entropy, against torch: medians, alternating runs."""

import statistics
import sys
import time

import numpy as np
import torch

from tinyllm.tensor import Tensor
from tinyllm.train import AdamW, clip_grad_norm, cross_entropy

LAYER = [(64, 64), (64,)] * 4 + [(256, 64), (256,), (64, 256), (64,), (64,), (64,), (64,), (64,)]
SHAPES = (LAYER + LAYER[:8]) * 4 + [(14, 64)] * 2 + [(14, 64), (14,), (64,), (64,)]


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def report(name, repeats, calls):
    for call in calls.values():
        call()
    times = {key: [] for key in calls}
    for _ in range(repeats):
        for key, call in calls.items():
            times[key].append(seconds(call))
    medians = {key: statistics.median(column) * 1e3 for key, column in times.items()}
    ours = medians.pop("tinyllm")
    rest = "  ".join(
        f"{key} {value:8.3f} ms (ratio {ours / value:.2f})" for key, value in medians.items()
    )
    print(f"{name:28} tinyllm {ours:8.3f} ms  {rest}")


def steps():
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in SHAPES]
    ours = [Tensor(x.copy(), requires_grad=True) for x in arrays]
    mine = AdamW(ours)
    for p, x in zip(ours, arrays, strict=True):
        p.grad = x.copy()

    def tinyllm():
        clip_grad_norm(ours, 1.0)
        mine.step()

    calls = {"tinyllm": tinyllm}
    for name, options in {"torch": {}, "torch fused": {"fused": True}}.items():
        theirs = [torch.tensor(x, requires_grad=True) for x in arrays]
        for q, x in zip(theirs, arrays, strict=True):
            q.grad = torch.tensor(x)
        optimizer = torch.optim.AdamW(theirs, **options)

        def its(theirs=theirs, optimizer=optimizer):
            torch.nn.utils.clip_grad_norm_(theirs, 1.0)
            optimizer.step()

        calls[name] = its
    return calls


def loss(N, V):
    z = np.random.default_rng(0).normal(size=(N, V)).astype(np.float32)
    t = np.random.default_rng(1).integers(0, V, N)
    ours, theirs, ids = (
        Tensor(z, requires_grad=True),
        torch.tensor(z, requires_grad=True),
        torch.tensor(t),
    )

    def tinyllm():
        ours.grad = None
        cross_entropy(ours, t).backward()

    def its():
        theirs.grad = None
        torch.nn.functional.cross_entropy(theirs, ids).backward()

    return {"tinyllm": tinyllm, "torch": its}


def main(repeats):
    torch.set_num_threads(2)
    numbers = sum(int(np.prod(shape)) for shape in SHAPES)
    report(f"AdamW, {len(SHAPES)} tensors, {numbers:,}", repeats, steps())
    report("loss [640, 14]", repeats, loss(640, 14))
    report("loss [512, 50257]", max(3, repeats // 10), loss(512, 50257))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
