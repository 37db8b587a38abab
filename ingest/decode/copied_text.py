"""Damage by copying: tabs for blanks, characters as HTML spells them.

A copy out of a spreadsheet or a web page has tabs between fields, and the source of a page
`&nbsp;`. The beginning of a file shows the damage; without a tab or `&` nothing is done. Tabs that
hide no values from the formats stay.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from html import unescape
from itertools import islice
from typing import Final

from .known_lines import known_lines
from .line_prefixes import MIN_ALIKE_LINES
from .log_collectors import Unwrap, UnwrappedLine

_ENTITY: Final = re.compile(
    rb"&(?:nbsp|ensp|emsp|thinsp|zwnj|lt|gt|quot|apos|amp|#\d{1,5}|#[xX][\da-fA-F]{1,5});"
)

_NUMBERS: Final = re.compile(rb"[\d.,:%]+")
MAX_KIND_BYTES: Final = 120
MAX_LINES: Final = 200
"""Lines with a tab or an entity that are checked."""


def unwrap_tabs(line: bytes) -> UnwrappedLine | None:
    """Return a line with blanks for tabs; None without tabs."""
    return UnwrappedLine(line.replace(b"\t", b" ")) if b"\t" in line else None


def unwrap_entities(line: bytes) -> UnwrappedLine | None:
    """Return a line with HTML entities decoded; None without entities."""
    if b"&" not in line or _ENTITY.search(line) is None:
        return None
    text = unescape(line.decode("utf-8", "surrogateescape"))
    text = text.replace("\n", " ").replace("\r", " ")
    return UnwrappedLine(text.encode("utf-8", "surrogateescape"))


def detect_copy(beginning: bytes) -> Iterator[Unwrap]:
    """Yield the repairs by which several lines gain values and none loses any."""
    for mark, unwrap in ((b"&", unwrap_entities), (b"\t", unwrap_tabs)):
        if mark in beginning and _gains(unwrap, islice(_lines_with(mark, beginning), MAX_LINES)):
            yield unwrap


def _lines_with(mark: bytes, beginning: bytes) -> Iterator[bytes]:
    """Yield lines with a mark inside, at most two of a kind.

    Lines of a kind differ only in their numbers.
    """
    seen = Counter[bytes]()
    at = beginning.find(mark)
    while at >= 0:
        begin, end = beginning.rfind(b"\n", 0, at) + 1, beginning.find(b"\n", at)
        line = beginning[begin:end] if end >= 0 else beginning[begin:]
        kind = _NUMBERS.sub(b"#", line[:MAX_KIND_BYTES])
        seen[kind] += 1
        if mark in line.strip() and seen[kind] <= MIN_ALIKE_LINES:
            yield line
        at = beginning.find(mark, end) if end >= 0 else -1


def _gains(unwrap: Unwrap, lines: Iterable[bytes]) -> bool:
    """Return whether MIN_ALIKE_LINES gain values by unwrapping, and none loses any."""
    known, more = known_lines(), 0
    for line in lines:
        if (piece := unwrap(line)) is not None:
            before, now = known.count(line), known.count(piece.text)
            more += now > before
            if now < before:
                return False
    return more >= MIN_ALIKE_LINES
