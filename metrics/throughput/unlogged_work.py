"""Windows that hold work other than training, of which the log has no line.

An evaluation or a checkpoint takes many steps' time, and its window stands apart from all others,
or comes on a period. Where the log has lost its line (a grep for step lines), only that tells. What
the log does explain, and what the scatter of the other windows allows, is no such work.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import comb
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
MIN_PERIOD_HITS: Final = 0.7
"""The share of the multiples of a period that need to have a stall for it to be one."""
FALSE_PERIOD_CHANCE: Final = 0.01
"""Chance that stalls at random are given a period."""
MAX_PERIODS_TRIED: Final = 20
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
    if len(usual) < MIN_WINDOWS or not stalls.any() or _updates_unknown(run):
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
    events, at = dict(run.events()), counted.indices
    every, spans = accumulation_steps(run), run[f"{evidence}_span"][at]
    updates = count_optimizer_steps(run["step"][at], spans, every)
    out = stalls & ((every == 1) | (updates <= spans / every))
    for i in np.flatnonzero(out):
        lost_s = float(counted.seconds[i] - usual[i])
        out[i] = stall_cause(run, int(at[i]), events.get(int(at[i]), ()), lost_s) is None
    return out


def stall_cause(run: RunArrays, window: int, events: Collection[str], lost_s: float) -> str | None:
    """The cause of a stall, of STALL_EVENTS or waiting for data; None where nothing tells.

    A garbage collection is one by the time that it prints. window: its place; events: what the log
    says of it; lost_s: seconds beyond the usual
    """
    unlikely = {"gc"} if run["gc_s"][window] <= MIN_CAUSE_SHARE * lost_s else set()
    seen = (STALL_EVENTS[kind] for kind in STALL_EVENTS if kind in events and kind not in unlikely)
    waits = run["data_s"]
    known = waits[~run.flags("first") & ~np.isnan(waits)]
    waited = (waits[window] - (median(known) or 0.0)) * run["new_step"][window]
    return next(seen, DATA_LOADING if waited > MIN_CAUSE_SHARE * lost_s else None)


def _updates_unknown(run: RunArrays) -> bool:
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
    apart = [at[lag:] - at[:-lag] for lag in range(1, MAX_STALLS_BETWEEN + 2)]
    gaps, often = np.unique(np.concatenate(apart), return_counts=True)
    best: Rhythm | None = None
    for period in gaps[np.argsort(-often, kind="stable")][:MAX_PERIODS_TRIED].tolist():
        phases, hits = np.unique(at % period, return_counts=True)
        phase = int(phases[np.argmax(hits)])
        due = (steps - phase) % period < spans
        some = _hits(stalled, due, len(at))
        if period > 1 and some is not None and (best is None or some.sum() > best.hits.sum()):
            best = Rhythm(period, some)
    return best


def _hits(stalled: BoolArray, due: BoolArray, stalls: int) -> BoolArray | None:
    """The stalls among the windows that a period is due in; None where chance explains them."""
    possible, hits = int(due.sum()), int((stalled & due).sum())
    if hits < MIN_PERIOD_HITS * possible:
        return None
    others = stalls - hits
    rate = (others + 1) / (len(due) - possible + 1)
    chance = sum(
        comb(possible - 2, k) * rate**k * max(1 - rate, 0.0) ** (possible - 2 - k)
        for k in range(hits - 2, possible - 1)
    )
    return stalled & due if chance * comb(stalls, 2) < FALSE_PERIOD_CHANCE else None
