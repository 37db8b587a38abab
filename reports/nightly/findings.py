"""Findings of a night, worst first.

First sentence, heading, page, Markdown, summary.json, JUnit and the exit code all read this list:
nothing else decides what is worst.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import chain, takewhile
from pathlib import PurePath
from typing import Final, cast

import polars as pl

from fairmfu.metrics.compare.change_points import MIN_POINTS
from fairmfu.metrics.compare.rhythm import Silence, has_ended, overdue
from fairmfu.metrics.compare.watched_metrics import LOSS, WATCHED
from fairmfu.metrics.core.run_table import value_of
from fairmfu.metrics.throughput.speed_levels import MIN_CHANGE

from ..text.commands import store_option
from ..text.diagnosis import slow_down, speed_line
from ..text.run_narrative import BAD_OUTCOMES, OUTCOME_LABELS, collective_timeout
from ..text.tabular import count_noun, percent
from .jobs import JOB_SCHEMA, succeeds
from .night_report import (
    BASELINE,
    IMPROVEMENT,
    REGRESSION,
    STATE_NEW,
    Night,
    NightChange,
    NightDigest,
    NightRun,
    NightSeries,
    Row,
    build_digest,
    change_clause,
    change_evidence,
    compare_command,
    digest_now,
    format_day,
    is_alarm,
    job_rows,
    suspect_clause,
)
from .setup_changes import setup_clause
from .watch import WatchedChange, watched_views

EXIT_NO_FINDING, EXIT_REGRESSION, EXIT_UNREAD_SOURCE, EXIT_FAILED_JOB = 0, 3, 4, 5
"""Exit codes; 1 and 2 are the command's own."""

EXIT_ORDER: Final = (EXIT_FAILED_JOB, EXIT_REGRESSION, EXIT_UNREAD_SOURCE)
"""The first of these that some finding asks for is the exit code."""

CRASH, MISSING, STANDING = "crash", "missing", "standing"
ALWAYS: Final = ""
"""Name of findings that `fail_on` cannot turn off."""


@dataclass(frozen=True, slots=True)
class FindingKind:
    """Kind of finding.

    severity: error, warning or note; watch: its name in `fail_on`, or ALWAYS
    code: exit code of a finding that fails, and what it then means; None never fails
    """

    identifier: str
    severity: str
    watch: str | None = None
    code: int | None = None
    means: str = ""


FAILED: Final = FindingKind("job-failed", "error", CRASH, EXIT_FAILED_JOB, "a job failed")
SILENT: Final = FindingKind("job-missing", "error", MISSING, EXIT_FAILED_JOB, "a job is missing")
STOPPED: Final = FindingKind(
    "log-stopped", "error", CRASH, EXIT_FAILED_JOB, "a log stopped growing"
)
STILL_FAILED: Final = FindingKind(
    "job-still-failed", "error", STANDING, EXIT_FAILED_JOB, "a failed job has not run since"
)
NOT_ANALYSED: Final = FindingKind(
    "run-not-analysed", "error", ALWAYS, EXIT_UNREAD_SOURCE, "a run could not be analysed"
)
SLOWER: Final = FindingKind(
    "regression", "warning", REGRESSION, EXIT_REGRESSION, "a new regression"
)
BELOW: Final = FindingKind(
    "below-baseline", "warning", REGRESSION, EXIT_REGRESSION, "a job below its baseline"
)
FAILING: Final = FindingKind(
    "more-failed-launches", "warning", CRASH, EXIT_FAILED_JOB, "a job fails more often"
)
WATCHED_KINDS: Final = {
    metric.identifier: FindingKind(
        metric.finding, "warning", metric.fail_on, EXIT_REGRESSION, metric.finding.replace("-", " ")
    )
    for metric in WATCHED
}
"""Kinds of findings about figures beside TGS, by the figure's identifier."""
WATCHED_FINDINGS: Final = (FAILING, *WATCHED_KINDS.values())
STILL_SLOWER: Final = FindingKind(
    "standing-regression", "warning", STANDING, EXIT_REGRESSION, "a standing regression"
)
STILL_WORSE: Final = FindingKind(
    "standing-change", "warning", STANDING, EXIT_REGRESSION, "a standing change"
)
PROVISIONAL: Final = FindingKind("provisional-drop", "warning")
SLOWED: Final = FindingKind("slow-down-inside", "warning")
UNREAD: Final = FindingKind(
    "log-unreadable", "warning", ALWAYS, EXIT_UNREAD_SOURCE, "a log could not be read"
)
NOT_TRACKED: Final = FindingKind("facts-missing", "warning")
RETRIED: Final = FindingKind("job-retried", "warning")
SETUP: Final = FindingKind("setup-changed", "note")
FASTER: Final = FindingKind("improvement", "note")
BETTER_LOSS: Final = FindingKind("lower-loss", "note")
ALL_WELL: Final = FindingKind("all-well", "note")

KINDS: Final = (
    *(FAILED, SILENT, STOPPED, STILL_FAILED, NOT_ANALYSED, SLOWER, BELOW),
    *WATCHED_FINDINGS,
    *(STILL_SLOWER, STILL_WORSE, PROVISIONAL, SLOWED, UNREAD, NOT_TRACKED, RETRIED, SETUP),
    *(BETTER_LOSS, FASTER, ALL_WELL),
)
"""In order of severity."""

JOB_STATES: Final = {
    FAILED: "failed",
    SILENT: "missing",
    STOPPED: "stopped",
    STILL_FAILED: "failed",
}
"""State of a job with such a finding, in place of the state of its speed."""

MIN_STOP: Final = timedelta(hours=1)
MAX_STEP_GAPS: Final = 20
"""A log without an end stopped growing if its last step is MIN_STOP old, and MAX_STEP_GAPS of its
usual time between step lines.
"""

FIRST_NIGHT_WINDOW: Final = timedelta(hours=20)
"""Age, relative to the newest run, up to which runs and changes are news on the first night."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Finding about a job or a log.

    job: names it in a sentence (a row with `label`); series: its key, if it has one
    detail: why and where, such as `out of memory at step 40`; reason: of a job's silence
    since: time of the first run, or of the last one for a missing job; new: first told tonight
    days: without a run; evidence: the log's line, or figures; fix: what to do
    run_id: the run that shows it; change: of the history; row: of a suspect series
    fails: makes the exit code `kind.code`
    """

    kind: FindingKind
    job: Row
    series: str | None = None
    detail: str = ""
    reason: str = ""
    since: datetime | None = None
    days: int | None = None
    new: bool = True
    evidence: str = ""
    fix: str = ""
    run_id: str | None = None
    change: NightChange | None = None
    row: NightSeries | None = None
    fails: bool = False


def find(digest: NightDigest) -> list[Finding]:
    """Return the findings of a night, worst first."""
    return [*_find(digest)]


@lru_cache(maxsize=1)
def _find(digest: NightDigest) -> tuple[Finding, ...]:
    """Return the findings; those of the last night are kept, as is its digest."""
    watched = {*digest.night.fail_on, ALWAYS}
    found = [
        replace(one, fails=one.kind.watch in watched)
        for one in chain(
            JobRecords.of(digest).findings(),
            _not_analysed(digest),
            _changes(digest),
            _watched(digest),
            _provisional(digest),
            _slowed(digest),
            _unread(digest),
            _not_tracked(digest),
            _setups(digest),
        )
    ]
    found.sort(key=lambda one: KINDS.index(one.kind))
    return tuple(found) or (Finding(kind=ALL_WELL, job=NO_JOB, new=False),)


def exit_code(night: Night) -> int:
    """Return the exit code that the findings of a night ask for (EXIT_ORDER)."""
    codes = {one.kind.code for one in find(build_digest(night)) if one.fails}
    return next((code for code in EXIT_ORDER if code in codes), EXIT_NO_FINDING)


def exit_reasons(night: Night) -> list[str]:
    """Return the reasons for the exit code of a night, worst first; empty if it is 0."""
    failing = (one.kind.means for one in find(build_digest(night)) if one.fails)
    return [means for means in dict.fromkeys(failing) if means]


def told_failures(night: Night) -> list[str]:
    """Return the keys of the findings of a night, for `Night.told` of later nights."""
    digest = build_digest(night)
    found = find(digest)
    failed = (one.run_id for one in of_kinds(found, FAILED, STOPPED))
    others = of_kinds(found, SILENT, SLOWED, UNREAD)
    return [
        *(told_key(UNREAD, source["path"]) for source in digest.launches_without_steps),
        *(failure_key(run_id) for run_id in failed if run_id is not None),
        *(told_key(one.kind, _subject(one)) for one in others),
    ]


def of_kinds(findings: Sequence[Finding], *kinds: FindingKind) -> list[Finding]:
    """Return the findings of these kinds."""
    return [one for one in findings if one.kind in kinds]


def job_states(findings: Sequence[Finding]) -> dict[str, tuple[str, Finding]]:
    """Return the state of the job of each series that failed or is missing."""
    states: dict[str, tuple[str, Finding]] = {}
    for one in findings:
        if one.series is not None and one.kind in JOB_STATES:
            states.setdefault(one.series, (JOB_STATES[one.kind], one))
    return states


def urgent_first(digest: NightDigest, findings: Sequence[Finding]) -> list[NightSeries]:
    """Return the series in the order of their worst finding, then of the digest."""
    places: dict[str | None, int] = {}
    for place, one in enumerate(findings):
        places.setdefault(one.series, place)
    return sorted(digest.series, key=lambda row: places.get(row["series"], len(findings)))


# --- jobs that failed or are missing ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobRecords:
    """Runs of every job, oldest first.

    rows: by job, with the columns of JOB_SCHEMA; tonight: ids of the runs of tonight
    """

    digest: NightDigest
    rows: Mapping[str, Sequence[Row]]
    tonight: Collection[str]
    newest: datetime | None

    @classmethod
    def of(cls, digest: NightDigest) -> JobRecords:
        """Group the runs of a night's jobs."""
        rows = job_rows(digest.night)
        by_job: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            by_job[row["series"] or row["job"] or row["run_id"]].append(row)
        newest = max(_starts(rows), default=None)
        tonight = {run["run_id"] for run in digest.runs}
        for source in digest.launches_without_steps:
            _add_launch(by_job.values(), source, tonight)
        if not rows:  # then no job is known that a launch may be of
            by_job.update(
                (one["path"], [_lone_launch(one)]) for one in digest.launches_without_steps
            )
        return cls(digest, by_job, tonight, newest)

    @property
    def now(self) -> datetime:
        """End of the night, on the clock of the runs' starts."""
        return digest_now(self.digest.night)

    def active(self) -> int:
        """Count the jobs that have not ended, and those of tonight."""
        return sum(
            any(row["run_id"] is None or row["run_id"] in self.tonight for row in rows)
            or not (self._has_ended(rows) or self._goes_on(rows))
            for rows in self.rows.values()
        ) + len(self._never_seen())

    def _has_ended(self, rows: Sequence[Row]) -> bool:
        return rows[-1]["job"] in self.digest.night.ended or has_ended(_starts(rows), self.now)

    def findings(self) -> Iterator[Finding]:
        """Yield failed, stopped and missing jobs."""
        for rows in sorted(self.rows.values(), key=lambda rows: str(rows[-1]["job"])):
            failed = [row for row in rows if self._failed_tonight(row)]
            if rows[-1]["series"] is None and len(failed) > 1:  # several jobs may share a name
                named = [{**row, "job": self._run_label(row)} for row in failed]
                yield from (self._finding(FAILED, [row]) for row in named)
            elif (one := self._of_job(rows)) is not None:
                yield one
            elif failed:
                yield self._finding(RETRIED, failed[-1:])
            yield from self._changed_facts(rows)
        for name in self._never_seen():
            yield Finding(
                kind=SILENT,
                job={**NO_JOB, "label": name},
                detail="no run of it was ever read",
                new=told_key(SILENT, name) not in self.digest.night.told,
                fix=f"Check the path of its log, and the name in {EXPECTED_KEY}.",
            )

    def _never_seen(self) -> list[str]:
        names = {row["job"] for rows in self.rows.values() for row in rows}
        return [name for name in self.digest.night.expected if name not in names]

    def _of_job(self, rows: Sequence[Row]) -> Finding | None:
        last, silence = rows[-1], overdue(_starts(rows), self.now)
        if self._failed_tonight(last):
            return self._finding(FAILED, rows)
        stopped = last["outcome"] == "incomplete" and self._stopped(rows)
        if stopped and failure_key(last["run_id"]) not in self.digest.night.told:
            return self._finding(STOPPED, rows[-1:])
        bad = last["outcome"] in BAD_OUTCOMES or stopped
        still_failed = replace(self._finding(STILL_FAILED, rows), new=False) if bad else None
        if self._goes_on(rows) or last["job"] in self.digest.night.ended:
            return None
        if self._has_ended(rows):  # unless no other job has run since
            return still_failed if self._is_newest(last) else None
        return still_failed if silence is None else self._missing(last, silence)

    def _is_newest(self, row: Row) -> bool:
        """Return whether a run is of the last night with any run."""
        if row["at"] is None or self.newest is None:
            return False
        return bool(row["at"] >= self.newest - FIRST_NIGHT_WINDOW)

    def _changed_facts(self, rows: Sequence[Row]) -> Iterator[Finding]:
        """Yield the facts of a job that differ tonight from its series before."""
        first, new = rows[0], rows[-1]["series"]
        if first["run_id"] not in self.tonight or self.digest.night.number == 1 or new is None:
            return
        for before in self.rows.values():
            if (old := before[-1]["series"]) is not None and succeeds(rows, before):
                sides = (new.split(", "), old.split(", "))
                gone, come = (
                    ", ".join(part for part in one if part not in other) or "unknown"
                    for one, other in (sides[::-1], sides)
                )
                yield Finding(
                    kind=SETUP,
                    job=self.label(first),
                    series=new,
                    detail=f"{gone} -> {come}; compared from now on with its own runs",
                    since=first["at"],
                    run_id=first["run_id"],
                )

    def _goes_on(self, rows: Sequence[Row]) -> bool:
        """Return whether the job runs with other facts since."""
        return any(succeeds(other, rows) for other in self.rows.values() if other is not rows)

    def _failed_tonight(self, row: Row) -> bool:
        return row["outcome"] in BAD_OUTCOMES and self._is_new(row)

    def older_failures(self) -> list[Row]:
        """Return failed runs that the first night reads and does not count as tonight."""
        every = (row for rows in self.rows.values() for row in rows)
        failed = (row for row in every if row["run_id"] in self.tonight)
        return [row for row in failed if row["outcome"] in BAD_OUTCOMES and not self._is_new(row)]

    def _is_new(self, row: Row) -> bool:
        """Return whether no earlier night told the failure of a run."""
        if row["run_id"] is None:  # a launch without steps, of tonight
            return True
        night = self.digest.night
        if failure_key(row["run_id"]) in night.told:
            return False
        if night.number > 1 or row["at"] is None or self.newest is None:
            return row["run_id"] in self.tonight
        return self._is_newest(row)

    def _stopped(self, rows: Sequence[Row]) -> bool:
        """Return whether the newest log stopped growing, unlike earlier logs of the job."""
        last, before = rows[-1], [row["outcome"] for row in rows[:-1]]
        if before.count("completed") <= len(before) / 2 or last["last_at"] is None:
            return False
        step_s = (last["last_at"] - last["at"]) / max(1, last["step_lines"] or 1)
        return bool(self.now - last["last_at"] > max(MIN_STOP, MAX_STEP_GAPS * step_s))

    def _finding(self, kind: FindingKind, rows: Sequence[Row]) -> Finding:
        """Return the finding about the last of a job's runs. rows: oldest first."""
        row = rows[-1]
        where = " ".join(f"log ends {failure_place(row)} without an end message".split())
        return Finding(
            kind=kind,
            job=self.label(row),
            series=row["series"],
            detail=where if kind is STOPPED else repeated_failure(rows),
            since=row["at"],
            evidence=row["outcome_text"] or "",
            fix=f"Read the log: {row['path']}" if row["path"] else "",
            run_id=row["run_id"],
        )

    def _missing(self, row: Row, silence: Silence) -> Finding:
        bad = row["outcome"] in BAD_OUTCOMES
        return Finding(
            kind=SILENT,
            job=self.label(row),
            series=row["series"],
            detail=f"no run for {count_noun(silence.days, 'day')}",
            reason=f"its last run failed: {failure(row)}" if bad else "",
            since=silence.last,
            days=silence.days,
            new=told_key(SILENT, row["run_id"]) not in self.digest.night.told,
            evidence=_silence_evidence(silence, self.now),
            fix=_missing_fix(row["path"]),
            run_id=row["run_id"],
        )

    def label(self, row: Row) -> Row:
        """Return the row that names the job of a run in a sentence."""
        labels = {one["series"]: one for one in self.digest.series}
        known = labels.get(row["series"])
        if known is not None:
            return {name: value_of(known, name) for name in NO_JOB}
        label = row["job"] or self._run_label(row)
        return {**NO_JOB, "label": label, "framework": row["framework"]}

    def _run_label(self, row: Row) -> str:
        """Return the run's name, unique among the runs of tonight."""
        labels = {run["run_id"]: run["label"] for run in self.digest.runs}
        return str(labels.get(row["run_id"], row["name"]))


def _add_launch(jobs: Iterable[list[Row]], source: Row, tonight: Collection[str]) -> None:
    """Add a launch that failed before any step to the runs of its job.

    It has no run_id. jobs: their runs, oldest first; source: of NightDigest.launches_without_steps
    tonight: ids of runs; a job that has one went on
    """
    place = source["place"]
    of_place = [rows for rows in jobs if rows[-1]["place"] == place] if place else []
    idle = [rows for rows in of_place if not any(row["run_id"] in tonight for row in rows)]
    if not idle or len(idle) < len(of_place):
        return
    rows = max(idle, key=lambda rows: _starts(rows)[-1:])  # of the newest run
    rows.append({**rows[-1], **_launch_facts(source)})


def _launch_facts(source: Row) -> Row:
    """Return what is known of the run of a launch that failed before any step."""
    never = {"run_id": None, "at": None, "step_lines": 0, "last_step": None, "last_at": None}
    launch = {"outcome": "crashed", "outcome_text": source["launch_error"], "path": source["path"]}
    return {**never, **launch}


def _lone_launch(source: Row) -> Row:
    """Return the run of a launch of no known job. Its log names the job."""
    name = PurePath(source["path"]).stem
    unknown: Row = dict.fromkeys(JOB_SCHEMA)
    return {**unknown, "name": name, "job": name, "place": source["place"], **_launch_facts(source)}


NO_JOB: Final[Row] = {"label": "", "framework": None, "synthetic": False}
EXPECTED_KEY: Final = '"expected" under [jobs] in fairmfu.toml'


def _silence_evidence(silence: Silence, now: datetime) -> str:
    """Return when a missing job ran last, and its usual rhythm."""
    last = f"Its last run was on {format_day(silence.last, now)}"
    return f"{last}; its runs are usually at most {_span(silence.usual)} apart."


def _missing_fix(path: str | None) -> str:
    """Return what to do about a missing job; path: of its last log."""
    folder = path.rpartition("/")[0] if path else ""
    where = f"arrives in {folder}" if folder else "reaches the sources"
    return (
        f"Check that the job was started and that its log {where}. If the job is retired, add "
        'it to "ended" under [jobs] in fairmfu.toml.'
    )


def _starts(rows: Sequence[Row]) -> list[datetime]:
    return [row["at"] for row in rows if row["at"] is not None]


def _span(gap: timedelta) -> str:
    days = gap / timedelta(days=1)
    return count_noun(round(days), "day") if days >= 1 else f"{24 * days:.0f} hours"


def told_key(kind: FindingKind, subject: str) -> str:
    """Return the key by which a night remembers that it told of a finding."""
    return f"{kind.identifier}\x1f{subject}"


def _subject(finding: Finding) -> str:
    """Return what is told of once: the silence after a run, else the job or the log."""
    run_id = finding.run_id if finding.kind is SILENT else None
    return run_id or finding.series or str(finding.job["label"])


def failure_key(run_id: str) -> str:
    """Return the key by which a night remembers that it told of a failed run."""
    return f"failed\x1f{run_id}"


def evidence_and_fix(finding: Finding, most: int | None = None) -> str:
    """Return what a finding rests on, and what to do, as sentences.

    most: characters of the evidence, if it is long
    """
    said = finding.evidence
    if most is not None and len(said) > most:
        said = f"{said[: most - 1].rstrip()}…"
    if said and finding.fix and said[-1] not in ".!?…":
        said += "."
    return " ".join(filter(None, (said, finding.fix)))


_CLASS_AND_TEXT: Final = re.compile(
    r"(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception))(?::\s*(.*))?$"
)
MIN_CAUSE_WORDS: Final = 2
MAX_CAUSE: Final = 60


def failure_cause(row: Row) -> str:
    """Return the cause of a failure: the error's first clause, else the outcome."""
    label = OUTCOME_LABELS.get(row["outcome"] or "", "unknown")
    if row["outcome"] != "crashed":
        return label
    if timeout := collective_timeout(row["outcome_text"]):
        return timeout
    match = _CLASS_AND_TEXT.search(str(row["outcome_text"] or "").strip())
    if match is None:
        return label
    clause = re.split(r"[:;,.(](?:\s|$)|\s[(\[]", match[2] or "", maxsplit=1)[0].strip()
    clause = clause.removesuffix(" in").rstrip(".")
    words = clause if len(clause.split()) >= MIN_CAUSE_WORDS else f"{match[1]} {clause}".strip()
    return words if len(words) <= MAX_CAUSE else f"{words[: MAX_CAUSE - 1].rstrip()}…"


def failure_place(row: Row) -> str:
    """Return the step at which a run ended; empty if its steps were not asked for."""
    if row["step_lines"] is None:
        return ""
    return f"at step {row['last_step']:,}" if row["last_step"] is not None else "before step 1"


def failure(row: Row) -> str:
    """Return cause and place of a failure, such as `out of memory at step 40`."""
    return f"{failure_cause(row)} {failure_place(row)}".strip()


def repeated_failure(rows: Sequence[Row]) -> str:
    """Return the last run's failure, and how many runs in a row failed.

    rows: the runs of a job, oldest first
    """
    last = failure(rows[-1])
    in_a_row = list(takewhile(lambda row: row["outcome"] in BAD_OUTCOMES, reversed(rows)))
    if len(in_a_row) <= 1:
        return last
    again = " again" if failure(in_a_row[1]) == last else ""
    return f"{last}{again}, {len(in_a_row):,} failed runs in a row"


# --- findings about speed, logs and facts -------------------------------------------------


def _not_analysed(digest: NightDigest) -> Iterator[Finding]:
    for run in digest.runs:
        if run["error"] is not None:
            yield Finding(
                kind=NOT_ANALYSED,
                job=_about(run),
                series=run["series"],
                detail=run["error"],
                since=run["started_at"],
                run_id=run["run_id"],
                fix="Please report it with the log.",
            )


def _changes(digest: NightDigest) -> Iterator[Finding]:
    """Yield changes that count: new ones, below a baseline, and standing regressions."""
    fresh = {change["series"] for change in digest.changes if change["new"] or is_alarm(change)}
    for change in digest.changes:
        if not change["counts"]:
            continue
        if change["kind"] == IMPROVEMENT:
            kind = FASTER if change["new"] else None
        elif change["new"]:
            kind = SLOWER
        elif change["against"] == BASELINE:
            kind = BELOW
        else:
            still = change["stands"] and change["series"] not in fresh
            kind = STILL_SLOWER if still else None
        if kind is not None:
            yield _change(kind, change, digest.night)


def _change(kind: FindingKind, change: NightChange, night: Night) -> Finding:
    command = compare_command(change, night)
    return Finding(
        kind=kind,
        job=change,
        series=change["series"],
        detail=change_clause(change, night.at),
        since=change["at"],
        new=change["new"],
        evidence=change_evidence(change, night.at, night.threshold),
        fix="" if command is None else f"Compare: {command}",
        run_id=change["run_id"],
        change=change,
    )


def _watched(digest: NightDigest) -> Iterator[Finding]:
    """Yield changes of figures beside TGS for the worse, and lower losses."""
    jobs = {row["series"]: row for row in digest.series}
    for view in watched_views(digest):
        kind = _watched_kind(view)
        if kind is not None:
            yield Finding(
                kind=kind,
                job={**NO_JOB, "label": view.job} if view.series is None else jobs[view.series],
                series=view.series,
                detail=view.clause,
                since=view.since,
                new=view.new,
                evidence=view.evidence,
                fix=view.fix,
                run_id=view.run_id,
            )


def _watched_kind(view: WatchedChange) -> FindingKind | None:
    """Return the kind of a change; None if it is for the better, and nothing to check."""
    if not view.worse:
        is_loss = view.metric is not None and view.metric.identifier == LOSS
        return BETTER_LOSS if is_loss else None
    if not (view.new or view.off_baseline):
        return STILL_WORSE
    return FAILING if view.metric is None else WATCHED_KINDS[view.metric.identifier]


MIN_EARLY_DROP: Final = 0.05
EARLY_DROP_INTERVALS: Final = 5
MIN_RUNS_BEFORE_DROP: Final = 2
"""Before the noise of a series is known, a run is provisionally slower than the median of earlier
runs by MIN_EARLY_DROP and EARLY_DROP_INTERVALS of its own interval. At least MIN_RUNS_BEFORE_DROP
runs are earlier.
"""


def _early_drop(points: pl.DataFrame) -> str:
    """Return the drop of the last run of a short series; empty if it is not clear.

    points: of one series, by time
    """
    before, last = points[:-1], points.row(-1, named=True)
    if before.height < MIN_RUNS_BEFORE_DROP or None in (last["tgs_low"], last["tgs_high"]):
        return ""
    usual = before["tgs"].median()
    drop = 1 - last["tgs"] / cast(float, usual)
    half_width = (last["tgs_high"] - last["tgs_low"]) / 2 / last["tgs"]
    if drop <= max(MIN_EARLY_DROP, EARLY_DROP_INTERVALS * half_width):
        return ""
    return f"last run {100 * drop:.1f} % below the median of its {before.height} earlier runs"


def _provisional(digest: NightDigest) -> Iterator[Finding]:
    """Yield drops of last runs that no second run, or no known noise, confirms yet."""
    for row in digest.series:
        drop = ""
        if row["state"] == STATE_NEW and row["ran"]:
            drop = _early_drop(digest.night.points.filter(series=row["series"]).sort("at"))
        if drop:
            yield Finding(
                kind=PROVISIONAL,
                job=row,
                series=row["series"],
                detail=drop,
                since=row["last_at"],
                run_id=row["last_run"],
                fix=f"{MIN_POINTS} runs are needed to confirm it.",
            )
        if row["suspect"] and row["ran"] and (row["last_ratio"] or 1.0) < 1:
            yield Finding(
                kind=PROVISIONAL,
                job=row,
                series=row["series"],
                detail=suspect_clause(row),
                row=row,
                since=row["last_at"],
                run_id=row["last_run"],
                fix="The next run confirms it or not.",
            )


def _slowed(digest: NightDigest) -> Iterator[Finding]:
    """Yield runs of tonight that lost more speed on their way than the threshold."""
    for run in digest.runs:
        loss, place = slow_down(run) or (0.0, "")
        if loss > max(MIN_CHANGE, digest.night.threshold):
            yield Finding(
                kind=SLOWED,
                job=_about(run),
                series=run["series"],
                new=told_key(SLOWED, run["series"] or run["label"]) not in digest.night.told,
                detail=f"{percent(loss)} slower {place}",
                since=run["started_at"],
                evidence=speed_line(run),
                run_id=run["run_id"],
                fix=f"Explain: fairmfu explain {run['run_id']}{store_option(digest.night.store)}",
            )


def _unread(digest: NightDigest) -> Iterator[Finding]:
    for row in digest.failed:
        yield Finding(
            kind=UNREAD,
            job={**NO_JOB, "label": row["path"]},
            detail=str(row["message"] or ""),
            fix="Copy the log again, or take it out of the sources.",
            new=row.get("new", True),
        )


def _not_tracked(digest: NightDigest) -> Iterator[Finding]:
    """Yield runs of tonight that ended well and are in no series."""
    why = dict(digest.night.unplaced.select("run_id", "why").iter_rows())
    for run in digest.runs:
        well = run["outcome"] not in BAD_OUTCOMES and run["error"] is None
        if run["series"] is None and well:
            yield Finding(
                kind=NOT_TRACKED,
                job=_about(run),
                detail=why.get(run["run_id"], ""),
                since=run["started_at"],
                run_id=run["run_id"],
            )


def _setups(digest: NightDigest) -> Iterator[Finding]:
    """Yield jobs whose set-up changed tonight, without a confirmed change of speed."""
    tonight = {run["run_id"] for run in digest.runs}
    news = {change["series"] for change in digest.changes if change["new"]}
    marked = digest.night.points.filter(
        pl.col("run_id").is_in(list(tonight)) & (pl.col("marks").list.len() > 0)
    )
    names = {row["series"]: row for row in digest.series}
    for series, run_id, at, marks in marked.select("series", "run_id", "at", "marks").iter_rows():
        if series not in news and digest.night.number > 1:
            yield Finding(
                kind=SETUP,
                job=names[series],
                series=series,
                detail=setup_clause(marks, names[series]),
                since=at,
                run_id=run_id,
            )


def _about(run: NightRun) -> Row:
    return {name: value_of(run, name) for name in NO_JOB}
