"""Decoding of the digits of lines that fit a shape: exactly as float() and int()."""

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
"""10 to this power is exact as a double, as is every integer of MAX_EXACT_DIGITS digits."""
MAX_INTEGER_DIGITS: Final = 16
"""Maximum number of digits of an integer; longer ones are left to the regexes."""
FLOAT_POWERS_OF_TEN: Final = np.array([10.0**n for n in range(MAX_EXACT_POWER + 1)])
DIGIT_PAIR_MASKS: Final = (
    (10, 0x00FF00FF00FF00FF),
    (100, 0x0000FFFF0000FFFF),
    (10_000, 0x00000000FFFFFFFF),
)
"""Factor and mask that merge two adjacent numbers of 1, 2 and 4 digits."""
INTEGER_POWERS_OF_TEN: Final = np.array([10**n for n in range(MAX_EXACT_DIGITS + 1)], np.int64)


@dataclass(slots=True)
class DecodedRows:
    """Rows of lines of one shape; columns of equal length by name."""

    lines: Ints
    columns: dict[str, Any]


def decode_rows(shape_match: ShapeMatch) -> DecodedRows:
    """Return the rows of the fitting lines, without lines that cannot be exact."""
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


def _not_zero(shape_match: ShapeMatch, number: ShapeNumber) -> Bools:
    """Return whether any digit of the number is not 0."""
    words = (
        shape_match.values(run, back)
        for run in number.mantissa
        for back in range(0, int(shape_match.width(run).max(initial=0)), WORD_BYTES)
    )
    return np.asarray(reduce(np.bitwise_or, words) != 0)


def _value(shape_match: ShapeMatch, value: ShapeValue, good: Bools) -> NDArray[Any]:
    number = value.number
    if number.decimals is None and number.exponent is None and value.kind == "int":
        digits, count = _whole(shape_match, number, good)
        good &= count <= MAX_INTEGER_DIGITS
        return -digits if number.negative else digits
    out = _float(shape_match, number, good)
    if value.kind == "int":
        good &= (out == np.floor(out)) & (np.abs(out) < 2.0**53)
        return np.where(good, out, 0.0).astype(np.int64)
    return out if value.factor is None else out * value.factor


def _float(shape_match: ShapeMatch, number: ShapeNumber, good: Bools) -> Floats:
    widths = (shape_match.width(run) for run in number.mantissa)
    widest = int(sum(widths, np.zeros(1, np.int64)).max(initial=0))
    if len(number.whole) == 1 and widest > MAX_EXACT_DIGITS:
        return _printed(shape_match, number, good)
    out = _divided(shape_match, number, widest, good)
    return -out if number.negative else out


def _whole(shape_match: ShapeMatch, number: ShapeNumber, good: Bools) -> tuple[Ints, Ints]:
    """Return the digits before the point as an integer, and their number."""
    first, *groups = number.whole
    digits = _digits(shape_match, first, good)
    for run in groups:
        digits = digits * 1000 + _digits(shape_match, run, good)
    return digits, shape_match.width(first) + 3 * len(groups)


def _divided(shape_match: ShapeMatch, number: ShapeNumber, widest: int, good: Bools) -> Floats:
    """Return numbers of at most `widest` digits: an integer over or times 10^n."""
    digits, places = _without_point(shape_match, number, widest, good)
    floats = digits.astype(np.float64)
    if number.exponent is None:
        return np.asarray(floats / FLOAT_POWERS_OF_TEN[places])
    power = number.exponent_sign * _digits(shape_match, number.exponent, good) - places
    least, most = int(power.min()), int(power.max())
    if least >= -MAX_EXACT_POWER and most <= 0:  # usual: decimals outweigh the exponent
        return np.asarray(floats / FLOAT_POWERS_OF_TEN[-power])
    good &= np.abs(power) <= MAX_EXACT_POWER
    size = FLOAT_POWERS_OF_TEN[np.minimum(np.abs(power), MAX_EXACT_POWER)]
    return np.asarray(np.where(power < 0, floats / size, floats * size))


def _without_point(
    shape_match: ShapeMatch, number: ShapeNumber, widest: int, good: Bools
) -> tuple[Ints, Ints]:
    """Return the digits without the point as an integer, and the number of decimals."""
    if number.decimals is None:
        digits, count = _whole(shape_match, number, good)
        good &= count <= MAX_EXACT_DIGITS
        return digits, np.zeros(1, np.int64)
    width = shape_match.width(number.decimals)
    word = shape_match.without_point(number)
    if word is not None:
        return _number(word, widest).view(np.int64), width
    digits, count = _whole(shape_match, number, good)
    good &= (width <= MAX_EXACT_DIGITS) & (count + width <= MAX_EXACT_DIGITS)
    places = np.minimum(width, MAX_EXACT_DIGITS)
    return digits * INTEGER_POWERS_OF_TEN[places] + _digits(
        shape_match, number.decimals, good
    ), places


def _printed(shape_match: ShapeMatch, number: ShapeNumber, good: Bools) -> Floats:
    """Return numbers of any length, parsed from their texts with signs.

    Infinite numbers become False in `good`.
    """
    floats = concatenate_texts(shape_match.written(number)).cast(pl.Float64, strict=False)
    out = (floats.fill_null(np.inf) if floats.null_count() else floats).to_numpy()
    good &= np.isfinite(out)
    return out


def _digits(shape_match: ShapeMatch, run: int, good: Bools) -> Ints:
    """Return the integer of a run of at most 16 digits."""
    width = shape_match.width(run)
    widest = int(width.max(initial=0))
    if widest > MAX_INTEGER_DIGITS:
        good &= width <= MAX_INTEGER_DIGITS
    out = _number(shape_match.values(run), widest)
    if widest > WORD_BYTES:
        out = out + _number(shape_match.values(run, WORD_BYTES), widest - WORD_BYTES) * np.uint64(
            10**8
        )
    return np.asarray(out, np.uint64).view(np.int64)


def _number(word: Words, digits: int) -> Words:
    """Return the integer of the last `digits` digits of a word, at most eight.

    The word's first byte is the lowest; zeros precede the digits.
    """
    width = 1
    for factor, mask in DIGIT_PAIR_MASKS:
        if width >= digits:
            break
        next_numbers = word >> np.uint64(8 * width)
        word = word * np.uint64(factor)
        word += next_numbers
        word &= np.uint64(mask)
        width *= 2
    return word >> np.uint64(64 - 8 * width)


def _stamps(shape_match: ShapeMatch, runs: Sequence[int], good: Bools) -> NDArray[Any]:
    if len(runs) <= MAX_EPOCH_RUNS:
        return _since_epoch(shape_match, runs, good)
    parts = [_digits(shape_match, run, good) for run in runs]
    if len(parts) == COMPACT_STAMP_RUNS:
        date = parts[0].astype(np.int64)
        parts[:1] = [date // 10_000, date // 100 % 100, date % 100]
    if len(parts) == YEARLESS_STAMP_RUNS:
        parts = [np.full(len(parts[0]), PLACEHOLDER_YEAR), *parts]
    year, month, day, hour, minute, second, *fraction = parts
    good &= (hour < 24) & (minute < 60) & (second < 60)  # noqa: PLR2004 - of a day
    good &= (month < 100) & (day < 100)  # noqa: PLR2004 - or the date would be in another year
    microseconds = ((hour * 60 + minute) * 60 + second) * 1_000_000
    if fraction:
        width = shape_match.width(runs[-1])
        good &= width <= 6  # noqa: PLR2004 - microseconds
        microseconds += fraction[0] * INTEGER_POWERS_OF_TEN[np.clip(6 - width, 0, 6)]
    dates = (year * 100 + month) * 100 + day
    return (microseconds + dates_to_microseconds(dates, good)).astype("datetime64[us]")


def _since_epoch(shape_match: ShapeMatch, runs: Sequence[int], good: Bools) -> NDArray[Any]:
    """Return the time of seconds (with a fraction), ms or us since the epoch.

    Rounded as by datetime.fromtimestamp.
    """
    number = ShapeNumber((runs[0],), runs[1] if len(runs) > 1 else None, None, 1, negative=False)
    width, _ = shape_match.shape.widths[runs[0]]
    seconds = _float(shape_match, number, good) / FLOAT_POWERS_OF_TEN[width - EPOCH_SECONDS_DIGITS]
    return epoch_to_microseconds(seconds).astype("datetime64[us]")
