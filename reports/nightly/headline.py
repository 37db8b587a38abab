"""First sentences of a night, from its findings, and the notes beneath."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import polars as pl

from fairmfu.metrics.compare.change_points import MIN_POINTS
from fairmfu.metrics.compare.history import BASELINE_WITHOUT_SERIES
from fairmfu.metrics.core.run_table import not_null

from ..text.claims_text import join_words
from ..text.run_narrative import BAD_OUTCOMES
from ..text.tabular import count_noun, difference_text, percent
from ..text.verdict import PLAIN_STYLE, Style, Verdict
from .findings import (
    BELOW,
    BETTER_LOSS,
    FAILED,
    FASTER,
    NOT_ANALYSED,
    NOT_TRACKED,
    PROVISIONAL,
    RETRIED,
    SETUP,
    SILENT,
    SLOWED,
    SLOWER,
    STILL_FAILED,
    STILL_SLOWER,
    STILL_WORSE,
    STOPPED,
    UNREAD,
    WATCHED_FINDINGS,
    Finding,
    JobRecords,
    evidence_and_fix,
    failure,
    find,
    of_kinds,
)
from .night_report import (
    MAX_NAMED_ITEMS,
    STATE_NEW,
    Night,
    NightChange,
    NightDigest,
    NightSeries,
    change_clause,
    format_day,
    join_some,
    suspect_clause,
    suspects,
)
from .repeated_jobs import jobs_that_ran_again
from .setup_changes import UNCONFIRMED

LOUD: Final = (
    *(FAILED, SILENT, STOPPED, STILL_FAILED, NOT_ANALYSED, SLOWER, BELOW),
    *WATCHED_FINDINGS,
)
"""Findings after which no sentence says that the speed has not changed."""


def headline(digest: NightDigest, style: Style = PLAIN_STYLE) -> Verdict:
    """Return the first sentences of the report, worst first, and its notes."""
    found, jobs = find(digest), JobRecords.of(digest)
    says = _worst(digest, found, jobs, style)
    better = of_kinds(found, FASTER)
    loud = bool(of_kinds(found, *LOUD))
    changed = of_kinds(found, SETUP)
    setups = _setups(changed, style)
    if not loud:
        says += [setups] if setups else []
        news = (
            _improved(better, digest.night.at, style)
            if better
            else _no_news(digest, changed, style)
        )
        says.append(news)
    notes = [
        _tonight(digest) if loud or better else "",
        _older_failures(jobs, found, style),
        _older_changes(digest, found),
        _lost_baselines(digest, style),
        _others(digest, better if loud else []),
        _retried(of_kinds(found, RETRIED), style),
        _ran_again(jobs, style),
        _recovered(jobs, style),
        setups if loud else "",
        _watched(of_kinds(found, BETTER_LOSS), style),
        _suspects(digest, found, style),
        _not_read(of_kinds(found, UNREAD), style),
        _not_tracked(of_kinds(found, NOT_TRACKED), style),
        _mixed(digest, style),
    ]
    return Verdict("", " ".join(says), tuple(note for note in notes if note))


def brief_headline(digest: NightDigest) -> str:
    """Return the first sentence in brief, such as `1 new regression`."""
    return re.split(r"[:.,](?:\s|$)", headline(digest).says, maxsplit=1)[0]


MAX_EVIDENCE: Final = 200
"""Most characters of an error's line on the terminal; the page has the whole line."""


def remedy_lines(digest: NightDigest) -> list[str]:
    """Return a line for each failure, missing job and new regression: what to do.

    A failure is told with the last words of its log, and where the log is.
    """
    troubles = of_kinds(find(digest), FAILED, STOPPED, SILENT, SLOWER, BELOW)
    told = [line for one in troubles if (line := _remedy(one))]
    more = len(told) - MAX_NAMED_ITEMS
    return [*told[:MAX_NAMED_ITEMS], *([f"{more:,} more: see the report."] if more > 0 else [])]


def _remedy(finding: Finding) -> str:
    label, fix = finding.job["label"], finding.fix
    if finding.change is not None:
        return fix.replace("Compare:", f"Compare {label}:", 1)
    return f"{label}: {evidence_and_fix(finding, MAX_EVIDENCE)}"


def _worst(
    digest: NightDigest, findings: Sequence[Finding], jobs: JobRecords, style: Style
) -> list[str]:
    """Return a sentence for every kind of finding that has to be known first."""
    now = digest.night.at
    told = (
        _failed(of_kinds(findings, FAILED), jobs.active(), style),
        _silent(of_kinds(findings, SILENT), style),
        _stopped(of_kinds(findings, STOPPED), style),
        _still_failed(of_kinds(findings, STILL_FAILED), now, style),
        _not_analysed(of_kinds(findings, NOT_ANALYSED), style),
        _slower(findings, now, style),
        _watched(of_kinds(findings, *WATCHED_FINDINGS), style),
        _still_slower(of_kinds(findings, STILL_SLOWER), digest.night, style),
        _watched(of_kinds(findings, STILL_WORSE), style),
        _provisional(of_kinds(findings, PROVISIONAL), style),
        _slowed(of_kinds(findings, SLOWED), style),
    )
    return [sentence for sentence in told if sentence]


# --- one sentence per kind ----------------------------------------------------------------


def _failed(failed: Sequence[Finding], jobs: int, style: Style) -> str:
    if not failed:
        return ""
    n = len({one.series or one.job["label"] for one in failed})
    every = "The only job" if n == jobs == 1 else f"All {jobs:,} jobs"
    who = every if n == jobs else f"{n:,} of {count_noun(jobs, 'job')}"
    return f"{who} failed tonight: {_listed(failed, style)}."


def _listed(findings: Sequence[Finding], style: Style) -> str:
    """Return `ds-1b (out of memory at step 40), …`, the first ones by name."""
    several = len(findings) > MAX_NAMED_ITEMS
    shown = findings[: MAX_NAMED_ITEMS - 1] if several else findings
    named = [f"{style.name(one.job)} ({style.plain(one.detail)})" for one in shown]
    more = [f"{len(findings) - len(shown):,} more"] if several else []
    return ", ".join([*named, *more])


def _silent(silent: Sequence[Finding], style: Style) -> str:
    if not silent:
        return ""
    if len(silent) > MAX_NAMED_ITEMS:
        names = [f"{style.name(one.job)} ({_silence(one)})" for one in silent]
        return f"{count_noun(len(silent), 'job')} have stopped reporting: {join_some(names)}."
    return " ".join(_one_silent(one, style) for one in silent)


def _silence(finding: Finding) -> str:
    return "never ran" if finding.days is None else count_noun(finding.days, "day")


def _one_silent(finding: Finding, style: Style) -> str:
    if finding.days is None:
        return f"{style.name(finding.job)} is expected and has never run."
    why = f" ({style.plain(finding.reason)})" if finding.reason else ""
    gap = f"for {count_noun(finding.days, 'day')}"
    if finding.days == 1 and finding.since is not None:
        gap = f"since {finding.since.day} {finding.since:%B}"
    return f"{style.name(finding.job)} has not run {gap}{why}."


def _stopped(stopped: Sequence[Finding], style: Style) -> str:
    if not stopped:
        return ""
    if len(stopped) == 1:
        return f"{style.name(stopped[0].job)}'s {style.plain(stopped[0].detail)}."
    return f"{len(stopped):,} logs have stopped growing: {_listed(stopped, style)}."


def _still_failed(failed: Sequence[Finding], now: datetime, style: Style) -> str:
    if not failed:
        return ""
    if len(failed) > 1:
        return f"{len(failed):,} jobs have not run since they failed: {_listed(failed, style)}."
    (one,) = failed
    when = f" on {format_day(one.since, now)}" if one.since is not None else ""
    why = style.plain(one.detail)
    return f"{style.name(one.job)} failed{when} ({why}) and has not run since."


def _not_analysed(failed: Sequence[Finding], style: Style) -> str:
    if not failed:
        return ""
    named = join_some([style.plain(f"{one.job['label']} ({one.detail})") for one in failed])
    return (
        f"{count_noun(len(failed), 'run')} could not be analysed because of a bug in fairmfu: "
        f"{named}. Other runs are not affected. Please report it with the log."
    )


def _slower(findings: Sequence[Finding], now: datetime, style: Style) -> str:
    """Return the regressions of tonight, else those that are below a baseline."""
    worse, held = (
        [not_null(one.change) for one in of_kinds(findings, kind)] for kind in (SLOWER, BELOW)
    )
    if worse:
        return f"{_how_many(worse, 'new regression')}{_lead(worse, now, style)}"
    if not held:
        return ""
    n = len({change["series"] for change in held})
    still = f"{count_noun(n, 'job')} {'is' if n == 1 else 'are'} still below"
    its = "its baseline" if n == 1 else "their baselines"
    return f"No new regression, but {still} {its}{_lead(held, now, style)}"


def _watched(findings: Sequence[Finding], style: Style) -> str:
    """Return a sentence for each change of a figure beside TGS, the rest as a count."""
    several = len(findings) > MAX_NAMED_ITEMS
    shown = findings[: MAX_NAMED_ITEMS - 1] if several else findings
    says = [f"{style.name(one.job)} {style.plain(one.detail)}." for one in shown]
    if left := len(findings) - len(shown):
        says.append(f"{count_noun(left, 'change')} more of this kind: see the report.")
    return " ".join(says)


def _how_many(changes: Sequence[NightChange], noun: str) -> str:
    return count_noun(len({c["series"] for c in changes}), noun)


def _lead(changes: Sequence[NightChange], now: datetime, style: Style) -> str:
    one = len({c["series"] for c in changes}) == 1
    return f"{': ' if one else ', the largest: '}{change_clause(changes[0], now, style)}."


def _still_slower(still: Sequence[Finding], night: Night, style: Style) -> str:
    if not still:
        return ""
    now, again = night.at, "" if night.number == 1 else " still"
    changes = {one.series: not_null(one.change) for one in still}.values()
    if len(changes) == 1:
        (change,) = changes
        size, since = _since(change, now)
        return f"{style.name(change)} is{again} slower{since and f' {since}'}, by {size}."
    named = join_some(
        [f"{style.name(one)} ({' '.join(_since(one, now)).strip()})" for one in changes]
    )
    return f"{len(changes):,} jobs are{again} slower after an earlier regression: {named}."


def _since(change: NightChange, now: datetime) -> tuple[str, str]:
    """Return the size of a change, and `since` its day; empty if that is unknown."""
    size, _ = difference_text(change["ratio"], change["ratio_low"], change["ratio_high"])
    return size, f"since {format_day(change['at'], now)}" if change["at"] is not None else ""


def _provisional(drops: Sequence[Finding], style: Style) -> str:
    """Return suspect last runs, and clear drops of jobs with few runs."""
    suspect = [suspect_clause(one.row, style) for one in drops if one.row is not None]
    early = [
        f"{style.name(one.job)}, {style.strong(style.plain(one.detail))}"
        for one in drops
        if one.row is None
    ]
    several = (
        f"Suspect until another run confirms it: {join_some(suspect)}." if suspect else "",
        f"Provisional, with fewer than {MIN_POINTS} runs: {join_some(early)}." if early else "",
    )
    return " ".join(sentence for sentence in several if sentence)


def _slowed(slowed: Sequence[Finding], style: Style) -> str:
    return f"Slowed down inside its run: {_listed(slowed, style)}." if slowed else ""


def _improved(better: Sequence[Finding], now: datetime, style: Style) -> str:
    changes = [not_null(one.change) for one in better]
    return f"{_how_many(changes, 'new improvement')}{_lead(changes, now, style)}"


# --- nothing new --------------------------------------------------------------------------


def _no_news(digest: NightDigest, setups: Sequence[Finding], style: Style) -> str:
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
    elif any(UNCONFIRMED in one.detail for one in setups):
        return f"No new confirmed speed change. {runs}"
    elif not ran:
        first = "Nothing to compare."
    elif all(row["state"] == STATE_NEW for row in digest.series):
        return f"{_history_needed(digest.series)} {runs}"
    elif not any(row["state"] == STATE_NEW for row in ran):
        is_told = bool(setups) and len(digest.series) == 1  # by "same speed"
        return runs if is_told else f"{_unchanged(digest, style)} {runs}"
    return f"{first} {_tonight(digest)}"


def _history_needed(series: Sequence[NightSeries]) -> str:
    most = max(row["points"] for row in series)
    every = len(series)
    who = "the only job has " if every == 1 else f"none of the {every:,} jobs has more than "
    return f"Speed is not compared yet: it needs {MIN_POINTS} runs of a job, and {who}{most:,}."


def _unchanged(digest: NightDigest, style: Style) -> str:
    """Return the sentence that no measured job changed its speed."""
    ran, every = sum(row["ran"] for row in digest.series), len(digest.series)
    if ran == every == 1:
        return f"The speed of {style.name(digest.series[0])} is unchanged."
    if ran == every:
        return f"No new speed change in any of the {every:,} jobs."
    outcomes = {run["outcome"] for run in digest.runs if run["series"] is not None}
    how = "completed" if outcomes == {"completed"} else "measured"
    have, whose = ("has", "its") if ran == 1 else ("have", "their")
    only = f"Only {ran:,} of {every:,} jobs {have} a {how} run tonight"
    return f"{only}; {whose} speed has not changed."


def _tonight(digest: NightDigest) -> str:
    """Return the number of runs and jobs tonight, and of jobs by news."""
    ran = [row for row in digest.series if row["ran"]]
    every = count_noun(len(digest.series), "job")
    if not digest.runs:
        return f"{every} in the history."
    text = f"{count_noun(len(digest.runs), 'run')} tonight"
    if not ran:
        return f"{text}, none of a tracked job."
    few = sum(row["state"] == STATE_NEW for row in ran)
    doubt = sum(bool(row["suspect"]) for row in ran if row["state"] != STATE_NEW)
    moved = sum(
        any(c["new"] for c in row["changes"])
        for row in ran
        if row["state"] != STATE_NEW and not row["suspect"]
    )
    counts = {
        "a new change": moved,
        "a suspect run": doubt,
        "no new change": len(ran) - few - doubt - moved,
        "too few runs": few,
    }
    told = [(n, words) for words, n in counts.items() if n]
    parts = ", ".join(f"{words} in {n:,}" for n, words in told)
    whole = len(ran) == len(digest.series)
    where = f"all {every}" if whole and len(ran) > 1 else f"{len(ran):,} of {every}"
    if len(digest.series) == 1:
        if doubt:  # a sentence before says so
            return f"{text}."
        where = "the only job"
    return f"{text}. Speed, measured in {where}: {parts if len(told) > 1 else told[0][1]}."


# --- notes --------------------------------------------------------------------------------


def _others(digest: NightDigest, better: Sequence[Finding]) -> str:
    """Return news left out of the first sentence: improvements, and small changes."""
    parts = []
    if better:
        changes = [not_null(one.change) for one in better]
        parts.append(_how_many(changes, "new improvement"))
    small = [c for c in digest.changes if c["new"] and not c["counts"]]
    if small:
        below = f"below the threshold of {percent(digest.night.threshold)}"
        parts.append(f"{count_noun(len(small), 'change')} {below}")
    return f"Also {join_words(parts)}." if parts else ""


def _older_failures(jobs: JobRecords, findings: Sequence[Finding], style: Style) -> str:
    """Return failed runs read tonight that are older than this first night."""
    told = {one.run_id for one in findings}
    old = [row for row in jobs.older_failures() if row["run_id"] not in told]
    if not old:
        return ""
    named = [f"{style.name(jobs.label(row))} ({style.plain(failure(row))})" for row in old]
    runs = f"{count_noun(len(old), 'older run')} had failed"
    return (
        f"{runs}, and {'does' if len(old) == 1 else 'do'} not count as tonight: {join_some(named)}."
    )


def _older_changes(digest: NightDigest, findings: Sequence[Finding]) -> str:
    """Return why changes that a first night finds in older runs do not fail it."""
    if digest.night.number > 1 or not of_kinds(findings, STILL_SLOWER, STILL_WORSE):
        return ""
    return "This is the first night: changes in older runs are told, and do not count as new."


def _retried(retried: Sequence[Finding], style: Style) -> str:
    return f"Failed tonight and ran again: {_listed(retried, style)}." if retried else ""


def _ran_again(jobs: JobRecords, style: Style) -> str:
    """Return jobs with more runs in a night than usual: each run counts once."""
    again = jobs_that_ran_again(jobs.rows.values(), jobs.tonight)
    named = [f"{style.name(jobs.label(row))} ({count:,} runs)" for row, count in again]
    return f"Ran more than once tonight: {join_some(named)}. Each run counts." if named else ""


def _recovered(jobs: JobRecords, style: Style) -> str:
    """Return jobs whose run of tonight did not fail, after one that did."""
    named = [
        style.name(jobs.label(rows[-1]))
        for rows in jobs.rows.values()
        if len(rows) > 1
        and rows[-1]["run_id"] in jobs.tonight
        and rows[-2]["run_id"] not in jobs.tonight
        and rows[-1]["outcome"] not in BAD_OUTCOMES
        and rows[-2]["outcome"] in BAD_OUTCOMES
    ]
    return f"Ran without a failure again: {join_some(named)}." if named else ""


def _setups(changed: Sequence[Finding], style: Style) -> str:
    named = [f"{style.name(one.job)} ({style.plain(one.detail)})" for one in changed]
    if not named:
        return ""
    return f"Set-up changed tonight: {join_some(named)}."


def _suspects(digest: NightDigest, findings: Sequence[Finding], style: Style) -> str:
    """Return suspect runs that the first sentences leave out."""
    first = {one.series for one in of_kinds(findings, PROVISIONAL)}
    doubt = [suspect_clause(row, style) for row in suspects(digest) if row["series"] not in first]
    return f"Suspect until another run confirms it: {join_some(doubt)}." if doubt else ""


def _not_read(unread: Sequence[Finding], style: Style) -> str:
    paths = [style.plain(one.job["label"]) for one in unread]
    return (
        f"{count_noun(len(paths), 'log')} could not be read: {join_some(paths)}." if paths else ""
    )


def _not_tracked(left: Sequence[Finding], style: Style) -> str:
    """Return runs of tonight in no series, with reasons if few."""
    if not left:
        return ""
    named = [
        style.plain(f"{one.job['label']} ({one.detail})" if one.detail else one.job["label"])
        for one in left
    ]
    runs = f"{count_noun(len(left), 'run')} of tonight {'is' if len(left) == 1 else 'are'}"
    which = join_some(named) if len(left) <= MAX_NAMED_ITEMS else "the report says why"
    return f"{runs} not tracked: {which}."


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
        f"{count_noun(len(lost), 'baseline')} {verb}, because {why} not tracked: {named}. "
        "Fix: set another run as baseline, or remove the baseline (fairmfu baseline -h)."
    )


def _mixed(digest: NightDigest, style: Style) -> str:
    mixed = [row for row in digest.series if len(row["formulas"] or []) > 1]
    if not mixed:
        return ""
    named = join_some([style.plain(row["label"]) for row in mixed])
    return f"MFU comes from several formulas in {count_noun(len(mixed), 'job')}: {named}."
