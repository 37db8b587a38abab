"""Usual time between the runs of a job, and whether a run is overdue.

Times are naive, all on one clock. A night is from noon to noon (history.NIGHT_START).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from .history import NIGHT_START

MIN_NIGHTS: Final = 3
"""Fewest nights with a run from which a rhythm is learned."""

MAX_GAPS: Final = 20
"""Most recent gaps between runs that make the rhythm."""

MIN_GRACE: Final = timedelta(hours=1)
GRACE_SHARE: Final = 0.05
"""A run may start later than usual by GRACE_SHARE of the usual gap, or by MIN_GRACE."""

MAX_SILENCE: Final = timedelta(days=30)
MIN_SILENCE: Final = timedelta(days=3)
"""A job has ended when it is silent for longer than it ran before, within these limits."""

MAX_CLOCK_LEAD: Final = timedelta(days=1)
"""Largest distance of the clock from the newest run to judge by the clock."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Time without a run that was due.

    last: start of the last run; usual: the longest usual gap between runs
    """

    last: datetime
    usual: timedelta
    days: int


def end_of_night(clock: datetime, newest: datetime | None) -> datetime:
    """Return the time by which the runs of a night were due.

    It is the clock. For logs of an earlier night it is the end of that night.

    newest: start of the newest run of all, if that run is new tonight
    """
    if newest is None or clock - newest < MAX_CLOCK_LEAD:
        return clock
    night = _night(newest)
    return night + timedelta(days=1) + NIGHT_START - timedelta(seconds=1)


def overdue(starts: Sequence[datetime], now: datetime) -> Silence | None:
    """Return the silence of a job whose next run is overdue and that has not ended.

    The rhythm is the second longest of the recent gaps between nights with a run, so one missed
    night does not change it. A pause after the same weekday of the last week is usual too.
    """
    firsts = _first_of_nights(starts, now)
    if len(firsts) < MIN_NIGHTS or has_ended(starts, now):
        return None
    usual = _usual_gap(firsts)
    last = max(start for start in starts if start < now + MAX_CLOCK_LEAD)
    if now - firsts[-1] <= usual + max(MIN_GRACE, GRACE_SHARE * usual):
        return None
    return Silence(last, usual, max(1, (now - last).days))


def has_ended(starts: Sequence[datetime], now: datetime) -> bool:
    """Return whether a job is silent for longer than it ran before."""
    known = [start for start in starts if start < now + MAX_CLOCK_LEAD]
    if not known:
        return False
    ran = max(known) - min(known)
    return now - max(known) > min(MAX_SILENCE, max(MIN_SILENCE, ran))


def _first_of_nights(starts: Sequence[datetime], now: datetime) -> list[datetime]:
    """Return the first start of every night; a start in the future is a wrong clock."""
    firsts: dict[datetime, datetime] = {}
    for start in sorted(start for start in starts if start < now + MAX_CLOCK_LEAD):
        firsts.setdefault(_night(start), start)
    return list(firsts.values())


def _usual_gap(firsts: Sequence[datetime]) -> timedelta:
    recent = firsts[-MAX_GAPS - 1 :]
    gaps = [after - before for before, after in pairwise(recent)]
    same_day = [
        gap
        for start, gap in zip(recent, gaps, strict=False)
        if _night(start).weekday() == _night(firsts[-1]).weekday()
    ]
    second = sorted(gaps)[-2] if len(gaps) >= MIN_NIGHTS else max(gaps)
    return max([second, *same_day[-1:]])


def _night(moment: datetime) -> datetime:
    """Return midnight of the night's first day."""
    return (moment - NIGHT_START).replace(hour=0, minute=0, second=0, microsecond=0)
