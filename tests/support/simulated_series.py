"""Noisy series whose levels are known."""

from __future__ import annotations

import numpy as np

from fairmfu.metrics.core.arrays import FloatArray


def autoregressive(
    points: int, noise: float, autocorrelation: float, random: np.random.Generator
) -> FloatArray:
    """Return a stationary AR(1) series around 0 with this standard deviation."""
    new = random.normal(0, noise * np.sqrt(1 - autocorrelation**2), points)
    series = np.empty(points)
    series[0] = random.normal(0, noise)
    for at in range(1, points):
        series[at] = autocorrelation * series[at - 1] + new[at]
    return series
