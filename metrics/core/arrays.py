"""Arrays of numpy by what they hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
"""Numbers, NaN where there is none."""

Whole = NDArray[np.int64]
"""Whole numbers, among them places in other arrays."""

Flags = NDArray[np.bool_]

Texts = NDArray[np.object_]
"""Texts, None where there is none."""
