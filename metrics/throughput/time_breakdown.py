"""Split the wall time of a launch into steady training and the causes of the rest.

A window costs its time beyond the steady pace of its tokens. The log's own events come first
(checkpoint, evaluation, profiler); a stall without an event gets a cause from its line.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypedDict

import numpy as np

from ..core.arrays import FloatArray, IntArray
from ..core.run_arrays import RunArrays, median, total
from ..core.run_table import SlowStep
from ..core.run_words import UNEXPLAINED
from .end_to_end import first_line_seconds, tokens_trained, with_fitted_tokens
from .outlier_warnings import find_spikes
from .speed_levels import SLOWER_SPEED, slower_seconds
from .unlogged_work import find_period, stall_cause, usual_wait
from .warmup import stall_excess
from .windows import (
    MOMENT_COLUMNS,
    NON_TRAINING_EVENTS,
    WALL_CLOCK_EVIDENCE,
    WindowSelection,
    accumulation_steps,
    count_steps,
    stamp_error,
    steady_windows,
)

START_UP: Final = "start-up"
WARM_UP: Final = "warm-up"
AFTER_LAST_STEP: Final = "after the last step"
OUTSIDE_STEP_TIMES: Final = "outside the steps, cause unknown"
UNEXPLAINED_PERIODIC: Final = "unexplained, every {:,} steps"

MAX_SLOWEST: Final = 5
"""Windows among the slowest steps."""
MIN_TIMED_STEP_SHARE: Final = 0.8
"""Least share of the steps that lines must time for their sum to be wall time."""


class TimeColumns(TypedDict):
    """Wall time of a launch, and where it went."""

    wall_s: float | None
    time_lost: list[dict[str, Any]]
    slowest_steps: list[SlowStep]


UNKNOWN_TIMES: Final[TimeColumns] = {"wall_s": None, "time_lost": [], "slowest_steps": []}


def time_lost(windows: RunArrays, evidence: str, run: Mapping[str, Any]) -> TimeColumns:
    """Return the wall time [s], the time lost by cause, and the slowest windows.

    Each row has the windows of a cause, their seconds beyond the steady pace, and their share of
    the wall time (metrics.core.run_table.TimeLost); the largest first. Uses time stamps if the log
    has any, else `evidence`, which may miss a part. Nothing is known without steady windows, with
    only rates of unknown tokens, or with times of single steps among many.

    windows: of one run, marked (metrics.throughput.warmup.mark_warm_up_and_stalls)
    evidence: time basis of the run
    run: with startup_s, after_s and wall_s of metrics.throughput.end_to_end.launch_clocks, if known
    """
    slower_s = slower_seconds(windows if evidence == "rate" else count_steps(windows), evidence)
    windows = with_fitted_tokens(windows, evidence, run)
    uncounted, windows = not windows.has_any("tokens_per_gpu"), count_steps(windows)
    clock = _wall_clock(windows, evidence)
    if (uncounted and clock == "rate") or _samples(windows, clock):
        return UNKNOWN_TIMES
    counted = steady_windows(windows, clock)
    is_marked = clock == evidence and not uncounted
    excess = _excess(windows, counted, clock, is_marked=is_marked)
    steady_s = total(counted.seconds) - float(excess.sum())
    if not len(counted.indices) or steady_s <= 0:
        return UNKNOWN_TIMES
    pace = steady_s / total(counted.tokens)
    spans, stalled = windows[f"{clock}_span"], counted.indices[excess > 0]
    tokens, seconds = spans * windows["tokens_per_gpu"], windows[f"{clock}_time"]
    timed = np.flatnonzero(~windows.flags("first") & ~np.isnan(tokens) & ~np.isnan(seconds))
    lost = seconds - pace * tokens
    first_s, start_s = _up_to_first_line(windows, pace, (clock, evidence), run)
    after_s = run.get("after_s") or _behind_clock(windows, clock, run)
    rows: list[dict[str, Any]] = [
        {"cause": START_UP, "windows": 1, "seconds": start_s},
        {"cause": AFTER_LAST_STEP, "windows": 0, "seconds": after_s},
    ]
    causes = _by_cause(windows, timed, stalled, lost, spans)
    slower = timed[(slower_s[timed] > 0) & ~windows.has_events(NON_TRAINING_EVENTS)[timed]]
    rows += [
        *(_row(cause, lost[at]) for cause, at in causes.items()),
        _row(SLOWER_SPEED, slower_s[slower]),
    ]
    wall_s = total(seconds[timed]) + first_s + after_s
    if clock != "stamp" and (outside_s := _whole_seconds(run) - wall_s) > 0:
        rows.append({"cause": OUTSIDE_STEP_TIMES, "windows": 0, "seconds": outside_s})
        wall_s += outside_s
    shares = [row | {"share": row["seconds"] / wall_s} for row in rows if row["seconds"] > 0]
    return {
        "wall_s": wall_s,
        "time_lost": sorted(shares, key=lambda row: -row["seconds"]),
        "slowest_steps": _slowest(windows, causes, seconds, lost, spans),
    }


def _row(cause: str, lost: FloatArray) -> dict[str, Any]:
    return {"cause": cause, "windows": len(lost), "seconds": total(lost)}


def _whole_seconds(run: Mapping[str, Any]) -> float:
    """Return the wall time that the log states for the steps it shows; 0 without any.

    If the log begins in the middle, earlier steps may have taken it.
    """
    if run.get("trained_from") is None:
        return 0.0
    return max(run.get("wall_s") or 0.0, run.get("runtime_s") or 0.0)


def _slowest(
    windows: RunArrays,
    causes: Mapping[str, list[int]],
    seconds: FloatArray,
    lost: FloatArray,
    spans: FloatArray,
) -> list[SlowStep]:
    """Return the windows that lost most time, without warm-up and levels."""
    known = [
        (float(lost[at]), at, cause)
        for cause, windows_of_cause in causes.items()
        for at in windows_of_cause
        if cause != WARM_UP and lost[at] > 0
    ]
    return [
        {
            "from_step": int(windows["step"][at] - spans[at]) + 1,
            "to_step": int(windows["step"][at]),
            "seconds": float(seconds[at]),
            "lost_s": more,
            "cause": cause,
        }
        for more, at, cause in sorted(known, reverse=True)[:MAX_SLOWEST]
    ]


def _excess(
    windows: RunArrays, counted: WindowSelection, clock: str, *, is_marked: bool
) -> FloatArray:
    """Return the seconds of each counted window above its surroundings, for stalls.

    Among few windows, a stall is part of their scatter. So the slow windows of unknown cause count
    too, which a doubt names.

    clock: whose times are used; is_marked: `windows` is marked by them
    """
    error_s = stamp_error(windows, clock)
    excess = (
        windows["stall_s"][counted.indices]
        if is_marked
        else stall_excess(counted.seconds, counted.tokens, error_s)
    )
    spikes = find_spikes(windows, clock)
    if spikes is None or not spikes.counted or spikes.may_be_updates:
        return excess
    above = counted.seconds - counted.tokens / spikes.rates[1]
    is_slow = np.isin(counted.indices, spikes.slow.indices) & (above > 2 * error_s)
    return np.where(is_slow & (excess <= 0), above, excess)


def _wall_clock(windows: RunArrays, evidence: str) -> str:
    """Return the most complete evidence.

    Time stamps, else a progress bar's clock, else the run's own evidence.
    """
    return next(
        (c for c in WALL_CLOCK_EVIDENCE if steady_windows(windows, c).seconds.sum() > 0), evidence
    )


def _moments(windows: RunArrays, clock: str) -> IntArray:
    """Return the windows that end at a moment of a wall clock; none for other kinds."""
    known = (
        ~np.isnan(windows[MOMENT_COLUMNS[clock]])
        if clock in WALL_CLOCK_EVIDENCE
        else np.zeros(0, np.bool_)
    )
    return np.flatnonzero(known)


def _samples(windows: RunArrays, clock: str) -> bool:
    """Return whether lines time only a part of the steps: one micro-step of ten, say.

    A few steps may be missing.
    """
    later = ~windows.flags("first")
    if len(known := _moments(windows, clock)):  # only steps between its first and last moment count
        later = (np.arange(windows.height) > known[0]) & (np.arange(windows.height) <= known[-1])
    spans, steps = windows[f"{clock}_span"][later], windows["new_step"][later]
    return bool(np.nansum(spans) < MIN_TIMED_STEP_SHARE * np.nansum(steps))


def _up_to_first_line(
    windows: RunArrays, pace: float, kinds: tuple[str, str], run: Mapping[str, Any]
) -> tuple[float, float]:
    """Return the seconds up to the first timed step line, and the start-up among them.

    The start-up is the longest of three: by stamps, by the line's own clock, and by its own time. A
    log may begin at its first step, and a line's time may cover fewer steps than lie before the
    line.

    kinds: the wall clock and the time evidence
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
    counted = None if start is None else tokens_trained(windows, start, windows["step"][at])
    usual = of_step * max(steps, own, 1.0) if counted is None else pace * counted.count
    by_clock = since - usual if clock == "clock" and start is not None else 0.0
    whole = first_line_seconds(windows, evidence, run) if evidence in {"elapsed", "rate"} else None
    by_time = seconds - of_step * (own or 1.0) if whole is None or at else whole - usual
    start_s = max(run.get("startup_s") or 0.0, by_clock, by_time, 0.0)
    return start_s + usual, start_s


def _behind_clock(windows: RunArrays, clock: str, run: Mapping[str, Any]) -> float:
    """Return the seconds from the last line's clock to the end of the run time."""
    last, runtime = windows["since_start_s"][-1], run.get("runtime_s")
    return max(0.0, runtime - float(last)) if clock == "clock" and runtime and last > 0 else 0.0


def _by_cause(
    windows: RunArrays, timed: IntArray, stalled: IntArray, lost: FloatArray, spans: FloatArray
) -> dict[str, list[int]]:
    """Return the windows with lost time, by logged event, else by the cause they show.

    timed, stalled: indices of windows; lost: each window's seconds beyond the steady pace; spans:
    steps per window
    """
    events = dict(windows.events())
    warming, unlogged = windows.flags("warming"), windows.flags("unlogged")
    stalls_at = {*stalled.tolist(), *timed[unlogged[timed]].tolist()}
    looked_at = {*timed[warming[timed]].tolist(), *stalls_at, *events}
    every, wait_s = accumulation_steps(windows), usual_wait(windows)
    found: dict[str, list[int]] = {}
    for at in sorted(looked_at.intersection(timed.tolist())):
        kinds = events.get(at, ())
        beside = sorted({*kinds} & {*NON_TRAINING_EVENTS})
        single = every > 1 and windows["new_step"][at] == 1
        if beside:
            cause = " and ".join(beside)
        elif single and windows["step"][at] % every == 0:
            continue  # a micro-step with the optimizer step is slower than the others: no loss
        elif warming[at]:
            cause = WARM_UP
        elif at in stalls_at:
            cause = stall_cause(windows, at, kinds, float(lost[at]), wait_s) or UNEXPLAINED
        else:
            continue
        found.setdefault(cause, []).append(at)
    rhythm = None
    if stalls := found.pop(UNEXPLAINED, []):
        stalled_mask = np.isin(timed, stalls)
        rhythm = find_period(windows["step"][timed], spans[timed], stalled_mask)
    if rhythm is not None:
        found[UNEXPLAINED_PERIODIC.format(rhythm.period)] = timed[rhythm.hits].tolist()
        stalls = timed[stalled_mask & ~rhythm.hits].tolist()
    return found | ({UNEXPLAINED: stalls} if stalls else {})
