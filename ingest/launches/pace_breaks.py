"""Lines of two runs, one behind the other, whose steps rise by chance and that no start parts.

Two things have to come together: the time between two lines is not that of their steps, and the
speed is another one for good. An evaluation or a checkpoint does the first alone, a run that slows
down the second.
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
"""Lines on either side that tell the speed."""
MIN_GAP_RATIO: Final = 3.0
MIN_GAP_S: Final = 30.0
"""The time between two lines is so many times that of their steps, and so much longer."""
MIN_SPEED_CHANGE: Final = 0.05
"""No line on one side is as near as this to one on the other."""
LOOKED_AT: Final = ("line", "step", "logged_at", "since_start_s", "elapsed_s", "logged_tgs")


def pace_breaks(launch: Launch) -> list[int]:
    """Return the lines with which another run's lines begin."""
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
    own = _own_paces(rows)
    found = list(_breaks(steps, moments, np.append(np.nan, paces) if own is None else own))
    return [int(rows["line"][place]) for place in found]


def _own_paces(rows: pl.DataFrame) -> Floats | None:
    """What each line says of its speed itself, as a time: its own, or that of a token."""
    elapsed, rates = (column_values(rows[name], np.nan) for name in ("elapsed_s", "logged_tgs"))
    if np.isfinite(elapsed).all():
        return elapsed
    return 1 / rates if (rates > 0).all() else None


def _breaks(steps: Ints, moments: Floats, speeds: Floats) -> Iterator[int]:
    """Places of lines of another run; speeds: a time that tells the speed of each line."""
    paces = np.diff(moments) / np.diff(steps)
    usual = float(np.median(paces))
    start = 0
    for place in np.flatnonzero(paces > MIN_GAP_RATIO * usual).tolist():
        behind = place + 1
        before = slice(max(start, behind - MAX_SIDE_LINES), behind)
        after = slice(behind + 1, behind + 1 + MAX_SIDE_LINES)  # its first line may warm up
        near = [float(np.median(paces[some])) for some in (before, after) if len(paces[some])]
        length = steps[behind] - steps[place]
        slow = max(near, default=usual) * length
        gap = moments[behind] - moments[place]
        if gap > MIN_GAP_RATIO * slow + MIN_GAP_S and _apart(speeds[before], speeds[after]):
            yield behind
            start = behind


def _apart(one: Floats, other: Floats) -> bool:
    """Whether all of one side is faster than all of the other."""
    one, other = one[np.isfinite(one)], other[np.isfinite(other)]
    if min(len(one), len(other)) < MIN_SIDE_LINES:
        return False
    far = 1 + MIN_SPEED_CHANGE
    return bool(one.max() * far < other.min() or other.max() * far < one.min())
