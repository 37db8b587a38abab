"""Metrics of a store's runs, kept and updated.

Separate from reports.nightly.nightly, so that a table of runs loads without drawing pages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Final, NamedTuple

import polars as pl

from fairmfu.ingest.core.errors import StoreError
from fairmfu.ingest.core.progress import note_progress
from fairmfu.ingest.core.schema import TABLES, TEXT
from fairmfu.ingest.store.query_limits import QueryLimits
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.core.run_table import not_null
from fairmfu.metrics.formula.accelerators import Accelerator
from fairmfu.metrics.pipeline import metrics_cache as scores
from fairmfu.metrics.pipeline.metrics_cache import KEPT_SCHEMA, LARGE_COLUMNS
from fairmfu.metrics.pipeline.run_links import linked_runs

if TYPE_CHECKING:
    from fairmfu.metrics.pipeline.analysis import Analysis
    from fairmfu.metrics.pipeline.compared_runs import ComparedRuns
    from fairmfu.metrics.pipeline.incremental import RescoredRuns
    from fairmfu.metrics.pipeline.launch_tables import LaunchTables
    from fairmfu.metrics.pipeline.partitions import WorkMapper
    from fairmfu.metrics.pipeline.reported_runs import ReportedRuns

METRICS_TABLE: Final = "metrics"
"""Name of the metrics table in the store."""

RESCORE_BATCH: Final = 500
"""Number of runs that `rescore_all` computes before storing them."""


@dataclass(frozen=True)
class MetricsState:
    """Metrics of a store once up to date.

    kept: columns of metrics.pipeline.metrics_cache.KEPT_SCHEMA, without removed runs
    rescored: newly computed metrics; None if nothing was computed
    changed: runs with newer inputs, or requested ones
    as_of: version of the store's state
    outdated: runs kept from another formula, other peaks or another program
    """

    kept: pl.DataFrame
    rescored: RescoredRuns | None
    changed: frozenset[str]
    as_of: int
    outdated: frozenset[str]

    @cached_property
    def metrics(self) -> pl.DataFrame:
        """Metrics with one row per run, as by metrics.pipeline.analysis.analyse."""
        return scores.finish_metrics(self.kept)


def update_metrics(
    store: Store,
    overlay: Sequence[Accelerator] = (),
    extra_runs: Collection[str] = (),
    *,
    compute_each: WorkMapper | None = None,
) -> MetricsState:
    """Return metrics of all runs; compute those with newer inputs and `extra_runs`.

    compute_each: computes partitions of many runs; by default this process. Nothing is written:
        `store_metrics` does that.

    Raises StoreError if nothing was ever stored.
    """
    return _updated(store, overlay, _outdated(store, overlay), extra_runs, compute_each)


def _updated(
    store: Store,
    overlay: Sequence[Accelerator],
    outdated: _Outdated,
    extra_runs: Collection[str],
    compute_each: WorkMapper | None = None,
) -> MetricsState:
    """Return the metrics of all runs, as `update_metrics`.

    outdated: the kept rows
    """
    changed, before = outdated.stale.union(extra_runs), outdated.before
    if not changed and set(before["run_id"]) == set(
        store.runs_changed_since(-1)
    ):  # every stored run has a row
        return MetricsState(before, None, changed, outdated.as_of, outdated.unlike)
    from fairmfu.metrics.pipeline.partitions import map_locally, rescore_by_partition  # noqa: PLC0415 - shown without

    runs = store.table("runs")
    done = rescore_by_partition(
        runs, before, changed, store.tables, overlay, mapper=compute_each or map_locally
    )
    return MetricsState(done.replace_in(before), done, changed, outdated.as_of, outdated.unlike)


class _Outdated(NamedTuple):
    """Kept rows, and the runs to compute again.

    stale: with newer inputs, or new; unlike: kept from another formula, peaks or program
    """

    before: pl.DataFrame
    stale: frozenset[str]
    unlike: frozenset[str]
    as_of: int


def _outdated(
    store: Store, overlay: Sequence[Accelerator], *, large: Sequence[str] = ()
) -> _Outdated:
    """Find the runs to compute again. Raises StoreError if nothing was ever stored."""
    store.require_batches()
    stale, as_of = store.outdated_runs()
    before = kept_rows(store, large=large)
    unlike = frozenset(scores.outdated_rows(before, overlay)["run_id"])
    return _Outdated(before, frozenset(stale), unlike, as_of)


def analysis_of(
    store: Store, state: MetricsState, runs: Collection[str], overlay: Sequence[Accelerator] = ()
) -> Analysis | None:
    """Return an analysis with these runs; None if nothing was computed.

    Metrics computed by partition have no analysis: these runs are computed once more.
    """
    if state.rescored is None:
        return None
    if state.rescored.analysis is not None:
        return state.rescored.analysis
    from fairmfu.metrics.pipeline.incremental import rescore  # noqa: PLC0415 - what is kept is shown without

    return rescore(store.table("runs"), state.kept, runs, store.tables, overlay).analysis


def analysis_of_chosen(
    store: Store,
    choose_runs: Callable[[pl.DataFrame], pl.DataFrame],
    overlay: Sequence[Accelerator] = (),
) -> Analysis:
    """Return the analysis of `stored_analysis`."""
    return stored_analysis(store, choose_runs, overlay).analysis


class StoredAnalysis(NamedTuple):
    """Analysis of runs of a store, and the metrics that the store keeps."""

    analysis: Analysis
    state: MetricsState


def stored_analysis(
    store: Store,
    choose_runs: Callable[[pl.DataFrame], pl.DataFrame] | None = None,
    overlay: Sequence[Accelerator] = (),
) -> StoredAnalysis:
    """Return the analysis of chosen runs, with metrics of all; by default of all runs.

    Computes the chosen runs and those linked to them; metrics of others come from what is kept.
    More than MAX_CHOSEN_SHARE of all runs are computed with all others at once. No run is computed
    twice where most are new: their metrics are kept from the same analysis.

    choose_runs: receives the metrics of all runs, and returns some of the rows
    """
    found = _outdated(store, overlay)
    if choose_runs is None or len(store.runs_changed_since(-1)) < MIN_RUNS_TO_CHOOSE:
        if _are_most_new(store, found):
            return _all_at_once(store, found, overlay)
        choose_runs = None
    state = _current(store, overlay, found)
    return StoredAnalysis(_analysis(store, state, choose_runs, overlay), state)


def _analysis(
    store: Store,
    state: MetricsState,
    choose_runs: Callable[[pl.DataFrame], pl.DataFrame] | None,
    overlay: Sequence[Accelerator],
) -> Analysis:
    """Return the analysis of chosen runs, as `stored_analysis`; None chooses all."""
    from fairmfu.metrics.pipeline.analysis import analyse  # noqa: PLC0415 - imports much
    from fairmfu.metrics.pipeline.incremental import rescore  # noqa: PLC0415 - imports much

    if choose_runs is None:
        return analyse(store.tables(), overlay)
    metrics = state.metrics
    chosen = choose_runs(metrics)["run_id"].to_list()
    if len(chosen) > MAX_CHOSEN_SHARE * metrics.height and state.rescored is None:
        return analyse(store.tables(), overlay)
    done = None if state.rescored is None else state.rescored.analysis
    if done is None or not set(chosen) <= set(done.metrics["run_id"]):
        runs = store.table("runs")
        done = not_null(rescore(runs, state.kept, chosen, store.tables, overlay).analysis)
    return replace(done, metrics=metrics)


def stored_comparison(
    store: Store,
    choose_runs: Callable[[pl.DataFrame], pl.DataFrame],
    overlay: Sequence[Accelerator] = (),
) -> Analysis | ComparedRuns:
    """Return what a comparison of chosen runs needs, from what is kept.

    Equals `stored_analysis` for a comparison. Analyses the runs only if the bridges of one could
    not be built, so that the comparison names that run.
    """
    from fairmfu.metrics.pipeline.compared_runs import compared_runs  # noqa: PLC0415 - imports much

    state = current_state(store, overlay, large=("loss_lines",))
    metrics = state.metrics
    chosen = choose_runs(metrics)
    kept = state.kept.join(chosen.select("run_id"), on="run_id")
    if kept["bridges"].null_count():
        return _analysis(store, state, choose_runs, overlay)

    def read(ids: set[str]) -> LaunchTables:
        from fairmfu.metrics.pipeline.launch_tables import LaunchTables  # noqa: PLC0415 - imports much

        linked = linked_runs(state.kept, ids)
        return LaunchTables(store.tables(sorted(linked)), single_sources=linked == ids)

    return compared_runs(metrics, kept, read)


class StoredRuns(NamedTuple):
    """Runs of a store to report, and the metrics that the store keeps."""

    runs: Analysis | ReportedRuns
    state: MetricsState


def stored_runs(
    store: Store,
    choose_runs: Callable[[pl.DataFrame], pl.DataFrame] | None = None,
    overlay: Sequence[Accelerator] = (),
    *,
    large: Sequence[str] = (),
) -> StoredRuns:
    """Return the inputs of a report on chosen runs, from kept results.

    Equals `stored_analysis` for a report, a chart or an export. Analyses the runs where that is
    needed anyway: most are new, or a run failed. choose_runs: as there; None for all runs. large:
    those of LARGE_COLUMNS to read; others are computed when needed.
    """
    from fairmfu.metrics.pipeline.reported_runs import (  # noqa: PLC0415 - imports much
        StoredTables,
        reported_runs,
    )

    found = _outdated(store, overlay, large=large)
    if choose_runs is None and _are_most_new(store, found):
        return StoredRuns(*_all_at_once(store, found, overlay))
    state = _current(store, overlay, found)
    metrics = state.metrics
    chosen = metrics if choose_runs is None else choose_runs(metrics)
    kept, ids = state.kept, set(chosen["run_id"])
    if chosen.height < kept.height:
        kept = kept.join(chosen.select("run_id"), on="run_id")
    linked = linked_runs(state.kept, ids)
    failed = metrics.filter(pl.col("run_id").is_in(list(linked)), pl.col("error").is_not_null())
    if failed.height or kept["bridges"].null_count() or kept["audit"].null_count():
        return StoredRuns(_analysis(store, state, choose_runs, overlay), state)
    wanted = None if chosen.height == metrics.height else sorted(linked)

    def read_facts(run_ids: Sequence[str] | None) -> pl.DataFrame:
        return store.table("facts", sorted(linked if run_ids is None else run_ids))

    single = linked == ids
    stored = StoredTables(
        partial(store.tables, wanted), read_facts if single else None, single_sources=single
    )
    return StoredRuns(reported_runs(metrics, stored, kept, overlay), state)


class TablesOnDemand(Mapping[str, pl.DataFrame]):
    """Tables of a store, each read on first use. run_ids: of these runs; None for all."""

    def __init__(self, store: Store, run_ids: Sequence[str] | None = None) -> None:
        self._read = cache(lambda name: store.table(name, run_ids))

    def __getitem__(self, name: str) -> pl.DataFrame:
        """Return a table by name."""
        if name not in TABLES:
            raise KeyError(name)
        return self._read(name)

    def __iter__(self) -> Iterator[str]:
        """Yield the names of all tables."""
        return iter(TABLES)

    def __len__(self) -> int:
        """Return the number of tables."""
        return len(TABLES)


def _are_most_new(store: Store, outdated: _Outdated) -> bool:
    """Return whether most runs have no current metrics, so that all are computed.

    outdated: the kept rows
    """
    return len(outdated.stale | outdated.unlike) > MAX_CHOSEN_SHARE * len(
        store.runs_changed_since(-1)
    )


def _all_at_once(
    store: Store, outdated: _Outdated, overlay: Sequence[Accelerator]
) -> StoredAnalysis:
    """Analyse all runs together, and keep their metrics if possible."""
    from fairmfu.metrics.pipeline.incremental import rescore  # noqa: PLC0415 - imports much

    runs = store.table("runs")
    done = rescore(runs, outdated.before, runs["run_id"].to_list(), store.tables, overlay)
    state = MetricsState(
        done.replace_in(outdated.before),
        done,
        outdated.stale | outdated.unlike,
        outdated.as_of,
        outdated.unlike,
    )
    _keep_if_possible(store, state)
    return StoredAnalysis(not_null(done.analysis), state)


MIN_RUNS_TO_CHOOSE: Final = 20
MAX_CHOSEN_SHARE: Final = 0.25
"""Limits from which computing some runs is less work than computing all."""


def store_metrics(store: Store, state: MetricsState) -> None:
    """Store computed metrics; mark removed runs as removed."""
    if state.rescored is None:
        return
    gone = pl.DataFrame({"run_id": state.rescored.removed}, schema={"run_id": TEXT})
    rows = pl.concat([state.rescored.rows, gone], how="diagonal")
    store.keep(METRICS_TABLE, rows, state.as_of)


def current_metrics(store: Store, overlay: Sequence[Accelerator] = ()) -> pl.DataFrame:
    """Return metrics of all runs by today's formula and these peaks, whatever is kept.

    A row per run, as Analysis.metrics: tgs [tokens/s/GPU], mfu [fraction], flops_per_token
    [FLOP/token], wall_s [s]; columns of metrics.core.run_table.METRICS. overlay: user-defined
    devices.

    Computed metrics are kept, so that a run is computed once and not at each call; not during
    `ingest`, where computing would take longer than reading. The caller never waits for storing and
    never fails because of it: if the store is not writable at once, nothing is kept. Nothing is
    kept either if any kept row is from another formula or other peaks: the nightly reports those
    rows as they are until `rescore` unifies them, and a mere look at runs must not change its
    report.

    Raises StoreError if nothing was ever stored, or the store is damaged.

    >>> current_metrics(Store("perf")).sort("tgs")
    """
    return current_state(store, overlay).metrics


def current_state(
    store: Store, overlay: Sequence[Accelerator], *, large: Sequence[str] = ()
) -> MetricsState:
    """Return the state for `current_metrics`, and keep what was computed if possible."""
    return _current(store, overlay, _outdated(store, overlay, large=large))


def _current(store: Store, overlay: Sequence[Accelerator], outdated: _Outdated) -> MetricsState:
    """Return the state of `current_state`.

    outdated: the kept rows
    """
    state = _updated(store, overlay, outdated, outdated.unlike)
    _keep_if_possible(store, state)
    return state


def _keep_if_possible(store: Store, state: MetricsState) -> None:
    """Store computed metrics, as `current_metrics` describes.

    Where that is not done, and computing takes long, name the command that does it.
    """
    if not state.outdated:
        with suppress(StoreError):
            store_metrics(store.without_waiting(), state)
    elif len(state.outdated) >= MIN_OUTDATED_TO_TELL:
        store.says(NOT_KEPT.format(runs=len(state.outdated)))


MIN_OUTDATED_TO_TELL: Final = 50
"""Fewest runs whose metrics take a noticeable time, about half a second."""

NOT_KEPT: Final = (
    "The kept metrics of {runs:,} runs are of an earlier fairmfu or of other accelerators, so each "
    "command computes them again. To keep them: fairmfu rescore"
)


def query(
    store: Store,
    sql: str,
    overlay: Sequence[Accelerator] = (),
    limits: QueryLimits | None = None,
    *,
    metrics: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Return the rows of one SELECT over the store's tables and the metrics.

    Tables: runs, facts, steps, events, unread, sources and metrics. Columns and units as in these
        tables: ingest.core.schema.TABLES, and `current_metrics` for metrics (tgs [tokens/s/GPU],
        mfu [fraction]).

    limits: of memory and time. metrics: those of `current_metrics`, if at hand.

    Raises StoreError with DuckDB's own message, above a limit, or if the store is missing or
    damaged.

    >>> query(Store("perf"), "select name, tgs, mfu from metrics order by tgs desc")
    """
    if metrics is None:
        metrics = current_metrics(store, overlay)
    note_progress("Running the query")
    return store.query(sql, {METRICS_TABLE: metrics}, limits)


def rescore_all(
    store: Store,
    overlay: Sequence[Accelerator],
    report_progress: Callable[[str], None] = lambda _: None,
) -> int:
    """Recompute and keep metrics from another formula, peak table or older program.

    Returns the number of runs. Works in batches, so that an interrupted call resumes.
    """
    old = scores.outdated_rows(kept_rows(store), overlay)["run_id"].to_list()
    done = 0
    for first in range(0, max(len(old), 1), RESCORE_BATCH):
        found = update_metrics(store, overlay, old[first : first + RESCORE_BATCH])
        if found.rescored is not None:
            store_metrics(store, found)
            done += found.rescored.rows.height
            report_progress(f"Recomputed {done:,} of {len(old):,} outdated runs")
    return done


def kept_rows(store: Store, large: Sequence[str] = ()) -> pl.DataFrame:
    """Return the kept rows of all runs, in columns of KEPT_SCHEMA.

    large: those of LARGE_COLUMNS to read; the others are null
    """
    without = [name for name in LARGE_COLUMNS if name not in large]
    rows = store.kept(METRICS_TABLE, latest_by=("run_id",), without=without)
    if rows.is_empty():
        return KEPT_SCHEMA.to_frame()
    return scores.upgrade_kept(rows).filter(pl.col("lead").is_not_null())
