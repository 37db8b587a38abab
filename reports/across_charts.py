"""Charts across runs: rows of reports.verdict.joined in, a Figure out."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from reports.figure import Figure, Row


def comparison(rows: Sequence[Row]) -> Figure:
    """One group of like-for-like runs: TGS and MFU with intervals, logged beside recomputed.

    rows: of reports.verdict.joined, best first; at most `MOST_RUNS` are drawn.
    """
    raise NotImplementedError


def mfu_by_run(rows: Sequence[Row]) -> Figure | None:
    """MFU of each run under both attention conventions; None where none is known."""
    raise NotImplementedError


def scaling(rows: Sequence[Row]) -> Figure | None:
    """TGS over GPUs; None where fewer than two counts of GPUs are known."""
    raise NotImplementedError


def mfu_by_length(rows: Sequence[Row]) -> Figure | None:
    """MFU over sequence length; None where fewer than two are known."""
    raise NotImplementedError


def mfu_by_precision(rows: Sequence[Row]) -> Figure | None:
    """MFU by number format; None where fewer than two are known."""
    raise NotImplementedError


def mfu_by_recompute(rows: Sequence[Row]) -> Figure | None:
    """MFU by what is recomputed; None where fewer than two kinds are known."""
    raise NotImplementedError


def others(rows: pl.DataFrame | Sequence[Row], label: str = "") -> Figure | None:
    """FLOPs per token by each other formula as a ratio to ours, on a log scale.

    rows: as metrics.utilization.Analysis.others, one model, which label names; a formula without a
    figure is absent; None where none has one.
    """
    raise NotImplementedError
