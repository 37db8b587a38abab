"""Where a run is steady: the end of its warm-up, and its stalls, found in the numbers.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from ..core import quantiles
from ..core.arrays import BoolArray, FloatArray
from ..core.intervals import MIN_QUANTILE_WINDOWS, autocorrelation, spread_of_most
from ..core.run_arrays import RunArrays, median
from .unlogged_work import find_unlogged_work, share_above, windows_apart
from .windows import (
    choose_evidence,
    stamp_error,
    steady_windows,
    timed_windows,
    window_after_step_1,
)

FALSE_WARM_UP_CHANCE: Final = 0.01
"""Chance that a run without warm-up is given one."""
MIN_SETTLED_WINDOWS: Final = MIN_QUANTILE_WINDOWS
"""Windows behind a warm-up that tell how much windows scatter."""
MAX_WARM_UP_SHARE: Final = 1 / 3
"""The largest share of a run's windows that is warm-up; a longer slow start is how fast the run
is."""
MAX_SEARCHED_SHARE: Final = 1 / 2
"""The share of a run's windows that is searched: more, so that a longer slow start is seen to be
one."""
MIN_LATER_WINDOWS: Final = 3
"""The fewest windows that first ones can stand apart from."""
MIN_START_SHARE: Final = 0.2
"""The least time beyond the usual, as a share of that, of first windows that stand apart."""
WARM_UP_CLIP_SPREADS: Final = 20.0
"""Spreads from the middle at which a window is as far as any."""
LONE_WINDOW_SPREADS: Final = 2.5
"""Spreads from which a window stands out, and below which its neighbours do not."""
MIN_PACE_SPREAD: Final = 0.002
"""The smallest spread, as a share of the pace: a logger that rounds has windows that are all
alike."""
MAD_EFFICIENCY: Final = 0.37
"""A spread told from the median of distances is as sure as one of so many values (Rousseeuw and
Croux 1993)."""

MIN_STALL_SPREADS: Final = 6.0
MIN_STALL_SHARE: Final = 0.05
"""A stall is a window this many spreads and this share above its surroundings."""
PACE_MEDIAN_WINDOWS: Final = 51
"""Windows whose median is the pace of the one in their middle."""


def mark_warm_up_and_stalls(windows: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Windows with `warming`, `stall_s` and `unlogged`, by the time evidence of each run.

    windows: metrics.throughput.windows.build_windows; runs: as in ingest.core.schema. warming: what
    completes the first interval where its first step stands alone, and the windows behind that are
    slower than what follows. stall_s: seconds above its surroundings of a window that stands out,
    else 0. unlogged: it holds work of which the log has no line
    (metrics.throughput.unlogged_work).
    """
    evidence = dict(runs.select("run_id", "evidence").iter_rows())
    if not windows.height:
        return windows
    parts = [_marked(run, evidence[id_]) for id_, run in RunArrays(windows).by_run().items()]
    warming, excess, unlogged = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    marks = {"warming": warming, "stall_s": excess, "unlogged": unlogged}
    return windows.with_columns(pl.Series(name, mark) for name, mark in marks.items())


def _marked(run: RunArrays, preferred: list[str]) -> tuple[BoolArray, FloatArray, BoolArray]:
    """`warming`, `stall_s` and `unlogged` of each window of one run."""
    warming, excess = np.zeros(run.height, np.bool_), np.zeros(run.height)
    unlogged = np.zeros(run.height, np.bool_)
    evidence = choose_evidence(run, preferred)
    if evidence is not None:
        counted = steady_windows(run, evidence)
        pace = _pace(counted.seconds, counted.tokens)
        pace[np.isnan(pace)] = median(pace[~np.isnan(pace)])
        later = timed_windows(run, evidence, ~run.flags("first")).indices
        opening = int(len(later) > 1 and counted.indices[0] == window_after_step_1(run, evidence))
        cut = opening + warm_up_length(pace[opening:])
        warming[counted.indices[:cut]] = True
        settled = counted.behind(cut)
        above = stall_excess(settled.seconds, settled.tokens, stamp_error(run, evidence))
        excess[settled.indices] = above
        if above.any():
            usual = usual_seconds(settled.seconds, settled.tokens)
            unlogged[find_unlogged_work(run, evidence, settled, usual, above > 0)] = True
    return warming, excess, unlogged


def _pace(seconds: FloatArray, tokens: FloatArray) -> FloatArray:
    """Seconds per token of each window; NaN where it has no token."""
    pace: FloatArray = np.divide(
        seconds, tokens, out=np.full(len(tokens), np.nan), where=tokens > 0
    )
    return pace


def warm_up_length(pace: FloatArray) -> int:
    """How many of the first windows are slower than what follows; pace: time per token of each.

    The cut with the largest difference of means, in standard errors of series as autocorrelated
    as the second half is; again behind it until none is left that chance would not give. Where
    what follows is no faster for its stalls, there is none. Of windows that are too few for that,
    the first that stand apart from all others.
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
    middle = float(np.median(settled))
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
    return cut if cut and pace[:cut].mean() > pace[cut:].mean() else 0


def _start_apart(pace: FloatArray) -> int:
    """How many of the first of a few windows stand apart from all later ones; pace: all finite."""
    most = min(int(len(pace) * MAX_WARM_UP_SHARE), len(pace) - MIN_LATER_WINDOWS)
    if most < 1:
        return 0
    usual = np.full(len(pace), np.median(pace[most:]))
    apart = windows_apart(share_above(pace, usual), MIN_START_SHARE, most)
    return len(apart) if (apart == np.arange(len(apart))).all() else 0


def _without_lone(x: FloatArray) -> FloatArray:
    """Windows that stand out alone take the mean of their neighbours: a stall is no warm-up."""
    beside = np.maximum(x[:-2], x[2:])
    lone = np.flatnonzero((x[1:-1] > LONE_WINDOW_SPREADS) & (beside < LONE_WINDOW_SPREADS)) + 1
    out = x.copy()
    out[lone] = (x[lone - 1] + x[lone + 1]) / 2
    return out


def _first_shift(x: FloatArray, most: int, alike: float) -> int:
    """Windows before the likeliest drop of the mean, 0 where there is none.

    The drop has to be one of most windows: a few stalls that follow each other are none.
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
        of_most = float(np.median(x[: best + 1]) - np.median(x[best + 1 :]))
        if of_most > drop[best] / 2:
            return best + 1
        surely = surely[:best]
    return 0


def variance_of_mean(counts: FloatArray, lag_correlation: float) -> FloatArray:
    """What the mean of n values of variance 1 varies by; autocorrelation at lag k: alike^k."""
    tail = lag_correlation * (1 - lag_correlation**counts) / (1 - lag_correlation)
    return np.asarray(
        (counts * (1 + lag_correlation) / (1 - lag_correlation) - 2 * tail / (1 - lag_correlation))
        / counts**2
    )


def stall_excess(seconds: FloatArray, tokens: FloatArray, time_error: float = 0.0) -> FloatArray:
    """Seconds of each window above its surroundings, where it stands out, else 0.

    time_error: how far a time may be off, s.
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
    """Seconds of each window at the pace of its surroundings; tokens: not all 0."""
    pace = pl.Series(_pace(seconds, tokens), nan_to_null=True)
    around = pace.rolling_median(PACE_MEDIAN_WINDOWS, min_samples=1, center=True).to_numpy()
    usual: FloatArray = np.where(around > 0, around, seconds.sum() / tokens.sum()) * tokens
    return usual
