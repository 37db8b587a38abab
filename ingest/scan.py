"""Many lines at once: lines that look alike but for their digits, read as the regexes read one.

The regexes of a format say what a line means; this room only makes them needed less often. A log
repeats a few shapes of line millions of times: the same bytes, but for runs of digits. So

    learn   a line that the regexes have read becomes a *shape*. What each of its runs of digits
            does is asked of the regexes themselves: a digit is changed, the line is read again, and
            what has become of the row tells (a column, with its factor; a stamp; a text).
            Widths and padding are tried likewise. Then the shape reads random lines of its own
            kind; one that is not read as the regexes read it, to the bit, discredits the shape.
    find    lines of a fitting length are walked through from their starts, all at once in numpy: a
            shape is fixed stretches, which are compared by words of eight bytes (and digits may be
            any), with numbers between them whose digits are counted.
    decode  digits are read eight at a time: 15 of them and a power of ten up to 22 are exact in a
            double, so that one division rounds as float() does. Longer ones, as repr() prints them,
            Polars reads, which rounds as float() does too (tests/test_scan.py holds it to that).

A line that fits no shape to the last byte, that has a number too long to be exact, or a date that
is none, is left to the regexes. Nothing here knows any format, and nothing depends on it.
"""

from __future__ import annotations

import random
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from ingest.clean import lines_of
from ingest.reader import NEWLINE

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]

RETURN, ZERO = 13, 48

EXACT_DIGITS: Final = 15
EXACT_POWER: Final = 22
"""10 to this power is a double; so is every whole number of EXACT_DIGITS digits."""
WHOLE_DIGITS: Final = 16
"""Digits of a whole number that are read; longer ones are left to the regexes."""
FEW_DIGITS: Final = 9
"""Digits of a number where more are not read alike."""
MOST_DECIMALS: Final = 24
"""As repr() prints some: 17 digits behind the zeros of a small number."""
MOST_PAD: Final = 8
"""Blanks before a number that may be more or fewer."""

LONGEST: Final = 4_000
"""Bytes of a line that may become a shape."""
MARGIN: Final = 64
"""Bytes before a block, so that what is read at its ends stays inside the array."""
BEHIND: Final = MARGIN + LONGEST
"""The same behind it: its last line is compared with shapes that may be longer."""
MOST_SHAPES: Final = 300
"""Of a format; a log whose lines have more is read by the regexes."""
SEEN_BEFORE: Final = 6
"""Lines alike before they are taken for a shape."""
COST: Final = 200
"""Lines that are read in the time that it takes to learn a shape, or to find that there is none."""
FREE: Final = 6
"""Shapes before their cost counts; then as many more lines have to be read one by one first: where
few lines are alike, as in a damaged log, they would be learned for nothing."""
SEEN_IN_VAIN: Final = 24
"""Lines alike after which no more of their kind are tried."""
MOST_SKELETONS: Final = 5_000
MANY_ALIKE: Final = 1_000
"""Lines of a block that are laid out alike, before they become a shape of fixed widths."""
MOST_FIXED: Final = 8
"""Of a format; the oldest is forgotten: a number that grows a digit lays all lines out anew."""
MIXED: Final = np.uint64(0x9E3779B97F4A7C15)
"""Factor of a hash of places."""
TRIALS: Final = 40
"""Random lines that a shape has to read as the regexes do."""

RUN: Final = re.compile(rb"[0-9]+")
NUMBER: Final = re.compile(
    rb"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?"
)
POWERS: Final = np.array([10.0**n for n in range(EXACT_POWER + 1)])


class Step(NamedTuple):
    """What the regexes read of a step line.

    form: its StepLine; printed: the names of its fields; row: all that it says.
    """

    form: Any
    printed: frozenset[str]
    row: dict[str, Any]


class Other(NamedTuple):
    """A line that no pattern knows; kind: as what it is counted."""

    kind: str


class Aside(NamedTuple):
    """A line that says an event, and nothing of the lines around it.

    row: of the event, but for its line and text; companion: whether it is a step of a companion.
    """

    row: dict[str, Any]
    companion: bool

    @property
    def form(self) -> bool:
        """What makes it another one than those of the same columns."""
        return self.companion

    @property
    def printed(self) -> frozenset[str]:
        """The row says it."""
        return frozenset()


class Idle(NamedTuple):
    """A line that is known, and states nothing."""


Row = Step | Aside
"""What can be read of many lines at once."""
Reading = Row | Idle | Other | None
"""None where the line is none of them, or where what it is depends on those before it."""
Read = Callable[[bytes], Reading]


# --- a block of lines ---------------------------------------------------------------------------


class Block:
    """Lines of a file."""

    def __init__(self, number: int, data: bytes) -> None:
        """number: of its first line; data: whole lines, each with its newline."""
        self.number, self.data = number, data
        size = len(data)
        self.bytes = np.empty(MARGIN + size + BEHIND, np.uint8)
        self.bytes[:MARGIN] = self.bytes[MARGIN + size :] = 0
        self.bytes[MARGIN : MARGIN + size] = np.frombuffer(data, np.uint8)
        self.words = _view(self.bytes, np.dtype("<u8"))
        newlines = _places(self.bytes, NEWLINE)
        self.starts: Ints = np.concatenate([[MARGIN], newlines[:-1] + 1])[: len(newlines)]
        self.ends: Ints = newlines - (self.bytes[newlines - 1] == RETURN) * (newlines > self.starts)
        self.lengths: Ints = self.ends - self.starts

    def __len__(self) -> int:
        return len(self.starts)

    def behind(self, line: int) -> Block:
        """The lines from that one (from 0) on."""
        if not line:
            return self
        return Block(self.number + line, self.data[int(self.starts[line]) - MARGIN :])

    def numbered(self, number: int) -> Block:
        """The same lines, of which the first one has that number."""
        other = copy(self)
        other.number = number
        return other

    def lines(self, which: Ints) -> pl.Series:
        """The bytes of these lines, each with its newline."""
        return lines_of(self.data, self.starts - MARGIN).gather(which)

    def raw(self, line: int) -> bytes:
        """The bytes of a line (from 0), without its newline."""
        stop = self.starts[line + 1] - 1 if line + 1 < len(self) else MARGIN + len(self.data) - 1
        return self.data[self.starts[line] - MARGIN : stop - MARGIN]

    def raws(self, lines: Ints) -> list[bytes]:
        """The same of several."""
        behind = np.append(self.starts[1:], MARGIN + len(self.data))[lines]
        spans = zip(
            (self.starts[lines] - MARGIN).tolist(), (behind - 1 - MARGIN).tolist(), strict=True
        )
        return [self.data[begin:stop] for begin, stop in spans]


WINDOW: Final = 256 * 1024
"""Bytes that stay in the processor's cache while they are looked at."""


def _places(data: NDArray[np.uint8], byte: int) -> Ints:
    """Where that byte stands."""
    found = [np.flatnonzero(data[at : at + WINDOW] == byte) for at in range(0, len(data), WINDOW)]
    return np.concatenate([places + at * WINDOW for at, places in enumerate(found)])


def _view(buffer: NDArray[np.uint8], kind: np.dtype[Any]) -> NDArray[Any]:
    """Items of that kind at every byte of `buffer`; they overlap."""
    return np.ndarray((len(buffer) - kind.itemsize + 1,), kind, buffer, 0, (1,))


# --- shapes -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Number:
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
class Value:
    """A column that a number fills. kind: int, float; factor: to the column's unit."""

    column: str
    number: Number
    kind: str
    factor: float | None


@dataclass(frozen=True, slots=True)
class Text:
    """A column of constant pieces and printed numbers by turns; None of no pieces is null."""

    column: str
    pieces: tuple[str | Number, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """Constant bytes behind a run (-1: at the start of the line), up to the run `before`.

    pad: as many blanks more may stand behind it; stop: it reaches to the end of the line.
    """

    behind: int
    text: bytes
    before: int | None
    pad: bool


@dataclass(frozen=True, slots=True)
class Word:
    """Eight bytes of a fixed stretch, as they are in memory.

    zeros: its bytes, with 0 for each digit; text: which of them have to be these; digits: the
    highest bit of those where any digit may stand.
    """

    zeros: np.uint64
    text: np.uint64
    digits: np.uint64


@dataclass(frozen=True, slots=True)
class Stretch:
    """What is as long in all lines of a shape, and what follows it.

    size: in bytes; words: its last ones are as many whole words, before them nothing matters. runs:
    offsets and widths of runs of digits in it. pad: as many blanks more may follow. run: of digits
    that follows; None where another stretch or the line's end does.
    """

    size: int
    words: tuple[Word, ...]
    runs: tuple[tuple[int, int, int], ...]
    pad: bool
    run: int | None


@dataclass(frozen=True)
class Shape:
    """Lines of the same bytes but for some runs of digits, and what those are."""

    pieces: tuple[Piece, ...]
    widths: Mapping[int, tuple[int, int]]
    """The least and the most digits of each run that is not constant."""
    stretches: tuple[Stretch, ...]
    """The pieces, with the runs of constant widths among them."""
    bare: Mapping[int, bool] = field(default_factory=dict)
    """Runs that no 0 may begin (JSON knows no 007), and whether it may be their only digit."""
    reading: type[Step | Aside] = Step
    form: Any = None
    printed: frozenset[str] = frozenset()
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What is the same in the row of each such line."""
    values: tuple[Value, ...] = ()
    texts: tuple[Text, ...] = ()
    stamp: tuple[int, ...] = ()
    """Runs of year, month, day, hour, minute, second and fraction; without a year none of it; or
    of a number that counts from 1970, and its fraction."""

    @property
    def is_fixed(self) -> bool:
        """Whether all of its lines are as long, and each run stands at the same place in them."""
        return len(self.stretches) == 1

    @cached_property
    def least(self) -> int:
        """Bytes of the shortest line."""
        return sum(len(p.text) for p in self.pieces) + sum(w for w, _ in self.widths.values())

    @cached_property
    def most(self) -> int:
        """Bytes of the longest line."""
        blanks = MOST_PAD * sum(piece.pad for piece in self.pieces)
        return self.least + blanks + sum(most - least for least, most in self.widths.values())


@dataclass(slots=True)
class Walked:
    """Lines of a block that fit a shape, and where each of their runs begins and ends.

    heads: of runs that are not as wide in all lines the values of the first eight bytes.
    """

    block: Block
    shape: Shape
    lines: Ints
    begins: dict[int, Ints]
    stops: dict[int, Ints]
    heads: dict[int, Words]

    def only(self, good: Bools) -> Walked:
        """The same of some of the lines."""
        if good.all():
            return self
        keep = np.flatnonzero(good)
        begins, stops = (
            {r: at[keep] for r, at in ats.items()} for ats in (self.begins, self.stops)
        )
        heads = {run: words[keep] for run, words in self.heads.items()}
        return Walked(self.block, self.shape, self.lines[keep], begins, stops, heads)

    def width(self, run: int) -> Ints:
        """Digits of the run, of each line."""
        return self.stops[run] - self.begins[run]

    def values(self, run: int, back: int = 0) -> Words:
        """Of its last eight digits but for so many; zeros where it has fewer."""
        width = self.width(run)
        if run in self.heads and width.max(initial=0) <= WORD:
            return self.heads[run] << (WORD - width).astype(np.uint64) * np.uint64(8)
        words = self.block.words[self.stops[run] - (WORD + back)]
        return np.asarray(words & LOW[np.clip(width - back, 0, WORD)])


@dataclass(slots=True)
class Sheet:
    """Lines that fit a shape of fixed widths.

    bytes: of each line a row; begin: where in its row it begins; runs: where in it each begins and
    ends.
    """

    shape: Shape
    lines: Ints
    bytes: NDArray[np.uint8]
    begin: int
    runs: Mapping[int, tuple[int, int]]

    def only(self, good: Bools) -> Sheet:
        """The same of some of the lines."""
        if good.all():
            return self
        keep = np.flatnonzero(good)
        return replace(self, lines=self.lines[keep], bytes=self.bytes[keep])

    def width(self, run: int) -> Ints:
        """Digits of the run, the same of all lines."""
        begin, end = self.runs[run]
        return np.array([end - begin])

    def values(self, run: int, back: int = 0) -> Words:
        """Of its last eight digits but for so many; zeros where it has fewer."""
        begin, end = self.runs[run]
        rows, size = self.bytes.shape
        at = self.begin + end - (WORD + back)
        words = np.ndarray((rows,), "<u8", self.bytes, at, (size,))
        return np.asarray(words & LOW[max(0, min(end - begin - back, WORD))])

    def printed(self, number: Number) -> NDArray[np.uint8]:
        """The bytes of a number, a row of each line."""
        begin, end = self.runs[number.first][0] - number.negative, self.runs[number.last][1]
        return self.bytes[:, self.begin + begin : self.begin + end]


Fit = Walked | Sheet


def fit(block: Block, shape: Shape, lines: Ints) -> Fit:
    """Those of `lines` that fit the shape."""
    lengths = block.lengths[lines]
    lines = lines[(lengths >= shape.least) & (lengths <= shape.most)]
    return (_lay if shape.is_fixed else _walk)(block, shape, lines)


def _lay(block: Block, shape: Shape, lines: Ints) -> Sheet:
    """Lines as long as a shape of fixed widths, each compared with it as a whole."""
    (stretch,) = shape.stretches
    size = WORD * (1 + len(stretch.words))
    lead = size - stretch.size
    rows = _view(block.bytes, np.dtype(f"V{size}"))[block.starts[lines] - lead]
    words = rows.view("<u8").reshape(len(lines), size // WORD)
    good = _stand(stretch, words[:, 1:].T)
    data = words.view(np.uint8)
    runs = {run: (offset, offset + width) for run, offset, width in stretch.runs}
    for run, alone in shape.bare.items():
        zero = data[:, lead + runs[run][0]] == ZERO
        good &= ~(zero & (shape.widths[run][1] > 1)) if alone else ~zero
    return Sheet(shape, lines, data, lead, runs).only(good)


def _walk(block: Block, shape: Shape, lines: Ints) -> Walked:
    """Lines that are walked through from their starts to their ends."""
    last = shape.stretches[-1]
    lines = lines[_stand(last, _words(block, last, block.ends[lines] - last.size)[:-1])]
    found, at = Walked(block, shape, lines, {}, {}, {}), block.starts[lines]
    for stretch in shape.stretches:
        words = _words(block, stretch, at)
        good, head = _stand(stretch, words[:-1]), words[-1]
        if not good.all():
            found, at, head = found.only(good), at[good], head[good]
        if not len(at):
            break
        for run, offset, digits in stretch.runs:
            found.begins[run] = at + offset
            found.stops[run] = found.begins[run] + digits
        at = at + stretch.size
        if stretch.pad:
            at = at + _before(head ^ BLANKS)
            head = block.words[at]
        if stretch.run is not None:
            values = head ^ ZEROS
            width = _width(block, at, values, shape.widths[stretch.run][1])
            found.begins[stretch.run], found.heads[stretch.run] = at, values
            found.stops[stretch.run] = at = at + width
    good = at == block.ends[found.lines]
    for run, (least, most) in shape.widths.items() if len(at) else ():
        width = found.width(run)
        if least != most:
            good &= (width >= least) & (width <= most)
        if run in shape.bare:
            zero = block.bytes[found.begins[run]] == ZERO
            good &= ~(zero & (width > 1)) if shape.bare[run] else ~zero
    return found.only(good)


def _bytes(byte: int) -> np.uint64:
    """A word of eight such bytes."""
    return np.uint64(int.from_bytes(bytes([byte]) * 8, "little"))


WORD: Final = 8
"""Bytes."""
ZEROS: Final = _bytes(ZERO)
BLANKS: Final = _bytes(0x20)
HIGH: Final = _bytes(0x80)
BELOW: Final = _bytes(0x7F)
OVER: Final = _bytes(0x80 - 10)
"""Added to a byte below 0x80 it sets the highest bit of what is no digit's value."""
ONE: Final = np.uint64(1)
LAST: Final = np.array(
    [0, *(((1 << (8 * n)) - 1) << (64 - 8 * n) for n in range(1, 9))], dtype=np.uint64
)
"""The last n bytes of a word of eight."""


def _words(block: Block, stretch: Stretch, at: Ints) -> NDArray[np.uint64]:
    """The words of a stretch that begins there, and the one behind it: (words, lines).

    All of a line are fetched together, which takes as long as one of them.
    """
    size = WORD * len(stretch.words)
    rows = _view(block.bytes, np.dtype(f"V{size + WORD}"))[at + (stretch.size - size)]
    return rows.view("<u8").reshape(len(at), len(stretch.words) + 1).T


def _stand(stretch: Stretch, words: NDArray[np.uint64]) -> Bools:
    """Whether the words (words, lines) are those of the stretch."""
    wrong = np.zeros(words.shape[1], np.uint64)
    for word, there in zip(stretch.words, words, strict=True):
        other = there ^ word.zeros
        wrong |= other & word.text
        if word.digits:
            wrong |= _no_digits(other) & word.digits
    return np.asarray(wrong == 0)


def _no_digits(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The highest bit of each byte that is not 0 to 9."""
    return np.asarray(((values & BELOW) + OVER | values) & HIGH)


def _before(word: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """How many bytes stand before the first that is not 0."""
    return np.bitwise_count(~word & (word - ONE)) >> np.uint8(3)


def _width(block: Block, at: Ints, values: Words, most: int) -> Ints:
    """How many digits stand there, as far as that matters; values: of the first eight bytes."""
    width = _before(_no_digits(values)).astype(np.int64)
    for seen in range(WORD, most, WORD):
        more = np.flatnonzero(width == seen)
        if not len(more):
            break
        width[more] += _before(_no_digits(block.words[at[more] + seen] ^ ZEROS))
    return width


# --- what their digits say ----------------------------------------------------------------------


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
    if shape.stamp:
        columns["logged_at"] = _stamps(found, shape.stamp, good)
    if not good.all():
        columns = {name: column[good] for name, column in columns.items()}
        found = found.only(good)
    for text in shape.texts:
        columns[text.column] = _text(found, text.pieces)
    return Decoded(found.lines, columns)


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


def _float(found: Fit, number: Number, good: Bools) -> NDArray[np.float64]:
    widths = (found.width(run) for run in number.mantissa)
    widest = int(sum(widths, np.zeros(1, np.int64)).max(initial=0))
    if len(number.whole) == 1 and widest > EXACT_DIGITS:
        return _printed(found, number, good)
    out = _divided(found, number, good)
    return -out if number.negative else out


def _whole(found: Fit, number: Number, good: Bools) -> tuple[Ints, Ints]:
    """The digits before the point, as a number, and how many they are."""
    first, *groups = number.whole
    digits = _digits(found, first, good)
    for run in groups:
        digits = digits * 1000 + _digits(found, run, good)
    return digits, found.width(first) + 3 * len(groups)


def _divided(found: Fit, number: Number, good: Bools) -> NDArray[np.float64]:
    """Numbers of few digits: these as a whole number, over or times a power of ten."""
    digits, count = _whole(found, number, good)
    places: Ints = np.zeros(1, np.int64)
    if number.decimals is not None:
        width = found.width(number.decimals)
        good &= width <= EXACT_DIGITS
        places = np.minimum(width[:1] if (width == width[:1]).all() else width, EXACT_DIGITS)
        digits = digits * TENS[places] + _digits(found, number.decimals, good)
        count = count + width
    good &= count <= EXACT_DIGITS
    floats = digits.astype(np.float64)
    if number.exponent is None:
        return np.asarray(floats / POWERS[places])
    power = number.exponent_sign * _digits(found, number.exponent, good) - places
    good &= np.abs(power) <= EXACT_POWER
    size = POWERS[np.minimum(np.abs(power), EXACT_POWER)]
    return np.asarray(np.where(power < 0, floats / size, floats * size))


def _printed(found: Fit, number: Number, good: Bools) -> NDArray[np.float64]:
    """Numbers of any length, each read from its text, signs and all; infinite ones are left out."""
    floats = _written(found, number).cast(pl.Float64, strict=False)
    out = (floats.fill_null(np.inf) if floats.null_count() else floats).to_numpy()
    good &= np.isfinite(out)
    return out


def _quoted(block: Block, begins: Ints, stops: Ints) -> pl.Series:
    """Texts of a block, as views of its bytes: where one is long, they hold all of it in memory."""
    sizes = (stops - begins).astype(np.uint64)
    head = block.words[begins]
    views = np.empty((len(begins), 2), np.uint64)
    views[:, 0] = sizes | head << np.uint64(32)
    views[:, 1] = begins.astype(np.uint64) << np.uint64(32)
    short = np.flatnonzero(sizes <= INLINE)
    if len(short):  # these stand in their views, with zeros behind them
        sizes, head = sizes[short], head[short]
        tail = head >> np.uint64(32) | block.words[begins[short] + 8] << np.uint64(32)
        low = head & np.uint64(0xFFFFFFFF) & FIRST[np.minimum(sizes, 4)]
        views[short, 0] = sizes | low << np.uint64(32)
        views[short, 1] = tail & FIRST[np.maximum(sizes, 4) - 4]
    buffers = [None, pa.py_buffer(views)]
    if len(short) < len(begins):
        buffers.append(pa.py_buffer(block.bytes))
    return pl.Series(pl.from_arrow(pa.Array.from_buffers(pa.string_view(), len(begins), buffers)))


INLINE: Final = 12
"""Bytes of a text that stand in its view."""
FIRST: Final = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)
"""The first n bytes of a word of eight."""

TENS: Final = np.array([10**n for n in range(EXACT_DIGITS + 1)], np.int64)
LOW: Final = LAST & np.uint64(0x0F0F0F0F0F0F0F0F)


def _digits(found: Fit, run: int, good: Bools) -> Ints:
    """The whole number of a run of digits, at most 16 of them."""
    width = found.width(run)
    widest = int(width.max(initial=0))
    if widest > WHOLE_DIGITS:
        good &= width <= WHOLE_DIGITS
    out = _eight(found.values(run))
    if widest > WORD:
        out = out + _eight(found.values(run, WORD)) * np.uint64(10**8)
    return np.asarray(out, np.uint64).astype(np.int64)


def _eight(word: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Eight digits, the first one in the lowest byte, as the number that they write."""
    word = (word * np.uint64(10) + (word >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    word = (word * np.uint64(100) + (word >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    return (word * np.uint64(10000) + (word >> np.uint64(32))) & np.uint64(0xFFFFFFFF)


EPOCH: Final = 2
"""Runs of a stamp that counts from 1970, at most: a fraction may be one of them."""
SECONDS: Final = 10
"""Digits of its seconds; three more are of milliseconds, six more of microseconds."""
NO_YEAR: Final = 5
"""Runs of a stamp without year: month, day, hour, minute, second."""
YEARS: Final = range(1970, 2971)
"""A stamp of another year is none: a time next to the last one that there is breaks arithmetic."""
YEAR_UNKNOWN: Final = 2000
"""Stands for the year of stamps that have none: a leap year, so that 29 February parses."""


def _stamps(found: Fit, runs: Sequence[int], good: Bools) -> NDArray[Any]:
    if len(runs) <= EPOCH:
        return _since_epoch(found, runs, good)
    parts = [_digits(found, run, good) for run in runs]
    if len(parts) == NO_YEAR:
        parts = [np.full(len(parts[0]), YEAR_UNKNOWN), *parts]
    year, month, day, hour, minute, second, *fraction = parts
    good &= (hour < 24) & (minute < 60) & (second < 60)  # noqa: PLR2004 - of a day
    microseconds = ((hour * 60 + minute) * 60 + second) * 1_000_000
    if fraction:
        width = found.width(runs[-1])
        good &= width <= 6  # noqa: PLR2004 - microseconds
        microseconds += fraction[0] * TENS[np.clip(6 - width, 0, 6)]
    dates = (year * 100 + month) * 100 + day
    return (microseconds + _midnights(dates, good)).astype("datetime64[us]")


def _since_epoch(found: Fit, runs: Sequence[int], good: Bools) -> NDArray[Any]:
    """Seconds with a fraction, or milliseconds, or microseconds: rounded as fromtimestamp does."""
    number = Number((runs[0],), runs[1] if len(runs) > 1 else None, None, 1, negative=False)
    width, _ = found.shape.widths[runs[0]]
    seconds = _float(found, number, good) / POWERS[width - SECONDS]
    return from_epoch(seconds).astype("datetime64[us]")


def from_epoch(seconds: Floats) -> Ints:
    """Microseconds since 1970, rounded as datetime.fromtimestamp does it."""
    fraction, whole = np.modf(seconds)
    return np.asarray(whole.astype(np.int64) * 1_000_000 + np.rint(fraction * 1e6).astype(np.int64))


def _midnights(dates: Ints, good: Bools) -> Ints:
    """Of dates such as 20261120 the microseconds since 1970."""
    if not len(dates):
        return dates
    if (dates == dates[0]).all():
        found, which = dates[:1], np.zeros(len(dates), np.int64)
    else:
        found, which = np.unique(dates, return_inverse=True)
    at = [_midnight(int(date)) for date in found]
    good &= np.array([one is not None for one in at])[which]
    return np.array([one or 0 for one in at], np.int64)[which]


def _midnight(date: int) -> int | None:
    if date // 10_000 not in YEARS:
        return None
    try:
        day = datetime(date // 10_000, date // 100 % 100, date % 100, tzinfo=UTC)
    except ValueError:
        return None
    return (day - datetime(1970, 1, 1, tzinfo=UTC)).days * 86_400_000_000


def _is_view(texts: pl.Series) -> bool:
    return bool((texts.str.len_bytes() > INLINE).any())


def _written(found: Fit, number: Number) -> pl.Series:
    """The text of a number; it may be a view of the block."""
    if isinstance(found, Sheet):
        return _laid(found, [number])
    begins, stops = found.begins[number.first], found.stops[number.last]
    return _quoted(found.block, begins - number.negative, stops)


def _text(found: Fit, pieces: Sequence[str | Number]) -> pl.Series:
    """Each line's pieces one behind the other."""
    if isinstance(found, Sheet):
        return _laid(found, pieces)
    parts = [piece if isinstance(piece, str) else _written(found, piece) for piece in pieces]
    if len(parts) == 1 and not isinstance(parts[0], str) and not _is_view(parts[0]):
        return parts[0]
    said = pl.concat_str(
        *map(pl.lit, parts), pl.lit("")
    )  # one alone would stay a view of the block
    return pl.select(said).to_series() if len(found.lines) else pl.Series(dtype=pl.String)


def _laid(found: Sheet, pieces: Sequence[str | Number]) -> pl.Series:
    """The same, which is as long in all lines."""
    rows = len(found.lines)
    parts = [
        np.frombuffer(piece.encode(), np.uint8) if isinstance(piece, str) else found.printed(piece)
        for piece in pieces
    ]
    text = np.concatenate([np.broadcast_to(part, (rows, part.shape[-1])) for part in parts], axis=1)
    size = text.shape[1]
    views = np.zeros((rows, 4), np.uint32)
    views[:, 0] = size
    inside = min(size, 4 if size > INLINE else INLINE)
    views.view(np.uint8)[:, 4 : 4 + inside] = text[:, :inside]
    buffers = [None, pa.py_buffer(views)]
    if size > INLINE:
        views[:, 3] = np.arange(0, rows * size, size)
        buffers.append(pa.py_buffer(text))
    return pl.Series(pl.from_arrow(pa.Array.from_buffers(pa.string_view(), rows, buffers)))


# --- learning -----------------------------------------------------------------------------------


def learn(raw: bytes, read: Read, rng: random.Random) -> Shape | None:
    """The shape of a line; None where the regexes do not read lines of its kind alike."""
    if len(raw) > LONGEST or not raw.isascii() or b"\0" in raw:
        return None
    base = read(raw)
    if not isinstance(base, Step | Aside):
        return None
    shape = _Learner(raw, base, read, rng).shape()
    return shape if shape is not None and _believed(shape, raw, read, rng) else None


def _runs(raw: bytes) -> list[tuple[int, int]]:
    return [match.span() for match in RUN.finditer(raw)]


def _pieces(
    raw: bytes,
    runs: Sequence[tuple[int, int]],
    variable: Iterable[int],
    padded: Collection[int],
) -> tuple[Piece, ...]:
    """The constant bytes between the runs that vary; constant runs are among them."""
    out: list[Piece] = []
    behind, begin = -1, 0
    for run in sorted(variable):
        text, pad = raw[begin : runs[run][0]], run in padded
        if pad:
            bare = text.rstrip(b" ")
            text = text[: max(len(bare) + 1, len(text) - MOST_PAD)]
        out.append(Piece(behind, text, run, pad))
        behind, begin = run, runs[run][1]
    out.append(Piece(behind, raw[begin:].removesuffix(b"\r"), None, pad=False))
    return tuple(out)


def _stretches(
    pieces: Sequence[Piece], widths: Mapping[int, tuple[int, int]]
) -> tuple[Stretch, ...]:
    """The pieces put together with the runs between them that are as wide in all lines."""
    out: list[Stretch] = []
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


def narrowed(found: Walked, line: int) -> Shape:
    """The shape of those lines alone whose runs are as wide and as padded as those of this one."""
    shape, pieces = found.shape, []
    begins, stops = (
        {r: int(at[line]) for r, at in ats.items()} for ats in (found.begins, found.stops)
    )
    stops[-1] = int(found.block.starts[found.lines[line]])
    for piece in shape.pieces:
        if piece.before is None:
            pieces.append(piece)
            continue
        blanks = begins[piece.before] - stops[piece.behind] - len(piece.text)
        pieces.append(replace(piece, text=piece.text + b" " * blanks, pad=False))
    widths = {run: (stops[run] - begins[run],) * 2 for run in shape.widths}
    return replace(shape, pieces=tuple(pieces), widths=widths, stretches=_stretches(pieces, widths))


SAME, DIGIT = b"=", b"0"
"""What a byte of a stretch is: as in the shape, or any digit."""


def _stretch(parts: Iterable[bytes | tuple[int, int]], *, pad: bool, run: int | None) -> Stretch:
    """One of constant bytes and of runs (with their widths)."""
    text, marks = b"", b""
    runs: list[tuple[int, int, int]] = []
    for part in parts:
        if isinstance(part, tuple):
            runs.append((part[0], len(text), part[1]))
            text, marks = text + b"0" * part[1], marks + DIGIT * part[1]
        else:
            text, marks = text + part, marks + SAME * len(part)
    size = -(-len(text) // WORD) * WORD
    words = [
        _word(text.rjust(size, b"\0")[at : at + WORD], marks.rjust(size)[at : at + WORD])
        for at in range(0, size, WORD)
    ]
    return Stretch(len(text), tuple(words), tuple(runs), pad, run)


def _word(text: bytes, marks: bytes) -> Word:
    """Eight bytes of a stretch, or before it."""
    same = bytes(0xFF if mark == SAME[0] else 0 for mark in marks)
    digits = bytes(0x80 if mark == DIGIT[0] else 0 for mark in marks)
    return Word(*(np.uint64(int.from_bytes(part, "little")) for part in (text, same, digits)))


Effects = tuple[list[Value], list[tuple[str, int, int]]]
"""Columns that a number fills, and the texts in which it stands (column, from, to)."""


class _Learner:
    """Finds out what the runs of digits of one line do, by having it read with others."""

    def __init__(self, raw: bytes, base: Row, read: Read, rng: random.Random) -> None:
        self.raw, self.base, self.read, self.rng = raw, base, read, rng
        self.runs = _runs(raw)
        self.place = {begin: index for index, (begin, _) in enumerate(self.runs)}
        self.widths: dict[int, tuple[int, int]] = {}
        self.padded: set[int] = set()
        self.bare: dict[int, bool] = {}
        self.values: list[Value] = []
        self.texts: dict[str, list[tuple[int, int, Number]]] = {}

    def shape(self) -> Shape | None:
        """What is not found to fill a column is constant."""
        stamp = self._stamp()
        if (self.base.row["logged_at"] is None) != (not stamp):
            return None
        hidden = bytearray(self.raw)
        for run in stamp:
            begin, end = self.runs[run]
            hidden[begin:end] = b"x" * (end - begin)
            self.widths[run] = end - begin, end - begin
        if len(stamp) == EPOCH:
            begin, end = self.runs[stamp[1]]
            self.widths[stamp[1]] = self._widths(
                stamp[1], lambda text: self._with(begin, end, text) is not None, MOST_DECIMALS
            )
        for match in NUMBER.finditer(bytes(hidden)):
            if match.start() in self.place:
                self._number(match)
        moving = {value.column for value in self.values} | set(self.texts)
        moving |= {"logged_at"} if stamp else set()
        pieces = _pieces(self.raw, self.runs, self.widths, self.padded)
        return Shape(
            pieces=pieces,
            widths=self.widths,
            stretches=_stretches(pieces, self.widths),
            bare=self.bare,
            reading=type(self.base),
            form=self.base.form,
            printed=self.base.printed,
            fields={n: value for n, value in self.base.row.items() if n not in moving},
            values=tuple(self.values),
            texts=tuple(self._text(column) for column in self.texts),
            stamp=stamp,
        )

    def _with(self, begin: int, end: int, text: bytes) -> Row | None:
        """The line read with another text there; None where it is read as another line."""
        now = self.read(self.raw[:begin] + text + self.raw[end:])
        if not isinstance(now, type(self.base)) or now.form is not self.base.form:
            return None
        alike = now.printed == self.base.printed and now.row.keys() == self.base.row.keys()
        return now if alike else None

    def _stamp(self) -> tuple[int, ...]:
        """Runs of the time stamp; none where they are not those of a date and a time."""
        before, found = self.base.row["logged_at"], []
        for index, (begin, end) in enumerate(self.runs if before else ()):
            others = (self._with(begin, end, text) for text in _nudged(self.raw[begin:end]))
            if any(now and now.row["logged_at"] not in (None, before) for now in others):
                found.append(index)
        in_a_row = found == list(range(found[0], found[0] + len(found))) if found else False
        width = self.runs[found[0]][1] - self.runs[found[0]][0] if found else 0
        counts = len(found) <= EPOCH and width in (SECONDS, SECONDS + 3, SECONDS + 6)
        return tuple(found) if in_a_row and (counts or NO_YEAR <= len(found) <= NO_YEAR + 2) else ()

    def _number(self, match: re.Match[bytes]) -> None:
        """What a printed number does, and how it may be printed; else its digits are constant."""
        parts = re.fullmatch(rb"([\d,]+)(?:\.(\d+))?(?:[eE]([-+]?)(\d+))?", match[0])
        assert parts is not None  # noqa: S101 - NUMBER is made so
        begin = match.start()
        before = self.raw[max(0, begin - 2) : begin]
        number = Number(
            whole=tuple(self.place[begin + run.start()] for run in RUN.finditer(parts[1])),
            decimals=self.place[begin + parts.start(2)] if parts[2] else None,
            exponent=self.place[begin + parts.start(4)] if parts[4] else None,
            exponent_sign=-1 if parts[3] == b"-" else 1,
            negative=before.endswith(b"-") and not before[:-1].isalnum(),
        )
        effects = self._effects(number)
        if effects is None or not any(effects):
            return  # digits that do nothing may be half of a stamp, with others a whole one
        self.values += effects[0]
        for column, start, stop in effects[1]:
            self.texts.setdefault(column, []).append((start, stop, number))
        for run in range(number.first, number.last + 1):
            width = self.runs[run][1] - self.runs[run][0]
            self.widths[run] = width, width
        if len(number.whole) == 1:
            alike = partial(self._does, effects, number, number.first)
            self.widths[number.first] = self._widths(number.first, alike)
            if not alike(b"0".ljust(self.widths[number.first][1], b"1")):
                self.bare[number.first] = alike(b"0")
        if number.decimals is not None:
            alike = partial(self._does, effects, number, number.decimals)
            self.widths[number.decimals] = self._widths(number.decimals, alike, MOST_DECIMALS)
        if self._may_be_padded(number):
            self.padded.add(number.first)

    def _effects(self, number: Number) -> Effects | None:
        """What it does with other digits; None where it does more than a shape can tell."""
        begin, end = self.runs[number.first][0], self.runs[number.last][1]
        was = self.raw[begin:end]
        found: list[Effects | None] = []
        for _ in range(2):
            text = _other_digits(was, self.rng)
            if number.exponent is not None:  # a power that no machine has would be an infinity
                tail = self.runs[number.exponent][0] - begin
                text = text[:tail] + was[tail:]
            found.append(self._effects_of(number, text))
        return found[0] if found[0] == found[1] else None

    def _effects_of(self, number: Number, text: bytes) -> Effects | None:
        """What it does where it is printed so."""
        begin, end = self.runs[number.first][0], self.runs[number.last][1]
        now = self._with(begin, end, text)
        was = self.raw[begin:end].decode()
        return None if now is None else self._said(number, now, was, text.decode())

    def _said(self, number: Number, now: Row, before: str, after: str) -> Effects | None:
        """What has become of the row where the number was changed."""
        sign = "-" if number.negative else ""
        values: list[Value] = []
        texts: list[tuple[str, int, int]] = []
        for name, was in self.base.row.items():
            is_ = now.row[name]
            if same(was, is_):
                continue
            if isinstance(was, str) and isinstance(is_, str):
                place = _place(was, is_, sign + before, sign + after)
                if place is None:
                    return None
                texts.append((name, *place))
                continue
            value = _how(name, number, [(was, sign + before), (is_, sign + after)])
            if value is None:
                return None
            values.append(value)
        return values, texts

    def _widths(
        self, run: int, alike: Callable[[bytes], bool], longest: int = WHOLE_DIGITS
    ) -> tuple[int, int]:
        """The least and the most digits of a run; alike: whether the line is as with others."""
        begin, end = self.runs[run]
        digit = b"2" if self.raw[begin:end].startswith(b"1") else b"1"  # not the one that it has
        width = end - begin
        least = 1 if width == 1 or alike(digit) else width
        most = (most for most in (longest, FEW_DIGITS) if width <= most and alike(most * digit))
        return least, next(most, width)

    def _does(self, effects: Effects, number: Number, run: int, text: bytes) -> bool:
        """Whether the number has these effects where one of its runs is printed so."""
        whole, (begin, end) = self.runs[number.first][0], self.runs[run]
        before, after = self.raw[whole:begin], self.raw[end : self.runs[number.last][1]]
        same = text == self.raw[begin:end]
        return same or self._effects_of(number, before + text + after) == effects

    def _may_be_padded(self, number: Number) -> bool:
        """Whether blanks before the number may be more or fewer."""
        begin = self.runs[number.first][0]
        if number.negative or self.raw[begin - 1 : begin] != b" ":
            return False
        fewer = self.raw[begin - 2 : begin] == b"  "
        return self._alike(begin, begin, b" ") and (not fewer or self._alike(begin - 1, begin, b""))

    def _alike(self, begin: int, end: int, text: bytes) -> bool:
        """Whether the line says the same with another text there."""
        now = self._with(begin, end, text)
        return now is not None and all(same(now.row[name], self.base.row[name]) for name in now.row)

    def _text(self, column: str) -> Text:
        pieces: list[str | Number] = []
        whole, at = str(self.base.row[column]), 0
        for begin, end, number in sorted(self.texts[column], key=itemgetter(0)):
            pieces += [whole[at:begin], number]
            at = end
        return Text(column, tuple(piece for piece in (*pieces, whole[at:]) if piece != ""))


def _nudged(text: bytes) -> Iterator[bytes]:
    """Other numbers of as many digits; one is a day, a month or an hour where the first was.

    The month before one of 31 days may have fewer, and a year beside a leap year no 29 February.
    """
    value = int(text)
    for other in (value - 1, value + 1, value + 4, 1):
        if other > 0 and other != value:
            yield str(other).zfill(len(text)).encode()


def _other_digits(text: bytes, rng: random.Random) -> bytes:
    """Another number of the same form: each digit is another one, the first not 0."""
    digits = (
        rng.choice(sorted({*DIGITS[index == 0 :]} - {byte})) for index, byte in enumerate(text)
    )
    return bytes(
        digit if byte in DIGITS else byte for byte, digit in zip(text, digits, strict=True)
    )


DIGITS: Final = b"0123456789"


def _place(was: str, is_: str, before: str, after: str) -> tuple[int, int] | None:
    """Where in a text the number stands, if nothing else of it has changed."""
    first = next((i for i, (a, b) in enumerate(zip(was, is_, strict=False)) if a != b), len(was))
    for at in range(first, max(-1, first - len(before)), -1):
        end = at + len(before)
        if was[at:end] == before and was[:at] + after + was[end:] == is_:
            return at, end
    return None


FACTORS: Final = (0.01, 0.001, 1e-6, 1000.0, 1e6, 1e9, 1024.0, 1024.0**2, 1024.0**3)
"""Of units to those of columns."""


def _how(name: str, number: Number, pairs: Sequence[tuple[object, str]]) -> Value | None:
    """How a number becomes a column; pairs: of the column and the number as printed."""
    if all(type(value) is int for value, _ in pairs):
        same = all(value == float(text.replace(",", "")) for value, text in pairs)
        return Value(name, number, "int", None) if same else None
    if all(type(value) is float for value, _ in pairs):
        floats = [(value, float(text.replace(",", ""))) for value, text in pairs]
        for factor in (None, *FACTORS):
            if all(value == (x if factor is None else x * factor) for value, x in floats):
                return Value(name, number, "float", factor)
    return None


# --- trust --------------------------------------------------------------------------------------


def _believed(shape: Shape, raw: bytes, read: Read, rng: random.Random) -> bool:
    """Whether the shape reads the line, and random ones of its kind, as the regexes do."""
    lines = [raw, *(_drawn(shape, rng) for _ in range(TRIALS))]
    block = Block(0, b"".join(line + b"\n" for line in lines))
    found = fit(block, shape, np.arange(len(block)))
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
    return type(one) is type(other) and repr(one) == repr(other)


def _drawn(shape: Shape, rng: random.Random) -> bytes:
    """A line of that shape with other digits, widths and padding."""
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
    return first + "".join(rng.choice("0123456789") for _ in range(width - 1))


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


# --- all shapes of a format ---------------------------------------------------------------------


class Shapes:
    """What was learned of the lines of one format (with its companions), for all its files."""

    def __init__(self) -> None:
        self.known: list[Shape] = []
        self.fixed: deque[Shape] = deque(maxlen=MOST_FIXED)
        self._seen: Counter[bytes] = Counter()
        self._alone = self._tried = 0
        self._rng = random.Random(7)  # noqa: S311 - lines to try

    def see(self, raw: bytes, read: Read) -> Shape | None:
        """A line that no shape fits; the shape that it becomes, if it does."""
        self._alone += 1
        if len(self.known) >= MOST_SHAPES or self._tried >= FREE + self._alone // COST:
            return None
        skeleton = RUN.sub(b"0", raw[:400])
        if skeleton not in self._seen and len(self._seen) >= MOST_SKELETONS:
            return None
        self._seen[skeleton] += 1
        seen = self._seen[skeleton]
        if not SEEN_BEFORE <= seen <= SEEN_IN_VAIN:
            return None
        shape = learn(raw, read, self._rng)
        self._tried += 1
        if shape is not None:
            self.known.append(shape)
        return shape

    def narrow(self, found: Fit, read: Ints) -> None:
        """From now on try first how most of the lines that were read are laid out."""
        if isinstance(found, Sheet) or len(read) < MANY_ALIKE:
            return
        found = found.only(np.isin(found.lines, read))
        starts, key = found.block.starts[found.lines], np.zeros(len(found.lines), np.uint64)
        for at in (*found.begins.values(), *found.stops.values()):
            key = key * MIXED + (at - starts).astype(np.uint64)
        _, lines, counts = np.unique(key, return_index=True, return_counts=True)
        for line in lines[counts >= MANY_ALIKE].tolist():
            self.fixed.append(narrowed(found, line))
