"""Doubts about windows that took much longer than others: excluded, or counted.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..core.arrays import FloatArray, IntArray, median_of, quantile_of_ordered
from ..core.messages import Message
from ..core.print_precision import MAX_UNEXPLAINED_GAP
from ..core.run_arrays import RunArrays, median, once_a_run, total
from .messages import COUNTED_STALLS, LATE_START, UNLOGGED_WORK
from .unlogged_work import (
    LOWER_LEVEL_QUANTILE,
    MAX_WORK_WINDOWS,
    MIN_APART_SHARE,
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
    steady_windows,
    timed_windows,
    window_after_step_1,
)

MAX_OUTLIERS: Final = 1 / 4
"""Largest share of a few windows that can be outliers: none of three."""
MAX_TENTHS: Final = 9.5
"""Ratio from which tenths are not shown."""
MAX_NAMED_STEPS: Final = 3
"""Most slow windows whose steps are named."""


@dataclass(frozen=True, slots=True)
class Spikes:
    """Windows far slower than the others, without a cause in the log.

    slow, others: both kinds; counted: whether TGS includes the slow ones
    steps: last steps of the slow ones; period: steps between them; None without a period
    may_be_updates: the slow windows may be those with optimizer steps
    """

    slow: WindowSelection
    others: WindowSelection
    counted: bool
    steps: Sequence[int] = ()
    period: int | None = None
    may_be_updates: bool = False

    @property
    def rates(self) -> tuple[float, float]:
        """Rate with the slow windows, and without them."""
        both = (self.slow, self.others)
        tokens, seconds = (sum(total(getattr(of, n)) for of in both) for n in ("tokens", "seconds"))
        return tokens / seconds, total(self.others.tokens) / total(self.others.seconds)

    @property
    def number(self) -> int:
        """Number of slow windows."""
        return len(self.slow.indices)

    @property
    def whole(self) -> int:
        """Number of all windows."""
        return self.number + len(self.others.indices)

    @property
    def share(self) -> float:
        """Share of the slow windows in the measured time."""
        return total(self.slow.seconds) / (total(self.slow.seconds) + total(self.others.seconds))

    @property
    def effect(self) -> float:
        """Share by which the slow windows lower the rate."""
        slower, faster = self.rates
        return 1 - slower / faster


@once_a_run
def find_spikes(windows: RunArrays, evidence: str) -> Spikes | None:
    """Return slow windows that TGS leaves out, else those in it; None without any."""
    steady = steady_windows(windows, evidence)
    if not total(steady.tokens):
        return None
    slow = timed_windows(windows, evidence, windows.flags("unlogged"))
    if len(slow.indices):
        every = np.sort(np.concatenate([steady.indices, slow.indices]))
        spans = windows[f"{evidence}_span"][every]
        rhythm = find_period(windows["step"][every], spans, np.isin(every, slow.indices))
        period = None if rhythm is None else rhythm.period
        return Spikes(slow, steady, counted=False, period=period)
    at = _unexplained(windows, steady, evidence)
    rest = np.delete(np.arange(len(steady.indices)), at)
    slow, others = (
        WindowSelection(steady.indices[of], steady.tokens[of], steady.seconds[of])
        for of in (at, rest)
    )
    if not len(at) or not total(others.seconds) or not total(others.tokens):
        return None
    steps = windows["step"][slow.indices].astype(np.int64).tolist()
    return Spikes(slow, others, counted=True, steps=steps, may_be_updates=updates_unknown(windows))


def spike_columns(spikes: Spikes | None) -> dict[str, float]:
    """Return TGS with slow windows and without them.

    Nothing if TGS counts them and they change it by at most 1 %.
    """
    if spikes is None or (spikes.counted and spikes.effect <= MAX_UNEXPLAINED_GAP):
        return {}
    slower, faster = spikes.rates
    return {"tgs_with_spikes": slower, "tgs_without_spikes": faster}


def spikes_warning(spikes: Spikes | None) -> Message | None:
    """Warn of windows far slower than the others.

    Those that TGS counts only if they lower it by more than 1 %. The run is not ranked if those
    that TGS leaves out change it by more than 1 %, as the cause is unknown; nor if TGS includes
    a few windows of several times the usual time.
    """
    if spikes is None:
        return None
    large = spikes.effect > MAX_UNEXPLAINED_GAP
    if not spikes.counted:
        return UNLOGGED_WORK(
            "unranked" if large else "doubt", windows=_left_out(spikes), less=spikes.effect
        )
    if not large:
        return None
    isolated = (
        not spikes.may_be_updates
        and _ratio(spikes.slow, spikes.others) >= 1 + MIN_APART_SHARE
        and spikes.number <= MAX_WORK_WINDOWS * spikes.whole
    )
    return COUNTED_STALLS(
        "unranked" if isolated else "doubt", windows=_counted(spikes), less=spikes.effect
    )


def _left_out(spikes: Spikes) -> str:
    """Describe slow windows: how many, how slow, and their share of the time."""
    often = "" if spikes.period is None else f" every {spikes.period:,} steps"
    times = _times(spikes.slow, spikes.others)
    return (
        f"{spikes.number} of {spikes.whole:,} windows{often} "
        f"({times} as slow as the rest, {spikes.share:.1%} of the measured time)"
    )


def _counted(spikes: Spikes) -> str:
    """Return `_left_out` as a clause about windows that TGS includes."""
    verb, times = "is" if spikes.number == 1 else "are", _times(spikes.slow, spikes.others)
    return (
        f"{spikes.number} of the {spikes.whole:,} windows in TGS ({_places(spikes.steps)}), "
        f"{spikes.share:.1%} of the measured time, {verb} {times} as slow as the rest"
    )


def _places(steps: Sequence[int]) -> str:
    """Return the steps of windows: `at steps 30, 50, 70 and 4 more`."""
    named = ", ".join(f"{step:,}" for step in steps[:MAX_NAMED_STEPS])
    more = len(steps) - MAX_NAMED_STEPS
    return f"at step{'s' * (len(steps) > 1)} {named}{f' and {more:,} more' if more > 0 else ''}"


def late_start_warning(
    windows: RunArrays, steady: WindowSelection, evidence: str
) -> Message | None:
    """Warn of warm-up in so few windows that no test could confirm it; None without.

    steady: metrics.throughput.windows.steady_windows with `evidence`, of the run
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


def _unexplained(windows: RunArrays, steady: WindowSelection, evidence: str) -> IntArray:
    """Return the indices, among the steady windows, of unexplained outliers."""
    usual = usual_seconds(steady.seconds, steady.tokens)
    stalls = windows["stall_s"][steady.indices] > 0
    if not stalls.any():
        usual = median_of(_paces(steady)) * steady.tokens
        apart = windows_apart(
            share_above(steady.seconds, usual), MIN_START_SHARE, int(len(usual) * MAX_OUTLIERS)
        )
        stalls[apart] = True
        stalls &= steady.seconds - usual > 2 * stamp_error(windows, evidence)
    if not stalls.any() and not updates_unknown(windows) and not _cuts_steps(windows, evidence):
        steps, spans = (windows[name][steady.indices] for name in ("step", f"{evidence}_span"))
        usual = quantile_of_ordered(np.sort(_paces(steady)), LOWER_LEVEL_QUANTILE) * steady.tokens
        stalls = upper_level(steps, spans, steady.seconds, usual)
    return np.flatnonzero(unexplained_stalls(windows, evidence, steady, usual, stalls))


def _cuts_steps(windows: RunArrays, evidence: str) -> bool:
    """Return whether a line may fall within a step.

    Then long and short windows alternate.
    """
    return evidence in MOMENT_COLUMNS and (windows.value("gradient_accumulation") or 1) > 1


def _times(slow_windows: WindowSelection, others: WindowSelection) -> str:
    """Return `_ratio` as text."""
    times = _ratio(slow_windows, others)
    return f"{times:.2g}x" if times < MAX_TENTHS else f"{times:.0f}x"


def _ratio(slow_windows: WindowSelection, others: WindowSelection) -> float:
    """Return how many times as long as the others the slow windows took.

    Per token, or per window if one side has no tokens.
    """
    slow, usual = _paces(slow_windows), _paces(others)
    if not len(slow) or not len(usual):
        slow, usual = slow_windows.seconds, others.seconds
    return _middle(slow) / _middle(usual)


def _middle(values: FloatArray) -> float:
    """Return the median, or the mean where most values are 0.

    Times between stamps of whole seconds may be mostly 0.
    """
    return median(values) or total(values) / len(values)


def _paces(windows: WindowSelection) -> FloatArray:
    counted = windows.tokens > 0
    paces: FloatArray = windows.seconds[counted] / windows.tokens[counted]
    return paces
