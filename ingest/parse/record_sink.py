"""Where the records of a source go, whoever reads them: one by one, or many at once.

Two readers fill a sink: `ingest.parse.line_parser`, the specification, and
`ingest.vector.block_parser`, the fast one. Both say what they have read in the order of its lines.
The sink alone knows launches: it decides where one ends and the next begins, and of which launch a
fact or an event is.

Every line is counted once: as a step, as known (a fact, an event, blank), as a companion's step
(kept as an event), as unread (it looks like a step and could not be read) or as other.
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
from ..launches.step_rows import StepRows
from .launch_closing import LaunchCloser
from .line_matcher import MAX_QUOTED_CHARS, LineMatcher, fact_row
from .unmatched_lines import KindCounts, UnmatchedKinds, line_kind

LAUNCH_OPENING_KINDS: Final = ("fact", "companion", "begin")
"""Kinds of pending records that may begin a launch."""


@dataclass(slots=True)
class ReadingCost:
    """What a source took to be read, for those who ask why it was slow.

    seconds: wall time. Lines that were read many at once, one by one by regexes, and that no
    pattern can match or a like line before them.
    """

    seconds: float = 0.0
    block_lines: int = 0
    regex_lines: int = 0
    cached_lines: int = 0


@dataclass(slots=True)
class ParsedSource:
    """What a source says: its launches, and how many of its lines are what."""

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
        """All lines, each of which is in one of the counts."""
        counts = (self.known_lines, self.companion_lines, self.other_lines, self.unread_lines)
        return self.step_lines + sum(counts)


class LastRecord(NamedTuple):
    """The last record of a form of step lines. printed: names of its fields; text: of its line."""

    printed: frozenset[str]
    text: str


class RecordSink:
    """Takes the records of one source in the order of their lines, and keeps its launches.

    A `line_count` is how many lines a record has.
    """

    def __init__(
        self, matcher: LineMatcher, spool: Spool | None = None, *, keep_texts: bool = True
    ) -> None:
        """Begin with a launch that has no rows.

        spool: where rows are put aside. keep_texts: see `keeps_text`; without texts, rows that turn
        out to be events raise MissingTextsError.
        """
        self.keep_texts = keep_texts
        primary = matcher.primary
        self.single_writer = primary.clock is None and primary.rank_in_path is not None
        """All rows are of one rank, and without stamps: see `begins_new_launch`."""
        self.out = ParsedSource(launches=[], unread=[])
        self.last_records: dict[int, LastRecord] = {}
        """Of each form, by the id of its StepLine."""
        self._has_clock = primary.clock is not None
        self._forms = primary.steps
        self._spool = spool or Spool()
        self._closer = LaunchCloser(primary, matcher.companions, keep_texts=keep_texts)
        self._kinds = UnmatchedKinds(matcher.cleaner.text)
        self._pending: list[_Pending] = []
        self._start_line: tuple[int, str] | None = None
        self._first_stamp: datetime | None = None
        self._open_launch(1)

    @property
    def launch(self) -> Launch:
        """The open launch."""
        return self.out.launches[-1]

    @property
    def is_mid_launch(self) -> bool:
        """Whether the open launch has rows, and no line since them begins another one."""
        return self._start_line is None and len(self.launch.rows) > 0

    @property
    def is_mid_header(self) -> bool:
        """Whether the next line, if it states nothing, means nothing to the open launch either.

        So it is where a launch has its first text and its first stamp, and as yet no row.
        """
        return bool(self.launch.first_text) and not (self.is_mid_launch or self.wants_stamp)

    @property
    def wants_stamp(self) -> bool:
        """Whether the time stamp of the next line may be the first of a launch."""
        is_opening = self._start_line is not None or not self.launch.rows
        return self._has_clock and self._first_stamp is None and is_opening

    # -- lines that are no records ----------------------------------------------------------

    def note_text(self, number: int, text: str) -> None:
        """Tell a line that is not blank: the first one of a launch is kept."""
        if not self.launch.first_text:
            self.launch.first_text, self.launch.first_line = text, number

    def note_stamp(self, stamp: datetime | None) -> None:
        """Tell the time stamp of a line, where one is wanted."""
        self._first_stamp = stamp

    def note_start(self, number: int, text: str) -> None:
        """Tell a line that begins a launch; the first of several since the last step counts."""
        self._start_line = self._start_line or (number, text)

    def note_training_end(self, number: int, rank: str | None) -> None:
        """Tell a line by which a rank says that its training is over."""
        if self.launch.rows:
            self.launch.ends[rank] = number

    def note_record(self, form: StepLine, printed: frozenset[str], text: str) -> None:
        """Tell the last step record of a form."""
        self.last_records[id(form)] = LastRecord(printed, text.rstrip())

    def mark_synthetic(self) -> None:
        """Tell that the log says of itself that it was composed."""
        self.out.synthetic = True

    def count_known(self, line_count: int) -> None:
        """Count lines of facts, events or blanks."""
        self.out.known_lines += line_count

    def count_companion(self, line_count: int) -> None:
        """Count lines of a companion's steps."""
        self.out.companion_lines += line_count

    def add_unread(self, number: int, text: str, reason: str, line_count: int) -> None:
        """Keep a record that could not be read, with the reason."""
        self.out.unread_lines += line_count
        self.out.unread.append({"line": number, "reason": reason, "text": text[:MAX_QUOTED_CHARS]})

    def add_unmatched(self, number: int, text: str, line_count: int) -> None:
        """Count a record that no pattern knows."""
        self.out.other_lines += line_count
        self._kinds.add(line_kind(text), line_count, number, text)

    def add_unmatched_kinds(self, several: KindCounts) -> None:
        """Count many such records."""
        self.out.other_lines += int(several.counts.sum())
        self._kinds.add_many(several)

    # -- facts and events -------------------------------------------------------------------

    def add_fact(
        self, fact: Row, at: int | None = None, *, kind: Literal["fact", "companion"] = "fact"
    ) -> None:
        """Keep a row of `facts` until its launch is known.

        at: the first line of its block; by default the fact's own. kind: whose it is.
        """
        self._pending.append(_Pending(kind, fact, fact["line"] if at is None else at))

    def add_event(self, event: Row, *, begins_launch: bool = False) -> None:
        """Keep a row of `events` until its launch is known."""
        self._pending.append(_Pending("begin" if begins_launch else "event", event, event["line"]))

    def add_events(self, events: RowBatch, last_line: int) -> None:
        """Keep many events, of which none begins a launch; last_line: of the last one.

        No line between them states anything: a launch begins before all of them, or behind.
        """
        self._pending.append(_Pending("events", events, last_line))

    # -- steps ------------------------------------------------------------------------------

    def keeps_text(self, form: StepLine) -> bool:
        """Return whether rows of a form keep their texts; see the function of this name."""
        return keeps_text(form, keep_texts=self.keep_texts)

    def add_step(self, row: dict[str, Any], text: str, line_count: int) -> None:
        """Keep a row of `steps`, which may begin a launch; its step is counted if it has none."""
        self.out.step_lines += line_count
        launch = self.launch
        again = self._start_line is not None or begins_new_launch(
            launch, row, single_writer=self.single_writer
        )
        if launch.rows and again:
            launch = self._new_launch(row, text)
        self._flush(launch)
        self._start_line = None
        if row.get("step") is None:
            row["step"] = launch.next_counted_step(row["form"], row["rank"])
            row["counted"] = not (row["form"].every_step or launch.interval)
        self._state_new(launch, row["line"], row.pop("says"), text)
        if self.keeps_text(row["form"]):
            row["text"] = text[:MAX_QUOTED_CHARS]
        self._append(launch, row, text)

    def add_steps(
        self, frame: pl.DataFrame, text: str, line_count: int | None = None
    ) -> pl.DataFrame:
        """Keep many rows, all of the open launch, and return them with their steps.

        text: of the last record; line_count: by default one line each.
        """
        launch = self.launch
        self._flush(launch)
        self.out.step_lines += frame.height if line_count is None else line_count
        launch.last_line, launch.last_step_text = int(frame["line"][-1]), text
        if frame["step"].null_count():
            return launch.add_counted(frame)
        launch.rows.extend(frame)
        return frame

    # -- launches ---------------------------------------------------------------------------

    def finish(self) -> ParsedSource:
        """Close the last launch: the last record has come. Raises MissingTextsError.

        What follows the last step belongs to it, unless it starts a launch that got no step.
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
        """Put a row behind the others of a launch."""
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
        """State facts that step lines print, where they are new."""
        for name, value in says.items():
            if launch.said.get(name) != value:
                launch.said[name] = value
                launch.facts.append(fact_row(number, name, value, f"log:{number}", text))

    def _new_launch(self, row: dict[str, Any], text: str) -> Launch:
        """Begin a launch at its first line, or with what was stated since the last step.

        Whichever comes first: excerpts leave lines of a header out. Events since then, such as the
        end of training, belong to the launch before, and so does what was stated before such an
        end.
        """
        last = self.launch
        end = max(last.ends.values(), default=0)
        stated = [
            record.at
            for record in self._pending
            if record.kind in LAUNCH_OPENING_KINDS and record.at > end
        ]
        if self._start_line is None and (foreign := last.remove_foreign_rows(row)):
            launch = self._begin_launch(foreign[0]["line"], last.last_step_text)
            for one in foreign:
                self._append(launch, one, last.last_step_text)
            return launch
        number, first_text = self._start_line or (row["line"], text)
        return self._begin_launch(min([number, *stated]), first_text)

    def _begin_launch(self, number: int, text: str) -> Launch:
        """Close the open launch with what was said before a line, and begin one at that line."""
        last, pending = self.launch, self._pending
        self._pending = [record for record in pending if record.at < number]
        self._flush(last)
        self._close(last)
        self._pending = [record for record in pending if record.at >= number]
        return self._open_launch(number, text)

    def _open_launch(self, number: int, text: str = "") -> Launch:
        """Open a launch that begins at a line."""
        rows, events = StepRows(self._spool, self._forms), EventRows(self._spool)
        launch = Launch(first_line=number, first_text=text, rows=rows, events=events)
        self.out.launches.append(launch)
        return launch

    def _flush(self, launch: Launch) -> None:
        """Give a launch all that waits."""
        add: Mapping[str, Callable[[Any], None]] = {
            "event": launch.events.append,
            "begin": launch.events.append,
            "events": launch.events.extend,
            "fact": launch.facts.append,
            "companion": launch.companion_facts.append,
        }
        for record in self._pending:
            add[record.kind](record.content)
            launch.last_line = max(launch.last_line, record.at)
        self._pending = []

    def _close(self, launch: Launch) -> None:
        moved = self._closer.close(launch)
        self.out.step_lines -= moved
        self.out.known_lines += moved


class _Pending(NamedTuple):
    """A row of a fact or event, or many events, whose launch is not known yet.

    at: the line that it stands by, of events the last one's.
    """

    kind: str
    content: Row | RowBatch
    at: int


def keeps_text(form: StepLine, *, keep_texts: bool) -> bool:
    """Return whether rows of a form keep their texts: they may turn out to be events.

    Rows that count the steps of their launch hardly ever do, and their texts are most of their
    memory. So who can read all again does without (keep_texts false), and reads again with them
    where MissingTextsError is raised.
    """
    return form.counts is not None and (keep_texts or form.counts != LAUNCH_STEPS)
