"""Rows of compared runs: metrics, with columns relative to the other runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

from ..audit.audit_results import Bridge
from ..core.run_table import MetricsRow


class ComparisonColumns(TypedDict, total=False):
    """Columns of `metrics.compare.comparability.COMPARISON` that are not in METRICS."""

    group: str | None
    rank: int | None
    setup: str | None
    repeats: int | None
    chain: str
    ranked_rate: float | None
    ranked_low: float | None
    ranked_high: float | None
    ranked_unit: str | None
    relative_tgs: float | None
    relative_low: float | None
    relative_high: float | None
    smallest_difference: float | None
    tied_with_best: bool | None
    logged_rank: int | None
    logged_by: str | None
    tflops: float | None
    equal_flops: float | None
    tgs_at_equal_flops: float | None
    gpu_hours_per_billion_tokens: float | None
    gpu_hours_per_billion_tokens_end_to_end: float | None
    price_per_gpu_hour: str | None
    cost_per_billion_tokens: float | None
    cost_per_billion_tokens_end_to_end: float | None
    equal_tokens: float | None
    loss_at_equal_tokens: float | None
    loss_spread: float | None
    same_loss: bool | None
    no_loss: str | None
    differs: list[str]
    nearest_group: str | None
    nearest_differs: list[str]
    not_ranked: list[str]


class ComparisonRow(MetricsRow, ComparisonColumns, total=False):
    """Row of metrics with columns relative to the other runs.

    token_group: the token basis, with non-padding tokens counted as packed
    label, place, bridges: added by `reports.text.verdict.join_comparison`: a unique name, the index
        of the run in the metrics, and its bridges
    side: base or head that a command names as repeats; None for other runs
    """

    token_group: str | None
    side: str | None
    label: str
    place: int
    bridges: Sequence[Bridge]


COMPARABILITY_COLUMNS: Final = (
    "work",
    "seq_len",
    "attention_pattern",
    "trained",
    "precision",
    "device",
    "token_group",
)
"""Columns that must be present and equal to rank runs against each other. `work` identifies the
model's layers, since frameworks may name one model differently.
"""

STATED_BY_SOME: Final = "Not compared, because not every log states them: "
