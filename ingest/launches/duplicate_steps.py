"""Earlier rows with the same rank and step, looked up for many rows at once.

Without time stamps, only this lookup shows whether a repeated step was printed by another process.
A log that contains a copy of its own lines needs the lookup for every row.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from ..core.arrays import Bools, Floats, Ints, column_values
from .row_chunks import select_filled
from .step_rows import (
    FORM_COLUMN,
    LOOKUP_COLUMNS,
    NO_STEP,
    PARSED_STEP_SCHEMA,
    REPEAT_COLUMN,
    StepRows,
)

MISSING_LOSS_BITS: Final = -1
"""Bits of a missing loss: no printed number has these bits."""


class EarlierValues(NamedTuple):
    """Values of earlier rows with the same rank and step, for several rows.

    has_earlier_row: True if an earlier row has the same series (see ingest.launches.launch)
    has_same_first_loss: True if the first row of the series has the same loss, bit for bit
    has_known_rank: True if the row's rank is known, because a single rank never goes back to a step
    loss: of the row; nan without a loss
    first_loss: of the first earlier row of any series; nan without one
    first_clock: of the first earlier row of the same series [s since the start]; nan without one
    """

    has_earlier_row: Bools
    has_same_first_loss: Bools
    has_known_rank: Bools
    loss: Floats
    first_loss: Floats
    first_clock: Floats


class EarlierRows:
    """Lookup of earlier rows for a frame of rows that may belong to a launch."""

    def __init__(
        self, rows: StepRows, frame: pl.DataFrame, first_row: int, *, single_writer: bool
    ) -> None:
        """Store the rows; the lookup is done on demand.

        rows: of the launch
        frame: candidate rows, in log order
        first_row: index in the frame of the first row after the launch's rows
        single_writer: all rows have one rank, see ingest.launches.launch.begins_new_launch
        """
        self._rows, self._frame, self._first, self._one_writer = (
            rows,
            frame,
            first_row,
            single_writer,
        )
        self._again = np.empty(0, bool)
        self._printed: EarlierValues | None = None

    @property
    def was_asked(self) -> bool:
        """True if rows have been looked up."""
        return self._printed is not None

    def of(self, row_indices: Ints) -> EarlierValues:
        """Return `EarlierValues` of the rows at `row_indices`.

        All rows before them count as rows of the launch.
        """
        count = int(row_indices[-1]) + 1 - self._first
        if self._printed is None or len(self._again) < count:  # later rows may be unneeded
            self._printed = self._look_up(count)
        return EarlierValues._make(column[row_indices - self._first] for column in self._printed)

    def with_repeats(self, last_row: int) -> pl.DataFrame:
        """Return the rows before `last_row`, with REPEAT_COLUMN if some are repeats."""
        frame = self._frame[self._first : last_row]
        again = self._again[: frame.height]
        if not again.any():
            return frame
        unknown = np.zeros(frame.height - len(again), bool)
        return frame.with_columns(pl.Series(REPEAT_COLUMN, np.append(again, unknown)))

    def _look_up(self, count: int) -> EarlierValues:
        """Return `EarlierValues` of the first `count` rows."""
        candidates = select_filled(
            self._frame[self._first : self._first + count], LOOKUP_COLUMNS, PARSED_STEP_SCHEMA
        )
        steps = column_values(candidates["step"], NO_STEP)
        every = pl.concat([self._rows.rows_of_steps(np.unique(steps)), candidates])
        keys = _keys(every, np.array([bool(form.counts) for form in self._rows.all_forms]))
        order = np.lexsort(keys[::-1])
        differ = [np.diff(key[order], prepend=0) != 0 for key in keys]
        of_rank = _Groups(order, differ[0] | differ[1])
        of_series = _Groups(order, np.logical_or.reduce(differ))

        losses, clocks = every["loss"], every["since_start_s"]
        here = np.arange(every.height - candidates.height, every.height)
        first = of_series.firsts(np.ones(every.height, bool))[here]
        first_loss = of_rank.firsts(losses.is_not_null().to_numpy())[here]
        first_clock = of_series.firsts(clocks.is_not_null().to_numpy())[here]
        bits = _bits(losses)
        tells_nothing = (first < here) & (first_loss != here) & (first_clock != here)
        self._again = tells_nothing & (steps != NO_STEP)
        return EarlierValues(
            has_earlier_row=first < here,
            has_same_first_loss=bits[first] == bits[here],
            has_known_rank=candidates["rank"].is_not_null().to_numpy() | self._one_writer,
            loss=column_values(candidates["loss"], np.nan),
            first_loss=_at(losses, first_loss, here),
            first_clock=_at(clocks, first_clock, here),
        )


class _Groups:
    """Groups of rows that are adjacent in a sort order."""

    def __init__(self, order: Ints, begins: Bools) -> None:
        """Store the order and where its groups begin.

        order: row indices, sorted
        begins: for each position of the order, True if a group begins there
        """
        self.order = order
        begins[:1] = True
        self.begins = np.flatnonzero(begins)

    def firsts(self, which: Bools) -> Ints:
        """Return for each row the first selected row of its group, or len(order).

        which: True for the selected rows
        """
        count = len(self.order)
        places = np.where(which, np.arange(count), count)[self.order]
        firsts = np.minimum.reduceat(places, self.begins)
        out = np.empty(count, np.int64)
        out[self.order] = np.repeat(firsts, np.diff(self.begins, append=count))
        return out


def _keys(every: pl.DataFrame, counts: Bools) -> list[Ints]:
    """Return the keys that define series, rank and step; step and rank first.

    counts: for each form, True if the form has its own counter, which restarts with an epoch
    """
    forms = column_values(every[FORM_COLUMN], 0).astype(np.int64)
    epochs = np.where(counts[forms], column_values(every["epoch"], NO_STEP), 0)
    return [column_values(every["step"], NO_STEP), _numbers(every["rank"]), forms, epochs]


def _numbers(ranks: pl.Series) -> Ints:
    """Return a number for each rank: texts are slow, and most logs have no ranks."""
    if ranks.null_count() == len(ranks):
        return np.zeros(len(ranks), np.int64)
    return column_values(ranks.rank("dense"), 0).astype(np.int64)


def _bits(losses: pl.Series) -> Ints:
    """Return the bits of losses: all nan are equal, -0.0 differs from 0.0."""
    bits = column_values(losses.fill_nan(np.nan), 0.0).view(np.int64)
    return np.where(losses.is_null().to_numpy(), MISSING_LOSS_BITS, bits)


def _at(values: pl.Series, places: Ints, here: Ints) -> Floats:
    """Return the values at `places` that are before `here`; nan for the others."""
    padded = np.append(column_values(values, np.nan), np.nan)
    return np.where(places < here, padded[places], np.nan)
