"""A run's diagnosis: what happened to it, its speeds, and where its time went."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from fairmfu.metrics.core.run_table import MetricsRow, SpeedLevel

from .run_narrative import outcome_sentence, seconds_text
from .tabular import count, percent

MIN_LOST_SHARE: Final = 0.02
"""Least share of the wall time for a cause to be named."""
MAX_NAMED: Final = 3
"""Most causes, and changes of speed, that are named."""


def diagnosis(row: MetricsRow) -> list[str]:
    """Return what a reader wants to know of a run first, at most a line each.

    The outcome, the speeds inside the run, and the largest losses of time.
    """
    return [line for line in (outcome_sentence(row), _speed(row), _lost(row)) if line]


def _speed(row: MetricsRow) -> str:
    """Return how the speed changed inside the run; empty if that was not judged."""
    levels, drift = row["levels"], row["drift"]
    if drift is not None:
        side = "fell" if drift < 0 else "rose"
        return f"Speed: {side} steadily by {percent(abs(drift))} over the run."
    if levels is None:
        return ""
    if not levels:
        return f"Speed: steady, without a lasting change in {row['windows']:,} windows."
    changes = list(pairwise(levels))
    told = ", ".join(_change(*pair, is_first=not at) for at, pair in enumerate(changes[:MAX_NAMED]))
    more = len(changes) - MAX_NAMED
    rest = f", and {more} more change{'s' * (more > 1)}" if more > 0 else ""
    return f"Speed: {told}{rest}.{_cost(levels)}"


def _change(before: SpeedLevel, after: SpeedLevel, *, is_first: bool) -> str:
    change = after["change"] or 0.0
    side = "fell" if change < 0 else "rose"
    rates = f"to {_rate(after)}"
    if is_first:
        rates = f"{_rate(before)} to {_rate(after)} tokens/s/GPU"
    near = f" after {' and '.join(after['events'])}" if after["events"] else ""
    place = f"at step {after['from_step']:,}{near}"
    return f"{side} by {percent(abs(change))} {place} ({rates})"


def _rate(level: SpeedLevel) -> str:
    return "unknown" if level["tgs"] is None else count(level["tgs"])


def _cost(levels: Sequence[SpeedLevel]) -> str:
    """Return the GPU-hours that slower levels cost."""
    lost = sum(level["gpu_hours_lost"] or 0.0 for level in levels)
    return f" Slower steps cost {lost:.2g} GPU-hours." if lost else ""


def _lost(row: MetricsRow) -> str:
    """Return the largest losses of wall time."""
    lost = [cause for cause in row["time_lost"] or [] if cause["share"] >= MIN_LOST_SHARE]
    if not lost:
        return ""
    told = (
        f"{percent(cause['share'])} {cause['cause']} ({seconds_text(cause['seconds'])})"
        for cause in lost[:MAX_NAMED]
    )
    return f"Time lost, of the wall time: {', '.join(told)}."
