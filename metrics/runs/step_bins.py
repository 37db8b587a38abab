"""Runs over their steps, as few rows for a chart: bins of windows, and events."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose
from typing import Final

import numpy as np
import polars as pl

from fairmfu.ingest.core.schema import FLOAT, INT, TEXT

from ..core.arrays import BoolArray
from ..core.curve_columns import EVENT_COUNT_SCHEMA, MARK_SCHEMA, SERIES_SCHEMA
from ..core.run_arrays import RunArrays, total
from ..core.run_course import tokens_at_lines
from ..core.run_words import START_UP
from ..throughput.speed_levels import OTHER_SPEED
from ..throughput.time_breakdown import WARM_UP
from ..throughput.windows import (
    count_steps,
    disturbances,
    lines_of_windows,
    steady_windows,
    window_tokens,
)

MAX_STEP_BINS: Final = 300
"""Bins of steps per run; with excluded windows kept separate, under 2,000 points per run."""
WINDOW_COUNTED: Final = "counted"
WINDOW_OTHER: Final = "other"


def bin_windows(
    windows: pl.DataFrame, metrics: pl.DataFrame, bins: int = MAX_STEP_BINS
) -> pl.DataFrame:
    """Return a row per run, bin of steps and kind of window; columns of SERIES_SCHEMA.

    windows: metrics.throughput.windows.build_windows; metrics: rows of the runs to show

    window: "counted" or the reason why not
    tgs [tokens/s/GPU], step_s [s, windows that are steady or at another speed]: ratios of sums
        over the bin; low, high: its slowest and fastest window
    tokens: mean of the tokens over all GPUs since the start; time_s [s]: mean of the wall time
        since the first line; null for a run if its log does not give them for each line
    loss: the mean; memory_bytes: the mean and memory_bytes_max the largest of the printed peaks
    windows: number of windows
    """
    rates = rate_windows(_with_lines(windows, metrics), metrics, _OF_LINES)
    first, last = (getattr(pl.col("step"), end)().over("run_id") for end in ("min", "max"))
    width = pl.max_horizontal(1, (last - first + bins) // bins)
    tgs = pl.col("tokens") / pl.col("seconds")
    timed = [
        pl.when(tgs.is_finite()).then(each) for each in (tgs.alias("tgs"), "tokens", "seconds")
    ]
    return (
        rates.with_columns(*timed, bin=(pl.col("step") - first) // width)
        .group_by("run_id", "window", "bin")
        .agg(
            pl.col("step").min(),
            last_step=pl.col("step").max(),
            low=pl.col("tgs").min(),
            high=pl.col("tgs").max(),
            tgs=_ratio(pl.col("tokens").sum(), pl.col("seconds").sum()),
            step_s=_ratio(pl.col("step_seconds").sum(), pl.col("steps").sum()),
            loss=pl.col("loss").mean(),
            memory_bytes=pl.col("peak_memory_bytes").mean(),
            memory_bytes_max=pl.col("peak_memory_bytes").max(),
            tokens=pl.col("tokens_so_far").mean(),
            time_s=pl.col("time_so_far").mean(),
            windows=pl.len(),
        )
        .sort("run_id", "step", "window")
        .select(pl.col(name).cast(dtype) for name, dtype in SERIES_SCHEMA.items())
    )


_OF_LINES: Final = ("tokens_so_far", "time_so_far", "step_seconds", "steps")


def _with_lines(windows: pl.DataFrame, metrics: pl.DataFrame) -> pl.DataFrame:
    """Add to each line its place in tokens and wall time, and the time of its steps.

    Columns of _OF_LINES, null where unknown.
    """
    means = dict(metrics.select("run_id", "seconds_per_step").iter_rows())
    parts = windows.partition_by("run_id", maintain_order=True, as_dict=True)
    told = [
        part.with_columns(
            tokens_so_far=_tokens_so_far(part),
            time_so_far=_time_so_far(part),
            **_step_times(RunArrays(part), means[str(run_id)]),
        )
        for (run_id,), part in parts.items()
        if run_id in means
    ]
    none = windows.clear().with_columns(pl.lit(None, FLOAT).alias(name) for name in _OF_LINES)
    return pl.concat([none, *told], how="vertical_relaxed")


def _step_times(run: RunArrays, mean: float | None) -> dict[str, pl.Series]:
    """Return the seconds and the number of the steps of windows at a lasting speed.

    Both are null elsewhere. They are of the time evidence behind `mean`, the seconds per step at
    the run's own speed.
    """
    counted, of_lines = count_steps(run), np.full((2, run.height), np.nan)
    of_any_speed = counted.with_values(off_level=np.zeros(run.height))
    for evidence in _STEP_EVIDENCE:
        steady, spans = steady_windows(counted, evidence), counted[f"{evidence}_span"]
        if mean is None or not len(steady.indices):
            continue
        if isclose(total(steady.seconds) / total(spans[steady.indices]), mean, rel_tol=1e-9):
            lasting = steady_windows(of_any_speed, evidence)
            of_lines[:, lasting.indices] = lasting.seconds, spans[lasting.indices]
            break
    seconds, steps = (pl.Series(values, nan_to_null=True) for values in of_lines)
    return {"step_seconds": seconds, "steps": steps}


_STEP_EVIDENCE: Final = ("elapsed", "rate", "stamp", "clock", "engine")


def _tokens_so_far(run: pl.DataFrame) -> pl.Series:
    arrays = RunArrays(run)
    tokens = tokens_at_lines(arrays, np.ones(run.height, np.bool_))
    return pl.Series([None] * run.height if tokens is None else tokens, dtype=FLOAT)


def _time_so_far(run: pl.DataFrame) -> pl.Series:
    """Return the seconds since the first line; null without a clock that only goes on."""
    stamped = run["logged_at"].cast(pl.Datetime("us")).cast(INT).cast(FLOAT) / 1e6
    for clock in (stamped, run["since_start_s"].cast(FLOAT)):
        if not clock.has_nulls() and clock.is_sorted():
            since: pl.Series = clock - clock[0]
            return since
    return pl.Series([None] * run.height, dtype=FLOAT)


def _ratio(amount: pl.Expr, total: pl.Expr) -> pl.Expr:
    return pl.when(total > 0).then(amount / total)


def rate_windows(
    windows: pl.DataFrame, metrics: pl.DataFrame, kept: Sequence[str] = ()
) -> pl.DataFrame:
    """Return each window of some runs with its rate, and why it is not counted, if so.

    windows, metrics: as for `bin_windows`. kept: more columns to keep. Columns: run_id, step, loss,
        peak_memory_bytes, `span`
        [steps], their `tokens` and `seconds`, both on one GPU, and `window`; rates are null for a
        run without time evidence.
    """
    parts, none, nothing = [], pl.lit(None, INT), pl.lit(None, FLOAT)
    drawn = (*_DRAWN, *kept)
    for (evidence,), runs in metrics.select("run_id", "time_basis").group_by("time_basis"):
        names = drawn if evidence is None else (*drawn, *_ASKED, *_timed_by(str(evidence)))
        frame = windows.select(names)
        mine = frame["run_id"].is_in(runs["run_id"].implode())
        frame = frame if mine.all() else frame.filter(mine)
        if evidence is None:
            parts.append(
                frame.select(
                    *drawn,
                    span=none,
                    tokens=nothing,
                    seconds=nothing,
                    window=pl.lit(WINDOW_COUNTED),
                )
            )
        else:
            parts.append(rated_by(frame, str(evidence), kept))
    if not parts:
        text = pl.lit(None, TEXT)
        return windows.clear().select(
            *drawn, span=none, tokens=nothing, seconds=nothing, window=text
        )
    return pl.concat(parts, how="vertical_relaxed")


_DRAWN: Final = ("run_id", "step", "loss", "peak_memory_bytes")
_ASKED: Final = (
    *("first", "warming", "unlogged", "off_level", "smeared", "disturbed", "rate_disturbed"),
    *("begun_anew", "events", "rate_events"),
    *("tokens_per_gpu", "rate_covers", "elapsed_reach", "new_step"),
)
"""Columns that decide whether a window counts, and its tokens."""


def _timed_by(evidence: str) -> tuple[str, str]:
    """Return the columns with the steps of a window and its time."""
    return f"{evidence}_span", f"{evidence}_time"


def _counted(runs: RunArrays, evidence: str) -> BoolArray:
    """Return which lines are of counted steps; runs: concatenated."""
    counted, start = np.zeros(runs.height, np.bool_), 0
    for run in runs.by_run().values() if evidence == "elapsed" else [runs]:
        counted[start + lines_of_windows(run, evidence, steady_windows(run, evidence)).indices] = (
            True
        )
        start += run.height
    return counted


def rated_by(frame: pl.DataFrame, evidence: str, kept: Sequence[str] = ()) -> pl.DataFrame:
    """Return _DRAWN, `kept`, tokens, seconds, window and `span` [steps] per window."""
    runs = RunArrays(frame)
    steady, said = _counted(runs, evidence), disturbances(runs, evidence)
    spoiler = pl.repeat(WINDOW_OTHER, frame.height, dtype=TEXT, eager=True)
    spoiler = spoiler.scatter([*said], [first for first, *_ in said.values()])
    tokens = pl.Series(window_tokens(runs, evidence), nan_to_null=True)
    return frame.select(
        *_DRAWN,
        *kept,
        span=f"{evidence}_span",
        tokens=pl.lit(tokens),
        seconds=f"{evidence}_time",
        window=pl.when(pl.lit(pl.Series(steady)))
        .then(pl.lit(WINDOW_COUNTED))
        .when("first")
        .then(pl.lit(START_UP))
        .when("warming")
        .then(pl.lit(WARM_UP))
        .when("off_level")
        .then(pl.lit(OTHER_SPEED))
        .otherwise(pl.lit(spoiler)),
    )


# --- events -------------------------------------------------------------------------------

SHOWN_EVENT_KINDS: Final = (
    "load",
    "restart",
    "checkpoint",
    "evaluation",
    "profiler",
    "compile",
    "gc",
    "overflow",
    "error",
    "out_of_memory",
    "killed",
    "end",
)
"""Kinds of events that explain why the pace changes or stops; of ingest.core.schema.EVENT_KINDS."""

MAX_MARK_BINS: Final = 60
"""Most marks of one kind in one run."""


def event_marks(events: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return the events to show over the steps, sorted; columns of MARK_SCHEMA.

    events: as in ingest.core.schema; windows: metrics.throughput.windows.build_windows

    step: as printed, else of the next step line, else of the last one
    events: number of events. With more than MAX_MARK_BINS steps, the events of a kind in one bin
        are merged, with the first one's line and text.
    """
    shown = events.filter(pl.col("kind").is_in(SHOWN_EVENT_KINDS))
    if shown.is_empty():
        return MARK_SCHEMA.to_frame()
    steps = windows.filter(pl.col("line").is_not_null()).select("run_id", "line", at="step")
    ends = windows.group_by("run_id").agg(first=pl.col("step").min(), last=pl.col("step").max())
    length = pl.col("last") - pl.col("first")
    width = pl.max_horizontal(1, (length + MAX_MARK_BINS) // MAX_MARK_BINS)
    placed = pl.coalesce("step", "at", "last").clip(pl.col("first"), pl.col("last"))
    return (
        shown.select("run_id", "kind", "line", "step", "text")
        .sort("line")
        .join_asof(
            steps.sort("line"), on="line", by="run_id", strategy="forward", check_sortedness=False
        )
        .join(ends, on="run_id", how="inner")
        .with_columns(step=placed)
        .group_by("run_id", "kind", bin=(pl.col("step") - pl.col("first")) // width)
        .agg(
            pl.col("step").min(),
            pl.col("step").max().alias("last_step"),
            pl.col("line", "text").sort_by("step", "line").first(),
            events=pl.len(),
        )
        .sort("run_id", "step", "line")
        .select(pl.col(name).cast(dtype) for name, dtype in MARK_SCHEMA.items())
    )


def count_events(events: pl.DataFrame) -> pl.DataFrame:
    """Return the count of each event kind of each run, the most frequent first.

    Columns of EVENT_COUNT_SCHEMA: with the seconds of all, and the line of the first. Runs are
    counted one by one: beside others, the last digit of a sum may differ.
    """
    counts = [
        run.group_by("run_id", "kind", maintain_order=True)
        .agg(count=pl.len(), seconds=pl.col("seconds").sum(), line=pl.col("line").first())
        .sort("count", descending=True, maintain_order=True)
        for run in events.partition_by("run_id", maintain_order=True)
    ]
    return pl.concat([EVENT_COUNT_SCHEMA.to_frame(), *counts])
