"""Read figures from `extra`, the JSON of a line's other values.

The values may be any text, so every figure is checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import polars as pl

MIN_PRINTED: Final = 1e-30
MAX_PRINTED: Final = 1e30
"""Plausible sizes of a figure other than 0: far beyond any rate, time, number of tokens or FLOPs.
Another number is damaged, hence no figure."""


def figure_of(extra: Mapping[str, Any], name: str) -> float:
    """Return the number under a key; NaN if absent, no number, or of impossible size.

    extra: decoded JSON of one line
    """
    printed = extra.get(name, math.nan)
    try:
        value = math.nan if isinstance(printed, bool) else float(printed)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    is_possible = value == 0 or MIN_PRINTED <= abs(value) <= MAX_PRINTED
    return value if is_possible else math.nan


def extra_figure(name: str) -> pl.Expr:
    """Return the number under a key of column `extra`; null if no number."""
    figure = pl.col("extra").str.json_path_match(f"$.{name}").cast(pl.Float64, strict=False)
    return possible_figure(figure)


def possible_figure(figure: pl.Expr) -> pl.Expr:
    """Return the number, or null if no figure has its size."""
    return pl.when((figure == 0) | figure.abs().is_between(MIN_PRINTED, MAX_PRINTED)).then(figure)
