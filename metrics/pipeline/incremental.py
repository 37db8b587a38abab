"""Stored metrics (metrics_cache), recomputed only where a change can affect them.

Runs affect other runs in three ways:

    launches    sources of one launch, or possibly of one (metrics.runs.same_run): both ways
    resumes     a launch depends on the launch before, and its goodput on all earlier launches; the
                repeated steps of a launch depend on later launches of the chain
    beside      warnings about an earlier run of the same work follow from stored rows alone
                (metrics.core.run_table.with_cross_run_warnings), so they are not stored

A stored row has the keys of the first two searches, so that the steps of few runs are read: the
last printed step of every rank (metrics.core.link_columns.LAST_STEP_SCHEMA) and the launch's course
(metrics.core.link_columns.LAUNCH_COURSE_SCHEMA).

Frames in, frames out; no files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from fairmfu.ingest.core.schema import TEXT, TEXT_LIST, frame_schema, run_rows

from ..compare.loss_parity import loss_lines
from ..core.impossible_values import refuse_impossible
from ..core.link_columns import LAST_STEP_SCHEMA, LAUNCH_COURSE_SCHEMA
from ..core.run_table import LOSS_LINE_FIELDS, not_null
from ..formula.accelerators import Accelerator
from ..runs import same_run
from ..runs.resume_chains import may_continue, resume_candidates
from .analysis import Analysis, analyse
from .bulkhead import compute_apart
from .compared_runs import bridge_rows
from .kept_audits import audit_row
from .kept_curves import curve_rows
from .metrics_cache import (
    KEPT_SCHEMA,
    LAST_STEP_FIELDS,
    MAX_KEPT_LOSS_LINES,
    current_versions,
    upgrade_kept,
)
from .run_links import LINK_SCHEMA, kept_links, led_to, reached_runs

FIRST_CANDIDATES: Final = 4
"""Earlier launches whose losses are compared first; four times as many after no match."""

DEPENDENCY_COLUMNS: Final = ("run_id", "lead", "members", "related", "earlier", "course", "ends")
"""Columns of KEPT_SCHEMA for finding runs that affect one another."""

Tables = Mapping[str, pl.DataFrame]
LoadTables = Callable[[Sequence[str]], Tables]


@dataclass(frozen=True, slots=True)
class RescoredRuns:
    """Newly computed rows.

    rows: columns of KEPT_SCHEMA; they replace the stored rows of their runs.
    analysis: of the runs of `rows`, `metrics` without cross-run warnings; None if the runs were
    computed in partitions (metrics.pipeline.partitions).
    removed: runs that no longer exist.
    """

    rows: pl.DataFrame
    analysis: Analysis | None
    removed: list[str]

    def replace_in(self, kept: pl.DataFrame) -> pl.DataFrame:
        """Return all rows to store from now on."""
        replaced = pl.concat([self.rows["run_id"], pl.Series(self.removed, dtype=TEXT)]).implode()
        return pl.concat([upgrade_kept(kept).filter(~pl.col("run_id").is_in(replaced)), self.rows])


def rescore(
    runs: pl.DataFrame,
    kept: pl.DataFrame,
    changed: Collection[str],
    load: LoadTables,
    overlay: Sequence[Accelerator] = (),
) -> RescoredRuns:
    """Return the rows of all runs affected by the changed runs.

    For any order of arrival, `finish_metrics` of the stored rows equals `analyse` of all tables.

    runs: the whole table. kept: all stored rows, empty at first.
    changed: new runs, and runs with changed rows, facts or path. Runs without a stored row count as
    changed, stored runs missing in `runs` as removed.
    load: returns the tables of ingest.core.schema for some runs; called once per run.
    overlay: as for `analyse`.

    A run whose computation raises gets the error in its row, as in `analyse`.
    """
    loaded = TableLoader(runs, load)
    asked = sorted(requested_runs(runs, upgrade_kept(kept, DEPENDENCY_COLUMNS), changed))
    asked = [run_id for run_id in asked if run_id in loaded.known]

    def compute(run_ids: Sequence[str]) -> RescoredRuns:
        left_out = pl.col("run_id").is_in(list(set(asked).difference(run_ids)))
        return _rescore(loaded.without(left_out), kept, changed, overlay)

    done = compute_apart(asked, compute)
    if not done.errors:
        return done.result
    tables = loaded.tables(done.errors)
    path = dict(tables["sources"].select("sha256", "path").iter_rows())
    failed = [(run, [path[run["sha256"]]]) for run in run_rows(tables["runs"])]
    analysis = not_null(done.result.analysis).with_errors(done.errors, failed)
    removed = [run_id for run_id in done.result.removed if run_id not in done.errors]
    return RescoredRuns(_rows(analysis, overlay), analysis, removed)


def _rescore(
    loaded: TableLoader,
    kept: pl.DataFrame,
    changed: Collection[str],
    overlay: Sequence[Accelerator],
) -> RescoredRuns:
    """Rescore the runs of a loader, and raise any error."""
    runs = loaded.runs
    about = upgrade_kept(kept, DEPENDENCY_COLUMNS).rechunk()  # else a chunk per stored part
    new = requested_runs(runs, about, changed)
    links = pl.concat([kept_links(about), new_links(about, new, loaded), same_file_links(runs)])
    touched = reached_runs(new, links)
    analysis = analyse(loaded.tables(touched), overlay)
    resumed = _Resumed(about, links, touched, analysis)
    while more := resumed.wanted(analysis) - touched:
        touched |= more
        analysis = analyse(loaded.tables(touched), overlay)
    analysis = _with_repeated(analysis, resumed, touched)
    gone = [run_id for run_id in new if run_id not in loaded.known]
    return RescoredRuns(_rows(analysis, overlay), analysis, sorted(gone))


# -- what has to be looked at ---------------------------------------------------------------


class TableLoader:
    """Tables of all runs requested so far."""

    def without(self, left_out: pl.Expr) -> TableLoader:
        """Return a loader without some runs; later loads are not shared between the two."""
        other = TableLoader(self.runs.filter(~left_out), self.load)
        other.parts, other.here = [*self.parts], {*self.here}
        return other

    def __init__(self, runs: pl.DataFrame, load: LoadTables) -> None:
        self.runs, self.load = runs.rechunk(), load
        self.known = frozenset(runs["run_id"])
        self.parts: list[Tables] = []
        self.here: set[str] = set()

    def tables(self, ids: Collection[str]) -> dict[str, pl.DataFrame]:
        """Return the tables of these runs; omit removed runs."""
        more = sorted((set(ids) & self.known) - self.here)
        if more:
            self.parts.append(self.load(more))
            self.here |= set(more)
        is_wanted = pl.col("run_id").is_in(list(ids))
        runs = self.runs.filter(is_wanted)
        of_source = pl.col("sha256").is_in(runs["sha256"].implode())
        tables = {"runs": runs}
        for name in ("sources", "facts", "steps", "events", "unread"):
            whole = pl.concat([frame_schema(name).to_frame(), *(part[name] for part in self.parts)])
            by_run = "run_id" in whole.columns
            tables[name] = whole.filter(is_wanted) if by_run else whole.filter(of_source)
        # launches of one file may have been loaded separately
        return tables | {"sources": tables["sources"].unique("sha256", maintain_order=True)}


def requested_runs(runs: pl.DataFrame, kept_rows: pl.DataFrame, changed: Iterable[str]) -> set[str]:
    """Return changed, new and removed runs, and runs stored in another layout."""
    current, kept = set(runs["run_id"]), set(kept_rows["run_id"])
    unreadable = kept_rows.filter(pl.col("ends").is_null())["run_id"]
    return (set(changed) & (current | kept)) | (current ^ kept) | set(unreadable)


def same_file_links(runs: pl.DataFrame) -> pl.DataFrame:
    """Return pairs of consecutive launches in one file, in columns of LINK_SCHEMA.

    Text between the lines of a launch also affects its warnings (metrics.audit.sanity_checks).
    """
    consecutive = runs.sort("sha256", "launch").select(
        "sha256", one="run_id", other=pl.col("run_id").shift(-1).over("sha256")
    )
    return consecutive.drop_nulls("other").select(LINK_SCHEMA.names())


def new_links(kept_rows: pl.DataFrame, run_ids: set[str], loader: TableLoader) -> pl.DataFrame:
    """Return changed runs with others that may be of one launch, as LINK_SCHEMA."""
    current = run_ids & loader.known
    ends = (
        kept_rows.select("run_id", "ends")
        .explode("ends", empty_as_null=False)
        .unnest("ends")
        .filter(~pl.col("run_id").is_in(list(run_ids)))
        .select(LAST_STEP_SCHEMA.names())
    )
    if not current or not ends.height:
        return LINK_SCHEMA.to_frame()
    steps = refuse_impossible(loader.tables(current)).tables["steps"]
    candidates = same_run.find_candidates(loader.runs, ends, steps, current)
    if not candidates:
        return LINK_SCHEMA.to_frame()
    possible = refuse_impossible(loader.tables(current.union(candidates))).tables
    pairs = same_run.find_source_links(possible, current)
    return pl.DataFrame(pairs, schema=LINK_SCHEMA, orient="row")


class _Resumed:
    """Stored launches linked by resumes to newly computed ones."""

    def __init__(
        self, about: pl.DataFrame, links: pl.DataFrame, touched: Collection[str], now: Analysis
    ) -> None:
        """Find changed links; touched: runs computed or removed; now: their analysis."""
        is_touched = pl.col("run_id").is_in(list(touched))
        before = about.filter(pl.col("earlier").list.len() > 0).select("run_id", "earlier")
        before = before.explode("earlier").select("run_id", other="earlier")
        self.links = links
        self.earlier = before.filter(~is_touched).rename({"run_id": "one"})
        self.known = about.select(pl.col("course").struct.unnest()).filter(~is_touched)
        fresh = _courses(now)
        disturbed = self._disturbed(touched, fresh)
        after = self.earlier.select(one="other", other="one")
        self.always = led_to(disturbed, after)
        left = before.filter(is_touched | pl.col("run_id").is_in(list(disturbed)))
        self.always |= set(left["other"]) - set(touched)
        searching = pl.concat(
            [fresh, self.known.filter(pl.col("run_id").is_in(list(disturbed)))]
        ).filter(may_continue())
        self.candidates = _in_order(resume_candidates(self.known, searching))

    def _disturbed(self, touched: Collection[str], fresh: pl.DataFrame) -> set[str]:
        """Return launches whose earlier launch may have changed."""
        lost = self.earlier.filter(pl.col("other").is_in(list(touched)))["one"]
        ended = self.earlier.join(
            self.known.select(other="run_id", ended="last_stamp"), on="other"
        ).unique("one")
        nearer = (
            resume_candidates(fresh, self.known.filter(may_continue()))
            .join(ended, left_on="later", right_on="one", how="left")
            .filter(
                pl.col("in_file")
                | pl.col("ended").is_null()
                | (pl.col("last_stamp") >= pl.col("ended"))
            )
        )
        return {*lost, *nearer["later"]}

    def wanted(self, analysis: Analysis) -> set[str]:
        """Return the runs to compute together with the runs of `analysis`.

        Candidates with the latest end are compared first, until a match is found and no remaining
        candidate can replace the match.
        """
        computed = list(analysis.merged_launches.members)
        while True:
            before, self.candidates = self.candidates, _chosen(self.candidates, analysis)
            wanted = self.candidates.filter("wanted")["before"]
            if before.equals(self.candidates) or not wanted.is_in(computed).all():
                break
        ids = self.always.union(wanted)
        while (more := led_to(reached_runs(ids, self.links), self.earlier)) != ids:
            ids = more
        return ids


def _courses(analysis: Analysis) -> pl.DataFrame:
    return analysis.resume_links["course"].struct.unnest().match_to_schema(LAUNCH_COURSE_SCHEMA)


def _in_order(pairs: pl.DataFrame) -> pl.DataFrame:
    """Sort pairs of `resume_candidates` by priority: `place` from 0 per later launch.

    Launches with the same end share a place. Within a file only the previous launch counts.
    """
    in_file = pl.col("in_file").any().over("later")
    newest = pl.col("launch").filter("in_file").max().over("later")
    alone = pl.col("in_file") & (pl.col("launch") == newest)
    pairs = pairs.filter(~in_file | alone)
    place = pl.col("last_stamp").rank("min", descending=True).over("later").fill_null(1) - 1
    return pairs.with_columns(place=place.cast(pl.Int64), wanted=pl.lit(value=False))


def _chosen(candidates: pl.DataFrame, analysis: Analysis) -> pl.DataFrame:
    """Mark more pairs of `_in_order` as wanted where the match is still open."""
    courses = _courses(analysis)
    continued = (
        analysis.resume_links.select(later="run_id", other=pl.col("earlier").list.first())
        .join(courses.select(other="run_id", ended="last_stamp", its="sha256"), on="other")
        .join(courses.select(later="run_id", own="sha256"), on="later")
        .select("later", "ended", settled=pl.col("its") == pl.col("own"))
    )
    looked_at = pl.max_horizontal(pl.col("wanted").sum().over("later"), 1)
    more = (
        pl.when(pl.col("settled"))
        .then(pl.col("in_file"))
        .when(pl.col("ended").is_not_null())
        .then(pl.col("in_file") | (pl.col("last_stamp") >= pl.col("ended")))
        .otherwise(pl.col("place") < FIRST_CANDIDATES * looked_at)
    )
    return (
        candidates.join(continued, on="later", how="left", maintain_order="left")
        .with_columns(wanted=pl.col("wanted") | more.fill_null(value=False))
        .drop("ended", "settled")
    )


# -- what comes of it -----------------------------------------------------------------------


def _with_repeated(analysis: Analysis, resumed: _Resumed, touched: Collection[str]) -> Analysis:
    """Add steps trained again by launches outside `touched`."""
    sure = resumed.earlier.filter(
        pl.len().over("one") == 1, ~pl.col("one").is_in(list(touched))
    ).select(run_id="other", later="one")
    first = (
        sure.join(resumed.known.select(later="run_id", behind="first_step"), on="later")
        .group_by("run_id")
        .agg(pl.col("behind").min())
    )
    again = (
        analysis.windows.select("run_id", "step")
        .join(first, on="run_id")
        .group_by("run_id")
        .agg(again=(pl.col("step") >= pl.col("behind")).sum().cast(pl.Int64))
    )
    if not again.height:
        return analysis
    alone, metrics = (
        frame.join(again, on="run_id", how="left", maintain_order="left")
        .with_columns(repeated_steps=pl.max_horizontal("repeated_steps", "again"))
        .drop("again")
        for frame in (analysis.isolated_metrics, analysis.metrics)
    )
    return replace(analysis, isolated_metrics=alone, metrics=metrics)


def _rows(analysis: Analysis, overlay: Sequence[Accelerator]) -> pl.DataFrame:
    """Return all runs of an analysis in columns of KEPT_SCHEMA, by run_id."""
    members = {
        lead: [row["run_id"] for row in rows]
        for lead, rows in analysis.merged_launches.members.items()
    }
    linked = analysis.merged_launches.linked_sources
    related = {
        lead: sorted({other for source in ids for other in linked.get(source, ())} - set(ids))
        for lead, ids in members.items()
    }
    by = current_versions(overlay)
    led = [(source, lead, related[lead]) for lead, ids in members.items() for source in ids]
    runs = pl.DataFrame(
        led, schema={"run_id": TEXT, "lead": TEXT, "related": TEXT_LIST}, orient="row"
    )
    is_lead = pl.col("run_id") == pl.col("lead")
    ends = analysis.merged_launches.last_steps.group_by("run_id", maintain_order=True).agg(
        ends=pl.struct(LAST_STEP_FIELDS)
    )
    return (
        runs.join(analysis.isolated_metrics, on="run_id", how="left")
        .join(analysis.resume_links.select("run_id", "earlier", "course"), on="run_id", how="left")
        .join(ends, on="run_id", how="left")
        .join(_bridges(analysis), on="run_id", how="left")
        .join(_audits(analysis), on="run_id", how="left")
        .join(curve_rows(analysis, analysis.metrics["run_id"].to_list()), on="run_id", how="left")
        .join(_loss_lines(analysis), on="run_id", how="left")
        .with_columns(
            pl.when(is_lead).then(pl.col("related")),
            pl.when(is_lead).then(pl.col("earlier").fill_null([])),
            pl.col("ends").fill_null([]),
            pl.lit(None, KEPT_SCHEMA["needs"]).alias("needs"),
            *(pl.when(is_lead).then(pl.lit(now)).alias(name) for name, now in by.items()),
        )
        .match_to_schema(KEPT_SCHEMA)
        .sort("run_id")
    )


def _bridges(analysis: Analysis) -> pl.DataFrame:
    """Return run_id, and the column `bridges` of KEPT_SCHEMA."""
    rows = bridge_rows(analysis, analysis.metrics["run_id"].to_list())
    columns = {"run_id": [*rows], "bridges": [*rows.values()]}
    return pl.DataFrame(columns, schema={name: KEPT_SCHEMA[name] for name in columns})


def _audits(analysis: Analysis) -> pl.DataFrame:
    """Return run_id, and the column `audit` of KEPT_SCHEMA."""
    rows = {run_id: audit_row(audit) for run_id, audit in analysis.audits.items()}
    columns = {"run_id": [*rows], "audit": [*rows.values()]}
    return pl.DataFrame(columns, schema={name: KEPT_SCHEMA[name] for name in columns})


def _loss_lines(analysis: Analysis) -> pl.DataFrame:
    """Return run_id, and the column `loss_lines` of KEPT_SCHEMA."""
    lines = loss_lines(analysis.windows)
    of_run = lines.group_by("run_id", maintain_order=True).agg(
        loss_lines=pl.struct([*LOSS_LINE_FIELDS])
    )
    none = pl.lit([], KEPT_SCHEMA["loss_lines"])
    found = pl.col("loss_lines").fill_null(none)
    return (
        analysis.metrics.select("run_id")
        .join(of_run, on="run_id", how="left")
        .select(
            "run_id",
            pl.when(found.list.len() <= MAX_KEPT_LOSS_LINES).then(found).alias("loss_lines"),
        )
    )
