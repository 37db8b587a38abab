"""The windows of one run as arrays.

What is asked of a run takes some hundred small steps, and a query for each would cost many times
what it computes. So each column is converted once, for all runs together, and cut by run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from .arrays import BoolArray, FloatArray, IntArray, TextArray

MICROSECONDS_PER_SECOND: Final = 1e6
"""So many are a second: arrays hold times in microseconds."""


class _Whole:
    """Columns of all runs, converted when they are first asked for."""

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
        """Rows that have any in a column of events, and these."""
        if name not in self.lists:
            events = self.frame[name]
            there = events.list.len() > 0
            self.lists[name] = np.flatnonzero(there.to_numpy()), events.filter(there).to_list()
        return self.lists[name]


class RunArrays:
    """Windows of one run; frame: windows.windows, of this run alone unless `by_run` cuts.

    Rows are in order of steps.
    """

    __slots__ = ("_from", "_own", "_whole", "height")

    def __init__(
        self,
        frame: pl.DataFrame | _Whole,
        start: int = 0,
        height: int | None = None,
        own: Mapping[str, FloatArray] | None = None,
    ) -> None:
        """start, height: of its rows in the frame; own: columns that are otherwise here."""
        self._whole = _Whole(frame) if isinstance(frame, pl.DataFrame) else frame
        self._from = start
        self.height = self._whole.frame.height if height is None else height
        self._own = own or {}

    def with_values(self, **columns: FloatArray) -> RunArrays:
        """The columns, with other numbers in some of them."""
        return RunArrays(self._whole, self._from, self.height, {**self._own, **columns})

    def by_run(self) -> dict[str, RunArrays]:
        """Each run of a frame that is sorted by run."""
        runs, start = {}, 0
        rows = self._whole.frame.select(pl.col("run_id").rle().struct.unnest())
        for height, run_id in rows.iter_rows():
            runs[run_id] = RunArrays(self._whole, start, height)
            start += height
        return runs

    def __getitem__(self, name: str) -> FloatArray:
        """A column of numbers, NaN where it is null; of times, in microseconds."""
        if name in self._own:
            return self._own[name]
        return self._whole.number(name)[self._from : self._from + self.height]

    def flags(self, name: str) -> BoolArray:
        """A column of booleans, false where it is null."""
        return self._whole.flag(name)[self._from : self._from + self.height]

    def texts(self, name: str) -> TextArray:
        """A column of texts, None where it is null."""
        return self._whole.text(name)[self._from : self._from + self.height]

    def values(self, name: str) -> pl.Series:
        """A column as it is."""
        return self._whole.frame[name].slice(self._from, self.height)

    def value(self, name: str, row: int = 0) -> Any:  # noqa: ANN401 - whatever the column holds
        """A column's value in one row, which may count from the end."""
        return self._whole.frame[name][self._from + (row if row >= 0 else self.height + row)]

    def has_quirk(self, name: str) -> bool:
        """Tell whether the run has a quirk (ingest.core.schema.QUIRKS)."""
        held = self.value("quirks")
        return held is not None and name in held.to_list()

    def has_any(self, name: str) -> bool:
        """Whether any row has a value."""
        return not np.isnan(self[name]).all()

    def has_all(self, name: str) -> bool:
        """Whether every row has a value."""
        return not np.isnan(self[name]).any()

    def events(self, name: str = "events") -> list[tuple[int, Sequence[str]]]:
        """`events`, or another column of them, of the rows that have any, by place."""
        rows, events = self._whole.events(name)
        first, last = np.searchsorted(rows, (self._from, self._from + self.height))
        return [(int(rows[at]) - self._from, events[at]) for at in range(first, last)]

    def has_events(self, kinds: Sequence[str]) -> BoolArray:
        """Rows whose `events` hold any of these."""
        held = np.zeros(self.height, np.bool_)
        held[[at for at, events in self.events() if not set(kinds).isdisjoint(events)]] = True
        return held


def total(values: pl.Series | FloatArray) -> float:
    """The sum as a float: Polars' integers wrap silently."""
    return float(pl.Series(values).cast(pl.Float64).sum())


def median(values: FloatArray) -> float | None:
    """The median of the values that are numbers; None where there is none."""
    return pl.Series(values).median()  # type: ignore[return-value]
