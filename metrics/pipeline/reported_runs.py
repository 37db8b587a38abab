"""Runs to report, from the metrics that a store keeps.

A report needs the metrics, bridges and audits of its runs, which are kept. Windows, events and
facts follow from the tables, so no run is scored again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import polars as pl

from ..audit.audit_results import Audit, Bridge, inferred_facts
from ..formula.accelerators import Accelerator
from .analysis import compare_tools
from .bulkhead import present_apart
from .compared_runs import ComparedRuns, kept_bridges
from .kept_audits import kept_audit
from .measured_runs import MeasuredRuns

Result = TypeVar("Result")


@dataclass(frozen=True)
class ReportedRuns:
    """Part of an `Analysis` that a report, a chart or an export uses.

    compared: metrics and bridges; measured: of these runs
    audits, overlay: as Analysis; of audits the kept fields (metrics.pipeline.kept_audits)
    failed: runs that could not be presented
    """

    compared: ComparedRuns
    measured: MeasuredRuns
    audits: Mapping[str, Audit]
    overlay: Sequence[Accelerator]
    failed: frozenset[str] = frozenset()

    @property
    def metrics(self) -> pl.DataFrame:
        """Metrics, as Analysis.metrics."""
        return self.compared.metrics

    def with_metrics(self, metrics: pl.DataFrame) -> ReportedRuns:
        """Return the results with some rows of `metrics`."""
        return replace(self, compared=replace(self.compared, metrics=metrics))

    @cached_property
    def windows(self) -> pl.DataFrame:
        """Windows, as Analysis.windows."""
        return self._of_runs(self.measured.windows)

    @cached_property
    def events(self) -> pl.DataFrame:
        """Events, as Analysis.events."""
        return self._of_runs(self.measured.tables["events"])

    @cached_property
    def rank_times(self) -> pl.DataFrame:
        """Step times of ranks, as Analysis.rank_times."""
        return self._of_runs(self.measured.rank_times)

    @cached_property
    def resolved_facts(self) -> pl.DataFrame:
        """Facts, as Analysis.resolved_facts."""
        held = self.measured.held_facts
        rows = [row for run, audit in self.audits.items() for row in inferred_facts(run, audit)]
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
        return self.compared.bridges_of(run_ids)

    def other_tools(self) -> dict[str, pl.DataFrame]:
        """Return Analysis.other_tools of these runs."""
        return compare_tools(self.metrics, self.facts)

    def present(
        self, metrics: pl.DataFrame, say: Callable[[ReportedRuns, pl.DataFrame], Result]
    ) -> Result:
        """Return `say` of these runs, as Analysis.present."""
        return present_apart(self, metrics, say)

    def without(self, errors: Mapping[str, str]) -> ReportedRuns:
        """Return the runs with failed runs; errors: messages by run_id."""
        return replace(
            self,
            compared=self.compared.without(errors),
            audits={**self.audits, **dict.fromkeys(errors, Audit())},
            failed=self.failed.union(errors),
        )


def reported_runs(
    metrics: pl.DataFrame,
    tables: Mapping[str, pl.DataFrame],
    kept: pl.DataFrame,
    overlay: Sequence[Accelerator],
) -> ReportedRuns:
    """Return the runs of `kept`, with the metrics of all runs.

    tables: with all sources of these runs; kept: run_id, and the columns `bridges` and `audit` of
        metrics.pipeline.metrics_cache.KEPT_SCHEMA
    """
    measured = MeasuredRuns(tables)
    bridges = kept_bridges(kept.select("run_id", "bridges"))
    audits = {run_id: kept_audit(row) for run_id, row in kept.select("run_id", "audit").iter_rows()}
    compared = ComparedRuns(metrics, measured.unmarked_windows, bridges)
    return ReportedRuns(compared, measured, audits, overlay)
