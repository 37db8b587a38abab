"""Writers that print into one file at the same time, followed line by line.

The steps and the clock of a writer rise, at the writer's own pace. A line goes to the writer whose
next line fits best. Writers with the same moments, such as ranks that wait for each other, or
without any, cannot be separated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import median, mode
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from ..core.arrays import Ints
from .launch import LOSS_PRINT_TOLERANCE, Launch
from .step_rows import STEP_SCHEMA

MIN_TURNS: Final = 3
"""Minimum of consecutive launches, all but the first without a start, to look for writers."""
MIN_MIXED_TURNS: Final = 5
MAX_TURN_LINES: Final = 4
"""Inseparable launches are joined if MIN_MIXED_TURNS or more have at most so many lines on average.

Fewer turns may be a page that quotes a few lines of several runs.
"""
MIN_MIXED_LINES: Final = 10
"""Minimum number of lines per writer, on average, for turns that are no quotes."""
MAX_WRITERS: Final = 16
MIN_WRITER_LINES: Final = 3
"""Minimum number of lines per writer, on average, that show its pace."""
MAX_FOLLOWED_ROWS: Final = 300_000
RECENT_LINES: Final = 9
"""Lines of a writer whose median is the writer's pace."""
SWITCH_COST: Final = 0.02
"""Margin by which a line must fit another writer than the last line's, as a logarithm."""
OTHER_INTERVAL_COST: Final = 0.1
MAX_COST: Final = 3.0
CLOCK_UNIT_S: Final = 1.0
"""Resolution of clocks and stamps: some print whole seconds."""
PACE_RANGE: Final = (0.5, 2.0)
MIN_EVEN_SHARE: Final = 0.7
"""Share of a writer's lines within PACE_RANGE of the median pace: pauses are few."""
MAX_IN_STEP_S: Final = 2.0
"""Largest change of the distance between writers that wait for each other [s]."""
MIN_SHARED_STEPS: Final = 3

FOLLOWED: Final = ("line", "step", "loss", "since_start_s", "logged_at")
FEATURES: Final = ("elapsed_s", "logged_tgs", "peak_memory_bytes")
"""Columns whose values differ little from line to line of one writer."""

MIXED_FACT: Final = "mixed_writers"


@dataclass(slots=True)
class _Writer:
    """Progress of one writer."""

    rows: list[int] = field(default_factory=list)
    paces: list[float] = field(default_factory=list)
    intervals: list[int] = field(default_factory=list)


class Turns(NamedTuple):
    """Launches that are lines of several writers.

    launches: slice of the launches
    writers: lines of each writer; empty where the writers cannot be separated
    """

    launches: slice
    writers: list[Ints]


def find_turns(launches: Sequence[Launch]) -> Iterator[Turns]:
    """Yield launches in which several writers take turns.

    Consecutive launches with one writer each need no separation, so they are skipped.
    """
    start = 0
    for end in range(1, len(launches) + 1):
        if end < len(launches) and _is_unstarted(launches[end]):
            continue
        if end - start >= MIN_TURNS and (writers := _followed(launches[start:end])) is not None:
            yield Turns(slice(start, end), writers)
        start = end


def _is_unstarted(launch: Launch) -> bool:
    """Return whether a launch begins with a step, without a start line."""
    return bool(launch.rows) and launch.first_line == launch.rows.first_line


def _followed(launches: Sequence[Launch]) -> list[Ints] | None:
    frames = [
        pl.concat(launch.rows.frames(*FOLLOWED, *FEATURES)) for launch in launches if launch.rows
    ]
    if len(frames) < MIN_TURNS or sum(frame.height for frame in frames) > MAX_FOLLOWED_ROWS:
        return None
    launch_of = np.repeat(np.arange(len(frames)), [frame.height for frame in frames])
    rows = _Rows.of(pl.concat(frames))
    writers = list(_follow(rows))
    if all(len({*launch_of[writer.rows].tolist()}) == 1 for writer in writers):
        return None
    if _are_distinct(rows, writers):
        return [rows.lines[writer.rows] for writer in writers]
    short = len(rows.steps) <= MAX_TURN_LINES * len(frames)
    long = len(rows.steps) >= MIN_MIXED_LINES * len(writers)
    return [] if len(frames) >= MIN_MIXED_TURNS and short and long else None


@dataclass(frozen=True, slots=True)
class _Rows:
    """Columns of rows, in their order; NaN without a value."""

    lines: Ints
    steps: list[int]
    losses: list[float]
    moments: list[list[float]]
    features: list[list[float]]

    @classmethod
    def of(cls, frame: pl.DataFrame) -> _Rows:
        stamps = frame["logged_at"].cast(pl.Datetime("us")).cast(pl.Int64) / 1e6
        moments = (frame["since_start_s"], stamps)
        return cls(
            frame["line"].to_numpy(),
            frame["step"].to_list(),
            _floats(frame["loss"]),
            [_floats(each) for each in moments],
            [_floats(frame[name]) for name in FEATURES],
        )

    def between(self, first: int, second: int) -> float:
        """Return the seconds between two rows, by the first clock of both; else NaN."""
        gaps = (of[second] - of[first] for of in self.moments)
        return next((apart for apart in gaps if not math.isnan(apart)), math.nan)


def _floats(values: pl.Series) -> list[float]:
    """Return the numbers of a column; NaN for missing or infinite values."""
    numbers = values.cast(pl.Float64)
    return numbers.set(~numbers.is_finite(), math.nan).fill_null(math.nan).to_list()


def _follow(rows: _Rows) -> Iterable[_Writer]:
    """Return the writers of the rows."""
    writers: list[_Writer] = []
    last: _Writer | None = None
    for row in range(len(rows.steps)):
        costs = [
            (cost + SWITCH_COST * (writer is not last), index)
            for index, writer in enumerate(writers)
            if (cost := _cost(rows, writer, row)) is not None
        ]
        if not costs and len(writers) > MAX_WRITERS:
            break
        writer = writers[min(costs)[1]] if costs else _Writer()
        if not costs:
            writers.append(writer)
        _add_row(rows, writer, row)
        last = writer
    return writers


def _cost(rows: _Rows, writer: _Writer, row: int) -> float | None:
    """Return the misfit of a row as the writer's next row; None where impossible."""
    before = writer.rows[-1]
    steps, apart = rows.steps[row] - rows.steps[before], rows.between(before, row)
    if apart < -CLOCK_UNIT_S:
        return None
    if steps <= 0:
        again = steps == 0 and _alike(rows.losses[before], rows.losses[row])
        return 0.0 if again and not apart > MAX_IN_STEP_S else None
    cost = 0.0
    usual = _usual_pace(rows, writer)
    if usual and apart > 0:
        off = abs(math.log(apart) - math.log(steps * usual))
        off -= CLOCK_UNIT_S / max(apart, CLOCK_UNIT_S)
        cost += min(MAX_COST, max(0.0, off))
    if steps != (
        interval := mode(writer.intervals or [1])
    ):  # of a single line, fewer steps fit better
        cost += OTHER_INTERVAL_COST + abs(math.log(steps / interval)) / 2
    for values in rows.features:
        if values[row] > 0 and values[before] > 0:
            cost += min(1.0, abs(math.log(values[row]) - math.log(values[before])))
    return cost


def _usual_pace(rows: _Rows, writer: _Writer) -> float:
    """Return a writer's seconds per step; 0 if unknown.

    Before the second line, the pace comes from the clock or the printed time of a step.
    """
    if writer.paces:
        return median(writer.paces)
    first = writer.rows[0]
    clock, elapsed = rows.moments[0][first], rows.features[0][first]
    if clock > 0 and rows.steps[first] > 0:
        return clock / rows.steps[first]
    return elapsed if elapsed > 0 else 0.0


def _alike(first_loss: float, second_loss: float) -> bool:
    return abs(first_loss - second_loss) <= LOSS_PRINT_TOLERANCE * (1 + abs(first_loss))


def _add_row(rows: _Rows, writer: _Writer, row: int) -> None:
    if writer.rows and (steps := rows.steps[row] - rows.steps[writer.rows[-1]]) > 0:
        apart = rows.between(writer.rows[-1], row)
        writer.intervals = [*writer.intervals[1 - RECENT_LINES :], steps]
        if apart > 0:
            writer.paces = [*writer.paces[1 - RECENT_LINES :], apart / steps]
    writer.rows.append(row)


def _are_distinct(rows: _Rows, writers: Sequence[_Writer]) -> bool:
    """Return whether every writer has a steady pace, and no two print in step."""
    line_count = sum(len(writer.rows) for writer in writers)
    if line_count < len(rows.steps) or line_count < MIN_WRITER_LINES * len(writers):
        return False
    if not all(_is_even(rows, writer) for writer in writers):
        return False
    return not any(_in_step(rows, *pair) for pair in combinations(writers, 2))


def _is_even(rows: _Rows, writer: _Writer) -> bool:
    pairs = zip(writer.rows[:-1], writer.rows[1:], strict=True)
    paces = [
        rows.between(one, other) / (rows.steps[other] - rows.steps[one])
        for one, other in pairs
        if rows.steps[other] > rows.steps[one]
    ]
    if not paces or any(map(math.isnan, paces)):
        return False
    low, high = (share * median(paces) for share in PACE_RANGE)
    return sum(low <= pace <= high for pace in paces) >= MIN_EVEN_SHARE * len(paces)


def _in_step(rows: _Rows, first: _Writer, second: _Writer) -> bool:
    """Return whether two writers keep a constant distance, as ranks of one job do."""
    row_of_step = {rows.steps[row]: row for row in first.rows}
    shared = [
        (row_of_step[rows.steps[row]], row) for row in second.rows if rows.steps[row] in row_of_step
    ]
    if len(shared) < MIN_SHARED_STEPS:
        return False
    apart = [rows.between(*pair) for pair in shared]
    return max(apart) - min(apart) <= MAX_IN_STEP_S


def join_launches(launches: Sequence[Launch]) -> Launch:
    """Return inseparable launches as one launch, with a fact that says so."""
    first = launches[0]
    rows = first.rows.empty_copy()
    for launch in launches:
        for frame in launch.rows.frames(*STEP_SCHEMA):
            rows.extend(frame)
        if launch is not first:
            for events in launch.events.frames():
                first.events.extend(events)
    rows.settle()
    last = launches[-1]
    lines = sum(len(launch.rows) for launch in launches)
    fact: dict[str, Any] = {
        "name": MIXED_FACT,
        "value": f"The {lines:,} step lines come from several runs in turn, and names, steps and "
        "clocks do not separate them",
        "origin": f"inferred: steps go back {len(launches) - 1:,} times without a start",
        "line": rows.first_line,
        "text": "",
    }
    return replace(
        first,
        rows=rows,
        last_line=last.last_line,
        last_step_text=last.last_step_text,
        facts=[*first.facts, fact],
    )
