"""Watched figures of the nights beside TGS: what is new, and its words.

The statistics are in metrics.compare.watched_metrics and metrics.compare.failed_launches.
reports.nightly.findings makes findings of the views here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from fairmfu.ingest.core.schema import TEXT_LIST
from fairmfu.metrics.compare.failed_launches import FailureRise, failure_rise
from fairmfu.metrics.compare.history import History
from fairmfu.metrics.compare.watched_metrics import (
    BASELINE,
    METRIC_OF,
    WORSE,
    WatchedMetric,
    watch_metrics,
)

from ..text.commands import store_option
from ..text.run_narrative import BAD_OUTCOMES
from ..text.tabular import count_noun, difference_text
from .night_report import (
    Night,
    NightDigest,
    Row,
    change_causes,
    compare_command,
    format_day,
    job_rows,
    run_names,
)

# --- rows of a night ----------------------------------------------------------------------


def watched_changes(
    dated: pl.DataFrame, past: History, pins: pl.DataFrame, threshold: float = 0.0
) -> pl.DataFrame:
    """Return the changes that count of all series, columns of WATCHED_SCHEMA.

    A run without a TGS is compared with such runs of its job.

    dated: METRICS rows with read_at and `job`; pins, threshold: as for metrics.compare.history
    """
    placed = past.points.select("run_id", "series", "at", "marks")
    tracked = dated.join(placed, on="run_id", how="inner")
    unrated = dated.filter(pl.col("tgs").is_null() & pl.col("job").is_not_null()).with_columns(
        series="job", at=pl.coalesce("started_at", "read_at"), marks=pl.lit([], TEXT_LIST)
    )
    runs = pl.concat([tracked, unrated.filter(pl.col("at").is_not_null())], how="diagonal")
    return watch_metrics(runs, past.changes, pins, threshold).filter("counts")


def watch_night(
    dated: pl.DataFrame,
    past: History,
    pins: pl.DataFrame,
    threshold: float,
    known_keys: Collection[str],
) -> tuple[pl.DataFrame, list[str]]:
    """Return the changes of a night, and the keys to remember, as of `with_news`.

    dated, pins, threshold: as for `watched_changes`; known_keys: as for `with_news`
    """
    newest = dated.select(pl.coalesce("started_at", "read_at").max()).item()
    return with_news(watched_changes(dated, past, pins, threshold), newest, known_keys)


def with_news(
    watched: pl.DataFrame, newest: datetime | None, known_keys: Collection[str]
) -> tuple[pl.DataFrame, list[str]]:
    """Return the changes with `new`, and the keys of all changes and figures.

    A change is new if no earlier night knew it, and its confirming run is at most MAX_NEWS_AGE old:
    recomputed metrics may show a figure of all earlier runs. On the first night that watches a
    figure, it is one of the last night (FIRST_NEWS_AGE).

    newest: start of the newest run; known_keys: of earlier nights
    """
    rows = watched.rows(named=True)
    is_new = [_is_new(row, newest, known_keys) for row in rows]
    keys = [*map(_figure_key, METRIC_OF), *(key for row in rows for key in _keys(row))]
    fresh = [key for key in dict.fromkeys(keys) if key not in known_keys]
    return watched.with_columns(new=pl.Series(is_new, dtype=pl.Boolean)), fresh


def _is_new(row: Row, newest: datetime | None, known_keys: Collection[str]) -> bool:
    age = MAX_NEWS_AGE if _figure_key(row["metric"]) in known_keys else FIRST_NEWS_AGE
    is_recent = newest is None or row["found_at"] >= newest - age
    return is_recent and not any(key in known_keys for key in _keys(row))


FIRST_NEWS_AGE: Final = timedelta(hours=20)
MAX_NEWS_AGE: Final = timedelta(days=14)
"""Age of the run that confirms a change, relative to the newest run, up to which it is news: on the
first night that watches a figure, and later.
"""


def _figure_key(metric: str) -> str:
    """Return the key of a night that watched a figure."""
    return f"watched\x1f{metric}"


def _keys(row: Row) -> Iterator[str]:
    """Yield the keys of a change; a late log may move its start to the confirming run."""
    for run_id in (row["run_id"], row["found_by"]):
        yield "\x1f".join(("watched", row["metric"], row["against"], row["kind"], run_id))


# --- views --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedChange:
    """Change of a watched figure, or of the share of failed launches, in words.

    metric: null for failed launches; series: null for a job in no series; job: its name, else None
    clause: without the job; new: first told tonight; worse: an alarm; off_baseline: now
    """

    metric: WatchedMetric | None
    series: str | None
    job: str | None
    since: datetime | None
    clause: str
    evidence: str
    fix: str
    run_id: str
    new: bool
    worse: bool
    off_baseline: bool = False


def watched_views(digest: NightDigest) -> list[WatchedChange]:
    """Return the changes to report: new, standing, or off a baseline."""
    night = digest.night
    names, tracked = run_names(night), {row["series"] for row in digest.series}
    jobs = {row["run_id"]: row["job"] for row in job_rows(night)}
    rows = [row for row in night.watched.iter_rows(named=True) if row["new"] or row["stands"]]
    held = {(row["series"], row["metric"]) for row in rows if row["against"] == BASELINE}
    fresh = {(row["series"], row["metric"]) for row in rows if row["new"]}
    told = []
    for row in rows:
        key = (row["series"], row["metric"])
        better_told = held if row["new"] else held | fresh
        is_repeated = row["against"] != BASELINE and key in better_told
        if not is_repeated and (row["kind"] == WORSE or row["new"]):
            told.append(_view(row, digest, names, tracked, jobs))
    return [*told, *_failing(digest)]


def _view(
    row: Row,
    digest: NightDigest,
    names: Mapping[str, str],
    tracked: Collection[str],
    jobs: Mapping[str, str | None],
) -> WatchedChange:
    night, metric = digest.night, METRIC_OF[row["metric"]]
    is_tracked = row["series"] in tracked
    return WatchedChange(
        metric=metric,
        series=row["series"] if is_tracked else None,
        job=None if is_tracked else jobs.get(row["run_id"]) or row["series"].rpartition("/")[2],
        since=row["at"],
        clause=_clause(row, metric, night),
        evidence=_evidence(row, metric, night.at, names),
        fix=_fix(row, metric, digest),
        run_id=row["run_id"],
        new=row["new"],
        worse=row["kind"] == WORSE,
        off_baseline=row["against"] == BASELINE,
    )


def _clause(row: Row, metric: WatchedMetric, night: Night) -> str:
    """Return `needs 62.6 % more memory since 23 September (71.9 GiB …)`.

    `still` says that an earlier night told the change, so a first night never says it.
    """
    told_now = row["new"] or row["against"] == BASELINE or night.number == 1
    size, _ = difference_text(row["ratio"], row["ratio_low"], row["ratio_high"])
    said = metric.clause.format(
        still="" if told_now else "still ",
        size=size,
        way=metric.ways[row["ratio"] < 1],
        place=_place(row),
    )
    before, after = metric.format_value(row["before"]), metric.format_value(row["after"])
    whose = "its baseline's " if row["against"] == BASELINE else ""
    since = format_day(row["at"], night.at)
    return f"{said} since {since} ({after} instead of {whose}{before}){change_causes(row)}"


MILLION: Final = 1_000_000


def _place(row: Row) -> str:
    """Return where losses are compared; empty for other figures."""
    count, unit = row["at_count"], row["count_unit"]
    if count is None:
        return ""
    return f"{count / MILLION:,.1f} million {unit}" if count >= MILLION else f"{count:,} {unit}"


def _evidence(row: Row, metric: WatchedMetric, now: datetime, names: Mapping[str, str]) -> str:
    """Return the levels, the runs on both sides and the confirming run, in a sentence."""
    before, after = metric.format_value(row["before"]), metric.format_value(row["after"])
    last, first, found = (
        names.get(row[name], row[name]) for name in ("last_before", "run_id", "found_by")
    )
    sure = "the same run" if row["found_by"] == row["run_id"] else f"run {found}"
    words = [
        f"From {before} to {after}",
        f"{'baseline' if row['against'] == BASELINE else 'last run before'}: {last}",
        f"first run after: {first}",
        f"confirmed on {format_day(row['found_at'], now)} by {sure}",
        f"{count_noun(row['points_after'], 'run')} since the change",
    ]
    if not row["causes"]:
        words.append("the logs show no setup change at that point")
    return "; ".join(words) + "."


def _fix(row: Row, metric: WatchedMetric, digest: NightDigest) -> str:
    if metric.command == "compare":
        command = compare_command(row, digest.night)
        return "" if command is None else f"Compare: {command}"
    return f"Explain: fairmfu explain {row['run_id']}{store_option(digest.night.store)}"


# --- share of failed launches -------------------------------------------------------------


def _failing(digest: NightDigest) -> Iterator[WatchedChange]:
    """Yield jobs whose launches fail more often than before."""
    by_job: dict[str, list[Row]] = {}
    for row in job_rows(digest.night):
        if name := row["series"] or row["job"]:
            by_job.setdefault(name, []).append(row)
    tonight = {run["run_id"] for run in digest.runs}
    for rows in by_job.values():
        failed = [row["outcome"] in BAD_OUTCOMES for row in rows]
        rise = failure_rise(failed)
        if rise is not None:
            yield _failing_view(rows, rise, tonight, digest)


def _failing_view(
    rows: Sequence[Row], rise: FailureRise, tonight: Collection[str], digest: NightDigest
) -> WatchedChange:
    first, found = rows[rise.first], rows[rise.confirmed_at]
    is_new = found["run_id"] in tonight and any(row["run_id"] not in tonight for row in rows)
    tracked = {row["series"] for row in digest.series}
    series = first["series"] if first["series"] in tracked else None
    since = f" since {format_day(first['at'], digest.night.at)}" if first["at"] else ""
    now = f"{rise.failed_since:,} of {count_noun(rise.launches_since, 'launch')}"
    before = f"{rise.failed_before:,} of {rise.launches_before:,} before"
    return WatchedChange(
        metric=None,
        series=series,
        job=None if series else first["job"],
        since=first["at"],
        clause=f"fails more often{since} ({now}, {before})",
        evidence=str(first["outcome_text"] or ""),
        fix=f"Read the log: {first['path']}" if first["path"] else "",
        run_id=first["run_id"],
        new=is_new,
        worse=True,
    )
