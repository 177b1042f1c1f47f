# Tangled from book/2-transformer/L5.7-fused-attention.md
"""Multi-head attention against torch.nn.MultiheadAttention: forward and backward, ratios of times.

python tests/bench/bench_attention.py [--threads N] [--write]

Both sides use N threads (2 unless given) and are measured in turns of a tenth of a second, so that
whatever else the machine does hits both. --write puts the table into the chapter that quotes it.
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
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--write", action="store_true", help="put the table into the chapter")
arguments = parser.parse_args()
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
os.environ["MKL_NUM_THREADS"] = str(arguments.threads)

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402

from tinyllm.num.pcg32 import PCG32  # noqa: E402
from tinyllm.tensor import Tensor  # noqa: E402
from tinyllm.xfmr.mha import MultiHeadAttention  # noqa: E402

torch.set_num_threads(arguments.threads)
TURN = 0.1  # seconds
SIZES = [(32, 16, 64, 4), (8, 128, 256, 8), (4, 512, 512, 8), (1, 2048, 512, 8)]


def sides(B, T, d, H):
    """Two functions without arguments, torch's and ours: one step forward and backward."""
    draw = PCG32(T)
    x, grad = (draw.normal(0.0, 1.0, (B, T, d)) for _ in range(2))
    ours = MultiHeadAttention(d, H)
    theirs = torch.nn.MultiheadAttention(d, H, batch_first=True)
    state = {name: torch.tensor(array) for name, array in ours.state_dict().items()}
    for part in ("weight", "bias"):
        packed = torch.cat([state[f"{layer}_proj.{part}"] for layer in "qkv"])
        getattr(theirs, f"in_proj_{part}").data = packed
        getattr(theirs.out_proj, part).data = state[f"out_proj.{part}"]
    a, b = torch.tensor(x, requires_grad=True), Tensor(x, requires_grad=True)
    torch_grad = torch.tensor(grad)

    def torch_step():
        theirs.zero_grad()
        a.grad = None
        out, _ = theirs(a, a, a, need_weights=False)
        out.backward(torch_grad)
        return out

    def our_step():
        ours.zero_grad()
        b.grad = None
        out = ours(b, b)
        out.backward(grad)
        return out

    np.testing.assert_allclose(our_step().data, torch_step().detach(), atol=1e-4)
    np.testing.assert_allclose(b.grad, a.grad, atol=1e-4)
    np.testing.assert_allclose(
        ours.k_proj.weight.grad, theirs.in_proj_weight.grad[d : 2 * d], atol=2e-2
    )
    return torch_step, our_step


def measure(*size, seconds=4.0):
    """Size, and the medians of torch's and of our times, in milliseconds."""
    steps = sides(*size)
    for step in steps * 3:
        step()
    times = [], []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for step, taken in zip(steps, times, strict=True):
            step()  # not counted: threads of the other side may still be awake
            turn = start = time.perf_counter()
            while start < turn + TURN:
                step()
                start, before = time.perf_counter(), start
                taken.append(1e3 * (start - before))
    return size, statistics.median(times[0]), statistics.median(times[1])


def processor():
    """The processor's name, as far as it can be found out."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(": ")[1] for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def report(rows):
    """The table, and under what circumstances it was measured."""
    lines = ["  B     T    d  H     torch      ours   ratio"]
    for (B, T, d, H), theirs, ours in rows:
        lines.append(
            f"{B:3} {T:5} {d:4} {H:2} {theirs:7.2f} ms {ours:6.2f} ms  {ours / theirs:6.2f}"
        )
    return "\n".join(
        [
            *lines,
            "",
            f"{processor()}, {os.cpu_count()} cores, {arguments.threads} threads each;",
            f"Python {platform.python_version()}, numpy {np.__version__}, torch {torch.__version__};",
            f"{date.today()}, medians of steps, in turns of {TURN} s",
        ]
    )


table = report([measure(*size) for size in SIZES])
print(table)
if arguments.write:
    keep(table, ROOT / "book/2-transformer/L5.3-multi-head-attention.md", "attention-speed")
