"""Levels of a run's speed: lasting changes, and the level that TGS is of.

Tokens per step, sequence lengths and the attention of packed documents may rightly change the time
per token. What they explain is no change of speed.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import expm1, hypot, log
from typing import Any, Final

import numpy as np

from ..core.arrays import BoolArray, FloatArray, IntArray, median_of
from ..core.intervals import (
    SURE_STANDARD_ERRORS,
    rate_interval,
    stall_distances,
)
from ..core.messages import Effect, Message
from ..core.print_precision import MAX_UNEXPLAINED_GAP
from ..core.run_arrays import RunArrays, total
from ..core.run_table import SpeedLevel
from ..core.run_words import SECONDS_PER_HOUR, steps_in, steps_of
from ..core.segmentation import (
    MIN_LEVEL_POINTS,
    MIN_POINTS,
    Drift,
    Level,
    Segmentation,
    change_error,
    estimate_noise,
    find_levels,
    fit_drift,
    levels_from,
)
from .messages import NO_LASTING_SPEED, SPEED_ALTERNATES, SPEED_CHANGED, SPEED_DRIFTS
from .windows import (
    WindowSelection,
    evidence_rounding,
    stamp_error,
    stamp_rounding,
    timed_windows,
)

OTHER_SPEED: Final = "steps at another speed"
"""Cause of windows left out of TGS: the run had another speed there."""

MIN_CHANGE: Final = 2 * MAX_UNEXPLAINED_GAP
"""Smallest change of speed, as a share. A change halfway by twice the largest gap that needs no
cause puts the mean of the run that gap away from both levels."""
MIN_RANKED_SHARE: Final = 1 / 2
"""Least share of the steps at the level that ranks."""
MAX_CHANGES: Final = 6
"""Most changes of speed that split a run into levels; with more, the speed alternates."""
MAX_RANKED_DRIFT: Final = 0.1
"""Largest drift of a run that is ranked, as a share."""
CAUSES: Final = ("tokens_per_gpu", "sequence_length", "attention_ratio")
"""Columns of windows that may rightly change the time per token."""
MAX_CLOCK_ERROR: Final = 1 / 4
"""Largest error of a clock, as a share of the time of a point. Shorter windows are joined, because
the mean logarithm of times that are 1 s or 2 s by rounding is not that of their mean."""
MIN_CAUSE_CHANGE: Final = 0.01
"""Smallest relative change of such a column that explains a change of speed."""
CHANGING_EVENTS: Final = (
    *("load", "restart", "checkpoint", "evaluation", "profiler", "compile", "gc", "overflow"),
    *("error", "warning"),
)
"""Events named at a change of speed."""
MAX_LISTED: Final = 4
"""Levels listed in a sentence."""
OTHER_TIMES: Final = ("elapsed", "stamp", "clock")
"""Kinds of time evidence that time steps of a rate of unknown tokens, the best first."""
NORMAL_95: Final = 1.96
"""Standard errors on either side of a 95 % interval."""


@dataclass(frozen=True, slots=True)
class Course:
    """Speed of a run's windows over time.

    level: number of each window's level, from 0; ranks: windows at the level that TGS is of
    """

    level: IntArray
    ranks: BoolArray
    drifts: bool


@dataclass(frozen=True, slots=True)
class _Pace:
    """Logarithm of the time per token, without stalls and known causes.

    A point is a window, or neighbours that whole seconds can't resolve.

    windows: index of the first window of each point; tokens, steps: of each point
    causes: columns that may explain a change, one a row, without constant ones
    coarse: error from the print's last digits that does not average out; rounding: error that does
    """

    windows: IntArray
    values: FloatArray
    tokens: FloatArray
    steps: FloatArray
    causes: FloatArray
    coarse: float
    rounding: float

    @property
    def least(self) -> float:
        """Smallest difference of two levels."""
        return log(1 + MIN_CHANGE) + 2 * self.coarse

    def mean(self, points: BoolArray) -> float:
        """Return the logarithm of the time per token of some points."""
        tokens = self.tokens[points]
        return log(total(tokens * np.exp(self.values[points])) / total(tokens))

    def explains(self, level: Level, after: Level) -> bool:
        """Return whether a known cause changes where one level follows another."""
        before = self.causes[:, level.last + 1 - MIN_LEVEL_POINTS : after.first]
        behind = self.causes[:, after.first : after.first + MIN_LEVEL_POINTS]
        apart = np.abs(behind.mean(axis=1) - before.mean(axis=1))
        variance = before.var(axis=1) / before.shape[1] + behind.var(axis=1) / behind.shape[1]
        limit = np.maximum(MIN_CAUSE_CHANGE, SURE_STANDARD_ERRORS * np.sqrt(variance))
        return bool((apart > limit).any())


def find_course(
    run: RunArrays, evidence: str, counted: WindowSelection, excess: FloatArray
) -> Course | None:
    """Return the course of a run's speed; None if it has too few windows.

    counted: windows of `evidence` after the warm-up, without unlogged work
    excess: stalled seconds of each of them
    """
    pace = _pace(run, evidence, counted, excess)
    if pace is None:
        return None
    parts = find_levels(pace.values, pace.least, pace.rounding)
    stretches, means = _stretches(parts, pace)
    level = np.zeros(len(counted.indices), np.int64)
    for first, _ in stretches[1:]:
        level[counted.indices >= pace.windows[first]] += 1
    ranks = np.ones(len(level), np.bool_)
    if 1 < len(stretches) <= MAX_CHANGES + 1:
        lengths = [pace.steps[first : last + 1].sum() for first, last in stretches]
        longest = means[int(np.argmax(lengths))]
        ranks = (np.abs(np.array(means) - longest) < pace.least)[level]
    return Course(level, ranks, parts.drift is not None)


def _pace(
    run: RunArrays, evidence: str, counted: WindowSelection, excess: FloatArray
) -> _Pace | None:
    """Return the pace of windows with tokens and time; None if they are too few."""
    some = counted.where(counted.tokens > 0)
    calm_s = some.seconds - excess[counted.tokens > 0]
    error_s = stamp_error(run, evidence, some.indices)
    starts = _resolved(calm_s, error_s)
    timed = _sums(calm_s, starts) > 0
    if np.count_nonzero(timed) < MIN_POINTS:
        return None
    spans = run[f"{evidence}_span"][some.indices]
    tokens, seconds, steps = (_sums(each, starts)[timed] for each in (some.tokens, calm_s, spans))
    values = np.log(seconds / tokens)
    causes = _causes(run, some.indices, starts, timed)
    if len(causes):
        changes = np.diff(causes, axis=1)
        values = values - np.linalg.lstsq(changes.T, np.diff(values), rcond=None)[0] @ causes
    coarse = evidence_rounding(run, some, evidence)
    if estimate_noise(np.diff(values)).innovation >= coarse:
        coarse = 0.0
    rounding = stamp_rounding(run, evidence, some.indices) / median_of(seconds)
    return _Pace(some.indices[starts[timed]], values, tokens, steps, causes, coarse, rounding)


def _resolved(seconds: FloatArray, error_s: float) -> IntArray:
    """Return the first window of each point that its clock resolves.

    seconds: of each window; error_s: of the time between two moments
    """
    if not error_s:
        return np.arange(len(seconds))
    longest = np.cumsum(seconds) // (error_s / MAX_CLOCK_ERROR)
    return np.unique(longest, return_index=True)[1]


def _sums(values: FloatArray, starts: IntArray) -> FloatArray:
    """Return the sums of neighbours; starts: the first index of each sum."""
    return np.add.reduceat(values, starts) if len(starts) else np.zeros(0)


def _causes(run: RunArrays, windows: IntArray, starts: IntArray, timed: BoolArray) -> FloatArray:
    """Return the columns of CAUSES that vary, as logarithms, from 0.

    starts: the first of the windows of each point; timed: points that count
    """
    counts = np.diff(np.append(starts, len(windows)))
    columns = ((_sums(run[name][windows], starts) / counts)[timed] for name in CAUSES)
    known = [np.log(column) for column in columns if (column > 0).all()]
    varied = [column - column[0] for column in known if np.ptp(column) > MIN_CAUSE_CHANGE]
    return np.array(varied).reshape(-1, np.count_nonzero(timed))


def _stretches(parts: Segmentation, pace: _Pace) -> tuple[list[tuple[int, int]], list[float]]:
    """Return first and last point of each stretch of one speed, and its mean.

    Levels between which a known cause changes are one stretch, with the mean of its first level;
    the means behind are shifted by as much.
    """
    stretches = [(parts.levels[0].first, parts.levels[0].last)]
    means, shift = [parts.levels[0].mean], 0.0
    for level, after in pairwise(parts.levels):
        if pace.explains(level, after):
            shift += after.mean - level.mean
            stretches[-1] = (stretches[-1][0], after.last)
        else:
            stretches.append((after.first, after.last))
            means.append(after.mean - shift)
    return stretches, means


# -- the levels in figures -------------------------------------------------------------------


def speed_levels(
    run: RunArrays, evidence: str, facts: dict[str, Any]
) -> tuple[list[SpeedLevel] | None, Drift | None]:
    """Return the levels of a run's speed in order, and its drift on the log scale.

    None if the run has too few windows; no levels if there is one speed.

    run: marked (metrics.throughput.warmup.mark_warm_up_and_stalls)
    """
    level, drifts = run["level"], run.flags("drifting").any()
    if not (level >= 0).any():
        return None, None
    if level.max() < 1 and not drifts:
        return [], None
    counted = timed_windows(run, evidence, level >= 0)
    pace = _pace(run, evidence, counted, run["stall_s"][counted.indices])
    if pace is None:
        return None, None
    if drifts:  # then there are no levels
        return [], fit_drift(pace.values)
    numbers = range(int(level.max()) + 1)
    rows = [
        _level_row(run, evidence, counted.where(level[counted.indices] == number))
        for number in numbers
    ]
    changes = _changes(run, evidence, pace, rows)
    lost_s = slower_seconds(run, evidence)
    for number in numbers:
        row, of_level = rows[number], lost_s[level == number]
        if of_level.any() and facts.get("gpus") is not None:
            row["gpu_hours_lost"] = total(of_level) * facts["gpus"] / SECONDS_PER_HOUR
        if number:
            row["change"], row["change_low"], row["change_high"] = changes[number - 1]
            row["events"] = _events_between(run, rows[number - 1], row)
    return rows, None


def slower_seconds(run: RunArrays, evidence: str) -> FloatArray:
    """Return the seconds that each window lost to a slower speed.

    Against the fastest of the earlier levels and the speed of TGS, if these are faster by the
    smallest change that counts; 0 for all other windows. With stalls, except at the speed of TGS.
    All 0 in a log without a time for its rate.

    run: marked (metrics.throughput.warmup.mark_warm_up_and_stalls)
    """
    lost_s, level = np.zeros(run.height), run["level"].astype(np.int64)
    if level.max(initial=-1) < 1:
        return lost_s
    counted = timed_windows(run, evidence, level >= 0)
    at, stalls = counted.indices, run["stall_s"][counted.indices]
    pace, walls = _pace(run, evidence, counted, stalls), _wall_seconds(run, evidence, counted)
    if pace is None or walls is None:
        return lost_s
    off = run.flags("off_level")
    means = [pace.mean(level[pace.windows] == number) for number in range(level.max() + 1)]
    fastest = np.minimum.accumulate([pace.mean(~off[pace.windows]), *means[:-1]])
    more = means - fastest
    shares = np.where(more >= pace.least, -np.expm1(-more), 0.0)[level[at]]
    usual = counted.seconds - stalls
    if not len(pace.causes):  # beside a change, the surroundings of a stall are of another speed
        usual = np.where(stalls > 0, np.exp(means)[level[at]] * counted.tokens, usual)
    usual = np.minimum(usual, counted.seconds)
    lost = shares * usual + np.where(off[at] & (shares > 0), counted.seconds - usual, 0.0)
    lost_s[at] = np.divide(lost * walls, counted.seconds, out=lost * 0, where=counted.seconds > 0)
    return lost_s


def _level_row(run: RunArrays, evidence: str, counted: WindowSelection) -> SpeedLevel:
    """Return the level of these windows, without what compares it with others."""
    spans = run[f"{evidence}_span"][counted.indices]
    stalls, coarse = run["stall_s"][counted.indices], evidence_rounding(run, counted, evidence)
    sure = rate_interval(counted.tokens, counted.seconds, stalls, coarse).estimate
    walls = _wall_seconds(run, evidence, counted)
    seconds = None if walls is None else total(walls)
    return {
        "from_step": int(run["step"][counted.indices[0]] - spans[0]) + 1,
        "to_step": int(run["step"][counted.indices[-1]]),
        "windows": len(counted.indices),
        "seconds": seconds,
        "seconds_per_step": None if seconds is None else seconds / total(spans),
        "tgs": total(counted.tokens) / total(counted.seconds),
        "tgs_low": None if sure is None else sure.low,
        "tgs_high": None if sure is None else sure.high,
        "ranked": not run.flags("off_level")[counted.indices[0]],
        "change": None,
        "change_low": None,
        "change_high": None,
        "gpu_hours_lost": None,
        "events": [],
        "phases": None,
    }


def _wall_seconds(run: RunArrays, evidence: str, counted: WindowSelection) -> FloatArray | None:
    """Return the seconds of windows; None if the log has only rates of unknown tokens."""
    if evidence != "rate" or run.has_any("tokens_per_gpu"):
        return counted.seconds
    spans = run["rate_span"][counted.indices]
    for other in OTHER_TIMES:
        paces = run[f"{other}_time"][counted.indices] / run[f"{other}_span"][counted.indices]
        if not np.isnan(paces).any():
            seconds: FloatArray = paces * spans
            return seconds
    return None


def _changes(
    run: RunArrays, evidence: str, pace: _Pace, rows: Sequence[SpeedLevel]
) -> list[tuple[float, float, float]]:
    """Return the changes between neighbours, with 95 % intervals, as shares.

    The error of the pace is by the noise that the levels were found with. Stalls are joined in
    quadrature, as in the interval of a rate. Where a known cause changes, the change is of the pace
    without it.

    rows: the levels, with steps and TGS
    """
    level = run["level"]
    starts = np.flatnonzero(np.diff(level[pace.windows], prepend=-1))
    levels = levels_from(pace.values, starts.tolist(), pace.rounding)
    stalls = [
        stall_distances(run["stall_s"][of] / total(run[f"{evidence}_time"][of]))
        for of in (level == number for number in range(len(rows)))
    ]
    found = []
    for at, (before, after) in enumerate(pairwise(levels)):
        size, rates = before.mean - after.mean, (rows[at]["tgs"], rows[at + 1]["tgs"])
        if not len(pace.causes) and rates[0] and rates[1]:
            size = log(rates[1] / rates[0])
        error = change_error(before, after)
        (fewer, more), (fewer_after, more_after) = stalls[at : at + 2]
        low = size - hypot(error, fewer, more_after) - pace.coarse
        high = size + hypot(error, more, fewer_after) + pace.coarse
        found.append((expm1(size), expm1(low), expm1(high)))
    return found


def _events_between(run: RunArrays, level: SpeedLevel, after: SpeedLevel) -> list[str]:
    """Return the kinds of events at the beginning of a level, of CHANGING_EVENTS."""
    step = run["step"]
    near = (step > level["to_step"]) & (step - run["new_step"] < after["from_step"])
    logged = dict(run.events())
    kinds = {kind for at in np.flatnonzero(near) for kind in logged.get(int(at), ())}
    return [kind for kind in CHANGING_EVENTS if kind in kinds]


# -- the levels in words ---------------------------------------------------------------------


def drift_columns(drift: Drift | None) -> dict[str, float]:
    """Return the change of speed from first to last point, with its interval."""
    if drift is None:
        return {}
    size, half = drift.start - drift.end, NORMAL_95 * drift.standard_error
    return {
        "drift": expm1(size),
        "drift_low": expm1(size - half),
        "drift_high": expm1(size + half),
    }


def speed_doubt(levels: Sequence[SpeedLevel] | None, drift: float | None) -> Message | None:
    """Say that a run has no single speed; None if it has one.

    levels: as from `speed_levels`; drift: as in `drift_columns`
    """
    if drift is not None:
        effect: Effect = "unranked" if abs(drift) > MAX_RANKED_DRIFT else "doubt"
        return SPEED_DRIFTS(effect, side="fell" if drift < 0 else "rose", change=abs(drift))
    if not levels:
        return None
    if all(level["ranked"] for level in levels):
        paces = [
            1 / level["tgs"] if level["tgs"] else level["seconds_per_step"] for level in levels
        ]
        times = sorted(pace for pace in paces if pace is not None)
        return SPEED_ALTERNATES(changes=len(levels) - 1, times=times[-1] / times[0])
    told = "; ".join(describe_level(level) for level in levels[:MAX_LISTED])
    more = f"; {len(levels) - MAX_LISTED} more" if len(levels) > MAX_LISTED else ""
    ranked = [level for level in levels if level["ranked"]]
    held, whole = (sum(map(steps_in, some)) for some in (ranked, levels))
    kind = SPEED_CHANGED if held >= MIN_RANKED_SHARE * whole else NO_LASTING_SPEED
    return kind(steps=" and ".join(map(steps_of, ranked)), levels=f"{told}{more}")


def describe_level(level: SpeedLevel) -> str:
    """Return a level as text: steps, TGS, and change from the level before."""
    rate, change = level["tgs"], level["change"]
    speed = f"{level['seconds_per_step']:.3g} s a step" if rate is None else f"{rate:,.0f}"
    side = "" if change is None else f" ({change:+.1%})"
    return f"{steps_of(level)}: {speed}{side}"
