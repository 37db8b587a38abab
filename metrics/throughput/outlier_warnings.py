"""Doubts about windows that took much longer than the others: left out, or counted.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..core.arrays import FloatArray, IntArray
from ..core.print_precision import MAX_UNEXPLAINED_GAP
from ..core.run_arrays import RunArrays, median, total
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
"""The largest share of a few windows that can stand apart from the others: of three none can."""
MAX_TENTHS: Final = 9.5
"""Ratios from which on tenths say nothing."""


def unlogged_work_warning(windows: RunArrays, steady: WindowSelection, evidence: str) -> str | None:
    """The sentence on windows left out for work of which the log has no line; None without.

    steady: metrics.throughput.windows.steady_windows by `evidence`, the run's own
    """
    found = timed_windows(windows, evidence, windows.flags("unlogged"))
    if not len(found.indices):
        return None
    every = np.sort(np.concatenate([steady.indices, found.indices]))
    spans = windows[f"{evidence}_span"][every]
    rhythm = find_period(windows["step"][every], spans, np.isin(every, found.indices))
    often = "" if rhythm is None else f" every {rhythm.period:,} steps"
    return (
        f"{_takes(found, steady, often)} and {_are(found)} left out of TGS: an evaluation or a "
        "checkpoint whose lines are gone? The whole log would tell"
    )


def late_start_warning(windows: RunArrays, steady: WindowSelection, evidence: str) -> str | None:
    """The sentence on warm-up of so few windows that no test could tell; None without.

    steady: as of `unlogged_work_warning`
    """
    warming = windows.flags("warming").copy()
    if (opening := window_after_step_1(windows, evidence)) is not None:
        warming[opening] = False
    found = timed_windows(windows, evidence, warming)
    number, whole = len(found.indices), len(found.indices) + len(steady.indices)
    if not number or whole >= MIN_WINDOWS:
        return None
    which = "the first" if number == 1 else f"the first {number}"
    return (
        f"{which} of {whole} windows behind the start took {_times(found, steady)} as long as the "
        f"others and {_are(found)} left out of TGS: still start-up? A longer log would tell"
    )


def counted_outliers_warning(
    windows: RunArrays, steady: WindowSelection, evidence: str
) -> str | None:
    """The sentence on windows that count though nothing tells why they took longer.

    None where TGS is no more than 1 % lower for them. steady: as of `unlogged_work_warning`
    """
    if not total(steady.tokens):
        return None
    at = _unexplained(windows, steady, evidence)
    found = WindowSelection(steady.indices[at], steady.tokens[at], steady.seconds[at])
    rest = np.delete(np.arange(len(steady.indices)), at)
    others = WindowSelection(steady.indices[rest], steady.tokens[rest], steady.seconds[rest])
    if not len(at) or not total(others.seconds) or not total(others.tokens):
        return None
    pace = total(others.seconds) / total(others.tokens)
    more = 1 - pace * total(steady.tokens) / total(steady.seconds)
    if more <= MAX_UNEXPLAINED_GAP:
        return None
    count, them = ("counts", "it") if len(at) == 1 else ("count", "them")
    return (
        f"{_takes(found, others)} and {count} in TGS, which is {more:.1%} lower for {them}: real "
        "stalls, or work whose lines are gone? The whole log would tell"
    )


def _unexplained(windows: RunArrays, steady: WindowSelection, evidence: str) -> IntArray:
    """Places among the steady windows of those that stand out and that nothing explains."""
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
    """Tell whether a line may stand within a step: then windows are long and short by turns."""
    return evidence in MOMENT_COLUMNS and (windows.value("gradient_accumulation") or 1) > 1


def _takes(found: WindowSelection, others: WindowSelection, often: str = "") -> str:
    one = len(found.indices) == 1
    whole = len(found.indices) + len(others.indices)
    share = total(found.seconds) / (total(found.seconds) + total(others.seconds))
    return (
        f"{len(found.indices)} of {whole:,} windows{often} {'takes' if one else 'take'} "
        f"{_times(found, others)} as long as the others, {share:.1%} of their time,"
    )


def _are(found: WindowSelection) -> str:
    return "is" if len(found.indices) == 1 else "are"


def _times(found: WindowSelection, others: WindowSelection) -> str:
    """How many times as long, by token; by window where one side has no tokens."""
    slow, usual = _paces(found), _paces(others)
    if not len(slow) or not len(usual):
        slow, usual = found.seconds, others.seconds
    times = _middle(slow) / _middle(usual)
    return f"{times:.2g}x" if times < MAX_TENTHS else f"{times:.0f}x"


def _middle(values: FloatArray) -> float:
    """The median, or the mean where most are 0, as times between stamps of whole seconds may be."""
    return median(values) or total(values) / len(values)


def _paces(windows: WindowSelection) -> FloatArray:
    counted = windows.tokens > 0
    paces: FloatArray = windows.seconds[counted] / windows.tokens[counted]
    return paces
