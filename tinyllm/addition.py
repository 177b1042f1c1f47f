# Tangled from book/2-transformer/MS-L5-addition.md
"""A transformer that adds: it reads 123+456 and writes 0579.

Tokens and pairs; the model; what it writes; its training, step by step, the same bits each time.
"""

from __future__ import annotations

import importlib
import json
import math
import mmap
import os
import re
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.autograd import no_grad
from tinyllm.checkpoint import CheckpointError, read_safetensors, write_safetensors
from tinyllm.nn import Linear, Module
from tinyllm.num.pcg32 import PCG32, default_generator
from tinyllm.tensor import Tensor
from tinyllm.train import AdamW, clip_grad_norm, cross_entropy, warmup_cosine
from tinyllm.xfmr.layers import LayerConfig, Transformer
from tinyllm.xfmr.masks import causal_mask, token_mask
from tinyllm.xfmr.positions import Embedding, SinusoidalPositions
from tinyllm.xfmr.search import Hypothesis, beam_search, greedy_search, log_softmax
from tinyllm.xfmr.watch import watch_attention

__all__ = [
    "Adder",
    "Attention",
    "Progress",
    "Settings",
    "Training",
    "Workers",
    "exact_match",
    "held_out",
    "load_model",
    "pairs",
    "parse",
    "source_tokens",
    "target_tokens",
    "text",
    "translate",
]

Array: TypeAlias = NDArray[Any]
Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

# what overflows is found by looking at the result, and one message is enough
_quiet = np.errstate(over="ignore", invalid="ignore", divide="ignore")


# ---- tokens and pairs


TOKENS = "0123456789+"
PLUS, PAD, START, END = 10, 11, 12, 13
N_TOKENS = 14
DIGITS = 3  # of a number; its sum has one more


def _digits(numbers: ArrayLike, n: int) -> Ints:
    """The last n decimal digits of each number, highest first: [...] -> [..., n]."""
    powers = 10 ** np.arange(n - 1, -1, -1)
    return np.asarray(numbers, np.int64)[..., None] // powers % 10


def source_tokens(a: ArrayLike, b: ArrayLike) -> Ints:
    """The tokens of a+b: numbers from 0 to 999, [N] and [N] -> [N, 7]."""
    left, right = _digits(a, DIGITS), _digits(b, DIGITS)
    plus = np.full((*left.shape[:-1], 1), PLUS)
    return np.concatenate([left, plus, right], axis=-1)


def target_tokens(a: ArrayLike, b: ArrayLike) -> Ints:
    """Start, the four digits of the sum, end: [N] and [N] -> [N, 6]."""
    total = _digits(np.asarray(a, np.int64) + np.asarray(b, np.int64), DIGITS + 1)
    edge = (*total.shape[:-1], 1)
    return np.concatenate([np.full(edge, START), total, np.full(edge, END)], axis=-1)


def parse(line: str) -> tuple[int, int]:
    """The two numbers of a text like 7+15; ValueError unless each has one to three digits."""
    found = re.fullmatch(r"([0-9]{1,3})\+([0-9]{1,3})", line.strip())
    if found is None:
        raise ValueError(
            f"wants two numbers of one to three digits with a plus between them, such as 123+456, "
            f"got {line.strip()!r}"
        )
    return int(found[1]), int(found[2])


def text(tokens: Sequence[int]) -> str:
    """The characters of tokens, joined; those that are no characters are left out."""
    return "".join(TOKENS[token] for token in tokens if token < len(TOKENS))


def held_out(a: ArrayLike, b: ArrayLike) -> Mask:
    """Whether a pair is kept out of training: about one in a hundred, with its mirror; [N] -> [N].

    By the mixing function of splitmix64 (Steele, Lea and Flood, 2014).
    """
    low, high = np.minimum(a, b), np.maximum(a, b)
    x = np.asarray(low * 10**DIGITS + high).astype(np.uint64)
    with np.errstate(over="ignore"):  # modulo 2**64, as wanted
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    out: Mask = x % np.uint64(100) == 0
    return out


@cache
def pairs() -> tuple[Ints, Ints]:
    """All pairs to train on, [n, 2] in order, and all held out, [m, 2] in a fixed random order."""
    numbers = 10**DIGITS
    every = np.stack(np.divmod(np.arange(numbers**2), numbers), axis=1)
    out = held_out(every[:, 0], every[:, 1])
    training, rest = every[~out], every[out]
    rest = rest[PCG32(0).substream("held out").permutation(len(rest))]
    for array in (training, rest):
        array.setflags(write=False)
    return training, rest


# ---- the model


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A run: the model's sizes, the training, the seed. ValueError for values out of range.

    Two runs of the same settings on one machine are equal to the last bit.
    """

    d_model: int = 64
    n_heads: int = 4
    n_layers: int = 2  # of the encoder, and of the decoder
    d_ff: int = 256
    dropout: float = 0.0
    steps: int = 1500
    batch: int = 128
    lr: float = 3e-3  # at its peak
    warmup: int = 100
    weight_decay: float = 0.01  # of matrices
    beta2: float = 0.99
    clip: float = 1.0
    seed: int = 0
    shards: int = 2  # parts of a batch that processes or workers share

    def __post_init__(self) -> None:
        for field in fields(self):
            value, whole = getattr(self, field.name), isinstance(field.default, int)
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                kind = "a whole number" if whole else "a number"
                raise ValueError(f"{field.name} is {kind}, got {value!r}")
            least = 0 if field.name in ("dropout", "warmup", "weight_decay", "seed", "lr") else 1
            if not value >= least and field.name not in ("beta2", "clip"):
                raise ValueError(f"{field.name} is at least {least}, got {value}")
        for name, fits, wanted in (
            ("n_heads", self.d_model % self.n_heads == 0, f"a divisor of d_model={self.d_model}"),
            ("dropout", self.dropout < 1, "below 1"),
            ("warmup", self.warmup < self.steps, f"less than steps={self.steps}"),
            ("beta2", 0 <= self.beta2 < 1, "from 0 up to, not including, 1"),
            ("clip", self.clip > 0, "above 0"),
            ("shards", self.shards <= self.batch, f"at most batch={self.batch}"),
            ("batch", self.batch <= 10**6, "at most 1,000,000, as many as there are sums"),
            ("lr", self.lr <= sys.float_info.max, "finite"),
            ("weight_decay", self.weight_decay <= sys.float_info.max, "finite"),
        ):
            if not fits:
                raise ValueError(f"{name} is {wanted}, got {getattr(self, name)}")


class Attention(NamedTuple):
    """Weights by layer, sequence and head: what each query reads."""

    encoder: Array  # [layers, B, H, 7, 7]
    decoder: Array  # [layers, B, H, Tt, Tt]
    cross: Array  # [layers, B, H, Tt, 7]


class Adder(Module):
    """Tokens of a source and of the target so far -> logits for the next token."""

    def __init__(self, settings: Settings, rng: PCG32 | None = None) -> None:
        s, rng = settings, default_generator() if rng is None else rng
        self.source = Embedding(N_TOKENS, s.d_model, rng=rng)
        self.target = Embedding(N_TOKENS, s.d_model, rng=rng)
        self.positions = SinusoidalPositions(s.d_model)
        self.transformer = Transformer(
            s.n_layers, s.n_layers, LayerConfig(s.d_model, s.n_heads, s.d_ff, s.dropout), rng=rng
        )
        self.output = Linear(s.d_model, N_TOKENS, rng=rng)
        self.seed_generators(rng)

    def encode(self, source: ArrayLike) -> tuple[Tensor, Mask | None]:
        """source [B, Ts] -> memory [B, Ts, d] and the mask of its padding, None if there is none."""
        ids = np.asarray(source)
        mask = token_mask(ids, PAD) if (ids == PAD).any() else None
        x = self.positions.forward(self.source.forward(ids))
        return self.transformer.encoder.forward(x, mask), mask

    def decode(self, target: ArrayLike, memory: Tensor, mask: Mask | None) -> Tensor:
        """target so far [B, Tt], memory [B, Ts, d] -> states [B, Tt, d]; none sees a later token."""
        ids = np.asarray(target)
        y = self.positions.forward(self.target.forward(ids))
        return self.transformer.decoder.forward(y, memory, causal_mask(ids.shape[1]), mask)

    def forward(self, source: ArrayLike, target: ArrayLike) -> Tensor:
        """source [B, Ts], target so far [B, Tt] -> logits [B, Tt, 14] for the token after each."""
        memory, mask = self.encode(source)
        return self.output.forward(self.decode(target, memory, mask))

    def attend(self, source: ArrayLike, target: ArrayLike) -> Attention:
        """All weights for source [B, Ts] and target so far [B, Tt], in evaluation mode."""
        with _evaluating(self), no_grad(), watch_attention(self.transformer) as seen:
            self.forward(source, target)

        def of(stack: str, reader: str) -> Array:
            return np.stack(
                [w.data for path, w in seen if path.startswith(stack) and path.endswith(reader)]
            )

        own = "self_attention"
        return Attention(of("encoder", own), of("decoder", own), of("decoder", "cross_attention"))

    def writer(self, source: ArrayLike) -> Callable[[Ints, Ints], Array]:
        """The step function of `greedy_search` and `beam_search` for these sources [B, Ts]."""
        return _Writer(self, source)


class _Writer:
    """L5.6's step function for some sources: log-probabilities of the next token."""

    def __init__(self, model: Adder, source: ArrayLike) -> None:
        self.model = model
        with no_grad():
            memory, mask = model.encode(source)
        self.unread = model.transformer.decoder.begin(memory, mask)
        self.cache, self.names = self.unread, np.arange(len(memory))

    def __call__(self, prefixes: Ints, rows: Ints) -> Array:
        names, beginnings = rows, rows  # [N]
        for tokens in prefixes.T:
            names, beginnings = names * N_TOKENS + tokens, names
        order = np.argsort(self.names)
        at = np.searchsorted(self.names, beginnings, sorter=order)
        at = order[np.minimum(at, len(order) - 1)]
        t = prefixes.shape[1] - 1
        if self.cache.length == t and (self.names[at] == beginnings).all():
            cache, new = self.cache.select(at), prefixes[:, t:]
        else:
            cache, new, t = self.unread.select(rows), prefixes, 0
        with no_grad():
            x = self.model.positions.forward(self.model.target.forward(new), t)
            states, self.cache = self.model.transformer.decoder.extend(x, cache)
            logits = self.model.output.forward(Tensor(states.data[:, -1]))  # [N, 14]
        self.names = names
        log_probs = log_softmax(logits.data)
        log_probs[:, [PLUS, PAD, START, *([END] if prefixes.shape[1] == 1 else [])]] = -np.inf
        return log_probs


# ---- what it writes


CHUNK = 125  # inputs written at a time: what they need stays in the cache


def translate(
    model: Adder, source: ArrayLike, width: int = 1, alpha: float = 1.0, threads: int = 1
) -> list[list[Hypothesis]]:
    """What the model writes for each source [N, Ts]: up to `width` sequences, best first.

    By beam search of L5.6, at most five tokens each; width 1 is greedy search. ValueError unless alpha
    is from 0 to 400. The model is put into evaluation mode while it writes. Threads change no bit, other sources no more than the last bits.
    """
    ids = np.asarray(source)
    if not 0 <= alpha <= 400:  # 5**400 is about as large as a number can be
        raise ValueError(f"translate: alpha is from 0 to 400, got {alpha}")
    starts = range(0, len(ids), CHUNK)

    @_quiet
    def chunk(start: int) -> list[list[Hypothesis]]:
        part = ids[start : start + CHUNK]
        step, length = model.writer(part), DIGITS + 2
        if width == 1:
            found = greedy_search(step, len(part), start=START, end=END, max_length=length)
            return [[h._replace(score=h.log_prob / len(h.tokens) ** alpha)] for h in found]
        return beam_search(
            step, len(part), start=START, end=END, max_length=length, width=width, alpha=alpha
        )

    with _evaluating(model):
        if threads == 1 or len(starts) < 2 or _blas() is None:
            found = [chunk(start) for start in starts]
        else:
            with _one_blas_thread():
                found = list(_pool(threads).map(chunk, starts))
    return [beams for part in found for beams in part]


@contextmanager
def _evaluating(model: Module) -> Iterator[None]:
    """Evaluation mode for a while."""
    mode = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(mode)


@_quiet
def exact_match(model: Adder, asked: Ints) -> float:
    """The share of pairs [N, 2] whose sum greedy search writes without a fault."""
    a, b = asked.T
    target = target_tokens(a, b)
    right = 0
    with _evaluating(model), no_grad():
        for start in range(0, len(asked), 500):
            part = slice(start, start + 500)
            logits = model.forward(source_tokens(a[part], b[part]), target[part, :-1]).data
            logits[..., [PLUS, PAD, START]] = logits[:, 0, END] = -np.inf  # as writer() has it
            right += int((logits.argmax(axis=-1) == target[part, 1:]).all(axis=1).sum())
    return right / len(asked)


# ---- training


class Workers:
    """Processes that train one model together. This one stands for a process alone."""

    rank = 0  # which of them this is
    count = 1

    def total(self, array: Array) -> Array:
        """The sum over all workers of arrays of one shape [...]: the same array in each."""
        return array


class Progress(NamedTuple):
    """One step that was made."""

    step: int  # counted from 1
    loss: float  # of its batch, before it
    norm: float  # length of the gradient, before clipping
    rate: float


class Training:
    """A run: its settings, its model, and all that it depends on, step by step.

    processes: how many shards are computed at the same time, by children of this process; workers:
    others, here or elsewhere, that train the same model. Neither changes a bit. ValueError if the
    number of workers does not divide the number of shards.
    """

    def __init__(
        self, settings: Settings, processes: int = 1, workers: Workers | None = None
    ) -> None:
        self.settings = settings
        self.workers = Workers() if workers is None else workers
        if settings.shards % self.workers.count:
            raise ValueError(
                f"{self.workers.count} workers cannot share {settings.shards} shards evenly: set "
                f"shards to a multiple of the number of workers"
            )
        self.root = PCG32(settings.seed)
        self.model = Adder(settings, self.root.substream("parameters"))
        self.step = 0
        self.optimizer = AdamW(
            self.model.named_parameters(),
            betas=(0.9, settings.beta2),
            weight_decay=settings.weight_decay,
            decays=lambda name, p: p.ndim > 1,
        )
        self._draws = self.root.substream("batches")
        self._parameters = list(self.model.named_parameters())
        mine = settings.shards // self.workers.count
        self._crew = _Crew(self.model, settings, processes, self.workers.rank * mine, mine)

    @_quiet
    def advance(self) -> Progress:
        """Make one step. If it fails, the run is as it was after the step before.

        FloatingPointError if loss or gradient are not finite, RuntimeError if a child has died.
        """
        s = self.settings
        training, _ = pairs()
        draws = self._draws.state()
        a, b = training[self._draws.integers(0, len(training), s.batch)].T  # [B], [B]
        source, target = source_tokens(a, b), target_tokens(a, b)
        n = int((target[:, 1:] != PAD).sum())
        try:
            done = self._crew.run(self.step, source, target, n)
            flat = self.workers.total(_sum([gradient for gradient, _ in done]))  # eq. shards
            loss = self.workers.total(_sum([loss for _, loss in done]))
            self._set_gradients(flat)
            rate = warmup_cosine(self.step, peak=s.lr, warmup=s.warmup, total=s.steps)
            for name, number in (("loss", float(loss[0])), ("learning rate", rate)):
                if not math.isfinite(number):
                    raise FloatingPointError(f"the {name} is {number}")
            norm = clip_grad_norm(self._parameters, s.clip)
        except BaseException as error:
            self._draws.set_state(draws)  # as if this step had not been begun
            if isinstance(error, FloatingPointError):
                raise FloatingPointError(f"step {self.step + 1}, {error}") from None
            raise
        self.optimizer.lr = rate
        self.optimizer.step()
        self.step += 1
        return Progress(self.step, float(loss[0]), norm, rate)

    def _set_gradients(self, flat: Array) -> None:
        """Cut the gradient of all parameters, end to end, into theirs."""
        at = 0
        for _, p in self._parameters:
            p.grad = flat[at : at + p.size].reshape(p.shape)
            at += p.size

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all that the run depends on to a safetensors file, all or nothing.

        FloatingPointError, and nothing is written, if the run has diverged.
        """
        arrays = self._arrays()
        if fault := _divergence(arrays, self.model):
            raise FloatingPointError(f"after step {self.step}, {fault}")
        texts = {
            "format": FORMAT,
            "settings": json.dumps(asdict(self.settings)),
            "step": str(self.step),
            "generators": json.dumps({"batches": self._draws.state()}),
        }
        write_safetensors(path, arrays, texts)

    @classmethod
    @_quiet
    def load(
        cls, path: str | os.PathLike[str], processes: int = 1, workers: Workers | None = None
    ) -> Training:
        """Go on with the run in a file.

        CheckpointError for one that is damaged, does not fit or has diverged, OSError for one that cannot
        be read.
        """
        arrays, texts, settings = _read(path)
        run = cls(settings, processes, workers)
        try:
            run.model.load_state_dict(_part(arrays, "model/"))
            run.optimizer.load_state_dict(_part(arrays, "optimizer/"))
            step = texts["step"]
            if not step.isdecimal() or int(step) > settings.steps:
                raise ValueError(f"its step is {step!r}, wanted is a number up to {settings.steps}")
            run.step = int(step)
            run._draws.set_state(json.loads(texts["generators"])["batches"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"{os.fspath(path)}: {error}") from None
        if fault := _divergence(run._arrays(), run.model):
            raise CheckpointError(f"{os.fspath(path)}: {fault}: the run that it is of had diverged")
        return run

    def _arrays(self) -> dict[str, Array]:
        """Copies of the parameters and of what the optimiser remembers."""
        arrays = {f"model/{name}": array for name, array in self.model.state_dict().items()}
        return arrays | {
            f"optimizer/{n}": array for n, array in self.optimizer.state_dict().items()
        }


@_quiet
def _shard_gradient(
    model: Adder, settings: Settings, step: int, shard: int, source: Ints, target: Ints, n: int
) -> tuple[Array, Array]:
    """One shard's share of the batch's gradient, all parameters end to end, and of its loss [1]."""
    if settings.dropout:
        model.seed_generators(PCG32(settings.seed).substream(f"dropout {step} {shard}"))
    rows = np.array_split(np.arange(settings.batch), settings.shards)[shard]
    parameters = list(model.parameters())
    for p in parameters:
        p.grad = None
    logits = model.forward(source[rows], target[rows, :-1])  # [b, 5, 14]
    total = cross_entropy(logits, target[rows, 1:], ignore=PAD, reduction="sum")
    (total * (1.0 / n)).backward()
    grads = [p.grad.reshape(-1) for p in parameters if p.grad is not None]
    return np.concatenate(grads), np.array([total.item() / n])


class _Board:
    """The memory that a crew shares, as arrays."""

    def __init__(self, memory: Any, settings: Settings, size: int, shards: int) -> None:
        at = 0

        def take(dtype: type[np.generic], *shape: int) -> Array:
            nonlocal at
            array = np.frombuffer(memory, dtype, math.prod(shape), at).reshape(shape)
            at += -(-array.nbytes // 64) * 64
            return array

        self.parameters = take(np.float32, size)
        self.gradients = take(np.float32, shards, size)
        self.losses = take(np.float64, shards, 1)
        self.source = take(np.int64, settings.batch, 2 * DIGITS + 1)
        self.target = take(np.int64, settings.batch, DIGITS + 3)

    @staticmethod
    def bytes(settings: Settings, size: int, shards: int) -> int:
        return 4 * size * (1 + shards) + 8 * shards + 8 * settings.batch * (3 * DIGITS + 4) + 5 * 64


class _Crew:
    """This process and its children, which compute the shards from `first` on."""

    def __init__(
        self, model: Adder, settings: Settings, processes: int, first: int, shards: int
    ) -> None:
        if processes < 1:
            raise ValueError(f"processes is at least 1, got {processes}")
        self.model, self.settings, self.first, self.shards = model, settings, first, shards
        self.parameters = list(model.parameters())
        self.size = sum(p.size for p in self.parameters)
        self.count = min(processes, shards)
        self.children: list[subprocess.Popen[str]] = []  # started when they are needed

    def run(self, step: int, source: Ints, target: Ints, n: int) -> list[tuple[Array, Array]]:
        """The gradient and the loss of each shard, in order. RuntimeError if a child has died."""

        def work(i: int) -> tuple[Array, Array]:
            shard = self.first + i
            return _shard_gradient(self.model, self.settings, step, shard, source, target, n)

        with _one_blas_thread():  # else the last bits would depend on how BLAS divides the work
            if self.count == 1:
                return [work(i) for i in range(self.shards)]
            try:
                if not self.children:
                    self._start()
                np.concatenate(
                    [p.data.reshape(-1) for p in self.parameters], out=self.board.parameters
                )
                self.board.source[...], self.board.target[...] = source, target
                for c, child in enumerate(self.children, 1):
                    shards = list(range(c, self.shards, self.count))
                    _tell(child, {"step": step, "n": n, "shards": shards})
                own = {i: work(i) for i in range(0, self.shards, self.count)}
                for child in self.children:
                    _hear(child, "done")
            except BaseException:
                self.stop()  # the next step starts new ones
                raise
            return [
                own[i] if i in own else (self.board.gradients[i], self.board.losses[i])
                for i in range(self.shards)
            ]

    def _start(self) -> None:
        """Start the children and wait until they are ready."""
        size = _Board.bytes(self.settings, self.size, self.shards)
        with _nameless() as file:
            os.ftruncate(file.fileno(), size)
            self.board = _Board(
                mmap.mmap(file.fileno(), size), self.settings, self.size, self.shards
            )
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join(place or os.getcwd() for place in sys.path),
                "OPENBLAS_NUM_THREADS": "1",
                "OMP_NUM_THREADS": "1",
                "MKL_NUM_THREADS": "1",
            }
            for _ in range(self.count - 1):
                child = subprocess.Popen(
                    [sys.executable, "-c", "from tinyllm.addition import _child; _child()"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                    pass_fds=[file.fileno()],
                    start_new_session=True,  # Ctrl-C is for the parent
                )
                self.children.append(child)
                weakref.finalize(self, _end, child)
            facts = {"settings": asdict(self.settings), "file": file.fileno(), "size": self.size}
            for child in self.children:
                _tell(child, facts | {"shards": self.shards, "first": self.first})
            for child in self.children:
                _hear(child, "ready")

    def stop(self) -> None:
        """End the children."""
        for child in self.children:
            _end(child)
        self.children = []


def _child() -> None:
    """Compute shards as the parent asks, until it closes the pipe."""
    facts = json.loads(sys.stdin.readline())
    settings = Settings(**facts["settings"])
    with open(facts["file"], "r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    board = _Board(memory, settings, facts["size"], facts["shards"])
    model, at = Adder(settings, PCG32()), 0
    for p in model.parameters():
        p.data = board.parameters[at : at + p.size].reshape(p.shape)
        at += p.size
    print("ready", flush=True)
    for line in sys.stdin:
        order, answer = json.loads(line), "done"
        try:
            for i in order["shards"]:
                shard = facts["first"] + i
                found = _shard_gradient(
                    model, settings, order["step"], shard, board.source, board.target, order["n"]
                )
                board.gradients[i], board.losses[i] = found
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        print(answer, flush=True)


def _nameless() -> IO[bytes]:
    """A file that has no name, in memory where that can be had."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("tinyllm"), "w+b")
    return tempfile.TemporaryFile()


def _tell(child: subprocess.Popen[str], message: dict[str, Any]) -> None:
    assert child.stdin is not None
    try:
        child.stdin.write(json.dumps(message) + "\n")
        child.stdin.flush()
    except OSError:
        raise RuntimeError("a child process has died") from None


def _hear(child: subprocess.Popen[str], wanted: str) -> None:
    assert child.stdout is not None
    answer = child.stdout.readline().strip()
    if answer != wanted:
        raise RuntimeError(f"a child process has {f'failed: {answer}' if answer else 'died'}")


def _end(child: subprocess.Popen[str]) -> None:
    for pipe in (child.stdin, child.stdout):
        with suppress(OSError):
            if pipe is not None:
                pipe.close()
    try:
        child.wait(timeout=5)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="sums")


@cache
def _blas() -> Any:
    """What sets numpy's number of BLAS threads, or None where that cannot be done."""
    try:
        threadpoolctl = importlib.import_module("threadpoolctl")
    except ImportError:
        return None
    return threadpoolctl.ThreadpoolController()


def _one_blas_thread() -> Any:
    blas = _blas()
    return nullcontext() if blas is None else blas.limit(limits=1, user_api="blas")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork


def _sum(parts: Sequence[Array]) -> Array:
    """The sum of arrays, neighbours first: ((0 + 1) + (2 + 3)) + ..."""
    parts = list(parts)
    while len(parts) > 1:
        pairs_of = [parts[i] + parts[i + 1] for i in range(0, len(parts) - 1, 2)]
        parts = pairs_of + parts[len(parts) - len(parts) % 2 :]
    return parts[0]


# ---- files


FORMAT = "tinyllm addition 1"


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, str], Settings]:
    """What is in a checkpoint of this model."""
    arrays, texts = read_safetensors(path)
    if texts.get("format") != FORMAT:
        raise CheckpointError(
            f"{os.fspath(path)}: no checkpoint of the transformer that adds: its format is "
            f"{texts.get('format')!r}, wanted is {FORMAT!r}"
        )
    try:
        settings = Settings(**json.loads(texts["settings"]))
        _must_be_held(settings, _part(arrays, "model/"))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{os.fspath(path)}: its settings: {error}") from None
    return arrays, texts, settings


def _must_be_held(settings: Settings, arrays: dict[str, Array]) -> None:
    """ValueError unless the model of these settings is about as large as these arrays."""
    d, hidden = settings.d_model, settings.d_ff
    attention, norm = 4 * (d * d + d), 2 * d
    feed_forward = 2 * d * hidden + hidden + d
    layers = settings.n_layers * (3 * attention + 2 * feed_forward + 5 * norm)
    asked = layers + 2 * norm + 2 * N_TOKENS * d + N_TOKENS * (d + 1)
    held = sum(array.size for array in arrays.values())
    if asked > 2 * held or settings.n_layers > len(arrays):
        raise ValueError(
            f"they ask for n_layers={settings.n_layers} and {asked:,} parameters, the file holds "
            f"{len(arrays):,} arrays with {held:,}"
        )


def _part(arrays: dict[str, Array], prefix: str) -> dict[str, Array]:
    return {n.removeprefix(prefix): array for n, array in arrays.items() if n.startswith(prefix)}


@_quiet
def load_model(path: str | os.PathLike[str]) -> Adder:
    """The model in a checkpoint, in evaluation mode.

    CheckpointError for a file that is damaged, does not fit or is of a run that has diverged, OSError
    for one that cannot be read.
    """
    arrays, _, settings = _read(path)
    model = Adder(settings, PCG32())
    try:
        model.load_state_dict(_part(arrays, "model/"))
    except ValueError as error:
        raise CheckpointError(f"{os.fspath(path)}: {error}") from None
    if fault := _divergence(model.state_dict(), model):
        raise CheckpointError(f"{os.fspath(path)}: {fault}: the run that it is of had diverged")
    return model.eval()


@_quiet
def _divergence(arrays: dict[str, Array], model: Adder) -> str:
    """What is not finite, in these arrays or in what the model says; empty if all is well."""
    bad = [name for name, array in arrays.items() if not np.isfinite(array).all()]
    if bad:
        others = f" and {len(bad) - 3} others" if len(bad) > 3 else ""
        return f"not all numbers are finite in {', '.join(bad[:3])}{others}"
    a = np.arange(0, 10**DIGITS, 9)
    with _evaluating(model), no_grad():
        logits = model.forward(source_tokens(a, a[::-1]), target_tokens(a, a[::-1])[:, :-1])
    return (
        ""
        if np.isfinite(logits.data).all()
        else "the parameters are finite, but too large to compute with"
    )
