"""Sentences and rows of one night, shared by page, Markdown, JSON and JUnit.

`build_digest` reads a `Night` once. Every word and figure of the four outputs comes from here, so
they always agree. A `Style` defines how each output writes names and emphasis.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import log
from typing import Any, Final, cast

import polars as pl

from fairmfu.ingest.core.schema import OUTCOMES
from fairmfu.metrics.compare.change_points import MIN_POINTS
from fairmfu.metrics.compare.history import BASELINE_WITHOUT_SERIES, ChangeRow, SeriesRow
from fairmfu.metrics.core.run_table import MetricsRow, not_null

from ..text.claims_text import join_words
from ..text.run_narrative import OUTCOME_LABELS
from ..text.runs_table import unique_names as own_names
from ..text.tabular import percent
from ..text.verdict import PLAIN_STYLE, Style, Verdict, count_noun


class NightChange(ChangeRow):
    """Change in the night's report: a row of history with names for people.

    new: first reported tonight; stands: the level is nearer to the new value than to the old
    run, before_run, found_run: names of the runs
    """

    new: bool
    label: str
    framework: str | None
    synthetic: bool
    stands: bool
    run: str
    before_run: str
    found_run: str | None


class NightSeries(SeriesRow):
    """Series in the night's report: a row of history with its changes.

    ran: has a run of tonight; news: has a change of tonight, an alarm or a suspicion
    telling: has news, or a change that still stands; silent: days without a run, if more than usual
    """

    label: str
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

SOURCE_FAILED: Final = "failed"
"""Status of a source that could not be read."""

BAD_OUTCOMES: Final = tuple(one for one in OUTCOMES if one not in ("completed", "incomplete"))
"""Outcomes that the first screen names; `incomplete` may still run."""

MAX_NAMED_ITEMS: Final = 3
"""Most series, runs or logs named in a sentence; the rest is counted."""

MIN_SILENT_GAPS: Final = 3
MIN_SILENCE: Final = timedelta(days=2)
MAX_EXTRA_SILENCE: Final = timedelta(days=30)
"""A series is missed after MIN_SILENT_GAPS of its usual gaps, at least MIN_SILENCE, and at most
MAX_EXTRA_SILENCE longer: a series that is silent for much longer has ended.
"""

EXIT_NO_REGRESSION, EXIT_REGRESSION, EXIT_UNREAD_SOURCE = 0, 3, 4
"""Exit codes; 1 and 2 are the command's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """Input of one night's report.

    at: aware time of the report; number: of the night in this store, from 1
    series, points, changes, unplaced: as in metrics.compare.history; changes with a column `new`
        (BOOL): first reported tonight
    tonight: METRICS rows of runs that are new or changed tonight
    sources: path, status (read, known, failed, passed), message, kind (identifier of the message)
    notes: sentences on the night itself; comparison: who is faster among tonight's runs
    threshold: share below which a change does not count
    runs_page: relative link to the full report of tonight's runs
    redacted: the texts are redacted (reports.page.redaction)
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


@dataclass(frozen=True, slots=True)
class NightDigest:
    """Rows of a night.

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
    def regressions(self) -> list[NightChange]:
        """Regressions that count and are new tonight, or are against a baseline."""
        return [change for change in self.changes if is_alarm(change)]


def exit_code(night: Night) -> int:
    """Return 3 on a regression of tonight or against a baseline, else 4 or 0.

    4 if a log failed: the log cannot be read, or its run cannot be computed.
    """
    if any(map(is_alarm, night.changes.iter_rows(named=True))):
        return EXIT_REGRESSION
    unread = (night.sources["status"] == SOURCE_FAILED).any()
    failed = night.tonight["error"].is_not_null().any()
    return EXIT_UNREAD_SOURCE if unread or failed else EXIT_NO_REGRESSION


def is_alarm(change: Row) -> bool:
    """Return whether a change makes the night exit with 3."""
    loud = change["new"] or change["against"] == BASELINE
    return bool(change["kind"] == REGRESSION and change["counts"] and loud)


# --- rows ---------------------------------------------------------------------------------


def build_digest(night: Night) -> NightDigest:
    """Return the night as rows, in the order of the report."""
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

    labels: short; shared: by all series; names: of runs; pinned: time of the baseline's run
    synthetic, tonight: series that are synthetic, and that have a run of tonight
    """

    at: datetime
    labels: Mapping[str, str]
    shared: str
    names: Mapping[str, str]
    frameworks: Mapping[str, str]
    levels: Mapping[str, float | None]
    pinned: Mapping[str, datetime]
    synthetic: frozenset[str]
    tonight: frozenset[str]

    @classmethod
    def of(cls, night: Night) -> _Known:
        labels, shared = series_labels(night.series["series"].to_list())
        ran = night.points.filter(pl.col("run_id").is_in(night.tonight["run_id"].implode()))
        return cls(
            at=night.at,
            labels=labels,
            shared=shared,
            names=run_names(night),
            frameworks=_frameworks(night),
            levels=dict(night.series.select("series", "level").iter_rows()),
            pinned=_pinned(night),
            synthetic=frozenset(night.points.filter("synthetic")["series"]),
            tonight=frozenset(ran["series"]),
        )

    def about(self, series: str) -> dict[str, Any]:
        """Return the fields that accompany a series everywhere."""
        return {
            "label": self.labels.get(series, series),
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
        news = bool(row["suspect"]) or any(c["new"] or is_alarm(c) for c in own)
        more = {
            "changes": own,
            "ran": row["series"] in self.tonight,
            "news": news,
            "telling": news or any(c["stands"] for c in own),
            "baseline_name": self.names.get(row["baseline_run"], row["baseline_run"]),
            "silent": _silent_days(row, self.at),
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


def _silent_days(series: Row, now: datetime) -> int | None:
    """Return the days without a run, if longer than usual for this series."""
    first, last, nights = series["first_at"], series["last_at"], series["nights"]
    if first is None or last is None or nights < MIN_SILENT_GAPS:
        return None
    since: timedelta = now.astimezone(UTC).replace(tzinfo=None) - last
    usual = (last - first) / (nights - 1)
    least = max(MIN_SILENT_GAPS * usual, MIN_SILENCE)
    return since.days if least < since < least + MAX_EXTRA_SILENCE else None


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


def signed_percent(ratio: float | None) -> str:
    """Return 0.949 as -5.1 % and 1.02 as +2.0 %, with a real minus sign."""
    if ratio is None:
        return "\N{EN DASH}"
    text = f"{100 * (ratio - 1):+.1f} %"
    if float(text[:-2]) == 0:
        return "0.0 %"
    return text.replace("-", "\N{MINUS SIGN}")


def difference_text(ratio: float, low: float | None, high: float | None) -> tuple[str, str]:
    """Return the unsigned distance from 1 and its interval: `5.1 %`, `4.6 to 5.6`.

    One decimal; two if one decimal would hide the difference or equal an end of the interval.
    """
    way = -1 if ratio < 1 else 1
    ends = (
        [] if low is None or high is None else sorted(100 * way * (end - 1) for end in (low, high))
    )
    size, interval = "", []
    for digits in (1, 2):
        size = f"{100 * way * (ratio - 1):.{digits}f}"
        interval = [f"{end:.{digits}f}".replace("-", "\N{MINUS SIGN}") for end in ends]
        if float(size) and size not in interval:
            break
    return f"{size} %", " to ".join(interval)


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


def change_causes(change: NightChange) -> str:
    """Return the setup changes at the same time, as the end of a clause."""
    causes = change["causes"] or []
    return f"; changed at the same time: {join_some(causes)}" if causes else ""


def change_clause(change: NightChange, now: datetime, style: Style = PLAIN_STYLE) -> str:
    """Return one change in a clause: series, size, interval, date, and causes."""
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


def compare_command(change: NightChange) -> str | None:
    """Return the command that compares the runs on both sides of a change, by id."""
    ids = [run_id for run_id in (change["last_before"], change["run_id"]) if run_id is not None]
    known = len(ids) > 1 and all(re.fullmatch(r"[\w-]+", run_id) for run_id in ids)
    return f"fairmfu compare {' '.join(ids)}" if known else None


def outcome_label(run: Row) -> str:
    """Return the outcome of a run, in words."""
    return OUTCOME_LABELS.get(run["outcome"] or "", "unknown")


def failure_label(run: Row) -> str:
    """Return framework and outcome of a run, such as `xtuner, crashed`."""
    return ", ".join(filter(None, (run["framework"], outcome_label(run))))


# --- the sentences ------------------------------------------------------------------------


def headline(digest: NightDigest, style: Style = PLAIN_STYLE) -> Verdict:
    """Return the first sentence of the report, and its notes."""
    news = _news(digest, style)
    notes = [
        "" if news is None else _tonight(digest),
        _lost_baselines(digest, style),
        _others(digest),
        _standing(digest, style),
        _suspects(digest, style),
        _not_read(digest, style),
        _not_watched(digest, style),
        _silent_series(digest, style),
        _mixed(digest, style),
    ]
    speed = _no_news(digest) if news is None else news
    first = " ".join(filter(None, (_ended_badly(digest, style), _failed(digest, style), speed)))
    return Verdict("", first, tuple(note for note in notes if note))


def brief_headline(digest: NightDigest) -> str:
    """Return the first sentence in brief, such as `1 regression tonight`."""
    if bad := bad_outcome_runs(digest):
        return f"{_how_many_of(bad, digest.runs)} did not complete"
    says = _news(digest, PLAIN_STYLE) or _no_news(digest)
    return re.split(r"[:.,](?:\s|$)", says, maxsplit=1)[0]


def _how_many_of(some: Sequence[NightRun], runs: Sequence[NightRun]) -> str:
    if len(some) == len(runs):
        return "The only run" if len(runs) == 1 else f"All {len(runs):,} runs"
    return f"{len(some):,} of {count_noun(len(runs), 'run')}"


def _news(digest: NightDigest, style: Style) -> str | None:
    """Return the worst news of the night; None without a change to report."""
    now, changes = digest.night.at, digest.changes
    fresh = [c for c in changes if c["new"] and c["counts"]]
    worse = [c for c in fresh if c["kind"] == REGRESSION]
    held = [c for c in digest.regressions if not c["new"]]
    better = [c for c in fresh if c["kind"] == IMPROVEMENT]
    if worse:
        return f"{_how_many(worse, 'regression')} tonight{_lead(worse, now, style)}"
    if held:
        n = len({c["series"] for c in held})
        still = f"{count_noun(n, 'series')} {'is' if n == 1 else 'are'} still below"
        its = "its baseline" if n == 1 else "their baselines"
        return f"No new regression, but {still} {its}{_lead(held, now, style)}"
    if better:
        return f"{_how_many(better, 'improvement')} tonight{_lead(better, now, style)}"
    return None


def _how_many(changes: Sequence[NightChange], noun: str) -> str:
    return count_noun(len({c["series"] for c in changes}), noun)


def _lead(changes: Sequence[NightChange], now: datetime, style: Style) -> str:
    one = len({c["series"] for c in changes}) == 1
    return f"{': ' if one else ', the largest: '}{change_clause(changes[0], now, style)}."


def _no_news(digest: NightDigest) -> str:
    """Return the first sentences of a night without a change that counts."""
    ran = [row for row in digest.series if row["ran"]]
    runs = f"{count_noun(len(digest.runs), 'run')} tonight."
    first = "No new speed change."
    if not digest.runs:
        first = "No new run tonight."
    elif any(change["new"] for change in digest.changes):
        first = f"No new speed change above the threshold of {percent(digest.night.threshold)}."
    elif suspects(digest):
        first = "No new confirmed speed change."
    elif not ran:
        first = "Nothing to compare."
    elif all(row["state"] == STATE_NEW for row in digest.series):
        return f"{_history_needed(digest.series)} {runs}"
    elif not any(row["state"] == STATE_NEW for row in ran):
        return f"{_unchanged(digest)} {runs}"
    return f"{first} {_tonight(digest)}"


def _history_needed(series: Sequence[NightSeries]) -> str:
    most = max(row["points"] for row in series)
    who = "" if len(series) == 1 else f"the longest of {len(series):,} series has "
    return f"Not enough history: {who}{most:,} of {MIN_POINTS} runs needed."


def _unchanged(digest: NightDigest) -> str:
    """Return the sentence that no measured series changed its speed."""
    ran, every = sum(row["ran"] for row in digest.series), len(digest.series)
    if ran == every:
        where = "the only series" if every == 1 else f"any of the {every:,} series"
        return f"No new speed change in {where}."
    outcomes = {run["outcome"] for run in digest.runs if run["series"] is not None}
    how = "completed" if outcomes == {"completed"} else "measured"
    have, whose = ("has", "its") if ran == 1 else ("have", "their")
    only = f"Only {ran:,} of {every:,} series {have} a {how} run tonight"
    return f"{only}; {whose} speed has not changed."


def _tonight(digest: NightDigest) -> str:
    """Return the number of runs and series tonight, and of series by news."""
    ran = [row for row in digest.series if row["ran"]]
    every = count_noun(len(digest.series), "series")
    if not digest.runs:
        return f"{every} in the history."
    text = f"{count_noun(len(digest.runs), 'run')} tonight"
    if not ran:
        return f"{text}, in no series."
    few = sum(row["state"] == STATE_NEW for row in ran)
    doubt = sum(bool(row["suspect"]) for row in ran if row["state"] != STATE_NEW)
    moved = sum(
        any(c["new"] for c in row["changes"])
        for row in ran
        if row["state"] != STATE_NEW and not row["suspect"]
    )
    counts = {
        "unchanged": len(ran) - few - doubt - moved,
        "changed": moved,
        "suspect": doubt,
        "with too few runs": few,
    }
    parts = ", ".join(f"{n:,} {words}" for words, n in counts.items() if n)
    series = every if len(ran) == len(digest.series) else f"{len(ran):,} of {every}"
    return f"{text} in {series}: {parts}."


def _others(digest: NightDigest) -> str:
    """Return news left out of the first sentence: improvements, and small changes."""
    fresh = [c for c in digest.changes if c["new"]]
    better = [c for c in fresh if c["kind"] == IMPROVEMENT and c["counts"]]
    parts = []
    if better and any(map(is_alarm, digest.changes)):
        parts.append(f"{_how_many(better, 'improvement')} tonight")
    small = [c for c in fresh if not c["counts"]]
    if small:
        below = f"below the threshold of {percent(digest.night.threshold)}"
        parts.append(f"{count_noun(len(small), 'change')} {below}")
    return f"Also {join_words(parts)}." if parts else ""


def standing(digest: NightDigest) -> list[NightChange]:
    """Return changes of earlier nights that still stand."""
    return [change for change in digest.changes if change["stands"] and not change["new"]]


def standing_heading(changes: Sequence[NightChange]) -> str:
    """Return the heading of changes of earlier nights."""
    bad = all(change["kind"] == REGRESSION for change in changes)
    return "Open regressions" if bad else "Earlier changes still in effect"


def _standing(digest: NightDigest, style: Style) -> str:
    fresh = {c["series"] for c in digest.changes if c["new"] or is_alarm(c)}
    old = [c for c in standing(digest) if c["series"] not in fresh]
    down = [c for c in old if c["kind"] == REGRESSION and c["counts"]]
    if not down:
        return ""
    n = len({c["series"] for c in down})
    verb = "is" if n == 1 else "are"
    named = join_some([style.plain(label) for label in dict.fromkeys(c["label"] for c in down)])
    return f"{count_noun(n, 'series')} {verb} still slower after an earlier regression: {named}."


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


def _suspects(digest: NightDigest, style: Style) -> str:
    doubt = [suspect_clause(row, style) for row in suspects(digest)]
    if not doubt:
        return ""
    return f"Suspect until another run confirms it: {join_some(doubt)}."


def bad_outcome_runs(digest: NightDigest) -> list[NightRun]:
    """Return runs of tonight with a crash, out of memory, killed or without a loss."""
    return [run for run in digest.runs if run["outcome"] in BAD_OUTCOMES]


def failed_runs(digest: NightDigest) -> list[NightRun]:
    """Return runs of tonight that could not be computed."""
    return [run for run in digest.runs if run["error"] is not None]


def _failed(digest: NightDigest, style: Style) -> str:
    bad = [style.plain(f"{run['label']} ({run['error']})") for run in failed_runs(digest)]
    if not bad:
        return ""
    return (
        f"{count_noun(len(bad), 'run')} could not be analysed because of a bug in fairmfu: "
        f"{join_some(bad)}. Other runs are not affected. Please report it with the log."
    )


def _ended_badly(digest: NightDigest, style: Style) -> str:
    bad = bad_outcome_runs(digest)
    if not bad:
        return ""
    named = join_some([style.plain(f"{run['label']} ({failure_label(run)})") for run in bad])
    return f"{_how_many_of(bad, digest.runs)} tonight did not complete: {named}."


def _not_read(digest: NightDigest, style: Style) -> str:
    paths = [style.plain(row["path"]) for row in digest.failed]
    return (
        f"{count_noun(len(paths), 'log')} could not be read: {join_some(paths)}." if paths else ""
    )


def _not_watched(digest: NightDigest, style: Style) -> str:
    """Return runs of tonight in no series, with reasons if few."""
    why = dict(digest.night.unplaced.select("run_id", "why").iter_rows())
    left = [
        run
        for run in digest.runs
        if run["series"] is None and run["outcome"] not in BAD_OUTCOMES and run["error"] is None
    ]
    if not left:
        return ""
    named = [
        style.plain(
            f"{run['label']} ({why[run['run_id']]})" if run["run_id"] in why else run["label"]
        )
        for run in left
    ]
    one = len(left) == 1
    which = join_some(named) if len(left) <= MAX_NAMED_ITEMS else "the report says why"
    return (
        f"{count_noun(len(left), 'run')} tonight {'is' if one else 'are'} in no series, "
        f"so {'its' if one else 'their'} speed is not tracked: {which}."
    )


def _lost_baselines(digest: NightDigest, style: Style) -> str:
    """Return a note on pinned runs with a rate but no series."""
    lost = digest.night.unplaced.filter(pl.col("why") == BASELINE_WITHOUT_SERIES)["name"].to_list()
    if not lost:
        return ""
    one = len(lost) == 1
    verb = style.strong(f"{'is' if one else 'are'} not checked")
    why = "its run is" if one else "their runs are"
    named = join_some([style.plain(name) for name in lost])
    return (
        f"{count_noun(len(lost), 'baseline')} {verb}, because {why} in no series: {named}. "
        "Fix: set another run as baseline, or remove the baseline (fairmfu baseline -h)."
    )


def _silent_series(digest: NightDigest, style: Style) -> str:
    late = [row for row in digest.series if row["silent"] is not None]
    if not late:
        return ""
    ages = [f"newest run {count_noun(not_null(row['silent']), 'day')} old" for row in late]
    labels = [style.plain(row["label"]) for row in late]
    named = join_some([f"{label} ({age})" for label, age in zip(labels, ages, strict=True)])
    have = "has" if len(late) == 1 else "have"
    return f"{count_noun(len(late), 'job')} {have} stopped reporting: {named}."


def _mixed(digest: NightDigest, style: Style) -> str:
    mixed = [row for row in digest.series if len(row["formulas"] or []) > 1]
    if not mixed:
        return ""
    named = join_some([style.plain(row["label"]) for row in mixed])
    return f"MFU comes from several formulas in {count_noun(len(mixed), 'series')}: {named}."


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


def series_doubts(series: NightSeries, points: pl.DataFrame) -> list[str]:
    """Return doubts to know before reading a series' history."""
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
    return found
