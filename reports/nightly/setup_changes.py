"""Words on a set-up that changed: software, settings, and the speed since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..text.tabular import percent
from .night_report import NightSeries

MAX_NOISE_SPREADS: Final = 2
"""A run nearer to its level than this many standard deviations of the series has its speed."""


UNCONFIRMED: Final = "perhaps"
"""Words on a speed of one run alone."""


def setup_clause(marks: Sequence[str], series: NightSeries) -> str:
    """Return what changed tonight, and the speed of the run that shows it."""
    return "; ".join(filter(None, (*marks, _speed(series))))


def _speed(series: NightSeries) -> str:
    """Return the last run's speed against the level of the series."""
    ratio, spread = series["last_ratio"], series["spread"]
    if ratio is None:
        return ""
    if spread is not None and abs(ratio - 1) <= MAX_NOISE_SPREADS * spread:
        return "same speed"
    way = "slower" if ratio < 1 else "faster"
    return f"{UNCONFIRMED} {percent(abs(ratio - 1))} {way}, more runs will tell"
