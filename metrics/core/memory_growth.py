"""Growth of the peak memory inside a run: a lasting rise, and sudden changes.

A run allocates its memory in the first steps, and its peak stays. A peak that keeps growing is a
leak: memory that no step gives back. A logged peak may be the largest since the start, so a rise
that levels off is none. Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from itertools import pairwise
from math import hypot, sqrt
from typing import Final

import numpy as np

from .arrays import FloatArray, IntArray, median_of
from .run_arrays import RunArrays
from .run_table import MemoryChange
from .run_words import GROWTH, JUMP
from .segmentation import MIN_LEVEL_POINTS, Level, Noise, estimate_noise, find_levels

MIN_MEMORY_CHANGE: Final = 0.02
"""Smallest change of the peak memory that counts, as a share of it."""
MIN_GROWING_WINDOWS: Final = 8
"""Fewest windows of a growth: two for each of its quarters."""
QUARTERS: Final = 4
MIN_QUARTER_GROWTH: Final = 0.5
"""Least growth from one quarter to the next, as a share of the mean: a leak grows evenly, a jump in
one place, and the largest peak since the start ever slower."""
MIN_RECORDS: Final = 20
"""Fewest rises of a growth that never falls: chance alone sets some 12 records in 100,000 windows.
"""
MIN_GROWTH_ERRORS: Final = 5.0
"""Least growth, or jump, in its standard errors."""
MEMORY_AUTOCORRELATION: Final = 0.5
"""Assumed autocorrelation of peaks: so few windows do not show it, and a guess from them hides one
of 50 short leaks. Of 1,500 healthy runs 4 have a finding, also with noise as alike as 0.9.
"""
MAX_KNOTS: Final = 100
"""Most steps that are tried as the beginning of a growth."""
MAX_FITTED: Final = 1_000
"""Most windows that are fitted to find that step."""
PRINTED_SHARE: Final = 1e-3
"""Least noise of a logged peak, as a share: its rounding."""
CAUSES: Final = ("tokens_per_gpu", "sequence_length")
"""Columns of windows whose change explains another peak."""
MIN_CAUSE_CHANGE: Final = 0.01


def memory_changes(windows: RunArrays) -> list[MemoryChange] | None:
    """Return the growth of the peak memory, else its sudden changes, in order.

    None if too few windows log it.

    windows: of one run, marked (metrics.throughput.warmup.mark_warm_up_and_stalls)
    """
    memory = windows["peak_memory_bytes"]
    usable = (memory > 0) & ~windows.flags("first") & ~windows.flags("warming")
    at = np.flatnonzero(usable)
    if len(at) < MIN_GROWING_WINDOWS:
        return None
    values, usual = memory[at], median_of(memory[at])
    if np.ptp(values) < MIN_MEMORY_CHANGE * usual:
        return []
    steps = windows["step"][at]
    first = _growth_start(steps, values)
    if first is not None and not _is_explained(windows, at[first:]):
        start, end = _line(steps[first:], values[first:])
        return [_change(GROWTH, steps[first], steps[-1], start, end)]
    found = find_levels(values, MIN_MEMORY_CHANGE * usual, PRINTED_SHARE * usual).levels
    return [
        _change(JUMP, steps[after.first], steps[after.last], level.mean, after.mean)
        for level, after in pairwise(found)
        if _is_clear(level, after)
        and not _is_explained(windows, at[level.last - 1 : after.first + 2])
    ]


def _is_clear(level: Level, after: Level) -> bool:
    """Return whether levels differ by more than the noise of short runs explains."""
    error = hypot(level.standard_error, after.standard_error)
    return abs(after.mean - level.mean) >= MIN_GROWTH_ERRORS * error


def _change(kind: str, first: float, last: float, before: float, after: float) -> MemoryChange:
    return {
        "kind": kind,
        "from_step": int(first),
        "to_step": int(last),
        "bytes_before": before,
        "bytes_after": after,
    }


def _growth_start(steps: FloatArray, values: FloatArray) -> int | None:
    """Return the index from which values grow evenly to the end; None if they do not.

    Of all beginnings, the one whose line after a constant is nearest to the values.
    """
    most = len(values) - MIN_GROWING_WINDOWS
    knots = np.unique(np.linspace(0, most, min(most + 1, MAX_KNOTS)).astype(np.int64))
    some = slice(None, None, -(-len(values) // MAX_FITTED))
    first = int(min(knots, key=lambda knot: _misfit(steps[some], values[some], float(steps[knot]))))
    part, begins = values[first:], values[: first + MIN_LEVEL_POINTS]
    quarters = np.array([median_of(each) for each in np.array_split(part, QUARTERS)])
    growth = np.diff(quarters)
    start, end = _line(steps[first:], part)
    noise = estimate_noise(np.diff(part), MEMORY_AUTOCORRELATION)
    printed = PRINTED_SHARE * median_of(part)
    if noise.innovation < printed:
        noise = Noise(0.0, printed)
    error = sqrt(12 / len(part)) * noise.long_run
    even = growth.min() >= MIN_QUARTER_GROWTH * growth.mean() and growth.mean() > 0
    least = max(MIN_MEMORY_CHANGE * median_of(begins), MIN_GROWTH_ERRORS * error)
    is_growth = even and end - start >= least and not _has_few_records(part)
    return first if is_growth else None


def _has_few_records(values: FloatArray) -> bool:
    """Return whether values never fall and seldom rise.

    So does the largest value since the start.
    """
    changes = np.diff(values)
    rises = np.count_nonzero(changes > 0)
    return bool((changes >= 0).all() and rises < min(MIN_RECORDS, len(changes) / 2))


def _misfit(steps: FloatArray, values: FloatArray, knot: float) -> float:
    """Return the squared distance of values from a constant, then a line after a knot."""
    later = np.maximum(steps - knot, 0.0)
    design = np.column_stack([np.ones(len(values)), later])
    fit = np.linalg.lstsq(design, values, rcond=None)[0]
    return float(((values - design @ fit) ** 2).sum())


def _line(steps: FloatArray, values: FloatArray) -> tuple[float, float]:
    """Return the first and the last value of the straight line through values."""
    slope, start = np.polyfit(steps - steps[0], values, 1)
    return float(start), float(start + slope * (steps[-1] - steps[0]))


def _is_explained(windows: RunArrays, indices: IntArray) -> bool:
    """Return whether the work of a step changed over these windows."""
    columns = [windows[name][indices] for name in CAUSES]
    known = [column for column in columns if (column > 0).all()]
    return any(
        abs(median_of(column[len(column) // 2 :]) / median_of(column[: len(column) // 2]) - 1)
        > MIN_CAUSE_CHANGE
        for column in known
    )
