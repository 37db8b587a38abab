"""Metrics as stored: columns, outdated rows, and the final table.

metrics.pipeline.incremental computes new rows. Commands that only show metrics do not import
metrics.pipeline.incremental.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import version
from typing import Final

import polars as pl

from fairmfu.ingest.core.schema import BOOL, FLOAT, INT, READING_CHANGES, TEXT, TEXT_LIST

from ..core.curve_columns import CURVE_PARTS, part_type
from ..core.link_columns import LAST_STEP_SCHEMA, LAUNCH_COURSE_SCHEMA
from ..core.run_table import LOSS_LINE_FIELDS, METRICS, with_cross_run_warnings
from ..formula import accelerators
from ..formula.accelerators import Accelerator
from ..formula.terms import FORMULA_VERSION

LAST_STEP_FIELDS: Final = [name for name in LAST_STEP_SCHEMA if name != "run_id"]

FACTOR_FIELDS: Final = {"cause": TEXT, "text": TEXT, "factor": FLOAT}
BRIDGE_FIELDS: Final = {
    "figure": TEXT,
    "logged": FLOAT,
    "ours": FLOAT,
    "factors": pl.List(pl.Struct(FACTOR_FIELDS)),
    "unexplained": FLOAT,
    "low": FLOAT,
    "high": FLOAT,
    "explained": BOOL,
}
"""Fields of metrics.audit.bridge.Bridge."""

NAMED_VALUES: Final = pl.List(pl.Struct({"name": TEXT, "value": TEXT}))
AUDIT_FIELDS: Final = {
    "era": TEXT,
    "reproduced": BOOL,
    "lines_by_column": pl.List(pl.Struct({"column": TEXT, "lines": INT, "reproduced": INT})),
    "proven": TEXT_LIST,
    "flops_low": FLOAT,
    "flops_high": FLOAT,
    "hypothesis": TEXT,
    "suspect": TEXT,
    "not_compared_reason": TEXT,
    "lengths": pl.List(INT),
    "inferred": NAMED_VALUES,
    "fitting": NAMED_VALUES,
}
"""Fields of metrics.audit.audit.Audit that reports and `explain` show; era: its name."""

MAX_KEPT_LOSS_LINES: Final = 500
"""Most lines with a loss to keep of a run: of more, a comparison reads the steps."""

KEPT_SCHEMA: Final = pl.Schema(
    {
        **METRICS,
        "lead": TEXT,
        "related": TEXT_LIST,
        "earlier": TEXT_LIST,
        "course": pl.Struct(dict(LAUNCH_COURSE_SCHEMA)),
        "ends": pl.List(pl.Struct({name: LAST_STEP_SCHEMA[name] for name in LAST_STEP_FIELDS})),
        "bridges": pl.List(pl.Struct(BRIDGE_FIELDS)),
        "audit": pl.Struct(AUDIT_FIELDS),
        "curve": pl.Struct({name: part_type(schema) for name, schema in CURVE_PARTS.items()}),
        "loss_lines": pl.List(pl.Struct(LOSS_LINE_FIELDS)),
        "needs": pl.Struct({"facts": TEXT_LIST, "gain": TEXT, "obstacle": TEXT}),
        "peaks": TEXT,
        "program": TEXT,
        "columns": TEXT,
    }
)
"""Columns of METRICS, without cross-run warnings, and

lead: the run's id; for a run merged into another run, the id of the other run. Such a row has only
    `ends`
related: other runs, possibly sources of the same launch
earlier: the run continued by this run, or all candidates if undecided
course: metrics.core.link_columns.LAUNCH_COURSE_SCHEMA; null without steps
ends: metrics.core.link_columns.LAST_STEP_SCHEMA per rank; null in rows of another layout
bridges: Analysis.bridges; null if building them raises
audit: Analysis.audits; null if the era has no name of its own
curve: metrics.pipeline.kept_curves.curve_rows; null if computing it raises
loss_lines: metrics.compare.loss_parity.loss_lines; null if more than MAX_KEPT_LOSS_LINES
needs: metrics.pipeline.missing_facts.AskedFacts; null until somebody asks for missing facts
peaks: `peaks_hash` at the time of computing
program: version of fairmfu
columns: `columns_hash` at the time of computing; rows of other columns have nulls for later columns
"""

LARGE_COLUMNS: Final = ("loss_lines", "curve")
"""Columns that most commands do not read: null in their rows."""

OUTDATED_SCHEMA: Final = pl.Schema(
    {"run_id": TEXT, "formula": TEXT, "peaks": TEXT, "program": TEXT, "columns": TEXT, "why": TEXT}
)


def finish_metrics(kept: pl.DataFrame) -> pl.DataFrame:
    """Return the metrics of all runs from stored rows, as `analyse(...).metrics`."""
    leads = upgrade_kept(kept, (*METRICS, "lead")).filter(pl.col("run_id") == pl.col("lead"))
    return with_cross_run_warnings(leads.select(METRICS.names()).sort("name", "run_id"))


def outdated_rows(kept: pl.DataFrame, overlay: Sequence[Accelerator] = ()) -> pl.DataFrame:
    """Return rows of an earlier formula, peak table, program or set of columns.

    Columns of OUTDATED_SCHEMA. Rows stay unchanged until passed to `rescore` as changed.
    """
    today = current_versions(overlay)
    why = [
        pl.when(pl.col(name).ne_missing(now)).then(
            pl.format(f"{name} {{}}, now {{}}", pl.col(name).fill_null("unknown"), pl.lit(now))
        )
        for name, now in today.items()
    ]
    return (
        upgrade_kept(kept, ("run_id", "lead", *today))
        .filter(pl.col("run_id") == pl.col("lead"))
        .select("run_id", *today, why=pl.concat_str(why, separator="; ", ignore_nulls=True))
        .filter(pl.col("why") != "")
        .sort("run_id")
    )


def current_versions(overlay: Sequence[Accelerator] = ()) -> dict[str, str]:
    """Return the versions behind today's metrics: columns of OUTDATED_SCHEMA."""
    return {
        "formula": FORMULA_VERSION,
        "peaks": peaks_hash(overlay),
        "program": program_version(),
        "columns": columns_hash(),
    }


def peaks_hash(overlay: Sequence[Accelerator] = ()) -> str:
    """Return eight hex digits that change with peaks and names of accelerators."""
    rows = [
        (row.name, row.unit, row.names, sorted(row.peaks.items()))
        for row in (*overlay, *accelerators.buildable_accelerators())
    ]
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:8]


@cache
def columns_hash() -> str:
    """Return eight hex digits that change with KEPT_SCHEMA and READING_CHANGES.

    Programs of the same version may differ in both: a version names the coming release.
    """
    columns = [(name, str(dtype)) for name, dtype in KEPT_SCHEMA.items()]
    inputs = columns, len(READING_CHANGES)  # outdated readings add a warning
    return hashlib.sha256(repr(inputs).encode()).hexdigest()[:8]


@cache
def program_version() -> str:
    """Return the version of fairmfu."""
    return version("fairmfu")


def upgrade_kept(kept: pl.DataFrame, columns: Iterable[str] | None = None) -> pl.DataFrame:
    """Return stored rows in today's columns; null where a column is new or retyped.

    columns: only these, by default all of KEPT_SCHEMA. Few cost a tenth of all.
    """
    wanted = KEPT_SCHEMA
    if columns is not None:
        wanted = pl.Schema({name: KEPT_SCHEMA[name] for name in columns})
    stored = kept.schema
    if stored == wanted or kept.is_empty():
        return kept if stored == wanted else wanted.to_frame()
    return kept.select(
        name if stored.get(name) == dtype else pl.lit(None, dtype).alias(name)
        for name, dtype in wanted.items()
    )
