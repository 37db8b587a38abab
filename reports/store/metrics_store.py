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
from fairmfu.metrics.pipeline.metrics_cache import KEPT

if TYPE_CHECKING:
    from fairmfu.metrics.pipeline.analysis import Analysis
    from fairmfu.metrics.pipeline.incremental import Rescored
    from fairmfu.metrics.pipeline.partitions import Each

METRICS: Final = "metrics"
"""The table that the store keeps of them."""

AT_ONCE: Final = 500
"""Runs that `rescore_all` computes before it stores them."""


@dataclass(frozen=True, slots=True)
class Scores:
    """What is kept of a store's metrics once it is up to date.

    kept: columns of metrics.pipeline.metrics_cache.KEPT, without runs that are gone
    done: what was computed for it; None where nothing was
    changed: runs whose inputs are newer, or that were asked for
    as_of: the state of the store that it is of
    unlike: runs that were kept by another formula, other peaks or another program
    """

    kept: pl.DataFrame
    done: Rescored | None
    changed: frozenset[str]
    as_of: int
    unlike: frozenset[str]

    @property
    def metrics(self) -> pl.DataFrame:
        """One row per run, as metrics.pipeline.analysis.analyse gives it."""
        return scores.finished(self.kept)


def brought_up(
    store: Store,
    overlay: Sequence[Accelerator] = (),
    also: Collection[str] = (),
    *,
    by_today: bool = False,
    each: Each | None = None,
) -> Scores:
    """Metrics of all runs; only those are computed whose inputs are newer, and `also` these.

    by_today: and those that are by another formula, other peaks or an older program. each: who
    computes partitions of many runs; without it this process. Nothing is written: `keep` does that.
    Raises StoreError where nothing was ever stored.
    """
    store.require()
    stale, as_of = store.outdated()
    before = _kept(store)
    unlike = frozenset(scores.outdated(before, overlay)["run_id"])
    changed = frozenset({*stale, *also, *(unlike if by_today else ())})
    if not changed and set(before["run_id"]) == set(store.touched(-1)):  # of all that are there
        return Scores(before, None, changed, as_of, unlike)
    from fairmfu.metrics.pipeline.partitions import here, rescore_by_partition  # noqa: PLC0415 - shown without

    runs = store.table("runs")
    done = rescore_by_partition(runs, before, changed, store.tables, overlay, each=each or here)
    return Scores(done.onto(before), done, changed, as_of, unlike)


def analysed(
    store: Store, found: Scores, runs: Collection[str], overlay: Sequence[Accelerator] = ()
) -> Analysis | None:
    """The analysis that holds these runs; None where nothing was computed.

    What was computed by partition has none yet: these runs are computed once more.
    """
    if found.done is None:
        return None
    if found.done.analysis is not None:
        return found.done.analysis
    from fairmfu.metrics.pipeline.incremental import rescore  # noqa: PLC0415 - what is kept is shown without

    return rescore(store.table("runs"), found.kept, runs, store.tables, overlay).analysis


def keep(store: Store, found: Scores) -> None:
    """Store what was computed; a run that is gone is kept as such."""
    if found.done is None:
        return
    gone = pl.DataFrame({"run_id": found.done.gone}, schema={"run_id": TEXT})
    rows = pl.concat([found.done.rows, gone], how="diagonal")
    store.keep(METRICS, rows, found.as_of)


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
    found = brought_up(store, overlay, by_today=True)
    if not found.unlike:
        with suppress(StoreError):
            keep(store.unwaiting(), found)
    return found.metrics


def query(store: Store, sql: str, overlay: Sequence[Accelerator] = ()) -> pl.DataFrame:
    """The rows of one SELECT over runs, facts, steps, events, unread, sources and metrics.

    Columns and units as they stand in these: ingest.core.schema.TABLES, and `current_metrics` for
    metrics (tgs [tokens/s/GPU], mfu [fraction]).

    Raises StoreError with DuckDB's own message, or where the store is missing or damaged.

    >>> query(Store("perf"), "select name, tgs, mfu from metrics order by tgs desc")
    """
    return store.query(sql, {METRICS: current_metrics(store, overlay)})


def rescore_all(
    store: Store, overlay: Sequence[Accelerator], says: Callable[[str], None] = lambda _: None
) -> int:
    """Compute anew, and keep, what is by another formula, other peaks or an older program.

    How many runs; in portions, so that one that is broken off goes on where it was.
    """
    old = scores.outdated(_kept(store), overlay)["run_id"].to_list()
    done = 0
    for first in range(0, max(len(old), 1), AT_ONCE):
        found = brought_up(store, overlay, old[first : first + AT_ONCE])
        if found.done is not None:
            keep(store, found)
            done += found.done.rows.height
            says(f"{done:,} runs computed, of {len(old):,} that were outdated")
    return done


def _kept(store: Store) -> pl.DataFrame:
    rows = store.kept(METRICS, by=("run_id",))
    if rows.is_empty():
        return KEPT.to_frame()
    rows = rows.match_to_schema(KEPT, missing_columns="insert", extra_columns="ignore")
    return rows.filter(pl.col("lead").is_not_null())
