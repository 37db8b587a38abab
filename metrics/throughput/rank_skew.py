"""The ranks of a run: how far they are apart, which is the slowest, and whether they wait for data.

Ranks of one training wait for each other in every step, so their times differ by little, and in
each step one of them is the slowest by chance. Of R equal ranks each is it in 1/R of the steps: a
share far above that is a bad node, a share near it is noise.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from fairmfu.ingest.core.schema import BOOL, FLOAT, INT, TEXT

from .windows import steady_window_rows

MIN_DATA_BOUND_SHARE: Final = 0.1
"""Waiting for data, as a share of a step's time, above which a run counts as data-bound.

At 0.1 a loader that never lets a rank wait would make the run 1 / (1 - 0.1) = 1.11x as fast.
"""

COMPARED_DIGITS: Final = 9
"""More than any log prints: sums of printed times that are equal compare as equal."""

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
    """One row per rank of each run whose ranks compare, sorted by run and rank.

    Columns of RANK_TIME_SCHEMA. steps: as in ingest.core.schema; spans:
    metrics.throughput.windows.build_windows. All is of the `rank_steps` steady steps that every
    rank prints which times any; a run without such, or of one rank, has no rows.

    `time`: median of a step with data loading [s], or by the logged rate where no rank prints a
    time; that without its tokens is relative, which `in_seconds` tells. `share`: of the steps in
    which this rank took longest; ranks that print the same time share a step.
    """
    printed = steps.filter(pl.col("rank").is_not_null())
    several = printed.group_by("run_id").agg(pl.col("rank").n_unique()).filter(pl.col("rank") > 1)
    if several.is_empty():
        return RANK_TIME_SCHEMA.to_frame()
    printed, spans = (frame.join(several, on="run_id", how="semi") for frame in (printed, spans))
    found = _of_ranks(_shared(_timed(printed, spans)))
    return found.sort("run_id", "rank").match_to_schema(RANK_TIME_SCHEMA)


def compare_ranks(steps: pl.DataFrame, rank_times: pl.DataFrame) -> pl.DataFrame:
    """One row per run whose lines name ranks; columns of RANK_SKEW_SCHEMA.

    steps: as in ingest.core.schema; rank_times: `measure_ranks` of them. `ranks` print steps; all
    else is null where they do not compare. `rank_spread` is (slowest - fastest) / median over the
    ranks' times. `slowest_rank`, as printed, has the greatest time, null where none stands out;
    `slowest_share` is its share.
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
    """`data` or `compute`: what a run waits for, by its data_share; null where that is unknown.

    data_share, of metrics.throughput.throughput.SUMMARY, is of the rank that waits longest in each
    step, since the others wait for it. `compute` is all that is not waiting for data, so
    communication too.
    """
    if data_share is None:
        return None
    return "data" if data_share > MIN_DATA_BOUND_SHARE else "compute"


def _timed(printed: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """`time` of each run, steady step and rank; of one kind a run, as the units differ."""
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
    """`time` in the clean windows, whether or not their tokens are known."""
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
    """Steps that all ranks print: medians over other steps do not compare."""
    ranks = pl.col("rank").n_unique().over("run_id")
    return timed.filter(ranks > 1, pl.len().over("run_id", "step") == ranks)


def _of_ranks(shared: pl.DataFrame) -> pl.DataFrame:
    """A row for each rank: its median time, and how often it is the slowest."""
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


def _figures(each: pl.DataFrame) -> pl.DataFrame:
    """A row for each run: how far its ranks are apart, and the slowest.

    Of several ranks with the largest median that is the one that is slowest most often; none where
    two are alike in that too.
    """
    time, share = pl.col("time"), pl.col("share")
    alone = (time.get(0) != time.get(1)) | (share.get(0) != share.get(1))
    return (
        each.sort("time", "share", descending=True)
        .group_by("run_id", maintain_order=True)
        .agg(
            pl.col("rank_steps").first(),
            rank_spread=(time.max() - time.min()) / time.median(),
            slowest_rank=pl.when(alone).then(pl.col("rank").get(0)),
            slowest_share=pl.when(alone).then(share.get(0)),
        )
    )
