"""Doubts about windows that took much longer than the others: left out, or counted.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ..core.arrays import FloatArray, IntArray
from ..core.print_precision import MAX_UNEXPLAINED_GAP
from ..core.run_arrays import RunArrays, total
from .unlogged_work import (
    MIN_WINDOWS,
    find_period,
    share_above,
    unexplained_stalls,
    windows_apart,
)
from .warmup import MIN_LATER_WINDOWS, MIN_START_SHARE, usual_seconds
from .windows import WindowSelection, stamp_error, timed_windows, window_after_step_1

MAX_OUTLIERS: Final = 1 / 4
"""The largest share of a few windows that can stand apart from the others."""
MAX_TENTHS: Final = 9.5
"""Ratios from which on tenths say nothing."""


def outlier_warnings(windows: RunArrays, steady: WindowSelection, evidence: str) -> Iterator[str]:
    """Sentences on windows of one run that stand apart and are left out of its rate, or count.

    steady: metrics.throughput.windows.steady_windows by `evidence`, the run's own
    """
    yield from _left_out(windows, steady, evidence)
    yield from _started_late(windows, steady, evidence)
    yield from _counted(windows, steady, evidence)


def _left_out(windows: RunArrays, steady: WindowSelection, evidence: str) -> Iterator[str]:
    """Work of which the log has no line."""
    found = timed_windows(windows, evidence, windows.flags("unlogged"))
    if not len(found.indices):
        return
    every = np.sort(np.concatenate([steady.indices, found.indices]))
    spans = windows[f"{evidence}_span"][every]
    rhythm = find_period(windows["step"][every], spans, np.isin(every, found.indices))
    often = "" if rhythm is None else f" every {rhythm.period:,} steps"
    yield (
        f"{_takes(found, steady, often)} and {_are(found)} left out of TGS: an evaluation or a "
        "checkpoint whose lines are gone? The whole log would tell"
    )


def _started_late(windows: RunArrays, steady: WindowSelection, evidence: str) -> Iterator[str]:
    """First windows that are left out as warm-up, of so few that no test could tell."""
    warming = windows.flags("warming").copy()
    if (opening := window_after_step_1(windows, evidence)) is not None:
        warming[opening] = False
    found = timed_windows(windows, evidence, warming)
    if len(found.indices) and len(found.indices) + len(steady.indices) < MIN_WINDOWS:
        which = "the first" if len(found.indices) == 1 else f"the first {len(found.indices)}"
        whole = len(found.indices) + len(steady.indices)
        yield (
            f"{which} of {whole} windows behind the start {_longer(found, steady)} and "
            f"{_are(found)} left out of TGS: still start-up? A longer log would tell"
        )


def _counted(windows: RunArrays, steady: WindowSelection, evidence: str) -> Iterator[str]:
    """Windows that count, though nothing tells why they took longer, where that matters."""
    if not total(steady.tokens):
        return
    at = _unexplained(windows, steady, evidence)
    found = WindowSelection(steady.indices[at], steady.tokens[at], steady.seconds[at])
    rest = np.delete(np.arange(len(steady.indices)), at)
    others = WindowSelection(steady.indices[rest], steady.tokens[rest], steady.seconds[rest])
    if not len(at) or not total(others.seconds) or not total(others.tokens):
        return
    pace = total(others.seconds) / total(others.tokens)
    more = 1 - pace * total(steady.tokens) / total(steady.seconds)
    if more > MAX_UNEXPLAINED_GAP:
        yield (
            f"{_takes(found, others)} and {'counts' if len(at) == 1 else 'count'} in TGS, which is "
            f"{more:.1%} lower for {'it' if len(at) == 1 else 'them'}: real stalls, or work whose "
            "lines are gone? The whole log would tell"
        )


def _unexplained(windows: RunArrays, steady: WindowSelection, evidence: str) -> IntArray:
    """Places among the steady windows of those that stand out and that nothing explains."""
    usual = usual_seconds(steady.seconds, steady.tokens)
    stalls = windows["stall_s"][steady.indices] > 0
    if not stalls.any() and len(usual) > MIN_LATER_WINDOWS:
        pace = float(
            np.median(steady.seconds[steady.tokens > 0] / steady.tokens[steady.tokens > 0])
        )
        usual = pace * steady.tokens
        apart = windows_apart(
            share_above(steady.seconds, usual), MIN_START_SHARE, int(len(usual) * MAX_OUTLIERS)
        )
        stalls[apart] = True
        stalls &= steady.seconds - usual > 2 * stamp_error(windows, evidence)
    return np.flatnonzero(unexplained_stalls(windows, evidence, steady, usual, stalls))


def _takes(found: WindowSelection, others: WindowSelection, often: str = "") -> str:
    one = len(found.indices) == 1
    whole = len(found.indices) + len(others.indices)
    share = total(found.seconds) / (total(found.seconds) + total(others.seconds))
    return (
        f"{len(found.indices)} of {whole:,} windows{often} {'takes' if one else 'take'} "
        f"{_times(found, others)} as long as the others, {share:.1%} of their time,"
    )


def _longer(found: WindowSelection, others: WindowSelection) -> str:
    return f"took {_times(found, others)} as long as the others"


def _are(found: WindowSelection) -> str:
    return "is" if len(found.indices) == 1 else "are"


def _times(found: WindowSelection, others: WindowSelection) -> str:
    times = float(np.median(_paces(found))) / float(np.median(_paces(others)))
    return f"{times:.2g}x" if times < MAX_TENTHS else f"{times:.0f}x"


def _paces(windows: WindowSelection) -> FloatArray:
    counted = windows.tokens > 0
    paces: FloatArray = windows.seconds[counted] / windows.tokens[counted]
    return paces
