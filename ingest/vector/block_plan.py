"""Context-free reading of the lines of a block, independent of other blocks.

Steps are read by their shapes (ingest.vector). Lines without a literal of any pattern
(ingest.vector.line_cache) are counted as others, all at once. The rest is read line by line with
regexes; lines that depend on earlier lines stay unsure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from ..core.arrays import (
    Bools,
    Floats,
    Ints,
    column_values,
    concatenate_ints,
    distinct_integers,
    take_rows,
    take_values,
    text_array,
)
from ..decode.line_reader import MAX_LINE_BYTES, Chunk
from ..formats.spec import StepLine
from ..launches import event_rows
from ..launches.launch import NO_STAMP
from ..launches.row_chunks import RowBatch, frame_of_rows, with_line_numbers
from ..launches.step_rows import FORM_COLUMN, NO_STEP, STEP_SCHEMA
from ..parse.line_matcher import MAX_QUOTED_CHARS, LineMatcher
from ..parse.record_sink import keeps_text
from .context_free import context_free_reader
from .format_watch import FormatWatch
from .line_block import BLOCK_MARGIN_BYTES, LineBlock, LineSpans
from .line_cache import BLANK_LINE
from .number_decoding import DecodedRows, decode_rows
from .readings import EventReading, StepReading, UnmatchedReading
from .shape_cache import MAX_ATTEMPTS_PER_SKELETON, MIN_STEP_REPEATS
from .shapes import LineShape

NO_EPOCH: Final = -1
MIN_BYTES_TO_LEARN: Final = 64 * 1024
"""Minimum number of bytes left in a block: learning a shape costs as much as reading 200 lines."""
MIN_LARGE_BLOCK_BYTES: Final = 1024 * 1024
MAX_FIRST_SHAPE_LINES: Final = 2_000
"""First lines of a block of MIN_LARGE_BLOCK_BYTES, read to learn a first shape."""
PROCESS_COLUMNS: Final = ("step", "epoch", "rank", "since_start_s", "logged_at")
"""Columns of rows that show whether rows belong to one process."""

UNSURE, BY_BLOCK, BY_REGEX, FROM_CACHE = range(4)
"""Paths by which lines are read; unsure lines go to the line parser."""


class RowTrait(NamedTuple):
    """Common values of rows.

    form: index of their StepLine in the format
    printed: names of their fields
    says: facts that they print
    """

    form: int
    printed: frozenset[str]
    says: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class BlockPlan:
    """Context-free readings of a block's lines. Lines are indices in the block.

    bounds: of the lines, as in LineSpans
    paths: how every line was read: UNSURE, BY_BLOCK, BY_REGEX or FROM_CACHE
    unsure: lines for the line parser
    asides: events, mappings if few
    event_lines: line of every event
    companions: True for events that are steps of companions
    idle: known lines without statements
    others: lines without a matching pattern
    other_kinds: index in `kinds` for every line of `others`
    frame: rows of step lines
    places: line of every row
    row_traits: index in `traits` for every row
    """

    bounds: Ints
    paths: NDArray[np.uint8]
    unsure: list[int]
    asides: RowBatch
    event_lines: Ints
    companions: Bools
    idle: Ints
    others: Ints
    other_kinds: Ints
    kinds: pa.StringArray
    frame: pl.DataFrame
    places: Ints
    row_traits: Ints
    traits: list[RowTrait]

    # per row, computed on demand: a plan may come from another process

    @cached_property
    def forms(self) -> Ints:
        """Index of each row's StepLine in the format."""
        return np.array([trait.form for trait in self.traits], np.int64)[self.row_traits]

    @cached_property
    def epochs(self) -> Ints:
        """Epoch of each row, or NO_EPOCH."""
        return column_values(self.frame["epoch"], NO_EPOCH)

    @cached_property
    def steps(self) -> Ints:
        """Step of each row, or NO_STEP."""
        return column_values(self.frame["step"], NO_STEP)

    @cached_property
    def clocks(self) -> Floats:
        """Time of each row since the start [s], or nan."""
        return column_values(self.frame["since_start_s"], float("nan"))

    @cached_property
    def stamps(self) -> Ints:
        """Time stamp of each row in microseconds since 1970, or NO_STAMP."""
        return column_values(self.frame["logged_at"].cast(pl.Int64), NO_STAMP)


class BlockPlanner:
    """Planner for blocks of a source, or of several sources of the same formats.

    A step line read by regexes may become a shape for all later lines.
    """

    def __init__(
        self, matcher: LineMatcher, watch: FormatWatch | None = None, *, keep_texts: bool = True
    ) -> None:
        """Prepare the reader of single lines.

        matcher: of the formats
        watch: for lines that may show other formats; such lines stay unsure
        keep_texts: of the sink
        """
        self.matcher, self.keep_texts = matcher, keep_texts
        self.lines = context_free_reader(matcher, watch)

    @property
    def watch(self) -> FormatWatch | None:
        """Marks to watch for."""
        return self.lines.watch

    def stop_watching(self) -> None:
        """Stop watching for marks."""
        self.lines = context_free_reader(self.matcher, None)

    def plan(self, block: LineBlock) -> BlockPlan:
        """Return the plan of a block."""
        return _PlanInProgress(block, self).finish()

    def plan_chunk(self, chunk: Chunk) -> BlockPlan:
        """Return the plan of a chunk of whole lines."""
        return self.plan(LineBlock(chunk.number, chunk.view, chunk.newlines, chunk.room))

    def plan_small_chunks(
        self, chunks: Sequence[Chunk]
    ) -> list[tuple[LineSpans, BlockPlan, range]]:
        """Return the lines of every small chunk in one common block, with its plan.

        The line numbers are those of the chunks. A call of numpy or Polars costs as much as reading
        some hundred lines, so a single block is faster than many.
        """
        if not chunks:
            return []
        begins = np.cumsum([0, *(len(chunk.data) for chunk in chunks)])
        newlines = [begin + chunk.newlines for begin, chunk in zip(begins, chunks, strict=False)]
        block = LineBlock(0, b"".join(chunk.data for chunk in chunks), np.concatenate(newlines))
        plan = self.plan(block)
        ends = block.starts.searchsorted(BLOCK_MARGIN_BYTES + begins[1:])
        lines = [range(*bounds) for bounds in pairwise([0, *ends.tolist()])]
        before = np.array(
            [x.number - line_range.start for x, line_range in zip(chunks, lines, strict=True)]
        )

        def numbers(places: Ints) -> Ints:
            return np.asarray(places + before[np.searchsorted(ends, places, "right")])

        frame = plan.frame.with_columns(line=numbers(plan.places))
        asides = with_line_numbers(plan.asides, numbers(plan.event_lines))
        plan = replace(plan, frame=frame, asides=asides)
        blocks = map(block.numbered, before.tolist())
        return [(spans, plan, line_range) for spans, line_range in zip(blocks, lines, strict=True)]


class _PlanInProgress:
    """Plan of a block in progress. free: True for lines without a reading yet."""

    def __init__(self, block: LineBlock, planner: BlockPlanner) -> None:
        self.block, self.reader = block, planner.lines
        self.shapes, self.cleaner = planner.lines.shapes, planner.matcher.cleaner
        self.steps = planner.matcher.primary.steps
        self.free = np.ones(len(block), bool)
        self.paths = np.full(len(block), UNSURE, np.uint8)
        self.idle: list[int] = []
        self.others, self.other_kinds = np.empty(0, np.int64), np.empty(0, np.int64)
        self.kinds = text_array(())
        self.others_by_regex: list[tuple[int, str]] = []
        self.asides, self.rows = _Gathered(event_rows.EVENT_SCHEMA), _Gathered(STEP_SCHEMA)
        self.traits: dict[RowTrait, int] = {}
        self.forms = {id(form): index for index, form in enumerate(self.steps)}
        self.quoted = [keeps_text(form, keep_texts=planner.keep_texts) for form in self.steps]

    def finish(self) -> BlockPlan:
        """Return the plan: shapes read steps, literals unmatched lines, regexes the rest."""
        for shape in self.shapes.begin_block():
            self._fitted(shape)
        if not self.shapes.known and len(self.block.data) >= MIN_LARGE_BLOCK_BYTES:
            self._learn()
        self._looked_through(np.flatnonzero(self.free))
        for line in np.flatnonzero(self.free).tolist():
            if self.free[line]:
                self._by_regex(line)
        places, traits, frame = self.rows.in_order(PROCESS_COLUMNS)
        form = np.array([trait.form for trait in self.traits], np.int64)[traits]
        lines = pl.Series("line", places + self.block.number, pl.Int64)
        frame = frame.hstack([lines, pl.Series(FORM_COLUMN, form).cast(pl.Int8)])
        quoted = np.flatnonzero(np.array(self.quoted)[form])
        if len(quoted):
            frame = frame.with_columns(self._texts(places, quoted))
        self._gather_others()
        aside_places, companions, asides = self._numbered_asides()
        return BlockPlan(
            bounds=self.block.bounds,
            paths=self.paths,
            unsure=np.flatnonzero(self.free).tolist(),
            asides=asides,
            event_lines=aside_places,
            companions=companions,
            idle=np.sort(np.array(self.idle, np.int64)),
            others=self.others,
            other_kinds=self.other_kinds,
            kinds=self.kinds,
            frame=frame,
            places=places,
            row_traits=traits,
            traits=list(self.traits),
        )

    def _learn(self) -> None:
        """Read the first possible steps, so that like lines fit a shape from the start."""
        anchors = [form.anchor.encode() for form in self.steps]
        lines = range(min(MAX_FIRST_SHAPE_LINES, len(self.block)))
        steps = (x for x in lines if any(anchor in self.block.raw(x) for anchor in anchors))
        for line in islice(steps, MIN_STEP_REPEATS + MAX_ATTEMPTS_PER_SKELETON):
            if self.free[line]:
                self._by_regex(line)

    def _fitted(self, shape: LineShape) -> None:
        """Take the lines that fit a shape."""
        rows = decode_rows(self.shapes.layouts.fit(self.block, shape, self.free))
        if not len(rows.lines):
            return
        self._taken(rows.lines, BY_BLOCK)
        if shape.reading is EventReading and len(rows.lines) < event_rows.MIN_FRAME_EVENTS:
            self.asides.alone += _asides(shape, rows)
        elif shape.reading is EventReading:
            self.asides.add(rows, shape.fields, shape.form)
        else:
            self.rows.add(rows, shape.fields, self._trait(shape.form, shape.printed, shape.fields))

    def _looked_through(self, lines: Ints) -> None:
        """Take lines that are blank, or contain no literal of any pattern."""
        lines = lines[self.block.sizes[lines] <= MAX_LINE_BYTES]
        if not len(lines):
            return
        cache = self.reader.cache
        classes = cache.of(self.block.lines(lines))
        self.idle += lines[classes == BLANK_LINE].tolist()  # in addition to lines read by regexes
        self.others = lines[classes >= 0]
        kinds = classes[classes >= 0]
        present = distinct_integers(kinds)
        self.kinds = take_values(cache.kinds, present)
        places = np.zeros(len(cache.kinds), np.int64)
        places[present] = np.arange(len(present))
        self.other_kinds = places[kinds]
        self._taken(lines[(classes >= 0) | (classes == BLANK_LINE)], FROM_CACHE)

    def _by_regex(self, line: int) -> None:
        """Take a line that fits no shape; if a shape is learned, take its lines too."""
        raw = self.block.raw(line)
        if len(raw) > MAX_LINE_BYTES:
            return
        reading = self.reader.read(raw)
        if reading is None:
            return
        self._taken(line, BY_REGEX)
        if isinstance(reading, StepReading):
            trait = self._trait(reading.form, reading.printed, reading.row)
            self.rows.alone.append((line, trait, reading.row))
        elif isinstance(reading, EventReading):
            self.asides.alone.append((line, reading.companion, reading.row))
        elif isinstance(reading, UnmatchedReading):
            self.others_by_regex.append((line, reading.kind))
        else:
            self.idle.append(line)
        left = len(self.block.data) - self.block.starts[line]
        if not isinstance(reading, StepReading | EventReading) or left < MIN_BYTES_TO_LEARN:
            return
        shape = self.shapes.see(raw, self.reader.read, is_event=isinstance(reading, EventReading))
        if shape is not None:
            self._fitted(shape)

    def _taken(self, lines: Ints | int, path: int) -> None:
        """Note that lines have a reading, and by which path."""
        self.free[lines] = False
        self.paths[lines] = path

    def _trait(self, form: StepLine, printed: frozenset[str], row: Mapping[str, Any]) -> int:
        trait = RowTrait(self.forms[id(form)], printed, tuple(row["says"].items()))
        return self.traits.setdefault(trait, len(self.traits))

    def _gather_others(self) -> None:
        """Add the unmatched lines that regexes found one by one."""
        if not self.others_by_regex:
            return
        lines, kinds = zip(*self.others_by_regex, strict=True)
        numbers = {kind: number for number, kind in enumerate(self.kinds.to_pylist())}
        alone = [numbers.setdefault(kind, len(numbers)) for kind in kinds]
        self.kinds = text_array(numbers)
        others = np.concatenate([self.others, lines])
        order = np.argsort(others, kind="stable")
        self.others = others[order]
        self.other_kinds = np.concatenate([self.other_kinds, alone])[order]

    def _texts(self, places: Ints, selected: Ints) -> pl.Series:
        """Return a text column with the lines of the selected rows."""
        none = pl.Series("text", [None], pl.String).new_from_index(0, len(places))
        return none.scatter(selected, self._quoted(places[selected]))

    def _numbered_asides(self) -> tuple[Ints, Bools, RowBatch]:
        """Return the line indices of events, True for companions' ones, and the events."""
        if not self.asides.parts and len(self.asides.alone) < event_rows.MIN_FRAME_EVENTS:
            alone = sorted(self.asides.alone, key=itemgetter(0))
            lines = np.array([line for line, _, _ in alone], np.int64)
            texts = (self.cleaner.text(self.block.raw(line)) for line, _, _ in alone)
            with_texts = zip(alone, texts, strict=True)
            rows = [{**row, "text": text[:MAX_QUOTED_CHARS]} for (_, _, row), text in with_texts]
            companions = np.array([companion for _, companion, _ in alone], bool)
            return lines, companions, with_line_numbers(rows, lines + self.block.number)
        lines, of_companions, frame = self.asides.in_order(("kind",))
        frame = frame.hstack([self._quoted(lines).alias("text")])
        return (
            lines,
            of_companions.astype(bool),
            with_line_numbers(frame, lines + self.block.number),
        )

    def _quoted(self, lines: Ints) -> pl.Series:
        """Return the texts of these lines, cut to the kept length."""
        texts = self.cleaner.texts(self.block.lines(lines))
        long = int(self.block.lengths[lines].max(initial=0)) > MAX_QUOTED_CHARS
        return texts.str.slice(0, MAX_QUOTED_CHARS) if long else texts


def _asides(shape: LineShape, rows: DecodedRows) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """Yield line, companion flag and row of every event, as the parser makes them."""
    names, same = (*shape.fields, *rows.columns), tuple(shape.fields.values())
    columns = map(_items, rows.columns.values())
    for line, *values in zip(rows.lines.tolist(), *columns, strict=True):
        yield line, shape.form, dict(zip(names, (*same, *values), strict=True))


def _items(column: pl.Series | NDArray[Any]) -> list[Any]:
    """Return the values of a column; numpy makes datetimes faster than Polars (10x)."""
    return column.to_list() if isinstance(column, pl.Series) else column.tolist()


class _Gathered:
    """Rows of a block for one table, with line index and trait number of every row.

    parts: rows read at once; alone: mappings
    """

    def __init__(self, schema: Mapping[str, pl.DataType]) -> None:
        self._schema = schema
        self.parts: list[tuple[Ints, Ints, pl.DataFrame]] = []
        self.alone: list[tuple[int, int, Mapping[str, Any]]] = []

    def add(self, rows: DecodedRows, fields: Mapping[str, Any], trait: int) -> None:
        """Add rows of lines of one shape. fields: values equal in all rows."""
        height = len(rows.lines)
        frame = _frame(self._schema, fields, rows.columns, height)
        self.parts.append((rows.lines, np.full(height, trait), frame))

    def in_order(self, names: Iterable[str]) -> tuple[Ints, Ints, pl.DataFrame]:
        """Return line indices, trait numbers and rows, in line order.

        names: columns to include even if no row has them
        """
        if self.alone:
            lines, row_traits, rows = zip(*self.alone, strict=True)
            frame = frame_of_rows(rows, self._schema, filled_only=True)
            self.parts.append((np.array(lines), np.array(row_traits, np.int64), frame))
        places = concatenate_ints([lines for lines, _, _ in self.parts])
        traits = concatenate_ints([row_traits for _, row_traits, _ in self.parts])
        empty = pl.DataFrame(schema={name: self._schema[name] for name in names})
        frame = pl.concat([empty, *(frame for _, _, frame in self.parts)], how="diagonal")
        if (np.diff(places) > 0).all():
            return places, traits, frame
        order = np.argsort(places, kind="stable")  # fast, because parts are in order
        return places[order], traits[order], take_rows(frame.rechunk(), order)


def _frame(
    schema: Mapping[str, pl.DataType],
    fields: Mapping[str, Any],
    columns: Mapping[str, Any],
    height: int,
) -> pl.DataFrame:
    """Return the columns of the schema that the rows fill, without all-null columns."""
    named: dict[str, pl.Series] = {}
    for name, kind in schema.items():
        if name in columns:
            named[name] = pl.Series(name, columns[name]).cast(kind)
        elif fields.get(name) is not None:
            named[name] = pl.Series(name, [fields[name]], kind).new_from_index(0, height)
    return pl.DataFrame(named)
