"""Windows of one run as arrays.

Analysing a run takes some hundred small steps. A Polars query for every step would cost many times
the arithmetic, so each column is converted once for all runs, then sliced by run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Final, TypeVar

import numpy as np
import polars as pl

from .arrays import BoolArray, FloatArray, IntArray, TextArray, median_of

MICROSECONDS_PER_SECOND: Final = 1e6
"""Arrays give times in microseconds."""

Found = TypeVar("Found")


class _Whole:
    """Columns of all runs, converted on first use."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame.rechunk()
        self.numbers: dict[str, FloatArray] = {}
        self.flags: dict[str, BoolArray] = {}
        self.texts: dict[str, TextArray] = {}
        self.lists: dict[str, tuple[IntArray, Sequence[Sequence[str]]]] = {}

    def number(self, name: str) -> FloatArray:
        if name not in self.numbers:
            column = self.frame.get_column(name)
            values = column.to_physical() if column.dtype.is_temporal() else column
            self.numbers[name] = values.to_numpy().astype(np.float64, copy=False)
        return self.numbers[name]

    def flag(self, name: str) -> BoolArray:
        if name not in self.flags:
            column = self.frame.get_column(name)
            known = column.fill_null(value=False) if column.null_count() else column
            self.flags[name] = known.to_numpy()
        return self.flags[name]

    def text(self, name: str) -> TextArray:
        if name not in self.texts:
            self.texts[name] = self.frame[name].to_numpy()
        return self.texts[name]

    def events(self, name: str) -> tuple[IntArray, Sequence[Sequence[str]]]:
        """Return the indices of rows with events in a column, and their events."""
        if name not in self.lists:
            events = self.frame[name]
            there = events.list.len() > 0
            self.lists[name] = np.flatnonzero(there.to_numpy()), events.filter(there).to_list()
        return self.lists[name]


class RunArrays:
    """Windows of one run, in order of steps.

    frame: rows of windows.windows; of this run alone, unless `by_run` slices them
    """

    __slots__ = ("_from", "_overrides", "_whole", "height", "known")

    def __init__(
        self,
        frame: pl.DataFrame | _Whole,
        start: int = 0,
        height: int | None = None,
        overrides: Mapping[str, FloatArray] | None = None,
    ) -> None:
        """Select rows of the frame.

        start, height: first row, and number of rows (default: all)
        overrides: columns that replace columns of the frame, by name
        """
        self._whole = _Whole(frame) if isinstance(frame, pl.DataFrame) else frame
        self._from = start
        self.height = self._whole.frame.height if height is None else height
        self._overrides = overrides or {}
        self.known: dict[tuple[object, ...], Any] = {}

    def with_values(self, **columns: FloatArray) -> RunArrays:
        """Return the same run with the values of some columns replaced; flags are 0 or 1."""
        return RunArrays(self._whole, self._from, self.height, {**self._overrides, **columns})

    def by_run(self) -> dict[str, RunArrays]:
        """Return every run of a frame sorted by run, by run_id."""
        runs, start = {}, 0
        rows = self._whole.frame.select(pl.col("run_id").rle().struct.unnest())
        for height, run_id in rows.iter_rows():
            runs[run_id] = RunArrays(self._whole, start, height)
            start += height
        return runs

    def __getitem__(self, name: str) -> FloatArray:
        """Return a column of numbers, NaN where null; times are in microseconds."""
        if name in self._overrides:
            return self._overrides[name]
        return self._whole.number(name)[self._from : self._from + self.height]

    def flags(self, name: str) -> BoolArray:
        """Return a column of booleans, false where null."""
        if name in self._overrides:
            return self._overrides[name].astype(np.bool_)
        return self._whole.flag(name)[self._from : self._from + self.height]

    def texts(self, name: str) -> TextArray:
        """Return a column of texts, None where null."""
        return self._whole.text(name)[self._from : self._from + self.height]

    def values(self, name: str) -> pl.Series:
        """Return a column as a Polars series."""
        return self._whole.frame[name].slice(self._from, self.height)

    def value(self, name: str, row: int = 0) -> Any:  # noqa: ANN401 - whatever the column holds
        """Return a column's value in one row; a negative row counts from the end."""
        return self._whole.frame[name][self._from + (row if row >= 0 else self.height + row)]

    def has_quirk(self, name: str) -> bool:
        """Return whether the run has a quirk (ingest.core.schema.QUIRKS)."""
        quirks = self.value("quirks")
        return quirks is not None and name in quirks.to_list()

    def has_any(self, name: str) -> bool:
        """Return whether any row has a value."""
        return not np.isnan(self[name]).all()

    def has_all(self, name: str) -> bool:
        """Return whether every row has a value."""
        return not np.isnan(self[name]).any()

    def events(self, name: str = "events") -> list[tuple[int, Sequence[str]]]:
        """Return the index and the events of each row with events.

        name: `events`, or another column of events
        """
        rows, events = self._whole.events(name)
        first, last = np.searchsorted(rows, (self._from, self._from + self.height))
        return [(int(rows[i]) - self._from, events[i]) for i in range(first, last)]

    def has_events(self, kinds: Sequence[str]) -> BoolArray:
        """Return a mask of the rows with an event of these kinds."""
        has_kind = np.zeros(self.height, np.bool_)
        has_kind[[row for row, events in self.events() if not set(kinds).isdisjoint(events)]] = True
        return has_kind


def once_a_run(function: Callable[[RunArrays, str], Found]) -> Callable[[RunArrays, str], Found]:
    """Keep what a function of a run and an evidence returns: windows never change.

    Nobody may change the result either.
    """

    @wraps(function)
    def remembered(run: RunArrays, evidence: str) -> Found:
        key = (function, evidence)
        if key not in run.known:
            run.known[key] = function(run, evidence)
        found: Found = run.known[key]
        return found

    return remembered


def total(values: pl.Series | FloatArray) -> float:
    """Return the sum as a float: integer sums in Polars wrap silently."""
    if isinstance(values, pl.Series):
        return float(values.cast(pl.Float64).sum())
    with np.errstate(invalid="ignore", over="ignore"):
        return float(values.sum(dtype=np.float64))


def median(values: FloatArray) -> float | None:
    """Return the median of values without NaN; None if empty."""
    return median_of(values) if len(values) else None
