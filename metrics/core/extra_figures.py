"""Read figures from `extra`, the JSON of a line's other values.

The values may be any text, so every figure is checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import polars as pl

MAX_PRINTED: Final = 1e30
"""Largest plausible figure: far above any rate or any number of tokens or FLOPs. A larger number is
damaged, hence no figure."""


def figure_of(extra: Mapping[str, Any], name: str) -> float:
    """Return the number under a key; NaN if absent, no number, or above MAX_PRINTED.

    extra: decoded JSON of one line
    """
    printed = extra.get(name, math.nan)
    try:
        value = math.nan if isinstance(printed, bool) else float(printed)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return value if abs(value) <= MAX_PRINTED else math.nan


def extra_figure(name: str) -> pl.Expr:
    """Return the number under a key of column `extra`; null if no number."""
    figure = pl.col("extra").str.json_path_match(f"$.{name}").cast(pl.Float64, strict=False)
    return pl.when(figure.abs() <= MAX_PRINTED).then(figure)
