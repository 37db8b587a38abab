"""The nightly page: what changed tonight, then every series, its history, and tonight's runs.

One offline file, as reports.page.html_report makes them. It tells its own age, and it loads
`status.js` beside it, where a nightly that failed since has left word (`status_js`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import polars as pl

from ..page.html_cells import dotted_label, doubt_cell
from ..page.html_document import DASH, Column, Sheet, esc, number, packaged, table
from ..page.html_report import HTML_STYLE, verdict_html
from ..page.redaction import REDACTED
from ..text.tabular import percent
from ..text.verdict import count_noun
from . import history_charts
from .night_report import (
    BAD_OUTCOMES,
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
    NightSeries,
    Row,
    bad_outcome_runs,
    brief_headline,
    build_digest,
    change_clause,
    change_evidence,
    change_size,
    compare_command,
    format_day,
    headline,
    outcome_label,
    series_doubts,
    signed_percent,
    standing,
)

STATUS_FILE: Final = "status.js"
"""Beside the page: says that a nightly failed since, or nothing."""

LATE_HOURS: Final = 26
"""A nightly page that is older says so."""

MAX_OPEN_RUNS: Final = 40
"""Runs of a night that the page shows without a fold."""

SERIES_STYLE: Final = replace(HTML_STYLE, name=dotted_label)
"""A series' label says itself that it is synthetic; a run's does not."""

STATE_SYMBOLS: Final = {
    STATE_REGRESSED: "\N{BLACK DOWN-POINTING TRIANGLE}",
    STATE_IMPROVED: "\N{BLACK UP-POINTING TRIANGLE}",
    STATE_STEADY: "=",
    STATE_SUSPECT: "?",
    STATE_NEW: "\N{WHITE CIRCLE}",
}
"""A shape beside the word of each state, so that no state hangs on its colour."""


def pages(night: Night) -> tuple[str, str]:
    """The page, and the one that is kept under its date, as HTML text; drawn once.

    The latter says so, and asks for neither its age nor `status.js`. The same night gives the same
    bytes.
    """
    found = build_digest(night)
    points = {
        str(series): rows
        for (series,), rows in night.points.partition_by(
            "series", as_dict=True, maintain_order=True
        ).items()
    }
    sheet = Sheet()
    body = [
        verdict_html(headline(found, SERIES_STYLE), css_class="alarm" if found.regressions else ""),
        _changes(found, sheet),
        _all_series(found, points),
        _histories(found, points, sheet),
        _tonight(found, sheet),
        _left_out(found, sheet),
        _notes(night),
        _footer(night),
    ]
    title = f"{brief_headline(found)}: {night.title}"
    current, kept = ([_header(night, archived=archived), *body] for archived in (False, True))
    style = packaged("nightly.css")
    return (
        sheet.html(title, current, style=style, script=AGE_SCRIPT, script_file=STATUS_FILE),
        sheet.html(title, kept, style=style),
    )


def status_js(failed_at: datetime | str = "", why: str = "") -> str:
    """The text of `status.js`: that a nightly failed, when and why; a comment where all is well.

    failed_at: aware, or as ISO 8601.
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
  say("failed", `The nightly of ${at} failed: ${status.why}; below is the last good report.`);
}
if (hours > LATE) {
  const old = days === 1 ? "1 day" : `${days} days`;
  say("late", `This report is ${old} old` + (failed ? "." : ": the nightly has not run since."));
} else if (hours < -1) {
  say("late", "This report is dated ahead of this machine's clock.");
}
""".replace("LATE", str(LATE_HOURS), 1)  # noqa: E501 - a script
"""Says how old the page is, and what `status.js` tells, as text and never as markup."""


# --- the first screen -----------------------------------------------------------------------


def _header(night: Night, *, archived: bool) -> str:
    at = night.at
    moment = f"{format_day(at)}, {at:%H:%M} {at:%Z}".strip()
    made = f'<time id="made" datetime="{at.isoformat(timespec="seconds")}">{esc(moment)}</time>'
    kept = ", kept from that night" if archived else ""
    alarms = "".join(
        f'<p class="banner alarm" id="{name}" role="alert" hidden></p>'
        for name in ("failed", "late")
        if not archived
    )
    composed = (
        '<p class="banner"><strong>Synthetic</strong> runs stand on this page, each marked so: '
        "their logs were composed, not run, and say nothing of any framework's speed.</p>"
        if night.points["synthetic"].any()
        else ""
    )
    hidden = f" · {REDACTED}" if night.redacted else ""
    return (
        f"<header><h1>{esc(night.title)}</h1><p>Night {night.number:,}, {made}{kept}{hidden}</p>"
        f"{alarms}{composed}</header>"
    )


def _changes(digest: NightDigest, sheet: Sheet) -> str:
    """Tonight's changes, those that still stand, and the earlier ones folded."""
    fresh = [change for change in digest.changes if change["new"]]
    still = standing(digest)
    rest = [c for c in digest.changes if not c["new"] and not c["stands"]]
    rest.sort(key=lambda change: str(change["at"]), reverse=True)
    parts = [_listed("Found tonight", fresh, digest), _listed("Still standing", still, digest)]
    if rest:
        summary = f"{count_noun(len(rest), 'earlier change')}, no longer standing"
        parts.append(sheet.fold(summary, _items(rest, digest)))
    return f"<h2>What changed</h2>{''.join(parts)}" if any(parts) else ""


def _listed(heading: str, changes: Sequence[NightChange], digest: NightDigest) -> str:
    return f"<h3>{heading}</h3>{_items(changes, digest)}" if changes else ""


def _items(changes: Sequence[NightChange], digest: NightDigest) -> str:
    return f'<ul class="changes">{"".join(_item(change, digest) for change in changes)}</ul>'


def _item(change: NightChange, digest: NightDigest) -> str:
    now, threshold = digest.night.at, digest.night.threshold
    state = STATE_REGRESSED if change["kind"] == REGRESSION else STATE_IMPROVED
    quiet = "" if change["counts"] else " quiet"
    found_by = change_evidence(change, now, threshold, SERIES_STYLE)
    return (
        f'<li class="{state}{quiet}">'
        f'<span class="mark" aria-hidden="true">{STATE_SYMBOLS[state]}</span>'
        f"{change_clause(change, now, SERIES_STYLE)}."
        f'<span class="note">{found_by}{_command(change)}</span>'
        "</li>"
    )


def _command(change: NightChange) -> str:
    """What sets the runs on both sides against each other."""
    command = compare_command(change)
    return "" if command is None else f" Compare them: <code>{esc(command)}</code>."


# --- the series -----------------------------------------------------------------------------


def _all_series(digest: NightDigest, points: dict[str, pl.DataFrame]) -> str:
    if not digest.series:
        return ""
    rows = [
        row | {"place": place, "now": digest.night.at, "spark": _spark(row, points)}
        for place, row in enumerate(digest.series)
    ]
    columns = [c for c in SERIES_COLUMNS if c is not BASELINE_COLUMN or any(map(_pinned, rows))]
    shared = f"All of them: {esc(digest.shared)}. " if digest.shared else ""
    return (
        f"<h2>All series</h2>{table(_series_caption(digest), columns, rows, shared + SERIES_NOTE)}"
    )


def _series_caption(digest: NightDigest) -> str:
    return f"{count_noun(len(digest.series), 'series')}, what needs a look first"


SERIES_NOTE: Final = (
    "Level: TGS [tokens/s/GPU] since the last confirmed change, beneath it its 95 % interval. MFU: "
    "median of the level, exact attention. Last run: against the level. History: TGS of all runs, "
    "dashed where it changed."
)


def _pinned(row: Row) -> bool:
    return row["baseline_tgs"] is not None


def _state(row: Row) -> str:
    state = row["state"]
    fresh = any(change["new"] for change in row["changes"])
    doubt = ", last run suspect" if row["suspect"] and state != STATE_SUSPECT else ""
    word = f"{state}{' tonight' if fresh else ''}{doubt}"
    return (
        f'<span class="state {esc(state)}"><span class="mark" aria-hidden="true">'
        f"{STATE_SYMBOLS.get(state, '')}</span>{esc(word)}</span>"
    )


def _series_name(row: Row) -> str:
    return f'<a class="quiet" href="#series-{row["place"]}">{SERIES_STYLE.name(row)}</a>'


def _level(row: Row) -> str:
    if row["level"] is None:
        return DASH
    low, high = row["level_low"], row["level_high"]
    sure = "no interval" if low is None or high is None else f"{low:,.0f}{DASH}{high:,.0f}"
    return f'<strong>{row["level"]:,.0f}</strong><span class="small">{sure}</span>'


def _mfu(row: Row) -> str:
    if row["mfu"] is None:
        return DASH
    mixed = len(row["formulas"] or []) > 1
    warned = '<span class="small warning">mixed formulas</span>' if mixed else ""
    return percent(row["mfu"]) + warned


def _last(row: Row) -> str:
    if row["last_tgs"] is None:
        return DASH
    when, kind = format_day(row["last_at"], row["now"]), "small"
    if row["silent"] is not None:
        when, kind = f"{count_noun(row['silent'], 'day')} ago", "small warning"
    return f'{signed_percent(row["last_ratio"])}<span class="{kind}">{when}</span>'


def _against(row: Row) -> str:
    if row["against_baseline"] is None:
        return DASH
    ends = (row["against_low"], row["against_high"])
    sure = (
        "no interval"
        if None in ends
        else " to ".join(signed_percent(end).removesuffix(" %") for end in ends)
    )
    return f'{signed_percent(row["against_baseline"])}<span class="small">{sure}</span>'


def _last_change(row: Row) -> str:
    own = [c for c in row["changes"] if c["against"] != BASELINE and c["at"] is not None]
    if not own:
        return '<span class="muted">none</span>'
    last = max(own, key=lambda change: change["at"])
    word = "slower" if last["ratio"] < 1 else "faster"
    size = change_size(last).split(" (")[0].removesuffix(f" {word}")
    when = format_day(last["at"], row["now"])
    return f'{size} {word}<span class="small">{when}</span>'


SPARK_WIDE, SPARK_HIGH = 132, 28


def _spark(row: Row, points: dict[str, pl.DataFrame]) -> str:
    """The history as a small drawing: dots, and an upright at each change."""
    own = points.get(row["series"])
    changed = [c["at"] for c in row["changes"] if c["against"] != BASELINE and c["at"] is not None]
    places, marks = history_charts.spark(own, changed) if own is not None else ([], [])
    if len(places) < 2:  # noqa: PLR2004 - one point is no history
        return ""
    wide, high = SPARK_WIDE - 8, SPARK_HIGH - 8
    dots = [(4 + x * wide, 4 + (1 - y) * high) for x, y in places]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
    uprights = "".join(f'<path d="M{4 + wide * x:.1f} 1V{SPARK_HIGH - 1}"/>' for x in marks)
    end = f'<circle cx="{dots[-1][0]:.1f}" cy="{dots[-1][1]:.1f}" r="2.6"/>'
    return (
        f'<svg class="spark" viewBox="0 0 {SPARK_WIDE} {SPARK_HIGH}" width="{SPARK_WIDE}" '
        f'height="{SPARK_HIGH}" aria-hidden="true">{uprights}<polyline points="{path}"/>{end}</svg>'
    )


BASELINE_COLUMN: Final = Column("Against<br>baseline", _against, "number")
SERIES_COLUMNS: Final = (
    Column("Series", _series_name),
    Column("State", _state),
    Column("Level", _level, "number"),
    Column("MFU", _mfu, "number"),
    Column("Last run", _last, "number"),
    BASELINE_COLUMN,
    Column("Last change", _last_change, "number"),
    Column("History", lambda row: row["spark"]),
)


def _histories(digest: NightDigest, points: dict[str, pl.DataFrame], sheet: Sheet) -> str:
    """A chart for each series: open where it has something to tell, else folded."""
    if not digest.series:
        return ""
    parts = ["<h2>Histories</h2>", HISTORY_NOTE]
    for place, row in enumerate(digest.series):
        own = points.get(row["series"])
        if own is None:
            continue
        inner = _history(row, own, sheet)
        name, summary = f"series-{place}", f"{SERIES_STYLE.name(row)} {_in_short(row)}"
        if row["telling"]:
            parts.append(f'<div id="{name}"><h3>{summary}</h3>{inner}</div>')
        else:
            parts.append(sheet.fold(summary, inner, name=name))
    return "".join(parts)


HISTORY_NOTE: Final = (
    '<p class="note">Dots are runs, hollow where they lie far out; the line is the level between '
    "two confirmed changes; triangles below are what changed in the setup. Vertical axes do not "
    "start at 0.</p>"
)


def _history(row: NightSeries, points: pl.DataFrame, sheet: Sheet) -> str:
    warned = "".join(f'<p class="warning">{esc(words)}</p>' for words in series_doubts(row, points))
    chart = history_charts.history(row, points)
    drawn = sheet.figure(chart.spec) if points.height > 1 else ""
    spread = f" Runs of it spread by {percent(row['spread'])}." if row["spread"] is not None else ""
    whole = f"{esc(row['series'])}. {count_noun(row['points'], 'run')}. {chart.thin}{spread}"
    return f'{warned}{drawn}<p class="note">{whole}</p>'


def _in_short(row: NightSeries) -> str:
    rate = "" if row["level"] is None else f", {row['level']:,.0f} tokens/s/GPU"
    return f'<span class="figures">{_state(row)}{rate}</span>'


# --- tonight's runs, and what could not be read ------------------------------------------------


def _tonight(digest: NightDigest, sheet: Sheet) -> str:
    night = digest.night
    if not digest.runs:
        return ""
    bad = [
        f"<li>{esc(run['name'])}: {esc(outcome_label(run))}"
        + (
            f'<br><span class="log">{esc(run["outcome_text"])}</span>'
            if run["outcome_text"]
            else ""
        )
        + "</li>"
        for run in bad_outcome_runs(digest)
    ]
    failed = f"<h3>Did not complete</h3><ul>{''.join(bad)}</ul>" if bad else ""
    faster = "".join(f"<p>{esc(words)}</p>" for words in night.comparison)
    compared = f"<h3>Side by side, like for like</h3>{faster}" if faster else ""
    runs = table(count_noun(len(digest.runs), "run") + " tonight", NIGHT_RUN_COLUMNS, digest.runs)
    if len(digest.runs) > MAX_OPEN_RUNS:
        runs = sheet.fold(count_noun(len(digest.runs), "run"), runs)
    linked = (
        f'<p><a href="{esc(night.runs_page)}">All of tonight\'s runs, each with its formula, '
        "facts and warnings</a></p>"
        if night.runs_page
        else ""
    )
    return f"<h2>Tonight's runs</h2>{failed}{compared}{runs}{linked}"


def _run_tgs(run: Row) -> str:
    low, high = run["tgs_low"], run["tgs_high"]
    if run["tgs"] is None:
        return DASH
    sure = "no interval" if low is None or high is None else f"{low:,.0f}{DASH}{high:,.0f}"
    shown = f'<strong>{number(run["tgs"])}</strong><span class="small">{sure}</span>'
    return shown + doubt_cell(run)


def _outcome(run: Row) -> str:
    kind = "warning" if run["outcome"] in BAD_OUTCOMES else ""
    return f'<span class="{kind}">{esc(outcome_label(run))}</span>'


NIGHT_RUN_COLUMNS: Final = (
    Column("Run", HTML_STYLE.name),
    Column("Framework", lambda run: esc(run["framework"])),
    Column("TGS [tokens/s/GPU]<br>95 % interval", _run_tgs, "number"),
    Column("Against<br>its level", lambda run: signed_percent(run["against_level"]), "number"),
    Column(
        "MFU (exact<br>attention)",
        lambda run: DASH if run["mfu"] is None else percent(run["mfu"]),
        "number",
    ),
    Column("Outcome", _outcome, "text"),
)


def _left_out(digest: NightDigest, sheet: Sheet) -> str:
    """Sources that could not be read, and runs that are in no series, each with its reason."""
    failed = table("Logs that could not be read", FAILED_COLUMNS, digest.failed)
    unplaced = digest.night.unplaced.sort("name", "run_id")
    fresh = unplaced.join(digest.night.tonight.select("run_id"), on="run_id", how="semi")
    old = unplaced.join(fresh, on="run_id", how="anti")
    parts = [failed if digest.failed else "", _unplaced("tonight", fresh)]
    if old.height:
        summary = f"{count_noun(old.height, 'run')} of earlier nights in no series"
        whole = _unplaced("of earlier nights", old)
        parts.append(sheet.fold(summary, whole))
    shown = "".join(parts)
    return f"<h2>Not read, or in no series</h2>{shown}" if shown else ""


def _unplaced(which: str, rows: pl.DataFrame) -> str:
    if not rows.height:
        return ""
    return table(f"Runs {which} in no series", UNPLACED_COLUMNS, rows.iter_rows(named=True))


FAILED_COLUMNS: Final = (
    Column("Log", lambda row: f'<span class="name">{esc(row["path"])}</span>'),
    Column("Why", lambda row: esc(row["message"]).replace("\n", "<br>"), "text"),
)
UNPLACED_COLUMNS: Final = (
    Column("Run", lambda row: f'<span class="name">{esc(row["name"])}</span>'),
    Column("Why", lambda row: esc(row["why"]), "text"),
)


def _notes(night: Night) -> str:
    items = "".join(f"<li>{esc(words)}</li>" for words in night.notes)
    return f"<h2>Notes</h2><ul>{items}</ul>" if items else ""


def _footer(night: Night) -> str:
    least = f" Changes count from {percent(night.threshold)}." if night.threshold else ""
    return (
        f'<footer class="note"><p>Formula {esc(night.formula)} · fairmfu {esc(night.version)} · '
        f"made {esc(night.at.isoformat(timespec='seconds'))}.{least} "
        "Intervals are 95 %.</p></footer>"
    )
