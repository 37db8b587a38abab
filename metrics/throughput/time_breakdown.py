"""Split the wall time of a launch into steady training and the causes of the rest.

A window costs its time beyond the steady pace of its tokens. The log's own events come first
(checkpoint, evaluation, profiler); a stall without an event gets a cause from its line.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypedDict

import numpy as np

from ..core.arrays import FloatArray, IntArray
from ..core.run_arrays import RunArrays, median, total
from ..core.run_table import SlowStep
from ..core.run_words import SAVED_OR_EVALUATED, SLOWER_SPEED, START_UP, UNEXPLAINED
from .end_to_end import first_line_seconds, shows_start, tokens_trained, with_fitted_tokens
from .outlier_warnings import find_spikes
from .speed_levels import slower_seconds
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

WARM_UP: Final = "warm-up"
AFTER_LAST_STEP: Final = "after the last step"
EVALUATION: Final = "evaluation"
OUTSIDE_STEP_TIMES: Final = "outside the steps, cause unknown"
START_AND_OUTSIDE: Final = "start-up and other time outside the steps"
FIRST_STEP: Final = "slow first step"
"""Time in the first line, where the start-up is among the time outside the steps."""
UNEXPLAINED_PERIODIC: Final = "unexplained, every {:,} steps"

MAX_SLOWEST: Final = 5
"""Windows among the slowest steps."""
MIN_LOST_SHARE: Final = 1e-9
"""Least share of the wall time that is lost time, and no rounding of sums."""
MIN_TIMED_STEP_SHARE: Final = 0.8
"""Least share of the steps that lines must time for their sum to be wall time."""


class TimeColumns(TypedDict):
    """Wall time of a launch, and where it went."""

    wall_s: float | None
    wall_basis: str | None
    time_lost: list[dict[str, Any]]
    slowest_steps: list[SlowStep]


UNKNOWN_TIMES: Final[TimeColumns] = {
    "wall_s": None,
    "wall_basis": None,
    "time_lost": [],
    "slowest_steps": [],
}


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
    causes = _by_cause(windows, timed, stalled, lost, spans)
    slower = timed[(slower_s[timed] > 0) & ~windows.has_events(NON_TRAINING_EVENTS)[timed]]
    after_s = run.get("after_s") or _behind_clock(windows, clock, run)
    wall_s = total(seconds[timed]) + first_s + after_s
    outside_s = 0.0 if clock == "stamp" else max(0.0, _whole_seconds(run) - wall_s)
    rows = [
        _first_row(windows, first_s, start_s, run),
        *(_row(cause, lost[at]) for cause, at in causes.items()),
        _row(SLOWER_SPEED, slower_s[slower]),
        *_untimed_rows(windows, pace, (after_s, outside_s), run),
    ]
    if outside_s and _starts_outside(run):
        rows = [row | {"cause": CAUSES_WITH_START.get(row["cause"], row["cause"])} for row in rows]
    return {
        "wall_s": wall_s + outside_s,
        "wall_basis": "runtime" if outside_s else clock,
        "time_lost": _shares(rows, wall_s + outside_s),
        "slowest_steps": _slowest(windows, causes, seconds, lost, spans),
    }


def _starts_outside(run: Mapping[str, Any]) -> bool:
    """Return whether the stamps of a launch begin an unknown time before its steps.

    A printed run time begins with the training, and stamped steps give the start-up itself.
    """
    return not run.get("startup_s") and (run.get("wall_s") or 0.0) > (run.get("runtime_s") or 0.0)


CAUSES_WITH_START: Final = {START_UP: FIRST_STEP, OUTSIDE_STEP_TIMES: START_AND_OUTSIDE}
"""Causes where the time outside the steps has the start-up."""


def _row(cause: str, lost: FloatArray) -> dict[str, Any]:
    return {"cause": cause, "windows": len(lost), "seconds": total(lost)}


def _untimed_row(cause: str, seconds: float) -> dict[str, Any]:
    return {"cause": cause, "windows": 0, "seconds": seconds}


def _shares(rows: Sequence[dict[str, Any]], wall_s: float) -> list[dict[str, Any]]:
    """Return one row per cause that lost time, with its share of the wall time.

    The largest first. A sum that is not 0 by rounding alone is no lost time.
    """
    by_cause: dict[str, dict[str, Any]] = {}
    for row in rows:
        of_cause = by_cause.setdefault(row["cause"], _untimed_row(row["cause"], 0.0))
        of_cause["windows"] += row["windows"]
        of_cause["seconds"] += row["seconds"]
    lost = [row for row in by_cause.values() if row["seconds"] > MIN_LOST_SHARE * wall_s]
    return sorted(
        (row | {"share": row["seconds"] / wall_s} for row in lost), key=lambda row: -row["seconds"]
    )


def _untimed_rows(
    windows: RunArrays, pace: float, seconds: tuple[float, float], run: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the rows of the time that no line covers.

    Evaluations after the last line took what is printed, and steps after it their usual time.

    seconds: after the last step line, and outside the lines' times, wherever this is
    """
    after_s, outside_s = seconds
    cause, untimed_s = (AFTER_LAST_STEP, after_s) if after_s else (OUTSIDE_STEP_TIMES, outside_s)
    evaluated_s = min(run.get("evaluated_after_s") or 0.0, untimed_s)
    steps = max(0.0, (run.get("trained_to") or 0) - float(windows["step"][-1]))
    usual_s = steps * _usual_step(windows, pace, -1)
    return [
        _untimed_row(EVALUATION, evaluated_s),
        _untimed_row(cause, max(0.0, untimed_s - evaluated_s - usual_s)),
        _untimed_row(OUTSIDE_STEP_TIMES, outside_s if after_s else 0.0),
    ]


def _usual_step(windows: RunArrays, pace: float, index: int) -> float:
    """Return the usual time of a step of one line [s].

    A line of unknown tokens has the usual tokens.
    """
    tokens = windows["tokens_per_gpu"]
    usual = median(tokens[~np.isnan(tokens)]) or 0.0
    return pace * (usual if np.isnan(tokens[index]) else float(tokens[index]))


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
    line. A single line from the middle of a run is a window, and nothing is before it.

    kinds: the wall clock and the time evidence
    """
    clock, evidence = kinds
    at = int(next(iter(_moments(windows, clock)), 0))
    if not windows.flags("first")[0]:
        return 0.0, 0.0
    own, seconds, since = (
        float(np.nan_to_num(windows[name][at]))
        for name in (f"{evidence}_span", f"{evidence}_time", "since_start_s")
    )
    start, of_step = run.get("trained_from"), _usual_step(windows, pace, at)
    steps = own if start is None else float(windows["step"][at]) - start
    counted = None if start is None else tokens_trained(windows, start, windows["step"][at])
    usual = of_step * max(steps, own, 1.0) if counted is None else pace * counted.count
    by_clock = since - usual if clock == "clock" and start is not None else 0.0
    others = {"rate": ("rate", "elapsed"), "elapsed": ("elapsed", "rate")}.get(evidence, ())
    times = (first_line_seconds(windows, kind, run) for kind in others)
    whole = next((time for time in times if time is not None), None)
    by_time = seconds - of_step * (own or 1.0) if whole is None or at else whole - usual
    start_s = max(run.get("startup_s") or 0.0, by_clock, by_time, 0.0)
    return start_s + usual, start_s


def _first_row(
    windows: RunArrays, first_s: float, start_s: float, run: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the row of the time lost up to the first line.

    In an excerpt from the middle of a run, this is no start-up: the line's own cause counts, and
    without an event, less than the usual time of the line is scatter.

    first_s, start_s: as from `_up_to_first_line`
    """
    cause, kinds = START_UP, dict(windows.events()).get(0, ())
    if not shows_start(run):
        cause = _work_beside(windows, kinds)
        if not cause and start_s <= first_s / 2:
            start_s = 0.0
        own_steps = windows.with_values(new_step=windows["elapsed_span"])
        stall = stall_cause(own_steps, 0, kinds, start_s, usual_wait(windows))
        cause = cause or stall or UNEXPLAINED
    return _untimed_row(cause, start_s) | {"windows": int(start_s > 0)}


def _work_beside(windows: RunArrays, kinds: Collection[str]) -> str:
    """Return the work besides training among a window's events, as text.

    Where an evaluation may print nothing, a checkpoint alone does not explain the whole pause.
    """
    work = " and ".join(sorted({*kinds} & {*NON_TRAINING_EVENTS}))
    silent = windows.has_quirk("wait_has_pauses")
    return SAVED_OR_EVALUATED if silent and work == "checkpoint" else work


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
        beside = _work_beside(windows, kinds)
        single = every > 1 and windows["new_step"][at] == 1
        if beside:
            cause = beside
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
