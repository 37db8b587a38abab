"""Metrics of a store's runs, kept and updated.

Separate from reports.nightly.nightly, so that a table of runs loads without drawing pages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import polars as pl

from fairmfu.ingest.core.errors import StoreError
from fairmfu.ingest.core.schema import TEXT
from fairmfu.ingest.store.query_limits import QueryLimits
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.core.run_table import not_null
from fairmfu.metrics.formula.accelerators import Accelerator
from fairmfu.metrics.pipeline import metrics_cache as scores
from fairmfu.metrics.pipeline.metrics_cache import KEPT_SCHEMA

if TYPE_CHECKING:
    from fairmfu.metrics.pipeline.analysis import Analysis
    from fairmfu.metrics.pipeline.incremental import RescoredRuns
    from fairmfu.metrics.pipeline.partitions import WorkMapper

METRICS_TABLE: Final = "metrics"
"""Name of the metrics table in the store."""

RESCORE_BATCH: Final = 500
"""Number of runs that `rescore_all` computes before storing them."""


@dataclass(frozen=True, slots=True)
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

    @property
    def metrics(self) -> pl.DataFrame:
        """Metrics with one row per run, as by metrics.pipeline.analysis.analyse."""
        return scores.finish_metrics(self.kept)


def update_metrics(
    store: Store,
    overlay: Sequence[Accelerator] = (),
    extra_runs: Collection[str] = (),
    *,
    rescore_outdated: bool = False,
    compute_each: WorkMapper | None = None,
) -> MetricsState:
    """Return metrics of all runs; compute those with newer inputs and `extra_runs`.

    rescore_outdated: compute also those from another formula, other peaks or an older program.
        compute_each: computes partitions of many runs; by default this process. Nothing is written:
        `store_metrics` does that. Raises StoreError if nothing was ever stored.
    """
    store.require_batches()
    stale, as_of = store.outdated_runs()
    before = _kept(store)
    unlike = frozenset(scores.outdated_rows(before, overlay)["run_id"])
    changed = frozenset({*stale, *extra_runs, *(unlike if rescore_outdated else ())})
    if not changed and set(before["run_id"]) == set(
        store.runs_changed_since(-1)
    ):  # every stored run has a row
        return MetricsState(before, None, changed, as_of, unlike)
    from fairmfu.metrics.pipeline.partitions import map_locally, rescore_by_partition  # noqa: PLC0415 - shown without

    runs = store.table("runs")
    done = rescore_by_partition(
        runs, before, changed, store.tables, overlay, mapper=compute_each or map_locally
    )
    return MetricsState(done.replace_in(before), done, changed, as_of, unlike)


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
    """Return the analysis of chosen runs, with the metrics of all runs.

    Computes the chosen runs and those linked to them; metrics of others come from what is kept.
    More than MAX_CHOSEN_SHARE of all runs are computed with all others at once.

    choose_runs: receives the metrics of all runs, and returns some of the rows
    """
    from fairmfu.metrics.pipeline.analysis import analyse  # noqa: PLC0415 - imports much
    from fairmfu.metrics.pipeline.incremental import rescore  # noqa: PLC0415 - imports much

    if len(store.runs_changed_since(-1)) < MIN_RUNS_TO_CHOOSE:
        return analyse(store.tables(), overlay)
    state = _current_state(store, overlay)
    metrics = state.metrics
    chosen = choose_runs(metrics)["run_id"].to_list()
    if len(chosen) > MAX_CHOSEN_SHARE * metrics.height and state.rescored is None:
        return analyse(store.tables(), overlay)
    done = None if state.rescored is None else state.rescored.analysis
    if done is None or not set(chosen) <= set(done.metrics["run_id"]):
        runs = store.table("runs")
        done = not_null(rescore(runs, state.kept, chosen, store.tables, overlay).analysis)
    return replace(done, metrics=metrics)


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
    return _current_state(store, overlay).metrics


def _current_state(store: Store, overlay: Sequence[Accelerator]) -> MetricsState:
    """Return the state for `current_metrics`, and keep what was computed if possible."""
    found = update_metrics(store, overlay, rescore_outdated=True)
    if not found.outdated:
        with suppress(StoreError):
            store_metrics(store.without_waiting(), found)
    return found


def query(
    store: Store,
    sql: str,
    overlay: Sequence[Accelerator] = (),
    limits: QueryLimits | None = None,
) -> pl.DataFrame:
    """Return the rows of one SELECT over the store's tables and the metrics.

    Tables: runs, facts, steps, events, unread, sources and metrics. Columns and units as in these
        tables: ingest.core.schema.TABLES, and `current_metrics` for metrics (tgs [tokens/s/GPU],
        mfu [fraction]).

    limits: of memory and time.

    Raises StoreError with DuckDB's own message, above a limit, or if the store is missing or
    damaged.

    >>> query(Store("perf"), "select name, tgs, mfu from metrics order by tgs desc")
    """
    return store.query(sql, {METRICS_TABLE: current_metrics(store, overlay)}, limits)


def rescore_all(
    store: Store,
    overlay: Sequence[Accelerator],
    report_progress: Callable[[str], None] = lambda _: None,
) -> int:
    """Recompute and keep metrics from another formula, peak table or older program.

    Returns the number of runs. Works in batches, so that an interrupted call resumes.
    """
    old = scores.outdated_rows(_kept(store), overlay)["run_id"].to_list()
    done = 0
    for first in range(0, max(len(old), 1), RESCORE_BATCH):
        found = update_metrics(store, overlay, old[first : first + RESCORE_BATCH])
        if found.rescored is not None:
            store_metrics(store, found)
            done += found.rescored.rows.height
            report_progress(f"Recomputed {done:,} of {len(old):,} outdated runs")
    return done


def _kept(store: Store) -> pl.DataFrame:
    rows = store.kept(METRICS_TABLE, latest_by=("run_id",))
    if rows.is_empty():
        return KEPT_SCHEMA.to_frame()
    rows = rows.match_to_schema(KEPT_SCHEMA, missing_columns="insert", extra_columns="ignore")
    return rows.filter(pl.col("lead").is_not_null())
