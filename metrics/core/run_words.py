"""Words and texts in the columns of a run's metrics.

Shared by what computes them and what shows them, so that kept metrics are shown without numpy.
"""

from __future__ import annotations

from typing import Final

from .run_table import MetricsRow, PauseLevel, SlowStep, SpeedLevel

SECONDS_PER_HOUR: Final = 3600.0

EVIDENCE_LABELS: Final[dict[str, str]] = {
    "elapsed": "the logged step time",
    "rate": "the logged rate",
    "clock": "the clock since the start",
    "stamp": "time stamps",
    "engine": "the engine's time stamps",
    "timer": "the engine's timer",
    "runtime": "the run time printed at the end",
}
"""Kinds of time evidence, in words."""

START_UP: Final = "start-up"
"""Cause of the time before the steady steps of a launch."""

SLOWER_SPEED: Final = "extra time of slower steps"
"""Cause of the time lost in windows at another speed than TGS."""

UNEXPLAINED: Final = "unexplained"
"""Cause of time lost without a cause in the log."""

DATA_LOADING: Final = "data loading"
"""Cause of a stall with a long wait for data on its line; such stalls stay in the steady rate,
too."""

BETWEEN_STEPS: Final = "between steps: data, evaluation or checkpoint"
"""Cause of such a stall where the wait for data has all that runs between two steps."""

SAVED_OR_EVALUATED: Final = "checkpoint, or an evaluation that prints no line"
"""Cause of a pause with a checkpoint where an evaluation beside it may print nothing."""

GROWTH, JUMP = "growth", "jump"
"""Kinds of changes of the peak memory."""

GIVEN_PEAK: Final = "given: peak_flops"
"""Beginning of `peak_source` where a user gave the peak."""

COMPUTE_PHASES: Final = ("forward", "backward", "forward_backward")
"""Phases that take time in every step: 0 means that a timer was not running."""


def steps_in(level: SpeedLevel) -> int:
    """Return the number of steps of a level."""
    return level["to_step"] - level["from_step"] + 1


LOG_LINE: Final = "log_line"
"""`step_unit` of a run whose lines print no step: places inside the run are numbers of lines."""


def timed_word(row: MetricsRow) -> str:
    """Return the unit of `seconds_per_step`."""
    return "micro-step" if row["step_unit"] == "micro_step" else "step"


def place_word(row: MetricsRow) -> str:
    """Return the unit of places inside a run, and of the speeds there."""
    return "log line" if row["step_unit"] == LOG_LINE else "step"


def steps_of(stretch: SpeedLevel | PauseLevel | SlowStep) -> str:
    """Return the steps of a stretch as text: `8`, or `8 to 11`."""
    first, last = stretch["from_step"], stretch["to_step"]
    return f"{last:,}" if first == last else f"{first:,} to {last:,}"
