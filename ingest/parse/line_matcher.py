"""Matching of single lines against a format and its companions, without context.

Rows follow ingest.core.schema, except for values known only from earlier lines: the launch, and the
step of a line without one. `ingest.parse.line_parser` reads logs with this module.
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
from ..formats.launch_commands import COMMAND_LINE, LAUNCHER_START
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
"""Maximum number of characters kept of a line's text."""

SYNTHETIC_LOG_MARK: Final = "# synthetic log"
"""First line of a synthetic log; its runs are labelled as synthetic everywhere."""

MAX_PREFIX_CHARS: Final = 64
"""Characters at the start of a line that contain the line's own time stamp."""
BRACKETED_HEAD: Final = re.compile(r"\A(?:\s*\[[^][]*\])*\s*(?:rank=\d+\s*)?")
"""Stamp, level, source and rank: DeepSpeed's exceed MAX_PREFIX_CHARS and state no fact."""

INLINE_CODE: Final = re.compile(r"`[^`]+`")
"""Code within a sentence of a Markdown page, which may quote fields of a step."""

_COMMAND: Final = GuardedRegex(COMMAND_LINE)
_HEAD_STAMP: Final = re.compile(PLATFORM_STAMP)

MAX_COMPILED_FORMATS: Final = 64
"""Compiled formats to keep, with the companions of a file."""


@lru_cache(MAX_COMPILED_FORMATS)
def line_matcher(primary: LogFormat, companions: tuple[LogFormat, ...]) -> LineMatcher:
    """Return the compiled matcher, shared by all files of these formats."""
    return LineMatcher(primary, companions)


class LineMatcher:
    """Patterns of a primary format and its companions. Texts are lines without noise."""

    def __init__(self, primary: LogFormat, companions: tuple[LogFormat, ...]) -> None:
        both = (primary, *companions)
        self.primary, self.companions = primary, companions
        self.cleaner = Cleaner(primary.noise)
        self._clock = re.compile(primary.clock) if primary.clock else None
        self._rank_tag = compile_rank_tags(tuple(f.rank_tag for f in both if f.rank_tag))
        self._looks = GuardedRegex(primary.looks_like_step)
        self._pieces = GuardedRegex(primary.step_pieces or NEVER_MATCHING)
        self._launch = GuardedRegex(primary.launch or NEVER_MATCHING)
        self._relaunch = GuardedRegex(_relaunch_pattern(companions))
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
        begins = (self._relaunch.pattern, COMMAND_LINE, *map(re.escape, self._begins))
        patterns = [*filter(None, (*starts, *looks, *begins))]
        self.may_match = literal_matcher({line.anchor for line in known}, patterns)
        self._may_be_event = literal_matcher(line.anchor for line in events)
        self.patterns = [
            (SYNTHETIC_LOG_MARK, ""),
            *((line.anchor, line.regex) for line in known),
            *(("", pattern) for pattern in patterns),
        ]
        """All patterns that may match a line, with a required literal or ""."""

    # -- steps ----------------------------------------------------------------------------

    def looks_like_step(self, text: str) -> bool:
        """Return whether the text looks like a step: unread if no step pattern matches."""
        return self._looks.search(text) is not None

    def step(self, text: str) -> tuple[StepLine, re.Match[str]] | None:
        """Return the first matching step pattern of the primary."""
        for line, regex in self._steps:
            if line.anchor in text and (match := regex.search(text)):
                return line, match
        return None

    def printed(self, step_line: StepLine, match: re.Match[str]) -> dict[str, str]:
        """Return all printed fields of a step line, as text."""
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
        """Return the row of a step line, with step None where the line prints none.

        Raises RejectedLineError.
        """
        reject_cut_number(text, match)
        if not self.primary.join_by_step:  # joined records have several lines
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
        """Return a message with the longest prefix matched by a step pattern."""
        best = max(
            (longest_matched_prefix(regex.pattern, text) for _, regex in self._steps), key=len
        )
        known = f'understood up to "…{best[-40:]}"' if best else "not understood from the start"
        return f"looks like a step of {self.primary.name}; {known}"

    def companion_event(self, number: int, text: str) -> dict[str, Any] | None:
        """Return an event for a step line of a companion; None for other lines."""
        for form, line, regex, clock in self._companion_steps:
            if line.anchor in text and (match := regex.search(text)):
                with suppress(RejectedLineError):  # damaged, but no line of the primary
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
        """Return the first matching event pattern."""
        if not self._may_be_event(text):
            return None
        for line, regex in self._events:
            if line.anchor in text and (match := regex.search(text)):
                return line, match
        return None

    def event_row(
        self, number: int, text: str, event_line: EventLine, match: re.Match[str]
    ) -> dict[str, Any]:
        """Return the row of an event. number: of the line."""
        printed = named_groups(match)
        if event_line.read is not None:
            printed = read_facts(event_line.read, printed)
        step, seconds = printed.pop("step", None), printed.pop("seconds", None)
        quote = quoted_match(text, match)
        return event_row(
            number, event_line.kind, quote, printed, parse_optional(parse_integer, step)
        ) | {
            "logged_at": self.stamp(text, match.end()),
            "seconds": _times(parse_optional(float, seconds), event_line.factors.get("seconds")),
        }

    # -- headers --------------------------------------------------------------------------

    def launch_words(self, text: str) -> str | None:
        """Return the words by which a line begins a launch; None for other lines."""
        return _words(self._launch, text)

    def relaunch_words(self, text: str) -> str | None:
        """Return the words by which a line begins a launch after a failed one.

        None for other lines. Launchers and engines below print them at some starts.
        """
        return _words(self._relaunch, text)

    def begins_launch(self, text: str) -> bool:
        """Return whether the line may begin a launch, perhaps only after a failed one."""
        regexes = (self._launch, self._relaunch, _COMMAND)
        return any(regex.search(text) is not None for regex in regexes)

    def is_command(self, text: str) -> bool:
        """Return whether the line is a command that starts a training."""
        return _COMMAND.search(text) is not None

    def may_be_late(self, text: str) -> bool:
        """Return whether the open launch may have printed this start line late."""
        return self._late is not None and self._late.search(text) is not None

    def facts(self, text: str) -> list[tuple[FactLine, re.Match[str]]]:
        """Return all matching patterns of facts."""
        return [
            (line, match)
            for line, regex in self._facts
            if line.anchor in text and (match := regex.search(text))
        ]

    def facts_before(self, text: str, match: re.Match[str]) -> list[tuple[FactLine, re.Match[str]]]:
        """Return facts of a record right before another record's match, without a newline."""
        if match.start() <= MAX_PREFIX_CHARS:
            return []
        before = BRACKETED_HEAD.sub("", text[: match.start()], 1)
        return self.facts(before) if before else []

    def damage(self, text: str, facts: Iterable[tuple[FactLine, re.Match[str]]]) -> str:
        """Return why a line, neither step nor event, is unread; "" if nothing is wrong.

        facts: of the line
        """
        for words in self._begins:
            if words in text and not any(line.begins == words for line, _ in facts):
                patterns = (pattern.regex for pattern, _ in self._facts if pattern.begins == words)
                best = max((longest_matched_prefix(pattern, text) for pattern in patterns), key=len)
                return f'cut off or damaged: understood up to "…{best[-40:]}", so it states nothing'
        if not facts and self._pieces.search(INLINE_CODE.sub("", text)):
            return f"holds fields of a step of {self.primary.name}, not as a step line has them"
        return ""

    def blocks(self, text: str) -> list[tuple[FactBlock, Regex]]:
        """Return the blocks that begin with the line, with the pattern of the end."""
        return [(block, end) for block, start, end in self._blocks if start.search(text)]

    def is_primary_line(self, line: FactLine | FactBlock) -> bool:
        """Return whether the pattern belongs to the primary, perhaps to a companion too."""
        return id(line) in self._own

    # -- time stamps ----------------------------------------------------------------------

    def stamp(self, text: str, end: int = MAX_PREFIX_CHARS) -> datetime | None:
        """Return the last time stamp before the record, or within the prefix.

        Without a stamp of the format, the stamp of a platform's head counts. An event may print the
        stamp at the end (`[after dataloaders are built] datetime: …`). A time since the epoch is a
        field of the record, at any position.
        """
        return self._stamp(text, end, self._clock)

    def rank(self, text: str) -> str | None:
        """Return the rank from the tags before a line."""
        return parse_rank(text, self._rank_tag)

    def _stamp(self, text: str, end: int, clock: re.Pattern[str] | None) -> datetime | None:
        if clock is None:
            return None
        match = None
        reach = len(text) if self.primary.utc else max(end, MAX_PREFIX_CHARS)
        for match in clock.finditer(text, 0, reach):  # noqa: B007 - the last one
            pass
        match = match or _HEAD_STAMP.search(text, 0, reach)
        stamp = match["stamp"] if match else None  # a user's regex may match without one
        return None if stamp is None else parse_stamp(stamp)


def begins_late(match: re.Match[str]) -> bool:
    """Return whether a match begins so late in its line that it may not be quoted."""
    return match.start() > MAX_QUOTED_CHARS // 4


def quoted_match(text: str, match: re.Match[str]) -> str:
    """Return the quoted part of a line: of a long line the beginning and a late match.

    Launchers print a long command before an exit code.
    """
    if len(text) <= MAX_QUOTED_CHARS or not begins_late(match):
        return text[:MAX_QUOTED_CHARS]
    return f"{text[: MAX_QUOTED_CHARS // 4]}…{text[match.start() :]}"[:MAX_QUOTED_CHARS]


def event_row(
    number: int, kind: str, text: str, fields: Mapping[str, Any], step: float | None = None
) -> dict[str, Any]:
    """Return a row of `events`, without a time stamp yet."""
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
    """Return a row of `facts` of a log. number, text: of the line."""
    if FACT_NAMES[name].kind in ("int", "float"):
        with suppress(ValueError):  # text that is no number stays as printed
            value = strip_thousands_commas(value)
    return {
        "name": name,
        "value": to_valid_utf8(value.strip()),
        "origin": origin,
        "line": number,
        "text": text[:MAX_QUOTED_CHARS],
    }


def read_facts(read_lines: Callable[[_T], Mapping[str, str]], source: _T) -> dict[str, str]:
    """Return the facts of a line or block; none if a number is out of range."""
    with suppress(ValueError, OverflowError):
        return dict(read_lines(source))
    return {}


def _each(lines: Iterable[_T]) -> list[_T]:
    """Return every line once: formats of one framework share lines."""
    return list({id(line): line for line in lines}.values())


def named_groups(match: re.Match[str]) -> dict[str, str]:
    """Return the named groups of the match that took part, as text."""
    return {name: value for name, value in match.groupdict().items() if value is not None}


def _relaunch_pattern(companions: Iterable[LogFormat]) -> str:
    """Return the pattern of start lines that count after a failed launch."""
    return "|".join([*(f"(?:{f.launch})" for f in companions if f.launch), LAUNCHER_START])


def _words(regex: GuardedRegex, text: str) -> str | None:
    match = regex.search(text)
    return None if match is None else match[0]


def _times(value: float | None, factor: float | None) -> float | None:
    return value if value is None or factor is None else value * factor
