"""Compare the ranks of a run: their spread, the slowest rank, and waits for data.

Ranks of one training wait for each other in every step. So their times differ little, and in any
step some rank is the slowest by chance. Each of R equal ranks is the slowest in 1/R of the steps: a
share far above 1/R is a bad node, a share near 1/R is noise.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from fairmfu.ingest.core.schema import FLOAT, INT, TEXT

from ..core.curve_columns import RANK_TIME_SCHEMA
from .windows import steady_window_rows

MIN_DATA_BOUND_SHARE: Final = 0.1
"""Waiting for data, as a share of a step's time, above which a run counts as data-bound.

At 0.1, a loader without any waits would make the run 1 / (1 - 0.1) = 1.11x as fast."""

COMPARED_DIGITS: Final = 9
"""Significant digits compared, more than any log prints: equal sums of printed times compare as
equal."""

RANK_SKEW_SCHEMA: Final = pl.Schema(
    {
        "run_id": TEXT,
        "ranks": INT,
        "rank_steps": INT,
        "rank_spread": FLOAT,
        "slowest_rank": TEXT,
        "slowest_share": FLOAT,
    }
)


def measure_ranks(steps: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Return one row per rank of each run with comparable ranks, by run and rank.

    Columns of RANK_TIME_SCHEMA, all over the `rank_steps` steady steps that every timing rank
    prints. A run without such steps, or with one rank, has no rows.

    `time`: median of a step with data loading [s], or from the logged rate if no rank prints a
    time. Without its tokens, a rate gives only a relative time: then `in_seconds` is false.
    `share`: fraction of the steps with this rank as the slowest; ranks with equal times share a
    step.

    steps: as in ingest.core.schema; spans: metrics.throughput.windows.build_windows
    """
    printed = steps.filter(pl.col("rank").is_not_null())
    several = printed.group_by("run_id").agg(pl.col("rank").n_unique()).filter(pl.col("rank") > 1)
    if several.is_empty():
        return RANK_TIME_SCHEMA.to_frame()
    printed, spans = (frame.join(several, on="run_id", how="semi") for frame in (printed, spans))
    found = _of_ranks(_shared(_timed(printed, spans)))
    return found.sort("run_id", "rank").match_to_schema(RANK_TIME_SCHEMA)


def compare_ranks(steps: pl.DataFrame, rank_times: pl.DataFrame) -> pl.DataFrame:
    """Return one row per run whose lines name ranks; columns of RANK_SKEW_SCHEMA.

    `ranks`: ranks that print steps. All other columns are null where ranks do not compare.
    `rank_spread`: (slowest - fastest) / median over the ranks' times. `slowest_rank`: rank with the
    longest time, as printed, null in a tie; `slowest_share`: its share.

    steps: as in ingest.core.schema; rank_times: `measure_ranks` of these steps
    """
    printed = steps.filter(pl.col("rank").is_not_null())
    if printed.is_empty():
        return RANK_SKEW_SCHEMA.to_frame()
    counted = printed.group_by("run_id").agg(ranks=pl.col("rank").n_unique().cast(INT))
    return (
        counted.join(_figures(rank_times), on="run_id", how="left", validate="1:1")
        .sort("run_id")
        .match_to_schema(RANK_SKEW_SCHEMA)
    )


def bottleneck(data_share: float | None) -> str | None:
    """Return what a run waits for, `data` or `compute`; None without a data_share.

    `compute` is everything except waiting for data, communication included.

    data_share: of metrics.throughput.throughput.SUMMARY, for the rank that waits longest in each
        step, since the others wait for this rank
    """
    if data_share is None:
        return None
    return "data" if data_share > MIN_DATA_BOUND_SHARE else "compute"


def _timed(printed: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Return `time` of each run, steady step and rank.

    One kind of time per run, because the units differ.
    """
    waited = pl.when("elapsed_excludes_data").then(pl.col("data_s").fill_null(0.0)).otherwise(0.0)
    elapsed = _steady(
        printed.with_columns(in_seconds=True), spans, "elapsed", pl.col("elapsed_s") + waited
    )
    known = pl.col("rank_tokens").is_not_null() | pl.col("logged_tgs").is_null()
    printed = printed.with_columns(in_seconds=known.all().over("run_id"))
    rated = pl.coalesce("rank_tokens", 1.0) / pl.col("logged_tgs")
    rest = _steady(printed, spans, "rate", rated).join(elapsed, on="run_id", how="anti")
    return pl.concat([elapsed, rest])


def _steady(
    printed: pl.DataFrame, spans: pl.DataFrame, evidence: str, time: pl.Expr
) -> pl.DataFrame:
    """Return `time` in the clean windows, with or without known tokens."""
    timed = steady_window_rows(spans.with_columns(tokens_per_gpu=1.0), evidence)
    flags = timed.select("run_id", "step", "elapsed_excludes_data")
    return (
        printed.join(flags, on=["run_id", "step"], validate="m:1")
        .with_columns(time=time)
        .filter(pl.col("time").is_finite(), pl.col("time") > 0)
        .group_by("run_id", "step", "rank")
        .agg(pl.col("time").median(), pl.col("in_seconds").first())
    )


def _shared(timed: pl.DataFrame) -> pl.DataFrame:
    """Return the steps that all ranks print.

    Medians over different steps do not compare.
    """
    ranks = pl.col("rank").n_unique().over("run_id")
    return timed.filter(ranks > 1, pl.len().over("run_id", "step") == ranks)


def _of_ranks(shared: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each rank: its median time, and how often it is the slowest."""
    time = pl.col("time").round_sig_figs(COMPARED_DIGITS)
    slowest = (time == time.max().over("run_id", "step")).cast(FLOAT)
    share = slowest / slowest.sum().over("run_id", "step")
    return (
        shared.with_columns(share=share)
        .group_by("run_id", "rank")
        .agg(
            pl.col("time").median().round_sig_figs(COMPARED_DIGITS),
            pl.col("in_seconds").first(),
            pl.col("share").mean().round(COMPARED_DIGITS),
            rank_steps=pl.len().cast(INT),
        )
    )


def _figures(rank_times: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each run: the spread of its ranks, and the slowest rank.

    Among ranks with the same largest median, the rank that is slowest most often; null if two tie
    in this as well.
    """
    time, share = pl.col("time"), pl.col("share")
    alone = (time.get(0) != time.get(1)) | (share.get(0) != share.get(1))
    return (
        rank_times.sort("time", "share", descending=True)
        .group_by("run_id", maintain_order=True)
        .agg(
            pl.col("rank_steps").first(),
            rank_spread=(time.max() - time.min()) / time.median(),
            slowest_rank=pl.when(alone).then(pl.col("rank").get(0)),
            slowest_share=pl.when(alone).then(share.get(0)),
        )
    )
