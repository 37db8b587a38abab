"""Parser of many lines at once, equivalent to `ingest.parse.line_parser`.

Lines of a block are first read without context (ingest.vector.block_plan), here or by another
process, and then consumed stretch by stretch. A stretch ends at a line with a meaning that depends
on earlier lines: a header, a block of lines, a line that may continue. Such lines go to the line
parser. New launches are detected with the sink's rules for all rows of a stretch; the first
possible row of another launch goes to the line parser.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import numpy as np
import polars as pl

from ..core.arrays import Ints, distinct_integers, release_free_memory
from ..core.spill import Spool
from ..decode.line_reader import MAX_LINE_BYTES, Chunk, NumberedLine, ValueChunk
from ..decode.line_text import decode_line
from ..formats.spec import LogFormat, StepLine
from ..launches.duplicate_steps import EarlierRows
from ..launches.launch import (
    FormProgress,
    FormRows,
    Launch,
    advance_progress,
    count_rows_without_facts,
    count_same_process_rows,
)
from ..launches.row_chunks import spool_waiting_rows
from ..parse.line_matcher import line_matcher
from ..parse.line_parser import LineParser
from ..parse.record_sink import ParsedSource, RecordSink
from ..parse.records import record_of
from ..parse.unmatched_lines import KindCounts
from . import tfevents_columns
from .block_plan import BY_BLOCK, BY_REGEX, FROM_CACHE, NO_EPOCH, BlockPlan, BlockPlanner
from .format_watch import FormatWatch
from .line_block import LineSpans
from .multiline_join import join_chunks

MIN_LOOKUP_LINES: Final = 512
MAX_LOOKUP_LINES: Final = 2**20
"""Lines looked up together: MIN_LOOKUP_LINES after a restart, at most MAX_LOOKUP_LINES."""
CHUNKS_PER_RELEASE: Final = 64
"""Chunks (256 MB of a large log) between releases of free memory.

Free memory between live arrays grows with the length of the log.
"""
MAX_SINGLY_READ_LINES: Final = 8
"""Fewer lines than this are read one by one, which is faster."""
MAX_SINGLY_READ_ROWS: Final = 64
"""Maximum number of rows left to the line parser before earlier rows are looked up again."""


PlanChunks = Callable[[BlockPlanner, Iterable[Chunk]], Iterable[tuple[Chunk, BlockPlan | None]]]
"""Function that returns chunks in their order, with plans where available."""


def without_plans(_: BlockPlanner, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, None]]:
    """Return the chunks without plans."""
    return ((chunk, None) for chunk in chunks)


OnWatchedLine = Callable[[float], bool]
"""Callback with the number of a line that may contain a mark.

Returns False to stop watching.
"""


def ignore_watched_line(_: float) -> bool:
    """Ignore the line, and continue to watch."""
    return True


class BlockParser:
    """Parser of a source into a sink, by blocks where every line is a record."""

    def __init__(  # noqa: PLR0913 - of one source
        self,
        primary: LogFormat,
        companions: Iterable[LogFormat] = (),
        spool: Spool | None = None,
        watch: FormatWatch | None = None,
        *,
        keep_texts: bool = True,
        plan_chunks: PlanChunks = without_plans,
        on_watched_line: OnWatchedLine = ignore_watched_line,
    ) -> None:
        """Prepare to parse.

        spool: storage of rows
        watch: for lines that may show other formats
        keep_texts: see record_sink.keeps_text
        plan_chunks: may plan chunks ahead
        on_watched_line: called for watched lines; an exception ends the reading
        """
        matcher = line_matcher(primary, tuple(companions))
        self._matcher, self._plan_chunks = matcher, plan_chunks
        self._on_watched_line = on_watched_line
        self.planner = BlockPlanner(matcher, watch, keep_texts=keep_texts)
        self.sink = RecordSink(matcher, spool, keep_texts=keep_texts)
        self._lines = LineParser(matcher, self.sink)

    def parse(self, chunks: Iterable[Chunk]) -> ParsedSource:
        """Return the parsed chunks, equal to `line_parser`'s. Raises MissingTextsError."""
        chunks = iter(chunks)
        first = next(chunks, None)
        every: Iterable[Chunk] = chain(() if first is None else (first,), chunks)
        if isinstance(first, ValueChunk) and tfevents_columns.reads_by_columns(
            self._matcher.primary
        ):
            values = (chunk for chunk in every if isinstance(chunk, ValueChunk))
            tfevents_columns.read_values(self._lines, self.sink, self.planner.lines, values)
            return self._lines.finish()
        del first
        are_apart, every = self.records_apart(every)
        if are_apart:
            self._read_blocks(every)
        else:
            if self.planner.watch is not None:  # made for lines before joining
                self._on_watched_line(math.inf)
            self.read_lines(every)
        return self._lines.finish()

    def finish(self) -> ParsedSource:
        """Return the parsed source. Raises MissingTextsError."""
        return self._lines.finish()

    def records_apart(self, chunks: Iterable[Chunk]) -> tuple[bool, Iterable[Chunk]]:
        """Return whether every line is a record, and the chunks for which this is true."""
        primary = self._matcher.primary
        are_apart = primary.join is None
        if primary.addition is not None:
            is_restored, chunks = join_chunks(primary.addition, chunks)
            are_apart = are_apart or is_restored
        return are_apart, chunks

    def read_lines(self, chunks: Iterable[Chunk]) -> None:
        """Read all lines of chunks record by record."""
        self._lines.read_lines(line for chunk in chunks for line in chunk.lines())

    def block_reader(self) -> _BlockReader:
        """Return a reader for the blocks of this source."""
        return _BlockReader(self.sink, self._lines, self.planner, self._on_watched_line)

    def _read_blocks(self, chunks: Iterable[Chunk]) -> None:
        """Read chunks in which every line is a record."""
        reader = self.block_reader()
        for number, (chunk, plan) in enumerate(self._plan_chunks(self.planner, chunks), 1):
            if chunk.is_whole:
                reader.read_whole(chunk, plan)
            else:
                reader.read_alone(chunk)
            del chunk, plan  # free memory before the next chunk
            if number % CHUNKS_PER_RELEASE == 0:
                release_free_memory()


def parse_small_texts(
    logs: Sequence[tuple[BlockParser, Iterable[Chunk]]],
) -> list[ParsedSource]:
    """Return several small parsed texts of the same formats, planned as one block."""
    ready = [(parser, *parser.records_apart(chunks)) for parser, chunks in logs]
    texts = [(parser, are_apart, list(chunks)) for parser, are_apart, chunks in ready]
    whole = [
        chunk for _, are_apart, chunks in texts for chunk in chunks if are_apart and chunk.is_whole
    ]
    blocks = iter(logs[0][0].planner.plan_small_chunks(whole))
    for parser, are_apart, chunks in texts:
        if not are_apart:
            parser.read_lines(chunks)
            continue
        reader = parser.block_reader()
        for chunk in chunks:
            if chunk.is_whole:
                reader.read(*next(blocks))
            else:
                reader.read_alone(chunk)
    spool_waiting_rows(parser.sink.launch.rows for parser, _, _ in texts)
    return [parser.finish() for parser, _, _ in texts]


class _BlockReader:
    """Reader of the blocks of a source, in line order."""

    def __init__(
        self,
        sink: RecordSink,
        lines: LineParser,
        planner: BlockPlanner,
        on_watched_line: OnWatchedLine,
    ) -> None:
        self.sink, self.lines, self.planner = sink, lines, planner
        self.on_watched_line = on_watched_line
        self.forms: tuple[StepLine, ...] = tuple(planner.matcher.primary.steps)
        self.reach = MAX_LOOKUP_LINES
        """Lines looked up together.

        Few after an early stop: a log with many restarts would be looked up to the end after each
        restart.
        """
        self.vain = 0
        """Rows left to the line parser after a lookup of earlier rows in vain.

        Doubled every time: a log with a restart at each row would pay for a lookup per row.
        """
        self.left = 0
        """Rows of `vain` still to come."""

    def read_alone(self, chunk: Chunk) -> None:
        """Read the lines of a chunk one by one."""
        for line in chunk.lines():
            self._read(line)

    def read_whole(self, chunk: Chunk, plan: BlockPlan | None) -> None:
        """Read the lines of a chunk, after planning if there is no plan."""
        plan = plan or self.planner.plan_chunk(chunk)
        self.read(LineSpans(chunk.number, chunk.view, plan.bounds), plan)

    def read(self, block: LineSpans, plan: BlockPlan, lines: range | None = None) -> None:
        """Read lines of a block: unsure lines one by one, and the stretches between them.

        lines: by default all
        """
        begin, end = (0, len(block)) if lines is None else (lines.start, lines.stop)
        first, last = (bisect_left(plan.unsure, line) for line in (begin, end))
        for stop in (*plan.unsure[first:last], end):
            while begin < stop:
                count = self._together(block, plan, begin, stop)
                if not count:
                    self._one(block, begin)
                begin += count or 1
            if stop < end:
                self._one(block, stop)
                begin = stop + 1

    def _one(self, block: LineSpans, line: int) -> None:
        """Read a line by itself."""
        raw = block.raw(line)
        text, cut = decode_line(raw[:MAX_LINE_BYTES]), len(raw) > MAX_LINE_BYTES
        self._read(NumberedLine(block.number + line, text, cut))

    def _read(self, line: NumberedLine) -> None:
        watch = self.planner.watch
        if (
            watch is not None
            and watch.may_hold_mark(line.text)
            and not self.on_watched_line(line.number)
        ):
            self.planner.stop_watching()
        self.lines.read(record_of(self.planner.matcher, line))

    def _together(self, block: LineSpans, plan: BlockPlan, begin: int, stop: int) -> int:
        """Read lines from `begin` on together; return their number, 0 if there are none."""
        if stop - begin < MAX_SINGLY_READ_LINES or not self.lines.is_idle:
            return 0
        first, rows = int(np.searchsorted(plan.places, begin)), pl.DataFrame()
        if self.sink.is_mid_launch:
            stop, rows = self._sure_stretch(plan, begin, min(stop, begin + self.reach))
        elif self.sink.is_mid_header and first < len(plan.places):
            stop = min(stop, int(plan.places[first]))
        elif not self.sink.is_mid_header:
            return 0
        self._take_known(block, plan, begin, stop)
        first_event, last_event = np.searchsorted(plan.event_lines, (begin, stop)).tolist()
        if rows.height:
            last_row = plan.places[first + rows.height - 1]
            before = int(np.searchsorted(plan.event_lines, last_row))
            self._take_asides(block, plan, first_event, before)
            self._take_rows(block, plan, first, rows)
            first_event = before
        self._take_asides(block, plan, first_event, last_event)
        return stop - begin

    def _sure_stretch(self, plan: BlockPlan, begin: int, stop: int) -> tuple[int, pl.DataFrame]:
        """Return the end of the lines certainly of the open launch, and their rows."""
        launch = self.sink.launch
        first, last = np.searchsorted(plan.places, (begin, stop)).tolist()
        single_writer = self.sink.single_writer
        earlier = EarlierRows(launch.rows, plan.frame, first, single_writer=single_writer)
        sure = self._sure_rows(launch, plan, first, last, None if self.left else earlier)
        self.reach = min(2 * self.reach, MAX_LOOKUP_LINES) if sure == last else MIN_LOOKUP_LINES
        if earlier.was_asked:
            vain = sure < min(last, first + MAX_SINGLY_READ_LINES)
            self.vain = self.left = min(2 * self.vain + 1, MAX_SINGLY_READ_ROWS) if vain else 0
        elif first < last and sure == first and int(plan.places[first]) == begin:
            self.left = max(self.left - 1, 0)  # the line parser reads the row now
        rows = earlier.with_repeats(sure) if sure > first else pl.DataFrame()
        return int(plan.places[sure]) if sure < last else stop, rows

    def _take_known(self, block: LineSpans, plan: BlockPlan, begin: int, stop: int) -> None:
        """Count lines by kind and by path."""
        idle, behind = np.searchsorted(plan.idle, (begin, stop)).tolist()
        self.sink.count_known(behind - idle)
        self._count_paths(plan, begin, stop)
        self._take_others(block, plan, begin, stop)

    def _count_paths(self, plan: BlockPlan, begin: int, stop: int) -> None:
        counts = np.bincount(plan.paths[begin:stop], minlength=FROM_CACHE + 1).tolist()
        cost = self.sink.out.cost
        cost.block_lines += counts[BY_BLOCK]
        cost.regex_lines += counts[BY_REGEX]
        cost.cached_lines += counts[FROM_CACHE]

    def _take_asides(self, block: LineSpans, plan: BlockPlan, first: int, last: int) -> None:
        if first < last:
            last_line = block.number + int(plan.event_lines[last - 1])
            companions = int(plan.companions[first:last].sum())
            self.sink.count_companion(companions)
            self.sink.count_known(last - first - companions)
            self.sink.add_events(plan.asides[first:last], last_line)

    def _take_others(self, block: LineSpans, plan: BlockPlan, begin: int, stop: int) -> None:
        first, last = np.searchsorted(plan.others, (begin, stop)).tolist()
        if first == last:
            return
        kinds = plan.other_kinds[first:last]
        counts = np.bincount(kinds, minlength=len(plan.kinds))
        firsts = np.zeros(len(plan.kinds), np.int64)
        firsts[kinds[::-1]] = plan.others[first:last][::-1]  # a kind's first line is set last
        lines = firsts + block.number
        self.sink.add_unmatched_kinds(KindCounts(plan.kinds, counts, lines, block.raws_of))

    def _text(self, block: LineSpans, line: int) -> str:
        return self.planner.matcher.cleaner.text(block.raw(line))

    def _sure_rows(
        self, launch: Launch, plan: BlockPlan, first: int, last: int, earlier: EarlierRows | None
    ) -> int:
        """Return the end of the rows certainly of the launch and without new facts."""
        sure = last
        forms = plan.forms[first:last]
        for form in distinct_integers(forms).tolist():
            rows = np.flatnonzero(forms == form) + first
            other = rows[plan.epochs[rows] != plan.epochs[rows[0]]]
            if self.forms[form].counts and len(other):  # the counter may restart with an epoch
                sure = min(sure, int(other[0]))
                rows = rows[rows < other[0]]
            progress = self._progress(launch, form, plan, int(rows[0]))
            count = count_same_process_rows(launch, progress, _of_form(plan, rows, earlier))
            if count < len(rows):
                sure = min(sure, int(rows[count]))
        traits = plan.row_traits[first:last]
        return min(
            sure,
            first + count_rows_without_facts(launch, traits, lambda trait: plan.traits[trait].says),
        )

    def _progress(
        self, launch: Launch, form: int, plan: BlockPlan, row: int
    ) -> FormProgress | None:
        epoch = int(plan.epochs[row])
        return launch.known_progress(self.forms[form], None if epoch == NO_EPOCH else epoch)

    def _take_rows(self, block: LineSpans, plan: BlockPlan, first: int, rows: pl.DataFrame) -> None:
        last = first + rows.height
        text = self._text(block, int(plan.places[last - 1]))
        steps = self.sink.add_steps(rows, text)["step"].to_numpy()
        forms = plan.forms[first:last]
        for form in distinct_integers(forms).tolist():
            rows_of_form = np.flatnonzero(forms == form) + first
            trait = plan.traits[plan.row_traits[rows_of_form[-1]]]
            text = self._text(block, int(plan.places[rows_of_form[-1]]))
            self.sink.note_record(self.forms[form], trait.printed, text)
            progress = self._progress(self.sink.launch, form, plan, int(rows_of_form[-1]))
            advance_progress(
                progress, _of_form(plan, rows_of_form)._replace(steps=steps[rows_of_form - first])
            )


def _of_form(plan: BlockPlan, rows: Ints, earlier: EarlierRows | None = None) -> FormRows:
    def ranks(count: int) -> list[str | None]:
        return plan.frame["rank"].gather(rows[:count]).unique().to_list()

    return FormRows(
        plan.steps[rows],
        plan.stamps[rows],
        plan.clocks[rows],
        ranks,
        None if earlier is None else lambda count: earlier.of(rows[:count]),
    )
