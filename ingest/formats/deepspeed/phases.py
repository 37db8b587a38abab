"""Timers of DeepSpeed's engine (wall_clock_breakdown), by phase of a step.

Names until 0.10.0 are `forward`, `backward_allreduce`, …; since 0.10.1 `fwd`, `bwd_allreduce`, ….
The line of a step prints the sum over its micro-steps. The pipeline engine prints that line every
steps_per_print steps, for all of them. `optimizer_allgather` of ZeRO 1 and 2 is part of `step`.
Timers are CUDA events since 0.6.2, on the stream of compute, so they do not overlap. Gradients
that are reduced while backward computes count as backward; `bwd_allreduce` is the reduction after
it.

A monitor or the flops profiler may reset the timers of a step: until 0.18 its line prints 0.00, and
only the lines of its micro-steps have times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..spec import PhaseTimer


def text_timer(name: str) -> str:
    """Return the regex of a timer in `time (ms) | NAME: 1.23`; group 1 is the value."""
    return rf"[|(,] *{name}: *(-?[0-9.]+)[ |)]"


def engine_timers(*, after_step: bool = False) -> tuple[PhaseTimer, ...]:
    """Return the timers of DeepSpeed's engine: of a step.

    after_step: true if the engine's own lines are the steps, so its timers come after them
    """
    common = {"group": "DeepSpeed", "pipelined_covers": "interval", "after_step": after_step}
    transfers = ("pipe_send_output", "pipe_send_grad", "pipe_recv_input", "pipe_recv_grad")
    return (
        *_breakdown("", common),
        _timer("optimizer_allgather", "collectives", common, part_of="step", pipelined_covers=None),
        _timer("batch_input", "data", common, covers="interval"),
        *(
            _timer(name, "pipeline", common, covers="interval", caveat="waits")
            for name in transfers
        ),
    )


def micro_step_timers(*, after_step: bool = False) -> tuple[PhaseTimer, ...]:
    """Return the timers of micro-steps, for logs whose timers of steps were reset.

    after_step: as of engine_timers
    """
    common = {
        "group": "DeepSpeed, micro-steps",
        "covers": "micro_step",
        "pipelined_covers": "interval",
        "after_step": after_step,
    }
    return tuple(_breakdown("_microstep", common))


def _timer(name: str, phase: str, common: Mapping[str, Any], **fields: Any) -> PhaseTimer:  # noqa: ANN401 - of a timer
    return PhaseTimer(timer=name, phase=phase, text=text_timer(name), **{**common, **fields})


def _breakdown(ending: str, common: Mapping[str, Any]) -> Iterator[PhaseTimer]:
    """Yield the timers of one line, under both names."""
    step = f"step{ending}"
    for forward, backward in (("fwd", "bwd"), ("forward", "backward")):
        whole, reduction = f"{backward}{ending}", f"{backward}_allreduce{ending}"
        parts = {"part_of": whole, "caveat": "overlapped"}
        yield _timer(f"{forward}{ending}", "forward", common, beside=step)
        yield _timer(whole, "backward", common, beside=step)
        yield _timer(reduction, "collectives", common, beside=step, **parts)
    yield _timer(step, "optimizer", common)


_MONITORED: Final = "elapsed_time_ms_"
MONITOR_TIMERS: Final = (
    PhaseTimer(group="DeepSpeed, event files", timer=f"{_MONITORED}forward", phase="forward"),
    PhaseTimer(group="DeepSpeed, event files", timer=f"{_MONITORED}backward", phase="backward"),
    PhaseTimer(
        group="DeepSpeed, event files",
        timer=f"{_MONITORED}backward_allreduce",
        phase="collectives",
        part_of=f"{_MONITORED}backward",
        caveat="overlapped",
    ),
    PhaseTimer(group="DeepSpeed, event files", timer=f"{_MONITORED}step", phase="optimizer"),
)
"""Timers in event files of DeepSpeed's monitor: of one optimizer step."""
