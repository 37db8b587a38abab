"""Steady windows of a run, with the seconds of a step by each of its timers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from ..core.arrays import BoolArray, FloatArray, IntArray, median_of
from ..core.print_precision import MAX_UNEXPLAINED_GAP
from ..core.run_arrays import RunArrays
from ..core.run_words import COMPUTE_PHASES
from ..throughput.windows import (
    choose_evidence,
    count_unknown_tokens,
    evidence_rounding,
    stamp_error,
    steady_windows,
)
from .timer_readings import Reading, Timer

MIDDLE_SHARE: Final = 0.1
"""Share of the windows around the median whose mean is the typical step."""

MIN_TIMED_SHARE: Final = 0.5
"""Least share of steady windows with a timer; a rarer timer is no part of a typical step."""


@dataclass(frozen=True, slots=True)
class SteadySteps:
    """Steady windows of a run.

    indices: of the windows; spans: steps of each; seconds: of one step
    evidence: time evidence; rounding: error of its printed digits, as a fraction
    coarse: true if single windows are too short for their stamps
    """

    indices: IntArray
    spans: FloatArray
    seconds: FloatArray
    evidence: str
    rounding: float
    coarse: bool

    def typical(self) -> FloatArray:
        """Return the weight of each window in the typical step; the sum is 1.

        The windows of the middle tenth by step time, weighted by steps; all if coarse.
        """
        n = len(self.seconds)
        weights = self.spans.astype(np.float64)
        if not self.coarse:
            reach = int(n * MIDDLE_SHARE / 2)
            order = np.argsort(self.seconds, kind="stable")
            middle = order[(n - 1) // 2 - reach : n // 2 + 1 + reach]
            weights = np.zeros(n)
            weights[middle] = self.spans[middle]
        return np.asarray(weights / weights.sum())

    def only(self, mask: BoolArray) -> SteadySteps:
        """Return the windows in a mask."""
        return replace(
            self,
            indices=self.indices[mask],
            spans=self.spans[mask],
            seconds=self.seconds[mask],
        )


def steady_steps(
    windows: RunArrays, run: Mapping[str, Any], time_basis: str | None
) -> SteadySteps | None:
    """Return the steady windows of a run; None if there are none.

    Their times are by the run's time basis, or else by the best evidence. Unknown tokens count as
    one per step. A rate of unknown tokens gives no time.

    run: with evidence
    """
    counted = count_unknown_tokens(windows)
    kinds = dict.fromkeys(kind for kind in (time_basis, *run["evidence"]) if kind is not None)
    usable = [kind for kind in kinds if kind != "rate" or windows.has_all("tokens_per_gpu")]
    evidence = time_basis if time_basis in usable else choose_evidence(counted, usable)
    steady = None if evidence is None else steady_windows(counted, evidence)
    if evidence is None or steady is None or not len(steady.indices):
        return _only_step(windows) if is_single_step(windows) else None
    spans = windows[f"{evidence}_span"][steady.indices]
    error = stamp_error(windows, evidence, steady.indices)
    return SteadySteps(
        steady.indices,
        spans,
        steady.seconds / spans,
        evidence,
        evidence_rounding(counted, steady, evidence),
        error > MAX_UNEXPLAINED_GAP * median_of(steady.seconds),
    )


def is_single_step(windows: RunArrays) -> bool:
    """Return whether a log quotes a single timed step from an unknown place of a run."""
    quoted = windows.height == 1 and bool(windows.value("start_missing"))
    return quoted and bool(windows["elapsed_time"][0] > 0)


def _only_step(windows: RunArrays) -> SteadySteps:
    spans = windows["elapsed_span"][:1]
    seconds = windows["elapsed_time"][:1] / spans
    return SteadySteps(np.zeros(1, np.int64), spans, seconds, "elapsed", 0.0, coarse=False)


@dataclass(frozen=True, slots=True)
class TimedSteps:
    """Steady windows with all timers of a group.

    seconds: of a step in each window, by timer
    factors: from a printed value to a step, by timer
    """

    steps: SteadySteps
    seconds: Mapping[Timer, FloatArray]
    factors: Mapping[Timer, float]


def timed_steps(
    steps: SteadySteps,
    readings: Sequence[Reading],
    windows: RunArrays,
    run: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> TimedSteps:
    """Return the windows timed by the first usable group of timers; else all windows.

    Groups that time computation come first. run: with step_unit; facts: with gradient_accumulation
    and pipelined, if known
    """
    compute = [r.timer.group for r in readings if r.timer.phase in COMPUTE_PHASES]
    for group in dict.fromkeys([*compute, *(r.timer.group for r in readings)]):
        members = [reading for reading in readings if reading.timer.group == group]
        found = _of_group(steps, members, windows, run, facts)
        if found is not None:
            return found
    return TimedSteps(steps, {}, {})


def _of_group(
    steps: SteadySteps,
    readings: Sequence[Reading],
    windows: RunArrays,
    run: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> TimedSteps | None:
    """Return the windows with all usual timers of a group; None without any.

    None as well if the number of steps in a printed value is unknown.
    """
    found: dict[Timer, FloatArray] = {}
    factors: dict[Timer, float] = {}
    for reading in readings:
        values = _by_window(reading, windows)[steps.indices]
        if np.isnan(values).mean() > 1 - MIN_TIMED_SHARE:
            continue
        factor = _factor(reading.timer, run, facts)
        if factor is None:
            return None
        since = windows["interval"][steps.indices] if factor == SUM_OF_INTERVAL else 1.0
        found[reading.timer] = values / since * (factor or 1.0)
        factors[reading.timer] = factor
    if not found:
        return None
    whole: BoolArray = np.asarray(~np.isnan(np.stack(list(found.values()))).any(axis=0))
    if not whole.any():
        return None
    kept = {timer: values[whole] for timer, values in found.items()}
    return TimedSteps(steps.only(whole), kept, factors)


SUM_OF_INTERVAL: Final = 0.0
"""Factor of a timer that sums over the steps since the last line: it varies by window."""


def _factor(timer: Timer, run: Mapping[str, Any], facts: Mapping[str, Any]) -> float | None:
    """Return the factor from a printed value to a step of the run; None if unknown."""
    covers = (facts.get("pipelined") and timer.pipelined_covers) or timer.covers
    if covers == "interval":
        return SUM_OF_INTERVAL
    of_micro_steps = run["step_unit"] == "micro_step"
    if of_micro_steps == (covers == "micro_step"):
        return 1.0
    count = facts.get("gradient_accumulation")
    if not count:
        return None
    return 1.0 / count if of_micro_steps else float(count)


def _by_window(reading: Reading, windows: RunArrays) -> FloatArray:
    """Return the mean of a timer's values in each window; NaN without any."""
    last = windows["step"]
    at = np.searchsorted(last, reading.steps)
    inside = at < len(last)
    at = np.minimum(at, len(last) - 1)
    begins = last - np.where(np.isnan(windows["new_step"]), np.inf, windows["new_step"])
    inside &= reading.steps > begins[at]
    sums = np.bincount(at[inside], reading.seconds[inside], len(last))
    counts = np.bincount(at[inside], minlength=len(last))
    return np.asarray(np.divide(sums, counts, out=np.full(len(last), np.nan), where=counts > 0))
