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

from fairmfu.ingest.core.schema import READINGS, TEXT, TEXTS

from ..core.link_columns import COURSE, ENDS
from ..core.run_table import METRICS, beside_others
from ..formula import accelerators
from ..formula.accelerators import Accelerator
from ..formula.flops import FORMULA

OF_END: Final = [name for name in ENDS if name != "run_id"]

KEPT: Final = pl.Schema(
    {
        **METRICS,
        "lead": TEXT,
        "related": TEXTS,
        "earlier": TEXTS,
        "course": pl.Struct(dict(COURSE)),
        "ends": pl.List(pl.Struct({name: ENDS[name] for name in OF_END})),
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
course: metrics.core.link_columns.COURSE; null without steps
ends: metrics.core.link_columns.ENDS, of each rank; null where another layout kept the row
peaks: `peaks_id` of what it was computed with
program: the version of fairmfu
columns: `columns_id` of then; a row of other columns has nulls where today's would say something
"""

OUTDATED: Final = pl.Schema(
    {"run_id": TEXT, "formula": TEXT, "peaks": TEXT, "program": TEXT, "columns": TEXT, "why": TEXT}
)


def finished(kept: pl.DataFrame) -> pl.DataFrame:
    """The metrics of all runs from kept rows: columns and order of `analyse(...).metrics`."""
    leads = as_kept(kept).filter(pl.col("run_id") == pl.col("lead")).select(METRICS.names())
    return beside_others(leads.sort("name", "run_id"))


def outdated(kept: pl.DataFrame, overlay: Sequence[Accelerator] = ()) -> pl.DataFrame:
    """Rows by another formula, other peaks or another program than today's; columns of OUTDATED.

    They stay as they are until they are given to `rescore` as changed.
    """
    today = computed_by(overlay)
    why = [
        pl.when(pl.col(name).ne_missing(now)).then(
            pl.format(f"{name} {{}}, now {{}}", pl.col(name).fill_null("unknown"), pl.lit(now))
        )
        for name, now in today.items()
    ]
    return (
        as_kept(kept)
        .filter(pl.col("run_id") == pl.col("lead"))
        .select("run_id", *today, why=pl.concat_str(why, separator="; ", ignore_nulls=True))
        .filter(pl.col("why") != "")
        .sort("run_id")
    )


def computed_by(overlay: Sequence[Accelerator] = ()) -> dict[str, str]:
    """What metrics are computed by today: columns of OUTDATED."""
    return {
        "formula": FORMULA,
        "peaks": peaks_id(overlay),
        "program": program(),
        "columns": columns_id(),
    }


def peaks_id(overlay: Sequence[Accelerator] = ()) -> str:
    """Eight hexadecimal digits that tell which peaks and names of accelerators were used."""
    rows = [
        (row.name, row.unit, row.names, sorted(row.peaks.items()))
        for row in (*overlay, *accelerators.buildable_accelerators())
    ]
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:8]


@cache
def columns_id() -> str:
    """Eight hexadecimal digits that tell which columns the metrics have, and READINGS.

    Programs of one version may differ in them: the version is that of the release to come.
    """
    columns = [(name, str(dtype)) for name, dtype in METRICS.items()]
    known = columns, len(READINGS)  # a run that was read without one of these says so
    return hashlib.sha256(repr(known).encode()).hexdigest()[:8]


@cache
def program() -> str:
    """The version of fairmfu."""
    return version("fairmfu")


def as_kept(kept: pl.DataFrame) -> pl.DataFrame:
    """Kept rows, whichever version kept them; what it did not know of, or otherwise, is null."""
    same = [name for name, dtype in kept.schema.items() if KEPT.get(name) == dtype]
    return kept.select(same).match_to_schema(KEPT, missing_columns="insert")
