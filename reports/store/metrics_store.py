"""The metrics that a store keeps of its runs, brought up to date.

Apart from reports.nightly.nightly, so that a table of runs does without what draws pages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import polars as pl

from fairmfu.ingest.core.errors import StoreError
from fairmfu.ingest.core.schema import TEXT
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.formula.accelerators import Accelerator
from fairmfu.metrics.pipeline import metrics_cache as scores
from fairmfu.metrics.pipeline.metrics_cache import KEPT_SCHEMA

if TYPE_CHECKING:
    from fairmfu.metrics.pipeline.analysis import Analysis
    from fairmfu.metrics.pipeline.incremental import RescoredRuns
    from fairmfu.metrics.pipeline.partitions import WorkMapper

METRICS_TABLE: Final = "metrics"
"""The table that the store keeps of them."""

RESCORE_BATCH: Final = 500
"""Runs that `rescore_all` computes before it stores them."""


@dataclass(frozen=True, slots=True)
class MetricsState:
    """What is kept of a store's metrics once it is up to date.

    kept: columns of metrics.pipeline.metrics_cache.KEPT_SCHEMA, without runs that are gone
    rescored: what was computed for it; None where nothing was
    changed: runs whose inputs are newer, or that were asked for
    as_of: the state of the store that it is of
    outdated: runs that were kept by another formula, other peaks or another program
    """

    kept: pl.DataFrame
    rescored: RescoredRuns | None
    changed: frozenset[str]
    as_of: int
    outdated: frozenset[str]

    @property
    def metrics(self) -> pl.DataFrame:
        """One row per run, as metrics.pipeline.analysis.analyse gives it."""
        return scores.finish_metrics(self.kept)


def update_metrics(
    store: Store,
    overlay: Sequence[Accelerator] = (),
    extra_runs: Collection[str] = (),
    *,
    rescore_outdated: bool = False,
    compute_each: WorkMapper | None = None,
) -> MetricsState:
    """Metrics of all runs; only those are computed whose inputs are newer, and `extra_runs` these.

    rescore_outdated: and those that are by another formula, other peaks or an older program. each:
    who computes partitions of many runs; without it this process. Nothing is written:
    `store_metrics` does that. Raises StoreError where nothing was ever stored.
    """
    store.require_batches()
    stale, as_of = store.outdated_runs()
    before = _kept(store)
    unlike = frozenset(scores.outdated_rows(before, overlay)["run_id"])
    changed = frozenset({*stale, *extra_runs, *(unlike if rescore_outdated else ())})
    if not changed and set(before["run_id"]) == set(
        store.runs_changed_since(-1)
    ):  # of all that are there
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
    """The analysis that holds these runs; None where nothing was computed.

    What was computed by partition has none yet: these runs are computed once more.
    """
    if state.rescored is None:
        return None
    if state.rescored.analysis is not None:
        return state.rescored.analysis
    from fairmfu.metrics.pipeline.incremental import rescore  # noqa: PLC0415 - what is kept is shown without

    return rescore(store.table("runs"), state.kept, runs, store.tables, overlay).analysis


def store_metrics(store: Store, state: MetricsState) -> None:
    """Store what was computed; a run that is gone is kept as such."""
    if state.rescored is None:
        return
    gone = pl.DataFrame({"run_id": state.rescored.removed}, schema={"run_id": TEXT})
    rows = pl.concat([state.rescored.rows, gone], how="diagonal")
    store.keep(METRICS_TABLE, rows, state.as_of)


def current_metrics(store: Store, overlay: Sequence[Accelerator] = ()) -> pl.DataFrame:
    """Metrics of all runs by today's formula and these peaks, whatever is kept.

    A row per run, as Analysis.metrics: tgs [tokens/s/GPU], mfu [fraction], flops_per_token
    [FLOP/token], wall_s [s]; columns of metrics.core.run_table.METRICS. overlay: devices of one's
    own.

    What had to be computed is kept, so that runs cost their computing once and not at each look;
    nor at `ingest`, where it would take longer than the reading. Whoever looks neither waits for
    that nor fails by it: where the store cannot be written to at once, nothing is kept. Nor is it
    where anything kept is by another formula or other peaks: a night tells of those as they are,
    until `rescore` makes all of them one, and to look at runs must not change what it tells.

    Raises StoreError where nothing was ever stored, or the store is damaged.

    >>> current_metrics(Store("perf")).sort("tgs")
    """
    found = update_metrics(store, overlay, rescore_outdated=True)
    if not found.outdated:
        with suppress(StoreError):
            store_metrics(store.without_waiting(), found)
    return found.metrics


def query(store: Store, sql: str, overlay: Sequence[Accelerator] = ()) -> pl.DataFrame:
    """The rows of one SELECT over runs, facts, steps, events, unread, sources and metrics.

    Columns and units as they stand in these: ingest.core.schema.TABLES, and `current_metrics` for
    metrics (tgs [tokens/s/GPU], mfu [fraction]).

    Raises StoreError with DuckDB's own message, or where the store is missing or damaged.

    >>> query(Store("perf"), "select name, tgs, mfu from metrics order by tgs desc")
    """
    return store.query(sql, {METRICS_TABLE: current_metrics(store, overlay)})


def rescore_all(
    store: Store,
    overlay: Sequence[Accelerator],
    report_progress: Callable[[str], None] = lambda _: None,
) -> int:
    """Compute anew, and keep, what is by another formula, other peaks or an older program.

    How many runs; in portions, so that one that is broken off goes on where it was.
    """
    old = scores.outdated_rows(_kept(store), overlay)["run_id"].to_list()
    done = 0
    for first in range(0, max(len(old), 1), RESCORE_BATCH):
        found = update_metrics(store, overlay, old[first : first + RESCORE_BATCH])
        if found.rescored is not None:
            store_metrics(store, found)
            done += found.rescored.rows.height
            report_progress(f"{done:,} runs computed, of {len(old):,} that were outdated")
    return done


def _kept(store: Store) -> pl.DataFrame:
    rows = store.kept(METRICS_TABLE, latest_by=("run_id",))
    if rows.is_empty():
        return KEPT_SCHEMA.to_frame()
    rows = rows.match_to_schema(KEPT_SCHEMA, missing_columns="insert", extra_columns="ignore")
    return rows.filter(pl.col("lead").is_not_null())
