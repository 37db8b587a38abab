"""Context-free reading of single lines with the regexes of their formats."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from ..core.prefilter import numbered_literals
from ..decode.line_text import decode_line
from ..formats.spec import EventLine, StepLine
from ..parse.line_matcher import SYNTHETIC_LOG_MARK, LineMatcher, begins_late
from ..parse.step_fields import RejectedLineError
from ..parse.unmatched_lines import line_kind
from .format_watch import FormatWatch
from .line_cache import LineCache
from .readings import EventReading, KnownReading, LineReading, StepReading, UnmatchedReading
from .shape_cache import ShapeCache

MAX_LEARNED_FORMATS: Final = 64
"""Formats, with companions and a watch, whose learned shapes are kept."""


@lru_cache(MAX_LEARNED_FORMATS)
def context_free_reader(matcher: LineMatcher, watch: FormatWatch | None) -> ContextFreeReader:
    """Return the reader shared by all files of these formats, with its learned shapes."""
    return ContextFreeReader(matcher, watch)


class ContextFreeReader:
    """Reader of single lines.

    matcher: of the formats
    watch: for lines that may show another format, which are not read
    cache: lines without a matching pattern
    shapes: of steps and events
    """

    def __init__(self, matcher: LineMatcher, watch: FormatWatch | None = None) -> None:
        self.matcher, self.watch = matcher, watch
        spelled = frozenset[str]().union(
            *(numbered_literals(pattern) for _, pattern in matcher.patterns)
        )
        self.cache = LineCache(matcher.cleaner, matcher.patterns, watch)
        self.shapes = ShapeCache([text.encode() for text in sorted(spelled)])

    def read(self, raw: bytes) -> LineReading:
        """Return the reading of a line; None if it depends on earlier lines."""
        whole_text = decode_line(raw)
        text = self.matcher.cleaner.strip(whole_text)
        is_watched = self.watch is not None and self.watch.may_hold_mark(whole_text)
        if is_watched or not text.strip() or text.startswith(SYNTHETIC_LOG_MARK):
            return None
        if (event := self.matcher.event(text)) is not None:
            return self._read_event(text, *event)
        if (step := self.matcher.step(text)) is not None:
            return self._read_step(text, *step)
        if self.matcher.looks_like_step(text):
            return None
        if (row := self.matcher.companion_event(0, text)) is not None:
            return _event_reading(row, companion=True)
        return self._read_known(text)

    def _read_event(self, text: str, form: EventLine, match: re.Match[str]) -> EventReading | None:
        """Read an event; return None if the line states more, or is quoted in parts."""
        says_more = form.with_facts or self.matcher.facts_before(text, match)
        bounds_launch = form.begins or form.ends_training or self.matcher.begins_launch(text)
        if says_more or bounds_launch or begins_late(match):
            return None
        return _event_reading(self.matcher.event_row(0, text, form, match))

    def _read_step(self, text: str, form: StepLine, match: re.Match[str]) -> StepReading | None:
        """Read a step; return None if it may continue, is counted, or is damaged."""
        if form.may_continue or (form.numbered and form.every_step):
            return None
        if self.matcher.facts_before(text, match):
            return None
        try:
            printed = self.matcher.printed(form, match)
            row = self.matcher.step_row(text, form, match, printed)
        except RejectedLineError:
            return None
        return StepReading(form, frozenset(printed), row)

    def _read_known(self, text: str) -> KnownReading | UnmatchedReading | None:
        """Read a line that is neither event nor step; return None if it may state facts."""
        facts = self.matcher.facts(text)
        if self.matcher.begins_launch(text) or self.matcher.blocks(text):
            return None
        if any(line.states_facts for line, _ in facts) or self.matcher.damage(text, facts):
            return None
        return KnownReading() if facts else UnmatchedReading(line_kind(text))


def _event_reading(row: Mapping[str, Any], *, companion: bool = False) -> EventReading:
    content = {name: value for name, value in row.items() if name not in ("line", "text")}
    return EventReading(content, companion)
