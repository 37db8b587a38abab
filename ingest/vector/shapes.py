"""What lines that are alike but for their digits have in common."""

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
"""Bytes."""
MAX_DECIMALS: Final = 24
"""As repr() prints some: 17 digits behind the zeros of a small number."""
COMPARE_BATCH_BYTES: Final = 64 * 1024
"""Bytes of lines that are compared at once."""
UNCHECKED_WORD: Final = (0, 0, 0)
"""Of bytes that do not matter; see Word."""
MAX_PAD_BLANKS: Final = 8
"""Blanks before a number that may be more or fewer."""


@dataclass(frozen=True, slots=True)
class ShapeNumber:
    """A printed number of a shape: indices of its runs, with the parts that float() knows.

    whole: of a number with thousands' commas several; negative: a '-' stands before it.
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
        """Index of its first run."""
        return self.whole[0]

    @property
    def last(self) -> int:
        """Index of its last run."""
        return max(self.whole[-1], self.decimals or 0, self.exponent or 0)


@dataclass(frozen=True, slots=True)
class ShapeValue:
    """A column that a number fills. kind: int, float; factor: to the column's unit."""

    column: str
    number: ShapeNumber
    kind: str
    factor: float | None


@dataclass(frozen=True, slots=True)
class ShapeText:
    """A column whose text is made of these: constant pieces, and numbers as they are printed."""

    column: str
    pieces: tuple[str | ShapeNumber, ...]


@dataclass(frozen=True, slots=True)
class ShapePiece:
    """Constant bytes behind a run (-1: at the start of the line), up to the run `before`.

    before: None at the end of the line; pad: up to MAX_PAD_BLANKS blanks more may stand behind it.
    """

    behind: int
    text: bytes
    before: int | None
    pad: bool


@dataclass(frozen=True, slots=True)
class MaskedWord:
    """Eight bytes of a fixed stretch, as they are in memory.

    zeros: its bytes, with 0 for each digit; sixes: a 6 for each byte where any digit may stand.
    Xor with zeros leaves nothing of a text that is as it has to be, and of a digit its value, to
    which 6 may be added within half a byte; kept: the bits where neither may leave any.
    """

    zeros: np.uint64
    sixes: np.uint64
    kept: np.uint64


@dataclass(frozen=True, slots=True)
class FixedStretch:
    """What is as long in all lines of a shape, and what follows it.

    size: in bytes; words: its last ones are as many whole words, before them nothing matters. runs:
    offsets and widths of runs of digits in it. pad: as many blanks more may follow. run: of digits
    that follows; None where another stretch or the line's end does.
    """

    size: int
    words: tuple[MaskedWord, ...]
    runs: tuple[tuple[int, int, int], ...]
    pad: bool
    run: int | None

    @property
    def last(self) -> int:
        """Its last byte, where that is no digit."""
        return int(self.words[-1].zeros) >> 56

    @property
    def is_point(self) -> bool:
        """Whether it is a single byte between two runs: of a number mostly, before many digits."""
        return self.size == 1 and not (self.runs or self.pad) and self.run is not None


@dataclass(frozen=True, eq=False)
class LineShape:
    """Lines of the same bytes but for some runs of digits, and what those are."""

    pieces: tuple[ShapePiece, ...]
    widths: Mapping[int, tuple[int, int]]
    """The least and the most digits of each run that is not constant."""
    stretches: tuple[FixedStretch, ...]
    """The pieces, with the runs of constant widths among them."""
    bare: Mapping[int, bool] = field(default_factory=dict)
    """Runs that no 0 may begin (JSON knows no 007), and whether it may be their only digit."""
    reading: type[StepReading | EventReading] = StepReading
    form: Any = None
    printed: frozenset[str] = frozenset()
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What is the same in the row of each such line."""
    nonzero: tuple[ShapeNumber, ...] = ()
    """Those that mean something else where they are 0."""
    values: tuple[ShapeValue, ...] = ()
    texts: tuple[ShapeText, ...] = ()
    stamp: tuple[int, ...] = ()
    """Runs of year, month, day, hour, minute, second and fraction; without a year none of it; or
    of a number that counts from 1970, and its fraction."""

    @property
    def is_fixed(self) -> bool:
        """Whether all of its lines are as long, and each run stands at the same place in them."""
        return len(self.stretches) == 1

    @cached_property
    def limits(self) -> tuple[Bytes, Bytes]:
        """Of each byte of a line of fixed widths the least that it may be, and how much more.

        From a word before its first one; of so many lines one behind the other as make
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
    """The constant bytes between the runs that vary, with the runs that do not."""
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
    """The pieces put together with the runs between them that are as wide in all lines."""
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
"""What a byte of a stretch is: as in the shape, or any digit; else it does not matter."""
DIGIT_SIXES: Final = bytes({ANY_DIGIT_MARK[0]: 6}.get(mark, 0) for mark in range(256))
CHECKED_BITS: Final = bytes(
    {SAME_BYTE_MARK[0]: 0xFF, ANY_DIGIT_MARK[0]: 0xF0}.get(mark, 0) for mark in range(256)
)
"""Of a mark what Word has of its byte."""


def _stretch(
    parts: Iterable[bytes | tuple[int, int]], *, pad: bool, run: int | None
) -> FixedStretch:
    """One of constant bytes and of runs (with their widths)."""
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
