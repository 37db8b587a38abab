"""Doubts about windows that took much longer than others: excluded, or counted.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..core.arrays import FloatArray, IntArray
from ..core.messages import Message
from ..core.print_precision import MAX_UNEXPLAINED_GAP
from ..core.run_arrays import RunArrays, median, total
from .messages import COUNTED_STALLS, LATE_START, UNLOGGED_WORK
from .unlogged_work import (
    LOWER_LEVEL_QUANTILE,
    MIN_WINDOWS,
    find_period,
    share_above,
    unexplained_stalls,
    updates_unknown,
    upper_level,
    windows_apart,
)
from .warmup import MIN_START_SHARE, usual_seconds
from .windows import (
    MOMENT_COLUMNS,
    WindowSelection,
    stamp_error,
    timed_windows,
    window_after_step_1,
)

MAX_OUTLIERS: Final = 1 / 4
"""Largest share of a few windows that can be outliers: none of three."""
MAX_TENTHS: Final = 9.5
"""Ratio from which tenths are not shown."""


def unlogged_work_warning(
    windows: RunArrays, steady: WindowSelection, evidence: str
) -> Message | None:
    """Warn of windows excluded for work without a log line; None without such windows.

    steady: metrics.throughput.windows.steady_windows with `evidence`, of the run
    """
    slow = timed_windows(windows, evidence, windows.flags("unlogged"))
    if not len(slow.indices):
        return None
    every = np.sort(np.concatenate([steady.indices, slow.indices]))
    spans = windows[f"{evidence}_span"][every]
    rhythm = find_period(windows["step"][every], spans, np.isin(every, slow.indices))
    often = "" if rhythm is None else f" every {rhythm.period:,} steps"
    return UNLOGGED_WORK(windows=_slow_windows(slow, steady, often))


def late_start_warning(
    windows: RunArrays, steady: WindowSelection, evidence: str
) -> Message | None:
    """Warn of warm-up in so few windows that no test could confirm it; None without.

    steady: as in `unlogged_work_warning`
    """
    warming = windows.flags("warming").copy()
    if (opening := window_after_step_1(windows, evidence)) is not None:
        warming[opening] = False
    slow = timed_windows(windows, evidence, warming)
    number, whole = len(slow.indices), len(slow.indices) + len(steady.indices)
    if not number or whole >= MIN_WINDOWS:
        return None
    first = "the first" if number == 1 else f"the first {number}"
    return LATE_START(first=first, whole=whole, times=_times(slow, steady))


def counted_outliers_warning(
    windows: RunArrays, steady: WindowSelection, evidence: str
) -> Message | None:
    """Warn of counted windows that took longer without a known reason.

    None if they lower TGS by at most 1 %.

    steady: as in `unlogged_work_warning`
    """
    if not total(steady.tokens):
        return None
    at = _unexplained(windows, steady, evidence)
    slow = WindowSelection(steady.indices[at], steady.tokens[at], steady.seconds[at])
    rest = np.delete(np.arange(len(steady.indices)), at)
    others = WindowSelection(steady.indices[rest], steady.tokens[rest], steady.seconds[rest])
    if not len(at) or not total(others.seconds) or not total(others.tokens):
        return None
    pace = total(others.seconds) / total(others.tokens)
    more = 1 - pace * total(steady.tokens) / total(steady.seconds)
    if more <= MAX_UNEXPLAINED_GAP:
        return None
    return COUNTED_STALLS(windows=_slow_windows(slow, others), more=more)


def _unexplained(windows: RunArrays, steady: WindowSelection, evidence: str) -> IntArray:
    """Return the indices, among the steady windows, of unexplained outliers."""
    usual = usual_seconds(steady.seconds, steady.tokens)
    stalls = windows["stall_s"][steady.indices] > 0
    if not stalls.any():
        usual = float(np.median(_paces(steady))) * steady.tokens
        apart = windows_apart(
            share_above(steady.seconds, usual), MIN_START_SHARE, int(len(usual) * MAX_OUTLIERS)
        )
        stalls[apart] = True
        stalls &= steady.seconds - usual > 2 * stamp_error(windows, evidence)
    if not stalls.any() and not updates_unknown(windows) and not _cuts_steps(windows, evidence):
        steps, spans = (windows[name][steady.indices] for name in ("step", f"{evidence}_span"))
        usual = float(np.quantile(_paces(steady), LOWER_LEVEL_QUANTILE)) * steady.tokens
        stalls = upper_level(steps, spans, steady.seconds, usual)
    return np.flatnonzero(unexplained_stalls(windows, evidence, steady, usual, stalls))


def _cuts_steps(windows: RunArrays, evidence: str) -> bool:
    """Return whether a line may fall within a step.

    Then long and short windows alternate.
    """
    return evidence in MOMENT_COLUMNS and (windows.value("gradient_accumulation") or 1) > 1


def _slow_windows(slow: WindowSelection, others: WindowSelection, often: str = "") -> str:
    """Describe slow windows: how many, how slow, and their share of the time."""
    whole = len(slow.indices) + len(others.indices)
    share = total(slow.seconds) / (total(slow.seconds) + total(others.seconds))
    return (
        f"{len(slow.indices)} of {whole:,} windows{often} "
        f"({_times(slow, others)} as slow as the rest, {share:.1%} of the time)"
    )


def _times(slow_windows: WindowSelection, others: WindowSelection) -> str:
    """Return the ratio of the slow windows to the others, as text.

    Per token, or per window if one side has no tokens.
    """
    slow, usual = _paces(slow_windows), _paces(others)
    if not len(slow) or not len(usual):
        slow, usual = slow_windows.seconds, others.seconds
    times = _middle(slow) / _middle(usual)
    return f"{times:.2g}x" if times < MAX_TENTHS else f"{times:.0f}x"


def _middle(values: FloatArray) -> float:
    """Return the median, or the mean where most values are 0.

    Times between stamps of whole seconds may be mostly 0.
    """
    return median(values) or total(values) / len(values)


def _paces(windows: WindowSelection) -> FloatArray:
    counted = windows.tokens > 0
    paces: FloatArray = windows.seconds[counted] / windows.tokens[counted]
    return paces
