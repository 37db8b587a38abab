"""What one line says by the patterns of a format and its companions, whatever was read before it.

Rows are those of ingest.core.schema but for what depends on where a line stands: of which launch it
is, and the step of a line that prints none. `ingest.parse.line_parser` reads a log by it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, TypeVar

from ..core.numbers import parse_integer, parse_optional, strip_thousands_commas
from ..core.prefilter import NEVER_MATCHING, literal_matcher
from ..core.safe_regex import GuardedRegex, Regex
from ..core.schema import FACT_NAMES
from ..decode.text_cleaning import Cleaner, to_valid_utf8
from ..formats.platform_head import PLATFORM_STAMP
from ..formats.spec import EventLine, FactBlock, FactLine, LogFormat, StepLine
from ..launches.outcomes import ENDING_EVENT_LINES
from .partial_match import longest_matched_prefix
from .rank_and_time import compile_rank_tags, parse_rank, parse_stamp
from .step_fields import (
    RejectedLineError,
    pair_cutter,
    reject_cut_number,
    reject_second_record,
    step_columns,
)

_T = TypeVar("_T")

MAX_QUOTED_CHARS: Final = 500
"""The most characters of a line that are kept as text."""

SYNTHETIC_LOG_MARK: Final = "# synthetic log"
"""A first line that says that a log was composed; its runs carry the label everywhere."""

MAX_PREFIX_CHARS: Final = 64
"""Characters of a line in which its own time stamp stands."""
BRACKETED_HEAD: Final = re.compile(r"\A(?:\s*\[[^][]*\])*\s*(?:rank=\d+\s*)?")
"""Stamp, level, source and rank: DeepSpeed's are longer than MAX_PREFIX_CHARS and state no fact."""

_HEAD_STAMP: Final = re.compile(PLATFORM_STAMP)

MAX_COMPILED_FORMATS: Final = 64
"""Formats, each with the companions of a file, that are kept compiled."""


@lru_cache(MAX_COMPILED_FORMATS)
def line_matcher(primary: LogFormat, companions: tuple[LogFormat, ...]) -> LineMatcher:
    """Made ready once for all files of these formats."""
    return LineMatcher(primary, companions)


class LineMatcher:
    """The patterns of a primary format and its companions; texts are lines without noise."""

    def __init__(self, primary: LogFormat, companions: tuple[LogFormat, ...]) -> None:
        both = (primary, *companions)
        self.primary, self.companions = primary, companions
        self.cleaner = Cleaner(primary.noise)
        self._clock = re.compile(primary.clock) if primary.clock else None
        self._rank_tag = compile_rank_tags(tuple(f.rank_tag for f in both if f.rank_tag))
        self._looks = GuardedRegex(primary.looks_like_step)
        self._pieces = GuardedRegex(primary.step_pieces or NEVER_MATCHING)
        self._launch = GuardedRegex(primary.launch) if primary.launch else None
        self._late = re.compile(primary.late) if primary.late else None
        self._steps = [(line, Regex(line.regex)) for line in primary.steps]
        self._pairs = {id(s): pair_cutter(s.pair) for f in both for s in f.steps if s.pair}
        self._companion_steps = [
            (f, s, Regex(s.regex), re.compile(f.clock or "(?!)"))
            for f in companions
            for s in f.steps
        ]
        facts = _each(line for f in both for line in f.facts)
        self._facts = [(line, Regex(line.regex)) for line in facts]
        self._begins = {line.begins for line in facts if line.begins}
        self._own = {id(line) for line in (*primary.facts, *primary.blocks)}
        events = [*_each(line for f in both for line in f.events), *ENDING_EVENT_LINES]
        self._events = [(line, Regex(line.regex)) for line in events]
        blocks = _each(block for f in both for block in f.blocks)
        self._blocks = [(b, Regex(b.start), Regex(b.end)) for b in blocks]
        steps = (line for f in both for line in f.steps)
        known: list[StepLine | FactLine | EventLine] = [*steps, *facts, *events]
        starts = [block.start for block in blocks]
        looks = (primary.looks_like_step, primary.launch, primary.step_pieces)
        patterns = [*filter(None, (*starts, *looks, *map(re.escape, self._begins)))]
        self.may_match = literal_matcher({line.anchor for line in known}, patterns)
        self._may_be_event = literal_matcher(line.anchor for line in events)
        self.patterns = [
            (SYNTHETIC_LOG_MARK, ""),
            *((line.anchor, line.regex) for line in known),
            *(("", pattern) for pattern in patterns),
        ]
        """All that may match a line, each with a literal that it needs, or an empty one."""

    # -- steps ----------------------------------------------------------------------------

    def looks_like_step(self, text: str) -> bool:
        """Whether it has to be one of the primary's: it is unread where no pattern takes it."""
        return self._looks.search(text) is not None

    def step(self, text: str) -> tuple[StepLine, re.Match[str]] | None:
        """The first pattern of the primary's steps that takes it."""
        for line, regex in self._steps:
            if line.anchor in text and (match := regex.search(text)):
                return line, match
        return None

    def printed(self, step_line: StepLine, match: re.Match[str]) -> dict[str, str]:
        """All printed fields of a step line, as text."""
        printed = named_groups(match)
        if (cut := self._pairs.get(id(step_line))) is not None:
            printed.update(cut(printed.pop("pairs", "")))
        return printed

    def step_row(
        self,
        text: str,
        step_line: StepLine,
        match: re.Match[str],
        printed_fields: Mapping[str, str],
    ) -> dict[str, Any]:
        """The row of a step line; without a step where the line prints none. Raises Rejected."""
        reject_cut_number(text, match)
        if not self.primary.join_by_step:  # else a record is put together from many lines
            reject_second_record(text, match)
        row: dict[str, Any] = {"rank": self.rank(text)}
        row["logged_at"] = self.stamp(text, match.start())
        if step_line.numbered:
            row["step"] = None
        row |= step_columns(self.primary, step_line, printed_fields)
        if row.get("step") is None and not step_line.numbered:
            raise RejectedLineError("no step number")
        return row

    def furthest_match(self, text: str) -> str:
        """Where the step pattern that gets furthest stops matching."""
        best = max(
            (longest_matched_prefix(regex.pattern, text) for _, regex in self._steps), key=len
        )
        known = f'understood up to "…{best[-40:]}"' if best else "not understood from the start"
        return f"looks like a step of {self.primary.name}; {known}"

    def companion_event(self, number: int, text: str) -> dict[str, Any] | None:
        """A step line of a companion: what it says beside the primary's own step."""
        for form, line, regex, clock in self._companion_steps:
            if line.anchor in text and (match := regex.search(text)):
                with suppress(RejectedLineError):  # damaged: it is no line of the primary's
                    stamp = self._stamp(text, match.start(), clock)
                    return self._beside(number, text, form, line, match) | {"logged_at": stamp}
        return None

    def _beside(
        self, number: int, text: str, form: LogFormat, line: StepLine, match: re.Match[str]
    ) -> dict[str, Any]:
        printed = self.printed(line, match)
        seconds = None
        with suppress(RejectedLineError):
            seconds = step_columns(form, line, printed).get("elapsed_s")
        own = line.numbered or line.counts is not None
        step = None if own else parse_optional(parse_integer, printed.pop("step", None))
        return event_row(number, form.as_companion, text, printed, step) | {"seconds": seconds}

    # -- events ---------------------------------------------------------------------------

    def event(self, text: str) -> tuple[EventLine, re.Match[str]] | None:
        """The first pattern of an event that takes it."""
        if not self._may_be_event(text):
            return None
        for line, regex in self._events:
            if line.anchor in text and (match := regex.search(text)):
                return line, match
        return None

    def event_row(
        self, number: int, text: str, event_line: EventLine, match: re.Match[str]
    ) -> dict[str, Any]:
        """The row of an event; number: of its line."""
        printed = named_groups(match)
        if event_line.read is not None:
            printed = read_facts(event_line.read, printed)
        step, seconds = printed.pop("step", None), printed.pop("seconds", None)
        return event_row(
            number, event_line.kind, text, printed, parse_optional(parse_integer, step)
        ) | {
            "logged_at": self.stamp(text, match.end()),
            "seconds": _times(parse_optional(float, seconds), event_line.factors.get("seconds")),
        }

    # -- headers --------------------------------------------------------------------------

    def begins_launch(self, text: str) -> bool:
        """Whether such a line begins a launch."""
        return self._launch is not None and self._launch.search(text) is not None

    def may_be_late(self, text: str) -> bool:
        """Whether one that begins a launch may be of the open one, printed late."""
        return self._late is not None and self._late.search(text) is not None

    def facts(self, text: str) -> list[tuple[FactLine, re.Match[str]]]:
        """Each pattern of facts that takes it."""
        return [
            (line, match)
            for line, regex in self._facts
            if line.anchor in text and (match := regex.search(text))
        ]

    def facts_before(self, text: str, match: re.Match[str]) -> list[tuple[FactLine, re.Match[str]]]:
        """Facts of a record that stands before another one's match: a newline is missing there."""
        if match.start() <= MAX_PREFIX_CHARS:
            return []
        before = BRACKETED_HEAD.sub("", text[: match.start()], 1)
        return self.facts(before) if before else []

    def damage(self, text: str, facts: Iterable[tuple[FactLine, re.Match[str]]]) -> str:
        """Why a line is unread that is no step and no event; else empty. facts: its own."""
        for words in self._begins:
            if words in text and not any(line.begins == words for line, _ in facts):
                patterns = (one.regex for one, _ in self._facts if one.begins == words)
                best = max((longest_matched_prefix(one, text) for one in patterns), key=len)
                return f'cut off or damaged: understood up to "…{best[-40:]}", so it states nothing'
        if not facts and self._pieces.search(text):
            return f"holds fields of a step of {self.primary.name}, not as a step line has them"
        return ""

    def blocks(self, text: str) -> list[tuple[FactBlock, Regex]]:
        """Each block that it begins, with what ends that."""
        return [(block, end) for block, start, end in self._blocks if start.search(text)]

    def is_primary_line(self, line: FactLine | FactBlock) -> bool:
        """Whether it is the primary's, maybe as a companion's too."""
        return id(line) in self._own

    # -- time stamps ----------------------------------------------------------------------

    def stamp(self, text: str, end: int = MAX_PREFIX_CHARS) -> datetime | None:
        """The last time stamp that stands before the record, or inside its own prefix.

        Where there is none of the format, that of a head which others put before its lines.
        An event may print it at its own end (`[after dataloaders are built] datetime: …`). A time
        that counts from the epoch is a field of the record, wherever it stands.
        """
        return self._stamp(text, end, self._clock)

    def rank(self, text: str) -> str | None:
        """The rank that the tags before a line say."""
        return parse_rank(text, self._rank_tag)

    def _stamp(self, text: str, end: int, clock: re.Pattern[str] | None) -> datetime | None:
        if clock is None:
            return None
        found = None
        reach = len(text) if self.primary.utc else max(end, MAX_PREFIX_CHARS)
        for found in clock.finditer(text, 0, reach):  # noqa: B007 - the last one
            pass
        found = found or _HEAD_STAMP.search(text, 0, reach)
        return parse_stamp(found["stamp"]) if found else None


def event_row(
    number: int, kind: str, text: str, fields: Mapping[str, Any], step: float | None = None
) -> dict[str, Any]:
    """A row of `events`, as yet without its time."""
    return {
        "line": number,
        "kind": kind,
        "step": step,
        "logged_at": None,
        "seconds": None,
        "extra": json.dumps(dict(fields)) if fields else None,
        "text": text[:MAX_QUOTED_CHARS],
    }


def fact_row(number: int, name: str, value: str, origin: str, text: str) -> dict[str, Any]:
    """A row of `facts` of a log; text: of the line of that number."""
    if FACT_NAMES[name].kind in ("int", "float"):
        with suppress(ValueError):  # what is no number stays as it is printed
            value = strip_thousands_commas(value)
    return {
        "name": name,
        "value": to_valid_utf8(value.strip()),
        "origin": origin,
        "line": number,
        "text": text[:MAX_QUOTED_CHARS],
    }


def read_facts(read_lines: Callable[[_T], Mapping[str, str]], source: _T) -> dict[str, str]:
    """The facts of what a line or block says; numbers that no machine holds state none."""
    with suppress(ValueError, OverflowError):
        return dict(read_lines(source))
    return {}


def _each(lines: Iterable[_T]) -> list[_T]:
    """Every line once: formats of one framework share lines."""
    return list({id(line): line for line in lines}.values())


def named_groups(match: re.Match[str]) -> dict[str, str]:
    """The named groups that took part, as text."""
    return {name: value for name, value in match.groupdict().items() if value is not None}


def _times(value: float | None, factor: float | None) -> float | None:
    return value if value is None or factor is None else value * factor
