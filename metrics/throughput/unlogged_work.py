"""Windows that hold work other than training, of which the log has no line.

An evaluation or a checkpoint takes many steps' time, and its window stands apart from all others,
or comes on a period. Where the log has lost its line (a grep for step lines), only that tells. What
the log does explain, and what the scatter of the other windows allows, is no such work.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import ceil, comb
from typing import Final

import numpy as np

from ..core.arrays import BoolArray, FloatArray, IntArray
from ..core.run_arrays import RunArrays, median
from .windows import WindowSelection, accumulation_steps, count_optimizer_steps

UNLOGGED_WORK: Final = "unexplained windows far above the others"
"""Why such windows are left out of the steady rate."""

MIN_WINDOWS: Final = 9
"""Windows that tell how much windows scatter, one that stands apart among them."""
MIN_APART_SHARE: Final = 2.0
"""The least time that a window apart takes beyond the usual, as a share of that: a stall of a step
takes less, and is how fast the run is."""
MIN_APART_RATIO: Final = 3.0
"""How many times as far above the usual windows apart are as the furthest of the others."""
MIN_PERIODIC_STEPS: Final = 1.0
"""The least time that work on a period takes, in usual steps: a garbage collection takes less."""
MAX_WORK_WINDOWS: Final = 1 / 8
"""The largest share of the windows that hold such work; what comes more often is training."""
MAX_UPPER_SHARE: Final = 2 / 3
"""The largest share of the windows that are doubted for such work: those between show the pace."""
LOWER_LEVEL_QUANTILE: Final = 0.25
"""Place of the lower level among the paces: at least a third of the windows are of it."""
MIN_PERIOD_HITS: Final = 0.7
"""The share of the multiples of a period that need to have a stall for it to be one."""
FALSE_PERIOD_CHANCE: Final = 0.01
"""Chance that stalls at random are given a period."""
MAX_PERIODS_TRIED: Final = 20
PERIOD_PARTS: Final = (1, 2, 3)
"""Parts of a distance of stalls that may be their period: work each 1,050 steps in windows of 100
is 1,000 and 1,100 steps apart by turns, and 2,100 every other time."""
MAX_TRIES: Final = 4
"""Phases that are tried of half a distance or a third, which the ends of windows need not tell."""
MAX_STALLS_BETWEEN: Final = 2
"""Other stalls that may lie between two of a period."""

MIN_CAUSE_SHARE: Final = 0.5
"""The share of a stall's excess that waiting for data, or a printed time, has to make up to be its
cause."""
STALL_EVENTS: Final = {
    "restart": "restart",
    "load": "loading",
    "compile": "compilation",
    "gc": "garbage collection",
}
"""Events that may explain a stall, and stay in the steady rate."""
DATA_LOADING: Final = "data loading"
"""What explains a stall by the waiting that its own line prints; it stays too."""


def find_unlogged_work(
    run: RunArrays, evidence: str, counted: WindowSelection, usual: FloatArray, stalls: BoolArray
) -> IntArray:
    """Places of the windows of one run that hold work of which the log has no line.

    counted: windows of `evidence` behind the warm-up; usual: the seconds of their surroundings;
    stalls: those that stand out from these (metrics.throughput.warmup.stall_excess)
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
    """How much longer than usual each window takes, as a share of that; none less than 0."""
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
    """Those of the stalls that nothing in the log explains, an optimizer step neither."""
    events, at, wait_s = dict(run.events()), counted.indices, usual_wait(run)
    every, spans = accumulation_steps(run), run[f"{evidence}_span"][at]
    updates = count_optimizer_steps(run["step"][at], spans, every)
    out = stalls & ((every == 1) | (updates <= spans / every))
    for i in np.flatnonzero(out):
        lost_s = float(counted.seconds[i] - usual[i])
        kinds = events.get(int(at[i]), ())
        out[i] = stall_cause(run, int(at[i]), kinds, lost_s, wait_s) is None
    return out


def usual_wait(run: RunArrays) -> float:
    """Return the median wait for data of a step [s]; 0 where none is printed."""
    waits = run["data_s"]
    return median(waits[~run.flags("first") & ~np.isnan(waits)]) or 0.0


def stall_cause(
    run: RunArrays, window: int, events: Collection[str], lost_s: float, usual_wait_s: float
) -> str | None:
    """The cause of a stall, of STALL_EVENTS or waiting for data; None where nothing tells.

    A garbage collection is one by the time that it prints. window: its place; events: what the log
    says of it; lost_s: seconds beyond the usual; usual_wait_s: `usual_wait`
    """
    unlikely = {"gc"} if run["gc_s"][window] <= MIN_CAUSE_SHARE * lost_s else set()
    seen = (STALL_EVENTS[kind] for kind in STALL_EVENTS if kind in events and kind not in unlikely)
    waited = (run["data_s"][window] - usual_wait_s) * run["new_step"][window]
    return next(seen, DATA_LOADING if waited > MIN_CAUSE_SHARE * lost_s else None)


def updates_unknown(run: RunArrays) -> bool:
    """Whether slow micro-steps may be those of the optimizer, for their number is unknown."""
    return run.value("step_unit") == "micro_step" and run.value("gradient_accumulation") is None


def windows_apart(above: FloatArray, least: float, most: int) -> IntArray:
    """Places of the windows that stand apart from all others, at most so many; ascending.

    above: how far above the usual each is, as a share of that; least: the least such share of
    windows apart
    """
    order = np.argsort(-above, kind="stable")[: most + 1]
    high = above[order]
    enough = (high[:-1] >= least) & (high[:-1] >= MIN_APART_RATIO * high[1:])
    number = int(np.flatnonzero(enough)[-1]) + 1 if enough.any() else 0
    return np.sort(order[:number])


def upper_level(
    steps: FloatArray, spans: FloatArray, seconds: FloatArray, usual: FloatArray
) -> BoolArray:
    """Windows of the upper of two levels of pace, all on one period; none where it is one level.

    steps, spans: as of `find_period`; usual: the seconds of each window at the pace of
    LOWER_LEVEL_QUANTILE. An evaluation may be in up to MAX_UPPER_SHARE of the windows, and then
    none stands out.
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
    """Stalls that come every `period` steps; hits: which windows hold them."""

    period: int
    hits: BoolArray


def find_period(steps: FloatArray, spans: FloatArray, stalled: BoolArray) -> Rhythm | None:
    """The period on which some windows stall, by steps; None where chance would give as much.

    steps: the last of each window; spans: how many each holds. Two stalls always make a period, so
    the others have to hit it more often than stalls at random would.
    """
    at = steps[stalled].astype(np.int64)
    best: Rhythm | None = None
    apart = [at[lag:] - at[:-lag] for lag in range(1, MAX_STALLS_BETWEEN + 2)]
    gaps, often = np.unique(np.concatenate(apart), return_counts=True)
    likely = gaps[np.argsort(-often, kind="stable")][:MAX_PERIODS_TRIED]
    tries = 1
    for part in PERIOD_PARTS:
        for period in (likely[(likely % part == 0) & (likely > part)] // part).tolist():
            for phase in _phases(at, period, tries):
                due = (steps - phase) % period < spans
                some = _hits(stalled, due, len(at), tries)
                if some is not None and (best is None or some.sum() > best.hits.sum()):
                    best = Rhythm(period, some)
        tries = MAX_TRIES
    return best


def _phases(at: IntArray, period: int, most: int) -> IntArray:
    """The likeliest steps of a period that stalls come on, as many as are to be tried."""
    phases, often = np.unique(at % period, return_counts=True)
    likeliest: IntArray = phases[np.argsort(-often, kind="stable")][:most]
    return likeliest


def _hits(stalled: BoolArray, due: BoolArray, stalls: int, tries: int) -> BoolArray | None:
    """The stalls among the windows that a period is due in; None where chance explains them.

    tries: how many phases are tried of one period
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
