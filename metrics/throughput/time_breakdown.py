"""What the wall time of a launch went to: steady training, and each cause of the rest.

A window costs what it took beyond the steady pace of its tokens. The log's own words come first
(checkpoint, evaluation, profiler); a stall without any is told by what its line shows.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import gcd
from typing import Any, Final

import numpy as np

from ..core.arrays import Array, Whole
from ..core.run_arrays import Columns, median, total
from .end_to_end import by_rate_and_stamps, time_of_first_line, trained
from .warmup import stalls
from .windows import BESIDE_TRAINING, MOMENTS, WALL_CLOCKS, accumulated, clean_of, stamp_error

START_UP: Final = "start-up"
WARM_UP: Final = "warm-up"
AFTER: Final = "after the last step"
AROUND: Final = "before, after and between the steps' times"
UNEXPLAINED: Final = "unexplained"
PERIODIC: Final = "unexplained, every {:,} steps"

MOST_OF_IT: Final = 0.5
"""The share of a stall's excess that waiting for data, or a printed time, has to make up to be its
cause."""
MOST_STEPS: Final = 0.8
"""The share of the steps that lines have to time for their sum to be wall time."""
FEWEST_PERIODIC: Final = 4
OFTEN: Final = 0.7
"""The share of the multiples of a period that need to have a stall for it to be one."""


def time_lost(
    windows: Columns, evidence: str, run: Mapping[str, Any]
) -> tuple[float | None, list[dict[str, Any]]]:
    """Wall time [s] of a launch, and what of it was not steady training.

    windows: of one run, marked (metrics.throughput.warmup.mark); evidence: its time basis; run:
    with startup_s, after_s and wall_s of metrics.throughput.end_to_end.clock where they are known.
    Each row of `LOST` has the windows of a cause, the seconds that they took beyond the steady
    pace, and their share of the wall time; the largest first. By time stamps where there are any,
    else by `evidence`, which may not see all of it. (None, []) where nothing is steady, or all that
    there is are rates of unknown tokens, or times of single steps among many.
    """
    windows = by_rate_and_stamps(windows, evidence, run)
    uncounted = not windows.known("tokens_per_gpu")
    if uncounted:  # steps, then, at the pace of a step
        windows = windows.having(tokens_per_gpu=np.ones(windows.height))
    clock = _wall_clock(windows, evidence)
    if (uncounted and clock == "rate") or _samples(windows, clock):
        return None, []
    counted = clean_of(windows, clock)
    if clock == evidence and not uncounted:
        excess = windows["stall_s"][counted.at]
    else:
        excess = stalls(counted.seconds, counted.tokens, stamp_error(windows, clock))
    steady_s = total(counted.seconds) - float(excess.sum())
    if not len(counted.at) or steady_s <= 0:
        return None, []
    pace = steady_s / total(counted.tokens)
    tokens = windows[f"{clock}_span"] * windows["tokens_per_gpu"]
    seconds = windows[f"{clock}_time"]
    timed = np.flatnonzero(~windows.flags("first") & ~np.isnan(tokens) & ~np.isnan(seconds))
    lost = seconds - pace * tokens
    first_s, start_s = _up_to_first_line(windows, pace, (clock, evidence), run)
    after_s = run.get("after_s") or _behind_clock(windows, clock, run)
    rows: list[dict[str, Any]] = [
        {"cause": START_UP, "windows": 1, "seconds": start_s},
        {"cause": AFTER, "windows": 0, "seconds": after_s},
    ]
    rows += [
        {"cause": cause, "windows": len(at), "seconds": total(lost[at])}
        for cause, at in _by_cause(windows, timed, counted.at[excess > 0], lost)
    ]
    wall_s = total(seconds[timed]) + first_s + after_s
    known_s = max(run.get("wall_s") or 0.0, run.get("runtime_s") or 0.0)
    if clock != "stamp" and known_s > wall_s:
        rows.append({"cause": AROUND, "windows": 0, "seconds": known_s - wall_s})
        wall_s = known_s
    shares = [row | {"share": row["seconds"] / wall_s} for row in rows if row["seconds"] > 0]
    return wall_s, sorted(shares, key=lambda row: -row["seconds"])


def _wall_clock(windows: Columns, evidence: str) -> str:
    """The evidence that sees most: time stamps, a progress bar's clock, or the run's own."""
    return next((c for c in WALL_CLOCKS if clean_of(windows, c).seconds.sum() > 0), evidence)


def _moments(windows: Columns, clock: str) -> Whole:
    """The windows that a wall clock ends; none of a clock that is no wall clock."""
    known = ~np.isnan(windows[MOMENTS[clock]]) if clock in WALL_CLOCKS else np.zeros(0, np.bool_)
    return np.flatnonzero(known)


def _samples(windows: Columns, clock: str) -> bool:
    """Whether lines time a part of the steps alone, as one micro-step of ten; a few may be lost."""
    later = ~windows.flags("first")
    if len(known := _moments(windows, clock)):  # its first and its last are all that one can ask of
        later = (np.arange(windows.height) > known[0]) & (np.arange(windows.height) <= known[-1])
    spans, steps = windows[f"{clock}_span"][later], windows["new_step"][later]
    return bool(np.nansum(spans) < MOST_STEPS * np.nansum(steps))


def _up_to_first_line(
    windows: Columns, pace: float, kinds: tuple[str, str], run: Mapping[str, Any]
) -> tuple[float, float]:
    """Seconds up to the first step line that the wall clock times, and what of them was start-up.

    kinds: the wall clock and the time evidence. By stamps, the line's own clock, or its own time,
    whichever is the longest: a log may begin at its first step, and a line's time may be of fewer
    steps than lie before it.
    """
    clock, evidence = kinds
    at = int(next(iter(_moments(windows, clock)), 0))
    own, seconds, since = (
        float(np.nan_to_num(windows[name][at]))
        for name in (f"{evidence}_span", f"{evidence}_time", "since_start_s")
    )
    start, tokens = run.get("trained_from"), windows["tokens_per_gpu"]
    usual_tokens = median(tokens[~np.isnan(tokens)]) or 0.0
    of_step = pace * (usual_tokens if np.isnan(tokens[at]) else float(tokens[at]))
    steps = own if start is None else float(windows["step"][at]) - start
    counted = None if start is None else trained(windows, start, windows["step"][at])
    usual = of_step * max(steps, own, 1.0) if counted is None else pace * counted
    by_clock = since - usual if clock == "clock" and start is not None else 0.0
    whole = time_of_first_line(windows, evidence, run) if evidence in {"elapsed", "rate"} else None
    by_time = seconds - of_step * (own or 1.0) if whole is None or at else whole - usual
    start_s = max(run.get("startup_s") or 0.0, by_clock, by_time, 0.0)
    return start_s + usual, start_s


def _behind_clock(windows: Columns, clock: str, run: Mapping[str, Any]) -> float:
    """Seconds from the last line to the end by the run time, which the clock counts up to."""
    last, runtime = windows["since_start_s"][-1], run.get("runtime_s")
    return max(0.0, runtime - float(last)) if clock == "clock" and runtime and last > 0 else 0.0


def _by_cause(
    windows: Columns, timed: Whole, stalled: Whole, lost: Array
) -> Iterator[tuple[str, list[int]]]:
    """The windows that lost time, by what the log says fell into them, else what they show.

    timed, stalled: places of windows; lost: seconds of each beyond the steady pace
    """
    events = dict(windows.events())
    warming = windows.flags("warming")
    waits = windows["data_s"][timed]
    usual_wait = median(waits[~np.isnan(waits)])
    stalls_at = {*stalled.tolist()}
    looked_at = {*timed[warming[timed]].tolist(), *stalls_at, *events}
    every = accumulated(windows)
    found: dict[str, list[int]] = {}
    for at in sorted(looked_at.intersection(timed.tolist())):
        kinds = events.get(at, ())
        beside = sorted({*kinds} & {*BESIDE_TRAINING})
        single = every > 1 and windows["new_step"][at] == 1
        if beside:
            cause = " and ".join(beside)
        elif single and windows["step"][at] % every == 0:
            continue  # a micro-step with the optimizer's is slower than those before it, no loss
        elif warming[at]:
            cause = WARM_UP
        elif at in stalls_at:
            waited = windows["data_s"][at] - (usual_wait or 0.0)
            excused = waited * windows["new_step"][at] > MOST_OF_IT * lost[at]
            shown = "data loading" if excused else UNEXPLAINED
            cause = _seen(kinds, windows["gc_s"][at], lost[at]) or shown
        else:
            continue
        found.setdefault(cause, []).append(at)
    for cause, places in found.items():
        steps = windows["step"][places].astype(np.int64).tolist()
        period = _period(steps) if cause == UNEXPLAINED else None
        yield cause if period is None else PERIODIC.format(period), places


def _seen(kinds: Collection[str], gc_s: float, lost: float) -> str | None:
    """An event of SEEN that explains a stall; a garbage collection, by the time that it prints."""
    unlikely = {"gc"} if gc_s <= MOST_OF_IT * lost else set()
    return next((SEEN[kind] for kind in SEEN if kind in kinds and kind not in unlikely), None)


SEEN: Final = {
    "restart": "restart",
    "load": "loading",
    "compile": "compilation",
    "gc": "garbage collection",
}
"""Events that may explain a stall, and stay in the steady rate."""


def _period(steps: list[int]) -> int | None:
    """Steps between stalls that come in a rhythm, as an unlogged checkpoint does."""
    if len(steps) < FEWEST_PERIODIC:
        return None
    gaps = np.diff(steps)
    period = gcd(*map(int, gaps))
    possible = (steps[-1] - steps[0]) // period + 1
    rare = period > 1 and len(steps) >= OFTEN * possible
    return period if rare else None
