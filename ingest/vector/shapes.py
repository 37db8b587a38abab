"""Shapes: common bytes of lines that are equal except for digits."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from ..core.arrays import Bytes
from .readings import EventReading, StepReading

DIGIT_RUN: Final = re.compile(rb"[0-9]+")
WORD_BYTES: Final = 8
"""Bytes of a word."""
MAX_DECIMALS: Final = 24
"""Digits after the point that repr() may print: 17 after the zeros of a small number."""
COMPARE_BATCH_BYTES: Final = 64 * 1024
"""Bytes of lines compared at once."""
UNCHECKED_WORD: Final = (0, 0, 0)
"""MaskedWord of bytes with any value."""
MAX_PAD_BLANKS: Final = 8
"""Maximum number of varying blanks before a number."""


@dataclass(frozen=True, slots=True)
class ShapeNumber:
    """A printed number of a shape, as indices of its runs.

    whole: several runs for a number with thousands separators
    decimals, exponent: None without one
    negative: True after a '-'
    """

    whole: tuple[int, ...]
    decimals: int | None
    exponent: int | None
    exponent_sign: int
    negative: bool

    @property
    def mantissa(self) -> tuple[int, ...]:
        """Indices of the runs before the exponent."""
        return self.whole if self.decimals is None else (*self.whole, self.decimals)

    @property
    def first(self) -> int:
        """Index of the first run."""
        return self.whole[0]

    @property
    def last(self) -> int:
        """Index of the last run."""
        return max(self.whole[-1], self.decimals or 0, self.exponent or 0)


@dataclass(frozen=True, slots=True)
class ShapeValue:
    """A column filled by a number. kind: int, float; factor: to the column's unit."""

    column: str
    number: ShapeNumber
    kind: str
    factor: float | None


@dataclass(frozen=True, slots=True)
class ShapeText:
    """A column of text, joined from constant pieces and printed numbers."""

    column: str
    pieces: tuple[str | ShapeNumber, ...]


@dataclass(frozen=True, slots=True)
class ShapePiece:
    """Constant bytes between two runs.

    behind: the run before; -1 at the start of the line
    before: the run after; None at the end of the line
    pad: True if up to MAX_PAD_BLANKS more blanks may follow
    """

    behind: int
    text: bytes
    before: int | None
    pad: bool


@dataclass(frozen=True, slots=True)
class MaskedWord:
    """Eight bytes of a fixed stretch, in the order of memory.

    zeros: the bytes, with 0 in place of every digit
    sixes: 6 for every byte that may be any digit
    kept: bits that must be 0 in the difference

    A text xor `zeros` is 0 for correct constant bytes, and the value for digits. Adding `sixes` to
    a value above 9 carries into the upper half of the byte, where `kept` detects the error.
    """

    zeros: np.uint64
    sixes: np.uint64
    kept: np.uint64


@dataclass(frozen=True, slots=True)
class FixedStretch:
    """Part of equal width in all lines of a shape, and the kind of the next part.

    size: in bytes
    words: the stretch ends with the last word; bytes before the stretch are not compared
    runs: index, offset and width of the digit runs within
    pad: True if up to MAX_PAD_BLANKS blanks may follow
    run: the digit run that follows; None before another stretch or the line's end
    """

    size: int
    words: tuple[MaskedWord, ...]
    runs: tuple[tuple[int, int, int], ...]
    pad: bool
    run: int | None

    @property
    def last(self) -> int:
        """The last byte, valid if not a digit."""
        return int(self.words[-1].zeros) >> 56

    @property
    def is_point(self) -> bool:
        """True for a single byte between two runs, usually a decimal point."""
        return self.size == 1 and not (self.runs or self.pad) and self.run is not None


@dataclass(frozen=True, eq=False)
class LineShape:
    """Lines with the same bytes except for digit runs, and the meaning of the runs."""

    pieces: tuple[ShapePiece, ...]
    widths: Mapping[int, tuple[int, int]]
    """Minimum and maximum number of digits of every varying run."""
    stretches: tuple[FixedStretch, ...]
    """The pieces, merged with the runs of constant width among them."""
    bare: Mapping[int, bool] = field(default_factory=dict)
    """Runs without leading zeros (JSON has no 007); True if a single 0 is allowed."""
    reading: type[StepReading | EventReading] = StepReading
    form: Any = None
    printed: frozenset[str] = frozenset()
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Values equal in the rows of all lines."""
    nonzero: tuple[ShapeNumber, ...] = ()
    """Numbers with another meaning when 0."""
    values: tuple[ShapeValue, ...] = ()
    texts: tuple[ShapeText, ...] = ()
    stamp: tuple[int, ...] = ()
    """Runs of year, month, day, hour, minute, second and fraction.

    A stamp without year has no fraction. A time since 1970 has one run, and perhaps a fraction.
    """

    @property
    def is_fixed(self) -> bool:
        """True if all lines have the same length, and every run the same position."""
        return len(self.stretches) == 1

    @cached_property
    def limits(self) -> tuple[Bytes, Bytes]:
        """Minimum of each byte of a line of fixed widths, and distance to the maximum.

        The first word is the word before the line. Repeated for as many lines as fit in
        COMPARE_BATCH_BYTES.
        """
        words = np.array(
            [UNCHECKED_WORD, *((w.zeros, w.sixes, w.kept) for w in self.stretches[0].words)],
            np.uint64,
        )
        zeros, sixes, kept = words.T.copy().view(np.uint8)
        least = zeros * (kept > 0)
        more = np.where(sixes > 0, 9, np.where(kept > 0, 0, 255)).astype(np.uint8)
        lines = max(1, COMPARE_BATCH_BYTES // len(least))
        return np.tile(least, lines), np.tile(more, lines)

    @cached_property
    def least(self) -> int:
        """Bytes of the shortest line."""
        return sum(len(p.text) for p in self.pieces) + sum(w for w, _ in self.widths.values())

    @cached_property
    def most(self) -> int:
        """Bytes of the longest line."""
        blanks = MAX_PAD_BLANKS * sum(piece.pad for piece in self.pieces)
        return self.least + blanks + sum(most - least for least, most in self.widths.values())


def split_into_pieces(
    raw: bytes,
    runs: Sequence[tuple[int, int]],
    variable: Iterable[int],
    padded: Collection[int],
) -> tuple[ShapePiece, ...]:
    """Return the constant bytes between varying runs, including the constant runs."""
    out: list[ShapePiece] = []
    behind, begin = -1, 0
    for run in sorted(variable):
        text, pad = raw[begin : runs[run][0]], run in padded
        if pad:
            bare = text.rstrip(b" ")
            text = text[: max(len(bare) + 1, len(text) - MAX_PAD_BLANKS)]
        out.append(ShapePiece(behind, text, run, pad))
        behind, begin = run, runs[run][1]
    out.append(ShapePiece(behind, raw[begin:].removesuffix(b"\r"), None, pad=False))
    return tuple(out)


def join_into_stretches(
    pieces: Sequence[ShapePiece], widths: Mapping[int, tuple[int, int]]
) -> tuple[FixedStretch, ...]:
    """Return the pieces, merged with the runs of constant width between them."""
    out: list[FixedStretch] = []
    parts: list[bytes | tuple[int, int]] = []
    for piece in pieces:
        parts.append(piece.text)
        least, most = (0, 0) if piece.before is None else widths[piece.before]
        free = None if least == most else piece.before
        if piece.pad or free is not None or piece.before is None:
            out.append(_stretch(parts, pad=piece.pad, run=free))
            parts = []
        if piece.before is not None and free is None:
            parts.append((piece.before, least))
    return tuple(out)


SAME_BYTE_MARK, ANY_DIGIT_MARK = b"=", b"0"
"""Marks of a stretch's bytes: equal to the shape, or any digit; other bytes are not compared."""
DIGIT_SIXES: Final = bytes({ANY_DIGIT_MARK[0]: 6}.get(mark, 0) for mark in range(256))
CHECKED_BITS: Final = bytes(
    {SAME_BYTE_MARK[0]: 0xFF, ANY_DIGIT_MARK[0]: 0xF0}.get(mark, 0) for mark in range(256)
)
"""MaskedWord.kept of a byte, by its mark."""


def _stretch(
    parts: Iterable[bytes | tuple[int, int]], *, pad: bool, run: int | None
) -> FixedStretch:
    """Return a stretch of constant bytes and runs (with their widths)."""
    text, marks = b"", b""
    runs: list[tuple[int, int, int]] = []
    for part in parts:
        if isinstance(part, tuple):
            runs.append((part[0], len(text), part[1]))
            text, marks = text + b"0" * part[1], marks + ANY_DIGIT_MARK * part[1]
        else:
            text, marks = text + part, marks + SAME_BYTE_MARK * len(part)
    size = -(-len(text) // WORD_BYTES) * WORD_BYTES
    marks = marks.rjust(size)
    parts_of_words = (
        text.rjust(size, b"\0"),
        marks.translate(DIGIT_SIXES),
        marks.translate(CHECKED_BITS),
    )
    words = zip(*(np.frombuffer(part, "<u8") for part in parts_of_words), strict=True)
    return FixedStretch(
        len(text), tuple(MaskedWord(*word) for word in words), tuple(runs), pad, run
    )
