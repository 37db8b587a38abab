"""Arrays of numpy by what they hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
"""Numbers, NaN where there is none."""

IntArray = NDArray[np.int64]
"""Whole numbers, among them places in other arrays."""

BoolArray = NDArray[np.bool_]

TextArray = NDArray[np.object_]
"""Texts, None where there is none."""
