"""What rows before them have printed of the steps of many rows, asked of all at once.

Logs without time stamps tell by this alone whether a step that comes twice is of another process:
one that holds a copy of itself asks it of every row.
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
"""Stands for a missing loss among the bits of losses: no printed number has these bits."""


class EarlierValues(NamedTuple):
    """For each of some rows, what earlier rows of the same rank and step have printed.

    has_earlier_row: whether there is an earlier row of its own series (see ingest.launches.launch)
    has_same_first_loss: whether the first of these has the same loss, to the last bit
    has_known_rank: whether its rank is known, for a rank does not go back to a step
    loss, first_loss: its own, and that of the first earlier row of any series; nan without one
    first_clock: of the first earlier row of its own series [s since the start]; nan without one
    """

    has_earlier_row: Bools
    has_same_first_loss: Bools
    has_known_rank: Bools
    loss: Floats
    first_loss: Floats
    first_clock: Floats


class EarlierRows:
    """Rows that may belong to a launch, behind the rows that do."""

    def __init__(
        self, rows: StepRows, frame: pl.DataFrame, first_row: int, *, single_writer: bool
    ) -> None:
        """rows: of the launch; first_row: the place in the frame of that which comes behind them.

        single_writer: all are of one rank, see ingest.launches.launch.begins_new_launch.
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
        """Whether it was asked of any."""
        return self._printed is not None

    def of(self, row_indices: Ints) -> EarlierValues:
        """Return `EarlierValues` of the rows at `row_indices`.

        All rows before them count as rows of the launch.
        """
        count = int(row_indices[-1]) + 1 - self._first
        if self._printed is None or len(self._again) < count:  # what lies behind may be in vain
            self._printed = self._look_up(count)
        return EarlierValues._make(column[row_indices - self._first] for column in self._printed)

    def with_repeats(self, last_row: int) -> pl.DataFrame:
        """The rows up to that place; if some are known to be AGAIN, with that."""
        frame = self._frame[self._first : last_row]
        again = self._again[: frame.height]
        if not again.any():
            return frame
        unknown = np.zeros(frame.height - len(again), bool)
        return frame.with_columns(pl.Series(REPEAT_COLUMN, np.append(again, unknown)))

    def _look_up(self, count: int) -> EarlierValues:
        """`EarlierValues` of the first `count` rows."""
        mine = select_filled(
            self._frame[self._first : self._first + count], LOOKUP_COLUMNS, PARSED_STEP_SCHEMA
        )
        steps = column_values(mine["step"], NO_STEP)
        every = pl.concat([self._rows.rows_of_steps(np.unique(steps)), mine])
        keys = _keys(every, np.array([bool(form.counts) for form in self._rows.all_forms]))
        order = np.lexsort(keys[::-1])
        differ = [np.diff(key[order], prepend=0) != 0 for key in keys]
        of_rank = _Groups(order, differ[0] | differ[1])
        of_series = _Groups(order, np.logical_or.reduce(differ))

        losses, clocks = every["loss"], every["since_start_s"]
        here = np.arange(every.height - mine.height, every.height)
        first = of_series.firsts(np.ones(every.height, bool))[here]
        first_loss = of_rank.firsts(losses.is_not_null().to_numpy())[here]
        first_clock = of_series.firsts(clocks.is_not_null().to_numpy())[here]
        bits = _bits(losses)
        tells_nothing = (first < here) & (first_loss != here) & (first_clock != here)
        self._again = tells_nothing & (steps != NO_STEP)
        return EarlierValues(
            has_earlier_row=first < here,
            has_same_first_loss=bits[first] == bits[here],
            has_known_rank=mine["rank"].is_not_null().to_numpy() | self._one_writer,
            loss=column_values(mine["loss"], np.nan),
            first_loss=_at(losses, first_loss, here),
            first_clock=_at(clocks, first_clock, here),
        )


class _Groups:
    """Rows in groups that lie together in some order."""

    def __init__(self, order: Ints, begins: Bools) -> None:
        """begins: of each row in that order whether a group begins with it."""
        self.order = order
        begins[:1] = True
        self.begins = np.flatnonzero(begins)

    def firsts(self, which: Bools) -> Ints:
        """For each row the first of its group that `which` holds of; len(order) without one."""
        count = len(self.order)
        places = np.where(which, np.arange(count), count)[self.order]
        firsts = np.minimum.reduceat(places, self.begins)
        out = np.empty(count, np.int64)
        out[self.order] = np.repeat(firsts, np.diff(self.begins, append=count))
        return out


def _keys(every: pl.DataFrame, counts: Bools) -> list[Ints]:
    """What rows of one series, rank and step have in common: their step and rank first.

    counts: of each form whether it has a counter of its own, which begins anew with an epoch.
    """
    forms = column_values(every[FORM_COLUMN], 0).astype(np.int64)
    epochs = np.where(counts[forms], column_values(every["epoch"], NO_STEP), 0)
    return [column_values(every["step"], NO_STEP), _numbers(every["rank"]), forms, epochs]


def _numbers(ranks: pl.Series) -> Ints:
    """A number for each rank; texts take long, and most logs have none."""
    if ranks.null_count() == len(ranks):
        return np.zeros(len(ranks), np.int64)
    return column_values(ranks.rank("dense"), 0).astype(np.int64)


def _bits(losses: pl.Series) -> Ints:
    """Bits of losses, the same where they are printed alike: any nan is one, -0.0 is not 0.0."""
    bits = column_values(losses.fill_nan(np.nan), 0.0).view(np.int64)
    return np.where(losses.is_null().to_numpy(), MISSING_LOSS_BITS, bits)


def _at(values: pl.Series, places: Ints, here: Ints) -> Floats:
    """The values at places that lie before those here; of others nan."""
    known = np.append(column_values(values, np.nan), np.nan)
    return np.where(places < here, known[places], np.nan)
