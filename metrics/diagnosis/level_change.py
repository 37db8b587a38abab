"""The costliest change of speed inside a run, and the phase that makes most of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ..core.run_table import SpeedLevel
from ..core.run_words import steps_in
from .phase_gap import REST

MIN_CHANGED_SHARE: Final = 0.1
"""Least change of a phase, as a share of the step's change; below, it is unchanged."""


@dataclass(frozen=True, slots=True)
class LevelChange:
    """Two speeds of a run, and the phase with most of their difference.

    phase: one of ingest.core.schema.PHASES; None if the log times none, or not the same at both
    old_s, new_s: its time per step [s]; unchanged: phases that are as before
    """

    before: SpeedLevel
    after: SpeedLevel
    phase: str | None = None
    old_s: float = 0.0
    new_s: float = 0.0
    unchanged: tuple[str, ...] = ()

    @property
    def extra_s(self) -> float:
        """Seconds that the later speed took longer than at the earlier one."""
        return extra_time(self.before, self.after)


def costliest_change(levels: Sequence[SpeedLevel]) -> LevelChange | None:
    """Return the slower speed that took most time, against the fastest one before it.

    Without a slower one: the largest change. If levels have phases, only these. None below two.
    """
    timed = [level for level in levels if level["phases"]]
    pair = _costliest(timed) or _costliest(levels)
    if pair is None:
        return None
    old, new = (
        {each["phase"]: each["seconds"] for each in level["phases"] or []} for level in pair
    )
    if old.keys() != new.keys() or old.keys() <= {REST}:
        return LevelChange(*pair)
    changes = {phase: new[phase] - old[phase] for phase in new}
    whole = sum(changes.values())
    phase = max(changes, key=lambda name: changes[name] * whole)
    same = [n for n, more in changes.items() if abs(more) < MIN_CHANGED_SHARE * abs(whole)]
    return LevelChange(*pair, phase, old[phase], new[phase], tuple(same))


def _costliest(levels: Sequence[SpeedLevel]) -> tuple[SpeedLevel, SpeedLevel] | None:
    pairs = [(min(levels[:at], key=_seconds), level) for at, level in enumerate(levels) if at]
    slower = [pair for pair in pairs if extra_time(*pair) > 0]
    if slower:
        return max(slower, key=lambda pair: extra_time(*pair))
    return max(pairwise(levels), key=lambda pair: abs(extra_time(*pair)), default=None)


def extra_time(before: SpeedLevel, after: SpeedLevel) -> float:
    """Return the seconds that a speed took longer than at another's pace."""
    return (_seconds(after) - _seconds(before)) * steps_in(after)


def _seconds(level: SpeedLevel) -> float:
    return level["seconds_per_step"] or 0.0
