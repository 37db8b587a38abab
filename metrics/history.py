"""Series of runs over the nights: one point a run, their levels, changes and baselines.

Runs of one job (SERIES_BY) stand in one series, in the order of their start. What is compared from
night to night is TGS: it holds neither F nor P, so a series may go on over a new formula or a new
peak. MFU holds both, and the MFU of a level is of the points with the newest formula only.

Frames in, frames out; a pure function of its input, where the order of rows does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from ingest.schema import BOOL, FLOAT, INT, TEXT, TEXTS, TIME

SERIES_BY: Final = ("framework", "model", "seq_len", "device", "precision", "trained", "gpus")
"""Columns of METRICS that runs of one series have alike; synthetic runs stand apart besides."""

POINTS: Final = pl.Schema(
    {
        "series": TEXT,
        "run_id": TEXT,
        "name": TEXT,
        "at": TIME,
        "dated": BOOL,
        "tgs": FLOAT,
        "tgs_low": FLOAT,
        "tgs_high": FLOAT,
        "mfu": FLOAT,
        "mfu_full_attention": FLOAT,
        "formula": TEXT,
        "peaks": TEXT,
        "outcome": TEXT,
        "synthetic": BOOL,
        "marks": TEXTS,
        "segment": INT,
        "level": FLOAT,
        "outlier": BOOL,
    }
)

CHANGES: Final = pl.Schema(
    {
        "series": TEXT,
        "against": TEXT,
        "kind": TEXT,
        "at": TIME,
        "run_id": TEXT,
        "last_before": TEXT,
        "found_at": TIME,
        "found_by": TEXT,
        "before": FLOAT,
        "after": FLOAT,
        "ratio": FLOAT,
        "ratio_low": FLOAT,
        "ratio_high": FLOAT,
        "points_after": INT,
        "causes": TEXTS,
        "counts": BOOL,
    }
)

SERIES: Final = pl.Schema(
    {
        "series": TEXT,
        "framework": TEXT,
        "model": TEXT,
        "gpus": INT,
        "points": INT,
        "nights": INT,
        "first_at": TIME,
        "last_at": TIME,
        "level": FLOAT,
        "level_low": FLOAT,
        "level_high": FLOAT,
        "spread": FLOAT,
        "mfu": FLOAT,
        "last_run": TEXT,
        "last_tgs": FLOAT,
        "last_ratio": FLOAT,
        "suspect": BOOL,
        "formulas": TEXTS,
        "peaks": TEXTS,
        "setups": TEXTS,
        "baseline_run": TEXT,
        "baseline_tgs": FLOAT,
        "against_baseline": FLOAT,
        "against_low": FLOAT,
        "against_high": FLOAT,
        "state": TEXT,
    }
)
"""framework, model, gpus: null where they are not of the key."""

UNPLACED: Final = pl.Schema({"run_id": TEXT, "name": TEXT, "why": TEXT})


@dataclass(frozen=True, slots=True)
class History:
    """Columns of POINTS, CHANGES, SERIES and UNPLACED."""

    points: pl.DataFrame
    changes: pl.DataFrame
    series: pl.DataFrame
    unplaced: pl.DataFrame


def history(
    metrics: pl.DataFrame,
    *,
    by: Sequence[str] = SERIES_BY,
    threshold: float = 0.0,
    baselines: pl.DataFrame | None = None,
) -> History:
    """Series, their points and their changes.

    metrics: rows of metrics.utilization.METRICS with `read_at` and `peaks`.
    """
    raise NotImplementedError
