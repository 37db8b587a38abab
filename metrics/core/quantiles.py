"""Quantiles of Student's t and of the gamma distribution.

SciPy has both, and takes as long to import as Polars. So quantiles of Student's t, which every
interval needs, are computed here: the tail is a regularised incomplete beta function, by its
continued fraction (Press et al., "Numerical Recipes", section 6.4), and Newton's method inverts it.
"""

from __future__ import annotations

from math import copysign, exp, inf, lgamma, log, pi, sqrt
from statistics import NormalDist
from typing import Final

import numpy as np

from .arrays import FloatArray

MAX_NEWTON_STEPS: Final = 60
MAX_FRACTION_TERMS: Final = 100_000
PRECISION: Final = 1e-15
TINY: Final = 1e-300
MIN_ASYMPTOTIC: Final = 100.0
"""Least argument for the asymptotic ratio of gamma functions."""
MAX_STUDENT_FREEDOM: Final = 1e6
"""Most degrees of freedom for the exact tail; above, a series around the normal distribution."""


def student_t_quantile(degrees_of_freedom: float, probability: float) -> float:
    """Return the quantile of Student's t at `probability`."""
    tail = min(probability, 1 - probability)
    if not tail:
        return copysign(inf, probability - 0.5)
    value = _near_normal(degrees_of_freedom, tail)
    if degrees_of_freedom > MAX_STUDENT_FREEDOM:
        return copysign(value, probability - 0.5)
    low, high = 0.0, inf
    for _ in range(MAX_NEWTON_STEPS):
        excess = _tail(degrees_of_freedom, value) - tail
        low, high = (value, high) if excess > 0 else (low, value)
        after = value + excess / _density(degrees_of_freedom, value)
        if not low <= after <= high:
            after = 2 * value if high == inf else (low + high) / 2
        if abs(after - value) <= PRECISION * abs(after):
            break
        value = after
    return copysign(value, probability - 0.5)


def student_t_quantiles(degrees_of_freedom: FloatArray, probability: FloatArray) -> FloatArray:
    """Return quantiles of Student's t, element by element."""
    both = np.broadcast_arrays(degrees_of_freedom, probability)
    found = [student_t_quantile(*each) for each in zip(*(of.flat for of in both), strict=True)]
    return np.array(found).reshape(both[0].shape)


def _near_normal(freedom: float, tail: float) -> float:
    """Return the quantile of many degrees of freedom (Abramowitz and Stegun, 26.7.5)."""
    z = -NormalDist().inv_cdf(tail)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def _tail(freedom: float, value: float) -> float:
    """Return the chance that Student's t is above a value of at least 0."""
    far, near = freedom / (freedom + value**2), value**2 / (freedom + value**2)
    if not near:
        return 0.5
    a, b = freedom / 2, 0.5
    front = exp(_log_gamma_ratio(a) - log(pi) / 2 + a * log(far) + b * log(near))
    if far < (a + 1) / (a + b + 2):
        return front * _fraction(far, a, b) / a / 2
    return 0.5 - front * _fraction(near, b, a) / b / 2


def _density(freedom: float, value: float) -> float:
    scale = exp(_log_gamma_ratio(freedom / 2)) / sqrt(pi * freedom)
    return scale * exp(-(freedom + 1) / 2 * log(1 + value**2 / freedom))


def _log_gamma_ratio(a: float) -> float:
    """Return the logarithm of gamma(a + 1/2) / gamma(a)."""
    if a < MIN_ASYMPTOTIC:
        return lgamma(a + 0.5) - lgamma(a)
    return log(a) / 2 - 1 / (8 * a) + 1 / (192 * a**3) - 1 / (640 * a**5)


def _fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction of the incomplete beta function (Lentz)."""
    c, d = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or TINY)
    found = d
    for m in range(1, MAX_FRACTION_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = 1.0
        for term in (even, odd):
            d, c = 1 / ((1 + term * d) or TINY), (1 + term / c) or TINY
            change = d * c
            found *= change
        if abs(change - 1) < PRECISION:
            break
    return found


def gamma_quantile(shape: float, probability: float) -> float:
    """Return the quantile of a gamma variable at `probability`, from SciPy.

    shape: shape parameter of the variable; the scale is 1
    """
    from scipy.special import gammaincinv  # noqa: PLC0415 - few runs need it

    return float(gammaincinv(shape, probability))
