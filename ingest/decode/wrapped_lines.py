"""Join lines broken at a width: by a mail program, a terminal, a page's column.

A program that breaks at blanks fills a line with as many words as fit. So a break is visible: with
the first word of the next line, the line would be wider than all broken lines. The width is learned
from breaks where the joined line has more values (ingest.decode.known_lines). A line that begins a
record never continues another line.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from ..formats.spec import LAUNCHER_TAG
from .known_lines import known_lines
from .log_collectors import MakeUnwrap, Unwrap, UnwrappedLine

MIN_WIDTH: Final = 40
MAX_WIDTH: Final = 400
"""Characters of a broken line."""
MIN_PIECE_WIDTH: Final = 16
"""Characters of a broken line before a long word."""
MAX_GAP: Final = 3
"""Blanks between two words that a break removes."""
MAX_TRIED_BREAKS: Final = 20
"""Breaks that are tried at the start, and as many at the end."""
MIN_GAINING, MIN_FEW_GAINING = 3, 2
"""Joined lines that must gain values. If fewer than the first number do, at least a third of all
must.
"""
MAX_STRIPPED_BLANKS: Final = 10
"""Blanks at the end of a line that a terminal's copy drops."""
INDENT: Final = b"  "
"""No continuation at a blank begins like this."""
SAME_HEAD_BYTES: Final = 8
"""Two lines with the same first bytes are records of one kind; this rules out most breaks."""

_BEGINS: Final = re.compile(
    rb"[>\s]*(?:%s|\[[A-Z]\w*\]|.{0,63}?(?:\d{4}[-/]\d\d[-/]\d\d|\d\d/\d\d \d\d:\d\d)"
    rb"|\{['\"]|\*{3}|[-=]{3}|#|```|[A-Za-z_]\w* = )| {2,}[\w-]+ \.{3,} " % LAUNCHER_TAG.encode()
)
"""Start of a record: a tag, a stamp near the start, a dict, a heading, an argument, an assignment.
"""
_WORD: Final = re.compile(rb"\S*?[A-Za-z]-(?=[A-Za-z])|\S+")
"""An unbreakable unit; a break may follow a hyphen between two letters."""


class _Break(NamedTuple):
    """A place where a line may continue in the next: the possible widths [characters]."""

    least: int
    most: int


class WrappedLines:
    """Join lines broken at a blank within a range of widths, or hard at one width."""

    def __init__(self, least: int, most: int, *, at_blanks: bool) -> None:
        """Set up with the range of widths [characters]; a hard break uses `most` only."""
        self._least, self._most, self._at_blanks = least, most, at_blanks
        self._before = b""

    def __call__(self, line: bytes) -> UnwrappedLine:
        """Return a line, marked if it continues the previous line."""
        line, before = line.rstrip(b"\r"), self._before
        self._before = line
        if not self._is_broken(before, line):
            return UnwrappedLine(line)
        if self._at_blanks:
            hyphen = before[-1:] == b"-" and before[-2:-1] != b" " and line[:1].isalpha()
            blank = b"" if hyphen or before[-1:] == b" " else b" "
            return UnwrappedLine(blank + line.lstrip(b" "), continues=True)
        return UnwrappedLine(b" " * (self._most - _width(before)) + line, continues=True)

    def _is_broken(self, before: bytes, line: bytes) -> bool:
        """Return whether a line continues the previous one.

        False if joining adds no values.
        """
        widths = _break(before, line)
        if widths is None or not self._is_at_width(widths, before, line):
            return False
        return not known_lines().count(line) or _gains(before, self._between, line)

    @property
    def _between(self) -> bytes:
        return b" " if self._at_blanks else b""

    def _is_at_width(self, widths: _Break, before: bytes, line: bytes) -> bool:
        if self._at_blanks:
            fits = widths.least <= self._most and self._least <= widths.most
            return fits and not line.startswith(INDENT)
        width = _width(before)
        return width <= self._most <= width + MAX_STRIPPED_BLANKS and _width(line) <= self._most


def detect_wrapped_lines(lines: Sequence[bytes]) -> MakeUnwrap | None:
    """Return the joining of the lines, if they are broken at one width."""
    candidates = _after_another_kind(lines)
    best, most = None, 0
    for at_blanks in (False, True):  # at equal counts, hard breaks win: they are rarer
        possible = _at_blanks(lines, candidates) if at_blanks else _at_full_width(lines, candidates)
        between = b" " if at_blanks else b""
        gaining = [
            widths if at_blanks else _Break(full := _full_width(lines[index - 1]), full)
            for index, widths in _tried_breaks(lines, possible)
            if _gains(lines[index - 1], between, lines[index])
        ]
        if not gaining:
            continue
        made = partial(WrappedLines, *_widths(lines, gaining), at_blanks=at_blanks)
        if (count := _count_joined(lines, made)) > most:
            best, most = made, count
    return best


def _after_another_kind(lines: Sequence[bytes]) -> list[int]:
    """Return the indices of lines of another kind than the previous, long enough line."""
    head = SAME_HEAD_BYTES
    return [
        index
        for index in range(1, len(lines))
        if len(lines[index - 1]) >= MIN_WIDTH and lines[index - 1][:head] != lines[index][:head]
    ]


def _at_blanks(lines: Sequence[bytes], candidates: Sequence[int]) -> list[int]:
    """Return the candidates without an indent: a break removes its blanks."""
    return [index for index in candidates if not lines[index].startswith(INDENT)]


def _at_full_width(lines: Sequence[bytes], candidates: Sequence[int]) -> list[int]:
    """Return the candidates after a line as wide as the widest of all."""
    full = 0
    for line in lines:
        if len(line) > full:  # a line has at most as many characters as bytes
            full = max(full, _full_width(line))
    return [
        index
        for index in candidates
        if len(lines[index - 1]) >= full and _full_width(lines[index - 1]) == full
    ]


def _tried_breaks(lines: Sequence[bytes], candidates: Sequence[int]) -> list[tuple[int, _Break]]:
    """Return the first and the last breaks among the candidates."""
    first = _first_breaks(lines, candidates)
    if len(first) < MAX_TRIED_BREAKS:
        return first
    rest = candidates[bisect_right(candidates, first[-1][0]) :]
    return [*first, *reversed(_first_breaks(lines, reversed(rest)))]


def _first_breaks(lines: Sequence[bytes], indices: Iterable[int]) -> list[tuple[int, _Break]]:
    """Return the first breaks before lines with these indices, with the indices."""
    breaks = list[tuple[int, _Break]]()
    for index in indices:
        if (widths := _break(lines[index - 1], lines[index])) is not None:
            breaks.append((index, widths))
            if len(breaks) == MAX_TRIED_BREAKS:
                break
    return breaks


def _gains(before: bytes, between: bytes, line: bytes) -> bool:
    """Return whether two lines have more values joined, and are not two records."""
    return known_lines().gain_joined(before.rstrip(b"\r"), between, line.rstrip(b"\r"))


def _break(before: bytes, line: bytes) -> _Break | None:
    """Return the possible widths of a break between two lines; None if there is none."""
    if len(before) < MIN_PIECE_WIDTH or _BEGINS.match(line):
        return None
    before = before.rstrip()
    width, word = _width(before), _WORD.match(line.lstrip())
    if word is None or not MIN_PIECE_WIDTH <= width <= MAX_WIDTH:
        return None
    is_head_open = before.endswith((b" -", b"]", b"]:"))
    if not is_head_open and known_lines().begins_step(line):
        return None
    return _Break(width, width + MAX_GAP + _width(word[0]) - 1)


def _full_width(line: bytes) -> int:
    """Return the number of characters of a line, with blanks at its end."""
    return _width(line.rstrip(b"\r"))


def _width(text: bytes) -> int:
    """Return the number of characters."""
    return len(text) if text.isascii() else len(text.decode("utf-8", "replace"))


def _widths(lines: Sequence[bytes], gaining: Sequence[_Break]) -> tuple[int, int]:
    """Return the range of widths that fits most of these breaks, and no wider line."""
    ends = sorted({widths.least for widths in gaining})
    counts = [sum(widths.least <= end <= widths.most for widths in gaining) for end in ends]
    width = max(end for end, count in zip(ends, counts, strict=True) if count == max(counts))
    most = min(widths.most for widths in gaining if widths.least <= width <= widths.most)
    others = (_width(line) for line in lines if b" " in line.strip())  # no blank, no break
    return max(other for other in (width, *others) if other <= most), most


def _count_joined(lines: Sequence[bytes], made: MakeUnwrap) -> int:
    """Count the values of joined lines; 0 if one loses values, or too few gain any."""
    known, more, count, values = known_lines(), 0, 0, 0
    steps = 0  # steps that gain values, less those that do not: the next line is another record
    for whole, pieces in islice(_several(lines, made()), 2 * MAX_TRIED_BREAKS):
        count += 1
        before, now = sum(map(known.count, pieces)), known.count(whole)
        more, values = more + (now > before), values + now
        if known.begins_step(pieces[0]):
            steps += 1 if now > before else -1
        if now < before:
            return 0
    few = more >= MIN_FEW_GAINING and more * 3 >= count
    return values if steps >= 0 and (more >= MIN_GAINING or few) else 0


def _several(lines: Iterable[bytes], unwrap: Unwrap) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yield the joined lines of several pieces, with the pieces."""
    whole, pieces = b"", list[bytes]()
    for line in lines:
        piece = unwrap(line) or UnwrappedLine(line)
        if not piece.continues:
            if len(pieces) > 1:
                yield whole, pieces
            whole, pieces = b"", []
        whole += piece.text
        pieces.append(line)
    if len(pieces) > 1:
        yield whole, pieces
