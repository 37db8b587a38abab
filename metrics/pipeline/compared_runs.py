"""Runs to compare, from the metrics that a store keeps.

A comparison needs the metrics, the lines with a loss and the bridges of its runs. Kept metrics hold
them, but for the losses of runs with many lines: those are read from windows without marks of
warm-up, so no run is analysed again.
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
    from .launch_tables import LaunchTables

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """Part of an `Analysis` that a comparison uses.

    metrics: as Analysis.metrics; loss_lines: metrics.compare.loss_parity.loss_lines
    kept_bridges: bridges by run_id; none for a run without
    """

    metrics: pl.DataFrame
    loss_lines: pl.DataFrame
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
            loss_lines=self.loss_lines.filter(~pl.col("run_id").is_in(list(errors))),
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
    metrics: pl.DataFrame, kept: pl.DataFrame, read: Callable[[set[str]], LaunchTables]
) -> ComparedRuns:
    """Return the runs of these rows, with the metrics of all runs.

    kept: columns of metrics.pipeline.metrics_cache.KEPT_SCHEMA
    read: returns the tables of these runs; called if the losses of some are not kept
    """
    bridges = kept_bridges(kept.select("run_id", "bridges"))
    return ComparedRuns(metrics, kept_loss_lines(kept, read), bridges)


def kept_loss_lines(kept: pl.DataFrame, read: Callable[[set[str]], LaunchTables]) -> pl.DataFrame:
    """Return metrics.compare.loss_parity.loss_lines of the runs of these rows.

    kept: run_id and `loss_lines` of KEPT_SCHEMA; read: as for `compared_runs`
    """
    known = kept.select("run_id", "loss_lines").drop_nulls().explode("loss_lines").drop_nulls()
    losses = known.unnest("loss_lines")
    many = set(kept.filter(pl.col("loss_lines").is_null())["run_id"])
    if not many:
        return losses
    from ..compare.loss_parity import loss_lines  # noqa: PLC0415 - imports numpy

    windows = read(many).unmarked_windows
    more = loss_lines(windows.filter(pl.col("run_id").is_in(list(many))))
    return pl.concat([losses, more])


def kept_bridges(bridges: pl.DataFrame) -> dict[str, list[Bridge]]:
    """Return bridges by run_id.

    bridges: run_id, and the column `bridges` of metrics.pipeline.metrics_cache.KEPT_SCHEMA
    """
    return {run_id: list(map(_bridge, rows)) for run_id, rows in bridges.iter_rows()}


def bridge_rows(analysis: Analysis, run_ids: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of KEPT_SCHEMA's `bridges`, by run_id; runs that fail have none."""
    done = compute_apart(run_ids, analysis.bridges_of)
    return {run_id: list(map(asdict, bridges)) for run_id, bridges in done.result.items()}


def _bridge(row: Mapping[str, Any]) -> Bridge:
    return Bridge(**{**row, "factors": tuple(Factor(**factor) for factor in row["factors"])})
