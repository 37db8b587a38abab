"""Metrics that are kept (metrics_cache), computed anew only where something new can touch them.

Runs touch each other in three ways:

    launches    sources that tell of one launch, or may (metrics.runs.same_run): both ways
    resumes     a launch depends on the one that it continues, and with its goodput on all before
                that one; a launch's repeated steps depend on those that continue it
    beside      a warning beside an earlier run of the same work, which follows from the kept rows
                alone (metrics.core.run_table.with_cross_run_warnings), so it is not kept

A kept row holds what the first two are looked for by, so that the steps of few runs are read: the
last printed step of each rank (metrics.core.link_columns.LAST_STEP_SCHEMA) and the launch's course
(metrics.core.link_columns.LAUNCH_COURSE_SCHEMA).

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from fairmfu.ingest.core.schema import TEXT, TEXT_LIST, frame_schema, run_rows

from ..core.impossible_values import refuse_impossible
from ..core.link_columns import LAST_STEP_SCHEMA, LAUNCH_COURSE_SCHEMA
from ..core.run_table import not_null
from ..formula.accelerators import Accelerator
from ..runs import same_run
from ..runs.resume_chains import may_continue, resume_candidates
from .analysis import Analysis, analyse
from .bulkhead import compute_apart
from .metrics_cache import KEPT_SCHEMA, LAST_STEP_FIELDS, current_versions, upgrade_kept

FIRST_CANDIDATES: Final = 4
"""Earlier launches whose losses are looked at first; four times as many where none is continued."""

DEPENDENCY_COLUMNS: Final = ("run_id", "lead", "members", "related", "earlier", "course", "ends")
"""Columns of KEPT that tell what a run may touch."""

Tables = Mapping[str, pl.DataFrame]
LoadTables = Callable[[Sequence[str]], Tables]


@dataclass(frozen=True, slots=True)
class RescoredRuns:
    """What was computed anew.

    rows: columns of KEPT; they replace what is kept of all runs that they name. gone: runs that
    are no longer there. analysis: of the runs of `rows`; its `metrics` lack warnings beside others.
    None where they were not looked at together (metrics.pipeline.partitions).
    """

    rows: pl.DataFrame
    analysis: Analysis | None
    removed: list[str]

    def replace_in(self, kept: pl.DataFrame) -> pl.DataFrame:
        """All that is kept from now on."""
        replaced = pl.concat([self.rows["run_id"], pl.Series(self.removed, dtype=TEXT)]).implode()
        return pl.concat([upgrade_kept(kept).filter(~pl.col("run_id").is_in(replaced)), self.rows])


def rescore(
    runs: pl.DataFrame,
    kept: pl.DataFrame,
    changed: Collection[str],
    load: LoadTables,
    overlay: Sequence[Accelerator] = (),
) -> RescoredRuns:
    """The rows of all runs that the changed ones can touch.

    Whatever the order in which runs came, `finished` of what is kept is `analyse` of all tables.

    runs: the whole table; kept: all kept rows, or none yet; changed: runs that are new, or whose
    rows, facts or path changed since they were kept. Runs that are not kept count as changed, kept
    ones that are not in `runs` as gone. load: the tables of ingest.core.schema for some runs; it is
    asked once for each. overlay: as for `analyse`. Runs that cannot be looked at beside the others,
    whatever is raised, have that as their error, as in `analyse`.
    """
    loaded = TableLoader(runs, load)
    asked = sorted(requested_runs(runs, upgrade_kept(kept).select(DEPENDENCY_COLUMNS), changed))
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
    """`rescore` of the runs of a loader; raises whatever goes wrong with one."""
    runs = loaded.runs
    about = upgrade_kept(kept).select(DEPENDENCY_COLUMNS).rechunk()  # of a part a night
    new = requested_runs(runs, about, changed)
    links = pl.concat([kept_links(about), new_links(about, new, loaded)])
    beside = same_file_links(runs)
    touched = _reached(new, pl.concat([links, beside]))
    analysis = analyse(loaded.tables(touched), overlay)
    resumed = _Resumed(about, links, touched, analysis)
    while more := resumed.wanted(analysis) - touched:
        touched |= _reached(more, beside)
        analysis = analyse(loaded.tables(touched), overlay)
    analysis = _with_repeated(analysis, resumed, touched)
    gone = [run_id for run_id in new if run_id not in loaded.known]
    return RescoredRuns(_rows(analysis, overlay), analysis, sorted(gone))


# -- what has to be looked at ---------------------------------------------------------------


class TableLoader:
    """Tables of the runs that were asked for so far."""

    def without(self, left_out: pl.Expr) -> TableLoader:
        """The same without some runs; what either loads from now on the other does not have."""
        other = TableLoader(self.runs.filter(~left_out), self.load)
        other.parts, other.here = [*self.parts], {*self.here}
        return other

    def __init__(self, runs: pl.DataFrame, load: LoadTables) -> None:
        self.runs, self.load = runs.rechunk(), load
        self.known = frozenset(runs["run_id"])
        self.parts: list[Tables] = []
        self.here: set[str] = set()

    def tables(self, ids: Collection[str]) -> dict[str, pl.DataFrame]:
        """The tables of these runs; runs that are gone are left out."""
        more = sorted((set(ids) & self.known) - self.here)
        if more:
            self.parts.append(self.load(more))
            self.here |= set(more)
        mine = pl.col("run_id").is_in(list(ids))
        runs = self.runs.filter(mine)
        of_source = pl.col("sha256").is_in(runs["sha256"].implode())
        tables = {"runs": runs}
        for name in ("sources", "facts", "steps", "events", "unread"):
            whole = pl.concat([frame_schema(name).to_frame(), *(part[name] for part in self.parts)])
            by_run = "run_id" in whole.columns
            tables[name] = whole.filter(mine) if by_run else whole.filter(of_source)
        # launches of one file may have come one by one
        return tables | {"sources": tables["sources"].unique("sha256", maintain_order=True)}


def requested_runs(runs: pl.DataFrame, kept_rows: pl.DataFrame, changed: Iterable[str]) -> set[str]:
    """Runs that are changed, new or gone, and those that another layout kept. about: kept rows."""
    there, kept = set(runs["run_id"]), set(kept_rows["run_id"])
    unreadable = kept_rows.filter(pl.col("ends").is_null())["run_id"]
    return (set(changed) & (there | kept)) | (there ^ kept) | set(unreadable)


LINK_SCHEMA: Final = pl.Schema({"one": TEXT, "other": TEXT})


def kept_links(kept_rows: pl.DataFrame) -> pl.DataFrame:
    """Runs of one launch, or that may be, as they are kept; columns of LINK_SCHEMA."""
    parts = [
        kept_rows.select(one="run_id", other=name)
        .filter(pl.col("other").list.len() > alone)
        .explode("other")
        for name, alone in (("members", 1), ("related", 0))
    ]
    return pl.concat(parts).filter(pl.col("one") != pl.col("other"))


def same_file_links(runs: pl.DataFrame) -> pl.DataFrame:
    """Launches one behind the other in one file; columns of LINK_SCHEMA.

    What stands between the lines of one of them tells of it, too (metrics.audit.sanity_checks).
    """
    told = runs.sort("sha256", "launch").select(
        "sha256", one="run_id", other=pl.col("run_id").shift(-1).over("sha256")
    )
    return told.drop_nulls("other").select(LINK_SCHEMA.names())


def new_links(kept_rows: pl.DataFrame, run_ids: set[str], loader: TableLoader) -> pl.DataFrame:
    """Changed runs and others that are of one launch, or may be; columns of LINK_SCHEMA."""
    mine = run_ids & loader.known
    ends = (
        kept_rows.select("run_id", "ends")
        .explode("ends", empty_as_null=False)
        .unnest("ends")
        .filter(~pl.col("run_id").is_in(list(run_ids)))
        .select(LAST_STEP_SCHEMA.names())
    )
    if not mine or not ends.height:
        return LINK_SCHEMA.to_frame()
    steps = refuse_impossible(loader.tables(mine)).tables["steps"]
    beside = same_run.find_candidates(loader.runs, ends, steps, mine)
    if not beside:
        return LINK_SCHEMA.to_frame()
    possible = refuse_impossible(loader.tables(mine.union(beside))).tables
    pairs = same_run.find_source_links(possible, mine)
    return pl.DataFrame(pairs, schema=LINK_SCHEMA, orient="row")


def _reached(ids: Collection[str], links: pl.DataFrame) -> set[str]:
    """Runs that links lead to, there or back, with those that they lead from."""
    both = pl.concat([links, links.select(one="other", other="one")])
    return _led_to(ids, both)


def _led_to(ids: Collection[str], links: pl.DataFrame) -> set[str]:
    """Runs that links lead to from `one` to `other`, with those that they lead from."""
    reached, news = set(ids), set(ids)
    while news and links.height:
        found = links.filter(pl.col("one").is_in(list(news)))["other"]
        news = set(found) - reached
        reached |= news
    return reached


class _Resumed:
    """Which kept launches resumes tie to those that were computed anew."""

    def __init__(
        self, about: pl.DataFrame, links: pl.DataFrame, touched: Collection[str], now: Analysis
    ) -> None:
        """touched: runs that were computed anew, and those that are gone; now: what came of it."""
        is_touched = pl.col("run_id").is_in(list(touched))
        before = about.filter(pl.col("earlier").list.len() > 0).select("run_id", "earlier")
        before = before.explode("earlier").select("run_id", other="earlier")
        self.links = links
        self.earlier = before.filter(~is_touched).rename({"run_id": "one"})
        self.known = about.select(pl.col("course").struct.unnest()).filter(~is_touched)
        fresh = _courses(now)
        disturbed = self._disturbed(touched, fresh)
        after = self.earlier.select(one="other", other="one")
        self.always = _led_to(disturbed, after)
        left = before.filter(is_touched | pl.col("run_id").is_in(list(disturbed)))
        self.always |= set(left["other"]) - set(touched)
        searching = pl.concat(
            [fresh, self.known.filter(pl.col("run_id").is_in(list(disturbed)))]
        ).filter(may_continue())
        self.candidates = _in_order(resume_candidates(self.known, searching))

    def _disturbed(self, touched: Collection[str], fresh: pl.DataFrame) -> set[str]:
        """Launches that may no longer continue what they did, or something else."""
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

    def wanted(self, found: Analysis) -> set[str]:
        """Runs that have to be computed together with those of `found`.

        The launches that ended last are looked at first, until one is continued that none which
        was not looked at may take the place of.
        """
        here = list(found.merged_launches.members)
        while True:
            before, self.candidates = self.candidates, _chosen(self.candidates, found)
            wanted = self.candidates.filter("wanted")["before"]
            if before.equals(self.candidates) or not wanted.is_in(here).all():
                break
        ids = self.always.union(wanted)
        while (more := _led_to(_reached(ids, self.links), self.earlier)) != ids:
            ids = more
        return ids


def _courses(analysis: Analysis) -> pl.DataFrame:
    return analysis.resume_links["course"].struct.unnest().match_to_schema(LAUNCH_COURSE_SCHEMA)


def _in_order(pairs: pl.DataFrame) -> pl.DataFrame:
    """Pairs of `fitting` in the order that they count: `place` from 0 for each later launch.

    Those that ended together have one place; of a file only the last launch before counts.
    """
    in_file = pl.col("in_file").any().over("later")
    newest = pl.col("launch").filter("in_file").max().over("later")
    alone = pl.col("in_file") & (pl.col("launch") == newest)
    pairs = pairs.filter(~in_file | alone)
    place = pl.col("last_stamp").rank("min", descending=True).over("later").fill_null(1) - 1
    return pairs.with_columns(place=place.cast(pl.Int64), wanted=pl.lit(value=False))


def _chosen(candidates: pl.DataFrame, found: Analysis) -> pl.DataFrame:
    """`_in_order` with more of them wanted, where `found` leaves open which one is continued."""
    known = _courses(found)
    continued = (
        found.resume_links.select(later="run_id", other=pl.col("earlier").list.first())
        .join(known.select(other="run_id", ended="last_stamp", its="sha256"), on="other")
        .join(known.select(later="run_id", own="sha256"), on="later")
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
    """With the steps that launches trained again which were not computed anew."""
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
    """Columns of KEPT, of all runs of an analysis, by run_id."""
    members = {
        lead: [row["run_id"] for row in rows]
        for lead, rows in analysis.merged_launches.members.items()
    }
    linked = analysis.merged_launches.linked_sources
    related = {
        lead: sorted({other for one in ids for other in linked.get(one, ())} - set(ids))
        for lead, ids in members.items()
    }
    by = current_versions(overlay)
    led = [(one, lead, related[lead]) for lead, ids in members.items() for one in ids]
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
        .with_columns(
            pl.when(is_lead).then(pl.col("related")),
            pl.when(is_lead).then(pl.col("earlier").fill_null([])),
            pl.col("ends").fill_null([]),
            *(pl.when(is_lead).then(pl.lit(now)).alias(name) for name, now in by.items()),
        )
        .match_to_schema(KEPT_SCHEMA)
        .sort("run_id")
    )
