"""Audits of runs as rows of kept metrics, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..audit.audit_results import Audit
from ..audit.era_lookup import ERAS_BY_NAME


def audit_row(audit: Audit) -> dict[str, Any] | None:
    """Return the fields of metrics.pipeline.metrics_cache.AUDIT_FIELDS.

    None if the era is not the one of its name, and so cannot be found again.
    """
    era = audit.era
    if era is not None and ERAS_BY_NAME.get(era.name) != era:
        return None
    return {
        "era": None if era is None else era.name,
        "reproduced": audit.reproduced,
        "lines_by_column": [
            {"column": column, "lines": lines, "reproduced": reproduced}
            for column, (lines, reproduced) in audit.lines_by_column.items()
        ],
        "proven": list(audit.proven),
        "flops_low": audit.flops_low,
        "flops_high": audit.flops_high,
        "hypothesis": audit.hypothesis,
        "suspect": audit.suspect,
        "not_compared_reason": audit.not_compared_reason,
        "lengths": list(audit.lengths),
        "inferred": _rows(audit.inferred),
        "fitting": _rows(audit.fitting),
    }


def kept_audit(row: Mapping[str, Any]) -> Audit:
    """Return the audit of a row of `audit_row`, with the kept fields alone."""
    columns = row["lines_by_column"]
    return replace(
        Audit(),
        era=None if row["era"] is None else ERAS_BY_NAME[row["era"]],
        reproduced=row["reproduced"],
        lines_by_column={one["column"]: (one["lines"], one["reproduced"]) for one in columns},
        proven=tuple(row["proven"]),
        flops_low=row["flops_low"],
        flops_high=row["flops_high"],
        hypothesis=row["hypothesis"],
        suspect=row["suspect"],
        not_compared_reason=row["not_compared_reason"],
        lengths=tuple(row["lengths"]),
        inferred=_values(row["inferred"]),
        fitting=_values(row["fitting"]),
    )


def _rows(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _values(rows: list[dict[str, str]]) -> dict[str, str]:
    return {row["name"]: row["value"] for row in rows}
