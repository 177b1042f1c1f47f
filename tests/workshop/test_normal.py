# Tangled from book/1-foundations/M06.3-pcg32.md
"""The normal distribution against the standard library's, number by number."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from tinyllm.num.normal import normal_cdf_pdf, normal_quantile


@pytest.mark.parametrize(("kind", "tight"), [(np.float64, 2e-12), (np.float32, 2e-5)])
def test_cdf_and_density(kind, tight):
    lowest = -37 if kind is np.float64 else -10  # below it, numbers lose digits or are 0
    x = np.concatenate([np.linspace(lowest, 0, 500), np.linspace(0, 10, 200)]).astype(kind)
    cdf, density = normal_cdf_pdf(x)
    assert cdf.dtype == density.dtype == kind
    wide = x.astype(float)
    want = [0.5 * math.erfc(-v / math.sqrt(2)) for v in wide]
    np.testing.assert_allclose(cdf, want, rtol=tight, atol=0)
    np.testing.assert_allclose(cdf, want, rtol=0, atol=1e-14 if kind is np.float64 else 2e-7)
    bell = np.exp(-wide * wide / 2) / math.sqrt(2 * math.pi)
    np.testing.assert_allclose(density, bell, rtol=tight, atol=0)


def test_cdf_at_the_ends():
    with np.errstate(over="ignore"):
        cdf, density = normal_cdf_pdf(np.array([-np.inf, -1e200, 1e200, np.inf, np.nan]))
    assert cdf[:4].tolist() == [0, 0, 1, 1]
    assert density[:4].tolist() == [0, 0, 0, 0]
    assert np.isnan([cdf[4], density[4]]).all()


def test_quantile_is_the_inverse():
    q = np.concatenate([np.linspace(-0.499, 0.499, 999), 0.5 - 2.0 ** -np.arange(2, 53)])
    z = normal_quantile(q)
    want = [math.copysign(NormalDist().inv_cdf(0.5 - abs(v)), v) for v in q]
    np.testing.assert_allclose(z, want, rtol=2e-15, atol=1e-15)
    np.testing.assert_allclose(normal_cdf_pdf(-abs(z))[0], 0.5 - abs(q), rtol=1e-13)
    np.testing.assert_array_equal(normal_quantile(-q), -z)
