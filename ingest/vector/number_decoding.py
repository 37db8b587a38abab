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
from ..parse.rank_and_time import COMPACT_STAMP_RUNS, PLACEHOLDER_YEAR
from .shape_matching import ShapeMatch
from .shapes import WORD_BYTES, ShapeNumber, ShapeValue
from .text_columns import concatenate_texts
from .timestamps import (
    EPOCH_SECONDS_DIGITS,
    MAX_EPOCH_RUNS,
    YEARLESS_STAMP_RUNS,
    dates_to_microseconds,
    epoch_to_microseconds,
)

MAX_EXACT_DIGITS: Final = 15
MAX_EXACT_POWER: Final = 22
"""10 to this power is a double; so is every whole number of MAX_EXACT_DIGITS digits."""
MAX_INTEGER_DIGITS: Final = 16
"""Digits of a whole number that are read; longer ones are left to the regexes."""
FLOAT_POWERS_OF_TEN: Final = np.array([10.0**n for n in range(MAX_EXACT_POWER + 1)])
DIGIT_PAIR_MASKS: Final = (
    (10, 0x00FF00FF00FF00FF),
    (100, 0x0000FFFF0000FFFF),
    (10_000, 0x00000000FFFFFFFF),
)
"""What makes one number of two of 1, 2 and 4 digits side by side: a factor, which bits are kept."""
INTEGER_POWERS_OF_TEN: Final = np.array([10**n for n in range(MAX_EXACT_DIGITS + 1)], np.int64)


@dataclass(slots=True)
class DecodedRows:
    """Rows of lines of one shape; columns of equal length by name."""

    lines: Ints
    columns: dict[str, Any]


def decode_rows(shape_match: ShapeMatch) -> DecodedRows:
    """The rows of the lines that fit; those that cannot be exact are left out."""
    shape = shape_match.shape
    good = np.ones(len(shape_match.lines), bool)
    columns: dict[str, Any] = {}
    if not len(good):
        return DecodedRows(shape_match.lines, columns)
    for value in shape.values:
        columns[value.column] = _value(shape_match, value, good)
    for number in shape.nonzero:
        good &= _not_zero(shape_match, number)
    if shape.stamp:
        columns["logged_at"] = _stamps(shape_match, shape.stamp, good)
    if not good.all():
        columns = {name: column[good] for name, column in columns.items()}
        shape_match = shape_match.only(good)
    for text in shape.texts:
        columns[text.column] = concatenate_texts(shape_match.text(text.pieces))
    return DecodedRows(shape_match.lines, columns)


def _not_zero(found: ShapeMatch, number: ShapeNumber) -> Bools:
    """Whether any of its digits is not 0."""
    words = (
        found.values(run, back)
        for run in number.mantissa
        for back in range(0, int(found.width(run).max(initial=0)), WORD_BYTES)
    )
    return np.asarray(reduce(np.bitwise_or, words) != 0)


def _value(found: ShapeMatch, value: ShapeValue, good: Bools) -> NDArray[Any]:
    number = value.number
    if number.decimals is None and number.exponent is None and value.kind == "int":
        digits, count = _whole(found, number, good)
        good &= count <= MAX_INTEGER_DIGITS
        return -digits if number.negative else digits
    out = _float(found, number, good)
    if value.kind == "int":
        good &= (out == np.floor(out)) & (np.abs(out) < 2.0**53)
        return np.where(good, out, 0.0).astype(np.int64)
    return out if value.factor is None else out * value.factor


def _float(found: ShapeMatch, number: ShapeNumber, good: Bools) -> Floats:
    widths = (found.width(run) for run in number.mantissa)
    widest = int(sum(widths, np.zeros(1, np.int64)).max(initial=0))
    if len(number.whole) == 1 and widest > MAX_EXACT_DIGITS:
        return _printed(found, number, good)
    out = _divided(found, number, widest, good)
    return -out if number.negative else out


def _whole(found: ShapeMatch, number: ShapeNumber, good: Bools) -> tuple[Ints, Ints]:
    """The digits before the point, as a number, and how many they are."""
    first, *groups = number.whole
    digits = _digits(found, first, good)
    for run in groups:
        digits = digits * 1000 + _digits(found, run, good)
    return digits, found.width(first) + 3 * len(groups)


def _divided(found: ShapeMatch, number: ShapeNumber, widest: int, good: Bools) -> Floats:
    """Numbers of so many digits at most: these as a whole number, over or times a power of ten."""
    digits, places = _without_point(found, number, widest, good)
    floats = digits.astype(np.float64)
    if number.exponent is None:
        return np.asarray(floats / FLOAT_POWERS_OF_TEN[places])
    power = number.exponent_sign * _digits(found, number.exponent, good) - places
    least, most = int(power.min()), int(power.max())
    if least >= -MAX_EXACT_POWER and most <= 0:  # mostly: there are more digits behind the point
        return np.asarray(floats / FLOAT_POWERS_OF_TEN[-power])
    good &= np.abs(power) <= MAX_EXACT_POWER
    size = FLOAT_POWERS_OF_TEN[np.minimum(np.abs(power), MAX_EXACT_POWER)]
    return np.asarray(np.where(power < 0, floats / size, floats * size))


def _without_point(
    found: ShapeMatch, number: ShapeNumber, widest: int, good: Bools
) -> tuple[Ints, Ints]:
    """Its digits before and behind the point as a whole number, and how many are behind it."""
    if number.decimals is None:
        digits, count = _whole(found, number, good)
        good &= count <= MAX_EXACT_DIGITS
        return digits, np.zeros(1, np.int64)
    width = found.width(number.decimals)
    word = found.without_point(number)
    if word is not None:
        return _number(word, widest).view(np.int64), width
    digits, count = _whole(found, number, good)
    good &= (width <= MAX_EXACT_DIGITS) & (count + width <= MAX_EXACT_DIGITS)
    places = np.minimum(width, MAX_EXACT_DIGITS)
    return digits * INTEGER_POWERS_OF_TEN[places] + _digits(found, number.decimals, good), places


def _printed(found: ShapeMatch, number: ShapeNumber, good: Bools) -> Floats:
    """Numbers of any length, each read from its text, signs and all; infinite ones are left out."""
    floats = concatenate_texts(found.written(number)).cast(pl.Float64, strict=False)
    out = (floats.fill_null(np.inf) if floats.null_count() else floats).to_numpy()
    good &= np.isfinite(out)
    return out


def _digits(found: ShapeMatch, run: int, good: Bools) -> Ints:
    """The whole number of a run of digits, at most 16 of them."""
    width = found.width(run)
    widest = int(width.max(initial=0))
    if widest > MAX_INTEGER_DIGITS:
        good &= width <= MAX_INTEGER_DIGITS
    out = _number(found.values(run), widest)
    if widest > WORD_BYTES:
        out = out + _number(found.values(run, WORD_BYTES), widest - WORD_BYTES) * np.uint64(10**8)
    return np.asarray(out, np.uint64).view(np.int64)


def _number(word: Words, digits: int) -> Words:
    """The number of at most so many digits, eight of them if more, which stand last in a word.

    Its first byte is the lowest; before them stand zeros.
    """
    width = 1
    for factor, mask in DIGIT_PAIR_MASKS:
        if width >= digits:
            break
        behind = word >> np.uint64(8 * width)
        word = word * np.uint64(factor)
        word += behind
        word &= np.uint64(mask)
        width *= 2
    return word >> np.uint64(64 - 8 * width)


def _stamps(found: ShapeMatch, runs: Sequence[int], good: Bools) -> NDArray[Any]:
    if len(runs) <= MAX_EPOCH_RUNS:
        return _since_epoch(found, runs, good)
    parts = [_digits(found, run, good) for run in runs]
    if len(parts) == COMPACT_STAMP_RUNS:
        date = parts[0].astype(np.int64)
        parts[:1] = [date // 10_000, date // 100 % 100, date % 100]
    if len(parts) == YEARLESS_STAMP_RUNS:
        parts = [np.full(len(parts[0]), PLACEHOLDER_YEAR), *parts]
    year, month, day, hour, minute, second, *fraction = parts
    good &= (hour < 24) & (minute < 60) & (second < 60)  # noqa: PLR2004 - of a day
    good &= (month < 100) & (day < 100)  # noqa: PLR2004 - or they would be of another year
    microseconds = ((hour * 60 + minute) * 60 + second) * 1_000_000
    if fraction:
        width = found.width(runs[-1])
        good &= width <= 6  # noqa: PLR2004 - microseconds
        microseconds += fraction[0] * INTEGER_POWERS_OF_TEN[np.clip(6 - width, 0, 6)]
    dates = (year * 100 + month) * 100 + day
    return (microseconds + dates_to_microseconds(dates, good)).astype("datetime64[us]")


def _since_epoch(found: ShapeMatch, runs: Sequence[int], good: Bools) -> NDArray[Any]:
    """Seconds with a fraction, or milliseconds, or microseconds: rounded as fromtimestamp does."""
    number = ShapeNumber((runs[0],), runs[1] if len(runs) > 1 else None, None, 1, negative=False)
    width, _ = found.shape.widths[runs[0]]
    seconds = _float(found, number, good) / FLOAT_POWERS_OF_TEN[width - EPOCH_SECONDS_DIGITS]
    return epoch_to_microseconds(seconds).astype("datetime64[us]")
