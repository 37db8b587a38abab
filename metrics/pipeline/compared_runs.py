"""Runs to compare, from the metrics that a store keeps.

A comparison needs the metrics, the losses by step and the bridges of its runs. Kept metrics hold
the bridges, and windows without marks of warm-up have the losses, so no run is analysed again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from ..audit.audit_results import Bridge, Factor
from ..core.run_table import METRICS, metrics_rows
from .bulkhead import compute_apart, present_apart

if TYPE_CHECKING:
    from .analysis import Analysis

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """Part of an `Analysis` that a comparison uses.

    metrics: as Analysis.metrics; windows: metrics.throughput.windows.build_windows
    kept_bridges: bridges by run_id; none for a run without
    """

    metrics: pl.DataFrame
    windows: pl.DataFrame
    kept_bridges: Mapping[str, list[Bridge]]

    def bridges_of(self, run_ids: Sequence[str]) -> dict[str, list[Bridge]]:
        """Return Analysis.bridges of these runs."""
        return {run_id: self.kept_bridges.get(run_id, []) for run_id in run_ids}

    def present(
        self, metrics: pl.DataFrame, say: Callable[[ComparedRuns, pl.DataFrame], Result]
    ) -> Result:
        """Return `say` of these runs, as Analysis.present."""
        return present_apart(self, metrics, say)

    def without(self, errors: Mapping[str, str]) -> ComparedRuns:
        """Return the runs with failed runs; errors: messages by run_id."""
        return replace(
            self,
            metrics=with_failed_rows(self.metrics, errors),
            windows=self.windows.filter(~pl.col("run_id").is_in(list(errors))),
            kept_bridges={
                run: some for run, some in self.kept_bridges.items() if run not in errors
            },
        )


def with_failed_rows(metrics: pl.DataFrame, errors: Mapping[str, str]) -> pl.DataFrame:
    """Return the metrics with a row without figures per failed run; errors: by run_id."""
    from .analysis import failed_row  # noqa: PLC0415 - imports much, and few runs fail

    failed = pl.col("run_id").is_in(list(errors))
    rows = [
        failed_row(row, row["sources"], errors[row["run_id"]])
        for row in metrics_rows(metrics.filter(failed))
    ]
    more = pl.DataFrame(rows, schema=METRICS, strict=False)
    return pl.concat([metrics.filter(~failed), more]).sort("name", "run_id")


def compared_runs(
    metrics: pl.DataFrame,
    tables: Mapping[str, pl.DataFrame],
    bridges: pl.DataFrame,
    *,
    single_sources: bool = False,
) -> ComparedRuns:
    """Return the runs of these tables, with the metrics of all runs.

    bridges: run_id, and the column `bridges` of metrics.pipeline.metrics_cache.KEPT_SCHEMA
    single_sources: as for metrics.pipeline.launch_tables.LaunchTables
    """
    from .launch_tables import LaunchTables  # noqa: PLC0415 - imports much

    windows = LaunchTables(tables, single_sources=single_sources).unmarked_windows
    return ComparedRuns(metrics, windows, kept_bridges(bridges))


def kept_bridges(bridges: pl.DataFrame) -> dict[str, list[Bridge]]:
    """Return bridges by run_id; bridges: as for `compared_runs`."""
    return {run_id: list(map(_bridge, rows)) for run_id, rows in bridges.iter_rows()}


def bridge_rows(analysis: Analysis, run_ids: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of KEPT_SCHEMA's `bridges`, by run_id; runs that fail have none."""
    done = compute_apart(run_ids, analysis.bridges_of)
    return {run_id: list(map(asdict, bridges)) for run_id, bridges in done.result.items()}


def _bridge(row: Mapping[str, Any]) -> Bridge:
    return Bridge(**{**row, "factors": tuple(Factor(**factor) for factor in row["factors"])})
