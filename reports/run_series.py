"""What a run did over its steps, as few rows as a chart needs: frames in, frames out."""

from __future__ import annotations

from typing import Final

import polars as pl

from reports.figure import Row

MOST_BINS: Final = 300
"""Bins of steps per run; with the windows left out kept apart, under 2,000 points per run."""


def binned(windows: pl.DataFrame, metrics: pl.DataFrame, bins: int = MOST_BINS) -> pl.DataFrame:
    """Per run, bin of steps and kind of window, sorted; `window` is "counted" or why it was not.

    tgs [tokens/s/GPU] is a ratio of sums over the bin, low and high its slowest and fastest
    window, loss the mean, memory_bytes the mean and memory_most_bytes the largest of the peaks
    printed, `windows` how many. Columns of SERIES.
    """
    raise NotImplementedError


def marks(events: pl.DataFrame, windows: pl.DataFrame, most: int = MOST_BINS) -> pl.DataFrame:
    """Events that a course of steps shows: run_id, kind, step, last_step, line, text, events.

    events: as in ingest.schema, windows: metrics.windows.windows. step: as printed, else that of
    the next step line, else of the last. At most `most` per run: of more, several of a kind in a
    row are one, `events` how many, with the first one's line and text.
    """
    raise NotImplementedError


def step_time_histogram(windows: pl.DataFrame, row: Row) -> pl.DataFrame:
    """Seconds per step of the windows of one run: low, high, steady, windows, beyond.

    The last bin holds all that is longer (`beyond`). Empty where no window tells seconds per step.
    """
    raise NotImplementedError
