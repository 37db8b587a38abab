"""Sink for the records of a source, from either reader.

Two readers fill a sink: `ingest.parse.line_parser`, the specification, and
`ingest.vector.block_parser`, the fast one. Both pass their records in line order. Only the sink
knows launches: it decides where launches begin and end, and assigns facts and events to them.

Every line is counted once: as unread (looks like a step, but is unreadable), as a step, as a
companion's step (kept as an event), as known (a fact, an event, blank) or as other. A line with
several records counts as the first of these that a record of it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import polars as pl

from ..core.spill import Spool
from ..formats.spec import LAUNCH_STEPS, StepLine
from ..launches.event_rows import EventRows
from ..launches.launch import Launch, begins_new_launch
from ..launches.row_chunks import Row, RowBatch
from ..launches.start_watch import StartMark, StartWatch
from ..launches.step_rows import StepRows
from .launch_closing import LaunchCloser
from .line_matcher import MAX_QUOTED_CHARS, LineMatcher, fact_row
from .unmatched_lines import KindCounts, UnmatchedKinds, line_kind

LineKind = Literal["unread", "step", "companion", "known", "other"]
LINE_KINDS: Final[tuple[LineKind, ...]] = ("unread", "step", "companion", "known", "other")
"""Kinds of lines: a line with several records is of the first kind."""

LAUNCH_OPENING_KINDS: Final = ("fact", "companion", "begin")
"""Kinds of pending records that may begin a launch."""


@dataclass(slots=True)
class ReadingCost:
    """Cost of reading a source, for diagnosis.

    seconds: wall time
    block_lines: lines read many at once
    regex_lines: lines read one by one with regexes
    cached_lines: lines without a matching pattern, or like an earlier line
    """

    seconds: float = 0.0
    block_lines: int = 0
    regex_lines: int = 0
    cached_lines: int = 0


@dataclass(slots=True)
class ParsedSource:
    """Result of parsing a source: its launches, and counts of its lines by kind."""

    launches: list[Launch]
    unread: list[dict[str, Any]]
    step_lines: int = 0
    known_lines: int = 0
    companion_lines: int = 0
    other_lines: int = 0
    unread_lines: int = 0
    other_kinds: list[dict[str, Any]] = field(default_factory=list)
    synthetic: bool = False
    cost: ReadingCost = field(default_factory=ReadingCost)

    @property
    def lines(self) -> int:
        """All lines: every line is in exactly a single count."""
        counts = (self.known_lines, self.companion_lines, self.other_lines, self.unread_lines)
        return self.step_lines + sum(counts)


class LastRecord(NamedTuple):
    """The last record of a form of step lines.

    printed: names of the fields
    text: of the line
    """

    printed: frozenset[str]
    text: str


class RecordSink:
    """Collector of the records of a source, in line order, and of their launches.

    A `line_count` is the number of lines of a record; 0 if a later record on its line counts them.
    """

    def __init__(
        self, matcher: LineMatcher, spool: Spool | None = None, *, keep_texts: bool = True
    ) -> None:
        """Begin with a launch without rows.

        spool: storage of rows
        keep_texts: see `keeps_text`; without texts, rows that turn out to be events raise
            MissingTextsError
        """
        self._keep_texts = keep_texts
        primary = matcher.primary
        self.single_writer = primary.clock is None and primary.rank_in_path is not None
        """True if all rows have one rank and no stamps: see `begins_new_launch`."""
        self.out = ParsedSource(launches=[], unread=[])
        self.last_records: dict[int, LastRecord] = {}
        """Last record of each form, by the id of its StepLine."""
        self._has_clock = primary.clock is not None
        self._forms = primary.steps
        self._spool = spool or Spool()
        self._closer = LaunchCloser(primary, matcher.companions, keep_texts=keep_texts)
        self._kinds = UnmatchedKinds(matcher.cleaner.text)
        self._pending: list[_Pending] = []
        self._start_line: tuple[int, str] | None = None
        self._command_line: int | None = None
        self._watch = StartWatch()
        self._first_stamp: datetime | None = None
        self._uncounted: tuple[int, LineKind] = (0, "other")
        """Last line with a record that did not count it, and the kind of its records so far."""
        self._open_launch(1)

    @property
    def launch(self) -> Launch:
        """The open launch."""
        return self.out.launches[-1]

    @property
    def is_mid_launch(self) -> bool:
        """True if the open launch has rows, and no later line begins another launch."""
        return not self._is_opening and len(self.launch.rows) > 0

    @property
    def _is_opening(self) -> bool:
        """True if a line since the last step begins a launch with the next step."""
        return self._start_line is not None or self._command_line is not None

    @property
    def is_mid_header(self) -> bool:
        """True if a line without statements cannot change the open launch.

        That is after the first text and the first stamp of a launch, before the first row.
        """
        return bool(self.launch.first_text) and not (self.is_mid_launch or self.wants_stamp)

    @property
    def wants_stamp(self) -> bool:
        """True if the time stamp of the next line may be the first of a launch."""
        is_opening = self._is_opening or not self.launch.rows
        return self._has_clock and self._first_stamp is None and is_opening

    # -- lines that are no records ----------------------------------------------------------

    def note_text(self, number: int, text: str) -> None:
        """Keep the line as the launch's first text, unless there is an earlier line."""
        if not self.launch.first_text:
            self.launch.first_text, self.launch.first_line = text, number

    def note_stamp(self, stamp: datetime | None) -> None:
        """Keep the time stamp of a line; call only if `wants_stamp`."""
        self._first_stamp = stamp

    def note_start(
        self, number: int, text: str, mark: StartMark, *, only_after_failure: bool = False
    ) -> None:
        """Note that a line begins a launch.

        The first such line since a step counts, and the first after the failure of a launch that
        has no step yet. With only_after_failure, the line is not printed at every start.
        """
        is_other = self._watch.is_other_launch(mark)
        if is_other and (self._start_line is not None or not self.launch.rows):
            self._leave_failed_launch(number, text)
        elif self._start_line is None and (is_other or not only_after_failure):
            self._start_line = number, text
            if self.launch.rows:
                self._watch = StartWatch()
        self._watch.note_start(mark)

    def note_command(self, number: int) -> None:
        """Note a command that starts a training: the next step is of another launch.

        Without a step after it, the command may be of a report, or of another program.
        """
        if self.launch.rows and self._command_line is None:
            self._command_line = number

    def note_training_end(self, number: int, rank: str | None) -> None:
        """Note that training of a rank ends at a line."""
        if self.launch.rows:
            self.launch.ends[rank] = number
        else:
            self._watch.note_end(number)

    def note_record(self, form: StepLine, printed: frozenset[str], text: str) -> None:
        """Keep the last step record of a form."""
        self.last_records[id(form)] = LastRecord(printed, text.rstrip())

    def mark_synthetic(self) -> None:
        """Mark the log as synthetic."""
        self.out.synthetic = True

    def count_known(self, line_count: int, number: int = 0) -> None:
        """Count lines of facts, events or blanks. number: of the line of a single record."""
        self._count("known", number, line_count)

    def count_companion(self, line_count: int, number: int = 0) -> None:
        """Count lines of a companion's steps. number: of the line of a single record."""
        self._count("companion", number, line_count)

    def _count(self, kind: LineKind, number: int, line_count: int) -> None:
        """Count the lines of a record, by the first kind of all records on its line."""
        uncounted, earlier_kind = self._uncounted
        if number == uncounted and number > 0:
            kind = min(kind, earlier_kind, key=LINE_KINDS.index)
        if line_count == 0:
            self._uncounted = number, kind
            return
        name = f"{kind}_lines"
        setattr(self.out, name, getattr(self.out, name) + line_count)

    def add_unread(self, number: int, text: str, reason: str, line_count: int) -> None:
        """Keep an unreadable record, with the reason."""
        self._count("unread", number, line_count)
        self.out.unread.append({"line": number, "reason": reason, "text": text[:MAX_QUOTED_CHARS]})

    def add_unmatched(self, number: int, text: str, line_count: int) -> None:
        """Count a record without a matching pattern."""
        self._count("other", number, line_count)
        self._kinds.add(line_kind(text), line_count, number, text)

    def add_unmatched_kinds(self, several: KindCounts) -> None:
        """Count many records without a matching pattern."""
        self.out.other_lines += int(several.counts.sum())
        self._kinds.add_many(several)

    # -- facts and events -------------------------------------------------------------------

    def add_fact(
        self,
        fact: Row,
        first_line: int | None = None,
        *,
        kind: Literal["fact", "companion"] = "fact",
    ) -> None:
        """Keep a row of `facts` until its launch is known.

        first_line: of the fact's block; by default the line of the fact
        kind: "companion" for facts of a companion format
        """
        self._pending.append(
            _Pending(kind, fact, fact["line"] if first_line is None else first_line)
        )

    def add_event(self, event: Row, *, begins_launch: bool = False) -> None:
        """Keep a row of `events` until its launch is known."""
        self._watch.note_events([event])
        self._pending.append(_Pending("begin" if begins_launch else "event", event, event["line"]))

    def add_events(self, events: RowBatch, last_line: int) -> None:
        """Keep many events, none of which begins a launch. last_line: of the last event.

        No line between them states anything: a launch begins before all of them, or after.
        """
        self._watch.note_events(events)
        self._pending.append(_Pending("events", events, last_line))

    # -- steps ------------------------------------------------------------------------------

    def add_step(self, row: dict[str, Any], text: str, line_count: int) -> None:
        """Keep a row of `steps`, which may begin a launch; count its step if missing."""
        self._count("step", row["line"], line_count)
        launch = self.launch
        again = self._is_opening or begins_new_launch(launch, row, single_writer=self.single_writer)
        if launch.rows and again:
            launch = self._new_launch(row, text)
        self._flush(launch)
        launch.begun = launch.begun or (not launch.rows and self._is_opening)
        self._start_line = self._command_line = None
        self._watch.note_step()
        if row.get("step") is None:
            row["step"] = launch.next_counted_step(row["form"], row["rank"])
            row["counted"] = not (row["form"].every_step or launch.interval)
        self._state_new(launch, row["line"], row.pop("says"), text)
        if keeps_text(row["form"], keep_texts=self._keep_texts):
            row["text"] = text[:MAX_QUOTED_CHARS]
        self._append(launch, row, text)

    def add_steps(
        self, frame: pl.DataFrame, text: str, line_count: int | None = None
    ) -> pl.DataFrame:
        """Keep many rows of the open launch, and return them with their steps.

        text: of the last record
        line_count: by default one line per row
        """
        launch = self.launch
        self._flush(launch)
        self._watch.note_step()
        self.out.step_lines += frame.height if line_count is None else line_count
        launch.last_line, launch.last_step_text = int(frame["line"][-1]), text
        if frame["step"].null_count():
            return launch.add_counted(frame)
        launch.rows.extend(frame)
        return frame

    # -- launches ---------------------------------------------------------------------------

    def finish(self) -> ParsedSource:
        """Close the last launch: the last record has arrived. Raises MissingTextsError.

        Records after the last step belong to the last launch, unless they begin a launch without
        steps.
        """
        last = self.launch
        if self._start_line is not None and last.rows:
            last = self._begin_launch(*self._start_line)
        self._flush(last)
        last.first_stamp = last.first_stamp or self._first_stamp
        self._close(last)
        last.last_line = max(last.last_line, self.out.lines)
        self.out.other_kinds = self._kinds.commonest()
        return self.out

    def _append(self, launch: Launch, row: dict[str, Any], text: str) -> None:
        """Append a row to a launch."""
        if not launch.rows:
            launch.first_step_text = text
            launch.first_stamp, self._first_stamp = self._first_stamp, None
        launch.rows.append(row)
        launch.last_line, launch.last_step_text = row["line"], text
        if launch.started_at is None:
            launch.started_at = row["logged_at"]
        progress = launch.progress_of(row)
        progress.low_step = min(progress.low_step, row["step"])
        if row["step"] > progress.top_step:
            progress.top_step, progress.top_stamp = row["step"], row["logged_at"]
            progress.top_clock = row.get("since_start_s")

    @staticmethod
    def _state_new(launch: Launch, number: int, says: Mapping[str, str], text: str) -> None:
        """State new facts from a step line."""
        for name, value in says.items():
            if launch.said.get(name) != value:
                launch.said[name] = value
                launch.facts.append(fact_row(number, name, value, f"log:{number}", text))

    def _new_launch(self, row: dict[str, Any], text: str) -> Launch:
        """Begin a launch at its first line, or at the first statement since the last step.

        Whichever is first: excerpts leave out lines of a header. Events since the last step, such
        as the end of training, belong to the launch before. So do statements before such an end.
        """
        last = self.launch
        if not self._is_opening and (foreign := last.remove_foreign_rows(row)):
            launch = self._begin_launch(foreign[0]["line"], last.last_step_text)
            for foreign_row in foreign:
                self._append(launch, foreign_row, last.last_step_text)
            return launch
        number, first_text = self._start_line or (row["line"], text)
        number = min(number, self._command_line or number)
        return self._begin_launch(self._first_statement(number), first_text)

    def _leave_failed_launch(self, number: int, text: str) -> None:
        """Begin a launch at a line: the launch before failed without a step."""
        failure = self._watch.last_failure
        if self.launch.rows and self._start_line is not None:
            start, start_text = self._start_line
            self._begin_launch(self._first_statement(start), start_text)
        self.launch.first_stamp, self._first_stamp = self._first_stamp, None
        self._begin_launch(self._first_statement(number, after=failure), text)
        self._start_line, self._watch = (number, text), StartWatch()

    def _first_statement(self, number: int, after: int = 0) -> int:
        """Return the first line of a statement since the end of training, or `number`."""
        end = max(self.launch.ends.values(), default=after)
        stated = (
            record.line
            for record in self._pending
            if record.kind in LAUNCH_OPENING_KINDS and record.line > end
        )
        return min([number, *stated])

    def _begin_launch(self, number: int, text: str) -> Launch:
        """Close the open launch with the records before a line; begin a launch there."""
        last, pending = self.launch, self._pending
        self._pending = [record for record in pending if record.line < number]
        self._flush(last)
        self._close(last)
        self._pending = [record for record in pending if record.line >= number]
        return self._open_launch(number, text)

    def _open_launch(self, number: int, text: str = "") -> Launch:
        """Open a launch at a line."""
        rows, events = StepRows(self._spool, self._forms), EventRows(self._spool)
        launch = Launch(first_line=number, first_text=text, rows=rows, events=events)
        self.out.launches.append(launch)
        return launch

    def _flush(self, launch: Launch) -> None:
        """Give a launch all pending records."""
        add: Mapping[str, Callable[[Any], None]] = {
            "event": launch.events.append,
            "begin": launch.events.append,
            "events": launch.events.extend,
            "fact": launch.facts.append,
            "companion": launch.companion_facts.append,
        }
        for record in self._pending:
            add[record.kind](record.content)
            launch.last_line = max(launch.last_line, record.line)
        self._pending = []

    def _close(self, launch: Launch) -> None:
        moved = self._closer.close(launch)
        self.out.step_lines -= moved
        self.out.known_lines += moved


class _Pending(NamedTuple):
    """A row of a fact or event, or many events, whose launch is not known yet.

    line: of the row; for a fact of a block the block's first, for events the last
    """

    kind: str
    content: Row | RowBatch
    line: int


def keeps_text(form: StepLine, *, keep_texts: bool) -> bool:
    """Return whether rows of a form keep their texts: they may turn out to be events.

    Rows that count the steps of their launch hardly ever become events, and texts take most of
    their memory. So a caller that can read the source again passes keep_texts=False, and reads
    again with texts after MissingTextsError.
    """
    return form.counts is not None and (keep_texts or form.counts != LAUNCH_STEPS)
