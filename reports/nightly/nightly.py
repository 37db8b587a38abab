"""Nightly run: read new logs, compute affected runs, find changes, write reports.

    DIR/index.html, runs.html, summary.md, summary.json, junit.xml, charts/    the last good night
    DIR/archive/2026-11-22/                                                    each night, by date
    DIR/status.js                                                              a failure since
    DIR/nightly.log                                                            record of all nights

A night is written to a temporary folder and renamed into the archive, then copied to the top with
index.html last: a failed night leaves the last good one. Besides reports.store.metrics_store and
reports.nightly.baselines this is the only module of reports that calls ingest.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, cast

import polars as pl

from fairmfu.ingest.core.errors import FairmfuError, explain_write_error
from fairmfu.ingest.core.progress import note_progress
from fairmfu.ingest.core.schema import BOOL, INT, TEXT, TEXT_LIST, TIMESTAMP
from fairmfu.ingest.detect.format_lookup import load_format_catalog
from fairmfu.ingest.detect.messages import FAILED_BEFORE_STEPS, LAUNCH_FAILED
from fairmfu.ingest.extract.engine_api import ReadEngine
from fairmfu.ingest.extract.run_names import job_place, name_fact, named_job
from fairmfu.ingest.facts.config_file import CONFIG_NAME, DEFAULT_STORE
from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.pipeline.ingest_run import Outcome
from fairmfu.ingest.store import lock
from fairmfu.ingest.store.store import Store
from fairmfu.ingest.store.transactions import utc_now
from fairmfu.metrics.compare.comparability import rank_runs
from fairmfu.metrics.compare.comparison_row import ComparisonRow
from fairmfu.metrics.compare.cost import Price
from fairmfu.metrics.compare.history import SERIES_BY, History, history
from fairmfu.metrics.compare.rhythm import end_of_night
from fairmfu.metrics.core.messages import as_clause
from fairmfu.metrics.formula.accelerators import Accelerator
from fairmfu.metrics.formula.terms import FORMULA_VERSION
from fairmfu.metrics.pipeline import metrics_cache as scores
from fairmfu.metrics.pipeline.analysis import Analysis
from fairmfu.metrics.pipeline.run_scoring import outdated_reading

from ..charts import render_process
from ..page import html_report
from ..page.output_files import TEMPORARY_SUFFIX, replace_file
from ..page.redaction import Redaction
from ..page.report_data import build_content
from ..store.metrics_store import MetricsState, analysis_of, store_metrics, update_metrics
from ..text.commands import with_store
from ..text.run_narrative import BAD_OUTCOMES
from ..text.summary import comparison_rows, verdict_sentences
from ..text.tabular import count_noun
from ..text.verdict import ranked_groups
from . import baselines, messages, night_files, night_html, night_outputs
from .findings import FIRST_NIGHT_WINDOW, UNREAD, exit_code, told_failures, told_key
from .issue_files import filed_runs, issue_files
from .jobs import jobs_of_runs
from .night_files import ARCHIVE, CHARTS, DATED, INDEX, LOG_FILE
from .night_report import DEFAULT_FAIL_ON, SOURCE_SCHEMA, Night
from .watch import watch_night

NIGHTS: Final = "nights"
"""Name of the nights' table in the store."""

NIGHT_SCHEMA: Final = pl.Schema(
    {
        "number": pl.Int64(),
        "at": TIMESTAMP,
        "out": TEXT,
        "by": TEXT_LIST,
        "told": TEXT_LIST,
        "as_of": pl.Int64(),
    }
)
"""out: folder of the report; by: columns that made a series; told: changes that were news; as_of:
the reported state of the store.
"""

MAX_LOG_BYTES: Final = 1_000_000

MAX_REPORTED_RUNS: Final = 60
"""Most runs of one night with a full report; a first night may bring thousands."""

# -- one night -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NightlyOrder:
    """Settings of a nightly run.

    sources: files, folders and patterns
    facts_of, unmatched: of ingest.facts.project_config.ProjectConfig
    by: columns of metrics that make a series
    threshold: share below which a change does not count
    keep: number of dated reports to keep; None keeps all
    baselines: names or ids of runs, in addition to pinned ones
    fail_on: names of findings that make the night fail (reports.nightly.findings)
    expected, ended: names of jobs that have to run, and that no longer run
    engine: reads the logs
    redaction: names to hide, collected during the run; None for reports that hide nothing
    issue_dir: folder for one file per new finding (reports.nightly.issue_files); None for no files
    """

    sources: Sequence[Path]
    store: Store
    out: Path
    title: str = "Nightly"
    by: Sequence[str] = SERIES_BY
    threshold: float = 0.0
    keep: int | None = None
    baselines: Sequence[str] = ()
    fail_on: Sequence[str] = DEFAULT_FAIL_ON
    expected: Sequence[str] = ()
    ended: Sequence[str] = ()
    overlay: Sequence[Accelerator] = ()
    price: Price | None = None
    engine: ReadEngine = ingest_run.SINGLE_PROCESS
    redaction: Redaction | None = None
    issue_dir: Path | None = None
    facts_of: Callable[[str], Sequence[dict[str, Any]]] = lambda _: ()
    unmatched: Callable[[Iterable[Path]], Sequence[str]] = lambda _: ()
    report: Callable[[Outcome], None] = lambda _: None


@dataclass(slots=True)
class _Diary:
    """nightly.log: a timed line per action, redacted like the reports."""

    path: Path
    hides: Redaction | None
    notes: list[str] = field(default_factory=list)

    def note(self, words: str) -> None:
        """Write a sentence that the report repeats."""
        self.notes.append(words)
        self.write(words)

    def write(self, words: str) -> None:
        """Write a sentence for the log alone."""
        words = self.told(words)
        if self.path.exists() and self.path.stat().st_size > MAX_LOG_BYTES:
            self.path.replace(self.path.with_name(f"{LOG_FILE}.1"))
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        with self.path.open("a", encoding="utf-8") as log:
            log.write(f"{now} {' '.join(words.splitlines())}\n")

    def told(self, words: str) -> str:
        """Return a sentence, redacted if the reports are."""
        if self.hides is None:
            return words
        self.hides.scan(words)
        hidden: str = self.hides.redact(words)
        return hidden


@dataclass(frozen=True, slots=True)
class _Tonight:
    """Runs of the night.

    runs: rows of metrics that are new or changed
    shown: the newest of them, by name
    analysis: of the shown runs; None if nothing was computed
    outcomes: result for each source
    """

    runs: pl.DataFrame
    shown: pl.DataFrame
    analysis: Analysis | None
    outcomes: Sequence[Outcome]

    @classmethod
    def of(cls, order: NightlyOrder, state: MetricsState, outcomes: Sequence[Outcome]) -> _Tonight:
        """Select the runs of a night; state: of this night."""
        members = pl.col("members").list.set_intersection(list(state.changed))
        runs = state.metrics.filter(members.list.len() > 0)
        shown = (
            runs.sort("started_at", "run_id", nulls_last=False).tail(MAX_REPORTED_RUNS).sort("name")
        )
        analysis = None
        if shown.height:
            analysis = analysis_of(order.store, state, shown["run_id"].to_list(), order.overlay)
        return cls(runs, shown, analysis, outcomes)


def nightly(order: NightlyOrder) -> tuple[Night, int]:
    """Do one night, from reading to the report; return the night and its exit code.

    Raises FairmfuError, keeping the last good report with a notice of the failure.
    """
    try:
        order.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritten(order.out, error) from error
    night_files.check_folder(order.out)  # before anything in it changes
    diary = _Diary(order.out / LOG_FILE, order.redaction)
    store = order.store
    patience = lock.DEFAULT_PATIENCE_S if store.patience_s is None else store.patience_s
    try:
        with lock.hold_lock(order.out, patience, store.says, "--out"):
            night_files.claim(order.out)
            diary.write(f"started, fairmfu {version('fairmfu')}, store {store.path}")
            return _night(order, diary)
    except BaseException as error:
        _failed(order.out, diary, error)
        if isinstance(error, OSError):
            raise _unwritten(order.out, error) from error
        raise


def _unwritten(out: Path, error: OSError) -> FairmfuError:
    why, todo = explain_write_error(error, "--out")
    return messages.NIGHT_NOT_WRITTEN(out=out, why=why, remedy=todo)


def _failed(out: Path, diary: _Diary, error: BaseException) -> None:
    why = str(error) or type(error).__name__
    with suppress(OSError):
        diary.write(f"failed: {why}")
        status = night_html.status_js(datetime.now().astimezone(), diary.told(why))
        replace_file(out / night_html.STATUS_FILE, status.encode())


def _night(order: NightlyOrder, diary: _Diary) -> tuple[Night, int]:
    outcomes = _read(order, diary)
    render_process.start_drawing("html")
    every_night = order.store.kept(NIGHTS)
    before = _nights_of(order, every_night)
    if every_night.is_empty():
        _note_new_store(order, diary)
    told_by = before["as_of"][-1] if before.height else -1
    touched = order.store.runs_changed_since(told_by)
    found = update_metrics(order.store, order.overlay, touched, compute_each=order.engine.each)
    store_metrics(order.store, found)
    computed = 0 if found.rescored is None else found.rescored.rows.height
    diary.write(f"{computed:,} runs computed")
    tonight = _Tonight.of(order, found, outcomes)
    note_progress("Looking for changes")
    night, told = _night_and_news(order, found, tonight, before, diary)
    filed = found.metrics.filter(pl.col("run_id").is_in(filed_runs(night)))
    if order.redaction is not None:
        order.redaction.scan(_parts(night))  # so that the runs page hides the same names
        order.redaction.scan(filed)
    runs_page = _full_report(order, tonight, night)
    if order.redaction is not None:
        night, filed = _redacted(night, order.redaction), order.redaction.redact(filed)
    note_progress("Writing the report of the night")
    _write(order, night, runs_page)
    if order.issue_dir is not None:
        _write_issues(order.issue_dir, issue_files(night, filed), diary)
    _remember(order, night, told, found.as_of)
    code = exit_code(night)
    diary.write(f"done, exit {code}")
    return night, code


def _read(order: NightlyOrder, diary: _Diary) -> list[Outcome]:
    """Ingest new logs; raise NothingReadError if no source could be read."""
    outcomes = ingest_run.ingest_paths(
        order.sources,
        order.store,
        path_facts=order.facts_of,
        excluded_folders=tuple(filter(None, (order.store.home, order.out, order.issue_dir))),
        format_choice=load_format_catalog().tried(()),
        report=order.report,
        engine=order.engine,
    )
    counts: dict[str, int] = {}
    for one in outcomes:
        counts[one.status] = counts.get(one.status, 0) + 1
        if one.status == "read" and one.urgent:
            diary.note(f"{one.message}.")
        elif one.status == "failed" or (one.status == "read" and one.message):
            diary.write(one.message)
        elif one.status == "passed" and one.message:
            diary.write(one.skipped_message)
    diary.write(_counts_text(counts))
    if counts.keys() <= {"failed", "passed"} and not any(map(_launch_error, outcomes)):
        reasons = "; ".join(one.message for one in outcomes if one.status == "failed")
        raise messages.NOTHING_READ(reasons=reasons) if reasons else messages.NO_KNOWN_LOG()
    for words in order.unmatched(one.path for one in outcomes):
        diary.note(words)
    return outcomes


def _counts_text(counts: Mapping[str, int]) -> str:
    """Return the number of sources per status; counts: by `Outcome.status`."""
    words = {"passed": "skipped"}
    parts = [f"{n:,} {words.get(status, status)}" for status, n in sorted(counts.items())]
    return ", ".join(parts) or "no source"


def _night_and_news(
    order: NightlyOrder,
    state: MetricsState,
    tonight: _Tonight,
    before: pl.DataFrame,
    diary: _Diary,
) -> tuple[Night, list[str]]:
    """Return the night, and the keys of changes reported by now.

    before: earlier nights, columns of NIGHT_SCHEMA
    """
    metrics = state.metrics
    _note_clock_setback(before, diary)
    _note_outdated_metrics(order, state, diary)
    _note_outdated_readings(order.store, metrics, diary)
    dated = _dated(order.store, state.kept, metrics)
    pins = baselines.night_baselines(order.store, order.baselines, metrics)
    past = history(dated, by=order.by, threshold=order.threshold, baselines=pins)
    changes, told = _news(past, before, order, diary)
    known = _told(before)
    watched, watched_keys = watch_night(dated, past, pins, order.threshold, known)
    _note_overridden_logs(tonight.runs, diary)
    night = Night(
        title=order.title,
        at=datetime.now().astimezone(),
        number=before.height + 1,
        series=past.series,
        points=past.points,
        changes=changes,
        unplaced=past.unplaced,
        tonight=tonight.runs,
        sources=_sources(tonight.outcomes, known),
        notes=tuple(with_store(note, named_store(order.store)) for note in diary.notes),
        formula=FORMULA_VERSION,
        version=version("fairmfu"),
        threshold=order.threshold,
        runs_page="runs.html" if tonight.shown.height else None,
        comparison=_comparison(tonight, order),
        told=known,
        watched=watched,
        **_jobs(order, dated, past.points, tonight.runs),
    )
    return night, [*told, *watched_keys, *told_failures(night)]


def _note_outdated_metrics(order: NightlyOrder, state: MetricsState, diary: _Diary) -> None:
    """Note how many runs have metrics of an earlier fairmfu, with the main reason."""
    old = scores.outdated_rows(state.kept, order.overlay)
    if old.height:
        why = old["why"].value_counts(sort=True).row(0)[0]
        diary.note(
            f"{count_noun(old.height, 'run')} {'has' if old.height == 1 else 'have'} metrics of an "
            f"earlier fairmfu ({why}). Fix: fairmfu rescore."
        )


def _comparison(tonight: _Tonight, order: NightlyOrder) -> list[str]:
    """Return who is faster among tonight's runs; empty if none was analysed."""
    if tonight.analysis is None:
        return []
    return tonight.analysis.present(
        tonight.shown,
        lambda analysis, runs: _comparison_sentences(
            comparison_rows(analysis, runs, rank_runs(runs, analysis.loss_lines, order.price))
        ),
    )


def _redacted(night: Night, redaction: Redaction) -> Night:
    """Return the redacted night; a name gets the same word as on the runs page."""
    hidden = {name: redaction.redact(part) for name, part in _parts(night).items()}
    return replace(night, **hidden | {"redacted": True})


def _parts(night: Night) -> dict[str, Any]:
    return {one.name: getattr(night, one.name) for one in fields(night)}


def _comparison_sentences(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return who is faster, only for groups with several runs."""
    several = [group for group in ranked_groups(rows) if len(group) > 1]
    return verdict_sentences([row for group in several for row in group]) if several else []


def _told(nights: pl.DataFrame) -> frozenset[str]:
    """Return the keys of findings and changes that earlier nights reported."""
    return frozenset(nights["told"].explode(empty_as_null=False))


def _sources(outcomes: Sequence[Outcome], earlier_keys: Collection[str]) -> pl.DataFrame:
    """Return the result for each path; an unchanged one is known.

    earlier_keys: of findings of earlier nights. `new`: no earlier night reported the path. It is
    found before redaction, which may give the path another word tonight.
    """
    status = {"unchanged": "known"}
    rows = [
        {
            "path": x.given,
            "status": status.get(x.status, x.status),
            "message": x.message.removeprefix(f"{x.given}: "),
            "kind": x.kind,
            "new": told_key(UNREAD, str(x.given)) not in earlier_keys,
            "place": None if error is None else job_place(Path(x.given).absolute()),
            "launch_error": error,
        }
        for x in outcomes
        for error in [_launch_error(x)]
    ]
    return pl.DataFrame(rows, schema=SOURCE_SCHEMA)


def _launch_error(outcome: Outcome) -> str | None:
    """Return the error of a launch that failed before any step."""
    if outcome.kind != FAILED_BEFORE_STEPS.identifier:
        return None
    return outcome.message.partition(LAUNCH_FAILED)[2].partition("\n")[0]


def _note_new_store(order: NightlyOrder, diary: _Diary) -> None:
    """Note that earlier reports of this folder are of another store.

    Only for a store without a night.
    """
    reports = (order.out / ARCHIVE).glob("*")
    if any(DATED.fullmatch(path.name) for path in reports):
        diary.note(
            f"First night in the store {order.store.path}: earlier reports of {order.out} are of "
            "another store, so history begins with the logs that are there. If the store moved, "
            "name its new place: --store, or store in fairmfu.toml."
        )


def _note_clock_setback(nights: pl.DataFrame, diary: _Diary) -> None:
    last = nights["at"].max()
    if isinstance(last, datetime) and last > utc_now():
        diary.note(
            f"The clock was set back: it shows {utc_now():%Y-%m-%d %H:%M} UTC, and the last report "
            f"is of {last:%Y-%m-%d %H:%M} UTC. Only logs without timestamps are affected: they are "
            "ordered by this clock. A job is not reported as missing until the clock is past "
            "its last run."
        )


def _note_overridden_logs(tonight: pl.DataFrame, diary: _Diary) -> None:
    """Note that facts of fairmfu.toml override logs: a pattern may match too much."""
    said = tonight.select("name", pl.col("warnings").alias("warning")).explode("warning")
    given = pl.col("warning").str.contains(f"(sidecar:{CONFIG_NAME})", literal=True)
    clash = said.filter(given & pl.col("warning").str.contains("(log:", literal=True))
    if clash.height:
        of, (name, words) = count_noun(clash["name"].n_unique(), "run"), clash.row(0)
        diary.note(
            f"{CONFIG_NAME} overrides the log's facts in {of} tonight, such as {name}: {words}"
        )


def _note_outdated_readings(store: Store, metrics: pl.DataFrame, diary: _Diary) -> None:
    """Note runs read by an earlier fairmfu: their logs are gone or were not re-read."""
    before = store.outdated_sources()
    if not before:
        return
    source_of = dict(store.table("runs").select("run_id", "sha256").iter_rows())
    told: list[tuple[str, list[str]]] = []
    for name, members in metrics.select("name", "members").iter_rows():
        sources = filter(None, (before.get(source_of.get(run, "")) for run in members))
        if since := [what for source in sources for what in source.since]:
            told.append((name, since))
    if told:
        name, since = min(told)
        reason = as_clause(outdated_reading(since, "note"))
        diary.note(f"{count_noun(len(told), 'run')}, such as {name}: {reason}")


def _dated(store: Store, kept: pl.DataFrame, metrics: pl.DataFrame) -> pl.DataFrame:
    """Add reading time, path, clock, peak table and job of each run to metrics."""
    read_at = store.table("sources").select("sha256", "read_at", "path")
    of_run = store.table("runs").select("run_id", "sha256", "utc").join(read_at, on="sha256")
    peaks = kept.select("run_id", "peaks")
    dated = metrics.join(of_run.drop("sha256"), on="run_id", how="left").join(
        peaks, on="run_id", how="left"
    )
    facts = store.facts_named("name").rows_by_key("run_id", named=True)
    jobs = [
        ("", None) if path is None else named_job(Path(path), name_fact(facts.get(run, ())))
        for run, path in dated.select("run_id", "path").iter_rows()
    ]
    return dated.with_columns(
        job=pl.Series([place for _, place in jobs], dtype=TEXT),
        path_name=pl.Series([name for name, _ in jobs], dtype=TEXT),
    )


def _jobs(
    order: NightlyOrder, dated: pl.DataFrame, points: pl.DataFrame, tonight: pl.DataFrame
) -> dict[str, Any]:
    """Return the fields of a night about jobs.

    Starts in UTC are shifted to the clock of this machine. Other logs are taken to be of its zone.
    """
    clock = datetime.now().astimezone()
    offset = clock.utcoffset() or timedelta(0)
    started = pl.col("started_at") + pl.when("utc").then(pl.lit(offset)).otherwise(timedelta(0))
    runs = dated.with_columns(at=pl.coalesce(started, pl.col("read_at") + offset))
    newest = runs["at"].max()
    fresh = runs.filter(pl.col("run_id").is_in(tonight["run_id"].implode()))["at"].max()
    is_fresh = isinstance(newest, datetime) and newest == fresh
    now = end_of_night(clock.replace(tzinfo=None), cast(datetime, newest) if is_fresh else None)
    runs = runs.rename({"job": "place"})
    whole = runs.join(_last_steps(order.store, runs), "run_id", "left")
    return {
        "jobs": jobs_of_runs(whole, points, order.by),
        "now": now,
        "store": named_store(order.store),
        "fail_on": order.fail_on,
        "expected": order.expected,
        "ended": order.ended,
    }


def named_store(store: Store) -> str | None:
    """Return the path that commands have to name; None for the usual store."""
    return None if str(store.path) == str(DEFAULT_STORE) else str(store.path)


def _last_steps(store: Store, runs: pl.DataFrame) -> pl.DataFrame:
    """Return the last step line of each newest run that did not complete."""
    ended = runs.filter(pl.col("outcome").is_in([*BAD_OUTCOMES, "incomplete"]))
    recent = ended.filter(pl.col("at") > pl.col("at").max() - MAX_FAILURE_AGE)
    members = recent.select("run_id", member="members").explode("member")
    steps = store.table("steps", recent["members"].explode().to_list()) if recent.height else None
    if steps is None:
        return pl.DataFrame(schema=_LAST_STEPS)
    by_member = members.join(steps.rename({"run_id": "member"}), "member", "left")
    return (
        by_member.group_by("run_id")
        .agg(
            step_lines=pl.col("step").count(),
            last_step=pl.col("step").max(),
            last_at=pl.col("logged_at").max(),
        )
        .cast(_LAST_STEPS)
    )


MAX_FAILURE_AGE: Final = timedelta(days=30)
"""Age of a run up to which the report names the step of its failure."""

_LAST_STEPS: Final = pl.Schema(
    {"run_id": TEXT, "step_lines": INT, "last_step": INT, "last_at": TIMESTAMP}
)


def _news(
    past: History, nights: pl.DataFrame, order: NightlyOrder, diary: _Diary
) -> tuple[pl.DataFrame, list[str]]:
    """Return changes with `new`, and the keys of changes reported by now.

    A night reports changes that no earlier night reported. The first night, or the first of another
    kind of series, reports recent changes. A change that starts to count is reported again.
    """
    rows = past.changes.rows(named=True)
    told_now = [key for row in rows for key in _keys(row)]
    nights = nights.filter(pl.col("by").list.join(" ") == " ".join(order.by))
    if nights.height:
        before = set(nights["told"].explode(empty_as_null=False))
        new = pl.Series([before.isdisjoint(_earlier_keys(row)) for row in rows], dtype=BOOL)
        fresh = [key for key in told_now if key not in before]
        return past.changes.with_columns(new=new), fresh
    newest = past.points["at"].max()
    news = pl.lit(value=False)
    if isinstance(newest, datetime):
        news = (pl.col("found_at") >= newest - FIRST_NIGHT_WINDOW).fill_null(value=False)
    changes = past.changes.with_columns(new=news)
    if old := changes.filter(~pl.col("new")).height:
        many = count_noun(old, "earlier change")
        are = "is" if old == 1 else "are"
        diary.note(f"First night of these series: {many} {are} listed but not reported as new.")
    return changes, told_now


def _keys(change: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of a change: its start, its confirmation, and whether it counts.

    Corrected facts rename the series, so the series is no part of a key.
    """
    kind = "counts" if change["counts"] else "listed"
    for how, run in (("begins", change["run_id"]), ("sure", change["found_by"])):
        if run is not None:
            yield "\x1f".join((change["against"], change["kind"], kind, how, run))


def _earlier_keys(change: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys under which an earlier night may have reported a change.

    A late log may move the start of a change, or its confirmation: without that log the confirming
    run may have been the start. A change is reported again once it counts, not the other way round.
    The last key is the one of former versions.
    """
    yield from _keys(change)
    yield from _keys({**change, "run_id": change["found_by"]})
    if not change["counts"]:
        yield from _earlier_keys({**change, "counts": True})
    former = (change["series"], change["against"], change["kind"], change["found_by"])
    yield "\x1f".join(part for part in former if part is not None)


def _full_report(order: NightlyOrder, tonight: _Tonight, night: Night) -> str | None:
    """Return the page of tonight's runs, as by `fairmfu report`; None without any."""
    if tonight.analysis is None:
        return None
    shown, all_of_them = tonight.shown, tonight.runs.height
    title = f"{order.title}: runs of {night.at:%Y-%m-%d}" + (
        f" (the newest {shown.height:,} of {all_of_them:,})" if shown.height < all_of_them else ""
    )
    tables = order.store.tables(shown["run_id"].to_list())
    return full_page(tonight.analysis, shown, tables, title, order)


def full_page(
    analysis: Analysis,
    metrics: pl.DataFrame,
    tables: Mapping[str, pl.DataFrame],
    title: str,
    order: NightlyOrder,
) -> str:
    """Return the page of `fairmfu report`, for these runs of an analysis."""
    made_by = version("fairmfu")
    told = build_content(
        analysis,
        metrics,
        tables,
        title,
        order.price,
        made_by,
        redaction=order.redaction,
        store=named_store(order.store),
    )
    return told.render(html_report.render_page)


def _nights_of(order: NightlyOrder, nights: pl.DataFrame) -> pl.DataFrame:
    """Return the earlier nights of this folder of reports, columns of NIGHT_SCHEMA.

    Each folder has its own nights, so a report in another folder does not hide news from this one.

    nights: of the store
    """
    if nights.is_empty():
        return NIGHT_SCHEMA.to_frame()
    return nights.select(NIGHT_SCHEMA.names()).filter(out=str(order.out.absolute()))


def _remember(order: NightlyOrder, night: Night, change_keys: list[str], as_of: int) -> None:
    """Store the night, so that the next one reports only newer changes."""
    out, by = str(order.out.absolute()), list(order.by)
    row = {"number": night.number, "at": utc_now(), "out": out, "by": by, "told": change_keys}
    kept = pl.DataFrame([row], schema=NIGHT_SCHEMA).drop("as_of")  # the store adds as_of itself
    order.store.keep(NIGHTS, kept, as_of)


# -- files -----------------------------------------------------------------------------------


def _write(order: NightlyOrder, night: Night, runs_page: str | None) -> None:
    """Write a night to a temporary folder, the archive, and the top, index.html last."""
    out, archive = order.out, order.out / ARCHIVE
    archive.mkdir(exist_ok=True)
    owned = night_files.owned_names(out)
    for name in owned:
        if name.startswith(f"{ARCHIVE}/"):
            shutil.rmtree(out / f"{name}{TEMPORARY_SUFFIX}", ignore_errors=True)
    dated = _free_folder(archive, f"{night.at:%Y-%m-%d}")
    aside = dated.with_name(f"{dated.name}{TEMPORARY_SUFFIX}")
    files = {
        "summary.md": night_outputs.markdown(night),
        "summary.json": json.dumps(night_outputs.summary(night), indent=1, ensure_ascii=False),
        "junit.xml": night_outputs.junit(night),
        **{f"{CHARTS}/{name}": svg for name, svg in night_outputs.svgs(night).items()},
        **({} if runs_page is None else {"runs.html": runs_page}),
    }
    owned |= {*files, INDEX, f"{ARCHIVE}/{dated.name}"}
    night_files.write_list(out, owned)  # before the files: a killed night leaves none unlisted
    (aside / CHARTS).mkdir(parents=True)
    for name, text in files.items():
        (aside / name).write_text(text, encoding="utf-8")
    today, kept = night_html.pages(night)
    (aside / INDEX).write_text(kept, encoding="utf-8")
    aside.rename(dated)
    _delete_old_reports(night_files.archived_nights(out, owned), order.keep, dated)
    (out / CHARTS).mkdir(exist_ok=True)
    for name, text in files.items():
        replace_file(out / name, text.encode())
    replace_file(out / INDEX, today.encode())
    replace_file(out / night_html.STATUS_FILE, night_html.status_js().encode())
    stale = {name for name in owned if name.startswith(f"{CHARTS}/")} | {"runs.html"}
    for name in (stale & owned) - files.keys():
        (out / name).unlink(missing_ok=True)
    there = {name for name in owned - stale if (out / name).exists()}
    night_files.write_list(out, {*there, *files, LOG_FILE, f"{LOG_FILE}.1"})


def _write_issues(folder: Path, issues: Mapping[str, str], diary: _Diary) -> None:
    """Write a file per new finding; files of earlier nights stay."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in issues.items():
            replace_file(folder / name, text.encode())
    except OSError as error:
        why, todo = explain_write_error(error, "--issue")
        raise messages.ISSUES_NOT_WRITTEN(folder=folder, why=why, remedy=todo) from error
    diary.write(f"{count_noun(len(issues), 'issue')} written to {folder}")


def _free_folder(archive: Path, date: str) -> Path:
    """Return a free folder of that date, numbered after earlier reports of the day."""
    there = [p for p in archive.glob(f"{date}*") if DATED.fullmatch(p.name)]
    last = max((_by_date(path)[1] for path in there), default=0)
    return archive / (f"{date}-{last + 1}" if there else date)


def _delete_old_reports(nights: Sequence[Path], keep: int | None, tonight: Path) -> None:
    """Delete the oldest reports except `keep`; by count, whatever the clock says.

    nights: folders that fairmfu wrote.
    """
    if keep is None:
        return
    others = [path for path in nights if path != tonight]  # the oldest if the clock was set back
    for path in sorted(others, key=_by_date, reverse=True)[keep - 1 :]:
        shutil.rmtree(path)


def _by_date(path: Path) -> tuple[str, int]:
    date, number = path.name[:10], path.name[11:]
    return date, int(number or 1)
