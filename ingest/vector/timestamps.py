"""Times of many lines."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import numpy as np

from ..core.arrays import Bools, Floats, Ints
from ..parse.rank_and_time import VALID_YEARS

MAX_EPOCH_RUNS: Final = 2
"""Maximum number of runs of a stamp counted from 1970: the second is a fraction."""
EPOCH_SECONDS_DIGITS: Final = 10
"""Digits of epoch seconds; milliseconds have three more, microseconds six more."""
YEARLESS_STAMP_RUNS: Final = 5
"""Runs of a stamp without year: month, day, hour, minute, second."""


def epoch_to_microseconds(seconds: Floats) -> Ints:
    """Return microseconds since 1970, rounded as datetime.fromtimestamp does."""
    fraction, whole = np.modf(seconds)
    return np.asarray(whole.astype(np.int64) * 1_000_000 + np.rint(fraction * 1e6).astype(np.int64))


def dates_to_microseconds(dates: Ints, valid: Bools) -> Ints:
    """Return the microseconds since 1970 of dates such as 20261120.

    If all dates are equal, the result is a single value. Invalid dates become False in `valid`.
    """
    if len(dates) and (dates == dates[0]).all():
        distinct, indices = dates[:1], np.zeros(1, np.int64)
    else:
        distinct, indices = np.unique(dates, return_inverse=True)
    midnights = [_midnight(int(date)) for date in distinct]
    valid &= np.array([midnight is not None for midnight in midnights], bool)[indices]
    return np.array([midnight or 0 for midnight in midnights], np.int64)[indices]


def _midnight(date: int) -> int | None:
    if date // 10_000 not in VALID_YEARS:
        return None
    try:
        day = datetime(date // 10_000, date // 100 % 100, date % 100, tzinfo=UTC)
    except ValueError:
        return None
    return (day - datetime(1970, 1, 1, tzinfo=UTC)).days * 86_400_000_000
