"""The ranks of a run: how far they are apart.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from ingest.schema import FLOAT, INT, TEXT

RANKS: Final = pl.Schema({"run_id": TEXT, "ranks": INT, "rank_spread": FLOAT})


def rank_spread(steps: pl.DataFrame) -> pl.DataFrame:
    """One row per run: how many ranks print steps, and how far they are apart in time per step.

    `rank_spread` is (slowest - fastest) / median over the ranks of each rank's median step time
    with data loading, or of the inverse of its logged rate where it prints no time; null for one
    rank. The first step, which holds start-up, is left out.
    """
    wall = pl.col("elapsed_s") + pl.col("data_s").fill_null(0.0)
    later = pl.col("step") > pl.col("step").min().over("run_id")
    of_rank = (
        steps.filter(later, pl.col("rank").is_not_null())
        .group_by("run_id", "rank")
        .agg(pl.coalesce(wall, 1.0 / pl.col("logged_tgs")).median().alias("time"))
    )
    spread = (pl.col("time").max() - pl.col("time").min()) / pl.col("time").median()
    return (
        of_rank.group_by("run_id")
        .agg(
            pl.len().cast(pl.Int64).alias("ranks"),
            pl.when(pl.col("time").count() > 1).then(spread).alias("rank_spread"),
        )
        .match_to_schema(RANKS)
    )
