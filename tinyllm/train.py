# Tangled from book/1-foundations/L0.5-training.md
"""What training needs besides a model: a loss, optimisers, gradient clipping and a schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.autograd import record, tensor_argument
from tinyllm.tensor import Tensor

__all__ = ["SGD", "AdamW", "clip_grad_norm", "cross_entropy", "warmup_cosine"]

Array: TypeAlias = NDArray[Any]
Parameters: TypeAlias = Iterable[Tensor | tuple[str, Tensor]]


def cross_entropy(
    logits: Tensor,
    targets: ArrayLike,
    ignore: int | None = -100,
    reduction: str = "mean",
) -> Tensor:
    """Negative log-probability of the target class, one recorded operation.

    logits [..., V], targets whole numbers [...]; positions whose target is `ignore` count for
    nothing. "mean" is over the positions that count and a single number, "sum" their sum, "none"
    the loss of each position [...], 0 where ignored. Computed in float32 at least, returned in the
    logits' dtype. ValueError for shapes that don't fit, a target that isn't a class, and a mean over
    no position; TypeError for logits that aren't a floating tensor and targets that aren't whole numbers.
    """
    ids, counts = _targets(logits, targets, ignore, reduction)
    V, every = logits.shape[-1], bool(counts.all())
    counted: Any = slice(None) if every else np.flatnonzero(counts)
    chosen = ids.reshape(-1)[counted].copy()  # the caller may fill the array anew before backward
    n = len(chosen)
    divisor = n if reduction == "mean" else 1
    z = logits.data.reshape(ids.size, V)[counted]  # [n, V]
    if z.dtype.itemsize < 4:
        z = z.astype(np.float32)
    z = z - z.max(
        axis=1, keepdims=True, initial=-np.inf
    )  # the softmax stays, e**z can no longer overflow
    at = np.arange(n), chosen
    right = z[at]  # [n]
    p = np.exp(z, out=z)
    total = p.sum(axis=1)  # [n]
    losses = np.log(total) - right  # eq. cross-entropy
    p /= total[:, None]  # [n, V], remembered for the backward pass
    if reduction == "none":
        result = np.zeros(ids.size, losses.dtype)
        result[counted] = losses
        result = result.reshape(ids.shape)
    else:
        result = losses.sum() / divisor  # eq. mean-loss

    def backward(grad: Array) -> tuple[Array]:
        grad = grad.astype(p.dtype, copy=False)  # n itself may be too large for float16
        share = grad.reshape(-1)[counted] if reduction == "none" else np.full(n, grad / divisor)
        d = p * share[:, None]  # eq. belief-minus-truth, [n, V]
        d[at] -= share
        if not every:
            part = d
            d = np.zeros((ids.size, V), part.dtype)  # an ignored position's gradient is 0
            d[counted] = part
        return (d.reshape(logits.shape),)

    return record(result.astype(logits.dtype, copy=False), (logits,), backward)


def _targets(
    logits: Tensor, targets: ArrayLike, ignore: int | None, reduction: str
) -> tuple[Array, NDArray[np.bool_]]:
    """The targets [...], checked, and which of them count [N]."""
    tensor_argument("cross_entropy", "logits", logits, floating=True)
    ids = targets.data if isinstance(targets, Tensor) else np.asarray(targets)
    if ids.dtype.kind not in "iu":
        raise TypeError(f"cross_entropy: targets are whole numbers, got dtype {ids.dtype}")
    if logits.ndim == 0 or logits.shape[:-1] != ids.shape:
        raise ValueError(
            f"cross_entropy: wants logits [..., V] and targets [...], got {list(logits.shape)} "
            f"and {list(ids.shape)}"
        )
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f'cross_entropy: reduction is "mean", "sum" or "none", got {reduction!r}')
    V, flat = logits.shape[-1], ids.reshape(-1)
    counts = np.ones(flat.size, bool) if ignore is None else flat != ignore
    wrong = np.flatnonzero(counts & ((flat < 0) | (flat >= V)))
    if wrong.size:
        place = [int(i) for i in np.unravel_index(wrong[0], ids.shape)]
        raise ValueError(
            f"cross_entropy: the target at {place} is {flat[wrong[0]]}, classes are 0 to {V - 1}, "
            f"and ignored is {ignore}"
        )
    if reduction == "mean" and not counts.any():
        raise ValueError(
            "cross_entropy: every target is ignored, and a mean over nothing has no value"
        )
    return ids, counts


class _Optimizer:
    """Named parameters, settings that are checked in each step, and a memory that can be saved."""

    def __init__(self, parameters: Parameters) -> None:
        self._slots = [_Slot(*named) for named in _named(type(self).__name__, parameters)]
        self._check()

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters; do so before each backward pass."""
        for slot in self._slots:
            slot.tensor.grad = None

    def _check(self) -> None:
        """ValueError for settings out of range, and for a parameter or gradient that has changed."""
        who = type(self).__name__
        for name in ("lr", "momentum", "betas", "eps", "weight_decay"):
            value: Any = getattr(self, name, 0.0)
            if name == "betas" and hasattr(self, name):
                wanted = "two numbers from 0 up to, not including, 1"
                fits = np.shape(value) == (2,) and all(_is_within(beta, 1.0) for beta in value)
            else:
                wanted, fits = "a finite number of at least 0", _is_within(value, math.inf)
            if not fits:
                raise ValueError(f"{who}: {name} is {wanted}, got {value!r}")
        for slot in self._slots:
            tensor = slot.tensor
            if tensor.dtype != slot.dtype or tensor.size != slot.size:
                raise ValueError(
                    f"{who}: {slot.name} has become {tensor.dtype} {list(tensor.shape)} since the optimiser "
                    f"was made for {slot.size} numbers of {slot.dtype}: make a new one"
                )
            grad = _gradient(who, slot.name, tensor)
            if grad is not None and grad.shape != tensor.shape:
                raise ValueError(
                    f"{who}: {slot.name} has shape {list(tensor.shape)}, its gradient {list(grad.shape)}"
                )

    def state_dict(self) -> dict[str, Array]:
        """Copies of what the optimiser remembers, by the parameters' names."""
        raise NotImplementedError

    def _restore(self, given: Mapping[str, Array]) -> None:
        """Take over arrays whose names, shapes and dtypes are those of `state_dict`."""
        raise NotImplementedError

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Go on from a state; ValueError that names every fault, and nothing is loaded."""
        given = {name: np.asarray(array) for name, array in state.items()}
        faults = []
        wanted = self.state_dict()
        for name in wanted.keys() | given.keys():
            if name not in given:
                faults.append(f"missing from the state: {name}")
            elif name not in wanted:
                faults.append(f"not in the optimiser: {name}")
            elif given[name].shape != wanted[name].shape:
                faults.append(
                    f"{name}: the state has shape {given[name].shape}, wanted is {wanted[name].shape}"
                )
            elif not np.can_cast(given[name].dtype, wanted[name].dtype, "same_kind"):
                faults.append(
                    f"{name}: the state has dtype {given[name].dtype}, wanted is {wanted[name].dtype}"
                )
        if faults:
            what = "the state does not fit the optimiser, nothing was loaded:"
            raise ValueError("\n  ".join([what, *sorted(faults)]))
        self._restore(given)


class AdamW(_Optimizer):
    """AdamW of Loshchilov and Hutter (2019), as torch.optim.AdamW computes it.

    parameters: tensors, or pairs of name and tensor as ``named_parameters()`` gives them; each once.
    decays: which of them weight decay acts on, a function of name and tensor; None for all.
    `lr`, `betas`, `eps` and `weight_decay` are attributes and may be assigned between steps.
    ValueError for no parameters, a parameter given twice, and settings out of range; TypeError for
    anything but tensors.
    """

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        decays: Callable[[str, Tensor], bool] | None = None,
    ) -> None:
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        super().__init__(parameters)
        self._buckets = _buckets(self._slots, decays)

    def step(self) -> None:
        """Move every parameter that has a gradient; its `.data` becomes a new array.

        The arrays that were there are not written to. ValueError, and nothing is moved, if a parameter's
        shape or dtype has changed since the optimiser was made, or a setting is out of range; TypeError
        for a gradient that is no array.
        """
        self._check()
        for bucket in self._buckets:
            for (ready, steps), run in groupby(
                bucket.slots, key=lambda slot: (slot.tensor.grad is not None, slot.steps)
            ):
                if ready:
                    self._move(bucket, list(run), steps + 1)

    def _move(self, bucket: _Bucket, run: list[_Slot], s: int) -> None:
        """Step number s of neighbours in one bucket."""
        first, last = run[0].part.start, run[-1].part.stop
        p = np.concatenate([slot.tensor.data.reshape(-1) for slot in run])
        g = np.concatenate([slot.tensor.grad.reshape(-1) for slot in run])  # type: ignore[union-attr]
        m, v = bucket.m[first:last], bucket.v[first:last]
        rate = self.lr / (1.0 - self.betas[0] ** s)
        root = 1.0 / math.sqrt(1.0 - self.betas[1] ** s)
        keep = 1.0 - self.lr * self.weight_decay if bucket.decays else 1.0
        for start in range(0, len(p), BLOCK):
            b = slice(start, start + BLOCK)
            _adamw(p[b], g[b], m[b], v[b], rate, root, keep, self)
        for slot in run:
            part = p[slot.part.start - first : slot.part.stop - first]
            slot.tensor.data = part.reshape(slot.tensor.shape)
            slot.steps = s

    def state_dict(self) -> dict[str, Array]:
        """Copies of what the optimiser remembers: NAME.exp_avg, NAME.exp_avg_sq and NAME.step for each."""
        state: dict[str, Array] = {}
        for slot in self._slots:
            for key, array in (("exp_avg", slot.bucket.m), ("exp_avg_sq", slot.bucket.v)):
                state[f"{slot.name}.{key}"] = array[slot.part].reshape(slot.tensor.shape).copy()
            state[f"{slot.name}.step"] = np.array(slot.steps, np.int64)
        return state

    def _restore(self, given: Mapping[str, Array]) -> None:
        for slot in self._slots:
            slot.bucket.m[slot.part] = given[f"{slot.name}.exp_avg"].reshape(-1)
            slot.bucket.v[slot.part] = given[f"{slot.name}.exp_avg_sq"].reshape(-1)
            slot.steps = int(given[f"{slot.name}.step"])


BUCKET, BLOCK = 1 << 18, 1 << 15  # numbers in a bucket at most, numbers treated at a time


class _Slot:
    """A parameter, its dtype, how many steps it has taken, and where in its bucket it is."""

    __slots__ = ("bucket", "dtype", "name", "part", "size", "steps", "tensor")

    bucket: _Bucket
    part: slice

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.name, self.tensor, self.steps = name, tensor, 0
        self.dtype, self.size = tensor.dtype, tensor.size


class _Bucket:
    """The running means of several parameters, end to end."""

    def __init__(self, slots: list[_Slot], decays: bool) -> None:
        self.slots, self.decays, size = slots, decays, 0
        for slot in slots:
            slot.bucket, slot.part = self, slice(size, size + slot.tensor.size)
            size += slot.tensor.size
        self.m = np.zeros(size, slots[0].tensor.dtype)
        self.v = np.zeros(size, slots[0].tensor.dtype)


def _buckets(slots: list[_Slot], decays: Callable[[str, Tensor], bool] | None) -> list[_Bucket]:
    open_ones: dict[tuple[Any, bool], list[_Slot]] = {}
    buckets = []
    for slot in slots:
        kind = slot.tensor.dtype, decays is None or bool(decays(slot.name, slot.tensor))
        waiting = open_ones.setdefault(kind, [])
        if waiting and sum(s.tensor.size for s in waiting) + slot.tensor.size > BUCKET:
            buckets.append(_Bucket(waiting, kind[1]))
            waiting = open_ones[kind] = []
        waiting.append(slot)
    return buckets + [_Bucket(waiting, kind[1]) for kind, waiting in open_ones.items()]


def _adamw(
    p: Array, g: Array, m: Array, v: Array, rate: float, root: float, keep: float, rule: AdamW
) -> None:
    """One step in place; g is used up as scratch. rate = lr / (1 - beta1**s)."""
    beta1, beta2 = rule.betas
    for mean, beta in ((m, beta1), (v, beta2)):
        if not beta:
            mean[...] = 0.0  # nothing is remembered, not even infinity, and that times 0 is NaN
    p *= keep
    change = g - m
    if beta1 > 0.5:
        change *= 1.0 - beta1
        m += change  # eq. moments
    else:  # from the other end: for beta1 = 0 the mean is g, to the bit
        change *= beta1
        np.subtract(g, change, out=m)
    v *= beta2
    g *= g
    g *= 1.0 - beta2
    v += g
    np.sqrt(v, out=g)
    g *= root  # eq. bias-correction
    g += rule.eps
    np.divide(m, g, out=g)
    g *= rate
    p -= g  # eq. adamw


class SGD(_Optimizer):
    """Gradient descent with momentum, as torch.optim.SGD computes it.

    Weight decay is added to the gradient. `parameters` as for AdamW; `lr`, `momentum` and
    `weight_decay` are attributes and may be assigned between steps. ValueError for no parameters,
    a parameter given twice, and settings out of range; TypeError for anything but tensors.
    """

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        super().__init__(parameters)
        self._velocities = {slot.name: np.zeros_like(slot.tensor.data) for slot in self._slots}

    def step(self) -> None:
        """Move every parameter that has a gradient; its `.data` becomes a new array.

        ValueError and TypeError, and nothing is moved, as for AdamW.
        """
        self._check()
        for slot in self._slots:
            p, g, u = slot.tensor.data, slot.tensor.grad, self._velocities[slot.name]
            if g is not None:
                if not self.momentum:
                    u[...] = 0.0  # as in AdamW
                u *= self.momentum
                u += g
                if self.weight_decay:
                    u += p * float(self.weight_decay)
                slot.tensor.data = p - u * float(self.lr)  # eq. sgd

    def state_dict(self) -> dict[str, Array]:
        """Copies of the velocities: NAME.momentum_buffer for each parameter."""
        return {f"{name}.momentum_buffer": u.copy() for name, u in self._velocities.items()}

    def _restore(self, given: Mapping[str, Array]) -> None:
        for name, u in self._velocities.items():
            u[...] = given[f"{name}.momentum_buffer"]


def clip_grad_norm(parameters: Parameters, max_norm: float) -> float:
    """Scale all gradients together so that their length is at most `max_norm`, in place.

    Returns the length before clipping, a Python float, 0 if there are no gradients. `max_norm` may be
    math.inf, which only measures. ValueError unless max_norm > 0 and there are parameters, TypeError for
    anything but tensors; FloatingPointError, and nothing is scaled, if a gradient is not finite.
    """
    if not max_norm > 0:
        raise ValueError(f"clip_grad_norm: max_norm is a number above 0, got {max_norm}")
    who = "clip_grad_norm"
    named = [(name, _gradient(who, name, p)) for name, p in _named(who, parameters)]
    grads = [(name, grad) for name, grad in named if grad is not None]
    with np.errstate(over="ignore", invalid="ignore"):
        norm = math.sqrt(sum(float(np.vdot(grad, grad)) for _, grad in grads))
    if not math.isfinite(norm):
        wide = [(name, grad.astype(np.float64)) for name, grad in grads]
        bad = [name for name, grad in wide if not np.isfinite(grad).all()]
        if bad:
            raise FloatingPointError(
                f"clip_grad_norm: the gradient of {', '.join(bad)} is not finite"
            )
        norm = math.hypot(*(float(np.linalg.norm(grad)) for _, grad in wide))
    factor = min(1.0, max_norm / (norm + 1e-6))  # eq. clip
    if factor < 1.0:
        for _, grad in grads:
            grad *= factor
    return norm


def warmup_cosine(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The learning rate of a step, the first of which is 0.

    It rises evenly to `peak` over `warmup` steps and falls along a cosine to `floor` at step `total`,
    where it stays. ValueError unless 0 <= warmup < total and step >= 0.
    """
    if not (0 <= warmup < total and step >= 0):
        raise ValueError(
            f"warmup_cosine: wants step >= 0 and 0 <= warmup < total, got step={step}, "
            f"warmup={warmup}, total={total}"
        )
    if step < warmup:
        return peak * (step + 1) / warmup  # eq. schedule
    done = min(1.0, (step - warmup) / (total - warmup))
    return floor + (peak - floor) * 0.5 * (1.0 + math.cos(math.pi * done))


def _is_within(value: object, end: float) -> bool:
    """Whether it is a number from 0 up to, not including, `end`."""
    return isinstance(value, int | float | np.number) and bool(0.0 <= value < end)


def _must_be_trainable(who: str, name: str, tensor: Tensor) -> None:
    """ValueError for a result, TypeError for numbers that are not floating-point."""
    if tensor._backward is not None:
        raise ValueError(
            f"{who}: {name} is the result of an operation, and moving it trains nothing: give the "
            f"tensors that it was computed from, or .detach() it first"
        )
    if tensor.dtype.kind != "f":
        raise TypeError(
            f"{who}: wants floating-point numbers, {name} has {tensor.dtype}: "
            "convert with .astype(np.float32)"
        )


def _gradient(who: str, name: str, tensor: Tensor) -> Array | None:
    """The tensor's gradient; TypeError if it is neither an array nor None."""
    grad: object = tensor.grad
    if grad is not None and not isinstance(grad, np.ndarray | np.generic):
        raise TypeError(
            f"{who}: the .grad of {name} is a numpy array or None, got a {type(grad).__name__}"
        )
    return tensor.grad


def _named(who: str, parameters: Parameters) -> list[tuple[str, Tensor]]:
    """Pairs of name and tensor; tensors alone are named by their place. Each of both once."""
    if isinstance(parameters, Tensor) or not isinstance(parameters, Iterable):
        raise TypeError(
            f"{who}: wants a list or an iterator of parameters, got a {type(parameters).__name__}: "
            "for a module m give m.parameters(), for a single tensor t give [t]"
        )
    found: dict[int, tuple[str, Tensor]] = {}
    for i, item in enumerate(parameters):
        pair: Any = item if isinstance(item, tuple) and len(item) == 2 else (str(i), item)
        name, tensor = pair
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"{who}: wants tensors or pairs of name and tensor, got {item!r}: for a module m "
                "give m.parameters()"
            )
        if id(tensor) in found:
            raise ValueError(
                f"{who}: {found[id(tensor)][0]} and {name} are one tensor, which would count twice"
            )
        if any(name == known for known, _ in found.values()):
            raise ValueError(f"{who}: two parameters are called {name}: their memory would be one")
        _must_be_trainable(who, name, tensor)
        found[id(tensor)] = name, tensor
    if not found:
        raise ValueError(
            f"{who}: got no parameters. An iterator such as m.parameters() can be read once only; "
            "list(m.parameters()) can be read again"
        )
    return list(found.values())
