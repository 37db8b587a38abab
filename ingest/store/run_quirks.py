"""Quirks of stored runs: their formats may have said less, or nothing, when they were read."""

from __future__ import annotations

from typing import Final

import polars as pl

from ..core.schema import LATER_COLUMNS, RUN_COLUMNS
from ..formats.registry import BUILT_IN_FORMATS

COLUMNS: Final = LATER_COLUMNS["runs"]


def with_quirks(runs: pl.DataFrame) -> pl.DataFrame:
    """Put what a built-in format says by now into these columns of `runs`.

    Runs of formats of one's own, which have other names, keep what was stored with them.
    """
    said = pl.DataFrame(
        [{"log_format": f.name, **{c: getattr(f, c) for c in COLUMNS}} for f in BUILT_IN_FORMATS],
        schema={"log_format": pl.String, **{name: RUN_COLUMNS[name].dtype for name in COLUMNS}},
    ).with_columns(built_in=True)
    known = runs.join(said, on="log_format", how="left", suffix="_now", maintain_order="left")
    return known.with_columns(
        pl.when("built_in").then(f"{name}_now").otherwise(name).alias(name) for name in COLUMNS
    ).select(runs.columns)
