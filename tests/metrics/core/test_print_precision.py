"""How finely a number is printed, told from its value alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.metrics.core.print_precision import (
    MAX_ROUNDING_SHARE,
    MAX_SAMPLED_VALUES,
    Digits,
    digits_by,
    digits_of,
    rounding_share,
)


@pytest.mark.parametrize(
    ("values", "units"),
    [
        ([1.5, 2.25], [0.01, 0.01]),
        ([7034.0, 80.0], [1.0, 1.0]),
        ([0.1 * 3], [0.1]),
        ([6.795, 10.23, 0.01234], [1e-3, 1e-2, 1e-5]),  # four significant digits
        ([9.2216e-4, 3.9443e-6], [1e-8, 1e-10]),
    ],
)
def test_the_unit_of_a_value_is_its_last_printed_place(
    values: Sequence[float], units: Sequence[float]
) -> None:
    found = digits_of(np.array(values)).last_places(np.array(values))
    assert found.tolist() == pytest.approx(units)


def test_digits_counted_at_once_are_those_of_each_print() -> None:
    rng = np.random.default_rng(1)
    values = [np.round(rng.lognormal(0, 4, 200), digits) for digits in range(12)]
    values += [1e-3 * np.round(rng.lognormal(5, 2, 200), 1), rng.integers(1, 10**10, 200) / 1e10]
    values += [rng.integers(10**9, 10**10, 200) + 0.5, 10.0 ** np.arange(-300, 300)]  # ties
    values += [np.array([99.999999999, 9.9999999996, 0.99999999996, 5e-324, 1.5e-305, 1.7e308])]
    for value in np.concatenate(values):
        mantissa, _, exponent = f"{value:.9e}".partition("e")
        significant = len(mantissa.replace(".", "").rstrip("0"))
        if value:
            decimals = max(0, significant - 1 - int(exponent))
            assert digits_of(np.array([value])) == Digits(decimals, significant), value


def test_of_zero_and_of_no_number_no_digits_are_known() -> None:
    assert digits_of(np.array([])) == digits_of(np.array([0.0, np.nan, np.inf])) == Digits(0, 1)
    assert digits_of(np.array([0.0, np.nan, -np.inf, -2.5])) == Digits(1, 2)


@given(st.integers(1, 10**6), st.integers(0, 6))
def test_a_print_with_so_many_decimals_shows_no_more(number: int, decimals: int) -> None:
    """12.50 shows one decimal: a last 0 is not told from none."""
    found = digits_of(np.array([number / 10**decimals]))
    text = f"{number / 10**decimals:.{decimals}f}"
    shown = text.rstrip("0").partition(".")[2] if "." in text else ""
    assert found.decimals == len(shown)


def test_of_several_values_the_finest_tells() -> None:
    assert digits_of(np.array([2.0, 0.25, 12345.0])) == Digits(2, 5)


def test_a_zero_is_printed_as_finely_as_the_others() -> None:
    values = np.array([0.0, 1.5])
    assert digits_of(values).last_places(values).tolist() == pytest.approx([0.1, 0.1])


def test_the_first_200_values_tell() -> None:
    coarse = np.full(MAX_SAMPLED_VALUES, 1.5)
    assert digits_of(np.append(coarse, 1.25)) == Digits(1, 2)
    assert digits_of(np.append(coarse[1:], 1.25)) == Digits(2, 3)


def test_ten_digits_are_looked_at() -> None:
    """A factor's rounding (0.1 + 0.2) is no precision."""
    assert digits_of(np.array([0.1 + 0.2])) == Digits(1, 1)
    assert digits_of(np.array([1.23456789])) == Digits(8, 9)
    assert digits_of(np.array([1.234567891])) == Digits(9, 10)
    assert digits_of(np.array([1.2345678912])) == Digits(9, 10)


def test_a_rounding_share_is_half_a_unit_of_the_last_decimal() -> None:
    assert rounding_share(np.array([1.25, 2.5])) == pytest.approx((0.004 + 0.002) / 2)
    assert rounding_share(np.array([1.25, -2.5, 0.0, np.nan])) == pytest.approx(0.004)
    assert rounding_share(np.array([100.0, 200.0])) == pytest.approx((0.005 + 0.0025) / 2)


def test_values_that_happen_to_be_round_explain_a_tenth_at_most() -> None:
    assert rounding_share(np.array([1.0, 2.0])) == MAX_ROUNDING_SHARE
    assert rounding_share(np.array([0.0, -1.0, np.nan])) == 0.0
    assert rounding_share(np.array([])) == 0.0


values = st.lists(
    st.one_of(
        st.none(),
        st.sampled_from([0.0, float("nan"), float("inf"), -2.5]),
        st.integers(1, 10**6).map(lambda n: n / 1000),
    ),
    max_size=8,
)


@given(st.dictionaries(st.sampled_from("abcd"), values, min_size=1))
def test_groups_have_the_digits_that_each_has_alone(groups: dict[str, list[float | None]]) -> None:
    rows = [(name, value) for name, of in groups.items() for value in of]
    frame = pl.DataFrame(rows, schema={"of": pl.String, "x": pl.Float64}, orient="row")
    found = digits_by(frame.with_columns(y=pl.col("x") * 8), ["of"], ["x", "y"])
    for name, *digits in found.iter_rows():
        known = np.array([v for v in groups[name] if v is not None], np.float64)
        assert Digits(*digits[:2]) == digits_of(known)
        assert Digits(*digits[2:]) == digits_of(known * 8)
    assert found["of"].to_list() == [name for name, of in groups.items() if of]
