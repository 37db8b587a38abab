"""Unlisted prefixes of nearly all lines, learned: a host, an indentation.

`node-07: `, `INFO:root:`, the blanks of a list item, `+` of a diff, the line number of `less -N`,
`| … |` of a table. A log's own prefix (its stamp, a rank, the word of a step) stays: without it
some lines would lose values (ingest.decode.known_lines).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Final

from .known_lines import known_lines
from .line_prefixes import MIN_ALIKE_LINES, MIN_MATCHING_SHARE
from .log_collectors import MakeUnwrap, Unwrap, UnwrappedLine

MIN_LINES: Final = 5
"""Lines that must share a prefix."""
MAX_PREFIX_BYTES: Final = 120
MIN_INDENT: Final = 2
"""Blanks of an indentation: some logs begin their step lines with a single blank."""
_SEPARATED: Final = re.compile(rb"[:|+>\t] *")
"""Possible end of a prefix."""
_TAGGED: Final = re.compile(rb"\[\w+\]:|\[\d+,\d+\]<std|^\W*\d+:")
"""A launcher's tag, with the rank."""
_STAMPED: Final = re.compile(rb"\d{4}[-/]\d\d[-/]|\d\d:\d\d")
_NUMBERED: Final = re.compile(rb" {0,8}(\d{1,9})(?::|[ \t]|$)")
_TABLE_END: Final = re.compile(rb"[ \t]*\|\s*$")


def detect_learned_prefix(lines: Sequence[bytes]) -> MakeUnwrap | None:
    """Return the removal of a prefix of nearly all lines. lines: a sample of the file."""
    if len(lines) < MIN_LINES:
        return None
    for unwrap in (*_numbered(lines), *_constant(lines), *_indented(lines)):
        if _is_right(unwrap, lines):
            return partial(partial, unwrap)
    return None


def unwrap_constant(prefix: bytes, line: bytes) -> UnwrappedLine | None:
    """Return a line without the prefix.

    An empty line may lack the prefix's last blanks.
    """
    if line.startswith(prefix):
        return UnwrappedLine(line[len(prefix) :])
    return UnwrappedLine(b"") if line.rstrip() == prefix.rstrip() else None


def unwrap_row(prefix: bytes, line: bytes) -> UnwrappedLine | None:
    """Return a line of a table with one column."""
    if line.startswith(prefix) and _TABLE_END.search(line, len(prefix)):
        return UnwrappedLine(_TABLE_END.sub(b"", line[len(prefix) :]))
    return None


def unwrap_numbered(line: bytes) -> UnwrappedLine | None:
    """Return a line without its number."""
    match = _NUMBERED.match(line)
    return UnwrappedLine(line[match.end() :]) if match else None


def _constant(lines: Sequence[bytes]) -> Iterator[Unwrap]:
    """Yield removals of the longest prefix of nearly all lines, and of its parts."""
    shared = _shared_beginning(lines)
    if not shared.strip():
        return
    ends = [match.end() for match in _SEPARATED.finditer(shared)]
    for end in reversed(ends):
        words = shared[:end]
        if (
            _STAMPED.search(words)
            or _TAGGED.search(words)
            or words.count(b"[") != words.count(b"]")
        ):
            continue
        if words.strip() == b"|":
            yield partial(unwrap_row, words)
        yield partial(unwrap_constant, words)


def _shared_beginning(lines: Sequence[bytes]) -> bytes:
    ordered = sorted(line[:MAX_PREFIX_BYTES] for line in lines)
    many = max(MIN_LINES, int(len(ordered) * MIN_MATCHING_SHARE))
    pairs = zip(ordered, ordered[many - 1 :], strict=False)
    return max((_common(first, last) for first, last in pairs), key=len, default=b"")


def _common(first: bytes, last: bytes) -> bytes:
    same = 0
    for x, y in zip(first, last, strict=False):
        if x != y:
            break
        same += 1
    return first[:same]


def _indented(lines: Sequence[bytes]) -> Iterator[Unwrap]:
    """Yield the removal of the known lines' indentation.

    At least half of all lines must have as much. Text around the log, in a page or a thread, is
    indented less.
    """
    indents = [line[: len(line) - len(line.lstrip(b" \t"))] for line in lines]
    if sum(map(bool, indents)) * 2 < len(lines):
        return
    known = Counter(
        indent
        for indent, line in zip(indents, lines, strict=True)
        if indent and known_lines().count(line)
    )
    for indent, _ in known.most_common(1):
        deep = sum(other.startswith(indent) for other in indents)
        enough = len(indent) >= MIN_INDENT or b"\t" in indent
        if enough and deep * 2 >= len(lines):
            yield partial(unwrap_constant, indent)


def _numbered(lines: Sequence[bytes]) -> Iterator[Unwrap]:
    """Yield the removal of numbers that rise in step with the lines."""
    matches = [_NUMBERED.match(line) for line in lines]
    if not all(matches):
        return
    numbers = [int(match[1]) for match in matches if match]
    steps = {y - x for x, y in pairwise(numbers)}
    if len(steps) == 1 and min(steps) > 0:
        yield unwrap_numbered


def _is_right(unwrap: Unwrap, lines: Sequence[bytes]) -> bool:
    """Return whether some unwrapped lines have values, and no line loses any."""
    known, count = known_lines(), 0
    for line in lines:
        if (piece := unwrap(line)) is not None:
            before, now = known.count(line), known.count(piece.text)
            if now < before or known.has_clock(line) > known.has_clock(piece.text):
                return False
            count += now > 0
    return count >= MIN_ALIKE_LINES
