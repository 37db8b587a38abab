"""Validation of a shape: comparison with the regexes on random lines."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from itertools import chain, product
from typing import Final

import numpy as np

from ..parse.rank_and_time import COMPACT_STAMP_RUNS
from .line_block import LineBlock
from .number_decoding import MAX_EXACT_POWER, DecodedRows, decode_rows
from .readings import LineReading, ReadLine
from .shape_matching import match_shape
from .shapes import MAX_DECIMALS, MAX_PAD_BLANKS, LineShape, ShapePiece
from .timestamps import MAX_EPOCH_RUNS, YEARLESS_STAMP_RUNS

TRIAL_LINES: Final = 40
"""Random lines that a shape has to read like the regexes."""
REPEATED_NUMBERS: Final = tuple(digit * width for digit, width in product("012", (1, 2, 3)))
"""Numbers for lines in which all numbers are equal, as far as widths allow.

A tag printed twice on a line has another meaning if its numbers differ. No exponent made of these
is too large to be read.
"""

FIXED_NUMBER: Final = re.compile(rb"\d{1,9}")

ChooseDigits = Callable[[ShapePiece, int, int], str]
"""Function that returns digits for the number after a piece.

The width is between the given minimum and maximum.
"""


def is_trustworthy(shape: LineShape, raw: bytes, read_line: ReadLine, rng: random.Random) -> bool:
    """Return whether the shape reads the line, and random others, as the regexes do."""
    equal = map(_all_of, (*REPEATED_NUMBERS, *_fixed_numbers(shape)))
    drawn = (*(_at_random(shape, rng) for _ in range(TRIAL_LINES)), *equal)
    lines = [raw, *(make_line(shape, rng, digits) for digits in drawn)]
    block = LineBlock(0, b"".join(line + b"\n" for line in lines))
    shape_match = match_shape(block, shape, np.ones(len(block), bool))
    if 0 not in shape_match.lines:
        return False
    rows = decode_rows(shape_match)
    enough = len(rows.lines) >= TRIAL_LINES // 4
    return enough and all(
        is_same_reading(shape, rows, index, read_line(lines[line]))
        for index, line in enumerate(rows.lines)
    )


def is_same_reading(
    shape: LineShape, rows: DecodedRows, index: int, line_reading: LineReading
) -> bool:
    """Return whether a row read by a shape equals a reading by the regexes."""
    if not isinstance(line_reading, shape.reading):
        return False
    if line_reading.form is not shape.form or line_reading.printed != shape.printed:
        return False
    row = {**shape.fields, **{n: _item(column[index]) for n, column in rows.columns.items()}}
    return row.keys() == line_reading.row.keys() and all(
        is_identical(row[n], line_reading.row[n]) for n in row
    )


def _item(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


def is_identical(first: object, second: object) -> bool:
    """Return whether two values are identical: 0.0 differs from -0.0, nan equals nan."""
    if type(first) is not type(second):
        return False
    return bool(first and first == second) or repr(first) == repr(second)


def make_line(
    shape: LineShape,
    rng: random.Random,
    digits: ChooseDigits,
    pads: Sequence[int] = (0, 0, 1, 3, MAX_PAD_BLANKS),
) -> bytes:
    """Return a random line of the shape, with another time.

    digits: chooses the digits of numbers
    pads: numbers of blanks to choose from, where padding may vary
    """
    out = []
    stamp = iter(_drawn_stamp(rng, len(shape.stamp)))
    for piece in shape.pieces:
        out.append(piece.text + b" " * (rng.choice(pads) if piece.pad else 0))
        if piece.before is None:
            continue
        least, most = shape.widths[piece.before]
        if piece.before in shape.stamp and len(shape.stamp) > MAX_EPOCH_RUNS:
            drawn = next(stamp)[:most]
            drawn = drawn.rjust(
                most, rng.choice("0123456789")
            )  # of wider runs, the last digits count
        else:
            drawn = digits(piece, least, most)
        out.append(drawn.encode())
    return b"".join(out)


def is_exponent(piece: ShapePiece) -> bool:
    """Return whether the number after a piece is a power of ten."""
    return piece.text[-2:].lower() in (b"e-", b"e+")


def _at_random(shape: LineShape, rng: random.Random) -> ChooseDigits:
    """Return a chooser of random digits and widths, some too long to be exact."""
    widest = rng.choice([None, None, *shape.widths])

    def digits(piece: ShapePiece, least: int, most: int) -> str:
        assert piece.before is not None  # noqa: S101 - a number follows the piece
        if is_exponent(piece):
            return str(rng.randint(0, MAX_EXACT_POWER)).zfill(least)
        many = most == MAX_DECIMALS and rng.random() < 0.5  # noqa: PLR2004 - as repr() prints
        wide = most if piece.before == widest else rng.randint(least, min(most, least + 5))
        drawn = _drawn_digits(rng, rng.randint(least, most) if many else wide)
        if drawn[0] == "0" and piece.before in shape.bare:
            lone = len(drawn) == 1 and shape.bare[piece.before]
            return drawn if lone else f"1{drawn[1:]}"
        return drawn

    return digits


def _fixed_numbers(shape: LineShape) -> list[str]:
    """Return the numbers of a line that its shape takes for text.

    Another number of the line may mean something else where it equals one of these.
    """
    found = (FIXED_NUMBER.findall(piece.text) for piece in shape.pieces)
    return [number.decode() for number in dict.fromkeys(chain.from_iterable(found))]


def _all_of(number: str) -> ChooseDigits:
    """Return a chooser of this number, as far as widths allow."""
    return lambda _, least, most: (number * least)[: max(least, min(most, len(number)))]


def _drawn_digits(rng: random.Random, width: int) -> str:
    if rng.random() < 0.1:  # noqa: PLR2004 - all digits alike
        return rng.choice("09") * width
    first = rng.choice("0123456789" if rng.random() < 0.3 else "123456789")  # noqa: PLR2004
    return first + f"{rng.randrange(10**width):0{width}}"[1:]


def _drawn_stamp(rng: random.Random, runs: int) -> list[str]:
    parts = [
        str(rng.randint(2001, 2099)),
        f"{rng.randint(1, 12):02}",
        f"{rng.randint(1, 28):02}",
        f"{rng.randint(0, 23):02}",
        f"{rng.randint(0, 59):02}",
        f"{rng.randint(0, 59):02}",
        f"{rng.randint(0, 999_999):06}",
    ]
    if runs == COMPACT_STAMP_RUNS:
        return ["".join(parts[:3]), *parts[3:6]]
    return parts[1:6] if runs == YEARLESS_STAMP_RUNS else parts[:runs]
