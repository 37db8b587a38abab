"""Time that passes outside of the steps' own timer, where it changes inside a run.

The stamps of two lines are apart by the time of the steps between, and by what the step timer does
not see: garbage collections, logging, waiting for data. Frames in, frames out.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..core.print_precision import MAX_UNEXPLAINED_GAP
from ..core.run_arrays import RunArrays, median
from ..core.run_table import PauseLevel
from ..core.segmentation import MIN_POINTS, find_levels
from .windows import count_steps, stamp_rounding, steady_windows

MIN_PAUSE_SHARE: Final = 2 * MAX_UNEXPLAINED_GAP
"""Smallest change of the time outside of the timer, as a share of a step."""


def find_pauses(windows: RunArrays) -> list[PauseLevel] | None:
    """Return the time outside of the step timer, by stretches of steps.

    Empty if it is about the same in all of the run. None if the log has no stamps or no step times,
    or too few of them.

    windows: of one run, marked (metrics.throughput.warmup.mark_warm_up_and_stalls)
    """
    counted = count_steps(windows).with_values(off_level=np.zeros(windows.height))
    timed, stamped = (steady_windows(counted, kind).indices for kind in ("elapsed", "stamp"))
    both = np.intersect1d(timed, stamped)
    if len(both) < MIN_POINTS:
        return None
    by_timer, by_stamps = (
        windows[f"{evidence}_time"][both] / windows[f"{evidence}_span"][both]
        for evidence in ("elapsed", "stamp")
    )
    usual = median(by_timer) or 0.0
    outside = by_stamps - by_timer
    rounding = stamp_rounding(windows, "stamp", both) / (median(windows["stamp_span"][both]) or 1)
    levels = find_levels(outside, MIN_PAUSE_SHARE * usual, rounding).levels
    if len(levels) == 1 or not usual:
        return []
    steps = windows["step"]
    spans = windows["stamp_span"]
    return [
        {
            "from_step": int(steps[both[level.first]] - spans[both[level.first]]) + 1,
            "to_step": int(steps[both[level.last]]),
            "seconds_per_step": float(outside[level.first : level.last + 1].mean()),
            "share": float(outside[level.first : level.last + 1].mean()) / usual,
        }
        for level in levels
    ]
