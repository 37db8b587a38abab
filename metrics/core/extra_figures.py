"""Figures of `extra`, the JSON of what a line printed besides: any text may stand there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import polars as pl

MAX_PRINTED: Final = 1e30
"""Far beyond any rate, number of tokens or of FLOPs: a damaged number is no figure."""


def figure_of(said: Mapping[str, Any], name: str) -> float:
    """The number printed under a key; NaN where it is none, or too large for one.

    said: of one line, decoded
    """
    printed = said.get(name, math.nan)
    try:
        value = math.nan if isinstance(printed, bool) else float(printed)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return value if abs(value) <= MAX_PRINTED else math.nan


def extra_figure(name: str) -> pl.Expr:
    """The number under a key of the column `extra`; null where it is none."""
    figure = pl.col("extra").str.json_path_match(f"$.{name}").cast(pl.Float64, strict=False)
    return pl.when(figure.abs() <= MAX_PRINTED).then(figure)
