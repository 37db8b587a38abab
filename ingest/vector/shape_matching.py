"""Matching of a block's lines with a shape, and the positions of their digits."""

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
    """Return a word of eight equal bytes."""
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
    """Lines of a block that fit a shape, with begin and end of their runs.

    heads: first eight digit values of runs with varying width, except decimals
    """

    block: LineBlock
    shape: LineShape
    lines: Ints
    begins: dict[int, Ints]
    stops: dict[int, Ints]
    heads: dict[int, Words]

    def only(self, selected: Bools) -> WalkedMatch:
        """Return the match of the selected lines."""
        if selected.all():
            return self
        keep = np.flatnonzero(selected)
        begins, stops = (
            {r: positions[keep] for r, positions in by_run.items()}
            for by_run in (self.begins, self.stops)
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
        """Return the number of digits of a run: per line, or a single value for all."""
        least, most = self.shape.widths[run]
        if least == most:
            return np.array([least])
        width = self.stops[run] - self.begins[run]
        return width[:1] if (width == width[:1]).all() else width

    def values(self, run: int, skipped_digits: int = 0) -> Words:
        """Return the digit values of eight bytes, before the last `skipped_digits`.

        Zeros precede the digits of a shorter run.
        """
        width = self.width(run)
        if not skipped_digits and run in self.heads and width.max(initial=0) <= WORD_BYTES:
            return self.heads[run] << (WORD_BYTES - width).astype(np.uint64) * np.uint64(8)
        words = self.block.words[self.stops[run] - (WORD_BYTES + skipped_digits)]
        return np.asarray(words & LAST_DIGITS_MASKS[np.clip(width - skipped_digits, 0, WORD_BYTES)])

    def without_point(self, _: ShapeNumber) -> Words | None:
        """Return None: digits have no common width."""
        return None

    def written(self, number: ShapeNumber) -> list[TextViews]:
        """Return the text of a number, perhaps as a view of the block."""
        begins, stops = self.begins[number.first], self.stops[number.last]
        head = self.heads.get(number.first)
        if number.negative or head is None:
            return [view_texts(self.block, begins - number.negative, stops)]
        return [view_texts(self.block, begins, stops, head ^ ZERO_WORD)]

    def text(self, pieces: Sequence[str | ShapeNumber]) -> list[TextViews | pl.Series]:
        """Return the pieces of each line, joined."""
        if len(pieces) == 1 and not isinstance(pieces[0], str):
            (alone,) = self.written(pieces[0])
            if alone.data is None:  # a view would keep the block in memory
                return [alone]
        if not len(self.lines):
            return [pl.Series(dtype=pl.String)]
        spans = [piece if isinstance(piece, str) else self._span(piece) for piece in pieces]
        same = [
            piece.encode() if isinstance(piece, str) else self._alike(*piece) for piece in spans
        ]
        alike = [piece for piece in same if piece is not None]
        if len(alike) == len(same):
            return [join_fixed_texts(alike, len(self.lines))]
        return [
            join_texts(
                [piece if isinstance(piece, str) else self.block.texts(*piece) for piece in spans]
            )
        ]

    def _span(self, number: ShapeNumber) -> tuple[Ints, Ints]:
        """Return begin and end of a number's text in every line, including the sign."""
        return self.begins[number.first] - number.negative, self.stops[number.last]

    def _alike(self, begins: Ints, stops: Ints) -> Bytes | None:
        """Return the bytes between these positions if all lines have the same number.

        Typical for a number of steps. Copying rows of bytes takes less than half the time of
        joining.
        """
        width = int(stops[0] - begins[0])
        if not width or (stops - begins != width).any():
            return None
        rows = view_at_every_byte(self.block.bytes, np.dtype(f"V{width}"))[begins]
        return rows.view(np.uint8).reshape(len(begins), width)


@dataclass(slots=True)
class FixedMatch:
    """Lines that fit a shape of fixed widths.

    bytes: a row per line
    begin: index of the line's first byte in the row
    runs: begin and end of runs within the line
    """

    shape: LineShape
    lines: Ints
    bytes: Bytes
    begin: int
    runs: Mapping[int, tuple[int, int]]

    def only(self, selected: Bools) -> FixedMatch:
        """Return the match of the selected lines."""
        if selected.all():
            return self
        keep = np.flatnonzero(selected)
        return replace(self, lines=self.lines[keep], bytes=self.bytes[keep])

    def width(self, run: int) -> Ints:
        """Return the number of digits of a run, a single value for all lines."""
        begin, end = self.runs[run]
        return np.array([end - begin])

    def values(self, run: int, skipped_digits: int = 0) -> Words:
        """Return the digit values of eight bytes, before the last `skipped_digits`.

        Zeros precede the digits of a shorter run.
        """
        begin, end = self.runs[run]
        if end - begin <= skipped_digits:  # the row may have fewer bytes before the run
            return np.zeros(len(self.lines), np.uint64)
        return np.asarray(
            self._before(end - skipped_digits)
            & LAST_DIGITS_MASKS[min(end - begin - skipped_digits, WORD_BYTES)]
        )

    def without_point(self, number: ShapeNumber) -> Words | None:
        """Return the digit values before and after the point, if at most eight."""
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
        """Return the eight bytes before a position, of every line."""
        rows, size = self.bytes.shape
        return np.ndarray((rows,), "<u8", self.bytes, self.begin + end - WORD_BYTES, (size,))

    def written(self, number: ShapeNumber) -> list[TextViews]:
        """Return the text of a number."""
        return self.text([number])

    def text(self, pieces: Sequence[str | ShapeNumber]) -> list[TextViews]:
        """Return the pieces of each line, joined."""
        return [join_fixed_texts([self._part(piece) for piece in pieces], len(self.lines))]

    def _part(self, piece: str | ShapeNumber) -> TextPart:
        """Return the bytes of a piece: for all lines, or a row per line."""
        if isinstance(piece, str):
            return piece.encode()
        begin, end = self.runs[piece.first][0] - piece.negative, self.runs[piece.last][1]
        return self.bytes[:, self.begin + begin : self.begin + end]


@dataclass(slots=True)
class JoinedMatch:
    """Lines of one shape matched in several ways, one part after the other.

    All parts are decoded at once: a call of numpy costs as much as some hundred lines.
    """

    shape: LineShape
    lines: Ints
    parts: Sequence[WalkedMatch | FixedMatch]
    widths: dict[int, Ints] = field(default_factory=dict)

    def only(self, selected: Bools) -> JoinedMatch:
        """Return the match of the selected lines."""
        ends = np.cumsum([len(part.lines) for part in self.parts])
        chosen = zip(self.parts, np.split(selected, ends[:-1]), strict=True)
        return JoinedMatch(
            self.shape,
            self.lines[selected],
            [part.only(selected_lines) for part, selected_lines in chosen],
        )

    def width(self, run: int) -> Ints:
        """Return the number of digits of a run: per line, or a single value for all."""
        if run not in self.widths:
            widths = [part.width(run) for part in self.parts]
            if any(len(width) > 1 or width != widths[0] for width in widths):
                pairs = zip(widths, self.parts, strict=True)
                widths = [np.repeat(w, len(x.lines)) if len(w) == 1 else w for w, x in pairs]
                widths = [np.concatenate(widths)]
            self.widths[run] = widths[0]
        return self.widths[run]

    def values(self, run: int, skipped_digits: int = 0) -> Words:
        """Return the digit values of eight bytes, before the last `skipped_digits`.

        Zeros precede the digits of a shorter run.
        """
        return np.concatenate([part.values(run, skipped_digits) for part in self.parts])

    def without_point(self, number: ShapeNumber) -> Words | None:
        """Return the digit values before and after the point, if at most eight."""
        words = [part.without_point(number) for part in self.parts]
        present = [word for word in words if word is not None]
        return np.concatenate(present) if len(present) == len(words) else None

    def written(self, number: ShapeNumber) -> list[TextViews]:
        """Return the text of a number, perhaps as a view of the block."""
        return [text for part in self.parts for text in part.written(number)]

    def text(self, pieces: Sequence[str | ShapeNumber]) -> list[TextViews | pl.Series]:
        """Return the pieces of each line, joined."""
        return [joined for part in self.parts for joined in part.text(pieces)]


ShapeMatch = WalkedMatch | FixedMatch | JoinedMatch


def join_matches(shape: LineShape, parts: Iterable[WalkedMatch | FixedMatch]) -> ShapeMatch:
    """Return the parts, at least one, as a single match."""
    first, *others = sorted(parts, key=lambda part: not len(part.lines))
    some = [first, *(part for part in others if len(part.lines))]
    return (
        JoinedMatch(shape, np.concatenate([part.lines for part in some]), some)
        if some[1:]
        else first
    )


def match_shape(block: LineBlock, shape: LineShape, candidates: Bools) -> WalkedMatch | FixedMatch:
    """Return the match of the lines that fit the shape.

    candidates: True for lines that may fit
    """
    lines = lines_of_fitting_length(block, shape, candidates)
    if shape.is_fixed:
        return match_fixed(block, shape, lines)
    return match_walking(block, shape, lines_with_fitting_end(block, shape, lines))


def lines_of_fitting_length(block: LineBlock, shape: LineShape, candidates: Bools) -> Ints:
    """Return the lines of a length that the shape allows."""
    lengths = block.lengths
    return np.flatnonzero(candidates & (lengths >= shape.least) & (lengths <= shape.most))


def lines_with_fitting_end(block: LineBlock, shape: LineShape, lines: Ints) -> Ints:
    """Return the lines that end like the shape."""
    last = shape.stretches[-1]
    return lines[_stand(last, _words(block, last, block.ends[lines] - last.size)[:-1])]


def match_fixed(block: LineBlock, shape: LineShape, lines: Ints) -> FixedMatch:
    """Return the match of lines compared as a whole with a shape of fixed widths.

    lines: all as long as the shape
    """
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
    """Return True for rows with all bytes within their limits.

    limits: the minimum of every byte and the distance to the maximum, for as many adjacent rows as
    fit in the processor's cache
    """
    (lines, size), (least, more), flat = rows.shape, limits, rows.reshape(-1)
    good, over, wrong = np.ones(lines, bool), np.empty_like(least), np.empty(len(least), bool)
    for begin in range(0, len(flat), len(least)):
        part = flat[begin : begin + len(least)]
        end = len(part)
        np.subtract(part, least[:end], out=over[:end])  # smaller bytes wrap around to large values
        np.greater(over[:end], more[:end], out=wrong[:end])
        if wrong[:end].any():
            good[(begin + np.flatnonzero(wrong[:end])) // size] = False
    return good


def match_walking(block: LineBlock, shape: LineShape, lines: Ints) -> WalkedMatch:
    """Return the match of lines walked through from their starts.

    lines: all with the end of the shape
    """
    walked = WalkedMatch(block=block, shape=shape, lines=lines, begins={}, stops={}, heads={})
    position = block.starts[lines]
    good, head = np.ones(len(position), bool), np.zeros(len(position), np.uint64)
    for stretch in shape.stretches:
        if stretch.is_point:
            good &= block.bytes[position] == stretch.last
        else:
            words = _words(block, stretch, position)
            good &= _stand(stretch, words[:-1])
            head = words[-1]
        if not good.all():
            walked, position, head, good = walked.only(good), position[good], head[good], good[good]
        if not len(position):
            break
        for run, offset, digits in stretch.runs:
            walked.begins[run] = position + offset
            walked.stops[run] = walked.begins[run] + digits
            if run in shape.bare:
                good &= _may_begin(shape, run, block.bytes[position + offset], digits)
        position = position + stretch.size
        if stretch.pad and (head.astype(np.uint8) == BLANK_BYTE).any():
            position = position + _before(head ^ BLANK_WORD)
            head = block.words[position]
        if stretch.run is not None:
            position = _counted(
                walked, stretch.run, position, None if stretch.is_point else head, good
            )
    return walked.only(good & (position == block.ends[walked.lines]))


def _counted(walked: WalkedMatch, run: int, starts: Ints, head: Words | None, good: Bools) -> Ints:
    """Return the ends of a run that begins at `starts`; record its begin and end.

    Lines whose run cannot belong to the shape become False in `good`.

    head: the first eight bytes of the run, if known
    """
    width, (least, most) = _width(walked.block, starts), walked.shape.widths[run]
    good &= (width >= least) & (width <= min(most, DIGIT_WINDOW_BYTES - 1))
    if run in walked.shape.bare:
        first = walked.block.bytes[starts] if head is None else head.astype(np.uint8)
        good &= _may_begin(walked.shape, run, first, width)
    if head is not None:
        walked.heads[run] = head ^ ZERO_WORD
    walked.begins[run], walked.stops[run] = starts, starts + width
    return walked.stops[run]


def _may_begin(shape: LineShape, run: int, first: Bytes, width: Bytes | int) -> Bools:
    """Return whether a run in `bare` of this width may begin with this digit."""
    zero = first == ZERO_BYTE
    return np.asarray(~(zero & (width > 1)) if shape.bare[run] else ~zero)


def _words(block: LineBlock, stretch: FixedStretch, starts: Ints) -> Words:
    """Return the words of a stretch, and the word after: shape (words, lines).

    All words of a line are fetched together, as fast as a single word.
    """
    size = WORD_BYTES * len(stretch.words)
    rows = view_at_every_byte(block.bytes, np.dtype(f"V{size + WORD_BYTES}"))[
        starts + (stretch.size - size)
    ]
    return rows.view("<u8").reshape(len(starts), len(stretch.words) + 1).T


def _stand(stretch: FixedStretch, words: Words) -> Bools:
    """Return True for lines whose words are those of the stretch.

    words: shape (words, lines)
    """
    wrong = np.zeros(words.shape[1], np.uint64)
    for word, block_word in zip(stretch.words, words, strict=True):
        other = block_word ^ word.zeros
        if word.sixes:  # a carry comes only from a byte that is wrong already
            other |= other + word.sixes
        wrong |= other & word.kept
    return np.asarray(wrong == 0)


def _before(word: Words) -> Bytes:
    """Return the number of bytes before the first byte that is not 0."""
    return np.bitwise_count(~word & (word - ONE_WORD)) >> np.uint8(3)


def _width(block: LineBlock, starts: Ints) -> Bytes:
    """Return the number of digits here; DIGIT_WINDOW_BYTES or higher if more."""
    bits = block.no_digits(starts)
    return np.bitwise_count(~bits & (bits - ONE_WORD))
