"""Runs to report, from the metrics that a store keeps.

A report needs the metrics, bridges and audits of its runs, which are kept. Windows, events and
facts follow from the tables, so no run is scored again. Tables are read on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from ..audit.audit_results import Audit, Bridge, inferred_facts
from ..core.impossible_values import possible_facts
from ..formula.accelerators import Accelerator
from ..runs.replica_groups import groups_by_source
from ..throughput.resolved_facts import resolve_facts
from .bulkhead import present_apart
from .compared_runs import kept_bridges, kept_loss_lines, with_failed_rows
from .kept_audits import kept_audit

if TYPE_CHECKING:
    from .measured_runs import MeasuredRuns

Result = TypeVar("Result")


class StoredTables:
    """Tables of some runs, read and measured on first use.

    read_tables: returns all tables, with all sources of these runs
    read_facts: returns the table `facts` of some of the runs, None for all of them; None if a
        launch has a second source
    single_sources: as for metrics.pipeline.launch_tables.LaunchTables
    """

    def __init__(
        self,
        read_tables: Callable[[], Mapping[str, pl.DataFrame]],
        read_facts: Callable[[Sequence[str] | None], pl.DataFrame] | None = None,
        *,
        single_sources: bool = False,
    ) -> None:
        self._read_tables, self._read_facts = read_tables, read_facts
        self._single_sources = single_sources

    @cached_property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """All tables of the runs, as stored."""
        return self._read_tables()

    @cached_property
    def measured(self) -> MeasuredRuns:
        """All that follows from the tables."""
        from .measured_runs import MeasuredRuns  # noqa: PLC0415 - imports much

        return MeasuredRuns(self.tables, single_sources=self._single_sources)

    @cached_property
    def held_facts(self) -> pl.DataFrame:
        """Resolved facts, as MeasuredRuns.held_facts."""
        return self.held_facts_of(None)

    def held_facts_of(self, run_ids: Sequence[str] | None) -> pl.DataFrame:
        """Return the resolved facts of some of the runs; None: of all.

        Those of a single source need no merge.
        """
        if self._read_facts is not None:
            facts, _ = possible_facts(self._read_facts(run_ids))
            if not groups_by_source(facts):
                return resolve_facts(facts)
        held = self.measured.held_facts
        return held if run_ids is None else held.filter(pl.col("run_id").is_in(list(run_ids)))


@dataclass(frozen=True)
class ReportedRuns:
    """Part of an `Analysis` that a report, a chart or an export uses.

    metrics, audits, overlay: as Analysis; of audits the kept fields
        (metrics.pipeline.kept_audits)
    stored: tables of these runs
    kept_bridges: bridges by run_id; none for a run without
    kept_lines: run_id, `loss_lines` and `curve` of metrics.pipeline.metrics_cache.KEPT_SCHEMA
    failed: runs that could not be presented
    """

    metrics: pl.DataFrame
    stored: StoredTables
    kept_bridges: Mapping[str, list[Bridge]]
    audits: Mapping[str, Audit]
    overlay: Sequence[Accelerator]
    kept_lines: pl.DataFrame
    failed: frozenset[str] = frozenset()

    def with_metrics(self, metrics: pl.DataFrame) -> ReportedRuns:
        """Return the results with some rows of `metrics`."""
        return replace(self, metrics=metrics)

    @cached_property
    def windows(self) -> pl.DataFrame:
        """Windows, as Analysis.windows."""
        return self._of_runs(self.stored.measured.windows)

    def curves(self, run_ids: Sequence[str]) -> pl.DataFrame:
        """Return the curves of runs, as Analysis.curves."""
        curves = self.kept_lines.select("run_id", "curve")
        if self.failed or curves["curve"].null_count():
            from .kept_curves import curves_of  # noqa: PLC0415 - imports much

            return curves_of(self, run_ids)
        return curves.filter(pl.col("run_id").is_in(list(run_ids)))

    @cached_property
    def loss_lines(self) -> pl.DataFrame:
        """Lines with a loss, as Analysis.loss_lines."""
        return self._of_runs(kept_loss_lines(self.kept_lines, lambda _: self.stored.measured))

    @cached_property
    def events(self) -> pl.DataFrame:
        """Events, as Analysis.events."""
        return self._of_runs(self.stored.measured.tables["events"])

    @cached_property
    def rank_times(self) -> pl.DataFrame:
        """Step times of ranks, as Analysis.rank_times."""
        return self._of_runs(self.stored.measured.rank_times)

    @cached_property
    def resolved_facts(self) -> pl.DataFrame:
        """Facts, as Analysis.resolved_facts."""
        return self._with_inferred(self.stored.held_facts, self.audits)

    def facts_of_runs(self, run_ids: Sequence[str]) -> pl.DataFrame:
        """Return the facts of some runs, as Analysis.facts_of_runs."""
        return self._with_inferred(self.stored.held_facts_of(run_ids), run_ids)

    def _with_inferred(self, held: pl.DataFrame, run_ids: Iterable[str]) -> pl.DataFrame:
        rows = [row for run in run_ids for row in inferred_facts(run, self.audits[run])]
        return self._of_runs(pl.concat([held, pl.DataFrame(rows, schema=held.schema)]))

    def _of_runs(self, table: pl.DataFrame) -> pl.DataFrame:
        return table.filter(pl.col("run_id").is_in(list(self.audits.keys() - self.failed)))

    def facts(self, run_id: str) -> dict[str, dict[str, Any]]:
        """Return the facts of a run, by name."""
        return self._facts_of_run.get(run_id, {})

    @cached_property
    def _facts_of_run(self) -> dict[str, dict[str, dict[str, Any]]]:
        by_run: dict[str, dict[str, dict[str, Any]]] = {}
        for fact in self.resolved_facts.iter_rows(named=True):
            by_run.setdefault(fact["run_id"], {})[fact["name"]] = fact
        return by_run

    def bridges_of(self, run_ids: Sequence[str]) -> dict[str, list[Bridge]]:
        """Return Analysis.bridges of these runs."""
        return {run_id: self.kept_bridges.get(run_id, []) for run_id in run_ids}

    def other_tools(self, most: int | None = None) -> dict[str, pl.DataFrame]:
        """Return Analysis.other_tools of these runs."""
        from .analysis import compare_tools  # noqa: PLC0415 - imports much

        return compare_tools(self.metrics, self.facts_of_runs, most)

    def present(
        self, metrics: pl.DataFrame, say: Callable[[ReportedRuns, pl.DataFrame], Result]
    ) -> Result:
        """Return `say` of these runs, as Analysis.present."""
        return present_apart(self, metrics, say)

    def without(self, errors: Mapping[str, str]) -> ReportedRuns:
        """Return the runs with failed runs; errors: messages by run_id."""
        return replace(
            self,
            metrics=with_failed_rows(self.metrics, errors),
            kept_bridges={
                run: some for run, some in self.kept_bridges.items() if run not in errors
            },
            audits={**self.audits, **dict.fromkeys(errors, Audit())},
            failed=self.failed.union(errors),
        )


def reported_runs(
    metrics: pl.DataFrame,
    stored: StoredTables,
    kept: pl.DataFrame,
    overlay: Sequence[Accelerator],
) -> ReportedRuns:
    """Return the runs of `kept`, with the metrics of all runs.

    stored: of these runs; kept: columns of metrics.pipeline.metrics_cache.KEPT_SCHEMA
    """
    bridges = kept_bridges(kept.select("run_id", "bridges"))
    audits = {run_id: kept_audit(row) for run_id, row in kept.select("run_id", "audit").iter_rows()}
    lines = kept.select("run_id", "loss_lines", "curve")
    return ReportedRuns(metrics, stored, bridges, audits, overlay, lines)
