"""Precision of printed numbers, derived from their values, and comparison limits.

A table keeps a printed number as a float. Half a unit of the last printed digit limits how closely
the number can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from .arrays import FloatArray, IntArray

MAX_UNEXPLAINED_GAP: Final = 0.01
"""Largest relative gap between two figures of the same thing (times or tokens of the same steps)
that needs no cause."""

MAX_STAMP_ERROR_S: Final = 1.0
"""Largest error of the difference between two timestamps of whole seconds [s]."""

MAX_ROUNDING_SHARE: Final = 0.1
"""Largest share of a value attributed to rounding of the print's last digit."""

MAX_SAMPLED_VALUES: Final = 200
"""Values sampled per column to find its precision."""

MAX_DIGITS: Final = 10
"""Digits inspected per value."""

POWERS_OF_TEN: Final = 10 ** np.arange(1, MAX_DIGITS)

MAX_SCALED_SIZE: Final = 1e290
MIN_TIE_DISTANCE: Final = 1e-4
"""Limits for reading a value's digits from a product: its size, and its distance from half a
unit of the last digit."""


class Digits(NamedTuple):
    """Precision of printed numbers: decimals and significant digits.

    Either of one column, or arrays with one entry per value.
    """

    decimals: int | IntArray
    significant: int | IntArray

    def last_places(self, values: FloatArray) -> FloatArray:
        """Return one unit of the last printed digit of each value."""
        with np.errstate(divide="ignore"):
            lead = np.floor(np.log10(np.abs(values)))
        return np.fmax(10.0 ** -np.float64(self.decimals), 10.0 ** (lead + 1 - self.significant))


def digits_of(values: FloatArray) -> Digits:
    """Return the most decimals and significant digits among the sampled values.

    The sample: the first MAX_SAMPLED_VALUES finite values.
    """
    digits = printed_digits(values[np.isfinite(values)][:MAX_SAMPLED_VALUES])
    return Digits(
        int(np.max(digits.decimals, initial=0)), int(np.max(digits.significant, initial=1))
    )


def rounding_share(values: FloatArray) -> float:
    """Return half a unit of the last printed decimal, relative to the values (mean).

    At most MAX_ROUNDING_SHARE, because values that happen to be round hide their precision. Only
    positive values count; 0 without any.
    """
    above = values[values > 0]
    if not len(above):
        return 0.0
    return min(MAX_ROUNDING_SHARE, float((10.0 ** -digits_of(above).decimals / 2 / above).mean()))


def digits_by(frame: pl.DataFrame, by: Sequence[str], columns: Sequence[str]) -> pl.DataFrame:
    """Return `digits_of` per group and column: NAME_decimals and NAME_significant."""
    values = {
        name: pl.col(name).filter(pl.col(name).is_finite()).head(MAX_SAMPLED_VALUES)
        for name in columns
    }
    counts = {f"{name}_count": of.len() for name, of in values.items()}
    first = frame.group_by(by, maintain_order=True).agg(**values, **counts)
    found: list[pl.Series] = []
    for name in columns:
        decimals, significant = np.zeros(first.height, np.int64), np.ones(first.height, np.int64)
        count = first.get_column(f"{name}_count").to_numpy()
        if count.any():
            printed = first.get_column(name).explode().to_numpy()
            digits = printed_digits(printed[~np.isnan(printed)])  # a group without values has null
            owner = np.repeat(np.arange(first.height), count)
            np.maximum.at(decimals, owner, digits.decimals)
            np.maximum.at(significant, owner, digits.significant)
        found.append(pl.Series(f"{name}_decimals", decimals))
        found.append(pl.Series(f"{name}_significant", significant))
    return first.select(by).hstack(found)


def printed_digits(values: FloatArray) -> Digits:
    """Count the decimals and significant digits of all values, as `_print` would.

    All values are counted at once. Where a product's rounding could decide a digit, `_print`
    counts.
    """
    size = np.abs(values)
    usual = (size > 1 / MAX_SCALED_SIZE) & (size < MAX_SCALED_SIZE)
    some = np.where(usual, size, 1.0)
    exponent = np.floor(np.log10(some)).astype(np.int64)
    shift = MAX_DIGITS - 1 - exponent
    scaled = some * 10.0 ** np.maximum(shift, 0) / 10.0 ** np.maximum(-shift, 0)
    digits = np.rint(scaled).astype(np.int64)
    tie = np.abs(scaled - np.floor(scaled) - 0.5) < MIN_TIE_DISTANCE
    known = usual & ~tie & (digits >= 10 ** (MAX_DIGITS - 1)) & (digits < 10**MAX_DIGITS)
    significant = MAX_DIGITS - np.count_nonzero(digits[:, None] % POWERS_OF_TEN == 0, axis=1)
    for i in np.flatnonzero(~known & (size > 0)):
        significant[i], exponent[i] = _print(size[i])
    return Digits(np.maximum(significant - 1 - exponent, 0), significant)


def _print(value: float) -> tuple[int, int]:
    """Return the number of significant digits, and the exponent of the first digit.

    At most MAX_DIGITS digits, so the rounding of a unit conversion (ms to s) is not counted as
    precision.
    """
    mantissa, _, exponent = f"{value:.{MAX_DIGITS - 1}e}".partition("e")
    return len(mantissa.replace(".", "").rstrip("0")), int(exponent)
