# Tangled from book/1-foundations/M06.3-pcg32.md
"""The standard normal distribution: its distribution function, its density, and the inverse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["normal_cdf_pdf", "normal_quantile"]

Array = NDArray[Any]

_CENTRE = (
    (2.5090809287301226727e3, 5.2264952788528545610e3),
    (3.3430575583588128105e4, 2.8729085735721942674e4),
    (6.7265770927008700853e4, 3.9307895800092710610e4),
    (4.5921953931549871457e4, 2.1213794301586595867e4),
    (1.3731693765509461125e4, 5.3941960214247511077e3),
    (1.9715909503065514427e3, 6.8718700749205790830e2),
    (1.3314166789178437745e2, 4.2313330701600911252e1),
    (3.3871328727963666080e0, 1.0),
)
_TAIL = (
    (7.74545014278341407640e-4, 1.05075007164441684324e-9),
    (2.27238449892691845833e-2, 5.47593808499534494600e-4),
    (2.41780725177450611770e-1, 1.51986665636164571966e-2),
    (1.27045825245236838258e0, 1.48103976427480074590e-1),
    (3.64784832476320460504e0, 6.89767334985100004550e-1),
    (5.76949722146069140550e0, 1.67638483018380384940e0),
    (4.63033784615654529590e0, 2.05319162663775882187e0),
    (1.42343711074968357734e0, 1.0),
)
_FAR_TAIL = (
    (2.01033439929228813265e-7, 2.04426310338993978564e-15),
    (2.71155556874348757815e-5, 1.42151175831644588870e-7),
    (1.24266094738807843860e-3, 1.84631831751005468180e-5),
    (2.65321895265761230930e-2, 7.86869131145613259100e-4),
    (2.96560571828504891230e-1, 1.48753612908506148525e-2),
    (1.78482653991729133580e0, 1.36929880922735805310e-1),
    (5.46378491116411436990e0, 5.99832206555887937690e-1),
    (6.65790464350110377720e0, 1.0),
)


def _ratio(table: tuple[tuple[float, float], ...], r: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(r) / Q(r), both by Horner's rule from the highest power down."""
    top, bottom = np.full_like(r, table[0][0]), np.full_like(r, table[0][1])
    for p, q in table[1:]:
        top *= r
        top += p
        bottom *= r
        bottom += q
    top /= bottom
    return top


def normal_quantile(q: NDArray[np.float64]) -> NDArray[np.float64]:
    """The z such that a standard normal number is below z with probability 1/2 + q, |q| < 1/2.

    Algorithm AS 241 (M. J. Wichura, Applied Statistics 37, 1988).
    """
    z = q * _ratio(_CENTRE, 0.180625 - q * q)  # eq. quantile
    outer = np.flatnonzero(np.abs(q) > 0.425)
    side = q[outer]
    rho = np.sqrt(-_log(0.5 - np.abs(side)))  # the difference is exact
    tail = _ratio(_TAIL, rho - 1.6)
    far = rho > 5.0
    tail[far] = _ratio(_FAR_TAIL, rho[far] - 5.0)
    z[outer] = np.copysign(tail, side)
    return z


def _log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Natural logarithm of x > 0 by operations that IEEE 754 rounds in exactly one way."""
    m, e = np.frexp(x)  # x = m * 2**e with 1/2 <= m < 1
    small = m < math.sqrt(0.5)
    m[small] *= 2.0
    t = (m - 1.0) / (m + 1.0)
    square = t * t
    series = np.full_like(t, 1.0 / 21.0)
    for k in range(19, 0, -2):
        series *= square
        series += 1.0 / k
    return (e - small) * 0.6931471805599453 + 2.0 * t * series  # eq. log


_LOW = 1.0 / 14.0  # t of a = 26, beyond which e**(-a*a) is 0 in float64


def _erfc_polynomial(degree: int) -> list[float]:
    """Coefficients, highest first, of exp(a*a) erfc(a) as a polynomial in u, -1 <= u <= 1.

    u grows evenly from t = _LOW to t = 1, where t = 1 / (1 + a/2).
    """

    def scaled(u: Any) -> Any:
        a = 2.0 / (_LOW + (u + 1.0) * 0.5 * (1.0 - _LOW)) - 2.0
        return np.array([math.exp(v * v) * math.erfc(v) for v in a])

    chebyshev = np.polynomial.chebyshev
    powers = chebyshev.cheb2poly(chebyshev.chebinterpolate(scaled, degree))
    return [float(c) for c in powers[::-1]]


_ERFC = {4: _erfc_polynomial(10), 8: _erfc_polynomial(20)}  # by the size of a number in bytes


def normal_cdf_pdf(x: Array) -> tuple[Array, Array]:
    """Distribution function and density of the standard normal distribution at each x.

    The dtype of x, float32 or float64; good to 1e-7 and 1e-14, in the small tail relative to itself.
    """
    density = x * x
    density *= -0.5
    np.exp(density, out=density)  # e**(-x*x/2)
    u = np.abs(x)
    u *= 0.5 / math.sqrt(2.0)
    u += 1.0
    np.divide(2.0 / (1.0 - _LOW), u, out=u)
    u -= (1.0 + _LOW) / (1.0 - _LOW)
    first, *rest = _ERFC[min(x.dtype.itemsize, 8)]
    below = np.full_like(u, first)
    for c in rest:
        below *= u
        below += c
    below *= density
    below *= 0.5  # eq. normal: Phi(-|x|)
    np.subtract(1.0, below, out=below, where=x > 0)
    density *= 1.0 / math.sqrt(2.0 * math.pi)
    return below, density
