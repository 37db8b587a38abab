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

    The outcome, the speeds inside the run, time outside of the step timer, and the largest losses
    of time.
    """
    lines = (outcome_sentence(row), _speed(row), _pauses(row), _lost(row))
    return [line for line in lines if line]


def _speed(row: MetricsRow) -> str:
    """Return how the speed changed inside the run; empty if that was not judged."""
    levels, drift = row["levels"], row["drift"]
    if drift is not None:
        side = "fell" if drift < 0 else "rose"
        return f"Speed: {side} steadily by {percent(abs(drift))} over the run."
    if levels is None:
        return ""
    if not levels:
        return f"Speed: no lasting change{_range(row)}."
    changes = list(pairwise(levels))
    told = ", ".join(_change(*pair, is_first=not at) for at, pair in enumerate(changes[:MAX_NAMED]))
    more = len(changes) - MAX_NAMED
    rest = f", and {more} more change{'s' * (more > 1)}" if more > 0 else ""
    return f"Speed: {told}{rest}.{_cost(levels)}"


def _range(row: MetricsRow) -> str:
    """Return the range of most windows' speeds."""
    low, high = row["tgs_p5"], row["tgs_p95"]
    if low is None or high is None:
        return ""
    return f"; 90 % of the windows at {count(low)} to {count(high)} tokens/s/GPU"


def _change(before: SpeedLevel, after: SpeedLevel, *, is_first: bool) -> str:
    change = after["change"] or 0.0
    side = "fell" if change < 0 else "rose"
    rates = f"to {_rate(after)}"
    if is_first:
        unit = "" if after["tgs"] is None else " tokens/s/GPU"
        rates = f"{_rate(before)} to {_rate(after)}{unit}"
    near = f" after {' and '.join(after['events'])}" if after["events"] else ""
    place = f"at step {after['from_step']:,}{near}"
    return f"{side} by {percent(abs(change))} {place} ({rates})"


def _rate(level: SpeedLevel) -> str:
    if level["tgs"] is None:
        return f"{seconds_text(level['seconds_per_step'])} a step"
    return count(level["tgs"])


def _cost(levels: Sequence[SpeedLevel]) -> str:
    """Return the GPU-hours that slower levels cost."""
    lost = sum(level["gpu_hours_lost"] or 0.0 for level in levels)
    return f" Slower steps cost {lost:.2g} GPU-hours." if lost else ""


def _pauses(row: MetricsRow) -> str:
    """Return where more time than usual passed outside of the step timer."""
    pauses = row["pauses"] or []
    if not pauses:
        return ""
    least = min(pause["share"] for pause in pauses)
    longer = [pause for pause in pauses if pause["share"] > least + MIN_LOST_SHARE]
    seconds = max(pause["seconds_per_step"] for pause in longer)
    steps = [f"{pause['from_step']:,} to {pause['to_step']:,}" for pause in longer[:MAX_NAMED]]
    others = len(longer) - MAX_NAMED
    more = f" and {others} more stretch{'es' * (others > 1)}" if others > 0 else ""
    share = percent(max(pause["share"] for pause in longer))
    return (
        f"Outside the step timer: up to {seconds_text(seconds)} a step ({share} of its time) in "
        f"steps {', '.join(steps)}{more}, by time stamps."
    )


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
