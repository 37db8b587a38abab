"""Nightly page: tonight's changes, every series with its history, tonight's runs.

An offline file, made like those of reports.page.html_report, from the template night.html.j2. The
page shows its own age, and loads `status.js` from the same folder. A later failed nightly leaves a
notice there (`status_js`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import polars as pl
from markupsafe import Markup

from fairmfu.metrics.core.run_table import not_null

from ..page.html_document import Sheet
from ..page.html_style import SERIES_STYLE, Sentences
from ..page.html_templates import packaged, render, trusted
from ..page.redaction import REDACTED
from ..text.run_narrative import BAD_OUTCOMES
from ..text.tabular import count_noun, percent, signed_percent
from . import history_charts
from .findings import (
    FAILED,
    NOT_ANALYSED,
    SILENT,
    STILL_FAILED,
    STILL_WORSE,
    STOPPED,
    WATCHED_FINDINGS,
    Finding,
    evidence_and_fix,
    find,
    job_states,
    of_kinds,
    urgent_first,
)
from .headline import brief_headline, headline
from .night_report import (
    BASELINE,
    REGRESSION,
    STATE_IMPROVED,
    STATE_NEW,
    STATE_REGRESSED,
    STATE_STEADY,
    STATE_SUSPECT,
    Night,
    NightChange,
    NightDigest,
    NightRun,
    NightSeries,
    Row,
    build_digest,
    change_clause,
    change_evidence,
    change_size,
    compare_command,
    earlier_night,
    format_day,
    outcome_label,
    run_names,
    series_doubts,
    standing,
    standing_heading,
)

STATUS_FILE: Final = "status.js"
"""File beside the page: names a later failed nightly, or nothing."""

LATE_HOURS: Final = 26
"""Age from which a nightly page shows that it is old."""

MAX_OPEN_RUNS: Final = 40
"""Most runs of a night that the page shows unfolded."""

STATE_SYMBOLS: Final = {
    STATE_REGRESSED: "\N{BLACK DOWN-POINTING TRIANGLE}",
    STATE_IMPROVED: "\N{BLACK UP-POINTING TRIANGLE}",
    STATE_STEADY: "=",
    STATE_SUSPECT: "?",
    STATE_NEW: "\N{WHITE CIRCLE}",
}
"""Shape beside the word of each state, so that no state depends on its colour."""

BROKEN: Final = "broken"
BROKEN_SYMBOL: Final = "\N{MULTIPLICATION SIGN}"
"""Colour and shape of jobs that failed or are missing."""


# --- what the template shows ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cell:
    """Text of a table cell, with small text beneath.

    value: of the text, in the unit of the column, to sort by; warned: highlighted
    """

    text: str
    beneath: str = ""
    value: float | None = None
    warned: bool = False


@dataclass(frozen=True, slots=True)
class ChangeView:
    """Change of a series: state (its colour), clause, and evidence.

    command: compares the runs on both sides
    """

    state: str
    symbol: str
    counts: bool
    clause: Markup
    evidence: Markup
    command: str | None


@dataclass(frozen=True, slots=True)
class SparkView:
    """Small history drawing [px]: points of the line, and positions of the verticals."""

    width: int
    height: int
    line: Sequence[tuple[str, str]]
    uprights: Sequence[str]


@dataclass(frozen=True, slots=True)
class HistoryView:
    """Chart of a series, null for a single run, with the texts above and beneath."""

    doubts: Sequence[str]
    chart: Mapping[str, Any] | None
    note: str


@dataclass(frozen=True, slots=True)
class SeriesView:
    """Series in the table. row: name and framework; cells are null if unknown.

    anchor: id of the history; state, symbol, word: the state, and the state in words
    history: null without points; telling: the history is shown open
    """

    row: NightSeries
    anchor: str
    state: str
    symbol: str
    word: str
    level: Cell | None
    mfu: Cell | None
    last_run: Cell | None
    against_baseline: Cell | None
    last_change: Cell | None
    spark: SparkView | None
    history: HistoryView | None
    telling: bool


@dataclass(frozen=True, slots=True)
class RunView:
    """Run of tonight. row: its name, framework and doubts."""

    row: NightRun
    tgs: Cell | None
    against_level: str
    mfu: float | None
    outcome: str
    failed: bool


@dataclass(frozen=True, kw_only=True)
class NightView:
    """Data for the template of a night.

    day: of the night, with its time; made_at: ISO 8601; alarm: a finding makes the night fail
    broken: jobs that failed or are missing, worst first
    new_changes, standing, past: changes; shared: settings that all series share; pinned: some
        series has a baseline
    failed: logs by path and reason, line by line
    unplaced_tonight, unplaced_before: runs in no series, of tonight and of earlier nights
    """

    sheet: Sheet
    night: Night
    day: str
    made_at: str
    synthetic: bool
    redacted: str
    verdict: Sentences
    alarm: bool
    broken: Sequence[ChangeView]
    new_changes: Sequence[ChangeView]
    standing: Sequence[ChangeView]
    standing_heading: str
    past: Sequence[ChangeView]
    series: Sequence[SeriesView]
    shared: str
    pinned: bool
    runs: Sequence[RunView]
    failed: Sequence[tuple[str, Sequence[str]]]
    unplaced_tonight: Sequence[Row]
    unplaced_before: Sequence[Row]
    threshold: str
    most_open_runs: int = MAX_OPEN_RUNS


def pages(night: Night) -> tuple[str, str]:
    """Return the current page, and the archived page, as HTML text; drawn once.

    The archived page says so, and has no script for its age or `status.js`. The same night gives
    the same bytes.
    """
    digest = build_digest(night)
    view = _night_view(digest)
    sheet, title = view.sheet, f"{night.title}: {brief_headline(digest)}"
    body = render("nightly/night.html.j2", page=view)
    current, kept = (
        render("nightly/header.html.j2", page=view, archived=archived) + body
        for archived in (False, True)
    )
    style = packaged("nightly.css")
    return (
        sheet.html(title, current, style=style, script=AGE_SCRIPT, script_file=STATUS_FILE),
        sheet.html(title, kept, style=style),
    )


def status_js(failed_at: datetime | str = "", why: str = "") -> str:
    """Return the text of `status.js`: time and reason of a failed nightly, if any.

    Else the text is a comment. failed_at: aware, or as ISO 8601; empty if no nightly failed
    """
    if not failed_at:
        return "// fairmfu nightly: all is well.\n"
    at = failed_at if isinstance(failed_at, str) else failed_at.isoformat(timespec="seconds")
    said = json.dumps({"failed_at": at, "why": why}).replace("<", "\\u003c")
    return f"window.fairmfuNightly = {said};\n"


AGE_SCRIPT: Final = """
const say = (id, text) => {
  const line = document.getElementById(id);
  line.textContent = text;
  line.hidden = false;
};
const made = new Date(document.getElementById("made").dateTime);
const hours = (Date.now() - made) / 3.6e6;
const days = Math.floor(hours / 24);
const status = window.fairmfuNightly;
const failed = status && status.failed_at && new Date(status.failed_at) > made;
if (failed) {
  const at = new Date(status.failed_at).toLocaleString("en-GB", {dateStyle: "long", timeStyle: "short"});
  say("failed", `The nightly of ${at} failed. This is the last good report. Reason: ${status.why}`);
}
if (hours > LATE) {
  const old = days === 1 ? "1 day" : `${days} days`;
  say("late", `This report is ${old} old` + (failed ? "." : ": the nightly has not run since."));
} else if (hours < -1) {
  say("late", "The date of this report is later than the clock of this computer.");
}
""".replace("LATE", str(LATE_HOURS), 1)  # noqa: E501 - a script
"""Shows the page's age and the notice of `status.js`, as text and never as markup."""


# --- from a night to what is shown -----------------------------------------------------------


def _night_view(digest: NightDigest) -> NightView:
    night = digest.night
    points = {
        str(series): rows
        for (series,), rows in night.points.partition_by(
            "series", as_dict=True, maintain_order=True
        ).items()
    }
    unplaced = _unplaced(night)
    findings = find(digest)
    fresh = unplaced.join(night.tonight.select("run_id"), on="run_id", how="semi")
    return NightView(
        sheet=Sheet(),
        night=night,
        day=f"{format_day(night.at)}, {night.at:%H:%M} {night.at:%Z}".strip()
        + earlier_night(night),
        made_at=night.at.isoformat(timespec="seconds"),
        synthetic=bool(night.points["synthetic"].any()),
        redacted=REDACTED if night.redacted else "",
        verdict=Sentences.of(headline(digest, SERIES_STYLE)),
        alarm=any(one.fails for one in findings),
        broken=_broken(findings),
        new_changes=_fresh(digest, findings),
        standing=_standing(digest, findings),
        standing_heading=standing_heading(standing(digest)),
        past=_changes(_past(digest), night),
        series=[
            _series(row, place, points.get(row["series"]), night, findings)
            for place, row in enumerate(urgent_first(digest, findings))
        ],
        shared=digest.shared,
        pinned=any(row["baseline_tgs"] is not None for row in digest.series),
        runs=[_run(run) for run in digest.runs],
        failed=[(row["path"], str(row["message"]).split("\n")) for row in digest.failed],
        unplaced_tonight=fresh.to_dicts(),
        unplaced_before=unplaced.join(fresh, on="run_id", how="anti").to_dicts(),
        threshold=percent(night.threshold) if night.threshold else "",
    )


def _past(digest: NightDigest) -> list[NightChange]:
    """Return changes of earlier nights that are no longer in effect, newest first."""
    past = [change for change in digest.changes if not change["new"] and not change["stands"]]
    return sorted(past, key=lambda change: str(change["at"]), reverse=True)


def _unplaced(night: Night) -> pl.DataFrame:
    """Return the runs in no series, with a unique `label`."""
    label = pl.col("run_id").replace_strict(run_names(night), return_dtype=pl.String)
    return night.unplaced.sort("name", "run_id").with_columns(label=label)


def _changes(changes: Sequence[NightChange], night: Night) -> list[ChangeView]:
    return [_change(change, night) for change in changes]


def _broken(findings: Sequence[Finding]) -> list[ChangeView]:
    """Return jobs that failed or are missing, with the line of the log and what to do."""
    plain = SERIES_STYLE.plain
    return [
        _change_view(
            BROKEN,
            f"{SERIES_STYLE.name(one.job)}: {plain(one.detail)}",
            plain(evidence_and_fix(one)),
            None,
        )
        for one in of_kinds(findings, FAILED, SILENT, STOPPED, STILL_FAILED, NOT_ANALYSED)
    ]


def _fresh(digest: NightDigest, findings: Sequence[Finding]) -> list[ChangeView]:
    """Return tonight's changes of speed, then of figures beside it."""
    changes = [change for change in digest.changes if change["new"]]
    watched = of_kinds(findings, *WATCHED_FINDINGS)
    return [*_changes(changes, digest.night), *map(_watched, watched)]


def _standing(digest: NightDigest, findings: Sequence[Finding]) -> list[ChangeView]:
    """Return changes of earlier nights that stand, of speed and of figures beside it."""
    watched = of_kinds(findings, STILL_WORSE)
    return [*_changes(standing(digest), digest.night), *map(_watched, watched)]


def _change(change: NightChange, night: Night) -> ChangeView:
    state = STATE_REGRESSED if change["kind"] == REGRESSION else STATE_IMPROVED
    return _change_view(
        state,
        change_clause(change, night.at, SERIES_STYLE),
        change_evidence(change, night.at, night.threshold, SERIES_STYLE),
        compare_command(change, night),
        counts=change["counts"],
    )


def _watched(finding: Finding) -> ChangeView:
    """Return a change of a figure beside TGS."""
    plain = SERIES_STYLE.plain
    what, _, command = finding.fix.partition(": ")
    is_compared = what == "Compare"
    more = "" if is_compared else f" {plain(finding.fix)}"
    return _change_view(
        STATE_REGRESSED,
        f"{SERIES_STYLE.name(finding.job)} {plain(finding.detail)}",
        f"{plain(finding.evidence)}{more}".strip(),
        command if is_compared else None,
    )


def _change_view(
    state: str, clause: str, evidence: str, command: str | None, *, counts: bool = True
) -> ChangeView:
    """Return the view of a change; clause, evidence: as SERIES_STYLE writes them."""
    return ChangeView(
        state=state,
        symbol=STATE_SYMBOLS.get(state, BROKEN_SYMBOL),
        counts=counts,
        clause=trusted(clause),
        evidence=trusted(evidence),
        command=command,
    )


# --- the series -----------------------------------------------------------------------------


def _series(
    row: NightSeries,
    index: int,
    points: pl.DataFrame | None,
    night: Night,
    findings: Sequence[Finding],
) -> SeriesView:
    bad, _ = job_states(findings).get(row["series"], ("", None))
    return SeriesView(
        row=row,
        anchor=f"series-{index}",
        state=STATE_REGRESSED if bad else row["state"],
        symbol=BROKEN_SYMBOL if bad else STATE_SYMBOLS.get(row["state"], ""),
        word=bad or state_words(row),
        level=_rate(row["level"], row["level_low"], row["level_high"]),
        mfu=_mfu(row),
        last_run=_last_run(row, night.at),
        against_baseline=_against_baseline(row),
        last_change=_last_change(row, night.at),
        spark=_spark(row, points),
        history=None if points is None else _history(row, points, night.store),
        telling=row["telling"] or bool(bad),
    )


def state_words(row: Row) -> str:
    """Return a series' state, with notes if new tonight or if its last run is suspect."""
    fresh = any(change["new"] for change in row["changes"])
    doubt = ", last run suspect" if row["suspect"] and row["state"] != STATE_SUSPECT else ""
    return f"{row['state']}{' tonight' if fresh else ''}{doubt}"


def _rate(tgs: float | None, low: float | None, high: float | None) -> Cell | None:
    """Return a TGS with its interval beneath."""
    if tgs is None:
        return None
    known = low is not None and high is not None
    beneath = f"{low:,.0f}\N{EN DASH}{high:,.0f}" if known else "no interval"
    return Cell(f"{tgs:,.0f}", beneath, tgs)


def _mfu(row: NightSeries) -> Cell | None:
    if row["mfu"] is None:
        return None
    mixed = len(row["formulas"] or []) > 1
    beneath = "mixed formulas" if mixed else ""
    return Cell(percent(row["mfu"]), beneath, 100 * row["mfu"], warned=mixed)


def _last_run(row: NightSeries, now: datetime) -> Cell | None:
    if row["last_tgs"] is None:
        return None
    ratio, value = signed_percent(row["last_ratio"]), _in_percent(row["last_ratio"])
    if row["silent"] is not None:
        return Cell(ratio, f"{count_noun(row['silent'], 'day')} ago", value, warned=True)
    return Cell(ratio, format_day(row["last_at"], now), value)


def _in_percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _against_baseline(row: NightSeries) -> Cell | None:
    if row["against_baseline"] is None:
        return None
    ends = (row["against_low"], row["against_high"])
    sure = " to ".join(signed_percent(end).removesuffix(" %") for end in ends)
    beneath, value = "no interval" if None in ends else sure, _in_percent(row["against_baseline"])
    return Cell(signed_percent(row["against_baseline"]), beneath, value)


def _own_changes(row: NightSeries) -> list[NightChange]:
    """Return the dated changes of the series' own history."""
    return [c for c in row["changes"] if c["against"] != BASELINE and c["at"] is not None]


def _last_change(row: NightSeries, now: datetime) -> Cell | None:
    if not (own := _own_changes(row)):
        return None
    last = max(own, key=lambda change: not_null(change["at"]))
    value = _in_percent(last["ratio"] - 1)
    return Cell(change_size(last).split(" (")[0], format_day(last["at"], now), value)


SPARK_WIDTH, SPARK_HEIGHT, SPARK_MARGIN = 132, 28, 4
"""Size and margin of the small history [px]."""


def _spark(row: NightSeries, points: pl.DataFrame | None) -> SparkView | None:
    """Draw the small history: TGS over time, with a vertical at each change."""
    if points is None:
        return None
    changed_at = [not_null(change["at"]) for change in _own_changes(row)]
    places, marks = history_charts.spark(points, changed_at)
    if len(places) < 2:  # noqa: PLR2004 - one point is no history
        return None
    wide, high = SPARK_WIDTH - 2 * SPARK_MARGIN, SPARK_HEIGHT - 2 * SPARK_MARGIN
    return SparkView(
        width=SPARK_WIDTH,
        height=SPARK_HEIGHT,
        line=[
            (f"{SPARK_MARGIN + x * wide:.1f}", f"{SPARK_MARGIN + (1 - y) * high:.1f}")
            for x, y in places
        ],
        uprights=[f"{SPARK_MARGIN + x * wide:.1f}" for x in marks],
    )


def _history(row: NightSeries, points: pl.DataFrame, store: str | None) -> HistoryView:
    chart = history_charts.history(row, points)
    spread = row["spread"]
    noise = "" if spread is None else f" Run-to-run standard deviation: {percent(spread)}."
    return HistoryView(
        doubts=series_doubts(row, points, store),
        chart=chart.spec if points.height > 1 else None,
        note=f"{row['series']}. {count_noun(row['points'], 'run')}. {chart.thin}{noise}",
    )


# --- tonight's runs -------------------------------------------------------------------------


def _run(run: NightRun) -> RunView:
    return RunView(
        row=run,
        tgs=_rate(run["tgs"], run["tgs_low"], run["tgs_high"]),
        against_level=signed_percent(run["against_level"]),
        mfu=run["mfu"],
        outcome=outcome_label(run),
        failed=run["outcome"] in BAD_OUTCOMES,
    )
