"""Reader of single records: the specification of how a log is read.

`ingest.parse.line_matcher` reads a line by itself. This module handles context: whether a record
continues an earlier one. Results go to an `ingest.parse.record_sink`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from ..core.numbers import parse_integer, parse_optional
from ..core.safe_regex import Regex
from ..core.schema import FACT_NAMES
from ..core.spill import Spool
from ..decode.line_reader import MAX_LINE_BYTES, NumberedLine
from ..formats.spec import FactBlock, FactLine, LogFormat, StepLine
from ..launches.page_blocks import FENCE
from ..launches.start_watch import StartMark
from .block_provenance import locate_facts
from .line_matcher import (
    SYNTHETIC_LOG_MARK,
    LineMatcher,
    event_row,
    fact_row,
    line_matcher,
    named_groups,
    read_facts,
)
from .record_sink import ParsedSource, RecordSink
from .records import Record, join_records
from .step_fields import RejectedLineError, ends_like


def parse_lines(
    lines: Iterable[NumberedLine],
    primary: LogFormat,
    companions: Iterable[LogFormat] = (),
    spool: Spool | None = None,
) -> ParsedSource:
    """Return the parsed lines of a primary format and its companions.

    spool: storage of rows; by default in memory and a folder of its own
    """
    matcher = line_matcher(primary, tuple(companions))
    parser = LineParser(matcher, RecordSink(matcher, spool))
    parser.read_lines(lines)
    return parser.finish()


class LineParser:
    """Reader of the records of a source, in their order."""

    def __init__(self, matcher: LineMatcher, sink: RecordSink) -> None:
        self._matcher, self._sink = matcher, sink
        self._block: _OpenBlock | None = None
        self._held: _HeldRecord | None = None

    @property
    def is_idle(self) -> bool:
        """True if earlier records cannot change the meaning of the next record."""
        return self._block is None and self._held is None

    def read_lines(self, lines: Iterable[NumberedLine]) -> None:
        """Read the records of these lines; the last record ends with them."""
        for record in join_records(self._matcher, lines):
            self.read(record)

    def read(self, record: Record) -> None:
        """Read a record, and pass the result to the sink."""
        self._sink.out.cost.regex_lines += record.line_count
        if record.is_cut:
            reason = f"longer than {MAX_LINE_BYTES:,} bytes: only its beginning was kept"
            self._unread(record, reason)
            return
        if (self._block is not None and self._continues_block(record)) or (
            self._held is not None and self._continues_held(record)
        ):
            self._sink.count_known(record.line_count, record.number)
        elif record.text.startswith(SYNTHETIC_LOG_MARK):
            self._sink.mark_synthetic()
            self._sink.count_known(record.line_count, record.number)
        else:
            self._read_alone(record)

    def finish(self) -> ParsedSource:
        """Settle open records, and close the sink. Raises MissingTextsError."""
        self._settle_held()
        if self._block is not None:
            self._close_block()
        return self._sink.finish()

    def _read_alone(self, record: Record) -> None:
        """Read a record that continues no other."""
        is_blank = not record.text.strip()
        if is_blank:
            self._sink.count_known(record.line_count, record.number)
        else:
            self._sink.note_text(record.number, record.text)
            if not self._matcher.may_match(record.text):
                self._unmatched(record)
            elif not (self._read_event(record) or self._read_step(record)):
                self._read_header(record)
        if self._sink.wants_stamp:
            self._sink.note_stamp(self._matcher.stamp(record.text))

    def _unread(self, record: Record, reason: str) -> None:
        self._sink.add_unread(record.number, record.text, reason, record.line_count)

    def _unmatched(self, record: Record) -> None:
        self._sink.add_unmatched(record.number, record.text, record.line_count)

    # -- events -----------------------------------------------------------------------------

    def _read_event(self, record: Record) -> bool:
        """Read an event; return False if the record is none, or may also state facts."""
        number, text = record.number, record.text
        if (event := self._matcher.event(text)) is None:
            return False
        form, match = event
        self._state_before(record, match)
        self._sink.add_event(
            self._matcher.event_row(number, text, form, match), begins_launch=form.begins
        )
        if form.ends_training:
            self._sink.note_training_end(number, self._matcher.rank(text))
        if form.with_facts:
            return False
        self._note_start(record)
        self._sink.count_known(record.line_count, record.number)
        return True

    # -- steps ------------------------------------------------------------------------------

    def _read_step(self, record: Record) -> bool:
        """Read a step, or a record like a step; return False for other records."""
        try:
            form, row = self._step_row(record)
        except RejectedLineError as rejected:
            self._unread(record, str(rejected))
            return True
        if row is not None and form is not None and not form.may_continue:
            self._sink.add_step(row, record.text, record.line_count)
            return True
        if row is not None or self._matcher.looks_like_step(record.text):
            self._held = _HeldRecord(record, row)
            return True
        event = self._matcher.companion_event(record.number, record.text)
        if event is None:
            return False
        self._sink.count_companion(record.line_count, record.number)
        self._sink.add_event(event)
        return True

    def _step_row(self, record: Record) -> tuple[StepLine | None, dict[str, Any] | None]:
        """Return the form and row of a step, or two None. Raises RejectedLineError."""
        if (step := self._matcher.step(record.text)) is None:
            return None, None
        form, match = step
        printed = self._matcher.printed(form, match)
        self._refuse_cut_off(record, form, frozenset(printed))
        row = self._matcher.step_row(record.text, form, match, printed)
        self._state_before(record, match)
        return form, {"line": record.number, "form": form} | row

    def _refuse_cut_off(self, record: Record, form: StepLine, printed: frozenset[str]) -> None:
        """Raise RejectedLineError for a last line without newline, if possibly cut off.

        Half a line is possible, of this kind or of another. So an earlier line of the same kind
        must exist, with no further fields and the same ending: the last number may be cut too. A
        first step waits for the end of the line even though no speed follows from a first step: the
        text identifies the run.
        """
        if not record.is_ended:
            last = self._sink.last_records.get(id(form))
            text = record.text.rstrip()
            if last is None or not last.printed <= printed or not ends_like(text, last.text):
                raise RejectedLineError("cut off at the end of the file")
        self._sink.note_record(form, printed, record.text)

    def _continues_held(self, record: Record) -> bool:
        """Read the rest of the held record; return False if the record ended before."""
        held = self._held
        assert held is not None  # noqa: S101 - the caller asked
        if not self._matcher.looks_like_step(record.text):
            before = held.record.text.rstrip()
            joined = record._replace(
                number=held.record.number, text=f"{before} {record.text.strip()}"
            )
            try:
                form, row = self._step_row(joined)
            except RejectedLineError:
                form, row = None, None
            if row is not None and form is not None and self._goes_past(len(before), joined.text):
                joined = joined._replace(line_count=held.record.line_count)
                self._held = _HeldRecord(joined, row)
                if not form.may_continue:
                    self._settle_held()
                return True
        self._settle_held()
        return False

    def _goes_past(self, index: int, joined: str) -> bool:
        """Return whether a step that begins before an index of the text extends beyond.

        A match after the index is another step, for example of a validation.
        """
        step = self._matcher.step(joined)
        return step is not None and step[1].start() < index < step[1].end()

    def _settle_held(self) -> None:
        held, self._held = self._held, None
        if held is None:
            return
        if held.row is not None:
            self._sink.add_step(held.row, held.record.text, held.record.line_count)
        else:
            self._unread(held.record, self._matcher.furthest_match(held.record.text))

    # -- headers ----------------------------------------------------------------------------

    def _note_start(self, record: Record) -> bool:
        """Pass the start of a launch to the sink; return False for other records.

        Late prints of the open launch begin none. Lines of libraries below begin a launch only if
        the open launch has failed, and commands only if a step follows.
        """
        number, text = record.number, record.text
        if (words := self._matcher.launch_words(text)) is None:
            if self._matcher.is_command(text):
                self._sink.note_command(number)
            if (words := self._matcher.relaunch_words(text)) is not None:
                mark = StartMark(self._matcher.rank(text), words)
                self._sink.note_start(number, text, mark, only_after_failure=True)
            return False
        if self._matcher.may_be_late(text) and self._sink.launch.last_value("gpus") is None:
            return False
        self._sink.note_start(number, text, StartMark(self._matcher.rank(text), words))
        return True

    def _read_header(self, record: Record) -> None:
        """Read facts, the start of a launch, or the first line of a block."""
        is_known, is_primary = self._note_start(record), False
        facts = self._matcher.facts(record.text)
        for line, match in facts:
            self._state(record, line, match)
            is_known, is_primary = True, is_primary or self._matcher.is_primary_line(line)
        for block, end in self._matcher.blocks(record.text):
            # a line of the primary begins no block of a companion
            if not is_primary or self._matcher.is_primary_line(block):
                self._block = _OpenBlock(block, end, record.number, record.text)
                is_known = True
                break
        if damage := self._matcher.damage(record.text, facts):
            self._unread(record, damage)
        elif is_known:
            self._sink.count_known(record.line_count, record.number)
        else:
            self._unmatched(record)

    def _state(self, record: Record, line: FactLine, match: re.Match[str]) -> None:
        """State the facts of a line."""
        facts = named_groups(match)
        if line.read is not None:
            facts = read_facts(line.read, facts)
        facts.update(line.constants)
        origin = f"log:{record.number}"
        if line.inferred:
            origin = f"inferred: {line.inferred} ({origin})"
        is_primary = self._matcher.is_primary_line(line)
        for name, value in facts.items():
            scaled = _scaled(value, line.factors.get(name))
            if name in FACT_NAMES and scaled is not None:
                fact = fact_row(record.number, name, scaled, origin, record.text)
                self._sink.add_fact(fact, kind="fact" if is_primary else "companion")

    def _state_before(self, record: Record, match: re.Match[str]) -> None:
        """State the facts of a record on the same line, before a step or an event."""
        for line, fact in self._matcher.facts_before(record.text, match):
            self._state(record, line, fact)

    # -- blocks of lines --------------------------------------------------------------------

    def _continues_block(self, record: Record) -> bool:
        """Read a line of the open block; return False if the block ended before."""
        block = self._block
        assert block is not None  # noqa: S101 - the caller asked
        is_end = block.end.search(record.text) is not None
        is_last = is_end and block.spec.include_end
        is_full = len(block.lines) >= block.spec.max_lines
        is_cut = self._matcher.looks_like_step(record.text) or FENCE.match(record.text)
        if not is_last and (is_end or is_full or is_cut):
            self._close_block()
            return False
        block.add(record.number, record.text)
        if is_last or (block.spec.braces and block.open_braces <= 0):
            self._close_block()
        return True

    def _close_block(self) -> None:
        """State the facts of the open block, and add the event."""
        block, self._block = self._block, None
        assert block is not None  # noqa: S101 - the caller asked
        first = 0 if block.spec.include_start else 1
        lines, numbers = block.lines[first:], block.numbers[first:]
        fields = read_facts(block.spec.read, lines)
        facts = {name: value for name, value in fields.items() if name in FACT_NAMES}
        plain = {n: value for n, value in facts.items() if FACT_NAMES[n].kind != "json"}
        indices = locate_facts(lines, partial(read_facts, block.spec.read), plain)
        for name, value in facts.items():
            number, text = block.number, block.first
            if name in indices:
                number, text = numbers[indices[name]], lines[indices[name]]
            fact = fact_row(number, name, value, f"log:{number}", text)
            self._sink.add_fact(fact, block.number)
        self._infer_of_block(block, lines, facts.keys())
        if block.spec.kind is not None:
            others = {name: value for name, value in fields.items() if name not in FACT_NAMES}
            self._sink.add_event(self._block_event(block, block.spec.kind, others))

    def _infer_of_block(self, block: _OpenBlock, lines: list[str], stated: Collection[str]) -> None:
        """State the facts that follow from the lines of a block without being printed."""
        inferred = block.spec.infer(lines) if block.spec.infer is not None else {}
        for name, (value, why) in inferred.items():
            if name not in stated:
                origin = f"inferred: {why} (log:{block.number})"
                fact = fact_row(block.number, name, value, origin, block.first)
                self._sink.add_fact(fact, block.number)

    def _block_event(
        self, block: _OpenBlock, kind: str, fields: Mapping[str, str]
    ) -> dict[str, Any]:
        others = dict(fields)
        step = parse_optional(parse_integer, others.pop("step", None))
        event = event_row(block.number, kind, block.first, others, step)
        return event | {"logged_at": self._matcher.stamp(block.first)}


@dataclass(frozen=True, slots=True)
class _HeldRecord:
    """A record that looks like a step and may continue on the next line.

    row: of the step, if the record is complete
    """

    record: Record
    row: dict[str, Any] | None


JSON_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?$)')
"""String in JSON, possibly cut off at the end of the line.

A cut-off string extends to the end: this keeps lines with many quotes fast.
"""


@dataclass(slots=True)
class _OpenBlock:
    """Lines of a block so far. number, first: of its first line."""

    spec: FactBlock
    end: Regex
    number: int
    first: str
    lines: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    open_braces: int = 0

    def __post_init__(self) -> None:
        self.add(self.number, self.first)

    def add(self, number: int, text: str) -> None:
        """Add a line."""
        self.lines.append(text)
        self.numbers.append(number)
        if self.spec.braces and (len(self.lines) == 1 or not re.search(self.spec.others, text)):
            bare = JSON_STRING.sub("", text)
            self.open_braces += bare.count("{") - bare.count("}")


def _scaled(value: str, factor: float | None) -> str | None:
    """Return the value in the fact's unit; None if there is a factor but no number."""
    if factor is None:
        return value
    number = parse_optional(float, value)
    return None if number is None else repr(number * factor)
