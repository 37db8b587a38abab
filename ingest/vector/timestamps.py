"""Times of many lines."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import numpy as np

from ..core.arrays import Bools, Floats, Ints
from ..parse.rank_and_time import VALID_YEARS

MAX_EPOCH_RUNS: Final = 2
"""Runs of a stamp that counts from 1970, at most: a fraction may be one of them."""
EPOCH_SECONDS_DIGITS: Final = 10
"""Digits of its seconds; three more are of milliseconds, six more of microseconds."""
YEARLESS_STAMP_RUNS: Final = 5
"""Runs of a stamp without year: month, day, hour, minute, second."""


def epoch_to_microseconds(seconds: Floats) -> Ints:
    """Microseconds since 1970, rounded as datetime.fromtimestamp does it."""
    fraction, whole = np.modf(seconds)
    return np.asarray(whole.astype(np.int64) * 1_000_000 + np.rint(fraction * 1e6).astype(np.int64))


def dates_to_microseconds(dates: Ints, valid: Bools) -> Ints:
    """Of dates such as 20261120 the microseconds since 1970, one for all where they are the same.

    They are not good where they are none.
    """
    if len(dates) and (dates == dates[0]).all():
        found, which = dates[:1], np.zeros(1, np.int64)
    else:
        found, which = np.unique(dates, return_inverse=True)
    at = [_midnight(int(date)) for date in found]
    valid &= np.array([one is not None for one in at], bool)[which]
    return np.array([one or 0 for one in at], np.int64)[which]


def _midnight(date: int) -> int | None:
    if date // 10_000 not in VALID_YEARS:
        return None
    try:
        day = datetime(date // 10_000, date // 100 % 100, date % 100, tzinfo=UTC)
    except ValueError:
        return None
    return (day - datetime(1970, 1, 1, tzinfo=UTC)).days * 86_400_000_000
