"""What one line says by the patterns of a format and its companions, whatever was read before it.

Rows are those of ingest.core.schema but for what depends on where a line stands: of which launch it
is, and the step of a line that prints none. `ingest.parse.parser` puts that together, line by line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, TypeVar

from ..core.numbers import optional, whole
from ..core.prefilter import any_of, spelled
from ..core.safe_regex import Guarded, Regex
from ..decode.line_reader import text_of
from ..decode.text_cleaning import Cleaner
from ..formats.spec import Block, EventLine, FactLine, LogFormat, StepLine
from ..launches.outcomes import ENDINGS
from .format_watch import Watch
from .line_cache import Familiar
from .line_prefix import COMPACT_STAMP, parse_stamp, rank_of
from .partial_match import matched_prefix
from .readings import Aside, Idle, Other, Reading, Step
from .step_fields import Rejected, columns_of, cutter, refuse_another_record, refuse_half_a_number
from .unmatched_lines import kind_of

_T = TypeVar("_T")

QUOTED_CHARACTERS: Final = 500
"""The most characters of a line that are kept as text."""

SYNTHETIC_MARK: Final = "# synthetic log"
"""A first line that says that a log was composed; its runs carry the label everywhere."""

PREFIX_REACH: Final = 64
"""Characters of a line in which its own time stamp stands."""

FORMATS_AT_ONCE: Final = 64
"""Formats, each with the companions of a file, that are kept compiled."""


@lru_cache(FORMATS_AT_ONCE)
def patterns_of(
    primary: LogFormat, companions: tuple[LogFormat, ...], watch: Watch | None
) -> Patterns:
    """Made ready once for all files of these formats."""
    return Patterns(primary, companions, watch)


class Patterns:
    """The patterns of a primary format and its companions.

    watch: for what of no line is sure that may show it. spelled: texts of patterns that spell
    numbers out. familiar: what was learned of lines. Texts are those of lines without noise.
    """

    def __init__(
        self, primary: LogFormat, companions: tuple[LogFormat, ...], watch: Watch | None
    ) -> None:
        both = (primary, *companions)
        self.primary, self.watch = primary, watch
        self.cleaner = Cleaner(primary.noise)
        self._clock = re.compile(primary.clock) if primary.clock else None
        self._looks = Guarded(primary.looks_like_step)
        self._launch = Guarded(primary.launch) if primary.launch else None
        self._late = re.compile(primary.late) if primary.late else None
        self._steps = [(line, Regex(line.regex)) for line in primary.steps]
        self._pairs = {id(s): cutter(s.pair) for f in both for s in f.steps if s.pair}
        self._companion_steps = [
            (f, s, Regex(s.regex), re.compile(f.clock or "(?!)"))
            for f in companions
            for s in f.steps
        ]
        facts = _each(line for f in both for line in f.facts)
        self._facts = [(line, Regex(line.regex)) for line in facts]
        self._own = {id(line) for line in (*primary.facts, *primary.blocks)}
        events = [*_each(line for f in both for line in f.events), *ENDINGS]
        self._events = [(line, Regex(line.regex)) for line in events]
        blocks = _each(block for f in both for block in f.blocks)
        self._blocks = [(b, Regex(b.start), Regex(b.end)) for b in blocks]
        known: list[StepLine | FactLine | EventLine] = [
            *(line for f in both for line in f.steps),
            *facts,
            *events,
        ]
        starts = [block.start for block in blocks]
        patterns = [*filter(None, (*starts, primary.looks_like_step, primary.launch))]
        self.interest = any_of({line.anchor for line in known}, patterns)
        self._may_be_event = any_of(line.anchor for line in events)
        lines = [(line.anchor, line.regex) for line in known]
        needed = [(SYNTHETIC_MARK, ""), *lines, *(("", one) for one in patterns)]
        self.familiar = Familiar(self.cleaner, needed, watch)
        self.spelled = frozenset[str]().union(*(spelled(pattern) for _, pattern in needed))

    def sure(self, raw: bytes) -> Reading:
        """What a line says whatever was read before it; None where that is not so."""
        whole_text = text_of(raw)
        text = self.cleaner.strip(whole_text)
        shows = self.watch is not None and self.watch.may_show(whole_text)
        if shows or not text.strip() or text.startswith(SYNTHETIC_MARK):
            return None
        if (event := self.event(text)) is not None:
            form = event[0]
            aside = not (form.with_facts or form.closes or form.begins or self.begins_launch(text))
            return _aside(self.event_row(0, text, *event)) if aside else None
        if (step := self.step(text)) is not None:
            return self._sure_step(text, *step)
        if self.looks_like_step(text):
            return None
        if (row := self.companion_event(0, text)) is not None:
            return _aside(row, companion=True)
        return self._sure_fact(text)

    def _sure_fact(self, text: str) -> Idle | Other | None:
        """What a line says that is no event and no step; None where it may state facts."""
        facts = self.facts(text)
        if self.begins_launch(text) or self.blocks(text):
            return None
        if any(line.states for line, _ in facts):
            return None
        return Idle() if facts else Other(kind_of(text))

    def _sure_step(self, text: str, line: StepLine, match: re.Match[str]) -> Step | None:
        if line.may_continue or (line.numbered and line.every_step):
            return None
        try:
            printed = self.printed(line, match)
            row = self.step_row(text, line, match, printed)
        except Rejected:
            return None
        return Step(line, frozenset(printed), row)

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

    def printed(self, line: StepLine, match: re.Match[str]) -> dict[str, str]:
        """All printed fields of a step line, as text."""
        printed = groups(match)
        if (cut := self._pairs.get(id(line))) is not None:
            printed.update(cut(printed.pop("pairs", "")))
        return printed

    def step_row(
        self, text: str, line: StepLine, match: re.Match[str], printed: Mapping[str, str]
    ) -> dict[str, Any]:
        """The row of a step line; without a step where the line prints none. Raises Rejected."""
        refuse_half_a_number(text, match)
        if not self.primary.join_by_step:  # else a record is put together from many lines
            refuse_another_record(text, match)
        row: dict[str, Any] = {"rank": rank_of(text)}
        row["logged_at"] = self.stamp(text, match.start())
        if line.numbered:
            row["step"] = None
        row |= columns_of(self.primary, line, printed)
        if row.get("step") is None and not line.numbered:
            raise Rejected("no step number")
        return row

    def how_far(self, text: str) -> str:
        """Where the step pattern that gets furthest stops matching."""
        best = max((matched_prefix(regex.pattern, text) for _, regex in self._steps), key=len)
        known = f'understood up to "…{best[-40:]}"' if best else "not understood from the start"
        return f"looks like a step of {self.primary.name}; {known}"

    def companion_event(self, number: int, text: str) -> dict[str, Any] | None:
        """A step line of a companion: what it says beside the primary's own step."""
        for form, line, regex, clock in self._companion_steps:
            if line.anchor in text and (match := regex.search(text)):
                with suppress(Rejected):  # damaged: it is no line of the primary's
                    stamp = self._stamp(text, match.start(), clock)
                    return self._beside(number, text, form, line, match) | {"logged_at": stamp}
        return None

    def _beside(
        self, number: int, text: str, form: LogFormat, line: StepLine, match: re.Match[str]
    ) -> dict[str, Any]:
        printed = self.printed(line, match)
        seconds = None
        with suppress(Rejected):
            seconds = columns_of(form, line, printed).get("elapsed_s")
        own = line.numbered or line.counts is not None
        step = None if own else optional(whole, printed.pop("step", None))
        return event_of(number, form.as_companion, text, printed, step) | {"seconds": seconds}

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
        self, number: int, text: str, line: EventLine, match: re.Match[str]
    ) -> dict[str, Any]:
        """The row of an event; number: of its line."""
        printed = groups(match)
        if line.read is not None:
            printed = told_by(line.read, printed)
        step, seconds = printed.pop("step", None), printed.pop("seconds", None)
        return event_of(number, line.kind, text, printed, optional(whole, step)) | {
            "logged_at": self.stamp(text, match.end()),
            "seconds": _times(optional(float, seconds), line.factors.get("seconds")),
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

    def blocks(self, text: str) -> list[tuple[Block, Regex]]:
        """Each block that it begins, with what ends that."""
        return [(block, end) for block, start, end in self._blocks if start.search(text)]

    def is_own(self, line: FactLine | Block) -> bool:
        """Whether it is the primary's, maybe as a companion's too."""
        return id(line) in self._own

    # -- time stamps ----------------------------------------------------------------------

    def stamp(self, text: str, end: int = PREFIX_REACH) -> datetime | None:
        """The last time stamp that stands before the record, or inside its own prefix.

        Where there is none of the format, that of a head which others put before its lines.
        An event may print it at its own end (`[after dataloaders are built] datetime: …`). A time
        that counts from the epoch is a field of the record, wherever it stands.
        """
        return self._stamp(text, end, self._clock)

    def _stamp(self, text: str, end: int, clock: re.Pattern[str] | None) -> datetime | None:
        if clock is None:
            return None
        found = None
        reach = len(text) if self.primary.utc else max(end, PREFIX_REACH)
        for found in clock.finditer(text, 0, reach):  # noqa: B007 - the last one
            pass
        found = found or COMPACT_STAMP.search(text, 0, reach)
        return parse_stamp(found["stamp"]) if found else None


def event_of(
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
        "text": text[:QUOTED_CHARACTERS],
    }


def told_by(read: Callable[[_T], Mapping[str, str]], said: _T) -> dict[str, str]:
    """The facts of what a line or block says; numbers that no machine holds state none."""
    with suppress(ValueError, OverflowError):
        return dict(read(said))
    return {}


def _each(lines: Iterable[_T]) -> list[_T]:
    """Every line once: formats of one framework share lines."""
    return list({id(line): line for line in lines}.values())


def groups(match: re.Match[str]) -> dict[str, str]:
    """The named groups that took part, as text."""
    return {name: value for name, value in match.groupdict().items() if value is not None}


def _aside(row: Mapping[str, Any], *, companion: bool = False) -> Aside:
    said = {name: value for name, value in row.items() if name not in ("line", "text")}
    return Aside(said, companion)


def _times(value: float | None, factor: float | None) -> float | None:
    return value if value is None or factor is None else value * factor
