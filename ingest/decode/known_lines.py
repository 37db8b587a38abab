"""Count of what the built-in formats read of a line: it tells a right unwrapping from a wrong one.

Where words before lines, or breaks within them, are learned from a log and not listed, only what
the lines say afterwards shows whether it was right: no line may say less.
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
"""Characters of a line that are looked at."""
MAX_HEAD_CHARS: Final = 64
"""Characters of a line in which its head stands: ranks, stamp, level."""
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
            (line.anchor, line.regex, _pair(line), _keys(line), isinstance(line, StepLine))
            for line in lines.values()
            if line.anchor
        ]
        blocks = {block.start for f in BUILT_IN_FORMATS for block in f.blocks}
        steps = {f.looks_like_step for f in BUILT_IN_FORMATS if f.join is None}
        self._steps = [GuardedRegex(pattern) for pattern in sorted(steps)]
        self._blocks = [Regex(pattern) for pattern in sorted(blocks)]
        self._clocks = [
            Regex(one) for one in sorted({f.clock for f in BUILT_IN_FORMATS if f.clock})
        ]
        self._count = lru_cache(MAX_REMEMBERED_LINES)(self._count_anew)
        self._begins_step = lru_cache(MAX_REMEMBERED_LINES)(self._begins_step_anew)
        self._may_match = literal_matcher({line[0] for line in self._lines}, sorted(blocks | steps))

    def count(self, raw: bytes) -> int:
        """How many patterns match a line, and how many values they find in it; a clock is one.

        A value whose key is known counts twice: that of words put together wrongly is not.
        Lines alike but for their digits are looked at once: logs share most of their lines.
        """
        return self._count(raw[:MAX_READ_CHARS].translate(_DIGITS_ALIKE))

    def _count_anew(self, raw: bytes) -> int:
        text = self._clean(raw)
        if not self._may_match(text):
            return 0
        found, of_step = sum(regex.search(text) is not None for regex in self._blocks), 0
        for anchor, regex, pair, keys, is_step in self._lines:
            if anchor in text and (match := _compiled(regex).search(text)):
                values = 1 + sum(group is not None for group in match.groups())
                pairs = re.finditer(pair, match["pairs"] or "") if pair else ()
                values += sum(1 + (one["key"].strip() in keys) for one in pairs)
                if is_step:  # of which several forms may match one line
                    of_step = max(of_step, values)
                else:
                    found += values
        found += of_step + any(regex.search(text) for regex in self._steps)
        return found + self.has_clock(raw) if found else 0

    def begins_step(self, raw: bytes) -> bool:
        """Whether a step line of a format begins near the beginning of a line."""
        return self._begins_step(raw[:MAX_READ_CHARS].translate(_DIGITS_ALIKE))

    def _begins_step_anew(self, raw: bytes) -> bool:
        text = self._clean(raw)
        matches = (regex.search(text) for regex in self._steps)
        return any(match is not None and match.start() < MAX_HEAD_CHARS for match in matches)

    def has_clock(self, raw: bytes) -> bool:
        """Whether a line holds a time as one of the formats prints it."""
        text = self._clean(raw[:MAX_READ_CHARS])
        return any(regex.search(text) for regex in self._clocks)


def _lines(log_format: LogFormat) -> Iterable[StepLine | FactLine | EventLine]:
    return chain(log_format.steps, log_format.facts, log_format.events)


def _pair(line: StepLine | FactLine | EventLine) -> str | None:
    """What finds the values of a step line that its regex does not name."""
    if isinstance(line, StepLine) and line.pair and line.pair != JSON_PAIRS:
        return line.pair
    return None


def _keys(line: StepLine | FactLine | EventLine) -> Collection[str]:
    """The keys of values that fill a column or state a fact."""
    return {*line.columns, *line.facts, *line.tells} if isinstance(line, StepLine) else ()


@cache
def _compiled(pattern: str) -> Regex:
    """Made where a line first has what it begins with: most logs have lines of one format."""
    return Regex(pattern)


@cache
def known_lines() -> KnownLines:
    """Made once, where a log first asks."""
    return KnownLines()
