"""Count of values that the built-in formats read in a line.

Some prefixes and line breaks are learned from a log instead of listed. The count shows if the
unwrapping was right: no line may lose values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import cache, lru_cache
from itertools import chain
from typing import Final

from ..core.prefilter import literal_matcher
from ..core.safe_regex import GuardedRegex, Regex
from ..formats.registry import BUILT_IN_FORMATS
from ..formats.spec import JSON_PAIRS, EventLine, FactLine, LogFormat, StepLine
from .text_cleaning import ANSI_ESCAPE, Cleaner

MAX_READ_CHARS: Final = 4_000
"""Characters of a line that are read."""
MAX_HEAD_CHARS: Final = 64
"""Characters at the start of a line that may precede a step: ranks, stamp, level."""
MAX_REMEMBERED_LINES: Final = 8_192
_DIGITS_ALIKE: Final = bytes(ord("1") if chr(x) in "0123456789" else x for x in range(256))


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
        }
        self._lines = [
            (line.anchor, (line.regex, _pair(line), _keys(line), isinstance(line, StepLine)))
            for line in lines.values()
            if line.anchor
        ]
        blocks = {block.start for f in BUILT_IN_FORMATS for block in f.blocks}
        steps = {f.looks_like_step for f in BUILT_IN_FORMATS if f.join is None}
        self._steps = [GuardedRegex(pattern) for pattern in sorted(steps)]
        self._blocks = [GuardedRegex(pattern) for pattern in sorted(blocks)]
        clocks = {f.clock.replace("(?P<stamp>", "(?:") for f in BUILT_IN_FORMATS if f.clock}
        self._clock = Regex("|".join(sorted(clocks)))
        self._count = lru_cache(MAX_REMEMBERED_LINES)(self._count_uncached)
        self._begins_step = lru_cache(MAX_REMEMBERED_LINES)(self._begins_step_uncached)
        self._may_match = literal_matcher(
            {anchor for anchor, _ in self._lines}, sorted(blocks | steps)
        )

    def count(self, raw: bytes) -> int:
        """Count the patterns that match a line, and the values that they find.

        A clock is one. A value with a known key counts twice, so that words joined wrongly lose.
        Lines that differ only in their digits are counted once: logs share most of their lines.
        """
        return self._count(raw[:MAX_READ_CHARS].translate(_DIGITS_ALIKE))

    def _count_uncached(self, raw: bytes) -> int:
        text = self._clean(raw)
        if not self._may_match(text):
            return 0
        count, of_step = sum(regex.search(text) is not None for regex in self._blocks), 0
        possible = [line for anchor, line in self._lines if anchor in text]  # 350: no more in here
        for regex, pair, keys, is_step in possible:
            if match := _compiled(regex).search(text):
                values = 1 + sum(group is not None for group in match.groups())
                pairs = re.finditer(pair, match["pairs"] or "") if pair else ()
                values += sum(1 + (match["key"].strip() in keys) for match in pairs)
                if is_step:  # several forms of a step may match the same line
                    of_step = max(of_step, values)
                else:
                    count += values
        count += of_step + any(regex.search(text) for regex in self._steps)
        return count + self.has_clock(raw) if count else 0

    def begins_step(self, raw: bytes) -> bool:
        """Return whether a step line of a format begins within the first MAX_HEAD_CHARS."""
        return self._begins_step(raw[:MAX_READ_CHARS].translate(_DIGITS_ALIKE))

    def _begins_step_uncached(self, raw: bytes) -> bool:
        text = self._clean(raw)
        matches = (regex.search(text) for regex in self._steps)
        return any(match is not None and match.start() < MAX_HEAD_CHARS for match in matches)

    def has_clock(self, raw: bytes) -> bool:
        """Return whether a line contains a time stamp of any format."""
        return self._clock.search(self._clean(raw[:MAX_READ_CHARS])) is not None


def _lines(log_format: LogFormat) -> Iterable[StepLine | FactLine | EventLine]:
    return chain(log_format.steps, log_format.facts, log_format.events)


def _pair(line: StepLine | FactLine | EventLine) -> str | None:
    """Return the regex of a step line's values outside the line's own regex."""
    if isinstance(line, StepLine) and line.pair and line.pair != JSON_PAIRS:
        return line.pair
    return None


def _keys(line: StepLine | FactLine | EventLine) -> Collection[str]:
    """Return the keys of values that fill a column or state a fact."""
    return {*line.columns, *line.facts, *line.tells} if isinstance(line, StepLine) else ()


@cache
def _compiled(pattern: str) -> Regex:
    """Return a regex, shared and made on first use: most logs use one format."""
    return Regex(pattern)


@cache
def known_lines() -> KnownLines:
    """Return the patterns of all formats, built on first use."""
    return KnownLines()
