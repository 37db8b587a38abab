"""Lines and a format give launches: facts, steps, events; what is not understood is kept.

What a line says by itself is known to `ingest.parse.line_matcher`. Here stands what hangs on the
lines before it: of which launch it is, whether it goes on with what they left open, and how it
counts.

Every line is counted once: as a step, as known (a fact, an event, blank), as a companion's step
(kept as an event), as unread (it looks like a step and could not be read) or as other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import chain, takewhile
from typing import Any, Final, NamedTuple

import polars as pl
import pyarrow as pa

from ..core.arrays import Ints
from ..core.numbers import parse_integer, parse_optional, strip_thousands_commas
from ..core.safe_regex import Regex
from ..core.schema import FACT_NAMES
from ..core.spill import Spool
from ..decode.line_reader import MAX_LINE_BYTES, NumberedLine
from ..decode.text_cleaning import to_valid_utf8
from ..formats.spec import LAUNCH_STEPS, FactBlock, FactLine, LogFormat, StepLine
from ..launches.elapsed_refinement import refine_elapsed
from ..launches.event_rows import EventRows
from ..launches.launch import Launch, begins_new_launch
from ..launches.micro_steps import find_unstated_micro_steps
from ..launches.row_chunks import Row, RowBatch
from ..launches.step_alignment import (
    align_steps,
    has_only_counted_steps,
    place_counted_rows,
    steps_between_lines,
    steps_between_lines_by_epochs,
)
from ..launches.step_rows import StepRows
from .block_provenance import locate_facts
from .format_watch import FormatWatch
from .line_matcher import (
    MAX_QUOTED_CHARS,
    SYNTHETIC_LOG_MARK,
    event_row,
    line_matcher,
    named_groups,
    read_facts,
)
from .step_fields import RejectedLineError, ends_like
from .unmatched_lines import UnmatchedKinds, line_kind

LAUNCH_OPENING_KINDS: Final = ("fact", "companion", "begin")
"""Kinds of what waits that may begin a launch."""


@dataclass(slots=True)
class ParsedSource:
    """What a source says; the five counts add up to `lines`."""

    launches: list[Launch]
    unread: list[dict[str, Any]]
    lines: int = 0
    step_lines: int = 0
    known_lines: int = 0
    companion_lines: int = 0
    other_lines: int = 0
    unread_lines: int = 0
    other_kinds: list[dict[str, Any]] = field(default_factory=list)
    synthetic: bool = False


class MissingTextsError(Exception):
    """Rows became events whose texts were not kept: all is to be read again with them."""


class Parser:
    """Reads the lines of one source with a primary format and its companions."""

    def __init__(
        self,
        primary: LogFormat,
        companions: Sequence[LogFormat] = (),
        spool: Spool | None = None,
        watch: FormatWatch | None = None,
        *,
        keep_texts: bool = True,
    ) -> None:
        """spool: where rows are put aside; watch: for what of no line is sure that may show it.

        keep_texts: by default all rows that may become events keep their texts. Those that count
        the steps of their launch hardly ever do, and their texts are what most of their memory is;
        who can read all again does without, and does so where TextsWantedError is raised.
        """
        self.primary, self.companions = primary, tuple(companions)
        self.keep_texts = keep_texts
        self.patterns = line_matcher(primary, self.companions, watch)
        self._spool = spool or Spool()
        self._open_block: _OpenBlock | None = None
        self._pending: list[_Pending] = []
        self._marker: tuple[int, str] | None = None
        self._start: datetime | None = None
        self._held: _Held | None = None
        self._ended = True
        self._count = 1
        self._printed: dict[int, tuple[set[str], str]] = {}
        self._kinds = UnmatchedKinds(self.patterns.cleaner.text)
        self.out = ParsedSource(launches=[self._launch_at(1)], unread=[])

    def parse(self, lines: Iterable[NumberedLine]) -> ParsedSource:
        """Read all of `lines`, each once."""
        self.read_all(lines)
        return self.done()

    def read_all(self, lines: Iterable[NumberedLine]) -> None:
        """Lines of which more are to come; but records of `join` end with these."""
        for number, count, raw, cut, ended in self._records(lines):
            self._count, self._ended = count, ended
            self.out.lines += count
            self._line(number, self.patterns.cleaner.strip(raw), cut=cut)

    def records(self, lines: Iterable[NumberedLine]) -> Iterator[tuple[int, int, str]]:
        """Number of the first line, how many lines, and the text of each record."""
        for number, count, raw, _, _ in self._records(lines):
            yield number, count, self.patterns.cleaner.strip(raw)

    def done(self) -> ParsedSource:
        """All that was read, once the last line was."""
        self._settle_held()
        if self._open_block is not None:
            self._close_block()
        self._finish()
        return self.out

    @property
    def settled(self) -> bool:
        """Whether the next line means the same whatever was read before it.

        So it is within a launch that has rows, where no header and no block is open.
        """
        quiet = self._open_block is None and self._held is None and self._marker is None
        return quiet and len(self.out.launches[-1].rows) > 0

    @property
    def single_writer(self) -> bool:
        """Whether all rows are of one rank, and without stamps: see starts_again."""
        return self.primary.clock is None and self.primary.rank_in_path is not None

    def add_rows(
        self, frame: pl.DataFrame, text: str, line_count: int | None = None
    ) -> pl.DataFrame:
        """Rows of the launch that is being read, which are given back with their steps.

        text: of the last one's record. lines: how many they are of, if not of one each.
        """
        launch = self.out.launches[-1]
        self._flush(launch)
        self.out.lines += frame.height if line_count is None else line_count
        self.out.step_lines += frame.height if line_count is None else line_count
        launch.last_line, launch.last_step_text = int(frame["line"][-1]), text
        if frame["step"].null_count():
            return launch.add_counted(frame)
        launch.rows.extend(frame)
        return frame

    def add_unmatched(
        self,
        kinds: pa.StringArray,
        counts: Ints,
        lines: Ints,
        texts: Callable[[Ints], Iterable[str | bytes]],
    ) -> None:
        """Lines that no pattern knows; see Kinds.add_many."""
        count = int(counts.sum())
        self.out.lines += count
        self.out.other_lines += count
        self._kinds.add_many(kinds, counts, lines, texts)

    def add_events(self, events: RowBatch, last_line: int, companion_count: int) -> None:
        """Events of as many lines, so many of companions' steps; they wait for the next rows.

        No line between them states anything: a launch begins before all of them, or behind.
        """
        self.out.lines += len(events)
        self.out.companion_lines += companion_count
        self.out.known_lines += len(events) - companion_count
        self._pending.append(_Pending("events", events, last_line))

    def add_known_lines(self, count: int) -> None:
        """Lines of blanks, or that state nothing, where they end nothing (see `settled`)."""
        self.out.lines += count
        self.out.known_lines += count

    def set_last_line(self, step_line: StepLine, printed_fields: frozenset[str], text: str) -> None:
        """The last line of a form: its fields, and what closes it; see _refuse_cut_off."""
        self._printed[id(step_line)] = set(printed_fields), text.rstrip()

    def read(self, line: NumberedLine) -> None:
        """One line that is a record of its own."""
        self._count, self._ended = 1, line.ended
        self.out.lines += 1
        self._line(line.number, self.patterns.cleaner.strip(line.text), cut=line.cut)

    def keeps_text(self, step_line: StepLine) -> bool:
        """Whether rows of a form keep their texts, as they may turn out to be events."""
        return step_line.counts is not None and (
            self.keep_texts or step_line.counts != LAUNCH_STEPS
        )

    def stop_watching(self) -> None:
        """Nothing is watched for any more."""
        self.patterns = line_matcher(self.primary, self.companions, None)

    def _records(self, lines: Iterable[NumberedLine]) -> Iterator[tuple[int, int, str, bool, bool]]:
        """Number, how many lines, text, cut, ended of each record; most are lines of their own."""
        if self.primary.join is None:
            for number, text, cut, ended in lines:
                yield number, 1, text, cut, ended
            return
        cuts: set[int] = set()
        last = NumberedLine(0, "", cut=False)

        def texts() -> Iterator[tuple[int, str]]:
            nonlocal last
            for last in lines:
                cuts.update([last.number] if last.cut else [])
                yield last.number, last.text

        for number, count, text in self.primary.join(texts()):
            cut = not cuts.isdisjoint(range(number, number + count))
            yield number, count, text, cut, last.ended or number + count - 1 < last.number

    # -- one line -------------------------------------------------------------------------

    def _line(self, number: int, text: str, *, cut: bool) -> None:
        if cut:
            most = f"{MAX_LINE_BYTES:,} bytes"
            self._unread(number, text, f"longer than {most}: only its beginning was kept")
            return
        if self._open_block is not None and self._continue_block(number, text):
            self.out.known_lines += self._count
            return
        if self._held is not None and self._continue_held(text):
            self.out.known_lines += self._count
            return
        if text.startswith(SYNTHETIC_LOG_MARK):
            self.out.synthetic = True
            self.out.known_lines += self._count
            return
        launch = self.out.launches[-1]
        if not launch.first_text and text.strip():
            launch.first_text, launch.first_line = text, number
        if not text.strip():
            self.out.known_lines += self._count
        elif not self.patterns.may_match(text):
            self._other(number, text)
        elif not (self._event(number, text) or self._step(number, text)):
            self._header(number, text)
        if self._start is None and (self._marker is not None or not launch.rows):
            self._start = self.patterns.stamp(text)

    def _event(self, number: int, text: str) -> bool:
        found = self.patterns.event(text)
        if found is None:
            return False
        kind = "begin" if found[0].begins else "event"
        self._state_before(number, text, found[1])
        self._wait(kind, self.patterns.event_row(number, text, *found))
        if found[0].ends_training and (launch := self.out.launches[-1]).rows:
            launch.ends[self.patterns.rank(text)] = number
        if found[0].with_facts:
            return False
        self._mark(number, text)
        self.out.known_lines += self._count
        return True

    def _step(self, number: int, text: str) -> bool:
        try:
            read, row = self._read_step(number, text)
        except RejectedLineError as rejected:
            self._unread(number, text, str(rejected))
            return True
        if row is not None and read is not None and not read.may_continue:
            self._add_row(row, text)
            return True
        if row is not None or self.patterns.looks_like_step(text):
            self._held = _Held(number, self._count, text, row)
            return True
        if (event := self.patterns.companion_event(number, text)) is None:
            return False
        self.out.companion_lines += self._count
        self._wait("event", event)
        return True

    def _read_step(self, number: int, text: str) -> tuple[StepLine | None, dict[str, Any] | None]:
        if (found := self.patterns.step(text)) is None:
            return None, None
        row = self._row(number, text, *found)
        self._state_before(number, text, found[1])
        return found[0], row

    def _continue_held(self, text: str) -> bool:
        """Whether `text` is the rest of the held line; if not, the held line is settled."""
        held = self._held
        assert held is not None  # noqa: S101 - the caller asked
        if not self.patterns.looks_like_step(text):
            joined = f"{held.text.rstrip()} {text.strip()}"
            try:
                line, row = self._read_step(held.number, joined)
            except RejectedLineError:
                line, row = None, None
            if row is not None and line is not None and self._reads_past(held, joined):
                self._held = replace(held, text=joined, row=row) if line.may_continue else None
                if self._held is None:
                    self._as_counted(held, partial(self._add_row, row, joined))
                return True
        self._settle_held()
        return False

    def _reads_past(self, held: _Held, joined: str) -> bool:
        """Whether a step line that begins in the held line takes anything of what follows it.

        One that begins behind it is another one: a validation's, say, of the same step.
        """
        found = self.patterns.step(joined)
        return found is not None and found[1].start() < len(held.text.rstrip()) < found[1].end()

    def _settle_held(self) -> None:
        held, self._held = self._held, None
        if held is not None and held.row is not None:
            self._as_counted(held, partial(self._add_row, held.row, held.text))
        elif held is not None:
            why = self.patterns.furthest_match(held.text)
            self._as_counted(held, partial(self._unread, held.number, held.text, why))

    def _as_counted(self, held: _Held, settle: Callable[[], None]) -> None:
        """Settle a record that was held, of as many lines as it has."""
        now, self._count = self._count, held.count
        settle()
        self._count = now

    def _mark(self, number: int, text: str) -> bool:
        """Whether `text` begins a launch; the first such line since the last step is its start."""
        if not self.patterns.begins_launch(text) or self._is_late(text):
            return False
        self._marker = self._marker or (number, text)
        return True

    def _is_late(self, text: str) -> bool:
        """Whether a line that begins a launch may be one of the open launch, printed late."""
        late = self.patterns.may_be_late(text)
        return late and self.out.launches[-1].last_value("gpus") is None

    def _header(self, number: int, text: str) -> None:
        known, primary = self._mark(number, text), False
        facts = self.patterns.facts(text)
        for line, match in facts:
            self._state(number, text, line, match)
            known, primary = True, primary or self.patterns.is_primary_line(line)
        for block, end in self.patterns.blocks(text):
            if not primary or self.patterns.is_primary_line(
                block
            ):  # a companion's takes none of its lines
                self._open_block = _OpenBlock(block, end, number, text)
                known = True
                break
        if damage := self.patterns.damage(text, facts):
            self._unread(number, text, damage)
        elif known:
            self.out.known_lines += self._count
        else:
            self._other(number, text)

    # -- rows -----------------------------------------------------------------------------

    def _row(self, number: int, text: str, line: StepLine, match: re.Match[str]) -> dict[str, Any]:
        printed = self.patterns.printed(line, match)
        self._refuse_cut_off(line, set(printed), text.rstrip())
        row = self.patterns.step_row(text, line, match, printed)
        return {"line": number, "form": line} | row

    def _refuse_cut_off(self, line: StepLine, printed: set[str], text: str) -> None:
        """A last line without newline may be half a line, or half of one of another kind.

        So there has to be one of its kind before it, with no field more, that ends as it does: its
        last number may be cut too. A first step, which is no rate, waits until its line has ended,
        for a run is known by its text.
        """
        if not self._ended:
            fields, before = self._printed.get(id(line), (None, ""))
            if fields is None or not fields <= printed or not ends_like(text, before):
                raise RejectedLineError("cut off at the end of the file")
        self._printed[id(line)] = printed, text

    def _add_row(self, row: dict[str, Any], text: str) -> None:
        self.out.step_lines += self._count
        launch = self.out.launches[-1]
        counted = row.get("step") is None
        again = self._marker is not None or begins_new_launch(
            launch, row, single_writer=self.single_writer
        )
        if launch.rows and again:
            launch = self._new_launch(row, text)
        self._flush(launch)
        self._marker = None
        if counted:
            row["step"] = launch.next_counted_step(row["form"], row["rank"])
            row["counted"] = not (row["form"].every_step or launch.interval)
        self._say(launch, row["line"], row.pop("says"), text)
        if self.keeps_text(row["form"]):
            row["text"] = text[:MAX_QUOTED_CHARS]
        self._keep(launch, row, text)

    def _keep(self, launch: Launch, row: dict[str, Any], text: str) -> None:
        """One more row of a launch."""
        if not launch.rows:
            launch.first_step_text = text
            launch.first_stamp, self._start = self._start, None
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
    def _say(launch: Launch, number: int, says: Mapping[str, str], text: str) -> None:
        """Facts that step lines print, where they are new."""
        for name, value in says.items():
            if launch.said.get(name) != value:
                launch.said[name] = value
                launch.facts.append(_stated(number, name, value, f"log:{number}", text))

    def _new_launch(self, row: dict[str, Any], text: str) -> Launch:
        """A launch that begins at the pending marker, or with what was stated since the last step.

        Whichever comes first: excerpts leave lines of a header out. Events since then, such as the
        end of training, belong to the launch before, and so does what was stated before such an
        end.
        """
        last = self.out.launches[-1]
        end = max(last.ends.values(), default=0)
        stated = [
            item.at for item in self._pending if item.kind in LAUNCH_OPENING_KINDS and item.at > end
        ]
        if self._marker is None and (beside := last.remove_foreign_rows(row)):
            launch = self._begin_at(beside[0]["line"], last.last_step_text)
            for one in beside:
                self._keep(launch, one, last.last_step_text)
            return launch
        number, first = self._marker or (row["line"], text)
        return self._begin_at(min([number, *stated]), first)

    def _begin_at(self, number: int, first: str) -> Launch:
        """Close the launch with what was said before a line; another one begins at that line."""
        last, said = self.out.launches[-1], self._pending
        self._pending = [item for item in said if item.at < number]
        self._flush(last)
        self._close(last)
        self._pending = [item for item in said if item.at >= number]
        launch = self._launch_at(number, first)
        self.out.launches.append(launch)
        return launch

    def _launch_at(self, number: int, text: str = "") -> Launch:
        """A launch that begins at a line."""
        rows, events = StepRows(self._spool, self.primary.steps), EventRows(self._spool)
        return Launch(first_line=number, first_text=text, rows=rows, events=events)

    def _wait(self, kind: str, row: dict[str, Any], at: int | None = None) -> None:
        """Keep a row until it is clear of which launch it is; at: of a block its first line."""
        self._pending.append(_Pending(kind, row, row["line"] if at is None else at))

    def _flush(self, launch: Launch) -> None:
        add: Mapping[str, Callable[[Any], None]] = {
            "event": launch.events.append,
            "begin": launch.events.append,
            "events": launch.events.extend,
            "fact": launch.facts.append,
            "companion": launch.companion_facts.append,
        }
        for item in self._pending:
            add[item.kind](item.said)
            launch.last_line = max(launch.last_line, item.at)
        self._pending = []

    def _finish(self) -> None:
        """What follows the last step belongs to it, unless it starts a launch that got no step."""
        last = self.out.launches[-1]
        if self._marker is not None and last.rows:
            last = self._begin_at(*self._marker)
        self._flush(last)
        last.first_stamp = last.first_stamp or self._start
        self._close(last)
        last.last_line = max(last.last_line, self.out.lines)
        self.out.other_kinds = self._kinds.commonest()

    def _close(self, launch: Launch) -> None:
        """What only the whole launch tells: steps of lines with a counter of their own, units."""
        sure = self._finish_by_formats(launch)
        accumulation = parse_optional(parse_integer, launch.last_value("gradient_accumulation"))
        launch.forget()
        if self.primary.finer_clock is not None:
            launch.rows.transform(partial(refine_elapsed, self.primary.finer_clock))
        if any(form.counts for form in launch.rows.forms()):
            if sure:
                _regroup(launch, stops_once=self._stops_timer_once(launch))
            aligned = align_steps(launch.rows, accumulation or 0)
            launch.rows, launch.step_unit = aligned.rows, aligned.step_unit
            self._unplaced(launch, aligned.unplaced)
        launch.rows = place_counted_rows(launch.rows, launch.interval) or launch.rows
        if (steps := steps_between_lines(launch.rows, launch.events.of_kinds(["end"]))) is not None:
            _stretch(launch, steps, "the steps at the end over the lines that were printed")
        elif (steps := self._by_epochs(launch)) is not None:
            _stretch(launch, steps, "the epochs, in steps of the data set, over the lines")
        elif has_only_counted_steps(launch.rows):
            _say_counted(launch)
        version = launch.last_value("framework_version") or ""
        for misprint in self.primary.misprints:
            if launch.rows and re.match(misprint.versions, version):
                _correct(launch, misprint.factors, misprint.why)
        launch.events.settle()
        launch.started_at = _began(launch)
        launch.rows.settle()

    def _finish_by_formats(self, launch: Launch) -> bool:
        """Let the formats settle what only the whole launch tells; whether its batch is known."""
        is_known = True
        for finish in {f.finish: None for f in (self.primary, *self.companions) if f.finish}:
            found = finish(launch)
            if found.unsure is not None:
                is_known = False
                _say_batch_unknown(launch, found.unsure)
            if found.factors is not None:
                _correct(launch, found.factors, found.why)
        return is_known

    def _stops_timer_once(self, launch: Launch) -> bool:
        """Whether what trains stops the engine's timer once a step."""
        names = (n for f in (self.primary, *self.companions) for n in f.timer_stopped_once_with)
        return any(launch.last_value(name) is not None for name in names)

    @staticmethod
    def _by_epochs(launch: Launch) -> int | None:
        names = ("total_samples", "global_batch_size")
        samples, batch = (parse_optional(parse_integer, launch.last_value(name)) for name in names)
        if not samples or not batch:
            return None
        return steps_between_lines_by_epochs(launch.rows, samples, batch)

    def _unplaced(self, launch: Launch, rows: Sequence[Mapping[str, Any]]) -> None:
        """Rows whose step cannot be known become events. Raises TextsWantedError."""
        if not self.keep_texts and any(row.get("text") is None for row in rows):
            raise MissingTextsError
        for row in rows:
            launch.events.append(_timer_event(row))
        self.out.step_lines -= len(rows)
        self.out.known_lines += len(rows)

    # -- facts ----------------------------------------------------------------------------

    def _state(self, number: int, text: str, line: FactLine, match: re.Match[str]) -> None:
        facts = named_groups(match)
        if line.read is not None:
            facts = read_facts(line.read, facts)
        facts.update(line.constants)
        origin = f"log:{number}"
        if line.inferred:
            origin = f"inferred: {line.inferred} (log:{number})"
        kind = "fact" if self.patterns.is_primary_line(line) else "companion"
        for name, value in facts.items():
            scaled = _scaled(value, line.factors.get(name))
            if name in FACT_NAMES and scaled is not None:
                self._wait(kind, _stated(number, name, scaled, origin, text))

    def _state_before(self, number: int, text: str, match: re.Match[str]) -> None:
        """The facts of a record that another one, of a step or an event, stands behind."""
        for line, fact in self.patterns.facts_before(text, match):
            self._state(number, text, line, fact)

    def _continue_block(self, number: int, text: str) -> bool:
        block = self._open_block
        assert block is not None  # noqa: S101 - the caller asked
        ends = block.end.search(text) is not None
        last = ends and block.spec.include_end
        full = len(block.lines) >= block.spec.max_lines
        if not last and (ends or full or self.patterns.looks_like_step(text)):
            self._close_block()
            return False
        block.add(number, text)
        if last or (block.spec.braces and block.open_braces <= 0):
            self._close_block()
        return True

    def _close_block(self) -> None:
        block, self._open_block = self._open_block, None
        assert block is not None  # noqa: S101 - the caller asked
        first = 0 if block.spec.include_start else 1
        lines, numbers = block.lines[first:], block.numbers[first:]
        said = read_facts(block.spec.read, lines)
        facts = {name: value for name, value in said.items() if name in FACT_NAMES}
        plain = {n: value for n, value in facts.items() if FACT_NAMES[n].kind != "json"}
        at = locate_facts(lines, partial(read_facts, block.spec.read), plain)
        for name, value in facts.items():
            number, text = block.number, block.first
            if name in at:
                number, text = numbers[at[name]], lines[at[name]]
            fact = _stated(number, name, value, f"log:{number}", text)
            self._wait("fact", fact, block.number)
        if block.spec.kind is not None:
            fields = {name: value for name, value in said.items() if name not in FACT_NAMES}
            step = parse_optional(parse_integer, fields.pop("step", None))
            event = event_row(block.number, block.spec.kind, block.first, fields, step)
            event["logged_at"] = self.patterns.stamp(block.first)
            self._wait("event", event)

    # -- what is not understood -----------------------------------------------------------

    def _unread(self, number: int, text: str, reason: str) -> None:
        self.out.unread_lines += self._count
        self.out.unread.append({"line": number, "reason": reason, "text": text[:MAX_QUOTED_CHARS]})

    def _other(self, number: int, text: str) -> None:
        self.out.other_lines += self._count
        self._kinds.add(line_kind(text), self._count, number, text)


@dataclass(slots=True)
class _Held:
    """A record that looks like a step and may go on in the next one; count: of its lines."""

    number: int
    count: int
    text: str
    row: dict[str, Any] | None


class _Pending(NamedTuple):
    """A row of a fact or event, or events, whose launch is not known yet.

    at: the line that it stands by, of events the last one's.
    """

    kind: str
    said: Row | RowBatch
    at: int


JSON_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?$)')
"""A text in JSON, be it cut off; one that is not ends the search, or many would take long."""


@dataclass(slots=True)
class _OpenBlock:
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
        """One more line."""
        self.lines.append(text)
        self.numbers.append(number)
        if self.spec.braces and (len(self.lines) == 1 or not re.search(self.spec.others, text)):
            bare = JSON_STRING.sub("", text)
            self.open_braces += bare.count("{") - bare.count("}")


def _timer_event(row: Mapping[str, Any]) -> dict[str, Any]:
    """A line with a counter of its own whose step of the training cannot be known."""
    fields = {"count": row["step"], **json.loads(row["extra"] or "{}")}
    if row.get("logged_samples_per_second") is not None:
        fields["samples_per_second"] = row["logged_samples_per_second"]
    return event_row(row["line"], "timers", row["text"], fields) | {"logged_at": row["logged_at"]}


def _began(launch: Launch) -> datetime | None:
    """The first stamp of a launch, in the order of its lines."""
    first = launch.rows.first_line
    early = takewhile(lambda event: first is None or event["line"] < first, launch.events)
    stamps = chain([launch.first_stamp], (e["logged_at"] for e in early), [launch.started_at])
    return next((stamp for stamp in stamps if stamp is not None), None)


def _regroup(launch: Launch, *, stops_once: bool) -> None:
    """What steps consume by the timer, where they have other micro-steps than stated."""
    said = (f["value"] for f in launch.stated if f["name"] == "gradient_accumulation")
    counts = [n for one in said if (n := parse_optional(parse_integer, one))]
    batch = parse_optional(parse_integer, launch.last_value("global_batch_size")) or 0
    found = find_unstated_micro_steps(launch.rows, counts, timer_stops_once=stops_once)
    if found is None:
        return
    change = found.make_correction(batch)
    if change is not None:
        launch.rows.transform(change)
    why = f"inferred: its micro-steps over its steps (log:{found.line})"
    launch.facts.append(_stated(found.line, "batch_changes", found.text, why, ""))


def _stretch(launch: Launch, steps: int, known_by: str) -> None:
    """Counted rows at their steps, now that the whole launch tells how far they are apart."""
    launch.rows.transform(partial(_times_all, {"step": steps}))
    line = launch.rows[-1]["line"]
    why = f"inferred: {known_by} (log:{line})"
    text = launch.last_step_text
    launch.facts.append(_stated(line, "log_interval", str(steps), why, text))


def _say_counted(launch: Launch) -> None:
    line = launch.rows[0]["line"]
    why = f"inferred: no line prints its step, nor the log how many lie between two (log:{line})"
    text = launch.first_step_text
    launch.facts.append(_stated(line, "steps_counted", "true", why, text))


def _say_batch_unknown(launch: Launch, unsure: str) -> None:
    line = next(f["line"] for f in reversed(launch.stated) if f["name"] == "global_batch_size")
    why = f"inferred: configurations before its steps (log:{line})"
    launch.facts.append(_stated(line, "batch_changes", unsure, why, ""))


def _correct(launch: Launch, factors: Mapping[str, float], why: str) -> None:
    launch.rows.transform(partial(_times_all, factors))
    line = launch.rows[0]["line"]
    launch.events.append(event_row(line, "warning", why, {}))


def _times_all(factors: Mapping[str, float], frame: pl.DataFrame) -> pl.DataFrame:
    there = {name: factor for name, factor in factors.items() if name in frame.columns}
    return frame.with_columns(pl.col(name) * factor for name, factor in there.items())


def _stated(number: int, name: str, value: str, origin: str, text: str) -> dict[str, Any]:
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


def _scaled(value: str, factor: float | None) -> str | None:
    """The value in its fact's unit; null where it has a factor and is no number."""
    if factor is None:
        return value
    number = parse_optional(float, value)
    return None if number is None else repr(number * factor)
