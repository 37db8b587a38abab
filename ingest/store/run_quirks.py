"""Quirks of runs that were stored before their formats said them."""

from __future__ import annotations

from typing import Final

import polars as pl

from ..core.schema import LATER_COLUMNS, RUN_COLUMNS
from ..formats.registry import BUILT_IN_FORMATS

COLUMNS: Final = LATER_COLUMNS["runs"]


def with_quirks(runs: pl.DataFrame) -> pl.DataFrame:
    """Fill these columns of `runs` where they are null, by the format that the steps are of."""
    if not runs["quirks"].null_count():
        return runs
    said = pl.DataFrame(
        [{"log_format": f.name, **{c: getattr(f, c) for c in COLUMNS}} for f in BUILT_IN_FORMATS],
        schema={"log_format": pl.String, **{name: RUN_COLUMNS[name].dtype for name in COLUMNS}},
    )
    known = runs.join(said, on="log_format", how="left", suffix="_now", maintain_order="left")
    unsaid = pl.col("quirks").is_null()
    return known.with_columns(
        pl.when(unsaid).then(f"{name}_now").otherwise(name).alias(name) for name in COLUMNS
    ).select(runs.columns)
