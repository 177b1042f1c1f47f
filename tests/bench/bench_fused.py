# Tangled from book/2-transformer/L5.7-fused-attention.md
"""Fused attention with one choice undone at a time: forward and backward, ratios of times.

python tests/bench/bench_fused.py [--write]

The variant and the module as it is take steps in turns, in one thread, and what is measured is that
thread's processor time, so it matters little what else the machine does. --write puts the table into
the chapter.
"""

import argparse
import os
import platform
import statistics
import sys
import time
from datetime import date
from pathlib import Path

from kept_table import keep

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--write", action="store_true", help="put the table into the chapter")
arguments = parser.parse_args()
os.environ["OPENBLAS_NUM_THREADS"] = "1"

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from tinyllm.num.pcg32 import PCG32  # noqa: E402
from tinyllm.tensor import Tensor  # noqa: E402
from tinyllm.xfmr import fused  # noqa: E402
from tinyllm.xfmr.attention import scaled_dot_product_attention  # noqa: E402

SIZES = [(32, 16, 64, 4), (8, 128, 256, 8), (1, 1024, 512, 8)]
NEVER = 1 << 62
CHOICES = {
    "the definition instead": None,
    "blocks of a sixteenth of the size": {"BLOCK": 1 << 14, "TILE": (64, 128)},
    "heads never cut into blocks": {"BLOCK": 1 << 24, "TILE": (1 << 12, 1 << 12)},
    "a shift for every row": {"SAFE": 0.0},
    "heads read where they are": {"FEW": NEVER},
}


def step_of(size, attention):
    """A function without arguments: one step forward and backward."""
    B, T, d, H = size
    draw = PCG32(T)
    heads = [
        draw.normal(0.0, 1.0, (B, T, H, d // H)).astype(np.float32).transpose(0, 2, 1, 3)
        for _ in range(4)
    ]
    leaves = [Tensor(x, requires_grad=True) for x in heads[:3]]

    def step():
        for leaf in leaves:
            leaf.grad = None
        attention(*leaves).backward(heads[3])

    return step


def with_change(step, change):
    """The step with other constants in the module."""
    kept = {name: getattr(fused, name) for name in change}

    def changed():
        vars(fused).update(change)
        step()
        vars(fused).update(kept)

    return changed


def measure(size, change, seconds=1.0):
    """How many times as long a step takes with the change: the ratio of the medians."""
    as_it_is = step_of(size, fused.fused_attention)
    if change is None:
        other = step_of(size, lambda *qkv: scaled_dot_product_attention(*qkv)[0])
    else:
        other = with_change(step_of(size, fused.fused_attention), change)
    times = [], []
    as_it_is(), other()  # not counted
    end = time.thread_time() + seconds
    while time.thread_time() < end or len(times[0]) < 5:
        for step, taken in zip((as_it_is, other), times, strict=True):
            start = time.thread_time()
            step()
            taken.append(time.thread_time() - start)
    return statistics.median(times[1]) / statistics.median(times[0])


def report(rows):
    """The table, and under what circumstances it was measured."""
    heads = "".join(f"{'x'.join(map(str, size)):>13}" for size in SIZES)
    lines = [f"{'B x T x d x H':34}{heads}"]
    lines += [f"{what:34}" + "".join(f"{ratio:13.2f}" for ratio in r) for what, r in rows.items()]
    return "\n".join(
        [
            *lines,
            "",
            "processor time over that of the module as it is, medians of steps in one thread;",
            f"Python {platform.python_version()}, numpy {np.__version__}; {date.today()}",
        ]
    )


table = report(
    {what: [measure(size, change) for size in SIZES] for what, change in CHOICES.items()}
)
print(table)
if arguments.write:
    keep(table, ROOT / "book/2-transformer/L5.7-fused-attention.md", "fused-choices")
