"""Find the steady part of a run from its numbers: the end of warm-up, and stalls.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ..core import quantiles
from ..core.arrays import FloatArray, median_of, rolling_median
from ..core.intervals import MIN_QUANTILE_WINDOWS, autocorrelation, spread_of_most
from ..core.run_arrays import RunArrays, median
from .speed_levels import find_course
from .unlogged_work import find_unlogged_work, share_above, windows_apart
from .windows import (
    UNMARKED,
    choose_evidence,
    count_steps,
    stamp_error,
    steady_windows,
    timed_windows,
    window_after_step_1,
)

FALSE_WARM_UP_CHANCE: Final = 0.01
"""Chance of finding a warm-up in a run without one."""
MIN_SETTLED_WINDOWS: Final = MIN_QUANTILE_WINDOWS
"""Windows needed after the warm-up for their scatter."""
MAX_WARM_UP_SHARE: Final = 1 / 3
"""Largest share of a run's windows in the warm-up; a longer slow start is the run's speed."""
MAX_SEARCHED_SHARE: Final = 1 / 2
"""Share of a run's windows that is searched: above MAX_WARM_UP_SHARE, to recognise a longer slow
start."""
MIN_LATER_WINDOWS: Final = 3
"""Least later windows that the first windows are compared with."""
MIN_START_SHARE: Final = 0.2
"""Least excess time of slow first windows, relative to the usual time."""
WARM_UP_CLIP_SPREADS: Final = 20.0
"""Clipping limit of a window's distance from the middle, in spreads."""
LONE_WINDOW_SPREADS: Final = 2.5
"""Spreads from which a window stands out, and below which its neighbours do not."""
MIN_PACE_SPREAD: Final = 0.002
"""Smallest spread, as a share of the pace: with rounded times, all windows are equal."""
MAD_EFFICIENCY: Final = 0.37
"""Efficiency of a spread from the median of distances, as a share of the values (Rousseeuw and
Croux 1993)."""

MARKS: Final = ("warming", "stall_s", "unlogged", "level", "off_level", "drifting")
"""Columns filled here."""

MIN_WARM_UP_EXCESS: Final = 0.01
"""Least excess of the mean pace of a warm-up over the rest; less is scatter that lasts."""
MIN_STALL_SPREADS: Final = 6.0
MIN_STALL_SHARE: Final = 0.05
"""A stall is a window this many spreads and this share above its surroundings."""
PACE_MEDIAN_WINDOWS: Final = 51
"""Windows in the rolling median that gives the pace of the middle window."""


def mark_warm_up_and_stalls(windows: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Mark the windows of each run by its time evidence.

    warming: the rest of the first interval if its first step is printed alone, and later windows
        slower than the rest of the run
    stall_s: excess seconds of an outlier over its surroundings, else 0
    unlogged: true with work missing from the log (metrics.throughput.unlogged_work)
    level: number of the window's level of speed, from 0; -1 if not judged
    off_level: true at another speed than TGS; drifting: true if the run's speed drifts
        (metrics.throughput.speed_levels)

    windows: metrics.throughput.windows.build_windows; runs: as in ingest.core.schema
    """
    evidence = dict(runs.select("run_id", "evidence").iter_rows())
    if not windows.height:
        return windows
    parts = [_marked(run, evidence[id_]) for id_, run in RunArrays(windows).by_run().items()]
    return windows.with_columns(
        pl.Series(name, np.concatenate([part[name] for part in parts])) for name in MARKS
    )


def _marked(run: RunArrays, preferred: list[str]) -> dict[str, NDArray[Any]]:
    """Return the marks of each window of one run, by column."""
    marks = {name: np.full(run.height, UNMARKED[name]) for name in MARKS}
    run = count_steps(run)
    evidence = choose_evidence(run, preferred)
    if evidence is None:
        return marks
    counted = steady_windows(run, evidence)
    pace = _pace(counted.seconds, counted.tokens)
    pace[np.isnan(pace)] = median(pace[~np.isnan(pace)])
    later = timed_windows(run, evidence, ~run.flags("first")).indices
    opening = int(len(later) > 1 and counted.indices[0] == window_after_step_1(run, evidence))
    cut = opening + warm_up_length(pace[opening:])
    marks["warming"][counted.indices[:cut]] = True
    settled = counted.behind(cut)
    above = stall_excess(settled.seconds, settled.tokens, stamp_error(run, evidence))
    marks["stall_s"][settled.indices] = above
    if above.any():
        usual = usual_seconds(settled.seconds, settled.tokens)
        marks["unlogged"][find_unlogged_work(run, evidence, settled, usual, above > 0)] = True
    is_logged = ~marks["unlogged"][settled.indices]
    paced = settled.where(is_logged)
    course = find_course(run, evidence, paced, above[is_logged])
    if course is not None:
        marks["level"][paced.indices], marks["drifting"][paced.indices] = (
            course.level,
            course.drifts,
        )
        marks["off_level"][paced.indices] = ~course.ranks
    return marks


def _pace(seconds: FloatArray, tokens: FloatArray) -> FloatArray:
    """Return the seconds per token of each window; NaN without tokens."""
    pace: FloatArray = np.divide(
        seconds, tokens, out=np.full(len(tokens), np.nan), where=tokens > 0
    )
    return pace


def warm_up_length(pace: FloatArray) -> int:
    """Return the number of first windows slower than the rest.

    Cuts at the largest difference of means, in standard errors of series as autocorrelated as the
    second half. Repeats after the cut until chance explains the difference. No warm-up if the rest
    is hardly faster, or no faster for its stalls. With too few windows for the test: the first
    windows far above all others.

    pace: time per token of each window
    """
    most, searched = (
        min(int(len(pace) * share), len(pace) - MIN_SETTLED_WINDOWS)
        for share in (MAX_WARM_UP_SHARE, MAX_SEARCHED_SHARE)
    )
    if not np.isfinite(pace).all():
        return 0
    if most < 1:
        return _start_apart(pace)
    settled = pace[len(pace) // 2 :]
    middle = median_of(settled)
    spread = max(spread_of_most(settled - middle), MIN_PACE_SPREAD * middle)
    x = _without_lone(
        np.clip((pace - middle) / spread, -WARM_UP_CLIP_SPREADS, WARM_UP_CLIP_SPREADS)
    )
    alike = max(0.0, autocorrelation(x[len(x) // 2 :]))
    cut = 0
    while cut < most:
        more = _first_shift(x[cut:], searched - cut, alike)
        if not more or cut + more > most:
            break
        cut += more
    is_slower = cut and pace[:cut].mean() > (1 + MIN_WARM_UP_EXCESS) * pace[cut:].mean()
    return cut if is_slower else 0


def _start_apart(pace: FloatArray) -> int:
    """Return the number of first windows far above all later ones, for few windows.

    pace: all finite
    """
    most = min(int(len(pace) * MAX_WARM_UP_SHARE), len(pace) - MIN_LATER_WINDOWS)
    if most < 1:
        return 0
    usual = np.full(len(pace), median_of(pace[most:]))
    apart = windows_apart(share_above(pace, usual), MIN_START_SHARE, most)
    return len(apart) if (apart == np.arange(len(apart))).all() else 0


def _without_lone(x: FloatArray) -> FloatArray:
    """Replace windows that stand out alone by the mean of their neighbours.

    A single stall is no warm-up.
    """
    beside = np.maximum(x[:-2], x[2:])
    lone = np.flatnonzero((x[1:-1] > LONE_WINDOW_SPREADS) & (beside < LONE_WINDOW_SPREADS)) + 1
    out = x.copy()
    out[lone] = (x[lone - 1] + x[lone + 1]) / 2
    return out


def _first_shift(x: FloatArray, most: int, alike: float) -> int:
    """Return the number of windows before the likeliest drop of the mean; 0 if none.

    The drop must be one of most windows: a few stalls in a row do not count.
    """
    before = np.arange(1.0, most + 1)
    behind = len(x) - before
    sums = np.cumsum(x)
    drop = sums[:most] / before - (sums[-1] - sums[:most]) / behind
    error = np.sqrt(variance_of_mean(before, alike) + variance_of_mean(behind, alike))
    surely = drop / error
    enough = quantiles.student_t_quantile(
        MAD_EFFICIENCY * len(x) / 2, 1 - FALSE_WARM_UP_CHANCE / most
    )
    while len(surely) and surely[best := int(np.argmax(surely))] > enough:
        of_most = median_of(x[: best + 1]) - median_of(x[best + 1 :])
        if of_most > drop[best] / 2:
            return best + 1
        surely = surely[:best]
    return 0


def variance_of_mean(counts: FloatArray, lag_correlation: float) -> FloatArray:
    """Return the variance of the mean of n values of variance 1, per n of `counts`.

    The autocorrelation at lag k is lag_correlation^k.
    """
    tail = lag_correlation * (1 - lag_correlation**counts) / (1 - lag_correlation)
    return np.asarray(
        (counts * (1 + lag_correlation) / (1 - lag_correlation) - 2 * tail / (1 - lag_correlation))
        / counts**2
    )


def stall_excess(seconds: FloatArray, tokens: FloatArray, time_error: float = 0.0) -> FloatArray:
    """Return each outlier's seconds above its surroundings; 0 for other windows.

    time_error: largest error of a time [s]
    """
    if not tokens.sum() > 0:
        return np.zeros(len(tokens))
    usual = usual_seconds(seconds, tokens)
    above = seconds - usual
    share = above[usual > 0] / usual[usual > 0]
    least = np.maximum(
        max(MIN_STALL_SPREADS * spread_of_most(share), MIN_STALL_SHARE) * usual, 2 * time_error
    )
    return np.where(above > least, above, 0.0)


def usual_seconds(seconds: FloatArray, tokens: FloatArray) -> FloatArray:
    """Return the seconds of each window at the pace of its surroundings.

    tokens: not all 0
    """
    around = rolling_median(_pace(seconds, tokens), PACE_MEDIAN_WINDOWS)
    usual: FloatArray = np.where(around > 0, around, seconds.sum() / tokens.sum()) * tokens
    return usual
