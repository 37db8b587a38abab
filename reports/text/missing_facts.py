"""Facts that would complete a run, and the command that gives them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import cast

from fairmfu.ingest.core.schema import FACT_NAMES
from fairmfu.metrics.compare.comparison_row import COMPARABILITY_COLUMNS
from fairmfu.metrics.compare.missing_rate import explain_missing_rate
from fairmfu.metrics.core.run_table import METRICS, MetricsRow, value_of
from fairmfu.metrics.throughput.messages import ASKED_FACTS
from fairmfu.metrics.utilization.messages import QUANTIZED_WEIGHTS

from .fact_examples import fact_values


def missing_facts(row: MetricsRow) -> list[str]:
    """Return names of the facts that would complete a run; empty if no fact would."""
    if row["tgs"] is None and not explain_missing_rate(row)[1]:
        return []
    unknown = [
        name for name in COMPARABILITY_COLUMNS if name in METRICS and value_of(row, name) is None
    ]
    doubted = [name for kind in row["warning_kinds"] or [] for name in ASKED_FACTS.get(kind, ())]
    asked = dict.fromkeys([*row["missing"], *unknown, *doubted])
    return [name for name in asked if name in FACT_NAMES and name != "params_total"]


def completing_command(row: MetricsRow, label: str) -> str | None:
    """Return the command that gives a run all missing facts; None if none would help.

    label: the run's unique name
    """
    given = values_to_give(row, missing_facts(row))
    return f"fairmfu set {run_argument(row, label)} {given}" if given else None


def values_to_give(row: MetricsRow, names: Iterable[str]) -> str:
    """Return the part of a command that gives a run these facts, with placeholders."""
    return " ".join(f"{name}={_example(row, name)}" for name in names)


def run_argument(row: MetricsRow, label: str) -> str:
    """Return a run's name in a command: its id if the name is ambiguous or unsafe."""
    name = str(row["name"])
    if label != name or "=" in name or name.startswith("-") or not name.isprintable():
        return str(row["run_id"])
    return shlex.quote(name)


def with_own_name(row: MetricsRow, label: str) -> MetricsRow:
    """Return a run whose messages name it in their commands, in place of RUN.

    label: the run's unique name
    """
    named = f"fairmfu set {run_argument(row, label)} "
    told = {
        column: [text.replace("fairmfu set RUN ", named) for text in row[column]]
        for column in ("warnings", "doubts")
    }
    return cast("MetricsRow", row | told)


def _example(row: MetricsRow, name: str) -> str:
    """Return the value after the = of a command, or a placeholder."""
    if name == "precision" and QUANTIZED_WEIGHTS.identifier in (row["warning_kinds"] or []):
        return "…"  # the message has the values that the log allows
    batch = row.get("samples_per_update")
    if name == "global_batch_size" and batch is not None:
        return f"{batch:.0f}"
    return "/".join(value for value in fact_values(name) if "+" not in value) or "…"
