"""Curves of runs as rows of kept metrics, for a report of many runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import polars as pl
import polars.selectors as cs

from fairmfu.ingest.core.schema import FLOAT, TEXT

from ..core.curve_columns import CURVE_PARTS, part_type
from ..runs.step_bins import bin_windows, count_events, event_marks
from .bulkhead import compute_apart
from .metrics_cache import KEPT_SCHEMA

if TYPE_CHECKING:
    from .analysis import Analysis
    from .reported_runs import ReportedRuns

CURVE_BINS: Final = 20
"""Bins of steps per run in a report of many runs."""
CURVE_DIGITS: Final = 4
"""Digits of the figures of a bin."""


def curve_rows(analysis: Analysis | ReportedRuns, run_ids: Sequence[str]) -> pl.DataFrame:
    """Return run_id, and the column `curve` of KEPT_SCHEMA.

    A run that fails has no row. The slowest and fastest window of a bin are left out, and so are
    the texts of events.
    """
    return compute_apart(run_ids, lambda some: curves_of(analysis, some)).result


def curves_of(analysis: Analysis | ReportedRuns, run_ids: Sequence[str]) -> pl.DataFrame:
    """Return `curve_rows`, and raise any error."""
    chosen = pl.col("run_id").is_in(list(run_ids))
    windows, events = analysis.windows.filter(chosen), analysis.events.filter(chosen)
    series = bin_windows(windows, analysis.metrics.filter(chosen), CURVE_BINS)
    series = series.with_columns(low=pl.lit(None, FLOAT), high=pl.lit(None, FLOAT))
    parts: Mapping[str, pl.DataFrame] = {
        "series": series.with_columns(cs.float().round_sig_figs(CURVE_DIGITS)),
        "marks": event_marks(events, windows).with_columns(text=pl.lit(None, TEXT)),
        "event_counts": count_events(events),
        "rank_times": analysis.rank_times.filter(chosen),
    }
    curves = pl.DataFrame({"run_id": run_ids}, schema={"run_id": TEXT})
    for name, schema in CURVE_PARTS.items():
        fields = [field for field in schema if field != "run_id"]
        lists = parts[name].group_by("run_id", maintain_order=True)
        rows = lists.agg(pl.struct(fields).alias(name)).cast({name: part_type(schema)})
        curves = curves.join(rows, on="run_id", how="left", maintain_order="left")
    filled = [pl.col(name).fill_null([]) for name in CURVE_PARTS]
    return curves.select("run_id", curve=pl.struct(filled)).cast({"curve": KEPT_SCHEMA["curve"]})
