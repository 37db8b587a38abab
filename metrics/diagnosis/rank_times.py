"""Times and work of all ranks of a run as arrays.

Frames in, arrays out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from ..core.arrays import BoolArray, FloatArray, IntArray
from .rank_nodes import rank_order

MIN_PRINTING_SHARE: Final = 0.5
"""Least share of the ranks that print a step, for the step to be judged."""
PRINTED_COLUMNS: Final = (
    *("run_id", "step", "rank", "elapsed_s", "data_s", "rank_tokens", "attention_ratio"),
)
"""Columns of `steps` that are compared between ranks."""


@dataclass(frozen=True, slots=True)
class RankTimes:
    """Times of one run, a row per step and a column per rank; NaN if not printed.

    wall, data: of one step and of its wait for data [s]
    tokens, attention: of the rank, as `rank_tokens` and `attention_ratio` of ingest.core.schema
    spans: steps that each row covers; quiet: rows without a known cause of a long step
    """

    ranks: tuple[str, ...]
    steps: IntArray
    spans: FloatArray
    quiet: BoolArray
    wall: FloatArray
    data: FloatArray
    tokens: FloatArray
    attention: FloatArray

    @property
    def usual(self) -> float:
        """Usual time of a step [s]."""
        return float(np.median(lower_median(self.wall)))

    @property
    def total(self) -> float:
        """Time of all steps [s]."""
        return float((np.nanmax(self.wall, axis=1) * self.spans).sum())


def lower_median(rows: FloatArray) -> FloatArray:
    """Return the lower median of each row, without NaN.

    Exactly half of the ranks may be late, and the median is still of the others.
    """
    ordered = np.sort(rows, axis=1)  # NaN last
    middle = (np.count_nonzero(~np.isnan(rows), axis=1) - 1) // 2
    return np.asarray(ordered[np.arange(len(rows)), middle])


def times_of_runs(
    steps: pl.DataFrame, runs: pl.DataFrame, windows: pl.DataFrame
) -> Iterator[tuple[str, RankTimes]]:
    """Yield run_id and times of every run with several ranks that print times.

    The first printed step of a run is start-up.
    """
    of_rate = pl.col("rank_tokens") / pl.col("logged_tgs")  # XTuner's first lines have no time
    printed = (
        steps.filter(pl.col("rank").is_not_null())
        .with_columns(time=pl.coalesce("elapsed_s", of_rate))
        .filter(pl.col("time").is_finite(), pl.col("time") > 0)
    )
    several = printed.group_by("run_id").agg(pl.col("rank").n_unique()).filter(pl.col("rank") > 1)
    if several.is_empty():
        return
    excludes = pl.when(pl.col("elapsed_s").is_not_null()).then("elapsed_excludes_data")
    apart = pl.when(excludes.otherwise("rate_excludes_data")).then("data_s").fill_null(0.0)
    quiet = ~(pl.col("warming") | pl.col("disturbed"))
    about = windows.select("run_id", "step", span="elapsed_span", quiet=quiet)
    rows = (
        printed.join(several, on="run_id", how="semi")
        .select(*PRINTED_COLUMNS, "time")
        .unique(("run_id", "step", "rank"), keep="last", maintain_order=True)
        .filter(pl.col("step") > pl.col("step").min().over("run_id"))
        .filter(pl.len().over("run_id", "step") >= _least_printing())
        .join(runs.select("run_id", "elapsed_excludes_data", "rate_excludes_data"), on="run_id")
        .join(about, on=("run_id", "step"), how="left")
        .with_columns(wall=pl.col("time") + apart)
        # a wait that is longer than its step is of another clock
        .with_columns(data=pl.min_horizontal(pl.col("data_s").fill_null(0.0), "wall"))
        .sort("run_id", "step")
    )
    for (run_id,), of_run in rows.group_by("run_id", maintain_order=True):
        yield str(run_id), _as_arrays(of_run)


def _least_printing() -> pl.Expr:
    """Return the fewest ranks of a step that is judged."""
    return pl.max_horizontal(2, MIN_PRINTING_SHARE * pl.col("rank").n_unique().over("run_id"))


def _as_arrays(rows: pl.DataFrame) -> RankTimes:
    """Return the rows of one run as arrays."""
    ranks = sorted(rows["rank"].unique(), key=rank_order)
    column = rows["rank"].replace_strict(ranks, range(len(ranks))).to_numpy()
    step, row = np.unique(rows["step"].to_numpy(), return_inverse=True)
    matrices = {}
    for name in ("wall", "data", "rank_tokens", "attention_ratio", "span", "quiet"):
        matrix = np.full((len(step), len(ranks)), np.nan)
        matrix[row, column] = rows[name].cast(pl.Float64).to_numpy()
        matrices[name] = matrix
    return RankTimes(
        ranks=tuple(ranks),
        steps=step,
        spans=np.fmax(1.0, lower_median(matrices["span"])),
        quiet=lower_median(matrices["quiet"]) > 0,
        wall=matrices["wall"],
        data=matrices["data"],
        tokens=matrices["rank_tokens"],
        attention=matrices["attention_ratio"],
    )
