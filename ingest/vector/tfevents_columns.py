"""Scalars of event files, many steps at once: what `line_parser` makes of each of their lines.

Values of one step that stand together are a *run*: no record of a format's `join` holds lines of
two. Runs of the same tags are read alike but for their numbers. So

    learn   of a kind of run, what becomes of it is asked of the format's `join` and of the regexes:
            runs of random numbers are read, and what each number does is seen from the rows. Then
            each number is tried in each way that it may be printed (whole, with an exponent, not
            finite, negative, …), and many together; a way in which it is not read as was learned
            is left to the regexes.
    read    runs of a kind that is known become columns, without being written as text.

What is no plain scalar, and runs of few of a kind, are read line by line; so is a row that may
begin another launch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
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
"""Runs of a kind in one window: to learn one costs as much as to read some hundred of them."""
MAX_RUN_KINDS: Final = 200
"""The most kinds of runs in a file."""
MAX_RUN_VALUES: Final = 200
"""Values of a run that is read by columns."""
MAX_HELD_VALUES: Final = 100_000
"""Values of a run that is waited for; then a file has no steps to read it by."""
MAX_SINGLY_READ_RUNS: Final = 4096
"""Runs that are read line by line before it is tried anew to take many."""
BASE_RUNS: Final = 6
TRIAL_RUNS: Final = 60
"""Runs that a kind is learned from, and that it has to read as the regexes do."""

WALL_TIME_RANGE: Final = (1e9, 1e10)
"""Wall times of ten digits before the point [s]; others are left to the regexes."""
MAX_SCALAR_STEP: Final = 10**15


def reads_by_columns(log_format: LogFormat) -> bool:
    """Whether the lines of an event file are those of a step, or each by itself."""
    return log_format.join is None or log_format.join_by_step


def read_values(
    lines: LineParser,
    sink: RecordSink,
    context_free: ContextFreeReader,
    chunks: Iterable[ValueChunk],
) -> None:
    """Read all values of an event file into a sink; comes to the same as `lines` reading each.

    lines: fills the same sink; context_free: of the same formats.
    """
    reader, chunks = _ValueReader(lines, sink, context_free), iter(chunks)
    for chunk in chunks:
        rest = reader.read(chunk)
        if len(rest.values) > MAX_HELD_VALUES:
            reader.rest = None
            reader.read_lines(line for one in chain([rest], chunks) for line in one.lines())
    reader.finish()


class _ValueReader:
    """Reads the values of one file in their order. rest: those whose run may go on."""

    def __init__(
        self, lines: LineParser, sink: RecordSink, context_free: ContextFreeReader
    ) -> None:
        self.lines, self.sink, self.context_free = lines, sink, context_free
        self.matcher = context_free.matcher
        self.kinds: dict[tuple[int, ...], _Kind | None] = {}
        self.rest: ValueChunk | None = None
        self.patience = 1

    def read(self, chunk: ValueChunk) -> ValueChunk:
        """All values but those of the last run, which are given back."""
        if self.rest is not None:
            chunk = ValueChunk.of(self.rest.number, self.rest.values.before(chunk.values))
        begins = self._begins(chunk.values)
        end = int(begins[-1]) if self.matcher.primary.join is not None else len(chunk.values)
        self._read(chunk.number, chunk.values[:end], begins[begins < end])
        self.rest = ValueChunk.of(chunk.number + end, chunk.values[end:])
        return self.rest

    def finish(self) -> None:
        """The run that was the last one."""
        if self.rest is not None:
            self.read_lines(self.rest.lines())

    def read_lines(self, lines: Iterable[NumberedLine]) -> None:
        """Read values record by record; these end with the lines."""
        for record in join_records(self.matcher, lines):
            self.lines.read(record)

    def _begins(self, values: EventValues) -> Ints:
        """Where runs begin: without a `join` each value is one."""
        if self.matcher.primary.join is None:
            return np.arange(len(values))
        return np.flatnonzero(np.diff(values.step, prepend=values.step[0] - 1))

    def _read(self, number: int, values: EventValues, begins: Ints) -> None:
        """All runs of some values: those to be read line by line, and what lies between them."""
        plan, at = self._plan(number, values, begins), 0
        unsure = np.append(np.flatnonzero(plan.unsure), len(begins))
        sure = np.append(np.flatnonzero(~plan.unsure), len(begins))
        while at < len(begins):
            if plan.unsure[at]:
                stop = int(sure[np.searchsorted(sure, at)])
            else:
                stop = int(unsure[np.searchsorted(unsure, at)])
                taken = self._together(plan, at, stop)
                if taken:
                    self.patience = 1 if taken >= MIN_RUNS_TO_LEARN else self.patience
                    at += taken
                    continue
                stop = min(at + self.patience, len(begins))
                self.patience = min(2 * self.patience, MAX_SINGLY_READ_RUNS)
            self.read_lines(plan.lines(at, stop))
            at = stop

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
                mine = alike[fit.all(axis=1)]
                plan.unsure[runs[mine]] = False
                kind.take(plan, runs[mine], places[mine])
        plan.settle()
        return plan

    def _alike(self, values: EventValues, places: Ints) -> Iterator[tuple[Ints, _Kind]]:
        """Runs of the same tags, each with their kind; places: of the values of each run."""
        tags = values.tag[places]
        which = tags[:, 0] - NO_TAG
        if tags.shape[1] > 1:
            mixed = (tags - NO_TAG).astype(np.uint64) @ _MIXERS[: tags.shape[1]]
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

    def _together(self, plan: _Plan, at: int, stop: int) -> int:
        """How many runs from `at` on were taken together; 0 where the next has to be read."""
        sink = self.sink
        if not (self.lines.is_idle and sink.is_mid_launch):
            return 0
        launch = sink.launch
        first, last = np.searchsorted(plan.row_runs, (at, stop)).tolist()
        sure = _sure_rows(launch, plan, first, last)
        if sure < last:
            stop = int(plan.row_runs[sure])
            last = int(np.searchsorted(plan.row_runs, stop))
        begin, end = np.searchsorted(plan.idle[0], (at, stop)).tolist()
        sink.count_known(int(plan.idle[1][begin:end].sum()))
        sink.out.cost.block_lines += int(plan.ends[stop - 1] - plan.begins[at])
        sink.add_unmatched_kinds(
            KindCounts(*plan.others_of(at, stop), partial(self._texts_at, plan))
        )
        if last > first:
            self._take_rows(launch, plan, first, last)
        return stop - at

    def _take_rows(self, launch: Launch, plan: _Plan, first: int, last: int) -> None:
        for form in distinct_integers(plan.forms[first:last]).tolist():
            mine = np.flatnonzero(plan.forms[first:last] == form) + first
            row = int(mine[-1])
            said = plan.said[plan.row_said[row]]
            self.sink.note_record(said.form, said.printed, self._text_of_row(plan, row))
            advance_progress(launch.known_progress(said.form, None), _of_form(plan, mine))
        lines = int(plan.row_lines[first:last].sum())
        self.sink.add_steps(plan.frame[first:last], self._text_of_row(plan, last - 1), lines)

    def _text_of_row(self, plan: _Plan, row: int) -> str:
        return self._text(plan, int(plan.row_runs[row]), int(plan.row_places[row]))

    def _texts_at(self, plan: _Plan, numbers: Ints) -> Iterator[str]:
        """The records that begin at these lines of the file."""
        places = numbers - plan.number
        runs = np.searchsorted(plan.begins, places, "right") - 1
        return map(partial(self._text, plan), runs.tolist(), places.tolist())

    def _text(self, plan: _Plan, run: int, place: int) -> str:
        """The record that begins with the value at a place of a run."""
        records = join_records(self.matcher, plan.lines(run, run + 1))
        return next(record.text for record in records if record.number == plan.number + place)


_MIXERS: Final = np.random.default_rng(7).integers(1, 2**63, MAX_RUN_VALUES).astype(np.uint64) | 1


def _sure_rows(launch: Launch, plan: _Plan, first: int, last: int) -> int:
    """The rows up to this one are of the launch for certain, and say no new facts."""
    sure = last
    forms = plan.forms[first:last]
    for form in distinct_integers(forms).tolist():
        mine = np.flatnonzero(forms == form) + first
        progress = launch.known_progress(plan.said[plan.row_said[mine[0]]].form, None)
        count = count_same_process_rows(launch, progress, _of_form(plan, mine))
        if count < len(mine):
            sure = min(sure, int(mine[count]))
    said = plan.row_said[first:last]
    return min(
        sure, first + count_rows_without_facts(launch, said, lambda at: plan.said[at].says.items())
    )


def _of_form(plan: _Plan, rows: Ints) -> FormRows:
    """No scalar says the time since the start; each has its step, and nearly each its stamp."""
    clocks = np.full(len(rows), np.nan)
    return FormRows(plan.steps[rows], plan.stamps[rows], clocks, lambda _: ())


class _Said(NamedTuple):
    """What all records of a kind have in common that are rows."""

    form: StepLine
    place: int
    printed: frozenset[str]
    says: Mapping[str, str]


@dataclass
class _Plan:
    """What is known of the runs of some values. unsure: of each whether it is read line by line.

    idle: the runs of lines that say nothing, and how many lines. Of each row: its run, the place of
    its first line and how many there are, the number of what is `said`, form, step and stamp [us].
    """

    number: int
    values: EventValues
    begins: Ints
    ends: Ints
    unsure: NDArray[np.bool_]
    parts: list[tuple[Ints, Ints, int, _Said, pl.DataFrame]] = field(default_factory=list)
    idle_parts: list[tuple[Ints, int]] = field(default_factory=list)
    others: list[tuple[str, Ints, Ints, int]] = field(default_factory=list)
    said: list[_Said] = field(default_factory=list)
    idle: tuple[Ints, Ints] = (np.empty(0, np.int64), np.empty(0, np.int64))

    def settle(self) -> None:
        """All was added: rows and the rest in the order of their runs."""
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
        self.said = [said for _, _, _, said, _ in self.parts]
        which = [np.full(len(part[0]), place) for place, part in enumerate(self.parts)]
        self.row_said = concatenate_ints(which)[order]
        self.forms = np.array([said.place for said in self.said], np.int64)[self.row_said]
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

    def others_of(self, at: int, stop: int) -> tuple[pa.StringArray, Ints, Ints]:
        """Kinds of lines of no pattern in these runs, how many of each, the number of its first."""
        counts: dict[str, int] = {}
        firsts: dict[str, int] = {}
        for kind, runs, places, count in self.others:
            begin, end = np.searchsorted(runs, (at, stop)).tolist()
            if begin < end:
                counts[kind] = counts.get(kind, 0) + (end - begin) * count
                first = self.number + int(places[begin])
                firsts[kind] = min(first, firsts.get(kind, first))
        numbers = (np.array(list(found.values()), np.int64) for found in (counts, firsts))
        return text_array(counts), *numbers

    def lines(self, at: int, stop: int) -> Iterator[NumberedLine]:
        """The lines of some runs."""
        begin, end = int(self.begins[at]), int(self.ends[stop - 1])
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
"""How a number is printed: `0.0`, `7034.0`, `0.5`, `1e-05`, `1e+16`, …"""
PRINT_FORM_COUNT: Final = 14
"""Ways of printing a number: those of negative ones stand behind these."""


def _ways(values: Float32s) -> Ints:
    """How each value is printed."""
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
    """A number that is printed so."""
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
    """Runs of one kind: their steps, and of each of their values the wall time and the value."""

    steps: Ints
    wall_times: Floats
    values: Float32s

    def __post_init__(self) -> None:
        self._printed: dict[int, Floats] = {}

    def column(self, place: int) -> Floats:
        """The values at one place of each run, as float() reads them."""
        if place not in self._printed:
            self._printed[place] = shortest_floats(np.ascontiguousarray(self.values[:, place]))
        return self._printed[place]


MakeColumn = Callable[[_Runs], pl.Series]
"""Makes the values of a column of `steps`, of each run."""


@dataclass
class _Row:
    """A record that is a row: its columns, and what its kind has in common."""

    said: _Said
    columns: dict[str, MakeColumn]
    constants: dict[str, Any]

    def frame(self, runs: _Runs) -> pl.DataFrame:
        """The rows of some runs."""
        made = [column(runs).alias(name) for name, column in self.columns.items()]
        same = [pl.lit(v, STEP_SCHEMA[name]).alias(name) for name, v in self.constants.items()]
        return pl.DataFrame(made).with_columns(same).cast({n: STEP_SCHEMA[n] for n in self.columns})


@dataclass
class _Record:
    """A record of a kind of run: its first value's place, how many values, and what it is."""

    first: int
    lines: int
    what: _Row | KnownReading | UnmatchedReading


@dataclass
class _Kind:
    """Runs of the same tags. read_so: of each value, and each way to print it, whether it holds."""

    records: list[_Record]
    read_so: NDArray[np.bool_]

    def take(self, plan: _Plan, of_runs: Ints, places: Ints) -> None:
        """Add these runs to a plan; places: of their values."""
        values = plan.values
        runs = _Runs(values.step[places[:, 0]], values.wall_time[places], values.value[places])
        for record in self.records:
            first, what = places[:, record.first], record.what
            if isinstance(what, UnmatchedReading):
                plan.others.append((what.kind, of_runs, first, record.lines))
            elif isinstance(what, KnownReading):
                plan.idle_parts.append((of_runs, record.lines))
            else:
                plan.parts.append((of_runs, first, record.lines, what.said, what.frame(runs)))


# -- learning --------------------------------------------------------------------------------


class _Read(NamedTuple):
    """A record as the regexes read it; first, lines: as of _Record."""

    first: int
    lines: int
    reading: LineReading


def _learned(reader: ContextFreeReader, tags: list[str], key: tuple[int, ...]) -> _Kind | None:
    """What runs of these tags say; None where they are not alike but for their numbers."""
    rng, count = Random(7), len(key)  # noqa: S311 - numbers to try
    read = partial(_read, reader, tags, key)
    bases = _drawn_runs(rng, np.full((BASE_RUNS, count), PRINTED_WHOLE))
    unlike = rng.sample(range(10_000, 100_000), BASE_RUNS * count)  # so that each is seen in a text
    bases.values[:] = np.array(unlike, np.float32).reshape(BASE_RUNS, count)
    said = read(bases)
    if len({len(records) for records in said}) > 1:
        return None
    records = [_record(reader, bases, of_runs) for of_runs in zip(*said, strict=True)]
    known = [record for record in records if record is not None]
    if len(known) < len(records):
        return None
    read_so = np.zeros((count, PRINT_FORM_COUNT), bool)
    together = _drawn_runs(
        rng, np.repeat(np.arange(PRINT_FORM_COUNT), count).reshape(PRINT_FORM_COUNT, count)
    )
    read_so[:, _as_learned(known, read, together)] = True
    odd = np.flatnonzero(~read_so[0])  # of these it is asked of each value alone
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
    """The records of each run of these tags."""
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
            _Read(one.number - at, one.line_count, reader.read(one.text.encode()))
            for one in join_records(reader.matcher, lines[at : at + size])
        ]
        for at in range(0, len(lines), size)
    ]


def _drawn_runs(rng: Random, ways: Ints) -> _Runs:
    """Runs whose values are printed in these ways."""
    walls = [round(rng.uniform(*WALL_TIME_RANGE), rng.randint(0, 7)) for _ in range(ways.size)]
    values = [_drawn(way, rng) for way in ways.ravel().tolist()]
    return _Runs(
        np.array([int(10 ** rng.uniform(0, 15)) for _ in ways]),
        np.array(walls).reshape(ways.shape),
        np.array(values, np.float32).reshape(ways.shape),
    )


def _record(reader: ContextFreeReader, runs: _Runs, said: Sequence[_Read]) -> _Record | None:
    """What a record of all these runs is; None where that is not seen."""
    first, lines, reading = said[0]
    if any((one.first, one.lines) != (first, lines) for one in said):
        return None
    steps = [one.reading for one in said if isinstance(one.reading, StepReading)]
    if len(steps) == len(said):
        row = _row(reader, runs, range(first, first + lines), steps)
        return None if row is None else _Record(first, lines, row)
    if isinstance(reading, KnownReading | UnmatchedReading) and all(
        one.reading == reading for one in said
    ):
        return _Record(first, lines, reading)
    return None


def _row(
    reader: ContextFreeReader, runs: _Runs, places: range, steps: Sequence[StepReading]
) -> _Row | None:
    """What fills each column of the rows of these runs; places: of the record's values."""
    form, printed_names, row = steps[0]
    if any((s.form, s.printed, s.row.keys()) != (form, printed_names, row.keys()) for s in steps):
        return None
    columns, constants = dict[str, MakeColumn](), dict[str, Any]()
    for name, first in row.items():
        said = [step.row[name] for step in steps]
        if all(is_identical(value, first) for value in said):
            constants[name] = first
            continue
        made = _columns(name, form, runs, places, str(first))
        column = next((c for c in made if _all_same(c(runs), said)), None)
        if column is None:
            return None
        columns[name] = column
    place = next(at for at, one in enumerate(reader.matcher.primary.steps) if one is form)
    what = _Said(form, place, printed_names, constants.pop("says", {}))
    constants = {name: value for name, value in constants.items() if value is not None}
    return _Row(what, columns, constants)


def _columns(
    name: str, form: StepLine, runs: _Runs, places: range, first: str
) -> Iterator[MakeColumn]:
    """All that a column may be; first: what it is of the first of the runs, as text."""
    if name == "extra":
        yield _text(first, runs, places)
    elif name == "logged_at":
        yield from (partial(_stamps, place) for place in places)
    elif STEP_SCHEMA[name].is_integer():
        yield lambda runs: pl.Series(runs.steps)
        yield from (partial(_wholes, place) for place in places)
    elif STEP_SCHEMA[name].is_float():
        targets = [target for target in form.columns.values() if not isinstance(target, str)]
        for factor in (None, *(factor for column, factor in targets if column == name)):
            yield from (partial(_floats, place, factor) for place in places)


def _floats(place: int, factor: float | None, runs: _Runs) -> pl.Series:
    values = runs.column(place)
    return pl.Series(values if factor is None else values * factor)


def _wholes(place: int, runs: _Runs) -> pl.Series:
    with np.errstate(invalid="ignore"):
        return pl.Series(runs.column(place).astype(np.int64))


def _stamps(place: int, runs: _Runs) -> pl.Series:
    return pl.Series(epoch_to_microseconds(runs.wall_times[:, place])).cast(
        STEP_SCHEMA["logged_at"]
    )


def _text(first: str, runs: _Runs, places: range) -> MakeColumn:
    """The text `first`, of the first run, with the values of each."""
    texts = {format_floats(runs.column(place)[:1]).item(): place for place in places}
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
    """Whether each run's records are those that were learned, to the bit."""
    rows = [
        record.what.frame(runs).to_dicts() if isinstance(record.what, _Row) else []
        for record in records
    ]
    return np.array(
        [
            len(said) == len(records)
            and all(
                _is(record, one, row[at] if row else {})
                for record, one, row in zip(records, said, rows, strict=True)
            )
            for at, said in enumerate(read(runs))
        ]
    )


def _is(record: _Record, said: _Read, row: Mapping[str, Any]) -> bool:
    what, now = record.what, said.reading
    if (said.first, said.lines) != (record.first, record.lines):
        return False
    if not isinstance(what, _Row):
        return now == what
    if not isinstance(now, StepReading) or now.form is not what.said.form:
        return False
    if now.printed != what.said.printed or now.row["says"] != what.said.says:
        return False
    filled = {name: value for name, value in now.row.items() if value is not None}
    filled.pop("says")
    mine = {name: value for name, value in row.items() if value is not None}
    return mine.keys() == filled.keys() and all(is_identical(mine[n], filled[n]) for n in mine)


def _all_same(ones: pl.Series, others: Sequence[Any]) -> bool:
    return all(is_identical(one, other) for one, other in zip(ones.to_list(), others, strict=True))
