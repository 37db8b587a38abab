"""Which lines of a block fit a shape, and where their digits stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import polars as pl

from ..core.arrays import Bools, Bytes, Ints, Words, view_at_every_byte
from .line_block import DIGIT_WINDOW_BYTES, LineBlock
from .shapes import WORD_BYTES, FixedStretch, LineShape, ShapeNumber
from .text_columns import TextPart, TextViews, join_fixed_texts, join_texts, view_texts


def _eight_of(byte: int) -> np.uint64:
    """A word of eight such bytes."""
    return np.uint64(int.from_bytes(bytes([byte]) * 8, "little"))


ZERO_BYTE: Final = 0x30
ZERO_WORD: Final = _eight_of(ZERO_BYTE)
BLANK_BYTE: Final = 0x20
BLANK_WORD: Final = _eight_of(BLANK_BYTE)
ONE_WORD: Final = np.uint64(1)
LAST_BYTES_MASKS: Final = np.array(
    [0, *(((1 << (8 * n)) - 1) << (64 - 8 * n) for n in range(1, 9))], dtype=np.uint64
)
"""The last n bytes of a word of eight."""
LAST_DIGITS_MASKS: Final = LAST_BYTES_MASKS & np.uint64(0x0F0F0F0F0F0F0F0F)


@dataclass(slots=True)
class WalkedMatch:
    """Lines of a block that fit a shape, and where each of their runs begins and ends.

    heads: of runs that are not as wide in all lines, but for decimals, the values of the first
    eight bytes.
    """

    block: LineBlock
    shape: LineShape
    lines: Ints
    begins: dict[int, Ints]
    stops: dict[int, Ints]
    heads: dict[int, Words]

    def only(self, selected: Bools) -> WalkedMatch:
        """The same of some of the lines."""
        if selected.all():
            return self
        keep = np.flatnonzero(selected)
        begins, stops = (
            {r: at[keep] for r, at in ats.items()} for ats in (self.begins, self.stops)
        )
        heads = {run: words[keep] for run, words in self.heads.items()}
        return WalkedMatch(
            block=self.block,
            shape=self.shape,
            lines=self.lines[keep],
            begins=begins,
            stops=stops,
            heads=heads,
        )

    def width(self, run: int) -> Ints:
        """Digits of the run, of each line, or the same of all."""
        least, most = self.shape.widths[run]
        if least == most:
            return np.array([least])
        width = self.stops[run] - self.begins[run]
        return width[:1] if (width == width[:1]).all() else width

    def values(self, run: int, skipped_digits: int = 0) -> Words:
        """Of its last eight digits but for so many; zeros where it has fewer."""
        width = self.width(run)
        if not skipped_digits and run in self.heads and width.max(initial=0) <= WORD_BYTES:
            return self.heads[run] << (WORD_BYTES - width).astype(np.uint64) * np.uint64(8)
        words = self.block.words[self.stops[run] - (WORD_BYTES + skipped_digits)]
        return np.asarray(words & LAST_DIGITS_MASKS[np.clip(width - skipped_digits, 0, WORD_BYTES)])

    def without_point(self, _: ShapeNumber) -> Words | None:
        """They may be as many as they like."""
        return None

    def written(self, number: ShapeNumber) -> list[TextViews]:
        """The text of a number; it may be a view of the block."""
        begins, stops = self.begins[number.first], self.stops[number.last]
        head = self.heads.get(number.first)
        if number.negative or head is None:
            return [view_texts(self.block, begins - number.negative, stops)]
        return [view_texts(self.block, begins, stops, head ^ ZERO_WORD)]

    def text(self, pieces: Sequence[str | ShapeNumber]) -> list[TextViews | pl.Series]:
        """Each line's pieces one behind the other."""
        if len(pieces) == 1 and not isinstance(pieces[0], str):
            (alone,) = self.written(pieces[0])
            if alone.data is None:  # else it would stay a view of the block
                return [alone]
        if not len(self.lines):
            return [pl.Series(dtype=pl.String)]
        spans = [one if isinstance(one, str) else self._span(one) for one in pieces]
        same = [one.encode() if isinstance(one, str) else self._alike(*one) for one in spans]
        alike = [one for one in same if one is not None]
        if len(alike) == len(same):
            return [join_fixed_texts(alike, len(self.lines))]
        return [
            join_texts([one if isinstance(one, str) else self.block.texts(*one) for one in spans])
        ]

    def _span(self, number: ShapeNumber) -> tuple[Ints, Ints]:
        """Where the text of a number begins and ends in each line, sign and all."""
        return self.begins[number.first] - number.negative, self.stops[number.last]

    def _alike(self, begins: Ints, stops: Ints) -> Bytes | None:
        """The bytes from each of these places to its other one, if they are as many in all lines.

        As of a number of steps: laid side by side in less than half the time of joining.
        """
        width = int(stops[0] - begins[0])
        if not width or (stops - begins != width).any():
            return None
        rows = view_at_every_byte(self.block.bytes, np.dtype(f"V{width}"))[begins]
        return rows.view(np.uint8).reshape(len(begins), width)


@dataclass(slots=True)
class FixedMatch:
    """Lines that fit a shape of fixed widths.

    bytes: of each line a row; begin: where in its row it begins; runs: where in it each begins and
    ends.
    """

    shape: LineShape
    lines: Ints
    bytes: Bytes
    begin: int
    runs: Mapping[int, tuple[int, int]]

    def only(self, selected: Bools) -> FixedMatch:
        """The same of some of the lines."""
        if selected.all():
            return self
        keep = np.flatnonzero(selected)
        return replace(self, lines=self.lines[keep], bytes=self.bytes[keep])

    def width(self, run: int) -> Ints:
        """Digits of the run, the same of all lines."""
        begin, end = self.runs[run]
        return np.array([end - begin])

    def values(self, run: int, skipped_digits: int = 0) -> Words:
        """Of its last eight digits but for so many; zeros where it has fewer."""
        begin, end = self.runs[run]
        if end - begin <= skipped_digits:  # then as many bytes may not stand before them in the row
            return np.zeros(len(self.lines), np.uint64)
        return np.asarray(
            self._before(end - skipped_digits)
            & LAST_DIGITS_MASKS[min(end - begin - skipped_digits, WORD_BYTES)]
        )

    def without_point(self, number: ShapeNumber) -> Words | None:
        """The values of the digits before and behind its point, if they are eight at most."""
        if number.decimals is None or len(number.whole) > 1:
            return None
        (begin, point), (first, end) = self.runs[number.first], self.runs[number.decimals]
        if first != point + 1 or end - begin > WORD_BYTES:
            return None
        words = self._before(end)
        whole = words & (LAST_DIGITS_MASKS[end - begin] ^ LAST_DIGITS_MASKS[end - point])
        whole <<= np.uint64(8)
        whole |= words & LAST_DIGITS_MASKS[end - first]
        return np.asarray(whole)

    def _before(self, end: int) -> Words:
        """The eight bytes before a place of each line."""
        rows, size = self.bytes.shape
        return np.ndarray((rows,), "<u8", self.bytes, self.begin + end - WORD_BYTES, (size,))

    def written(self, number: ShapeNumber) -> list[TextViews]:
        """The text of a number."""
        return self.text([number])

    def text(self, pieces: Sequence[str | ShapeNumber]) -> list[TextViews]:
        """Each line's pieces one behind the other."""
        return [join_fixed_texts([self._part(piece) for piece in pieces], len(self.lines))]

    def _part(self, piece: str | ShapeNumber) -> TextPart:
        """The bytes of a piece, of all lines or of each."""
        if isinstance(piece, str):
            return piece.encode()
        begin, end = self.runs[piece.first][0] - piece.negative, self.runs[piece.last][1]
        return self.bytes[:, self.begin + begin : self.begin + end]


@dataclass(slots=True)
class JoinedMatch:
    """Lines of one shape that were found in several ways: all of each, one behind the other.

    What is read of them is read at once: a call of numpy costs as much as some hundred lines.
    """

    shape: LineShape
    lines: Ints
    parts: Sequence[WalkedMatch | FixedMatch]
    widths: dict[int, Ints] = field(default_factory=dict)

    def only(self, selected: Bools) -> JoinedMatch:
        """The same of some of the lines."""
        ends = np.cumsum([len(part.lines) for part in self.parts])
        chosen = zip(self.parts, np.split(selected, ends[:-1]), strict=True)
        return JoinedMatch(
            self.shape, self.lines[selected], [part.only(its) for part, its in chosen]
        )

    def width(self, run: int) -> Ints:
        """Digits of the run, of each line, or the same of all."""
        if run not in self.widths:
            widths = [part.width(run) for part in self.parts]
            if any(len(width) > 1 or width != widths[0] for width in widths):
                each = zip(widths, self.parts, strict=True)
                widths = [np.repeat(w, len(x.lines)) if len(w) == 1 else w for w, x in each]
                widths = [np.concatenate(widths)]
            self.widths[run] = widths[0]
        return self.widths[run]

    def values(self, run: int, skipped_digits: int = 0) -> Words:
        """Of its last eight digits but for so many; zeros where it has fewer."""
        return np.concatenate([part.values(run, skipped_digits) for part in self.parts])

    def without_point(self, number: ShapeNumber) -> Words | None:
        """The values of the digits before and behind its point, if they are eight at most."""
        words = [part.without_point(number) for part in self.parts]
        there = [word for word in words if word is not None]
        return np.concatenate(there) if len(there) == len(words) else None

    def written(self, number: ShapeNumber) -> list[TextViews]:
        """The text of a number; it may be a view of the block."""
        return [one for part in self.parts for one in part.written(number)]

    def text(self, pieces: Sequence[str | ShapeNumber]) -> list[TextViews | pl.Series]:
        """Each line's pieces one behind the other."""
        return [one for part in self.parts for one in part.text(pieces)]


ShapeMatch = WalkedMatch | FixedMatch | JoinedMatch


def join_matches(shape: LineShape, parts: Iterable[WalkedMatch | FixedMatch]) -> ShapeMatch:
    """What was found in several ways, one at least."""
    first, *others = sorted(parts, key=lambda part: not len(part.lines))
    some = [first, *(part for part in others if len(part.lines))]
    return (
        JoinedMatch(shape, np.concatenate([part.lines for part in some]), some)
        if some[1:]
        else first
    )


def match_shape(block: LineBlock, shape: LineShape, candidates: Bools) -> WalkedMatch | FixedMatch:
    """The lines that fit the shape; candidates: which of them may."""
    lines = lines_of_fitting_length(block, shape, candidates)
    if shape.is_fixed:
        return match_fixed(block, shape, lines)
    return match_walking(block, shape, lines_with_fitting_end(block, shape, lines))


def lines_of_fitting_length(block: LineBlock, shape: LineShape, candidates: Bools) -> Ints:
    """The lines that are as long as the shape allows."""
    lengths = block.lengths
    return np.flatnonzero(candidates & (lengths >= shape.least) & (lengths <= shape.most))


def lines_with_fitting_end(block: LineBlock, shape: LineShape, lines: Ints) -> Ints:
    """Those of the lines that end as the shape does."""
    last = shape.stretches[-1]
    return lines[_stand(last, _words(block, last, block.ends[lines] - last.size)[:-1])]


def match_fixed(block: LineBlock, shape: LineShape, lines: Ints) -> FixedMatch:
    """Lines as long as a shape of fixed widths, each compared with it as a whole."""
    (stretch,) = shape.stretches
    size = WORD_BYTES * (1 + len(stretch.words))
    lead = size - stretch.size
    rows = view_at_every_byte(block.bytes, np.dtype(f"V{size}"))[block.starts[lines] - lead]
    data = rows.view(np.uint8).reshape(len(lines), size)
    good = _within(data, shape.limits)
    runs = {run: (offset, offset + width) for run, offset, width in stretch.runs}
    for run in shape.bare:
        good &= _may_begin(shape, run, data[:, lead + runs[run][0]], shape.widths[run][1])
    return FixedMatch(shape, lines, data, lead, runs).only(good)


def _within(rows: Bytes, limits: tuple[Bytes, Bytes]) -> Bools:
    """Whether all bytes of a row are among those that each may be.

    limits: the least of each, and how much more it may be, of as many rows side by side as stay in
    the processor's cache.
    """
    (lines, size), (least, more), flat = rows.shape, limits, rows.reshape(-1)
    good, over, wrong = np.ones(lines, bool), np.empty_like(least), np.empty(len(least), bool)
    for at in range(0, len(flat), len(least)):
        part = flat[at : at + len(least)]
        end = len(part)
        np.subtract(part, least[:end], out=over[:end])  # what is less is far over it
        np.greater(over[:end], more[:end], out=wrong[:end])
        if wrong[:end].any():
            good[(at + np.flatnonzero(wrong[:end])) // size] = False
    return good


def match_walking(block: LineBlock, shape: LineShape, lines: Ints) -> WalkedMatch:
    """Lines that are walked through from their starts; all of them end as the shape does."""
    found = WalkedMatch(block=block, shape=shape, lines=lines, begins={}, stops={}, heads={})
    at = block.starts[lines]
    good, head = np.ones(len(at), bool), np.zeros(len(at), np.uint64)
    for stretch in shape.stretches:
        if stretch.is_point:
            good &= block.bytes[at] == stretch.last
        else:
            words = _words(block, stretch, at)
            good &= _stand(stretch, words[:-1])
            head = words[-1]
        if not good.all():
            found, at, head, good = found.only(good), at[good], head[good], good[good]
        if not len(at):
            break
        for run, offset, digits in stretch.runs:
            found.begins[run] = at + offset
            found.stops[run] = found.begins[run] + digits
            if run in shape.bare:
                good &= _may_begin(shape, run, block.bytes[at + offset], digits)
        at = at + stretch.size
        if stretch.pad and (head.astype(np.uint8) == BLANK_BYTE).any():
            at = at + _before(head ^ BLANK_WORD)
            head = block.words[at]
        if stretch.run is not None:
            at = _counted(found, stretch.run, at, None if stretch.is_point else head, good)
    return found.only(good & (at == block.ends[found.lines]))


def _counted(found: WalkedMatch, run: int, at: Ints, head: Words | None, good: Bools) -> Ints:
    """Where a run ends that begins there, perhaps with the bytes of `head`.

    Lines are not good where it cannot be that of the shape.
    """
    width, (least, most) = _width(found.block, at), found.shape.widths[run]
    good &= (width >= least) & (width <= min(most, DIGIT_WINDOW_BYTES - 1))
    if run in found.shape.bare:
        first = found.block.bytes[at] if head is None else head.astype(np.uint8)
        good &= _may_begin(found.shape, run, first, width)
    if head is not None:
        found.heads[run] = head ^ ZERO_WORD
    found.begins[run], found.stops[run] = at, at + width
    return found.stops[run]


def _may_begin(shape: LineShape, run: int, first: Bytes, width: Bytes | int) -> Bools:
    """Whether so many digits may begin with this one, of a run that not every digit begins."""
    zero = first == ZERO_BYTE
    return np.asarray(~(zero & (width > 1)) if shape.bare[run] else ~zero)


def _words(block: LineBlock, stretch: FixedStretch, at: Ints) -> Words:
    """The words of a stretch that begins there, and the one behind it: (words, lines).

    All of a line are fetched together, which takes as long as one of them.
    """
    size = WORD_BYTES * len(stretch.words)
    rows = view_at_every_byte(block.bytes, np.dtype(f"V{size + WORD_BYTES}"))[
        at + (stretch.size - size)
    ]
    return rows.view("<u8").reshape(len(at), len(stretch.words) + 1).T


def _stand(stretch: FixedStretch, words: Words) -> Bools:
    """Whether the words (words, lines) are those of the stretch."""
    wrong = np.zeros(words.shape[1], np.uint64)
    for word, there in zip(stretch.words, words, strict=True):
        other = there ^ word.zeros
        if word.sixes:  # what it carries over is of a byte that is wrong already
            other |= other + word.sixes
        wrong |= other & word.kept
    return np.asarray(wrong == 0)


def _before(word: Words) -> Bytes:
    """How many bytes stand before the first that is not 0."""
    return np.bitwise_count(~word & (word - ONE_WORD)) >> np.uint8(3)


def _width(block: LineBlock, at: Ints) -> Bytes:
    """How many digits stand there; SEEN or more of more than that."""
    bits = block.no_digits(at)
    return np.bitwise_count(~bits & (bits - ONE_WORD))
