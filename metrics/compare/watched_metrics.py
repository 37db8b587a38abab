"""Figures of a run that the nights watch beside TGS, and their changes.

TGS keeps its own false-alarm chance (metrics.compare.change_points). All figures here share as much
again, in equal parts, so one more watched figure does not mean one more false alarm. A figure is
reported only if it says more than a better one: WatchedMetric.explained_by.

Frames in, frames out; a pure function of its input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import exp, log, log1p
from typing import Any, Final, TypedDict

import numpy as np
import polars as pl

from fairmfu.ingest.core.schema import row_dtypes

from .change_points import (
    FALSE_SHIFT_CHANCE,
    FALSE_SPLIT_CHANCE,
    Change,
    ChangeTest,
    SeriesLevels,
    find_levels,
)
from .history import MAX_RUNS_BEFORE, MIN_RUNS_BEFORE, MIN_WINDOW_SHARE

Row = Mapping[str, Any]

HISTORY, BASELINE = "history", "baseline"
WORSE, BETTER = "worse", "better"

REGRESSION: Final = "regression"
"""Name of slower speeds in `fail_on`."""

TGS: Final = "tgs"
"""Name of the rate in WatchedMetric.explained_by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedMetric:
    """Positive figure of a run, compared from night to night on a log scale.

    value: of columns of METRICS; `losses` stands for the loss at one count of the series
    worse: 1 if more is worse, -1 if less is
    min_spread: smallest relative scatter from run to run; more than its print's rounding
    min_change, min_difference: smallest change that counts, relative and in its unit
    is_whole: grows with the run's length, so short runs are left out
    explained_by: figures whose change at the same time says all of it; TGS in any direction
    fail_on: its name in `fail_on`
    finding: identifier of its finding
    clause: for people, after the job's name, with {still}, {size}, {way} and {place}
    ways: words for more and less
    unit: for people; scale, digits: of the unit; offset: taken off for people
    command: shows more, `compare` of the runs on both sides or `explain` of the first one after
    """

    identifier: str
    value: pl.Expr
    worse: int
    min_spread: float
    min_change: float
    min_difference: float = 0.0
    is_whole: bool = False
    explained_by: Sequence[str] = ()
    fail_on: str
    finding: str
    clause: str
    ways: tuple[str, str] = ("more", "less")
    unit: str
    scale: float = 1.0
    offset: float = 0.0
    digits: int = 1
    command: str = "explain"

    def format_value(self, value: float) -> str:
        """Return a value for people, such as `44.2 GiB`."""
        return f"{(value - self.offset) / self.scale:,.{self.digits}f}{self.unit}"


LOSS: Final = "loss"

WATCHED: Final = (
    WatchedMetric(
        identifier="seconds-per-step",
        value=pl.when(pl.col("tgs").is_null()).then("seconds_per_step"),
        worse=1,
        min_spread=0.001,
        min_change=0.0,
        is_whole=True,
        fail_on=REGRESSION,
        finding="slower-steps",
        clause="{still}takes {size} {way} time per step",
        command="compare",
        unit=" s",
        digits=3,
    ),
    WatchedMetric(
        identifier="end-to-end",
        value=pl.col("tgs_end_to_end") / pl.col("tgs"),
        worse=-1,
        min_spread=0.002,
        min_change=0.02,
        is_whole=True,
        explained_by=(TGS, "start-up"),
        fail_on=REGRESSION,
        finding="slower-end-to-end",
        clause="is {still}slower end to end at the same steady speed",
        unit=" %",
        scale=0.01,
    ),
    WatchedMetric(
        identifier=LOSS,
        value=pl.col("losses"),
        worse=1,
        min_spread=0.0005,
        min_change=0.003,
        fail_on="loss",
        finding="worse-loss",
        clause="{still}has a {size} {way} loss at {place}",
        ways=("higher", "lower"),
        command="compare",
        unit="",
        digits=3,
    ),
    WatchedMetric(
        identifier="memory-growth",
        value=1 + pl.col("memory_growth"),
        worse=1,
        min_spread=0.002,
        min_change=0.01,
        is_whole=True,
        fail_on="memory",
        finding="growing-memory",
        clause="{still}needs more and more memory inside a run",
        unit=" %",
        scale=0.01,
        offset=1.0,
    ),
    WatchedMetric(
        identifier="memory",
        value=pl.col("peak_memory_bytes"),
        worse=1,
        min_spread=0.002,
        min_change=0.01,
        is_whole=True,
        explained_by=("memory-growth",),
        fail_on="memory",
        finding="more-memory",
        clause="{still}needs {size} {way} memory",
        command="compare",
        unit=" GiB",
        scale=2.0**30,
    ),
    WatchedMetric(
        identifier="start-up",
        value=pl.max_horizontal("startup_s", pl.when(pl.col("startup_s") >= 0).then(1.0)),
        worse=1,
        min_spread=0.02,
        min_change=0.1,
        min_difference=5.0,
        fail_on="slower-start",
        finding="slower-start",
        clause="{still}takes {size} {way} to start",
        ways=("longer", "shorter"),
        unit=" s",
    ),
)
"""Figures watched beside TGS. A start-up below 1 s counts as 1 s."""

BUDGET_SHARES: Final = len(WATCHED) + 1
"""Parts of the false-alarm budget: one for each figure, and one for failed launches."""

INPUT_COLUMNS: Final = (
    *("run_id", "series", "at", "marks", "steps"),
    *sorted({name for metric in WATCHED for name in metric.value.meta.root_names()}),
)
"""Columns of a run that the watched figures need, of more than a hundred."""

METRIC_OF: Final = {metric.identifier: metric for metric in WATCHED}

NEAR_RUNS: Final = 3
"""Most runs between two changes that are one."""

LOSS_RUNS: Final = 40
MIN_LOSS_SHARE: Final = 0.8
"""The losses of a series are compared at the largest count that MIN_LOSS_SHARE of its newest
LOSS_RUNS runs reached.
"""


class WatchedRow(TypedDict):
    """Change of a watched figure, or distance from its baseline.

    A row of WATCHED_SCHEMA.
    """

    series: str
    metric: str
    against: str
    kind: str
    at: datetime
    run_id: str
    last_before: str
    found_at: datetime
    found_by: str
    before: float
    after: float
    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    points_after: int
    causes: list[str]
    counts: bool
    stands: bool
    at_count: int | None
    count_unit: str | None


WATCHED_SCHEMA: Final = pl.Schema(row_dtypes(WatchedRow))


def watch_metrics(
    runs: pl.DataFrame, rate_changes: pl.DataFrame, pins: pl.DataFrame, threshold: float = 0.0
) -> pl.DataFrame:
    """Return the changes of the watched figures, columns of WATCHED_SCHEMA.

    runs: METRICS rows with `series`, `at` and `marks` (changes of the set-up), in any order
    rate_changes: of metrics.compare.history, by series and run_id
    pins: run_id and `at`, when pinned; the newest pinned run of a series holds
    threshold: relative size from which a change of a speed counts

    kind: worse or better; stands: the last level is nearer to `after` than to `before`, and no
        baseline accepts the change; at_count, count_unit: where losses are compared
    """
    ordered = runs.select(INPUT_COLUMNS).sort("series", "at", "run_id")
    rated = rate_changes.filter(pl.col("against") == HISTORY)
    found: list[dict[str, Any]] = []
    for (series,), frame in ordered.group_by("series", maintain_order=True):
        places = {run_id: place for place, run_id in enumerate(frame["run_id"])}
        tgs = rated.filter(pl.col("series") == series)["run_id"]
        one = _WatchedSeries(frame, places, _pinned(places, pins), threshold)
        found += one.told([places[run] for run in tgs if run in places])
    return pl.DataFrame(found, schema=WATCHED_SCHEMA)


def _pinned(places: Mapping[str, int], pins: pl.DataFrame) -> str | None:
    """Return the run of a series that was pinned last."""
    for run_id in pins.sort("at", "run_id", nulls_last=False)["run_id"].reverse():
        if run_id in places:
            return str(run_id)
    return None


def comparable_values(metric: WatchedMetric, runs: pl.DataFrame) -> pl.DataFrame:
    """Return the runs of a series with a `value` of this figure.

    runs: of one series, by time. Adds `value`, and `count` and `unit` where losses are compared.
    """
    if metric.identifier == LOSS:
        valued = _losses(runs)
    else:
        nothing = {"count": pl.lit(None, pl.Int64), "unit": pl.lit(None, pl.String)}
        valued = runs.with_columns(value=metric.value, **nothing)
    if metric.is_whole:
        valued = valued.filter(_is_whole(runs["steps"]))
    return valued.filter(pl.col("value").is_finite() & (pl.col("value") > 0))


def _losses(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the runs with a loss at the largest count that most runs reached."""
    each = runs.explode("losses").unnest("losses").rename({"loss": "value"})
    known = each.filter(pl.col("value") > 0)
    newest = known["run_id"].unique(maintain_order=True).tail(LOSS_RUNS)
    reached = (
        known.filter(pl.col("run_id").is_in(newest.implode()))
        .group_by("unit", "count")
        .agg(runs=pl.col("run_id").n_unique())
        .filter(pl.col("runs") >= MIN_LOSS_SHARE * newest.len())
        .sort("count", "unit")
        .tail(1)
    )
    return known.join(reached, on=["unit", "count"], how="semi", maintain_order="left")


def _is_whole(steps: pl.Series) -> pl.Series:
    """Return per run whether it is not much shorter than the runs before it."""
    counts = steps.fill_null(0).cast(pl.Float64)
    usual = counts.rolling_median(MAX_RUNS_BEFORE, min_samples=MIN_RUNS_BEFORE).shift(1)
    return (counts >= MIN_WINDOW_SHARE * usual).fill_null(value=True)


@dataclass(frozen=True, slots=True)
class _WatchedSeries:
    """Runs of one series by time, their places by run_id, and the pinned run.

    threshold: smallest change of a speed that counts
    """

    runs: pl.DataFrame
    places: Mapping[str, int]
    pinned: str | None
    threshold: float

    def told(self, rate_places: Sequence[int]) -> list[dict[str, Any]]:
        """Return the changes that no better figure explains; rate_places: of TGS changes."""
        rows = {metric.identifier: list(self._changes(self._scaled(metric))) for metric in WATCHED}
        worse_at: dict[str, list[int]] = {TGS: [*rate_places]}
        for name, several in rows.items():
            worse_at[name] = [self.places[row["run_id"]] for row in several if row["kind"] == WORSE]
        return [
            row
            for name, several in rows.items()
            for row in several
            if not self._is_explained(row, [worse_at[by] for by in METRIC_OF[name].explained_by])
        ]

    def _scaled(self, metric: WatchedMetric) -> WatchedMetric:
        """Return a figure with the threshold, if it is a speed."""
        if metric.fail_on != REGRESSION:
            return metric
        return replace(metric, min_change=max(metric.min_change, self.threshold))

    def _is_explained(self, row: Row, explaining: Sequence[Sequence[int]]) -> bool:
        place = self.places[row["run_id"]]
        return any(abs(place - other) <= NEAR_RUNS for several in explaining for other in several)

    def _changes(self, metric: WatchedMetric) -> Iterator[dict[str, Any]]:
        """Yield the changes of one figure, and its distance from the baseline."""
        points = comparable_values(metric, self.runs)
        if points.is_empty():
            return
        test = ChangeTest(
            split_chance=FALSE_SPLIT_CHANCE / BUDGET_SHARES,
            shift_chance=FALSE_SHIFT_CHANCE / BUDGET_SHARES,
            min_spread=metric.min_spread,
            alarm_sign=metric.worse,
        )
        values = np.log(points["value"].to_numpy())
        if np.ptp(values) < log1p(metric.min_change):
            return
        series = _Valued(metric, points, find_levels(values, test))
        accepted = -1 if self.pinned is None else self.places[self.pinned]
        for number, change in enumerate(series.levels.changes):
            first = self.places[points["run_id"][change.first]]
            yield series.change(number, change, is_accepted=first <= accepted)
        if self.pinned is not None:
            yield from series.off_baseline(self.pinned)


@dataclass(frozen=True, slots=True)
class _Valued:
    """Values of one figure in one series, and their levels."""

    metric: WatchedMetric
    points: pl.DataFrame
    levels: SeriesLevels

    def change(self, number: int, change: Change, *, is_accepted: bool) -> dict[str, Any]:
        """Return a change of level as a row of WATCHED_SCHEMA; number: of the change."""
        segments = self.levels.segments()
        before, after = (self.levels.level(part) for part in segments[number : number + 2])
        last = self.levels.level(segments[-1])
        ratio = self.levels.ratio(number)
        return {
            **self._row(HISTORY, before, after, change.first, change.confirmed_at),
            "ratio": ratio.value,
            "ratio_low": ratio.low,
            "ratio_high": ratio.high,
            "last_before": self.points["run_id"][change.first - 1],
            "points_after": segments[number + 1].stop - segments[number + 1].start,
            "causes": self.points["marks"][change.first].to_list(),
            "stands": not is_accepted and abs(last - after) < abs(last - before),
        }

    def off_baseline(self, pinned: str) -> Iterator[dict[str, Any]]:
        """Yield the distance of the last level from the pinned run, if it is sure."""
        runs = self.points["run_id"].to_list()
        if pinned not in runs:
            return
        place = runs.index(pinned)
        base = log(self.points["value"][place])
        off = self.levels.shift_from_baseline(base, place + 1, self.metric.min_change)
        ratio = self.levels.ratio_to_baseline(base)
        if off is None or ratio is None:
            return
        last = self.levels.level(self.levels.segments()[-1])
        yield {
            **self._row(BASELINE, base, last, off.first, off.confirmed_at),
            "ratio": ratio.value,
            "ratio_low": ratio.low,
            "ratio_high": ratio.high,
            "last_before": pinned,
            "points_after": self.points.height - off.first,
            "causes": self.points["marks"][off.first].to_list(),
            "stands": True,
        }

    def _row(
        self, against: str, before: float, after: float, first: int, confirmed_at: int
    ) -> dict[str, Any]:
        """Return the columns that are alike for history and baseline."""
        points, metric = self.points, self.metric
        is_worse = (after > before) == (metric.worse > 0)
        is_large = abs(exp(after - before) - 1) >= metric.min_change
        return {
            "series": points["series"][first],
            "metric": metric.identifier,
            "against": against,
            "kind": WORSE if is_worse else BETTER,
            "at": points["at"][first],
            "run_id": points["run_id"][first],
            "found_at": points["at"][confirmed_at],
            "found_by": points["run_id"][confirmed_at],
            "before": exp(before),
            "after": exp(after),
            "counts": is_large and abs(exp(after) - exp(before)) >= metric.min_difference,
            "at_count": points["count"][first],
            "count_unit": points["unit"][first],
        }
