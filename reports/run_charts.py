"""Charts of one run: what reports.run_series prepares and a row of reports.verdict.joined in."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from reports.figure import Figure, Row

Table = pl.DataFrame | Sequence[Row]


def course(series: Table, events: Table, row: Row) -> Figure | None:
    """Throughput and MFU over steps, with events marked; loss and memory where known.

    series, events: rows of this run of `binned` and `marks` of reports.run_series.
    None where there is nothing to draw.
    """
    raise NotImplementedError


def step_times(hist: Table, row: Row) -> Figure | None:
    """How long steps took, steady against left out; hist: run_series.step_time_histogram."""
    raise NotImplementedError


def ranks(table: Table, row: Row) -> Figure | None:
    """Median step time of each rank; table: metrics.ranks.of_ranks. None with fewer than two."""
    raise NotImplementedError


def time_lost(row: Row) -> Figure | None:
    """Wall time that was not steady training, by cause; None where none is known."""
    raise NotImplementedError


def operators(table: Table) -> Figure | None:
    """Share of the FLOPs per token of each operator; table: metrics.utilization.OPERATORS."""
    raise NotImplementedError
