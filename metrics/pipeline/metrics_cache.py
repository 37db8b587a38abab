"""Metrics as a store keeps them: columns, which of them are outdated, and the table made of them.

What has to be computed anew, metrics.pipeline.incremental does: kept metrics are shown without its
imports.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from typing import Final

import polars as pl

from fairmfu.ingest.core.schema import READING_CHANGES, TEXT, TEXT_LIST

from ..core.link_columns import LAST_STEP_SCHEMA, LAUNCH_COURSE_SCHEMA
from ..core.run_table import METRICS, with_cross_run_warnings
from ..formula import accelerators
from ..formula.accelerators import Accelerator
from ..formula.flops import FORMULA_VERSION

LAST_STEP_FIELDS: Final = [name for name in LAST_STEP_SCHEMA if name != "run_id"]

KEPT_SCHEMA: Final = pl.Schema(
    {
        **METRICS,
        "lead": TEXT,
        "related": TEXT_LIST,
        "earlier": TEXT_LIST,
        "course": pl.Struct(dict(LAUNCH_COURSE_SCHEMA)),
        "ends": pl.List(pl.Struct({name: LAST_STEP_SCHEMA[name] for name in LAST_STEP_FIELDS})),
        "peaks": TEXT,
        "program": TEXT,
        "columns": TEXT,
    }
)
"""METRICS without the warnings that take other rows, and

lead: the run's own id; of one that was united with another run that one's. Such a row has `ends`,
    and nothing else
related: other runs that may tell of the same launch
earlier: the run that it continues, or those of which it is not known which one it continues
course: metrics.core.link_columns.LAUNCH_COURSE_SCHEMA; null without steps
ends: metrics.core.link_columns.LAST_STEP_SCHEMA, of each rank; null where another layout kept the
row peaks: `peaks_hash` of what it was computed with program: the version of fairmfu columns:
`columns_hash` of then; a row of other columns has nulls where today's would say something
"""

OUTDATED_SCHEMA: Final = pl.Schema(
    {"run_id": TEXT, "formula": TEXT, "peaks": TEXT, "program": TEXT, "columns": TEXT, "why": TEXT}
)


def finish_metrics(kept: pl.DataFrame) -> pl.DataFrame:
    """The metrics of all runs from kept rows: columns and order of `analyse(...).metrics`."""
    leads = upgrade_kept(kept).filter(pl.col("run_id") == pl.col("lead")).select(METRICS.names())
    return with_cross_run_warnings(leads.sort("name", "run_id"))


def outdated_rows(kept: pl.DataFrame, overlay: Sequence[Accelerator] = ()) -> pl.DataFrame:
    """Rows by another formula, other peaks or another program than today's.

    Columns of OUTDATED_SCHEMA. The rows stay as they are until they are given to `rescore` as
    changed.
    """
    today = current_versions(overlay)
    why = [
        pl.when(pl.col(name).ne_missing(now)).then(
            pl.format(f"{name} {{}}, now {{}}", pl.col(name).fill_null("unknown"), pl.lit(now))
        )
        for name, now in today.items()
    ]
    return (
        upgrade_kept(kept)
        .filter(pl.col("run_id") == pl.col("lead"))
        .select("run_id", *today, why=pl.concat_str(why, separator="; ", ignore_nulls=True))
        .filter(pl.col("why") != "")
        .sort("run_id")
    )


def current_versions(overlay: Sequence[Accelerator] = ()) -> dict[str, str]:
    """What metrics are computed by today: columns of OUTDATED_SCHEMA."""
    return {
        "formula": FORMULA_VERSION,
        "peaks": peaks_hash(overlay),
        "program": program_version(),
        "columns": columns_hash(),
    }


def peaks_hash(overlay: Sequence[Accelerator] = ()) -> str:
    """Eight hexadecimal digits that tell which peaks and names of accelerators were used."""
    rows = [
        (row.name, row.unit, row.names, sorted(row.peaks.items()))
        for row in (*overlay, *accelerators.buildable_accelerators())
    ]
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:8]


@cache
def columns_hash() -> str:
    """Eight hexadecimal digits that tell which columns the metrics have, and READINGS.

    Programs of one version may differ in them: the version is that of the release to come.
    """
    columns = [(name, str(dtype)) for name, dtype in METRICS.items()]
    known = columns, len(READING_CHANGES)  # a run that was read without one of these says so
    return hashlib.sha256(repr(known).encode()).hexdigest()[:8]


@cache
def program_version() -> str:
    """The version of fairmfu."""
    return version("fairmfu")


def upgrade_kept(kept: pl.DataFrame) -> pl.DataFrame:
    """Kept rows, whichever version kept them; what it did not know of, or otherwise, is null."""
    same = [name for name, dtype in kept.schema.items() if KEPT_SCHEMA.get(name) == dtype]
    return kept.select(same).match_to_schema(KEPT_SCHEMA, missing_columns="insert")
