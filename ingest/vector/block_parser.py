"""A source read many lines at once: what `parser` makes of each, without asking it of each.

What the lines of a block say on their own is found out first (ingest.vector.block_plan), here or by
another process, and taken stretch by stretch. A stretch ends where a line means something by those
before it: a header, a block of lines, a line that may go on. Such lines go to the parser. Which
rows begin another launch is decided as the parser does it, for all rows of a stretch; the first one
that might is left to it.
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
from ..decode.line_reader import MAX_LINE_BYTES, Chunk, NumberedLine, ValueChunk
from ..decode.line_text import decode_line
from ..formats.spec import StepLine
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
from ..parse.parser import ParsedSource, Parser
from . import tfevents_columns
from .block_plan import NO_EPOCH, BlockPlan, plan_chunk, plan_small_chunks
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
MAX_PARSER_ROWS: Final = 64
"""Rows that are left to the parser, at most, before earlier ones are looked up again."""


PlanChunks = Callable[[Parser, Iterable[Chunk]], Iterable[tuple[Chunk, BlockPlan | None]]]
"""The chunks in their order, each with its plan if somebody made it."""


def without_plans(_: Parser, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, None]]:
    """Planned by nobody."""
    return ((chunk, None) for chunk in chunks)


OnWatchedLine = Callable[[float], None]
"""Told the number of a line that may show what the parser watches for."""


def ignore_watched_line(_: float) -> None:
    """Told to nobody."""


def parse_chunks(
    parser: Parser,
    chunks: Iterable[Chunk],
    plan_chunks: PlanChunks = without_plans,
    on_watched_line: OnWatchedLine = ignore_watched_line,
) -> ParsedSource:
    """All lines of `chunks`; comes to the same as `parser.parse` of each line.

    plan_chunks: who may plan chunks before their turn. met: who is told while the parser watches;
    what it raises ends the reading.
    """
    chunks = iter(chunks)
    first = next(chunks, None)
    every: Iterable[Chunk] = chain(() if first is None else (first,), chunks)
    if isinstance(first, ValueChunk) and tfevents_columns.reads_by_columns(parser.primary):
        return tfevents_columns.parse_values(
            parser, (one for one in every if isinstance(one, ValueChunk))
        )
    del first
    apart, every = _records_apart(parser, every)
    if not apart:
        if parser.patterns.watch is not None:  # which is of lines as they are
            on_watched_line(math.inf)
        return parser.parse(line for chunk in every for line in chunk.lines())
    reader = _Reader(parser, on_watched_line)
    for number, (chunk, plan) in enumerate(plan_chunks(parser, every), 1):
        if chunk.is_whole:
            reader.read_whole(chunk, plan)
        else:
            reader.read_alone(chunk)
        del chunk, plan  # so that they go before the next ones are made
        if number % CHUNKS_PER_RELEASE == 0:
            release_free_memory()
    return parser.done()


def parse_small_texts(logs: Sequence[tuple[Parser, Iterable[Chunk]]]) -> list[ParsedSource]:
    """The same of several small texts of the same formats: they are planned as one block."""
    ready = [(parser, *_records_apart(parser, chunks)) for parser, chunks in logs]
    parts = [(parser, apart, list(chunks)) for parser, apart, chunks in ready]
    whole = [chunk for _, apart, chunks in parts for chunk in chunks if apart and chunk.is_whole]
    blocks = iter(plan_small_chunks(whole, logs[0][0]))
    for parser, apart, chunks in parts:
        reader = _Reader(parser)
        for chunk in chunks:
            if apart and chunk.is_whole:
                reader.read(*next(blocks))
            elif apart:
                reader.read_alone(chunk)
        if not apart:
            parser.read_all(line for chunk in chunks for line in chunk.lines())
    spool_waiting_rows(parser.out.launches[-1].rows for parser, _, _ in parts)
    return [parser.done() for parser, _, _ in parts]


def _records_apart(parser: Parser, chunks: Iterable[Chunk]) -> tuple[bool, Iterable[Chunk]]:
    """Whether each line is a record of its own, and the chunks in which it is."""
    found = parser.primary.join is None
    if parser.primary.addition is not None:
        restored, chunks = join_chunks(parser.primary.addition, chunks)
        found = found or restored
    return found, chunks


class _Reader:
    """Reads blocks of one source in the order of their lines."""

    def __init__(self, parser: Parser, met: OnWatchedLine = ignore_watched_line) -> None:
        self.parser, self.met = parser, met
        self.forms: tuple[StepLine, ...] = tuple(parser.primary.steps)
        self.reach = MAX_LOOKUP_LINES
        """Lines that are asked about together; few where it was in vain, or a log whose runs begin
        again and again would be asked about to its end at each."""
        self.vain = 0
        """Rows that are left to the parser behind a look-up, in vain, of what was printed of their
        steps before: twice as many each time, or a log whose runs begin again at each row would
        have it done for each."""
        self.left = 0
        """Of these, those that are still to come."""

    def read_alone(self, chunk: Chunk) -> None:
        """Each line of a chunk by itself."""
        for line in chunk.lines():
            self._read(line)

    def read_whole(self, chunk: Chunk, plan: BlockPlan | None) -> None:
        """The lines of a chunk; it is planned here where nobody has."""
        plan = plan or plan_chunk(self.parser, chunk)
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
        watch = self.parser.patterns.watch
        if watch is not None and watch.may_hold_mark(line.text):
            self.met(line.number)
        self.parser.read(line)

    def _together(self, block: LineSpans, plan: BlockPlan, at: int, stop: int) -> int:
        """How many lines from `at` on were taken together; 0 where the next has to be read."""
        parser = self.parser
        if stop - at < MAX_SINGLY_READ_LINES or not parser.settled:
            return 0
        launch = parser.out.launches[-1]
        stop = min(stop, at + self.reach)
        first, last = np.searchsorted(plan.places, (at, stop)).tolist()
        earlier = EarlierRows(launch.rows, plan.frame, first, single_writer=parser.single_writer)
        sure = self._sure_rows(launch, plan, first, last, None if self.left else earlier)
        self.reach = min(2 * self.reach, MAX_LOOKUP_LINES) if sure == last else MIN_LOOKUP_LINES
        if earlier.was_asked:
            vain = sure < min(last, first + MAX_SINGLY_READ_LINES)
            self.vain = self.left = min(2 * self.vain + 1, MAX_PARSER_ROWS) if vain else 0
        elif first < last and sure == first and int(plan.places[first]) == at:
            self.left = max(self.left - 1, 0)  # the parser reads it now
        if sure < last:
            stop = int(plan.places[sure])
        idle, behind = np.searchsorted(plan.idle, (at, stop)).tolist()
        parser.add_known_lines(behind - idle)
        self._take_others(block, plan, at, stop)
        begin, end = np.searchsorted(plan.event_lines, (at, stop)).tolist()
        if sure > first:
            before = int(np.searchsorted(plan.event_lines, plan.places[sure - 1]))
            self._take_asides(block, plan, begin, before)
            self._take_rows(block, plan, first, earlier.with_repeats(sure))
            begin = before
        self._take_asides(block, plan, begin, end)
        return stop - at

    def _take_asides(self, block: LineSpans, plan: BlockPlan, first: int, last: int) -> None:
        if first < last:
            last_line = block.number + int(plan.event_lines[last - 1])
            companions = int(plan.companions[first:last].sum())
            self.parser.add_events(plan.asides[first:last], last_line, companions)

    def _take_others(self, block: LineSpans, plan: BlockPlan, at: int, stop: int) -> None:
        first, last = np.searchsorted(plan.others, (at, stop)).tolist()
        if first == last:
            return
        kinds = plan.other_kinds[first:last]
        counts = np.bincount(kinds, minlength=len(plan.kinds))
        firsts = np.zeros(len(plan.kinds), np.int64)
        firsts[kinds[::-1]] = plan.others[first:last][::-1]  # the last one that is set stays
        lines = firsts + block.number
        self.parser.add_unmatched(plan.kinds, counts, lines, block.raws_of)

    def _text(self, block: LineSpans, line: int) -> str:
        return self.parser.patterns.cleaner.text(block.raw(line))

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
        steps = self.parser.add_rows(rows, text)["step"].to_numpy()
        forms = plan.forms[first:last]
        for form in distinct_integers(forms).tolist():
            mine = np.flatnonzero(forms == form) + first
            trait = plan.traits[plan.row_traits[mine[-1]]]
            text = self._text(block, int(plan.places[mine[-1]]))
            self.parser.set_last_line(self.forms[form], trait.printed, text)
            progress = self._progress(self.parser.out.launches[-1], form, plan, int(mine[-1]))
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
