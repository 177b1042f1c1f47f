"""Calls everything."""

from tinyllm.num.pcg32 import PCG32, default_generator, manual_seed


def test_runs():
    rng = PCG32(3, 4)
    rng.next_uint32()
    rng.uint32s(5)
    rng.advance(-3)
    rng.uniform(-1, 1, (2, 3))
    rng.normal(0, 2, 4, "f8")
    rng.integers(0, 6, 5)
    rng.permutation(9)
    rng.substream("a").set_state(rng.spawn("b").state())
    manual_seed(1).spawn("c")
    default_generator().uniform()
