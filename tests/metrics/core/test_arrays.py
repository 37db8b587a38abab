"""Medians against numpy's own."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.metrics.core.arrays import median_of


@given(st.lists(st.floats(), min_size=1))
def test_a_median_is_that_of_numpy(values: list[float]) -> None:
    with np.errstate(all="ignore"):
        given, expected = median_of(np.array(values)), float(np.median(values))
    assert np.array_equal(given, expected, equal_nan=True)
