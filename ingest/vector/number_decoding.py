"""What the digits of lines that fit a shape say: exactly what float() and int() would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ..core.arrays import Bools, Floats, Ints, Words
from ..parse.line_prefix import COMPACT, YEAR_UNKNOWN
from .shape_matching import Fit
from .shapes import WORD, Number, Value
from .text_columns import series
from .timestamps import EPOCH, NO_YEAR, SECONDS, from_epoch, midnights

EXACT_DIGITS: Final = 15
EXACT_POWER: Final = 22
"""10 to this power is a double; so is every whole number of EXACT_DIGITS digits."""
WHOLE_DIGITS: Final = 16
"""Digits of a whole number that are read; longer ones are left to the regexes."""
POWERS: Final = np.array([10.0**n for n in range(EXACT_POWER + 1)])
PAIRS: Final = ((10, 0x00FF00FF00FF00FF), (100, 0x0000FFFF0000FFFF), (10_000, 0x00000000FFFFFFFF))
"""What makes one number of two of 1, 2 and 4 digits side by side: a factor, which bits are kept."""
TENS: Final = np.array([10**n for n in range(EXACT_DIGITS + 1)], np.int64)


@dataclass(slots=True)
class Decoded:
    """Rows of lines of one shape; columns of equal length by name."""

    lines: Ints
    columns: dict[str, Any]


def decode(found: Fit) -> Decoded:
    """The rows of the lines that fit; those that cannot be exact are left out."""
    shape = found.shape
    good = np.ones(len(found.lines), bool)
    columns: dict[str, Any] = {}
    if not len(good):
        return Decoded(found.lines, columns)
    for value in shape.values:
        columns[value.column] = _value(found, value, good)
    for number in shape.nonzero:
        good &= _not_zero(found, number)
    if shape.stamp:
        columns["logged_at"] = _stamps(found, shape.stamp, good)
    if not good.all():
        columns = {name: column[good] for name, column in columns.items()}
        found = found.only(good)
    for text in shape.texts:
        columns[text.column] = series(found.text(text.pieces))
    return Decoded(found.lines, columns)


def _not_zero(found: Fit, number: Number) -> Bools:
    """Whether any of its digits is not 0."""
    words = (
        found.values(run, back)
        for run in number.mantissa
        for back in range(0, int(found.width(run).max(initial=0)), WORD)
    )
    return np.asarray(reduce(np.bitwise_or, words) != 0)


def _value(found: Fit, value: Value, good: Bools) -> NDArray[Any]:
    number = value.number
    if number.decimals is None and number.exponent is None and value.kind == "int":
        digits, count = _whole(found, number, good)
        good &= count <= WHOLE_DIGITS
        return -digits if number.negative else digits
    out = _float(found, number, good)
    if value.kind == "int":
        good &= (out == np.floor(out)) & (np.abs(out) < 2.0**53)
        return np.where(good, out, 0.0).astype(np.int64)
    return out if value.factor is None else out * value.factor


def _float(found: Fit, number: Number, good: Bools) -> Floats:
    widths = (found.width(run) for run in number.mantissa)
    widest = int(sum(widths, np.zeros(1, np.int64)).max(initial=0))
    if len(number.whole) == 1 and widest > EXACT_DIGITS:
        return _printed(found, number, good)
    out = _divided(found, number, widest, good)
    return -out if number.negative else out


def _whole(found: Fit, number: Number, good: Bools) -> tuple[Ints, Ints]:
    """The digits before the point, as a number, and how many they are."""
    first, *groups = number.whole
    digits = _digits(found, first, good)
    for run in groups:
        digits = digits * 1000 + _digits(found, run, good)
    return digits, found.width(first) + 3 * len(groups)


def _divided(found: Fit, number: Number, widest: int, good: Bools) -> Floats:
    """Numbers of so many digits at most: these as a whole number, over or times a power of ten."""
    digits, places = _without_point(found, number, widest, good)
    floats = digits.astype(np.float64)
    if number.exponent is None:
        return np.asarray(floats / POWERS[places])
    power = number.exponent_sign * _digits(found, number.exponent, good) - places
    least, most = int(power.min()), int(power.max())
    if least >= -EXACT_POWER and most <= 0:  # mostly: there are more digits behind the point
        return np.asarray(floats / POWERS[-power])
    good &= np.abs(power) <= EXACT_POWER
    size = POWERS[np.minimum(np.abs(power), EXACT_POWER)]
    return np.asarray(np.where(power < 0, floats / size, floats * size))


def _without_point(found: Fit, number: Number, widest: int, good: Bools) -> tuple[Ints, Ints]:
    """Its digits before and behind the point as a whole number, and how many are behind it."""
    if number.decimals is None:
        digits, count = _whole(found, number, good)
        good &= count <= EXACT_DIGITS
        return digits, np.zeros(1, np.int64)
    width = found.width(number.decimals)
    word = found.without_point(number)
    if word is not None:
        return _number(word, widest).view(np.int64), width
    digits, count = _whole(found, number, good)
    good &= (width <= EXACT_DIGITS) & (count + width <= EXACT_DIGITS)
    places = np.minimum(width, EXACT_DIGITS)
    return digits * TENS[places] + _digits(found, number.decimals, good), places


def _printed(found: Fit, number: Number, good: Bools) -> Floats:
    """Numbers of any length, each read from its text, signs and all; infinite ones are left out."""
    floats = series(found.written(number)).cast(pl.Float64, strict=False)
    out = (floats.fill_null(np.inf) if floats.null_count() else floats).to_numpy()
    good &= np.isfinite(out)
    return out


def _digits(found: Fit, run: int, good: Bools) -> Ints:
    """The whole number of a run of digits, at most 16 of them."""
    width = found.width(run)
    widest = int(width.max(initial=0))
    if widest > WHOLE_DIGITS:
        good &= width <= WHOLE_DIGITS
    out = _number(found.values(run), widest)
    if widest > WORD:
        out = out + _number(found.values(run, WORD), widest - WORD) * np.uint64(10**8)
    return np.asarray(out, np.uint64).view(np.int64)


def _number(word: Words, digits: int) -> Words:
    """The number of at most so many digits, eight of them if more, which stand last in a word.

    Its first byte is the lowest; before them stand zeros.
    """
    width = 1
    for factor, mask in PAIRS:
        if width >= digits:
            break
        behind = word >> np.uint64(8 * width)
        word = word * np.uint64(factor)
        word += behind
        word &= np.uint64(mask)
        width *= 2
    return word >> np.uint64(64 - 8 * width)


def _stamps(found: Fit, runs: Sequence[int], good: Bools) -> NDArray[Any]:
    if len(runs) <= EPOCH:
        return _since_epoch(found, runs, good)
    parts = [_digits(found, run, good) for run in runs]
    if len(parts) == COMPACT:
        date = parts[0].astype(np.int64)
        parts[:1] = [date // 10_000, date // 100 % 100, date % 100]
    if len(parts) == NO_YEAR:
        parts = [np.full(len(parts[0]), YEAR_UNKNOWN), *parts]
    year, month, day, hour, minute, second, *fraction = parts
    good &= (hour < 24) & (minute < 60) & (second < 60)  # noqa: PLR2004 - of a day
    good &= (month < 100) & (day < 100)  # noqa: PLR2004 - or they would be of another year
    microseconds = ((hour * 60 + minute) * 60 + second) * 1_000_000
    if fraction:
        width = found.width(runs[-1])
        good &= width <= 6  # noqa: PLR2004 - microseconds
        microseconds += fraction[0] * TENS[np.clip(6 - width, 0, 6)]
    dates = (year * 100 + month) * 100 + day
    return (microseconds + midnights(dates, good)).astype("datetime64[us]")


def _since_epoch(found: Fit, runs: Sequence[int], good: Bools) -> NDArray[Any]:
    """Seconds with a fraction, or milliseconds, or microseconds: rounded as fromtimestamp does."""
    number = Number((runs[0],), runs[1] if len(runs) > 1 else None, None, 1, negative=False)
    width, _ = found.shape.widths[runs[0]]
    seconds = _float(found, number, good) / POWERS[width - SECONDS]
    return from_epoch(seconds).astype("datetime64[us]")
