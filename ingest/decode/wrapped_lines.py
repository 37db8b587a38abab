"""Lines that were broken at a width, put together: by a mail program, a terminal, a page's column.

Who breaks at blanks puts into each line as many words as fit. So a break shows by itself: with the
first word of the next line the one before would be wider than all broken ones are. The width is
learned from breaks behind which some line says more (ingest.decode.known_lines); a line that begins
a record is never the rest of another one.
"""

from __future__ import annotations

import re
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
"""Of one that a long word follows."""
MAX_GAP: Final = 3
"""Blanks between two words that go where a line is broken between them."""
MAX_TRIED_BREAKS: Final = 20
"""Of the first, and of the last."""
MIN_GAINING, MIN_FEW_GAINING = 3, 2
"""Lines that say more when they are put together: where they are few, a third of all at least."""
MAX_STRIPPED_BLANKS: Final = 10
"""Blanks at the end of a line that a copy of a terminal leaves out."""
INDENT: Final = b"  "
"""Begins no line that was broken at blanks."""
SAME_HEAD_BYTES: Final = 8
"""Lines that begin with the same ones are records of one kind; most breaks of a log are ruled out
by that."""

_BEGINS: Final = re.compile(
    rb"[>\s]*(?:%s|\[[A-Z]\w*\]|.{0,63}?(?:\d{4}[-/]\d\d[-/]\d\d|\d\d/\d\d \d\d:\d\d)"
    rb"|\{['\"]|\*{3}|[-=]{3}|#|```|[A-Za-z_]\w* = )| {2,}[\w-]+ \.{3,} " % LAUNCHER_TAG.encode()
)
"""How a record begins: by a tag, a stamp near its beginning, a dict, a heading, an
argument, an assignment."""
_WORD: Final = re.compile(rb"\S*?[A-Za-z]-(?=[A-Za-z])|\S+")
"""What is not broken; a hyphen between two letters may be."""


class _Break(NamedTuple):
    """Where one line may go on in the next: widths at which it is broken there, in characters."""

    least: int
    most: int


class WrappedLines:
    """Lines that are broken at one of some widths, or hard at the first, each as one."""

    def __init__(self, least: int, most: int, *, at_blanks: bool) -> None:
        """Nothing is open yet."""
        self._least, self._most, self._at_blanks = least, most, at_blanks
        self._before = b""

    def __call__(self, line: bytes) -> UnwrappedLine:
        """A line; what goes on with the one before says so."""
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
        """Whether a line goes on with the one before: not if it says as much by itself."""
        found = _break(before, line)
        if found is None or not self._is_at_width(found, before, line):
            return False
        return not known_lines().count(line) or _gains(before, self._between, line)

    @property
    def _between(self) -> bytes:
        return b" " if self._at_blanks else b""

    def _is_at_width(self, found: _Break, before: bytes, line: bytes) -> bool:
        if self._at_blanks:
            fits = found.least <= self._most and self._least <= found.most
            return fits and not line.startswith(INDENT)
        width = _width(before)
        return width <= self._most <= width + MAX_STRIPPED_BLANKS and _width(line) <= self._most


def detect_wrapped_lines(lines: Sequence[bytes]) -> MakeUnwrap | None:
    """What puts the lines together, if they are broken at one width."""
    every = [(at, one) for at in _behind_others(lines) if (one := _break(*lines[at - 1 : at + 1]))]
    best, most = None, 0
    for at_blanks in (False, True):  # of two that say as much the hard ones, which are rarer
        found = _at_blanks(lines, every) if at_blanks else _at_full_width(lines, every)
        between = b" " if at_blanks else b""
        tried = found[:MAX_TRIED_BREAKS] + found[MAX_TRIED_BREAKS:][-MAX_TRIED_BREAKS:]
        breaks = [one for at, one in tried if _gains(lines[at - 1], between, lines[at])]
        if not breaks:
            continue
        made = partial(WrappedLines, *_widths(lines, breaks), at_blanks=at_blanks)
        if (said := _said(lines, made)) > most:
            best, most = made, said
    return best


def _behind_others(lines: Sequence[bytes]) -> list[int]:
    """Places of lines that are of another kind than the one before, which is long enough."""
    head = SAME_HEAD_BYTES
    return [
        at
        for at in range(1, len(lines))
        if len(lines[at - 1]) >= MIN_WIDTH and lines[at - 1][:head] != lines[at][:head]
    ]


def _at_blanks(
    lines: Sequence[bytes], found: Sequence[tuple[int, _Break]]
) -> list[tuple[int, _Break]]:
    """Breaks at blanks, which go there."""
    return [(at, one) for at, one in found if not lines[at].startswith(INDENT)]


def _at_full_width(
    lines: Sequence[bytes], found: Sequence[tuple[int, _Break]]
) -> list[tuple[int, _Break]]:
    """Breaks behind lines as wide as the widest of all, where each line is broken hard."""
    full = max((_width(lines[at - 1].rstrip(b"\r")) for at, _ in found), default=0)
    if any(len(line) > full and _width(line.rstrip(b"\r")) > full for line in lines):
        return []
    return [
        (at, _Break(full, full)) for at, _ in found if _width(lines[at - 1].rstrip(b"\r")) == full
    ]


def _gains(before: bytes, between: bytes, line: bytes) -> bool:
    """Whether two lines say more as one, and are not two records that say something each."""
    known, before, line = known_lines(), before.rstrip(b"\r"), line.rstrip(b"\r")
    two = known.count(before), known.count(line)
    return not all(two) and known.count(before + between + line) > sum(two)


def _break(before: bytes, line: bytes) -> _Break | None:
    """At which widths a line may have been broken there."""
    if len(before) < MIN_PIECE_WIDTH or (word := _WORD.match(line.lstrip())) is None:
        return None
    is_head_open = before.rstrip().endswith((b" -", b"]", b"]:"))
    if _BEGINS.match(line) or (not is_head_open and known_lines().begins_step(line)):
        return None
    width = _width(before.rstrip())
    if not MIN_PIECE_WIDTH <= width <= MAX_WIDTH:
        return None
    return _Break(width, width + MAX_GAP + _width(word[0]) - 1)


def _width(text: bytes) -> int:
    """How many characters it has."""
    return len(text) if text.isascii() else len(text.decode("utf-8", "replace"))


def _widths(lines: Sequence[bytes], gaining: Sequence[_Break]) -> tuple[int, int]:
    """Between which widths the one is at which most of these breaks are: no line there is wider."""
    ends = sorted({one.least for one in gaining})
    counts = [sum(one.least <= end <= one.most for one in gaining) for end in ends]
    width = max(end for end, count in zip(ends, counts, strict=True) if count == max(counts))
    most = min(one.most for one in gaining if one.least <= width <= one.most)
    others = (_width(line) for line in lines if b" " in line.strip())  # else it cannot be broken
    return max(one for one in (width, *others) if one <= most), most


def _said(lines: Sequence[bytes], made: MakeUnwrap) -> int:
    """How much lines say that are put together; 0 if one says less, or few say more."""
    known, more, count, said = known_lines(), 0, 0, 0
    steps = 0  # that say more, less those that do not: behind these something else stands
    for whole, pieces in islice(_several(lines, made()), 2 * MAX_TRIED_BREAKS):
        count += 1
        before, now = sum(map(known.count, pieces)), known.count(whole)
        more, said = more + (now > before), said + now
        if known.begins_step(pieces[0]):
            steps += 1 if now > before else -1
        if now < before:
            return 0
    few = more >= MIN_FEW_GAINING and more * 3 >= count
    return said if steps >= 0 and (more >= MIN_GAINING or few) else 0


def _several(lines: Iterable[bytes], unwrap: Unwrap) -> Iterator[tuple[bytes, list[bytes]]]:
    """Lines of several pieces, each with these."""
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
