"""NumPy array types, named after their elements."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
"""Numbers; NaN where missing."""

IntArray = NDArray[np.int64]
"""Whole numbers, such as indices into other arrays."""

BoolArray = NDArray[np.bool_]

TextArray = NDArray[np.object_]
"""Texts; None where missing."""


def median_of(values: FloatArray) -> float:
    """Return the median of some values, at least one; NaN if one is NaN.

    As numpy's median, in a tenth of its time for the few values of a run.
    """
    ordered = np.sort(values)
    if np.isnan(ordered[-1]):
        return float("nan")
    half = len(ordered) // 2
    return float(ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2)
