"""Quirks of stored runs, updated to the current built-in formats.

A run may have been stored by a version whose format declared fewer quirks.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from ..core.schema import LATER_COLUMNS, RUN_COLUMNS
from ..formats.registry import BUILT_IN_FORMATS

COLUMNS: Final = LATER_COLUMNS["runs"]


def with_quirks(runs: pl.DataFrame) -> pl.DataFrame:
    """Replace quirk columns of `runs` by the values of today's built-in formats.

    Runs of user-defined formats, which have other names, keep their stored values.
    """
    current = pl.DataFrame(
        [
            {"log_format": f.name, **{c: f.stored_value(c) for c in COLUMNS}}
            for f in BUILT_IN_FORMATS
        ],
        schema={"log_format": pl.String, **{name: RUN_COLUMNS[name].dtype for name in COLUMNS}},
    ).with_columns(built_in=True)
    joined = runs.join(current, on="log_format", how="left", suffix="_now", maintain_order="left")
    return joined.with_columns(
        pl.when("built_in").then(f"{name}_now").otherwise(name).alias(name) for name in COLUMNS
    ).select(runs.columns)
