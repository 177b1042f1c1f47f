# Tangled from book/1-foundations/L0.4-modules.md
"""The generator that a layer draws from: the one it is given, or the process's."""

from tinyllm.num.pcg32 import PCG32, default_generator

__all__ = ["generator"]


def generator(who: str, rng: PCG32 | None) -> PCG32:
    """`rng`, the argument of `who`, or for None the process's; TypeError for anything else."""
    if rng is None:
        return default_generator()
    if not isinstance(rng, PCG32):
        raise TypeError(
            f"{who}: wants a PCG32 for rng, got {rng!r}: PCG32(0) makes one from a seed"
        )
    return rng
