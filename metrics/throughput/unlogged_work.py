"""Find windows with work other than training and without a log line.

An evaluation or a checkpoint takes the time of many steps. Its window stands out from all others,
or recurs with a period. If the log has lost the line (a grep for step lines), nothing else shows
the work. Windows explained by the log, or within the scatter of the others, do not count.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import ceil, comb
from typing import Final

import numpy as np

from ..core.arrays import BoolArray, FloatArray, IntArray, median_of
from ..core.run_arrays import RunArrays, median
from ..core.run_words import BETWEEN_STEPS, DATA_LOADING
from .windows import WindowSelection, accumulation_steps, count_optimizer_steps

UNLOGGED_WORK: Final = "unexplained windows far above the others"
"""Reason why such windows are excluded from the steady rate."""

MIN_WINDOWS: Final = 9
"""Windows needed for the scatter, one outlier included."""
MIN_APART_SHARE: Final = 2.0
"""Least excess time of an outlier, relative to the usual time. A stall of a step takes less, and is
part of the run's speed."""
MIN_APART_RATIO: Final = 3.0
"""Least excess of the outliers, relative to the largest excess of the others."""
MIN_PERIODIC_STEPS: Final = 1.0
"""Least time of periodic work, in usual steps: a garbage collection takes less."""
MAX_WORK_WINDOWS: Final = 1 / 8
"""Largest share of windows with such work; more frequent work is training."""
MAX_UPPER_SHARE: Final = 2 / 3
"""Largest share of windows suspected of such work: the windows in between show the pace."""
LOWER_LEVEL_QUANTILE: Final = 0.25
"""Quantile of the lower level among the paces: at least a third of the windows belong to this
level."""
MIN_PERIOD_HITS: Final = 0.7
"""Least share of a period's multiples that must stall."""
FALSE_PERIOD_CHANCE: Final = 0.01
"""Chance of finding a period in random stalls."""
MAX_PERIODS_TRIED: Final = 20
PERIOD_PARTS: Final = (1, 2, 3)
"""Parts of the distance between stalls that may be their period. Work every 1,050 steps, in
windows of 100, is alternately 1,000 and 1,100 steps apart, and 2,100 every other time."""
MAX_TRIES: Final = 4
"""Phases tried for half a distance or a third, because the ends of windows need not show the
phase."""
MAX_STALLS_BETWEEN: Final = 2
"""Most other stalls between two stalls of a period."""

MIN_CAUSE_SHARE: Final = 0.5
"""Least share of a stall's excess that waiting for data, or a printed time, must explain as its
cause."""
STALL_EVENTS: Final = {
    "restart": "restart",
    "load": "loading",
    "compile": "compilation",
    "gc": "garbage collection",
}
"""Events that may explain a stall; such stalls stay in the steady rate."""


def find_unlogged_work(
    run: RunArrays, evidence: str, counted: WindowSelection, usual: FloatArray, stalls: BoolArray
) -> IntArray:
    """Return the indices of one run's windows with work missing from the log.

    counted: windows of `evidence` after the warm-up
    usual: seconds of each window at the pace of its surroundings
    stalls: windows that stand out from their surroundings (metrics.throughput.warmup.stall_excess)
    """
    none = np.empty(0, np.int64)
    if len(usual) < MIN_WINDOWS or not stalls.any() or updates_unknown(run):
        return none
    unsaid = unexplained_stalls(run, evidence, counted, usual, stalls)
    most = int(len(usual) * MAX_WORK_WINDOWS)
    above = share_above(counted.seconds, usual)
    spans = run[f"{evidence}_span"][counted.indices]
    apart = windows_apart(np.where(stalls & ~unsaid, 0.0, above), MIN_APART_SHARE, most)
    found = np.zeros(len(usual), np.bool_)
    if not (np.diff(apart) == 1).any():
        found[apart] = unsaid[apart]
    rest = unsaid & ~found & (above * spans >= MIN_PERIODIC_STEPS)
    rhythm = find_period(run["step"][counted.indices], spans, rest)
    if rhythm is not None and found.sum() + rhythm.hits.sum() <= most:
        found |= rhythm.hits
    return counted.indices[found]


def share_above(seconds: FloatArray, usual: FloatArray) -> FloatArray:
    """Return each window's excess over its usual time, as a fraction; at least 0."""
    more = np.maximum(seconds - usual, 0.0)
    share: FloatArray = np.divide(more, usual, out=np.zeros(len(usual)), where=usual > 0)
    return share


def unexplained_stalls(
    run: RunArrays,
    evidence: str,
    counted: WindowSelection,
    usual: FloatArray,
    stalls: BoolArray,
) -> BoolArray:
    """Return the stalls explained neither by the log nor by an optimizer step (mask).

    Steps of few tokens at the time of others are none: they are slow per token alone.
    """
    events, at, wait_s = dict(run.events()), counted.indices, usual_wait(run)
    every, spans = accumulation_steps(run), run[f"{evidence}_span"][at]
    updates = count_optimizer_steps(run["step"][at], spans, every)
    step_s, tokens = counted.seconds / spans, counted.tokens / spans
    is_small = (tokens < median_of(tokens)) & (step_s <= median_of(step_s))
    out = stalls & ~is_small & ((every == 1) | (updates <= spans / every))
    for i in np.flatnonzero(out):
        lost_s = float(counted.seconds[i] - usual[i])
        kinds = events.get(int(at[i]), ())
        out[i] = stall_cause(run, int(at[i]), kinds, lost_s, wait_s) is None
    return out


def usual_wait(run: RunArrays) -> float:
    """Return the median wait for data of a step [s]; 0 if not printed."""
    waits = run["data_s"]
    return median(waits[~run.flags("first") & ~np.isnan(waits)]) or 0.0


def stall_cause(
    run: RunArrays, window: int, events: Collection[str], lost_s: float, usual_wait_s: float
) -> str | None:
    """Return the cause of a stall: of STALL_EVENTS, or data loading; None if unknown.

    A garbage collection counts only if its printed time is long enough. A wait for data that has
    all pauses tells only that the time passed between steps.

    window: index of the window; events: logged events of the window
    lost_s: seconds beyond the usual; usual_wait_s: `usual_wait`
    """
    unlikely = {"gc"} if run["gc_s"][window] <= MIN_CAUSE_SHARE * lost_s else set()
    seen = (STALL_EVENTS[kind] for kind in STALL_EVENTS if kind in events and kind not in unlikely)
    waited = (run["data_s"][window] - usual_wait_s) * run["new_step"][window]
    waiting = BETWEEN_STEPS if run.has_quirk("wait_has_pauses") else DATA_LOADING
    return next(seen, waiting if waited > MIN_CAUSE_SHARE * lost_s else None)


def updates_unknown(run: RunArrays) -> bool:
    """Return whether slow micro-steps may be optimizer steps of unknown frequency."""
    return run.value("step_unit") == "micro_step" and run.value("gradient_accumulation") is None


def windows_apart(above: FloatArray, least: float, most: int) -> IntArray:
    """Return the indices of windows far above all others, ascending.

    above: excess of each window over the usual, as a fraction; least: least excess of an outlier;
    most: largest number of outliers
    """
    order = np.argsort(-above, kind="stable")[: most + 1]
    high = above[order]
    enough = (high[:-1] >= least) & (high[:-1] >= MIN_APART_RATIO * high[1:])
    number = int(np.flatnonzero(enough)[-1]) + 1 if enough.any() else 0
    return np.sort(order[:number])


def upper_level(
    steps: FloatArray, spans: FloatArray, seconds: FloatArray, usual: FloatArray
) -> BoolArray:
    """Return the windows of the upper of two levels of pace, all on one period.

    No windows if there is one level. An evaluation may be in up to MAX_UPPER_SHARE of the windows,
    and then no window is an outlier.

    steps, spans: as in `find_period`; usual: seconds of each window at the pace of
    LOWER_LEVEL_QUANTILE
    """
    none = np.zeros(len(steps), np.bool_)
    if len(steps) < MIN_WINDOWS:
        return none
    above = share_above(seconds, usual)
    order = np.sort(above)
    first = len(order) - ceil(len(order) * MAX_UPPER_SHARE)
    at = first + int(np.argmax(np.diff(order[first - 1 :])))
    upper = above >= order[at]
    apart = order[at] >= MIN_APART_RATIO * order[at - 1]
    if not apart or (above[upper] * spans[upper] < MIN_PERIODIC_STEPS).any():
        return none
    rhythm = find_period(steps, spans, upper)
    return none if rhythm is None or not rhythm.hits[upper].all() else upper


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Stalls every `period` steps; hits: mask of the windows with these stalls."""

    period: int
    hits: BoolArray


def find_period(steps: FloatArray, spans: FloatArray, stalled: BoolArray) -> Rhythm | None:
    """Find the period of stalls, in steps; None if chance explains the hits.

    Two stalls always define a period, so the other stalls must hit the period more often than
    random stalls would.

    steps: last step of each window; spans: steps per window
    """
    stalled_steps = steps[stalled].astype(np.int64)
    best: Rhythm | None = None
    apart = [stalled_steps[lag:] - stalled_steps[:-lag] for lag in range(1, MAX_STALLS_BETWEEN + 2)]
    gaps, often = np.unique(np.concatenate(apart), return_counts=True)
    likely = gaps[np.argsort(-often, kind="stable")][:MAX_PERIODS_TRIED]
    tries = 1
    for part in PERIOD_PARTS:
        for period in (likely[(likely % part == 0) & (likely > part)] // part).tolist():
            for phase in _phases(stalled_steps, period, tries):
                due = (steps - phase) % period < spans
                some = _hits(stalled, due, len(stalled_steps), tries)
                if some is not None and (best is None or some.sum() > best.hits.sum()):
                    best = Rhythm(period, some)
        tries = MAX_TRIES
    return best


def _phases(stalled_steps: IntArray, period: int, most: int) -> IntArray:
    """Return the likeliest phases of a period, most frequent first, at most `most`."""
    phases, often = np.unique(stalled_steps % period, return_counts=True)
    likeliest: IntArray = phases[np.argsort(-often, kind="stable")][:most]
    return likeliest


def _hits(stalled: BoolArray, due: BoolArray, stalls: int, tries: int) -> BoolArray | None:
    """Return the stalls in the windows where a period is due; None if due to chance.

    tries: number of phases tried per period
    """
    possible, hits = int(due.sum()), int((stalled & due).sum())
    if hits < max(2, MIN_PERIOD_HITS * possible):
        return None
    others = stalls - hits
    rate = (others + 1) / (len(due) - possible + 1)
    chance = sum(
        comb(possible - 2, k) * rate**k * max(1 - rate, 0.0) ** (possible - 2 - k)
        for k in range(hits - 2, possible - 1)
    )
    return stalled & due if chance * tries * comb(stalls, 2) < FALSE_PERIOD_CHANCE else None
