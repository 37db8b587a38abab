"""Consecutive lines of two runs whose steps rise by chance, without a start line.

Two signs are required: the time between two lines does not fit their steps, and the speed changes
for good. An evaluation or a checkpoint causes only the first, a run that slows down only the
second.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from ..core.arrays import Floats, Ints, column_values
from .launch import Launch

MIN_SIDE_LINES: Final = 3
MAX_SIDE_LINES: Final = 8
"""Maximum number of lines on either side that define the speed."""
MIN_GAP_RATIO: Final = 3.0
MIN_GAP_S: Final = 30.0
"""Margin in seconds beyond MIN_GAP_RATIO times the usual time of the steps in a gap."""
MIN_SPEED_CHANGE: Final = 0.05
"""Every line on one side differs from every line on the other by more than this share."""
LOOKED_AT: Final = ("line", "step", "logged_at", "since_start_s", "elapsed_s", "logged_tgs")


def pace_breaks(launch: Launch) -> list[int]:
    """Return the lines at which another run begins."""
    frames = [frame for frame in launch.rows.frames(*LOOKED_AT) if frame.height]
    if not frames:
        return []
    rows = pl.concat(frames).unique("step", keep="first", maintain_order=True)
    steps = rows["step"].to_numpy()
    if len(steps) < 2 * MIN_SIDE_LINES or (np.diff(steps) <= 0).any():
        return []
    stamps = column_values(rows["logged_at"].cast(pl.Int64), np.nan) / 1e6
    clocks = column_values(rows["since_start_s"], np.nan)
    moments = stamps if np.isfinite(stamps).all() else clocks
    if not np.isfinite(moments).all():
        return []
    paces = np.diff(moments) / np.diff(steps)
    printed = _own_paces(rows)
    indices = list(
        _breaks(steps, moments, np.append(np.nan, paces) if printed is None else printed)
    )
    return [int(rows["line"][index]) for index in indices]


def _own_paces(rows: pl.DataFrame) -> Floats | None:
    """Return the printed time of a step, or of a token, per line; else None."""
    elapsed, rates = (column_values(rows[name], np.nan) for name in ("elapsed_s", "logged_tgs"))
    if np.isfinite(elapsed).all():
        return elapsed
    return 1 / rates if (rates > 0).all() else None


def _breaks(steps: Ints, moments: Floats, speeds: Floats) -> Iterator[int]:
    """Yield the indices of rows that begin another run. speeds: a time per row."""
    paces = np.diff(moments) / np.diff(steps)
    usual = float(np.median(paces))
    start = 0
    for index in np.flatnonzero(paces > MIN_GAP_RATIO * usual).tolist():
        behind = index + 1
        before = slice(max(start, behind - MAX_SIDE_LINES), behind)
        after = slice(behind + 1, behind + 1 + MAX_SIDE_LINES)  # the first line may be a warm-up
        near = [float(np.median(paces[some])) for some in (before, after) if len(paces[some])]
        length = steps[behind] - steps[index]
        slow = max(near, default=usual) * length
        gap = moments[behind] - moments[index]
        if gap > MIN_GAP_RATIO * slow + MIN_GAP_S and _apart(speeds[before], speeds[after]):
            yield behind
            start = behind


def _apart(before: Floats, after: Floats) -> bool:
    """Return whether all of one side is faster than all of the other."""
    before, after = before[np.isfinite(before)], after[np.isfinite(after)]
    if min(len(before), len(after)) < MIN_SIDE_LINES:
        return False
    far = 1 + MIN_SPEED_CHANGE
    return bool(before.max() * far < after.min() or after.max() * far < before.min())
