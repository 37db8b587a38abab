"""Whether a shape reads lines as the regexes do."""

from __future__ import annotations

import random
from itertools import product
from typing import Final

import numpy as np

from ingest.scan.block import Block
from ingest.scan.decoding import EXACT_POWER, Decoded, decode
from ingest.scan.fitting import fit
from ingest.scan.readings import Read, Reading
from ingest.scan.shapes import MOST_DECIMALS, MOST_PAD, Shape
from ingest.scan.stamps import EPOCH, NO_YEAR

TRIALS: Final = 40
"""Random lines that a shape has to read as the regexes do."""
SAME_NUMBERS: Final = tuple(digit * width for digit, width in product("12", (1, 2, 3)))
"""Of lines all of whose numbers are one, as far as they may be: a tag that stands there twice is
another's where its numbers differ. No exponent of these is too large to be read."""


def believed(shape: Shape, raw: bytes, read: Read, rng: random.Random) -> bool:
    """Whether the shape reads the line, and random ones of its kind, as the regexes do."""
    lines = [raw, *(_drawn(shape, rng) for _ in range(TRIALS))]
    lines += [_drawn(shape, rng, number) for number in SAME_NUMBERS]
    block = Block(0, b"".join(line + b"\n" for line in lines))
    found = fit(block, shape, np.ones(len(block), bool))
    if 0 not in found.lines:
        return False
    rows = decode(found)
    enough = len(rows.lines) >= TRIALS // 4
    return enough and all(
        _read_alike(shape, rows, index, read(lines[line])) for index, line in enumerate(rows.lines)
    )


def _read_alike(shape: Shape, rows: Decoded, index: int, now: Reading) -> bool:
    if not isinstance(now, shape.reading):
        return False
    if now.form is not shape.form or now.printed != shape.printed:
        return False
    mine = {**shape.fields, **{n: _item(column[index]) for n, column in rows.columns.items()}}
    return mine.keys() == now.row.keys() and all(same(mine[n], now.row[n]) for n in mine)


def _item(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


def same(one: object, other: object) -> bool:
    """Equal to the bit: 0.0 is not -0.0, and a nan is a nan."""
    if type(one) is not type(other):
        return False
    return bool(one and one == other) or repr(one) == repr(other)


def _drawn(shape: Shape, rng: random.Random, number: str | None = None) -> bytes:
    """A line of that shape with other digits, widths and padding.

    number: whose digits all of its numbers have but for the stamp, as many of them as they may.
    """
    out = []
    stamp = iter(_drawn_stamp(rng, len(shape.stamp)))
    widest = rng.choice([None, None, *shape.widths])  # one that may be too long to be exact
    for piece in shape.pieces:
        out.append(piece.text + b" " * (rng.choice((0, 0, 1, 3, MOST_PAD)) if piece.pad else 0))
        if piece.before is None:
            continue
        least, most = shape.widths[piece.before]
        if piece.before in shape.stamp and len(shape.stamp) > EPOCH:
            digits = next(stamp)[:most].zfill(most)
        elif number is not None:
            digits = (number * least)[: max(least, min(most, len(number)))]
        elif piece.text[-2:].lower() in (b"e-", b"e+"):
            digits = str(rng.randint(0, EXACT_POWER)).zfill(least)
        else:
            many = most == MOST_DECIMALS and rng.random() < 0.5  # noqa: PLR2004 - as repr() prints
            wide = most if piece.before == widest else rng.randint(least, min(most, least + 5))
            digits = _drawn_digits(rng, rng.randint(least, most) if many else wide)
            if digits[0] == "0" and piece.before in shape.bare:
                lone = len(digits) == 1 and shape.bare[piece.before]
                digits = digits if lone else f"1{digits[1:]}"
        out.append(digits.encode())
    return b"".join(out)


def _drawn_digits(rng: random.Random, width: int) -> str:
    if rng.random() < 0.1:  # noqa: PLR2004 - of them all alike
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
    return parts[1:6] if runs == NO_YEAR else parts[:runs]
