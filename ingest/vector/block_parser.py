"""A source read many lines at once: the same records as `ingest.parse.line_parser` finds.

What the lines of a block say on their own is found out first (ingest.vector.block_plan), here or by
another process, and taken stretch by stretch. A stretch ends where a line means something by those
before it: a header, a block of lines, a line that may go on. Such lines go to the line parser.
Which rows begin another launch is decided as the sink does it, for all rows of a stretch; the first
one that might is left to the line parser.
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
from ..parse.records import join_records, record_of
from ..parse.unmatched_lines import KindCounts
from . import tfevents_columns
from .block_plan import BY_BLOCK, BY_REGEX, FROM_CACHE, NO_EPOCH, BlockPlan, BlockPlanner
from .format_watch import FormatWatch
from .line_block import LineSpans
from .multiline_join import join_chunks

MIN_LOOKUP_LINES: Final = 512
MAX_LOOKUP_LINES: Final = 2**20
"""Lines that are asked about together: behind a restart, and at most."""
CHUNKS_PER_RELEASE: Final = 64
"""Chunks, 256 MB of a large log, behind which memory is given back that lies between what is held:
of so much there is more the longer a log is."""
MAX_SINGLY_READ_LINES: Final = 8
"""Lines that are read one by one rather than together: that is quicker."""
MAX_SINGLY_READ_ROWS: Final = 64
"""Rows that are left to the line parser, at most, before earlier ones are looked up again."""


PlanChunks = Callable[[BlockPlanner, Iterable[Chunk]], Iterable[tuple[Chunk, BlockPlan | None]]]
"""The chunks in their order, each with its plan if somebody made it."""


def without_plans(_: BlockPlanner, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, None]]:
    """Planned by nobody."""
    return ((chunk, None) for chunk in chunks)


OnWatchedLine = Callable[[float], bool]
"""Told the number of a line that may show what is watched for; whether to watch on."""


def ignore_watched_line(_: float) -> bool:
    """Told to nobody."""
    return True


class BlockParser:
    """Reads one source into a sink, by blocks where its lines are records of their own."""

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
        """spool: where rows are put aside. watch: for lines that may show other formats.

        keep_texts: see record_sink.keeps_text. plan_chunks: who may plan chunks before their turn.
        on_watched_line: who is told of such lines; what it raises ends the reading.
        """
        matcher = line_matcher(primary, tuple(companions))
        self._matcher, self._plan_chunks = matcher, plan_chunks
        self._on_watched_line = on_watched_line
        self.planner = BlockPlanner(matcher, watch, keep_texts=keep_texts)
        self.sink = RecordSink(matcher, spool, keep_texts=keep_texts)
        self._lines = LineParser(matcher, self.sink)

    def parse(self, chunks: Iterable[Chunk]) -> ParsedSource:
        """Return what all chunks say, the same as `line_parser` says. Raises MissingTextsError."""
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
            if self.planner.watch is not None:  # which is of lines as they are
                self._on_watched_line(math.inf)
            self.read_lines(every)
        return self._lines.finish()

    def finish(self) -> ParsedSource:
        """Return what was read. Raises MissingTextsError."""
        return self._lines.finish()

    def records_apart(self, chunks: Iterable[Chunk]) -> tuple[bool, Iterable[Chunk]]:
        """Whether each line is a record of its own, and the chunks in which it is."""
        primary = self._matcher.primary
        are_apart = primary.join is None
        if primary.addition is not None:
            is_restored, chunks = join_chunks(primary.addition, chunks)
            are_apart = are_apart or is_restored
        return are_apart, chunks

    def read_lines(self, chunks: Iterable[Chunk]) -> None:
        """Read all lines of chunks record by record."""
        lines = (line for chunk in chunks for line in chunk.lines())
        for record in join_records(self._matcher, lines):
            self._lines.read(record)

    def read_blocks(self) -> _BlockReader:
        """Return who reads the blocks of this source."""
        return _BlockReader(self.sink, self._lines, self.planner, self._on_watched_line)

    def _read_blocks(self, chunks: Iterable[Chunk]) -> None:
        """Read chunks of which each line is a record."""
        reader = self.read_blocks()
        for number, (chunk, plan) in enumerate(self._plan_chunks(self.planner, chunks), 1):
            if chunk.is_whole:
                reader.read_whole(chunk, plan)
            else:
                reader.read_alone(chunk)
            del chunk, plan  # so that they go before the next ones are made
            if number % CHUNKS_PER_RELEASE == 0:
                release_free_memory()


def parse_small_texts(
    logs: Sequence[tuple[BlockParser, Iterable[Chunk]]],
) -> list[ParsedSource]:
    """Return what several small texts of the same formats say: they are planned as one block."""
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
        reader = parser.read_blocks()
        for chunk in chunks:
            if chunk.is_whole:
                reader.read(*next(blocks))
            else:
                reader.read_alone(chunk)
    spool_waiting_rows(parser.sink.launch.rows for parser, _, _ in texts)
    return [parser.finish() for parser, _, _ in texts]


class _BlockReader:
    """Reads blocks of one source in the order of their lines."""

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
        """Lines that are asked about together; few where it was in vain, or a log whose runs begin
        again and again would be asked about to its end at each."""
        self.vain = 0
        """Rows that are left to the line parser behind a look-up, in vain, of what was printed of
        their steps before: twice as many each time, or a log whose runs begin again at each row
        would have it done for each."""
        self.left = 0
        """Of these, those that are still to come."""

    def read_alone(self, chunk: Chunk) -> None:
        """Each line of a chunk by itself."""
        for line in chunk.lines():
            self._read(line)

    def read_whole(self, chunk: Chunk, plan: BlockPlan | None) -> None:
        """The lines of a chunk; it is planned here where nobody has."""
        plan = plan or self.planner.plan_chunk(chunk)
        self.read(LineSpans(chunk.number, chunk.view, plan.bounds), plan)

    def read(self, block: LineSpans, plan: BlockPlan, lines: range | None = None) -> None:
        """Lines of a block, by default all: those that are unsure, and what lies between them."""
        at, behind = (0, len(block)) if lines is None else (lines.start, lines.stop)
        first, last = (bisect_left(plan.unsure, line) for line in (at, behind))
        for stop in (*plan.unsure[first:last], behind):
            while at < stop:
                taken = self._together(block, plan, at, stop)
                if not taken:
                    self._one(block, at)
                at += taken or 1
            if stop < behind:
                self._one(block, stop)
                at = stop + 1

    def _one(self, block: LineSpans, at: int) -> None:
        """Read a line by itself."""
        raw = block.raw(at)
        text, cut = decode_line(raw[:MAX_LINE_BYTES]), len(raw) > MAX_LINE_BYTES
        self._read(NumberedLine(block.number + at, text, cut))

    def _read(self, line: NumberedLine) -> None:
        watch = self.planner.watch
        if (
            watch is not None
            and watch.may_hold_mark(line.text)
            and not self.on_watched_line(line.number)
        ):
            self.planner.stop_watching()
        self.lines.read(record_of(self.planner.matcher, line))

    def _together(self, block: LineSpans, plan: BlockPlan, at: int, stop: int) -> int:
        """How many lines from `at` on were taken together; 0 where the next has to be read."""
        if stop - at < MAX_SINGLY_READ_LINES or not self.lines.is_idle:
            return 0
        first, rows = int(np.searchsorted(plan.places, at)), pl.DataFrame()
        if self.sink.is_mid_launch:
            stop, rows = self._sure_stretch(plan, at, min(stop, at + self.reach))
        elif self.sink.is_mid_header and first < len(plan.places):
            stop = min(stop, int(plan.places[first]))
        elif not self.sink.is_mid_header:
            return 0
        self._take_known(block, plan, at, stop)
        begin, end = np.searchsorted(plan.event_lines, (at, stop)).tolist()
        if rows.height:
            last_row = plan.places[first + rows.height - 1]
            before = int(np.searchsorted(plan.event_lines, last_row))
            self._take_asides(block, plan, begin, before)
            self._take_rows(block, plan, first, rows)
            begin = before
        self._take_asides(block, plan, begin, end)
        return stop - at

    def _sure_stretch(self, plan: BlockPlan, at: int, stop: int) -> tuple[int, pl.DataFrame]:
        """Up to where lines are of the open launch for certain, and the rows among them."""
        launch = self.sink.launch
        first, last = np.searchsorted(plan.places, (at, stop)).tolist()
        single_writer = self.sink.single_writer
        earlier = EarlierRows(launch.rows, plan.frame, first, single_writer=single_writer)
        sure = self._sure_rows(launch, plan, first, last, None if self.left else earlier)
        self.reach = min(2 * self.reach, MAX_LOOKUP_LINES) if sure == last else MIN_LOOKUP_LINES
        if earlier.was_asked:
            vain = sure < min(last, first + MAX_SINGLY_READ_LINES)
            self.vain = self.left = min(2 * self.vain + 1, MAX_SINGLY_READ_ROWS) if vain else 0
        elif first < last and sure == first and int(plan.places[first]) == at:
            self.left = max(self.left - 1, 0)  # the line parser reads it now
        rows = earlier.with_repeats(sure) if sure > first else pl.DataFrame()
        return int(plan.places[sure]) if sure < last else stop, rows

    def _take_known(self, block: LineSpans, plan: BlockPlan, at: int, stop: int) -> None:
        """Count lines by what they were found to be, and how."""
        idle, behind = np.searchsorted(plan.idle, (at, stop)).tolist()
        self.sink.count_known(behind - idle)
        self._count_paths(plan, at, stop)
        self._take_others(block, plan, at, stop)

    def _count_paths(self, plan: BlockPlan, at: int, stop: int) -> None:
        counts = np.bincount(plan.paths[at:stop], minlength=FROM_CACHE + 1).tolist()
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

    def _take_others(self, block: LineSpans, plan: BlockPlan, at: int, stop: int) -> None:
        first, last = np.searchsorted(plan.others, (at, stop)).tolist()
        if first == last:
            return
        kinds = plan.other_kinds[first:last]
        counts = np.bincount(kinds, minlength=len(plan.kinds))
        firsts = np.zeros(len(plan.kinds), np.int64)
        firsts[kinds[::-1]] = plan.others[first:last][::-1]  # the last one that is set stays
        lines = firsts + block.number
        self.sink.add_unmatched_kinds(KindCounts(plan.kinds, counts, lines, block.raws_of))

    def _text(self, block: LineSpans, line: int) -> str:
        return self.planner.matcher.cleaner.text(block.raw(line))

    def _sure_rows(
        self, launch: Launch, plan: BlockPlan, first: int, last: int, earlier: EarlierRows | None
    ) -> int:
        """The rows up to this one are of the launch for certain, and say no new facts."""
        sure = last
        forms = plan.forms[first:last]
        for form in distinct_integers(forms).tolist():
            mine = np.flatnonzero(forms == form) + first
            other = mine[plan.epochs[mine] != plan.epochs[mine[0]]]
            if self.forms[form].counts and len(other):  # the counter may begin anew with an epoch
                sure = min(sure, int(other[0]))
                mine = mine[mine < other[0]]
            progress = self._progress(launch, form, plan, int(mine[0]))
            count = count_same_process_rows(launch, progress, _of_form(plan, mine, earlier))
            if count < len(mine):
                sure = min(sure, int(mine[count]))
        traits = plan.row_traits[first:last]
        return min(
            sure, first + count_rows_without_facts(launch, traits, lambda at: plan.traits[at].says)
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
            mine = np.flatnonzero(forms == form) + first
            trait = plan.traits[plan.row_traits[mine[-1]]]
            text = self._text(block, int(plan.places[mine[-1]]))
            self.sink.note_record(self.forms[form], trait.printed, text)
            progress = self._progress(self.sink.launch, form, plan, int(mine[-1]))
            advance_progress(progress, _of_form(plan, mine)._replace(steps=steps[mine - first]))


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
