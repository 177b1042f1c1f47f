# Tangled from book/1-foundations/L0.5-training.md
"""L0.5 Training: cross-entropy, AdamW, SGD, clipping of gradients, a learning-rate schedule."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from numpy.typing import ArrayLike, NDArray

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
    """Negative log-probability of the target class, a natural logarithm.

    logits [..., V] of any size, targets whole numbers [...] from 0 to V - 1, copied. Positions whose target
    is `ignore` (None: no target is) are never read, count for nothing and have gradient 0.
    "mean" is over the positions that count, a tensor of shape (); "sum" is their sum, of shape ();
    "none" the loss of each position [...], 0 where ignored. Finite for finite logits, computed in float32 at
    least and returned in the logits' dtype; any layout, and nothing is written to. ValueError for shapes that do not fit, an unknown reduction, a
    target that is no class, and a mean over no position; TypeError for logits that are no floating
    tensor and for targets that are not ints.
    Source: torch.nn.functional.cross_entropy.
    """

class AdamW:
    """Adam with decoupled weight decay, as torch.optim.AdamW computes it.

    A step computes, for each parameter that has a gradient g:
    m += (1 - beta1)(g - m); v = beta2 v + (1 - beta2) g g;
    data = (1 - lr weight_decay) data - lr m / (1 - beta1^s) / (sqrt(v / (1 - beta2^s)) + eps),
    s being the number of steps that this parameter has taken, this one included. Nothing of g is
    remembered where a beta is 0, be it infinite, and no parameter changes what becomes of another.
    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019), algorithm 2.
    """

    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        decays: Callable[[str, Tensor], bool] | None = None,
    ) -> None:
        """parameters: tensors (named "0", "1", ...), or pairs of name and tensor; at least one, and
        each tensor and each name once, else ValueError; frozen leaves may be among them; TypeError for anything else, a single tensor or a module
        too, or one that is not floating; ValueError for the result of an operation. decays: which of
        them decay, by name and tensor; None for all. ValueError unless lr, eps
        and weight_decay are finite and at least 0, and 0 <= betas < 1."""

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
    def step(self) -> None:
        """Move every parameter that has a gradient; the others keep their data, means and count.

        `.data` becomes a new array of the same dtype; no array is written to. Settings and `.data` may be
        assigned between steps. ValueError, and nothing moves, if a parameter has another dtype or size
        than when the optimiser was made, a gradient another shape, or a setting is not in its range;
        TypeError for a gradient that is no array.
        """
    def state_dict(self) -> dict[str, Array]:
        """Copies: NAME.exp_avg and NAME.exp_avg_sq in the parameter's shape and dtype, NAME.step
        int64 of shape (). Settings are not in it."""
    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Go on from a state, copied. ValueError that names every missing, unexpected or misfitting
        array, and nothing is loaded."""

class SGD:
    """Gradient descent with momentum, as torch.optim.SGD computes it.

    A step computes, for each parameter that has a gradient g:
    u = momentum u + (g + weight_decay data), where u begins at 0; data = data - lr u.
    With momentum 0 nothing is remembered.
    """

    lr: float
    momentum: float
    weight_decay: float

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        """parameters as for AdamW. ValueError unless all settings are finite and at least 0."""

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
    def step(self) -> None:
        """Move every parameter that has a gradient; the others keep their data and u.

        `.data` becomes a new array. ValueError and TypeError, and nothing moves, as for AdamW.
        """
    def state_dict(self) -> dict[str, Array]:
        """Copies: NAME.momentum_buffer in the parameter's shape and dtype."""
    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Go on from a state, copied. ValueError as for AdamW, and nothing is loaded."""

def clip_grad_norm(parameters: Parameters, max_norm: float) -> float:
    """Scale all gradients by min(1, max_norm / (length + 1e-6)), in place.

    The length is that of all gradients as one vector, of any size in float64; it is returned, as it was
    before, as a float. Parameters
    without a gradient count for nothing. max_norm may be math.inf, which only measures. ValueError
    unless max_norm > 0, and for parameters and gradients as AdamW refuses them (TypeError too); FloatingPointError that names the parameters, and nothing is scaled, if a
    gradient holds NaN or infinity. Source: torch.nn.utils.clip_grad_norm_.
    """

def warmup_cosine(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The learning rate of step 0, 1, ...: peak (step + 1) / warmup while step < warmup, then along
    a cosine from peak at step `warmup` to floor at step `total`, then floor. ValueError unless
    0 <= warmup < total and step >= 0."""
