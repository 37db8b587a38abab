"""Phases of a step: data, forward, backward, collectives, optimizer, and the rest.

One table per run. Times of a step are means over the middle tenth of the steady windows, ordered by
step time: the typical step, as a median gives it, but with parts that add up. So phases and rest
are exactly the step time. A timer that contains others counts without them. If timers exceed the
step time, the rest is unknown, and a message says so.

Checkpoints and evaluations are no part of a steady step: their wall time beyond the steady pace
(metrics.throughput.time_breakdown) is divided by all steps, and shown as a share of the wall time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from fairmfu.ingest.core.schema import PHASES

from ..core.arrays import FloatArray
from ..core.messages import Message, MessageKind
from ..core.run_arrays import RunArrays, total
from ..core.run_table import PhaseTime
from . import messages
from .timed_steps import SteadySteps, TimedSteps, is_single_step, steady_steps, timed_steps
from .timer_readings import Reading, Timer

MIN_REST_SHARE: Final = 1e-9
"""Least share of a step that is a rest, and no rounding of sums."""
MAX_TIMER_ROUNDING_S: Final = 5e-6
"""Half a unit of the last digit of a printed timer: 0.01 ms."""

CAVEAT_MESSAGES: Final[Mapping[str, MessageKind]] = {
    "host_time": messages.HOST_TIMES,
    "max_over_ranks": messages.LONGEST_RANKS,
    "overlapped": messages.OVERLAPPED_COLLECTIVES,
    "waits": messages.WAITS_FOR_RANKS,
}
"""Message for each of ingest.core.schema.TIMER_CAVEATS."""

DATA_SOURCE: Final = "printed data time"
REST_SOURCE: Final = "step time minus phases"
BESIDE_STEPS: Final = ("checkpoint", "evaluation")
"""Phases outside steady steps."""


@dataclass(frozen=True, slots=True)
class PhaseTable:
    """Phases of one run. step_s: the step time of the table [s]; empty without phases."""

    rows: list[PhaseTime] = field(default_factory=list)
    step_s: float | None = None
    notes: list[Message] = field(default_factory=list)


def phase_table(
    windows: RunArrays | None,
    run: Mapping[str, Any],
    rates: Mapping[str, Any],
    readings: Sequence[Reading],
    facts: Mapping[str, Any],
) -> PhaseTable:
    """Return the phases of a step of one run; empty if the log times none.

    windows: of metrics.throughput.warmup.mark_warm_up_and_stalls, or None without steps
    run: with evidence and step_unit
    rates: with time_basis and time_lost
    readings: of metrics.diagnosis.timer_readings.timer_readings
    facts: with gradient_accumulation and pipelined, if known
    """
    if windows is None:
        return PhaseTable()
    beside = _beside_steps(windows, rates)
    has_data = windows.has_any("data_s")
    if not (readings or has_data or beside):
        return PhaseTable()
    steps = steady_steps(windows, run, rates["time_basis"])
    if steps is None:
        return PhaseTable(beside)
    used = [r for r in readings if not (has_data and r.timer.phase == "data")]
    timed = timed_steps(steps, used, windows, run, facts)
    parts = _parts(timed, windows)
    if not (parts.seconds or beside):
        return PhaseTable()
    table = _table(parts, beside)
    table.notes.extend(_notes(timed, parts, windows, run, facts))
    return table


@dataclass(frozen=True, slots=True)
class _Parts:
    """Windows of a table, with the seconds of a step and the sources by phase."""

    steps: SteadySteps
    seconds: Mapping[str, FloatArray]
    sources: Mapping[str, Sequence[str]]
    timers: int


def _parts(timed: TimedSteps, windows: RunArrays) -> _Parts:
    """Return the seconds of each phase in windows with all of them."""
    steps, alone = timed.steps, _without_parts(timed.seconds)
    seconds: dict[str, FloatArray] = {}
    sources: dict[str, list[str]] = {}
    waits = windows["data_s"][steps.indices]
    known = waits >= 0
    if known.any():
        steps, alone = steps.only(known), {timer: of[known] for timer, of in alone.items()}
        seconds["data"], sources["data"] = waits[known], [DATA_SOURCE]
    for timer, values in alone.items():
        seconds[timer.phase] = seconds.get(timer.phase, 0.0) + values
        inner = [other.timer for other in timed.seconds if other.part_of == timer.timer]
        sources.setdefault(timer.phase, []).append(" minus ".join([timer.timer, *inner]))
    return _Parts(steps, seconds, sources, len(alone))


def _without_parts(seconds: Mapping[Timer, FloatArray]) -> dict[Timer, FloatArray]:
    """Return the seconds of each timer without the timers that it contains."""
    alone = {}
    for timer, values in seconds.items():
        inner = [of for other, of in seconds.items() if other.part_of == timer.timer]
        alone[timer] = values - np.minimum(np.sum(inner, axis=0), values) if inner else values
    return alone


def _table(parts: _Parts, beside: Sequence[PhaseTime]) -> PhaseTable:
    """Return the rows of all phases with the rest."""
    steps, weights = parts.steps, parts.steps.typical()
    step_s = float(weights @ steps.seconds)
    known_s = {phase: float(weights @ values) for phase, values in parts.seconds.items()}
    allowed = steps.rounding * step_s + MAX_TIMER_ROUNDING_S * parts.timers
    timed_s = sum(known_s.values())
    exceeds = timed_s - step_s > allowed
    windows = len(steps.seconds)
    rows = [
        _row(phase, known_s[phase], step_s, windows, " + ".join(parts.sources[phase]))
        for phase in PHASES
        if phase in known_s
    ]
    left_s = max(step_s - timed_s, 0.0)
    rest = None if exceeds else left_s if left_s > MIN_REST_SHARE * step_s else 0.0
    rows.append(_row("rest", rest, step_s, windows, REST_SOURCE))
    notes: list[Message] = []
    if exceeds:
        notes.append(messages.PHASES_EXCEED_STEP(seconds=_ms(timed_s), step=_ms(step_s)))
    elif steps.evidence == "elapsed" and _is_all_of_step(parts, allowed):
        notes.append(messages.STEP_OF_TIMERS())
    return PhaseTable([*rows, *beside], step_s, notes)


def _is_all_of_step(parts: _Parts, allowed: float) -> bool:
    """Return whether the timers are the step time in every window."""
    timed = sum(parts.seconds.values(), np.zeros(len(parts.steps.seconds)))
    return bool((np.abs(parts.steps.seconds - timed) <= allowed).all())


def _row(phase: str, seconds: float | None, step_s: float, windows: int, source: str) -> PhaseTime:
    return {
        "phase": phase,
        "seconds": seconds,
        "share": None if seconds is None else seconds / step_s,
        "share_of": "step",
        "windows": windows,
        "source": source,
    }


def _beside_steps(windows: RunArrays, rates: Mapping[str, Any]) -> list[PhaseTime]:
    """Return checkpoints and evaluations: wall time beyond the steady pace, per step."""
    first = float(np.nan_to_num(windows["interval"][0], nan=1.0))
    covered = first + total(windows["new_step"][1:])
    rows: list[PhaseTime] = []
    for phase in BESIDE_STEPS:
        lost = [row for row in rates["time_lost"] or [] if _phase_of(row["cause"]) == phase]
        if not lost or covered <= 0:
            continue
        rows.append(
            {
                "phase": phase,
                "seconds": sum(row["seconds"] for row in lost) / covered,
                "share": sum(row["share"] for row in lost),
                "share_of": "wall",
                "windows": sum(row["windows"] or 0 for row in lost),
                "source": " + ".join(f"windows with {row['cause']}" for row in lost),
            }
        )
    return rows


def _phase_of(cause: str) -> str | None:
    """Return the phase of a cause of lost time; None for other causes.

    Windows with several events count as the first phase.
    """
    named = cause.split(" and ")
    return next((phase for phase in BESIDE_STEPS if phase in named), None)


def _notes(
    timed: TimedSteps,
    parts: _Parts,
    windows: RunArrays,
    run: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> Iterator[Message]:
    """Yield the properties of the used timers that a reader must know."""
    if run["step_unit"] == "micro_step":
        yield messages.STEP_IS_MICRO_STEP()
    if is_single_step(windows):
        yield messages.SINGLE_STEP()
    for caveat, kind in CAVEAT_MESSAGES.items():
        if named := [timer.timer for timer in timed.seconds if timer.caveat == caveat]:
            yield kind(timers=", ".join(named))
    if several := [timer.timer for timer, factor in timed.factors.items() if factor > 1]:
        count = facts["gradient_accumulation"]
        yield messages.MICRO_STEP_TIMERS(timers=", ".join(several), count=count)
    ranks = int(np.nanmax(windows["printing"]))
    if parts.sources.get("data") == [DATA_SOURCE] and ranks > 1:
        yield messages.LONGEST_DATA_TIME(ranks=ranks)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f} ms"
