"""Asks for shapes and ranges."""

from tinyllm.num.pcg32 import PCG32


def test_ranges():
    rng = PCG32(0)
    x = rng.uniform(2.0, 3.0, (4, 5))
    assert x.shape == (4, 5)
    assert ((x >= 2) & (x < 3)).all()
    k = rng.integers(1, 7, 1000)
    assert set(k.tolist()) == {1, 2, 3, 4, 5, 6}
    assert sorted(rng.permutation(10).tolist()) == list(range(10))
    assert abs(rng.normal(0.0, 1.0, 1000).mean()) < 0.2
