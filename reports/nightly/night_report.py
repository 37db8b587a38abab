"""Sentences and rows of one night, shared by page, Markdown, JSON and JUnit.

`build_digest` reads a `Night` once. Every word and figure of the four outputs comes from here, so
they always agree. A `Style` defines how each output writes names and emphasis.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from math import log
from typing import Any, Final, cast

import polars as pl

from fairmfu.ingest.core.schema import BOOL, TEXT, TIMESTAMP
from fairmfu.metrics.compare.history import ChangeRow, SeriesRow
from fairmfu.metrics.compare.rhythm import MAX_CLOCK_LEAD, overdue
from fairmfu.metrics.compare.watched_metrics import WATCHED_SCHEMA
from fairmfu.metrics.core.run_table import MetricsRow

from ..text.commands import store_option, with_store
from ..text.run_narrative import BAD_OUTCOMES, OUTCOME_LABELS
from ..text.runs_table import unique_names as own_names
from ..text.tabular import count_noun, difference_text, percent
from ..text.verdict import PLAIN_STYLE, Style
from .jobs import JOB_SCHEMA


class NightChange(ChangeRow):
    """Change in the night's report: a row of history with names for people.

    new: first reported tonight; stands: the level is nearer to the new value than to the old
    run, before_run, found_run: names of the runs
    """

    new: bool
    label: str
    setup: str
    framework: str | None
    synthetic: bool
    stands: bool
    run: str
    before_run: str
    found_run: str | None


class NightSeries(SeriesRow):
    """Series in the night's report: a row of history with its changes.

    label: name of the job; setup: its facts, short
    ran: has a run of tonight; news: has a change of tonight, an alarm or a suspicion
    telling: has news, or a change that still stands; silent: days without a run, if more than usual
    """

    label: str
    setup: str
    synthetic: bool
    changes: list[NightChange]
    ran: bool
    news: bool
    telling: bool
    baseline_name: str | None
    silent: int | None


class NightRun(MetricsRow):
    """Run of tonight; against_level: TGS over the series' level."""

    label: str
    series: str | None
    against_level: float | None


Row = Mapping[str, Any]

REGRESSION, IMPROVEMENT = "regression", "improvement"
BASELINE: Final = "baseline"
DEFAULT_FAIL_ON: Final = ("regression", "crash", "missing")
"""Findings that make a night fail, unless `fail_on` names others."""

STATE_NEW, STATE_STEADY, STATE_SUSPECT, STATE_REGRESSED, STATE_IMPROVED = (
    "new",
    "steady",
    "suspect",
    "regressed",
    "improved",
)
"""The states of a series."""

SYNTHETIC_PART: Final = "synthetic"
"""Last part of a synthetic series' name (metrics.compare.history)."""

SOURCE_SCHEMA: Final = pl.Schema(
    {
        **dict.fromkeys(("path", "status", "message", "kind", "place", "launch_error"), TEXT),
        "new": BOOL,
    }
)
"""Columns of sources.

status: read, known, failed or passed; kind: identifier of the message
place: what the logs of one job share (ingest.extract.run_names.job_place), with a launch_error
launch_error: of a launch that failed before any step, so that it has no run
new: not told by an earlier night
"""

SOURCE_FAILED: Final = "failed"
"""Status of a source that could not be read."""

MAX_NAMED_ITEMS: Final = 3
"""Most series, runs or logs named in a sentence; the rest is counted."""


WATCHED_NIGHT_SCHEMA: Final = pl.Schema({**WATCHED_SCHEMA, "new": pl.Boolean()})
"""Changes of figures beside TGS, and whether a night reports them first."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Night:
    """Input of one night's report.

    at: aware time of the report; number: of the night in this store, from 1
    series, points, changes, unplaced: as in metrics.compare.history; changes with a column `new`
        (BOOL): first reported tonight
    tonight: METRICS rows of runs that are new or changed tonight
    sources: columns of SOURCE_SCHEMA
    notes: sentences on the night itself; comparison: who is faster among tonight's runs
    threshold: share below which a change does not count
    runs_page: relative link to the full report of tonight's runs
    redacted: the texts are redacted (reports.page.redaction)
    jobs: the job of every run (reports.nightly.jobs.JOB_SCHEMA)
    now: end of the night, on the clock of their starts
    fail_on: names of findings that make the night fail; told: keys of failures told before
    expected, ended: names of jobs that have to run, and that no longer run
    store: as a command names it
    watched: changes of other figures that count, columns of WATCHED_SCHEMA and `new` (BOOL)
    """

    title: str
    at: datetime
    number: int
    series: pl.DataFrame
    points: pl.DataFrame
    changes: pl.DataFrame
    unplaced: pl.DataFrame
    tonight: pl.DataFrame
    sources: pl.DataFrame
    formula: str
    version: str
    notes: Sequence[str] = ()
    threshold: float = 0.0
    runs_page: str | None = None
    comparison: Sequence[str] = ()
    redacted: bool = False
    jobs: pl.DataFrame = field(default_factory=JOB_SCHEMA.to_frame)
    now: datetime | None = None
    fail_on: Sequence[str] = DEFAULT_FAIL_ON
    told: Collection[str] = frozenset()
    expected: Sequence[str] = ()
    ended: Sequence[str] = ()
    store: str | None = None
    watched: pl.DataFrame = field(default_factory=WATCHED_NIGHT_SCHEMA.to_frame)


@dataclass(frozen=True, slots=True, eq=False)
class NightDigest:
    """Rows of a night, which nothing changes.

    series: NightSeries, worst first; changes: NightChange, those of tonight first
    shared: settings that all series share, left out of their labels
    runs: NightRun, of tonight; failed: sources that could not be read
    """

    night: Night
    series: list[NightSeries]
    changes: list[NightChange]
    shared: str
    runs: list[NightRun]
    failed: list[dict[str, Any]]

    @property
    def launches_without_steps(self) -> list[Row]:
        """Sources of tonight that hold a failed launch and no step, by name."""
        failed = self.night.sources.filter(pl.col("new"), pl.col("launch_error").is_not_null())
        return list(failed.sort("path").iter_rows(named=True))

    @property
    def regressions(self) -> list[NightChange]:
        """Regressions that count and are new tonight, or are against a baseline."""
        return [change for change in self.changes if is_alarm(change)]


def is_alarm(change: Row) -> bool:
    """Return whether a change makes the night exit with 3."""
    loud = change["new"] or change["against"] == BASELINE
    return bool(change["kind"] == REGRESSION and change["counts"] and loud)


# --- rows ---------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def build_digest(night: Night) -> NightDigest:
    """Return the night as rows, in the order of the report.

    Every output of a night begins with it, so that of the last night is kept.
    """
    known = _Known.of(night)
    changes = [known.change(row) for row in night.changes.iter_rows(named=True)]
    changes.sort(key=_first_told)
    series = [known.one_series(row, changes) for row in night.series.iter_rows(named=True)]
    series.sort(key=_worst)
    failed = night.sources.filter(pl.col("status") == SOURCE_FAILED).sort("path")
    return NightDigest(
        night, series, changes, known.shared, _runs(night), list(failed.iter_rows(named=True))
    )


@dataclass(frozen=True, slots=True)
class _Known:
    """Lookups for the rows of a night, by series or run.

    now: end of the night; jobs: rows of JOB_SCHEMA by series
    labels: names of jobs, else of their set-ups; setups: short; shared: by all series
    names: of runs; pinned: time of the baseline's run
    synthetic, tonight: series that are synthetic, and that have a run of tonight
    """

    now: datetime
    jobs: Mapping[str, Sequence[Row]]
    labels: Mapping[str, str]
    setups: Mapping[str, str]
    shared: str
    names: Mapping[str, str]
    frameworks: Mapping[str, str]
    levels: Mapping[str, float | None]
    pinned: Mapping[str, datetime]
    synthetic: frozenset[str]
    tonight: frozenset[str]

    @classmethod
    def of(cls, night: Night) -> _Known:
        setups, shared = series_labels(night.series["series"].to_list())
        synthetic = frozenset(night.points.filter("synthetic")["series"])
        jobs: dict[str, list[Row]] = {}
        for row in job_rows(night):
            jobs.setdefault(row["series"] or "", []).append(row)
        ran = night.points.filter(pl.col("run_id").is_in(night.tonight["run_id"].implode()))
        return cls(
            now=digest_now(night),
            jobs=jobs,
            labels=setups | _job_labels(jobs, synthetic),
            setups=setups,
            shared=shared,
            names=run_names(night),
            frameworks=_frameworks(night),
            levels=dict(night.series.select("series", "level").iter_rows()),
            pinned=_pinned(night),
            synthetic=synthetic,
            tonight=frozenset(ran["series"]),
        )

    def about(self, series: str) -> dict[str, Any]:
        """Return the fields that accompany a series everywhere."""
        return {
            "label": self.labels.get(series, series),
            "setup": self.setups.get(series, series),
            "framework": self.frameworks.get(series),
            "synthetic": series in self.synthetic,
        }

    def change(self, row: Row) -> NightChange:
        """Return a row of CHANGE_SCHEMA with the night's fields."""
        level, pinned = self.levels.get(row["series"]), self.pinned.get(row["series"])
        more = {
            "stands": _stands(row, level, pinned),
            "run": self.names.get(row["run_id"], row["run_id"]),
            "before_run": self.names.get(row["last_before"], row["last_before"]),
            "found_run": self.names.get(row["found_by"], row["found_by"]),
        }
        return cast(NightChange, {**row, **self.about(row["series"]), **more})

    def one_series(self, row: Row, changes: Sequence[NightChange]) -> NightSeries:
        """Return a row of SERIES_SCHEMA with the night's fields; changes: of all series."""
        own = [change for change in changes if change["series"] == row["series"]]
        starts = [one["at"] for one in self.jobs.get(row["series"], ()) if one["at"] is not None]
        silence = overdue(starts, self.now)
        news = bool(row["suspect"]) or any(c["new"] or is_alarm(c) for c in own)
        more = {
            "changes": own,
            "ran": row["series"] in self.tonight,
            "news": news,
            "telling": news or any(c["stands"] for c in own),
            "baseline_name": self.names.get(row["baseline_run"], row["baseline_run"]),
            "silent": None if silence is None else silence.days,
        }
        return cast(NightSeries, {**row, **self.about(row["series"]), **more})


def series_labels(series: Sequence[str]) -> tuple[dict[str, str], str]:
    """Return a short label per series without shared parts, and the shared parts.

    The first two parts, framework and model as a rule, always stay, and so does SYNTHETIC_PART: in
    many places a label is all that identifies a series. `8 x NVIDIA H100 SXM` becomes `8 x H100
    SXM` if labels stay distinct.
    """
    parts = {name: name.split(", ") for name in series}
    several = len(parts) > 1
    shared = set.intersection(*map(set, parts.values())) if several else set[str]()
    shared.discard(SYNTHETIC_PART)
    plain = {
        name: ", ".join(part for place, part in enumerate(own) if place < 2 or part not in shared)  # noqa: PLR2004
        for name, own in parts.items()
    }
    first = next(iter(parts.values()), [])
    said = ", ".join(part for part in first[2:] if part in shared)
    for short in ({name: MAKER_AND_MEMORY.sub("", text) for name, text in plain.items()}, plain):
        if len(set(short.values())) == len(parts):
            return short, said
    return {name: name for name in parts}, ""


MAKER_AND_MEMORY: Final = re.compile(r"\b(?:NVIDIA|AMD) |(?<=\w) \d+GB(?: HBM\w*)?\b")
"""Maker and memory in a device's name, besides the model."""


def _job_labels(jobs: Mapping[str, Sequence[Row]], synthetic: Collection[str]) -> dict[str, str]:
    """Return the name of each series' job, where it has one."""
    names = {series: rows[-1]["job"] for series, rows in jobs.items() if series}
    mark = dict.fromkeys(synthetic, f", {SYNTHETIC_PART}")
    return {series: f"{name}{mark.get(series, '')}" for series, name in names.items() if name}


def digest_now(night: Night) -> datetime:
    """Return the end of the night, without a zone, on the clock of the runs' starts."""
    return night.now or night.at.astimezone(UTC).replace(tzinfo=None)


def earlier_night(night: Night) -> str:
    """Return the day of the runs if the report is of a later day; else an empty text."""
    of_runs = digest_now(night)
    if night.at.replace(tzinfo=None) - of_runs < MAX_CLOCK_LEAD:
        return ""
    return f", runs up to {format_day(of_runs)}"


def job_rows(night: Night) -> list[Row]:
    """Return the runs of all jobs, oldest first.

    A start in the future comes first: a wrong clock. Without `jobs`, the points are the runs.
    """
    rows = night.jobs if night.jobs.height else _runs_without_jobs(night)
    future = pl.col("at") > digest_now(night) + MAX_CLOCK_LEAD
    found: list[Row] = [*rows.sort(~future, "at", "run_id", nulls_last=False).to_dicts()]
    return found


def _runs_without_jobs(night: Night) -> pl.DataFrame:
    """Return the points and the other runs of tonight, columns of JOB_SCHEMA."""
    fresh = night.tonight.select(
        "run_id", "name", "framework", "outcome", "outcome_text", at="started_at"
    ).with_columns(pl.col("at").cast(TIMESTAMP))
    points = night.points.select("run_id", "name", "series", "at", "outcome")
    placed = points.update(fresh.select("run_id", "outcome"), on="run_id", how="left").join(
        fresh.select("run_id", "outcome_text", "framework"), on="run_id", how="left"
    )
    others = fresh.join(points, on="run_id", how="anti")
    return pl.concat([JOB_SCHEMA.to_frame(), placed, others], how="diagonal")


def _frameworks(night: Night) -> dict[str, str]:
    if "framework" not in night.series.columns:
        return {}
    return dict(night.series.select("series", "framework").iter_rows())


def _pinned(night: Night) -> dict[str, datetime]:
    """Return the time of each series' baseline run."""
    pins = night.series.filter(pl.col("baseline_run").is_not_null())
    runs = night.points.select("run_id", "at")
    joined = pins.join(runs, left_on="baseline_run", right_on="run_id")
    return dict(joined.select("series", "at").iter_rows())


def _stands(change: Row, level: float | None, pinned: datetime | None) -> bool:
    """Return whether the level is nearer to the change's new value than to its old.

    A baseline pinned after the change accepts the change.
    """
    if change["against"] == BASELINE:
        return True
    if not level or not change["before"] or not change["after"]:
        return False
    if pinned is not None and change["at"] is not None and change["at"] <= pinned:
        return False
    return abs(log(level / change["after"])) < abs(log(level / change["before"]))


def _first_told(change: NightChange) -> tuple[Any, ...]:
    """Return a sort key: new, standing, counting, regression, large changes first."""
    return (
        not change["new"],
        not change["stands"],
        not change["counts"],
        change["kind"] != REGRESSION,
        -abs(log(change["ratio"])) if change["ratio"] else 0.0,
        change["series"],
        str(change["at"]),
    )


def _worst(series: NightSeries) -> tuple[Any, ...]:
    order = (STATE_REGRESSED, STATE_SUSPECT, STATE_IMPROVED, STATE_STEADY, STATE_NEW)
    place = order.index(series["state"]) if series["state"] in order else len(order)
    fresh = any(change["new"] for change in series["changes"])
    return not any(map(is_alarm, series["changes"])), not fresh, place, series["series"]


def run_names(night: Night) -> dict[str, str]:
    """Return a name per run_id: unique among all runs that the report may name."""
    frames = (night.points, night.tonight, night.unplaced)
    runs = pl.concat([frame.select("run_id", "name") for frame in frames])
    return own_names(runs.unique("run_id", maintain_order=True))


def _runs(night: Night) -> list[NightRun]:
    placed = night.points.select("run_id", "series", "level")
    known = run_names(night)
    runs = night.tonight.join(placed, on="run_id", how="left", maintain_order="left")
    against = runs.with_columns(against_level=pl.col("tgs") / pl.col("level")).drop("level")
    rows = [row | {"label": known[row["run_id"]]} for row in against.iter_rows(named=True)]
    return cast(list[NightRun], rows)


# --- words and numbers --------------------------------------------------------------------

MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def format_day(moment: datetime | None, now: datetime | None = None) -> str:
    """Return 12 March 2026; without the year if `now` is in the same year."""
    if moment is None:
        return "an unknown day"
    year = "" if now is not None and now.year == moment.year else f" {moment.year}"
    return f"{moment.day} {MONTHS[moment.month - 1]}{year}"


def join_some(words: Sequence[str]) -> str:
    """Return "a; b; c"; beyond MAX_NAMED_ITEMS, the first ones and a count.

    Separated by semicolons, because names of series and reasons contain commas.
    """
    if len(words) <= MAX_NAMED_ITEMS:
        return "; ".join(words)
    more = f"{len(words) - MAX_NAMED_ITEMS + 1:,} more"
    return "; ".join([*words[: MAX_NAMED_ITEMS - 1], more])


def change_size(change: NightChange, style: Style = PLAIN_STYLE) -> str:
    """Return `5.1 % slower (4.6 to 5.6)`, or the distance from the baseline."""
    size, interval = difference_text(change["ratio"], change["ratio_low"], change["ratio_high"])
    down = change["ratio"] < 1
    if change["against"] == BASELINE:
        way = "below its baseline" if down else "above its baseline"
    else:
        way = "slower" if down else "faster"
    sure = f" {style.quiet(f'({interval})')}" if interval else ""
    return style.strong(f"{size} {way}") + sure


def change_causes(change: Row) -> str:
    """Return what changed between the last good and the first bad run, as a sentence."""
    causes = change["causes"] or []
    return f". Changed then: {join_some(causes)}" if causes else ""


def change_clause(change: NightChange, now: datetime, style: Style = PLAIN_STYLE) -> str:
    """Return one change in a clause, and its causes in a sentence; no full stop."""
    since = f" since {format_day(change['at'], now)}" if change["at"] is not None else ""
    return (
        f"{style.name(change)} is {change_size(change, style)}{since}"
        f"{style.plain(change_causes(change))}"
    )


def change_evidence(
    change: NightChange, now: datetime, threshold: float, style: Style = PLAIN_STYLE
) -> str:
    """Return levels, the runs on both sides and the confirming run, in a sentence."""
    before, after = f"{change['before']:,.0f}", f"{change['after']:,.0f}"
    plain = style.plain
    before_run = plain(change["before_run"])
    if change["against"] == BASELINE:
        words = [f"Baseline {before_run}: {before} tokens/s/GPU", f"now {after}"]
    else:
        words = [f"From {before} to {after} tokens/s/GPU"]
        words.append(f"last run before: {before_run}")
        words.append(f"first run after: {plain(change['run'])}")
    if change["found_by"] is not None:
        is_same = change["found_by"] == change["run_id"]
        sure = "the same run" if is_same else f"run {plain(str(change['found_run']))}"
        words.append(f"confirmed on {format_day(change['found_at'], now)} by {sure}")
    words.append(f"{count_noun(change['points_after'], 'run')} since the change")
    if not change["causes"] and change["against"] != BASELINE:
        words.append("the logs show no setup change at that point")
    if not change["counts"]:
        words.append(f"below the threshold of {percent(threshold)}, so it does not count")
    return "; ".join(words) + "."


def compare_command(change: Row, night: Night) -> str | None:
    """Return the command that compares the runs on both sides of a change, by id."""
    ids = [run_id for run_id in (change["last_before"], change["run_id"]) if run_id is not None]
    known = len(ids) > 1 and all(re.fullmatch(r"[\w-]+", run_id) for run_id in ids)
    return f"fairmfu compare {' '.join(ids)}{store_option(night.store)}" if known else None


def outcome_label(run: Row) -> str:
    """Return the outcome of a run, in words."""
    return OUTCOME_LABELS.get(run["outcome"] or "", "unknown")


def failure_label(run: Row) -> str:
    """Return framework and outcome of a run, such as `xtuner, crashed`."""
    return ", ".join(filter(None, (run["framework"], outcome_label(run))))


# --- selections ---------------------------------------------------------------------------


def standing(digest: NightDigest) -> list[NightChange]:
    """Return changes of earlier nights that still stand."""
    return [change for change in digest.changes if change["stands"] and not change["new"]]


def standing_heading(changes: Sequence[NightChange]) -> str:
    """Return the heading of changes of earlier nights."""
    bad = all(change["kind"] == REGRESSION for change in changes)
    return "Open regressions" if bad else "Earlier changes still in effect"


def suspects(digest: NightDigest) -> list[NightSeries]:
    """Return series whose last run is an outlier, not yet confirmed by a second run."""
    return [row for row in digest.series if row["suspect"]]


def suspect_clause(series: NightSeries, style: Style = PLAIN_STYLE) -> str:
    """Return `NAME, last run 6.2 % below its level`."""
    if series["last_ratio"] is None:
        return style.name(series)
    size, _ = difference_text(series["last_ratio"], None, None)
    way = "below" if series["last_ratio"] < 1 else "above"
    return f"{style.name(series)}, last run {style.strong(f'{size} {way}')} its level"


def bad_outcome_runs(digest: NightDigest) -> list[NightRun]:
    """Return runs of tonight with a crash, out of memory, killed or without a loss."""
    return [run for run in digest.runs if run["outcome"] in BAD_OUTCOMES]


def failed_runs(digest: NightDigest) -> list[NightRun]:
    """Return runs of tonight that could not be computed."""
    return [run for run in digest.runs if run["error"] is not None]


# --- doubts ---------------------------------------------------------------------------------


def formula_dates(points: pl.DataFrame) -> list[str]:
    """Return the formulas of a series' points, with dates and number of points."""
    by = (
        points.filter(pl.col("formula").is_not_null())
        .group_by("formula")
        .agg(first=pl.col("at").min(), last=pl.col("at").max(), n=pl.len())
        .sort("first", "formula")
    )
    return [
        f"{row['formula']}: {format_day(row['first'])} to {format_day(row['last'])}, "
        f"{count_noun(row['n'], 'run')}"
        for row in by.iter_rows(named=True)
    ]


def series_doubts(series: NightSeries, points: pl.DataFrame, store: str | None = None) -> list[str]:
    """Return doubts to know before reading a series' history. store: of `Night`."""
    found = []
    if len(series["formulas"] or []) > 1:
        found.append(
            "MFU comes from several formulas, so an MFU step between them is not a speed change: "
            f"{'; '.join(formula_dates(points))}. TGS does not depend on the formula. "
            "Fix: fairmfu rescore."
        )
    if len(series["peaks"] or []) > 1:
        found.append("MFU comes from several peak tables. Fix: fairmfu rescore.")
    if series["setups"]:
        found.append(
            "This series seems to mix several jobs: some facts go back and forth "
            f'({"; ".join(series["setups"])}). Fix: split the series with "by" in fairmfu.toml.'
        )
    return [with_store(doubt, store) for doubt in found]
