"""Nightly outputs for chats and programs: Markdown, JSON, JUnit XML and SVG.

All are pure functions of a `Night`, with the words of the page.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import polars as pl

from fairmfu.metrics.compare.change_points import MIN_POINTS
from fairmfu.metrics.core.run_table import value_of

from ..charts.charts import Spec
from ..charts.theme import chart_theme
from ..page.chart_export import spec_svg
from ..page.redaction import REDACTED
from ..text.markdown import MARKDOWN_STYLE, svg_name
from ..text.tabular import count_noun, for_xml
from . import history_charts
from .findings import (
    JOB_STATES,
    NOT_ANALYSED,
    SILENT,
    UNREAD,
    WATCHED_FINDINGS,
    Finding,
    exit_code,
    find,
    job_states,
    of_kinds,
    urgent_first,
)
from .headline import headline
from .night_report import (
    SOURCE_FAILED,
    STATE_NEW,
    Night,
    NightChange,
    NightDigest,
    NightRun,
    NightSeries,
    bad_outcome_runs,
    build_digest,
    change_clause,
    change_evidence,
    compare_command,
    earlier_night,
    failed_runs,
    failure_label,
    format_day,
    series_doubts,
    standing,
    standing_heading,
    suspect_clause,
)

SUMMARY_SCHEMA_VERSION: Final = "1"
"""Version of summary.json; docs/summary.schema.json describes the file."""


# --- Markdown -------------------------------------------------------------------------------


MAX_NEW_CHANGES, MAX_STANDING_CHANGES, MAX_LIST_ITEMS = 5, 3, 2
"""Most changes of tonight, standing changes of earlier nights, and items of every other list."""


def markdown(night: Night) -> str:
    """Return the night in some forty lines at most, for a chat or a pull request."""
    found = build_digest(night)
    said = headline(found, MARKDOWN_STYLE)
    bullets = [_bullet(change, night) for change in found.changes if change["new"]]
    fresh = [bullet for bullet in bullets if bullet not in said.says]
    above = {change["series"] for change in found.regressions[:1]}
    others = [change for change in standing(found) if change["series"] not in above]
    watched = [one for one in of_kinds(find(found), *WATCHED_FINDINGS) if one.new]
    failed = [
        *_some([_crash(run) for run in bad_outcome_runs(found)]),
        *_some([_not_read(row) for row in _without_run(found)]),
    ]
    notes = [
        *_some([MARKDOWN_STYLE.plain(words) for words in night.comparison]),
        *_some([MARKDOWN_STYLE.plain(words) for words in night.notes]),
    ]
    lines = [
        f"### {MARKDOWN_STYLE.plain(night.title)}: {format_day(night.at)}{earlier_night(night)}",
        "",
        said.says,
        *_evidence(found),
        *([""] if said.notes else []),
        *(f"- {note}" for note in said.notes),
        *_section(
            "Also found tonight" if len(fresh) < len(bullets) else "Found tonight",
            _some(fresh, MAX_NEW_CHANGES),
        ),
        *_section(
            standing_heading(others),
            _some([_bullet(c, night) for c in others], MAX_STANDING_CHANGES),
        ),
        *_section("Evidence", _some([_watched(one) for one in watched], MAX_STANDING_CHANGES)),
        *_section("Failed runs and logs", failed),
        *_section("Notes", notes),
        "",
        f"Formula {MARKDOWN_STYLE.plain(night.formula)}, "
        f"fairmfu {MARKDOWN_STYLE.plain(night.version)}."
        + (f" {REDACTED.capitalize()}." if night.redacted else ""),
    ]
    return "\n".join(lines) + "\n"


def _evidence(digest: NightDigest) -> list[str]:
    """Return the evidence for the worst regression, and a command to look into it."""
    worst = next(iter(digest.regressions), None)
    if worst is None:
        return []
    told_by = change_evidence(worst, digest.night.at, digest.night.threshold, MARKDOWN_STYLE)
    command = compare_command(worst, digest.night)
    look = f" Compare: `{command}`" if command else ""
    return ["", f"{told_by}{look}"]


def _watched(finding: Finding) -> str:
    """Return the evidence for a change of a figure beside TGS, and its remedy."""
    what, _, command = finding.fix.partition(": ")
    is_command = command.startswith("fairmfu ")
    fix = f"{what}: `{command}`" if is_command else MARKDOWN_STYLE.plain(finding.fix)
    name, evidence = MARKDOWN_STYLE.name(finding.job), MARKDOWN_STYLE.plain(finding.evidence)
    return " ".join(part for part in (f"{name}:", evidence, fix) if part)


def _section(heading: str, items: Sequence[str]) -> list[str]:
    return ["", f"{heading}:", "", *(f"- {item}" for item in items)] if items else []


def _some(items: Sequence[str], most: int = MAX_LIST_ITEMS) -> list[str]:
    more = len(items) - most
    return [*items[:most], *([f"… and {more:,} more in the report"] if more > 0 else [])]


def _bullet(change: NightChange, night: Night) -> str:
    counts = "" if change["counts"] else " (below the threshold, does not count)"
    return f"{change_clause(change, night.at, MARKDOWN_STYLE)}{counts}"


MAX_MESSAGE_TEXT: Final = 200


def _crash(run: NightRun) -> str:
    cause = (
        f": {MARKDOWN_STYLE.plain(run['outcome_text'][:MAX_MESSAGE_TEXT])}"
        if run["outcome_text"]
        else ""
    )
    log = f" Log: {MARKDOWN_STYLE.plain(run['sources'][0])}" if run["sources"] else ""
    return f"{MARKDOWN_STYLE.plain(run['label'])} ({failure_label(run)}){cause}{log}"


def _without_run(digest: NightDigest) -> list[Mapping[str, Any]]:
    """Return the sources that could not be read, and launches without steps."""
    sources = (*digest.failed, *digest.launches_without_steps)
    return list({source["path"]: source for source in sources}.values())


def _not_read(source: Mapping[str, Any]) -> str:
    why = str(source["message"]).partition("\n")[0]
    path, why = (MARKDOWN_STYLE.plain(text) for text in (source["path"], why[:MAX_MESSAGE_TEXT]))
    kind = "failed" if source["launch_error"] else "unreadable"
    return f"{path} ({kind}): {why}"


# --- JSON -----------------------------------------------------------------------------------


def summary(night: Night) -> dict[str, Any]:
    """Return the night as JSON data, by docs/summary.schema.json.

    Rates in tokens/s/GPU, shares as fractions, times as ISO 8601 in UTC; null if unknown.
    """
    found = build_digest(night)
    said = headline(found)
    findings = find(found)
    fails = {id(one.change) for one in findings if one.fails and one.change is not None}
    changes = [_change(change, night, fails=id(change) in fails) for change in found.changes]
    return {
        "schema": SUMMARY_SCHEMA_VERSION,
        "title": night.title,
        "at": night.at.isoformat(timespec="seconds"),
        "night": night.number,
        "exit_code": exit_code(night),
        "says": said.says,
        "notes": [*said.notes, *night.notes],
        "fail_on": [*night.fail_on],
        "findings": [_finding(one) for one in findings],
        "regressions": [c for c in changes if c["kind"] == "regression"],
        "improvements": [c for c in changes if c["kind"] != "regression"],
        "series": [_series(row, found, findings) for row in urgent_first(found, findings)],
        "runs": [_run(run) for run in found.runs],
        "unplaced": _records(night.unplaced.sort("name", "run_id")),
        "sources": _sources(night),
        "comparison": [*night.comparison],
        "formula": night.formula,
        "version": night.version,
        "threshold": night.threshold,
        "redacted": night.redacted,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.kind.identifier,
        "severity": finding.kind.severity,
        "job": finding.job["label"] or None,
        "series": finding.series,
        "since": _plain(finding.since),
        "days": finding.days,
        "new": finding.new,
        "detail": "; ".join(filter(None, (finding.detail, finding.reason))),
        "evidence": finding.evidence,
        "fix": finding.fix,
        "run_id": finding.run_id,
        "fails": finding.fails,
    }


def _change(change: NightChange, night: Night, *, fails: bool) -> dict[str, Any]:
    names = (
        *("series", "label", "against", "kind", "new", "stands", "counts", "at", "run_id", "run"),
        *("last_before", "found_at", "found_by", "before", "after"),
        *("ratio", "ratio_low", "ratio_high", "points_after"),
    )
    picked = {name: _plain(value_of(change, name)) for name in names}
    more = {"causes": change["causes"] or [], "says": change_clause(change, night.at) + "."}
    return {**picked, **more, "fails": fails}


def _series(row: NightSeries, digest: NightDigest, findings: Sequence[Finding]) -> dict[str, Any]:
    names = (
        *("series", "label", "framework", "state", "suspect", "synthetic", "ran", "points"),
        *("nights", "first_at", "last_at", "level", "level_low", "level_high", "spread", "mfu"),
        *("last_run", "last_tgs", "last_ratio"),
    )
    lists = {name: row[name] or [] for name in ("formulas", "peaks", "setups")}
    points = digest.night.points.filter(series=row["series"])
    return {
        **{name: _plain(value_of(row, name)) for name in names},
        "job_state": job_states(findings).get(row["series"], (None,))[0],
        "days_without_a_run": row["silent"],
        **lists,
        "warnings": series_doubts(row, points, digest.night.store),
        "baseline": _baseline(row),
    }


def _baseline(row: NightSeries) -> dict[str, Any] | None:
    if row["baseline_run"] is None:
        return None
    return {
        "run_id": row["baseline_run"],
        "run": row["baseline_name"],
        "tgs": _plain(row["baseline_tgs"]),
        "ratio": _plain(row["against_baseline"]),
        "ratio_low": _plain(row["against_low"]),
        "ratio_high": _plain(row["against_high"]),
    }


def _run(run: NightRun) -> dict[str, Any]:
    names = (
        *("run_id", "name", "framework", "framework_version", "model", "accelerator", "gpus"),
        *("seq_len", "precision", "series", "tgs", "tgs_low", "tgs_high", "against_level", "mfu"),
        *(
            "mfu_full_attention",
            "formula",
            "outcome",
            "outcome_text",
            "started_at",
            "synthetic",
            "error",
        ),
    )
    return {name: _plain(value_of(run, name)) for name in names}


def _sources(night: Night) -> dict[str, Any]:
    held = dict(night.sources.group_by("status").len().iter_rows())
    failed = (
        night.sources.filter(pl.col("status") == SOURCE_FAILED)
        .select("path", "message", "kind")
        .sort("path")
    )
    counts = {status: held.get(status, 0) for status in ("read", "known", "passed")}
    return {**counts, "failed": _records(failed)}


def _records(frame: pl.DataFrame) -> list[dict[str, Any]]:
    return [{k: _plain(v) for k, v in row.items()} for row in frame.iter_rows(named=True)]


def _plain(value: Any) -> Any:  # noqa: ANN401 - a cell of a frame
    """Return a cell for JSON: no NaN or infinity; a time as text, naive ones in UTC."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return aware.isoformat(timespec="seconds")
    return value


# --- JUnit ----------------------------------------------------------------------------------


def junit(night: Night) -> str:
    """Return JUnit XML: a test case per job, and one per unread or uncomputed log.

    A case has an error if its job failed or is missing. It fails on a finding that makes the night
    fail. It is skipped if its job has too few runs.
    """
    found = build_digest(night)
    findings = find(found)
    cases = [_case(row, found, findings) for row in urgent_first(found, findings)]
    cases += [
        _job_case("error", one.job["label"], one.kind.identifier, _words(one))
        for one in findings
        if one.kind in JOB_STATES and one.series is None
    ]
    cases += [
        _job_case("failure", one.job["label"], one.kind.identifier, _sentence(one, night.at))
        for one in _loud(findings)
        if one.series is None
    ]
    cases += [_log_case(row["path"], "unreadable", row["message"] or "") for row in found.failed]
    cases += [_log_case(run["label"], "fault", run["error"] or "") for run in failed_runs(found)]
    totals = {"tests": str(len(cases))}
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        totals[name] = str(sum(case.find(tag) is not None for case in cases))
    stamp = night.at.isoformat(timespec="seconds")
    suite = ET.Element("testsuite", {"name": for_xml(night.title), "timestamp": stamp, **totals})
    suite.extend(cases)
    said = headline(found)
    ET.SubElement(suite, "system-out").text = for_xml("\n".join([said.says, *said.notes]))
    suites = ET.Element("testsuites", {"name": "fairmfu nightly", **totals})
    suites.append(suite)
    ET.indent(suites)
    text: str = ET.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _case(row: NightSeries, digest: NightDigest, findings: Sequence[Finding]) -> ET.Element:
    now, states = digest.night.at, job_states(findings)
    case = ET.Element("testcase", {"classname": "fairmfu.series", "name": for_xml(row["series"])})
    state, worst = states.get(row["series"], (row["state"], None))
    mine = [one for one in _loud(findings) if one.series == row["series"]]
    loud = [_sentence(one, now) for one in mine]
    if worst is not None:
        _add(case, "error", worst.kind.identifier, [_words(worst), *loud])
    elif loud:
        is_speed = mine[0].change is not None
        _add(case, "failure", "regression" if is_speed else mine[0].kind.identifier, loud)
    elif row["state"] == STATE_NEW:
        message = f"not enough history: {row['points']:,} of {MIN_POINTS} runs needed"
        ET.SubElement(case, "skipped", {"message": message})
    ET.SubElement(case, "system-out").text = for_xml(series_sentence(row, now, state))
    return case


def _loud(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings about measured figures that make the night fail."""
    unmeasured = (*JOB_STATES, NOT_ANALYSED, UNREAD)
    return [one for one in findings if one.fails and one.kind not in unmeasured]


def _sentence(finding: Finding, now: datetime) -> str:
    if finding.change is not None:
        return change_clause(finding.change, now) + "."
    return f"{finding.job['label']} {finding.detail}."


def _words(finding: Finding) -> str:
    """Return a finding about a job as a sentence with its evidence and remedy."""
    says = f": {finding.detail}."
    if finding.kind is SILENT:
        days = None if finding.days is None else count_noun(finding.days, "day")
        says = " has never run." if days is None else f" has not run for {days}."
    return "\n".join(filter(None, (f"{finding.job['label']}{says}", finding.evidence, finding.fix)))


def _add(case: ET.Element, tag: str, kind: str, words: Sequence[str]) -> None:
    about = {"type": kind, "message": for_xml(words[0].partition("\n")[0])}
    ET.SubElement(case, tag, about).text = for_xml("\n".join(words))


def series_sentence(series: NightSeries, now: datetime, state: str) -> str:
    """Return a series in a sentence: its state, level and its new or standing changes."""
    level = "no level yet" if series["level"] is None else f"{series['level']:,.0f} tokens/s/GPU"
    told_of = [change_clause(c, now) for c in series["changes"] if c["new"] or c["stands"]]
    doubt = [suspect_clause(series)] if series["suspect"] else []
    return ". ".join([f"{series['label']}: {state}, {level}", *told_of, *doubt]) + "."


def _job_case(tag: str, name: str, kind: str, words: str) -> ET.Element:
    """Return the case of a job in no series."""
    case = ET.Element("testcase", {"classname": "fairmfu.jobs", "name": for_xml(name)})
    _add(case, tag, kind, [words])
    return case


def _log_case(name: str, kind: str, message: str) -> ET.Element:
    """Return the case of a log that could not be read, or whose run failed to compute."""
    case = ET.Element("testcase", {"classname": "fairmfu.logs", "name": for_xml(name)})
    about = {"type": kind, "message": for_xml(message)}
    ET.SubElement(case, "error", about).text = for_xml(message)
    return case


# --- SVG ------------------------------------------------------------------------------------


def svgs(night: Night) -> dict[str, str]:
    """Return SVGs by file name: `overview.svg`, and a history per series with news.

    Half a second for the overview of 20 series, a fifth for each history, however long.
    """
    found = build_digest(night)
    drawn = {}
    if found.series:
        drawn["overview.svg"] = _svg(history_charts.overview(found.series, night.points))
    for row in found.series:
        points = night.points.filter(series=row["series"])
        if row["news"] and points.height > 1:
            drawn[svg_name(row["series"])] = _svg(_titled(row, points))
    return drawn


def _titled(row: NightSeries, points: pl.DataFrame) -> Spec:
    chart = history_charts.history(row, points)
    below = [row["series"], chart.thin, *(series_doubts(row, points)[:1])]
    return chart.spec | {"title": {"text": f"{row['label']}: {row['state']}", "subtitle": below}}


def _svg(spec: Spec) -> str:
    config = chart_theme()["config"] | {"background": "white"}
    return spec_svg(spec | {"config": config})
