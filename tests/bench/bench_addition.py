# Tangled from book/2-transformer/MS-L5-addition.md
"""MS-L5 against torch: a training step, beam search, memory; and where the time of a step goes.

python tests/bench/bench_addition.py [STEPS] [--write]

Each side's fastest of STEPS steps (60 unless given), in turns: on one core in processor time, which other
programs disturb little, on two by the clock, and only if the machine has nothing else to do. --write puts
what is printed into the chapter.
"""

import ctypes
import gc
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from datetime import date
from functools import partial
from pathlib import Path

import numpy as np
import torch
from kept_table import keep

import tinyllm.nn
import tinyllm.train
import tinyllm.xfmr.fused
import tinyllm.xfmr.layers
import tinyllm.xfmr.mha
from tinyllm.models import addition
from tinyllm.models.addition import END, N_TOKENS, START, Adder, Settings, Training, model, training
from tinyllm.xfmr.positions import sinusoidal

CHAPTER = Path(__file__).resolve().parents[2] / "book/2-transformer/MS-L5-addition.md"


class Twin(torch.nn.Module):
    """The same model in torch, eager."""

    def __init__(self, s):
        super().__init__()
        self.source = torch.nn.Embedding(N_TOKENS, s.d_model)
        self.target = torch.nn.Embedding(N_TOKENS, s.d_model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.transformer = torch.nn.Transformer(
                s.d_model,
                s.n_heads,
                s.n_layers,
                s.n_layers,
                s.d_ff,
                s.dropout,
                batch_first=True,
                norm_first=True,
            )
        self.output = torch.nn.Linear(s.d_model, N_TOKENS)
        self.register_buffer("waves", torch.tensor(sinusoidal(16, s.d_model)))

    def encode(self, source):
        return self.transformer.encoder(self.source(source) + self.waves[: source.shape[1]])

    def decode(self, target, memory):
        n = target.shape[1]
        causal = torch.ones(n, n, dtype=torch.bool).triu(1)
        y = self.target(target) + self.waves[:n]
        return self.transformer.decoder(y, memory, tgt_mask=causal, tgt_is_causal=True)

    def forward(self, source, target):
        return self.output(self.decode(target, self.encode(source)))


def a_batch(n, seed=0):
    a, b = np.random.default_rng(seed).integers(0, 1000, (2, n))
    return addition.source_tokens(a, b), addition.target_tokens(a, b)


def torch_step(s, rank=None):
    """A step of torch's model; with a rank, of half of the batch, and both halves' gradients are added."""
    twin, rows = Twin(s), slice(None)
    if rank is not None:
        twin, rows = torch.nn.parallel.DistributedDataParallel(twin), slice(rank, None, 2)
    optimizer = torch.optim.AdamW(
        twin.parameters(), lr=s.lr, betas=(0.9, s.beta2), weight_decay=s.weight_decay
    )
    source, target = (torch.tensor(array[rows]) for array in a_batch(s.batch))

    def step():
        optimizer.zero_grad()
        logits = twin(source, target[:, :-1])
        loss = torch.nn.functional.cross_entropy(
            logits.reshape(-1, N_TOKENS), target[:, 1:].reshape(-1)
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(twin.parameters(), s.clip)
        optimizer.step()

    return step


def join(store, rank):
    """Become one of two processes of torch that find each other by a file."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )


class TorchPair:
    """This process and another, which make steps of torch together."""

    def __init__(self, s):
        store = tempfile.mkdtemp() + "/store"
        self.other = subprocess.Popen([sys.executable, __file__, "--second", store], stdin=-1)
        join(store, 0)
        self.half = torch_step(s, 0)

    def step(self):
        self.other.stdin.write(b"step\n")
        self.other.stdin.flush()
        self.half()

    def close(self):
        self.other.stdin.close()
        self.other.wait()
        torch.distributed.destroy_process_group()


def follow(store):
    """The other process: a step for each line."""
    join(store, 1)
    step = torch_step(Settings(), 1)
    for _ in sys.stdin:
        step()
    torch.distributed.destroy_process_group()


def torch_beams(twin, source, width=4):
    with torch.no_grad():
        memory = twin.encode(source)
        tokens = torch.full((len(source), 1, 1), START)
        totals = torch.zeros(len(source), 1)
        for _ in range(5):
            n = tokens.shape[1]
            states = twin.decode(tokens.flatten(0, 1), memory.repeat_interleave(n, 0))
            log_probs = torch.log_softmax(twin.output(states[:, -1]), -1)
            ended = (tokens[:, :, -1:] == END).expand(-1, -1, N_TOKENS)
            log_probs = log_probs.reshape(-1, n, N_TOKENS).masked_fill(ended, -torch.inf)
            table = (totals[:, :, None] + log_probs).flatten(1)
            totals, best = table.topk(width if n > 1 else min(width, N_TOKENS), 1)
            parents = (best // N_TOKENS)[:, :, None].expand(-1, -1, tokens.shape[2])
            tokens = torch.cat([tokens.gather(1, parents), (best % N_TOKENS)[:, :, None]], 2)
    return tokens


def beams(threads):
    model, twin = Adder(Settings()), Twin(Settings()).eval()
    source, _ = a_batch(1000)
    ids = torch.tensor(source)
    return (
        lambda: addition.translate(model, source, width=4, threads=threads),
        lambda: torch_beams(twin, ids),
    )


LABELS = {
    "MultiHeadAttention": "attention",
    "FeedForward": "feed-forward",
    "LayerNorm": "norm",
    "Embedding": "tokens, positions",
    "SinusoidalPositions": "tokens, positions",
    "Linear": "output",
}


class Clock:
    """Time by label; a label within another counts for the outer one."""

    def __init__(self):
        self.spent, self.label = defaultdict(float), None

    def under(self, label, call, *arguments, **options):
        if self.label is not None:
            return call(*arguments, **options)
        self.label, start = label, time.process_time()
        try:
            return call(*arguments, **options)
        finally:
            self.spent[label] += time.process_time() - start
            self.label = None


def profile(repeats):
    run, clock = Training(Settings()), Clock()
    undo = []

    def replace(owner, name, new):
        undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, new)

    for module in run.model.modules():
        label = LABELS.get(type(module).__name__)
        if label is not None:
            forward = type(module).forward
            module.forward = partial(clock.under, label, forward, module)
    real = tinyllm.autograd.record

    def record(data, parents, backward):
        label = clock.label
        if label is None:
            return real(data, parents, backward)
        return real(data, parents, lambda g: clock.under(label, backward, g))

    for owner in (tinyllm.nn, tinyllm.train, tinyllm.xfmr.layers, tinyllm.xfmr.mha):
        replace(owner, "record", record)
    replace(tinyllm.xfmr.fused, "record", record)
    loss = model.cross_entropy
    replace(model, "cross_entropy", lambda *a, **o: clock.under("loss", loss, *a, **o))
    clip = training.clip_grad_norm
    replace(training, "clip_grad_norm", lambda *a: clock.under("optimiser", clip, *a))
    step = run.optimizer.step
    run.optimizer.step = lambda: clock.under("optimiser", step)
    run.advance()
    clock.spent.clear()
    total = seconds(lambda: [run.advance() for _ in range(repeats)])
    for owner, name, old in undo:
        setattr(owner, name, old)
    clock.spent["the rest: sums, the walk back, Python"] = total - sum(clock.spent.values())
    yield f"where the {total / repeats * 1e3:.1f} ms of a step go, 1 process"
    for label, spent in sorted(clock.spent.items(), key=lambda item: -item[1]):
        yield f"  {label:40} {spent / total:5.0%}"


def memory_of(which):
    torch.set_num_threads(1)
    settings = Settings()
    step = Training(settings).advance if which == "tinyllm" else torch_step(settings)
    addition.pairs()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed would be used again, unseen
    Path("/proc/self/clear_refs").write_text("5")  # the peak is forgotten
    before = status("VmRSS")
    for _ in range(3):
        step()
    print((status("VmHWM") - before) / 1024)


def status(name):
    """A size of this process, in KiB."""
    return int(Path("/proc/self/status").read_text().split(name + ":")[1].split()[0])


def peak(which):
    """What a step adds to a process, in MiB: measured in a process of its own."""
    command = [sys.executable, __file__, "--memory", which]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def seconds(call, clock=time.process_time):
    start = clock()
    call()
    return clock() - start


def compare(name, repeats, threads, mine, its, clock=time.process_time):
    """A line: the fastest of calls in blocks, because torch's threads spin for a while after a call."""
    torch.set_num_threads(threads)
    times = {mine: [], its: []}
    for _ in range(4):
        for call, column in times.items():
            for _ in range(3):
                call()
            column += [seconds(call, clock) for _ in range(max(1, repeats // 4))]
    a, b = (min(column) * 1e3 for column in times.values())
    return f"{name:34}{a:8.1f} ms {b:8.1f} ms {a / b:8.2f}"


def one_core(repeats):
    step = Training(Settings()).advance, torch_step(Settings())
    yield compare("step, 1 process, 1 process", repeats, 1, *step)
    yield compare("beam 4, 1,000 sums, 1 thread", max(3, repeats // 10), 1, *beams(1))


def two_cores(repeats):
    shared, pair = Training(Settings(), processes=2).advance, TorchPair(Settings())
    by = time.perf_counter
    yield compare("step, 2 processes, 2 threads", repeats, 2, shared, torch_step(Settings()), by)
    yield compare("step, 2 processes, 2 processes", repeats, 1, shared, pair.step, by)
    pair.close()
    yield compare("beam 4, 1,000 sums, 2 threads", max(3, repeats // 10), 2, *beams(2), by)


def report(repeats):
    load = os.getloadavg()[0]
    yield f"{'':37}tinyllm       torch    ratio"
    yield from one_core(repeats)
    if load < 0.5:
        yield from two_cores(repeats)
    else:
        yield f"(no rows for two cores: the machine was busy, load {load:.0f})"
    mine, its = peak("tinyllm"), peak("torch")
    yield f"{'memory of a step, 1 process':34}{mine:7.0f} MiB {its:7.0f} MiB {mine / its:8.2f}"
    yield ""
    yield from profile(max(3, repeats // 3))
    yield ""
    yield f"Python {platform.python_version()}, numpy {np.__version__}, torch {torch.__version__}; "
    yield f"{date.today()}, fastest of {repeats} steps"


def main(repeats, write):
    lines = []
    for line in report(repeats):
        print(line, flush=True)
        lines.append(line.rstrip())
    if write:
        keep("\n".join(lines), CHAPTER, "addition-cost")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        memory_of(sys.argv[2])
    elif sys.argv[1:2] == ["--second"]:
        follow(sys.argv[2])
    else:
        numbers = [int(argument) for argument in sys.argv[1:] if argument.isdecimal()]
        main(*(numbers or [60]), "--write" in sys.argv)
