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
