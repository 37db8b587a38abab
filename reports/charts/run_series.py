"""Runs over their steps for a notebook, and the step times of one run."""

from __future__ import annotations

from math import ceil, floor, log10
from typing import Final

import polars as pl

from fairmfu.ingest.core.schema import BOOL, FLOAT, INT, TEXT
from fairmfu.metrics.core.run_selection import choose
from fairmfu.metrics.core.run_table import MetricsRow
from fairmfu.metrics.pipeline.analysis import Analysis
from fairmfu.metrics.runs.step_bins import WINDOW_COUNTED, rate_windows, rated_by

PER_STEP: Final = pl.Schema(
    {
        "run_id": TEXT,
        "name": TEXT,
        "step": INT,
        "tgs": FLOAT,
        "window": TEXT,
        "loss": FLOAT,
        "peak_memory_bytes": FLOAT,
    }
)


def per_step(analysis: Analysis, *names: str) -> pl.DataFrame:
    """Return the pace at each logged step, sorted by run and step.

    Columns of PER_STEP. names: of runs, as for `choose`; without any, all runs. tgs [tokens/s/GPU]
    covers the steps since the line before, from the time evidence of the run's TGS; null for a line
    without evidence. window: "counted", or the reason for not counting: start-up, warm-up,
    checkpoint, evaluation. peak_memory_bytes [bytes of one GPU] as printed. More columns of
    windows: Analysis.windows.

    Raises RunNameError if no run has one of the names.

    >>> per_step(analysis, "titan-8b").filter(window="counted")["tgs"].median()
    """
    chosen = choose(analysis.metrics, *names)
    tgs = pl.col("tokens") / pl.col("seconds")
    return (
        rate_windows(analysis.windows, chosen)
        .join(chosen.select("run_id", "name"), on="run_id")
        .with_columns(tgs=pl.when(tgs.is_finite()).then(tgs))
        .sort("name", "run_id", "step")
        .select(pl.col(name).cast(dtype) for name, dtype in PER_STEP.items())
    )


# --- how long steps took --------------------------------------------------------------------

HISTOGRAM: Final = pl.Schema(
    {"low": FLOAT, "high": FLOAT, "steady": BOOL, "windows": INT, "beyond": BOOL}
)
BINS: Final = 32
HISTOGRAM_QUANTILE: Final = 0.99
"""Quantile of the steady windows up to which bins go, and a little further."""


def step_time_histogram(windows: pl.DataFrame, row: MetricsRow) -> pl.DataFrame:
    """Return how many windows of one run took how long; columns of HISTOGRAM.

    row: of reports.text.verdict.join_comparison or the metrics. low, high: seconds per step; for
        `beyond`, the bin of all longer windows, `high` is the longest. Sorted by `low` and
        `steady`. Empty if no window has step times.
    """
    evidence = row["time_basis"]
    mine = windows.filter(run_id=row["run_id"])
    if evidence is None or (evidence == "rate" and mine["tokens_per_gpu"].is_null().all()):
        return HISTOGRAM.to_frame()
    times = (
        rated_by(mine, evidence)
        .select(each=pl.col("seconds") / pl.col("span"), steady=pl.col("window") == WINDOW_COUNTED)
        .filter(pl.col("each").is_finite(), pl.col("each") > 0)
    )
    steady = times.filter("steady")["each"]
    if not steady.len():
        return HISTOGRAM.to_frame()
    low, top = float(steady.min() or 0), float(steady.quantile(HISTOGRAM_QUANTILE) or 0)  # type: ignore[arg-type]
    width = _round_width(max(top - low, 0.02 * top) / BINS)
    start, end = floor(low / width), ceil(top * (1 + 1e-9) / width) + 1
    place = (pl.col("each") / width).floor().clip(start, end)
    return (
        times.group_by("steady", place=place)
        .agg(windows=pl.len(), most=pl.col("each").max(), least=pl.col("each").min())
        .with_columns(beyond=pl.col("place") == end)
        .select(
            low=pl.min_horizontal(pl.col("place") * width, "least"),
            high=pl.when("beyond").then("most").otherwise((pl.col("place") + 1) * width),
            steady="steady",
            windows=pl.col("windows").cast(INT),
            beyond="beyond",
        )
        .sort("low", "steady")
    )


def _round_width(width: float) -> float:
    """Return the next of 1, 2, 2.5 and 5 times a power of ten."""
    power = 10.0 ** floor(log10(width))
    return next(power * step for step in (1, 2, 2.5, 5, 10) if power * step >= width)
