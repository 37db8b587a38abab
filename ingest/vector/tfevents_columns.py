"""Scalars of event files, many steps at once, with the results of `line_parser`.

Adjacent values of one step are a *run*: no record of a format's `join` has lines of two runs. Runs
with the same tags read alike except for their numbers. So

    learn   the format's `join` and the regexes show the meaning of a kind of run: they read runs
            of random numbers, and the rows show the effect of every number. Then every number is
            tried in every printed form (whole, with an exponent, not finite, negative, …), and
            many numbers together; a form that reads differently than learned is left to the
            regexes.
    read    runs of a known kind become columns, without being written as text.

Values that are no plain scalars, and rare kinds of runs, are read line by line, as is a row that
may begin another launch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain
from random import Random
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from ..core.arrays import Floats, Ints, concatenate_ints, distinct_integers, take_rows, text_array
from ..decode.line_reader import NumberedLine, ValueChunk
from ..decode.tfevents import NO_TAG, EventValues, format_floats, shortest_floats
from ..formats.spec import LogFormat, StepLine
from ..launches.launch import (
    NO_STAMP,
    FormRows,
    Launch,
    advance_progress,
    count_rows_without_facts,
    count_same_process_rows,
)
from ..launches.step_rows import FORM_COLUMN, STEP_SCHEMA
from ..parse.line_parser import LineParser
from ..parse.record_sink import RecordSink
from ..parse.records import join_records
from ..parse.unmatched_lines import KindCounts
from .context_free import ContextFreeReader
from .readings import KnownReading, LineReading, StepReading, UnmatchedReading
from .shape_validation import is_identical
from .timestamps import epoch_to_microseconds

Float32s = NDArray[np.float32]

MIN_RUNS_TO_LEARN: Final = 64
"""Runs of a kind in one window: learning a kind costs as much as reading some hundred runs."""
MAX_RUN_KINDS: Final = 200
"""Maximum number of kinds of runs in a file."""
MAX_RUN_VALUES: Final = 200
"""Maximum number of values of a run that is read by columns."""
MAX_HELD_VALUES: Final = 100_000
"""Maximum number of values to wait for the end of a run; beyond, the file is read line by line."""
MAX_SINGLY_READ_RUNS: Final = 4096
"""Maximum number of runs read line by line before many are tried again."""
BASE_RUNS: Final = 6
TRIAL_RUNS: Final = 60
"""A kind is learned from BASE_RUNS runs, and must read TRIAL_RUNS runs like the regexes."""

WALL_TIME_RANGE: Final = (1e9, 1e10)
"""Wall times with ten digits before the point [s]; others are left to the regexes."""
MAX_SCALAR_STEP: Final = 10**15


def reads_by_columns(log_format: LogFormat) -> bool:
    """Return whether lines of an event file form steps, or are independent."""
    return log_format.join is None or log_format.join_by_step


def read_values(
    lines: LineParser,
    sink: RecordSink,
    context_free: ContextFreeReader,
    chunks: Iterable[ValueChunk],
) -> None:
    """Read all values of an event file into a sink, with the same result as `lines`.

    lines: parser that fills the same sink
    context_free: of the same formats
    """
    reader, chunks = _ValueReader(lines, sink, context_free), iter(chunks)
    for chunk in chunks:
        rest = reader.read(chunk)
        if len(rest.values) > MAX_HELD_VALUES:
            reader.rest = None
            lines.read_lines(line for part in chain([rest], chunks) for line in part.lines())
    reader.finish()


class _ValueReader:
    """Reader of the values of a file, in their order.

    rest: values of the last run, which may continue
    """

    def __init__(
        self, lines: LineParser, sink: RecordSink, context_free: ContextFreeReader
    ) -> None:
        self.lines, self.sink, self.context_free = lines, sink, context_free
        self.matcher = context_free.matcher
        self.kinds: dict[tuple[int, ...], _Kind | None] = {}
        self.rest: ValueChunk | None = None
        self.patience = 1

    def read(self, chunk: ValueChunk) -> ValueChunk:
        """Read all values except those of the last run, and return the latter."""
        if self.rest is not None:
            chunk = ValueChunk.of(self.rest.number, self.rest.values.before(chunk.values))
        begins = self._begins(chunk.values)
        end = int(begins[-1]) if self.matcher.primary.join is not None else len(chunk.values)
        self._read(chunk.number, chunk.values[:end], begins[begins < end])
        self.rest = ValueChunk.of(chunk.number + end, chunk.values[end:])
        return self.rest

    def finish(self) -> None:
        """Read the last run."""
        if self.rest is not None:
            self.lines.read_lines(self.rest.lines())

    def _begins(self, values: EventValues) -> Ints:
        """Return the begins of runs: without a `join`, every value is a run."""
        if self.matcher.primary.join is None:
            return np.arange(len(values))
        return np.flatnonzero(np.diff(values.step, prepend=values.step[0] - 1))

    def _read(self, number: int, values: EventValues, begins: Ints) -> None:
        """Read all runs of some values: unsure runs line by line, others together."""
        plan, run = self._plan(number, values, begins), 0
        unsure = np.append(np.flatnonzero(plan.unsure), len(begins))
        sure = np.append(np.flatnonzero(~plan.unsure), len(begins))
        while run < len(begins):
            if plan.unsure[run]:
                stop = int(sure[np.searchsorted(sure, run)])
            else:
                stop = int(unsure[np.searchsorted(unsure, run)])
                count = self._together(plan, run, stop)
                if count:
                    self.patience = 1 if count >= MIN_RUNS_TO_LEARN else self.patience
                    run += count
                    continue
                stop = min(run + self.patience, len(begins))
                self.patience = min(2 * self.patience, MAX_SINGLY_READ_RUNS)
            self.lines.read_lines(plan.lines(run, stop))
            run = stop

    # -- what is known of runs before they are read in their order ---------------------------

    def _plan(self, number: int, values: EventValues, begins: Ints) -> _Plan:
        ends = np.append(begins[1:], len(values))
        plan = _Plan(number, values, begins, ends, np.ones(len(begins), bool))
        good = (values.tag != NO_TAG) & (values.step > 0) & (values.step < MAX_SCALAR_STEP)
        good &= (values.wall_time >= WALL_TIME_RANGE[0]) & (values.wall_time < WALL_TIME_RANGE[1])
        ways = _ways(values.value)
        counts = ends - begins
        for count, times in zip(*np.unique(counts, return_counts=True), strict=True):
            if count > MAX_RUN_VALUES or (times < MIN_RUNS_TO_LEARN and not self.kinds):
                continue
            runs = np.flatnonzero(counts == count)
            places = begins[runs][:, None] + np.arange(count)
            for alike, kind in self._alike(values, places):
                fit = good[places[alike]] & kind.read_so[np.arange(count), ways[places[alike]]]
                fitting = alike[fit.all(axis=1)]
                plan.unsure[runs[fitting]] = False
                kind.take(plan, runs[fitting], places[fitting])
        plan.settle()
        return plan

    def _alike(self, values: EventValues, places: Ints) -> Iterator[tuple[Ints, _Kind]]:
        """Yield runs of the same tags, with their kind. places: of the values of each run."""
        tags = values.tag[places]
        which = tags[:, 0] - NO_TAG
        if tags.shape[1] > 1:
            mixed = (tags - NO_TAG).astype(np.uint64) @ _mixers()[: tags.shape[1]]
            which = np.unique(mixed, return_inverse=True)[1]
        order = np.argsort(which, kind="stable")
        for group in np.split(order, np.cumsum(np.bincount(which))[:-1]):
            if not len(group):
                continue
            key = tuple(tags[group[0]].tolist())
            alike = group[(tags[group] == tags[group[0]]).all(axis=1)]
            if key not in self.kinds and NO_TAG not in key:
                if len(alike) < MIN_RUNS_TO_LEARN or len(self.kinds) >= MAX_RUN_KINDS:
                    continue
                self.kinds[key] = _learned(self.context_free, values.tags, key)
            kind = self.kinds.get(key)
            if kind is not None:
                yield alike, kind

    # -- many runs at once -------------------------------------------------------------------

    def _together(self, plan: _Plan, first_run: int, stop: int) -> int:
        """Read runs from `first_run` on together; return their number, 0 if impossible."""
        sink = self.sink
        if not (self.lines.is_idle and sink.is_mid_launch):
            return 0
        launch = sink.launch
        first, last = np.searchsorted(plan.row_runs, (first_run, stop)).tolist()
        sure = _sure_rows(launch, plan, first, last)
        if sure < last:
            stop = int(plan.row_runs[sure])
            last = int(np.searchsorted(plan.row_runs, stop))
        begin, end = np.searchsorted(plan.idle[0], (first_run, stop)).tolist()
        sink.count_known(int(plan.idle[1][begin:end].sum()))
        sink.out.cost.block_lines += int(plan.ends[stop - 1] - plan.begins[first_run])
        sink.add_unmatched_kinds(
            KindCounts(*plan.others_of(first_run, stop), partial(self._texts_at, plan))
        )
        if last > first:
            self._take_rows(launch, plan, first, last)
        return stop - first_run

    def _take_rows(self, launch: Launch, plan: _Plan, first: int, last: int) -> None:
        for form in distinct_integers(plan.forms[first:last]).tolist():
            rows = np.flatnonzero(plan.forms[first:last] == form) + first
            row = int(rows[-1])
            common = plan.readings[plan.row_readings[row]]
            self.sink.note_record(common.form, common.printed, self._text_of_row(plan, row))
            advance_progress(launch.known_progress(common.form, None), _of_form(plan, rows))
        lines = int(plan.row_lines[first:last].sum())
        self.sink.add_steps(plan.frame[first:last], self._text_of_row(plan, last - 1), lines)

    def _text_of_row(self, plan: _Plan, row: int) -> str:
        return self._text(plan, int(plan.row_runs[row]), int(plan.row_places[row]))

    def _texts_at(self, plan: _Plan, numbers: Ints) -> Iterator[str]:
        """Return the records that begin at these lines of the file."""
        places = numbers - plan.number
        runs = np.searchsorted(plan.begins, places, "right") - 1
        return map(partial(self._text, plan), runs.tolist(), places.tolist())

    def _text(self, plan: _Plan, run: int, position: int) -> str:
        """Return the record that begins with the value at `position`, in a run."""
        records = join_records(self.matcher, plan.lines(run, run + 1))
        return next(record.text for record in records if record.number == plan.number + position)


@cache
def _mixers() -> NDArray[np.uint64]:
    """Return random odd factors, made when needed: numpy's generators take 10 ms to import."""
    return np.random.default_rng(7).integers(1, 2**63, MAX_RUN_VALUES).astype(np.uint64) | 1


def _sure_rows(launch: Launch, plan: _Plan, first: int, last: int) -> int:
    """Return the end of the rows certainly of the launch and without new facts."""
    sure = last
    forms = plan.forms[first:last]
    for form in distinct_integers(forms).tolist():
        rows = np.flatnonzero(forms == form) + first
        progress = launch.known_progress(plan.readings[plan.row_readings[rows[0]]].form, None)
        count = count_same_process_rows(launch, progress, _of_form(plan, rows))
        if count < len(rows):
            sure = min(sure, int(rows[count]))
    readings = plan.row_readings[first:last]
    return min(
        sure,
        first
        + count_rows_without_facts(
            launch, readings, lambda index: plan.readings[index].says.items()
        ),
    )


def _of_form(plan: _Plan, rows: Ints) -> FormRows:
    """Return the rows of a form: without times since the start."""
    clocks = np.full(len(rows), np.nan)
    return FormRows(plan.steps[rows], plan.stamps[rows], clocks, lambda _: ())


class _CommonReading(NamedTuple):
    """Common reading of the rows made of a kind of record.

    form: StepLine; form_index: its index in the format
    printed: names of its fields; says: facts that rows print
    """

    form: StepLine
    form_index: int
    printed: frozenset[str]
    says: Mapping[str, str]


@dataclass
class _Plan:
    """Context-free readings of the runs of some values.

    unsure: True for runs to read line by line
    idle: runs of lines without statements, and their numbers of lines

    Per row: row_runs, the run; row_places, the position of the first line; row_lines, the number of
    lines; row_readings, the index in `readings`; forms; steps; stamps [us].
    """

    number: int
    values: EventValues
    begins: Ints
    ends: Ints
    unsure: NDArray[np.bool_]
    parts: list[tuple[Ints, Ints, int, _CommonReading, pl.DataFrame]] = field(default_factory=list)
    idle_parts: list[tuple[Ints, int]] = field(default_factory=list)
    others: list[tuple[str, Ints, Ints, int]] = field(default_factory=list)
    readings: list[_CommonReading] = field(default_factory=list)
    idle: tuple[Ints, Ints] = (np.empty(0, np.int64), np.empty(0, np.int64))

    def settle(self) -> None:
        """Order rows and the rest by run, after everything was added."""
        runs = concatenate_ints([runs for runs, _ in self.idle_parts])
        lines = concatenate_ints([np.full(len(runs), count) for runs, count in self.idle_parts])
        order = np.argsort(runs, kind="stable")
        self.idle = runs[order], lines[order]
        places = concatenate_ints([places for _, places, _, _, _ in self.parts])
        order = np.argsort(places, kind="stable")
        self.row_places = places[order]
        self.row_runs = concatenate_ints([runs for runs, _, _, _, _ in self.parts])[order]
        counts = [np.full(len(runs), count) for runs, _, count, _, _ in self.parts]
        self.row_lines = concatenate_ints(counts)[order]
        self.readings = [common for _, _, _, common, _ in self.parts]
        which = [np.full(len(part[0]), index) for index, part in enumerate(self.parts)]
        self.row_readings = concatenate_ints(which)[order]
        self.forms = np.array([common.form_index for common in self.readings], np.int64)[
            self.row_readings
        ]
        empty = pl.DataFrame(schema={name: STEP_SCHEMA[name] for name in ("step", "logged_at")})
        frames = [frame for _, _, _, _, frame in self.parts]
        frame = pl.concat([empty, *frames], how="diagonal")
        if len(frames) > 1:
            frame = take_rows(frame, order)
        self.frame = frame.with_columns(
            pl.Series("line", self.row_places + self.number, pl.Int64),
            pl.Series(FORM_COLUMN, self.forms, pl.Int8),
        )
        self.steps = self.frame["step"].to_numpy()
        self.stamps = self.frame["logged_at"].to_physical().fill_null(NO_STAMP).to_numpy()

    def others_of(self, first_run: int, stop: int) -> tuple[pa.StringArray, Ints, Ints]:
        """Return kinds of unmatched lines in some runs, with count and first line number."""
        counts: dict[str, int] = {}
        firsts: dict[str, int] = {}
        for kind, runs, places, count in self.others:
            begin, end = np.searchsorted(runs, (first_run, stop)).tolist()
            if begin < end:
                counts[kind] = counts.get(kind, 0) + (end - begin) * count
                first = self.number + int(places[begin])
                firsts[kind] = min(first, firsts.get(kind, first))
        numbers = (np.array(list(values.values()), np.int64) for values in (counts, firsts))
        return text_array(counts), *numbers

    def lines(self, first_run: int, stop: int) -> Iterator[NumberedLine]:
        """Yield the lines of some runs."""
        begin, end = int(self.begins[first_run]), int(self.ends[stop - 1])
        return ValueChunk.of(self.number + begin, self.values[begin:end]).lines()


# -- kinds of runs ---------------------------------------------------------------------------

(
    PRINTED_ZERO,
    PRINTED_WHOLE,
    PRINTED_FRACTION,
    PRINTED_TINY,
    PRINTED_HUGE,
    PRINTED_INFINITE,
    PRINTED_NAN,
) = range(7)
"""Printed forms of a number: `0.0`, `7034.0`, `0.5`, `1e-05`, `1e+16`, …"""
PRINT_FORM_COUNT: Final = 14
"""Printed forms of a number, including those of negative numbers after the positive ones."""


def _ways(values: Float32s) -> Ints:
    """Return the printed form of each value."""
    size = np.abs(values)
    ways = np.where(size == np.floor(size), PRINTED_WHOLE, PRINTED_FRACTION)
    ways[size < np.float32(1e-4)] = PRINTED_TINY
    ways[size >= np.float32(1e16)] = PRINTED_HUGE
    ways[size == 0] = PRINTED_ZERO
    ways[np.isinf(size)] = PRINTED_INFINITE
    ways[np.isnan(size)] = PRINTED_NAN
    ways += (PRINTED_NAN + 1) * np.signbit(values)
    return ways


def _drawn(way: int, rng: Random) -> float:
    """Return a random number with a printed form."""
    sign, kind = -1 if way >= PRINTED_NAN + 1 else 1, way % (PRINTED_NAN + 1)
    if kind == PRINTED_WHOLE:
        return sign * float(int(10 ** rng.uniform(0, 15)))
    if kind == PRINTED_FRACTION:
        digits = rng.randint(1, 8)
        drawn = round(10 ** rng.uniform(-3.9, 4), digits)
        return sign * (drawn if drawn > 1e-4 and drawn % 1 else 0.5)  # noqa: PLR2004
    powers = {PRINTED_TINY: (-44, -4.1), PRINTED_HUGE: (16.1, 38)}
    if kind in powers:
        return sign * 10 ** rng.uniform(*powers[kind])
    return (
        sign * {PRINTED_ZERO: 0.0, PRINTED_INFINITE: float("inf"), PRINTED_NAN: float("nan")}[kind]
    )


@dataclass
class _Runs:
    """Runs of one kind: a step per run, a wall time and a value per value."""

    steps: Ints
    wall_times: Floats
    values: Float32s

    def __post_init__(self) -> None:
        self._printed: dict[int, Floats] = {}

    def column(self, index: int) -> Floats:
        """Return the values at one index of each run, as float() reads them."""
        if index not in self._printed:
            self._printed[index] = shortest_floats(np.ascontiguousarray(self.values[:, index]))
        return self._printed[index]


MakeColumn = Callable[[_Runs], pl.Series]
"""Function that returns the values of a column of `steps`, one per run."""


@dataclass
class _Row:
    """Record that becomes a row: its columns, and the common reading."""

    common: _CommonReading
    columns: dict[str, MakeColumn]
    constants: dict[str, Any]

    def frame(self, runs: _Runs) -> pl.DataFrame:
        """Return the rows of some runs."""
        made = [column(runs).alias(name) for name, column in self.columns.items()]
        same = [pl.lit(v, STEP_SCHEMA[name]).alias(name) for name, v in self.constants.items()]
        return pl.DataFrame(made).with_columns(same).cast({n: STEP_SCHEMA[n] for n in self.columns})


@dataclass
class _Record:
    """Record of a kind of run.

    first: index of the first value
    lines: number of values
    what: its reading
    """

    first: int
    lines: int
    what: _Row | KnownReading | UnmatchedReading


@dataclass
class _Kind:
    """Runs of the same tags.

    read_so: True for each value and printed form that reads as learned
    """

    records: list[_Record]
    read_so: NDArray[np.bool_]

    def take(self, plan: _Plan, of_runs: Ints, places: Ints) -> None:
        """Add these runs to a plan. places: of their values."""
        values = plan.values
        runs = _Runs(values.step[places[:, 0]], values.wall_time[places], values.value[places])
        for record in self.records:
            first, what = places[:, record.first], record.what
            if isinstance(what, UnmatchedReading):
                plan.others.append((what.kind, of_runs, first, record.lines))
            elif isinstance(what, KnownReading):
                plan.idle_parts.append((of_runs, record.lines))
            else:
                plan.parts.append((of_runs, first, record.lines, what.common, what.frame(runs)))


# -- learning --------------------------------------------------------------------------------


class _Read(NamedTuple):
    """Record as the regexes read it. first, lines: as in _Record."""

    first: int
    lines: int
    reading: LineReading


def _learned(reader: ContextFreeReader, tags: list[str], key: tuple[int, ...]) -> _Kind | None:
    """Return the kind of runs with these tags; None if they are not alike."""
    rng, count = Random(7), len(key)  # noqa: S311 - numbers to try
    read = partial(_read, reader, tags, key)
    bases = _drawn_runs(rng, np.full((BASE_RUNS, count), PRINTED_WHOLE))
    unlike = rng.sample(range(10_000, 100_000), BASE_RUNS * count)  # distinct, to be found in texts
    bases.values[:] = np.array(unlike, np.float32).reshape(BASE_RUNS, count)
    records_of_runs = read(bases)
    if len({len(records) for records in records_of_runs}) > 1:
        return None
    records = [_record(reader, bases, of_runs) for of_runs in zip(*records_of_runs, strict=True)]
    known = [record for record in records if record is not None]
    if len(known) < len(records):
        return None
    read_so = np.zeros((count, PRINT_FORM_COUNT), bool)
    together = _drawn_runs(
        rng, np.repeat(np.arange(PRINT_FORM_COUNT), count).reshape(PRINT_FORM_COUNT, count)
    )
    read_so[:, _as_learned(known, read, together)] = True
    odd = np.flatnonzero(~read_so[0])  # tried for each value alone
    alone = np.full((count, len(odd), count), PRINTED_WHOLE)
    alone[np.arange(count), :, np.arange(count)] = odd
    good = _as_learned(known, read, _drawn_runs(rng, alone.reshape(-1, count)))
    read_so[:, odd] = good.reshape(count, len(odd))
    if not read_so[:, PRINTED_WHOLE].all():
        return None
    ways = [np.flatnonzero(of_value).tolist() for of_value in read_so]
    drawn = np.array([[rng.choice(of_value) for of_value in ways] for _ in range(TRIAL_RUNS)])
    right = _as_learned(known, read, _drawn_runs(rng, drawn)).all()
    return _Kind(known, read_so) if right else None


def _read(
    reader: ContextFreeReader, tags: list[str], key: tuple[int, ...], runs: _Runs
) -> list[list[_Read]]:
    """Return the records of each run of these tags."""
    times, size = len(runs.steps), len(key)
    values = EventValues(
        tags,
        np.tile(np.array(key), times),
        np.repeat(runs.steps, size),
        runs.wall_times.ravel(),
        runs.values.ravel(),
    )
    lines = list(ValueChunk.of(0, values).lines())
    return [
        [
            _Read(record.number - begin, record.line_count, reader.read(record.text.encode()))
            for record in join_records(reader.matcher, lines[begin : begin + size])
        ]
        for begin in range(0, len(lines), size)
    ]


def _drawn_runs(rng: Random, ways: Ints) -> _Runs:
    """Return random runs with values of these printed forms."""
    walls = [round(rng.uniform(*WALL_TIME_RANGE), rng.randint(0, 7)) for _ in range(ways.size)]
    values = [_drawn(way, rng) for way in ways.ravel().tolist()]
    return _Runs(
        np.array([int(10 ** rng.uniform(0, 15)) for _ in ways]),
        np.array(walls).reshape(ways.shape),
        np.array(values, np.float32).reshape(ways.shape),
    )


def _record(reader: ContextFreeReader, runs: _Runs, reads: Sequence[_Read]) -> _Record | None:
    """Return the common record of all these runs; None if there is none."""
    first, lines, reading = reads[0]
    if any((read.first, read.lines) != (first, lines) for read in reads):
        return None
    steps = [read.reading for read in reads if isinstance(read.reading, StepReading)]
    if len(steps) == len(reads):
        row = _row(reader, runs, range(first, first + lines), steps)
        return None if row is None else _Record(first, lines, row)
    if isinstance(reading, KnownReading | UnmatchedReading) and all(
        read.reading == reading for read in reads
    ):
        return _Record(first, lines, reading)
    return None


def _row(
    reader: ContextFreeReader, runs: _Runs, places: range, steps: Sequence[StepReading]
) -> _Row | None:
    """Return the columns of the rows of these runs; None if unknown.

    places: indices of the record's values
    """
    form, printed_names, row = steps[0]
    if any((s.form, s.printed, s.row.keys()) != (form, printed_names, row.keys()) for s in steps):
        return None
    columns, constants = dict[str, MakeColumn](), dict[str, Any]()
    for name, first in row.items():
        printed_values = [step.row[name] for step in steps]
        if all(is_identical(value, first) for value in printed_values):
            constants[name] = first
            continue
        made = _columns(name, form, runs, places, str(first))
        column = next((c for c in made if _all_same(c(runs), printed_values)), None)
        if column is None:
            return None
        columns[name] = column
    form_index = next(
        index for index, step_line in enumerate(reader.matcher.primary.steps) if step_line is form
    )
    what = _CommonReading(form, form_index, printed_names, constants.pop("says", {}))
    constants = {name: value for name, value in constants.items() if value is not None}
    return _Row(what, columns, constants)


def _columns(
    name: str, form: StepLine, runs: _Runs, places: range, first: str
) -> Iterator[MakeColumn]:
    """Yield all possible functions of a column. first: text of the first row's value."""
    if name == "extra":
        yield _text(first, runs, places)
    elif name == "logged_at":
        yield from (partial(_stamps, index) for index in places)
    elif STEP_SCHEMA[name].is_integer():
        yield lambda runs: pl.Series(runs.steps)
        yield from (partial(_wholes, index) for index in places)
    elif STEP_SCHEMA[name].is_float():
        targets = [target for target in form.columns.values() if not isinstance(target, str)]
        for factor in (None, *(factor for column, factor in targets if column == name)):
            yield from (partial(_floats, index, factor) for index in places)


def _floats(index: int, factor: float | None, runs: _Runs) -> pl.Series:
    values = runs.column(index)
    return pl.Series(values if factor is None else values * factor)


def _wholes(index: int, runs: _Runs) -> pl.Series:
    with np.errstate(invalid="ignore"):
        return pl.Series(runs.column(index).astype(np.int64))


def _stamps(index: int, runs: _Runs) -> pl.Series:
    return pl.Series(epoch_to_microseconds(runs.wall_times[:, index])).cast(
        STEP_SCHEMA["logged_at"]
    )


def _text(first: str, runs: _Runs, places: range) -> MakeColumn:
    """Return a function for texts like `first`, with the values of each run."""
    texts = {format_floats(runs.column(index)[:1]).item(): index for index in places}
    pieces = re.split(f"({'|'.join(map(re.escape, texts))})", first)

    def column(runs: _Runs) -> pl.Series:
        parts = [
            pl.lit(format_floats(runs.column(texts[piece])) if piece in texts else piece)
            for piece in pieces
        ]
        return pl.select(pl.concat_str(parts)).to_series()

    return column


def _as_learned(
    records: Sequence[_Record], read: Callable[[_Runs], list[list[_Read]]], runs: _Runs
) -> NDArray[np.bool_]:
    """Return True for runs whose records equal the learned ones, bit for bit."""
    rows = [
        record.what.frame(runs).to_dicts() if isinstance(record.what, _Row) else []
        for record in records
    ]
    return np.array(
        [
            len(reads) == len(records)
            and all(
                _is(record, read_record, row[run] if row else {})
                for record, read_record, row in zip(records, reads, rows, strict=True)
            )
            for run, reads in enumerate(read(runs))
        ]
    )


def _is(record: _Record, record_read: _Read, row: Mapping[str, Any]) -> bool:
    what, reading = record.what, record_read.reading
    if (record_read.first, record_read.lines) != (record.first, record.lines):
        return False
    if not isinstance(what, _Row):
        return reading == what
    if not isinstance(reading, StepReading) or reading.form is not what.common.form:
        return False
    if reading.printed != what.common.printed or reading.row["says"] != what.common.says:
        return False
    filled = {name: value for name, value in reading.row.items() if value is not None}
    filled.pop("says")
    learned = {name: value for name, value in row.items() if value is not None}
    return learned.keys() == filled.keys() and all(
        is_identical(learned[n], filled[n]) for n in learned
    )


def _all_same(values: pl.Series, others: Sequence[Any]) -> bool:
    return all(
        is_identical(value, other_value)
        for value, other_value in zip(values.to_list(), others, strict=True)
    )
