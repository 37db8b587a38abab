"""How finely a number is printed, as its values show it, and how far two of one thing may differ.

A table holds what a log printed as a float. How many digits it had there is how far it can be
compared with anything: half a unit of its last place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from .arrays import FloatArray, IntArray

MAX_UNEXPLAINED_GAP: Final = 0.01
"""Two figures of one thing (times or tokens of the same steps) that are further apart than this
share have to have a cause."""

MAX_STAMP_ERROR_S: Final = 1.0
"""How far a difference of two stamps of whole seconds may be off, s."""

MAX_ROUNDING_SHARE: Final = 0.1
"""The most that a print's last digit explains, as a share of the value."""

MAX_SAMPLED_VALUES: Final = 200
"""Values of a column that are looked at for how finely it is printed."""

MAX_DIGITS: Final = 10
"""Digits of a value that are looked at."""

MAX_SCALED_SIZE: Final = 1e290
MIN_TIE_DISTANCE: Final = 1e-4
"""Where the digits of a value can be told from a product: its size, and its distance from half a
unit of the last one."""


class Digits(NamedTuple):
    """How finely a column is printed: with a number of decimals, or of significant digits.

    Of one column, or an array that holds that of each value.
    """

    decimals: int | IntArray
    significant: int | IntArray

    def last_places(self, values: FloatArray) -> FloatArray:
        """The last place of each value."""
        with np.errstate(divide="ignore"):
            lead = np.floor(np.log10(np.abs(values)))
        return np.fmax(10.0 ** -np.float64(self.decimals), 10.0 ** (lead + 1 - self.significant))


def digits_of(values: FloatArray) -> Digits:
    """The most decimals and significant digits that any of the first values has."""
    digits = printed_digits(values[np.isfinite(values)][:MAX_SAMPLED_VALUES])
    return Digits(
        int(np.max(digits.decimals, initial=0)), int(np.max(digits.significant, initial=1))
    )


def rounding_share(values: FloatArray) -> float:
    """Half a unit of the last printed decimal, as a fraction of the values; their mean.

    Values that happen to be round do not show how finely they are printed: MAX_ROUNDING_SHARE at
    most.
    """
    above = values[values > 0]
    if not len(above):
        return 0.0
    return min(MAX_ROUNDING_SHARE, float((10.0 ** -digits_of(above).decimals / 2 / above).mean()))


def digits_by(frame: pl.DataFrame, by: Sequence[str], columns: Sequence[str]) -> pl.DataFrame:
    """`digits_of` of each column in each group: a name with `_decimals`, with `_significant`."""
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
            digits = printed_digits(printed[~np.isnan(printed)])  # null of a group without any
            owner = np.repeat(np.arange(first.height), count)
            np.maximum.at(decimals, owner, digits.decimals)
            np.maximum.at(significant, owner, digits.significant)
        found.append(pl.Series(f"{name}_decimals", decimals))
        found.append(pl.Series(f"{name}_significant", significant))
    return first.select(by).hstack(found)


def printed_digits(values: FloatArray) -> Digits:
    """The decimals and significant digits that `_print` shows of each value, counted all at once.

    Where a product's rounding might decide a digit, the print itself is looked at.
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
    significant = MAX_DIGITS - sum(
        (digits % 10**k == 0).astype(np.int64) for k in range(1, MAX_DIGITS)
    )
    for i in np.flatnonzero(~known & (size > 0)):
        significant[i], exponent[i] = _print(size[i])
    return Digits(np.maximum(significant - 1 - exponent, 0), significant)


def _print(value: float) -> tuple[int, int]:
    """Significant digits of a value, and the power of ten of its first.

    Of ten digits at most, so that a factor's rounding (ms to s) is no precision.
    """
    mantissa, _, exponent = f"{value:.{MAX_DIGITS - 1}e}".partition("e")
    return len(mantissa.replace(".", "").rstrip("0")), int(exponent)
