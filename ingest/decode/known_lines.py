"""Count of values that the built-in formats read in a line.

Some prefixes and line breaks are learned from a log instead of listed. The count shows if the
unwrapping was right: no line may lose values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import chain
from typing import Final, NamedTuple, Self

from ..core.prefilter import LiteralIndex, literal_matcher, required_literals
from ..core.safe_regex import Regex
from ..formats.registry import BUILT_IN_FORMATS
from ..formats.spec import JSON_PAIRS, EventLine, FactLine, LogFormat, StepLine
from .text_cleaning import ANSI_ESCAPE, Cleaner

MAX_READ_CHARS: Final = 4_000
"""Characters of a line that are read."""
MAX_HEAD_CHARS: Final = 64
"""Characters at the start of a line that may precede a step: ranks, stamp, level."""
MAX_REMEMBERED_LINES: Final = 8_192
_DIGITS_ALIKE: Final = bytes(ord("1") if chr(x) in "0123456789" else x for x in range(256))


class _Pattern(NamedTuple):
    """A pattern of a line, or of the start of one."""

    regex: str
    kind: str | None = None
    """Of patterns of one kind, the line with the most values counts."""
    has_values: bool = False
    pair: str | None = None
    """The regex of values outside of the line's own regex."""
    keys: frozenset[str] = frozenset()
    """The keys of values that fill a column or state a fact."""

    @classmethod
    def of(cls, line: StepLine | FactLine | EventLine) -> Self:
        """Return the pattern of a format's line."""
        if not isinstance(line, StepLine):
            return cls(line.regex, has_values=True)
        pair = line.pair if line.pair and line.pair != JSON_PAIRS else None
        keys = frozenset({*line.columns, *line.facts, *line.tells})
        return cls(line.regex, "step", has_values=True, pair=pair, keys=keys)

    def count(self, text: str) -> int:
        """Count the pattern, if it matches a text, and the values that it finds."""
        match = _compiled(self.regex).search(text)
        if match is None or not self.has_values:
            return int(match is not None)
        values = 1 + sum(group is not None for group in match.groups())
        pairs = re.finditer(self.pair, match["pairs"] or "") if self.pair else ()
        return values + sum(1 + (pair["key"].strip() in self.keys) for pair in pairs)


class KnownLines:
    """The patterns of all built-in formats."""

    def __init__(self) -> None:
        noise = {f.noise for f in BUILT_IN_FORMATS if f.noise} | {ANSI_ESCAPE}
        self._clean = Cleaner("|".join(sorted(noise))).text
        lines = {
            line.regex: line
            for f in BUILT_IN_FORMATS
            if f.join is None or f.addition is not None
            for line in _lines(f)
            if line.anchor
        }
        starts = {block.start for f in BUILT_IN_FORMATS for block in f.blocks}
        steps = {f.looks_like_step for f in BUILT_IN_FORMATS if f.join is None}
        self._patterns = LiteralIndex(
            [
                *(((line.anchor,), _Pattern.of(line)) for line in lines.values()),
                *((required_literals(start), _Pattern(start)) for start in starts),
                *((required_literals(step), _Pattern(step, "step start")) for step in steps),
            ]
        )
        self._steps = [Regex(pattern) for pattern in sorted(steps)]
        clocks = {f.clock.replace("(?P<stamp>", "(?:") for f in BUILT_IN_FORMATS if f.clock}
        self._clock = Regex("|".join(sorted(clocks)))
        self._count = lru_cache(MAX_REMEMBERED_LINES)(self._count_uncached)
        self._values = lru_cache(MAX_REMEMBERED_LINES)(self._values_uncached)
        self._begins_step = lru_cache(MAX_REMEMBERED_LINES)(self._begins_step_uncached)
        self._may_be_step = literal_matcher((), sorted(steps))

    def count(self, raw: bytes) -> int:
        """Count the patterns that match a line, and the values that they find.

        A clock is one. A value with a known key counts twice, so that words joined wrongly lose.
        Lines that differ only in their digits are counted once: logs share most of their lines.
        """
        return self._count(_alike(raw))

    def gain_joined(self, before: bytes, between: bytes, line: bytes) -> bool:
        """Return whether two lines count more joined than apart, and are not two records.

        The lines are counted only if the values of the joined line do not decide.
        """
        joined = _alike(before + between + line)
        values = self._values(joined)
        if not values or values < (first := self.count(before)):  # a clock more is not enough
            return False
        apart = first + (second := self.count(line))
        return not (first and second) and (
            values > apart or (values == apart and self.has_clock(joined))
        )

    def _count_uncached(self, raw: bytes) -> int:
        values = self._values_uncached(raw)
        return values + self.has_clock(raw) if values else 0

    def _values_uncached(self, raw: bytes) -> int:
        """Count the patterns and the values of a line, without its clock."""
        text, count = self._clean(raw), 0
        of_kind = dict[str, int]()
        for pattern in self._patterns.possible(text):
            values = pattern.count(text)
            if pattern.kind is None:
                count += values
            else:  # several patterns of a kind may match the same words
                of_kind[pattern.kind] = max(of_kind.get(pattern.kind, 0), values)
        return count + sum(of_kind.values())

    def begins_step(self, raw: bytes) -> bool:
        """Return whether a step line of a format begins within the first MAX_HEAD_CHARS."""
        return self._begins_step(_alike(raw))

    def _begins_step_uncached(self, raw: bytes) -> bool:
        text = self._clean(raw)
        if not self._may_be_step(text):
            return False
        matches = (regex.search(text) for regex in self._steps)
        return any(match is not None and match.start() < MAX_HEAD_CHARS for match in matches)

    def has_clock(self, raw: bytes) -> bool:
        """Return whether a line contains a time stamp of any format."""
        return self._clock.search(self._clean(raw[:MAX_READ_CHARS])) is not None


def _alike(raw: bytes) -> bytes:
    """Return the start of a line with all digits alike."""
    return raw[:MAX_READ_CHARS].translate(_DIGITS_ALIKE)


def _lines(log_format: LogFormat) -> Iterable[StepLine | FactLine | EventLine]:
    return chain(log_format.steps, log_format.facts, log_format.events)


@cache
def _compiled(pattern: str) -> Regex:
    """Return a regex, shared and made on first use: most logs use one format."""
    return Regex(pattern)


@cache
def known_lines() -> KnownLines:
    """Return the patterns of all formats, built on first use."""
    return KnownLines()
