"""Medians and quantiles against those of numpy and Polars."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.metrics.core import arrays
from fairmfu.metrics.core.arrays import median_of, quantile_of_ordered, rolling_median

FINITE = st.floats(-1e9, 1e9)


@given(st.lists(st.floats(), min_size=1))
def test_a_median_is_that_of_numpy(values: list[float]) -> None:
    with np.errstate(all="ignore"):
        given, expected = median_of(np.array(values)), float(np.median(values))
    assert np.array_equal(given, expected, equal_nan=True)


def test_a_median_of_many_values_is_that_of_numpy() -> None:
    values = np.random.default_rng(1).permutation(arrays.MAX_SORTED + 2).astype(np.float64)
    assert median_of(values) == np.median(values)
    values[5] = np.nan
    assert np.isnan(median_of(values))


def test_no_value_has_no_median() -> None:
    assert np.isnan(median_of(np.empty(0)))


@given(st.lists(FINITE, min_size=1), st.floats(0, 1))
def test_a_quantile_is_that_of_numpy(values: list[float], share: float) -> None:
    found = quantile_of_ordered(np.sort(values), share)
    assert found == pytest.approx(np.quantile(values, share), rel=1e-9, abs=1e-3)


@given(st.lists(FINITE | st.just(float("nan"))), st.sampled_from([1, 3, 7, 51]))
def test_a_rolling_median_is_that_of_polars(values: list[float], width: int) -> None:
    series = pl.Series(np.array(values, np.float64), nan_to_null=True)
    expected = series.rolling_median(width, min_samples=1, center=True).to_numpy()
    found = rolling_median(np.array(values, np.float64), width)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-6)


def test_a_long_rolling_median_is_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).random(1_000)
    whole = rolling_median(values, 51)
    monkeypatch.setattr(arrays, "MAX_SORTED_ROWS", 64)
    assert (rolling_median(values, 51) == whole).all()
