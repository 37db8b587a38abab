"""Records made of lines: usually a single line, in some formats several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..decode.line_reader import NumberedLine
from .line_matcher import LineMatcher


class Record(NamedTuple):
    """Text to read as a unit, without noise.

    number: of the first line
    is_cut: True if a line is too long to be kept whole
    is_ended: True if the last line has a newline
    """

    number: int
    text: str
    line_count: int = 1
    is_cut: bool = False
    is_ended: bool = True


def record_of(matcher: LineMatcher, line: NumberedLine) -> Record:
    """Return a line as a record."""
    return Record(line.number, matcher.cleaner.strip(line.text), 1, line.cut, line.ended)


def join_records(matcher: LineMatcher, lines: Iterable[NumberedLine]) -> Iterator[Record]:
    """Yield the records of lines, joined as the primary format requires."""
    join = matcher.primary.join
    if join is None:
        for line in lines:
            yield record_of(matcher, line)
        return
    cut_lines: set[int] = set()
    last = NumberedLine(0, "", cut=False)

    def texts() -> Iterator[tuple[int, str]]:
        nonlocal last
        for last in lines:
            cut_lines.update([last.number] if last.cut else [])
            yield last.number, last.text

    for number, count, text in join(texts()):
        is_cut = not cut_lines.isdisjoint(range(number, number + count))
        is_ended = last.ended or number + count - 1 < last.number
        yield Record(number, matcher.cleaner.strip(text), count, is_cut, is_ended)
