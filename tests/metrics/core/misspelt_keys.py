"""Rows with misspelt keys, for mypy alone: it has to find each, or calls its comment unused."""

from __future__ import annotations

from fairmfu.ingest.core.schema import RunRow
from fairmfu.metrics.core.run_table import MetricsRow


def misspelt(row: MetricsRow, run: RunRow) -> object:
    """Each first key is right."""
    return (
        row["tgs_high"],
        row["tgs_hgih"],  # type: ignore[typeddict-item]
        run["evidence"],
        run["evidnce"],  # type: ignore[typeddict-item]
    )
