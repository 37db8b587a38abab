"""Columns of a run's curve: bins, marks, counts of events, times of ranks."""

from __future__ import annotations

from typing import Final

import polars as pl

from fairmfu.ingest.core.schema import BOOL, FLOAT, INT, TEXT

SERIES_SCHEMA: Final = pl.Schema(
    {
        "run_id": TEXT,
        "window": TEXT,
        "step": INT,
        "last_step": INT,
        "tgs": FLOAT,
        "low": FLOAT,
        "high": FLOAT,
        "step_s": FLOAT,
        "loss": FLOAT,
        "memory_bytes": FLOAT,
        "memory_bytes_max": FLOAT,
        "tokens": FLOAT,
        "time_s": FLOAT,
        "windows": INT,
    }
)
"""Columns of metrics.runs.step_bins.bin_windows."""

MARK_SCHEMA: Final = pl.Schema(
    {
        "run_id": TEXT,
        "kind": TEXT,
        "step": INT,
        "last_step": INT,
        "line": INT,
        "text": TEXT,
        "events": INT,
    }
)
"""Columns of metrics.runs.step_bins.event_marks."""

EVENT_COUNT_SCHEMA: Final = pl.Schema(
    {"run_id": TEXT, "kind": TEXT, "count": pl.UInt32(), "seconds": FLOAT, "line": INT}
)
"""Columns of metrics.runs.step_bins.count_events."""

RANK_TIME_SCHEMA: Final = pl.Schema(
    {
        "run_id": TEXT,
        "rank": TEXT,
        "time": FLOAT,
        "in_seconds": BOOL,
        "share": FLOAT,
        "rank_steps": INT,
    }
)
"""Columns of metrics.throughput.rank_skew.measure_ranks."""

CURVE_PARTS: Final = {
    "series": SERIES_SCHEMA,
    "marks": MARK_SCHEMA,
    "event_counts": EVENT_COUNT_SCHEMA,
    "rank_times": RANK_TIME_SCHEMA,
}
"""Columns of each part of a curve."""


def part_type(schema: pl.Schema) -> pl.List:
    """Return the type of all rows of one run: a list, without the run's id."""
    return pl.List(pl.Struct({name: kind for name, kind in schema.items() if name != "run_id"}))
