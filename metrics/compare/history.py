"""Series of runs over the nights, a point per run, with levels and changes.

Runs of one job (SERIES_BY) form a series, in the order of their start. TGS is compared from night
to night: it depends on neither F nor P, so a series continues across a new formula or a new peak.
MFU depends on both, so the MFU of a level uses only the points with the newest formula.

Frames in, frames out; a pure function of its input, and the order of rows does not matter.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from math import exp, log
from statistics import median
from typing import Any, Final, TypedDict

import numpy as np
import polars as pl

from fairmfu.ingest.core.schema import BOOL, INT, TEXT, TEXT_LIST, row_dtypes

from ..core import intervals
from ..core.intervals import MIN_INTERVAL_WINDOWS, Estimate
from ..core.run_messages import OUTDATED_READING
from ..core.run_table import MetricsRow, metrics_rows, value_of
from .change_points import Change, SeriesLevels, find_levels
from .comparability import COLUMN_LABELS, MEASURED_COLUMNS, VARIABLE_COLUMNS, format_value
from .missing_rate import explain_missing_rate

Row = Mapping[str, Any]

SERIES_BY: Final = ("framework", "model", "seq_len", "device", "precision", "trained", "gpus")
"""Columns of METRICS that runs of one series share; synthetic runs form separate series."""


class PointRow(TypedDict):
    """Run in a series: a row of POINT_SCHEMA."""

    series: str
    run_id: str
    name: str
    at: datetime
    dated: bool
    tgs: float
    tgs_low: float | None
    tgs_high: float | None
    mfu: float | None
    mfu_full_attention: float | None
    formula: str | None
    peaks: str | None
    outcome: str | None
    synthetic: bool | None
    marks: list[str]
    segment: int
    level: float
    outlier: bool


POINT_SCHEMA: Final = pl.Schema(row_dtypes(PointRow))


class ChangeRow(TypedDict):
    """Change of a series, or its distance from its baseline: a row of CHANGE_SCHEMA."""

    series: str
    against: str
    kind: str
    at: datetime | None
    run_id: str
    last_before: str | None
    found_at: datetime | None
    found_by: str | None
    before: float
    after: float
    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    points_after: int
    causes: list[str]
    counts: bool


CHANGE_SCHEMA: Final = pl.Schema(row_dtypes(ChangeRow))


class SeriesRow(TypedDict):
    """State of a series: a row of SERIES_SCHEMA."""

    series: str
    framework: str | None
    model: str | None
    gpus: int | None
    points: int
    nights: int
    first_at: datetime
    last_at: datetime
    level: float | None
    level_low: float | None
    level_high: float | None
    spread: float | None
    mfu: float | None
    last_run: str
    last_tgs: float | None
    last_ratio: float | None
    suspect: bool
    formulas: list[str]
    peaks: list[str]
    setups: list[str]
    baseline_run: str | None
    baseline_tgs: float | None
    against_baseline: float | None
    against_low: float | None
    against_high: float | None
    state: str


SERIES_SCHEMA: Final = pl.Schema(row_dtypes(SeriesRow))
"""framework, model, gpus: null if not in the series key."""

POINT_SOURCE_COLUMNS: Final = (
    *("run_id", "name", "tgs", "tgs_low", "tgs_high", "mfu", "mfu_full_attention", "formula"),
    *("peaks", "outcome", "synthetic", "missing", "warnings", "warning_kinds", "steps"),
    *("framework", "model", "gpus", "windows"),
)
"""Columns of METRICS for points, in addition to the series key and the marked columns."""

GIVEN: Final = pl.lit("given FLOPs")
"""Formula of points whose FLOPs are given: a series does not mix the two in one MFU."""

EXPLANATORY_COLUMNS: Final = tuple(
    dict.fromkeys(
        name
        for name in (*SERIES_BY, "work", "attention_pattern", "token_basis", *VARIABLE_COLUMNS)
        if name not in MEASURED_COLUMNS
    )
)
"""Columns that may explain a change: all settings of a run, and the measurement method."""

SOFTWARE_COLUMNS: Final = ("framework_version", "torch", "cuda", "nccl", "driver", "commit")

READER_COLUMN: Final = "reader"
"""Column of points: whether today's readers or an earlier fairmfu parsed the stored log. A change
at such a point may come from the parsing.
"""

MARK_LABELS: Final = {
    **COLUMN_LABELS,
    "work": "model layers",
    "token_basis": "token basis",
    READER_COLUMN: "log parsed by",
}

HASH_LENGTHS: Final = {"work": 6, "commit": 9}
"""Characters of hashes to show."""

MIN_RETURNS: Final = 2
"""Fewest returns to earlier jobs, or earlier values of a setting, that make jobs take turns: a
single return is a change that was reverted.
"""

MIN_WINDOW_SHARE: Final = 3 / 4
"""A run with a smaller share of the windows of earlier runs is short: its warm-up cannot be
detected and weighs more.
"""
MAX_RUNS_BEFORE: Final = 9
MIN_RUNS_BEFORE: Final = 3
"""Most and fewest earlier runs to judge a run's length by."""

EARLIER: Final = "earlier_"
"""Prefix of columns with the value of an earlier point."""
UNNAMED_JOB: Final = "unnamed_job"
"""Column of points: the job, where its facts alone do not name the series."""

NIGHT_START: Final = timedelta(hours=12)
"""Start of a night: from noon to noon."""

UNPLACED_SCHEMA: Final = pl.Schema({"run_id": TEXT, "name": TEXT, "why": TEXT})


@dataclass(frozen=True, slots=True)
class History:
    """Frames of POINT_SCHEMA, CHANGE_SCHEMA, SERIES_SCHEMA and UNPLACED_SCHEMA."""

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
    """Return series with their points, changes, and distances from their baselines.

    metrics: rows of metrics.core.run_table.METRICS with read_at (when a run was ingested) and peaks
        `job`, if present, identifies the job of a run, whose series a run with unknown facts joins
    by: columns of `metrics` that runs of one series share
    threshold: relative size from which a change counts; smaller changes are listed
    baselines: run_id, name, at (when pinned) and tgs (as pinned, tokens/s/GPU); the last pinned of
        a series wins, and a baseline without its run is unplaced

    Columns of CHANGE_SCHEMA include

    against: history, or baseline
    run_id, at: the first point after the change
    last_before: the point before the change, or the pinned run
    found_by, found_at: the point that confirmed the change; later points do not alter them
    before, after, ratio and its 95 % interval: over all points of both levels as of now
    causes: settings that changed at the first point, else at the other points where the change may
        have begun
    """
    held = set() if baselines is None else set(baselines["run_id"])
    placed, unplaced = _points_in_series(metrics, by, held)
    points = _with_marks(placed, by)
    pinned, lost = _pinned(baselines, points)
    histories = [
        _one_series(frame, pinned.get(str(series)), by, threshold)
        for (series,), frame in points.group_by("series", maintain_order=True)
    ]
    return History(
        pl.concat([pl.DataFrame(schema=POINT_SCHEMA), *(one.points for one in histories)]),
        pl.DataFrame([row for one in histories for row in one.changes], schema=CHANGE_SCHEMA),
        pl.DataFrame([one.summary for one in histories], schema=SERIES_SCHEMA),
        pl.DataFrame([*unplaced, *lost], schema=UNPLACED_SCHEMA).sort("name", "run_id"),
    )


# --- points -------------------------------------------------------------------------------


def _points_in_series(
    metrics: pl.DataFrame, by: Sequence[str], held: Collection[str]
) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """Return runs in series order, with `series`, `at` and `dated`, and unplaced runs.

    held: run_ids to keep however short the runs are
    """
    key = list(dict.fromkeys((*by, "synthetic")))
    names = dict.fromkeys((*POINT_SOURCE_COLUMNS, *by, *_explanatory_columns(by)))
    rows = metrics.select(
        *names,
        at=pl.coalesce("started_at", "read_at"),
        dated=pl.col("started_at").is_not_null(),
        job=pl.col("job") if "job" in metrics.columns else pl.lit(None, TEXT),
        **{READER_COLUMN: _reader()},
    )
    if "flops_source" in rows.columns:
        by_formula = pl.col("flops_source").is_null()
        rows = rows.with_columns(formula=pl.when(by_formula).then("formula").otherwise(GIVEN))
    usable = pl.col("tgs").is_finite() & (pl.col("tgs") > 0)
    known = pl.all_horizontal(pl.col(by).is_not_null()) | pl.col("job").is_not_null()
    whole = pl.all_horizontal(known, pl.col("at").is_not_null(), usable.fill_null(value=False))
    left = [
        {"run_id": row["run_id"], "name": row["name"], "why": _why_not(row, by)}
        for row in metrics_rows(rows.filter(~whole))
    ]
    rows = _apart_by_job(_with_facts_of_job(rows.filter(whole), by), key)
    key = [*key, UNNAMED_JOB]
    keys = rows.select(key).unique()
    named = keys.with_columns(series=pl.Series(_labels(keys.to_dicts(), by), dtype=TEXT))
    rows = rows.join(named, on=key, nulls_equal=True).sort("series", "at", "run_id")
    short = _short(rows, held)
    left += [
        {"run_id": row["run_id"], "name": row["name"], "why": _too_short(row)}
        for row in metrics_rows(rows.filter(short))
    ]
    return rows.filter(~short), left


def _with_facts_of_job(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Replace unknown facts by the only known value of the run's job.

    Adds `unknown`, the names of these facts, and UNNAMED_JOB: the job of a run with a fact that no
    run of the job has, or that its runs have with several values.
    """
    unknown = pl.concat_list(
        pl.when(pl.col(name).is_null()).then(pl.lit(name)) for name in by
    ).list.drop_nulls()
    whole = rows.with_columns(unknown=unknown if by else pl.lit([], TEXT_LIST))
    alone = [
        pl.when(pl.col(name).n_unique() - pl.col(name).is_null().any() == 1)
        .then(pl.col(name).drop_nulls().first())
        .over("job", "synthetic")
        for name in by
    ]
    of_job = pl.col("job").is_not_null()
    filled = whole.with_columns(
        pl.when(of_job & pl.col(name).is_null()).then(value).otherwise(name).alias(name)
        for name, value in zip(by, alone, strict=True)
    )
    lacks = pl.any_horizontal(pl.col(by).is_null()) if by else pl.lit(value=False)
    return filled.with_columns(pl.when(lacks).then("job").alias(UNNAMED_JOB))


def _apart_by_job(rows: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Name the job of runs whose facts are those of several jobs that take turns.

    A single return to an earlier job is a job that moved and moved back.

    key: columns that runs of one series share
    """
    known = rows.filter(pl.col("job").is_not_null()).sort("at", "run_id")
    before = pl.col("job").shift(1).over(key)
    turns = (
        known.filter(pl.col("job").ne_missing(before))
        .group_by(key)
        .agg(returns=pl.len() - pl.col("job").n_unique())
    )
    shared = turns.filter(pl.col("returns") >= MIN_RETURNS).select(*key, takes_turns=True)
    return (
        rows.join(shared, on=key, how="left", nulls_equal=True, maintain_order="left")
        .with_columns(pl.when("takes_turns").then("job").otherwise(UNNAMED_JOB).alias(UNNAMED_JOB))
        .drop("takes_turns")
    )


def _short(rows: pl.DataFrame, held: Collection[str]) -> pl.Series:
    """Return per run whether its warm-up cannot be detected, unlike in earlier runs.

    A run that broke off, or is still being written, would look like a slow night. If most runs are
    short, they remain a series: their warm-up weighs alike in all.
    """
    found: list[bool] = []
    lately: dict[str, deque[int]] = {}
    counts = pl.col("windows").fill_null(0)
    for series, run_id, count in rows.select("series", "run_id", counts).iter_rows():
        before = lately.setdefault(series, deque(maxlen=MAX_RUNS_BEFORE))
        usual = median(before) if len(before) >= MIN_RUNS_BEFORE else 0
        found.append(
            count < min(MIN_INTERVAL_WINDOWS, MIN_WINDOW_SHARE * usual) and run_id not in held
        )
        before.append(count)
    return pl.Series(found, dtype=BOOL)


def _too_short(row: MetricsRow) -> str:
    windows = f"{row['windows']} window{'s' * (row['windows'] != 1)}"
    return f"too short: {windows}, too few to separate the warm-up; earlier runs were longer"


def _why_not(row: MetricsRow, by: Sequence[str]) -> str:
    if row["tgs"] is None or not row["tgs"] > 0:
        why = explain_missing_rate(row)[0]
        return f"no TGS: {why}" if why else "no TGS"
    unknown = [COLUMN_LABELS.get(name, name) for name in by if value_of(row, name) is None]
    return (
        f"unknown: {', '.join(unknown)}"
        if unknown
        else "no time: the log has no timestamp, and the store has no reading time"
    )


def _labels(keys: Sequence[Row], by: Sequence[str]) -> list[str]:
    """Return the series keys in words, with as many folders of a job as needed."""
    paths = [str(row[UNNAMED_JOB]).split("/") for row in keys]
    longer = [
        [_label(row, by, "/".join(path[-n:])) for row, path in zip(keys, paths, strict=True)]
        for n in range(1, 1 + max(map(len, paths), default=0))
    ]
    counts = list(map(Counter, longer))
    return [
        next(
            (each[at] for each, count in zip(longer, counts, strict=True) if count[each[at]] == 1),
            longer[-1][at],
        )
        for at in range(len(keys))
    ]


def _label(row: Mapping[str, Any], by: Sequence[str], job: str) -> str:
    """Return the series key in words; job: names it if a fact is unknown."""
    words = [
        text
        for name in by
        if row[name] is not None and (text := _of_key(name, row, by)) is not None
    ]
    if row[UNNAMED_JOB] is not None:
        words.append(f"job {job}")
    return ", ".join([*words, "synthetic"] if row["synthetic"] else words)


def _of_key(name: str, row: Mapping[str, Any], by: Sequence[str]) -> str | None:
    value = row[name]
    match name:
        case "seq_len":
            return f"{value:,} tokens"
        case "gpus":
            return None if row.get("device") and "device" in by else f"{value} GPUs"
        case "device":
            return f"{row['gpus']} x {value}" if row.get("gpus") and "gpus" in by else str(value)
        case "trained":
            return None if value == "full" else str(value)
        case "framework" | "model" | "precision":
            return str(value)
        case _:
            return f"{COLUMN_LABELS.get(name, name)} {format_value(value)}"


def _reader() -> pl.Expr:
    before = pl.col("warning_kinds").list.contains(OUTDATED_READING.identifier)
    earlier, today = pl.lit("an earlier fairmfu"), pl.lit("this fairmfu")
    return pl.when(before).then(earlier).otherwise(today)


def _explanatory_columns(by: Sequence[str]) -> list[str]:
    """Return columns of METRICS that may explain a change within a series."""
    return [name for name in EXPLANATORY_COLUMNS if name not in by]


def _marked(by: Sequence[str]) -> list[str]:
    """Return columns whose changes from point to point are marked, software first."""
    columns = [*_explanatory_columns(by), READER_COLUMN]
    return sorted(columns, key=lambda name: name not in SOFTWARE_COLUMNS)


def _with_marks(points: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Add `marks` to points; a value counts as unchanged until another is stated."""
    marks: dict[int, list[str]] = {}
    names = _marked(by)
    earlier = pl.col(names).forward_fill().shift(1).over("series").name.prefix(EARLIER)
    both = points.select("series", *names).with_row_index("at").with_columns(earlier)
    differs = pl.any_horizontal(pl.col(name) != pl.col(f"{EARLIER}{name}") for name in names)
    for row in both.filter(differs).iter_rows(named=True):
        for name in names:
            old, new = row[f"{EARLIER}{name}"], row[name]
            if old is None or new is None:
                continue
            one, other = _shown_value(name, old), _shown_value(name, new)
            if one != other:
                if ", " in f"{one}{other}":
                    one, other = f'"{one}"', f'"{other}"'
                mark = f"{MARK_LABELS.get(name, name)} {one} -> {other}"
                marks.setdefault(row["at"], []).append(mark)
    for at, mark in _facts_gained_and_lost(points, by):
        marks.setdefault(at, []).append(mark)
    told = pl.DataFrame(
        {"place": list(marks), "marks": list(marks.values())},
        schema={"place": INT, "marks": TEXT_LIST},
    )
    placed = points.with_columns(place=pl.int_range(pl.len(), dtype=INT))
    joined = placed.join(told, on="place", how="left", maintain_order="left").drop("place")
    return joined.with_columns(pl.col("marks").fill_null([]))


def _facts_gained_and_lost(points: pl.DataFrame, by: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield place and mark of each point that gains or loses a fact."""
    before = pl.col("unknown").shift(1).over("series")
    differs = points.select(pl.int_range(pl.len()).alias("at"), "unknown", *by, before=before)
    rows = differs.filter(pl.col("unknown") != pl.col("before"))
    for row in rows.iter_rows(named=True):
        for name in by:
            if (name in row["unknown"]) != (name in row["before"]):
                sides = ["unknown", _shown_value(name, row[name])]
                old, new = sides if name in row["before"] else reversed(sides)
                yield row["at"], f"{MARK_LABELS.get(name, name)} {old} -> {new}"


def _shown_value(name: str, value: object) -> str:
    """Return the shown value: a hash is cut, and a compiler gives its version."""
    if name in HASH_LENGTHS:
        return str(value)[: HASH_LENGTHS[name]]
    version = _LAST_VERSION.search(str(value)) if name == "cuda" else None
    return version[1] if version else format_value(value)


_LAST_VERSION: Final = re.compile(r"\bV?(\d+(?:\.\d+)+)\D*$")


def _setups(points: pl.DataFrame, by: Sequence[str]) -> list[str]:
    """Return settings that alternate, with at least MIN_RETURNS returns."""
    found = []
    for name in _explanatory_columns(by):
        values = points[name].drop_nulls().to_list()
        said = [_shown_value(name, value) for value, _ in groupby(values)]
        turns = said[:1] + [after for before, after in pairwise(said) if after != before]
        if len(turns) - len(set(turns)) >= MIN_RETURNS:
            found.append(f"{MARK_LABELS.get(name, name)}: {' / '.join(sorted(set(turns)))}")
    return found


# --- one series ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SeriesHistory:
    """History of one series.

    points: columns of POINT_SCHEMA; changes: rows of CHANGE_SCHEMA; summary: a row of
        SERIES_SCHEMA.
    """

    points: pl.DataFrame
    changes: list[dict[str, Any]]
    summary: dict[str, Any]


def _one_series(
    points: pl.DataFrame, pinned: Row | None, by: Sequence[str], threshold: float
) -> _SeriesHistory:
    levels = find_levels(np.log(points["tgs"].to_numpy()))
    segments = levels.segments()
    lengths = [part.stop - part.start for part in segments]
    out = points.with_columns(
        segment=pl.Series(np.repeat(np.arange(len(segments)), lengths), dtype=INT),
        level=pl.Series(np.repeat(np.exp([levels.level(part) for part in segments]), lengths)),
        outlier=pl.Series(levels.outliers()),
    ).select(POINT_SCHEMA.names())
    changes = _changes(out, levels, threshold)
    off = _off_baseline(out, levels, pinned, threshold)
    last = segments[-1]
    summary = {
        **_whole(out),
        **_level(out, levels, last),
        **_baseline_columns(levels, pinned),
        **{name: points[name][-1] for name in ("framework", "model", "gpus") if name in by},
        "setups": _setups(points, by),
    }
    since = -1 if pinned is None else pinned["place"]
    later = [
        row["kind"]
        for row, change in zip(changes, levels.changes, strict=True)
        if row["counts"] and change.first > since
    ]
    kinds = later[-1:] + [row["kind"] for row in off]
    summary["state"] = _state(levels, kinds, suspect=summary["suspect"])
    return _SeriesHistory(out, changes + off, summary)


def _changes(points: pl.DataFrame, levels: SeriesLevels, threshold: float) -> list[dict[str, Any]]:
    rows = []
    segments = levels.segments()
    for i, change in enumerate(levels.changes):
        before, after = segments[i : i + 2]
        ratio = levels.ratio(i)
        rows.append(
            {
                "against": "history",
                **_change(points, change.first, change.confirmed_at, ratio, threshold),
                "last_before": points["run_id"][change.first - 1],
                "before": exp(levels.level(before)),
                "after": exp(levels.level(after)),
                "points_after": after.stop - after.start,
                "causes": _causes(points["marks"], change),
            }
        )
    return rows


def _change(
    points: pl.DataFrame, first: int, confirmed_at: int, ratio: Estimate, threshold: float
) -> dict[str, Any]:
    """Return the columns of CHANGE_SCHEMA that are alike for history and baseline."""
    return {
        "series": points["series"][0],
        "kind": "improvement" if ratio.value > 1 else "regression",
        "at": points["at"][first],
        "run_id": points["run_id"][first],
        "found_at": points["at"][confirmed_at],
        "found_by": points["run_id"][confirmed_at],
        "ratio": ratio.value,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "counts": abs(ratio.value - 1) >= threshold,
    }


def _causes(marks: pl.Series, change: Change) -> list[str]:
    """Return marks of the first point after a change, else of other possible starts."""
    there: list[str] = marks[change.first].to_list()
    if there:
        return there
    near = marks[change.earliest : change.latest + 1].to_list()
    return list(dict.fromkeys(mark for of_point in near for mark in of_point))


def _off_baseline(
    points: pl.DataFrame, levels: SeriesLevels, pinned: Row | None, threshold: float
) -> list[dict[str, Any]]:
    """Return a row of CHANGE_SCHEMA if the level is clearly off its baseline."""
    if pinned is None:
        return []
    baseline = log(pinned["tgs"])
    off, ratio = (
        levels.shift_from_baseline(baseline, pinned["place"] + 1, threshold),
        levels.ratio_to_baseline(baseline),
    )
    if off is None or ratio is None:
        return []
    return [
        {
            "against": "baseline",
            **_change(points, off.first, off.confirmed_at, ratio, threshold),
            "last_before": pinned["run_id"],
            "before": pinned["tgs"],
            "after": exp(levels.level(levels.segments()[-1])),
            "points_after": points.height - off.first,
            "causes": points["marks"][off.first].to_list(),
        }
    ]


def _whole(points: pl.DataFrame) -> dict[str, Any]:
    """Return the columns of SERIES_SCHEMA that do not depend on the levels."""
    at = points["at"]
    return {
        "series": points["series"][0],
        "points": points.height,
        "nights": (at - NIGHT_START).dt.date().n_unique(),
        "first_at": at[0],
        "last_at": at[-1],
        "last_run": points["run_id"][-1],
        "last_tgs": points["tgs"][-1],
        "formulas": points["formula"].drop_nulls().unique(maintain_order=True).to_list(),
        "peaks": points["peaks"].drop_nulls().unique(maintain_order=True).to_list(),
    }


def _level(points: pl.DataFrame, levels: SeriesLevels, last: slice) -> dict[str, Any]:
    """Return the last level's rate, and the MFU of its points with the newest formula."""
    level = exp(levels.level(last))
    mine = points[last.start :]
    rate = levels.rate(last) or intervals.mean_over_runs(mine["tgs"].to_list(), _own(mine))
    scored = mine.filter(pl.col("mfu").is_not_null() & ~pl.col("outlier"))
    newest = scored.filter(
        pl.col(name).eq_missing(pl.col(name).last()) for name in ("formula", "peaks")
    )
    return {
        "level": level,
        "level_low": None if rate is None else rate.low,
        "level_high": None if rate is None else rate.high,
        "spread": levels.spread,
        "mfu": newest["mfu"].median(),
        "last_ratio": points["tgs"][-1] / level,
        "suspect": points["outlier"][-1],
    }


def _own(points: pl.DataFrame) -> list[Estimate]:
    """Return the intervals of single runs."""
    whole = points.select("tgs", "tgs_low", "tgs_high").drop_nulls()
    return [Estimate(*row) for row in whole.iter_rows()]


def _state(levels: SeriesLevels, kinds: Sequence[str], *, suspect: bool) -> str:
    """Return the state of a series.

    kinds: of the last change that counts since the baseline, and of the distance from the baseline
    """
    if levels.spread is None:
        return "new"
    if "regression" in kinds:
        return "regressed"
    if suspect:
        return "suspect"
    return "improved" if "improvement" in kinds else "steady"


# --- baselines ----------------------------------------------------------------------------


BASELINE_WITHOUT_SERIES: Final = "a baseline whose run is in no series"
"""Reason why a pinned run is unplaced; no series is then compared with that baseline."""


def _pinned(
    baselines: pl.DataFrame | None, points: pl.DataFrame
) -> tuple[dict[str, Row], list[dict[str, Any]]]:
    """Return the baseline per series, with its run's `place`, and unplaced baselines."""
    if baselines is None or not baselines.height:
        return {}, []
    places = points.select(
        "run_id", "series", place=pl.int_range(pl.len()).over("series"), now=pl.col("tgs")
    )
    known = baselines.select("run_id", "name", "at", "tgs").sort("at", "run_id", nulls_last=False)
    joined = known.join(places, on="run_id", how="left", maintain_order="left").with_columns(
        tgs=pl.when(pl.col("tgs") > 0).then("tgs").otherwise("now")
    )
    held: dict[str, Row] = {}
    lost: list[dict[str, Any]] = []
    for row in joined.iter_rows(named=True):
        if row["series"] is None:
            lost.append(
                {"run_id": row["run_id"], "name": row["name"], "why": BASELINE_WITHOUT_SERIES}
            )
        else:
            held[row["series"]] = row
    return held, lost


def _baseline_columns(levels: SeriesLevels, pinned: Row | None) -> dict[str, Any]:
    if pinned is None:
        return {}
    baseline = log(pinned["tgs"])
    ratio = levels.ratio_to_baseline(baseline)
    return {
        "baseline_run": pinned["run_id"],
        "baseline_tgs": pinned["tgs"],
        "against_baseline": exp(levels.level(levels.segments()[-1]) - baseline),
        "against_low": None if ratio is None else ratio.low,
        "against_high": None if ratio is None else ratio.high,
    }
